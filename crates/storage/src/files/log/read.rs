//! Reading a log's files, and distinguishing a torn tail from damage.

use std::{
    io,
    path::{Path, PathBuf},
};

use aerostat_types::{CommitTs, TenantId};

use super::record::{self, FILE_HEAD_BYTES, FileHead, Record};
use crate::{
    RecoverError,
    files::{codec::BadBytes, disk::Disk, origin::Timeline},
};

/// The files of a folder with their numbers, ascending.
pub(crate) fn files(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for (path, _) in disk.list(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(number_of);
        found.extend(number.map(|number| (number, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// The name of a log file.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}.log")
}

/// The number of the log file with this name, if it is one's.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

/// What a file's place says that its header must.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) tenant: TenantId,
    /// `None` if nothing else of the tenant says.
    pub(crate) timeline: Option<Timeline>,
    pub(crate) number: u64,
    /// Only the last file may have a torn tail.
    pub(crate) is_last: bool,
}

/// A file in memory.
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    /// `None` of a file whose beginning was not written to its end.
    pub(crate) head: Option<FileHead>,
    bytes: Vec<u8>,
    /// Bytes that count. What is behind them is a torn tail.
    pub(crate) end: usize,
}

impl LogFile {
    /// Reads a file and finds its end.
    ///
    /// # Errors
    /// [`RecoverError::Io`], [`RecoverError::Damaged`].
    pub(crate) fn read(
        disk: &dyn Disk,
        path: &Path,
        expected: Expected,
    ) -> Result<LogFile, RecoverError> {
        let bytes = disk.read(path).map_err(RecoverError::io(path))?;
        LogFile::of(path.to_owned(), bytes, expected)
    }

    /// Finds the end of a file that was read.
    ///
    /// # Errors
    /// [`RecoverError::Damaged`].
    pub(crate) fn of(
        path: PathBuf,
        bytes: Vec<u8>,
        expected: Expected,
    ) -> Result<LogFile, RecoverError> {
        let damaged = |offset, what| RecoverError::damaged(&path, offset, BadBytes(what));
        let head = FileHead::parse(&bytes);
        let mut end = 0;
        match head {
            Some(head) if head.number != expected.number => {
                return Err(damaged(0, "the file has another file's number"));
            }
            Some(head) if head.origin.tenant != expected.tenant => {
                return Err(damaged(0, "the file is another tenant's"));
            }
            Some(head)
                if expected
                    .timeline
                    .is_some_and(|own| head.origin.timeline != own) =>
            {
                return Err(damaged(0, "the file is of another timeline"));
            }
            Some(_) => {
                end = FILE_HEAD_BYTES;
                while let Some((_, length)) = record::parse(&bytes[end..]) {
                    end += length;
                }
            }
            None if FileHead::is_of_other_format(&bytes) => {
                return Err(damaged(0, "a format this version does not know"));
            }
            None => {}
        }
        let torn = end < bytes.len() || end == 0;
        if torn && (!expected.is_last || record::proves_damage(&bytes, end)) {
            return Err(damaged(end, "no valid record where there had been one"));
        }
        Ok(LogFile {
            path,
            head,
            bytes,
            end,
        })
    }

    /// The bytes of the records before an offset.
    pub(crate) fn records_before(&self, end: usize) -> &[u8] {
        self.bytes.get(FILE_HEAD_BYTES..end).unwrap_or_default()
    }

    /// Bytes from the beginning that are known to have been on disk: behind them the system may have
    /// what the disk refused to a process before this one.
    pub(crate) fn synced(&self) -> usize {
        let marks = self.records().map(|(_, record)| record.synced as usize);
        marks.max().unwrap_or(0).min(self.end)
    }

    /// Bytes behind the end, without the room that was made for more.
    pub(crate) fn torn_bytes(&self) -> u64 {
        let behind = &self.bytes[self.end..];
        let torn = behind.iter().rposition(|byte| *byte != 0);
        torn.map_or(0, |last| last as u64 + 1)
    }

    /// The records with their offsets.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, Record<'_>)> + '_ {
        let mut at = FILE_HEAD_BYTES;
        std::iter::from_fn(move || {
            let (record, length) = record::take_apart(self.bytes.get(at..self.end)?)?;
            let offset = at;
            at += length;
            Some((offset, record))
        })
    }

    /// An error about a record.
    pub(crate) fn damaged(&self, offset: usize, what: BadBytes) -> RecoverError {
        RecoverError::damaged(&self.path, offset, what)
    }
}

/// Notices entries that are missing: every LSN is a record's, or one says that there is nothing at it.
#[derive(Clone, Copy)]
pub(crate) struct Sequence {
    /// What is known up to here without the log.
    from: CommitTs,
    previous: Option<CommitTs>,
}

impl Sequence {
    /// Of a log that goes on after `from`, or begins before.
    pub(crate) fn after(from: CommitTs) -> Sequence {
        Sequence {
            from,
            previous: None,
        }
    }

    /// The next record with a place.
    ///
    /// # Errors
    /// When there should be one before it.
    pub(crate) fn follow(&mut self, record: &Record<'_>) -> Result<(), BadBytes> {
        let places = record::places(record)?;
        let follows = match self.previous {
            Some(previous) => *places.start() == previous.0 + 1,
            None => *places.start() <= self.from.0 + 1,
        };
        self.previous = Some(record.head.lsn);
        if follows {
            Ok(())
        } else {
            Err(BadBytes("an entry before this is missing"))
        }
    }

    /// The next file, behind what its header says.
    ///
    /// # Errors
    /// When the files before it lack some of that, and nothing else has it.
    pub(crate) fn begin_file(&mut self, after: CommitTs) -> Result<(), BadBytes> {
        match self.previous {
            Some(previous) if previous < after && after <= self.from => self.previous = Some(after),
            Some(previous) if previous < after => {
                return Err(BadBytes("an entry before this is missing"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The newest of which a record speaks.
    pub(crate) fn said(&self) -> Option<CommitTs> {
        self.previous
    }

    /// The newest that is known.
    pub(crate) fn last(&self) -> CommitTs {
        self.previous.map_or(self.from, |last| last.max(self.from))
    }
}

#[cfg(test)]
mod tests {
    use aerostat_types::TxnId;

    use super::*;
    use crate::files::log::record::{Head, Kind, nothing_from};

    /// What a sequence says of records in order, each by the first place that it speaks of and its own; a
    /// file begins behind a place where both are 0.
    fn follows(from: u64, records: &[(u64, u64)]) -> bool {
        let mut sequence = Sequence::after(CommitTs(from));
        let mut follow = |&(first, lsn): &(u64, u64)| {
            let kind = match first == lsn {
                true => Kind::Commit,
                false => Kind::Nothing,
            };
            let payload = nothing_from(CommitTs(first));
            let head = Head {
                kind,
                lsn: CommitTs(lsn),
                txn: TxnId(0),
                wall_micros: 0,
            };
            let record = Record {
                head,
                synced: 0,
                payload: &payload,
            };
            match first {
                0 => sequence.begin_file(CommitTs(lsn)),
                _ => sequence.follow(&record),
            }
        };
        records.iter().all(|record| follow(record).is_ok())
    }

    #[test]
    fn every_place_is_spoken_of_or_in_the_checkpoint() {
        assert!(follows(0, &[(1, 1), (2, 5), (6, 6)]));
        assert!(!follows(0, &[(1, 1), (3, 5)]));
        assert!(!follows(0, &[(1, 1), (1, 5)]));
        assert!(!follows(0, &[(3, 2)]));
        // A file says what is before it.
        assert!(follows(0, &[(1, 3), (0, 3), (4, 4)]));
        assert!(!follows(0, &[(1, 3), (0, 5), (6, 6)]));
        // What the log lost and the checkpoint has is no gap, but for whoever has an older one.
        assert!(follows(5, &[(1, 3), (0, 5), (6, 6)]));
        assert!(!follows(4, &[(1, 3), (0, 5), (6, 6)]));
    }
}
