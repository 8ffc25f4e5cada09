use super::*;

#[test]
fn a_child_ends_with_the_thread_that_started_it() {
    let start = || {
        let mut sleep = Command::new("sleep");
        ends_with_us(sleep.arg("1000"));
        sleep.spawn().unwrap()
    };
    let mut child = std::thread::spawn(start).join().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9)
    );
}
