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

use aerostat_memory::{MemoryClass, ResidentParts, heap_bytes};
use aerostat_pgcatalog::{MemoryLimit, MemoryUse};
use aerostat_storage::{ArenaMemory, TenantStore};

use crate::engine::Engine;

impl Engine {
    /// What the process's memory is used for: rows of every open database, then those of the node.
    /// It walks all segments: for reports, not for each statement.
    pub fn memory_ledger(&self) -> Vec<MemoryUse> {
        let mut uses = Vec::new();
        for database in self.node().open_databases() {
            let name = database.name.read().clone();
            of_tenant(&name, &database.store, &mut uses);
        }
        of_node(&mut uses);
        uses
    }
}

impl Engine {
    /// What the node and its open databases may use of memory.
    pub fn memory_limits(&self) -> Vec<MemoryLimit> {
        let governor = self.governor();
        let node = MemoryLimit {
            database: None,
            target: Some(governor.target()),
            limit: Some(governor.limit()),
            used: governor.used(),
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
                unreserved: None,
            }
        });
        [node].into_iter().chain(of_database).collect()
    }
}

fn of_tenant(database: &str, store: &TenantStore, uses: &mut Vec<MemoryUse>) {
    let mut push = |class, bytes, bytes_reserved| {
        uses.push(MemoryUse {
            database: Some(database.to_owned()),
            class,
            bytes,
            bytes_reserved,
        });
    };
    for class in MemoryClass::ALL {
        if !class.is_mapped() {
            let bytes = store.budget().used_for(class);
            push(name_of(class), bytes, bytes);
            continue;
        }
        let [values, indexes, versions, retired] = match class {
            MemoryClass::Frozen => [
                "frozen values",
                "frozen indexes",
                "frozen versions",
                "frozen retired",
            ],
            _ => ["hot values", "hot indexes", "hot versions", "hot retired"],
        };
        let memory: ArenaMemory = store.arena_memory(class);
        let used = memory.used;
        // The next rows are values above all.
        push(values, used.values, used.values + memory.spare);
        push(indexes, used.indexes, used.indexes);
        push(versions, used.versions, used.versions);
        push(retired, memory.retired, memory.retired);
    }
}

fn of_node(uses: &mut Vec<MemoryUse>) {
    let (heap, resident) = (heap_bytes(), ResidentParts::now());
    let is_arena = |of: &MemoryUse| of.class.starts_with("hot") || of.class.starts_with("frozen");
    let bytes_of = |uses: &[MemoryUse], wanted: &dyn Fn(&MemoryUse) -> bool| -> u64 {
        let wanted = uses.iter().filter(|of| wanted(of));
        wanted.map(|of| of.bytes).sum()
    };
    let reserved = bytes_of(uses, &|of| !is_arena(of));
    let queries = bytes_of(uses, &is_of_queries);
    // Operators reserve before they allocate, a sort twice what it holds: what is not allocated is
    // in no memory.
    let ahead = reserved.saturating_sub(heap).min(queries);
    if ahead > 0 {
        for of in uses.iter_mut().filter(|of| is_of_queries(of)) {
            let share = u128::from(of.bytes) * u128::from(ahead) / u128::from(queries);
            of.bytes -= u64::try_from(share).unwrap_or(of.bytes).min(of.bytes);
        }
    }
    let arenas = bytes_of(uses, &is_arena);
    let slack = resident.anonymous.saturating_sub(arenas + heap);
    let parts = [
        ("unreserved", heap.saturating_sub(reserved)),
        ("slack", slack),
        ("program", resident.mapped_files + resident.shared),
    ];
    uses.extend(parts.map(|(class, bytes)| MemoryUse {
        database: None,
        class,
        bytes,
        bytes_reserved: 0,
    }));
}

fn is_of_queries(of: &MemoryUse) -> bool {
    of.class == name_of(MemoryClass::Queries)
}

/// The name of a class on the heap, as the view has it.
fn name_of(class: MemoryClass) -> &'static str {
    match class {
        MemoryClass::Hot => "hot",
        MemoryClass::Frozen => "frozen",
        MemoryClass::Rewrites => "rewrites",
        MemoryClass::Log => "log",
        MemoryClass::Queries => "queries",
        MemoryClass::Lookups => "lookups",
        MemoryClass::CachedPlans => "cached plans",
        MemoryClass::Sessions => "sessions",
    }
}
