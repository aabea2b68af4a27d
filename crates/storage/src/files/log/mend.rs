//! Mending a log after the disk refused it, while the tenant is open.
//!
//! ```text
//!  the failed file   │ head, records … secured   │ records in doubt, zeros, anything │
//!                          read, checked              not looked at
//!                              │
//!  a new file        │ head, records … secured   │ that there is nothing in their places  │
//!                    written, synced, renamed over the failed one: the log goes on behind it
//! ```
//!
//! * **Commits in doubt did not happen**: memory has undone them, and nobody has seen them. No
//!   commit is taken until the new file's name is durable, so a crash before that finds the old
//!   file, which may contain them, and no commit that contradicts it.
//! * **Nothing is assumed of the failed file.** What it must contain is read, and its checksums
//!   are verified; it is written anew to a file whose sync the disk has not refused. If a record
//!   is missing the log stays failed.
//! * **Places stay without gaps**: the log says that there is nothing in the places of those in doubt, so
//!   recovery, archives and restores need not know of any of this.
//! * **Chunks** of unfinished transactions may have been lost. No transaction that had chunks
//!   when the log failed can commit.

use std::{
    io,
    path::{Path, PathBuf},
};

use aerostat_txn::LogFailure;
use aerostat_types::{CommitTs, TxnId};

use super::{
    Leader, Led, Log,
    media::Files,
    order::Doubt,
    read::file_name,
    record::{self, FILE_HEAD_BYTES, FileHead, Head, Kind},
    sleep,
    stream::WrittenEnd,
    writer::{Writer, read_exactly},
};
use crate::files::{disk::DiskFile, origin::Origin};

/// A log that has so many bytes free beyond its own file can go on: as many as a checkpoint
/// and the next files want at least.
const BYTES_FREE_MIN: u64 = 1 << 20;

impl Log {
    /// Makes the file at the end sound and takes changes again. `give_up` is told of the places
    /// in doubt once they are known to be nobody's, before any other commit is taken.
    ///
    /// # Errors
    /// While the disk refuses, or when acknowledged records cannot be read back.
    pub(crate) fn mend(&self, give_up: &dyn Fn(CommitTs, CommitTs)) -> Result<(), LogFailure> {
        let now_micros = self.machine.clock.wall_micros();
        let mut state = self.state.lock();
        let Some(failure) = state.order.failure().cloned() else {
            return Ok(());
        };
        state.order.at_clock(now_micros);
        let doubt = match state.order.doubt() {
            // Nobody is about it.
            Some(doubt) if state.led == Led::No => doubt,
            _ => return Err(failure),
        };
        state.led = Led::Long;
        drop(state);
        let leader = Leader {
            log: self,
            file_number: doubt.file_number,
        };
        let mut media = self.media.lock();
        let mended = media.mend(self.origin, doubt);
        let bytes = media.bytes();
        drop(media);
        if mended.is_ok() {
            give_up(doubt.after, doubt.through);
        }
        std::mem::forget(leader);
        let mut state = self.state.lock();
        state.led = Led::No;
        if mended.is_ok() {
            state.order.mended(doubt);
            state.marks.forget_from(doubt.file_number);
            state.end = WrittenEnd {
                file: doubt.file_number,
                bytes,
                said: doubt.through,
                durable: doubt.through,
                mends: state.end.mends + 1,
            };
        }
        sleep::wake(&mut state);
        drop(state);
        self.readers.wake();
        mended.map_err(|error| LogFailure {
            doing: "mend it".to_owned(),
            source: error.into(),
        })
    }
}

impl Files {
    /// Writes the file at the end anew: see [`super::media::Media::mend`].
    pub(super) fn write_anew(&mut self, origin: Origin, doubt: Doubt) -> io::Result<()> {
        let secured = self.writer.secured;
        let path = self.folder.join(file_name(doubt.file_number));
        let free = self.disk.space(&self.folder)?.bytes_free;
        if free < secured as u64 + BYTES_FREE_MIN {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = read_exactly(&*self.disk, &path, 0..secured)?;
        check(&bytes, origin, doubt)?;
        put_nothing(doubt, &mut bytes);
        let mended = Doubt {
            said: doubt.through,
            ..doubt
        };
        debug_assert!(
            check(&bytes, origin, mended).is_ok(),
            "the file that is written anew ends with the last place in doubt"
        );
        // The beginning of the next file, if that is what failed: behind it this one would
        // have to be complete.
        let next = self.folder.join(file_name(doubt.file_number + 1));
        self.disk.remove_if_there(&next)?;
        self.disk.sync_folder(&self.folder)?;
        let file = self.replace(&path, &bytes)?;
        self.writer = Writer::of(file, bytes.len());
        tracing::debug!(
            secured,
            bytes = bytes.len(),
            "the log's file was written anew"
        );
        Ok(())
    }

    /// Puts a file of these bytes in the place of another, for good.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let beside = beside(path);
        let made = || -> io::Result<Box<dyn DiskFile>> {
            let file = self.disk.create_file(&beside, bytes)?;
            file.sync_all()?;
            self.disk.rename(&beside, path)?;
            Ok(file)
        };
        let file = made().inspect_err(|_| {
            // It is in the way of what the disk has no room for.
            let _ = self.disk.remove_if_there(&beside);
        })?;
        self.disk.sync_folder(&self.folder)?;
        Ok(file)
    }
}

/// Whether these are the bytes of the file whose commits are secured, and all of them.
fn check(bytes: &[u8], origin: Origin, doubt: Doubt) -> io::Result<()> {
    let missing = || {
        let what = "the file does not have what was acknowledged";
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let head = FileHead::parse(bytes)
        .filter(|head| head.origin == origin && head.number == doubt.file_number)
        .ok_or_else(missing)?;
    let (mut at, mut last) = (FILE_HEAD_BYTES, head.after);
    while at < bytes.len() {
        let (record, length) = record::parse(&bytes[at..]).ok_or_else(missing)?;
        last = last.max(record.head.lsn);
        at += length;
    }
    if last == doubt.said {
        Ok(())
    } else {
        Err(missing())
    }
}

/// Says that there is nothing in the places in doubt, and in those before them of which the file does not
/// speak.
fn put_nothing(doubt: Doubt, bytes: &mut Vec<u8>) {
    if doubt.said < doubt.through {
        let head = Head {
            kind: Kind::Nothing,
            lsn: doubt.through,
            txn: TxnId(0),
            wall_micros: doubt.wall_micros,
        };
        let first = CommitTs(doubt.said.0 + 1);
        record::put(&head, 0, &record::nothing_from(first), bytes);
    }
}

/// A name that no file of the log has.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}
