//! Cancelling what a transaction is doing, from another thread.

use std::{
    fmt,
    sync::Arc,
    time::{Instant, UNIX_EPOCH},
};

use aerostat_sync::{AtomicBool, Mutex, Ordering};

use crate::{WaitError, signal::Signal};

/// Tells a transaction's threads to stop. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: AtomicBool,
    /// The waits to interrupt. Locked around every change of `cancelled`, so
    /// that a wait never begins unnoticed beside a cancellation.
    waits: Mutex<Vec<Arc<Signal>>>,
}

impl CancelToken {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels: running waits end with [`crate::WaitError::Cancelled`], later ones at once.
    pub fn cancel(&self) {
        let waits = self.0.waits.lock();
        self.0.cancelled.store(true, Ordering::Release);
        for signal in waits.iter() {
            signal.interrupt();
        }
    }

    /// Whether [`Self::cancel`] was called. Long loops ask between batches.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Sleeps until then; for ever without a time.
    ///
    /// # Errors
    /// [`WaitError::Cancelled`] when the token is cancelled before.
    pub fn sleep_until(&self, time: Option<Instant>) -> Result<(), WaitError> {
        // Nobody is shown since when.
        let signal = Arc::new(Signal::new(UNIX_EPOCH));
        self.attach(&signal);
        let slept = signal.sleep(time);
        self.detach(&signal);
        match slept {
            Err(WaitError::TimedOut) => Ok(()),
            slept => slept,
        }
    }

    /// Has `signal` interrupted when the token is cancelled, at once if it was.
    pub(crate) fn attach(&self, signal: &Arc<Signal>) {
        let mut waits = self.0.waits.lock();
        if self.is_cancelled() {
            signal.interrupt();
        }
        waits.push(Arc::clone(signal));
    }

    pub(crate) fn detach(&self, signal: &Arc<Signal>) {
        self.0
            .waits
            .lock()
            .retain(|other| !Arc::ptr_eq(other, signal));
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelToken")
            .field(&self.is_cancelled())
            .finish()
    }
}
