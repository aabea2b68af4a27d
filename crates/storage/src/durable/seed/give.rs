//! A seed at its leader: a checkpoint that is pinned, and the log that is held behind it.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{CHECKPOINT, LOG, SeedError};
use crate::{
    TenantStore,
    files::{
        disk::{Disk, Opened},
        log::{
            file_name,
            record::{FILE_HEAD_BYTES, FileHead},
            stream::LogHold,
        },
        manifest::Manifest,
        pins::Pin,
    },
};

/// A part of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// The bytes, from where they were asked for. None if there are no more yet.
    pub bytes: Vec<u8>,
    /// How many the file has, as far as it is written.
    pub file_bytes: u64,
    /// Whether no more come to it: then there is another file behind it.
    pub is_complete: bool,
    /// How far the log was written when it was read: a file, and bytes of it. There a record ends.
    pub end: (u64, u64),
}

/// A checkpoint for a copy that is made of it. As long as this is there its images stay, and the log from where
/// it was read, as far as logs are kept for copies at all.
pub struct Seed {
    store: Weak<TenantStore>,
    pin: Arc<Pin>,
    hold: Mutex<LogHold>,
    folder: PathBuf,
    manifest: Vec<u8>,
    log_from: u64,
}

impl TenantStore {
    /// Begins a seed: a checkpoint, as all are, whose files then stay. Nobody waits for it longer than for
    /// another checkpoint.
    ///
    /// # Errors
    /// [`SeedError::NotDurable`], those of [`Self::checkpoint`], [`SeedError::Io`].
    pub fn seed(self: &Arc<Self>) -> Result<Seed, SeedError> {
        let durable = self.durable.as_ref().ok_or(SeedError::NotDurable)?;
        // Before the checkpoint: what that one needs of the log is kept until it is known where it begins.
        let mut hold = self.hold_log();
        self.checkpoint()?;
        let folder = durable.folder.join(CHECKPOINT);
        let path = folder.join(Manifest::NAME);
        // Held so that no file goes before it is pinned.
        let last = durable.checkpoint.lock();
        let bytes = durable.machine.disk.read(&path);
        let bytes = bytes.map_err(SeedError::io(&path))?;
        let manifest = Manifest::parse(&bytes).map_err(|what| SeedError::Damaged {
            name: Manifest::NAME.to_owned(),
            what: what.0,
        })?;
        let names: HashSet<String> = manifest.files().map(|file| file.name.to_owned()).collect();
        let pin = durable.pins.add(names);
        hold.keep_from(manifest.log_from);
        drop(last);
        Ok(Seed {
            store: Arc::downgrade(self),
            pin,
            hold: Mutex::new(hold),
            folder: durable.folder.clone(),
            manifest: bytes,
            log_from: manifest.log_from,
        })
    }
}

impl Seed {
    /// The manifest's file, as the copy is to have it.
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// A part of an image: fewer bytes than were asked for where it ends.
    ///
    /// # Errors
    /// [`SeedError::Unknown`], [`SeedError::Gone`], [`SeedError::Io`].
    pub fn read_image(
        &self,
        name: &str,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, SeedError> {
        // Names that others send lead nowhere else.
        if !self.pin.has(name) {
            return Err(SeedError::Unknown);
        }
        let store = self.store.upgrade().ok_or(SeedError::Gone)?;
        let path = self.folder.join(CHECKPOINT).join(name);
        let (bytes, _) = read(
            &*store.durable_side().machine.disk,
            &path,
            (offset, bytes_max),
            None,
        )?;
        Ok(bytes)
    }

    /// A part of the log, as far as it is written. Whoever asks for the beginning of a file has those before it.
    ///
    /// # Errors
    /// [`SeedError::Unknown`], [`SeedError::Gone`], [`SeedError::Io`].
    pub fn read_log(&self, file: u64, offset: u64, bytes_max: usize) -> Result<LogPart, SeedError> {
        let store = self.store.upgrade().ok_or(SeedError::Gone)?;
        let durable = store.durable_side();
        let shown = durable.log.written_end();
        if file < self.log_from || file > shown.file {
            return Err(SeedError::Unknown);
        }
        let is_complete = file < shown.file;
        // Behind what is shown there is room for more.
        let length = (!is_complete).then_some(shown.bytes as u64);
        let path = self.folder.join(LOG).join(file_name(file));
        let disk = &*durable.machine.disk;
        let (bytes, file_bytes) = read(disk, &path, (offset, bytes_max), length)?;
        if offset == 0
            && file > self.log_from
            && let Some(head) = bytes.get(..FILE_HEAD_BYTES).and_then(FileHead::parse)
        {
            let released = self.hold.lock().release_through(head.after);
            released.map_err(|error| SeedError::io(&path)(io::Error::other(error)))?;
        }
        Ok(LogPart {
            bytes,
            file_bytes,
            is_complete,
            end: (shown.file, shown.bytes as u64),
        })
    }
}

/// A part of a file, and how long that is; `length` if it is known to count less far than it goes.
fn read(
    disk: &dyn Disk,
    path: &Path,
    (offset, bytes_max): (u64, usize),
    length: Option<u64>,
) -> Result<(Vec<u8>, u64), SeedError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => SeedError::Gone,
        _ => SeedError::io(path)(error),
    };
    let file = disk.open(path, Opened::Read).map_err(failed)?;
    let length = match length {
        Some(length) => length,
        None => file.bytes().map_err(failed)?,
    };
    let count = length.saturating_sub(offset).min(bytes_max as u64);
    let mut bytes = vec![0; usize::try_from(count).unwrap_or(bytes_max)];
    let mut at = 0;
    while at < bytes.len() {
        let read = file.read_at(&mut bytes[at..], offset + at as u64);
        match read.map_err(failed)? {
            // It is shorter than it was: the checksum will say so.
            0 => break,
            count => at += count,
        }
    }
    bytes.truncate(at);
    Ok((bytes, length))
}
