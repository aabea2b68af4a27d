//! Who is connected: cancel keys, the places there are, and how a running
//! statement hears that it must end.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use crate::backend::Canceller;

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const CANCELLED: u8 = 2;

/// Whether a connection runs a statement, and whether that was cancelled.
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// [`IDLE`], [`RUNNING`] or [`CANCELLED`].
    now: AtomicU8,
    waiters: Notify,
}

impl RunState {
    /// A statement begins; cancel requests count from now on.
    pub(crate) fn begin(&self) {
        self.now.store(RUNNING, Ordering::SeqCst);
    }

    /// It has ended; a late cancel request does nothing.
    pub(crate) fn end(&self) {
        self.now.store(IDLE, Ordering::SeqCst);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.now.load(Ordering::SeqCst) == CANCELLED
    }

    /// Comes back when the running statement is cancelled.
    pub(crate) async fn cancelled(&self) {
        loop {
            // Made before the look: what is cancelled in between wakes it.
            let cancelled = self.waiters.notified();
            if self.is_cancelled() {
                return;
            }
            cancelled.await;
        }
    }

    /// Cancels what runs; whether anything did.
    pub(crate) fn cancel(&self) -> bool {
        let order = Ordering::SeqCst;
        let changed = self.now.compare_exchange(RUNNING, CANCELLED, order, order);
        if changed.is_ok() {
            self.waiters.notify_waiters();
        }
        changed.is_ok()
    }
}

struct Entry {
    secret: i32,
    run: Arc<RunState>,
    cancel: Canceller,
    role: String,
}

/// All sessions of a gateway, by the numbers that their engine knows them by.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Mutex<HashMap<i32, Entry>>,
}

/// A session's place in the registry, given up when dropped.
pub(crate) struct Place {
    pub(crate) pid: i32,
    pub(crate) secret: i32,
    run: Arc<RunState>,
    entered: Entered,
}

/// What gives the place up when dropped.
pub(crate) struct Entered {
    registry: Arc<Registry>,
    pid: i32,
}

impl Place {
    /// The connection's end of cancel requests, and the place itself.
    pub(crate) fn split(self) -> (Arc<RunState>, Entered) {
        (self.run, self.entered)
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of the session with this number; `None` when the role has as many
    /// connections as it may.
    pub(crate) fn enter(
        self: &Arc<Self>,
        pid: i32,
        role: &str,
        role_limit: Option<u32>,
        cancel: Canceller,
    ) -> Option<Place> {
        let mut entries = self.lock();
        let of_role = entries.values().filter(|entry| entry.role == role).count();
        if role_limit.is_some_and(|limit| of_role >= limit as usize) {
            return None;
        }
        let run = Arc::new(RunState::default());
        let secret = rand::random();
        let entry = Entry {
            secret,
            run: Arc::clone(&run),
            cancel,
            role: role.to_owned(),
        };
        let before = entries.insert(pid, entry);
        debug_assert!(before.is_none(), "two sessions have the number {pid}");
        drop(entries);
        Some(Place {
            pid,
            secret,
            run,
            entered: Entered {
                registry: self.clone(),
                pid,
            },
        })
    }

    /// Cancels what a session runs, if the key is right and it runs anything.
    pub(crate) fn cancel(&self, pid: i32, secret: i32) {
        let entries = self.lock();
        let Some(entry) = entries.get(&pid).filter(|entry| entry.secret == secret) else {
            return;
        };
        let cancel = entry.run.cancel().then(|| entry.cancel.clone());
        drop(entries);
        if let Some(cancel) = cancel {
            cancel();
        }
    }

    /// How many sessions there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.pid);
    }
}
