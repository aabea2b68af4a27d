//! Why a tenant's files cannot be used: the error that readers of manifest, images and log share.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{StorageError, files::codec::BadBytes};

/// Why a tenant could not be opened.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// Somebody has it open.
    #[error("{} is open already", path.display())]
    Locked {
        /// Its folder.
        path: PathBuf,
    },
    /// A file or folder could not be read or written.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what was written. It is left as it is.
    #[error("{} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// How.
        what: &'static str,
    },
    /// A copy has what its leader's log has not, and cannot be cut back: it has to be made anew.
    #[error("{} is no copy of its leader's database: {what}", path.display())]
    Diverged {
        /// Where it is.
        path: PathBuf,
        /// What it has.
        what: &'static str,
    },
    /// The tables could not be filled: mostly lack of memory.
    #[error("cannot restore the tables")]
    Storage(#[from] StorageError),
}

impl RecoverError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> RecoverError {
        let path = path.to_owned();
        move |source| RecoverError::Io { path, source }
    }

    pub(crate) fn damaged(path: &Path, offset: usize, what: BadBytes) -> RecoverError {
        RecoverError::Damaged {
            path: path.to_owned(),
            offset: offset as u64,
            what: what.0,
        }
    }
}
