//! Seeds: what a copy is made of that its leader's log does not lead to any more.
//!
//! ```text
//!  Seed (leader)                                   SeedFolder (copy)
//!  checkpoint at S, pinned ── manifest ──────────► <folder>.seed/  which images are here already?
//!    images                ── bytes of images ───► checkpoint/     each with the manifest's checksum
//!  log, held               ── bytes of the log ──► log/            records with their own
//!                                                  manifest last; then <folder>.seed takes the place of <folder>
//! ```
//!
//! * **The same history.** Tenant, timeline, epochs, catalogue and LSNs are the leader's: the folder is one that
//!   a copy of this log could have had, which goes on with the log from where it ends.
//! * **The log comes along**, from the first file that the checkpoint needs through what was written when its end
//!   was sent. So transactions that were open at S have their chunks, and the leader need not hold much.
//! * **Checkpoints go on.** The images of S are pinned, not locked: no later checkpoint waits for a seed, or
//!   takes its files away. A pin keeps nobody from closing the tenant; a seed of one that was closed is over.
//! * **What is here stays.** An image is known by its name, length and checksum. Those of an earlier attempt, or
//!   of the copy that is to be replaced, are not sent again; one that came in part is gone on with.
//! * **Crashes** leave the old folder, or the new one, or a seed that another attempt goes on with
//!   (`files/replace`).

mod give;
mod take;

use std::{
    io,
    path::{Path, PathBuf},
};

use aerostat_types::Epoch;
use thiserror::Error;

use crate::{RecoverError, StorageError};

pub use give::{LogPart, Seed};
pub use take::{ImageTaker, SeedFolder, SeedOf, Taken, WantedImage};

/// The part of a tenant's folder that its checkpoint is.
const CHECKPOINT: &str = "checkpoint";

/// The part that its log is.
const LOG: &str = "log";

/// Why a seed could not be given or taken.
#[derive(Debug, Error)]
pub enum SeedError {
    /// The tenant has no log, so nothing of it is ever in files.
    #[error("the database keeps nothing in files, so no copy can be made of it")]
    NotDurable,
    /// The tenant could not say what it has.
    #[error("the checkpoint that a seed begins with failed")]
    Storage(#[from] StorageError),
    /// A file or folder could not be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The leader does not keep it any more: it was closed, or its log has gone on too far. Another seed is to
    /// be begun, for which what is here counts.
    #[error("the leader does not have all of the seed any more")]
    Gone,
    /// Nothing of this name belongs to the seed.
    #[error("the seed has no such file")]
    Unknown,
    /// A file is not what the leader has. What is wrong of it was removed.
    #[error("the seed's {name} is damaged: {what}")]
    Damaged {
        /// Which.
        name: String,
        /// How.
        what: &'static str,
    },
    /// It is of another tenant or another history than was asked for.
    #[error("the seed is of another database's history")]
    OfAnother,
    /// It is of somebody who led before the configuration that is known.
    #[error("the seed's last epoch is {found}, and {known} has begun")]
    Over {
        /// Of the seed.
        found: Epoch,
        /// What is known.
        known: Epoch,
    },
    /// Not all of it has come.
    #[error("the seed is not complete: {what}")]
    Incomplete {
        /// What is missing.
        what: &'static str,
    },
    /// Another attempt is under way, or the copy that is to be replaced is open.
    #[error("{} is in use", path.display())]
    Locked {
        /// Which folder.
        path: PathBuf,
    },
    /// It would not fit.
    #[error("a seed of {needed} more bytes does not fit where {free} are free")]
    NoRoom {
        /// Bytes that are to come.
        needed: u64,
        /// What the file system has.
        free: u64,
    },
    /// What has come is no checkpoint with its log.
    #[error("what has come cannot be opened")]
    Recover(#[source] RecoverError),
}

impl From<RecoverError> for SeedError {
    fn from(error: RecoverError) -> SeedError {
        match error {
            RecoverError::Locked { path } => SeedError::Locked { path },
            RecoverError::Io { path, source } => SeedError::Io { path, source },
            error => SeedError::Recover(error),
        }
    }
}

impl SeedError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> SeedError {
        let path = path.to_owned();
        move |source| SeedError::Io { path, source }
    }
}
