//! The last file of the log: writing records, room ahead of them, syncs.
//!
//! ```text
//!  header │ records … │ zeros …        a sync within the room writes data alone
//!                     ▲ bytes   ▲ room
//! ```
//!
//! * **Room.** If a file grows at every commit, the file system commits its own journal at every
//!   sync. So the thread that syncs writes zeros ahead, which the next few hundred commits
//!   overwrite without growing the file: on ext4 a sync then takes a third of the time. Zeros are
//!   necessary because blocks that are merely allocated have to be marked as written, in that
//!   journal. Without syncs there is no room, nor behind a large group, which grows the file in
//!   any case.
//! * **Readers** see zeros as no record, so the records end where the zeros begin. A complete
//!   file ends with its last record: its room is cut off, durably, before the next file is begun.
//!   So is the room of a log that is closed.

use std::{io, ops::Range, path::Path};

use super::{
    FILE_BYTES_MAX,
    order::Entry,
    read::file_name,
    record::{self, FILE_HEAD_BYTES, FileHead},
};
use crate::files::{
    disk::{Disk, DiskFile, Opened},
    fault,
};

/// The least room that is made, and the unit of it: a page of the system's cache.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// The most room that is made at once. Until then a file doubles: an idle tenant's is small.
/// Writing so many zeros takes less than the sync that goes with them.
const ROOM_BYTES_MAX: usize = 256 << 10;

/// The writer keeps no larger buffer than this: an idle tenant's.
const BUFFER_BYTES_KEPT: usize = 16 << 10;

/// The file at the end.
pub(super) struct Writer {
    pub(super) file: Box<dyn DiskFile>,
    /// Bytes that count: the next record comes here.
    pub(super) bytes: usize,
    /// Bytes that the file has: zeros from `bytes` on.
    pub(super) room: usize,
    /// Bytes of which the disk has said that it has them.
    pub(super) synced: usize,
    /// Bytes whose commits are secured: what is behind them is in doubt once a write or a sync
    /// has failed.
    pub(super) secured: usize,
    buffer: Vec<u8>,
}

/// These bytes of a file.
pub(super) fn read_exactly(
    disk: &dyn Disk,
    path: &Path,
    range: Range<usize>,
) -> io::Result<Vec<u8>> {
    read_of(&*disk.open(path, Opened::Read)?, range)
}

/// These bytes of a file that is open.
pub(super) fn read_of(file: &dyn DiskFile, range: Range<usize>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; range.len()];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], (range.start + read) as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => read += more,
        }
    }
    Ok(bytes)
}

impl Writer {
    /// Goes on in a file behind so many bytes. The rest is cut off.
    ///
    /// What is behind the `synced` ones is written again. A process before may have ended because the
    /// disk refused to sync it: then the system has it and takes it for written, no later sync
    /// writes it, and it is gone when the power fails.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        bytes: usize,
        synced: usize,
    ) -> io::Result<Writer> {
        assert!(
            synced <= bytes && bytes >= FILE_HEAD_BYTES,
            "a log goes on behind its file's header, and not before what is on disk"
        );
        let again = read_exactly(disk, path, synced..bytes)?;
        let file = disk.open(path, Opened::Write)?;
        file.write_all_at(&again, synced as u64)?;
        file.set_len(bytes as u64)?;
        file.sync_all()?;
        Ok(Writer::of(file, bytes))
    }

    /// Begins a file, which is durable before anything is in it.
    pub(super) fn create(disk: &dyn Disk, folder: &Path, head: FileHead) -> io::Result<Writer> {
        // A crash may have left a beginning of it.
        let path = folder.join(file_name(head.number));
        let file = disk.create_file(&path, &head.to_bytes())?;
        file.sync_all()?;
        fault::pass("log.new_file");
        disk.sync_folder(folder)?;
        Ok(Writer::of(file, FILE_HEAD_BYTES))
    }

    /// Of a file that is durable with so many bytes.
    pub(super) fn of(file: Box<dyn DiskFile>, bytes: usize) -> Writer {
        Writer {
            file,
            bytes,
            room: bytes,
            synced: bytes,
            secured: bytes,
            buffer: Vec::new(),
        }
    }

    /// Writes records, and room for more behind them if they will be synced and have none.
    /// Gives how many bytes the records take.
    pub(super) fn append(&mut self, entries: &[Entry], syncs: bool) -> io::Result<usize> {
        assert!(
            self.synced <= self.bytes && self.bytes <= self.room,
            "{} bytes are on disk and {} written, of a file of {}",
            self.synced,
            self.bytes,
            self.room
        );
        assert_eq!(
            self.secured, self.bytes,
            "one group is written once the one before is secured"
        );
        self.buffer.clear();
        // Files end soon after 64 MiB, and a group is a few chunks.
        let synced = u32::try_from(self.synced).unwrap_or(u32::MAX);
        for Entry { head, payload } in entries {
            record::put(head, synced, payload, &mut self.buffer);
        }
        let bytes = self.buffer.len();
        if syncs {
            self.put_room();
        }
        fault::pass("log.before_write");
        if fault::strikes("log.partial_write") {
            let half = &self.buffer[..bytes / 2];
            self.file.write_all_at(half, self.bytes as u64)?;
            std::process::abort();
        }
        self.file.write_all_at(&self.buffer, self.bytes as u64)?;
        fault::pass("log.before_sync");
        self.room = self.room.max(self.bytes + self.buffer.len());
        self.bytes += bytes;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(bytes)
    }

    /// Adds zeros to the buffer if its records go beyond the room.
    fn put_room(&mut self) {
        let end = self.bytes + self.buffer.len();
        if end <= self.room || end >= FILE_BYTES_MAX || self.buffer.len() >= ROOM_BYTES_MAX {
            return;
        }
        let room = end + end.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX);
        let room = room.next_multiple_of(ROOM_BYTES_MIN);
        self.buffer.resize(room - self.bytes, 0);
    }

    /// Makes what was written durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if !fault::is_planted("log.skipped_sync") {
            self.file.sync_data()?;
        }
        fault::pass("log.after_sync");
        self.synced = self.bytes;
        Ok(())
    }

    /// Makes the file what was written to it, and durable: no more comes.
    pub(super) fn complete(&mut self) -> io::Result<()> {
        if self.room == self.bytes {
            return self.sync();
        }
        self.cut_room()?;
        self.file.sync_all()?;
        fault::pass("log.after_sync");
        self.synced = self.bytes;
        Ok(())
    }

    /// Takes the room away again.
    pub(super) fn cut_room(&mut self) -> io::Result<()> {
        if self.room > self.bytes {
            self.file.set_len(self.bytes as u64)?;
            self.room = self.bytes;
        }
        Ok(())
    }
}
