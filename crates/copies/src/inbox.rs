//! The way to a copy's driver.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use aerostat_replication::{Config, NodeId};
use tokio::sync::OwnedSemaphorePermit;

use crate::Packet;

/// What is told to a copy's driver.
pub(crate) enum Told {
    Packet(Packet, Option<OwnedSemaphorePermit>),
    /// The log has more, or the disk has, or there is room to send.
    Written,
    /// The store of configurations has this.
    Config(Option<Config>),
    /// So it has after a swap.
    Swapped(Option<Config>),
    /// This node is to lead.
    Lead,
    /// Another is to.
    HandOver(NodeId),
    /// Whether commits wait for the leader's disk, too.
    AndSync(bool),
    Stop,
}

/// The way to a copy's driver.
#[derive(Clone)]
pub struct Inbox {
    sender: mpsc::Sender<Told>,
    /// Whether it has been told of more, and has not looked yet.
    is_woken: Arc<AtomicBool>,
}

impl Inbox {
    /// A new one, and where what is told comes out.
    pub(crate) fn new() -> (Inbox, mpsc::Receiver<Told>) {
        let (sender, receiver) = mpsc::channel();
        let inbox = Inbox {
            sender,
            is_woken: Arc::default(),
        };
        (inbox, receiver)
    }

    /// Its driver is about to look at its log.
    pub(crate) fn looks(&self) {
        self.is_woken.store(false, Ordering::Release);
    }

    /// Tells it; whether it is there.
    pub(crate) fn tell(&self, told: Told) -> bool {
        self.sender.send(told).is_ok()
    }

    /// Has this node lead, if its leader hands over: it does if it is there, and this one is a member.
    pub fn lead(&self) {
        self.tell(Told::Lead);
    }

    /// Has another node lead, if this one does and that is a member.
    pub fn hand_over(&self, to: NodeId) {
        self.tell(Told::HandOver(to));
    }

    /// Commits wait for the leader's disk from now on, or not.
    pub fn and_sync(&self, and_sync: bool) {
        self.tell(Told::AndSync(and_sync));
    }

    /// Has it look at its log.
    pub fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.tell(Told::Written);
        }
    }
}
