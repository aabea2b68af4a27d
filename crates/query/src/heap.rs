//! What statements take from the heap without having asked for it.
//!
//! Operators that hold much ask a tenant's pool first (`memory_pool`). What else a statement takes is found
//! by counting what its tasks allocate while they are polled (`aerostat_memory::Counted`):
//!
//! ```text
//!   held      allocated by the statement's tasks, less what they freed and handed on
//!   uncounted held by all statements of the tenant, less what their operators have asked for
//! ```
//!
//! Uncounted bytes are charged to the tenant's budget like any others. When it refuses, the
//! statement that holds most is stopped with the budget's words. That is a barrier behind the others: it acts
//! between two polls, so what makes much in one go must still ask before.
//!
//! Where the program's allocator does not count, nothing is held and nobody is stopped.

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

/// What the statements of a tenant may hold together without anybody's asking: their plans, and
/// batches of 8,192 rows of some columns between operators. A share for each would let a hundred
/// statements hold a hundred of it.
const FREE_BYTES: u64 = 32 << 20;

/// What a statement holds that is looked at. Those that hold less cost a comparison.
const LOOKED_AT_BYTES: i64 = 2 << 20;

/// A statement's bytes are looked at again when they have changed by so many.
const STEP_BYTES: i64 = 1 << 20;

/// A part of what is asked for is lost between the allocator's sizes, which are an eighth of themselves
/// apart, and in pages of which some is free.
const ROUNDED_UP: u64 = 4;

/// What a tenant's statements hold.
pub struct Heap {
    budget: Arc<Budget>,
    /// What operators have asked for, and have from the pool.
    reserved: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    /// Those that have held enough to be looked at.
    statements: Vec<Weak<Holding>>,
    /// What is charged for uncounted bytes.
    charge: Reservation,
}

/// What one statement holds.
pub struct Holding {
    heap: Arc<Heap>,
    cancellation: Cancellation,
    held: AtomicI64,
    /// As it was looked at last.
    settled: AtomicI64,
    is_listed: AtomicBool,
}

impl Heap {
    /// Of a tenant with this budget.
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

    /// The pool has given bytes to an operator.
    pub(crate) fn reserve(&self, bytes: usize) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An operator has given bytes back to the pool.
    pub(crate) fn release(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A statement begins, which this stops.
    pub fn statement(self: &Arc<Self>, cancellation: &Cancellation) -> Arc<Holding> {
        Arc::new(Holding {
            heap: Arc::clone(self),
            cancellation: cancellation.clone(),
            held: AtomicI64::new(0),
            settled: AtomicI64::new(0),
            is_listed: AtomicBool::new(false),
        })
    }

    /// Charges what is uncounted now, or stops the statement that holds most.
    fn settle(&self) {
        // They outlive the lock: the last reference to a statement may be ours, and its end settles.
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
        // One at a time: what it gives back may be enough.
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

    /// Its tasks have allocated so many bytes more than they freed.
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

/// What its functions make they ask for, and it is no longer uncounted.
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
    /// The thread's count when it was last charged to the statement.
    since: i64,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Charges the statement that this thread polls with what was allocated since it was last charged.
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

/// What the statement holds whose task this thread polls.
pub(crate) fn current_holding() -> Option<Arc<Holding>> {
    CURRENT.with_borrow(|current| Some(Arc::clone(&current.as_ref()?.holding)))
}

/// Stops the statement that this thread polls, whatever its operators make of the error.
pub(crate) fn stop_current(error: SqlError) {
    if let Some(holding) = current_holding() {
        holding.cancellation.stop(error);
    }
}

/// The statement that this thread polls no longer has these rows: who takes them answers for them.
pub fn hand_on(batch: &RecordBatch) {
    let Some(holding) = charge_current() else {
        return;
    };
    let bytes = i64::try_from(batch.get_array_memory_size()).unwrap_or(i64::MAX);
    // Rows may lie in segments or be shared, and then were never held. The closure always gives a
    // value, so the update cannot fail.
    let less = |held: i64| Some(held.min(0).max(held - bytes));
    let _ = holding
        .held
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Counts what the thread allocates meanwhile for the statement.
fn metered<T>(holding: &Arc<Holding>, work: impl FnOnce() -> T) -> T {
    /// Also when the work panics.
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
