//! The size of a table: rows, and bytes of each attribute in a group's tuple.

use aerostat_types::LayoutError;
use thiserror::Error;

/// Rows that are stored alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// How many.
    pub rows: u64,
    /// Bytes of each attribute's slot or code in a tuple. 0 for a constant.
    pub slot_bytes: Vec<u32>,
}

/// A table. HOT rows lie in fixed-width slots (8 bytes for a variable-length value);
/// FROZEN rows in the widths of their encodings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Names of the attributes.
    pub names: Vec<String>,
    /// The rows that take writes.
    pub hot: Part,
    /// The rows that are encoded; `Part::default()` for none.
    pub frozen: Part,
}

/// Why no advice can be given.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AdviceError {
    /// The current layout does not fit the table.
    #[error("the current layout does not fit the table")]
    Layout(#[from] LayoutError),
    /// A part has other attributes than the table.
    #[error("{part} rows have {found} attributes, the table has {expected}")]
    Widths {
        /// Which part.
        part: &'static str,
        /// Attributes of the table.
        expected: usize,
        /// Attributes of the part.
        found: usize,
    },
    /// A footprint names an attribute that the table lacks.
    #[error("a footprint names attribute {0}, which the table does not have")]
    UnknownAttribute(usize),
    /// A weight, share or selectivity is not a usable number.
    #[error("a footprint's {0} is not a usable number")]
    Number(&'static str),
    /// The machine's description cannot be used.
    #[error("unusable machine: {0}")]
    Machine(&'static str),
}

impl TableShape {
    /// A table of HOT rows only.
    pub fn hot(names: Vec<String>, slot_bytes: Vec<u32>, rows: u64) -> TableShape {
        TableShape {
            names,
            hot: Part { rows, slot_bytes },
            frozen: Part::default(),
        }
    }

    /// Rows of both parts.
    pub fn rows(&self) -> u64 {
        self.hot.rows.saturating_add(self.frozen.rows)
    }

    pub(crate) fn check(&self) -> Result<(), AdviceError> {
        let expected = self.names.len();
        for (part, rows, found) in [
            ("HOT", 1, self.hot.slot_bytes.len()),
            ("FROZEN", self.frozen.rows, self.frozen.slot_bytes.len()),
        ] {
            if rows > 0 && found != expected {
                return Err(AdviceError::Widths {
                    part,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Bytes in both parts, to order attributes by.
    pub(crate) fn widths(&self, attribute: usize) -> (u32, u32) {
        let frozen = self.frozen.slot_bytes.get(attribute);
        (
            self.hot.slot_bytes[attribute],
            frozen.copied().unwrap_or_default(),
        )
    }
}
