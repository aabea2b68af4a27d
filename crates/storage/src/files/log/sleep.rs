//! Committers that sleep while another writes, and waking them.
//!
//! Each has a seat of its own, and is woken with what it wants to know: it needs no lock for
//! that. With a condition variable all that were woken would want the queue's mutex, get it
//! from one another, and keep the next leader from it until the last of them has run, which
//! takes the longer the busier the processors are.

use std::{
    sync::{Arc, OnceLock},
    thread::{self, Thread},
};

use aerostat_txn::LogFailure;
use aerostat_types::CommitTs;
use parking_lot::MutexGuard;

use super::Queue;

/// What a sleeper is woken with.
#[derive(Clone)]
pub(super) enum Woken {
    /// Its commit is durable, as all are through this one.
    Durable(CommitTs),
    /// The log failed before it was.
    Failed(LogFailure),
    /// Who led has gone: it looks again, and leads if nobody does.
    LookAgain,
}

/// Who sleeps, and for which commit; `None` until nobody leads.
pub(super) struct Sleeper {
    commit: Option<CommitTs>,
    thread: Thread,
    woken: Arc<OnceLock<Woken>>,
}

/// Unlocks the queue and sleeps until a leader has gone. Somebody leads now.
pub(super) fn sleep(mut queue: MutexGuard<'_, Queue>, commit: Option<CommitTs>) -> Woken {
    let woken = Arc::new(OnceLock::new());
    queue.sleepers.push(Sleeper {
        commit,
        thread: thread::current(),
        woken: Arc::clone(&woken),
    });
    drop(queue);
    loop {
        if let Some(woken) = woken.get() {
            return woken.clone();
        }
        thread::park();
    }
}

/// Wakes those that a leader who goes leaves with nothing to wait for, the queue unlocked
/// meanwhile.
pub(super) fn wake(queue: &mut MutexGuard<'_, Queue>) {
    let roused = queue.roused();
    if !roused.is_empty() {
        MutexGuard::unlocked(queue, || {
            for (sleeper, woken) in roused {
                // Each is taken from the queue once, and so woken once.
                let _ = sleeper.woken.set(woken);
                sleeper.thread.unpark();
            }
        });
    }
}

impl Queue {
    /// Takes out who need not sleep on. Of those whose commits are queued still the first is
    /// to lead, unless somebody comes before; the others are woken by whoever does.
    fn roused(&mut self) -> Vec<(Sleeper, Woken)> {
        let mut roused = Vec::new();
        let mut has_leader = false;
        for sleeper in std::mem::take(&mut self.sleepers) {
            let woken = match (sleeper.commit, &self.failure) {
                (None, _) => Woken::LookAgain,
                (Some(ts), _) if ts <= self.durable => Woken::Durable(self.durable),
                (Some(_), Some(failure)) => Woken::Failed(failure.clone()),
                (Some(_), None) if has_leader => {
                    self.sleepers.push(sleeper);
                    continue;
                }
                (Some(_), None) => {
                    has_leader = true;
                    Woken::LookAgain
                }
            };
            roused.push((sleeper, woken));
        }
        roused
    }
}
