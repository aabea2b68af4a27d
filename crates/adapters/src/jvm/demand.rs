//! The value of more or less heap.
//!
//! ```text
//!  collections/s = allocated bytes/s ÷ (heap − live set)
//!  ms/s          = collections/s × live set × time to trace a byte
//! ```
//!
//! A collection traces the live set, and there is one each time the rest of the heap has been filled. The
//! model is the one that runtimes size their heaps by (for instance "Optimal Heap Limits for Reducing
//! Browser Memory Use", Kirisame, Shenoy and Panchekha, OOPSLA 2022).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use aerostat_balloon::message::{Cost, Demand};

use super::facts::Heap;
use crate::scale::Scale;

/// The time over which the least use of the heap is taken for the live set. A program that allocates much
/// has a collection in this time.
const WINDOW: Duration = Duration::from_secs(60);

/// The time that a collector takes to trace memory: 0.7 to 1.3 s were measured for 1.2 GB of objects.
const TRACE_MS_PER_GIB: f64 = 700.0;

/// A heap is large enough when collections take less than this.
const LOSS_MS_PER_S: f64 = 10.0;

/// The room for garbage, in multiples of the live set, at which costs are told.
const ROOMS: [f64; 6] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0];

/// The live set is taken for this much at least, so that an idle program does not look as if it needed
/// nothing.
const LIVES_BYTES_MIN: u64 = 4 << 20;

/// Observations of a program's use of its heap.
#[derive(Debug, Default)]
pub(crate) struct Work {
    seen: VecDeque<(Instant, u64)>,
    /// The bytes in use after the last collection that the adapter asked for.
    collected: Option<u64>,
}

impl Work {
    /// So much of the heap is in use now.
    pub(crate) fn observe(&mut self, used: u64, now: Instant) {
        self.seen.push_back((now, used));
        let is_old = |seen: &(Instant, u64)| now.saturating_duration_since(seen.0) > WINDOW;
        while self.seen.front().is_some_and(is_old) {
            self.seen.pop_front();
        }
    }

    /// After a collection so much is in use.
    pub(crate) fn collected(&mut self, used: u64) {
        self.collected = Some(used);
        self.observe(used, Instant::now());
    }

    /// The size of the live set, as far as it is known: the least use of the heap lately.
    pub(crate) fn live(&self) -> u64 {
        let least = self.seen.iter().map(|(_, used)| *used).min();
        // Without any observation an earlier collection says it.
        least.or(self.collected).unwrap_or(0)
    }

    /// Bytes that are allocated in a second: the sum of all rises of the use.
    fn allocated_per_s(&self) -> f64 {
        let (Some(first), Some(last)) = (self.seen.front(), self.seen.back()) else {
            return 0.0;
        };
        let elapsed = last.0.saturating_duration_since(first.0).as_secs_f64();
        if elapsed <= 0.0 {
            return 0.0;
        }
        let pairs = self.seen.iter().zip(self.seen.iter().skip(1));
        let risen: u64 = pairs
            .map(|((_, before), (_, after))| after.saturating_sub(*before))
            .sum();
        risen as f64 / elapsed
    }

    /// In bytes as the kernel counts them.
    pub(crate) fn demand(&self, heap: Heap, heap_max: u64, scale: Scale) -> Demand {
        let live = self.live().max(LIVES_BYTES_MIN);
        let allocated_per_s = self.allocated_per_s();
        // One collection.
        let trace_ms = live as f64 / (1u64 << 30) as f64 * TRACE_MS_PER_GIB;
        let room = allocated_per_s * trace_ms / LOSS_MS_PER_S;
        // A quarter at least, so that an idle program can begin to work.
        let room = room.max(live as f64 / 4.0);
        let wanted = (live as f64 + room).min(heap_max as f64) as u64;
        let costs = ROOMS.into_iter().map(|share| {
            let room = live as f64 * share;
            Cost {
                bytes: scale.to_account((live as f64 + room) as u64),
                ms_per_s: allocated_per_s / room * trace_ms,
            }
        });
        Demand {
            used: scale.to_account(heap.committed),
            wanted: scale.to_account(wanted),
            is_stalled: false,
            costs: costs.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SCALE: Scale = Scale::known(50 << 20, 1.0);

    fn heap() -> Heap {
        Heap {
            used: 150 * MIB,
            committed: 200 * MIB,
        }
    }

    /// Allocates 100 MiB in a second, and is collected down to 100 MiB every third.
    fn busy() -> Work {
        let start = Instant::now();
        let mut work = Work::default();
        for second in 0..60 {
            let used = 100 + 100 * (second % 3);
            work.observe(used * MIB, start + Duration::from_secs(second));
        }
        work
    }

    #[test]
    fn the_live_set_is_the_least_use_lately() {
        let mut work = busy();
        assert_eq!(work.live(), 100 * MIB);
        let later = Instant::now() + Duration::from_secs(600);
        work.observe(180 * MIB, later);
        assert_eq!(work.live(), 180 * MIB);
        assert_eq!(Work::default().live(), 0);
    }

    #[test]
    fn a_program_that_allocates_wants_room_for_garbage() {
        let demand = busy().demand(heap(), 4_096 * MIB, SCALE);
        assert_eq!(demand.check(), Ok(()));
        // 66 MiB a second, and 68 ms for each collection.
        assert!(
            (570 * MIB..630 * MIB).contains(&demand.wanted),
            "{}",
            demand.wanted
        );
        let first = demand.costs.first().unwrap();
        assert!(
            (300.0..400.0).contains(&first.ms_per_s),
            "{}",
            first.ms_per_s
        );
        let little = busy().demand(heap(), 256 * MIB, SCALE);
        assert_eq!(little.wanted, 306 * MIB);
    }

    #[test]
    fn an_idle_program_wants_little_more_than_its_live_set() {
        let mut work = Work::default();
        let start = Instant::now();
        for second in 0..10 {
            work.observe(100 * MIB, start + Duration::from_secs(second));
        }
        let demand = work.demand(heap(), 4_096 * MIB, SCALE);
        assert_eq!(demand.check(), Ok(()));
        assert_eq!(demand.wanted, 175 * MIB);
        let nothing = Work::default().demand(heap(), 4_096 * MIB, SCALE);
        assert_eq!(nothing.check(), Ok(()));
    }
}
