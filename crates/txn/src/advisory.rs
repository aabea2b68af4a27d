//! Advisory locks: on numbers that have a meaning only to clients.
//!
//! ```text
//!  session S ──► counts of S ── has it already? ──► one more
//!                     └─ no ──► the tenant's table: granted, refused, or wait ──► counted
//!  session term      given back one by one, all at once, or when the session ends
//!  transaction term  a Hold among the transaction's other locks, which end together
//! ```
//!
//! * In the tenant's table and the wait-for graph the session owns locks of both terms: as in
//!   PostgreSQL, a session does not block itself. Its transaction waits for rows and relations
//!   under an id of its own; the graph joins the two.
//! * A session that is granted a lock while asleep finds it in the table when it asks again, and
//!   only then counts it. So a statement that was stopped meanwhile counts nothing: nothing is
//!   taken after [`CancelToken::cancel`] has returned, except by calls that were about to return.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use aerostat_sync::{AtomicU64, Mutex, Ordering};
use aerostat_types::TxnId;
use thiserror::Error;

use crate::{
    AdvisoryKey, CancelToken, LockMode, RelationLocks, WaitError, signal::Signal, txns::TxnManager,
    wait::Requested,
};

/// The most numbers of a tenant that are locked or wanted at once. One takes up to 200 bytes,
/// so that they are 50 MB at most.
const KEYS_MAX: usize = 1 << 18;

/// Whether others may have the lock, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AdvisoryMode {
    /// Others may share it.
    Shared,
    /// It is one session's.
    Exclusive,
}

impl AdvisoryMode {
    /// The mode of locks on relations that conflicts alike, and that PostgreSQL shows.
    pub const fn lock_mode(self) -> LockMode {
        match self {
            AdvisoryMode::Shared => LockMode::Share,
            AdvisoryMode::Exclusive => LockMode::Exclusive,
        }
    }
}

/// A lock that a session may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdvisoryLock {
    /// What it is on.
    pub key: AdvisoryKey,
    /// How.
    pub mode: AdvisoryMode,
}

/// For how long a lock is taken.
#[derive(Clone, Copy, Debug)]
pub enum Term<'a> {
    /// Until it is given back, as often as it was taken, or the session ends.
    Session,
    /// As long as these locks of the transaction at hand.
    Transaction(&'a RelationLocks),
}

/// More advisory locks than a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many advisory locks are held")]
pub struct TooManyAdvisoryLocks;

/// Why a lock was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AdvisoryError {
    /// The wait for it ended.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// There is no room for it.
    #[error(transparent)]
    TooMany(#[from] TooManyAdvisoryLocks),
}

/// The advisory locks of one session. They end with it: [`Self::end`], or when dropped.
pub struct AdvisoryLocks {
    txns: Arc<TxnManager>,
    /// The session, where transactions wait for each other.
    owner: TxnId,
    /// The id of its transaction at hand.
    transaction: Arc<AtomicU64>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    counts: HashMap<AdvisoryLock, Count>,
    has_ended: bool,
}

/// Who of a session has a lock.
#[derive(Default)]
struct Count {
    /// How often it was taken for the session.
    session: u64,
    /// Transactions that have it. There is more than one while an earlier one is undone.
    transactions: Vec<TxnId>,
}

impl Count {
    fn is_none(&self) -> bool {
        self.session == 0 && self.transactions.is_empty()
    }
}

/// A transaction's lock. Dropping it gives it back.
struct Hold {
    locks: Arc<AdvisoryLocks>,
    lock: AdvisoryLock,
    transaction: TxnId,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.locks.held.lock();
        if let Some(count) = held.counts.get_mut(&self.lock) {
            count.transactions.retain(|id| *id != self.transaction);
            self.locks.settle(&mut held, self.lock);
        }
    }
}

impl TxnManager {
    /// The advisory locks of a session to come.
    pub fn advisory_locks(self: &Arc<Self>) -> Arc<AdvisoryLocks> {
        AdvisoryLocks::of(Arc::clone(self), self.take_id())
    }
}

impl AdvisoryLocks {
    fn of(txns: Arc<TxnManager>, owner: TxnId) -> Arc<Self> {
        Arc::new(Self {
            txns,
            owner,
            transaction: Arc::default(),
            held: Mutex::default(),
        })
    }

    /// The session, where its locks are shown.
    pub fn owner(&self) -> TxnId {
        self.owner
    }

    /// The transaction that the session has at hand, or had last.
    pub fn transaction(&self) -> TxnId {
        TxnId(self.transaction.load(Ordering::Relaxed))
    }

    /// Whether it is a session of these transactions.
    pub fn are_of(&self, txns: &Arc<TxnManager>) -> bool {
        Arc::ptr_eq(&self.txns, txns)
    }

    /// Says which transaction the session has at hand: the owner of its locks on relations.
    /// Comes before the transaction waits for anything.
    pub fn enter(&self, transaction: TxnId) {
        self.transaction.store(transaction.0, Ordering::Relaxed);
    }

    /// Takes a lock, sleeping until nobody is in the way. The caller holds no latch.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`] if somebody in the way waits for this session or its
    /// transaction, [`WaitError::Cancelled`] by the token, before or meanwhile,
    /// [`WaitError::TimedOut`] if it takes longer than `timeout`; [`TooManyAdvisoryLocks`].
    pub fn acquire(
        self: &Arc<Self>,
        lock: AdvisoryLock,
        term: Term<'_>,
        cancel: &CancelToken,
        timeout: Option<Duration>,
    ) -> Result<(), AdvisoryError> {
        let deadline = self.txns.deadline(timeout);
        while let Requested::Waits(signal) = self.request(lock, term, cancel, true)? {
            cancel.attach(&signal);
            let waited = signal.sleep(deadline);
            cancel.detach(&signal);
            if let Err(error) = waited {
                self.give_up(lock, &signal);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Takes a lock unless somebody is in the way. Never sleeps.
    ///
    /// # Errors
    /// [`WaitError::Cancelled`] if the token was cancelled before; [`TooManyAdvisoryLocks`].
    pub fn try_acquire(
        self: &Arc<Self>,
        lock: AdvisoryLock,
        term: Term<'_>,
        cancel: &CancelToken,
    ) -> Result<bool, AdvisoryError> {
        let requested = self.request(lock, term, cancel, false)?;
        Ok(matches!(requested, Requested::Granted))
    }

    /// Gives back a lock that was taken for the session, once; `false` if there is none.
    pub fn release(&self, lock: AdvisoryLock) -> bool {
        let mut held = self.held.lock();
        let count = held.counts.get_mut(&lock);
        let Some(count) = count.filter(|count| count.session > 0) else {
            return false;
        };
        count.session -= 1;
        self.settle(&mut held, lock);
        true
    }

    /// Whether the session, or a transaction of it, has a lock.
    pub fn has_some(&self) -> bool {
        !self.held.lock().counts.is_empty()
    }

    /// Gives back all locks that were taken for the session.
    pub fn release_all(&self) {
        let mut held = self.held.lock();
        let locks: Vec<AdvisoryLock> = held.counts.keys().copied().collect();
        for lock in locks {
            if let Some(count) = held.counts.get_mut(&lock) {
                count.session = 0;
            }
            self.settle(&mut held, lock);
        }
    }

    /// The session has ended: gives back all locks, and takes none any more.
    pub fn end(&self) {
        let mut held = self.held.lock();
        held.has_ended = true;
        let counts = std::mem::take(&mut held.counts);
        self.txns.with_locks(|graph| {
            for lock in counts.into_keys() {
                let mode = lock.mode.lock_mode();
                graph.advisory.release(lock.key, self.owner, mode);
            }
            graph.part(self.owner);
        });
    }

    fn request(
        self: &Arc<Self>,
        lock: AdvisoryLock,
        term: Term<'_>,
        cancel: &CancelToken,
        waits: bool,
    ) -> Result<Requested, AdvisoryError> {
        let mut held = self.held.lock();
        if held.has_ended || cancel.is_cancelled() {
            self.release_uncounted(&held, lock);
            return Err(WaitError::Cancelled.into());
        }
        if !held.counts.contains_key(&lock) {
            let requested = self.request_from_others(lock, waits)?;
            if !matches!(requested, Requested::Granted) {
                return Ok(requested);
            }
        }
        let count = held.counts.entry(lock).or_default();
        match term {
            Term::Session => count.session += 1,
            Term::Transaction(locks) => {
                let transaction = locks.owner();
                // One that has it has it for as long as it could have it again.
                if !count.transactions.contains(&transaction) {
                    count.transactions.push(transaction);
                    locks.keep(Box::new(Hold {
                        locks: Arc::clone(self),
                        lock,
                        transaction,
                    }));
                }
            }
        }
        Ok(Requested::Granted)
    }

    fn request_from_others(
        &self,
        AdvisoryLock { key, mode }: AdvisoryLock,
        waits: bool,
    ) -> Result<Requested, AdvisoryError> {
        self.txns.with_locks(|graph| {
            if graph.advisory.len() >= KEYS_MAX && !graph.advisory.knows(key) {
                return Err(TooManyAdvisoryLocks.into());
            }
            graph.join(self.owner, &self.transaction);
            Ok(graph.request_advisory(key, self.owner, mode.lock_mode(), waits)?)
        })
    }

    /// A wait has ended without the lock, or with one that was granted a moment ago.
    fn give_up(&self, lock: AdvisoryLock, signal: &Arc<Signal>) {
        let held = self.held.lock();
        let was_waiting = self
            .txns
            .with_locks(|graph| graph.advisory.withdraw(lock.key, signal));
        if !was_waiting {
            self.release_uncounted(&held, lock);
        }
    }

    /// Gives back a lock that was granted and that nobody has counted. If another thread of the
    /// session is about to, it does not find it and asks again.
    fn release_uncounted(&self, held: &Held, AdvisoryLock { key, mode }: AdvisoryLock) {
        if held.counts.contains_key(&AdvisoryLock { key, mode }) {
            return;
        }
        let mode = mode.lock_mode();
        self.txns.with_locks(|graph| {
            if graph.advisory.holds(key, self.owner, mode) {
                graph.advisory.release(key, self.owner, mode);
            }
        });
    }

    /// Gives the lock back if nobody of the session has it any more.
    fn settle(&self, held: &mut Held, lock: AdvisoryLock) {
        if held.counts.get(&lock).is_some_and(Count::is_none) {
            held.counts.remove(&lock);
            let mode = lock.mode.lock_mode();
            self.txns
                .with_locks(|graph| graph.advisory.release(lock.key, self.owner, mode));
        }
    }
}

impl Drop for AdvisoryLocks {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for AdvisoryLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryLocks")
            .field("owner", &self.owner)
            .field("transaction", &self.transaction())
            .finish_non_exhaustive()
    }
}
