//! The ledger: what every byte of the process is used for, by tenant and class.
//!
//! ```text
//!  resident ─┬─ program        files that are mapped: code and constants
//!            ├─ arenas ─┬─ hot      values, indexes, versions      of each tenant
//!            │          ├─ frozen   values, indexes, versions
//!            │          └─ retired  of segments that were replaced and are still read
//!            └─ heap ───┬─ rewrites, log, queries, lookups, cached plans, sessions   of each tenant
//!                       ├─ unreserved   in use, and reserved by nobody
//!                       └─ slack        free, kept by the allocator, or lost between its sizes; stacks
//! ```
//!
//! Arenas are counted by the pages that were written, the heap by the allocator. The slack is what
//! the kernel counts beyond both, so a mistake in any class shows there: the tests ask that after
//! a purge of the heap it is little.

use aerostat_catalog::admin::MEMORY_BYTES_MIN;
use aerostat_memory::{Budget, MemoryClass, ResidentParts, heap_bytes};
use aerostat_pgcatalog::{EvictionUse, MemoryLimit, MemoryUse, StatementUse};
use aerostat_storage::{ArenaMemory, TenantStore};
use aerostat_types::{ByteSize, ErrorKind, SqlError};

use crate::engine::Engine;

/// Classes of the heap in the view, as [`MemoryClass::is_mapped`] divides them.
const HEAP: [(MemoryClass, &str); 6] = [
    (MemoryClass::Rewrites, "rewrites"),
    (MemoryClass::Log, "log"),
    (MemoryClass::Queries, QUERIES),
    (MemoryClass::Lookups, "lookups"),
    (MemoryClass::CachedPlans, "cached plans"),
    (MemoryClass::Sessions, "sessions"),
];

const QUERIES: &str = "queries";

/// Classes of arenas in the view: values, indexes, versions, and what is retired.
const ARENAS: [(MemoryClass, [&str; 4]); 2] = [
    (
        MemoryClass::Hot,
        ["hot values", "hot indexes", "hot versions", "hot retired"],
    ),
    (
        MemoryClass::Frozen,
        [
            "frozen values",
            "frozen indexes",
            "frozen versions",
            "frozen retired",
        ],
    ),
];

impl Engine {
    /// What the process's memory is used for: rows of every open database, then those of the node.
    /// It walks all segments: for reports, not for each statement.
    pub fn memory_ledger(&self) -> Vec<MemoryUse> {
        let (mut arenas, mut heap) = (Vec::new(), Vec::new());
        for database in self.node().open_databases() {
            let name = database.name.read().clone();
            arenas_of(&name, &database.store, &mut arenas);
            heap.extend(heap_of(&name, database.store.budget()));
        }
        let in_use = heap_bytes();
        let reserved = sum(&heap);
        leave_out_ahead(&mut heap, reserved.saturating_sub(in_use));
        let resident = ResidentParts::now();
        let slack = resident.anonymous.saturating_sub(sum(&arenas) + in_use);
        let of_node = [
            ("unreserved", in_use.saturating_sub(reserved)),
            ("slack", slack),
            ("program", resident.mapped_files + resident.shared),
        ];
        let of_node = of_node.map(|(class, bytes)| MemoryUse {
            database: None,
            class,
            bytes,
            bytes_reserved: 0,
        });
        arenas.into_iter().chain(heap).chain(of_node).collect()
    }

    /// What the node and its open databases may use of memory.
    pub fn memory_limits(&self) -> Vec<MemoryLimit> {
        let governor = self.governor();
        let node = MemoryLimit {
            database: None,
            target: Some(governor.target()),
            limit: Some(governor.limit()),
            used: governor.used(),
            promised: governor.promised(),
            unreserved: Some(governor.unreserved()),
        };
        let databases = self.node().open_databases();
        let of_database = databases.iter().map(|database| {
            let budget = database.store.budget();
            let max = budget.max().map(|max| max.0);
            MemoryLimit {
                database: Some(database.name.read().clone()),
                target: max,
                limit: max,
                used: budget.used(),
                promised: budget.promised(),
                unreserved: None,
            }
        });
        [node].into_iter().chain(of_database).collect()
    }

    /// Has the node live by so much memory at most, as a broker's target does, or by its settings alone.
    ///
    /// # Errors
    /// Only superusers may; less than [`MEMORY_BYTES_MIN`].
    pub(crate) fn set_balloon(&self, role: &str, bytes: Option<ByteSize>) -> Result<(), SqlError> {
        if !self.role(role).is_some_and(|role| role.superuser) {
            let message = "permission denied to set the balloon";
            return Err(SqlError::new(ErrorKind::InsufficientPrivilege, message)
                .with_detail("Only superusers may change the memory of the node."));
        }
        if bytes.is_some_and(|bytes| bytes.0 < MEMORY_BYTES_MIN) {
            let least = ByteSize(MEMORY_BYTES_MIN);
            let message = format!("the balloon must leave at least {least}");
            return Err(SqlError::new(ErrorKind::InvalidParameterValue, message));
        }
        self.governor().set_cap(bytes);
        Ok(())
    }

    /// What the statements of open databases do.
    pub fn statements(&self) -> Vec<StatementUse> {
        let databases = self.node().open_databases().into_iter();
        let of_database = databases.map(|database| {
            let counts = self.statement_counts(database.id);
            StatementUse {
                database: database.name.read().clone(),
                running: counts.running,
                waiting: counts.waiting,
                refused: counts.refused,
                timed_out: counts.timed_out,
            }
        });
        of_database.collect()
    }

    /// What was evicted of open databases, and read back.
    pub fn evictions(&self) -> Vec<EvictionUse> {
        let databases = self.node().open_databases().into_iter();
        let of_database = databases.map(|database| {
            let evictions = database.store.evictions();
            EvictionUse {
                database: database.name.read().clone(),
                evicted_now: database.store.evicted_bytes(),
                evicted: evictions.bytes_evicted,
                read_back: evictions.bytes_read_back,
                reads: evictions.extents_read_back,
                worth: evictions.worth.points().collect(),
            }
        });
        of_database.collect()
    }
}

fn sum(uses: &[MemoryUse]) -> u64 {
    uses.iter().map(|of| of.bytes).sum()
}

fn arenas_of(database: &str, store: &TenantStore, uses: &mut Vec<MemoryUse>) {
    for (class, names) in ARENAS {
        let ArenaMemory {
            used,
            spare,
            retired,
        } = store.arena_memory(class);
        let bytes = [used.values, used.indexes, used.versions, retired];
        // The next rows are values above all.
        let spares = [spare, 0, 0, 0];
        let parts = names.into_iter().zip(bytes).zip(spares);
        uses.extend(parts.map(|((class, bytes), spare)| MemoryUse {
            database: Some(database.to_owned()),
            class,
            bytes,
            bytes_reserved: bytes + spare,
        }));
    }
}

fn heap_of(database: &str, budget: &Budget) -> impl Iterator<Item = MemoryUse> {
    HEAP.into_iter().map(move |(class, name)| {
        let bytes = budget.used_for(class);
        MemoryUse {
            database: Some(database.to_owned()),
            class: name,
            bytes,
            bytes_reserved: bytes,
        }
    })
}

/// Takes off what operators have reserved and not allocated, a sort twice what it holds: it is in no
/// memory. Each database's queries bear their share.
fn leave_out_ahead(heap: &mut [MemoryUse], ahead: u64) {
    let of_queries = |of: &&mut MemoryUse| of.class == QUERIES;
    let queries: u64 = heap.iter_mut().filter(of_queries).map(|of| of.bytes).sum();
    for of in heap.iter_mut().filter(of_queries) {
        let share =
            u128::from(of.bytes) * u128::from(ahead.min(queries)) / u128::from(queries.max(1));
        of.bytes -= u64::try_from(share).expect("a share is at most the whole");
    }
}
