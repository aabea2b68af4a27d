//! Recording: histograms per tenant and per query, behind one lock each.
//!
//! Histograms count microseconds from 1 µs to 1 h with three significant digits.
//! They start small and grow with the values they see, so a hundred tenants cost
//! megabytes, not gigabytes. There is none per (tenant, query): that would be the
//! product of both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

/// One hour in microseconds; longer latencies count as one hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answered, with this many rows.
    Done {
        /// Number of rows.
        rows: u64,
    },
    /// The server, or the connection, failed.
    Failed,
    /// Given up at the end of the drain. Its latency so far is recorded, a lower
    /// bound.
    Unfinished,
    /// The open loop's queue was full.
    Refused,
}

impl Outcome {
    /// Whether the user got no answer.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Done { .. })
    }
}

/// One measured request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Tenant number.
    pub tenant: usize,
    /// Query number.
    pub query: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// Time from when it was due to its end.
    pub latency: Duration,
    /// When it ended, from the end of the warm-up.
    pub at: Duration,
}

/// Sees every measured request as it ends, for live displays. Calls come from the
/// driver's tasks and must return quickly.
pub trait Observer: Send + Sync {
    /// A request ended.
    fn finished(&self, sample: &Sample);
}

/// Observes nothing.
impl Observer for () {
    fn finished(&self, _sample: &Sample) {}
}

/// Counts and latencies of a set of requests.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) latencies_us: Histogram<u64>,
    pub(super) done: u64,
    pub(super) rows: u64,
    pub(super) failed: u64,
    pub(super) unfinished: u64,
    pub(super) refused: u64,
    pub(super) within_goal: u64,
    pub(super) last_end: Duration,
    pub(super) backlog_max: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        // The smallest range the crate allows; it grows up to LATENCY_US_MAX.
        let mut latencies_us =
            Histogram::new_with_bounds(1, 2, 3).expect("1, 2 and 3 are valid bounds and digits");
        latencies_us.auto(true);
        Self {
            latencies_us,
            done: 0,
            rows: 0,
            failed: 0,
            unfinished: 0,
            refused: 0,
            within_goal: 0,
            last_end: Duration::ZERO,
            backlog_max: 0,
        }
    }

    fn record(&mut self, sample: &Sample, goal: Duration) {
        match sample.outcome {
            Outcome::Done { rows } => {
                self.done += 1;
                self.rows += rows;
                self.within_goal += u64::from(sample.latency <= goal);
                self.record_latency(sample.latency);
            }
            Outcome::Unfinished => {
                self.unfinished += 1;
                self.record_latency(sample.latency);
            }
            // A quick refusal is no quick answer, so its time would flatter.
            Outcome::Failed => self.failed += 1,
            Outcome::Refused => self.refused += 1,
        }
        self.last_end = self.last_end.max(sample.at);
    }

    fn record_latency(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies_us
            .record(us.clamp(1, LATENCY_US_MAX))
            .expect("a growing histogram takes every value up to an hour");
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.latencies_us
            .add(&other.latencies_us)
            .expect("a growing histogram takes what another one took");
        self.done += other.done;
        self.rows += other.rows;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.refused += other.refused;
        self.within_goal += other.within_goal;
        self.last_end = self.last_end.max(other.last_end);
        self.backlog_max = self.backlog_max.max(other.backlog_max);
    }

    /// All requests that were due.
    pub(super) fn requests(&self) -> u64 {
        self.done + self.failed + self.unfinished + self.refused
    }
}

/// Collects the samples of a drive.
pub(super) struct Recorder {
    tenants: Vec<Mutex<Tally>>,
    queries: Vec<Mutex<Tally>>,
    goal: Duration,
    observer: Arc<dyn Observer>,
}

impl Recorder {
    pub(super) fn new(
        tenants: usize,
        queries: usize,
        goal: Duration,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let tallies = |count| (0..count).map(|_| Mutex::new(Tally::new())).collect();
        Self {
            tenants: tallies(tenants),
            queries: tallies(queries),
            goal,
            observer,
        }
    }

    pub(super) fn record(&self, sample: &Sample) {
        lock(&self.tenants[sample.tenant]).record(sample, self.goal);
        lock(&self.queries[sample.query]).record(sample, self.goal);
        self.observer.finished(sample);
    }

    /// Notes the length of a tenant's queue.
    pub(super) fn backlog(&self, tenant: usize, length: u64) {
        let mut tally = lock(&self.tenants[tenant]);
        tally.backlog_max = tally.backlog_max.max(length);
    }

    pub(super) fn tenant(&self, tenant: usize) -> Tally {
        lock(&self.tenants[tenant]).clone()
    }

    pub(super) fn query(&self, query: usize) -> Tally {
        lock(&self.queries[query]).clone()
    }
}

/// A tally is consistent after every statement that can panic, so a poisoned lock
/// is as good as any.
fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(latency: Duration, outcome: Outcome) -> Sample {
        Sample {
            tenant: 0,
            query: 0,
            outcome,
            latency,
            at: latency,
        }
    }

    #[test]
    fn latencies_from_a_microsecond_to_hours_keep_three_digits() {
        let mut tally = Tally::new();
        for latency in [
            Duration::ZERO,
            Duration::from_micros(1),
            Duration::from_millis(1_234),
            Duration::from_secs(1_800),
            Duration::from_secs(7_200),
        ] {
            tally.record(&sample(latency, Outcome::Done { rows: 1 }), Duration::MAX);
        }
        let at = |quantile| tally.latencies_us.value_at_quantile(quantile);
        assert_eq!(at(0.0), 1);
        assert!(at(0.6).abs_diff(1_234_000) <= 1_234);
        assert!(at(0.8).abs_diff(1_800_000_000) <= 1_800_000);
        // Two hours count as one.
        assert!(at(1.0).abs_diff(LATENCY_US_MAX) <= LATENCY_US_MAX / 1_000);
    }

    #[test]
    fn failures_count_but_do_not_flatter() {
        let mut tally = Tally::new();
        let (quick, goal) = (Duration::from_millis(1), Duration::from_secs(1));
        tally.record(&sample(quick, Outcome::Done { rows: 3 }), goal);
        tally.record(&sample(quick, Outcome::Failed), goal);
        tally.record(&sample(quick, Outcome::Refused), goal);
        tally.record(&sample(2 * goal, Outcome::Unfinished), goal);
        assert_eq!((tally.requests(), tally.within_goal, tally.rows), (4, 1, 3));
        assert_eq!(tally.latencies_us.len(), 2);

        let mut sum = Tally::new();
        sum.add(&tally);
        sum.add(&tally);
        assert_eq!((sum.requests(), sum.latencies_us.len()), (8, 4));
        assert_eq!(sum.last_end, 2 * goal);
    }
}
