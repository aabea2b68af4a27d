//! The two experiments of source 000 §3.3.1, by the model: where the row layout and
//! the column layout cross, and that the advice is on the right side of both.
#![allow(clippy::unwrap_used, reason = "tests")]

use aerostat_advice::{
    Access, Advice, Filter, Footprint, Level, Machine, Policy, Scan, TableShape, Verdict, Workload,
    decide, estimate_ns,
};
use aerostat_types::Layout;

const ROWS: u64 = 1_000_000;

/// A table of integers.
fn integers(attributes: usize) -> TableShape {
    let names = (0..attributes).map(|at| format!("a{at}")).collect();
    TableShape::hot(names, vec![4; attributes], ROWS)
}

/// Reads the first `projected` attributes of the rows at a random list of positions,
/// as the sources' experiments do: `selected` rows, each found by its position.
fn positions(projected: usize, selected: f64) -> Workload {
    Workload {
        footprints: vec![Footprint {
            access: Access::Read {
                attributes: (0..projected).collect(),
            },
            weight: selected,
        }],
        window_s: 1.0,
    }
}

/// Scans by a predicate on the last attribute, which is not projected.
fn scan(attributes: usize, projected: usize, selectivity: f64) -> Workload {
    Workload {
        footprints: vec![Footprint {
            access: Access::Scan(Scan {
                share: 1.0,
                predicates: vec![Filter {
                    attribute: attributes - 1,
                    selectivity,
                }],
                projection: (0..projected).collect(),
            }),
            weight: 1_000.0,
        }],
        window_s: 1.0,
    }
}

fn ns(layout: &Layout, workload: &Workload, shape: &TableShape) -> f64 {
    estimate_ns(layout, workload, shape, &Machine::default()).unwrap()
}

fn advise(current: &Layout, workload: &Workload, shape: &TableShape) -> Advice {
    let policy = Policy {
        gain_share_min: 0.0,
        horizon_s: f64::INFINITY,
        executions_min: 0.0,
    };
    decide(current, workload, shape, &Machine::default(), &policy).unwrap()
}

/// All attributes but the predicate's in one group.
fn mixed(attributes: usize) -> Layout {
    let names = (0..attributes - 1).map(|at| format!("a{at}")).collect();
    Layout::Groups(vec![names])
}

/// Projectivity: 1 … 100 of 100 attributes of rows at random positions. A column costs a
/// miss for each attribute; the row a miss, and a line that adjoins for every 16.
#[test]
fn projectivity_of_selected_rows_is_the_row_layouts() {
    let shape = integers(100);
    let mut gains = Vec::new();
    for projected in 1..=100 {
        let workload = positions(projected, 10_000.0);
        let (row, column) = (
            ns(&Layout::Row, &workload, &shape),
            ns(&Layout::Column, &workload, &shape),
        );
        gains.push(column / row);
        let advice = advise(&Layout::Column, &workload, &shape);
        assert!(
            advice.cost_ns <= row.min(column) * (1.0 + 1e-7),
            "{projected}: {advice:?}"
        );
        // What is read lies together: apart, or, where that keeps it from straddling lines
        // (12-byte tuples do, in one of eight; 12 of 400 bytes do not), in the whole row.
        let together = &advice.best.groups[0].attributes;
        assert!([projected, 100].contains(&together.len()), "{advice:?}");
    }
    // Even at one attribute, more than 20 times at all.
    assert!((gains[0] - 1.0).abs() < 0.05, "{}", gains[0]);
    assert!(gains.is_sorted_by(|a, b| *a <= b * 1.05), "{gains:?}");
    assert!(gains[99] > 20.0, "{}", gains[99]);
}

/// Projectivity of full scans: a column passes over its bytes alone, always.
#[test]
fn projectivity_of_full_scans_is_the_column_layouts() {
    let shape = integers(100);
    for projected in [1, 2, 5, 10, 50, 100] {
        let mut workload = scan(100, projected, 1.0);
        if let Access::Scan(scan) = &mut workload.footprints[0].access {
            scan.predicates.clear();
        }
        let column = ns(&Layout::Column, &workload, &shape);
        assert!(
            column * 2.0 < ns(&Layout::Row, &workload, &shape),
            "{projected}"
        );
        let advice = advise(&Layout::Row, &workload, &shape);
        assert_eq!(
            (advice.verdict, advice.layout),
            (Verdict::Change, Layout::Column)
        );
    }
}

/// The sides at which one layout costs less than another, as a curve's points are walked.
fn crossovers(points: &[f64], better: impl Fn(f64) -> bool) -> Vec<(f64, bool)> {
    let mut sides: Vec<(f64, bool)> = points.iter().map(|&at| (at, better(at))).collect();
    sides.dedup_by_key(|(_, side)| *side);
    sides
}

/// Selectivity: 16 attributes read whole at selectivity 0 … 1. A selected row is one
/// line in a group of 15 and 15 lines in columns, until columns' lines hold several
/// selected rows each: one crossover, and the advice changes sides with it.
#[test]
fn selectivity_has_a_crossover_and_the_advice_is_on_its_right_side() {
    let shape = integers(16);
    let points: Vec<f64> = (0..=60)
        .map(|step| 1e-6 * 10_f64.powf(f64::from(step) / 10.0))
        .collect();
    let group = mixed(16);
    let group_costs = |selectivity| {
        let workload = scan(16, 15, selectivity);
        let (group, column) = (
            ns(&group, &workload, &shape),
            ns(&Layout::Column, &workload, &shape),
        );
        let advice = advise(&Layout::Row, &workload, &shape);
        assert!(
            advice.cost_ns <= group.min(column) * (1.0 + 1e-7),
            "{selectivity}: {advice:?}"
        );
        if group < column {
            assert_ne!(advice.layout, Layout::Column, "{selectivity}");
        }
        (group, column)
    };
    let sides = crossovers(&points, |selectivity| {
        let (group, column) = group_costs(selectivity);
        group < column
    });
    assert_eq!(
        sides.iter().map(|(_, side)| *side).collect::<Vec<_>>(),
        [true, false]
    );
    let (crossover, _) = sides[1];
    assert!((0.001..1.0).contains(&crossover), "{crossover}");
    // The pure row layout pays for the predicate with every line, and for every value.
    assert!(
        ns(&Layout::Row, &scan(16, 15, 1.0), &shape)
            > ns(&Layout::Column, &scan(16, 15, 1.0), &shape)
    );
}

/// Projectivity at 1 % of the rows: the more is projected, the more a group gains;
/// for one attribute a column is best.
#[test]
fn projectivity_at_low_selectivity_crosses_over() {
    let shape = integers(100);
    let group = mixed(100);
    let points: Vec<f64> = (1..=99).map(f64::from).collect();
    let sides = crossovers(&points, |projected| {
        let workload = scan(100, projected as usize, 0.01);
        let group = ns(&group, &workload, &shape);
        let column = ns(&Layout::Column, &workload, &shape);
        let advice = advise(&Layout::Row, &workload, &shape);
        assert!(
            advice.cost_ns <= group.min(column) * (1.0 + 1e-7),
            "{projected}"
        );
        group < column
    });
    assert_eq!(
        sides.iter().map(|(_, side)| *side).collect::<Vec<_>>(),
        [false, true]
    );
    let (crossover, _) = sides[1];
    assert!((2.0..50.0).contains(&crossover), "{crossover}");
}

/// What `aerostat calibrate` found on a guest of an AMD EPYC (Zen 5), whose memory streams
/// three and a half times as fast as the default's.
fn calibrated() -> Machine {
    let level = |capacity_bytes, sequential_ns, random_ns| Level {
        line_bytes: 64,
        capacity_bytes,
        sequential_ns,
        random_ns,
    };
    Machine {
        levels: vec![
            level(49 << 10, 0.52, 2.5),
            level(1 << 20, 0.12, 7.0),
            level(8 << 20, 1.06, 131.8),
        ],
        overlap: 33.0,
        ..Machine::default()
    }
}

/// Selectivity, 15 of 16 attributes, 128 MiB: where the column layout becomes cheaper than the
/// mixed one. Where memory streams faster, lines that are read for nothing cost less.
#[test]
fn fast_memory_moves_the_crossover_down() {
    let mut shape = integers(16);
    shape.hot.rows = 2 << 20;
    let crossover = |machine: &Machine| {
        let costs = |layout: &Layout, selectivity: f64| {
            estimate_ns(layout, &scan(16, 15, selectivity), &shape, machine).unwrap()
        };
        (1..=100)
            .map(|percent| f64::from(percent) / 100.0)
            .find(|&selectivity| {
                costs(&Layout::Column, selectivity) < costs(&mixed(16), selectivity)
            })
    };
    let (default, calibrated) = (crossover(&Machine::default()), crossover(&calibrated()));
    let (default, calibrated) = (default.unwrap(), calibrated.unwrap());
    assert!(calibrated < 0.75 * default, "{calibrated} for {default}");
}
