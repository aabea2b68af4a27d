//! How near the model comes to the machine, and how long advice takes. Run with
//! `cargo bench -p aerostat-advice`.
//!
//! The two experiments of source 000 §3.3.1 on plain bytes, with the passes of the
//! segment's kernels: vector by vector, a predicate, then a gather for each projected
//! attribute. Prints measured and estimated ns per row of three layouts, the best of
//! five runs, and which layout each says is best.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{hint::black_box, time::Instant};

use aerostat_advice::{
    Access, Filter, Footprint, Footprints, Machine, Policy, Scan, TableShape, Workload, decide,
    estimate_ns,
};
use aerostat_types::Layout;

/// 4 bytes of each attribute: beyond the last level of most caches for 16 attributes.
const ROWS: usize = 2_000_000;

const VECTOR_ROWS: usize = 8192;

/// What a predicate of this share lets pass: the values are hashes, evenly spread.
fn bound(selectivity: f64) -> u32 {
    (selectivity * f64::from(u32::MAX)) as u32
}

fn value(row: usize, attribute: usize) -> u32 {
    let mut hash = (row as u64 * 1_000 + attribute as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 29;
    (hash.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as u32
}

/// Groups of integers, row by row.
struct Table {
    groups: Vec<Vec<u32>>,
    /// Group, offset and stride of each attribute, in integers.
    places: Vec<(usize, usize, usize)>,
}

impl Table {
    fn new(layout: &Layout, names: &[String], rows: usize) -> Table {
        let groups = layout.resolve(names).unwrap();
        let mut places = vec![(0, 0, 0); names.len()];
        for (number, group) in groups.iter().enumerate() {
            for (offset, &at) in group.iter().enumerate() {
                places[at] = (number, offset, group.len());
            }
        }
        let tuples = |group: &Vec<usize>| {
            (0..rows)
                .flat_map(|row| group.iter().map(move |&at| value(row, at)))
                .collect()
        };
        Table {
            groups: groups.iter().map(tuples).collect(),
            places,
        }
    }

    fn scan(&self, rows: usize, predicate: usize, bound: u32, projected: usize) {
        for first in (0..rows).step_by(VECTOR_ROWS) {
            let vector = first..rows.min(first + VECTOR_ROWS);
            let (group, offset, stride) = self.places[predicate];
            let values = &self.groups[group];
            let mut selected = vec![0_u32; vector.len()];
            let mut count = 0;
            for row in vector {
                selected[count] = row as u32;
                count += usize::from(values[row * stride + offset] <= bound);
            }
            for &(group, offset, stride) in &self.places[..projected] {
                let values = &self.groups[group];
                let gathered = selected[..count]
                    .iter()
                    .map(|&row| values[row as usize * stride + offset]);
                black_box(gathered.collect::<Vec<u32>>());
            }
        }
    }
}

fn best_of_five_ns(mut run: impl FnMut()) -> f64 {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

fn scan(predicate: usize, selectivity: f64, projected: usize) -> Workload {
    Workload {
        footprints: vec![Footprint {
            access: Access::Scan(Scan {
                share: 1.0,
                predicates: vec![Filter {
                    attribute: predicate,
                    selectivity,
                }],
                projection: (0..projected).collect(),
            }),
            weight: 1_000.0,
        }],
        window_s: 1.0,
    }
}

/// One curve: `points` are pairs of selectivity and projected attributes.
fn experiment(title: &str, attributes: usize, rows: usize, points: &[(f64, usize)]) {
    println!("{title}: {attributes} integers, {rows} rows; ns per row, measured (estimated)");
    let names: Vec<String> = (0..attributes).map(|at| format!("a{at}")).collect();
    let shape = TableShape::hot(names.clone(), vec![4; attributes], rows as u64);
    let mixed = Layout::Groups(vec![names[..attributes - 1].to_vec()]);
    let layouts = [
        ("row", Layout::Row),
        ("column", Layout::Column),
        ("mixed", mixed),
    ];
    let measured: Vec<Vec<f64>> = layouts
        .iter()
        .map(|(_, layout)| {
            let table = Table::new(layout, &names, rows);
            let run = |&(selectivity, projected): &(f64, usize)| {
                let scan = || table.scan(rows, attributes - 1, bound(selectivity), projected);
                best_of_five_ns(scan) / rows as f64
            };
            points.iter().map(run).collect()
        })
        .collect();
    for (nth, &(selectivity, projected)) in points.iter().enumerate() {
        let workload = scan(attributes - 1, selectivity, projected);
        let machine = Machine::default();
        print!("  {selectivity:>8} of rows, {projected:>3} attributes:");
        let mut costs = Vec::new();
        for ((name, layout), measured) in layouts.iter().zip(&measured) {
            let estimated = estimate_ns(layout, &workload, &shape, &machine).unwrap() / rows as f64;
            print!("  {name} {:>7.2} ({estimated:>6.2})", measured[nth]);
            costs.push((name, measured[nth], estimated));
        }
        let (measured_best, ..) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let (estimated_best, ..) = costs.iter().min_by(|a, b| a.2.total_cmp(&b.2)).unwrap();
        println!("  best: {measured_best} ({estimated_best})");
    }
}

/// A table of many attributes and as many different statements as a collector keeps.
fn wide(attributes: usize, used: usize) -> (TableShape, Workload) {
    let names = (0..attributes).map(|at| format!("a{at}")).collect();
    let footprint = |nth: usize| {
        let some = (0..used).map(|at| value(nth, at) as usize % attributes);
        let access = if nth.is_multiple_of(2) {
            Access::Read {
                attributes: some.collect(),
            }
        } else {
            Access::Scan(Scan {
                share: 1.0,
                predicates: vec![Filter {
                    attribute: nth % attributes,
                    selectivity: 0.1,
                }],
                projection: some.collect(),
            })
        };
        let weight = if nth.is_multiple_of(2) { 1e6 } else { 1.0 };
        Footprint { access, weight }
    };
    let mut footprints: Vec<Footprint> = (1..aerostat_advice::FOOTPRINTS_MAX)
        .map(footprint)
        .collect();
    footprints.push(Footprint {
        access: Access::Insert { rows: 1.0 },
        weight: 1e6,
    });
    let workload = Workload {
        footprints,
        window_s: 60.0,
    };
    (
        TableShape::hot(names, vec![4; attributes], 10_000_000),
        workload,
    )
}

fn main() {
    let selectivities = [0.0001, 0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0];
    let points: Vec<(f64, usize)> = selectivities.iter().map(|&s| (s, 15)).collect();
    experiment("selectivity", 16, ROWS, &points);
    let counts = [1, 2, 5, 10, 25, 50, 75, 99];
    let points: Vec<(f64, usize)> = counts.iter().map(|&n| (0.01, n)).collect();
    experiment("projectivity at 1 %", 100, ROWS / 4, &points);
    let points: Vec<(f64, usize)> = counts.iter().map(|&n| (1.0, n)).collect();
    experiment("projectivity at 100 %", 100, ROWS / 4, &points);

    println!("advice, 256 footprints");
    for (attributes, used) in [
        (10, 5),
        (17, 8),
        (100, 10),
        (1_000, 20),
        (10_000, 20),
        (10_000, 250),
    ] {
        let (shape, workload) = wide(attributes, used);
        let machine = Machine::default();
        let ns = best_of_five_ns(|| {
            let advice = decide(
                &Layout::Row,
                &workload,
                &shape,
                &machine,
                &Policy::default(),
            );
            black_box(advice.unwrap());
        });
        println!(
            "  {attributes:>6} attributes, {used:>3} used: {:>8.1} ms",
            ns / 1e6
        );
    }
    let (_, workload) = wide(100, 10);
    let footprints = Footprints::new(0.0);
    let ns = best_of_five_ns(|| {
        for nth in 0..100_000 {
            footprints.record(&workload.footprints[nth % 200].access, nth as f64 * 1e-3);
        }
    });
    println!("record a scan: {:.0} ns", ns / 1e5);
}
