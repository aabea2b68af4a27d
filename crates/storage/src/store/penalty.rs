//! What scans pay for rows that are in front of frozen ones, or that have ended among them, and
//! when a merge is worth that.
//!
//! A merge copies all rows of a unit; until then each scan pays for the rows that the merge would
//! take over. The number of scans to come is unknown, as in the ski-rental problem: whoever buys
//! skis once the rents have reached their price never pays more than twice the optimum (Karlin et
//! al., Competitive Snoopy Caching, 1988). So scans count what they have paid, in nanoseconds, at
//! the segments where they paid it, and a unit is due when the sum reaches the price of its
//! merge. LevelDB's `allowed_seeks` does the same with seeks.
//!
//! While a unit is being written, writers put more rows in front of it, and it will be due again.
//! A unit that is no longer written is merged for good, so less is enough.

use std::sync::atomic::{AtomicU64, Ordering};

/// Selecting and filtering a row of a hot segment. Measured with SSB at scale 1.
const HOT_ROW_NS: u64 = 6;

/// What a hot segment costs a scan beside its rows: a claim, conditions, lookups and a batch
/// of its own.
const HOT_MORSEL_NS: u64 = 4_000;

/// A row that is left by the filters whose bit is looked up, and one whose stamp is read.
const ASKED_ROW_NS: u64 = 1;
const ENDED_ROW_NS: u64 = 10;

/// Reading, sorting and encoding a row. `VACUUM FREEZE` of the 6,000,000 rows of SSB's
/// `lineorder`, 17 columns, takes 1.2 s.
const MERGED_ROW_NS: u64 = 200;

/// What is not written any more is merged for this part of the price.
const UNWRITTEN_DISCOUNT: u64 = 8;

/// What scans have paid at one segment.
#[derive(Default)]
pub(crate) struct Penalty(AtomicU64);

impl Penalty {
    /// For rows of a morsel of a hot segment.
    pub(crate) fn add_hot(&self, rows: usize) {
        self.add(HOT_MORSEL_NS + HOT_ROW_NS * rows as u64);
    }

    /// For rows of a frozen segment that were looked at because some had ended.
    pub(crate) fn add_ended(&self, asked: usize, ended: usize) {
        self.add(ASKED_ROW_NS * asked as u64 + ENDED_ROW_NS * ended as u64);
    }

    fn add(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    pub(crate) fn ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Begins anew: a merge was made of it, or tried.
    pub(crate) fn spend(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether so much is what merging so many rows costs.
pub(crate) fn pays(penalty_ns: u64, rows: u64, is_written: bool) -> bool {
    let price = rows * MERGED_ROW_NS;
    let discount = if is_written { 1 } else { UNWRITTEN_DISCOUNT };
    penalty_ns > 0 && penalty_ns >= price / discount
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_pays_when_scans_have_paid_its_price() {
        let price = 1_000 * MERGED_ROW_NS;
        assert!(!pays(0, 0, false));
        assert!(!pays(price - 1, 1_000, true));
        assert!(pays(price, 1_000, true));
        assert!(!pays(price / UNWRITTEN_DISCOUNT - 1, 1_000, false));
        assert!(pays(price / UNWRITTEN_DISCOUNT, 1_000, false));
    }
}
