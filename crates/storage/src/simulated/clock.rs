//! A clock that advances as it is read, and whose wall-clock time goes back now and then.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use aerostat_types::{Clock, SystemClock};

/// Some moment in 2033.
const BEGIN_MICROS: u64 = 2_000_000_000_000_000;

/// How far the wall goes back, every so many readings.
const BACK_MICROS: u64 = 3_000_000;
const BACK_EVERY: u64 = 97;

/// The clock of a simulation: each reading is ten microseconds after the one before.
#[derive(Debug)]
pub struct SimClock {
    /// What [`Instant`] begins with; only differences are looked at.
    base: Instant,
    micros: AtomicU64,
}

impl SimClock {
    pub fn new() -> SimClock {
        SimClock {
            base: SystemClock.now(),
            micros: AtomicU64::new(0),
        }
    }

    fn pass(&self, micros: u64) -> u64 {
        self.micros.fetch_add(micros, Ordering::Relaxed)
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        self.base + Duration::from_micros(self.pass(10))
    }

    fn wall(&self) -> SystemTime {
        let micros = self.pass(10);
        let back = match (micros / 10) % BACK_EVERY {
            0 => BACK_MICROS,
            _ => 0,
        };
        UNIX_EPOCH + Duration::from_micros(BEGIN_MICROS + micros - back)
    }

    fn sleep(&self, duration: Duration) {
        self.pass(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }
}
