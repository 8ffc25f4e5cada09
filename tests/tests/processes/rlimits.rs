//! Limits of a command's processes: they hold as given, and one that cannot hold is no start.

use forebay::{ExecError, FailureKind, Resource, Signal};
use forebay_tests::{CEILING, HELPER, Within as _};

use super::{LONG, answer, assert_slots_come_free, shared};

const EPERM: i32 = 1;
const SIGXCPU: u32 = 24;
const SIGXFSZ: u32 = 25;

// B18: above the hard limit that the guest starts with.
#[tokio::test]
async fn a_hard_limit_can_be_raised_for_somebody_who_may_not() {
    let vm = &*shared().await;
    let limits = vm.shell("ulimit -S -n; ulimit -H -n").user("1000");
    let limits = limits.rlimit(Resource::Nofile, 65_536, 65_536);
    let out = limits.within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), "65536\n65536\n");
    // What nobody asks for is the guest's, not the agent's.
    let agents = answer(vm, "grep 'Max open files' /proc/1/limits").await;
    let own = answer(vm, "grep 'Max open files' /proc/self/limits").await;
    assert!(agents != own, "{agents}, {own}");
}

// B18
#[tokio::test]
async fn every_limit_arrives_at_its_own_place() {
    let vm = &*shared().await;
    // Enough for what runs here, and different for each.
    let hard = |resource: Resource| match resource {
        Resource::Nofile => 512,
        resource => (1 << 40) + resource as u64,
    };
    let names = [
        (Resource::Cpu, "cpu time"),
        (Resource::Fsize, "file size"),
        (Resource::Data, "data size"),
        (Resource::Stack, "stack size"),
        (Resource::Core, "core file size"),
        (Resource::Rss, "resident set"),
        (Resource::Nproc, "processes"),
        (Resource::Nofile, "open files"),
        (Resource::Memlock, "locked memory"),
        (Resource::As, "address space"),
        (Resource::Locks, "file locks"),
        (Resource::Sigpending, "pending signals"),
        (Resource::Msgqueue, "msgqueue size"),
        (Resource::Nice, "nice priority"),
        (Resource::Rtprio, "realtime priority"),
        (Resource::Rttime, "realtime timeout"),
    ];
    let exec = vm.exec("cat", ["/proc/self/limits"]);
    let exec = names.into_iter().fold(exec, |exec, (resource, _)| {
        exec.rlimit(resource, hard(resource) - 1, hard(resource))
    });
    let out = exec.within(CEILING).await.unwrap();
    let text = out.stdout_str().unwrap();
    for (resource, name) in names {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("Max {name} ")))
            .unwrap_or_else(|| panic!("{name}: {text}"));
        let values: Vec<_> = line.split_whitespace().take(2).collect();
        let expected = [hard(resource) - 1, hard(resource)].map(|value| value.to_string());
        assert_eq!(values, expected, "{name}");
    }
}

// B18
#[tokio::test]
async fn no_more_files_than_the_limit_can_be_open() {
    let vm = &*shared().await;
    // Ten are open when `cat` wants one more.
    let script = "exec 3</dev/null 4<&3 5<&3 6<&3 7<&3 8<&3 9<&3; exec cat /proc/self/stat";
    let exec = |soft| vm.shell(script).rlimit(Resource::Nofile, soft, 20);
    let out = exec(10).within(CEILING).await.unwrap();
    assert!(!out.status().success(), "{:?}", out.stdout());
    assert!(
        out.stderr_str().unwrap().contains("Too many open files"),
        "{:?}",
        out.stderr()
    );
    let out = exec(11).within(CEILING).await.unwrap();
    assert!(out.status().success(), "{:?}", out.stderr());
}

// B18
#[tokio::test]
async fn a_limit_on_file_size_ends_who_writes_more_to_a_file_and_not_to_a_pipe() {
    let vm = &*shared().await;
    let limited = |script| vm.shell(script).rlimit(Resource::Fsize, 1000, 1000);
    let out = limited("exec head -c 5000 /dev/zero > /tmp/fsize")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(
        out.status().signal(),
        Signal::new(SIGXFSZ),
        "{}",
        out.status()
    );
    assert_eq!(
        answer(vm, "stat -c %s /tmp/fsize; rm /tmp/fsize").await,
        "1000"
    );
    let out = limited("exec head -c 5000 /dev/zero")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout().len(), 5000);
    assert!(out.status().success());
}

// B18
#[tokio::test]
async fn a_limit_on_cpu_time_ends_a_busy_loop() {
    let vm = &*shared().await;
    for (hard, signal) in [(60, Signal::new(SIGXCPU)), (1, Some(Signal::KILL))] {
        let exec = vm.exec(HELPER, ["spin"]).user("1000");
        let out = exec
            .rlimit(Resource::Cpu, 1, hard)
            .within(LONG)
            .await
            .unwrap();
        assert_eq!(out.status().signal(), signal, "{}", out.status());
        assert!(!out.status().timed_out());
    }
}

// B18
#[tokio::test]
async fn a_limit_above_what_the_guest_allows_is_no_start() {
    let vm = &*shared().await;
    let most: u64 = answer(vm, "cat /proc/sys/fs/nr_open")
        .await
        .parse()
        .unwrap();
    for user in ["0", "1000"] {
        let exec = vm.exec("true", [""; 0]).user(user);
        let exec = exec.rlimit(Resource::Nofile, 10, most + 1);
        match exec.within(CEILING).await {
            Err(ExecError::NotStarted(failure)) => {
                assert_eq!(failure.kind, FailureKind::ResourceLimit, "{failure}");
                assert_eq!(failure.stage, "setrlimit(NOFILE)", "{failure}");
                assert_eq!(failure.errno, Some(EPERM), "{failure}");
                for said in ["nofile", "fs.nr_open", &(most + 1).to_string()] {
                    assert!(failure.message.contains(said), "{failure}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let exec = vm.exec("true", [""; 0]).rlimit(Resource::Nofile, 10, most);
    assert!(exec.within(CEILING).await.unwrap().status().success());
    assert_slots_come_free(vm).await;
}

// B18
#[tokio::test]
async fn limits_that_contradict_themselves_are_refused_before_anything_is_sent() {
    let vm = &*shared().await;
    let refused = async |exec: forebay::Exec| match exec.within(CEILING).await {
        Err(error @ ExecError::InvalidRequest { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let exec = || vm.exec("true", [""; 0]);
    let above = refused(exec().rlimit(Resource::Nofile, 20, 10)).await;
    assert!(above.contains("nofile"), "{above}");
    let twice = exec().rlimit(Resource::Cpu, 1, 1);
    let twice = refused(twice.rlimit(Resource::Cpu, 1, 1)).await;
    assert!(twice.contains("cpu"), "{twice}");
    assert!("nofiles".parse::<Resource>().is_err());
    assert_eq!("nofile".parse::<Resource>().ok(), Some(Resource::Nofile));
}

// A user's limit on processes is looked at when its program begins.
#[tokio::test]
async fn a_user_with_too_many_processes_starts_no_program() {
    let vm = &*shared().await;
    let other = vm.exec("sleep", ["1000"]).user("1000");
    let other = other.spawn().within(CEILING).await.unwrap();
    let exec = vm.exec("true", [""; 0]).user("1000");
    match exec.rlimit(Resource::Nproc, 0, 0).within(CEILING).await {
        Err(ExecError::NotStarted(failure)) => {
            assert_eq!(failure.kind, FailureKind::ResourceLimit, "{failure}");
            assert_eq!(failure.stage, "execve", "{failure}");
            assert!(failure.message.contains("nproc"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    drop(other);
    // Root is not held to it.
    let exec = vm.exec("true", [""; 0]).rlimit(Resource::Nproc, 0, 0);
    assert!(exec.within(CEILING).await.unwrap().status().success());
}
