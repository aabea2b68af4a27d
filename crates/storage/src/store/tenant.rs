//! What a tenant's tables share. A durable tenant also has a log and its folder, and the list of
//! tables and the catalogue as the log has them.
//!
//! ```text
//!  <folder>/log/<number>.log          the commit log
//!  <folder>/checkpoint/manifest       what there was at a point, and where
//!  <folder>/checkpoint/*.img          images of segments
//!  <folder>/checkpoint/*.end          rows of frozen segments that ended after their image
//! ```
//!
//! The registry is locked while a change of it becomes durable, so a thread that locks it finds
//! exactly the tables and the catalogue of a point in the commit order.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_memory::Budget;
use aerostat_segment::ARENA_BYTES_MAX;
use aerostat_txn::{LogFailure, TxnManager};
use aerostat_types::{CommitTs, Epoch, TableId, TenantId};
use parking_lot::Mutex;

use crate::{
    Durability, Table,
    files::{
        disk::Machine,
        last_checkpoint::LastCheckpoint,
        log::{Ended, Log},
        pins::Pins,
    },
    store::{
        arena::ArenaSizes,
        evict::{Evictions, Evictor},
        living::Living,
    },
};

/// Evicted values are read again, which costs more than planning a statement again.
const RECLAIM_RANK: u8 = 1;

/// The part of a tenant's memory that a segment may have, as a divisor.
const SEGMENT_SHARE: u64 = 16;

/// The part of it that building segments anew may take, as a divisor, where fewer would do.
const WORKING_SHARE: u64 = 4;

/// What there was when way had been made last, and was too little.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) used: u64,
    pub(crate) last_commit: CommitTs,
    pub(crate) refusals: u64,
}

/// A tenant's transactions and memory budget. Tables keep it alive.
pub struct TenantStore {
    id: TenantId,
    txns: Arc<TxnManager>,
    budget: Arc<Budget>,
    sizes: ArenaSizes,
    is_leaving: AtomicBool,
    /// Whether a copy shows rows of a commit whose catalogue is not followed yet.
    is_defining: AtomicBool,
    pub(crate) living: Living<Table>,
    evictor: Arc<Evictor>,
    /// What was in use when way was made last and there was too little still, and the newest commit.
    pub(crate) made_way: Mutex<Option<Tried>>,
    /// `None` if nothing is to survive.
    pub(crate) durable: Option<Durable>,
}

/// The durable side of a tenant.
pub(crate) struct Durable {
    /// Has the lock of the folder: no two processes, nor two stores of one, share it.
    pub(crate) log: Arc<Log>,
    pub(crate) machine: Machine,
    pub(crate) folder: PathBuf,
    pub(crate) registry: Mutex<Registry>,
    /// The epochs that have begun, and where, ascending. Not in the registry: who has that locked may wait for
    /// copies, and those for an epoch to begin.
    pub(crate) epochs: Mutex<Vec<(Epoch, CommitTs)>>,
    /// Where its history begins, if it is another's before that.
    pub(crate) begins: CommitTs,
    /// Locked during a checkpoint.
    pub(crate) checkpoint: Mutex<LastCheckpoint>,
    /// Images that copies are made of.
    pub(crate) pins: Pins,
}

/// Tables and catalogue as of the last entry in the log.
#[derive(Default)]
pub(crate) struct Registry {
    /// Weak, for tables keep the tenant alive.
    pub(crate) tables: BTreeMap<TableId, Weak<Table>>,
    pub(crate) catalog: Option<Arc<[u8]>>,
    /// Tables that are no more, though a transaction may still have rows of them to commit.
    dropped: BTreeMap<TableId, Dropped>,
}

enum Dropped {
    /// Somebody may still have it.
    Held(Weak<Table>),
    /// Nobody had it at this point.
    Gone(CommitTs),
}

impl Registry {
    /// Whether a table has this id, or a dropped one had it that a commit may yet name.
    pub(crate) fn has(&self, id: TableId) -> bool {
        self.tables.contains_key(&id) || self.dropped.contains_key(&id)
    }

    /// Whether a table of this id is no more, though a commit may yet name it.
    pub(crate) fn has_dropped(&self, id: TableId) -> bool {
        self.dropped.contains_key(&id)
    }

    /// The highest number of a table that is there, or was a while ago.
    pub(crate) fn highest(&self) -> Option<TableId> {
        let living = self.tables.keys().next_back();
        living.max(self.dropped.keys().next_back()).copied()
    }

    /// A table of this number is there again, or for the first time.
    pub(crate) fn put_table(&mut self, id: TableId, table: Weak<Table>) {
        self.dropped.remove(&id);
        self.tables.insert(id, table);
    }

    /// Takes a table as dropped.
    pub(crate) fn drop_table(&mut self, id: TableId) {
        let table = self.tables.remove(&id).unwrap_or_default();
        self.dropped.insert(id, Dropped::Held(table));
    }

    /// The dropped tables that a commit after `at` may name. Who wrote to one that is gone
    /// began at or before the point at which it was found gone, so no table is named any
    /// more once everything that has not ended began later.
    pub(crate) fn forget_dropped(&mut self, at: CommitTs, oldest: CommitTs) -> Vec<TableId> {
        for dropped in self.dropped.values_mut() {
            if matches!(dropped, Dropped::Held(table) if table.strong_count() == 0) {
                *dropped = Dropped::Gone(at);
            }
        }
        self.dropped
            .retain(|_, dropped| !matches!(dropped, Dropped::Gone(at) if *at < oldest));
        self.dropped.keys().copied().collect()
    }
}

impl TenantStore {
    /// A tenant without tables, in memory alone; [`Self::open`] has those that stay.
    pub fn new(id: TenantId, budget: Arc<Budget>) -> Arc<Self> {
        Self::with_arena_sizes(id, budget, ArenaSizes::default())
    }

    pub(crate) fn with_arena_sizes(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
    ) -> Arc<Self> {
        Self::assembled(id, budget, sizes, TxnManager::new(), None)
    }

    pub(crate) fn with_log(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
        txns: Arc<TxnManager>,
        durable: Durable,
    ) -> Arc<Self> {
        Self::assembled(id, budget, sizes, txns, Some(durable))
    }

    fn assembled(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
        txns: Arc<TxnManager>,
        durable: Option<Durable>,
    ) -> Arc<Self> {
        let evictor = Evictor::new(Arc::clone(&budget), Arc::clone(txns.clock()));
        let reclaim = Arc::downgrade(&evictor);
        budget.reclaim_from(RECLAIM_RANK, reclaim);
        Arc::new(Self {
            id,
            txns,
            budget,
            evictor,
            made_way: Mutex::default(),
            sizes,
            is_leaving: AtomicBool::new(false),
            is_defining: AtomicBool::new(false),
            living: Living::default(),
            durable,
        })
    }

    /// Which tenant.
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// The tenant's transactions: one commit order for all its tables.
    pub fn txns(&self) -> &Arc<TxnManager> {
        &self.txns
    }

    /// The budget that all segments of the tenant are charged to.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(crate) fn evictor(&self) -> &Arc<Evictor> {
        &self.evictor
    }

    /// Evicts values of frozen segments, so many bytes or what there is to evict, and says how many
    /// bytes are free now. Whatever budget refuses asks for that by itself.
    pub fn evict(&self, bytes: u64) -> u64 {
        self.evictor.evict(bytes)
    }

    /// What was evicted and read back since the tenant was opened.
    pub fn evictions(&self) -> Evictions {
        self.evictor.evictions()
    }

    /// How large a segment is to grow, if its rows are not too many for that: what is rewritten at a
    /// time, which takes several times as much, must leave room for others where memory is little.
    pub(crate) fn segment_bytes_max(&self) -> usize {
        let memory = self.budget.used() + self.budget.available();
        let share = usize::try_from(memory / SEGMENT_SHARE).unwrap_or(usize::MAX);
        share.min(ARENA_BYTES_MAX)
    }

    /// The largest arena that such a segment has.
    pub(crate) fn arena_bytes_max(&self) -> usize {
        self.sizes.at_most(self.segment_bytes_max())
    }

    /// What building segments anew may take for several that become one: little of the tenant's memory.
    pub(crate) fn working_bytes_max(&self) -> u64 {
        (self.budget.used() + self.budget.available()) / WORKING_SHARE
    }

    pub(crate) fn sizes(&self) -> &ArenaSizes {
        &self.sizes
    }

    /// Whether the tenant has a log.
    pub fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// What commits survive from now on; `None` if the tenant has no log at all.
    pub fn durability(&self) -> Option<Durability> {
        self.durable
            .as_ref()
            .map(|durable| durable.log.durability())
    }

    /// Changes what commits survive, from the next group on. Nothing happens if the tenant
    /// has no log.
    pub fn set_durability(&self, durability: Durability) {
        if let Some(durable) = &self.durable {
            durable.log.set_durability(durability);
        }
    }

    /// Bytes of log written since the tenant was opened.
    pub fn log_bytes_written(&self) -> u64 {
        self.durable
            .as_ref()
            .map_or(0, |durable| durable.log.bytes_written())
    }

    /// Says that the tenant is to be closed, or is not after all. Work that can be done another time,
    /// which is freezing, vacuums, re-laying and checkpoints, ends at the next segment meanwhile.
    pub fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Whether this is a copy that shows the rows of a commit and not yet the catalogue that was committed with
    /// them: what is planned meanwhile may be of before.
    pub fn is_defining(&self) -> bool {
        self.is_defining.load(Ordering::Acquire)
    }

    /// A copy's catalogue is that of the rows that it shows, or is about to be another.
    pub fn set_defining(&self, is_defining: bool) {
        self.is_defining.store(is_defining, Ordering::Release);
    }

    /// Whether it is to be closed.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Has the disk have everything that was committed, whatever the durability, so that the tenant
    /// can be closed and its folder taken elsewhere. Nothing happens if it has no log.
    ///
    /// # Errors
    /// [`LogFailure`] when the log has failed, now or before.
    pub fn sync_log(&self) -> Result<(), LogFailure> {
        match &self.durable {
            Some(durable) => durable.log.flush(),
            None => Ok(()),
        }
    }

    /// Knows when the tenant has ended: nobody has it, its tables or its transactions any more, its
    /// log is closed, and its folder can be opened again. `None` if it has no log.
    pub fn ended(&self) -> Option<Ended> {
        self.durable.as_ref()?.log.ended()
    }

    /// The durable side of a tenant that is known to have one.
    pub(crate) fn durable_side(&self) -> &Durable {
        self.durable.as_ref().expect("a durable tenant")
    }

    /// Why changes are refused, if they are: the log has failed, and was not mended yet.
    pub fn log_failure(&self) -> Option<LogFailure> {
        self.durable.as_ref()?.log.failure()
    }

    /// Brings a log that has failed back, if the disk takes it: commits that are in doubt did
    /// not happen from then on, whatever the disk had of them, and new ones are taken. Nothing
    /// happens if it has not failed.
    ///
    /// # Errors
    /// [`LogFailure`] while the disk refuses: a later call may do better.
    pub fn mend_log(&self) -> Result<(), LogFailure> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        durable
            .log
            .mend(&|after, through| self.txns().give_up(after, through))
    }
}
