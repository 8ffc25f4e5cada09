use super::*;
use crate::error::HostError;

#[test]
fn an_error_says_what_to_do_where_there_is_something() {
    let shown = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        HostError::on("start thread", "forebay-vcpu0", source).to_string()
    };
    assert!(shown(libc::EAGAIN).ends_with(THREADS));
    assert!(shown(libc::EMFILE).ends_with(DESCRIPTORS));
    for remedy in [MEMORY, MEMORY_GROUP, ADDRESS_SPACE, OVERCOMMIT] {
        assert!(shown(libc::ENOMEM).contains(remedy), "{remedy}");
    }
    assert!(shown(libc::EIO).ends_with("(os error 5)"));
}
