//! The medium of a log's records: what the log asks of it, and its implementation by files of a
//! folder.
//!
//! ```text
//!  Log ── groups, one at a time ──► Media ─┬─ Files ── the file at the end (writer)
//!                                          └─ whatever else keeps bytes
//! ```
//!
//! The thread that writes a group has the medium to itself from `append` to `secure`. After an
//! error only [`Media::mend`] is called, which need not succeed.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    order::{Doubt, Entry},
    read::file_name,
    record::{FILE_HEAD_BYTES, FileHead},
    writer::Writer,
};
#[cfg(test)]
use crate::files::disk::{Opened, SystemDisk};
use crate::files::{disk::Disk, origin::Origin};

/// Keeps a log's records, in files that are numbered.
pub(super) trait Media: Send {
    /// Bytes of the file at the end, with its header.
    fn bytes(&self) -> usize;

    /// Puts records behind all others; `syncs` whether [`Media::sync`] follows. Gives how many bytes
    /// they take.
    ///
    /// # Errors
    /// Any part of them may be there, and any part not.
    fn append(&mut self, entries: &[Entry], syncs: bool) -> io::Result<usize>;

    /// Makes everything that was appended durable.
    ///
    /// # Errors
    /// Whatever had not been durable may be lost, or not.
    fn sync(&mut self) -> io::Result<()>;

    /// Notes that everything that was appended is as durable as it should be: from here on it is
    /// what [`Media::mend`] must find again.
    fn secure(&mut self);

    /// Makes the file at the end durable, and nothing but its records: no more comes.
    ///
    /// # Errors
    /// As [`Media::sync`].
    fn complete(&mut self) -> io::Result<()>;

    /// Begins another file, which is durable before anything is in it.
    ///
    /// # Errors
    /// It may be there, or a part of it. The file before is still the one at the end.
    fn create(&mut self, head: FileHead) -> io::Result<()>;

    /// Makes the file at the end sound after an error: with what was secured, the word that there is nothing
    /// in the places in doubt, and nothing else, all of it durable.
    ///
    /// # Errors
    /// When that cannot be done: a later call may do better.
    fn mend(&mut self, origin: Origin, doubt: Doubt) -> io::Result<()>;

    /// Nothing more comes, and nothing has failed.
    fn close(&mut self);

    /// Bytes of the file at the end: those of its records, those that are durable, and with the
    /// room for more.
    #[cfg(test)]
    fn ends(&self) -> Ends;

    /// Refuses what is appended from now on, until it is mended.
    #[cfg(test)]
    fn fill(&mut self);
}

/// Where the parts of a file end.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) bytes: usize,
    pub(crate) synced: usize,
    pub(crate) room: usize,
}

/// The files of a folder.
pub(super) struct Files {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    pub(super) writer: Writer,
}

impl Files {
    /// Goes on in a file behind so many bytes, `synced` of which are on disk, and cuts off the rest; a
    /// file without a header is begun anew.
    ///
    /// # Errors
    /// As the disk has them.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        head: FileHead,
        bytes: usize,
        synced: usize,
    ) -> io::Result<Files> {
        let writer = if bytes >= FILE_HEAD_BYTES {
            {
                let path = folder.join(file_name(head.number));
                Writer::open(&*disk, &path, bytes, synced)?
            }
        } else {
            Writer::create(&*disk, folder, head)?
        };
        Ok(Files {
            disk,
            folder: folder.to_owned(),
            writer,
        })
    }
}

impl Media for Files {
    fn bytes(&self) -> usize {
        self.writer.bytes
    }

    fn append(&mut self, entries: &[Entry], syncs: bool) -> io::Result<usize> {
        self.writer.append(entries, syncs)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.writer.sync()
    }

    fn secure(&mut self) {
        self.writer.secured = self.writer.bytes;
    }

    fn complete(&mut self) -> io::Result<()> {
        self.writer.complete()
    }

    fn create(&mut self, head: FileHead) -> io::Result<()> {
        self.writer = Writer::create(&*self.disk, &self.folder, head)?;
        Ok(())
    }

    fn mend(&mut self, origin: Origin, doubt: Doubt) -> io::Result<()> {
        self.write_anew(origin, doubt)
    }

    fn close(&mut self) {
        // What cannot be cut off is in nobody's way.
        let _ = self.writer.cut_room();
    }

    #[cfg(test)]
    fn ends(&self) -> Ends {
        Ends {
            bytes: self.writer.bytes,
            synced: self.writer.synced,
            room: self.writer.room,
        }
    }

    #[cfg(test)]
    fn fill(&mut self) {
        let full = SystemDisk.open(Path::new("/dev/full"), Opened::Write);
        self.writer.file = full.expect("the system has /dev/full");
    }
}
