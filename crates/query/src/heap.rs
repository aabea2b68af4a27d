//! Heap memory that statements take without having reserved it.
//!
//! Operators that hold much memory reserve it from the tenant's pool first (`memory_pool`). Other
//! memory of a statement is found by counting what its tasks allocate while they are polled
//! (`aerostat_memory::Counted`):
//!
//! ```text
//!   held      allocated by the statement's tasks, less what they freed and handed on
//!   uncounted held by all statements of the tenant, less what their operators have reserved
//! ```
//!
//! Uncounted bytes are charged to the tenant's budget like any others. When the budget refuses
//! them, the statement that holds most is stopped with the budget's error. This is a barrier
//! behind the others: it acts between two polls, so code that makes much in one poll must still
//! reserve first.
//!
//! If the program's allocator does not count, no statement holds anything and none is stopped.

use std::{
    cell::RefCell,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use aerostat_catalog::failure::out_of_memory;
use aerostat_memory::{Budget, MemoryClass, Reservation, thread_heap_bytes, trim_heap_if_asked};
use aerostat_semantics::growth::Running;
use aerostat_types::{OutOfMemory, SqlError};
use datafusion::arrow::array::RecordBatch;
use parking_lot::Mutex;

use crate::cancel::Cancellation;

/// How much the statements of a tenant may hold together without a reservation: their plans, and
/// batches of 8,192 rows of some columns between operators. With a share for each statement, a
/// hundred statements could hold a hundred times as much.
const FREE_BYTES: u64 = 32 << 20;

/// Statements that hold less are not listed; they cost a comparison.
const LOOKED_AT_BYTES: i64 = 2 << 20;

/// A statement's bytes are settled again when they have changed by this much.
const STEP_BYTES: i64 = 1 << 20;

/// Uncounted bytes are charged with this part of them added: the allocator's sizes are an eighth of
/// themselves apart, and some of its pages are partly free.
const ROUNDED_UP: u64 = 4;

/// The memory that a tenant's statements hold.
pub struct Heap {
    budget: Arc<Budget>,
    /// How much operators and functions have reserved from the pool.
    reserved: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    /// The statements that have held enough to be listed.
    statements: Vec<Weak<Holding>>,
    /// The charge for uncounted bytes.
    charge: Reservation,
}

/// The memory that one statement holds.
pub struct Holding {
    heap: Arc<Heap>,
    cancellation: Cancellation,
    held: AtomicI64,
    /// `held` when it was settled last.
    settled: AtomicI64,
    is_listed: AtomicBool,
}

impl Heap {
    /// No statements yet, of a tenant with this budget.
    pub fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            reserved: AtomicUsize::new(0),
            state: Mutex::new(State {
                statements: Vec::new(),
                charge: Reservation::none(budget, MemoryClass::Queries),
            }),
        })
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Notes that the pool has given bytes to an operator.
    pub(crate) fn reserve(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that an operator has given bytes back to the pool.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            before >= bytes,
            "{bytes} bytes are given back, and {before} were reserved"
        );
    }

    /// Begins a statement, which can be stopped by this cancellation.
    pub fn statement(self: &Arc<Self>, cancellation: &Cancellation) -> Arc<Holding> {
        Arc::new(Holding {
            heap: Arc::clone(self),
            cancellation: cancellation.clone(),
            held: AtomicI64::new(0),
            settled: AtomicI64::new(0),
            is_listed: AtomicBool::new(false),
        })
    }

    /// Charges the bytes that are uncounted now, or stops the statement that holds most.
    fn settle(&self) {
        // These outlive the lock: dropping the last reference to a statement settles again.
        let statements: Vec<_>;
        let charged = {
            let mut state = self.state.lock();
            let listed = &mut state.statements;
            listed.retain(|statement| statement.strong_count() > 0);
            statements = listed.iter().filter_map(Weak::upgrade).collect();
            let held: u64 = statements.iter().map(|holding| holding.held()).sum();
            let asked_for = self.reserved() as u64 + FREE_BYTES;
            let uncounted = held.saturating_sub(asked_for);
            state.charge.try_resize(uncounted + uncounted / ROUNDED_UP)
        };
        let Err(refused) = charged else {
            return;
        };
        // Only one statement at a time is stopped: the memory that it gives back may be enough.
        if statements.iter().any(|holding| holding.is_stopped()) {
            return;
        }
        if let Some(greatest) = statements.iter().max_by_key(|holding| holding.held()) {
            greatest
                .cancellation
                .stop(out_of_memory(refused.to_string()));
        }
    }
}

impl Holding {
    fn held(&self) -> u64 {
        u64::try_from(self.held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn is_stopped(&self) -> bool {
        self.cancellation.token.is_cancelled()
    }

    /// Notes that tasks have allocated this many bytes more than they freed.
    fn add(self: &Arc<Self>, bytes: i64) {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let settled = self.settled.load(Ordering::Relaxed);
        if (held - settled).abs() >= STEP_BYTES && held.max(settled) > LOOKED_AT_BYTES {
            self.settled.store(held, Ordering::Relaxed);
            if !self.is_listed.swap(true, Ordering::Relaxed) {
                let listed = Arc::downgrade(self);
                self.heap.state.lock().statements.push(listed);
            }
            self.heap.settle();
        }
    }
}

/// Reservations of a statement's functions, whose results are then no longer uncounted.
impl Running for Holding {
    fn try_grow(&self, bytes: u64) -> Result<(), OutOfMemory> {
        self.heap.budget.try_grow_raw(MemoryClass::Queries, bytes)?;
        self.heap.reserve(bytes as usize);
        Ok(())
    }

    fn shrink(&self, bytes: u64) {
        self.heap.release(bytes as usize);
        self.heap.budget.shrink_raw(MemoryClass::Queries, bytes);
    }

    fn stopped(&self) -> Option<SqlError> {
        charge_current();
        self.cancellation.due()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.is_listed.load(Ordering::Relaxed) {
            self.heap.settle();
        }
    }
}

/// A task of a statement, whose polls are counted.
pub(crate) struct Metered<F> {
    /// `None` once it is dropped.
    future: Option<Pin<Box<F>>>,
    holding: Arc<Holding>,
}

impl<F: Future> Metered<F> {
    pub(crate) fn new(holding: Arc<Holding>, future: F) -> Self {
        Self {
            future: Some(Box::pin(future)),
            holding,
        }
    }
}

/// A statement whose task this thread polls.
struct Current {
    holding: Arc<Holding>,
    /// The thread's count of bytes when it was last charged to the statement.
    since: i64,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Charges the bytes that this thread has allocated since the last charge to the statement that it
/// polls.
fn charge_current() -> Option<Arc<Holding>> {
    let (holding, bytes) = CURRENT.with_borrow_mut(|current| {
        let current = current.as_mut()?;
        let now = thread_heap_bytes();
        let bytes = now.wrapping_sub(std::mem::replace(&mut current.since, now));
        Some((Arc::clone(&current.holding), bytes))
    })?;
    holding.add(bytes);
    Some(holding)
}

/// The holding of the statement whose task this thread polls.
pub(crate) fn current_holding() -> Option<Arc<Holding>> {
    CURRENT.with_borrow(|current| Some(Arc::clone(&current.as_ref()?.holding)))
}

/// Stops the statement that this thread polls, even if its operators swallow the error.
pub(crate) fn stop_current(error: SqlError) {
    if let Some(holding) = current_holding() {
        holding.cancellation.stop(error);
    }
}

/// Notes that the statement which this thread polls no longer has these rows. The code that takes
/// them accounts for them.
pub fn hand_on(batch: &RecordBatch) {
    let Some(holding) = charge_current() else {
        return;
    };
    let bytes = i64::try_from(batch.get_array_memory_size()).unwrap_or(i64::MAX);
    // Rows that lie in segments or are shared were never held. The closure always gives a value, so
    // the update cannot fail.
    let less = |held: i64| Some(held.min(0).max(held - bytes));
    let _ = holding
        .held
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Counts what the thread allocates during `work` for the statement.
fn metered<T>(holding: &Arc<Holding>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous statement, also when the work panics.
    struct Before(Option<Current>);

    impl Drop for Before {
        fn drop(&mut self) {
            charge_current();
            CURRENT.replace(self.0.take());
            trim_heap_if_asked();
        }
    }

    let current = Current {
        holding: Arc::clone(holding),
        since: thread_heap_bytes(),
    };
    let _before = Before(CURRENT.replace(Some(current)));
    work()
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else {
            return Poll::Pending;
        };
        metered(&this.holding, || future.as_mut().poll(context))
    }
}

impl<F> Drop for Metered<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        metered(&self.holding, || drop(future));
    }
}
