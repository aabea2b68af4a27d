//! The relation between the part of a program's memory that can be adjusted and the kernel's count of it.
//!
//! ```text
//!  account of the kernel  ├──── overhead ────┼──── factor × adjustable part ────┤
//! ```
//!
//! The overhead is code, stacks, connections and everything else that the program allocates. The program
//! does not tell it. A buffer of which a part was never touched makes it look small, and a buffer of which
//! a part is touched but empty makes it look large. So each observation gives an interval, and the
//! estimate moves only as far as the interval forces it to.

/// The largest overhead that is believed before an observation shows that it is higher. MariaDB
/// 10.11 starts with 80 MiB, a JVM with 25.
const GUESS_BYTES_MAX: u64 = 128 << 20;

/// The relation between the adjustable part and the kernel's account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    overhead: u64,
    factor: f64,
}

impl Scale {
    /// From an account, of which between `least` and `most` bytes are the adjustable part.
    pub(crate) fn new(account: u64, least: u64, most: u64) -> Scale {
        let mut scale = Scale::known(GUESS_BYTES_MAX, 1.0);
        scale.observe(account, least, most);
        scale
    }

    /// One that needs no estimate. The kernel counts each byte of the adjustable part `factor` times.
    pub(crate) const fn known(overhead: u64, factor: f64) -> Scale {
        Scale { overhead, factor }
    }

    /// Learns from an account, of which between `least` and `most` bytes are the adjustable part.
    pub(crate) fn observe(&mut self, account: u64, least: u64, most: u64) {
        let highest = account.saturating_sub(least);
        let lowest = account.saturating_sub(most.max(least));
        self.overhead = self.overhead.clamp(lowest, highest);
    }

    /// The kernel's count when the adjustable part has so many bytes.
    pub(crate) fn to_account(self, adjustable: u64) -> u64 {
        let counted = adjustable as f64 * self.factor;
        self.overhead.saturating_add(counted as u64)
    }

    /// The largest adjustable part with which the kernel counts no more than `account`.
    pub(crate) fn to_adjustable(self, account: u64) -> u64 {
        (account.saturating_sub(self.overhead) as f64 / self.factor) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_estimate_moves_only_as_far_as_it_must() {
        let mut scale = Scale::new(500 * MIB, 400 * MIB, 512 * MIB);
        assert_eq!(scale.to_account(0), 100 * MIB);
        scale.observe(300 * MIB, 180 * MIB, 256 * MIB);
        assert_eq!(scale.to_account(0), 100 * MIB);
        scale.observe(370 * MIB, 250 * MIB, 256 * MIB);
        assert_eq!(scale.to_account(0), 114 * MIB);
        // Pages that were freed by a dropped table are still in memory.
        scale.observe(370 * MIB, 10 * MIB, 256 * MIB);
        assert_eq!(scale.to_account(0), 114 * MIB);
    }

    #[test]
    fn a_large_empty_buffer_is_no_overhead() {
        let scale = Scale::new(8_000 * MIB, 10 * MIB, 7_950 * MIB);
        assert_eq!(scale.to_account(0), 128 * MIB);
    }

    #[test]
    fn both_ways_are_inverse() {
        let scale = Scale::known(50 * MIB, 2.0);
        assert_eq!(scale.to_account(100 * MIB), 250 * MIB);
        assert_eq!(scale.to_adjustable(250 * MIB), 100 * MIB);
        assert_eq!(scale.to_adjustable(10 * MIB), 0);
    }
}
