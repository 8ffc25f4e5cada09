//! Loom's primitives, and tokio's made visible to loom.
//!
//! Tokio's own are checked by loom in tokio itself, and take no locks that loom knows of, so they
//! are taken as they are. What loom must see is when they are used: each use touches an atomic of
//! the primitive's own, so that all orders of all uses are tried.

pub(crate) use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::AcquireError;
use tokio::sync::futures::Notified;

/// A place in the schedule at which another thread may come first.
#[derive(Debug, Default)]
struct Point(AtomicUsize);

impl Point {
    fn touch(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: tokio::sync::Notify,
    point: Point,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.point.touch();
        self.inner.notified()
    }

    pub(crate) fn notify_waiters(&self) {
        self.point.touch();
        self.inner.notify_waiters();
    }
}

#[derive(Debug)]
pub(crate) struct Semaphore {
    inner: tokio::sync::Semaphore,
    point: Point,
}

impl Semaphore {
    pub(crate) fn new(permits: usize) -> Self {
        Self {
            inner: tokio::sync::Semaphore::new(permits),
            point: Point::default(),
        }
    }

    pub(crate) async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.point.touch();
        let inner = self.inner.acquire().await?;
        Ok(SemaphorePermit {
            inner: Some(inner),
            of: self,
        })
    }
}

#[derive(Debug)]
pub(crate) struct SemaphorePermit<'a> {
    inner: Option<tokio::sync::SemaphorePermit<'a>>,
    of: &'a Semaphore,
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.of.point.touch();
        drop(self.inner.take());
    }
}
