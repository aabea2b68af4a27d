//! How often pages were missing at sizes that the buffer pool has had.
//!
//! A pool that holds all pages in use misses nothing, and does not tell the cost of a smaller one. Its misses
//! at the time when it was smaller tell it, as long as the work is the same.

use std::time::{Duration, Instant};

use aerostat_balloon::message::Cost;

use crate::scale::Scale;

/// How many sizes are told apart, up to the largest one.
const SIZES: usize = 32;

/// After this time the work may be another one.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

/// A pool whose size has changed is looked at after this time: pages of before are gone, and pages that
/// are missed now and not again are in.
const STEADY: Duration = Duration::from_secs(15);

/// The weight of a new observation at a size that has one.
const WEIGHT: f64 = 0.1;

/// The share of requests that missed, by size.
pub(crate) struct History {
    /// The width of a size.
    width: u64,
    seen: [Option<(f64, Instant)>; SIZES],
    /// The size, and since when it has been the same.
    steady: Option<(u64, Instant)>,
}

impl History {
    /// For a pool of so many bytes at most.
    pub(crate) fn new(most: u64) -> History {
        History {
            width: (most / SIZES as u64).max(1),
            seen: [None; SIZES],
            steady: None,
        }
    }

    /// A pool of a size, all of it in use, missed such a share of the requests lately.
    pub(crate) fn observe(&mut self, size: u64, share: f64, now: Instant) {
        match self.steady {
            Some((known, since)) if known == size => {
                if now.saturating_duration_since(since) < STEADY || !share.is_finite() {
                    return;
                }
            }
            _ => {
                self.steady = Some((size, now));
                return;
            }
        }
        let Some(place) = self.seen.get_mut((size / self.width) as usize) else {
            return;
        };
        *place = Some(match *place {
            Some((known, _)) => (known + (share - known) * WEIGHT, now),
            None => (share, now),
        });
    }

    /// The costs of the work at smaller sizes, if it costs `loss` with a pool of `in_use` bytes, in the order
    /// of sizes. A request that misses costs `miss_ms`.
    pub(crate) fn costs_below(
        &self,
        in_use: u64,
        loss: f64,
        requests_per_s: f64,
        miss_ms: f64,
        scale: Scale,
        now: Instant,
    ) -> Vec<Cost> {
        let mut costs = Vec::new();
        let mut least = loss;
        for (at, seen) in self.seen.iter().enumerate().rev() {
            // The upper end: the pool had no more than that.
            let bytes = (at as u64 + 1) * self.width;
            let Some((share, seen_at)) = seen else {
                continue;
            };
            if bytes >= in_use || now.saturating_duration_since(*seen_at) > AGE_MAX {
                continue;
            }
            // Less memory never costs less.
            least = f64::max(least, share * requests_per_s * miss_ms);
            costs.push(Cost {
                bytes: scale.to_account(bytes),
                ms_per_s: least,
            });
        }
        costs.reverse();
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SCALE: Scale = Scale::known(100 << 20, 1.0);

    #[test]
    fn misses_of_a_smaller_pool_are_remembered() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = History::new(320 * MIB);
        for second in 0..30 {
            history.observe(105 * MIB, 0.01, at(second));
        }
        for second in 30..60 {
            history.observe(205 * MIB, 0.001, at(second));
        }
        let costs = |in_use: u64, now| {
            let costs = history.costs_below(in_use * MIB, 5.0, 10_000.0, 0.2, SCALE, at(now));
            let costs = costs.iter().map(|cost| (cost.bytes / MIB, cost.ms_per_s));
            costs.collect::<Vec<_>>()
        };
        // 100 of 10,000 requests at 0.2 ms, and not less than a larger pool costs.
        assert_eq!(costs(300, 60), [(210, 20.0), (310, 5.0)]);
        assert_eq!(costs(205, 60), [(210, 20.0)]);
        assert_eq!(costs(300, 60 + 31 * 60), []);
    }

    #[test]
    fn a_size_that_was_just_set_says_nothing() {
        let start = Instant::now();
        let mut history = History::new(320 * MIB);
        for second in 0..10 {
            history.observe(100 * MIB, 0.5, start + Duration::from_secs(second));
        }
        let costs = history.costs_below(300 * MIB, 0.0, 1.0, 1.0, SCALE, start);
        assert!(costs.is_empty());
    }
}
