//! Times by size, and robust values from noisy ones.

use serde::{Deserialize, Serialize};

/// The share of windows that may be lucky; the value behind them counts. Noise only ever adds
/// time, so low values are right, and the very lowest may be a clock's jump.
const LOW_QUANTILE: f64 = 0.2;

/// Times per load over a size: bytes, pages or a distance in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// By rising size.
    pub points: Vec<Point>,
}

/// What was measured at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size.
    pub x: f64,
    /// ns per load, a value for each round.
    pub ns: Vec<f64>,
}

impl Curve {
    /// A curve without values over these sizes.
    pub(crate) fn over(sizes: impl IntoIterator<Item = f64>) -> Curve {
        let point = |x| Point { x, ns: Vec::new() };
        Curve {
            points: sizes.into_iter().map(point).collect(),
        }
    }

    /// Each size with its lowest value; sizes without a usable value are left out.
    pub fn low(&self) -> Vec<(f64, f64)> {
        let low = |point: &Point| Some((point.x, point.low()?));
        self.points.iter().filter_map(low).collect()
    }

    /// This curve with `less` taken off, round by round, down to the lowest value of `less`:
    /// what a walk costs beyond its control.
    ///
    /// ```text
    /// pages   1.2 ─ 1.2 ─ 3.0 ─ 3.0 ─ 5.5 ─ 5.5       a TLB's entries end, then L1's lines
    /// control 1.2 ─ 1.2 ─ 1.2 ─ 1.2 ─ 3.7 ─ 3.7                            L1's lines end
    /// beyond  1.2 ─ 1.2 ─ 3.0 ─ 3.0 ─ 3.0 ─ 3.0       a TLB's entries end
    /// ```
    pub fn beyond(&self, less: &Curve) -> Curve {
        let control = less.low();
        let base = control.iter().map(|(_, ns)| *ns).fold(f64::MAX, f64::min);
        let extra = |x: f64| {
            let at = control.iter().find(|(size, _)| *size == x);
            at.map_or(0.0, |(_, ns)| ns - base)
        };
        let points = self.points.iter().map(|point| Point {
            x: point.x,
            // Not below the floor: the control's own noise must make no dent.
            ns: point
                .ns
                .iter()
                .map(|ns| (ns - extra(point.x)).max(base.min(*ns)))
                .collect(),
        });
        Curve {
            points: points.collect(),
        }
    }
}

impl Point {
    /// The lowest usable value. A neighbour may disturb nearly all rounds, so no higher one;
    /// clocks' jumps are gone already, by the windows of each round.
    pub(crate) fn low(&self) -> Option<f64> {
        let usable = self.ns.iter().copied();
        let usable = usable.filter(|ns| ns.is_finite() && *ns > 0.0);
        usable.min_by(f64::total_cmp)
    }
}

/// Three digits behind the point: more than is known, and few to write down.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The low quantile of what is finite and above zero.
pub fn low_quantile(values: &mut Vec<f64>) -> Option<f64> {
    quantile(values, LOW_QUANTILE)
}

/// The value below which `share` of the values lie.
pub(crate) fn quantile(values: &mut Vec<f64>, share: f64) -> Option<f64> {
    values.retain(|ns| ns.is_finite() && *ns > 0.0);
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share) as usize).copied()
}

/// Makes values that never fall, each the least of itself and all behind it: walking through
/// more memory is never faster, so whatever sticks out is noise.
pub(crate) fn suffix_minimum(points: &mut [(f64, f64)]) {
    let mut least = f64::INFINITY;
    for (_, ns) in points.iter_mut().rev() {
        least = least.min(*ns);
        *ns = least;
    }
}

/// `count` sizes per doubling from `from` to `to`, which are both among them.
pub(crate) fn geometric(from: f64, to: f64, count: usize) -> Vec<f64> {
    let steps = ((to / from).log2() * count as f64).round().max(1.0);
    (0..=steps as usize)
        .map(|step| from * (to / from).powf(step as f64 / steps))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, &[f64])]) -> Curve {
        let point = |(x, ns): &(f64, &[f64])| Point {
            x: *x,
            ns: ns.to_vec(),
        };
        Curve {
            points: points.iter().map(point).collect(),
        }
    }

    #[test]
    fn spikes_and_unusable_values_do_not_count() {
        let noisy = curve(&[
            (1.0, &[2.0, 90.0, 2.1, f64::NAN, 2.6]),
            (2.0, &[f64::INFINITY, -1.0]),
            (4.0, &[3.0, 5.0]),
        ]);
        assert_eq!(noisy.low(), [(1.0, 2.0), (4.0, 3.0)]);
    }

    #[test]
    fn the_suffix_minimum_never_falls() {
        let mut points = [(1.0, 5.0), (2.0, 3.0), (3.0, 9.0), (4.0, 4.0), (5.0, 7.0)];
        suffix_minimum(&mut points);
        assert_eq!(points.map(|(_, ns)| ns), [3.0, 3.0, 4.0, 4.0, 7.0]);
    }

    #[test]
    fn a_control_is_taken_off() {
        let pages = curve(&[(1.0, &[1.2]), (2.0, &[3.0]), (3.0, &[5.5])]);
        let control = curve(&[(1.0, &[1.2]), (2.0, &[1.2]), (3.0, &[3.7])]);
        let beyond: Vec<f64> = pages.beyond(&control).low().iter().map(|p| p.1).collect();
        assert!((beyond[0] - 1.2).abs() < 1e-9 && (beyond[1] - 3.0).abs() < 1e-9);
        assert!((beyond[2] - 3.0).abs() < 1e-9);
    }

    #[test]
    fn sizes_are_spaced_evenly() {
        let sizes = geometric(4.0, 16.0, 2);
        assert_eq!(sizes.len(), 5);
        assert_eq!((sizes[0], sizes[4]), (4.0, 16.0));
        assert!((sizes[2] - 8.0).abs() < 1e-9);
    }
}
