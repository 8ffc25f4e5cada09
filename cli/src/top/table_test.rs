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
    let mut hostile = row(1, [0; 3], [0; 3]);
    hostile.program = "\u{1b}[2Jx\n\u{9b}".to_owned();
    assert!(!hostile.line().chars().any(char::is_control));
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
