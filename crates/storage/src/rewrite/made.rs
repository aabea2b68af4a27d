//! Frozen segments between their encoding and the switch of the directory. Ends (`carry`) and
//! rows that are too new to be frozen (`tail`) find their segment by position.

use std::{ops::Range, sync::Arc};

use crate::store::directory::Entry;

/// A frozen segment that no directory has yet, and which of the chosen rows it has.
pub(crate) struct Made {
    pub(crate) entry: Arc<Entry>,
    pub(crate) rows: Range<usize>,
}

impl Made {
    /// Whether the row at a position of the chosen ones is here, if not before.
    pub(crate) fn has(&self, position: u32) -> bool {
        (position as usize) < self.rows.end
    }
}
