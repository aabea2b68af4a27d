//! Plans of lists made at random, and of some by hand.

use proptest::prelude::*;

use super::*;
use crate::model::tests::model;

fn tenant(name: &str, rows: f64, rate: f64) -> Tenant {
    Tenant {
        name: name.to_owned(),
        rows,
        bytes: rows * 20.0,
        rate,
        goal_ms: 50.0,
    }
}

fn limits() -> NodeLimits {
    NodeLimits {
        memory_bytes: 1e9,
        data_share: 0.8,
        load_max: 0.8,
        workers: 2,
        copies: 1,
    }
}

/// 1e5 to 1e7 rows, and up to 0.8 of a node's workload.
fn any_tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let one = (5.0_f64..7.0, 0.001_f64..0.79);
    proptest::collection::vec(one, 1..60).prop_map(|all| {
        let tenant = |(at, (size, load)): (usize, (f64, f64))| {
            let rows = 10_f64.powf(size);
            tenant(&format!("t{at}"), rows, load * 100.0 * 1e6 / rows)
        };
        all.into_iter().enumerate().map(tenant).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_tenant_is_placed_and_no_node_is_over_its_limits(
        tenants in any_tenants(),
        copies in 1_usize..4,
    ) {
        let limits = NodeLimits { copies, ..limits() };
        let plan = place(&model(), &tenants, &limits).unwrap();
        for node in &plan.nodes {
            let load: f64 = node.tenants.iter().map(|one| one.load).sum();
            prop_assert!(load <= limits.load_max + 1e-9);
            prop_assert!((load - node.load.value).abs() < 1e-9);
            prop_assert!(node.bytes <= limits.memory_bytes * limits.data_share + 1e-3);
            prop_assert!(node.load.low <= node.load.value && node.load.value <= node.load.high);
            prop_assert!(!node.tenants.is_empty());
        }
        for tenant in &tenants {
            let mut rate = 0.0;
            for node in &plan.nodes {
                let here: Vec<_> = node.tenants.iter().filter(|one| one.name == tenant.name).collect();
                prop_assert!(here.len() <= 1, "two copies on a node");
                rate += here.iter().map(|one| one.rate).sum::<f64>();
            }
            let on = plan.nodes.iter().flat_map(|node| &node.tenants);
            prop_assert_eq!(on.filter(|one| one.name == tenant.name).count(), copies);
            prop_assert!((rate / tenant.rate - 1.0).abs() < 1e-9);
        }
        prop_assert!(plan.nodes.len() >= plan.nodes_min);
        // Any two nodes that were opened for want of room are, together, more than one.
        if copies == 1 && plan.nodes.len() > 1 {
            prop_assert!(plan.nodes.len() <= 4 * plan.nodes_min + 1);
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(tenants in any_tenants()) {
        let forth = place(&model(), &tenants, &limits()).unwrap();
        let back: Vec<Tenant> = tenants.into_iter().rev().collect();
        prop_assert_eq!(forth, place(&model(), &back, &limits()).unwrap());
    }
}

#[test]
fn nodes_are_filled_by_workload_and_by_memory() {
    // By workload two of these are a node; by memory all would be one.
    let busy: Vec<Tenant> = (0..4)
        .map(|at| tenant(&format!("b{at}"), 1e6, 39.0))
        .collect();
    let plan = place(&model(), &busy, &limits()).unwrap();
    assert_eq!((plan.nodes.len(), plan.nodes_min), (2, 2));
    assert!((plan.nodes[0].load.value - 0.78).abs() < 0.01);
    assert!((plan.nodes[0].headroom_percent.value - 28.0).abs() < 1.5);
    // And the other way round: 190 MB each.
    let large: Vec<Tenant> = (0..8)
        .map(|at| tenant(&format!("l{at}"), 9.5e6, 0.1))
        .collect();
    let plan = place(&model(), &large, &limits()).unwrap();
    assert_eq!((plan.nodes.len(), plan.nodes_min), (2, 2));
    // Together they share nodes, as each leaves what the other needs.
    let both: Vec<Tenant> = busy.into_iter().chain(large).collect();
    let plan = place(&model(), &both, &limits()).unwrap();
    assert!(plan.nodes.len() <= 3, "{plan:?}");
}

#[test]
fn a_tenant_that_fits_on_no_node_is_told() {
    let refused = |tenant: Tenant| {
        place(&model(), &[tenant], &limits())
            .unwrap_err()
            .to_string()
    };
    let memory = refused(tenant("whale", 1e8, 0.1));
    assert!(
        memory.contains("\"whale\"") && memory.contains("1907.35 MiB"),
        "{memory}"
    );
    let load = refused(tenant("busy", 1e6, 90.0));
    assert!(load.contains("workload") && load.contains("0.90"), "{load}");
    let limits = NodeLimits {
        load_max: 1.2,
        ..limits()
    };
    assert!(matches!(
        place(&model(), &[], &limits),
        Err(PlanError::Limits)
    ));
    // Twice the workers do twice the work.
    let limits = NodeLimits {
        workers: 4,
        load_max: 0.8,
        ..limits
    };
    let plan = place(&model(), &[tenant("busy", 1e6, 90.0)], &limits).unwrap();
    assert!((plan.nodes[0].load.value - 0.45).abs() < 0.01);
    assert!(
        plan.unknown.iter().any(|one| one.contains("4 workers")),
        "{:?}",
        plan.unknown
    );
}

#[test]
fn what_is_not_known_is_said() {
    let mut tenants = vec![tenant("tiny", 10.0, 1.0), tenant("fine", 1e6, 1.0)];
    tenants.push(Tenant {
        goal_ms: 5.0,
        ..tenant("hasty", 1e6, 1.0)
    });
    tenants.push(Tenant {
        goal_ms: 1000.0,
        ..tenant("patient", 1e6, 1.0)
    });
    let plan = place(&model(), &tenants, &limits()).unwrap();
    let said = plan.unknown.join("\n");
    for text in [
        "Writes",
        "outside the sizes measured, 100000 to 10000000 rows: tiny.",
        "tighter goals than the 50 ms measured are kept: hasty.",
        "allow: patient.",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(
        !said.contains("quick") && !said.contains("workers"),
        "{said}"
    );
}
