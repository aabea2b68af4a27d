//! A flag that can be waited for, and that costs one load to look at.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A flag that goes up once.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is_up: AtomicBool,
    waiters: Notify,
}

impl Flag {
    pub(crate) fn raise(&self) {
        self.is_up.store(true, Ordering::SeqCst);
        self.waiters.notify_waiters();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Waits until the flag is up.
    pub(crate) async fn up(&self) {
        // Made before the flag is looked at, so that raising it in between wakes this task.
        let raised = self.waiters.notified();
        if !self.is_up() {
            raised.await;
        }
    }
}
