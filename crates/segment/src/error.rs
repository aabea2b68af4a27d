//! The errors of a segment.

use arrow_schema::DataType;
use thiserror::Error;

/// Why a segment could not be made, attached or appended to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// The description of attributes, groups and key contradicts itself.
    #[error("invalid segment schema: {0}")]
    Schema(&'static str),
    /// Not even one row fits the arena.
    #[error("an arena of {bytes} bytes is too small: {needed} are needed for one row")]
    ArenaTooSmall {
        /// Bytes of the arena.
        bytes: usize,
        /// Bytes for one row with its share of the heap.
        needed: usize,
    },
    /// A value is longer than [`aerostat_types::VALUE_BYTES_MAX`].
    #[error("a value of {bytes} bytes is longer than a value may be")]
    ValueTooLong {
        /// Position of the attribute.
        attribute: usize,
        /// Row within the appended columns.
        row: usize,
        /// Length of the value.
        bytes: usize,
    },
    /// A row does not fit the largest arena, even alone.
    #[error("a row of {bytes} bytes does not fit the largest segment")]
    RowTooWide {
        /// Row within the appended columns.
        row: usize,
        /// Bytes of the row, fixed part and long values.
        bytes: usize,
    },
    /// A column is of a type the attribute does not take.
    #[error("attribute {attribute} takes {expected}, not {actual}")]
    ColumnType {
        /// Position of the attribute.
        attribute: usize,
        /// The attribute's own Arrow type.
        expected: DataType,
        /// The column's type.
        actual: DataType,
    },
    /// A NULL for an attribute that takes none.
    #[error("attribute {attribute} takes no NULL")]
    NullValue {
        /// Position of the attribute.
        attribute: usize,
    },
    /// A decimal has more digits than its attribute.
    #[error("a value is out of the range of attribute {attribute}")]
    ValueOutOfRange {
        /// Position of the attribute.
        attribute: usize,
    },
    /// The bytes are not a sealed segment of this schema.
    #[error("these bytes are no segment: {0}")]
    Corrupt(&'static str),
}
