cd /tmp
git --version
git config --global user.name forebay
git config --global user.email forebay@example.org
git init -q -b main work
cd work
for n in 1 2 3; do
    seq $((n * 1000)) >file
    git add file
    git commit -q -m "number $n"
done
test "$(git log --oneline | wc -l)" = 3
git gc -q
git fsck --strict
git clone -q . ../copy
cd ../copy
git checkout -q -b side HEAD~1
echo more >other
git add other
git commit -q -m side
git merge -q -m merged main
git fsck --strict
test "$(wc -l <file)" = 3000
