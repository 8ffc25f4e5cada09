//! Leaving an execution running for somebody else, and taking one over by its id.
//!
//! ```text
//!  ExecHandle::leave ──► nobody's, in the list of Client::adoptable ──► Client::adopt ──► Adopted
//! ```
//!
//! In the program that has the VM both are one step under the hub's lock. A client of the attach
//! socket asks the server, which does the same there (`attach/relayed.rs`); by then every byte has
//! its owner: what the client's application had consumed is gone, all else is whoever's who adopts.

use std::future::poll_fn;
use std::sync::Arc;

use forebay_exec_proto::host::{ControlError, Inspection, Terminal};

use crate::ExecId;
use crate::attach::{self, EXECUTIONS_MAX};
use crate::client::Client;
use crate::error::{AdoptError, LeaveError};
use crate::failure::Failure;
use crate::handle::ExecHandle;
use crate::hub::{Adopted, Hub};
use crate::lease::Lease;
use crate::sync;
use crate::waiting::Half;

/// What came of asking a relay to let an execution go on.
enum Outcome {
    Left(ExecId),
    Unread,
    Ended,
}

impl ExecHandle {
    /// Lets the command run on for whoever [adopts](Client::adopt) it, in this process or another, by
    /// the id that this gives: the one in its VM. Over an attach socket it outlives this client's
    /// connection then.
    ///
    /// Unlike [`detach`](Self::detach) it throws nothing away. Output that was not read waits for
    /// whoever adopts it, within `output_limit`: once that is used up the command waits, too. Its
    /// stdin stays open, its timeout goes on, and it keeps its slot, also when it has ended, until it
    /// is adopted or the VM ends.
    ///
    /// Over an attach socket it is ready when the VM's program has said so, behind all that was given
    /// to stdin before. Up to `input_limit` of that may be left for the command to read; of what goes
    /// beyond, such as long [bytes](crate::Stdin::bytes), and of what earlier clients left like this,
    /// it waits until the command has read it. Dropping the future before it is ready kills the
    /// command, or leaves it.
    ///
    /// ```no_run
    /// # async fn example(client: forebay_exec::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let id = client.exec("make", ["all"]).spawn().await?.leave().await?;
    /// // Later, by whichever client of the same VM:
    /// let make = client.adopt(id).await?.handle;
    /// println!("{}", make.collect().await?.status());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LeaveError`] gives the handle back: a sink or control of it lives elsewhere, its output has
    /// to be read first, or it has ended, or is being killed, and there is nothing left to run.
    pub async fn leave(self) -> Result<ExecId, LeaveError> {
        let lease = self.lease();
        if sync::Arc::strong_count(lease) > self.parts() {
            return Err(LeaveError::Shared(self));
        }
        if lease.leave().is_err() {
            return Err(LeaveError::Ended(self));
        }
        if lease.is_left() {
            return Ok(lease.id());
        }
        let left = poll_fn(|cx| {
            lease.poll(cx, Half::Events, |inner, id| {
                if let Some(of) = inner.conn.left(id) {
                    return Some(Outcome::Left(of));
                }
                if inner.conn.leave_waits_for_reader(id) {
                    inner.conn.stay(id);
                    return Some(Outcome::Unread);
                }
                let over = !inner.conn.is_leaving(id) || inner.conn.terminal(id).is_some();
                over.then_some(Outcome::Ended)
            })
        });
        match left.await {
            Outcome::Left(id) => Ok(id),
            Outcome::Unread => Err(LeaveError::Unread(self)),
            Outcome::Ended => Err(LeaveError::Ended(self)),
        }
    }
}

impl Client {
    /// The executions of the VM that can be [adopted](Self::adopt), in the order of their ids: those
    /// that somebody [left](ExecHandle::leave), and after a restore those that survived and on which
    /// nobody has decided. They may have ended.
    ///
    /// # Errors
    /// Over an attach socket alone: [`AdoptError::VmGone`], and [`AdoptError::Refused`] if the server
    /// breaks the protocol.
    pub async fn adoptable(&self) -> Result<Vec<ExecId>, AdoptError> {
        let hub = self.hub();
        if !hub.faces_relay() {
            return Ok(hub.adoptable());
        }
        let mut adoptable = Vec::new();
        let (mut after, mut seen) = (0, 0);
        loop {
            let Inspection { view, more } = hub.page(after).await?;
            let found = view.executions.iter().filter(|exec| exec.adoptable);
            adoptable.extend(found.map(|exec| exec.id));
            if !more {
                return Ok(adoptable);
            }
            let last = view.executions.last().map_or(0, |exec| exec.id.get());
            seen += view.executions.len();
            if last <= after || seen > EXECUTIONS_MAX {
                let rule = "the server's look at its VM does not come to an end";
                return Err(AdoptError::Refused(Failure::protocol(rule)));
            }
            after = last;
        }
    }

    /// Takes over an execution that is [adoptable](Self::adoptable), by its id in the VM: it is as if
    /// this client had started it. Dropping the handle kills it; over an attach socket, so does the
    /// end of the connection.
    ///
    /// The streams go on at the byte at which the last holder stopped, and
    /// [`progress`](Adopted::progress) says which that is. Over an attach socket the handle has an id
    /// of this connection's own; it is left again under the one that it has in the VM.
    ///
    /// Dropping the future before it is ready kills the command if it was handed over by then.
    ///
    /// # Errors
    /// [`AdoptError`]: it is not there, somebody holds it, or its output is discarded. Nothing
    /// happened to it.
    pub async fn adopt(&self, id: ExecId) -> Result<Adopted, AdoptError> {
        let hub = self.hub();
        if !hub.faces_relay() {
            return hub.take_over(id);
        }
        let own = hub.step(|inner| inner.ask_adoption(id))?;
        let lease = Lease::new(Arc::clone(hub), own);
        let answer = poll_fn(|cx| {
            lease.poll(cx, Half::Events, |inner, own| {
                if !inner.conn.is_adopting(own) {
                    return inner.standing(own).map(Ok);
                }
                match inner.conn.terminal(own)? {
                    Terminal::Failed(failure) => Some(Err(attach::not_adopted(failure, id))),
                    Terminal::Lost(reason) => Some(Err(AdoptError::VmGone {
                        reason: reason.clone(),
                    })),
                    Terminal::Exited(_) | Terminal::TimedOut { .. } => None,
                }
            })
        });
        let standing = answer.await?;
        tracing::debug!(exec = %own, of = %id, "adopted");
        Ok(standing.with(lease))
    }
}

impl Hub {
    /// A page of a look at the relay's VM.
    async fn page(&self, after: u64) -> Result<Inspection, AdoptError> {
        // One question at a time; whoever else asks waits for its turn.
        let _turn = self.looks.acquire().await;
        let mut asked = false;
        loop {
            // Registered before looking, so that nothing in between is missed.
            let looked = self.looked.notified();
            let page = self.step(|inner| {
                let answer = inner.conn.take_inspection();
                if asked && answer.is_some() {
                    return Ok(answer);
                }
                // One that somebody asked for who is gone is out of the way now, or comes first.
                match inner.conn.ask_inspection(after) {
                    Ok(()) => asked = true,
                    Err(ControlError::Full) => {}
                    Err(_) => {
                        let reason = inner.gone_reason();
                        return Err(AdoptError::VmGone { reason });
                    }
                }
                Ok(None)
            });
            if let Some(page) = page? {
                return Ok(page);
            }
            looked.await;
        }
    }
}

#[cfg(test)]
#[path = "adopt_test.rs"]
mod tests;
