//! The state of a block: which of its statements runs, which are kept, what the next one sees.
//!
//! A statement shares this with its [`Block`](crate::Block), which may end or roll back to a
//! savepoint while the statement runs. The statement is then abandoned: its token is cancelled,
//! and its changes are undone when it is handed in.
//!
//! Lock order: the state's mutex, then those of the transactions. Redo goes to the log with the
//! mutex held, so that no other redo overtakes it.

use std::{ops::Range, sync::Arc};

use aerostat_sync::Mutex;
use aerostat_types::{CommitTs, TxnId};

use crate::{
    CancelToken, CommitError, CommitLog, Isolation, LogFailure, RelationLocks, Snapshot,
    own::OwnIds, participant::Work, redo::REDO_BYTES_MAX, txns::TxnManager,
};

/// What a block shares with its running statement.
pub(crate) struct Shared {
    pub(crate) txns: Arc<TxnManager>,
    /// Stands for the block where transactions wait for each other and in the log.
    pub(crate) id: TxnId,
    /// The newest commit there was.
    pub(crate) began: CommitTs,
    pub(crate) locks: Arc<RelationLocks>,
    pub(crate) state: Mutex<State>,
}

/// Where a block stands.
pub(crate) struct State {
    pub(crate) isolation: Isolation,
    /// Whether a snapshot was taken.
    pub(crate) has_begun: bool,
    /// The point of all snapshots, under [`Isolation::RepeatableRead`].
    point: Option<Snapshot>,
    /// For statements to come.
    pub(crate) ids: Range<u64>,
    /// The statement that has not ended.
    pub(crate) running: Option<(TxnId, CancelToken)>,
    /// By ascending id.
    pub(crate) kept: Vec<Work>,
    /// So many of `kept` have no redo in memory.
    spilled: usize,
    /// Bytes of redo of the others.
    redo_bytes: usize,
    /// Those of `kept` up to its last.
    own: Arc<OwnIds>,
}

impl Shared {
    /// Of a block with the first of `ids` for itself.
    pub(crate) fn new(
        txns: Arc<TxnManager>,
        mut ids: Range<u64>,
        began: CommitTs,
        isolation: Isolation,
    ) -> Self {
        let id = TxnId(ids.start);
        ids.start += 1;
        let state = State {
            isolation,
            has_begun: false,
            point: None,
            ids,
            running: None,
            kept: Vec::new(),
            spilled: 0,
            redo_bytes: 0,
            own: Arc::default(),
        };
        Self {
            locks: RelationLocks::of(Arc::clone(&txns), id),
            txns,
            id,
            began,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn id(&self) -> TxnId {
        self.id
    }

    pub(crate) fn isolation(&self) -> Isolation {
        self.state.lock().isolation
    }

    /// Takes what a statement did, unless the block has given it up: then it is undone.
    pub(crate) fn keep(&self, work: Work) -> Result<(), CommitError> {
        let mut state = self.state.lock();
        if !state.is_running(work.id) {
            drop(state);
            work.undo(&self.txns);
            return Err(CommitError::Cancelled);
        }
        state.running = None;
        state.redo_bytes += work.redo.len();
        assert!(
            state.kept.last().is_none_or(|last| last.id < work.id),
            "a block keeps its statements in the order in which they began"
        );
        state.kept.push(work);
        if state.redo_bytes >= REDO_BYTES_MAX
            && let Some(log) = self.txns.log()
        {
            // What a log that has failed refuses it refuses the commit for, also once it is mended.
            let _ = state.spill(&**log);
        }
        Ok(())
    }

    /// A statement that is undone.
    pub(crate) fn leave(&self, id: TxnId) {
        let mut state = self.state.lock();
        if state.is_running(id) {
            state.running = None;
        }
    }

    /// Gives the redo of all kept statements to the log. Comes before redo of the one
    /// that runs does.
    pub(crate) fn spill(&self, log: &dyn CommitLog) -> Result<(), LogFailure> {
        self.state.lock().spill(log)
    }
}

impl State {
    fn is_running(&self, id: TxnId) -> bool {
        self.running.as_ref().is_some_and(|running| running.0 == id)
    }

    /// The id of the statement to come.
    pub(crate) fn next_id(&mut self, txns: &TxnManager) -> TxnId {
        if self.ids.is_empty() {
            self.ids = txns.take_ids();
        }
        TxnId(self.ids.start)
    }

    /// What a statement that begins now sees.
    pub(crate) fn snapshot(&mut self, txns: &Arc<TxnManager>) -> Snapshot {
        let point = match self.isolation {
            Isolation::ReadCommitted => txns.snapshot(),
            Isolation::RepeatableRead => self.point.get_or_insert_with(|| txns.snapshot()).clone(),
        };
        self.snapshot_at(point)
    }

    /// The point with what the block has kept by now.
    pub(crate) fn snapshot_at(&mut self, point: Snapshot) -> Snapshot {
        self.has_begun = true;
        // Only now, for by now snapshots with the ids so far are mostly gone: then
        // nothing is copied.
        let last = self.own.last();
        let new = self.kept.partition_point(|work| Some(work.id) <= last);
        if new < self.kept.len() {
            let own = Arc::make_mut(&mut self.own);
            self.kept[new..].iter().for_each(|work| own.push(work.id));
        }
        if self.own.is_empty() {
            point
        } else {
            point.with_own(Arc::clone(&self.own))
        }
    }

    /// Whoever runs it finds it cancelled, and undoes it.
    pub(crate) fn give_up_running(&mut self, txns: &TxnManager) {
        if let Some((id, token)) = self.running.take() {
            token.cancel();
            txns.abort(id);
        }
    }

    /// Takes away the statements from this id on.
    pub(crate) fn cut(&mut self, txns: &TxnManager, from: TxnId) -> Vec<Work> {
        self.give_up_running(txns);
        if self.own.last() >= Some(from) {
            Arc::make_mut(&mut self.own).truncate(from);
        }
        let cut = self
            .kept
            .split_off(self.kept.partition_point(|work| work.id < from));
        self.spilled = self.spilled.min(self.kept.len());
        self.redo_bytes -= cut.iter().map(|work| work.redo.len()).sum::<usize>();
        cut
    }

    /// Takes everything: no statement is kept any more, and no snapshot is held.
    pub(crate) fn close(&mut self, txns: &TxnManager) -> Vec<Work> {
        self.point = None;
        let kept = self.cut(txns, TxnId(0));
        debug_assert!(
            self.redo_bytes == 0 && self.spilled == 0,
            "a block that keeps nothing counts no redo"
        );
        kept
    }

    fn spill(&mut self, log: &dyn CommitLog) -> Result<(), LogFailure> {
        for work in &mut self.kept[self.spilled..] {
            let mut redo = std::mem::take(&mut work.redo);
            self.spilled += 1;
            self.redo_bytes -= redo.len();
            if !redo.is_empty() {
                work.is_spilled = true;
                log.append_chunk(work.id, redo.take_bytes())?;
            }
        }
        Ok(())
    }
}
