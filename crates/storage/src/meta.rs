//! The node's catalogue on disk: one JSON document, replaced as a whole.
//!
//! ```text
//!  file := {"crc32":"89abcdef","document":⏎ the document ⏎}⏎
//! ```
//!
//! The checksum is of the document's bytes, and all other bytes of the file are given, so
//! that no single damaged byte is read as another catalogue. A file of the document alone,
//! without a checksum, is read as well, and gets one at once.
//!
//! A replacement is written beside the document, made durable, and renamed over
//! it, so that a crash at any instruction leaves the old document or the new one.
//! There are two of these files. The copy is replaced first, so that it is never older than
//! what anybody was told, and stands in for the document if that is damaged or missing.
//! The folder is locked while a [`MetaFile`] lives: two processes never share one.
//! Nobody but its owner may read it ([`crate::private`]).

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::private;

const DOCUMENT: &str = "catalog.json";
const COPY: &str = "catalog.copy.json";
const REPLACEMENT: &str = "catalog.json.new";
const LOCK: &str = "lock";

/// What stands before the checksum, between it and the document, and behind that.
const BEFORE_CHECKSUM: &[u8] = b"{\"crc32\":\"";
const BEFORE_DOCUMENT: &[u8] = b"\",\"document\":\n";
const BEHIND_DOCUMENT: &[u8] = b"\n}\n";

/// Hexadecimal digits of the checksum.
const CHECKSUM_DIGITS: usize = 8;

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
    /// Bytes of the document are not those that were written.
    #[error("the catalogue {} is damaged: its checksum does not match", path.display())]
    Damaged {
        /// The document.
        path: PathBuf,
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
        private::make_folder(folder).map_err(at(folder))?;
        let path = folder.join(LOCK);
        let lock = private_file()
            .truncate(false)
            .open(&path)
            .map_err(at(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(MetaError::Locked {
                    path: folder.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
        }
        private::close_to_others(folder, &folder.join(DOCUMENT));
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

    /// The document; `None` in a new folder. If it is damaged or missing, its copy.
    ///
    /// # Errors
    /// [`MetaError::Io`], [`MetaError::Damaged`], or [`MetaError::Parse`] if it is not a `T`:
    /// neither file can be used, and what is wrong with the document is told.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>, MetaError> {
        let (found, copy) = (self.read::<T>(DOCUMENT), self.read::<T>(COPY));
        let (read, copy_is_same) = match (found, copy) {
            (Ok(Some(read)), Ok(Some(copy))) => {
                let is_same = copy.document == read.document;
                (read, is_same)
            }
            (Ok(Some(read)), _) => (read, false),
            // A copy without a checksum was not written here.
            (found, Ok(Some(copy))) if copy.has_checksum => {
                tracing::error!(
                    folder = %self.folder.display(),
                    damage = ?found.err().map(|error| error.to_string()),
                    "{DOCUMENT} is missing or damaged; its copy stands in and replaces it"
                );
                (copy, false)
            }
            (Err(error), _) | (Ok(None), Err(error)) => return Err(error),
            (Ok(None), Ok(_)) => return Ok(None),
        };
        if !copy_is_same || !read.has_checksum {
            self.replace(&read.document)?;
        }
        Ok(Some(read.parsed))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<Read<T>>, MetaError> {
        let path = self.folder.join(name);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        };
        let (document, has_checksum) = match checked(&bytes) {
            Checked::Document(document) => (document, true),
            Checked::WithoutChecksum => (&*bytes, false),
            Checked::Damaged => return Err(MetaError::Damaged { path }),
        };
        let parsed = serde_json::from_slice(document);
        Ok(Some(Read {
            parsed: parsed.map_err(|source| MetaError::Parse { path, source })?,
            document: document.to_vec(),
            has_checksum,
        }))
    }

    /// Replaces the document. When this returns, the new one survives a crash.
    ///
    /// # Errors
    /// [`MetaError::Io`] or [`MetaError::Encode`]; the old document is still there,
    /// unless only the last step failed, making the folder's entry durable.
    pub fn store<T: Serialize>(&self, document: &T) -> Result<(), MetaError> {
        self.replace(&serde_json::to_vec_pretty(document).map_err(MetaError::Encode)?)
    }

    fn replace(&self, document: &[u8]) -> Result<(), MetaError> {
        let _replacing = self.replacing.lock();
        for name in [COPY, DOCUMENT] {
            self.replace_file(name, document)?;
        }
        Ok(())
    }

    fn replace_file(&self, name: &str, document: &[u8]) -> Result<(), MetaError> {
        let path = self.folder.join(REPLACEMENT);
        // What a crash left behind is no replacement, and may have other permissions.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let mut file = private_file()
            .create_new(true)
            .open(&path)
            .map_err(at(&path))?;
        file.write_all(&with_checksum(document))
            .and_then(|()| file.sync_all())
            .map_err(at(&path))?;
        fs::rename(&path, self.folder.join(name)).map_err(at(&path))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(at(&self.folder))
    }
}

/// A file as it was read.
struct Read<T> {
    parsed: T,
    document: Vec<u8>,
    has_checksum: bool,
}

/// What a file's bytes say.
enum Checked<'a> {
    Document(&'a [u8]),
    WithoutChecksum,
    Damaged,
}

fn checked(bytes: &[u8]) -> Checked<'_> {
    // A document of its own begins with its first field, which no single byte tells from this.
    if !looks_checked(bytes) {
        return Checked::WithoutChecksum;
    }
    let head = BEFORE_CHECKSUM.len() + CHECKSUM_DIGITS + BEFORE_DOCUMENT.len();
    let end = bytes.len().saturating_sub(BEHIND_DOCUMENT.len());
    match bytes.get(head..end) {
        Some(document) if with_checksum(document) == bytes => Checked::Document(document),
        _ => Checked::Damaged,
    }
}

/// Whether the bytes begin as those of a file with a checksum do, but for one at most.
fn looks_checked(bytes: &[u8]) -> bool {
    let same = bytes.iter().zip(BEFORE_CHECKSUM).filter(|(a, b)| a == b);
    same.count() + 1 >= BEFORE_CHECKSUM.len()
}

fn with_checksum(document: &[u8]) -> Vec<u8> {
    let checksum = format!("{:08x}", crc32fast::hash(document));
    [
        BEFORE_CHECKSUM,
        checksum.as_bytes(),
        BEFORE_DOCUMENT,
        document,
        BEHIND_DOCUMENT,
    ]
    .concat()
}

/// For a file that only the owner may read or write.
fn private_file() -> OpenOptions {
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
    use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

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

    /// Any other byte in any place, and any shorter or longer file.
    #[test]
    fn no_damage_is_taken_for_another_document() {
        let folder = tempfile::tempdir().unwrap();
        let meta = MetaFile::open(folder.path()).unwrap();
        let document: BTreeMap<String, u32> = [("a".to_owned(), 1), ("b".to_owned(), 20)].into();
        meta.store(&document).unwrap();
        let path = folder.path().join(DOCUMENT);
        let whole = fs::read(&path).unwrap();
        let load = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::remove_file(folder.path().join(COPY)).ok();
            meta.load::<BTreeMap<String, u32>>()
        };
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                if byte != whole[at] {
                    let found = load(&damaged);
                    assert!(
                        matches!(found, Err(MetaError::Damaged { .. })),
                        "{at} {byte}"
                    );
                }
            }
            assert!(load(&whole[..at]).is_err(), "{at}");
        }
        assert!(load(&[&whole[..], b" "].concat()).is_err());
        assert_eq!(load(&whole).unwrap(), Some(document));
    }

    #[test]
    fn a_document_without_a_checksum_is_read_and_gets_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DOCUMENT);
        fs::write(&path, b"{\n  \"roles\": 7\n}").unwrap();
        let meta = MetaFile::open(folder.path()).unwrap();
        let expected: BTreeMap<String, u32> = [("roles".to_owned(), 7)].into();
        assert_eq!(meta.load().unwrap(), Some(expected.clone()));
        let mut bytes = fs::read(&path).unwrap();
        assert_eq!(meta.load().unwrap(), Some(expected));
        let at = bytes.iter().position(|byte| *byte == b'7').unwrap();
        bytes[at] = b'8';
        fs::write(&path, &bytes).unwrap();
        fs::write(folder.path().join(COPY), &bytes).unwrap();
        let found = meta.load::<BTreeMap<String, u32>>();
        assert!(matches!(found, Err(MetaError::Damaged { .. })), "{found:?}");
    }

    #[test]
    fn the_copy_stands_in_for_a_damaged_or_missing_document() {
        let folder = tempfile::tempdir().unwrap();
        let meta = MetaFile::open(folder.path()).unwrap();
        let (path, copy) = (folder.path().join(DOCUMENT), folder.path().join(COPY));
        for (number, damaged) in [Some(&b"{\"crc32\":\""[..]), Some(b""), None]
            .into_iter()
            .enumerate()
        {
            meta.store(&vec![number]).unwrap();
            for path in [&path, &copy] {
                match damaged {
                    Some(bytes) => fs::write(path, bytes).unwrap(),
                    None => fs::remove_file(path).unwrap(),
                }
                assert_eq!(meta.load::<Vec<usize>>().unwrap(), Some(vec![number]));
                assert_eq!(fs::read(path).unwrap(), fs::read(&copy).unwrap());
            }
        }
    }
}
