//! Reading a log's files, and telling a torn tail from damage.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aerostat_types::TenantId;

use super::{
    codec::BadBytes,
    record::{self, FILE_HEAD_BYTES, FileHead, Record},
};
use crate::RecoverError;

/// The files of a folder with their numbers, ascending.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".log"))
            .filter(|digits| digits.len() == 16)
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// A file in memory.
pub(crate) struct LogFile {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
    /// Bytes that count. What is behind them is a torn tail.
    pub(crate) end: usize,
}

impl LogFile {
    /// Reads a file and finds its end. Only the last file may have a torn tail.
    ///
    /// # Errors
    /// [`RecoverError::Io`], [`RecoverError::Damaged`].
    pub(crate) fn read(
        path: &Path,
        number: u64,
        tenant: TenantId,
        is_last: bool,
    ) -> Result<LogFile, RecoverError> {
        let bytes = fs::read(path).map_err(RecoverError::io(path))?;
        let damaged = |offset, what| RecoverError::damaged(path, offset, BadBytes(what));
        let mut end = 0;
        match FileHead::parse(&bytes) {
            Some(head) if head.number != number => {
                return Err(damaged(0, "the file has another file's number"));
            }
            Some(head) if head.tenant != tenant => {
                return Err(damaged(0, "the file is another tenant's"));
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
        if torn && (!is_last || record::proves_damage(&bytes, end)) {
            return Err(damaged(end, "no valid record where there had been one"));
        }
        Ok(LogFile {
            path: path.to_owned(),
            bytes,
            end,
        })
    }

    /// Bytes behind the end.
    pub(crate) fn torn_bytes(&self) -> u64 {
        (self.bytes.len() - self.end) as u64
    }

    /// The records with their offsets.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, Record<'_>)> + '_ {
        let mut at = FILE_HEAD_BYTES;
        std::iter::from_fn(move || {
            let (record, length) = record::parse(self.bytes.get(at..self.end)?)?;
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
