//! What is said once and may be waited for, and costs a load to look at.

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

    /// Comes back when the flag is up.
    pub(crate) async fn up(&self) {
        // Made before the look: what is raised in between wakes it.
        let raised = self.waiters.notified();
        if !self.is_up() {
            raised.await;
        }
    }
}
