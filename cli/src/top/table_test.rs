use std::time::Duration;

use forebay_exec_proto::ExecId;
use forebay_exec_proto::host::{self as proto, ExecView, View};

use super::*;

fn row(id: u64, output_stalls: [u64; 3], stdin_stalls: [u64; 3]) -> Row {
    let stalls = |[application, link, command]: [u64; 3]| Stalls {
        application,
        link,
        command,
    };
    Row {
        id,
        pid: Some(100),
        program: "cat".to_owned(),
        phase: "started",
        output: [1 << 20, 0, 1 << 20, 0],
        stdin: [0; 4],
        output_stalls: stalls(output_stalls),
        stdin_stalls: stalls(stdin_stalls),
    }
}

#[test]
fn the_one_that_keeps_others_waiting_is_named_with_its_share() {
    assert_eq!(row(1, [930, 0, 70], [1000, 0, 0]).slow(), "reader 93%");
    assert_eq!(row(1, [0, 0, 1000], [0, 500, 500]).slow(), "command 50%");
    assert_eq!(row(1, [0, 300, 700], [900, 100, 0]).slow(), "link 30%");
    assert_eq!(row(1, [0, 100, 900], [500, 500, 0]).slow(), "link 50%");
}

#[test]
fn a_command_that_says_nothing_and_an_application_that_gives_nothing_are_not_slow() {
    assert_eq!(row(1, [0, 0, 1000], [1000, 0, 0]).slow(), "-");
    assert_eq!(row(1, [0, 0, 0], [0, 0, 0]).slow(), "-");
    assert_eq!(
        row(1, [9, 0, 991], [0, 0, 0]).slow(),
        "-",
        "below a percent"
    );
}

#[test]
fn the_slowest_comes_first_and_the_rest_by_id() {
    let rows = vec![
        row(1, [0, 0, 1000], [1000, 0, 0]),
        row(2, [0, 0, 1000], [0, 0, 700]),
        row(3, [900, 0, 100], [1000, 0, 0]),
        row(4, [0, 0, 1000], [1000, 0, 0]),
    ];
    let text = lines("head".to_owned(), rows);
    let ids: Vec<_> = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(ids, ["3", "2", "1", "4"]);
}

#[test]
fn every_line_is_as_wide_as_the_head() {
    let text = lines(String::new(), vec![row(1, [5, 5, 0], [0, 10, 0])]);
    let widths: Vec<_> = text.lines().skip(1).map(str::len).collect();
    assert_eq!(widths[0], widths[1], "\n{text}");
}

#[test]
fn a_programs_name_cannot_write_to_the_terminal() {
    for (name, shown) in [
        ("\u{1b}[2Jx\n\u{9b}", "?[2Jx??"),
        ("gnp.\u{202e}exe", "gnp.?exe"),
        ("a\u{301}\u{200b}\u{3000}\u{2028}b", "a????b"),
        ("a b~!\t\u{7f}", "a b~!??"),
    ] {
        let mut hostile = row(1, [0; 3], [0; 3]);
        hostile.program = name.to_owned();
        let line = hostile.line();
        assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert!(line.contains(&format!(" {shown:<16} started ")), "{line}");
    }
}

/// A look at one execution, of which every number is another.
fn look() -> View {
    let [output_stalls, stdin_stalls] = [(300, 200, 500), (10, 70, 20)].map(|times| {
        let (application, link, command) = times;
        let us = Duration::from_micros;
        proto::Stalls {
            application: us(application),
            link: us(link),
            command: us(command),
        }
    });
    View {
        state: "ready",
        connection: 1,
        active: 2,
        controls: 3,
        faults: 4,
        skipped: 5,
        bounded: true,
        executions: vec![ExecView {
            id: ExecId::new(6).unwrap(),
            program: "cat".to_owned(),
            pid: Some(7),
            phase: "started",
            admitted: true,
            output_received: 11,
            output_released: 12,
            output_acked: 13,
            output_window: 14,
            output_held: 15,
            output_forwarded: 100,
            chunks_held: 16,
            output_waits_for: "command",
            output_stalls,
            stdin_sent: 17,
            stdin_acked: 18,
            stdin_window: 19,
            stdin_pending: 20,
            stdin: "open",
            stdin_waits_for: "link",
            stdin_stalls,
            adoptable: false,
        }],
    }
}

#[test]
fn each_number_of_a_look_stands_in_its_column() {
    let text = Table::default().draw(&look().into());
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0].join(" "),
        "agent ready, 2 active, 4 rules broken, 5 frames skipped"
    );
    let head = lines[1].join(" ").replace("OUT: ", "").replace("IN: ", "");
    let values = lines[2].join(" ").replace("reader ", "reader_");
    let pairs: Vec<_> = head.split(' ').zip(values.split(' ')).collect();
    assert_eq!(
        pairs,
        [
            ("ID", "6"),
            ("PID", "7"),
            ("PROGRAM", "cat"),
            ("PHASE", "started"),
            ("SLOW", "reader_30%"),
            ("GOT", "11"),
            ("ACKED", "13"),
            ("HELD", "115"),
            ("LEFT", "14"),
            ("READER", "30%"),
            ("LINK", "20%"),
            ("CMD", "50%"),
            ("SENT", "17"),
            ("ACKED", "18"),
            ("HELD", "20"),
            ("LEFT", "19"),
            ("WRITER", "10%"),
            ("LINK", "70%"),
            ("CMD", "20%"),
        ]
    );
}

#[test]
fn the_second_look_shows_what_came_since_the_first() {
    let mut table = Table::default();
    let mut view = look();
    table.draw(&view.clone().into());
    let exec = &mut view.executions[0];
    exec.output_stalls.command += Duration::from_micros(100);
    exec.stdin_stalls.command += Duration::from_micros(50);
    exec.stdin_stalls.application += Duration::from_micros(50);
    let text = table.draw(&view.clone().into());
    let shares: Vec<_> = text
        .lines()
        .nth(2)
        .unwrap()
        .split_whitespace()
        .filter(|word| word.ends_with('%'))
        .collect();
    assert_eq!(shares, ["50%", "0%", "0%", "100%", "50%", "0%", "50%"]);
    // One that was not in the last look is new.
    view.executions[0].id = ExecId::new(8).unwrap();
    assert!(table.draw(&view.into()).contains(" 30% "));
}

#[test]
fn what_nobody_holds_is_shown_to_be_adoptable() {
    let mut view = look();
    view.executions[0].adoptable = true;
    let text = Table::default().draw(&view.into());
    let phase = text.lines().nth(2).unwrap().split_whitespace().nth(3);
    assert_eq!(phase, Some("adoptable"));
}

#[test]
fn a_legacy_guest_is_named() {
    let mut view = look();
    view.bounded = false;
    let text = Table::default().draw(&view.into());
    assert!(text.lines().next().unwrap().contains("legacy guest"));
}

#[test]
fn what_came_since_the_last_look_is_the_difference() {
    let last = row(1, [5, 10, 20], [0; 3]).output_stalls;
    let now = row(1, [7, 10, 120], [0; 3]).output_stalls;
    let since = row(1, [2, 0, 100], [0; 3]).output_stalls;
    assert_eq!(now.since(last), since);
}

#[test]
fn bytes_take_at_most_five_characters() {
    for (bytes, shown) in [
        (0, "0"),
        (9_999, "9999"),
        (10_240, "10.0K"),
        (65_536, "64.0K"),
        (1 << 20, "1.0M"),
        ((1 << 20) - 1, "1023K"),
        (150 << 30, "150G"),
        (u64::MAX - 5, "-"),
    ] {
        assert_eq!(short(bytes), shown);
    }
    for exponent in 0..64 {
        assert!(short(1 << exponent).len() <= 5);
        assert!(short((1 << exponent) - 1).len() <= 5);
    }
}
