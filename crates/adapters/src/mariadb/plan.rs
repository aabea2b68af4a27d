//! Sizes of a buffer pool, and the steps from one to another.

/// How much a step takes from the buffer pool at most, unless the server's unit is larger.
const STEP_BYTES_MAX: u64 = 256 << 20;

/// The same while there are many dirty pages, which the step writes.
const DIRTY_STEP_BYTES_MAX: u64 = 64 << 20;

/// The sizes that a server can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Sizes are multiples of so many bytes.
    pub(crate) unit: u64,
    /// The largest size.
    pub(crate) most: u64,
    /// The size of a page.
    pub(crate) page: u64,
    /// How many bytes the server keeps free for pages that are read next (`innodb_lru_scan_depth`).
    pub(crate) kept_free: u64,
}

impl Limits {
    /// The largest size that is not above `bytes`.
    pub(crate) fn round_down(self, bytes: u64) -> u64 {
        bytes - bytes % self.unit
    }

    /// The size to set when so many bytes may be used, which is at least `least`.
    pub(crate) fn goal(self, bytes: u64, least: u64) -> u64 {
        let most = self.round_down(self.most).max(self.unit);
        self.round_down(bytes).clamp(least.min(most), most)
    }

    /// The sizes to set one after the other, to come from a size down to another, while there are few
    /// dirty pages or many.
    pub(crate) fn steps(self, from: u64, to: u64, is_clean: bool) -> impl Iterator<Item = u64> {
        let most = match is_clean {
            true => STEP_BYTES_MAX,
            false => DIRTY_STEP_BYTES_MAX,
        };
        let step = self.round_down(most).max(self.unit);
        let count = from.saturating_sub(to).div_ceil(step);
        (1..=count).map(move |number| from.saturating_sub(number * step).max(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits(unit: u64) -> Limits {
        Limits {
            unit: unit * MIB,
            most: 1_000 * MIB,
            page: 16 << 10,
            kept_free: 24 * MIB,
        }
    }

    #[test]
    fn goals_are_multiples_within_bounds() {
        let fine = limits(1);
        assert_eq!(fine.goal(300 * MIB + 5, 64 * MIB), 300 * MIB);
        assert_eq!(fine.goal(0, 64 * MIB), 64 * MIB);
        assert_eq!(fine.goal(u64::MAX, 64 * MIB), 1_000 * MIB);
        let coarse = limits(128);
        assert_eq!(coarse.goal(300 * MIB, 128 * MIB), 256 * MIB);
        assert_eq!(coarse.goal(u64::MAX, 128 * MIB), 896 * MIB);
    }

    #[test]
    fn steps_are_small_and_end_at_the_goal() {
        let of = |unit, from: u64, to: u64| -> Vec<u64> {
            let steps = limits(unit).steps(from * MIB, to * MIB, true);
            steps.map(|size| size / MIB).collect()
        };
        assert_eq!(of(1, 1000, 300), [744, 488, 300]);
        assert_eq!(of(1, 300, 299), [299]);
        assert_eq!(of(1024, 4096, 1024), [3072, 2048, 1024]);
        assert_eq!(of(1, 300, 300), [0u64; 0]);
        assert_eq!(of(1, 300, 400), [0u64; 0]);
        let dirty = limits(1).steps(200 * MIB, 100 * MIB, false);
        assert_eq!(dirty.collect::<Vec<_>>(), [136 * MIB, 100 * MIB]);
    }
}
