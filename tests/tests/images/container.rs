//! A container image as a guest.

use forebay::Vm;
use forebay_images::Source;
use forebay_tests::{CEILING, TestVm, Within, scaled, turn};
use serde_json::json;

use super::fixture::Place;

/// Mode, owner, links and type of what is easily lost.
const FACTS: &str = "\
/srv/data 640 1000:1001 2 regular file
/srv/fifo 666 0:0 1 fifo
/srv/null 666 0:0 1 character special file
/srv/same 640 1000:1001 2 regular file
/srv/tool 4755 0:0 1 regular file
";

#[tokio::test]
async fn a_container_image_runs_as_it_says_and_has_what_its_layers_say() {
    let _turn = turn().await;
    let place = Place::new();
    let path = place.container(&json!({
        "Env": ["A=image", "B=image", "PATH=/bin"], "User": "app", "WorkingDir": "/srv",
        "Entrypoint": ["sh", "-c"], "Cmd": ["id -un; id -gn; pwd; echo $A $B"],
    }));
    let built = place.build(&Source::Container {
        path,
        reference: None,
    });
    assert!(built.notes.is_empty(), "{:?}", built.notes);
    let image = built.image;
    let command = image.command();
    let builder = Vm::builder()
        .image(image)
        .env("B", "mine")
        .boot_deadline(scaled(CEILING));
    let vm = TestVm::start(builder).await;

    let (program, arguments) = command.split_first().unwrap();
    let out = vm.exec(program, arguments).within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), "app\nstaff\n/srv\nimage mine\n");

    // Each of the image's words gives way to the caller's.
    let asked = vm.exec("sh", ["-c", "id -un; pwd; echo $A"]);
    let out = asked
        .user("root")
        .current_dir("/")
        .env("A", "asked")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout_str().unwrap(), "root\n/\nasked\n");

    let root = |line: &'static str| vm.shell(line).user("root").within(CEILING);
    let out = root("stat -c '%n %a %u:%g %h %F' /srv/data /srv/fifo /srv/null /srv/same /srv/tool")
        .await
        .unwrap();
    assert_eq!(out.stdout_str().unwrap(), FACTS);
    let out = root("echo x >/srv/null && cat /srv/data /srv/long-name/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/end")
        .await
        .unwrap();
    assert_eq!(
        out.stdout_str().unwrap(),
        "datafar",
        "{:?}",
        out.stderr_str()
    );
    let out = root("ls /srv /srv/opaque").await.unwrap();
    let expected = "/srv:\ndata\nfifo\nlong-name\nnull\nopaque\nsame\ntool\n\n/srv/opaque:\nnew\n";
    assert_eq!(out.stdout_str().unwrap(), expected);
    vm.close().await;
}
