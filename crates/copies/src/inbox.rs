//! The way to a copy's driver.

use std::{collections::BTreeSet, sync::Arc, thread};

use aerostat_replication::NodeId;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    Packet,
    pool::Entry,
    told::{Queue, Told},
};

/// What has become of a packet that came.
pub(crate) enum Taken {
    /// It is done.
    Done,
    /// It is done, and the thread is to go on.
    GoOn,
    /// It is not somebody else's turn.
    Left(Box<Packet>),
}

/// What somebody takes of what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Whatever it leads to.
    All,
    /// What a leader is answered, which leads to nothing that waits. The rest is the driver's thread's.
    Answers,
}

/// Turns with a driver, for whoever is not its thread.
pub(crate) trait Turns: Send + Sync {
    /// The log has more. Whether the thread is to go on.
    fn wake(&self) -> bool;

    /// Takes a packet, if it is nobody's turn and none waits before it.
    fn receive(&self, packet: Packet, takes: Takes) -> Taken;

    /// A packet was left for the thread.
    fn leave_packet(&self);

    /// Whether it leads, as of the last turn.
    fn leads(&self) -> bool;
}

/// The way to a copy's driver.
#[derive(Clone)]
pub struct Inbox {
    queue: Arc<Queue>,
    turns: Arc<dyn Turns>,
    entry: Arc<Entry>,
}

/// The end of somebody else's turn: the copy may be due at another time. Should he have panicked, the copy ends.
struct Ends<'a>(&'a Arc<Entry>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        match thread::panicking() {
            true => self.0.has_word(false),
            false => self.0.may_be_due(),
        }
    }
}

impl Inbox {
    pub(crate) fn new(queue: Arc<Queue>, turns: Arc<dyn Turns>, entry: Arc<Entry>) -> Inbox {
        Inbox {
            queue,
            turns,
            entry,
        }
    }

    /// Its driver is there.
    pub(crate) fn begin(&self) {
        self.entry.has_word(false);
    }

    /// Tells it; whether it is there.
    pub(crate) fn tell(&self, told: Told) -> bool {
        let is_there = self.queue.push(told);
        if is_there {
            self.entry.has_word(false);
        }
        is_there
    }

    /// Waits until nothing is done for it any more: it was told to stop, or has ended.
    pub(crate) fn await_over(&self) {
        self.entry.await_over();
    }

    /// Takes a packet now, or as soon as the thread comes to it: it keeps its place until then. Whether it is
    /// there.
    pub(crate) fn receive(
        &self,
        packet: Packet,
        takes: Takes,
        place: Option<OwnedSemaphorePermit>,
    ) -> bool {
        let _ends = Ends(&self.entry);
        match self.turns.receive(packet, takes) {
            Taken::Done => true,
            Taken::GoOn => self.tell(Told::Written),
            Taken::Left(packet) => {
                self.turns.leave_packet();
                self.tell(Told::Packet(*packet, place))
            }
        }
    }

    /// Waits until it is not there any more.
    pub(crate) async fn await_closed(&self) {
        self.queue.await_closed().await;
    }

    /// Whether it leads, as far as is known.
    pub(crate) fn leads(&self) -> bool {
        self.turns.leads()
    }

    /// Has this node lead, if its leader hands over: it does if it is there, and this one is a member.
    pub fn lead(&self) {
        self.tell(Told::Lead);
    }

    /// Has another node lead, if this one does and that is a member.
    pub fn hand_over(&self, to: NodeId) {
        self.tell(Told::HandOver(to));
    }

    /// Says whether no session is left, while they are to leave ([`crate::Owner::quieten`]).
    pub fn quiet(&self, quiet: bool) {
        self.tell(Told::Quiet(quiet));
    }

    /// Commits wait for the leader's disk from now on, or not.
    pub fn and_sync(&self, and_sync: bool) {
        self.tell(Told::AndSync(and_sync));
    }

    /// These nodes are to have the database; none: all that ask to.
    pub fn wanted(&self, nodes: BTreeSet<NodeId>) {
        self.tell(Told::Wanted(nodes));
    }

    /// Its log has more: what there is goes to copies, now or soon.
    pub fn wake(&self) {
        let _ends = Ends(&self.entry);
        if self.turns.wake() {
            self.tell(Told::Written);
        }
    }
}
