//! Where the node's catalogue is stored: one document, replaced as a whole.
//!
//! ```text
//!  load ──► version 7, document
//!  compare_and_swap(7, document) ──► version 8, or what another writer has put there meanwhile
//!  wait_newer(7) ──► version 8 as soon as it is there
//! ```
//!
//! | store | for |
//! |---|---|
//! | [`MetaFile`] | one node: a file in its [`DataFolder`] |
//! | [`MetaShared`] | several processes that share a folder |
//! | [`MetaMemory`] | tests, and nodes that store nothing |
//!
//! Every implementation of [`MetaStore`] passes the suite in `tests/meta.rs`.

mod file;
mod folder;
mod memory;
mod shared;

use std::{fmt, io, path::PathBuf, time::Duration};

use aerostat_types::{Clock, SystemClock};
use parking_lot::{Condvar, MutexGuard};
use thiserror::Error;

pub use file::MetaFile;
pub use folder::DataFolder;
pub use memory::MetaMemory;
pub use shared::MetaShared;

/// The version of a document. Each that is put there has a greater one than all before it, over restarts, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A document as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// Its version.
    pub version: Version,
    /// Its bytes.
    pub document: Vec<u8>,
}

/// What became of a document that was to replace another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It is there, has this version, and survives a crash if the store survives one.
    Done(Version),
    /// It is not there: another writer has replaced the document meanwhile, by this one, or there is none.
    Lost(Option<Versioned>),
}

/// A document that several writers replace by comparing its version, and that readers wait for.
pub trait MetaStore: Send + Sync + fmt::Debug {
    /// What the store is called in messages: a file's path.
    fn place(&self) -> PathBuf;

    /// The document as it is now; nothing if there has been none.
    ///
    /// # Errors
    /// The store cannot be read, or what is in it is damaged.
    fn load(&self) -> Result<Option<Versioned>, MetaError>;

    /// Puts a document there if the one that is there has the expected version, or if there is none
    /// and none is expected.
    ///
    /// # Errors
    /// The store cannot be written. The document of before is still there then, as far as the store
    /// could see to it; only loading tells.
    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError>;

    /// The newest document as soon as it is newer than `known`, or nothing when so much time has passed.
    /// Versions in between may be left out.
    ///
    /// # Errors
    /// As [`MetaStore::load`].
    fn wait_newer(
        &self,
        known: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError>;
}

/// The document that is kept, once it is newer than `known`; nothing when so much time has passed.
fn newer(
    kept: &mut MutexGuard<'_, Option<Versioned>>,
    replaced: &Condvar,
    known: Option<Version>,
    timeout: Duration,
) -> Option<Versioned> {
    // Of a time that no clock reaches there is no end.
    let until = SystemClock.now().checked_add(timeout);
    loop {
        if let Some(found) = &**kept
            && Some(found.version) > known
        {
            return Some(found.clone());
        }
        match until {
            Some(until) if replaced.wait_until(kept, until).timed_out() => return None,
            Some(_) => {}
            None => replaced.wait(kept),
        }
    }
}

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
