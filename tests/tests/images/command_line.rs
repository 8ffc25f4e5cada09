//! `forebay image`, and `forebay run` of what it built.

use std::process::Output;

use forebay_tests::{CEILING, Running};
use serde_json::{Value, json};

use super::fixture::Place;

/// The command with a cache of its own.
fn forebay(place: &Place, arguments: &[&str]) -> Output {
    let mut command = forebay_tests::command();
    command
        .args(arguments)
        .env("FOREBAY_CACHE", place.cache().root());
    Running::from(command.spawn().expect("forebay starts")).end(CEILING)
}

/// What it printed, of one that ended well.
fn said(place: &Place, arguments: &[&str]) -> String {
    let out = forebay(place, arguments);
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{arguments:?}: {complaint}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn an_image_is_built_listed_run_and_removed() {
    let place = Place::new();
    let path = place.container(&json!({
        "Env": ["PATH=/bin", "GREETING=hello"], "WorkingDir": "/srv", "User": "1000:1001",
        "Entrypoint": ["sh", "-c", "echo $GREETING $(pwd) $(id -u) \"$@\"", "entry"],
        "Cmd": ["from", "the", "image"],
    }));
    let path = path.to_str().unwrap();
    let digest = said(&place, &["image", "build", "--oci", path, "--name", "app"]);
    let digest = digest.trim();
    assert_eq!(
        said(&place, &["image", "build", "--oci", path]).trim(),
        digest
    );

    let list: Value = serde_json::from_str(&said(&place, &["image", "ls", "--json"])).unwrap();
    let ours = list["images"]
        .as_array()
        .unwrap()
        .iter()
        .find(|image| image["digest"] == digest);
    assert_eq!(ours.unwrap()["names"], json!(["app"]));
    let shown = said(&place, &["image", "inspect", "app"]);
    assert!(
        shown.contains("GREETING=hello") && shown.contains(digest),
        "{shown}"
    );
    let shown = said(&place, &["image", "inspect", "--json", &digest[..12]]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["config"]["workdir"], "/srv");

    assert_eq!(
        said(&place, &["run", "--image", "app"]),
        "hello /srv 1000 from the image\n"
    );
    let more = [
        "run",
        "--image",
        &digest[..12],
        "-e",
        "GREETING=bye",
        "-w",
        "/",
        "-u",
        "0",
        "--",
        "me",
    ];
    assert_eq!(said(&place, &more), "bye / 0 me\n");
    let other = [
        "run",
        "--image",
        "app",
        "--entrypoint",
        "echo",
        "--",
        "only",
        "this",
    ];
    assert_eq!(said(&place, &other), "only this\n");

    said(&place, &["image", "rm", "app"]);
    let gone = forebay(&place, &["run", "--image", "app"]);
    assert_eq!(gone.status.code(), Some(125));
    let complaint = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(complaint.contains("no image \"app\""), "{complaint}");
}

#[test]
fn a_command_is_asked_for_where_neither_image_nor_caller_has_one() {
    let place = Place::new();
    let out = forebay(&place, &["run"]);
    assert_eq!(out.status.code(), Some(125));
    let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(complaint.contains("no command"), "{complaint}");
}
