//! The primitives by which threads meet in this crate's hub and handles: those of std and tokio,
//! and loom's in the model tests, which run the same code in every order of its threads.
//!
//! The hub itself is shared by std's `Arc`, since users hold it by one.

#[cfg(not(all(test, feature = "loom")))]
mod real {
    pub(crate) use std::sync::atomic::AtomicBool;
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

    pub(crate) use tokio::sync::{Notify, Semaphore, SemaphorePermit};
}

#[cfg(not(all(test, feature = "loom")))]
pub(crate) use real::*;

#[cfg(all(test, feature = "loom"))]
mod modelled;

#[cfg(all(test, feature = "loom"))]
pub(crate) use modelled::*;
