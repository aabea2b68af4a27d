//! Which statements run at once, and which wait for that.
//!
//! ```text
//!  a statement begins ──► room for it? ──► runs ───────────────► ends: its place goes to the next
//!                              │ no                                        │
//!                              ▼                                           │
//!                    its tenant's queue, in order of arrival ◄─────────────┘
//!                              │ full: refused        │ gives up: cancelled, or waited too long
//! ```
//!
//! Two bounds make room scarce: how many statements of a tenant run at once ([`Limits`]), and how many of the
//! node. A place that the node has too few of goes to the tenant that has the fewest for its weight; within a
//! tenant the order is that of arrival. A tenant that runs hardly anything is let in beyond the node's bound
//! ([`OWN_PLACES`]), so that nobody keeps others out by statements that sleep.
//!
//! Superusers' statements are in no tenant's bound, and have a reserve beyond the node's ([`RESERVED_PLACES`]).
//!
//! Whoever waits here must hold nothing that a running statement may want, or the two would wait for each other. The
//! caller sees to that: a statement that follows others in its transaction goes in by [`Entrance::enter_ahead`],
//! which counts it and never waits. So the bounds may be exceeded by as many as there are transactions under way,
//! and nobody new comes in until they are kept again.
//!
//! `places` decides, and is pure; this module has its lock and the waiting tasks. A place that was given to
//! somebody who gives up at the same moment goes on to the next.

mod places;
#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use aerostat_sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use places::{Entered, EntranceNo, Places, Ticket};
pub use places::{Full, Limits, Needs, OWN_PLACES, RESERVED_PLACES};

/// Whose statements run on a node, and whose wait.
pub struct Admission {
    places: Mutex<Places<Arc<Waiter>>>,
}

/// Where the statements of one tenant come in.
pub struct Entrance {
    admission: Arc<Admission>,
    no: EntranceNo,
    /// Whether the tenant's statements are counted, for it has a bound of its own.
    is_limited: AtomicBool,
    refused: AtomicU64,
    timed_out: AtomicU64,
}

/// The place of a statement that runs; dropping it gives it to the next.
pub struct Place {
    entrance: Arc<Entrance>,
    needs: Needs,
}

/// What a tenant's statements do at the moment, and what became of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many have a place.
    pub running: u32,
    /// How many wait for one.
    pub waiting: u32,
    /// How many found the queue full, since the tenant was opened.
    pub refused: u64,
    /// How many have waited too long, since then.
    pub timed_out: u64,
}

/// A statement that waits for its place. Dropping it is leaving the queue.
pub struct Waiting {
    entrance: Arc<Entrance>,
    needs: Needs,
    ticket: Ticket,
    waiter: Arc<Waiter>,
    has_place: bool,
}

/// What those who give places know of a waiting task. Changes under the lock of the places.
#[derive(Default)]
struct Waiter(Mutex<Summons>);

#[derive(Default)]
struct Summons {
    is_admitted: bool,
    waker: Option<Waker>,
}

/// What [`Entrance::enter`] gives.
pub enum Entry {
    /// The statement runs.
    Admitted(Place),
    /// It has to wait first.
    Waits(Waiting),
}

impl Admission {
    /// Of a node that runs at most so many statements at once that need its places; `None` for any number.
    pub fn new(node_max: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            places: Mutex::new(Places::new(node_max)),
        })
    }

    /// The entrance of a tenant, which has no bounds of its own yet.
    pub fn entrance(self: &Arc<Self>) -> Arc<Entrance> {
        Arc::new(Entrance {
            admission: Arc::clone(self),
            no: self.places.lock().open(),
            is_limited: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
        })
    }

    /// Changes who runs, and wakes those who run from now on.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Places<Arc<Waiter>>) -> (T, Vec<Arc<Waiter>>),
    ) -> T {
        let mut places = self.places.lock();
        let (value, admitted) = change(&mut places);
        let wakers: Vec<Waker> = admitted.iter().filter_map(|one| one.summon()).collect();
        // A task that is woken may run at once, and come here.
        drop(places);
        wakers.into_iter().for_each(Waker::wake);
        value
    }
}

impl Waiter {
    /// Says that the place is there.
    fn summon(&self) -> Option<Waker> {
        let mut summons = self.0.lock();
        summons.is_admitted = true;
        summons.waker.take()
    }
}

impl Entrance {
    /// Whether the tenant has a bound of its own. Statements that need none of the node's places come in without a
    /// count where it has none.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// A statement that holds nothing others may wait for wants to run.
    ///
    /// # Errors
    /// There is no room for it, and as many wait as may.
    pub fn enter(self: &Arc<Self>, needs: Needs) -> Result<Entry, Full> {
        // Mostly nobody waits.
        let mut waiter = None;
        let entered = self.admission.places.lock().enter(self.no, needs, || {
            Arc::clone(waiter.insert(Arc::new(Waiter::default())))
        });
        match (entered, waiter) {
            (Ok(Entered::Waits(ticket)), Some(waiter)) => Ok(Entry::Waits(Waiting {
                entrance: Arc::clone(self),
                needs,
                ticket,
                waiter,
                has_place: false,
            })),
            (Ok(_), _) => Ok(Entry::Admitted(self.place(needs))),
            (Err(full), _) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(full)
            }
        }
    }

    /// A statement that others may wait for runs, whether there is room or not.
    pub fn enter_ahead(self: &Arc<Self>, needs: Needs) -> Place {
        self.admission.places.lock().enter_ahead(self.no, needs);
        self.place(needs)
    }

    fn place(self: &Arc<Self>, needs: Needs) -> Place {
        Place {
            entrance: Arc::clone(self),
            needs,
        }
    }

    /// From now on these hold; whoever waits and has room by them is let in. Those that run or wait beyond them
    /// do so to their end.
    pub fn set_limits(&self, limits: Limits, weight: u32) {
        self.is_limited
            .store(limits.running_max.is_some(), Ordering::Relaxed);
        let no = self.no;
        self.admission
            .change(|places| ((), places.set_limits(no, limits, weight)));
    }

    /// A statement has given up because it has waited too long.
    pub fn count_timeout(&self) {
        self.timed_out.fetch_add(1, Ordering::Relaxed);
    }

    /// How it is at the moment.
    pub fn counts(&self) -> Counts {
        let (running, waiting) = self.admission.places.lock().counts(self.no);
        Counts {
            running,
            waiting,
            refused: self.refused.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
        }
    }

    /// How many statements of the node may run, and how many do.
    pub fn of_node(&self) -> (Option<u32>, u32) {
        self.admission.places.lock().of_node()
    }
}

impl Drop for Entrance {
    /// Nobody runs or waits: each has this.
    fn drop(&mut self) {
        self.admission.places.lock().close(self.no);
    }
}

impl Place {
    /// Has the statement count among those of the node, too, whether there is room or not: it has turned out to
    /// need that, and its tenant's bound holds for it already.
    pub fn take_of_node(&mut self) {
        if self.needs == Needs::Tenant {
            let admission = &self.entrance.admission;
            admission.places.lock().take_of_node(self.entrance.no);
            self.needs = Needs::Node;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (no, needs) = (self.entrance.no, self.needs);
        self.entrance
            .admission
            .change(|places| ((), places.leave(no, needs)));
    }
}

impl Waiting {
    /// Whether it is the node that has no room at the moment, and not the tenant.
    pub fn is_for_node(&self) -> bool {
        let places = self.entrance.admission.places.lock();
        match self.needs {
            Needs::Tenant => false,
            Needs::Node => places.tenant_has_room(self.entrance.no),
            Needs::Reserve => true,
        }
    }
}

impl Future for Waiting {
    type Output = Place;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Place> {
        assert!(!self.has_place, "who has its place waits no more");
        {
            let mut summons = self.waiter.0.lock();
            if !summons.is_admitted {
                if !(summons.waker.as_ref()).is_some_and(|own| own.will_wake(context.waker())) {
                    summons.waker = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
        }
        self.has_place = true;
        Poll::Ready(self.entrance.place(self.needs))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.has_place {
            return;
        }
        let (no, needs, ticket) = (self.entrance.no, self.needs, self.ticket);
        self.entrance.admission.change(|places| {
            // One that is not in the queue has been let in meanwhile.
            match places.give_up(no, needs, ticket) {
                true => ((), Vec::new()),
                false => ((), places.leave(no, needs)),
            }
        });
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrance")
            .field("no", &self.no)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}
