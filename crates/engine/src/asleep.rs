//! Sleep on a thread of the query runtime, whose threads have others' work to do: whoever sleeps gives
//! that to another thread first ([`tokio::task::block_in_place`]), and its statement's place to another
//! statement ([`aerostat_schedule::asleep`]).

use std::time::{Duration, Instant, SystemTime};

use aerostat_types::{Clock, SystemClock};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    task::block_in_place,
};

/// How many of a node wait for memory on a thread of their own, at most. Those beyond keep their thread from
/// others: memory is so short then that others would wait as well.
const SLEEPERS_MAX: usize = 64;

/// Runs what sleeps, or works for long and cannot be stopped, on a thread that nothing else waits for.
pub(crate) fn asleep<T>(sleep: impl FnOnce() -> T) -> T {
    match hands_over() {
        true => block_in_place(|| aerostat_schedule::asleep(sleep)),
        false => aerostat_schedule::asleep(sleep),
    }
}

/// Whether the thread has another to give its work to. A runtime of one thread is a test's.
pub(crate) fn hands_over() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// The operating system's clocks, for databases that the query runtime's threads read: who waits for
/// memory by them has nobody wait for its thread, while there are fewer than [`SLEEPERS_MAX`].
#[derive(Debug)]
pub(crate) struct StepsAside {
    places: Semaphore,
}

impl Default for StepsAside {
    fn default() -> Self {
        Self {
            places: Semaphore::new(SLEEPERS_MAX),
        }
    }
}

impl Clock for StepsAside {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        SystemClock.wall()
    }

    fn sleep(&self, duration: Duration) {
        match self.places.try_acquire() {
            Ok(_place) => asleep(|| SystemClock.sleep(duration)),
            Err(_) => SystemClock.sleep(duration),
        }
    }
}
