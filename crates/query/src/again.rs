//! What makes it worth while to run a statement again.

use aerostat_catalog::failure::from_storage;
use aerostat_storage::StorageError;
use aerostat_txn::Awaited;
use aerostat_types::SqlError;
use datafusion::common::DataFusionError;

use crate::error::external;

/// Why a statement that failed is to be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Rows have changed under it: on a newer snapshot.
    Conflict,
    /// It must wait for another transaction, and no thread may sleep for it: once that has settled.
    Waits(Awaited),
}

impl Again {
    /// Whether storage asks for it.
    fn asked_by(error: &StorageError) -> Option<Again> {
        match error {
            StorageError::Conflict => Some(Again::Conflict),
            StorageError::WouldWait { awaited } => awaited.map(Again::Waits),
            _ => None,
        }
    }

    /// Whether storage asked for it below a plan.
    pub fn asked_below(error: &DataFusionError) -> Option<Again> {
        match error {
            DataFusionError::External(inner) => Again::asked_by(inner.downcast_ref()?),
            DataFusionError::Context(_, inner) => Again::asked_below(inner),
            DataFusionError::Shared(inner) => Again::asked_below(inner),
            _ => None,
        }
    }
}

/// What storage says below a plan: as it is where it asks for another run, else refined.
pub(crate) fn below(
    error: StorageError,
    refine: impl FnOnce(SqlError) -> SqlError,
) -> DataFusionError {
    match Again::asked_by(&error) {
        Some(_) => DataFusionError::External(Box::new(error)),
        None => external(refine(from_storage(error))),
    }
}
