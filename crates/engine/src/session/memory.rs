//! What a session takes of its tenant's memory.

use aerostat_types::SqlError;

use super::Executor;
use crate::memory::Held;

impl Executor {
    /// A charge to the tenant for the session, empty yet.
    pub(super) fn memory(&self) -> Held {
        let budget = self.database().store.budget();
        Held::new(budget, self.engine.spare())
    }

    /// Takes memory of the tenant's for something that belongs to the session.
    ///
    /// # Errors
    /// The tenant, or the node, has not that much left.
    pub(super) fn hold(&self, bytes: usize) -> Result<Held, SqlError> {
        let mut held = self.memory();
        held.grow(bytes as u64)?;
        Ok(held)
    }
}
