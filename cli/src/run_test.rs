use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// The command that a command line gives with an image of this entry point and command.
fn command(line: &[&str], entrypoint: &[&str], cmd: &[&str]) -> Vec<OsString> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let config = ImageConfig {
        entrypoint: owned(entrypoint),
        cmd: owned(cmd),
        ..ImageConfig::default()
    };
    let line = Line::try_parse_from([&["run"], line].concat()).unwrap();
    line.options.command(&config)
}

#[test]
fn arguments_take_the_place_of_the_image_s_and_go_behind_its_entry_point() {
    assert_eq!(
        command(&[], &["/entry", "-v"], &["serve"]),
        ["/entry", "-v", "serve"]
    );
    assert_eq!(
        command(&["--", "stop", "-x"], &["/entry"], &["serve"]),
        ["/entry", "stop", "-x"]
    );
    assert_eq!(command(&["ls", "-l"], &[], &["sh"]), ["ls", "-l"]);
    assert_eq!(command(&[], &[], &["sh", "-i"]), ["sh", "-i"]);
    assert!(command(&[], &[], &[]).is_empty());
}

#[test]
fn an_entry_point_that_is_given_takes_the_place_of_all_that_the_image_says() {
    assert_eq!(
        command(&["--entrypoint", "sh"], &["/entry"], &["serve"]),
        ["sh"]
    );
    assert_eq!(
        command(
            &["--entrypoint", "sh", "--", "-c", "x"],
            &["/entry"],
            &["serve"]
        ),
        ["sh", "-c", "x"]
    );
}
