//! Knees of a curve: the sizes at which something is full.
//!
//! ```text
//! ns │                        ┌── above, flat for half a doubling
//!    │                  ╭─────
//!    │                 ╱ ◄── knee: a share of the rise
//!    │   below        ╱
//!    │ ──────────────╯ ◄── rise begins: a tenth over the plateau
//!    └───────────────────────── size, doublings
//! ```
//!
//! Where is a cache full? With the least recently used line replaced and memory in one
//! piece, all loads of a round miss as soon as one line too many is walked through: a
//! cliff. Where pages of any colour come together, as in a guest, a set overflows with the
//! probability that a Poisson number of pages is more than its ways: half of the sets at
//! the nominal size. A little less than half of the rise is within five percent of the size
//! for both.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::curve::{Curve, Point, low_quantile, suffix_minimum};
use crate::levels::Detected;

/// What counts as a step, and where in its rise the knee lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// A step rises at least to so many times the plateau before it.
    pub rise_min: f64,
    /// The share of the rise at which the knee lies.
    pub knee_share: f64,
    /// No more of the rise counts than so many times the plateau before it.
    pub rise_max: f64,
}

impl Rules {
    /// For caches, by bytes.
    pub const CACHES: Rules = Rules {
        rise_min: 1.25,
        knee_share: 0.47,
        rise_max: f64::INFINITY,
    };

    /// For TLBs, by pages. A miss costs more the more page tables are walked, so behind the
    /// second level the curve goes on rising without a plateau, to ten times and more; only
    /// its beginning tells when the entries end. A miss costs as much as a load from the first
    /// cache and more; what adds a third, beside other work, is the loads of page tables in the
    /// caches.
    pub const TLBS: Rules = Rules {
        rise_min: 1.6,
        // Beside other work the rise begins early, never late.
        knee_share: 0.65,
        rise_max: 2.0,
    };
}

/// A plateau stays within this factor.
const FLAT: f64 = 1.1;

/// A rise has ended where the curve stays flat for this factor in size.
const FLAT_SPAN: f64 = std::f64::consts::SQRT_2;

/// A step rises by more than so many times what rounds at one size differ by.
const OVER_NOISE: f64 = 6.0;

/// With fewer rounds than this, how far they differ says little.
const ROUNDS_MIN: f64 = 4.0;

/// How often the rounds are resampled.
const RESAMPLES: u32 = 100;

/// Knees this close, as a factor, are the same one: what levels may be off by.
const SAME_KNEE: f64 = 1.15;

/// A rise over more than this factor in size is no single edge. Pages of random colours
/// and 16 ways make a factor of 2 to 3.
const WIDE_RISE: f64 = 5.0;

/// What is left of a confidence for each structural doubt.
const DOUBT: f64 = 0.5;

/// A step of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The size at which it lies.
    pub knee: f64,
    /// ns of the plateau before it.
    pub below_ns: f64,
    /// ns of the plateau behind it.
    pub above_ns: f64,
    /// From 0 to 1: the share of resampled curves that have the same knee, halved for each
    /// structural doubt (no plateau before it, none behind a rise that is still less than the
    /// rules' greatest, a rise too wide for an edge).
    pub confidence: f64,
}

/// The steps of a curve, by size.
pub fn find_steps(curve: &Curve, rules: &Rules) -> Vec<Step> {
    let mut steps = steps_of(curve, rules);
    let mut random = Random(0x5eed);
    let mut same = vec![0_u32; steps.len()];
    for _ in 0..RESAMPLES {
        let again = steps_of(&resampled(curve, &mut random), rules);
        for (count, step) in same.iter_mut().zip(&steps) {
            let near = |other: &Step| {
                let factor = other.knee / step.knee;
                factor < SAME_KNEE && factor > 1.0 / SAME_KNEE
            };
            *count += u32::from(again.iter().any(near));
        }
    }
    for (step, count) in steps.iter_mut().zip(same) {
        step.confidence *= f64::from(count) / f64::from(RESAMPLES);
    }
    steps
}

/// The curve with each point's rounds drawn anew from its rounds.
fn resampled(curve: &Curve, random: &mut Random) -> Curve {
    let points = curve.points.iter().map(|Point { x, ns }| Point {
        x: *x,
        ns: redrawn(ns, random),
    });
    Curve {
        points: points.collect(),
    }
}

/// As many values, drawn from these.
fn redrawn(values: &[f64], random: &mut Random) -> Vec<f64> {
    let draw = |_: &f64| values[random.below(values.len())];
    values.iter().map(draw).collect()
}

/// The low quantile of some values; as sure as the share of resampled ones whose low quantile
/// is the same within the factor `near`.
pub(crate) fn sure_low(values: &[f64], near: f64) -> Detected {
    let Some(low) = low_quantile(&mut values.to_vec()) else {
        return Detected::default();
    };
    let mut random = Random(0x5eed);
    let same = (0..RESAMPLES).filter(|_| {
        let again = low_quantile(&mut redrawn(values, &mut random));
        again.is_some_and(|again| again < low * near && again > low / near)
    });
    let enough = (values.len() as f64 / ROUNDS_MIN).min(1.0);
    Detected::sure(low, enough * same.count() as f64 / f64::from(RESAMPLES))
}

/// Splitmix64 (Steele, Lea, Flood, OOPSLA 2014): the same draws at every call.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}

/// The steps, with the structural part of their confidence.
fn steps_of(curve: &Curve, rules: &Rules) -> Vec<Step> {
    let mut points = curve.low();
    suffix_minimum(&mut points);
    let mut steps = Vec::new();
    let mut from = 0;
    while let Some((rise, below_ns)) = end_of_plateau(&points, from) {
        let top = end_of_rise(&points, rise);
        let above_ns = end_of_plateau(&points, top)
            .map_or_else(|| median(&points[top..]), |(_, level_ns)| level_ns);
        // On both plateaus; in between rounds may differ by the whole step.
        let (below, above) = (points[from].0..points[rise].0, points[top].0);
        let is_flat = |x: f64| below.contains(&x) || (above..=above * 2.0).contains(&x);
        let rise_min = rules.rise_min.max(1.0 + OVER_NOISE * noise(curve, is_flat));
        if above_ns >= below_ns * rise_min {
            let is_clear = above_ns >= below_ns * (1.0 + rules.rise_max);
            let doubts = [
                points[rise - 1].0 < points[from].0 * FLAT_SPAN,
                !is_clear && !is_flat_behind(&points, top),
                width(
                    &points,
                    below_ns,
                    above_ns.min(below_ns * (1.0 + rules.rise_max)),
                ) > WIDE_RISE,
            ];
            steps.push(Step {
                knee: knee(&points, below_ns, above_ns, rules),
                below_ns,
                above_ns,
                confidence: doubts
                    .iter()
                    .filter(|doubt| **doubt)
                    .fold(enough(curve, &(below.start..=above)), |confidence, _| {
                        confidence * DOUBT
                    }),
            });
            from = top;
        } else {
            // A drift, no step: the plateau goes on a little higher.
            from = top.max(from + 1);
        }
    }
    steps
}

/// Whether there were enough rounds at these sizes, as a share.
fn enough(curve: &Curve, sizes: &RangeInclusive<f64>) -> f64 {
    let points = curve.points.iter();
    let inside = points.filter(|point| sizes.contains(&point.x));
    let rounds = inside.map(|point| point.ns.len()).min();
    (rounds.unwrap_or(0) as f64 / ROUNDS_MIN).min(1.0)
}

/// By what share the lowest rounds at one of these sizes usually differ.
fn noise(curve: &Curve, is_inside: impl Fn(f64) -> bool) -> f64 {
    let inside = curve.points.iter().filter(|point| is_inside(point.x));
    let differ = |point: &Point| {
        let mut sorted = point.ns.clone();
        sorted.sort_by(f64::total_cmp);
        Some(sorted.get(1)? / point.low()? - 1.0)
    };
    let mut shares: Vec<f64> = inside.filter_map(differ).collect();
    shares.sort_by(f64::total_cmp);
    // A third, not the half: spikes make some sizes look noisy, noise all of them.
    shares.get(shares.len() / 3).copied().unwrap_or(0.0)
}

/// Where the plateau that begins at `from` is left, and its level.
fn end_of_plateau(points: &[(f64, f64)], from: usize) -> Option<(usize, f64)> {
    let mut end = from + 1;
    while end < points.len() {
        // The median of the plateau so far: values never fall, so it is the middle one.
        let level_ns = points[from + (end - from) / 2].1;
        if points[end].1 > level_ns * FLAT {
            return Some((end, points[from + (end - 1 - from) / 2].1));
        }
        end += 1;
    }
    None
}

/// Where the rise that begins at `rise` has ended: the first point behind which the curve is
/// flat, or the last.
fn end_of_rise(points: &[(f64, f64)], rise: usize) -> usize {
    let last = points.len() - 1;
    (rise..last)
        .find(|at| is_flat_behind(points, *at))
        .unwrap_or(last)
}

/// Whether the curve stays within a plateau's factor for [`FLAT_SPAN`] behind a point.
fn is_flat_behind(points: &[(f64, f64)], at: usize) -> bool {
    let (x, ns) = points[at];
    let flat = |point: &&(f64, f64)| point.1 <= ns * FLAT;
    let mut behind = points[at + 1..].iter().take_while(flat);
    // A grid of two sizes per doubling hits the span up to rounding.
    behind.any(|(further, _)| *further >= x * FLAT_SPAN * 0.999)
}

fn median(points: &[(f64, f64)]) -> f64 {
    points[points.len() / 2].1
}

/// The size at the rules' share of the rise.
fn knee(points: &[(f64, f64)], below_ns: f64, above_ns: f64, rules: &Rules) -> f64 {
    let rise_ns = (above_ns - below_ns).min(below_ns * rules.rise_max);
    crossing(points, below_ns + rise_ns * rules.knee_share)
}

/// How many times larger the size is at nine tenths of a rise than at one tenth.
fn width(points: &[(f64, f64)], below_ns: f64, above_ns: f64) -> f64 {
    let at = |share| crossing(points, below_ns + (above_ns - below_ns) * share);
    at(0.9) / at(0.1)
}

/// The size at which the curve reaches `ns`, between points by the logarithm of the size.
fn crossing(points: &[(f64, f64)], ns: f64) -> f64 {
    let at = points.partition_point(|(_, value)| *value < ns);
    match (
        at.checked_sub(1).map(|before| points[before]),
        points.get(at),
    ) {
        (Some((x0, ns0)), Some(&(x1, ns1))) => {
            let share = (ns - ns0) / (ns1 - ns0);
            x0 * (x1 / x0).powf(share)
        }
        (Some((x, _)), None) => x,
        (None, first) => first.map_or(0.0, |(x, _)| *x),
    }
}

#[cfg(test)]
mod tests;
