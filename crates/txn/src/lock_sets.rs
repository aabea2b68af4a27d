//! Sets of holders of row locks.
//!
//! A locked row's end stamp names a *lock set*, and this table has the holders of each:
//!
//! ```text
//!  row's end    NONE ──T1 FOR SHARE──► set 1 ──T2 FOR SHARE──► set 2
//!  sets         1 = {T1 share}         2 = {T1 share, T2 share}
//!  T1 ends      1 is gone              2 = {T2 share}
//! ```
//!
//! * **Rows are not visited when locks end.** A transaction that ends leaves all its sets. A
//!   stamp whose set is gone means that nobody has locked the row, and the next transaction that
//!   locks or ends the row overwrites it. So a million rows that a transaction locks are one set,
//!   released in one step.
//! * **A set never gains a holder** and its number is not reused; a transaction that joins a
//!   row's holders gives the row another set. Rows with the same holders share one.
//! * **Keys** that are locked FOR KEY SHARE beside an update of their rows have holders of their
//!   own (`locks`).
//! * Holders are transactions and statements of blocks, so rolling back to a savepoint releases
//!   the locks taken since.
//!
//! Lock order: a segment's latch, then `gate`, then `sets`. Nobody waits while holding one of
//! them.

use std::{collections::HashMap, sync::Arc};

use aerostat_sync::{AtomicUsize, Mutex, Ordering, RwLock};
use aerostat_types::{TableId, TxnId};
use thiserror::Error;

use crate::{LockSetId, RowLock};

/// The most holders in all sets and keys of a tenant. One takes up to 100 bytes, so that they
/// are 25 MB at most; a statement that locks any number of free rows is one.
const HOLDERS_MAX: usize = 1 << 18;

/// More holders of row locks than a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many row locks are held")]
pub struct TooManyLocks;

/// Who has locked a row, and how.
#[derive(Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) txn: TxnId,
    pub(crate) mode: RowLock,
}

/// How a set came to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Join {
    pub(crate) standing: Option<LockSetId>,
    pub(crate) txn: TxnId,
    pub(crate) mode: RowLock,
}

/// What is forgotten when a transaction ends.
enum Held {
    Set(LockSetId),
    Join(Join),
    Key(TableId, Arc<[u8]>),
}

/// The row locks of one tenant.
#[derive(Default)]
pub struct RowLocks {
    /// Held for writing by who locks a key, for reading by whom that must not overtake.
    pub(crate) gate: RwLock<()>,
    pub(crate) sets: Mutex<LockSets>,
    /// How many transactions hold locks: with none, ending one takes no mutex.
    transactions: AtomicUsize,
}

/// Who has locked what.
#[derive(Default)]
pub(crate) struct LockSets {
    sets: HashMap<LockSetId, Vec<Holder>>,
    /// The set that a join gave, so that other rows get the same.
    joins: HashMap<Join, LockSetId>,
    /// Who has locked a key FOR KEY SHARE.
    keys: HashMap<TableId, HashMap<Arc<[u8]>, Vec<TxnId>>>,
    held: HashMap<TxnId, Vec<Held>>,
    last_set: u64,
    /// In all sets and keys.
    holders: usize,
}

impl RowLocks {
    /// Whether the set has holders still. One that has none gets none.
    pub fn is_held(&self, set: LockSetId) -> bool {
        self.sets.lock().is_held(set)
    }

    /// The transaction has ended.
    pub(crate) fn release(&self, id: TxnId) {
        if self.transactions.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut sets = self.sets.lock();
        sets.release(id);
        self.count_transactions(&sets);
    }

    /// So many transactions hold locks from now on as these sets have.
    pub(crate) fn count_transactions(&self, sets: &LockSets) {
        self.transactions.store(sets.held.len(), Ordering::Relaxed);
    }

    /// Sets, joins, keys, transactions and holders that it remembers.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 5] {
        let sets = self.sets.lock();
        let keys = sets.keys.values().map(HashMap::len).sum();
        let (joins, held) = (sets.joins.len(), sets.held.len());
        [sets.sets.len(), joins, keys, held, sets.holders]
    }
}

impl LockSets {
    pub(crate) fn is_held(&self, set: LockSetId) -> bool {
        self.sets.contains_key(&set)
    }

    /// The holders of a set; none if all have ended.
    pub(crate) fn holders(&self, set: LockSetId) -> &[Holder] {
        self.sets.get(&set).map_or(&[], Vec::as_slice)
    }

    /// The set that the same join was given before.
    pub(crate) fn given(&self, join: &Join) -> Option<LockSetId> {
        self.joins.get(join).copied()
    }

    /// A new set of these holders, for the join.
    pub(crate) fn add(
        &mut self,
        join: Join,
        holders: Vec<Holder>,
    ) -> Result<LockSetId, TooManyLocks> {
        debug_assert!(
            holders
                .iter()
                .filter(|holder| holder.txn == join.txn)
                .count()
                == 1,
            "who joins a set is in it once"
        );
        self.count(holders.len())?;
        self.last_set += 1;
        let set = LockSetId(self.last_set);
        for holder in &holders {
            self.hold(holder.txn, Held::Set(set));
        }
        self.hold(join.txn, Held::Join(join));
        self.sets.insert(set, holders);
        self.joins.insert(join, set);
        Ok(set)
    }

    /// Whether any key of the table is locked.
    pub(crate) fn has_keys(&self, table: TableId) -> bool {
        self.keys.contains_key(&table)
    }

    /// Who has locked the key.
    pub(crate) fn key_holders(&self, table: TableId, key: &[u8]) -> &[TxnId] {
        let keys = self.keys.get(&table);
        let holders = keys.and_then(|keys| keys.get(key));
        holders.map_or(&[], Vec::as_slice)
    }

    /// Counts further holders.
    fn count(&mut self, more: usize) -> Result<(), TooManyLocks> {
        if self.holders + more > HOLDERS_MAX {
            return Err(TooManyLocks);
        }
        self.holders += more;
        Ok(())
    }

    fn uncount(&mut self, gone: usize) {
        assert!(
            gone <= self.holders,
            "{gone} holders are gone, of {}",
            self.holders
        );
        self.holders -= gone;
    }

    fn hold(&mut self, txn: TxnId, held: Held) {
        self.held.entry(txn).or_default().push(held);
    }

    /// Locks a key FOR KEY SHARE.
    pub(crate) fn share_key(
        &mut self,
        txn: TxnId,
        table: TableId,
        key: &[u8],
    ) -> Result<(), TooManyLocks> {
        if self.key_holders(table, key).contains(&txn) {
            return Ok(());
        }
        self.count(1)?;
        let key: Arc<[u8]> = key.into();
        self.hold(txn, Held::Key(table, Arc::clone(&key)));
        let keys = self.keys.entry(table).or_default();
        keys.entry(key).or_default().push(txn);
        Ok(())
    }

    /// The transaction has ended.
    fn release(&mut self, id: TxnId) {
        for held in self.held.remove(&id).unwrap_or_default() {
            match held {
                Held::Join(join) => {
                    self.joins.remove(&join);
                }
                Held::Set(set) => {
                    let Some(holders) = self.sets.get_mut(&set) else {
                        continue;
                    };
                    let before = holders.len();
                    holders.retain(|holder| holder.txn != id);
                    let (gone, is_empty) = (before - holders.len(), holders.is_empty());
                    if is_empty {
                        self.sets.remove(&set);
                    }
                    self.uncount(gone);
                }
                Held::Key(table, key) => self.release_key(id, table, &key),
            }
        }
        assert!(
            !self.held.is_empty()
                || self.holders == 0
                    && self.sets.is_empty()
                    && self.joins.is_empty()
                    && self.keys.is_empty(),
            "no lock is left when nobody holds any, and {} holders are",
            self.holders
        );
    }

    fn release_key(&mut self, id: TxnId, table: TableId, key: &[u8]) {
        let Some(keys) = self.keys.get_mut(&table) else {
            return;
        };
        if let Some(holders) = keys.get_mut(key) {
            let before = holders.len();
            holders.retain(|holder| *holder != id);
            let gone = before - holders.len();
            if holders.is_empty() {
                keys.remove(key);
            }
            if keys.is_empty() {
                self.keys.remove(&table);
            }
            self.uncount(gone);
        }
    }
}
