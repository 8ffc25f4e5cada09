use std::rc::Rc;

use forebay_exec_proto::Request;
use rustix::io::{Errno, write};
use rustix::process::{Resource, getrlimit};

use super::{Launch, Progress};
use crate::command::{Command, Defaults};
use crate::failure::{Report, Stage};
use crate::spawn::Start;
use crate::spawn::stack::Spares;
use crate::streams::Pipe;

impl Launch {
    /// Whether a child that shares this memory was on the stack.
    pub(crate) fn stack_was_used(&self) -> bool {
        self.stack.was_used()
    }
}

/// A start whose child is played by whoever holds the other end of `status`.
fn launch(status: Pipe, spares: &Rc<Spares>) -> (Launch, std::os::fd::OwnedFd) {
    let request = Request {
        argv: vec![b"true".to_vec().into()],
        ..Request::default()
    };
    let start = Start {
        command: Command::new(&request, &Defaults::default()).unwrap(),
        streams: [0, 1, 2],
        terminal: false,
        status: 3,
        open_files: getrlimit(Resource::Nofile),
    };
    let stack = spares.take().unwrap();
    let launch = Launch::new(status.agent, Box::new(start), stack, Rc::clone(spares));
    (launch, status.child)
}

// What is left of a child that was killed on its way is what execve leaves: a closed pipe.
#[test]
fn a_start_that_ends_without_a_word_counts_as_started() {
    let (launch, child) = launch(Pipe::from_child().unwrap(), &Rc::default());
    assert_eq!(launch.progress(), Progress::Pending);
    drop(child);
    assert_eq!(launch.progress(), Progress::Started);
}

#[test]
fn memory_is_used_again_when_the_child_has_left_it_and_never_before() {
    let spares = Rc::default();
    let (left, child) = launch(Pipe::from_child().unwrap(), &spares);
    drop(child);
    drop(left);
    assert_eq!(spares.len(), 1);
    let (early, child) = launch(Pipe::from_child().unwrap(), &spares);
    drop(early);
    assert_eq!(spares.len(), 0);
    drop(child);
}

// The child is still on its stack when it has said what failed.
#[test]
fn a_report_does_not_mean_that_the_child_has_left_its_memory() {
    let spares = Rc::default();
    let report = Report::from((Stage::Cwd, Errno::NOENT));
    let said = || {
        let (launch, child) = launch(Pipe::from_child().unwrap(), &spares);
        write(&child, &report.to_wire()).unwrap();
        (launch, child)
    };
    let (early, child) = said();
    assert!(matches!(early.progress(), Progress::Failed(_)));
    drop(early);
    drop(child);
    assert_eq!(spares.len(), 0);
    // Nor does it matter whether anybody read it.
    let (unread, child) = said();
    drop(child);
    drop(unread);
    assert_eq!(spares.len(), 1);
}
