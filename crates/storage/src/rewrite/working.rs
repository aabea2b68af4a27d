//! The memory that building frozen segments needs beside the segments themselves, and its
//! reservation.
//!
//! ```text
//!  choose   a source per row, and its key                       until the switch
//!  encode   the values of an attribute at a time, then a code per row and attribute
//!           until all are packed                               until the arena has them
//! ```
//!
//! It is reserved from the tenant's budget before the first row is read, for a unit as a whole, with what the
//! arena takes. Without it nothing is built: the unit stays as it is, and a later call tries again. Freezing may have it
//! beyond the limits: a database whose memory is taken by rows that are not frozen has no other way out.

use aerostat_memory::{MemoryClass, Overdraft};

use crate::{StorageError, Table, rewrite::chosen::Source, store::unit::Unit};

/// An encoded key and where it ends: most keys are one or two numbers.
const KEY_BYTES: u64 = 32;

/// A row's place where columns of several segments become one, and its number there.
const PLACE_BYTES: u64 = 20;

/// A value of the attribute that is being encoded: gathered, joined, and copied once to be
/// sorted, 16 bytes each. Strings have theirs among the unit's bytes.
const VALUE_BYTES: u64 = 48;

/// The code of an attribute before it is packed.
const CODE_BYTES: u64 = 8;

impl Table {
    /// Takes what building the unit anew needs while it lasts.
    ///
    /// # Errors
    /// [`StorageError::OutOfMemory`].
    pub(crate) fn reserve_working(&self, unit: &Unit) -> Result<Overdraft, StorageError> {
        let budget = self.store().budget();
        let working = budget.reserve(MemoryClass::Rewrites, self.working_bytes(unit))?;
        Ok(working.into())
    }

    /// The same for what makes the unit smaller.
    ///
    /// # Errors
    /// [`StorageError::OutOfMemory`], where others do the same.
    pub(crate) fn overdraw_working(&self, unit: &Unit) -> Result<Overdraft, StorageError> {
        let budget = self.store().budget();
        Ok(budget.overdraft(MemoryClass::Rewrites, self.working_bytes(unit))?)
    }

    pub(crate) fn working_bytes(&self, unit: &Unit) -> u64 {
        let attributes = self.schema().columns.len() as u64;
        working_bytes(unit.rows(), attributes, unit.whole_bytes())
    }
}

/// The packed form and the arena to which it is copied take no more than the rows did, each.
fn working_bytes(rows: u64, attributes: u64, unit_bytes: u64) -> u64 {
    // Sorting makes the sources anew.
    let source_bytes = size_of::<Source>() as u64 * 2 + KEY_BYTES;
    let row_bytes = source_bytes + PLACE_BYTES + VALUE_BYTES + CODE_BYTES * attributes;
    rows * row_bytes + 2 * unit_bytes
}
