//! What a program's lack of memory costs it, as a function of what it has.

use aerostat_balloon::message::{Cost, Demand};

/// What is assumed of a program that wants more and does not say what it is worth, in milliseconds of
/// work a second for each GiB that it lacks: little, so that whoever knows more comes first.
const UNTOLD_MS_PER_S_PER_GIB: f64 = 10.0;

/// The same where its work waits for memory.
const STALLED_MS_PER_S_PER_GIB: f64 = 200.0;

/// Milliseconds of work that a program loses in each second, by bytes that it has: straight lines
/// between points.
///
/// Below the first point the curve goes on as it begins, or as the program's wish has it where that is
/// steeper; above the last one it is level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    points: Vec<Cost>,
    /// Milliseconds a second for each byte below the first point.
    below: f64,
}

impl Costs {
    /// What a demand says. It must have been checked.
    pub fn of(demand: &Demand) -> Costs {
        let untold = match demand.is_stalled {
            true => STALLED_MS_PER_S_PER_GIB,
            false => UNTOLD_MS_PER_S_PER_GIB,
        } / (1u64 << 30) as f64;
        let mut points = demand.costs.clone();
        if points.is_empty() {
            points.push(Cost {
                bytes: demand.wanted,
                ms_per_s: 0.0,
            });
        }
        let first = points.windows(2).next().map_or(0.0, slope);
        Costs {
            points,
            below: first.max(untold),
        }
    }

    /// Where lines meet, in bytes.
    pub fn points(&self) -> impl Iterator<Item = u64> {
        self.points.iter().map(|point| point.bytes)
    }

    /// At so many bytes.
    pub fn at(&self, bytes: u64) -> f64 {
        let Some(first) = self.points.first() else {
            return 0.0;
        };
        if bytes <= first.bytes {
            return first.ms_per_s + (first.bytes - bytes) as f64 * self.below;
        }
        let next = self.points.partition_point(|point| point.bytes < bytes);
        match self.points.get(next) {
            None => self.points[next - 1].ms_per_s,
            Some(point) => {
                let two = &self.points[next - 1..=next];
                point.ms_per_s + (point.bytes - bytes) as f64 * slope(two)
            }
        }
    }
}

/// What a byte less costs between two points.
fn slope(two: &[Cost]) -> f64 {
    (two[0].ms_per_s - two[1].ms_per_s) / (two[1].bytes - two[0].bytes) as f64
}
