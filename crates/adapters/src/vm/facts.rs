//! What a monitor tells of a guest, and what follows from it.

use aerostat_balloon::message::{Cost, Demand};

use crate::scale::Scale;

/// What a guest keeps available when it gives memory, as a divisor of its largest size and at least: its
/// programs ask for more before its next statistics are here.
const RESERVE_PARTS: u64 = 32;
const RESERVE_BYTES_MIN: u64 = 32 << 20;

/// What a guest wants to have available, as a divisor of what it needs and at least.
const HEADROOM_PARTS: u64 = 4;
const HEADROOM_BYTES_MIN: u64 = 64 << 20;

/// Lost work below this, in milliseconds a second, is no reason to want more.
const LOSS_MS_PER_S_MIN: f64 = 1.0;

/// How far a size may be from what was asked for: the driver counts pages of 4 KiB, some together.
const SIZE_SLACK_BYTES: u64 = 2 << 20;

/// A guest as its monitor sees it. Amounts are bytes of the guest's memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    /// What the balloon leaves it now.
    pub(crate) size: u64,
    /// What it has without a balloon.
    pub(crate) size_max: u64,
    /// What its driver tells; `None` without one, or when it has not told for long.
    pub(crate) guest: Option<Guest>,
}

/// A guest's statistics.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Guest {
    /// Bytes that nothing is in.
    pub(crate) free: u64,
    /// Bytes that programs could have, by the guest's own estimate: caches count.
    pub(crate) available: u64,
    /// Pages that were read from disk since it began.
    pub(crate) major_faults: f64,
}

impl Facts {
    /// Bytes that QEMU surely has pages for.
    pub(crate) fn touched(&self) -> u64 {
        let free = self.guest.as_ref().map_or(self.size, |guest| guest.free);
        self.size.saturating_sub(free)
    }

    /// Bytes that the guest needs: those that no program could have. All, where it does not tell.
    fn needed(&self) -> u64 {
        let available = self.guest.as_ref().map_or(0, |guest| guest.available);
        self.size.saturating_sub(available)
    }

    /// The least size that it can be brought to.
    pub(crate) fn least(&self) -> u64 {
        let reserve = (self.size_max / RESERVE_PARTS).max(RESERVE_BYTES_MIN);
        self.needed().saturating_add(reserve).min(self.size_max)
    }

    /// Whether the balloon is where it was told to be.
    pub(crate) fn has_size(&self, bytes: u64) -> bool {
        self.size.abs_diff(bytes) <= SIZE_SLACK_BYTES
    }

    /// What more or less memory is worth; nothing where the guest tells nothing.
    pub(crate) fn demand(&self, account: u64, scale: Scale, lost_ms_per_s: f64) -> Option<Demand> {
        let guest = self.guest.as_ref()?;
        let needed = self.needed();
        let headroom = (needed / HEADROOM_PARTS).max(HEADROOM_BYTES_MIN);
        let lacks = guest.available < headroom;
        let room = scale.to_account(needed.saturating_add(headroom).min(self.size_max));
        let mut costs = Vec::new();
        // Pages of programs that begin are read from disk as well, however much memory there is.
        if lacks && lost_ms_per_s >= LOSS_MS_PER_S_MIN {
            costs.push(Cost {
                bytes: account,
                ms_per_s: lost_ms_per_s,
            });
            costs.push(Cost {
                bytes: room.max(account + 1),
                ms_per_s: 0.0,
            });
        }
        Some(Demand {
            used: account,
            wanted: room,
            is_stalled: guest.available < headroom / 4,
            costs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn facts(size: u64, free: u64, available: u64) -> Facts {
        Facts {
            size: size * MIB,
            size_max: 1024 * MIB,
            guest: Some(Guest {
                free: free * MIB,
                available: available * MIB,
                major_faults: 0.0,
            }),
        }
    }

    #[test]
    fn a_guest_keeps_what_it_needs_and_a_reserve() {
        let caching = facts(1024, 100, 700);
        assert_eq!(caching.touched(), 924 * MIB);
        assert_eq!(caching.least(), (324 + 32) * MIB);
        // As small as it can be it does not become smaller.
        assert_eq!(facts(356, 20, 32).least(), 356 * MIB);
        let silent = Facts {
            guest: None,
            ..caching
        };
        assert_eq!((silent.touched(), silent.least()), (0, 1024 * MIB));
        assert!(silent.demand(0, Scale::known(0, 1.0), 9.0).is_none());
    }

    #[test]
    fn a_guest_that_reads_its_disk_for_lack_of_memory_wants_more() {
        let scale = Scale::known(50 * MIB, 1.0);
        let short = facts(400, 5, 10).demand(450 * MIB, scale, 30.0).unwrap();
        assert_eq!(short.check(), Ok(()));
        assert!(short.is_stalled);
        assert_eq!(short.wanted / MIB, 390 + 390 / 4 + 50);
        assert_eq!(short.costs.len(), 2);
        // With caches to give up, faults are those of programs that begin.
        let roomy = facts(1024, 5, 700).demand(900 * MIB, scale, 30.0).unwrap();
        assert_eq!(roomy.check(), Ok(()));
        assert!(!roomy.is_stalled && roomy.costs.is_empty());
        assert_eq!(roomy.wanted / MIB, 324 + 81 + 50);
    }
}
