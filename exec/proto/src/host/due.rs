//! What a change makes due: the end of an execution, its slot given back, its place in the
//! round-robin and in the line of acknowledgements. Everything that changes an execution calls these
//! afterwards, and they may be called once too often.

use super::execution::{Exec, Phase};
use super::leave::Leaving;
use super::{Conn, Terminal, what};
use crate::id::ExecId;
use crate::schedule::Slot;

impl Conn {
    /// Ends an execution from the guest's point of view, and tells the application unless it
    /// has been told before.
    pub(super) fn finish(&mut self, id: ExecId, terminal: Terminal) {
        self.stop_deadline(id);
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        exec.phase = Phase::Ended;
        exec.drop_pending(&mut self.dropped);
        exec.kill_due = false;
        if !matches!(exec.leaving, Leaving::Done(_)) {
            // It ended first.
            exec.leaving = Leaving::No;
        }
        if exec.terminal.is_none() {
            exec.terminal = Some(terminal);
        }
        self.notice(id, what::WRITABLE | what::STARTED | what::TERMINAL);
        self.settle(id);
        self.schedule_ack(id);
        self.schedule_request();
    }

    /// Its reader took something: an acknowledgement may be due, and of one that has ended the slot.
    pub(super) fn released(&mut self, id: ExecId) {
        self.schedule_ack(id);
        if self.execs.get(&id).is_some_and(Exec::ended) {
            self.settle(id);
        }
    }

    /// Gives the slot back once the guest is done and nothing is retained, and drops the entry
    /// once no handle is left. Called after everything that can make either true; a slot is
    /// given back exactly once because `admitted` is.
    pub(super) fn settle(&mut self, id: ExecId) {
        let ready = self.is_ready();
        let time = self.time;
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        exec.observe(time);
        if !exec.ended() {
            return;
        }
        let owes_ack = self.relayed && ready && exec.ack_due();
        if exec.admitted && exec.drained() && !exec.left {
            exec.admitted = false;
            self.active = self.active.saturating_sub(1);
        }
        if exec.forgotten && !exec.admitted && !owes_ack {
            self.execs.remove(&id);
            self.schedule.remove(id);
            self.requests.retain(|request| *request != id);
            self.schedule_request();
        }
    }

    /// A kill is to leave, unless one has. Whom it reaches is not left to anybody.
    pub(super) fn mark_killed(&mut self, id: ExecId) {
        self.stay(id);
        if let Some(exec) = self.execs.get_mut(&id) {
            exec.kill_due = true;
            self.notice(id, what::KILLED);
            self.schedule_ack(id);
        }
    }

    /// Whether somebody has killed it, or its deadline has.
    #[must_use]
    pub fn is_killed(&self, id: ExecId) -> bool {
        self.execs.get(&id).is_some_and(Exec::killed)
    }

    /// Puts the execution in the round-robin if it has something to send and is not there yet.
    /// Called after everything that can make it so.
    pub(super) fn schedule_slot(&mut self, id: ExecId) {
        let first = self.requests.front() == Some(&id);
        let ready = self.is_ready();
        let held = self.rest.holds_requests();
        let time = self.time;
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        exec.observe(time);
        let may_ask = first && !held;
        if ready && !exec.in_slots && exec.slot_ready() && (may_ask || !exec.requesting()) {
            exec.in_slots = true;
            self.schedule.push_slot(Slot::Exec(id));
        }
    }

    /// Puts the first request that has not left whole in the round-robin. Called after everything
    /// that can change which one that is.
    pub(super) fn schedule_request(&mut self) {
        while let Some(id) = self.requests.front().copied() {
            if self.execs.get(&id).is_some_and(Exec::requesting) {
                self.schedule_slot(id);
                return;
            }
            self.requests.pop_front();
        }
    }

    /// Puts the execution's one-per-execution messages (acknowledgement, kill) in line. Called
    /// after everything that can make one due.
    pub(super) fn schedule_ack(&mut self, id: ExecId) {
        let ready = self.is_ready();
        let time = self.time;
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        exec.observe(time);
        let leaves = exec.may_leave(id, &self.schedule);
        if ready
            && !exec.in_acks
            && (self.relayed || !exec.ended())
            && (exec.kill_ready() || exec.ack_due() || leaves)
        {
            exec.in_acks = true;
            self.schedule.push_ack(id);
        }
    }
}
