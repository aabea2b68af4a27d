//! Costs of small cases, worked out by hand, and how costs grow.

use aerostat_types::Layout;
use proptest::prelude::*;

use crate::{
    Access, AdviceError, Filter, Footprint, Level, Machine, PREDICATES_MAX, Part, Scan, TableShape,
    ValueNs, Workload, estimate_ns,
};

/// Lines cost 1 ns in order and 10 ns at random, levels are so small that nothing is
/// found again, and values are free: ns are lines.
fn counting() -> Machine {
    Machine {
        levels: vec![Level {
            line_bytes: 64,
            capacity_bytes: 0,
            sequential_ns: 1.0,
            random_ns: 10.0,
        }],
        overlap: 1.0,
        value_ns: ValueNs {
            in_place: 0.0,
            strided: 0.0,
            gathered: 0.0,
        },
    }
}

fn integers(attributes: usize, rows: u64) -> TableShape {
    let names = (0..attributes).map(|at| format!("a{at}")).collect();
    TableShape::hot(names, vec![4; attributes], rows)
}

fn one(access: Access) -> Workload {
    Workload {
        footprints: vec![Footprint {
            access,
            weight: 2.0,
        }],
        window_s: 1.0,
    }
}

fn scan(predicates: &[(usize, f64)], projection: &[usize]) -> Workload {
    let filter = |&(attribute, selectivity)| Filter {
        attribute,
        selectivity,
    };
    one(Access::Scan(Scan {
        share: 1.0,
        predicates: predicates.iter().map(filter).collect(),
        projection: projection.to_vec(),
    }))
}

#[track_caller]
fn costs(layout: &str, workload: &Workload, shape: &TableShape, machine: &Machine, expected: f64) {
    let layout = Layout::parse(layout).unwrap();
    let ns = estimate_ns(&layout, workload, shape, machine).unwrap();
    assert!(
        (ns - expected).abs() < 1e-6 * expected.max(1.0),
        "{ns} is not {expected}"
    );
}

/// 16 integers, 16,000 rows: a row is a line, a column 1,000 lines.
#[test]
fn a_projection_counts_lines() {
    let (shape, machine) = (integers(16, 16_000), counting());
    costs("column", &scan(&[], &[3]), &shape, &machine, 1_000.0);
    costs("row", &scan(&[], &[3]), &shape, &machine, 16_000.0);
    // Each attribute is a pass: with nothing kept, the row's lines come three times.
    let three = scan(&[], &[3, 5, 9]);
    costs("column", &three, &shape, &machine, 3_000.0);
    costs("row", &three, &shape, &machine, 48_000.0);
    // (a3, a5, a9) has 12 bytes: 3,000 lines, three times.
    costs("(a3,a5,a9)", &three, &shape, &machine, 9_000.0);
}

/// The same, with a level that holds what a vector touches: 8,192 lines of 64 bytes.
#[test]
fn a_second_pass_finds_the_lines_in_the_level_that_holds_a_vector() {
    let (shape, mut machine) = (integers(16, 16_000), counting());
    machine.levels[0].capacity_bytes = 8_192 * 64;
    costs("row", &scan(&[], &[3, 5, 9]), &shape, &machine, 16_000.0);
    // One byte less and they are gone.
    machine.levels[0].capacity_bytes -= 1;
    costs("row", &scan(&[], &[3, 5, 9]), &shape, &machine, 48_000.0);
    // Two levels, 1 ns and 5 ns: the first pass misses in both, two more in the first.
    let outer = Level {
        capacity_bytes: 8_192 * 64,
        sequential_ns: 5.0,
        ..machine.levels[0]
    };
    machine.levels.push(outer);
    let expected = 16_000.0 * (1.0 + 5.0) + 32_000.0;
    costs("row", &scan(&[], &[3, 5, 9]), &shape, &machine, expected);
}

/// Predicate on a0 that 1 % pass, then a1: 160 of 16,000 rows are read at random.
#[test]
fn a_selection_counts_the_lines_that_hold_selected_rows() {
    let (shape, mut machine) = (integers(16, 16_000), counting());
    let query = scan(&[(0, 0.01)], &[1]);
    // Column: 1,000 lines in order; of a1's lines 1 − 0.99^16 = 14.854 % at 10 ns are
    // dearer than all 1,000 in order.
    costs("column", &query, &shape, &machine, 2_000.0);
    // At 5 ns they are cheaper.
    machine.levels[0].random_ns = 5.0;
    let lines = 1_000.0 * (1.0 - 0.99_f64.powi(16));
    costs("column", &query, &shape, &machine, 1_000.0 + 5.0 * lines);
    // Row: every line for the predicate, and 160 of them again.
    costs("row", &query, &shape, &machine, 16_000.0 + 160.0 * 5.0);
    // (a1, a2, …, a15) of 60 bytes: a line holds a1 of 1 or 2 rows, (64 + 3) / 60: each
    // row's a1 lies in one line (offsets are multiples of 4), 16 rows in 15 lines, so
    // one line in 15 has two.
    let group = "(a1,a2,a3,a4,a5,a6,a7,a8,a9,a10,a11,a12,a13,a14,a15)";
    let lines = 16_000.0 / 16.0 * (14.0 * 0.01 + (1.0 - 0.99_f64.powi(2)));
    costs(group, &query, &shape, &machine, 1_000.0 + 5.0 * lines);
}

/// 100 integers, 400-byte rows: two attributes 200 bytes apart never share a line.
#[test]
fn attributes_far_apart_in_a_wide_row_bring_their_own_lines() {
    let (shape, mut machine) = (integers(100, 1_000), counting());
    machine.levels[0].capacity_bytes = 1 << 30;
    costs("row", &scan(&[], &[0, 50]), &shape, &machine, 2_000.0);
    // a0 and a1 do: tuples start at 0, 16, 32 or 48 of a line, and 8 bytes fit behind.
    costs("row", &scan(&[], &[0, 1]), &shape, &machine, 1_000.0);
    // a0 and a4: 20 bytes at 48 cross into the next line.
    costs("row", &scan(&[], &[0, 4]), &shape, &machine, 1_250.0);
}

#[test]
fn values_cost_by_how_they_lie() {
    let (shape, mut machine) = (integers(4, 1_000), counting());
    machine.levels[0].sequential_ns = 0.0;
    machine.levels[0].random_ns = 0.0;
    machine.value_ns = ValueNs {
        in_place: 1.0,
        strided: 3.0,
        gathered: 5.0,
    };
    let query = scan(&[(0, 0.5)], &[1, 2]);
    // A predicate on 1,000 rows, two attributes of 500.
    costs(
        "column",
        &query,
        &shape,
        &machine,
        1_000.0 + 2.0 * 500.0 * 5.0,
    );
    costs("row", &query, &shape, &machine, 3_000.0 + 2.0 * 500.0 * 5.0);
    // A predicate that all pass leaves the range whole.
    costs(
        "column",
        &scan(&[(0, 1.0)], &[1]),
        &shape,
        &machine,
        2_000.0,
    );
}

/// Point reads: a random line per group, and the lines that adjoin it.
#[test]
fn reads_pay_for_every_group() {
    let (shape, machine) = (integers(16, 1_000), counting());
    let read = one(Access::Read {
        attributes: (0..16).collect(),
    });
    costs("column", &read, &shape, &machine, 160.0);
    costs("row", &read, &shape, &machine, 10.0);
    // 400-byte rows: 400 bytes start at 0, 16, 32 or 48: 7, 7, 7 or 7 lines.
    let read = one(Access::Read {
        attributes: (0..100).collect(),
    });
    costs("row", &read, &integers(100, 1_000), &machine, 10.0 + 6.0);
    // In place, the line goes back as well.
    let update = one(Access::Update {
        attributes: vec![0, 1],
    });
    costs("column", &update, &shape, &machine, 40.0);
    costs("(a0,a1)", &update, &shape, &machine, 20.0);
}

/// Appends: the last line of every group is in the last level, new lines follow in order.
#[test]
fn inserts_pay_for_every_group_and_every_byte() {
    let (shape, mut machine) = (integers(16, 1_000), counting());
    machine.levels.insert(0, machine.levels[0]);
    // Two levels of 1 and 10 ns: a line in order is 2 ns, one in the last level 10 ns.
    let insert = one(Access::Insert { rows: 1.0 });
    costs("row", &insert, &shape, &machine, 2.0 * (10.0 + 2.0));
    costs(
        "column",
        &insert,
        &shape,
        &machine,
        2.0 * (16.0 * 10.0 + 2.0),
    );
    let copy = one(Access::Insert { rows: 1_600.0 });
    costs(
        "column",
        &copy,
        &shape,
        &machine,
        2.0 * (160.0 + 2.0 * 1_600.0),
    );
}

/// FROZEN rows are read in their own widths; HOT ones alone are written.
#[test]
fn parts_have_their_own_widths() {
    let mut shape = integers(2, 16_000);
    shape.frozen = Part {
        rows: 48_000,
        slot_bytes: vec![1, 0],
    };
    let machine = counting();
    // 1,000 lines of HOT integers, 750 of one-byte codes; a constant has none.
    costs("column", &scan(&[], &[0]), &shape, &machine, 1_750.0);
    costs("column", &scan(&[], &[1]), &shape, &machine, 1_000.0);
    // A quarter of the rows is HOT: (a0, a1) costs 10 ns in either part.
    let read = one(Access::Read {
        attributes: vec![0, 1],
    });
    costs("row", &read, &shape, &machine, 10.0);
    costs("column", &read, &shape, &machine, 0.25 * 20.0 + 0.75 * 10.0);
}

#[test]
fn predicates_beyond_the_limit_count_with_the_last() {
    let shape = integers(40, 16_000);
    let mut machine = counting();
    machine.levels[0].random_ns = 1.0;
    let predicates: Vec<(usize, f64)> = (0..40).map(|at| (at, 0.9)).collect();
    let passes = |at: usize| 1.0 - (1.0 - 0.9_f64.powi(at.min(PREDICATES_MAX - 1) as i32)).powi(16);
    let expected = 1_000.0 * (0..40).map(passes).sum::<f64>();
    costs(
        "column",
        &scan(&predicates, &[]),
        &shape,
        &machine,
        expected,
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    let (shape, machine) = (integers(4, 1_000), counting());
    let refused =
        |workload: &Workload| estimate_ns(&Layout::Row, workload, &shape, &machine).unwrap_err();
    assert_eq!(refused(&scan(&[], &[4])), AdviceError::UnknownAttribute(4));
    assert_eq!(
        refused(&scan(&[(4, 0.5)], &[])),
        AdviceError::UnknownAttribute(4)
    );
    assert_eq!(
        refused(&scan(&[(0, 1.5)], &[])),
        AdviceError::Number("selectivity")
    );
    let mut heavy = scan(&[], &[0]);
    heavy.footprints[0].weight = f64::INFINITY;
    assert_eq!(refused(&heavy), AdviceError::Number("weight"));
    let mut odd = shape.clone();
    odd.hot.slot_bytes.pop();
    assert!(matches!(
        estimate_ns(&Layout::Row, &heavy, &odd, &machine),
        Err(AdviceError::Widths { part: "HOT", .. })
    ));
    let unknown = Layout::Groups(vec![vec!["z".into()]]);
    assert!(matches!(
        estimate_ns(&unknown, &scan(&[], &[0]), &shape, &machine),
        Err(AdviceError::Layout(_))
    ));
}

proptest! {
    /// More rows never cost less, and twice the executions cost twice.
    #[test]
    fn cost_rises_with_rows_and_weight(
        rows in 0_u64..100_000,
        more in 1_u64..100_000,
        selectivity in 0.0..=1.0,
        projection in proptest::collection::vec(0..8_usize, 0..8),
        layout in prop_oneof![
            Just(Layout::Row),
            Just(Layout::Column),
            Just(Layout::parse("(a0,a3,a5),(a1,a2)").unwrap()),
        ],
    ) {
        let machine = Machine::default();
        let workload = scan(&[(2, selectivity)], &projection);
        let at = |rows| estimate_ns(&layout, &workload, &integers(8, rows), &machine).unwrap();
        prop_assert!(at(rows) <= at(rows + more), "{} {}", at(rows), at(rows + more));
        let mut twice = workload.clone();
        twice.footprints.extend(workload.footprints.clone());
        let mut heavier = twice.clone();
        heavier.footprints[1].weight *= 2.0;
        let shape = integers(8, rows);
        let total = |workload: &Workload| {
            estimate_ns(&layout, workload, &shape, &machine).unwrap() * workload.weight()
        };
        prop_assert!((total(&twice) - 2.0 * total(&workload)).abs() <= 1e-9 * total(&twice));
        prop_assert!(total(&heavier) >= total(&twice));
    }
}
