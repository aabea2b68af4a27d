//! What more memory would have been worth: how much of what was evicted was read back, by how much
//! else had been evicted in between.
//!
//! With so much more memory, an extent that came back would not have gone: the policy would have
//! come to it later. So the bytes that were read back within a distance are the misses that a memory
//! larger by that distance would not have had, which is a point of the curve of misses over memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Evictions;

/// The least distance that is told apart, as a power of two: 1 MiB.
const FIRST_BITS: u32 = 20;

/// Distances from 1 MiB to 1 TiB, each twice the one before.
const STEPS: usize = 21;

/// Bytes that would not have been read, by how much more memory there would have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorthOfMemory([u64; STEPS]);

impl WorthOfMemory {
    /// Points of the curve: with so many bytes of memory more, so many bytes would not have been read
    /// back, ascending.
    pub fn points(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut sum = 0;
        self.0.iter().enumerate().map(move |(step, bytes)| {
            sum += bytes;
            (1 << (FIRST_BITS + step as u32), sum)
        })
    }

    /// Bytes that would not have been read back with so much more memory.
    pub fn with_more(&self, bytes: u64) -> u64 {
        let points = self.points().take_while(|(more, _)| *more <= bytes);
        points.last().map_or(0, |(_, saved)| saved)
    }
}

#[derive(Default)]
pub(super) struct Worth {
    evicted: AtomicU64,
    read_back: AtomicU64,
    extents: AtomicU64,
    /// Bytes that were read back, by step of the distance.
    by_distance: [AtomicU64; STEPS],
}

impl Worth {
    /// Counts bytes that go; how many have gone so far.
    pub(super) fn evicted(&self, bytes: u64) -> u64 {
        self.evicted.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// What was evicted since a point that [`Worth::evicted`] gave; `None` of 0, before all.
    pub(super) fn distance(&self, evicted_at: u64) -> Option<u64> {
        let evicted = self.evicted.load(Ordering::Relaxed);
        (evicted_at > 0).then(|| evicted.saturating_sub(evicted_at))
    }

    /// Counts bytes that came back.
    pub(super) fn read_back(&self, evicted_at: u64, bytes: u64) {
        self.read_back.fetch_add(bytes, Ordering::Relaxed);
        self.extents.fetch_add(1, Ordering::Relaxed);
        if let Some(distance) = self.distance(evicted_at) {
            // It had needed room for itself, too.
            let bits = (distance + bytes).max(1).next_power_of_two().ilog2();
            let step = bits.saturating_sub(FIRST_BITS) as usize;
            if let Some(counter) = self.by_distance.get(step) {
                counter.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn evictions(&self) -> Evictions {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Evictions {
            bytes_evicted: load(&self.evicted),
            bytes_read_back: load(&self.read_back),
            extents_read_back: load(&self.extents),
            worth: WorthOfMemory(std::array::from_fn(|step| load(&self.by_distance[step]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_back_soon_needed_little_more() {
        const MIB: u64 = 1 << 20;
        let worth = Worth::default();
        assert_eq!(worth.distance(0), None);
        let at = worth.evicted(MIB);
        worth.read_back(at, MIB);
        worth.evicted(9 * MIB);
        worth.read_back(at, MIB);
        let evictions = worth.evictions();
        let totals = (evictions.bytes_evicted, evictions.bytes_read_back);
        assert_eq!(
            (totals, evictions.extents_read_back),
            ((10 * MIB, 2 * MIB), 2)
        );
        let saved = |more| evictions.worth.with_more(more);
        assert_eq!([saved(MIB - 1), saved(MIB), saved(8 * MIB)], [0, MIB, MIB]);
        // Nine others, and itself.
        assert_eq!([saved(16 * MIB), saved(u64::MAX)], [2 * MIB, 2 * MIB]);
    }
}
