//! A container image's word counts for commands of other processes.

use std::process::Command;

use forebay::{Client, Vm};
use forebay_images::Source;
use forebay_tests::{CEILING, Running, TestVm, Within as _, command, scaled, turn};
use serde_json::json;

use super::fixture::Place;

/// What a command says of itself.
const WHO: &str = "id -un; id -gn; pwd; echo $A";
const AS_THE_IMAGE_SAYS: &str = "app\nstaff\n/srv\nimage\n";

/// What a program of this machine printed, of one that ended well.
async fn said(mut program: Command) -> String {
    let child = Running::from(program.spawn().unwrap());
    let end = tokio::task::spawn_blocking(move || child.end(CEILING));
    let out = end.await.unwrap();
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{complaint}");
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_attached_clients_run_as_the_image_says_and_never_by_its_entry_point() {
    let _turn = turn().await;
    let place = Place::new();
    let path = place.container(&json!({
        "Env": ["A=image", "PATH=/bin"], "User": "app", "WorkingDir": "/srv",
        "Entrypoint": ["echo", "not", "this"],
    }));
    let built = place.build(&Source::Container {
        path,
        reference: None,
    });
    let socket = place.dir.path().join("vm.sock");
    let builder = Vm::builder().image(built.image).attach_socket(&socket);
    let vm = TestVm::start(builder.boot_deadline(scaled(CEILING))).await;

    let client = Client::connect(&socket).within(CEILING).await.unwrap();
    let out = client.shell(WHO).within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), AS_THE_IMAGE_SAYS);

    let exec = |options: &[&str]| {
        let mut exec = command();
        exec.args(["exec", "--attach"]).arg(&socket).args(options);
        exec.args(["--", "sh", "-c", WHO]);
        exec
    };
    assert_eq!(said(exec(&[])).await, AS_THE_IMAGE_SAYS);
    // Each of the image's words gives way to the client's.
    let others = exec(&["-u", "0", "-w", "/", "-e", "A=asked"]);
    assert_eq!(said(others).await, "root\nroot\n/\nasked\n");
    drop(client);
    vm.close().await;
}
