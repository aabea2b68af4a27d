//! Sizes and counts of a table, and what the memory of a tenant's segments is for.

use std::sync::Arc;

use aerostat_memory::MemoryClass;
use aerostat_segment::SegmentMemory;

use crate::{
    Table, TableView, TenantStore,
    store::directory::{Directory, Entry},
};

/// Sizes and counts of a table at one moment; with writers about, estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    /// Row versions that are not known to be dead.
    pub rows: u64,
    /// Row versions that a vacuum removes once no snapshot sees them.
    pub rows_dead: u64,
    /// Segments in the directory.
    pub segments: u64,
    /// Bytes of arenas that are in memory, with indexes, versions and dead rows.
    pub bytes_used: u64,
    /// Bytes of the live rows' values alone: fixed widths and string bytes, `char(n)` as n.
    pub bytes_raw: u64,
    /// Segments of [`Self::segments`] that are laid out as a new one would be; the others
    /// wait for a [`Table::reshape`].
    pub segments_in_shape: u64,
    /// Segments of [`Self::segments`] that are frozen; the others are hot.
    pub segments_frozen: u64,
    /// Row versions of [`Self::rows`] in frozen segments.
    pub rows_frozen: u64,
    /// Bytes of frozen segments, in memory or evicted.
    pub bytes_frozen: u64,
    /// Bytes of these that are evicted: on disk alone, until they are wanted.
    pub bytes_evicted: u64,
    /// Bytes charged to the tenant's budget.
    pub bytes_reserved: u64,
}

impl TableStatistics {
    /// Bytes that the table takes when all of it is in memory.
    pub fn bytes_whole(&self) -> u64 {
        self.bytes_used + self.bytes_evicted
    }
}

impl Table {
    /// Sizes and counts of now.
    pub fn statistics(&self) -> TableStatistics {
        TableStatistics::of(self, &self.directory())
    }
}

impl TableView {
    /// Sizes and counts of the segments the view pins.
    pub fn statistics(&self) -> TableStatistics {
        TableStatistics::of(self.table(), self.directory())
    }
}

impl TableStatistics {
    fn of(table: &Table, directory: &Directory) -> Self {
        let mut all = Self {
            segments: directory.entries().len() as u64,
            ..Self::default()
        };
        for entry in directory.entries() {
            let live = entry.live();
            all.rows += u64::from(live);
            all.rows_dead += u64::from(entry.dead());
            let bytes_used = entry.segment().footprint_bytes();
            all.bytes_used += bytes_used;
            if entry.segment().is_frozen() {
                all.segments_frozen += 1;
                all.rows_frozen += u64::from(live);
                all.bytes_frozen += entry.segment().whole_bytes();
                all.bytes_evicted += entry.segment().evicted_bytes();
            }
            let variable: u64 = entry.variable_bytes_of(live).iter().sum();
            all.bytes_raw += u64::from(live) * table.raw_bytes_fixed() + variable;
            all.segments_in_shape += u64::from(table.shape().has(entry.segment()));
            all.bytes_reserved += entry.bytes_reserved();
        }
        all
    }
}

/// What the memory of a tenant's hot segments, or of its frozen ones, is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaMemory {
    /// Of the segments that directories have.
    pub used: SegmentMemory,
    /// Reserved for the next rows of these segments, and not in memory yet.
    pub spare: u64,
    /// Of segments that are no longer in a directory, or not yet, while somebody has them.
    pub retired: u64,
}

impl TenantStore {
    /// Bytes of frozen segments that are evicted now. As [`Self::arena_memory`], for reports.
    pub fn evicted_bytes(&self) -> u64 {
        self.sum_of_entries(&|_, entry| entry.segment().evicted_bytes())
    }

    /// Bytes of frozen segments that no checkpoint has written yet, though the next one would.
    pub(crate) fn frozen_without_image(&self) -> u64 {
        self.sum_of_entries(&|table, entry| {
            let segment = entry.segment();
            // What is in another layout than the table's is written as rows.
            let is_written = !table.is_temporary() && table.shape().has(segment);
            match is_written && entry.is_without_image() {
                true => segment.footprint_bytes(),
                false => 0,
            }
        })
    }

    /// Of all segments of all tables, temporary ones too.
    fn sum_of_entries(&self, of: &dyn Fn(&Table, &Entry) -> u64) -> u64 {
        let of_table = |table: Arc<Table>| {
            let directory = table.directory();
            let entries = directory.entries().iter();
            entries.map(|entry| of(&table, entry)).sum::<u64>()
        };
        self.living.all().into_iter().map(of_table).sum()
    }

    /// What the memory of its segments of a class is for, [`MemoryClass::Hot`] or
    /// [`MemoryClass::Frozen`]. It walks all segments of all tables: for reports, not for each
    /// statement.
    pub fn arena_memory(&self, class: MemoryClass) -> ArenaMemory {
        assert!(class.is_mapped(), "{class:?} is not in arenas");
        let wants_frozen = class == MemoryClass::Frozen;
        let mut used = SegmentMemory::default();
        let (mut sum, mut spare) = (0, 0);
        for table in self.living.all() {
            let directory = table.directory();
            for entry in directory.entries() {
                if entry.segment().is_frozen() != wants_frozen {
                    continue;
                }
                let own = entry.segment().memory();
                let bytes = own.values + own.indexes + own.versions;
                sum += bytes;
                spare += entry.bytes_reserved().saturating_sub(bytes);
                used.values += own.values;
                used.indexes += own.indexes;
                used.versions += own.versions;
            }
        }
        ArenaMemory {
            used,
            spare,
            retired: self.budget().used_for(class).saturating_sub(sum + spare),
        }
    }
}
