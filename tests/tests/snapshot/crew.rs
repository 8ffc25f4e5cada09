//! Executions of every kind in one VM, each with a stream whose every byte is known: what is lost, twice
//! or out of order over a cut shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::{
    Adopted, Exec, ExecEvent, ExecHandle, ExecId, ExecParts, ExecSink, Signal, Stdin, TerminalSize,
    WriteError,
};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, HELPER, Seed, TestVm, Within as _, to_its_exit};
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinHandle;

/// How many write without pause while they are read.
const STREAMS: usize = 4;
/// Most that is read at once, in bytes.
const PIECE: u64 = 4 * 1024;
/// Most that is written at once, in bytes: more than the channel takes before the command has read.
const WRITE: u64 = 8 * PIECE;
/// For a stream that does not end in any test.
const ENDLESS: u64 = 1 << 40;
/// More stdin than the channel and a pipe take of a command that does not read.
const TOO_MUCH: u64 = 150_000;

/// A place in a pattern, up to which somebody has come.
#[derive(Debug, Clone)]
struct Place {
    pattern: Pattern,
    at: u64,
}

impl Place {
    fn start(seed: u64) -> Self {
        Self {
            pattern: Pattern::new(seed),
            at: 0,
        }
    }

    /// Goes on by the next `len` bytes.
    fn take(&mut self, len: u64) -> Vec<u8> {
        self.at += len;
        self.pattern.take(usize::try_from(len).unwrap())
    }

    /// Goes on by these bytes, which have to be the next.
    fn check(&mut self, bytes: &[u8]) {
        let differs = self.pattern.first_difference(bytes);
        assert_eq!(differs, None, "bytes behind {} are others", self.at);
        self.at += bytes.len() as u64;
    }

    /// This place, further on.
    fn moved_to(&self, at: u64) -> Self {
        let mut place = self.clone();
        let mut left = at.checked_sub(place.at).expect("it went back");
        while left > 0 {
            left -= place.take(left.min(PIECE)).len() as u64;
        }
        place
    }
}

/// A command that writes for ever.
struct Writer {
    parts: ExecParts,
    place: Place,
}

impl Writer {
    async fn start(vm: &TestVm, seed: u64) -> Self {
        let bytes = ENDLESS.to_string();
        let exec = vm.exec(HELPER, ["random", &seed.to_string(), &bytes]);
        Self {
            parts: spawn(exec).await.split(),
            place: Place::start(seed),
        }
    }

    fn id(&self) -> ExecId {
        self.parts.exit.id()
    }

    /// Reads what is there, at most `most` bytes. Says how many came.
    async fn read(&mut self, most: u64) -> u64 {
        let mut bytes = vec![0; usize::try_from(most).unwrap()];
        let stdout = &mut self.parts.stdout;
        let came = stdout.read(&mut bytes).within(CEILING).await.unwrap();
        assert!(came > 0, "it ended");
        self.place.check(&bytes[..came]);
        came as u64
    }

    async fn read_on(&mut self, mut len: u64) {
        while len > 0 {
            len -= self.read(len.min(PIECE)).await;
        }
    }

    /// The same in a copy, from where the source stood at the cut: between `before` and its own place.
    fn adopt(&self, copy: &TestVm, before: &Place) -> Self {
        let adopted = copy.adopt(self.id()).unwrap();
        let at = adopted.progress.stdout_consumed;
        assert!((before.at..=self.place.at).contains(&at), "{at}");
        Self {
            parts: adopted.handle.split(),
            place: before.moved_to(at),
        }
    }
}

/// A command that gives back what it is fed.
struct Echo {
    parts: ExecParts,
    sink: ExecSink,
    fed: Place,
    /// What came back.
    back: Place,
}

impl Echo {
    /// `cat` at pipes.
    async fn start(vm: &TestVm, seed: u64) -> Self {
        let cat = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
        Self::of(spawn(cat).await, Place::start(seed), Place::start(seed))
    }

    /// `cat` at a terminal that passes every byte.
    async fn start_at_terminal(vm: &TestVm, seed: u64) -> Self {
        let exec = vm.shell("stty raw -echo; echo up; exec cat");
        let exec = exec.stdin(Stdin::piped()).terminal(TerminalSize::default());
        let mut handle = spawn(exec).await;
        let mut up = Vec::new();
        while up != b"up\n" {
            match handle.recv().within(CEILING).await {
                Some(ExecEvent::Stdout(data)) => up.extend_from_slice(&data),
                Some(ExecEvent::Started { .. }) => {}
                other => panic!("{other:?} after {up:?}"),
            }
        }
        Self::of(handle, Place::start(seed), Place::start(seed))
    }

    fn of(mut handle: ExecHandle, fed: Place, back: Place) -> Self {
        Self {
            sink: handle.take_stdin().unwrap(),
            parts: handle.split(),
            fed,
            back,
        }
    }

    /// Feeds it so much more, and reads until all has come back.
    async fn go_on(&mut self, len: u64) {
        let next = self.fed.take(len);
        let write = async { self.sink.write(next).within(CEILING).await.unwrap() };
        let read = async {
            while self.back.at < self.fed.at {
                let mut bytes = vec![0; PIECE as usize];
                let read = self.parts.stdout.read(&mut bytes);
                let came = read.within(CEILING).await.unwrap();
                assert!(came > 0, "it ended");
                self.back.check(&bytes[..came]);
            }
        };
        tokio::join!(write, read);
    }

    /// The same in a copy. `before` is where both of its streams stood some time before the cut, and
    /// `shown` what was printed before its first byte.
    fn adopt(&self, copy: &TestVm, before: &Place, shown: u64) -> Self {
        let adopted = copy.adopt(self.parts.exit.id()).unwrap();
        let Adopted {
            handle, progress, ..
        } = adopted;
        let (fed, back) = (progress.stdin_accepted, progress.stdout_consumed - shown);
        assert!(before.at <= back && back <= fed && fed <= self.fed.at);
        Self::of(handle, before.moved_to(fed), before.moved_to(back))
    }
}

/// A command that does not read, and its stdin that waits for that.
struct Deaf {
    handle: ExecHandle,
    fed: Place,
    /// The write that waits, or that was cut off with a copy's source.
    write: Option<JoinHandle<Result<ExecSink, WriteError>>>,
}

impl Deaf {
    /// It reads when it is told to go on, and tells whether it had exactly twice [`TOO_MUCH`] bytes of
    /// its pattern.
    async fn start(vm: &TestVm, seed: u64) -> Self {
        let total = 2 * TOO_MUCH;
        let line = format!("kill -STOP $$; exec {HELPER} check-random {seed} {total}");
        let mut handle = spawn(vm.shell(line).stdin(Stdin::piped())).await;
        let mut fed = Place::start(seed);
        let (sink, first) = (handle.take_stdin().unwrap(), fed.take(TOO_MUCH));
        let write = async move { sink.write(first).await.map(|()| sink) };
        Self {
            write: Some(tokio::spawn(write)),
            handle,
            fed,
        }
    }

    /// The same in a copy, in which what the source had handed in waits.
    fn adopt(&self, copy: &TestVm) -> Self {
        let adopted = copy.adopt(self.handle.id()).unwrap();
        assert_eq!(adopted.progress.stdin_accepted, self.fed.at);
        Self {
            handle: adopted.handle,
            fed: self.fed.clone(),
            write: None,
        }
    }

    async fn finish(mut self) {
        let cont = self.handle.signal(Signal::CONT).within(CEILING).await;
        cont.unwrap();
        let sink = match self.write.take() {
            Some(write) => write.within(CEILING).await.unwrap().unwrap(),
            None => self.handle.take_stdin().unwrap(),
        };
        let rest = self.fed.take(2 * TOO_MUCH - self.fed.at);
        sink.write(rest).within(CEILING).await.unwrap();
        sink.close().within(CEILING).await.unwrap();
        let (stdout, stderr, status) = to_its_exit(&mut self.handle).await;
        let told = [stdout, stderr].concat();
        let expected = format!("{} bytes as expected\n", 2 * TOO_MUCH);
        assert_eq!(String::from_utf8(told).unwrap(), expected);
        assert_eq!(status.code(), Some(0));
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // What waits holds the sink, and with it the execution.
        if let Some(write) = &self.write {
            write.abort();
        }
    }
}

/// One of every kind, and four that stream.
pub(crate) struct Crew {
    streams: Vec<Writer>,
    fed: Echo,
    terminal: Echo,
    /// Nobody reads it while anything is saved.
    full: Writer,
    deaf: Deaf,
    ended: ExecHandle,
}

/// How many executions a [`Crew`] is.
pub(crate) const CREW: u32 = STREAMS as u32 + 5;

/// What was printed at the terminal before its first byte.
const SHOWN: u64 = 3;

impl Crew {
    pub(crate) async fn start(vm: &TestVm, seed: &mut Seed) -> Self {
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(Writer::start(vm, seed.number()).await);
        }
        Self {
            streams,
            fed: Echo::start(vm, seed.number()).await,
            terminal: Echo::start_at_terminal(vm, seed.number()).await,
            full: Writer::start(vm, seed.number()).await,
            deaf: Deaf::start(vm, seed.number()).await,
            ended: start_ended(vm).await,
        }
    }

    /// Their ids, in order.
    pub(crate) fn ids(&self) -> Vec<ExecId> {
        let mut ids: Vec<_> = self.streams.iter().map(Writer::id).collect();
        let echoes = [&self.fed, &self.terminal];
        ids.extend(echoes.map(|echo| echo.parts.exit.id()));
        ids.extend([self.full.id(), self.deaf.handle.id(), self.ended.id()]);
        ids.sort();
        ids
    }

    /// Waits until each of those that shall not go on cannot.
    pub(crate) async fn stalls(&self, vm: &TestVm) {
        let (full, deaf, ended) = (self.full.id(), self.deaf.handle.id(), self.ended.id());
        let wait = async {
            loop {
                let executions = vm.inspect().executions.executions;
                let of = |id: ExecId| executions.iter().find(|e| e.id == id.get()).unwrap();
                if of(full).output_waits_for == "application"
                    && of(deaf).stdin_waits_for == "command"
                    && of(ended).phase == "ended"
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wait.within(CEILING).await;
    }

    /// Has those that stream and those that are fed go on without pause, until it is stopped.
    pub(crate) fn go_on(self, seed: &mut Seed) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let goes_on = |stop: &Arc<AtomicBool>| {
            let stop = Arc::clone(stop);
            move || !stop.load(Ordering::Relaxed)
        };
        let before = Before {
            streams: self.streams.iter().map(|s| s.place.clone()).collect(),
            fed: self.fed.fed.clone(),
            terminal: self.terminal.fed.clone(),
        };
        let streams = self.streams.into_iter().map(|mut stream| {
            let goes_on = goes_on(&stop);
            tokio::spawn(async move {
                while goes_on() {
                    stream.read(PIECE).await;
                }
                stream
            })
        });
        let mut echo = |mut echo: Echo| {
            let goes_on = goes_on(&stop);
            let mut lengths = Seed::new(seed.number());
            tokio::spawn(async move {
                while goes_on() {
                    echo.go_on(1 + lengths.below(WRITE)).await;
                }
                echo
            })
        };
        Busy {
            before,
            streams: streams.collect(),
            fed: echo(self.fed),
            terminal: echo(self.terminal),
            full: self.full,
            deaf: self.deaf,
            ended: self.ended,
            stop,
        }
    }

    /// The same in a copy that was made while they went on from `before`.
    pub(crate) fn adopt(&self, copy: &TestVm, before: &Before) -> Self {
        assert_eq!(copy.survivors(), self.ids());
        assert_eq!(copy.client().active(), CREW);
        let streams = self.streams.iter().zip(&before.streams);
        let adopted = Self {
            streams: streams.map(|(s, before)| s.adopt(copy, before)).collect(),
            fed: self.fed.adopt(copy, &before.fed, 0),
            terminal: self.terminal.adopt(copy, &before.terminal, SHOWN),
            full: self.full.adopt(copy, &self.full.place),
            deaf: self.deaf.adopt(copy),
            ended: copy.adopt(self.ended.id()).unwrap().handle,
        };
        assert!(copy.survivors().is_empty());
        adopted
    }

    /// Has each go on beyond all that was on its way, and those that can come to their end. What ended
    /// is started anew.
    pub(crate) async fn check(mut self, vm: &TestVm, seed: &mut Seed) -> Self {
        let beyond = 2 * u64::from(vm.client().limits().output_limit);
        for stream in self.streams.iter_mut().chain([&mut self.full]) {
            stream.read_on(beyond + seed.below(beyond)).await;
        }
        for echo in [&mut self.fed, &mut self.terminal] {
            echo.go_on(1 + seed.below(WRITE)).await;
        }
        self.deaf.finish().await;
        let (stdout, _, status) = to_its_exit(&mut self.ended).await;
        assert_eq!((&*stdout, status.code()), (&b"last words\n"[..], Some(7)));
        Self {
            deaf: Deaf::start(vm, seed.number()).await,
            ended: start_ended(vm).await,
            ..self
        }
    }
}

/// Where those stood that go on.
pub(crate) struct Before {
    streams: Vec<Place>,
    fed: Place,
    terminal: Place,
}

/// A [`Crew`] at work.
pub(crate) struct Busy {
    before: Before,
    streams: Vec<JoinHandle<Writer>>,
    fed: JoinHandle<Echo>,
    terminal: JoinHandle<Echo>,
    full: Writer,
    deaf: Deaf,
    ended: ExecHandle,
    stop: Arc<AtomicBool>,
}

impl Busy {
    /// Waits until each has come to a place where it can be left, and says where they stood when they
    /// began.
    pub(crate) async fn stop(self) -> (Crew, Before) {
        self.stop.store(true, Ordering::Relaxed);
        let mut streams = Vec::new();
        for stream in self.streams {
            streams.push(stream.within(CEILING).await.unwrap());
        }
        let crew = Crew {
            streams,
            fed: self.fed.within(CEILING).await.unwrap(),
            terminal: self.terminal.within(CEILING).await.unwrap(),
            full: self.full,
            deaf: self.deaf,
            ended: self.ended,
        };
        (crew, self.before)
    }
}

async fn start_ended(vm: &TestVm) -> ExecHandle {
    spawn(vm.shell("echo last words; exit 7")).await
}

async fn spawn(exec: Exec) -> ExecHandle {
    exec.spawn().within(CEILING).await.unwrap()
}
