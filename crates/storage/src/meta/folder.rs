//! A node's data folder, which one process has at a time.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::MetaError;
use crate::files::private;

const LOCK: &str = "lock";

/// A data folder, locked until this is dropped, also when the process is killed: two processes never
/// share one. Nobody but its owner may read it.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Opens a data folder, making it if it is missing. Folder and files are the
    /// owner's alone, for the catalogue holds password verifiers.
    ///
    /// # Errors
    /// [`MetaError::Locked`] if another process has it, else [`MetaError::Io`].
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        private::make_folder(path).map_err(at(path))?;
        let lock_path = path.join(LOCK);
        let lock = private_file()
            .truncate(false)
            .open(&lock_path)
            .map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(MetaError::Locked {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(at(&lock_path)(error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// For a file that only the owner may read or write.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> MetaError {
    let path = path.to_owned();
    move |source| MetaError::Io { path, source }
}
