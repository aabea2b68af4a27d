//! The log as a stream: what is written, read from the files for copies of the tenant.
//!
//! ```text
//!  committers ─► Log ─► files ── page cache ──► LogReader ─► whole records, as they were written
//!                 └── wakes readers
//! ```
//!
//! * **The stream is the files.** A slow copy costs its leader no memory. What is read was written, whether
//!   or not it is on disk, and is never taken back while the tenant is open: what fails was not shown.
//! * **Retention.** Files that a reader has not come to stay, and those that a copy may ask for again
//!   ([`LogHold`]), [`KEPT_FILES_MAX`] at most: a reader that is further behind finds its file gone, and its
//!   copy has to be made anew.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use aerostat_types::CommitTs;
use parking_lot::Mutex;
use thiserror::Error;

use super::{
    super::disk::{DiskFile, Opened},
    Log,
    marks::behind_record,
    point::StreamPoint,
    read::{self, file_name},
    record::{self, FILE_HEAD_BYTES, FileHead, HEAD_BYTES},
    writer::{read_exactly, read_of},
};

/// Complete files that are kept for readers, though no checkpoint needs them: a GiB.
const KEPT_FILES_MAX: u64 = 16;

/// How far the files can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenEnd {
    /// The file at the end.
    pub(crate) file: u64,
    /// How many bytes of it.
    pub(crate) bytes: usize,
    /// The newest place of which they speak.
    pub(crate) said: CommitTs,
    /// Those of them that the disk has speak of the places through this.
    pub(crate) durable: CommitTs,
    /// How often the file at the end was put in the place of another.
    pub(crate) mends: u64,
}

/// Why a log cannot be read on.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The log does not have what comes behind the place, or not as the reader knows it.
    #[error("the log has nothing behind {after} any more")]
    Gone {
        /// The place.
        after: CommitTs,
    },
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file has something else where a record is to be.
    #[error("no record at byte {offset} of {}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: usize,
    },
}

/// Is told that there is more to read.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Who reads a log.
#[derive(Default)]
pub(super) struct Readers {
    all: Mutex<Vec<Weak<Reading>>>,
    /// Whether there are any: else nobody looks.
    has_any: AtomicBool,
}

/// How far a reader is.
struct Reading {
    file: AtomicU64,
    wake: Wake,
}

impl Readers {
    fn add(&self, wake: Wake) -> Arc<Reading> {
        let reading = Arc::new(Reading {
            // Everything is kept until it is known where it begins.
            file: AtomicU64::new(0),
            wake,
        });
        let mut all = self.all.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&reading));
        self.has_any.store(true, Ordering::Release);
        reading
    }

    /// Whether there may be any.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    fn living(&self) -> Vec<Arc<Reading>> {
        if !self.has_any() {
            return Vec::new();
        }
        let mut all = self.all.lock();
        all.retain(|known| known.strong_count() > 0);
        self.has_any.store(!all.is_empty(), Ordering::Release);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn wake(&self) {
        self.living().iter().for_each(|reading| (reading.wake)());
    }

    /// The first file that is kept, where no checkpoint needs those before `needed`.
    pub(super) fn keep_from(&self, needed: u64) -> u64 {
        let living = self.living();
        let read = living.iter().map(|one| one.file.load(Ordering::Relaxed));
        let slowest = read.min().unwrap_or(needed).min(needed);
        slowest.max(needed.saturating_sub(KEPT_FILES_MAX))
    }
}

/// Has somebody told of what is written, and keeps nothing.
pub struct LogWatch(
    #[expect(dead_code, reason = "it is told as long as this is there")] Arc<Reading>,
);

impl LogWatch {
    pub(crate) fn of(log: &Arc<Log>, wake: Wake) -> LogWatch {
        let reading = log.readers.add(wake);
        reading.file.store(u64::MAX, Ordering::Relaxed);
        LogWatch(reading)
    }
}

/// Keeps what a copy may ask for again, whether or not it reads at the time: what is behind the place through
/// which its disk has the log.
pub struct LogHold {
    /// Weak: a log that is closed needs to keep nothing.
    log: Weak<Log>,
    reading: Arc<Reading>,
    /// Where the file after the one that is kept begins, once that is known: nothing goes before then.
    next_after: Option<CommitTs>,
}

impl LogHold {
    /// Keeps all that there is.
    pub(crate) fn of(log: &Arc<Log>) -> LogHold {
        LogHold {
            reading: log.readers.add(Arc::new(|| {})),
            log: Arc::downgrade(log),
            next_after: None,
        }
    }

    /// Keeps the files from this one on, which somebody has seen to be there.
    pub(crate) fn keep_from(&mut self, file: u64) {
        self.reading.file.store(file, Ordering::Relaxed);
    }

    /// The copy's disk has everything through this.
    ///
    /// # Errors
    /// [`StreamError`]: what was kept is kept.
    pub fn release_through(&mut self, durable: CommitTs) -> Result<(), StreamError> {
        let Some(log) = self.log.upgrade() else {
            return Ok(());
        };
        let end = log.written_end().file;
        let held = self.reading.file.load(Ordering::Relaxed);
        // Asked at every sync: the folder is looked at once for each file.
        if held == end || self.next_after.is_some_and(|after| after >= durable) {
            return Ok(());
        }
        let disk = &*log.machine.disk;
        let io = |path: &Path, source| StreamError::Io {
            path: path.to_owned(),
            source,
        };
        let folder = &log.folder;
        let files = read::files(disk, folder).map_err(|error| io(folder, error))?;
        let mut keep = held;
        self.next_after = None;
        for (number, path) in files {
            if number <= held || number > end {
                continue;
            }
            let bytes = read_exactly(disk, &path, 0..FILE_HEAD_BYTES);
            let bytes = bytes.map_err(|error| io(&path, error))?;
            let head = FileHead::parse(&bytes).ok_or(StreamError::Damaged { path, offset: 0 })?;
            // The record with the place is in the file before, or behind it.
            if head.after >= durable {
                self.next_after = Some(head.after);
                break;
            }
            keep = number;
        }
        self.reading.file.store(keep, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads a log from a place on, as it is written.
pub struct LogReader {
    log: Arc<Log>,
    reading: Arc<Reading>,
    after: CommitTs,
    /// Records without a place behind it that were read.
    since: u64,
    offset: usize,
    open: Option<Open>,
}

/// The file at the log's end, as it was read last: as long as it is that one.
struct Open {
    of: (u64, u64),
    file: Box<dyn DiskFile>,
}

impl LogReader {
    /// Reads what is behind a place of the log, chunks of transactions that had not committed by then
    /// included, as far as they are behind its record. `wake` is told of more, by whoever writes: it is quick,
    /// and takes no lock of the log's.
    ///
    /// # Errors
    /// [`StreamError`].
    pub(crate) fn behind(
        log: &Arc<Log>,
        after: CommitTs,
        wake: Wake,
    ) -> Result<LogReader, StreamError> {
        let mut reader = LogReader {
            reading: log.readers.add(wake),
            log: Arc::clone(log),
            after,
            since: 0,
            offset: FILE_HEAD_BYTES,
            open: None,
        };
        let (file, offset) = reader.find()?;
        reader.reading.file.store(file, Ordering::Relaxed);
        reader.offset = offset;
        Ok(reader)
    }

    /// Reads what is written behind what is there now, whose last place this is.
    pub(crate) fn at_end(log: &Arc<Log>, after: CommitTs, wake: Wake) -> LogReader {
        let reading = log.readers.add(wake);
        let end = log.written_end();
        reading.file.store(end.file, Ordering::Relaxed);
        LogReader {
            reading,
            log: Arc::clone(log),
            after,
            since: 0,
            offset: end.bytes,
            open: None,
        }
    }

    /// The file with the record of the place, and where the next one is.
    fn find(&self) -> Result<(u64, usize), StreamError> {
        let disk = &*self.log.machine.disk;
        let gone = || StreamError::Gone { after: self.after };
        let files = read::files(disk, &self.log.folder)
            .map_err(|source| self.io(self.log.folder.clone(), source))?;
        let end = self.log.written_end();
        for (number, path) in files.into_iter().rev() {
            if number > end.file {
                continue;
            }
            let io = |source| self.io(path.clone(), source);
            let file = disk.open(&path, Opened::Read).map_err(io)?;
            let head = read_of(&*file, 0..FILE_HEAD_BYTES).map_err(io)?;
            let head = FileHead::parse(&head).ok_or_else(|| StreamError::Damaged {
                path: path.clone(),
                offset: 0,
            })?;
            if head.after == self.after && !head.begins_inside {
                return Ok((number, FILE_HEAD_BYTES));
            }
            if head.after >= self.after {
                continue;
            }
            let length = match number == end.file {
                true => end.bytes,
                false => disk.look(&path).map_err(io)?.bytes as usize,
            };
            let from = self.log.state.lock().marks.before(number, self.after);
            let found = behind_record(&*file, from..length, self.after).map_err(io)?;
            return found.map(|at| (number, at)).ok_or_else(gone);
        }
        Err(gone())
    }

    fn io(&self, path: PathBuf, source: io::Error) -> StreamError {
        match source.kind() {
            io::ErrorKind::NotFound => StreamError::Gone { after: self.after },
            _ => StreamError::Io { path, source },
        }
    }

    /// The last place that was read.
    pub fn read_through(&self) -> CommitTs {
        self.after
    }

    /// Up to where the log was read.
    pub fn point(&self) -> StreamPoint {
        StreamPoint {
            after: self.after,
            since: self.since,
        }
    }

    /// The file that is read, and the next byte of it.
    pub(crate) fn position(&self) -> (u64, usize) {
        (self.reading.file.load(Ordering::Relaxed), self.offset)
    }

    /// Lets go of the file that is open for it, if one is.
    pub fn rest(&mut self) {
        self.open = None;
    }

    /// The next records: about so many bytes, or one that is larger. `None` if there are none yet.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, StreamError> {
        self.next_through(bytes_max, CommitTs(u64::MAX))
    }

    /// As [`Self::next`], but no record with a place behind this one: then `None`.
    ///
    /// # Errors
    /// [`StreamError`].
    pub fn next_through(
        &mut self,
        bytes_max: usize,
        through: CommitTs,
    ) -> Result<Option<Vec<u8>>, StreamError> {
        loop {
            let file = self.reading.file.load(Ordering::Relaxed);
            let path = self.log.folder.join(file_name(file));
            let shown = self.log.written_end();
            let disk = &*self.log.machine.disk;
            let length = match file == shown.file {
                true => shown.bytes,
                false => {
                    let found = disk
                        .look(&path)
                        .map_err(|error| self.io(path.clone(), error))?;
                    found.bytes as usize
                }
            };
            assert!(
                file <= shown.file && self.offset <= length,
                "byte {} of log file {file} was read, of {length}; the log ends with file {}",
                self.offset,
                shown.file
            );
            if self.offset == length {
                if file == shown.file {
                    return Ok(None);
                }
                self.open = None;
                self.reading.file.store(file + 1, Ordering::Relaxed);
                self.offset = FILE_HEAD_BYTES;
                continue;
            }
            // Others may have been removed.
            let of = (file == shown.file).then_some((file, shown.mends));
            let open = self.open.take().filter(|open| Some(open.of) == of);
            let opened = match open {
                Some(open) => Ok(open.file),
                None => disk.open(&path, Opened::Read),
            };
            let io = |error| self.io(path.clone(), error);
            let opened = opened.map_err(io)?;
            let read = |to: usize| {
                let range = self.offset..to.min(length);
                read_of(&*opened, range).map_err(io)
            };
            let mut bytes = read(self.offset + bytes_max.max(HEAD_BYTES))?;
            if let Some(needed) = record::length(&bytes).filter(|needed| *needed > bytes.len()) {
                bytes = read(self.offset + needed)?;
            }
            self.open = of.map(|of| Open { of, file: opened });
            let (mut at, mut point) = (0, self.point());
            let mut is_beyond = false;
            while let Some((record, length)) = record::take_apart(&bytes[at..]) {
                is_beyond = record.head.kind.has_place() && record.head.lsn > through;
                if is_beyond {
                    break;
                }
                point.pass(&record);
                at += length;
            }
            if at == 0 && is_beyond {
                return Ok(None);
            }
            if at == 0 {
                return Err(StreamError::Damaged {
                    path,
                    offset: self.offset,
                });
            }
            (self.after, self.since) = (point.after, point.since);
            self.offset += at;
            bytes.truncate(at);
            return Ok(Some(bytes));
        }
    }
}

impl Log {
    /// The record at a byte of a file, which is there.
    ///
    /// # Errors
    /// [`StreamError`].
    pub(crate) fn record_at(&self, file: u64, offset: usize) -> Result<Vec<u8>, StreamError> {
        let path = self.folder.join(file_name(file));
        let disk = &*self.machine.disk;
        let io = |source| StreamError::Io {
            path: path.clone(),
            source,
        };
        let read = |bytes| read_exactly(disk, &path, offset..offset + bytes).map_err(io);
        let length = record::length(&read(HEAD_BYTES)?).unwrap_or(HEAD_BYTES);
        read(length)
    }

    /// How far the files can be read.
    pub(crate) fn written_end(&self) -> WrittenEnd {
        self.state.lock().end
    }
}
