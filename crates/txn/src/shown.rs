//! All locks of a tenant at one moment, for display.

use std::time::SystemTime;

use aerostat_types::TxnId;

use crate::{AdvisoryKey, LockMode, LockTag, txns::TxnManager};

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockedObject {
    /// A relation or a name.
    Relation(LockTag),
    /// A transaction, which others wait for because of a row that it has locked or changed.
    Transaction(TxnId),
    /// A number that means something to clients.
    Advisory(AdvisoryKey),
}

/// A lock that somebody has or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownLock {
    /// What it is on.
    pub on: LockedObject,
    /// A transaction, or a session for an advisory lock.
    pub owner: TxnId,
    /// How.
    pub mode: LockMode,
    /// Since when the owner waits for it; `None` if it has it.
    pub waits_since: Option<SystemTime>,
    /// Whether only the owner's stripe notes it.
    pub is_fast: bool,
}

impl TxnManager {
    /// All locks at this moment, ordered by what they are on. Of transactions those that
    /// somebody waits for. Commits wait meanwhile.
    pub fn shown_locks(&self) -> Vec<ShownLock> {
        let mut all = Vec::new();
        let mut add = |on, owner, mode, waits_since, is_fast| {
            all.push(ShownLock {
                on,
                owner,
                mode,
                waits_since,
                is_fast,
            });
        };
        self.with_locks(|graph| {
            self.fast_locks().each(|tag, owner, mode| {
                add(LockedObject::Relation(tag), owner, mode, None, true);
            });
            graph.locks.each(|tag, owner, mode, since| {
                add(LockedObject::Relation(tag), owner, mode, since, false);
            });
            graph.advisory.each(|key, owner, mode, since| {
                add(LockedObject::Advisory(key), owner, mode, since, false);
            });
            graph.each_wait(|waiter, owner, since| {
                let on = LockedObject::Transaction(owner);
                add(on, owner, LockMode::Exclusive, None, false);
                add(on, waiter, LockMode::Share, Some(since), false);
            });
        });
        all.sort_by_key(|lock| (lock.on, lock.waits_since, lock.owner, lock.mode));
        // Several may wait for one transaction.
        all.dedup();
        all
    }
}
