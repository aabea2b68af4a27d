//! Backups and log archives in object stores: S3, Google Cloud Storage, Azure, WebDAV.
//!
//! ```text
//!  's3://bucket/shop/monday'
//!    url       scheme, store, prefix; never a secret
//!    client    a client of that store, made with what the environment says
//!    prefix    the store from the prefix on; callers wait for what `requests` runs
//!    sink      files go up, large ones in parts side by side
//!    source    files come down while they are read
//! ```
//!
//! * **Names.** A place without `://` is a folder, and so is `file:///…`: [`Folders`] handles
//!   those.
//! * **Waiting.** Storage writes and reads files and waits. Requests run on one thread that is
//!   started with the first of them; any other thread may wait for them.
//! * **Whole or not at all.** An object exists as a whole or not at all. A backup exists once its
//!   description does, which comes last. A backup that is being made, or was not finished, has a
//!   claim (`sink`), so that no other goes to the same place.
//! * **Secrets** come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) and go to the store's
//!   client only. A URL with a secret in it is refused before it is shown anywhere.
//! * **Limits.** Each request is retried for a while and then fails (`client`). Uploads and
//!   downloads in progress have named limits (`sink`, `source`).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod client;
mod error;
mod prefix;
mod requests;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod url;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use aerostat_storage::backup::{BackupError, BackupSink, BackupSource, Folders, Places};
use object_store::ObjectStore;

use crate::{
    error::not_a_place, prefix::Prefix, requests::Requests, sink::ObjectSink, source::ObjectSource,
    url::ObjectUrl,
};

/// Folders, and prefixes in object stores by their URLs.
#[derive(Default)]
pub struct ObjectPlaces {
    folders: Folders,
    requests: OnceLock<Arc<Requests>>,
    /// What `memory:///…` means.
    memory: Option<Arc<dyn ObjectStore>>,
}

/// What a text names.
enum Location<'a> {
    Folder(&'a str),
    /// A `file:///…`.
    FileUrl(String),
    Prefix(ObjectUrl),
}

impl ObjectPlaces {
    /// Every store that there is a client for. No thread runs and nothing is asked before a
    /// place is used.
    pub fn new() -> ObjectPlaces {
        ObjectPlaces::default()
    }

    /// The same, and `memory:///…` is this store: for tests, since the other stores in memory
    /// end with the process.
    pub fn with_memory(store: Arc<dyn ObjectStore>) -> ObjectPlaces {
        ObjectPlaces {
            memory: Some(store),
            ..ObjectPlaces::default()
        }
    }

    fn place<'a>(&self, text: &'a str) -> Result<Location<'a>, BackupError> {
        if !url::is_url(text) {
            return Ok(Location::Folder(text));
        }
        let url = ObjectUrl::parse(text)?;
        if let Some(path) = url.file_path()? {
            return Ok(Location::FileUrl(path));
        }
        if url.is_memory() && self.memory.is_none() {
            return Err(not_a_place(&url, "would end with the process"));
        }
        Ok(Location::Prefix(url))
    }

    fn prefix(&self, url: ObjectUrl) -> Result<Prefix, BackupError> {
        let memory = self.memory.as_ref().filter(|_| url.is_memory());
        let store = match memory {
            Some(store) => Arc::clone(store),
            None => client::open(&url)?,
        };
        Ok(Prefix::new(url, store, self.requests()?))
    }

    fn requests(&self) -> Result<Arc<Requests>, BackupError> {
        if let Some(requests) = self.requests.get() {
            return Ok(Arc::clone(requests));
        }
        let started = Requests::start().map_err(|source| BackupError::Io {
            name: "the thread for object stores".to_owned(),
            source,
        })?;
        // Somebody else may have been first; one of the two threads ends at once then.
        Ok(Arc::clone(self.requests.get_or_init(|| Arc::new(started))))
    }

    fn sink_for_backup(
        &self,
        url: ObjectUrl,
        base: Option<&str>,
    ) -> Result<ObjectSink, BackupError> {
        let base = base
            .map(|base| match self.place(base)? {
                Location::Prefix(base) if base.is_in_store_of(&url) => Ok(base),
                Location::Prefix(base) => Err(not_a_place(&base, "is in another store")),
                Location::Folder(_) | Location::FileUrl(_) => Err(BackupError::NotAPlace {
                    place: base.to_owned(),
                    why: "is not in the object store that the backup goes to".to_owned(),
                }),
            })
            .transpose()?;
        ObjectSink::for_backup(self.prefix(url)?, base)
    }
}

impl Places for ObjectPlaces {
    fn check(&self, place: &str) -> Result<(), BackupError> {
        match self.place(place)? {
            Location::Folder(path) => self.folders.check(path),
            Location::FileUrl(path) => self.folders.check(&path),
            Location::Prefix(_) => Ok(()),
        }
    }

    fn for_backup(
        &self,
        place: &str,
        base: Option<&str>,
    ) -> Result<Box<dyn BackupSink>, BackupError> {
        let folder = match self.place(place)? {
            Location::Prefix(url) => return Ok(Box::new(self.sink_for_backup(url, base)?)),
            Location::Folder(path) => path.to_owned(),
            Location::FileUrl(path) => path,
        };
        let base = base
            .map(|base| match self.place(base)? {
                Location::Folder(path) => Ok(path.to_owned()),
                Location::FileUrl(path) => Ok(path),
                Location::Prefix(url) => Err(not_a_place(&url, "is no folder, as the backup is")),
            })
            .transpose()?;
        self.folders.for_backup(&folder, base.as_deref())
    }

    fn for_archive(&self, place: &str) -> Result<Arc<dyn BackupSink>, BackupError> {
        match self.place(place)? {
            Location::Folder(path) => self.folders.for_archive(path),
            Location::FileUrl(path) => self.folders.for_archive(&path),
            Location::Prefix(url) => Ok(Arc::new(ObjectSink::for_archive(self.prefix(url)?))),
        }
    }

    fn source(&self, place: &str) -> Result<Box<dyn BackupSource>, BackupError> {
        match self.place(place)? {
            Location::Folder(path) => self.folders.source(path),
            Location::FileUrl(path) => self.folders.source(&path),
            Location::Prefix(url) => Ok(Box::new(ObjectSource::new(self.prefix(url)?))),
        }
    }
}

/// Whether a text of the command line names the same place wherever the process was started:
/// a URL does, and so does an absolute path.
pub fn is_absolute(place: &str) -> bool {
    url::is_url(place) || Path::new(place).is_absolute()
}
