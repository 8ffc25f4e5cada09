use super::*;

const GRACE: Duration = Duration::from_millis(20);

#[test]
fn a_host_that_takes_its_time_gets_everything() {
    let (progress, steps) = channel();
    progress.send(Step::Sent(3)).unwrap();
    progress.send(Step::Holding).unwrap();
    let late = thread::spawn(move || {
        thread::sleep(GRACE * 5);
        progress.send(Step::Sent(7)).unwrap();
    });
    assert_eq!(result(&steps, GRACE), 7);
    late.join().unwrap();
}

#[test]
fn a_pipe_that_something_holds_open_is_given_up() {
    let (progress, steps) = channel();
    progress.send(Step::Sent(3)).unwrap();
    assert_eq!(result(&steps, GRACE), 3);
    drop(progress);
}

#[test]
fn a_copy_says_what_it_holds_and_what_it_has_sent() {
    let (progress, steps) = channel();
    let (mut to, mut seen) = (Vec::new(), Vec::new());
    copy(&b"twelve bytes"[..], &mut to, |step| {
        progress.send(step).unwrap()
    });
    drop(progress);
    for step in steps {
        seen.push(match step {
            Step::Holding => None,
            Step::Sent(total) => Some(total),
        });
    }
    assert_eq!(
        (to.as_slice(), seen),
        (&b"twelve bytes"[..], vec![None, Some(12)])
    );
}
