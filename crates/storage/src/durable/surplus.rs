//! A missing log file that a manifest asks for although nothing needs it.
//!
//! Manifests without `last_txn` may ask for one file too many. If a transaction's first chunk was
//! queued while a checkpoint began file F + 1, the chunk is in that file, but the transaction was
//! noted as one that may have it in file F. The checkpoint removed F, since nobody had anything
//! in it, and the next one, with the transaction still open, asked for F.
//!
//! ```text
//!  manifest at S, log from F     F is not there, all files from F + 1 on are
//!  header of F + 1, after D      D ≤ S: whatever committed in F is in the checkpoint
//!  ROWS of T in F + 1            T had not ended at S: why F is asked for
//!  BLOCK after S, of 7 and 8     both have ROWS in what is there
//! ```
//!
//! Such a tenant is opened if all of that holds. The files cannot show whether a transaction with
//! ROWS in F + 1 had some before; that none had is the reason why F was removed. Newer manifests
//! ask only for what is needed, so a tenant that misses one of these files is damaged.

use std::{collections::HashMap, path::PathBuf};

use aerostat_types::{CommitTs, TxnId};

use crate::files::{
    codec::BadBytes,
    log::{read::LogFile, record::Kind},
    manifest::Manifest,
};

/// Whether the first file that the manifest asks for may be one that nothing needs: it is
/// missing, and the next one is there.
pub(crate) fn may_be_missing(manifest: &Manifest, files: &[(u64, PathBuf)]) -> bool {
    let is_next = |(number, _): &(u64, PathBuf)| *number == manifest.log_from + 1;
    manifest.last_txn.is_none() && files.first().is_some_and(is_next)
}

/// Examines the file after the missing one. `committed` says of all transactions with chunks
/// in what is there when they committed, if they did; `at` is the manifest's point.
///
/// # Errors
/// When the missing file may have been needed.
pub(crate) fn examine(
    next: &LogFile,
    committed: &HashMap<TxnId, Option<CommitTs>>,
    at: CommitTs,
) -> Result<(), BadBytes> {
    let is_open = |id: &TxnId| {
        committed
            .get(id)
            .is_some_and(|ts| ts.is_none_or(|ts| ts > at))
    };
    let is_asked_for = next
        .records()
        .any(|(_, record)| record.head.kind == Kind::Rows && is_open(&record.head.txn));
    if next.head.is_some_and(|head| head.after <= at) && is_asked_for {
        Ok(())
    } else {
        Err(BadBytes("a log file is missing"))
    }
}
