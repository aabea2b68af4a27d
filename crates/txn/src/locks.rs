//! Row locks: rows that a transaction keeps others from changing, without changing them.
//!
//! A locked row's end stamp names a *lock set*, and this table has the holders of each:
//!
//! ```text
//!  row's end    NONE ──T1 FOR SHARE──► set 1 ──T2 FOR SHARE──► set 2
//!  sets         1 = {T1 share}         2 = {T1 share, T2 share}
//!  T1 ends      1 is gone              2 = {T2 share}
//! ```
//!
//! * **Rows are not visited when locks end.** Who ends leaves all sets. A stamp whose set is
//!   gone says that nobody has locked the row, and whoever locks or ends it next overwrites
//!   it. So a million rows that a transaction locks are one set, and one step to give back.
//! * **A set never gains a holder** and its number is not used again; who joins a row's
//!   holders gives it another set. Rows with the same holders share one.
//! * **Keys.** FOR KEY SHARE goes together with an update that keeps the key, which puts
//!   another version in the row's place. Where the two meet, the lock is kept beside the key
//!   and not in a version. Whoever deletes the row or changes its key asks for both. Nobody
//!   locks a key while such a one looks and marks its rows ([`RowLocks::hold_keys`]).
//! * Holders are transactions and statements of blocks, so that going back to a savepoint
//!   gives the locks since then back. A transaction's own locks, and those of its block
//!   before it, are never in its way.
//!
//! Locks: a segment's latch, then `gate`, then `table`. Nobody waits with one of them held.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_types::{TableId, TxnId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use thiserror::Error;

use crate::{LockSetId, RowLock, Transaction};

/// The most holders in all sets and keys of a tenant. One takes up to 100 bytes, so that they
/// are 25 MB at most; a statement that locks any number of free rows is one.
const HOLDERS_MAX: usize = 1 << 18;

/// More holders of row locks than a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many row locks are held")]
pub struct TooManyLocks;

/// What becomes of a row that a transaction is to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It has this set of holders from now on.
    Set(LockSetId),
    /// The transaction holds such a lock, or a stronger one, already.
    Already,
    /// This one has a lock that is in the way.
    Held(TxnId),
}

#[derive(Clone, Copy)]
struct Holder {
    txn: TxnId,
    mode: RowLock,
}

/// How a set came to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Join {
    standing: Option<LockSetId>,
    txn: TxnId,
    mode: RowLock,
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
    gate: RwLock<()>,
    table: Mutex<LockTable>,
    /// How many transactions hold locks: with none, ending one takes no mutex.
    transactions: AtomicUsize,
}

#[derive(Default)]
struct LockTable {
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
    /// Locks a row that has this set of holders, or none. The caller holds the segment's
    /// latch and stamps the row with the set that is given.
    ///
    /// # Errors
    /// [`TooManyLocks`].
    pub fn join(
        &self,
        txn: &Transaction,
        standing: Option<LockSetId>,
        mode: RowLock,
    ) -> Result<Joined, TooManyLocks> {
        let mut table = self.table.lock();
        let standing = standing.filter(|set| table.sets.contains_key(set));
        let mut holders = standing.map_or_else(Vec::new, |set| table.sets[&set].clone());
        let is_own = |holder: &Holder| txn.owns(holder.txn);
        if holders.iter().any(|one| is_own(one) && one.mode >= mode) {
            return Ok(Joined::Already);
        }
        let in_the_way = |one: &&Holder| !is_own(one) && one.mode.conflicts_with(mode);
        if let Some(one) = holders.iter().find(in_the_way) {
            return Ok(Joined::Held(one.txn));
        }
        let me = txn.id();
        let join = Join {
            standing,
            txn: me,
            mode,
        };
        if let Some(set) = table.joins.get(&join) {
            return Ok(Joined::Set(*set));
        }
        holders.retain(|holder| holder.txn != me);
        holders.push(Holder { txn: me, mode });
        table.count(holders.len())?;
        table.last_set += 1;
        let set = LockSetId(table.last_set);
        for holder in &holders {
            table
                .held
                .entry(holder.txn)
                .or_default()
                .push(Held::Set(set));
        }
        table.hold(me, Held::Join(join));
        table.sets.insert(set, holders);
        table.joins.insert(join, set);
        self.note(txn, &table);
        Ok(Joined::Set(set))
    }

    /// Another transaction in the set that is in the way of such a lock.
    pub fn holder(&self, txn: &Transaction, set: LockSetId, mode: RowLock) -> Option<TxnId> {
        let table = self.table.lock();
        let holders = table.sets.get(&set)?;
        holders
            .iter()
            .find(|holder| !txn.owns(holder.txn) && holder.mode.conflicts_with(mode))
            .map(|holder| holder.txn)
    }

    /// Whether the set has holders still. One that has none gets none.
    pub fn is_held(&self, set: LockSetId) -> bool {
        self.table.lock().sets.contains_key(&set)
    }

    /// Keeps what others have locked of a row FOR KEY SHARE, whose stamp the transaction is
    /// about to overwrite, beside the row's key. The caller holds the segment's latch.
    ///
    /// # Errors
    /// [`TooManyLocks`].
    pub fn move_to_key(
        &self,
        txn: &Transaction,
        set: LockSetId,
        table_id: TableId,
        key: &[u8],
    ) -> Result<(), TooManyLocks> {
        let _gate = self.gate.write();
        let mut table = self.table.lock();
        let sharers: Vec<TxnId> = table
            .sets
            .get(&set)
            .into_iter()
            .flatten()
            .map(|holder| holder.txn)
            .filter(|holder| !txn.owns(*holder))
            .collect();
        for sharer in sharers {
            table.share_key(sharer, table_id, key)?;
        }
        Ok(())
    }

    /// Locks a key FOR KEY SHARE, unless somebody is about to take it away: `in_the_way`
    /// looks at all versions of the key, and nobody marks one meanwhile. Gives who is.
    ///
    /// # Errors
    /// [`TooManyLocks`].
    pub fn share_key(
        &self,
        txn: &Transaction,
        table_id: TableId,
        key: &[u8],
        in_the_way: impl FnOnce() -> Option<TxnId>,
    ) -> Result<Option<TxnId>, TooManyLocks> {
        let _gate = self.gate.write();
        if let Some(holder) = in_the_way() {
            return Ok(Some(holder));
        }
        let mut table = self.table.lock();
        table.share_key(txn.id(), table_id, key)?;
        self.note(txn, &table);
        Ok(None)
    }

    /// Keeps others from locking keys as long as the guard lives. Who takes rows' keys away
    /// holds it from before it asks who has locked them until the rows are marked.
    pub fn hold_keys(&self) -> KeysHeld<'_> {
        KeysHeld {
            locks: self,
            _gate: self.gate.read(),
        }
    }

    /// The transaction has ended.
    pub(crate) fn release(&self, id: TxnId) {
        if self.transactions.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut table = self.table.lock();
        table.release(id);
        self.transactions.store(table.held.len(), Ordering::Relaxed);
    }

    fn note(&self, txn: &Transaction, table: &LockTable) {
        txn.note_locks();
        self.transactions.store(table.held.len(), Ordering::Relaxed);
    }

    /// Sets, joins, keys, transactions and holders that it remembers.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 5] {
        let table = self.table.lock();
        let (sets, joins) = (table.sets.len(), table.joins.len());
        let keys = table.keys.values().map(HashMap::len).sum();
        [sets, joins, keys, table.held.len(), table.holders]
    }
}

/// Nobody locks a key meanwhile.
pub struct KeysHeld<'a> {
    locks: &'a RowLocks,
    _gate: RwLockReadGuard<'a, ()>,
}

impl KeysHeld<'_> {
    /// Whether any key of the table is locked.
    pub fn has_any(&self, table: TableId) -> bool {
        self.locks.table.lock().keys.contains_key(&table)
    }

    /// Another transaction that has locked the key.
    pub fn holder(&self, txn: &Transaction, table: TableId, key: &[u8]) -> Option<TxnId> {
        let locks = self.locks.table.lock();
        let holders = locks.keys.get(&table)?.get(key)?;
        holders.iter().copied().find(|holder| !txn.owns(*holder))
    }
}

impl LockTable {
    /// Counts further holders.
    fn count(&mut self, more: usize) -> Result<(), TooManyLocks> {
        if self.holders + more > HOLDERS_MAX {
            return Err(TooManyLocks);
        }
        self.holders += more;
        Ok(())
    }

    fn hold(&mut self, txn: TxnId, held: Held) {
        self.held.entry(txn).or_default().push(held);
    }

    fn share_key(&mut self, txn: TxnId, table: TableId, key: &[u8]) -> Result<(), TooManyLocks> {
        let keys = self.keys.get(&table);
        let holders = keys.and_then(|keys| keys.get(key));
        if holders.is_some_and(|holders| holders.contains(&txn)) {
            return Ok(());
        }
        self.count(1)?;
        let key: Arc<[u8]> = key.into();
        self.hold(txn, Held::Key(table, Arc::clone(&key)));
        let keys = self.keys.entry(table).or_default();
        keys.entry(key).or_default().push(txn);
        Ok(())
    }

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
                    self.holders -= before - holders.len();
                    if holders.is_empty() {
                        self.sets.remove(&set);
                    }
                }
                Held::Key(table, key) => self.release_key(id, table, &key),
            }
        }
    }

    fn release_key(&mut self, id: TxnId, table: TableId, key: &[u8]) {
        let Some(keys) = self.keys.get_mut(&table) else {
            return;
        };
        if let Some(holders) = keys.get_mut(key) {
            let before = holders.len();
            holders.retain(|holder| *holder != id);
            self.holders -= before - holders.len();
            if holders.is_empty() {
                keys.remove(key);
            }
        }
        if keys.is_empty() {
            self.keys.remove(&table);
        }
    }
}
