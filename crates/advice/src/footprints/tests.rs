//! What a collector keeps, forgets and drops.

use super::*;

fn scan(predicates: &[(usize, f64)], projection: &[usize]) -> Access {
    let filter = |&(attribute, selectivity)| Filter {
        attribute,
        selectivity,
    };
    Access::Scan(Scan {
        share: 1.0,
        predicates: predicates.iter().map(filter).collect(),
        projection: projection.to_vec(),
    })
}

fn read(attributes: std::ops::Range<usize>) -> Access {
    Access::Read {
        attributes: attributes.collect(),
    }
}

#[test]
fn executions_of_one_shape_are_one_footprint() {
    let footprints = Footprints::new(0.0);
    footprints.record(&scan(&[(1, 0.2)], &[3, 2, 3]), 0.0);
    footprints.record(&scan(&[(1, 0.4)], &[2, 3]), 0.0);
    footprints.record(&scan(&[(2, 0.4)], &[2, 3]), 0.0);
    footprints.record(&Access::Insert { rows: 2.0 }, 0.0);
    footprints.record(&Access::Insert { rows: 4.0 }, 0.0);
    footprints.record(&Access::Insert { rows: 6.0 }, 0.0);
    let workload = footprints.workload(0.0);
    let [inserts, twice, once] = &workload.footprints[..] else {
        panic!("{workload:?}");
    };
    assert_eq!(
        (inserts.weight, &inserts.access),
        (3.0, &Access::Insert { rows: 4.0 })
    );
    assert_eq!((twice.weight, once.weight), (2.0, 1.0));
    let Access::Scan(scan) = &twice.access else {
        panic!("{twice:?}");
    };
    assert_eq!(scan.projection, [2, 3]);
    assert!((scan.predicates[0].selectivity - 0.3).abs() < 1e-12);
    assert_eq!(footprints.status().executions, 6);
}

#[test]
fn weights_halve_and_give_back_the_rate() {
    let footprints = Footprints::new(0.0);
    footprints.record(&read(0..2), 0.0);
    let later = footprints.workload(DECAY_HALF_LIFE_S);
    assert!((later.footprints[0].weight - 0.5).abs() < 1e-12);
    // Two a second for an hour: weight / window is 2, but for the grain of a second.
    let footprints = Footprints::new(0.0);
    for tick in 0..7_200 {
        footprints.record(&read(0..2), f64::from(tick) / 2.0);
    }
    let workload = footprints.workload(3_600.0);
    let rate = workload.weight() / workload.window_s;
    assert!((rate - 2.0).abs() < 1e-3, "{rate}");
    // Means forget, too: a selectivity that changed is followed.
    let footprints = Footprints::new(0.0);
    for tick in 0..100 {
        footprints.record(&scan(&[(0, 1.0)], &[]), f64::from(tick));
    }
    footprints.record(&scan(&[(0, 0.0)], &[]), 10.0 * DECAY_HALF_LIFE_S);
    let workload = footprints.workload(10.0 * DECAY_HALF_LIFE_S);
    let Access::Scan(scan) = &workload.footprints[0].access else {
        panic!("{workload:?}");
    };
    assert!(scan.predicates[0].selectivity < 0.1, "{scan:?}");
}

#[test]
fn the_lightest_give_way_and_are_counted() {
    let footprints = Footprints::new(0.0);
    for _ in 0..3 {
        footprints.record(&read(0..1), 0.0);
    }
    let shapes = 2 * FOOTPRINTS_MAX;
    for first in 1..=shapes {
        footprints.record(&read(first..first + 2), 1.0);
    }
    let status = footprints.status();
    assert_eq!(status.footprints, FOOTPRINTS_MAX);
    // Each weighed 1 or, a second old, a little less.
    assert!((status.evicted_weight - (shapes + 1 - FOOTPRINTS_MAX) as f64).abs() < 0.1);
    let workload = footprints.workload(1.0);
    assert_eq!(workload.footprints[0].access, read(0..1));
}

#[test]
fn wide_statements_keep_within_the_attributes_limit() {
    let footprints = Footprints::new(0.0);
    for first in 0..20 {
        footprints.record(&read(first..first + 10_000), f64::from(first as u32));
        assert!(footprints.status().attributes <= FOOTPRINT_ATTRIBUTES_MAX);
    }
    assert_eq!(footprints.status().footprints, 6);
    footprints.record(&read(0..FOOTPRINT_ATTRIBUTES_MAX + 1), 20.0);
    assert_eq!(footprints.status().footprints, 6);
    footprints.clear(21.0);
    assert_eq!(footprints.status(), FootprintsStatus::default());
    assert_eq!(footprints.workload(21.0), Workload::default());
}

#[test]
fn numbers_that_are_none_do_no_harm() {
    let footprints = Footprints::new(0.0);
    footprints.record(&scan(&[(0, f64::NAN)], &[1]), 0.0);
    footprints.record(&scan(&[(0, 7.0)], &[1]), -5.0);
    footprints.record(
        &Access::Insert {
            rows: f64::INFINITY,
        },
        0.0,
    );
    footprints.workload(0.0).check(2).unwrap();
}

#[test]
fn threads_lose_nothing() {
    let footprints = Footprints::new(0.0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let footprints = &footprints;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    footprints.record(&read(0..thread + 1), 0.0);
                }
            });
        }
    });
    let workload = footprints.workload(0.0);
    assert_eq!(workload.footprints.len(), 4);
    assert!((workload.weight() - 4_000.0).abs() < 1e-6);
}
