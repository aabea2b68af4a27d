//! What has something to do at times, for one thread of the pool at a time.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use aerostat_types::{Clock, SystemClock};

use super::{NEVER, Shared};

/// What there is to do.
pub(crate) trait Work: Send + Sync {
    /// Does it, or some of it: others wait for the thread.
    fn run(&self) -> Next;

    /// When time alone gives it something to do. Waits for nobody.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// What follows a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more, behind what others have to do.
    Again,
    /// Nothing, until there is word or it is due.
    Rest,
    /// Nothing ever again.
    Over,
}

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Rests,
    /// It waits for a thread.
    Ready,
    /// A thread runs it; whether there was word meanwhile.
    Runs {
        again: bool,
        /// And whether that is urgent.
        urgent: bool,
    },
    Over,
}

/// What has something to do at times.
pub(crate) struct Entry {
    pool: Arc<Shared>,
    number: u64,
    work: Arc<dyn Work>,
    phase: Mutex<Phase>,
    is_over: Condvar,
    /// When the clock sees to it: changed by whoever has the pool's lock.
    timer: AtomicU64,
}

impl Entry {
    pub(super) fn new(pool: Arc<Shared>, number: u64, work: Arc<dyn Work>) -> Entry {
        Entry {
            pool,
            number,
            work,
            phase: Mutex::new(Phase::Rests),
            is_over: Condvar::new(),
            timer: AtomicU64::new(NEVER),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.work.due()
    }

    pub(super) fn timer(&self) -> u64 {
        self.timer.load(Ordering::SeqCst)
    }

    pub(super) fn set_timer(&self, at: u64) {
        self.timer.store(at, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do, before what others have where it is urgent.
    pub(crate) fn has_word(self: &Arc<Self>, is_urgent: bool) {
        let mut phase = self.lock();
        match *phase {
            Phase::Rests => {
                *phase = Phase::Ready;
                drop(phase);
                self.pool.push(Arc::clone(self), is_urgent);
            }
            Phase::Runs { urgent, .. } => {
                *phase = Phase::Runs {
                    again: true,
                    urgent: urgent || is_urgent,
                };
            }
            Phase::Ready if is_urgent => {
                drop(phase);
                self.pool.hurry(self);
            }
            Phase::Ready | Phase::Over => {}
        }
    }

    /// When it is due may have changed.
    pub(crate) fn may_be_due(self: &Arc<Self>) {
        self.pool.schedule(self);
    }

    /// Its time has come, as far as was known.
    pub(super) fn is_time(self: Arc<Self>) {
        if self.due().is_some_and(|due| due <= SystemClock.now()) {
            let mut phase = self.lock();
            // One that runs is scheduled when it has run.
            if *phase == Phase::Rests {
                *phase = Phase::Ready;
                drop(phase);
                let pool = Arc::clone(&self.pool);
                pool.push(self, false);
            }
            return;
        }
        self.may_be_due();
    }

    /// Runs it once.
    pub(super) fn run(self: &Arc<Self>) {
        {
            let mut phase = self.lock();
            if *phase != Phase::Ready {
                return;
            }
            *phase = Phase::Runs {
                again: false,
                urgent: false,
            };
        }
        let run = catch_unwind(AssertUnwindSafe(|| self.work.run()));
        // It has said so, and sees to it when it is run again.
        let next = run.unwrap_or(Next::Again);
        let mut phase = self.lock();
        let (again, is_urgent) = match *phase {
            Phase::Runs { again, urgent } => (again, urgent),
            _ => (false, false),
        };
        match next {
            Next::Over => {
                self.pool.unschedule(self);
                *phase = Phase::Over;
                drop(phase);
                self.is_over.notify_all();
            }
            Next::Rest if !again => {
                *phase = Phase::Rests;
                drop(phase);
                self.may_be_due();
            }
            Next::Rest | Next::Again => {
                *phase = Phase::Ready;
                drop(phase);
                self.pool.push(Arc::clone(self), is_urgent);
            }
        }
    }

    /// Waits until nothing is done for it any more: its work is about to say so.
    pub(crate) fn await_over(&self) {
        let mut phase = self.lock();
        while *phase != Phase::Over {
            phase = self
                .is_over
                .wait(phase)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
