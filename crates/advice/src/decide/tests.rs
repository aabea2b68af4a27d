//! When advice changes a layout, when it does not, and what it says.

use proptest::prelude::*;

use super::*;
use crate::{Access, Filter, Footprint, Scan, estimate_ns};

fn integers(attributes: usize, rows: u64) -> TableShape {
    let names = (0..attributes).map(|at| format!("a{at}")).collect();
    TableShape::hot(names, vec![4; attributes], rows)
}

fn workload(access: Access, weight: f64) -> Workload {
    Workload {
        footprints: vec![Footprint { access, weight }],
        window_s: 1_000.0,
    }
}

fn scan(selectivity: f64, projection: std::ops::Range<usize>) -> Access {
    Access::Scan(Scan {
        share: 1.0,
        predicates: vec![Filter {
            attribute: 0,
            selectivity,
        }],
        projection: projection.collect(),
    })
}

fn advise(current: &Layout, workload: &Workload, shape: &TableShape, policy: &Policy) -> Advice {
    decide(current, workload, shape, &Machine::default(), policy).unwrap()
}

#[test]
fn a_clear_gain_changes_the_layout() {
    let (shape, scans) = (integers(50, 1_000_000), workload(scan(1.0, 0..1), 1_000.0));
    let advice = advise(&Layout::Row, &scans, &shape, &Policy::default());
    assert_eq!(advice.verdict, Verdict::Change);
    assert_eq!(advice.layout, Layout::Column);
    assert_eq!(advice.cost_ns, advice.best.cost_ns);
    assert!(
        advice.cost_ns < advice.cost_now_ns && advice.gain_share > 0.5,
        "{advice:?}"
    );
    // And there is nothing to gain from there.
    let advice = advise(&advice.layout, &scans, &shape, &Policy::default());
    assert_eq!(advice.verdict, Verdict::Keep(KeepReason::Best));
    assert_eq!((advice.gain_share, advice.relay_ns), (0.0, 0.0));
    assert!(advice.pays_after_s.is_infinite());
}

#[test]
fn hysteresis_keeps_what_is_hardly_worse_or_dear_to_move() {
    let shape = integers(50, 1_000_000);
    let scans = workload(scan(1.0, 0..1), 1_000.0);
    let now = Layout::Row;
    let verdict = |workload: &Workload, policy: Policy| {
        let advice = advise(&now, workload, &shape, &policy);
        let Verdict::Keep(reason) = advice.verdict else {
            panic!("{advice:?}");
        };
        // What is kept is what is advised, and the better layout is still shown.
        assert_eq!((&advice.layout, advice.cost_ns), (&now, advice.cost_now_ns));
        assert_eq!(advice.best.layout, Layout::Column);
        reason
    };
    let policy = Policy::default();
    let gain_share = advise(&now, &scans, &shape, &policy).gain_share;
    let choosy = Policy {
        gain_share_min: gain_share + 1e-6,
        ..policy
    };
    assert_eq!(verdict(&scans, choosy), KeepReason::SmallGain);
    let few = workload(scan(1.0, 0..1), 99.0);
    assert_eq!(verdict(&few, policy), KeepReason::FewStatements);
    // 150 scans in 1,000 s gain what the move costs in so many seconds; a horizon just
    // below that is too short, one just above is not.
    let rare = workload(scan(1.0, 0..1), 150.0);
    let pays_after_s = advise(&now, &rare, &shape, &policy).pays_after_s;
    let horizon = |factor: f64| Policy {
        horizon_s: pays_after_s * factor,
        ..policy
    };
    assert_eq!(verdict(&rare, horizon(0.999)), KeepReason::DearMove);
    let advice = advise(&now, &rare, &shape, &horizon(1.001));
    assert_eq!(advice.verdict, Verdict::Change);
    // Twice the load pays in half the time.
    let often = workload(scan(1.0, 0..1), 300.0);
    let half = advise(&now, &often, &shape, &policy).pays_after_s;
    assert!((half * 2.0 - pays_after_s).abs() < 1e-9 * pays_after_s);
}

/// 50 integers of a million rows: 200 bytes read, written twice over: 600 / 64 lines of
/// 6.2 ns, and 50 values of 0.6 ns, a million times.
#[test]
fn re_laying_costs_what_it_reads_and_writes() {
    let shape = integers(50, 1_000_000);
    let advice = advise(
        &Layout::Row,
        &workload(scan(1.0, 0..1), 1_000.0),
        &shape,
        &Policy::default(),
    );
    let expected = 1e6 * (600.0 / 64.0 * 6.2 + 50.0 * 0.6);
    assert!(
        (advice.relay_ns - expected).abs() < 1.0,
        "{}",
        advice.relay_ns
    );
}

#[test]
fn groups_say_why_they_are() {
    let shape = integers(6, 1_000_000);
    let mut reads = workload(
        Access::Read {
            attributes: vec![1, 4],
        },
        3_000.0,
    );
    reads.footprints.push(Footprint {
        access: Access::Read {
            attributes: vec![4],
        },
        weight: 1_000.0,
    });
    let advice = advise(
        &Layout::Column,
        &reads,
        &shape,
        &Policy {
            gain_share_min: 0.01,
            ..Policy::default()
        },
    );
    let group = advice
        .best
        .groups
        .iter()
        .find(|group| group.attributes.len() == 2)
        .unwrap();
    assert_eq!((group.stride_bytes, group.footprints), (8, 2));
    // Three reads of 8 bytes, one of 4: (3 · 8 + 4) / 4 of 8 bytes.
    assert!((group.used_share - 7.0 / 8.0).abs() < 1e-12);
    assert!(group.cost_ns < group.apart_ns);
    let text = group.to_string();
    assert!(
        text.starts_with("(a4,a1): 8 B, 2 footprints use 88 % of it"),
        "{text}"
    );
    let total: f64 = advice.best.groups.iter().map(|group| group.cost_ns).sum();
    assert!((total - advice.best.cost_ns).abs() < 1e-9 * total);
}

#[test]
fn nothing_seen_changes_nothing() {
    let shape = integers(3, 0);
    let advice = advise(
        &Layout::Row,
        &Workload::default(),
        &shape,
        &Policy::default(),
    );
    assert_eq!(advice.layout, Layout::Row);
    assert_eq!(advice.verdict, Verdict::Keep(KeepReason::FewStatements));
    let none = TableShape::default();
    let advice = advise(
        &Layout::Column,
        &Workload::default(),
        &none,
        &Policy::default(),
    );
    assert_eq!(advice.best.groups, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Advice never costs more than the row layout, the column layout or the current
    /// one, resolves to every attribute once, and costs what it says.
    #[test]
    fn advice_is_no_worse_than_the_plain_layouts(
        slot_bytes in proptest::collection::vec(prop_oneof![Just(2_u32), Just(4), Just(8)], 2..30),
        accesses in proptest::collection::vec(
            (proptest::collection::vec(0..30_usize, 1..8), 0..3, 0.0..=1.0_f64, 0..20_i32),
            1..12,
        ),
        current in 0..3,
    ) {
        let attributes = slot_bytes.len();
        let names: Vec<String> = (0..attributes).map(|at| format!("a{at}")).collect();
        let shape = TableShape::hot(names.clone(), slot_bytes, 300_000);
        let footprints = accesses.into_iter().map(|(used, kind, selectivity, weight)| {
            let used: Vec<usize> = used.into_iter().map(|at| at % attributes).collect();
            let access = match kind {
                0 => Access::Read { attributes: used },
                1 => Access::Insert { rows: 1.0 },
                _ => Access::Scan(Scan {
                    share: 1.0,
                    predicates: vec![Filter { attribute: used[0], selectivity }],
                    projection: used,
                }),
            };
            Footprint { access, weight: f64::from(weight).exp2() }
        });
        let workload = Workload { footprints: footprints.collect(), window_s: 60.0 };
        let current = match current {
            0 => Layout::Row,
            1 => Layout::Column,
            _ => Layout::Groups(vec![vec![names[1].clone(), names[0].clone()]]),
        };
        let policy = Policy { gain_share_min: 0.0, horizon_s: f64::INFINITY, executions_min: 0.0 };
        let advice = advise(&current, &workload, &shape, &policy);
        let cost = |layout| estimate_ns(layout, &workload, &shape, &Machine::default()).unwrap();
        for layout in [&current, &Layout::Row, &Layout::Column] {
            prop_assert!(advice.cost_ns <= cost(layout) * (1.0 + 1e-7), "{layout}: {advice:?}");
        }
        prop_assert!((advice.cost_ns - cost(&advice.layout)).abs() <= 1e-9 * advice.cost_ns);
        let mut all = advice.layout.resolve(&names).unwrap().concat();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..attributes));
        prop_assert_eq!(advise(&current, &workload, &shape, &policy), advice);
    }
}
