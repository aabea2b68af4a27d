//! What a node does with a database that other nodes hold, too.
//!
//! ```text
//!  the copy's driver ──► CopyState ◄── sessions: may it be read, may it be changed
//!                            ▲  └────── views, metrics: who has how much of the log
//!                            └───────── promotion
//! ```
//!
//! A database that only this node has ([`Database::copy`](super::Database::copy) is `None`) is always the node's own.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use aerostat_types::{CommitTs, Durability, Epoch, ErrorKind, NodeId, SqlError};
use parking_lot::Mutex;

use crate::failure::CHANGES_HINT;

/// How soon the end of a promotion is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// A member that has not been heard for so long is one of which it is looked whether its machine is reached.
const LOOKED_AFTER: Duration = Duration::from_millis(750);

/// A member that a leader has not heard for so long may lead by now: longer than any lease.
const SILENT_AFTER: Duration = Duration::from_millis(1_500);

/// After so long one does: a leader that is there has gone on without its members by then, if it could.
const CUT_OFF_AFTER: Duration = Duration::from_millis(2_500);

/// What a node does with a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It alone has it.
    Alone,
    /// It takes changes, and other nodes copy them.
    Leads,
    /// It does what another node has done, and answers reads.
    Follows,
}

/// A node's copy of a database, as the driver of its log keeps it told.
pub struct CopyState {
    /// Which node this is.
    me: NodeId,
    leads: AtomicBool,
    /// Whether what is applied is known to be committed: before that nobody reads it.
    is_shown: AtomicBool,
    /// Whether another node is about to lead: sessions go to that.
    is_parting: AtomicBool,
    facts: Mutex<CopyFacts>,
    /// The one of its members that has been silent for longest, and when it was heard.
    member_heard: Mutex<Option<(Instant, NodeId)>>,
    reaches: Reaches,
    orders: Mutex<Orders>,
}

/// Whether nothing is known against it that the machine of a node is reached, which is looked at from then on. Waits for
/// nobody.
type Reaches = Box<dyn Fn(NodeId) -> bool + Send + Sync>;

/// Whoever drives a copy takes orders by this.
type Taker = Box<dyn Fn(Order) + Send + Sync>;

/// Who takes orders, and what waits until somebody does.
#[derive(Default)]
struct Orders {
    taker: Option<Taker>,
    durability: Option<Durability>,
}

/// What a copy's driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// This node is to lead.
    Lead,
    /// Commits wait for what this says.
    Durability(Durability),
    /// No session is left that was to go.
    Quiet,
}

/// What is known of a database's copies.
#[derive(Clone, Debug, Default)]
pub struct CopyFacts {
    /// The configuration's number.
    pub epoch: Epoch,
    /// The node that leads by it; `None` while there is none.
    pub leader: Option<NodeId>,
    /// The nodes that must have a commit before it is acknowledged, ascending.
    pub members: Vec<NodeId>,
    /// Whether this process of the node is one of them.
    pub counts: bool,
    /// This node has written its log through this.
    pub written: CommitTs,
    /// This node's disk has the log through this.
    pub durable: CommitTs,
    /// Everything through this is committed, as far as this node knows.
    pub committed: CommitTs,
    /// When the leader was heard last; `None` at the leader, and where none was heard.
    pub heard: Option<Instant>,
    /// What this node shows is no older than this; `None` at the leader, and while that is not known.
    pub current: Option<Instant>,
    /// At the leader: until when no other node can lead; `None` while that is not known.
    pub leads_until: Option<Instant>,
    /// At the leader: what the others have.
    pub peers: Vec<PeerFacts>,
}

/// What a leader knows of another node's copy.
#[derive(Clone, Debug)]
pub struct PeerFacts {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Where it is listened for.
    pub address: String,
    /// Whether commits wait for it.
    pub is_member: bool,
    /// What was sent to it.
    pub sent: CommitTs,
    /// What it has written, as far as it said.
    pub written: CommitTs,
    /// What its disk has.
    pub durable: CommitTs,
    /// When it was heard last.
    pub heard: Option<Instant>,
}

impl CopyState {
    /// Of a copy that was opened: it leads not, and nobody may read it. Nobody knows whether other nodes are reached.
    pub fn new(me: NodeId) -> Self {
        Self::reaching(me, Box::new(|_| false))
    }

    /// The same where that is known.
    pub fn reaching(me: NodeId, reaches: Reaches) -> Self {
        Self {
            me,
            leads: AtomicBool::new(false),
            is_shown: AtomicBool::new(false),
            is_parting: AtomicBool::new(false),
            facts: Mutex::default(),
            member_heard: Mutex::default(),
            reaches,
            orders: Mutex::default(),
        }
    }

    /// Which node this is.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Whether this node takes changes of the database.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }

    /// Whether what it has may be read.
    pub fn is_shown(&self) -> bool {
        self.is_shown.load(Ordering::Acquire)
    }

    /// What is known.
    pub fn facts(&self) -> CopyFacts {
        self.facts.lock().clone()
    }

    /// Whether no other node can lead, if this one does: it has heard of all members lately.
    pub fn may_answer_as_leader(&self) -> bool {
        let until = self.facts.lock().leads_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether this node leads, as far as it knows, and has not heard a member, which it does not reach, for so long that
    /// this one may lead by now. One whose machine says that nothing listens there does not.
    pub fn is_in_doubt(&self) -> bool {
        self.leads() && self.is_silent(SILENT_AFTER)
    }

    /// Whether it does so by now: commits wait for nodes that are not heard, and it has not been able to go on without
    /// them.
    pub fn is_cut_off(&self) -> bool {
        self.leads() && self.is_silent(CUT_OFF_AFTER)
    }

    /// Whether a member is not reached, and has not been heard for so long. One that is heard is told of within a moment.
    fn is_silent(&self, long: Duration) -> bool {
        let Some((at, node)) = *self.member_heard.lock() else {
            return false;
        };
        let silent = at.elapsed();
        silent > LOOKED_AFTER && !(self.reaches)(node) && silent > long
    }

    /// What this node does with the database.
    pub fn standing(&self) -> Standing {
        match self.leads() {
            true => Standing::Leads,
            false => Standing::Follows,
        }
    }

    /// The driver says whether this node leads. What leads may be read.
    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Release);
        if leads {
            self.set_shown();
        }
    }

    /// Whether another node is about to lead: sessions go there, and new ones wait.
    pub fn is_parting(&self) -> bool {
        self.is_parting.load(Ordering::Acquire)
    }

    /// The driver says whether another node is about to lead.
    pub fn set_parting(&self, is_parting: bool) {
        self.is_parting.store(is_parting, Ordering::Release);
    }

    /// The driver says that what is there is committed.
    pub fn set_shown(&self) {
        self.is_shown.store(true, Ordering::Release);
    }

    /// What is there is not known to be committed any more, and this node does not lead.
    pub fn hide(&self) {
        self.leads.store(false, Ordering::Release);
        self.is_shown.store(false, Ordering::Release);
    }

    /// The driver says what it knows.
    pub fn tell(&self, facts: CopyFacts) {
        let members = facts.peers.iter().filter(|peer| peer.is_member);
        let heard = members.filter_map(|peer| Some((peer.heard?, peer.node)));
        *self.member_heard.lock() = heard.min();
        *self.facts.lock() = facts;
    }

    /// Whoever drives the copy takes orders from now on, and what commits wait for if that was said before; `None`:
    /// nobody does, and what was said is forgotten.
    pub fn take_orders(&self, taker: Option<Taker>) {
        let mut orders = self.orders.lock();
        let durability = orders.durability.take();
        if let (Some(taker), Some(durability)) = (&taker, durability) {
            taker(Order::Durability(durability));
        }
        orders.taker = taker;
    }

    /// Orders something, if anybody drives the copy. It is done later, or not: but what commits wait for is kept
    /// for whoever drives it next.
    pub fn order(&self, order: Order) {
        let mut orders = self.orders.lock();
        match (&orders.taker, order) {
            (Some(taker), order) => taker(order),
            (None, Order::Durability(durability)) => orders.durability = Some(durability),
            (None, Order::Lead | Order::Quiet) => {}
        }
    }

    /// Has this node lead, and waits for that, asking again; whether it does in time. Takes no longer than
    /// until `cancelled`.
    pub fn promote(&self, at_most: Duration, cancelled: impl Fn() -> bool) -> bool {
        let began = Instant::now();
        let mut asked = None;
        while !self.leads() && began.elapsed() < at_most && !cancelled() {
            if asked.is_none_or(|asked: Instant| asked.elapsed() > LOOK * 50) {
                self.order(Order::Lead);
                asked = Some(Instant::now());
            }
            std::thread::sleep(LOOK);
        }
        self.leads()
    }

    /// The error of whoever would change a database that another node leads.
    pub fn read_only(&self, what: &str) -> SqlError {
        elsewhere(SqlError::new(
            ErrorKind::ReadOnlyTransaction,
            format!("cannot execute {what} in a read-only transaction"),
        ))
    }

    /// The error of whoever would change a database whose other copies this node does not hear of.
    pub fn cut_off(&self, what: &str) -> SqlError {
        SqlError::new(
            ErrorKind::ReadOnlyTransaction,
            format!("cannot execute {what}: this node does not hear of the nodes that have copies"),
        )
        .with_detail("Another node may take the database's changes by now.")
        .with_hint("Connect again, to another node.")
    }

    /// The error for what transactions that only read may do, and copies may not.
    pub fn in_recovery(&self, what: &str) -> SqlError {
        elsewhere(SqlError::new(
            ErrorKind::ReadOnlyTransaction,
            format!("cannot execute {what} during recovery"),
        ))
    }

    /// The error of whoever asks for a transaction that writes.
    pub fn no_read_write(&self) -> SqlError {
        elsewhere(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "cannot set transaction read-write mode during recovery",
        ))
    }

    /// The error of whoever comes before it is known what is committed.
    pub fn not_shown(name: &str) -> SqlError {
        SqlError::new(
            ErrorKind::CannotConnectNow,
            format!("database \"{name}\" is not known to be up to date yet"),
        )
        .with_detail("Its copy has not heard of a leader since this node started.")
        .with_hint("Connect again in a moment, or to another node.")
    }
}

impl fmt::Debug for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyState")
            .field("me", &self.me)
            .field("leads", &self.leads)
            .field("is_shown", &self.is_shown)
            .finish_non_exhaustive()
    }
}

/// Says where changes are taken.
fn elsewhere(error: SqlError) -> SqlError {
    error
        .with_detail("This node has a copy of the database; another node takes its changes.")
        .with_hint(CHANGES_HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(heard: &[(bool, Duration)]) -> CopyFacts {
        let peers = heard.iter().map(|(is_member, ago)| PeerFacts {
            node: NodeId(2),
            name: "b".to_owned(),
            address: String::new(),
            is_member: *is_member,
            sent: CommitTs(0),
            written: CommitTs(0),
            durable: CommitTs(0),
            heard: Instant::now().checked_sub(*ago),
        });
        CopyFacts {
            peers: peers.collect(),
            ..CopyFacts::default()
        }
    }

    /// A leader is cut off when it has not heard a member for long, and never for want of members.
    #[test]
    fn a_leader_is_cut_off_when_a_member_is_silent() {
        let (now, long) = (Duration::ZERO, CUT_OFF_AFTER * 2);
        let doubtful = (SILENT_AFTER + CUT_OFF_AFTER) / 2;
        let copy = CopyState::new(NodeId(1));
        let states = |facts: &[(bool, Duration)]| {
            copy.tell(told(facts));
            (copy.is_in_doubt(), copy.is_cut_off())
        };
        assert_eq!(states(&[(true, long)]), (false, false), "it does not lead");
        copy.set_leads(true);
        // One that is alone is told nothing for as long as nothing happens.
        assert_eq!(states(&[]), (false, false));
        assert_eq!(
            states(&[(false, long)]),
            (false, false),
            "nobody waits for it"
        );
        assert_eq!(states(&[(true, now)]), (false, false));
        assert_eq!(states(&[(true, doubtful)]), (true, false));
        assert_eq!(states(&[(true, now), (true, long)]), (true, true));
        assert_eq!(states(&[(true, now), (true, now)]), (false, false));
        copy.tell(told(&[(true, long)]));
        copy.set_leads(false);
        assert!(!copy.is_cut_off(), "it follows");
        // Its machine answers: its process has ended, or is frozen, and leads nothing.
        let reached = CopyState::reaching(NodeId(1), Box::new(|node| node == NodeId(2)));
        reached.set_leads(true);
        reached.tell(told(&[(true, long)]));
        assert!(!reached.is_in_doubt() && !reached.is_cut_off());
    }
}
