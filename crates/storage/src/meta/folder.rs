//! A node's data folder, which only one process can have at a time.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::MetaError;
use crate::files::disk::{Disk, DiskLock, Opened, SystemDisk};

const LOCK: &str = "lock";

/// A data folder, locked until this is dropped, also when the process is killed: two processes never
/// share one. Nobody but its owner may read it.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: DiskLock,
}

impl DataFolder {
    /// Opens a data folder, making it if it is missing. Folder and files are the
    /// owner's alone, for the catalogue holds password verifiers.
    ///
    /// # Errors
    /// [`MetaError::Locked`] if another process has it, else [`MetaError::Io`].
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        SystemDisk.make_folder(path).map_err(at(path))?;
        let lock_path = path.join(LOCK);
        let made = SystemDisk.open(&lock_path, Opened::WriteOrNew);
        let locked = made.and_then(|_| SystemDisk.lock(&lock_path));
        match locked.map_err(at(&lock_path))? {
            Some(lock) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            None => Err(MetaError::Locked {
                path: path.to_owned(),
            }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> MetaError {
    let path = path.to_owned();
    move |source| MetaError::Io { path, source }
}
