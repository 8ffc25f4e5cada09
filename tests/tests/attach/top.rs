//! `forebay top`: who is slow, told to another process.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use forebay::Stdin;
use forebay_tests::{CEILING, Running, Within as _, command, turn};
use serde_json::Value;

use super::{Attached, end};

impl Attached {
    /// `forebay top` at this VM.
    fn top(&self, options: &[&str]) -> Command {
        let mut top = command();
        top.args(["top", "--attach"]).arg(self.path()).args(options);
        top
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_names_the_slow_reader_and_the_slow_command_before_all_others() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let library = attached.vm.client();
    let fine = library.exec("sleep", ["1000"]).stdin(Stdin::piped());
    let fine = fine.spawn().within(CEILING).await.unwrap();
    let unread = library.exec("yes", ["unread"]);
    let unread = unread.spawn().within(CEILING).await.unwrap();
    let client = attached.client().await;
    let deaf = client.exec("sleep", ["1000"]).stdin(Stdin::piped());
    let mut deaf = deaf.spawn().within(CEILING).await.unwrap();
    let sink = deaf.take_stdin().unwrap();
    let write = tokio::spawn(async move { sink.write(vec![0; 1 << 20]).await });
    let stalled = async {
        loop {
            let executions = attached.vm.inspect().executions.executions;
            let waits = |name, direction: fn(&forebay::ExecutionView) -> &'static str| {
                executions.iter().any(|exec| direction(exec) == name)
            };
            if waits("application", |exec| exec.output_waits_for)
                && waits("command", |exec| exec.stdin_waits_for)
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    stalled.within(CEILING).await;

    let out = end(attached.top(&["--once", "--json"]).spawn().unwrap()).await;
    assert_eq!(out.status.code(), Some(0));
    let look: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&look["state"], &look["active"]),
        (&"ready".into(), &3.into())
    );
    let of = |program: &str, waits: &str| {
        let mut all = look["executions"].as_array().unwrap().iter();
        let found = all.find(|exec| exec["program"] == program && exec["stdin_waits_for"] == waits);
        found.unwrap_or_else(|| panic!("{look:#}")).clone()
    };
    let yes = of("yes", "nobody");
    assert_eq!(yes["pid"], unread.pid());
    assert_eq!(yes["output_waits_for"], "application");
    assert!(yes["output_window"].as_u64().unwrap() <= 256, "{yes:#}");
    assert!(yes["output_stalls"]["application_us"].as_u64().unwrap() > 0);
    let slow = of("sleep", "command");
    assert_eq!(slow["pid"], deaf.pid());
    assert_eq!(slow["stdin_window"], 0);
    assert_eq!(of("sleep", "application")["pid"], fine.pid());

    // Lines for people, without a terminal: one table after the other. The first is of the
    // executions' whole lives, in which a slow start counts for all of them; the others are of a
    // second each, with the idle one last.
    let mut top = attached.top(&[]).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let top = Running::from(top);
    let watched = tokio::task::spawn_blocking(move || {
        let mut tables = Vec::new();
        while tables.len() < 4 {
            let line = lines.next().expect("it goes on").unwrap();
            if line.starts_with("agent ready, 3 active") {
                tables.push(Vec::new());
            } else if let Some(table) = tables.last_mut() {
                table.push(line);
            }
        }
        tables.pop();
        (tables, lines)
    });
    let (tables, lines) = watched.within(CEILING).await.unwrap();
    for table in &tables[1..] {
        let [head, first, second, last] = &table[..] else {
            panic!("{table:#?}");
        };
        assert!(head.contains("SLOW"), "{head}");
        assert!(
            [first, second]
                .iter()
                .any(|row| row.contains("reader ") && row.contains(" yes ")),
            "{table:#?}"
        );
        assert!(
            [first, second]
                .iter()
                .any(|row| row.contains("command ") && row.contains(" sleep ")),
            "{table:#?}"
        );
        assert!(
            last.contains(&format!(" {} sleep", fine.pid())),
            "{table:#?}"
        );
    }

    // A stdin that is still held keeps its command alive; a kill ends both.
    deaf.kill();
    assert!(write.within(CEILING).await.unwrap().is_err());
    drop((fine, unread, deaf));
    attached.close().await;
    drop(lines);
    let out = tokio::task::spawn_blocking(move || top.end(super::LONG));
    let out = out.await.unwrap();
    assert!(
        [Some(125), Some(141)].contains(&out.status.code()),
        "{:?}",
        out.status
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_of_no_vm_says_where_it_looked() {
    let _turn = turn().await;
    let mut nowhere = command();
    nowhere.args(["top", "--attach", "/nowhere/vm.sock", "--once"]);
    let out = end(nowhere.stdin(Stdio::null()).spawn().unwrap()).await;
    assert_eq!(out.status.code(), Some(125));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("/nowhere/vm.sock"), "{text}");
}
