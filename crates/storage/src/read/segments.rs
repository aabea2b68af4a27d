//! Descriptions of a table's segments, one by one.

use std::sync::Arc;

use aerostat_segment::{AttributeEncoding, KeyRef};
use aerostat_types::{Layout, Physical, SegmentNo};

use crate::{
    Table,
    read::describe,
    store::directory::{Directory, Entry},
};

/// A segment of a table at one moment; with writers about, counts are estimates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDescription {
    /// Its number, which no other segment of the table has had.
    pub no: SegmentNo,
    /// The least key it may have, as `(1, x)`; `None` for the first, and without a key.
    pub lower: Option<String>,
    /// Whether it is encoded and takes no rows.
    pub is_frozen: bool,
    /// Whether new rows of its keys go to hot segments in front of it.
    pub is_base: bool,
    /// Row versions that are not known to be dead.
    pub rows: u64,
    /// Row versions that a vacuum removes once no snapshot sees them.
    pub rows_dead: u64,
    /// Rows there is room for.
    pub capacity: u64,
    /// Bytes of address space.
    pub arena_bytes: u64,
    /// Bytes of the arena in use, with index, versions and dead rows.
    pub bytes_used: u64,
    /// Bytes of its values and indexes that are evicted.
    pub bytes_evicted: u64,
    /// Bytes of long values; of a frozen segment, of its distinct strings.
    pub heap_bytes: u64,
    /// Which of its attributes lie together.
    pub layout: Layout,
    /// Whether a new segment would be laid out like this; if not, it waits for a
    /// [`Table::reshape`].
    pub is_in_shape: bool,
    /// One for each column, in the table's order.
    pub attributes: Vec<AttributeDescription>,
}

/// An attribute of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeDescription {
    /// How its values lie, and the bytes of all versions.
    pub encoding: AttributeEncoding,
    /// Bytes of the values of [`SegmentDescription::rows`] as the user counts them: fixed
    /// widths and string bytes, `char(n)` as n.
    pub bytes_raw: u64,
}

impl Table {
    /// The segments of now, in key order, each base before what is in front of it. With
    /// writers about, counts are estimates.
    pub fn segments(&self) -> Vec<SegmentDescription> {
        describe(self, &self.directory())
    }
}

/// Describes all segments of a directory.
fn describe(table: &Table, directory: &Directory) -> Vec<SegmentDescription> {
    let ranges = directory.ranges();
    let mut all = Vec::with_capacity(directory.entries().len());
    for (at, range) in ranges.iter().enumerate() {
        let known = at > 0 && range.shares_base(&ranges[at - 1]);
        if let Some(base) = range.base.as_ref().filter(|_| !known) {
            all.push(SegmentDescription {
                is_base: true,
                ..segment(table, base, &range.lower)
            });
        }
        all.push(segment(table, &range.entry, &range.lower));
    }
    all
}

fn segment(table: &Table, entry: &Arc<Entry>, lower: &[u8]) -> SegmentDescription {
    let segment = entry.segment();
    let columns = &table.schema().columns;
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let live = entry.live();
    let mut variable = entry.variable_bytes_of(live).into_iter();
    let attributes = columns.iter().enumerate().map(|(at, column)| {
        let bytes_raw = match column.ty.physical() {
            Physical::Variable => variable.next().unwrap_or_default(),
            fixed => fixed.width() as u64 * u64::from(live),
        };
        AttributeDescription {
            encoding: segment.encoding(at),
            bytes_raw,
        }
    });
    let has_lower = !lower.is_empty();
    SegmentDescription {
        no: segment.no(),
        lower: has_lower
            .then(|| describe::key_bytes(table.schema(), segment.schema(), KeyRef(lower)))
            .flatten(),
        is_frozen: segment.is_frozen(),
        is_base: false,
        rows: live.into(),
        rows_dead: entry.dead().into(),
        capacity: segment.capacity().into(),
        arena_bytes: segment.arena_bytes() as u64,
        bytes_used: segment.footprint_bytes(),
        bytes_evicted: segment.evicted_bytes(),
        heap_bytes: segment.heap_used_bytes() as u64,
        layout: Layout::of_groups(segment.schema().groups(), &names),
        is_in_shape: table.shape().has(segment),
        attributes: attributes.collect(),
    }
}
