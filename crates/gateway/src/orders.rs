//! Orders to a connection from outside: to end its statement, to accept no more statements, to go to another node, or
//! to end.
//!
//! All of them wake the connection's task by one waker, so waiting for any of them, which each
//! message does, costs one registration and no lock.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    task::{Context, Poll},
};

use futures::task::AtomicWaker;

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const CANCELLED: u8 = 2;

/// About to be: whoever cancels is telling the engine. The statement ends behind that, so that the next one is not taken
/// for it.
const CANCELLING: u8 = 3;

/// An order to end. Later ones are stronger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum End {
    /// The connection continues.
    #[default]
    No,
    /// The node stops: the running statement is finished, and no other begins.
    Stopping,
    /// The connection ends at once: the node has waited long enough, or another session wants it.
    Killed,
}

/// The orders of one connection. One task waits for them.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// [`IDLE`], [`RUNNING`], [`CANCELLING`] or [`CANCELLED`].
    run: AtomicU8,
    /// An [`End`].
    end: AtomicU8,
    /// Whether its session is to go to another node.
    leaves: AtomicBool,
    waker: AtomicWaker,
}

impl Orders {
    /// The orders of a new connection, whose node has already given this order.
    pub(crate) fn new(end: End) -> Self {
        Self {
            end: AtomicU8::new(end as u8),
            ..Self::default()
        }
    }

    /// Begins a statement; from now on cancel requests count.
    pub(crate) fn begin(&self) {
        let before = self.run.swap(RUNNING, Ordering::SeqCst);
        assert_eq!(before, IDLE, "a connection runs one statement at a time");
    }

    /// Ends the statement; a later cancel request does nothing.
    pub(crate) fn finish(&self) {
        loop {
            match self.run.load(Ordering::SeqCst) {
                // Whoever cancels does nothing that takes time.
                CANCELLING => std::thread::yield_now(),
                before => {
                    assert_ne!(before, IDLE, "a statement ends once");
                    let order = Ordering::SeqCst;
                    let ended = self.run.compare_exchange(before, IDLE, order, order);
                    if ended.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    /// Cancels the running statement, of which `stop` tells whoever runs it; whether there was one. `stop` must not wait.
    pub(crate) fn cancel(&self, stop: impl FnOnce()) -> bool {
        let order = Ordering::SeqCst;
        let changed = self.run.compare_exchange(RUNNING, CANCELLING, order, order);
        if changed.is_ok() {
            stop();
            self.run.store(CANCELLED, order);
            self.waker.wake();
        }
        changed.is_ok()
    }

    /// Orders the connection to end, unless a stronger order was given.
    pub(crate) fn tell(&self, end: End) {
        self.end.fetch_max(end as u8, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Has the session go to another node as soon as it can.
    pub(crate) fn tell_leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether it is to.
    pub(crate) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::SeqCst)
    }

    /// Waits until it is to.
    pub(crate) async fn told_leave(&self) {
        poll_fn(|context| self.poll(context, |orders| orders.leaves().then_some(()))).await;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.run.load(Ordering::SeqCst) == CANCELLED
    }

    pub(crate) fn is(&self, end: End) -> bool {
        self.end.load(Ordering::SeqCst) >= end as u8
    }

    /// Waits until the running statement is cancelled.
    pub(crate) async fn cancelled(&self) {
        poll_fn(|context| self.poll(context, |orders| orders.is_cancelled().then_some(()))).await;
    }

    /// Waits until the connection has this order to end, or a stronger one.
    pub(crate) async fn told(&self, end: End) {
        poll_fn(|context| self.poll(context, |orders| orders.is(end).then_some(()))).await;
    }

    /// Waits until `look` finds something. It is called again when the orders change.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        look: impl Fn(&Self) -> Option<T>,
    ) -> Poll<T> {
        if let Some(found) = look(self) {
            return Poll::Ready(found);
        }
        self.waker.register(context.waker());
        // An order that came before the registration has not woken this task.
        look(self).map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn cancel_requests_count_while_a_statement_runs() {
        let orders = Orders::default();
        assert!(!orders.cancel(|| panic!("nothing runs")) && !orders.is_cancelled());
        orders.begin();
        assert!(orders.cancel(|| {}) && orders.is_cancelled());
        assert!(!orders.cancel(|| panic!("it is cancelled")));
        orders.finish();
        assert!(!orders.is_cancelled());
    }

    /// However late whoever cancels comes to tell the engine, what it stops is the statement that it met.
    #[test]
    fn a_request_to_cancel_meets_no_later_statement() {
        let orders = Arc::new(Orders::default());
        let (told, began) = (Arc::new(AtomicBool::new(false)), std::sync::mpsc::channel());
        orders.begin();
        let cancels = {
            let (orders, told) = (Arc::clone(&orders), Arc::clone(&told));
            std::thread::spawn(move || {
                orders.cancel(|| {
                    began.0.send(()).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    told.store(true, Ordering::SeqCst);
                })
            })
        };
        began.1.recv().unwrap();
        orders.finish();
        assert!(
            told.load(Ordering::SeqCst),
            "it ended before it was stopped"
        );
        orders.begin();
        assert!(cancels.join().unwrap() && !orders.is_cancelled());
        orders.finish();
    }

    #[test]
    fn the_stronger_word_stays() {
        let orders = Orders::new(End::Stopping);
        assert!(orders.is(End::Stopping) && !orders.is(End::Killed));
        orders.tell(End::Killed);
        orders.tell(End::Stopping);
        assert!(orders.is(End::Killed) && orders.is(End::Stopping));
    }

    /// An order that is given while its reader begins to wait still wakes the reader.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_order_is_missed() {
        for _ in 0..5_000 {
            let orders = Arc::new(Orders::default());
            orders.begin();
            let giver = Arc::clone(&orders);
            let giving = tokio::spawn(async move {
                giver.cancel(|| {});
                giver.tell(End::Killed);
            });
            orders.cancelled().await;
            orders.told(End::Killed).await;
            giving.await.unwrap();
        }
    }
}
