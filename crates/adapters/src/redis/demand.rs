//! The value of more or less memory to a server.

use aerostat_balloon::message::{Cost, Demand};

use crate::scale::Scale;

/// A server that uses more than this share of its limit is full.
const FULL_SHARE: f64 = 0.95;

/// By how much a full server wants to grow, as a divisor of its use. The adapter does not know how much
/// the evicted keys would need, so it asks step by step.
const GROWTH_SHARE: u64 = 4;

/// Lost work below this, in milliseconds a second, is no reason to want more.
const LOSS_MS_PER_S_MIN: f64 = 1.0;

/// The size and the work of a server. Amounts are bytes that count against `maxmemory`.
pub(crate) struct Load {
    pub(crate) used: u64,
    /// `maxmemory`, or the use where there is none.
    pub(crate) limit: u64,
    /// The largest limit that is set.
    pub(crate) most: u64,
    pub(crate) may_evict: bool,
    pub(crate) evictions_per_s: f64,
    /// Reads that found nothing.
    pub(crate) misses_per_s: f64,
    pub(crate) miss_ms: f64,
}

impl Load {
    /// In bytes as the kernel counts them.
    pub(crate) fn demand(&self, scale: Scale) -> Demand {
        let is_full = self.used as f64 >= self.limit as f64 * FULL_SHARE;
        // A read may miss a key that never was. A miss that memory would have avoided is of a key that was
        // evicted, so there are not more of these than evictions.
        let loss = self.misses_per_s.min(self.evictions_per_s) * self.miss_ms;
        let lacks = match self.may_evict {
            true => is_full && loss >= LOSS_MS_PER_S_MIN,
            false => is_full,
        };
        let grown = self.used.saturating_add(self.used / GROWTH_SHARE);
        let wanted = match (lacks, self.may_evict) {
            (true, _) => grown.min(self.most),
            (false, true) => self.used.min(self.most),
            // It is to have room before it refuses writes.
            (false, false) => self.used.saturating_add(self.used / 8).min(self.most),
        };
        let mut costs = Vec::new();
        if lacks && self.may_evict {
            costs.push(Cost {
                bytes: scale.to_account(self.used),
                ms_per_s: loss,
            });
            costs.push(Cost {
                bytes: scale.to_account(grown.max(self.used + 1)),
                ms_per_s: 0.0,
            });
        }
        Demand {
            used: scale.to_account(self.used),
            wanted: scale.to_account(wanted),
            is_stalled: lacks && !self.may_evict,
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
            used: 200 * MIB,
            limit: 200 * MIB,
            most: 1_000 * MIB,
            may_evict: true,
            evictions_per_s: 50.0,
            misses_per_s: 80.0,
            miss_ms: 2.0,
        }
    }

    fn scale() -> Scale {
        Scale::known(20 * MIB, 1.0)
    }

    #[test]
    fn a_cache_that_evicts_what_is_read_again_wants_more() {
        let demand = load().demand(scale());
        assert_eq!(demand.check(), Ok(()));
        assert_eq!(demand.wanted, 270 * MIB);
        assert_eq!(
            (demand.costs[0].bytes, demand.costs[0].ms_per_s),
            (220 * MIB, 100.0)
        );
        let cold = Load {
            misses_per_s: 0.0,
            ..load()
        };
        assert_eq!(cold.demand(scale()).wanted, 220 * MIB);
        let empty = Load {
            used: 0,
            limit: 0,
            ..load()
        };
        assert_eq!(empty.demand(scale()).check(), Ok(()));
    }

    #[test]
    fn a_store_that_evicts_nothing_is_stalled_when_it_is_full() {
        let store = Load {
            may_evict: false,
            ..load()
        };
        let demand = store.demand(scale());
        assert!(demand.is_stalled && demand.costs.is_empty());
        assert_eq!(demand.wanted, 270 * MIB);
        let roomy = Load {
            limit: 400 * MIB,
            may_evict: false,
            ..load()
        };
        let demand = roomy.demand(scale());
        assert!(!demand.is_stalled);
        assert_eq!(demand.wanted, 245 * MIB);
    }
}
