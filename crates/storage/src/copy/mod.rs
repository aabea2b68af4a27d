//! A tenant as a copy of another node's: its log received, its commits done again beside readers.
//!
//! ```text
//!  leader's log ── LogReader ──► receive ─► own log ── LogReader ──► Applier ─► tables, catalogue
//!                                  │ written: told the leader           │
//!                                  └ flushed: on disk                   └ snapshots see it
//! ```
//!
//! * **Receiving** ([`TenantStore::receive`]) writes; what is written is what the leader is told of.
//! * **Applying** ([`Applier`]) comes behind, as far as the leader says that everything is committed. It
//!   changes tables as writers do, with the stamps of transactions of its own, and snapshots pass from commit
//!   to commit. Readers, freezing, vacuum, layouts and checkpoints are the copy's own affair.
//! * **Changing hands.** [`Applier::lead`] makes the tenant this node's: what had not committed will not,
//!   and a record says that another epoch begins.
//!
//! * **Leading** ([`lead`]): commits are acknowledged when whoever counts the copies says so.
//!
//! The room uses `durable` for opening, `rewrite` for tables that get another shape, `write` and `store`.

mod apply;
mod describe;
mod ends;
mod lead;
mod rows;

use std::{path::Path, sync::Arc};

use aerostat_memory::Budget;
use aerostat_types::{CommitTs, Durability, Epoch, TenantId};

pub use self::apply::{Applier, ApplyError, Progress};
use crate::{
    OpenOptions, RecoverError, Recovered, TenantStore, Timeline,
    durable::recover::CopyOf,
    files::{
        log::{
            point::StreamPoint,
            receive::ReceiveError,
            record::{self, Kind, Record},
            stream::{LogHold, LogReader, StreamError, Wake},
        },
        manifest::TableDescription,
    },
};

impl TenantStore {
    /// Opens the tenant in a folder as a copy of another node's, making it if it is missing: with everything
    /// that its log has, as far as that counts. It takes no changes but what it receives, and syncs when it is
    /// told to ([`Self::sync_log`]), whatever `options` say.
    ///
    /// # Errors
    /// As [`Self::open`]; [`RecoverError::Diverged`] when it has to be made anew; [`RecoverError::Storage`]
    /// when what had not committed cannot be done again.
    pub fn open_copy(
        id: TenantId,
        budget: Arc<Budget>,
        folder: &Path,
        options: &OpenOptions,
        of: CopyOf,
    ) -> Result<(Arc<TenantStore>, Recovered, Applier), RecoverError> {
        // Its leader counts what disks have; nobody waits for one here.
        let options = OpenOptions {
            durability: Durability::None,
            ..options.clone()
        };
        let opened = Self::open_as(id, budget, folder, &options, Some(of))?;
        let (store, recovered, unfinished) = opened;
        let applier = Applier::resume(&store, &recovered.tables, &unfinished).map_err(|error| {
            RecoverError::Io {
                path: folder.to_owned(),
                source: std::io::Error::other(error),
            }
        })?;
        Ok((store, recovered, applier))
    }

    /// Whether it is a copy: it takes no changes but those of another node.
    pub fn is_copy(&self) -> bool {
        self.durable
            .as_ref()
            .is_some_and(|durable| durable.log.follows())
    }

    /// Takes the next records of its leader's log: whole ones. Gives through where they are written. Their
    /// commits are applied by the [`Applier`].
    ///
    /// # Errors
    /// [`ReceiveError`].
    ///
    /// # Panics
    /// When it is no copy.
    pub fn receive(&self, records: &[u8]) -> Result<CommitTs, ReceiveError> {
        self.durable_side().log.receive(records, &check)
    }

    /// Up to where it has received its leader's log.
    ///
    /// # Panics
    /// When the tenant has no log.
    pub fn received(&self) -> StreamPoint {
        self.durable_side().log.received()
    }

    /// Reads the tenant's log from behind a place on, as it is written; `wake` is told of more.
    ///
    /// # Errors
    /// [`StreamError`].
    ///
    /// # Panics
    /// When the tenant has no log.
    pub fn log_reader(&self, after: CommitTs, wake: Wake) -> Result<LogReader, StreamError> {
        LogReader::behind(&self.durable_side().log, after, wake)
    }

    /// Keeps what a copy may ask for, as far as it can be kept.
    ///
    /// # Panics
    /// When the tenant has no log.
    pub fn hold_log(&self) -> LogHold {
        LogHold::of(&self.durable_side().log)
    }

    /// The history that its log is of; `None` if it has no log.
    pub fn timeline(&self) -> Option<Timeline> {
        let durable = self.durable.as_ref()?;
        Some(durable.log.origin().timeline)
    }

    /// The highest number of a table that is there, or was a while ago; `None` if there was none, or no log.
    pub fn highest_table(&self) -> Option<aerostat_types::TableId> {
        let durable = self.durable.as_ref()?;
        let registry = durable.registry.lock();
        registry.highest()
    }

    /// The epochs that its log has, and where they begin, ascending.
    pub fn epochs(&self) -> Vec<(Epoch, CommitTs)> {
        match &self.durable {
            Some(durable) => durable.epochs.lock().clone(),
            None => Vec::new(),
        }
    }
}

/// Whether a record says what one of its kind does.
fn check(record: &Record<'_>) -> Result<(), ReceiveError> {
    let odd = ReceiveError::Bad("an entry that this version does not know");
    match record.head.kind {
        Kind::Table => {
            let description: TableDescription =
                serde_json::from_slice(record.payload).map_err(|_| odd)?;
            description.check()?;
        }
        Kind::DropTable if record.payload.len() != 4 => return Err(odd),
        Kind::Epoch => {
            record::epoch(record.payload)?;
        }
        _ => {}
    }
    Ok(())
}
