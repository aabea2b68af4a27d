//! Committers that sleep while another writes, and waking them.
//!
//! Each has a seat of its own and is woken with its result, so it needs no lock for that. With a
//! condition variable all woken committers would want the order's mutex, get it one after the
//! other, and keep it from the next leader until the last of them has run, which takes longer the
//! busier the processors are.
//!
//! A commit that others are to acknowledge need not have a thread: somebody is called, once more is
//! known of it ([`Called`]).

use std::{
    collections::BTreeMap,
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
    thread: Thread,
    woken: Arc<OnceLock<Woken>>,
}

/// Who is called when more is known of a commit, by its place. When it comes here all that it waits for is the
/// word of others, so more is known of the first of them first.
pub(super) type Called = BTreeMap<CommitTs, Call>;

/// Unlocks the order and sleeps until a leader has gone. Somebody leads now, or the commit is for
/// others to acknowledge.
pub(super) fn sleep(mut state: MutexGuard<'_, State>, commit: Option<CommitTs>) -> Woken {
    let woken = Arc::new(OnceLock::new());
    state.sleepers.push(Sleeper {
        commit,
        thread: thread::current(),
        woken: Arc::clone(&woken),
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
    let calls = state.calls();
    if !roused.is_empty() || !calls.is_empty() {
        MutexGuard::unlocked(state, || {
            calls.into_iter().for_each(|call| call());
            for (sleeper, woken) in roused {
                // Each is taken from the list once, and so woken once.
                let _ = sleeper.woken.set(woken);
                sleeper.thread.unpark();
            }
        });
    }
}

impl State {
    /// Takes out who is to be called.
    fn calls(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(first) = self.called.first_entry() {
            let ts = *first.key();
            // One for which this node has to do something after all looks for somebody who does.
            if self.order.fate(ts).is_none() && self.order.is_secured(ts) {
                break;
            }
            calls.push(first.remove());
        }
        calls
    }

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
                Some((ts, None)) if has_leader || self.order.is_secured(ts) => {
                    self.sleepers.push(sleeper);
                    continue;
                }
                Some((_, None)) => {
                    has_leader = true;
                    Woken::LookAgain
                }
            };
            roused.push((sleeper, woken));
        }
        roused
    }
}
