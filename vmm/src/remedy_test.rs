use super::*;
use crate::error::HostError;

#[test]
fn an_error_says_what_to_do_where_there_is_something() {
    let shown = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        HostError::on("start thread", "forebay-vcpu0", source).to_string()
    };
    assert!(shown(libc::EAGAIN).contains("pids.max"));
    assert!(shown(libc::EMFILE).ends_with(DESCRIPTORS));
    assert!(shown(libc::ENOMEM).contains("RLIMIT_AS"));
    assert!(shown(libc::EIO).ends_with("(os error 5)"));
}
