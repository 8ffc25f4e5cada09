//! Whoever is attached to one VM: greeting, turns, parting.
//!
//! Sockets are watched edge-triggered and each peer remembers what its socket may have, so a turn
//! goes once round all peers and gives each a bounded share. Called by `server`, on its thread.

use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use forebay_exec_proto::FRAME_MAX;
use rustix::event::epoll;
use rustix::io::Errno;

use super::bell::{Bell, Cause, Ringer};
use super::complaints::Complaints;
use super::peer::{Goodbye, Peer};
use super::preamble::Preamble;
use super::{last_words, stream};
use crate::client::Client;
use crate::hub::Hub;

/// Clients that may be attached to one VM at once.
pub const CLIENTS_MAX: usize = 64;

/// How long a client may take until it has greeted the server.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(5);

/// The same while every place is taken, so that one that says nothing keeps nobody out.
pub(super) const HANDSHAKE_CROWDED: Duration = Duration::from_millis(250);

/// Signals and sizes of each client that may go in one turn.
const CONTROLS: usize = 16;

/// The number of `server`'s listener.
pub(super) const LISTENER: u64 = 0;
const BELL: u64 = 1;
/// Numbers from here on are clients'.
const FIRST_CLIENT: u64 = 2;

/// Whether one more can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Yes.
    Free,
    /// Not now: some have a place and have not greeted, and will do so or lose it.
    Soon,
    /// No, all are attached.
    None,
}

/// The clients of one VM.
pub(super) struct Clients {
    /// The program's own, whose default user is that of all.
    client: Client,
    bell: Arc<Bell>,
    /// Watches the bell and the clients, and what `server` adds, by the numbers below.
    pub(super) epoll: OwnedFd,
    peers: BTreeMap<u64, Peer>,
    next_number: u64,
    /// Waits for room in the VM's control queue, when a signal or size found none.
    control_room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The client whose signal or size goes first when there is room, so that each gets its turn.
    controls_from: u64,
    complaints: Complaints,
    /// All peers' sockets are read into it.
    scratch: Vec<u8>,
}

impl Clients {
    pub(super) fn new(client: Client, bell: Arc<Bell>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, bell.fd(), data, epoll::EventFlags::IN)?;
        Ok(Self {
            client,
            bell,
            epoll,
            peers: BTreeMap::new(),
            next_number: FIRST_CLIENT,
            control_room: None,
            controls_from: FIRST_CLIENT,
            complaints: Complaints::default(),
            scratch: vec![0; FRAME_MAX],
        })
    }

    fn hub(&self) -> &Arc<Hub> {
        self.client.hub()
    }

    pub(super) fn room(&self) -> Room {
        if self.peers.len() < CLIENTS_MAX {
            Room::Free
        } else if self.peers.values().all(Peer::has_greeted) {
            Room::None
        } else {
            Room::Soon
        }
    }

    /// A client has connected.
    pub(super) fn greet(&mut self, socket: OwnedFd) {
        if let Some(reason) = self.hub().gone() {
            let mut answer = Preamble::Welcome(self.hub().limits()).encode().to_vec();
            answer.extend(last_words::encode(&reason));
            // Into an empty socket; a client that is gone already needs no answer.
            let _ = stream::send(&socket, &answer);
            return;
        }
        if self.room() != Room::Free {
            if let Some(withheld) = self.complaints.due(Instant::now()) {
                tracing::warn!(
                    most = CLIENTS_MAX,
                    withheld,
                    "a client too many was refused"
                );
            }
            let most = u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX);
            let _ = stream::send(&socket, &Preamble::Full { most }.encode());
            return;
        }
        let number = self.next_number;
        self.next_number = self.next_number.saturating_add(1);
        use epoll::EventFlags as On;
        let watched = On::IN | On::OUT | On::RDHUP | On::ET;
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::add(&self.epoll, &socket, data, watched) {
            if let Some(withheld) = self.complaints.due(Instant::now()) {
                tracing::warn!(%error, withheld, "a client cannot be watched and was refused");
            }
            return;
        }
        tracing::debug!(client = number, "attached");
        let peer = Peer::new(number, socket, &self.client, Arc::clone(&self.bell));
        self.peers.insert(number, peer);
    }

    /// None could be accepted.
    pub(super) fn cannot_accept(&mut self, error: Errno) {
        if let Some(withheld) = self.complaints.due(Instant::now()) {
            tracing::warn!(%error, withheld, "no client can be accepted for now");
        }
    }

    /// Takes note of what the sockets or the bell have.
    pub(super) fn note(&mut self, event: epoll::Event) {
        let flags = event.flags;
        match event.data.u64() {
            BELL => self.answer_bell(),
            number => {
                use epoll::EventFlags as On;
                if let Some(peer) = self.peers.get_mut(&number) {
                    let ended = On::HUP | On::ERR | On::RDHUP;
                    peer.readable |= flags.intersects(On::IN | ended);
                    peer.writable |= flags.intersects(On::OUT | ended);
                }
                // Both directions are closed: whatever it has sent, nobody waits for an answer.
                if flags.intersects(On::HUP | On::ERR) {
                    self.part(number, &Goodbye::Left);
                }
            }
        }
    }

    fn answer_bell(&mut self) {
        self.bell.silence();
        for ringer in self.bell.take() {
            match ringer.cause {
                Cause::Exec(number, id) => {
                    if let Some(peer) = self.peers.get_mut(&number) {
                        peer.service(id);
                    }
                }
                Cause::ControlRoom => self.control_room = None,
            }
        }
    }

    /// Whether a turn would do anything.
    pub(super) fn have_work(&self) -> bool {
        self.controls_may_go() || self.peers.values().any(Peer::has_work)
    }

    /// Gives every client its share.
    pub(super) fn turn(&mut self) {
        let mut parting = Vec::new();
        for (number, peer) in &mut self.peers {
            if peer.has_work()
                && let Err(goodbye) = peer.turn(&mut self.scratch)
            {
                parting.push((*number, goodbye));
            }
        }
        for (number, goodbye) in parting {
            self.part(number, &goodbye);
        }
        self.send_controls();
    }

    /// How long the one that was silent longest may still be at `now`.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let limit = self.handshake();
        let silent = self.peers.values().filter(|peer| !peer.has_greeted());
        let longest = silent
            .map(|peer| now.saturating_duration_since(peer.since))
            .max();
        longest.map(|longest| limit.saturating_sub(longest))
    }

    /// Parts from those that have been silent for too long at `now`.
    pub(super) fn expire(&mut self, now: Instant) {
        let limit = self.handshake();
        let silent = self.peers.iter().filter(|(_, peer)| {
            !peer.has_greeted() && now.saturating_duration_since(peer.since) >= limit
        });
        for number in silent.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.part(number, &Goodbye::Silent);
        }
    }

    fn handshake(&self) -> Duration {
        if self.room() == Room::Soon {
            HANDSHAKE_CROWDED
        } else {
            HANDSHAKE
        }
    }

    /// Whether a signal or size waits and there may be room. While that is waited for there is none.
    fn controls_may_go(&self) -> bool {
        self.control_room.is_none() && self.peers.values().any(Peer::waits_for_room)
    }

    /// Lets signals and sizes into the VM's control queue, one of each client in turn.
    fn send_controls(&mut self) {
        for _ in 0..CONTROLS {
            if !self.controls_may_go() {
                break;
            }
            let after = self.peers.range(self.controls_from..);
            let before = self.peers.range(..self.controls_from);
            let order: Vec<u64> = after.chain(before).map(|(number, _)| *number).collect();
            let mut sent = false;
            for number in order {
                if let Some(peer) = self.peers.get_mut(&number)
                    && peer.send_control()
                {
                    sent = true;
                    self.controls_from = number.saturating_add(1);
                }
            }
            if !sent {
                self.wait_for_room();
            }
        }
    }

    /// Asks to be woken when there is room. It may have come since the last try, so that is
    /// done once more.
    fn wait_for_room(&mut self) {
        let hub = Arc::clone(self.hub());
        let mut room: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { hub.control_room.notified().await });
        let waker = Waker::from(Ringer::new(Cause::ControlRoom, &self.bell));
        if room
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return;
        }
        let sent = self.peers.values_mut().any(Peer::send_control);
        if !sent {
            self.control_room = Some(room);
        }
    }

    /// A client's connection ends, and with it its executions.
    fn part(&mut self, number: u64, goodbye: &Goodbye) {
        let Some(mut peer) = self.peers.remove(&number) else {
            return;
        };
        let executions = peer.executions();
        match goodbye {
            Goodbye::Left => tracing::debug!(client = number, executions, "detached"),
            Goodbye::Silent => {
                tracing::debug!(client = number, "a client said nothing and was cut off");
            }
            Goodbye::Fault(rule) => {
                if let Some(withheld) = self.complaints.due(Instant::now()) {
                    tracing::warn!(
                        client = number,
                        executions,
                        rule,
                        withheld,
                        "a client broke the exec protocol; its executions are killed"
                    );
                }
            }
            Goodbye::Host(error) => tracing::debug!(
                client = number,
                executions,
                %error,
                "a client's connection failed; its executions are killed"
            ),
        }
        if let Some(words) = goodbye.words() {
            peer.last_words(&words);
        }
        // Closed before its executions go, which takes the VM's lock for each.
        let _ = epoll::delete(&self.epoll, peer.fd());
        drop(peer);
    }

    /// Parts from all, with what the VM's end has brought about, as far as the sockets take it,
    /// and with the VM's reason, or `otherwise`.
    pub(super) fn farewell(&mut self, otherwise: &str) {
        self.answer_bell();
        let gone = self.hub().gone();
        let reason = gone.as_deref().unwrap_or(otherwise);
        for peer in self.peers.values_mut() {
            if peer.send().is_ok() {
                peer.last_words(reason);
            }
        }
        self.peers.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }
}
