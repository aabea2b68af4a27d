//! The time, behind a trait: a simulation has a clock of its own.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Tells the time, and lets it pass.
pub trait Clock: Send + Sync + fmt::Debug {
    /// For durations and deadlines: never goes back.
    fn now(&self) -> Instant;

    /// For people and records: may go back.
    fn wall(&self) -> SystemTime;

    /// Returns once so much time has passed.
    fn sleep(&self, duration: Duration);

    /// [`Clock::wall`] in microseconds since 1970; 0 before.
    fn wall_micros(&self) -> u64 {
        let since = self.wall().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
    }
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
