//! A look at a VM through a relay.

use alloc::vec::Vec;

use super::inspect::PAGE;
use super::*;
use crate::frame::ToGuest;
use crate::guest;
use crate::message::decode;
use crate::pair::{argv, raw};

/// A client and the relay's end that faces it, after Ready.
fn attached() -> Pair {
    let mut pair = Pair::closed(Limits::default());
    pair.host = Conn::facing_relay(Config::default());
    pair.guest = guest::Conn::for_relay();
    pair.host.handle_opened();
    pair.settle();
    pair
}

/// A VM's connection with that many executions.
fn vm(executions: usize) -> Pair {
    let mut vm = Pair::new(Limits::default());
    for _ in 0..executions {
        vm.running(Stdin::Pipe);
    }
    vm
}

/// Asks for one page and brings it.
fn look(client: &mut Pair, vm: &Pair, after: u64) -> Inspection {
    client.host.ask_inspection(after).unwrap();
    client.settle();
    let asked = client.guest.poll_inspect().unwrap();
    assert_eq!(client.guest.poll_inspect(), None, "once");
    client.guest.inspection(&vm.host.inspection(asked));
    client.settle();
    client.host.take_inspection().unwrap()
}

#[test]
fn a_look_through_a_relay_shows_what_the_vm_shows_page_by_page() {
    let vm = vm(40);
    let mut client = attached();
    let (mut after, mut pages, mut seen) = (0, 0, Vec::new());
    loop {
        let page = look(&mut client, &vm, after);
        pages += 1;
        seen.extend(page.view.executions);
        after = seen.last().map_or(0, |exec: &ExecView| exec.id.get());
        if !page.more {
            break;
        }
    }
    assert_eq!((pages, seen.len()), (3, 40));
    assert_eq!(seen, vm.host.inspect().executions);
    let page = look(&mut client, &vm, 40);
    assert!(page.view.executions.is_empty() && !page.more);
    let whole = vm.host.inspect();
    assert_eq!((page.view.state, page.view.active), ("ready", whole.active));
}

#[test]
fn a_page_with_every_field_at_its_largest_fits_the_room_of_an_event() {
    let exec = |id| ExecView {
        id: ExecId::new(id).unwrap(),
        program: "\u{20ac}".repeat(21),
        pid: Some(u32::MAX),
        phase: "requesting",
        admitted: true,
        output_received: u64::MAX,
        output_released: u64::MAX,
        output_acked: u64::MAX,
        output_window: u64::MAX,
        output_held: usize::MAX,
        output_forwarded: u64::MAX,
        chunks_held: usize::MAX,
        output_waits_for: "application",
        output_stalls: longest(),
        stdin_sent: u64::MAX,
        stdin_acked: u64::MAX,
        stdin_window: u64::MAX,
        stdin_pending: usize::MAX,
        stdin: "closing",
        stdin_waits_for: "application",
        stdin_stalls: longest(),
        adoptable: true,
    };
    let view = View {
        state: "greeting",
        connection: u64::MAX,
        active: u32::MAX,
        controls: usize::MAX,
        faults: u64::MAX,
        skipped: u64::MAX,
        bounded: true,
        executions: (0..PAGE as u64).map(|n| exec(u64::MAX - n)).collect(),
    };
    let page = Inspection { view, more: true };
    let encoded = encode(&page);
    assert!(encoded.len() <= 2 * crate::TEXT_MAX, "{}", encoded.len());
    assert_eq!(decode::<Inspection>(&encoded), Some(page));
}

fn longest() -> Stalls {
    let time = core::time::Duration::from_micros(u64::MAX);
    Stalls {
        application: time,
        link: time,
        command: time,
    }
}

#[test]
fn one_look_at_a_time_is_open() {
    let mut client = attached();
    client.host.ask_inspection(0).unwrap();
    assert_eq!(client.host.ask_inspection(0), Err(ControlError::Full));
    client.settle();
    // A client that asks all the same breaks the protocol.
    let frame = raw(ToGuest::Inspect.to_wire(), 0, &0_u64.to_le_bytes());
    let refused = client.guest.handle_bytes(&frame).unwrap_err();
    assert!(refused.0.contains("look"), "{refused}");
}

#[test]
fn a_lost_connection_leaves_no_look_open() {
    let mut client = attached();
    client.host.ask_inspection(0).unwrap();
    client.settle();
    client.host.handle_closed("gone");
    assert_eq!(client.host.ask_inspection(0), Err(ControlError::Closed));
    client.guest = guest::Conn::for_relay();
    client.to_guest.clear();
    client.host.handle_opened();
    client.settle();
    assert!(client.host.ask_inspection(0).is_ok());
}

#[test]
fn an_agent_skips_the_question_and_a_guest_is_never_asked() {
    let mut pair = pair();
    assert_eq!(pair.host.ask_inspection(0), Err(ControlError::Closed));
    let mut question = raw(ToGuest::Inspect.to_wire(), 0, &0_u64.to_le_bytes());
    question[5] = crate::frame::OPTIONAL;
    pair.guest.handle_bytes(&question).unwrap();
    assert!(pair.guest.poll_event().is_none());
    assert!(pair.guest.poll_inspect().is_none());
    let _ = pair.running(Stdin::Null);
}

#[test]
fn an_answer_that_nobody_asked_for_closes_the_connection() {
    let answer = encode(&vm(1).host.inspection(0));
    for mut pair in [pair(), attached()] {
        let frame = raw(FromGuest::Inspection.to_wire(), 0, &answer);
        let verdict = pair.host_receives(&frame, answer.len());
        assert!(matches!(verdict, Verdict::Close(_)), "{verdict:?}");
    }
}

#[test]
fn a_name_that_only_a_newer_relay_knows_is_unknown() {
    let mut encoded = encode(&vm(0).host.inspection(0));
    let at = encoded
        .windows(5)
        .position(|five| five == b"ready")
        .unwrap();
    encoded[at..at + 5].copy_from_slice(b"novel");
    let page: Inspection = decode(&encoded).unwrap();
    assert_eq!(page.view.state, "unknown");
}

#[test]
fn a_program_is_shown_by_the_last_part_of_its_name_cut_to_64_bytes() {
    let mut pair = pair();
    for (name, shown) in [
        ("/usr/bin/env", "env"),
        ("sh", "sh"),
        ("dir/", ""),
        (&*"x".repeat(100), &*"x".repeat(64)),
    ] {
        let start = Start::new(argv(&[name]), Stdin::Null).unwrap();
        let id = pair.host.start(start).unwrap();
        assert_eq!(pair.view(id).program, shown);
    }
    let mut request = argv(&["x"]);
    request.argv[0] = crate::ByteVec::from([0xff; 64].to_vec());
    let id = pair.host.start(Start::new(request, Stdin::Null).unwrap());
    let program = pair.view(id.unwrap()).program;
    assert_eq!(program, "\u{fffd}".repeat(21));
}

#[test]
fn what_is_read_after_its_connection_is_acknowledged_to_nobody() {
    let mut client = attached();
    let id = client.running(Stdin::Null);
    client.produce(id, Stream::Stdout, b"kept");
    client.settle();
    client.host.handle_closed("the relay is gone");
    client.guest = guest::Conn::for_relay();
    client.to_guest.clear();
    client.host.handle_opened();
    client.settle();
    let mut buf = [0; 16];
    assert_eq!(
        client.host.read(id, Stream::Stdout, &mut buf),
        Read::Data(4)
    );
    client.host.forget(id);
    assert!(client.host.inspect().executions.is_empty());
    assert!(client.host.poll_transmit().is_none());
}
