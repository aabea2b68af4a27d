//! How long commits take, from the queue to their acknowledgement, while somebody wants to know.
//!
//! One commit at a time is timed: the first that is queued after the one before was acknowledged. That costs a
//! clock reading for each, under a lock that its committer has anyway, and nothing while nobody watches.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_types::{Clock, CommitTs};

use super::{Log, State};

/// So many times are kept for whoever has not asked for them.
const TIMES_MAX: usize = 1_024;

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
    done: VecDeque<Duration>,
    /// How many are not kept any more.
    forgotten: u64,
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
            let took = clock.now().saturating_duration_since(since);
            self.timed = None;
            self.push(took);
        }
    }

    fn push(&mut self, took: Duration) {
        if self.done.len() == TIMES_MAX {
            self.done.pop_front();
            self.forgotten += 1;
        }
        self.done.push_back(took);
    }

    /// How many there have been.
    fn total(&self) -> u64 {
        self.forgotten + self.done.len() as u64
    }

    /// Those after so many.
    fn after(&self, seen: u64) -> Vec<Duration> {
        let known = seen.saturating_sub(self.forgotten) as usize;
        self.done.iter().skip(known).copied().collect()
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

/// Has commits timed until it is dropped. The default has none.
#[derive(Default)]
pub struct CommitWatch {
    log: Weak<Log>,
    /// How many it has told of.
    seen: AtomicU64,
}

impl CommitWatch {
    pub(crate) fn of(log: &Arc<Log>) -> CommitWatch {
        let mut state = log.state.lock();
        state.pulse.watchers += 1;
        state.pulse.clock = Some(Arc::clone(&log.machine.clock));
        CommitWatch {
            log: Arc::downgrade(log),
            seen: AtomicU64::new(state.pulse.total()),
        }
    }

    /// What became known since this was asked last.
    pub fn take(&self) -> CommitTimes {
        let Some(log) = self.log.upgrade() else {
            return CommitTimes::default();
        };
        let state = log.state.lock();
        let pulse = &state.pulse;
        let since = |(_, since): (CommitTs, Instant)| {
            let clock = pulse.clock.as_ref()?;
            Some(clock.now().saturating_duration_since(since))
        };
        CommitTimes {
            waiting: pulse.timed.and_then(since),
            done: pulse.after(self.seen.swap(pulse.total(), Ordering::Relaxed)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_does_not_ask_for_long_is_told_of_the_latest() {
        let mut pulse = Pulse::default();
        let took = |number| Duration::from_micros(number);
        for number in 0..TIMES_MAX as u64 + 10 {
            pulse.push(took(number));
        }
        assert_eq!(pulse.total(), TIMES_MAX as u64 + 10);
        let all = pulse.after(0);
        assert_eq!((all.len(), all[0]), (TIMES_MAX, took(10)));
        assert_eq!(
            pulse.after(pulse.total() - 2),
            [took(TIMES_MAX as u64 + 8), took(TIMES_MAX as u64 + 9)]
        );
        assert!(pulse.after(pulse.total()).is_empty());
    }
}
