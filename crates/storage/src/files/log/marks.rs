//! Where a place of the log is found, without reading all of it.

use std::{collections::VecDeque, io, ops::Range};

use aerostat_types::CommitTs;

use super::{
    super::disk::DiskFile,
    record::{self, FILE_HEAD_BYTES},
    writer::read_of,
};

/// As many as there are in the files that are kept for copies.
const MARKS_MAX: usize = 1_024;

/// What is read at once of a file in which a place is looked for.
const SOUGHT_BYTES: usize = 1 << 20;

/// Ends that the files had, here and there, as this process wrote them: who looks for a place need not read a file from
/// its beginning.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Ascending.
    ends: VecDeque<(CommitTs, u64, usize)>,
}

impl Marks {
    /// The files, which speak of places through `said`, end with so many bytes of this one now. It is noted if the last
    /// end that was is `away` bytes away.
    pub(super) fn note(&mut self, said: CommitTs, (file, bytes): (u64, usize), away: usize) {
        let is_near =
            |(_, of, before): &(CommitTs, u64, usize)| *of == file && bytes < before + away;
        if bytes < away || self.ends.back().is_some_and(is_near) {
            return;
        }
        if self.ends.len() == MARKS_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back((said, file, bytes));
    }

    /// A file is written anew.
    pub(super) fn forget_from(&mut self, file: u64) {
        self.ends.retain(|(_, of, _)| *of < file);
    }

    /// From which byte on a file is to be read for what is behind a place.
    pub(super) fn before(&self, file: u64, after: CommitTs) -> usize {
        // At an end that speaks of the place itself there may be more behind its record.
        let at = self.ends.partition_point(|(said, ..)| *said < after);
        let end = at.checked_sub(1).map(|at| self.ends[at]);
        end.filter(|(_, of, _)| *of == file)
            .map_or(FILE_HEAD_BYTES, |(_, _, bytes)| bytes)
    }
}

/// Where the record that comes after that of a place begins, in bytes of a file that begin with a record; `None`
/// where the place has none.
pub(super) fn behind_record(
    file: &dyn DiskFile,
    bytes: Range<usize>,
    place: CommitTs,
) -> io::Result<Option<usize>> {
    let mut at = bytes.start;
    let mut wanted = SOUGHT_BYTES;
    while at < bytes.end {
        let part = read_of(file, at..(at + wanted).min(bytes.end))?;
        let mut done = 0;
        while let Some((record, length)) = record::take_apart(&part[done..]) {
            done += length;
            if record.head.kind.has_place() && record.head.lsn >= place {
                return Ok((record.head.lsn == place).then_some(at + done));
            }
        }
        at += done;
        wanted = match record::length(&part[done..]) {
            // It is larger than what was read.
            Some(length) if done == 0 && part.len() < length && length <= bytes.end - at => length,
            _ if done == 0 => return Ok(None),
            _ => SOUGHT_BYTES,
        };
    }
    Ok(None)
}
