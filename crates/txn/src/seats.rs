//! How many threads may sleep at once until other transactions let their rows go.
//!
//! Threads are bounded, and those in line for a row may be more. Whoever has the turn may have to run
//! again, and needs a thread for that; so may the row's holder for its next statement. They would wait
//! for ever if all threads slept behind them. A transaction that finds no seat does not sleep: its
//! statement is undone, waits as a task ([`crate::Transaction::waiting_for`]), and runs again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Places for threads that sleep.
#[derive(Debug)]
pub struct Seats {
    // Nobody acts on what another has written: no part of a model.
    free: AtomicUsize,
}

impl Seats {
    /// So many.
    pub fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicUsize::new(count),
        })
    }

    /// One of them until it is dropped; `None` if all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let less = |free: usize| free.checked_sub(1);
        let taken = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.ok().map(|_| Seat(Some(Arc::clone(self))))
    }
}

/// A thread may sleep as long as it has this.
#[must_use = "a seat that is dropped is free"]
pub struct Seat(Option<Arc<Seats>>);

impl Seat {
    /// Of a thread that is counted by nobody.
    pub(crate) fn own() -> Self {
        Self(None)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = &self.0 {
            seats.free.fetch_add(1, Ordering::Relaxed);
        }
    }
}
