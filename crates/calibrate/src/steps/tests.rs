//! Synthetic curves of machines' shapes, with 30% upward spikes: knees within 5%.

use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::curve::geometric;

/// The share of rounds that a spike spoils.
const SPIKES: f64 = 0.3;

/// How a level's loads begin to miss.
#[derive(Clone, Copy)]
enum Edge {
    /// The least recently used line is replaced, memory in one piece: all at once, the
    /// lines of one page later.
    Cliff,
    /// Pages of any colour, so many ways: a Poisson number of pages comes into each set.
    Colours { ways: f64 },
}

/// The share of loads that miss a level of `size` in a walk through `x`.
fn misses(edge: Edge, size: f64, x: f64) -> f64 {
    match edge {
        Edge::Cliff => ((x / size - 1.0) / 0.05).clamp(0.0, 1.0),
        Edge::Colours { ways } => {
            // The load is weighted by its page: a page meets as many others as come by chance.
            let mean = ways * x / size;
            let mut probability = (-mean).exp();
            let mut fits = probability;
            for pages in 1..ways as u32 {
                probability *= mean / f64::from(pages);
                fits += probability;
            }
            1.0 - fits
        }
    }
}

/// A level: its size, its edge, and what a miss adds.
type Level = (f64, Edge, f64);

fn synthetic(first_ns: f64, levels: &[Level], sizes: &[f64], rounds: usize, seed: u64) -> Curve {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let true_ns = |x: f64| -> f64 {
        let added = levels
            .iter()
            .map(|(size, edge, ns)| ns * misses(*edge, *size, x));
        first_ns + added.sum::<f64>()
    };
    let mut round = |ns: f64| {
        let jitter = 1.0 + random.random_range(0.0..0.01);
        let spike = if random.random_bool(SPIKES) {
            random.random_range(1.05..3.0)
        } else {
            1.0
        };
        ns * jitter * spike
    };
    let points = sizes.iter().map(|&x| Point {
        x,
        ns: (0..rounds).map(|_| round(true_ns(x))).collect(),
    });
    Curve {
        points: points.collect(),
    }
}

fn cache_sizes() -> Vec<f64> {
    let mut sizes = geometric(8192.0, (8 << 20) as f64, 12);
    sizes.extend(
        geometric((8 << 20) as f64, (128 << 20) as f64, 4)
            .into_iter()
            .skip(1),
    );
    sizes
}

fn page_sizes() -> Vec<f64> {
    geometric(8.0, 10_240.0, 12)
        .into_iter()
        .map(f64::round)
        .collect()
}

fn assert_knees(found: &[Step], expected: &[f64], near: f64, what: &str) {
    let knees: Vec<f64> = found.iter().map(|step| step.knee).collect();
    assert_eq!(knees.len(), expected.len(), "{what}: {found:#?}");
    for (step, size) in found.iter().zip(expected) {
        assert!(
            (step.knee / size - 1.0).abs() < near,
            "{what}: {knees:?} for {expected:?}"
        );
        assert!(step.confidence >= 0.6, "{what}: {step:?}");
    }
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const SETS_OF_COLOURS: Edge = Edge::Colours { ways: 16.0 };

#[test]
fn caches_of_several_machines_are_found() {
    let machines: [(&str, f64, Vec<Level>); 4] = [
        (
            "48 KiB, 1 MiB, 32 MiB",
            1.2,
            vec![
                (48.0 * KIB, Edge::Cliff, 2.5),
                (MIB, SETS_OF_COLOURS, 7.0),
                (32.0 * MIB, SETS_OF_COLOURS, 90.0),
            ],
        ),
        (
            "32 KiB, 512 KiB, 16 MiB",
            1.1,
            vec![
                (32.0 * KIB, Edge::Cliff, 2.2),
                (512.0 * KIB, Edge::Cliff, 8.5),
                (16.0 * MIB, SETS_OF_COLOURS, 80.0),
            ],
        ),
        (
            "48 KiB, 2 MiB, a share of 5 MiB",
            1.5,
            vec![
                (48.0 * KIB, Edge::Cliff, 3.0),
                (1.25 * MIB, Edge::Cliff, 18.0),
                (5.0 * MIB, Edge::Cliff, 100.0),
            ],
        ),
        (
            "64 KiB, 1 MiB, no third",
            1.7,
            vec![
                (64.0 * KIB, Edge::Cliff, 3.0),
                (MIB, SETS_OF_COLOURS, 110.0),
            ],
        ),
    ];
    for (what, first_ns, levels) in machines {
        let sizes: Vec<f64> = levels.iter().map(|level| level.0).collect();
        for seed in 0..10 {
            let curve = synthetic(first_ns, &levels, &cache_sizes(), 6, seed);
            let found = find_steps(&curve, &Rules::CACHES);
            assert_knees(&found, &sizes, 0.05, &format!("{what}, seed {seed}"));
        }
    }
}

#[test]
fn tlbs_are_found_where_walks_get_dearer_and_dearer() {
    // Behind the second level the caches of page tables end, one after the other.
    let machines: [(&str, f64, Vec<Level>, [f64; 2]); 2] = [
        (
            "96 and 4096 entries",
            1.2,
            vec![
                (96.0, Edge::Cliff, 1.8),
                // Page tables' lines leave the first cache: no entries end.
                (1400.0, Edge::Cliff, 0.8),
                (4096.0, Edge::Cliff, 8.0),
                (8000.0, Edge::Cliff, 30.0),
            ],
            [96.0, 4096.0],
        ),
        (
            "64 and 1536 entries",
            1.3,
            vec![
                (64.0, Edge::Cliff, 2.0),
                (1536.0, Edge::Cliff, 7.0),
                (5000.0, SETS_OF_COLOURS, 20.0),
            ],
            [64.0, 1536.0],
        ),
    ];
    for (what, first_ns, levels, entries) in machines {
        for seed in 0..10 {
            let curve = synthetic(first_ns, &levels, &page_sizes(), 8, seed);
            let found = find_steps(&curve, &Rules::TLBS);
            assert_knees(&found[..2], &entries, 0.05, &format!("{what}, seed {seed}"));
        }
    }
}

#[test]
fn levels_are_told_with_their_times() {
    let levels = [(48.0 * KIB, Edge::Cliff, 2.5), (MIB, Edge::Cliff, 7.0)];
    let curve = synthetic(1.2, &levels, &cache_sizes(), 6, 7);
    let found = find_steps(&curve, &Rules::CACHES);
    let near = |ns: f64, is: f64| assert!((ns / is - 1.0).abs() < 0.03, "{ns} for {is}: {found:?}");
    near(found[0].below_ns, 1.2);
    near(found[0].above_ns, 3.7);
    near(found[1].below_ns, 3.7);
    near(found[1].above_ns, 10.7);
}

#[test]
fn flat_and_drifting_curves_have_no_steps() {
    let flat = synthetic(1.2, &[], &cache_sizes(), 6, 1);
    assert_eq!(find_steps(&flat, &Rules::CACHES), []);
    let mut drifting = flat;
    for point in &mut drifting.points {
        let drift = 1.0 + 0.01 * (point.x / 8192.0).log2();
        point.ns.iter_mut().for_each(|ns| *ns *= drift);
    }
    assert_eq!(find_steps(&drifting, &Rules::CACHES), []);
}

#[test]
fn noise_alone_gives_no_sure_step() {
    // Memory beside a neighbour that takes its bandwidth now and then.
    for seed in 0..50 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for rounds in 1..6 {
            let point = |x| Point {
                x,
                ns: (0..rounds)
                    .map(|_| random.random_range(100.0..300.0))
                    .collect(),
            };
            let curve = Curve {
                points: cache_sizes().into_iter().map(point).collect(),
            };
            let found = find_steps(&curve, &Rules::CACHES);
            let sure = found.iter().filter(|step| step.confidence >= 0.6);
            assert_eq!(sure.count(), 0, "seed {seed}, {rounds} rounds: {found:?}");
        }
    }
}

#[test]
fn unusable_curves_have_no_steps() {
    let point = |x: f64, ns: &[f64]| Point { x, ns: ns.to_vec() };
    for points in [
        vec![],
        vec![point(1.0, &[])],
        vec![point(1.0, &[1.0])],
        vec![
            point(1.0, &[f64::NAN]),
            point(2.0, &[-1.0]),
            point(3.0, &[0.0]),
        ],
    ] {
        assert_eq!(find_steps(&Curve { points }, &Rules::CACHES), []);
    }
}

proptest! {
    /// Times are only ever told within what was measured, and knees within the sizes.
    #[test]
    fn steps_lie_within_the_curve(
        values in prop::collection::vec(prop::collection::vec(0.1_f64..1000.0, 0..4), 0..60),
    ) {
        let points = values.iter().enumerate().map(|(at, ns)| Point {
            x: 1.1_f64.powi(at as i32),
            ns: ns.clone(),
        });
        let curve = Curve { points: points.collect() };
        for rules in [Rules::CACHES, Rules::TLBS] {
            let mut before = 0.0;
            for step in find_steps(&curve, &rules) {
                let end = 1.1_f64.powi(values.len() as i32);
                prop_assert!(step.knee >= 1.0 && step.knee <= end, "{:?}", step);
                prop_assert!(step.knee >= before, "{:?} after {}", step, before);
                prop_assert!(step.below_ns < step.above_ns, "{:?}", step);
                prop_assert!((0.0..=1.0).contains(&step.confidence), "{:?}", step);
                before = step.knee;
            }
        }
    }

    /// A clean cliff is found wherever it lies.
    #[test]
    fn a_cliff_is_found_anywhere(size in 20e3_f64..4e6, rise in 1.6_f64..20.0, seed: u64) {
        let curve = synthetic(1.2, &[(size, Edge::Cliff, 1.2 * (rise - 1.0))], &cache_sizes(), 6, seed);
        let mut found = find_steps(&curve, &Rules::CACHES);
        // Spikes on the last sizes have nothing behind them that shows them for what they are.
        found.retain(|step| step.confidence >= 0.6);
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        prop_assert!((found[0].knee / size - 1.0).abs() < 0.06, "{:?} for {}", found[0], size);
    }
}
