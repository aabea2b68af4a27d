//! The machine as the model sees it: cache levels and the cost of a miss in each.

use crate::AdviceError;

/// One level of cache, and what a miss in it costs on top of the levels above.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Bytes of a line.
    pub line_bytes: u64,
    /// Bytes the level holds.
    pub capacity_bytes: u64,
    /// ns of a miss when lines are read in order and the prefetcher is ahead.
    pub sequential_ns: f64,
    /// ns of a miss that nothing foresees and nothing overlaps.
    pub random_ns: f64,
}

/// What the kernels take per value, apart from misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueNs {
    /// Every row, values side by side: vector instructions, or shared without a copy.
    pub in_place: f64,
    /// Every row, values a stride apart.
    pub strided: f64,
    /// Selected rows, by position; the same for every layout.
    pub gathered: f64,
}

/// Cache levels from the fastest to the last before memory, and kernel times.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The levels, fastest first.
    pub levels: Vec<Level>,
    /// How many misses of a loop over positions are under way at once.
    pub overlap: f64,
    /// Kernel times.
    pub value_ns: ValueNs,
}

impl Default for Machine {
    /// A server of 2020 to 2025 (Ice Lake, Sapphire Rapids, Zen 3 and 4), rounded; to be
    /// replaced by what calibration finds on the machine itself.
    ///
    /// - Random: 14 cycles more for L2, some 70 more for L3 and 80 ns for local memory
    ///   at 3.5 GHz, the round trips vendors and lmbench-like tools report.
    /// - Sequential: one core streams some 100 GB/s from L2, 30 GB/s from L3 and
    ///   10 GB/s from memory: 0.6 + 1.6 + 4 ns for a line from memory.
    /// - Overlap: a core has 10 to 16 line fill buffers; 8 of them busy is what a loop
    ///   of gathers reaches (its misses then cost 13 ns, twice a streamed line).
    /// - Values: a vectorised compare, a scalar load with its store, and the same through
    ///   a position list.
    fn default() -> Machine {
        let level = |capacity_bytes, sequential_ns, random_ns| Level {
            line_bytes: 64,
            capacity_bytes,
            sequential_ns,
            random_ns,
        };
        Machine {
            levels: vec![
                level(48 << 10, 0.6, 4.0),
                level(2 << 20, 1.6, 20.0),
                level(32 << 20, 4.0, 80.0),
            ],
            overlap: 8.0,
            value_ns: ValueNs {
                in_place: 0.15,
                strided: 0.6,
                gathered: 0.8,
            },
        }
    }
}

impl Machine {
    /// # Errors
    /// [`AdviceError::Machine`] when a figure is missing, negative or not finite.
    pub(crate) fn check(&self) -> Result<(), AdviceError> {
        let usable = |ns: f64| ns.is_finite() && ns >= 0.0;
        let levels = self.levels.iter().all(|level| {
            level.line_bytes > 0 && usable(level.sequential_ns) && usable(level.random_ns)
        });
        let ValueNs {
            in_place,
            strided,
            gathered,
        } = self.value_ns;
        let values = [in_place, strided, gathered].into_iter().all(usable);
        if !levels || self.levels.is_empty() || !values {
            return Err(AdviceError::Machine("a level or a time is unusable"));
        }
        if !(self.overlap.is_finite() && self.overlap >= 1.0) {
            return Err(AdviceError::Machine("overlap is at least 1"));
        }
        Ok(())
    }

    /// ns of a line that comes all the way from memory, in order.
    pub(crate) fn memory_sequential_ns(&self) -> f64 {
        self.levels.iter().map(|level| level.sequential_ns).sum()
    }

    /// ns of a line that comes all the way from memory, unforeseen.
    pub(crate) fn memory_random_ns(&self) -> f64 {
        self.levels.iter().map(|level| level.random_ns).sum()
    }

    /// ns of a line that lies in the last level, unforeseen.
    pub(crate) fn cached_random_ns(&self) -> f64 {
        let above = self.levels.len().saturating_sub(1);
        self.levels[..above]
            .iter()
            .map(|level| level.random_ns)
            .sum()
    }

    /// Bytes of a line of the last level, the unit in which memory is read.
    pub(crate) fn memory_line_bytes(&self) -> u64 {
        self.levels.last().map_or(64, |level| level.line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_add_up() {
        let machine = Machine::default();
        machine.check().unwrap();
        assert!((machine.memory_sequential_ns() - 6.2).abs() < 1e-9);
        assert!((machine.memory_random_ns() - 104.0).abs() < 1e-9);
        assert!((machine.cached_random_ns() - 24.0).abs() < 1e-9);
    }

    #[test]
    fn unusable_figures_are_refused() {
        let with = |change: fn(&mut Machine)| {
            let mut machine = Machine::default();
            change(&mut machine);
            machine.check()
        };
        assert!(with(|machine| machine.levels.clear()).is_err());
        assert!(with(|machine| machine.levels[0].line_bytes = 0).is_err());
        assert!(with(|machine| machine.levels[1].random_ns = f64::NAN).is_err());
        assert!(with(|machine| machine.overlap = 0.5).is_err());
        assert!(with(|machine| machine.value_ns.strided = -1.0).is_err());
    }
}
