//! Decides which task of which query gets a thread next.
//!
//! ```text
//!  tasks of statements ── woken ─► waiting, by tenant and statement ── called ─► polled
//!        ▲                                                                       │ at most as many
//!        └────── asleep, or woken again: the turn is over ◄──────────────────────┘ as threads
//! ```
//!
//! Tenants share the threads, each through a [`Share`] of its own: the next turn belongs to the tenant with the least time so far
//! for its weight, so that one with three times the weight has three times the time of another while both have something to do;
//! time in which a tenant had nothing to do gives it no credit. Of a tenant's statements the one
//! with the least time so far runs first, in classes of up to 20, 40, 80 and so on milliseconds.
//! Within a class the oldest statement runs first, so that a line of equal statements is finished
//! one by one instead of all being started. The last class gets an eighth of the time, or short
//! statements would starve it. This is the multi-level feedback queue of time-sharing systems
//! (Corbató et al. 1962), with start-time fair queueing (Goyal et al. 1996) among tenants.
//!
//! Which statements run at all, and which wait until others have ended, is decided before, by [`admission`].
//!
//! The tasks run on an executor that knows nothing of this: a task is [`Scheduled`], is polled
//! when it is called, and its time is the time of its polls. A turn thus ends where a task yields
//! ([`turn_is_over`]) or has nothing to do. A task that sleeps in a poll gives its place to
//! another meanwhile ([`asleep`]).
//!
//! Threads that answer clients are not scheduled here; the operating system runs them first
//! ([`prefer_latency`]). Unsafe code is in `slice`, two system calls.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![deny(unsafe_code)]

pub mod admission;
mod queue;
#[allow(unsafe_code)]
mod slice;
mod task;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use aerostat_types::TenantId;

pub use queue::WEIGHT_DEFAULT;
pub use slice::{behind_others, prefer_latency, take_precedence};
pub use task::{Scheduled, asleep, current, give_way, turn_is_over};

use queue::{Order, Queue, Rank, ShareNo};
use task::Task;

/// How long a task works before it lets others that wait have its thread. Far more than it takes
/// to change threads, far less than anybody notices.
const TURN: Duration = Duration::from_millis(1);

/// How long it works if nobody waits: a task that is no longer wanted ends where it gives way.
const TURN_ALONE: Duration = Duration::from_millis(20);

/// Who is next, on as many threads as an executor has.
pub struct Scheduler {
    state: Mutex<State>,
    /// As many as are in the queue.
    waiting: AtomicUsize,
    threads: usize,
    arrivals: AtomicU64,
    shares: AtomicU64,
    clock: Clock,
}

/// Nanoseconds since some time.
type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

struct State {
    queue: Queue<Arc<Task>>,
    /// Tasks that are called or polled.
    running: usize,
}

/// What a tenant has of the threads, and what it has taken. It is forgotten with the last who has it:
/// its owner, and its statements. A tenant that comes again has another.
pub struct Share {
    scheduler: Arc<Scheduler>,
    no: ShareNo,
    tenant: TenantId,
}

/// A statement, to which its tasks belong.
pub struct Work {
    share: Arc<Share>,
    arrival: u64,
    /// What its tasks have taken, in nanoseconds.
    used: AtomicU64,
}

impl Scheduler {
    /// For an executor of so many threads.
    pub fn new(threads: usize) -> Arc<Self> {
        let start = Instant::now();
        let clock = move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Self::with_clock(threads, Box::new(clock))
    }

    fn with_clock(threads: usize, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                queue: Queue::default(),
                running: 0,
            }),
            waiting: AtomicUsize::new(0),
            threads: threads.max(1),
            arrivals: AtomicU64::new(0),
            shares: AtomicU64::new(0),
            clock,
        })
    }

    /// A tenant's share, which has taken nothing yet.
    pub fn share(self: &Arc<Self>, tenant: TenantId) -> Arc<Share> {
        Arc::new(Share {
            scheduler: Arc::clone(self),
            no: ShareNo(self.shares.fetch_add(1, Ordering::Relaxed)),
            tenant,
        })
    }

    /// How many tasks wait for a thread.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Changes who waits or runs, then calls tasks as long as there are threads for them.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let mut called = Vec::new();
        while state.running < self.threads
            && let Some((task, order)) = state.queue.pop()
        {
            state.running += 1;
            task.call(order);
            called.push(task);
        }
        self.waiting.store(state.queue.len(), Ordering::Relaxed);
        // The executor may poll at once, which takes the lock.
        drop(state);
        called.iter().for_each(|task| task.wake_executor());
    }
}

impl Share {
    /// A statement of the tenant begins.
    pub fn work(self: &Arc<Self>) -> Arc<Work> {
        Arc::new(Work {
            share: Arc::clone(self),
            arrival: self.scheduler.arrivals.fetch_add(1, Ordering::Relaxed),
            used: AtomicU64::new(0),
        })
    }

    /// What the tenant's tasks take from now on counts by this weight, among those of the others
    /// ([`WEIGHT_DEFAULT`] if nothing was said).
    pub fn set_weight(&self, weight: u32) {
        self.scheduler
            .state
            .lock()
            .queue
            .set_weight(self.no, weight);
    }

    /// What the tenant's tasks have taken.
    pub fn used(&self) -> Duration {
        Duration::from_nanos(self.scheduler.state.lock().queue.used(self.no))
    }
}

impl Drop for Share {
    /// No task of it is left: each has its statement, which has this. It is never dropped with the
    /// scheduler's lock held, under which tasks are only handed on.
    fn drop(&mut self) {
        self.scheduler.state.lock().queue.forget(self.no);
    }
}

impl Work {
    /// The place of a task of it in the queue.
    fn rank(&self) -> Rank {
        Rank::new(self.used.load(Ordering::Relaxed), self.arrival)
    }

    fn charge(&self, state: &mut State, taken: u64, order: Order) {
        self.used.fetch_add(taken, Ordering::Relaxed);
        state.queue.charge(self.share.no, taken, order);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("threads", &self.threads)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("tenant", &self.tenant)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("tenant", &self.share.tenant)
            .field("arrival", &self.arrival)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
