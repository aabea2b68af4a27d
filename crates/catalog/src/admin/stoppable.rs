//! Backup places whose files stop in the middle when the statement was cancelled.
//!
//! A backup is written or read by a thread of its own that waits for disks and networks, and the
//! end of the statement alone does not end that. The thread checks between two pieces of a file.

use std::io::{self, Read};

use aerostat_storage::backup::{BackupFile, BackupSink, BackupSource};
use aerostat_txn::CancelToken;

/// A place of a statement.
pub(super) struct Stoppable<'a, P: ?Sized> {
    pub(super) place: &'a P,
    pub(super) cancel: &'a CancelToken,
}

impl BackupSink for Stoppable<'_, dyn BackupSink> {
    fn put(&self, name: &str, content: &mut dyn Read, bytes: u64) -> io::Result<()> {
        let mut content = StoppableFile {
            content,
            cancel: self.cancel,
        };
        self.place.put(name, &mut content, bytes)
    }

    fn has(&self, file: &BackupFile) -> io::Result<bool> {
        check(self.cancel)?;
        self.place.has(file)
    }

    fn finish(&self) -> io::Result<()> {
        self.place.finish()
    }
}

impl BackupSource for Stoppable<'_, dyn BackupSource> {
    fn names(&self) -> io::Result<Vec<String>> {
        check(self.cancel)?;
        self.place.names()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        check(self.cancel)?;
        Ok(Box::new(StoppableFile {
            content: self.place.open(name)?,
            cancel: self.cancel,
        }))
    }
}

struct StoppableFile<'a, R> {
    content: R,
    cancel: &'a CancelToken,
}

impl<R: Read> Read for StoppableFile<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        check(self.cancel)?;
        self.content.read(buffer)
    }
}

fn check(cancel: &CancelToken) -> io::Result<()> {
    if cancel.is_cancelled() {
        return Err(io::Error::other("the statement was cancelled"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use aerostat_storage::backup::{FolderSink, FolderSource};

    use super::*;

    #[test]
    fn a_cancelled_statement_writes_and_reads_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let sink = FolderSink::for_archive(folder.path()).unwrap();
        let source = FolderSource::new(folder.path());
        let cancel = CancelToken::new();
        let sink = Stoppable::<dyn BackupSink> {
            place: &sink,
            cancel: &cancel,
        };
        let source = Stoppable::<dyn BackupSource> {
            place: &source,
            cancel: &cancel,
        };
        sink.put("a", &mut &b"abc"[..], 3).unwrap();
        let mut file = source.open("a").unwrap();
        let mut first = [0];
        file.read_exact(&mut first).unwrap();
        cancel.cancel();
        assert!(file.read(&mut first).is_err());
        assert!(source.open("a").is_err() && source.names().is_err());
        assert!(sink.put("b", &mut &b"abc"[..], 3).is_err());
        assert!(!folder.path().join("b").exists());
    }
}
