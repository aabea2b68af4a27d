//! The value of more or less buffer pool.
//!
//! ```text
//!  ms/s
//!   │ ●  misses/s × cost of a miss, at the pages in memory now
//!   │   ╲
//!   │     ╲
//!   └───────● all of the data fits
//! ```
//!
//! Below the pages in memory the costs are those that a smaller pool was seen to have ([`History`]), if
//! any was. The straight line is the cost of uniform access to the data. With skewed access the first bytes are
//! worth more than the line says, so the line errs on the side of leaving memory with others.

use std::time::Instant;

use aerostat_balloon::message::{Cost, Demand};

use super::history::History;
use crate::scale::Scale;

/// Lost work below this, in milliseconds a second, is no reason to want more.
const LOSS_MS_PER_S_MIN: f64 = 1.0;

/// A buffer pool that has more free pages than this share, as a divisor, and those that the server keeps
/// free, wants no more than its size: misses fill it.
const FREE_SHARE: u64 = 20;

/// The size and the work of a buffer pool. Amounts are bytes of the buffer pool.
pub(crate) struct Load {
    /// Its size.
    pub(crate) size: u64,
    /// Pages that hold something.
    pub(crate) in_use: u64,
    /// Pages that hold nothing.
    pub(crate) free: u64,
    /// Pages that the server keeps free.
    pub(crate) kept_free: u64,
    /// Tables and indexes on disk; 0 where that is not known.
    pub(crate) data: u64,
    /// The largest size that it can have.
    pub(crate) most: u64,
    /// Pages that had to be read while a statement waited.
    pub(crate) misses_per_s: f64,
    /// Pages that statements asked for.
    pub(crate) requests_per_s: f64,
    /// How long a read takes.
    pub(crate) miss_ms: f64,
    /// Whether statements wait for free pages.
    pub(crate) is_stalled: bool,
}

impl Load {
    /// Whether the pool has pages for all that it holds and no more.
    pub(crate) fn is_full(&self) -> bool {
        self.free <= self.kept_free + self.size / FREE_SHARE
    }

    /// In bytes as the kernel counts them.
    pub(crate) fn demand(&self, scale: Scale, history: &History, now: Instant) -> Demand {
        let loss = self.misses_per_s * self.miss_ms;
        let is_missing = loss >= LOSS_MS_PER_S_MIN || self.is_stalled;
        let lacks = self.is_full() && is_missing;
        // Pages also hold locks, the hash index and undo: a 20th more than the data.
        let all = match self.data {
            0 => self.size.saturating_mul(2),
            data => data.saturating_add(data / 20),
        };
        let is_short = is_missing && all > self.in_use;
        let wanted = match is_short {
            true if lacks => all,
            // It has grown, and fills.
            true => all.min(self.size).max(self.in_use),
            false => self.in_use,
        };
        let wanted = wanted.min(self.most);
        let loss_now = if is_short { loss } else { 0.0 };
        let mut costs = history.costs_below(
            self.in_use,
            loss_now,
            self.requests_per_s,
            self.miss_ms,
            scale,
            now,
        );
        costs.push(Cost {
            bytes: scale.to_account(self.in_use),
            ms_per_s: loss_now,
        });
        if is_short {
            // Beyond the largest size the line is of no use to anyone, but its slope is.
            costs.push(Cost {
                bytes: scale.to_account(all),
                ms_per_s: 0.0,
            });
        }
        Demand {
            used: scale.to_account(self.in_use),
            wanted: scale.to_account(wanted),
            is_stalled: lacks && self.is_stalled,
            costs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn load() -> Load {
        Load {
            size: 256 * MIB,
            in_use: 250 * MIB,
            free: 20 * MIB,
            kept_free: 24 * MIB,
            data: 1_000 * MIB,
            most: 2_000 * MIB,
            misses_per_s: 500.0,
            requests_per_s: 10_000.0,
            miss_ms: 0.2,
            is_stalled: false,
        }
    }

    impl Load {
        fn told(&self) -> Demand {
            let history = History::new(self.most);
            self.demand(Scale::known(100 * MIB, 1.0), &history, Instant::now())
        }
    }

    #[test]
    fn a_pool_that_misses_nothing_remembers_what_a_smaller_one_missed() {
        let start = Instant::now();
        let mut history = History::new(2_000 * MIB);
        for second in 0..30 {
            let now = start + std::time::Duration::from_secs(second);
            history.observe(120 * MIB, 0.05, now);
        }
        let calm = Load {
            misses_per_s: 0.0,
            ..load()
        };
        let scale = Scale::known(100 * MIB, 1.0);
        let demand = calm.demand(scale, &history, start);
        assert_eq!(demand.check(), Ok(()));
        let costs: Vec<f64> = demand.costs.iter().map(|cost| cost.ms_per_s).collect();
        assert_eq!(costs, [100.0, 0.0]);
    }

    #[test]
    fn misses_are_worth_memory_until_all_data_fits() {
        let demand = load().told();
        assert_eq!(demand.check(), Ok(()));
        assert_eq!(demand.wanted, 1_150 * MIB);
        assert_eq!(demand.costs[0].bytes, 350 * MIB);
        assert!((demand.costs[0].ms_per_s - 100.0).abs() < 1e-9);
        assert_eq!(
            (demand.costs[1].bytes, demand.costs[1].ms_per_s),
            (1_150 * MIB, 0.0)
        );
        let little = Load {
            most: 512 * MIB,
            ..load()
        };
        assert_eq!(little.told().wanted, 612 * MIB);
    }

    #[test]
    fn a_pool_without_misses_wants_what_it_has() {
        let calm = Load {
            misses_per_s: 2.0,
            ..load()
        };
        let roomy = Load {
            free: 100 * MIB,
            in_use: 156 * MIB,
            misses_per_s: 0.0,
            ..load()
        };
        for (load, wanted) in [(calm, 350 * MIB), (roomy, 256 * MIB)] {
            let demand = load.told();
            assert_eq!(demand.check(), Ok(()));
            assert_eq!(demand.wanted, wanted);
            assert_eq!(demand.costs.len(), 1);
        }
    }

    #[test]
    fn a_pool_that_has_grown_keeps_what_it_was_given_while_it_fills() {
        let filling = Load {
            size: 800 * MIB,
            free: 500 * MIB,
            in_use: 300 * MIB,
            ..load()
        };
        let demand = filling.told();
        assert_eq!(demand.check(), Ok(()));
        // Its size with the overhead, and no more.
        assert_eq!(demand.wanted, 900 * MIB);
        assert_eq!(demand.costs[0].bytes, 400 * MIB);
        assert!((demand.costs[0].ms_per_s - 100.0).abs() < 1e-9);
        assert_eq!(demand.costs[1].bytes, 1_150 * MIB);
        // Little data fits as it is.
        let little = Load {
            data: 200 * MIB,
            ..filling
        };
        assert_eq!(little.told().wanted, 400 * MIB);
    }

    #[test]
    fn statements_that_wait_for_pages_are_stalled() {
        let stalled = Load {
            is_stalled: true,
            misses_per_s: 0.0,
            data: 0,
            ..load()
        };
        let demand = stalled.told();
        assert_eq!(demand.check(), Ok(()));
        assert!(demand.is_stalled);
        assert_eq!(demand.wanted, 612 * MIB);
    }
}
