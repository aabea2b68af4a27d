//! Cutting a copy's log back to where it goes on from its leader's.
//!
//! ```text
//!  │ commit 7 │ rows 64 │ commit 8 │ rows 64 │ rows 65 │            a copy that was killed
//!  └────────────────────────────────┤                               what counts: it asks for what is behind 8
//! ```
//!
//! A copy asks its leader for what is behind a record with a place. Chunks of its own behind that would come
//! twice, or not at all: the log that a new leader has may have others there. And what is behind the place
//! at which two logs part is not what the tenant committed.
//!
//! Chunks before the last place are kept, and their transactions may commit later: what they did is done
//! again from the log before the copy goes on.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use aerostat_types::{CommitTs, TenantId, TxnId};

use crate::{
    RecoverError,
    files::{
        codec::BadBytes,
        disk::{Disk, Opened},
        log::{
            read::{self, Expected, LogFile},
            record::{self, FILE_HEAD_BYTES, Kind, Record},
        },
        manifest::Manifest,
    },
};

/// Where a record is: its file, and its first byte there.
pub(crate) type Place = (u64, usize);

/// Transactions that have chunks in a log, and have not ended there.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(BTreeMap<TxnId, Vec<Place>>);

impl Unfinished {
    /// Each with the first file that has a chunk of it.
    pub(crate) fn chunked(&self) -> impl Iterator<Item = (TxnId, u64)> + '_ {
        let first = |chunks: &Vec<Place>| chunks.first().map(|place| place.0);
        self.0
            .iter()
            .filter_map(move |(txn, chunks)| Some((*txn, first(chunks)?)))
    }

    /// All their chunks, in the order of the log.
    pub(crate) fn chunks(&self) -> Vec<(Place, TxnId)> {
        let all = self.0.iter();
        let of = |(txn, chunks): (&TxnId, &Vec<Place>)| -> Vec<_> {
            chunks.iter().map(|place| (*place, *txn)).collect()
        };
        let mut chunks: Vec<_> = all.flat_map(of).collect();
        chunks.sort_unstable();
        chunks
    }

    fn end(&mut self, record: &Record<'_>) -> Result<(), BadBytes> {
        self.0.remove(&record.head.txn);
        for statement in record::statements(record)? {
            self.0.remove(&statement);
        }
        Ok(())
    }
}

/// What stands behind the last record with a place.
enum Behind {
    Rows(TxnId, Place),
    Abort(TxnId),
}

/// Cuts off what is behind the last record with a place, or behind the last through a place, and says what
/// has not ended before that.
///
/// # Errors
/// [`RecoverError`]; also when the checkpoint is behind that place.
pub(crate) fn cut_back(
    disk: &dyn Disk,
    folder: &Path,
    tenant: TenantId,
    manifest: Option<&Manifest>,
    through: Option<CommitTs>,
) -> Result<Unfinished, RecoverError> {
    let at = manifest.map_or(CommitTs(0), |manifest| manifest.at);
    if through.is_some_and(|through| through < at) {
        return Err(RecoverError::Diverged {
            path: folder.to_owned(),
            what: "its checkpoint is of a commit that did not come to be",
        });
    }
    let from = manifest.map_or(1, |manifest| manifest.log_from);
    let mut files = read::files(disk, folder).map_err(RecoverError::io(folder))?;
    files.retain(|(number, _)| *number >= from);
    let mut unfinished = Unfinished::default();
    let mut behind = Vec::new();
    // The position of the file in the list, and the byte.
    let mut end = (0, FILE_HEAD_BYTES);
    let mut found_end = 0;
    'files: for (position, (number, path)) in files.iter().enumerate() {
        let expected = Expected {
            tenant,
            timeline: None,
            number: *number,
            is_last: position + 1 == files.len(),
        };
        let file = LogFile::read(disk, path, expected)?;
        found_end = file.end;
        if file.head.is_none() {
            // It is begun anew when the log is opened.
            continue;
        }
        for (offset, record) in file.records() {
            let head = record.head;
            match head.kind {
                Kind::Rows => behind.push(Behind::Rows(head.txn, (*number, offset))),
                Kind::Abort => behind.push(Behind::Abort(head.txn)),
                _ if through.is_some_and(|through| head.lsn > through) => break 'files,
                _ => {
                    for one in behind.drain(..) {
                        match one {
                            Behind::Rows(txn, place) => {
                                unfinished.0.entry(txn).or_default().push(place);
                            }
                            Behind::Abort(txn) => {
                                unfinished.0.remove(&txn);
                            }
                        }
                    }
                    let ended = unfinished.end(&record);
                    ended.map_err(|what| file.damaged(offset, what))?;
                    let bytes = record::HEAD_BYTES + record.payload.len();
                    end = (position, offset + bytes);
                }
            }
        }
    }
    if !files.is_empty() && end != (files.len() - 1, found_end) {
        cut(disk, folder, &files, end)?;
    }
    Ok(unfinished)
}

fn cut(
    disk: &dyn Disk,
    folder: &Path,
    files: &[(u64, PathBuf)],
    (position, bytes): (usize, usize),
) -> Result<(), RecoverError> {
    // The last first: whatever a crash leaves is the beginning of the log.
    for (_, path) in files[position + 1..].iter().rev() {
        disk.remove_file(path).map_err(RecoverError::io(path))?;
        disk.sync_folder(folder).map_err(RecoverError::io(folder))?;
    }
    let path = &files[position].1;
    let found = disk.look(path).map_err(RecoverError::io(path))?;
    if found.bytes <= bytes as u64 {
        return Ok(());
    }
    let file = disk.open(path, Opened::Write);
    let file = file.map_err(RecoverError::io(path))?;
    file.set_len(bytes as u64).map_err(RecoverError::io(path))?;
    file.sync_all().map_err(RecoverError::io(path))?;
    tracing::info!(
        path = %path.display(),
        bytes = found.bytes - bytes as u64,
        "a copy's log ends before these, which it asks its leader for"
    );
    Ok(())
}
