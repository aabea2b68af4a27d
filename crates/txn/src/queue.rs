//! The order in which transactions that wait for a row get it.
//!
//! ```text
//!  row held by X      W1 ◄── W2 ◄── W3        who waits, in the order in which they came
//!                     │ has the turn: waits for X itself
//!  X ends             W1 wakes, alone, and looks at the row again
//!  W1 has the row     W2 has the turn, and waits for W1
//! ```
//!
//! * **A ticket** is a statement's place in the queue of one row. The first waiter, and every
//!   waiter that is compatible with all before it, has the *turn*: it waits for the row's holder,
//!   and no other waiter is woken when the holder ends. The others sleep until it is their turn.
//! * **A free row belongs to its first waiter.** A newcomer that finds the row free, but with a
//!   waiter whose lock conflicts with its own, queues behind. A lock that is compatible with the
//!   row's holders is granted at once, whoever waits, as in PostgreSQL.
//! * **A statement that runs again keeps its place** (`row_place`): the queue is that of the
//!   row's key, whichever version has it. The statement leaves when it has the row, when it waits
//!   for another one, or when it ends.
//! * **Waiting behind another waiter is soft.** A waiter can go on once the row's holder ends;
//!   that others come first is only an order. A circle of waits that includes such an edge is no
//!   deadlock: the waiter gets the turn, too (`wait`).
//!
//! Rows are identified by hashes: two rows that share one share a queue, which costs them time
//! and nothing else. The transactions' mutex guards the queues, as it does the wait-for graph; a
//! separate count tells without it that there are none.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::SystemTime,
};

use aerostat_sync::{AtomicUsize, Ordering};
use aerostat_types::{TableId, TxnId};

use crate::{RowLock, signal::Signal};

/// A row, whichever of its versions is at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowTag {
    table: TableId,
    hash: u64,
}

impl RowTag {
    /// Of a table's row that is told from others by this: its key, or where it lies.
    pub fn new(table: TableId, what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self {
            table,
            hash: hasher.finish(),
        }
    }
}

/// The queues of all rows that somebody waits for.
#[derive(Default)]
pub(crate) struct RowQueues {
    queues: HashMap<RowTag, VecDeque<Ticket>>,
    /// As many as there are tickets, for whoever does not have the mutex.
    count: Arc<AtomicUsize>,
}

struct Ticket {
    place: u64,
    owner: TxnId,
    mode: RowLock,
    has_turn: bool,
    /// Whether its statement sleeps, for the turn or for the row's holder.
    is_asleep: bool,
    /// Where it sleeps until it has the turn.
    sleep: Option<Sleep>,
}

struct Sleep {
    signal: Arc<Signal>,
    /// Who held the row, as a transaction or statement and as its owner.
    holder: Option<(TxnId, TxnId)>,
}

impl Ticket {
    /// Whether this one must come first: of another statement, and both cannot have the row.
    fn is_before(&self, place: u64, mode: RowLock) -> bool {
        self.place != place && self.mode.conflicts_with(mode)
    }

    fn give_turn(&mut self) {
        self.has_turn = true;
        if let Some(sleep) = self.sleep.take() {
            sleep.signal.complete();
        }
    }
}

impl RowQueues {
    /// How many tickets there are, at any time.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.count)
    }

    /// Whether somebody waits for the row who must have it before such a lock.
    pub(crate) fn is_kept(&self, row: RowTag, place: Option<u64>, mode: RowLock) -> bool {
        let Some(queue) = self.queues.get(&row) else {
            return false;
        };
        let own = place.and_then(|place| queue.iter().position(|it| it.place == place));
        // Nobody is in the way of one who has the turn.
        if own.is_some_and(|at| queue[at].has_turn) {
            return false;
        }
        let before = queue.range(..own.unwrap_or(queue.len()));
        before.into_iter().any(|it| it.mode.conflicts_with(mode))
    }

    /// Enters the row's queue, or goes on being in it. Whether it is the place's turn.
    pub(crate) fn enter(&mut self, row: RowTag, place: u64, owner: TxnId, mode: RowLock) -> bool {
        let queue = self.queues.entry(row).or_default();
        let at = queue.iter().position(|ticket| ticket.place == place);
        let at = at.unwrap_or_else(|| {
            queue.push_back(Ticket {
                place,
                owner,
                mode,
                has_turn: false,
                is_asleep: false,
                sleep: None,
            });
            self.count.fetch_add(1, Ordering::Relaxed);
            queue.len() - 1
        });
        let mode = mode.max(queue[at].mode);
        let is_first = !queue.range(..at).any(|other| other.is_before(place, mode));
        let ticket = &mut queue[at];
        (ticket.owner, ticket.mode) = (owner, mode);
        ticket.has_turn |= is_first;
        let has_turn = ticket.has_turn;
        assert!(
            queue.front().is_some_and(|first| first.has_turn),
            "the first in a row's queue has the turn"
        );
        has_turn
    }

    /// Sleeps until it is the place's turn.
    pub(crate) fn sleep(
        &mut self,
        row: RowTag,
        place: u64,
        holder: Option<(TxnId, TxnId)>,
        now: SystemTime,
    ) -> Arc<Signal> {
        let signal = Arc::new(Signal::new(now));
        match self.ticket(row, place) {
            Some(ticket) if !ticket.has_turn => {
                ticket.is_asleep = true;
                ticket.sleep = Some(Sleep {
                    signal: Arc::clone(&signal),
                    holder,
                });
            }
            _ => signal.complete(),
        }
        signal
    }

    /// The place has the turn, and sleeps for the row's holder.
    pub(crate) fn set_asleep(&mut self, row: RowTag, place: u64) {
        if let Some(ticket) = self.ticket(row, place) {
            ticket.is_asleep = true;
        }
    }

    /// It has woken, by itself perhaps.
    pub(crate) fn set_awake(&mut self, row: RowTag, place: u64) {
        if let Some(ticket) = self.ticket(row, place) {
            (ticket.is_asleep, ticket.sleep) = (false, None);
        }
    }

    /// Leaves the row's queue, unless the place sleeps for it: then it stays, and `true` is given.
    pub(crate) fn leave_awake(&mut self, row: RowTag, place: u64) -> bool {
        let stays = self.ticket(row, place).is_some_and(|it| it.is_asleep);
        if !stays {
            self.leave(row, place);
        }
        stays
    }

    /// Leaves the row's queue; those who need not wait any more have the turn.
    pub(crate) fn leave(&mut self, row: RowTag, place: u64) {
        let Entry::Occupied(mut entry) = self.queues.entry(row) else {
            return;
        };
        let queue = entry.get_mut();
        if let Some(at) = queue.iter().position(|ticket| ticket.place == place) {
            // A thread that still sleeps looks again, and finds its statement stopped.
            queue[at].give_turn();
            queue.remove(at);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        for at in 0..queue.len() {
            let (place, mode) = (queue[at].place, queue[at].mode);
            if !queue[at].has_turn && !queue.range(..at).any(|it| it.is_before(place, mode)) {
                queue[at].give_turn();
            }
        }
        debug_assert!(
            queue.front().is_none_or(|first| first.has_turn),
            "the first in a row's queue has the turn"
        );
        if queue.is_empty() {
            entry.remove();
        }
    }

    pub(crate) fn set_owner(&mut self, row: RowTag, place: u64, owner: TxnId) {
        if let Some(ticket) = self.ticket(row, place) {
            ticket.owner = owner;
        }
    }

    /// These have settled: nobody waits for them any more.
    pub(crate) fn settled(&mut self, holders: &[TxnId]) {
        for ticket in self.queues.values_mut().flatten() {
            if let Some(sleep) = &mut ticket.sleep
                && sleep.holder.is_some_and(|(id, _)| holders.contains(&id))
            {
                sleep.holder = None;
            }
        }
    }

    /// The owners of the rows for whose turn an owner sleeps: who must end in any case.
    pub(crate) fn holders_for(&self, owner: TxnId) -> impl Iterator<Item = TxnId> + '_ {
        let tickets = self.queues.values().flatten();
        let sleeping = tickets.filter(move |ticket| ticket.owner == owner);
        sleeping.filter_map(|ticket| Some(ticket.sleep.as_ref()?.holder?.1))
    }

    /// Whom an owner lets go first, with the row and the place that it does so for.
    pub(crate) fn before(&self, owner: TxnId) -> Vec<(TxnId, (RowTag, u64))> {
        let mut found = Vec::new();
        for (row, queue) in &self.queues {
            for (at, ticket) in queue.iter().enumerate() {
                if ticket.owner != owner || ticket.sleep.is_none() {
                    continue;
                }
                for other in queue.range(..at).rev() {
                    if !other.is_before(ticket.place, ticket.mode) {
                        continue;
                    }
                    found.push((other.owner, (*row, ticket.place)));
                    // Who must come before the ticket and is before this one comes before this one, too.
                    if other.sleep.is_some() && other.mode >= ticket.mode {
                        break;
                    }
                }
            }
        }
        found
    }

    /// Lets a place pass those before it.
    pub(crate) fn let_pass(&mut self, row: RowTag, place: u64) {
        if let Some(ticket) = self.ticket(row, place) {
            ticket.give_turn();
        }
    }

    /// Every sleep until a turn: who, for whom, since when. Of a row that nobody holds the
    /// first that waits stands for its holder.
    pub(crate) fn each_sleep(&self, mut look: impl FnMut(TxnId, TxnId, SystemTime)) {
        for queue in self.queues.values() {
            for ticket in queue {
                if let Some(sleep) = &ticket.sleep {
                    let owner = sleep.holder.map_or(queue[0].owner, |(_, owner)| owner);
                    look(ticket.owner, owner, sleep.signal.since());
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How many sleep until it is their turn.
    pub(crate) fn sleeping(&self) -> usize {
        let tickets = self.queues.values().flatten();
        tickets.filter(|ticket| ticket.sleep.is_some()).count()
    }

    fn ticket(&mut self, row: RowTag, place: u64) -> Option<&mut Ticket> {
        let queue = self.queues.get_mut(&row)?;
        queue.iter_mut().find(|ticket| ticket.place == place)
    }
}
