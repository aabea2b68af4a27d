//! The commit log of a tenant: a queue in memory, files on disk, group commit.
//!
//! ```text
//!  committers ──enqueue (order lock)──► queue ─┐
//!                                              │ the first who waits leads: takes the
//!  wait_durable: lead, or sleep until led  ◄───┘ queue, writes it, syncs, wakes the rest
//! ```
//!
//! * **No thread of its own.** Committers wait anyway, so one of them writes for all that
//!   are queued by then; who comes meanwhile is the next group. An idle tenant costs a
//!   file descriptor and a few hundred bytes, a single committer no change of threads.
//! * **Order.** Records with an LSN are queued under the commit order's lock, and the queue
//!   goes out in order: the files hold LSNs ascending without gaps, and what is durable is
//!   a prefix.
//! * **Logical contents** ([`redo`]). Rewrites, vacuum, splits and freezing move rows and
//!   change nothing that the log knows of.
//! * **Why redo may be applied in the order of the log.** A row or key that a transaction
//!   has written is locked until the transaction has settled, which is after its commit is
//!   durable, so after its record. Whoever changes the same row or key next makes its redo
//!   after that, and so has it behind that record. Within a transaction, redo of a segment
//!   is added under its latch, and the statements of a block have theirs one after the
//!   other. So for each row the log has its changes in the order in
//!   which they happened, whatever other rows' changes lie between; rows of transactions
//!   and statements that did not commit are left out, and nobody can have built on them.
//! * **Syncs** are made cheap by room that is written ahead ([`writer`]).
//! * **Failure.** After an error from the disk nothing is taken any more until the log is
//!   mended ([`mend`]): what a failed fsync left in the page cache cannot be known (Rebello et
//!   al., ATC 2020).

mod mend;
pub(crate) mod read;
pub(crate) mod record;
pub(crate) mod redo;
mod sleep;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use aerostat_memory::{Budget, OutOfMemory};
use aerostat_txn::{CommitLog, LogFailure};
use aerostat_types::{CommitTs, Durability, TxnId};
use parking_lot::{Mutex, MutexGuard};

pub(crate) use self::read::file_name;
use self::{
    record::{FILE_HEAD_BYTES, FileHead, Head, Kind},
    sleep::{Sleeper, Woken},
    writer::Writer,
};
use crate::files::{
    archive::{BackupError, BackupSink, put_file},
    fault,
    origin::Origin,
};

/// A file is full from here on: small enough that a checkpoint soon frees some, large
/// enough that switching, two syncs, does not show.
pub(crate) const FILE_BYTES_MAX: usize = 64 << 20;

/// Chunks wait for the disk while so much is queued.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// No more is written by a thread that must not wait: bytes that go to the operating
/// system's cache in less time than it takes to wake another thread.
const WRITE_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Who meets somebody that writes briefly looks again after so many pauses of the processor,
/// two microseconds or three, and so often: sleeping, or a change of threads, takes longer.
const PAUSES_PER_SPIN: u32 = 64;
const SPINS_MAX: u32 = 4;

struct Entry {
    head: Head,
    payload: Vec<u8>,
}

/// Whether somebody writes for all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Led {
    No,
    /// What is written is little and goes to the operating system's cache.
    Briefly,
    /// The disk is waited for, or much is written.
    Long,
}

struct Queue {
    entries: Vec<Entry>,
    bytes: usize,
    /// Whether a commit is queued that a power failure must not take. Who has written to
    /// temporary tables alone takes a place in the order, and nothing is lost with it.
    owes_sync: bool,
    /// The newest LSN that was queued.
    enqueued: CommitTs,
    /// The newest LSN that is as durable as it should be.
    durable: CommitTs,
    led: Led,
    sleepers: Vec<Sleeper>,
    failure: Option<LogFailure>,
    /// Places in the order whose commits were in doubt when the log was mended: they did not
    /// happen.
    lost: Vec<Lost>,
    /// Unfinished transactions, or statements of blocks, of which a failure may have taken
    /// chunks: they cannot commit.
    doomed: HashMap<TxnId, LogFailure>,
    /// Where what is queued from now on goes: to this file, or to the next if this one turns
    /// out to be full. It is never behind the file that a [`Cut`] began, whether or not that
    /// is there yet, for checkpoints remove what is before.
    file_number: u64,
    /// Unfinished transactions, or statements of blocks, with chunks, and the first file
    /// that may have one.
    chunked: HashMap<TxnId, u64>,
    wall_micros: u64,
}

/// Places after `after` through `through`, and the failure that took their commits.
struct Lost {
    after: CommitTs,
    through: CommitTs,
    failure: LogFailure,
}

/// Where a log was cut: see [`Log::rotate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Everything through this is in files before `file`.
    pub(crate) through: CommitTs,
    /// The first file that has commits after `through` or chunks of transactions that
    /// had not committed.
    pub(crate) keep_from: u64,
    /// The file that was begun.
    pub(crate) next: u64,
}

/// The log of one tenant.
pub(crate) struct Log {
    origin: Origin,
    /// Pays for redo that is not in the queue yet.
    budget: Arc<Budget>,
    folder: PathBuf,
    /// The folder itself, for syncs after its entries changed.
    folder_file: File,
    queue: Mutex<Queue>,
    /// Locked by the leader only.
    writer: Mutex<Writer>,
    fsync: AtomicBool,
    bytes_written: AtomicU64,
    /// A file is full from here on.
    file_bytes_max: usize,
    /// The files before this one may have been removed.
    kept_from: AtomicU64,
    archive: Mutex<Option<Archive>>,
}

/// Where complete files are copied before they go.
#[derive(Clone)]
struct Archive {
    sink: Arc<dyn BackupSink>,
    /// The newest file that is there.
    through: u64,
}

/// Where a log goes on.
pub(crate) struct LogEnd {
    /// The last file and the bytes of it that count; `None` for no file.
    pub(crate) file: Option<(u64, usize)>,
    pub(crate) last: CommitTs,
    /// The clock when the last record was made.
    pub(crate) wall_micros: u64,
}

impl Log {
    /// Goes on behind what was read; everything behind that is cut off.
    pub(crate) fn open(
        origin: Origin,
        folder: &Path,
        end: &LogEnd,
        durability: Durability,
        budget: Arc<Budget>,
    ) -> io::Result<Log> {
        let folder_file = File::open(folder)?;
        let (number, writer) = match end.file {
            Some((number, bytes)) if bytes >= FILE_HEAD_BYTES => {
                let path = folder.join(file_name(number));
                (number, Writer::open(&path, bytes)?)
            }
            other => {
                let number = other.map_or(1, |(number, _)| number);
                let head = FileHead {
                    origin,
                    number,
                    after: end.last,
                };
                (number, Writer::create(folder, &folder_file, head)?)
            }
        };
        Ok(Log {
            origin,
            budget,
            folder: folder.to_owned(),
            folder_file,
            queue: Mutex::new(Queue {
                entries: Vec::new(),
                bytes: 0,
                owes_sync: false,
                enqueued: end.last,
                durable: end.last,
                led: Led::No,
                sleepers: Vec::new(),
                failure: None,
                lost: Vec::new(),
                doomed: HashMap::new(),
                file_number: number,
                chunked: HashMap::new(),
                wall_micros: end.wall_micros,
            }),
            writer: Mutex::new(writer),
            fsync: AtomicBool::new(durability == Durability::Fsync),
            bytes_written: AtomicU64::new(0),
            file_bytes_max: FILE_BYTES_MAX,
            kept_from: AtomicU64::new(0),
            archive: Mutex::new(None),
        })
    }

    /// Has files end after so many bytes.
    pub(crate) fn with_files_of(mut self, bytes: usize) -> Log {
        self.file_bytes_max = bytes;
        self
    }

    /// Whose log it is.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Microseconds since 1970, not before those of any record that is queued.
    pub(crate) fn now_micros(&self) -> u64 {
        self.queue.lock().now_micros()
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        self.fsync
            .store(durability == Durability::Fsync, Ordering::Release);
    }

    pub(crate) fn durability(&self) -> Durability {
        if self.fsync.load(Ordering::Acquire) {
            Durability::Fsync
        } else {
            Durability::None
        }
    }

    /// Bytes written since it was opened.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// The file at the end, for tests.
    /// What may be queued before whoever appends waits for the thread that writes, if there is one.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        let queue = self.queue.lock();
        match queue.led {
            Led::No => usize::MAX,
            _ => QUEUE_BYTES_MAX.saturating_sub(queue.bytes),
        }
    }

    #[cfg(test)]
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// How many transactions that have not ended cannot commit, for tests.
    #[cfg(test)]
    pub(crate) fn doomed(&self) -> usize {
        self.queue.lock().doomed.len()
    }

    /// Has the disk refuse what is written from now on, for tests.
    #[cfg(test)]
    pub(crate) fn fill_disk(&self) {
        let full = File::options().write(true).open("/dev/full");
        self.writer.lock().file = full.expect("the system has /dev/full");
    }

    pub(crate) fn failure(&self) -> Option<LogFailure> {
        self.queue.lock().failure.clone()
    }

    /// Queues what is no commit. Called under the order lock.
    pub(crate) fn enqueue_entry(
        &self,
        kind: Kind,
        ts: CommitTs,
        payload: Vec<u8>,
    ) -> Result<(), LogFailure> {
        self.enqueue(kind, ts, TxnId(0), &[], payload).map(drop)
    }

    /// Queues a record of a transaction, or of a block with the statements of which there are
    /// chunks.
    fn enqueue(
        &self,
        kind: Kind,
        lsn: CommitTs,
        txn: TxnId,
        parts: &[TxnId],
        payload: Vec<u8>,
    ) -> Result<MutexGuard<'_, Queue>, LogFailure> {
        let mut queue = self.queue.lock();
        queue.refusal(txn, parts)?;
        let head = Head {
            kind,
            lsn,
            txn,
            wall_micros: queue.now_micros(),
        };
        if kind == Kind::Rows {
            let number = queue.file_number;
            queue.chunked.entry(txn).or_insert(number);
        } else {
            assert_eq!(lsn.0, queue.enqueued.0 + 1, "LSNs have no gaps");
            queue.enqueued = lsn;
            let has_chunks = !queue.chunked.is_empty() && queue.chunked.remove(&txn).is_some();
            queue.owes_sync |= kind != Kind::Commit || has_chunks || !payload.is_empty();
        }
        queue.bytes += payload.len();
        queue.entries.push(Entry { head, payload });
        Ok(queue)
    }

    fn enqueue_block(
        &self,
        kind: Kind,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        payload: Vec<u8>,
    ) -> Result<(), LogFailure> {
        let mut queue = self.enqueue(kind, ts, txn, parts, payload)?;
        for part in parts {
            queue.chunked.remove(part);
        }
        Ok(())
    }

    /// Whether what is queued is to be synced when it is written.
    fn syncs(&self, queue: &Queue) -> bool {
        queue.owes_sync && self.fsync.load(Ordering::Acquire)
    }

    /// Whether writing what is queued is a matter of microseconds. The caller has seen that
    /// nobody leads.
    fn is_brief(&self, queue: &Queue) -> bool {
        // Who has seen that nobody leads is the only one to lock the writer.
        !self.syncs(queue)
            && queue.bytes <= WRITE_AT_ONCE_BYTES_MAX
            && self.writer.lock().bytes + WRITE_AT_ONCE_BYTES_MAX < self.file_bytes_max
    }

    /// As [`CommitLog::wait_durable`] if the caller `waits`, else [`CommitLog::try_durable`].
    fn durable(&self, ts: CommitTs, waits: bool) -> Option<Result<CommitTs, LogFailure>> {
        let mut queue = self.queue.lock();
        let mut spins = 0;
        loop {
            if queue.durable >= ts {
                return Some(queue.fate(ts));
            }
            if let Some(failure) = &queue.failure {
                return Some(Err(failure.clone()));
            }
            match queue.led {
                Led::No if waits || self.is_brief(&queue) => {
                    let sync = self.syncs(&queue);
                    queue = self.lead(queue, sync, false);
                }
                Led::Briefly if spins < SPINS_MAX => {
                    spins += 1;
                    let spin = || (0..PAUSES_PER_SPIN).for_each(|_| std::hint::spin_loop());
                    MutexGuard::unlocked(&mut queue, spin);
                }
                _ if waits => match sleep::sleep(queue, Some(ts)) {
                    Woken::Durable(through) => return Some(Ok(through)),
                    Woken::Failed(failure) => return Some(Err(failure)),
                    Woken::LookAgain => queue = self.queue.lock(),
                },
                _ => return None,
            }
        }
    }

    /// Writes what is queued, with the queue unlocked meanwhile; `sync` whether to sync
    /// whatever the durability. The caller has seen that nobody leads.
    fn lead<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        sync: bool,
        rotate: bool,
    ) -> MutexGuard<'a, Queue> {
        queue.led = match !sync && !rotate && self.is_brief(&queue) {
            true => Led::Briefly,
            false => Led::Long,
        };
        let entries = std::mem::take(&mut queue.entries);
        (queue.bytes, queue.owes_sync) = (0, false);
        let (through, number) = (queue.enqueued, queue.file_number);
        queue.file_number += u64::from(rotate);
        drop(queue);
        let result = self.write(&entries, through, number, sync, rotate);
        let mut queue = self.queue.lock();
        queue.led = Led::No;
        match result {
            Ok(number) => {
                fault::pass("log.before_publish");
                (queue.durable, queue.file_number) = (through, number);
            }
            Err((doing, source)) => {
                tracing::error!(tenant = %self.origin.tenant, %source, "the commit log failed: could not {doing}");
                // Mending goes on in the file that failed; no chunk of the next one is left.
                queue.file_number = number;
                queue.fail(LogFailure {
                    doing: doing.to_owned(),
                    source: Arc::new(source),
                });
            }
        }
        sleep::wake(&mut queue);
        queue
    }

    /// Returns the number of the file that is written next.
    fn write(
        &self,
        entries: &[Entry],
        through: CommitTs,
        number: u64,
        sync: bool,
        rotate: bool,
    ) -> Result<u64, (&'static str, io::Error)> {
        let mut writer = self.writer.lock();
        let bytes = writer
            .append(entries, sync && !rotate)
            .map_err(|error| ("write", error))?;
        self.bytes_written
            .fetch_add(bytes as u64, Ordering::Relaxed);
        let rotates = rotate || writer.bytes >= self.file_bytes_max;
        if !rotates {
            if sync {
                writer.sync().map_err(|error| ("sync", error))?;
            }
            writer.published = writer.bytes;
            return Ok(number);
        }
        writer.complete().map_err(|error| ("sync", error))?;
        let head = FileHead {
            origin: self.origin,
            number: number + 1,
            after: through,
        };
        fault::pass("log.rotate");
        *writer = Writer::create(&self.folder, &self.folder_file, head)
            .map_err(|error| ("begin a new file", error))?;
        Ok(number + 1)
    }

    /// Begins a new file, so that those before can go once a checkpoint has what they say.
    pub(crate) fn rotate(&self) -> Result<Cut, LogFailure> {
        let mut queue = self.queue.lock();
        while queue.led != Led::No {
            sleep::sleep(queue, None);
            queue = self.queue.lock();
        }
        if let Some(failure) = &queue.failure {
            return Err(failure.clone());
        }
        // What is queued goes to the old file. Who has chunks and no commit in the queue
        // yet commits in the new one.
        let through = queue.enqueued;
        let next = queue.file_number + 1;
        let keep_from = queue.chunked.values().copied().fold(next, u64::min);
        assert!(
            keep_from >= self.kept_from.load(Ordering::Relaxed),
            "a checkpoint needs file {keep_from}, which an earlier one has removed"
        );
        let queue = self.lead(queue, true, true);
        match &queue.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(Cut {
                through,
                keep_from,
                next,
            }),
        }
    }

    /// Copies files to this place before they go, from now on; `None`: to no place.
    pub(crate) fn archive_to(&self, sink: Option<Arc<dyn BackupSink>>) {
        *self.archive.lock() = sink.map(|sink| Archive { sink, through: 0 });
    }

    /// Copies the files before this one, which are complete, to the archive if there is one.
    /// One call at a time. May take as long as the archive does, and keeps nobody from
    /// choosing another meanwhile.
    pub(crate) fn archive_before(&self, number: u64) -> Result<(), BackupError> {
        let Some(archive) = self.archive.lock().clone() else {
            return Ok(());
        };
        let files = read::files(&self.folder).map_err(BackupError::io(&self.folder))?;
        for (found, path) in files {
            if (archive.through + 1..number).contains(&found) {
                let name = format!("{}/{}", self.origin.timeline, file_name(found));
                put_file(&*archive.sink, &name, &path)?;
                self.note_archived(&archive.sink, found);
                fault::pass("log.archived");
            }
        }
        Ok(())
    }

    /// The archive has the files through this one, if it is still the one in use.
    fn note_archived(&self, sink: &Arc<dyn BackupSink>, through: u64) {
        if let Some(archive) = &mut *self.archive.lock()
            && Arc::ptr_eq(&archive.sink, sink)
        {
            archive.through = through;
        }
    }

    /// Removes files that no checkpoint needs, once they are archived. What cannot be
    /// removed is in nobody's way.
    pub(crate) fn remove_before(&self, number: u64) -> io::Result<()> {
        self.archive_before(number).map_err(io::Error::other)?;
        self.kept_from.fetch_max(number, Ordering::Relaxed);
        for (found, path) in read::files(&self.folder)? {
            if found < number {
                std::fs::remove_file(path)?;
                fault::pass("log.after_remove");
            }
        }
        self.folder_file.sync_all()
    }
}

impl Drop for Log {
    /// A log that is closed ends with its last record. What cannot be cut off is in nobody's
    /// way; of a log that has failed nothing is known.
    fn drop(&mut self) {
        if self.queue.get_mut().failure.is_none() {
            let _ = self.writer.get_mut().cut_room();
        }
    }
}

impl Queue {
    /// The clock may go back; the log's order does not.
    fn now_micros(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        self.wall_micros = self.wall_micros.max(micros);
        self.wall_micros
    }
}

impl CommitLog for Log {
    fn append_chunk(&self, txn: TxnId, redo: Vec<u8>) -> Result<(), LogFailure> {
        let mut queue = self.enqueue(Kind::Rows, CommitTs(0), txn, &[], redo)?;
        while queue.bytes > QUEUE_BYTES_MAX {
            if let Some(failure) = &queue.failure {
                return Err(failure.clone());
            }
            if queue.led != Led::No {
                sleep::sleep(queue, None);
                queue = self.queue.lock();
            } else {
                // Commits in the queue are acknowledged by this. Without one there is nothing
                // to sync: who loads gigabytes would wait for the disk every few megabytes.
                let sync = self.syncs(&queue);
                queue = self.lead(queue, sync, false);
            }
        }
        Ok(())
    }

    fn enqueue_commit(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        mut redo: Vec<u8>,
    ) -> Result<(), LogFailure> {
        if parts.is_empty() {
            return self.enqueue(Kind::Commit, ts, txn, &[], redo).map(drop);
        }
        record::put_parts(parts, &mut redo);
        self.enqueue_block(Kind::Block, txn, parts, ts, redo)
    }

    fn enqueue_commit_with_catalog(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        mut redo: Vec<u8>,
        catalog: Vec<u8>,
    ) -> Result<(), LogFailure> {
        record::put_parts(parts, &mut redo);
        record::put_catalog(&catalog, &mut redo);
        self.enqueue_block(Kind::Defining, txn, parts, ts, redo)
    }

    fn wait_durable(&self, ts: CommitTs) -> Result<CommitTs, LogFailure> {
        let durable = self.durable(ts, true);
        durable.expect("who may wait does so until it is known")
    }

    fn try_durable(&self, ts: CommitTs) -> Option<Result<CommitTs, LogFailure>> {
        self.durable(ts, false)
    }

    fn forget(&self, txn: TxnId) {
        let mut queue = self.queue.lock();
        queue.chunked.remove(&txn);
        queue.doomed.remove(&txn);
    }

    fn reserve_redo(&self, bytes: usize) -> Result<(), OutOfMemory> {
        self.budget.try_grow_raw(bytes as u64)
    }

    fn release_redo(&self, bytes: usize) {
        self.budget.shrink_raw(bytes as u64);
    }
}
