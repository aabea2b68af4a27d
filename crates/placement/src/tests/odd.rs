//! Small and odd inventories by hand.

use std::num::NonZeroUsize;

use crate::{
    Change, Inventory, InventoryError, MoveError, NodeId, NodeState, Obstacle, Policy, Reason,
    TenantId, Violation, nodes_needed, plan, what_if,
};

use super::generate::{GIB, after, like_nodes, load, node, tenant, tight};

fn sentences(inventory: &Inventory, policy: &Policy) -> Vec<String> {
    let plan = plan(inventory, policy);
    plan.moves.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_an_inventory() {
    let nothing = Inventory::new(Vec::new(), Vec::new()).unwrap();
    let empty = plan(&nothing, &Policy::default());
    assert!(empty.moves.is_empty() && empty.report.feasible());
    assert!((what_if(&nothing, &[NodeId(1)]).kept() - 1.0).abs() < 1e-12);
    let needed = nodes_needed(&[], &node(1, 0, 0.0), &Policy::default());
    assert_eq!(needed, Ok(Some(0)));
}

#[test]
fn contradictions_are_errors() {
    let new = |tenants| Inventory::new(like_nodes(2, GIB), tenants).unwrap_err();
    let twice = vec![node(1, GIB, 1.0), node(1, GIB, 1.0)];
    assert_eq!(
        Inventory::new(twice, Vec::new()),
        Err(InventoryError::NodeTwice(NodeId(1)))
    );
    let of = |copies: &[u32]| tenant(7, 0.1, 1, copies);
    assert_eq!(
        new(vec![of(&[]), of(&[])]),
        InventoryError::TenantTwice(TenantId(7))
    );
    let (tenant, node) = (TenantId(7), NodeId(9));
    assert_eq!(new(vec![of(&[9])]), InventoryError::NoNode { tenant, node });
    let node = NodeId(2);
    assert_eq!(
        new(vec![of(&[2, 2])]),
        InventoryError::CopyTwice { tenant, node }
    );
    let mut led = of(&[1]);
    led.leader = Some(node);
    assert_eq!(
        new(vec![led]),
        InventoryError::LeaderWithoutCopy { tenant, node }
    );
}

#[test]
fn moves_say_why() {
    let mut nodes = like_nodes(4, GIB);
    nodes[1].state = NodeState::Draining;
    nodes[2].state = NodeState::Lost;
    let tenants = vec![
        tenant(7, 0.1, 1, &[3, 1]),
        tenant(8, 0.1, 1, &[2, 1]),
        tenant(9, 0.1, 1, &[]),
    ];
    let inventory = Inventory::new(nodes, tenants).unwrap();
    assert_eq!(
        sentences(&inventory, &tight()),
        [
            "tenant 7: hand the lead over to node 1, because node 3, which led, is lost",
            "tenant 7: add a copy on node 4, because tenant 7 has one copy",
            "tenant 7: remove the copy on node 3, because node 3 is lost",
            "tenant 9: add a copy on node 4, because tenant 9 is new",
            "tenant 9: add a copy on node 1, because tenant 9 is new",
            "tenant 8: add a copy on node 4, because node 2 is draining",
            "tenant 8: hand the lead over to node 4, because node 2 is draining",
            "tenant 8: remove the copy on node 2, because node 2 is draining",
        ]
    );
}

#[test]
fn an_overload_after_a_failure_is_repaired_and_told() {
    // Node 2 would have all four when node 1 failed.
    let tenants = (1..=4).map(|id| tenant(id, 0.3, 1, &[1, 2])).collect();
    let inventory = Inventory::new(like_nodes(4, GIB), tenants).unwrap();
    let plan = plan(&inventory, &tight());
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    assert_eq!(
        plan.moves[0].reason.to_string(),
        "node 1 is at 1.20 of its capacity"
    );
    let with_headroom = Reason::Overload {
        node: NodeId(2),
        failed: Some(NodeId(5)),
        share: 1.23,
        allowed: 0.95,
    };
    assert_eq!(
        with_headroom.to_string(),
        "node 2 would be at 1.23 of its capacity if node 5 failed, where 0.95 is allowed"
    );
}

#[test]
fn what_cannot_be_is_told_with_the_nodes_that_lack() {
    let tenants = (1..=4).map(|id| tenant(id, 0.5, 1, &[])).collect();
    let inventory = Inventory::new(like_nodes(2, GIB), tenants).unwrap();
    let report = plan(&inventory, &tight()).report;
    assert!(matches!(
        report.violations[..],
        [Violation::Overloaded { .. }, Violation::Overloaded { .. }]
    ));
    let more = report.nodes_more.expect("more nodes help");
    let tenants = inventory.tenants().to_vec();
    let nodes = like_nodes(2 + more as u32, GIB);
    let enough = Inventory::new(nodes, tenants.clone()).unwrap();
    assert!(plan(&enough, &tight()).report.feasible());
    let needed = nodes_needed(&tenants, &node(1, GIB, 1.0), &tight()).unwrap();
    assert_eq!(needed, Some(2 + more));
}

#[test]
fn a_tenant_too_large_for_any_node_needs_no_more_of_them() {
    let tenants = vec![tenant(1, 1.5, 1, &[]), tenant(2, 0.1, 2 * GIB, &[])];
    let inventory = Inventory::new(like_nodes(3, GIB), tenants).unwrap();
    let report = plan(&inventory, &tight()).report;
    assert_eq!(report.nodes_more, None);
    for tenant in [TenantId(1), TenantId(2)] {
        assert!(
            report
                .violations
                .contains(&Violation::TenantTooLarge { tenant })
        );
    }
}

#[test]
fn one_node_has_one_copy_of_each() {
    let inventory = Inventory::new(like_nodes(1, GIB), vec![tenant(1, 0.1, 1, &[])]).unwrap();
    let plan = plan(&inventory, &tight());
    assert_eq!(plan.moves.len(), 1);
    assert_eq!(
        plan.report.violations,
        [Violation::TooFewCopies {
            tenant: TenantId(1),
            live: 1,
            wanted: 2,
            obstacle: Obstacle::NoOtherNode,
        }]
    );
    assert_eq!(plan.report.nodes_more, Some(1));
}

#[test]
fn nodes_without_capacity_get_only_what_has_no_load() {
    let mut nodes = like_nodes(4, GIB);
    nodes[0].capacity = load(0.0);
    let tenants = (1..=6).map(|id| tenant(id, 0.1, 1, &[])).collect();
    let inventory = Inventory::new(nodes, tenants).unwrap();
    let plan = plan(&inventory, &tight());
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    assert!(plan.report.nodes[0].worst_load.abs() < 1e-12);
    let none = vec![node(1, GIB, 0.0), node(2, GIB, 0.0)];
    let inventory = Inventory::new(none, vec![tenant(1, 0.1, 1, &[])]).unwrap();
    let report = crate::plan(&inventory, &tight()).report;
    assert!(!report.feasible() && report.nodes_more.is_none());
}

#[test]
fn copies_on_lost_nodes_are_waited_for_when_there_is_no_other() {
    let mut nodes = like_nodes(4, GIB);
    nodes[0].state = NodeState::Lost;
    nodes[1].state = NodeState::Lost;
    let inventory = Inventory::new(nodes, vec![tenant(1, 0.1, 1, &[1, 2])]).unwrap();
    let plan = plan(&inventory, &tight());
    let tenant = TenantId(1);
    assert!(plan.moves.is_empty());
    assert_eq!(
        plan.report.violations,
        [Violation::AllCopiesLost { tenant }]
    );
}

#[test]
fn surplus_copies_go() {
    let inventory =
        Inventory::new(like_nodes(3, GIB), vec![tenant(1, 0.1, 1, &[3, 1, 2])]).unwrap();
    let plan = plan(&inventory, &tight());
    assert!(
        matches!(plan.moves[..], [ref only] if matches!(only.change, Change::RemoveCopy { .. }))
    );
    let end = after(&inventory, &plan);
    assert_eq!(end.tenants()[0].leader, Some(NodeId(3)));
}

#[test]
fn copies_that_have_grown_leave_a_full_node() {
    let tenants = (1..=4).map(|id| tenant(id, 0.01, GIB * u64::from(id), &[1, 2]));
    let inventory = Inventory::new(like_nodes(4, 8 * GIB), tenants.collect()).unwrap();
    let plan = plan(&inventory, &tight());
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    // Both nodes have 10 GiB, and the smallest copies that make room are of 2 GiB.
    assert_eq!(plan.report.bytes_added, 4 * GIB);
    let reasons: Vec<String> = plan
        .moves
        .iter()
        .map(|step| step.reason.to_string())
        .collect();
    let full = "node 2 has copies of 10737418240 bytes, where 8589934592 are allowed";
    assert!(reasons.iter().any(|reason| reason == full), "{reasons:?}");
}

#[test]
fn the_largest_numbers_are_no_reason_to_panic() {
    let tenant = |id, of_load, bytes| tenant(id, of_load, bytes, &[1, 2]);
    let new = |tenants| Inventory::new(like_nodes(4, u64::MAX), tenants);
    let too_much = [tenant(1, 1.0, u64::MAX), tenant(2, 1.0, u64::MAX)];
    assert!(matches!(
        new(too_much.to_vec()),
        Err(InventoryError::TooMuch(u64::MAX, _))
    ));
    let most = vec![tenant(1, 1000.0, 1 << 53), tenant(2, 1000.0, 0)];
    let policy = Policy {
        copies: NonZeroUsize::MAX,
        neighbours_max: usize::MAX,
        ..tight()
    };
    let report = plan(&new(most).unwrap(), &policy).report;
    assert!(!report.feasible());
}

#[test]
fn too_many_neighbours_become_fewer() {
    let all: Vec<(u32, u32)> = (1..=6)
        .flat_map(|a| (a + 1..=6).map(move |b| (a, b)))
        .collect();
    let tenants = (1..)
        .zip(&all)
        .map(|(id, &(a, b))| tenant(id, 0.01, 1, &[a, b]));
    let inventory = Inventory::new(like_nodes(6, GIB), tenants.collect()).unwrap();
    let policy = Policy {
        neighbours_max: 3,
        ..tight()
    };
    let plan = plan(&inventory, &policy);
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    assert!(plan.report.copies_added <= 15);
}

#[test]
fn two_failures_meet_few_pairs_under_a_cap() {
    let tenants = (1..=200).map(|id| tenant(id, 0.02, 1, &[])).collect();
    let inventory = Inventory::new(like_nodes(15, GIB), tenants).unwrap();
    let hit = |neighbours_max| {
        let policy = Policy {
            neighbours_max,
            ..tight()
        };
        plan(&inventory, &policy).report.double_failures
    };
    let (capped, uncapped) = (hit(6), hit(14));
    assert!(capped.pairs_hit <= 6.0 / 14.0 + 1e-9, "{capped:?}");
    assert!(uncapped.pairs_hit > 0.7, "{uncapped:?}");
    // Every tenant is lost with exactly one pair.
    let one_pair = 1.0 / 105.0;
    assert!((capped.tenants_hit - one_pair).abs() < 1e-9);
    assert!((uncapped.tenants_hit - one_pair).abs() < 1e-9);
}

#[test]
fn three_copies_stand_three_ways() {
    let policy = Policy {
        copies: NonZeroUsize::new(3).unwrap(),
        ..tight()
    };
    let tenants = (1..=20).map(|id| tenant(id, 0.1, 1, &[])).collect();
    let inventory = Inventory::new(like_nodes(7, GIB), tenants).unwrap();
    let plan = plan(&inventory, &policy);
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    assert!(plan.report.double_failures.pairs_hit.abs() < 1e-12);
}

#[test]
fn users_are_kept_where_survivors_have_room() {
    let tenants = vec![tenant(1, 0.6, 1, &[1, 2]), tenant(2, 0.6, 1, &[2, 3])];
    let inventory = Inventory::new(like_nodes(3, GIB), tenants).unwrap();
    // Node 2 leads both when node 1 has failed, at 1.2: neither is served within the goal.
    let after = what_if(&inventory, &[NodeId(1)]);
    assert_eq!(after.overloaded, [NodeId(2)]);
    assert!(after.kept().abs() < 1e-6, "{after:?}");
    assert!((what_if(&inventory, &[NodeId(3)]).kept() - 1.0).abs() < 1e-6);
    let both = what_if(&inventory, &[NodeId(1), NodeId(2)]);
    assert_eq!(both.down, [TenantId(1)]);
}

#[test]
fn impossible_moves_are_errors() {
    let mut inventory = Inventory::new(like_nodes(2, GIB), vec![tenant(1, 0.1, 1, &[1])]).unwrap();
    let (id, node) = (TenantId(1), NodeId(1));
    let mut try_move = |change| {
        inventory.apply(&crate::Move {
            tenant: id,
            change,
            reason: Reason::NoLeader,
        })
    };
    let add = try_move(Change::AddCopy { node });
    assert_eq!(add, Err(MoveError::CopyExists(id, node)));
    let remove = try_move(Change::RemoveCopy { node });
    assert_eq!(remove, Err(MoveError::Leads(id, node)));
    let to = NodeId(2);
    let lead = try_move(Change::HandOverLead { to });
    assert_eq!(lead, Err(MoveError::NoCopy(id, to)));
    let to = NodeId(3);
    let lead = try_move(Change::HandOverLead { to });
    assert_eq!(lead, Err(MoveError::NoNode(to)));
}
