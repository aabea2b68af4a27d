//! Definitions of a statement's block, and drafts of them.

use std::sync::Arc;

use aerostat_catalog::{Definitions, Draft};
use aerostat_txn::CancelToken;
use aerostat_types::SqlError;

use super::{Running, SessionView, run::CancelOnDrop};

impl Running<'_> {
    /// The session without the right to change the transaction.
    pub(super) fn view(&self) -> SessionView<'_> {
        SessionView::of(self.client, self.transaction, self.executor)
    }

    /// What the block defines. The caller has opened one.
    pub(super) fn definitions(&mut self) -> Result<Arc<Definitions>, SqlError> {
        let database = self.executor.database();
        self.transaction
            .definitions(database, &self.client.temporaries)
    }

    /// A draft whose waits end when the statement is dropped.
    pub(super) fn stoppable_draft(&mut self) -> Result<(Draft, CancelOnDrop), SqlError> {
        let definitions = self.definitions()?;
        let cancel = CancelToken::new();
        let stop = CancelOnDrop::of(cancel.clone());
        Ok((self.client.draft(&definitions, cancel), stop))
    }
}
