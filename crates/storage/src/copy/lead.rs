//! A tenant that leads its copies: when commits are acknowledged, and how the node takes over and gives up.

use aerostat_types::{CommitTs, Epoch};

use crate::{
    StorageError, TenantStore,
    files::log::{
        Log,
        pulse::CommitWatch,
        record::{self, Kind},
        stream::{LogWatch, Wake},
    },
};

impl TenantStore {
    /// From the next group on commits are acknowledged when [`Self::committed`] says so, and this node's disk
    /// has them (`and_fsync`) or its operating system.
    ///
    /// # Panics
    /// When the tenant has no log, as for all here.
    pub fn await_copies(&self, and_fsync: bool) {
        self.durable_side().log.await_copies(and_fsync);
    }

    /// All copies that must have everything through this. Whoever waits for that is told, and snapshots see it.
    pub fn committed(&self, through: CommitTs) {
        let acknowledged = self.durable_side().log.committed(through);
        self.txns().publish(acknowledged);
    }

    /// The newest place of which what is written of the log speaks: all before it is there to be read.
    pub fn written_through(&self) -> CommitTs {
        self.durable_side().log.written_end().said
    }

    /// The newest place of which what the disk has of the log speaks.
    pub fn durable_through(&self) -> CommitTs {
        self.durable_side().log.written_end().durable
    }

    /// Has somebody told whenever more of the log is written, or on disk, until what is given is dropped. `wake`
    /// is quick, and takes no lock of the log's.
    pub fn watch_log(&self, wake: Wake) -> LogWatch {
        LogWatch::of(&self.durable_side().log, wake)
    }

    /// Has commits timed, from the queue to their acknowledgement, until what is given is dropped.
    pub fn watch_commits(&self) -> CommitWatch {
        CommitWatch::of(&self.durable_side().log)
    }

    /// Another node leads: no change is taken any more, and whoever waits for a commit is told that it is in
    /// doubt. The tenant is to be closed, and opened as a copy.
    pub fn depose(&self) {
        self.durable_side().log.depose();
    }

    /// Has the log say that an epoch begins, which none of it was, and gives its place. It is written then, and
    /// acknowledged as all else is.
    ///
    /// # Errors
    /// [`StorageError::Commit`] and [`StorageError::Log`]: the log takes nothing.
    ///
    /// # Panics
    /// When the log has an epoch that is not before it.
    pub fn begin_epoch(&self, epoch: Epoch) -> Result<CommitTs, StorageError> {
        self.begin_epoch_after(epoch, |_| {})
    }

    /// As [`Self::begin_epoch`], after something that is done to the log in one step with it.
    pub(super) fn begin_epoch_after(
        &self,
        epoch: Epoch,
        first: impl FnOnce(&Log),
    ) -> Result<CommitTs, StorageError> {
        let durable = self.durable_side();
        let mut epochs = durable.epochs.lock();
        assert!(
            epochs.last().is_none_or(|last| last.0 < epoch),
            "epoch {epoch} begins behind {:?}",
            epochs.last()
        );
        let payload = record::put_epoch(epoch);
        let enqueue = |ts| {
            first(&durable.log);
            durable.log.enqueue_entry(Kind::Epoch, ts, payload)
        };
        let at = self.txns().place_entry(enqueue)?;
        durable.log.write_out()?;
        epochs.push((epoch, at));
        drop(epochs);
        // Nobody waits for it who would show it.
        self.committed(CommitTs(0));
        Ok(at)
    }
}
