//! A start or an adoption that the VM refused, as the failure that tells the client, and back.
//!
//! The message is written to be read by people; the client finds the numbers in it again.

use forebay_exec_proto::host::StartError;
use forebay_exec_proto::{ExecId, Failure, FailureKind};

use crate::error::{AdoptError, ExecError};

/// The step that fails when the VM takes no further execution.
const ADMISSION: &str = "admission";

const ADOPT_UNKNOWN: &str = "adopt: unknown";
const ADOPT_HELD: &str = "adopt: held";
const ADOPT_DISCARDED: &str = "adopt: discarded";

/// Says why an execution was not admitted.
pub(super) fn failure(error: &ExecError) -> Failure {
    let kind = match error {
        ExecError::AtCapacity {
            limit,
            active,
            left,
        } => return at_capacity(*limit, *active, *left),
        ExecError::TooLarge { .. } => FailureKind::TooLarge,
        ExecError::VmGone { reason } => return lost(reason),
        _ => FailureKind::Other,
    };
    Failure {
        kind,
        errno: None,
        stage: ADMISSION.to_owned(),
        message: error.to_string(),
    }
}

/// Says that a request cannot be passed on.
pub(super) fn unsent(error: StartError) -> Failure {
    failure(&error.into())
}

/// Says that the guest does not read: `waiting` bytes of this client's requests are held for it.
pub(super) fn unread(waiting: usize, most: usize) -> Failure {
    Failure {
        kind: FailureKind::AtCapacity,
        errno: None,
        // Another than that of the VM's count, whose numbers the client would look for.
        stage: "requests".to_owned(),
        message: format!(
            "the guest does not take requests: {waiting} bytes of this client's wait for it, and \
             no more than {most} may"
        ),
    }
}

/// Says that the VM, or the connection to it, is gone.
pub(super) fn lost(reason: &str) -> Failure {
    Failure {
        kind: FailureKind::Lost,
        errno: None,
        stage: "vm".to_owned(),
        message: reason.to_owned(),
    }
}

fn at_capacity(limit: u32, active: u32, left: u32) -> Failure {
    Failure {
        kind: FailureKind::AtCapacity,
        errno: None,
        stage: ADMISSION.to_owned(),
        message: format!(
            "{active} of at most {limit} executions are active, {left} of them left to be adopted"
        ),
    }
}

/// Says why an execution was not handed over. The stage is what the client knows it by.
pub(super) fn adoption(error: &AdoptError) -> Failure {
    let stage = match error {
        AdoptError::Unknown { .. } => ADOPT_UNKNOWN,
        AdoptError::Held { .. } => ADOPT_HELD,
        AdoptError::Discarded { .. } => ADOPT_DISCARDED,
        AdoptError::VmGone { reason } => return lost(reason),
        _ => "adopt",
    };
    Failure {
        kind: FailureKind::Other,
        errno: None,
        stage: stage.to_owned(),
        message: error.to_string(),
    }
}

/// Why the execution `id` was not handed over.
pub(crate) fn not_adopted(failure: &Failure, id: ExecId) -> AdoptError {
    match &*failure.stage {
        ADOPT_UNKNOWN => AdoptError::Unknown { id },
        ADOPT_HELD => AdoptError::Held { id },
        ADOPT_DISCARDED => AdoptError::Discarded { id },
        _ => AdoptError::Refused(failure.into()),
    }
}

/// The refusal of the VM's, by the numbers that it names.
pub(crate) fn capacity(failure: &Failure) -> Option<ExecError> {
    if failure.kind != FailureKind::AtCapacity || failure.stage != ADMISSION {
        return None;
    }
    let (active, rest) = failure.message.split_once(" of at most ")?;
    let (limit, rest) = rest.split_once(" executions are active")?;
    // An older server does not say how many of them were left.
    let left = rest
        .strip_prefix(", ")
        .and_then(|rest| rest.split_once(' '));
    Some(ExecError::AtCapacity {
        limit: limit.parse().ok()?,
        active: active.parse().ok()?,
        left: left.and_then(|(left, _)| left.parse().ok()).unwrap_or(0),
    })
}

#[cfg(test)]
#[path = "refusal_test.rs"]
mod tests;
