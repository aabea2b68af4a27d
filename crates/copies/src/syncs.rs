//! Syncs of a copy's log, one after the other, on the connections' runtime.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread,
};

use aerostat_storage::TenantStore;

use crate::inbox::Inbox;

/// Has the disk have the log, one sync after the other: one is enough for all that were asked for before it began.
/// It keeps no tenant from being closed for longer than that.
#[derive(Default)]
pub(crate) struct Syncs {
    asked: Mutex<Asked>,
    rests: Condvar,
}

#[derive(Default)]
struct Asked {
    store: Option<Weak<TenantStore>>,
    /// Somebody sees to it, or is about to.
    is_served: bool,
    /// Somebody has the tenant for it.
    syncs: bool,
}

impl Syncs {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has a tenant for this when it returns, nor will have.
    pub(crate) fn end(&self) {
        let mut asked = self.lock();
        asked.store = None;
        while asked.syncs {
            asked = self
                .rests
                .wait(asked)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether [`Self::run`] is to be called.
    pub(crate) fn ask(&self, store: &Arc<TenantStore>) -> bool {
        let mut asked = self.lock();
        asked.store = Some(Arc::downgrade(store));
        !std::mem::replace(&mut asked.is_served, true)
    }

    /// Syncs as long as that is asked for.
    pub(crate) fn run(&self, inbox: &Inbox) {
        while let Some(asked) = self.next() {
            let _syncs = Syncing(self);
            if let Some(store) = asked.upgrade() {
                // A failure is the log's, which everybody sees there.
                let _ = store.sync_log();
                drop(store);
                inbox.wake();
            }
        }
    }

    fn next(&self) -> Option<Weak<TenantStore>> {
        let mut asked = self.lock();
        let next = asked.store.take();
        (asked.is_served, asked.syncs) = (next.is_some(), next.is_some());
        next
    }
}

/// A sync, until it has ended. Should it panic, the next who asks begins another.
struct Syncing<'a>(&'a Syncs);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let mut asked = self.0.lock();
        asked.syncs = false;
        asked.is_served &= !thread::panicking();
        drop(asked);
        self.0.rests.notify_all();
    }
}
