//! The way back: a connection from what was saved, with every rule checked.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::format::{ConnV1, ControlV1, ExecV1, PhaseV1};
use super::{RestoreError, RestoreOptions, SavedConn, execution};
use crate::host::execution::Exec;
use crate::host::quiesce::Rest;
use crate::host::{Config, Conn, Control, State};
use crate::id::{ExecId, IdSource};
use crate::message::{Bootstrap, CAPABILITIES, QUIESCE, Ready};
use crate::schedule::{Order, Scheduler};
use crate::{CONTROL_QUEUE, GENERATION};

/// A rule of the connection that is broken.
const fn broken(rule: &'static str) -> RestoreError {
    RestoreError::Connection { rule }
}

impl Conn {
    /// The connection as it was saved; see the [module](crate::host::saved) for what comes next.
    ///
    /// # Errors
    /// [`RestoreError::LegacyGuest`], or what a live connection could not have said of itself, by
    /// name.
    pub fn restore(saved: SavedConn, options: RestoreOptions) -> Result<Self, RestoreError> {
        let SavedConn(ConnV1 {
            bootstrap,
            ready,
            last_id,
            execs,
            order,
            controls,
            ping_due,
            pings,
            power_off,
            faults,
            skipped,
            asked,
            frozen,
            relies_on,
        }) = saved;
        for name in relies_on {
            if !CAPABILITIES.contains(&name.as_str()) {
                return Err(RestoreError::Capability { name });
            }
            if !ready.can(&name) {
                return Err(broken("it relies on what its agent does not announce"));
            }
        }
        if frozen && !ready.can(QUIESCE) {
            return Err(broken(
                "its agent cannot freeze executions, and they are frozen",
            ));
        }
        let mut conn = Self::greeted(bootstrap, &ready, options)?;
        conn.rest = Rest::resumed(asked, frozen);
        conn.ids = IdSource::after(last_id);
        conn.execs = conn.restore_executions(execs)?;
        let deadlines = conn.execs.iter();
        conn.deadlines = deadlines
            .filter_map(|(id, exec)| Some((exec.deadline?.next()?, *id)))
            .collect();
        let admitted = conn.execs.values().filter(|exec| exec.admitted).count();
        conn.active = u32::try_from(admitted).unwrap_or(u32::MAX);
        if conn.active > conn.config.limits.max_executions {
            return Err(broken("more executions hold a slot than max_executions"));
        }
        let requests = conn.execs.iter().filter(|(_, exec)| exec.requesting());
        conn.requests = requests.map(|(id, _)| *id).collect();
        conn.restore_order(&order, controls)?;
        conn.pings = usize::try_from(pings)
            .ok()
            .filter(|pings| pings.saturating_add(usize::from(ping_due.is_some())) <= CONTROL_QUEUE)
            .ok_or(broken("more pings are unanswered than may be"))?;
        conn.ping_due = ping_due;
        conn.power_off = power_off.map(|power_off| (power_off.reboot, power_off.grace_ms));
        conn.power_off_due = power_off.is_some_and(|power_off| power_off.due);
        conn.faults = faults;
        conn.skipped = skipped;
        conn.agent = Some(ready.clone());
        conn.ready_notice = Some(ready);
        // What stood in line still does. Behind it comes what the cut released, and what somebody
        // took out of the file, which must not wait for ever.
        let known: Vec<ExecId> = conn.execs.keys().copied().collect();
        for id in known {
            conn.schedule_ack(id);
            conn.schedule_slot(id);
        }
        conn.schedule_request();
        Ok(conn)
    }

    /// A connection on which both ends have just agreed.
    fn greeted(
        bootstrap: Bootstrap,
        ready: &Ready,
        options: RestoreOptions,
    ) -> Result<Self, RestoreError> {
        let Bootstrap {
            generation,
            connection,
            limits,
            hostname,
            env,
            cwd,
            resources,
        } = bootstrap;
        if generation != GENERATION {
            return Err(RestoreError::Generation { found: generation });
        }
        let RestoreOptions {
            allow_legacy_guest,
            clock,
            wall,
        } = options;
        let legacy = ready.exec_limits.is_none();
        if legacy && !allow_legacy_guest {
            return Err(RestoreError::LegacyGuest);
        }
        let config = Config {
            limits,
            hostname,
            env,
            cwd,
            resources: resources.unwrap_or_default(),
            allow_legacy_guest,
            clock,
            wall,
        };
        config.validate().map_err(RestoreError::Config)?;
        if connection == 0 {
            return Err(broken("no connection was begun"));
        }
        if (ready.generation, ready.connection) != (generation, connection)
            || ready.exec_limits.is_some_and(|said| said != limits)
        {
            return Err(broken("Ready is no answer to the bootstrap"));
        }
        Ok(Self {
            legacy,
            state: State::Ready,
            connection,
            ..Self::new(config)
        })
    }

    /// The executions, in no line yet.
    fn restore_executions(
        &self,
        saved: Vec<ExecV1>,
    ) -> Result<BTreeMap<ExecId, Exec>, RestoreError> {
        let limits = &self.config.limits;
        let chunk = self.chunk(limits.output_chunk_size);
        let mut execs = BTreeMap::new();
        let now = self.time.now();
        // Requests leave one after the other and in the order of ids.
        let mut requesting = false;
        for exec in saved {
            let id = exec.id;
            let rule = |rule| RestoreError::Execution { id, rule };
            if execs.last_key_value().is_some_and(|(last, _)| *last >= id) {
                return Err(rule("its id does not come after the one before"));
            }
            if !self.ids.issued(id) {
                return Err(rule("its id was never handed out"));
            }
            match exec.phase {
                PhaseV1::Requesting { begun: true, .. } if requesting => {
                    return Err(rule("a request before it was not sent whole"));
                }
                PhaseV1::Starting | PhaseV1::Started if requesting => {
                    return Err(rule("a request before it was not sent"));
                }
                PhaseV1::Requesting { .. } => requesting = true,
                PhaseV1::Starting | PhaseV1::Started | PhaseV1::Ended => {}
            }
            let exec = execution::restore(exec, limits, self.peer(), chunk, now).map_err(rule)?;
            execs.insert(id, exec);
        }
        Ok(execs)
    }

    /// What stands in line, and the marks of those that do.
    fn restore_order(
        &mut self,
        order: &Order,
        controls: Vec<ControlV1>,
    ) -> Result<(), RestoreError> {
        let controls: Vec<Control> = controls
            .into_iter()
            .map(|control| match control {
                ControlV1::Signal { id, signal } => Control::Signal { id, signal },
                ControlV1::Resize { id, size } => Control::Resize { id, size },
            })
            .collect();
        if !controls.iter().all(|control| self.ids.issued(control.id())) {
            return Err(broken("a control is for an execution that never was"));
        }
        let known = |id| self.execs.contains_key(&id);
        self.schedule = Scheduler::restore(order, controls, known).map_err(broken)?;
        for id in order.acks() {
            if let Some(exec) = self.execs.get_mut(id) {
                exec.in_acks = true;
            }
        }
        for id in order.slots() {
            if let Some(exec) = self.execs.get_mut(id) {
                if exec.requesting() && self.requests.front() != Some(id) {
                    return Err(broken("a request stands in line before its turn"));
                }
                exec.in_slots = true;
            }
        }
        Ok(())
    }
}
