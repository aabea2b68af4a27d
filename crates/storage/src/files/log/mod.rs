//! The commit log of a tenant: a queue in memory, files on disk, group commit.
//!
//! ```text
//!  committers ──enqueue (order lock)──► queue ─┐
//!                                              │ the first who waits leads: takes the
//!  wait_durable: lead, or sleep until led  ◄───┘ queue, writes it, syncs, wakes the rest
//!
//!  Log = order   what is queued, written, durable, acknowledged: pure      ([`order`])
//!      + media   the files                                                 ([`media`])
//!      + sleep   the threads
//!      + hold    the folder's lock
//!
//!  stream: what is written, for copies ([`stream`])        receive: another node's records
//! ```
//!
//! * **No thread of its own.** Committers wait anyway, so one of them writes for all that are
//!   queued; those that come meanwhile form the next group. An idle tenant costs a file
//!   descriptor and a few hundred bytes, a single committer no change of threads.
//! * **Order.** Records with an LSN are queued under the commit order's lock and written in
//!   order: LSNs in the files ascend, of those between two records one says that there is nothing at them,
//!   and the durable part is a prefix.
//! * **Logical contents** ([`redo`]). Rewrites, vacuum, splits and freezing move rows and change
//!   nothing that the log knows of.
//! * **Why redo may be applied in the order of the log.** A row or key that a transaction has
//!   written is locked until the transaction has settled, which is after its commit is durable
//!   and so after its record. The next transaction that changes the same row or key creates its
//!   redo after that, and so has it behind that record. Within a transaction, redo of a segment
//!   is added under its latch, and the statements of a block add theirs one after the other. So
//!   for each row the log has its changes in the order in which they happened, whatever other
//!   rows' changes lie between. Rows of transactions and statements that did not commit are left
//!   out, and no other change can have built on them.
//! * **Syncs** are made cheap by room that is written ahead ([`writer`]).
//! * **Failure.** After an error from the disk nothing is accepted until the log is mended
//!   ([`mend`]): what a failed fsync left in the page cache cannot be known (Rebello et al., ATC
//!   2020).

mod hold;
mod marks;
mod media;
mod mend;
mod order;
pub(crate) mod point;
pub(crate) mod pulse;
pub(crate) mod read;
pub(crate) mod receive;
pub(crate) mod record;
pub(crate) mod redo;
mod sleep;
pub(crate) mod stream;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_memory::{Budget, MemoryClass, OutOfMemory};
use aerostat_txn::{Call, CommitLog, LogFailure};
use aerostat_types::{CommitTs, Durability, TxnId};
use parking_lot::{Mutex, MutexGuard};

pub use self::hold::Ended;
#[cfg(test)]
pub(crate) use self::media::Ends;
use self::{
    hold::Hold,
    marks::Marks,
    media::{Files, Media},
    order::{Entry, Group, Order, Rule},
    pulse::Pulse,
    record::{FileHead, Format, Head, Kind},
    sleep::{Called, Sleeper, Woken},
    stream::{Readers, WrittenEnd},
};
pub(crate) use self::{order::Cut, read::file_name};
use crate::files::{
    archive::{BackupError, BackupSink, put_file},
    disk::{DiskLock, Machine},
    fault,
    origin::{Origin, Timeline},
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

/// Whether somebody writes for all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Led {
    No,
    /// What is written is little and goes to the operating system's cache.
    Briefly,
    /// The disk is waited for, or much is written.
    Long,
}

/// Who writes for all, and forgets this when it has. If it panics instead, which is a bug, what
/// it was at is in doubt as after an error from the disk, and nobody waits for it for ever.
struct Leader<'a> {
    log: &'a Log,
    file_number: u64,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        state.led = Led::No;
        if state.order.failure().is_none() {
            let failure = LogFailure {
                doing: "write".to_owned(),
                source: Arc::new(io::Error::other("whoever wrote panicked")),
            };
            state.order.failed(self.file_number, failure);
        }
        sleep::wake(&mut state);
    }
}

/// How many places of a file are known without reading it.
const MARKS_A_FILE: usize = 64;

/// The order, and the threads at it.
struct State {
    order: Order,
    led: Led,
    sleepers: Vec<Sleeper>,
    called: Called,
    /// How far the files can be read.
    end: WrittenEnd,
    /// Where it can be read on, here and there.
    marks: Marks,
    /// How long commits take, while somebody asks.
    pulse: Pulse,
}

/// The log of one tenant.
pub(crate) struct Log {
    origin: Origin,
    /// Pays for redo that is not in the queue yet.
    budget: Arc<Budget>,
    machine: Machine,
    folder: PathBuf,
    state: Mutex<State>,
    /// Locked by the leader only.
    media: Mutex<Box<dyn Media>>,
    bytes_written: AtomicU64,
    /// A file is full from here on.
    file_bytes_max: usize,
    archive: Mutex<Option<Archive>>,
    /// Who reads what is written.
    readers: Readers,
    /// The last field, for the folder is nobody else's until all others have gone. `None` for a log
    /// that nobody else knows of.
    hold: Option<Hold>,
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
    /// Those of them that are known to be on disk.
    pub(crate) synced: usize,
    /// Whether more may come to it. A new one is begun where it is of a format that is not written any more,
    /// or lacks what the checkpoint has.
    pub(crate) goes_on: bool,
    /// The timeline that it has, which that one has, too.
    pub(crate) timeline: Option<Timeline>,
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
        machine: Machine,
        budget: Arc<Budget>,
    ) -> io::Result<Log> {
        let (mut number, bytes) = end.file.unwrap_or((1, 0));
        let mut head = FileHead {
            origin,
            number,
            after: end.last,
            begins_inside: end.file.is_some(),
            format: Format::CURRENT,
        };
        let disk = Arc::clone(&machine.disk);
        let mut files = Files::open(disk, folder, head, bytes, end.synced)?;
        if !end.goes_on {
            // It is complete now, and no older version finds in it what it does not know.
            number += 1;
            head.number = number;
            head.origin.timeline = end.timeline.unwrap_or(origin.timeline);
            files.create(head)?;
        }
        let rule = Rule::of(durability);
        let bytes = files.bytes();
        let state = State {
            order: Order::after(end.last, number, end.wall_micros, rule),
            led: Led::No,
            sleepers: Vec::new(),
            called: Called::new(),
            end: WrittenEnd {
                file: number,
                bytes,
                said: end.last,
                durable: end.last,
                mends: 0,
            },
            marks: Marks::default(),
            pulse: Pulse::default(),
        };
        Ok(Log {
            origin,
            budget,
            machine,
            folder: folder.to_owned(),
            state: Mutex::new(state),
            media: Mutex::new(Box::new(files)),
            bytes_written: AtomicU64::new(0),
            file_bytes_max: FILE_BYTES_MAX,
            archive: Mutex::new(None),
            readers: Readers::default(),
            hold: None,
        })
    }

    /// Has files end after so many bytes.
    pub(crate) fn with_files_of(mut self, bytes: usize) -> Log {
        self.file_bytes_max = bytes;
        self
    }

    /// Keeps the lock of its folder as long as it can be written.
    pub(crate) fn with_lock(mut self, lock: DiskLock) -> Log {
        self.hold = Some(Hold::of(lock));
        self
    }

    /// Knows when it has gone, if it has the lock of its folder.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.hold.as_ref().map(Hold::ended)
    }

    /// Whose log it is.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Microseconds since 1970, not before those of any record that is queued.
    pub(crate) fn now_micros(&self) -> u64 {
        let now_micros = self.machine.clock.wall_micros();
        self.state.lock().order.at_clock(now_micros)
    }

    /// From the next group on.
    pub(crate) fn set_durability(&self, durability: Durability) {
        let mut state = self.state.lock();
        state.order.set_rule(Rule::of(durability));
        sleep::wake(&mut state);
    }

    pub(crate) fn durability(&self) -> Durability {
        self.state.lock().order.rule().durability()
    }

    /// Bytes written since it was opened.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// What may be queued before whoever appends waits for the thread that writes, if there is one.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        let state = self.state.lock();
        match state.led {
            Led::No => usize::MAX,
            _ => QUEUE_BYTES_MAX.saturating_sub(state.order.queued_bytes()),
        }
    }

    /// The file at the end, for tests.
    #[cfg(test)]
    pub(crate) fn ends(&self) -> Ends {
        self.media.lock().ends()
    }

    /// How many transactions that have not ended cannot commit, for tests.
    #[cfg(test)]
    pub(crate) fn doomed(&self) -> usize {
        self.state.lock().order.doomed()
    }

    /// Has the disk refuse what is written from now on, for tests.
    #[cfg(test)]
    pub(crate) fn fill_disk(&self) {
        self.media.lock().fill();
    }

    pub(crate) fn failure(&self) -> Option<LogFailure> {
        self.state.lock().order.failure().cloned()
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
    ) -> Result<MutexGuard<'_, State>, LogFailure> {
        let head = Head {
            kind,
            lsn,
            txn,
            wall_micros: self.machine.clock.wall_micros(),
        };
        let mut state = self.state.lock();
        state.order.enqueue(Entry { head, payload }, parts)?;
        if lsn > CommitTs(0) {
            state.pulse.queued(lsn);
        }
        Ok(state)
    }

    /// Whether writing what is queued is a matter of microseconds. The caller has seen that
    /// nobody leads.
    fn is_brief(&self, order: &Order) -> bool {
        // Who has seen that nobody leads is the only one to lock the media.
        !order.syncs()
            && order.queued_bytes() <= WRITE_AT_ONCE_BYTES_MAX
            && self.media.lock().bytes() + WRITE_AT_ONCE_BYTES_MAX < self.file_bytes_max
    }

    /// As [`CommitLog::wait_durable`] if the caller `waits`, else [`CommitLog::try_durable`].
    fn acknowledged(&self, ts: CommitTs, waits: bool) -> Option<Result<CommitTs, LogFailure>> {
        let mut state = self.state.lock();
        let mut spins = 0;
        loop {
            let fate = state.order.fate(ts);
            if fate.is_some() {
                return fate;
            }
            let may_lead = !state.order.is_secured(ts);
            match state.led {
                Led::No if may_lead && (waits || self.is_brief(&state.order)) => {
                    state = self.lead(state, false);
                }
                Led::Briefly if may_lead && spins < SPINS_MAX => {
                    spins += 1;
                    let spin = || (0..PAUSES_PER_SPIN).for_each(|_| std::hint::spin_loop());
                    MutexGuard::unlocked(&mut state, spin);
                }
                _ if waits => match sleep::sleep(state, Some(ts)) {
                    Woken::Acknowledged(through) => return Some(Ok(through)),
                    Woken::Failed(failure) => return Some(Err(failure)),
                    Woken::LookAgain => state = self.state.lock(),
                },
                _ => return None,
            }
        }
    }

    /// Writes what is queued, with the order unlocked meanwhile; `ends_file` whether the file is
    /// complete with it. The caller has seen that nobody leads.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ends_file: bool,
    ) -> MutexGuard<'a, State> {
        assert!(state.led == Led::No, "one thread at a time writes a log");
        let led = match !ends_file && self.is_brief(&state.order) {
            true => Led::Briefly,
            false => Led::Long,
        };
        let group = state.order.next_group(ends_file, false);
        state.led = led;
        self.carry_out(state, &group)
    }

    /// Writes a group. The caller leads, and has taken it.
    fn carry_out<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        group: &Group,
    ) -> MutexGuard<'a, State> {
        drop(state);
        let leader = Leader {
            log: self,
            file_number: group.file_number,
        };
        let result = self.write(group);
        std::mem::forget(leader);
        let mut state = self.state.lock();
        state.led = Led::No;
        match result {
            Ok(Put {
                next,
                bytes,
                is_durable,
            }) => {
                fault::pass("log.before_publish");
                state.end = WrittenEnd {
                    file: next,
                    bytes,
                    said: group.said,
                    durable: match is_durable {
                        true => group.said,
                        false => state.end.durable,
                    },
                    mends: state.end.mends,
                };
                let end = state.end;
                let away = self.file_bytes_max / MARKS_A_FILE;
                state.marks.note(end.said, (end.file, end.bytes), away);
                state.order.written(group.through, next);
                if is_durable {
                    state.order.synced(group.through);
                }
            }
            Err((doing, source)) => {
                tracing::error!(tenant = %self.origin.tenant, %source, "the commit log failed: could not {doing}");
                let failure = LogFailure {
                    doing: doing.to_owned(),
                    source: Arc::new(source),
                };
                state.order.failed(group.file_number, failure);
            }
        }
        sleep::wake(&mut state);
        if self.readers.has_any() && (!group.entries.is_empty() || group.syncs) {
            MutexGuard::unlocked(&mut state, || self.readers.wake());
        }
        state
    }

    /// Writes a group, makes it as durable as it should be, and begins a new file if this one is
    /// complete with it or has become full.
    fn write(&self, group: &Group) -> Result<Put, (&'static str, io::Error)> {
        let mut media = self.media.lock();
        if group.entries.is_empty() && !group.syncs && !group.ends_file {
            return Ok(Put {
                next: group.file_number,
                bytes: media.bytes(),
                is_durable: false,
            });
        }
        let bytes = media
            .append(&group.entries, group.syncs && !group.ends_file)
            .map_err(|error| ("write", error))?;
        self.bytes_written
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if !group.ends_file && media.bytes() < self.file_bytes_max {
            if group.syncs {
                media.sync().map_err(|error| ("sync", error))?;
            }
            media.secure();
            return Ok(Put {
                next: group.file_number,
                bytes: media.bytes(),
                is_durable: group.syncs,
            });
        }
        media.complete().map_err(|error| ("sync", error))?;
        let head = FileHead {
            origin: self.origin,
            number: group.file_number + 1,
            after: group.through,
            begins_inside: group.ends_inside,
            format: Format::CURRENT,
        };
        fault::pass("log.rotate");
        media
            .create(head)
            .map_err(|error| ("begin a new file", error))?;
        Ok(Put {
            next: head.number,
            bytes: media.bytes(),
            is_durable: true,
        })
    }

    /// Has the disk have everything that was queued, also what its durability does not ask it for, and the log
    /// speak of every place.
    ///
    /// # Errors
    /// The log has failed, now or before.
    pub(crate) fn flush(&self) -> Result<(), LogFailure> {
        let mut state = self.unled();
        if let Some(failure) = state.order.failure() {
            return Err(failure.clone());
        }
        state.led = Led::Long;
        let group = state.order.next_group(false, true);
        state = self.carry_out(state, &group);
        match state.order.failure() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// The order, with nobody who leads.
    fn unled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.led != Led::No {
            sleep::sleep(state, None);
            state = self.state.lock();
        }
        state
    }

    /// Begins a new file, so that those before can go once a checkpoint has what they say. What is
    /// before the cut is acknowledged when this returns.
    pub(crate) fn rotate(&self) -> Result<Cut, LogFailure> {
        let mut state = self.unled();
        if let Some(failure) = state.order.failure() {
            return Err(failure.clone());
        }
        let cut = state.order.cut();
        state = self.lead(state, true);
        loop {
            if let Some(failure) = state.order.failure() {
                return Err(failure.clone());
            }
            if state.order.is_for_good(cut.through) {
                return Ok(cut);
            }
            sleep::sleep(state, None);
            state = self.state.lock();
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
        let files = read::files(&*self.machine.disk, &self.folder)
            .map_err(BackupError::io(&self.folder))?;
        for (found, path) in files {
            if (archive.through + 1..number).contains(&found) {
                let name = format!("{}/{}", self.origin.timeline, file_name(found));
                put_file(&*self.machine.disk, &*archive.sink, &name, &path)?;
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
            assert!(
                archive.through < through,
                "files go to the archive in order, and {} was there before {through}",
                archive.through
            );
            archive.through = through;
        }
    }

    /// Removes files that no checkpoint needs, once they are archived, and copies have read them. What
    /// cannot be removed is in nobody's way.
    pub(crate) fn remove_before(&self, number: u64) -> io::Result<()> {
        self.archive_before(number).map_err(io::Error::other)?;
        self.state.lock().order.release_before(number);
        let number = self.readers.keep_from(number);
        for (found, path) in read::files(&*self.machine.disk, &self.folder)? {
            if found < number {
                self.machine.disk.remove_file(&path)?;
                fault::pass("log.after_remove");
            }
        }
        self.machine.disk.sync_folder(&self.folder)
    }
}

impl Drop for Log {
    /// A log that is closed ends with its last record; of one that has failed nothing is known.
    fn drop(&mut self) {
        if self.state.get_mut().order.failure().is_none() {
            self.media.get_mut().close();
        }
    }
}

/// What became of a group.
struct Put {
    /// The file that is written next, and how many bytes it has.
    next: u64,
    bytes: usize,
    is_durable: bool,
}

impl CommitLog for Log {
    fn append_chunk(&self, txn: TxnId, redo: Vec<u8>) -> Result<(), LogFailure> {
        let mut state = self.enqueue(Kind::Rows, CommitTs(0), txn, &[], redo)?;
        while state.order.queued_bytes() > QUEUE_BYTES_MAX {
            if let Some(failure) = state.order.failure() {
                return Err(failure.clone());
            }
            if state.led != Led::No {
                sleep::sleep(state, None);
                state = self.state.lock();
            } else {
                // Commits in the queue are acknowledged by this. Without one there is nothing
                // to sync: who loads gigabytes would wait for the disk every few megabytes.
                state = self.lead(state, false);
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
        self.enqueue(Kind::Block, ts, txn, parts, redo).map(drop)
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
        self.enqueue(Kind::Defining, ts, txn, parts, redo).map(drop)
    }

    fn wait_durable(&self, ts: CommitTs) -> Result<CommitTs, LogFailure> {
        if fault::is_planted("log.early_stamp") {
            return Ok(ts);
        }
        let fate = self.acknowledged(ts, true);
        fate.expect("who may wait does so until it is known")
    }

    fn try_durable(&self, ts: CommitTs) -> Option<Result<CommitTs, LogFailure>> {
        self.acknowledged(ts, false)
    }

    fn when_known(&self, ts: CommitTs, call: Call) -> Option<Call> {
        let mut state = self.state.lock();
        if state.order.fate(ts).is_some() {
            drop(state);
            call();
            return None;
        }
        if !state.order.is_secured(ts) {
            // It is to be written yet, or the disk is to have it: somebody has to see to that.
            return Some(call);
        }
        state.called.insert(ts, call)
    }

    fn forget(&self, txn: TxnId) {
        self.state.lock().order.forget(txn);
    }

    fn reserve_redo(&self, bytes: usize) -> Result<(), OutOfMemory> {
        self.budget.try_grow_raw(MemoryClass::Log, bytes as u64)
    }

    fn release_redo(&self, bytes: usize) {
        self.budget.shrink_raw(MemoryClass::Log, bytes as u64);
    }
}
