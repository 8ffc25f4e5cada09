use super::*;

#[test]
fn a_kernel_is_one_of_the_known_or_a_file() {
    for (text, kernel) in [
        ("minimal", Kernel::Minimal),
        ("minimal-shared", Kernel::MinimalShared),
        ("debian", Kernel::Debian),
        ("./debian", Kernel::File("./debian".into())),
        ("/boot/vmlinuz", Kernel::File("/boot/vmlinuz".into())),
    ] {
        assert_eq!(Kernel::parse(text), Ok(kernel), "{text}");
    }
}
