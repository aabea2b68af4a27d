//! Loom's types with the interfaces of those that they stand for, as far as our crates ask.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc as StdArc, OnceLock as StdOnceLock, PoisonError, atomic::AtomicUsize as StdAtomicUsize,
    },
    time::Instant,
};

#[doc(hidden)]
pub use loom;
pub use loom::{
    cell::UnsafeCell,
    future::block_on,
    sync::{RwLockReadGuard, atomic::Ordering},
    thread,
    thread::yield_now,
};

/// How often a thread is stopped in the middle of what it does, in each order that is tried. Most
/// mistakes need one or two such stops (Musuvathi and Qadeer, PLDI 2007), and the number of orders
/// grows by a factor of the length with each.
const PREEMPTIONS: usize = 2;

/// The most steps in one order; more are a loop that does not end.
const STEPS_MAX: usize = 20_000;

/// Runs a model in every order of its threads, and prints how many orders it tried.
/// `LOOM_MAX_PREEMPTIONS` and loom's other variables say how many there are.
///
/// # Panics
/// When the model does in one of them, or all of its threads wait.
#[allow(
    clippy::print_stdout,
    reason = "a test's output says how much it has tried"
)]
pub fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.max_branches = builder.max_branches.max(STEPS_MAX);
    let orders = StdArc::new(StdAtomicUsize::new(0));
    let counted = StdArc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        run();
    });
    println!("{} orders", orders.load(Ordering::Relaxed));
}

/// As the standard library's, of one value that is made without code.
#[macro_export]
macro_rules! thread_local {
    (static $name:ident: $type:ty = const { $init:expr };) => {
        $crate::loom::thread_local! { static $name: $type = $init; }
    };
}

/// As the standard library's atomic, by loom's.
///
/// Loom keeps one last access of an atomic, not one of each thread (tokio-rs/loom, issues 166 and
/// 392). A thread that loads a value before it stores one thus hides what another thread has
/// loaded before, and loom never tries the store before that load. So each load first stores
/// into a cell beside the value: loads have an order, too, and every order is tried.
macro_rules! atomic {
    ($name:ident, $type:ty) => {
        #[doc = concat!("As `std::sync::atomic::", stringify!($name), "`.")]
        pub struct $name {
            value: loom::sync::atomic::$name,
            loads: loom::sync::atomic::AtomicBool,
        }

        impl $name {
            /// As of the standard library.
            #[track_caller]
            pub fn new(value: $type) -> Self {
                Self {
                    value: loom::sync::atomic::$name::new(value),
                    loads: loom::sync::atomic::AtomicBool::new(false),
                }
            }

            /// As of the standard library.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $type {
                self.loads.store(true, Ordering::Relaxed);
                self.value.load(order)
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;

            fn deref(&self) -> &Self::Target {
                &self.value
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.value
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.value.fmt(f)
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
atomic!(AtomicUsize, usize);

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// As `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// As of `parking_lot`.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// As of `parking_lot`.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(unpoisoned(self.0.lock())))
    }

    /// As of `parking_lot`.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

const HELD: &str = "a guard is empty only while its thread waits";

fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// As of `parking_lot`.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// As of `parking_lot`.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unpoisoned(self.0.read())
    }

    /// As of `parking_lot`.
    #[track_caller]
    pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        unpoisoned(self.0.write())
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

/// What a wait up to a time gives.
pub struct WaitTimeoutResult;

impl WaitTimeoutResult {
    /// Never, in models: time does not pass.
    pub fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    /// As of `parking_lot`.
    pub fn new() -> Self {
        Self::default()
    }

    /// As of `parking_lot`.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(unpoisoned(self.0.wait(held)));
    }

    /// As [`Self::wait`]: in models time does not pass.
    #[track_caller]
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    /// As of `parking_lot`.
    #[track_caller]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `std::sync::OnceLock`, for values that are made under a lock: who gets one has all that
/// was done before it was set, and nothing besides.
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: StdOnceLock<T>,
}

impl<T> OnceLock<T> {
    /// As of the standard library.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            value: StdOnceLock::new(),
        }
    }

    /// As of the standard library.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        let is_set = self.is_set.load(Ordering::Acquire);
        is_set.then_some(&self.value).and_then(StdOnceLock::get)
    }

    /// As of the standard library.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let made = Self::new();
        made.get_or_init(|| value);
        made
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod loom_tests {
    use std::{collections::BTreeSet, sync};

    use super::*;

    /// Both orders of a load and a store are tried, whatever the storing thread has loaded before.
    /// Seen to fail: a load without its store beside it, of 0 alone.
    #[test]
    fn who_loads_before_it_stores_hides_no_load() {
        let seen = sync::Arc::new(sync::Mutex::new(BTreeSet::new()));
        let all = sync::Arc::clone(&seen);
        model(move || {
            let count = sync::Arc::new(AtomicU32::new(0));
            let own = sync::Arc::clone(&count);
            let writer = thread::spawn(move || {
                let before = own.load(Ordering::Relaxed);
                own.store(before + 1, Ordering::Release);
            });
            all.lock().unwrap().insert(count.load(Ordering::Acquire));
            writer.join().unwrap();
        });
        assert!(seen.lock().unwrap().iter().eq(&[0, 1]));
    }
}
