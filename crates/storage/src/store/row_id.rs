//! The address of a row version within a table.

use aerostat_types::SegmentNo;

/// The name of the column in which a scan gives row ids; no name that a user can write.
pub const ROW_ID_COLUMN: &str = "\u{1}rowid";

/// Where a view found a row version: segment number in the upper half, row in the
/// lower. Means something only to the view it came from and to its clones; if the
/// version has moved since, the view finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    /// Puts the halves together.
    pub const fn new(segment: SegmentNo, row: u32) -> Self {
        Self((segment.0 as u64) << 32 | row as u64)
    }

    /// The segment.
    pub const fn segment(self) -> SegmentNo {
        SegmentNo((self.0 >> 32) as u32)
    }

    /// The row within the segment.
    pub const fn row(self) -> u32 {
        self.0 as u32
    }
}
