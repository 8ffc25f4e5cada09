//! The register file in a snapshot, and the way back.
//!
//! What the driver wrote is all there is: whether the device failed follows from its status, and
//! live queues are built from the registers as they were at `DRIVER_OK`, by the same checks. Where
//! those queues stand is the device's to save, since it has them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use minicbor::{Decode, Encode};
use vm_memory::GuestMemoryMmap;

use crate::device::{Activation, Interrupt, VirtioDevice};
use crate::queue_config::QueueConfig;
use crate::saved::{self, RestoreError, must};
use crate::spec::{
    F_VERSION_1, STATUS_DRIVER, STATUS_DRIVER_OK, STATUS_FAILED, STATUS_FEATURES_OK,
    STATUS_NEEDS_RESET,
};
use crate::transport::{MmioTransport, Registers, STATUS_ORDER};

const WHAT: &str = "virtio transport";

/// The version of the saved form that this library writes, and the only one that it reads.
const VERSION: u32 = 1;

/// A register file at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedTransport(TransportV1);

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct TransportV1 {
    #[n(0)]
    status: u32,
    #[n(1)]
    device_features_sel: u32,
    #[n(2)]
    driver_features_sel: u32,
    #[n(3)]
    driver_features: u64,
    #[n(4)]
    queue_sel: u32,
    #[n(5)]
    queues: Vec<QueueRegistersV1>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
struct QueueRegistersV1 {
    #[n(0)]
    size: u32,
    #[n(1)]
    ready: bool,
    #[n(2)]
    descriptors: u64,
    #[n(3)]
    available: u64,
    #[n(4)]
    used: u64,
}

impl SavedTransport {
    /// The bytes for the state file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        saved::encode(VERSION, &self.0)
    }

    /// Reads what [`encode`](Self::encode) wrote. Checks the form alone; the rules are checked by
    /// [`MmioTransport::restore`].
    ///
    /// # Errors
    /// [`RestoreError::Version`] or [`RestoreError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RestoreError> {
        saved::decode(WHAT, VERSION, bytes).map(Self)
    }
}

impl MmioTransport {
    /// The registers as they are now. vCPUs that might write one stand still.
    #[must_use]
    pub fn save(&self) -> SavedTransport {
        let registers = self.registers();
        let Registers {
            status,
            device_features_sel,
            driver_features_sel,
            driver_features,
            queue_sel,
            queues,
        } = &*registers;
        SavedTransport(TransportV1 {
            status: *status,
            device_features_sel: *device_features_sel,
            driver_features_sel: *driver_features_sel,
            driver_features: *driver_features,
            queue_sel: *queue_sel,
            queues: queues.iter().map(QueueRegistersV1::from).collect(),
        })
    }

    /// A register file as it was saved, in front of `device`, which has not been activated, and
    /// what the device had at that time, if its driver had got so far: live queues that stand at
    /// the beginning, for the device to put where it saved them. The device itself is not called.
    ///
    /// `mem` is the guest's memory as of the snapshot. The rest is as in [`new`](Self::new).
    ///
    /// # Errors
    /// [`RestoreError::Rule`] names the rule that live registers could not have broken,
    /// [`RestoreError::Queue`] the queue of a running device that is not inside `mem`.
    pub fn restore(
        saved: &SavedTransport,
        mem: GuestMemoryMmap,
        device: Arc<dyn VirtioDevice>,
        interrupt: Arc<dyn Interrupt>,
    ) -> Result<(Self, Option<Activation>), RestoreError> {
        let SavedTransport(saved) = saved;
        let rule = |rule| RestoreError::Rule { what: WHAT, rule };
        check(saved, &*device).map_err(rule)?;
        let failed = saved.status & STATUS_NEEDS_RESET != 0;
        let transport = Self {
            mem,
            device,
            interrupt,
            failed: AtomicBool::new(failed),
            registers: Registers::from(saved).into(),
        };
        if saved.status & STATUS_DRIVER_OK == 0 {
            return Ok((transport, None));
        }
        let built = transport.build_queues(&transport.registers());
        match (built, failed) {
            (Ok(queues), false) => {
                let features = saved.driver_features;
                Ok((transport, Some(Activation { features, queues })))
            }
            (Err(_), true) => Ok((transport, None)),
            (Ok(_), true) => Err(rule("it has failed and its queues are sound")),
            (Err((queue, error)), false) => Err(RestoreError::Queue { queue, error }),
        }
    }
}

/// What holds of the registers at any time.
fn check(saved: &TransportV1, device: &dyn VirtioDevice) -> Result<(), &'static str> {
    let has = |bit| saved.status & bit != 0;
    let order: u32 = STATUS_ORDER.iter().sum();
    must(
        saved.status & !(order | STATUS_NEEDS_RESET | STATUS_FAILED) == 0,
        "a status bit is set that does not exist",
    )?;
    let in_order = STATUS_ORDER
        .windows(2)
        .all(|pair| matches!(pair, [before, bit] if has(*before) || !has(*bit)));
    must(in_order, "its status bits were set out of order")?;
    must(
        has(STATUS_DRIVER_OK) || !has(STATUS_NEEDS_RESET),
        "it failed before its driver was ready",
    )?;

    let features = saved.driver_features;
    if has(STATUS_FEATURES_OK) {
        must(
            features & !device.features() == 0 && features & F_VERSION_1 != 0,
            "features were agreed on that this device does not have",
        )?;
    }
    must(
        features == 0 || has(STATUS_DRIVER),
        "features were chosen before there was a driver",
    )?;

    let specs = device.queues();
    must(
        saved.queues.len() == specs.len(),
        "it has another number of queues than its device",
    )?;
    let untouched = specs
        .iter()
        .zip(&saved.queues)
        .all(|(spec, queue)| *queue == QueueRegistersV1::from(&QueueConfig::new(*spec)));
    must(
        untouched || has(STATUS_FEATURES_OK),
        "a queue was set up before features were agreed on",
    )
}

impl From<&TransportV1> for Registers {
    fn from(saved: &TransportV1) -> Self {
        Self {
            status: saved.status,
            device_features_sel: saved.device_features_sel,
            driver_features_sel: saved.driver_features_sel,
            driver_features: saved.driver_features,
            queue_sel: saved.queue_sel,
            queues: saved.queues.iter().map(QueueConfig::from).collect(),
        }
    }
}

impl From<&QueueConfig> for QueueRegistersV1 {
    fn from(live: &QueueConfig) -> Self {
        let QueueConfig {
            size,
            ready,
            descriptors,
            available,
            used,
        } = *live;
        Self {
            size,
            ready,
            descriptors,
            available,
            used,
        }
    }
}

impl From<&QueueRegistersV1> for QueueConfig {
    fn from(saved: &QueueRegistersV1) -> Self {
        let QueueRegistersV1 {
            size,
            ready,
            descriptors,
            available,
            used,
        } = *saved;
        Self {
            size,
            ready,
            descriptors,
            available,
            used,
        }
    }
}

#[cfg(test)]
#[path = "saved_transport_test.rs"]
mod tests;
