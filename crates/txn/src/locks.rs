//! How a transaction locks rows: it keeps others from changing them, without changing them.
//!
//! The sets of holders (`lock_sets`) decide which locks conflict. A transaction's own locks, and
//! those of its block before it, never conflict with it.
//!
//! FOR KEY SHARE is compatible with an update that keeps the key, and such an update replaces the
//! row by another version. Where the two meet, the lock is recorded for the key and not in a
//! version. A transaction that deletes the row or changes its key checks both. While it looks and
//! marks its rows, nobody can lock the key ([`RowLocks::hold_keys`]).

use aerostat_sync::RwLockReadGuard;
use aerostat_types::{TableId, TxnId};

use crate::{
    LockSetId, RowLock, RowLocks, TooManyLocks, Transaction,
    lock_sets::{Holder, Join, LockSets},
};

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
        let mut sets = self.sets.lock();
        let standing = standing.filter(|set| sets.is_held(*set));
        let mut holders = standing.map_or_else(Vec::new, |set| sets.holders(set).to_vec());
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
        if let Some(set) = sets.given(&join) {
            return Ok(Joined::Set(set));
        }
        holders.retain(|holder| holder.txn != me);
        holders.push(Holder { txn: me, mode });
        let set = sets.add(join, holders)?;
        self.note(txn, &sets);
        Ok(Joined::Set(set))
    }

    /// Another transaction in the set that is in the way of such a lock.
    pub fn holder(&self, txn: &Transaction, set: LockSetId, mode: RowLock) -> Option<TxnId> {
        let sets = self.sets.lock();
        sets.holders(set)
            .iter()
            .find(|holder| !txn.owns(holder.txn) && holder.mode.conflicts_with(mode))
            .map(|holder| holder.txn)
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
        let mut sets = self.sets.lock();
        let sharers: Vec<TxnId> = sets
            .holders(set)
            .iter()
            .map(|holder| holder.txn)
            .filter(|holder| !txn.owns(*holder))
            .collect();
        for sharer in sharers {
            sets.share_key(sharer, table_id, key)?;
        }
        Ok(())
    }

    /// Locks a key FOR KEY SHARE, unless somebody is about to take it away: `in_the_way`
    /// looks at all versions of the key, and nobody marks one meanwhile. Gives who is.
    ///
    /// # Errors
    /// [`TooManyLocks`], and those of looking: the key is not locked then.
    pub fn share_key<E: From<TooManyLocks>>(
        &self,
        txn: &Transaction,
        table_id: TableId,
        key: &[u8],
        in_the_way: impl FnOnce() -> Result<Option<TxnId>, E>,
    ) -> Result<Option<TxnId>, E> {
        let _gate = self.gate.write();
        if let Some(holder) = in_the_way()? {
            return Ok(Some(holder));
        }
        let mut sets = self.sets.lock();
        sets.share_key(txn.id(), table_id, key)?;
        self.note(txn, &sets);
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

    fn note(&self, txn: &Transaction, sets: &LockSets) {
        txn.note_locks();
        self.count_transactions(sets);
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
        self.locks.sets.lock().has_keys(table)
    }

    /// Another transaction that has locked the key.
    pub fn holder(&self, txn: &Transaction, table: TableId, key: &[u8]) -> Option<TxnId> {
        let sets = self.locks.sets.lock();
        let mut holders = sets.key_holders(table, key).iter().copied();
        holders.find(|holder| !txn.owns(*holder))
    }
}
