//! What each policy does in known situations, and what no policy ever does.

use aerostat_balloon::message::{Cost, Demand};
use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn costs(points: &[(u64, f64)]) -> Costs {
    Costs::of(&Demand {
        used: 0,
        wanted: 0,
        is_stalled: false,
        costs: points
            .iter()
            .map(|&(bytes, ms_per_s)| Cost { bytes, ms_per_s })
            .collect(),
    })
}

/// A program that wants `wanted` GiB, with costs in GiB.
fn candidate(name: &str, granted: u64, wanted: u64, points: &[(u64, f64)]) -> Candidate {
    let points: Vec<(u64, f64)> = points.iter().map(|&(gib, ms)| (gib * GIB, ms)).collect();
    Candidate {
        name: name.to_owned(),
        floor: GIB,
        ceiling: 100 * GIB,
        granted: granted * GIB,
        wanted: wanted * GIB,
        costs: costs(&points),
        gives_bytes_per_s: None,
        may_give: true,
        may_take: true,
    }
}

/// What candidates have after transfers.
fn after(candidates: &[Candidate], transfers: &[Transfer]) -> Vec<u64> {
    let sum = |of: fn(&Transfer) -> &Option<String>, name: &String| -> u64 {
        let these = transfers
            .iter()
            .filter(|one| of(one).as_ref() == Some(name));
        these.map(|one| one.bytes).sum()
    };
    let of = |one: &Candidate| {
        one.granted + sum(|transfer| &transfer.to, &one.name)
            - sum(|transfer| &transfer.from, &one.name)
    };
    candidates.iter().map(of).collect()
}

#[test]
fn costs_are_lines_between_points() {
    let curve = costs(&[(10 * GIB, 100.0), (20 * GIB, 50.0), (30 * GIB, 50.0)]);
    for (gib, expected) in [(10, 100.0), (15, 75.0), (20, 50.0), (25, 50.0), (99, 50.0)] {
        assert!((curve.at(gib * GIB) - expected).abs() < 1e-6, "{gib}");
    }
    // Below, it goes on at no less than what is assumed of all.
    assert!((curve.at(9 * GIB) - 110.0).abs() < 1e-6);
    assert!(Costs::default().at(7) == 0.0);
}

#[test]
fn static_moves_only_what_is_free() {
    let all = [candidate("a", 10, 20, &[]), candidate("b", 10, 5, &[])];
    let plan = Policy::Static.plan(30 * GIB, 4 * GIB, &all);
    assert_eq!(after(&all, &plan), [14 * GIB, 10 * GIB]);
    assert!(Policy::Static.plan(20 * GIB, 0, &all).is_empty());
}

#[test]
fn benefit_goes_to_where_memory_is_dearest() {
    // From 4 to 8 GiB a loses 400 ms a second, b 20 from 8 to 4.
    let all = [
        candidate("a", 4, 8, &[(4, 400.0), (8, 0.0)]),
        candidate("b", 8, 8, &[(4, 20.0), (8, 0.0)]),
    ];
    let plan = Policy::Benefit.plan(12 * GIB, 0, &all);
    assert_eq!(after(&all, &plan), [8 * GIB, 4 * GIB]);
    assert_eq!(plan.len(), 1, "{plan:?}");
    assert!(plan[0].why.contains("saves 100 ms"), "{plan:?}");
    // Where both lose the same nothing moves, whoever is asked first.
    let all = [
        candidate("a", 4, 8, &[(4, 100.0), (8, 0.0)]),
        candidate("b", 4, 8, &[(4, 100.0), (8, 0.0)]),
    ];
    assert!(Policy::Benefit.plan(8 * GIB, 0, &all).is_empty());
}

#[test]
fn a_working_set_that_fits_as_a_whole_is_seen_from_afar() {
    // Nothing is gained before 8 GiB, which b can give.
    let a = candidate("a", 2, 8, &[(2, 800.0), (7, 800.0), (8, 0.0)]);
    let all = [a.clone(), candidate("b", 10, 10, &[(2, 80.0), (10, 0.0)])];
    let plan = Policy::Benefit.plan(12 * GIB, 0, &all);
    assert_eq!(after(&all, &plan), [8 * GIB, 4 * GIB]);
    // Half of it is of no use.
    let all = [a, candidate("b", 4, 4, &[(2, 80.0), (4, 0.0)])];
    assert!(Policy::Benefit.plan(6 * GIB, 0, &all).is_empty());
}

#[test]
fn floors_and_those_that_give_nothing_are_left_alone() {
    let dear = candidate("a", 4, 50, &[(4, 4_000.0), (50, 0.0)]);
    let mut fixed = candidate("b", 8, 1, &[]);
    fixed.may_give = false;
    let all = [dear.clone(), fixed];
    for policy in [Policy::Benefit, Policy::Proportional] {
        assert!(policy.plan(12 * GIB, 0, &all).is_empty(), "{policy}");
    }
    let all = [dear, candidate("b", 8, 1, &[])];
    for policy in [Policy::Benefit, Policy::Proportional] {
        let plan = policy.plan(12 * GIB, 0, &all);
        // Up to a quantum, of which the floor need not be a multiple.
        let has = after(&all, &plan);
        assert!(
            has[1] >= GIB && has[1] < GIB + 12 * GIB / QUANTA,
            "{policy}: {has:?}"
        );
    }
}

#[test]
fn proportional_divides_by_what_is_wanted() {
    // 18 GiB beyond the floors, of which 30 and 10 are wanted.
    let all = [candidate("a", 10, 31, &[]), candidate("b", 10, 11, &[])];
    let plan = Policy::Proportional.plan(20 * GIB, 0, &all);
    let (a, b) = (GIB + 18 * GIB * 3 / 4, GIB + 18 * GIB / 4);
    assert_eq!(after(&all, &plan), [a, b]);
}

#[test]
fn free_memory_comes_from_where_it_costs_least() {
    let all = [
        candidate("a", 4, 4, &[(1, 300.0), (4, 0.0)]),
        candidate("b", 8, 8, &[(1, 7.0), (8, 0.0)]),
    ];
    let plan = Policy::plan_to_free(12 * GIB, 2 * GIB, &all, "pressure");
    assert_eq!(after(&all, &plan), [4 * GIB, 6 * GIB]);
    let plan = Policy::plan_to_free(12 * GIB, 100 * GIB, &all, "pressure");
    assert_eq!(after(&all, &plan), [GIB, GIB]);
}

#[test]
fn names_are_read_and_written() {
    for (policy, name) in NAMES {
        assert_eq!(name.parse::<Policy>().unwrap(), policy);
        assert_eq!(policy.to_string(), name);
    }
    assert!("fair".parse::<Policy>().is_err());
}

fn any_candidate(at: usize) -> impl Strategy<Value = Candidate> {
    let amounts = (0..64u64, 0..64u64, 0..200u64, any::<bool>(), any::<bool>());
    let falls = proptest::collection::vec((1..16u64, 0..500u32), 0..6);
    (amounts, falls).prop_map(move |((floor, more, wanted, may_give, may_take), falls)| {
        const UNIT: u64 = 64 << 20;
        let mut points: Vec<(u64, f64)> = Vec::new();
        let total: u32 = falls.iter().map(|(_, fall)| fall).sum();
        let (mut bytes, mut left) = (0, total);
        for (step, fall) in falls {
            bytes += step * UNIT;
            left -= fall;
            points.push((bytes, f64::from(left)));
        }
        Candidate {
            name: format!("p{at}"),
            floor: floor * UNIT,
            ceiling: (floor + more + 1) * UNIT,
            granted: (floor + more / 2) * UNIT,
            wanted: wanted * UNIT,
            costs: costs(&points),
            gives_bytes_per_s: None,
            may_give,
            may_take,
        }
    })
}

proptest! {
    #[test]
    fn plans_keep_every_limit(
        candidates in (1..6usize).prop_flat_map(|count| (0..count).map(any_candidate).collect::<Vec<_>>()),
        free in 0..10_000_000_000u64,
    ) {
        let granted: u64 = candidates.iter().map(|one| one.granted).sum();
        for policy in [Policy::Static, Policy::Proportional, Policy::Benefit] {
            let plan = policy.plan(granted + free, free, &candidates);
            let from_free: u64 = plan.iter().filter(|one| one.from.is_none()).map(|one| one.bytes).sum();
            prop_assert!(from_free <= free);
            for (one, has) in candidates.iter().zip(after(&candidates, &plan)) {
                prop_assert!(has == one.granted || has >= one.floor, "{one:?}, {has}");
                prop_assert!(has <= one.ceiling.max(one.granted), "{one:?}, {has}");
                prop_assert!(one.may_give || has >= one.granted);
                prop_assert!(one.may_take || has <= one.granted);
            }
            let names: Vec<_> = plan.iter().map(|one| (&one.from, &one.to)).collect();
            prop_assert!(names.iter().all(|(from, to)| from != to));
        }
    }

    #[test]
    fn what_benefit_has_done_it_does_not_undo(
        candidates in (2..5usize).prop_flat_map(|count| (0..count).map(any_candidate).collect::<Vec<_>>()),
    ) {
        let budget: u64 = candidates.iter().map(|one| one.granted).sum();
        let first = Policy::Benefit.plan(budget, 0, &candidates);
        let mut moved = candidates.clone();
        for (one, has) in moved.iter_mut().zip(after(&candidates, &first)) {
            one.granted = has;
        }
        let second = Policy::Benefit.plan(budget, 0, &moved);
        for one in &second {
            let back = |other: &&Transfer| other.from == one.to && other.to == one.from;
            prop_assert!(!first.iter().any(|other| back(&other)), "{first:?}, then {second:?}");
        }
    }
}
