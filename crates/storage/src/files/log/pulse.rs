//! How long commits take, from the queue to their acknowledgement, while somebody wants to know.
//!
//! One commit at a time is timed: the first that is queued after the one before was acknowledged. That costs a
//! clock reading for each, under a lock that its committer has anyway, and nothing while nobody watches.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use aerostat_types::{Clock, CommitTs};

use super::{Log, State};

/// Times that nobody asked for are forgotten beyond so many.
const TIMES_MAX: usize = 4_096;

/// How long commits took lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// Those that were acknowledged.
    pub done: Vec<Duration>,
    /// One that waits still: how long it has.
    pub waiting: Option<Duration>,
}

/// What is known of commits.
#[derive(Default)]
pub(super) struct Pulse {
    watchers: usize,
    clock: Option<Arc<dyn Clock>>,
    /// The commit that is timed, and when it was queued.
    timed: Option<(CommitTs, Instant)>,
    done: Vec<Duration>,
}

impl Pulse {
    /// A commit has been queued.
    pub(super) fn queued(&mut self, ts: CommitTs) {
        if let (Some(clock), None) = (&self.clock, &self.timed) {
            self.timed = Some((ts, clock.now()));
        }
    }

    /// Everything through this is acknowledged.
    fn acknowledged(&mut self, through: CommitTs) {
        if let (Some(clock), Some((ts, since))) = (&self.clock, self.timed)
            && ts <= through
        {
            self.timed = None;
            if self.done.len() < TIMES_MAX {
                self.done.push(clock.now().saturating_duration_since(since));
            }
        }
    }
}

impl State {
    /// Something may have been acknowledged.
    pub(super) fn time_commits(&mut self) {
        if self.pulse.timed.is_some() {
            let through = self.order.acknowledged();
            self.pulse.acknowledged(through);
            if self.order.failure().is_some() {
                // It may never be.
                self.pulse.timed = None;
            }
        }
    }
}

/// Has commits timed until it is dropped.
pub struct CommitWatch {
    log: Weak<Log>,
}

impl CommitWatch {
    pub(crate) fn of(log: &Arc<Log>) -> CommitWatch {
        let mut state = log.state.lock();
        state.pulse.watchers += 1;
        state.pulse.clock = Some(Arc::clone(&log.machine.clock));
        CommitWatch {
            log: Arc::downgrade(log),
        }
    }

    /// What became known since this was asked last. Several who watch share it.
    pub fn take(&self) -> CommitTimes {
        let Some(log) = self.log.upgrade() else {
            return CommitTimes::default();
        };
        let mut state = log.state.lock();
        let pulse = &mut state.pulse;
        let since = |(_, since): (CommitTs, Instant)| {
            let clock = pulse.clock.as_ref()?;
            Some(clock.now().saturating_duration_since(since))
        };
        CommitTimes {
            waiting: pulse.timed.and_then(since),
            done: std::mem::take(&mut pulse.done),
        }
    }
}

impl Drop for CommitWatch {
    fn drop(&mut self) {
        let Some(log) = self.log.upgrade() else {
            return;
        };
        let mut state = log.state.lock();
        state.pulse.watchers -= 1;
        if state.pulse.watchers == 0 {
            state.pulse = Pulse::default();
        }
    }
}
