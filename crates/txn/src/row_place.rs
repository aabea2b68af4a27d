//! A statement's places in the queues of rows, which it keeps from run to run.
//!
//! A statement that has waited for a row may have to be undone and to run again, as another
//! transaction. Its place in the row's queue (`queue`) stays meanwhile, so that no later
//! statement gets the row first. A statement whose run takes longer than [`RUN_MAX`] goes to the
//! end of the queue; otherwise the row would be withheld for that long while nobody holds it.

use std::{
    sync::{Arc, atomic},
    time::{Duration, Instant},
};

use aerostat_sync::{AtomicUsize, Mutex, Ordering};
use aerostat_types::TxnId;

use crate::{RowTag, TxnManager, wait::WaitGraph};

/// A statement that ran for longer than this before it met a changed row does not keep its place.
const RUN_MAX: Duration = Duration::from_secs(1);

/// A statement's places among those that wait for rows, over all its runs. They are given up when
/// the last clone is dropped.
#[derive(Clone)]
pub struct RowPlace(Arc<Ticket>);

struct Ticket {
    txns: Arc<TxnManager>,
    id: u64,
    /// Those whose queues it is in. Locked before the transactions' mutex.
    rows: Mutex<Vec<RowTag>>,
    /// As many as `rows`.
    tickets: AtomicUsize,
    run: Mutex<Run>,
}

/// The run at hand of a statement.
struct Run {
    began: Instant,
    /// For how long it waited.
    slept: Duration,
}

impl Run {
    fn begun(began: Instant) -> Self {
        Self {
            began,
            slept: Duration::ZERO,
        }
    }
}

impl RowPlace {
    /// None yet, for a statement of this tenant.
    pub fn new(txns: &Arc<TxnManager>) -> Self {
        // A number that nobody acts on before it is handed over: no part of a model.
        static NEXT: atomic::AtomicU64 = atomic::AtomicU64::new(0);
        Self(Arc::new(Ticket {
            txns: Arc::clone(txns),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            rows: Mutex::default(),
            tickets: AtomicUsize::new(0),
            run: Mutex::new(Run::begun(txns.clock().now())),
        }))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.tickets.load(Ordering::Relaxed) == 0
    }

    /// Gives all up.
    pub fn leave(&self) {
        if !self.is_empty() {
            self.0.leave();
        }
    }

    /// The statement has what it waited for, or goes without it.
    pub fn leave_row(&self, row: RowTag) {
        let id = self.0.id;
        self.with_graph(|rows, graph| {
            rows.retain(|other| *other != row);
            graph.rows.leave(row, id);
        });
    }

    /// The statement runs under this owner from now on.
    pub(crate) fn begin_run(&self, owner: TxnId) {
        let ran = {
            let mut run = self.0.run.lock();
            let now = self.0.txns.clock().now();
            let ran = now.saturating_duration_since(run.began);
            let ran = ran.saturating_sub(run.slept);
            *run = Run::begun(now);
            ran
        };
        if self.is_empty() {
            return;
        }
        if ran > RUN_MAX {
            return self.leave();
        }
        let id = self.0.id;
        self.with_graph(|rows, graph| {
            rows.iter()
                .for_each(|row| graph.rows.set_owner(*row, id, owner));
        });
    }

    /// Enters the queue of a row, and leaves those of others, but for rows that another thread of
    /// the statement sleeps for.
    pub(crate) fn enter<T>(&self, row: RowTag, enter: impl FnOnce(&mut WaitGraph) -> T) -> T {
        let id = self.0.id;
        self.with_graph(|rows, graph| {
            rows.retain(|other| *other == row || graph.rows.leave_awake(*other, id));
            if !rows.contains(&row) {
                rows.push(row);
            }
            enter(graph)
        })
    }

    /// It has slept since then for this row.
    pub(crate) fn wake(&self, row: RowTag, since: Instant) {
        let now = self.0.txns.clock().now();
        self.0.run.lock().slept += now.saturating_duration_since(since);
        let id = self.0.id;
        self.0
            .txns
            .with_locks(|graph| graph.rows.set_awake(row, id));
    }

    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    fn with_graph<T>(&self, change: impl FnOnce(&mut Vec<RowTag>, &mut WaitGraph) -> T) -> T {
        self.0.with_graph(change)
    }
}

impl Ticket {
    /// What it has and the queues change together.
    fn with_graph<T>(&self, change: impl FnOnce(&mut Vec<RowTag>, &mut WaitGraph) -> T) -> T {
        let mut rows = self.rows.lock();
        let done = self.txns.with_locks(|graph| change(&mut rows, graph));
        self.tickets.store(rows.len(), Ordering::Relaxed);
        done
    }

    fn leave(&self) {
        self.with_graph(|rows, graph| {
            for row in rows.drain(..) {
                graph.rows.leave(row, self.id);
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.tickets.load(Ordering::Relaxed) > 0 {
            self.leave();
        }
    }
}
