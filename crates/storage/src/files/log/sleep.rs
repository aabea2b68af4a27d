//! Committers that sleep while another writes, and waking them.
//!
//! Each has a seat of its own and is woken with its result, so it needs no lock for that. With a
//! condition variable all woken committers would want the order's mutex, get it one after the
//! other, and keep it from the next leader until the last of them has run, which takes longer the
//! busier the processors are.

use std::{
    sync::{Arc, OnceLock},
    thread::{self, Thread},
};

use aerostat_txn::{Call, LogFailure};
use aerostat_types::CommitTs;
use parking_lot::MutexGuard;

use super::State;

/// What a sleeper is woken with.
#[derive(Clone)]
pub(super) enum Woken {
    /// Its commit is acknowledged, as all are through this one.
    Acknowledged(CommitTs),
    /// The log failed before it was.
    Failed(LogFailure),
    /// Who led has gone: it looks again, and leads if nobody does.
    LookAgain,
}

/// Who sleeps, and for which commit; `None` until nobody leads.
pub(super) struct Sleeper {
    commit: Option<CommitTs>,
    way: Way,
}

/// How somebody is woken.
enum Way {
    Thread(Thread, Arc<OnceLock<Woken>>),
    /// He has other things to do, and looks again.
    Call(Call),
}

impl Sleeper {
    /// Who is called when more is known of a commit, which is for others to acknowledge.
    pub(super) fn called(commit: CommitTs, call: Call) -> Sleeper {
        Sleeper {
            commit: Some(commit),
            way: Way::Call(call),
        }
    }

    /// Each is taken from the list once, and so woken once.
    fn rouse(self, with: Woken) {
        match self.way {
            Way::Thread(thread, woken) => {
                let _ = woken.set(with);
                thread.unpark();
            }
            Way::Call(call) => call(),
        }
    }

    /// Whether it may be the one to lead.
    fn may_lead(&self) -> bool {
        matches!(self.way, Way::Thread(..))
    }
}

/// Unlocks the order and sleeps until a leader has gone. Somebody leads now, or the commit is for
/// others to acknowledge.
pub(super) fn sleep(mut state: MutexGuard<'_, State>, commit: Option<CommitTs>) -> Woken {
    let woken = Arc::new(OnceLock::new());
    state.sleepers.push(Sleeper {
        commit,
        way: Way::Thread(thread::current(), Arc::clone(&woken)),
    });
    drop(state);
    loop {
        if let Some(woken) = woken.get() {
            return woken.clone();
        }
        thread::park();
    }
}

/// Wakes those that a leader who goes leaves with nothing to wait for, the order unlocked
/// meanwhile.
pub(super) fn wake(state: &mut MutexGuard<'_, State>) {
    state.time_commits();
    let roused = state.roused();
    if !roused.is_empty() {
        MutexGuard::unlocked(state, || {
            for (sleeper, woken) in roused {
                sleeper.rouse(woken);
            }
        });
    }
}

impl State {
    /// Takes out who need not sleep on. Of those whose commits are queued still the first is
    /// to lead, unless somebody comes before; the others are woken by whoever does. A commit that
    /// is secured is for others to acknowledge, and whoever waits for it does not lead.
    fn roused(&mut self) -> Vec<(Sleeper, Woken)> {
        let mut roused = Vec::new();
        let mut has_leader = false;
        for sleeper in std::mem::take(&mut self.sleepers) {
            let fate = sleeper.commit.map(|ts| (ts, self.order.fate(ts)));
            let woken = match fate {
                None => Woken::LookAgain,
                Some((_, Some(Ok(through)))) => Woken::Acknowledged(through),
                Some((_, Some(Err(failure)))) => Woken::Failed(failure),
                Some((ts, None))
                    if self.order.is_secured(ts) || has_leader && sleeper.may_lead() =>
                {
                    self.sleepers.push(sleeper);
                    continue;
                }
                Some((_, None)) => {
                    // One who is called looks for somebody who may wait.
                    has_leader |= sleeper.may_lead();
                    Woken::LookAgain
                }
            };
            roused.push((sleeper, woken));
        }
        roused
    }
}
