//! Random use of one sink against a model: what the command receives is, in call order, all of
//! each finished write and a prefix of each cancelled one, and the end of stdin comes last.

use proptest::prelude::*;

use crate::fake_guest::{ByHand, FakeVm};
use crate::{Limits, Stdin, WriteError};

#[derive(Debug, Clone)]
enum Op {
    /// Calls `write` with that many bytes.
    Write(usize),
    /// Drops the write at that place among those under way.
    Cancel(usize),
    /// Polls every write under way.
    Poll,
    /// Moves some frames.
    Round,
    /// The command reads its stdin, or leaves it alone.
    Reads(bool),
    /// Calls `close` and drops the future after one poll.
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => prop_oneof![1usize..4, 20usize..90, 200usize..2000].prop_map(Op::Write),
        3 => (0usize..4).prop_map(Op::Cancel),
        4 => Just(Op::Poll),
        6 => Just(Op::Round),
        2 => any::<bool>().prop_map(Op::Reads),
        1 => Just(Op::Close),
    ]
}

/// What became of a write.
#[derive(Debug, PartialEq)]
enum Fate {
    Done,
    Cancelled,
    Refused,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_arrives_is_what_was_written_in_call_order(
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let vm = FakeVm::with_limits(Limits {
            input_limit: 128,
            stdin_chunk_size: 48,
            ..Limits::default()
        });
        let exec = vm.client.exec("drain", [""; 0]).stdin(Stdin::piped());
        let mut handle = vm.run(exec.spawn()).unwrap();
        let id = handle.id();
        vm.command(id, |command| command.exit = None);
        let sink = handle.take_stdin().unwrap();
        let mut under_way = Vec::new();
        let mut fates = Vec::new();
        let mut closed = false;

        for op in ops {
            match op {
                Op::Write(len) => {
                    let index = fates.len();
                    let byte = index as u8;
                    let mut write = ByHand::new(sink.write(vec![byte; len]));
                    fates.push((len, Fate::Cancelled));
                    match write.poll() {
                        std::task::Poll::Pending => {
                            prop_assert!(!closed, "a write after the close waits");
                            under_way.push((index, write));
                        }
                        std::task::Poll::Ready(Err(WriteError::Closed)) => {
                            prop_assert!(closed);
                            fates[index].1 = Fate::Refused;
                        }
                        std::task::Poll::Ready(other) => prop_assert!(false, "{other:?}"),
                    }
                }
                Op::Cancel(at) if at < under_way.len() => drop(under_way.remove(at)),
                Op::Cancel(_) => {}
                Op::Poll => under_way.retain_mut(|(index, write)| {
                    let ready = write.poll();
                    if let std::task::Poll::Ready(outcome) = &ready {
                        outcome.as_ref().unwrap();
                        fates[*index].1 = Fate::Done;
                    }
                    ready.is_pending()
                }),
                Op::Round => {
                    vm.round();
                }
                Op::Reads(reads) => vm.command(id, |command| command.reads = reads),
                Op::Close => {
                    let _ = ByHand::new(sink.close()).poll();
                    closed = true;
                }
            }
            let view = &vm.hub.inspect().executions[0];
            prop_assert!(view.stdin_sent - view.stdin_acked <= 128);
        }

        vm.command(id, |command| command.reads = true);
        for (index, write) in under_way {
            vm.run(write.into_inner()).unwrap();
            fates[index].1 = Fate::Done;
        }
        vm.run(sink.close()).unwrap();
        vm.settle();
        let (received, eof) = vm.command(id, |command| (command.received.clone(), command.eof));
        prop_assert!(eof);
        let mut rest = &received[..];
        for (index, (len, fate)) in fates.iter().enumerate() {
            let n = rest.iter().take_while(|byte| usize::from(**byte) == index).count();
            match fate {
                Fate::Done => prop_assert_eq!(n, *len, "write {}", index),
                Fate::Cancelled => prop_assert!(n <= *len, "write {}", index),
                Fate::Refused => prop_assert_eq!(n, 0, "write {}", index),
            }
            rest = &rest[n..];
        }
        prop_assert!(rest.is_empty(), "bytes out of order");
        let view = &vm.hub.inspect().executions[0];
        // The guest says nothing while less than half of the window is unacknowledged.
        prop_assert!(view.stdin_window > 128 / 2, "the credit is back");
        prop_assert_eq!(view.stdin_sent as usize, received.len());
    }
}
