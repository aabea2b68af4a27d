//! From steps to levels; uncertain values are not reported.

use serde::{Deserialize, Serialize};

use crate::curve::{Curve, rounded, suffix_minimum};
use crate::steps::{Rules, Step, find_steps};

/// The least confidence with which a value is told.
pub const CONFIDENCE_MIN: f64 = 0.6;

/// Levels of TLB that are told: what rises behind them is the caches of page tables.
const TLB_LEVELS_MAX: usize = 2;

/// How much longer a pair of loads takes when they are on two lines.
const LINE_RISE_MIN: f64 = 1.25;

/// How flat the times of pairs are before and behind the line's length.
const LINE_FLAT: f64 = 1.12;

/// A value, if it is sure enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detected {
    /// `None`: not detected.
    pub value: Option<f64>,
    /// From 0 to 1.
    pub confidence: f64,
}

impl Detected {
    /// The value if the confidence suffices.
    pub(crate) fn sure(value: f64, confidence: f64) -> Detected {
        Detected {
            value: (confidence >= CONFIDENCE_MIN).then_some(rounded(value)),
            confidence: rounded(confidence),
        }
    }
}

/// The levels of cache in a curve over bytes, fastest first. A step that is not sure stays
/// in its place without a size, so that those behind it keep their numbers.
pub fn caches_of(curve: &Curve) -> Vec<(Step, Detected)> {
    let steps = find_steps(curve, &Rules::CACHES);
    steps.into_iter().map(told).collect()
}

/// The first two levels of TLB: a curve over pages, and its control over as many lines side
/// by side.
pub fn tlbs_of(pages: &Curve, control: &Curve) -> Vec<(Step, Detected)> {
    let steps = find_steps(&pages.beyond(control), &Rules::TLBS);
    steps.into_iter().take(TLB_LEVELS_MAX).map(told).collect()
}

fn told(step: Step) -> (Step, Detected) {
    (step, Detected::sure(step.knee, step.confidence))
}

/// The length of a line in bytes, from a curve of pairs of loads over their distance: the
/// least distance at which they are on two lines.
pub fn line_of(curve: &Curve) -> Detected {
    let Some((at, rise)) = edge(&curve.low()) else {
        return Detected::default();
    };
    // The share of rounds that show it by themselves.
    let rounds = curve.points.iter().map(|point| point.ns.len()).min();
    let rounds = rounds.unwrap_or(0);
    let agree = (0..rounds).filter(|&round| {
        let single = curve.points.iter().map(|point| (point.x, point.ns[round]));
        edge(&single.collect::<Vec<_>>()).is_some_and(|(also, _)| also == at)
    });
    let share = agree.count() as f64 / rounds.max(1) as f64;
    // A faint edge is doubted.
    let clear = ((rise - 1.0) / (LINE_RISE_MIN - 1.0) / 2.0).min(1.0);
    Detected::sure(at, share * clear)
}

/// The distance behind the only jump, and by how many times it jumps.
fn edge(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mut points = points.to_vec();
    suffix_minimum(&mut points);
    let rise = |at: &usize| points[*at].1 / points[at - 1].1;
    let at = (1..points.len()).max_by(|a, b| rise(a).total_cmp(&rise(b)))?;
    let flat = |part: &[(f64, f64)]| part[part.len() - 1].1 <= part[0].1 * LINE_FLAT;
    let (before, behind) = points.split_at(at);
    let is_edge = rise(&at) >= LINE_RISE_MIN && flat(before) && flat(behind);
    is_edge.then(|| (points[at].0, rise(&at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;

    fn pairs(ns: &[f64]) -> Curve {
        let distances = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let point = |(x, ns): (f64, &f64)| Point {
            x,
            ns: vec![*ns, ns * 1.3, ns * 1.001, *ns],
        };
        Curve {
            points: distances.into_iter().zip(ns).map(point).collect(),
        }
    }

    #[test]
    fn a_line_ends_where_pairs_take_longer() {
        let found = line_of(&pairs(&[2.5, 2.5, 2.5, 3.7, 3.7, 3.7]));
        assert_eq!(found.value, Some(64.0), "{found:?}");
        let found = line_of(&pairs(&[2.5, 2.5, 2.5, 2.5, 3.7, 3.7]));
        assert_eq!(found.value, Some(128.0), "{found:?}");
    }

    #[test]
    fn no_edge_is_no_line() {
        for ns in [
            [2.5, 2.5, 2.5, 2.6, 2.6, 2.6],
            [2.5, 3.0, 3.5, 4.0, 4.5, 5.0],
            [2.5, 2.5, 2.5, 3.7, 3.7, 5.2],
        ] {
            assert_eq!(line_of(&pairs(&ns)).value, None, "{ns:?}");
        }
        assert_eq!(line_of(&Curve::default()).value, None);
    }
}
