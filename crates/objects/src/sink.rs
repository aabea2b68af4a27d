//! Files on their way to a store.
//!
//! ```text
//!  for_backup   nothing is there yet? ─► claim: backup.json.partial, made only if it is missing
//!  put          up to 8 MiB: one request    more: parts of 8 MiB, four at once, then completed
//!  has          copied by the store itself from the earlier backup
//!  finish       the claim goes              dropped before: what was put goes, the last first
//! ```
//!
//! The description of a backup is the last file that is put. So when a backup is abandoned it is
//! the first that is removed, and a crash leaves a claim and no description: that is no backup,
//! and the place is not empty.

use std::{
    collections::VecDeque,
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_storage::backup::{BackupError, BackupFile, BackupInfo, BackupSink};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{
    Error, MultipartUpload, ObjectStoreExt, PutMode, PutPayload, Result, path::Path,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    error::is_unsupported, prefix::Prefix, requests::finished, source::ObjectSource, url::ObjectUrl,
};

/// Files up to this go up in one request, larger ones in parts of this size. S3 wants 5 MiB
/// at least, and signing one takes about as long as sending it over 10 Gbit/s.
const PART_BYTES: usize = 8 << 20;

/// Parts of a file that are on their way at once. With the one that is being read a sink has
/// 40 MiB.
const PARTS_AT_ONCE: usize = 4;

/// Says that a backup is being made here, or was not finished.
const CLAIM: &str = "backup.json.partial";

/// A prefix of a store that takes files.
pub(crate) struct ObjectSink {
    at: Prefix,
    /// `None` for an archive.
    backup: Option<Unfinished>,
}

/// A backup on its way.
struct Unfinished {
    base: Option<Base>,
    /// What is there, or may be.
    put: Mutex<Vec<Path>>,
    is_finished: AtomicBool,
}

/// An earlier backup in the same store.
struct Base {
    at: Prefix,
    files: Vec<BackupFile>,
}

impl ObjectSink {
    /// Takes the place for one backup.
    ///
    /// # Errors
    /// [`BackupError::NotEmpty`], [`BackupError::Io`], those of a base that is no backup.
    pub(crate) fn for_backup(
        at: Prefix,
        base: Option<ObjectUrl>,
    ) -> std::result::Result<ObjectSink, BackupError> {
        let base = base.map(|url| Base::read(at.beside(url))).transpose()?;
        claim(&at)?;
        let claimed = at.path_of(CLAIM).map_err(unusable(&at))?;
        Ok(ObjectSink {
            at,
            backup: Some(Unfinished {
                base,
                put: Mutex::new(vec![claimed]),
                is_finished: AtomicBool::new(false),
            }),
        })
    }

    pub(crate) fn for_archive(at: Prefix) -> ObjectSink {
        ObjectSink { at, backup: None }
    }

    /// The path of a file that may be there from now on.
    fn begin(&self, name: &str) -> io::Result<Path> {
        let path = self.at.path_of(name)?;
        if let Some(backup) = &self.backup {
            backup.put.lock().push(path.clone());
        }
        Ok(path)
    }

    fn put_whole(&self, name: &str, path: Path, content: Bytes) -> io::Result<()> {
        let store = Arc::clone(&self.at.store);
        self.at.wait(name, async move {
            let payload = PutPayload::from_bytes(content);
            store.put(&path, payload).await.map(drop)
        })
    }

    /// `None` if the store knows no parts.
    fn begin_parts(&self, name: &str, path: &Path) -> io::Result<Option<Box<dyn MultipartUpload>>> {
        let (store, path) = (Arc::clone(&self.at.store), path.clone());
        match self
            .at
            .requests
            .wait(async move { store.put_multipart(&path).await })
        {
            Ok(upload) => Ok(Some(upload)),
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(self.at.error(name, &error)),
        }
    }

    fn put_parts(
        &self,
        name: &str,
        mut upload: Box<dyn MultipartUpload>,
        content: &mut dyn Read,
        bytes: u64,
    ) -> io::Result<()> {
        match self.send_parts(name, &mut *upload, content, bytes) {
            Ok(()) => self
                .at
                .wait(name, async move { upload.complete().await.map(drop) }),
            Err(error) => {
                // The parts would cost their room until somebody looks for them.
                if let Err(left) = self.at.wait(name, async move { upload.abort().await }) {
                    tracing::warn!(error = %left, "parts of a file stay in an object store");
                }
                Err(error)
            }
        }
    }

    fn send_parts(
        &self,
        name: &str,
        upload: &mut dyn MultipartUpload,
        content: &mut dyn Read,
        bytes: u64,
    ) -> io::Result<()> {
        let mut parts = Parts::default();
        let named = |error: Error| self.at.error(name, &error);
        let mut left = bytes;
        while left > 0 {
            let part = read_bytes(content, left.min(PART_BYTES as u64))?;
            left -= part.len() as u64;
            parts.leave(PARTS_AT_ONCE - 1).map_err(named)?;
            let request = upload.put_part(PutPayload::from_bytes(part));
            parts.0.push_back(self.at.requests.spawn(request));
        }
        parts.leave(0).map_err(named)
    }
}

impl BackupSink for ObjectSink {
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let path = self.begin(name)?;
        if bytes > PART_BYTES as u64
            && let Some(upload) = self.begin_parts(name, &path)?
        {
            return self.put_parts(name, upload, content, bytes);
        }
        self.put_whole(name, path, read_bytes(content, bytes)?)
    }

    fn has(&self, file: &BackupFile) -> io::Result<bool> {
        let base = self
            .backup
            .as_ref()
            .and_then(|backup| backup.base.as_ref())
            .filter(|base| base.files.contains(file));
        let Some(base) = base else {
            return Ok(false);
        };
        let (from, to) = (base.at.path_of(&file.name)?, self.begin(&file.name)?);
        let store = Arc::clone(&self.at.store);
        match self
            .at
            .requests
            .wait(async move { store.copy(&from, &to).await })
        {
            Ok(()) => Ok(true),
            Err(error) if is_unsupported(&error) => Ok(false),
            Err(error) => Err(base.at.error(&file.name, &error)),
        }
    }

    fn finish(&self) -> io::Result<()> {
        let Some(backup) = &self.backup else {
            return Ok(());
        };
        backup.is_finished.store(true, Ordering::Release);
        let path = self.at.path_of(CLAIM)?;
        // The backup is there, and whole, whether the claim is or not.
        if let Err(error) = self.at.wait(CLAIM, remove(&self.at, path)) {
            tracing::warn!(%error, "the claim of a complete backup stays");
        }
        Ok(())
    }
}

impl Drop for ObjectSink {
    /// A backup that came to no end is nothing.
    fn drop(&mut self) {
        let Some(backup) = &mut self.backup else {
            return;
        };
        if *backup.is_finished.get_mut() {
            return;
        }
        let put = std::mem::take(backup.put.get_mut());
        // If one cannot be removed those before it stay, so that no description is left of
        // which a file is missing.
        for path in put.into_iter().rev() {
            if let Err(error) = self.at.wait("", remove(&self.at, path)) {
                tracing::warn!(%error, "files of a backup that was not finished stay");
                return;
            }
        }
    }
}

impl Base {
    fn read(at: Prefix) -> std::result::Result<Base, BackupError> {
        let source = ObjectSource::new(at);
        let files = BackupInfo::read(&source)?.files;
        Ok(Base {
            at: source.into_prefix(),
            files,
        })
    }
}

/// Parts on their way, the oldest first. Dropped, they are given up.
#[derive(Default)]
struct Parts(VecDeque<JoinHandle<Result<()>>>);

impl Parts {
    /// Waits until no more than this many are on their way.
    fn leave(&mut self, count: usize) -> Result<()> {
        while self.0.len() > count {
            if let Some(oldest) = self.0.pop_front() {
                finished(oldest)?;
            }
        }
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Takes the place for one backup, if there is nothing yet.
fn claim(at: &Prefix) -> std::result::Result<(), BackupError> {
    let not_empty = || BackupError::NotEmpty {
        place: at.url().to_string(),
    };
    let (store, prefix) = (Arc::clone(&at.store), at.path().clone());
    let first = at.wait(
        "",
        async move { store.list(Some(&prefix)).try_next().await },
    );
    if first.map_err(unusable(at))?.is_some() {
        return Err(not_empty());
    }
    let path = at.path_of(CLAIM).map_err(unusable(at))?;
    let (store, payload) = (Arc::clone(&at.store), PutPayload::from_static(b"\n"));
    let claimed = at.wait(CLAIM, async move {
        match store
            .put_opts(&path, payload.clone(), PutMode::Create.into())
            .await
        {
            // It cannot be told then who was first.
            Err(error) if is_unsupported(&error) => store.put(&path, payload).await,
            put => put,
        }
    });
    match claimed {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(not_empty()),
        claimed => claimed.map(drop).map_err(unusable(at)),
    }
}

/// Removes an object; one that is not there is removed.
fn remove(at: &Prefix, path: Path) -> impl Future<Output = Result<()>> + Send + use<> {
    let store = Arc::clone(&at.store);
    async move {
        match store.delete(&path).await {
            Err(Error::NotFound { .. }) => Ok(()),
            removed => removed,
        }
    }
}

fn unusable(at: &Prefix) -> impl FnOnce(io::Error) -> BackupError {
    let name = at.url().to_string();
    move |source| BackupError::Io { name, source }
}

/// Exactly so many bytes.
fn read_bytes(content: &mut dyn Read, bytes: u64) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    let count = content.take(bytes).read_to_end(&mut buffer)? as u64;
    if count < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(buffer.into())
}
