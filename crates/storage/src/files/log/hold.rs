//! Who has a tenant's folder: its log, until nothing can be written to it any more.
//!
//! A tenant that is closed while its process goes on is opened again by the next who wants it,
//! perhaps on another node. So its end has to be known to the point, and that is not when the
//! tenant was given up but when the last who had it, or its transactions, has let go.

use std::{sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::files::disk::DiskLock;

/// The lock of a folder. With it goes the word that it has gone. Of what a log has it is dropped
/// last.
pub(super) struct Hold {
    /// Dropped before `ends`.
    _lock: DiskLock,
    ends: Ends,
}

impl Hold {
    pub(super) fn of(lock: DiskLock) -> Hold {
        let ends = Ends(Ended::default());
        Hold { _lock: lock, ends }
    }

    pub(super) fn ended(&self) -> Ended {
        self.ends.0.clone()
    }
}

/// Knows whether a tenant has ended: its log is closed, and its folder is anybody's.
#[derive(Clone, Debug, Default)]
pub struct Ended(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    is_over: Mutex<bool>,
    turned: Condvar,
}

impl Ended {
    /// Whether it has.
    pub fn is_over(&self) -> bool {
        *self.0.is_over.lock()
    }

    /// Whether it is the same end of the same tenant.
    pub fn is(&self, other: &Ended) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for it, but so long at most, and says whether it has.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut is_over = self.0.is_over.lock();
        let runs = |is_over: &mut bool| !*is_over;
        let waited = self.0.turned.wait_while_for(&mut is_over, runs, at_most);
        !waited.timed_out()
    }
}

struct Ends(Ended);

impl Drop for Ends {
    fn drop(&mut self) {
        let Gate { is_over, turned } = &*self.0.0;
        *is_over.lock() = true;
        turned.notify_all();
    }
}
