//! Waits that have begun: of a thread that sleeps, or of a task that is polled.
//!
//! ```text
//!  begin_wait, begin_row_wait ──► Asleep: an edge of the graph, a signal, perhaps a place in a queue
//!    thread                       sleeps at the signal; then the edge goes
//!    task                         Waiting polls the signal; dropping it takes the edge away
//! ```
//!
//! An edge exists exactly as long as somebody waits by it (`wait`). Nobody holds a latch
//! meanwhile, and a waiter that has woken looks at the row again.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use aerostat_types::TxnId;

use crate::{CancelToken, RowLock, RowPlace, RowTag, WaitError, signal::Signal, txns::TxnManager};

/// What must happen before a statement can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Who must settle; `None` if only the row's queue is in the way.
    pub holder: Option<TxnId>,
    /// The row that is to be locked, and how.
    pub row: Option<(RowTag, RowLock)>,
}

impl Awaited {
    /// That a transaction settles, in no order.
    pub fn transaction(holder: TxnId) -> Self {
        Self {
            holder: Some(holder),
            row: None,
        }
    }
}

/// A wait that has begun.
pub(crate) struct Asleep {
    signal: Arc<Signal>,
    waiter: TxnId,
    /// The row that is waited for, and the place in its queue.
    row: Option<(RowPlace, RowTag)>,
    since: Instant,
    /// Who will have settled then; `None` if it is the turn that is waited for.
    pub(crate) holder: Option<TxnId>,
}

impl Asleep {
    fn new(waiter: TxnId, signal: Arc<Signal>, holder: Option<TxnId>, since: Instant) -> Self {
        Self {
            signal,
            waiter,
            row: None,
            since,
            holder,
        }
    }

    fn for_row(mut self, place: RowPlace, row: RowTag) -> Self {
        self.row = Some((place, row));
        self
    }

    /// The wait is over, or given up.
    fn end(&self, txns: &TxnManager) {
        txns.with_locks(|graph| graph.remove(self.waiter, &self.signal));
        if let Some((place, row)) = &self.row {
            place.wake(*row, self.since);
        }
    }
}

/// A wait that keeps no thread. It is given up when it is dropped.
#[must_use = "a wait that is dropped is given up"]
pub struct Waiting {
    txns: Arc<TxnManager>,
    asleep: Asleep,
}

impl Waiting {
    pub(crate) fn new(txns: Arc<TxnManager>, asleep: Asleep) -> Self {
        Self { txns, asleep }
    }
}

impl Future for Waiting {
    type Output = Result<(), WaitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.asleep.signal.poll(context)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.asleep.end(&self.txns);
    }
}

impl TxnManager {
    /// Sleeps until `holder` has settled: ended, and every stamp of it overwritten.
    /// The caller holds no latch, and looks at the row again afterwards. A statement of a
    /// block has settled once it was undone, or its block has ended.
    ///
    /// # Errors
    /// [`WaitError::Deadlock`] if `holder`, or its block, waits for `me` or its block, [`WaitError::Cancelled`]
    /// if the token is cancelled before or meanwhile.
    pub fn wait_for(
        &self,
        me: TxnId,
        holder: TxnId,
        cancel: &CancelToken,
    ) -> Result<(), WaitError> {
        match self.begin_wait(me, holder)? {
            Some(asleep) => self.sleep(asleep, None, cancel),
            None => Ok(()),
        }
    }

    /// Sleeps until a wait is over.
    pub(crate) fn sleep(
        &self,
        asleep: Asleep,
        timeout: Option<Duration>,
        cancel: &CancelToken,
    ) -> Result<(), WaitError> {
        let deadline = self.deadline(timeout);
        cancel.attach(&asleep.signal);
        let result = asleep.signal.sleep(deadline);
        cancel.detach(&asleep.signal);
        asleep.end(self);
        result
    }

    /// Enters a wait; `None` if the holder has settled.
    pub(crate) fn begin_wait(&self, me: TxnId, holder: TxnId) -> Result<Option<Asleep>, WaitError> {
        assert_ne!(me, holder, "a transaction waits for itself");
        self.with_locks(|graph| {
            if self.state(holder).is_none() {
                return Ok(None);
            }
            let waiter = self.owner(me);
            let signal = graph.add(waiter, holder, self.owner(holder))?;
            Ok(Some(Asleep::new(
                waiter,
                signal,
                Some(holder),
                self.clock().now(),
            )))
        })
    }

    /// Enters the wait for a row, in its order; `None` if it is the place's turn and the holder
    /// has settled.
    pub(crate) fn begin_row_wait(
        &self,
        me: TxnId,
        place: RowPlace,
        (row, mode): (RowTag, RowLock),
        holder: Option<TxnId>,
    ) -> Result<Option<Asleep>, WaitError> {
        assert_ne!(Some(me), holder, "a transaction waits for itself");
        let waiter = self.owner(me);
        let begun = place.enter(row, |graph| {
            let unsettled = holder.filter(|holder| self.state(*holder).is_some());
            let holder = unsettled.map(|holder| (holder, self.owner(holder)));
            graph.add_for_row(row, place.id(), waiter, mode, holder)
        })?;
        let asleep = |(signal, holder)| Asleep::new(waiter, signal, holder, self.clock().now());
        Ok(begun.map(asleep).map(|asleep| asleep.for_row(place, row)))
    }
}
