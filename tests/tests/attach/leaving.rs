//! Commands that are left by one process and adopted by another, by a real guest.

use forebay::{Adopted, Client, ExecEvent, ExecHandle, ExecId, Stdin, Survivors};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{
    CEILING, TestVm, Within as _, assert_slots_come_free, builder, command, counted, turn,
};

use super::{Attached, end};

/// Reads at least `len` bytes of stdout.
async fn read(handle: &mut ExecHandle, len: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < len {
        match handle.recv().within(CEILING).await {
            Some(ExecEvent::Stdout(data)) => read.extend_from_slice(&data),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    read
}

async fn adopt(client: &Client, id: ExecId) -> Adopted {
    client.adopt(id).within(CEILING).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exec_detach_leaves_is_adopted_with_all_its_output_and_its_exit_code() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let adopt = async |id: Option<&str>| {
        let mut adopt = command();
        adopt.args(["adopt", "--attach"]).arg(attached.path());
        end(adopt.args(id).spawn().unwrap()).await
    };
    let mut exec = command();
    exec.args(["exec", "--attach"]).arg(attached.path());
    // More than the VM keeps of it, so that it waits.
    let line = "seq 0 600000 | head -c 3000000; read line; echo $line >&2; exit 9";
    exec.args(["-i", "--detach", "--", "sh", "-c", line]);
    let left = end(exec.spawn().unwrap()).await;
    assert_eq!(left.status.code(), Some(0));
    let id = String::from_utf8(left.stdout).unwrap();
    assert_eq!(attached.client_of_library().active(), 1, "it lives on");

    let listed = adopt(None).await;
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), id);
    let mut taken = command();
    taken.args(["adopt", "--attach"]).arg(attached.path());
    let mut taken = taken
        .arg(id.trim())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut taken.stdin.take().unwrap(), b"typed\n").unwrap();
    let taken = end(taken).await;
    assert_eq!(taken.status.code(), Some(9));
    assert!(taken.stdout == counted(0..3_000_000), "bytes differ");
    assert_eq!(taken.stderr, b"typed\n");

    // It is gone, and what somebody has is not to be had.
    let held = attached.shell("sleep 1000").spawn().await.unwrap();
    for (id, why) in [
        (id.trim().to_owned(), "has no execution"),
        (held.id().to_string(), "somebody else's"),
    ] {
        let refused = adopt(Some(&id)).await;
        assert_eq!(refused.status.code(), Some(125));
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(why), "{text}");
    }
    drop(held);
    assert_slots_come_free(&attached.vm).await;
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_goes_from_client_to_client_byte_for_byte() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let data = Pattern::new(5).take(1 << 20);
    let first = attached.client().await;
    let cat = first.exec("cat", [""; 0]).stdin(Stdin::piped());
    let cat = cat.spawn().within(CEILING).await.unwrap();
    let mut id = cat.leave().within(CEILING).await.unwrap();
    drop(first);
    let mut seen = Vec::new();
    let mut pieces = data.chunks(200_000);
    loop {
        // Now and then the program that has the VM has its turn.
        let client = match pieces.len() % 3 {
            0 => attached.client_of_library().clone(),
            _ => attached.client().await,
        };
        let Adopted {
            mut handle,
            progress,
            ..
        } = adopt(&client, id).await;
        assert_eq!(progress.stdout_consumed, seen.len() as u64);
        let Some(piece) = pieces.next() else {
            let output = handle.collect().within(CEILING).await.unwrap();
            seen.extend(output.stdout());
            assert_eq!(output.status().code(), Some(0));
            break;
        };
        let sink = handle.take_stdin().unwrap();
        let (written, read) = tokio::join!(
            sink.write_all(piece).within(CEILING),
            read(&mut handle, 100_000)
        );
        written.unwrap();
        seen.extend(read);
        handle.put_stdin_back(sink).unwrap();
        id = handle.leave().within(CEILING).await.unwrap();
    }
    assert!(seen == data, "{} bytes, or other ones", seen.len());
    assert_slots_come_free(&attached.vm).await;
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_copy_goes_on_where_one_of_its_source_had_read() {
    let _turn = turn().await;
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source.sock");
    let vm = TestVm::start(builder().forkable(true).attach_socket(&source)).await;
    let client = Client::connect(&source).within(CEILING).await.unwrap();
    let counter = client.exec("seq", ["0", "10000000"]);
    let mut counter = counter.spawn().within(CEILING).await.unwrap();
    let mut seen = read(&mut counter, 100_000).await;
    let template = vm.template().await.unwrap();
    let path = directory.path().join("copy.sock");
    let fork = template.fork().survivors(Survivors::Adopt);
    let copy = TestVm::restore(fork.attach_socket(&path)).await;
    let client = Client::connect(&path).within(CEILING).await.unwrap();
    let [id] = client.adoptable().within(CEILING).await.unwrap()[..] else {
        panic!("one survived");
    };
    let Adopted {
        mut handle,
        progress,
        ..
    } = adopt(&client, id).await;
    let from = usize::try_from(progress.stdout_consumed).unwrap();
    // What the source's client had read and not said yet comes again, and nothing is missing.
    assert!((1..=seen.len()).contains(&from), "{from}");
    let more = read(&mut handle, 1_500_000).await;
    assert!(more == counted(from..from + more.len()), "bytes differ");
    drop(handle);
    assert_slots_come_free(&copy).await;
    // The source goes on for its own.
    seen.extend(read(&mut counter, 1_500_000).await);
    assert!(seen == counted(0..seen.len()), "bytes differ");
    drop(counter);
    assert_slots_come_free(&vm).await;
}
