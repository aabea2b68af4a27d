//! What is told to a copy, in its order.

use std::{
    collections::{BTreeSet, VecDeque},
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use aerostat_replication::{Config, NodeId};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::Packet;

/// What is told to a copy, for a thread of the process to do.
pub(crate) enum Told {
    Packet(Packet, Option<OwnedSemaphorePermit>),
    /// The log has more, or the disk has, or there is room to send, or there is more to be done.
    Written,
    /// The store of configurations has this.
    Config(Option<Config>),
    /// So it has after a swap.
    Swapped(Option<Config>),
    /// This node is to lead.
    Lead,
    /// Another is to.
    HandOver(NodeId),
    /// Whether no session is left, while they are to leave.
    Quiet(bool),
    /// Whether commits wait for the leader's disk, too.
    AndSync(bool),
    Wanted(BTreeSet<NodeId>),
    Stop,
}

/// What is told to a copy, and has not been done yet. Packets have places, which bound them; of the rest there is little.
pub(crate) struct Queue {
    told: Mutex<Option<VecDeque<Told>>>,
    closed: Notify,
}

/// Room that a queue keeps when it is empty.
const KEPT_MAX: usize = 32;

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue {
            told: Mutex::new(Some(VecDeque::new())),
            closed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Told>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is taken: somebody does it.
    pub(crate) fn push(&self, told: Told) -> bool {
        match &mut *self.lock() {
            Some(queue) => {
                queue.push_back(told);
                true
            }
            None => false,
        }
    }

    pub(crate) fn pop(&self) -> Option<Told> {
        let mut queue = self.lock();
        let queue = queue.as_mut()?;
        let told = queue.pop_front();
        if queue.is_empty() && queue.capacity() > KEPT_MAX {
            *queue = VecDeque::new();
        }
        told
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Takes nothing any more.
    pub(crate) fn close(&self) {
        let left = self.lock().take();
        drop(left);
        self.closed.notify_waiters();
    }

    /// Waits until it takes nothing any more.
    pub(crate) async fn await_closed(&self) {
        let mut closed = pin!(self.closed.notified());
        // One that is closed from here on is heard.
        closed.as_mut().enable();
        if self.lock().is_some() {
            closed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_told_is_done_in_its_order_and_nothing_once_it_is_closed() {
        let queue = Arc::new(Queue::new());
        let more = Arc::clone(&queue);
        let teller = std::thread::spawn(move || {
            (0..1_000).for_each(|n| assert!(more.push(Told::Quiet(n % 3 == 0))));
        });
        let mut found = Vec::new();
        while found.len() < 1_000 {
            if let Some(Told::Quiet(quiet)) = queue.pop() {
                found.push(quiet);
            }
        }
        teller.join().unwrap();
        let expected: Vec<bool> = (0..1_000).map(|n| n % 3 == 0).collect();
        assert!(found == expected && queue.is_empty());
        assert!(queue.push(Told::Written));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let closed = queue.await_closed();
            tokio::pin!(closed);
            tokio::select! {
                biased;
                () = &mut closed => panic!("it is open"),
                () = std::future::ready(()) => {}
            }
            queue.close();
            closed.await;
            queue.await_closed().await;
        });
        assert!(!queue.push(Told::Written) && queue.pop().is_none());
    }
}
