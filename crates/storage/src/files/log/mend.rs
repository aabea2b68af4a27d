//! Bringing a log back after the disk refused it, while the tenant is open.
//!
//! ```text
//!  the failed file   │ head, records … published │ records in doubt, zeros, anything │
//!                          read, checked              not looked at
//!                              │
//!  a new file        │ head, records … published │ an empty commit for each place in doubt │
//!                    written, synced, renamed over the failed one: the log goes on behind it
//! ```
//!
//! * **The truth about what is in doubt** is that it did not happen: memory has undone it, and
//!   nobody has seen it. Until the new file has its name for good no commit is taken, so that
//!   a crash before finds the old file, which may have them, and no commit that contradicts it.
//! * **Nothing is assumed of the failed file.** What it must have is read and its checksums
//!   are verified; it is written anew to a file whose sync the disk has not refused. If a
//!   record is missing the log stays failed.
//! * **Places stay without gaps**: commits of nothing stand where those in doubt had been, so
//!   that recovery, archives and restores need not know of any of this.
//! * **Chunks** of unfinished transactions may have been in what was lost. None that had chunks
//!   when the log failed can commit.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aerostat_txn::LogFailure;
use aerostat_types::{CommitTs, TxnId};

use super::{
    Led, Log, Lost, Queue,
    read::file_name,
    record::{self, FILE_HEAD_BYTES, FileHead, Head, Kind},
    sleep,
    writer::Writer,
};
use crate::files::private::DiskSpace;

/// How often a log is mended before the tenant must be opened again: each time is remembered
/// as long as the tenant is open.
const MENDS_MAX: usize = 1_000;

/// A log that has so many bytes free beyond its own file can go on: as many as a checkpoint
/// and the next files want at least.
const BYTES_FREE_MIN: u64 = 1 << 20;

/// The places that a failure left in doubt.
#[derive(Clone, Copy)]
struct Doubt {
    number: u64,
    after: CommitTs,
    through: CommitTs,
    wall_micros: u64,
}

impl Log {
    /// Makes the file at the end sound and takes changes again. `give_up` is told of the places
    /// in doubt once they are known to be nobody's, before any other commit is taken.
    ///
    /// # Errors
    /// While the disk refuses, or when acknowledged records cannot be read back.
    pub(crate) fn mend(&self, give_up: &dyn Fn(CommitTs, CommitTs)) -> Result<(), LogFailure> {
        let mut queue = self.queue.lock();
        let Some(failure) = queue.failure.clone() else {
            return Ok(());
        };
        // Somebody is about it.
        if queue.led != Led::No || queue.lost.len() >= MENDS_MAX {
            return Err(failure);
        }
        queue.led = Led::Long;
        let doubt = Doubt {
            number: queue.file_number,
            after: queue.durable,
            through: queue.enqueued,
            wall_micros: queue.now_micros(),
        };
        drop(queue);
        let written = self.write_anew(doubt);
        if written.is_ok() {
            give_up(doubt.after, doubt.through);
        }
        let mut queue = self.queue.lock();
        queue.led = Led::No;
        if written.is_ok() {
            queue.go_on(doubt, failure);
        }
        sleep::wake(&mut queue);
        written.map_err(|error| LogFailure {
            doing: "mend it".to_owned(),
            source: error.into(),
        })
    }

    fn write_anew(&self, doubt: Doubt) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let path = self.folder.join(file_name(doubt.number));
        let free = DiskSpace::of(&self.folder)?.bytes_free;
        if free < writer.published as u64 + BYTES_FREE_MIN {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = read_start(&path, writer.published)?;
        self.check(&bytes, doubt)?;
        put_empty(doubt, &mut bytes);
        // The beginning of the next file, if that is what failed: behind it this one would
        // have to be complete.
        remove(&self.folder.join(file_name(doubt.number + 1)))?;
        self.folder_file.sync_all()?;
        let file = self.replace(&path, &bytes)?;
        let published = writer.published;
        *writer = Writer::of(file, bytes.len());
        tracing::debug!(
            published,
            bytes = bytes.len(),
            "the log's file was written anew"
        );
        Ok(())
    }

    /// Whether these are the bytes of the file whose commits were acknowledged, and all of them.
    fn check(&self, bytes: &[u8], doubt: Doubt) -> io::Result<()> {
        let missing = || {
            let what = "the file does not have what was acknowledged";
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        let head = FileHead::parse(bytes)
            .filter(|head| head.origin == self.origin && head.number == doubt.number)
            .ok_or_else(missing)?;
        let (mut at, mut last) = (FILE_HEAD_BYTES, head.after);
        while at < bytes.len() {
            let (record, length) = record::parse(&bytes[at..]).ok_or_else(missing)?;
            last = last.max(record.head.lsn);
            at += length;
        }
        if last == doubt.after {
            Ok(())
        } else {
            Err(missing())
        }
    }

    /// Puts a file of these bytes in the place of another, for good.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        let beside = beside(path);
        let made = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            Ok(file)
        };
        let file = made().inspect_err(|_| {
            // It is in the way of what the disk has no room for.
            let _ = remove(&beside);
        })?;
        self.folder_file.sync_all()?;
        Ok(file)
    }
}

impl Queue {
    /// Notes that nothing is taken any more, and what that costs.
    pub(super) fn fail(&mut self, failure: LogFailure) {
        self.entries = Vec::new();
        let unfinished = self.chunked.drain();
        self.doomed
            .extend(unfinished.map(|(txn, _)| (txn, failure.clone())));
        self.failure = Some(failure);
    }

    /// Takes changes again.
    fn go_on(&mut self, doubt: Doubt, failure: LogFailure) {
        if doubt.after < doubt.through {
            self.lost.push(Lost {
                after: doubt.after,
                through: doubt.through,
                failure,
            });
        }
        self.durable = doubt.through;
        (self.bytes, self.owes_sync) = (0, false);
        self.failure = None;
    }

    /// Why nothing of this transaction, or of a block with these parts, is taken.
    pub(super) fn refusal(&self, txn: TxnId, parts: &[TxnId]) -> Result<(), LogFailure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.doomed.is_empty() {
            return Ok(());
        }
        let mut concerned = parts.iter().chain([&txn]);
        match concerned.find_map(|id| self.doomed.get(id)) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// What became of a commit at or before the newest that is durable.
    pub(super) fn fate(&self, ts: CommitTs) -> Result<CommitTs, LogFailure> {
        let at = self.lost.partition_point(|lost| lost.through < ts);
        match self.lost.get(at) {
            Some(lost) if lost.after < ts => Err(lost.failure.clone()),
            _ => Ok(self.durable),
        }
    }
}

/// Appends a commit of nothing for each place in doubt.
fn put_empty(doubt: Doubt, bytes: &mut Vec<u8>) {
    for place in doubt.after.0 + 1..=doubt.through.0 {
        let head = Head {
            kind: Kind::Commit,
            lsn: CommitTs(place),
            txn: TxnId(0),
            wall_micros: doubt.wall_micros,
        };
        record::put(&head, 0, &[], bytes);
    }
}

/// So many bytes from a file's beginning.
fn read_start(path: &Path, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    File::open(path)?
        .take(count as u64)
        .read_to_end(&mut bytes)?;
    if bytes.len() < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// A name that no file of the log has.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
