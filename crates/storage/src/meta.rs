//! The node's catalogue on disk: one JSON document, replaced as a whole.
//!
//! A replacement is written beside the document, made durable, and renamed over
//! it, so that a crash at any instruction leaves the old document or the new one.
//! The folder is locked while a [`MetaFile`] lives: two processes never share one.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

const DOCUMENT: &str = "catalog.json";
const REPLACEMENT: &str = "catalog.json.new";
const LOCK: &str = "lock";

/// Why the catalogue could not be read or written.
#[derive(Debug, Error)]
pub enum MetaError {
    /// Another process has the folder.
    #[error("another process uses the data folder {}", path.display())]
    Locked {
        /// The folder.
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
    /// The document is not what is expected in it.
    #[error("cannot read the catalogue {}", path.display())]
    Parse {
        /// The document.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// What should be stored cannot be written as JSON.
    #[error("cannot write the catalogue as JSON")]
    Encode(#[source] serde_json::Error),
}

/// The document in a data folder, and the lock on the folder.
#[derive(Debug)]
pub struct MetaFile {
    folder: PathBuf,
    /// Serialises replacements, which share one temporary name.
    replacing: Mutex<()>,
    /// Locked until dropped, also when the process is killed.
    _lock: File,
}

impl MetaFile {
    /// Opens a data folder, making it if it is missing. Folder and files are the
    /// owner's alone, for the document holds password verifiers.
    ///
    /// # Errors
    /// [`MetaError::Locked`] if another process has it, else [`MetaError::Io`].
    pub fn open(folder: &Path) -> Result<Self, MetaError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(at(folder))?;
        let path = folder.join(LOCK);
        let lock = private().truncate(false).open(&path).map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(MetaError::Locked {
                    path: folder.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        Ok(Self {
            folder: folder.to_owned(),
            replacing: Mutex::new(()),
            _lock: lock,
        })
    }

    /// The data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The document; `None` in a new folder.
    ///
    /// # Errors
    /// [`MetaError::Io`], or [`MetaError::Parse`] if it is not a `T`.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, MetaError> {
        let path = self.folder.join(DOCUMENT);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| MetaError::Parse { path, source })
    }

    /// Replaces the document. When this returns, the new one survives a crash.
    ///
    /// # Errors
    /// [`MetaError::Io`] or [`MetaError::Encode`]; the old document is still there,
    /// unless only the last step failed, making the folder's entry durable.
    pub fn store<T: Serialize>(&self, document: &T) -> Result<(), MetaError> {
        let bytes = serde_json::to_vec_pretty(document).map_err(MetaError::Encode)?;
        let _replacing = self.replacing.lock();
        let path = self.folder.join(REPLACEMENT);
        // What a crash left behind is no replacement, and may have other permissions.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let mut file = private().create_new(true).open(&path).map_err(at(&path))?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(at(&path))?;
        fs::rename(&path, self.folder.join(DOCUMENT)).map_err(at(&path))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(at(&self.folder))
    }
}

/// For a file that only the owner may read or write.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> MetaError {
    let path = path.to_owned();
    move |source| MetaError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_document_survives_and_a_torn_replacement_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a/b");
        let meta = MetaFile::open(&folder).unwrap();
        assert_eq!(meta.load::<Vec<u32>>().unwrap(), None);
        meta.store(&vec![1, 2]).unwrap();
        fs::write(folder.join(REPLACEMENT), b"[1, 2, 3").unwrap();
        drop(meta);
        let meta = MetaFile::open(&folder).unwrap();
        assert_eq!(meta.load::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
        meta.store(&vec![9]).unwrap();
        assert_eq!(meta.load::<Vec<u32>>().unwrap(), Some(vec![9]));
        let mode = fs::metadata(folder.join(DOCUMENT))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_folder_has_one_owner_and_a_broken_document_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let meta = MetaFile::open(folder.path()).unwrap();
        assert!(matches!(
            MetaFile::open(folder.path()),
            Err(MetaError::Locked { .. })
        ));
        fs::write(folder.path().join(DOCUMENT), b"{").unwrap();
        assert!(matches!(meta.load::<u32>(), Err(MetaError::Parse { .. })));
    }
}
