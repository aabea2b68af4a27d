//! The order of a log whose records are another node's: a copy's.
//!
//! Its places are that node's, and so is what it says of places at which there is nothing, and of
//! transactions that will not commit. Nothing of this node's own is taken meanwhile. It is never mended of a
//! failure, since what was in doubt may be committed: the copy is opened again with what its disk has.

use super::{super::point::StreamPoint, *};

/// Why a copy takes nothing of its own.
pub(super) fn refused() -> LogFailure {
    let source = io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the database is a copy of another node's",
    );
    LogFailure {
        doing: "take a change".to_owned(),
        source: Arc::new(source),
    }
}

impl Order {
    /// Whether its records are another node's.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Takes records of another node from now on. `chunked` are those of its transactions that have chunks here,
    /// each with the file that may have the first.
    ///
    /// # Panics
    /// When a transaction of this node has not ended.
    pub(crate) fn follow(&mut self, chunked: impl Iterator<Item = (TxnId, u64)>) {
        assert!(
            self.said == self.enqueued && self.chunked.is_empty(),
            "a log changes hands between two records, and nobody is about to commit"
        );
        self.follows = true;
        self.chunked.extend(chunked);
    }

    /// Queues a record of another node's log, the next one; of a block's commit, `parts` are the statements
    /// of which there are chunks.
    ///
    /// # Errors
    /// The failure because of which the log takes nothing.
    pub(crate) fn receive(&mut self, entry: Entry, parts: &[TxnId]) -> Result<(), LogFailure> {
        assert!(self.follows, "a log of one's own has its own records");
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let Head { kind, lsn, txn, .. } = entry.head;
        self.wall_micros = self.wall_micros.max(entry.head.wall_micros);
        self.since += 1;
        match kind {
            Kind::Rows => {
                self.chunked.entry(txn).or_insert(self.file_number);
            }
            Kind::Abort => {
                if let Some(from) = self.chunked.remove(&txn) {
                    self.has_aborted(from);
                }
            }
            _ => {
                assert!(lsn > self.enqueued, "LSNs ascend");
                self.take_place(lsn, txn, parts);
                self.since = 0;
            }
        }
        self.push(entry);
        Ok(())
    }

    /// Another node leads: nothing is taken any more, and what is not acknowledged may be committed or not.
    pub(crate) fn depose(&mut self) {
        let source = io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "another node has taken over the database",
        );
        let failure = LogFailure {
            doing: "have its copies commit".to_owned(),
            source: Arc::new(source),
        };
        self.is_deposed = true;
        self.failed(self.file_number, failure);
    }

    /// Whether a transaction has chunks and has not ended.
    pub(crate) fn has_chunks(&self, txn: TxnId) -> bool {
        self.chunked.contains_key(&txn)
    }

    /// Transactions whose chunks were found, with the first file that has one, and which a process before this
    /// one had, will not commit.
    pub(crate) fn abort(&mut self, mut unfinished: Vec<(TxnId, u64)>) {
        // The same log each time it is played; what a statement of a block has changed of another's before it
        // ends first.
        unfinished.sort_unstable();
        for (txn, from) in unfinished.into_iter().rev() {
            self.say_abort(txn, from);
        }
    }

    /// Takes over from the node whose records it had: those of its transactions that have not committed will
    /// not.
    pub(crate) fn lead(&mut self) {
        let unfinished = self.chunked.drain().collect();
        self.follows = false;
        self.abort(unfinished);
    }

    /// Up to where it has received.
    pub(crate) fn received(&self) -> StreamPoint {
        StreamPoint {
            after: self.enqueued,
            since: self.since,
        }
    }

    /// Everything through this is queued.
    pub(crate) fn enqueued(&self) -> CommitTs {
        self.enqueued
    }

    /// Everything through this is written.
    pub(crate) fn written_through(&self) -> CommitTs {
        self.written
    }
}
