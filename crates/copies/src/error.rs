//! Why a copy ends.

use aerostat_storage::{ApplyError, LogFailure, ReceiveError, RecoverError, StorageError};
use thiserror::Error;

/// Why a copy cannot go on. It ends, and is opened again as another process would.
#[derive(Debug, Error)]
pub enum CopyError {
    /// What came was not the leader's log, or could not be written.
    #[error("the copy cannot take its leader's log")]
    Receive(#[from] ReceiveError),
    /// What came could not be done.
    #[error("the copy cannot do what its leader has done")]
    Apply(#[from] ApplyError),
    /// It could not be opened with less.
    #[error("the copy cannot be opened again")]
    Recover(#[from] RecoverError),
    /// The log does not take that the process leads.
    #[error("the copy cannot lead")]
    Lead(#[from] StorageError),
    /// The log takes nothing any more, and others can lead.
    #[error("the leader's log has failed")]
    Failed(#[source] LogFailure),
    /// What came does not go on from what is here.
    #[error("a part of the leader's log is missing")]
    Gap,
    /// A part of the program has panicked; what it left is not known.
    #[error("a part of the program has failed")]
    Panicked,
    /// The leader does not have what comes next any more.
    #[error("the leader's log does not go back to what the copy has")]
    LacksLog,
}

impl CopyError {
    /// Whether the copy has to be made anew ([`crate::seed`]): opened again it would be no further.
    pub fn needs_seed(&self) -> bool {
        matches!(
            self,
            CopyError::LacksLog | CopyError::Recover(RecoverError::Diverged { .. })
        )
    }
}
