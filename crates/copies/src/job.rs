//! A copy's applier between its driver and whoever has time for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use aerostat_storage::{Applier, Progress, Wake};
use aerostat_types::CommitTs;

use crate::CopyError;

pub(crate) struct Shared {
    pub(crate) work: Mutex<Work>,
    /// The applier has come forward, or is at rest.
    pub(crate) changed: Condvar,
}

/// Where an applier is.
pub(crate) enum Place {
    Rests(Box<Applier>),
    /// A job has it.
    Works,
    /// Somebody goes on with it, or it was lost.
    Gone,
}

pub(crate) struct Work {
    pub(crate) place: Place,
    pub(crate) committed: CommitTs,
    /// There is more to do, or may be.
    pub(crate) has_word: bool,
    /// There is a job that has not begun.
    pub(crate) is_asked: bool,
    /// It is to rest as soon as it can.
    pub(crate) stops: bool,
    /// A catalogue that came with a commit, which the driver's host follows before anything else is done.
    pub(crate) defined: Option<Arc<[u8]>>,
    pub(crate) failed: Option<CopyError>,
    /// Bytes of the log that are done.
    pub(crate) done: u64,
}

/// Something to do for an applier. One that is not done is asked for again.
pub struct Job {
    shared: Arc<Shared>,
    /// Has the driver look.
    wake: Wake,
    has_begun: bool,
}

/// A job that has an applier.
struct Working {
    shared: Arc<Shared>,
    wake: Wake,
    /// `None` while it does something, and once it is at rest.
    applier: Option<Box<Applier>>,
    is_at_rest: bool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Work> {
        // What was half done where somebody panicked ends with its driver.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the applier as soon as no job has it; `None` if it has gone.
    pub(crate) fn take(&self) -> (MutexGuard<'_, Work>, Option<Box<Applier>>) {
        let mut work = self.lock();
        work.stops = true;
        while matches!(work.place, Place::Works) {
            work = self
                .changed
                .wait(work)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::replace(&mut work.place, Place::Gone) {
            Place::Rests(applier) => (work, Some(applier)),
            Place::Works | Place::Gone => (work, None),
        }
    }
}

impl Job {
    pub(crate) fn new(shared: &Arc<Shared>, wake: Wake) -> Job {
        Job {
            shared: Arc::clone(shared),
            wake,
            has_begun: false,
        }
    }

    /// Does everything there is. The driver is woken if it has to do something for it.
    pub fn run(mut self) {
        let Some(mut working) = self.begin() else {
            return;
        };
        let mut has_more = false;
        while let Some((committed, mut applier)) = working.next(has_more) {
            let done = applier.apply(committed);
            working.applier = Some(applier);
            match done {
                Ok(Progress::CaughtUp) => has_more = false,
                Ok(Progress::More) => has_more = true,
                Ok(Progress::Defined(catalog)) => {
                    return working.end(|work| work.defined = Some(catalog));
                }
                Err(error) => return working.end(|work| work.failed = Some(error.into())),
            }
        }
    }

    /// Ends as one that panics in the middle.
    #[cfg(test)]
    pub(crate) fn panic(mut self) {
        let mut working = self.begin().unwrap();
        let _ = working.next(false).unwrap();
    }

    /// Takes the applier, if it is there and waits for nobody.
    fn begin(&mut self) -> Option<Working> {
        let mut work = self.shared.lock();
        self.has_begun = true;
        work.is_asked = false;
        if work.stops || work.defined.is_some() || work.failed.is_some() {
            return None;
        }
        match std::mem::replace(&mut work.place, Place::Works) {
            Place::Rests(applier) => Some(Working {
                shared: Arc::clone(&self.shared),
                wake: Arc::clone(&self.wake),
                applier: Some(applier),
                is_at_rest: false,
            }),
            elsewhere => {
                work.place = elsewhere;
                None
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.has_begun {
            self.shared.lock().is_asked = false;
        }
    }
}

impl Working {
    /// What is to be done now, and by whom; nothing if it has come to rest.
    fn next(&mut self, has_more: bool) -> Option<(CommitTs, Box<Applier>)> {
        let applier = self.applier.take()?;
        let mut work = self.shared.lock();
        work.done = applier.bytes_done();
        self.shared.changed.notify_all();
        if (work.has_word || has_more) && !work.stops {
            work.has_word = false;
            return Some((work.committed, applier));
        }
        work.has_word |= has_more;
        work.place = Place::Rests(applier);
        self.is_at_rest = true;
        None
    }

    /// Comes to rest with a word for the driver.
    fn end(&mut self, word: impl FnOnce(&mut Work)) {
        let mut work = self.shared.lock();
        work.place = match self.applier.take() {
            Some(applier) => {
                work.done = applier.bytes_done();
                Place::Rests(applier)
            }
            None => Place::Gone,
        };
        // There may be more behind it.
        work.has_word = true;
        word(&mut work);
        self.is_at_rest = true;
        drop(work);
        self.shared.changed.notify_all();
        (self.wake)();
    }
}

impl Drop for Working {
    /// One that has not come to rest has panicked: what it has left is not known.
    fn drop(&mut self) {
        if !self.is_at_rest {
            drop(self.applier.take());
            self.end(|work| work.failed = Some(CopyError::Panicked));
        }
    }
}
