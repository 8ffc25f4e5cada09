cd /tmp
gcc --version
cat >hello.c <<'C'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void *square(void *n) { *(double *)n *= *(double *)n; return 0; }
int main(void) {
    double n = sqrt(2);
    pthread_t thread;
    if (pthread_create(&thread, 0, square, &n) || pthread_join(thread, 0)) return 1;
    printf("%.3f\n", n);
    return 0;
}
C
gcc -O2 -Wall -o hello hello.c -lm
test "$(./hello)" = 2.000
gcc -O2 -static -o hello-static hello.c -lm
test "$(./hello-static)" = 2.000
# A package made of it, and installed as any other.
mkdir -p package/DEBIAN package/usr/bin
cp hello package/usr/bin/forebay-hello
printf '%s\n' 'Package: forebay-hello' 'Version: 1' 'Architecture: amd64' 'Depends: libc6' \
    'Maintainer: nobody <nobody@example.org>' 'Description: says the square of a root' \
    >package/DEBIAN/control
dpkg-deb --root-owner-group --build package forebay-hello.deb
apt-get install -y ./forebay-hello.deb
test "$(forebay-hello)" = 2.000
dpkg -s forebay-hello
