//! Plans for a placement that changes a little: few moves.

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Change, Inventory, LoadSplit, NodeId, NodeState, Plan, Policy, Reason, Tenant, nodes_needed,
    plan,
};

use super::generate::{GIB, Seed, after, like_nodes, load, node, share, skewed};

fn policy() -> Policy {
    Policy::default().without_budget()
}

/// Some tenants on as many nodes as they need and a few more, at rest.
fn at_rest(seed: u64) -> Inventory {
    let random = &mut StdRng::seed_from_u64(seed);
    let split = LoadSplit::new(share(0.1), share(0.4)).unwrap();
    let tenants = skewed(random, 150, 6.0, 0.4, split);
    let like = node(1, 200 * GIB, 1.0);
    let needed = nodes_needed(&tenants, &like, &policy()).unwrap().unwrap();
    let nodes = like_nodes(needed as u32 + 2, 200 * GIB);
    let fresh = Inventory::new(nodes, tenants).unwrap();
    let first = plan(&fresh, &policy());
    assert!(first.report.feasible(), "{:?}", first.report.violations);
    after(&fresh, &first)
}

fn each_at_rest(check: impl Fn(Inventory)) {
    for seed in 0..5 {
        let _seed = Seed(seed);
        check(at_rest(seed));
    }
}

fn with(
    inventory: &Inventory,
    change: impl FnOnce(&mut Vec<crate::Node>, &mut Vec<Tenant>),
) -> Inventory {
    let (mut nodes, mut tenants) = (inventory.nodes().to_vec(), inventory.tenants().to_vec());
    change(&mut nodes, &mut tenants);
    Inventory::new(nodes, tenants).unwrap()
}

fn copies_on(inventory: &Inventory, node: NodeId) -> usize {
    let tenants = inventory.tenants().iter();
    tenants
        .filter(|tenant| tenant.copies.contains(&node))
        .count()
}

fn added(plan: &Plan) -> usize {
    assert!(plan.report.feasible(), "{:?}", plan.report.violations);
    plan.report.copies_added
}

#[test]
fn without_a_change_there_is_nothing_to_do() {
    each_at_rest(|inventory| {
        assert_eq!(plan(&inventory, &policy()).moves, []);
    });
}

#[test]
fn a_new_node_gets_its_share_for_few_moves() {
    each_at_rest(|inventory| {
        let more = with(&inventory, |nodes, _| {
            nodes.push(node(99, 200 * GIB, 1.0));
        });
        // Nothing was wrong, so nothing moves for a small gain.
        assert_eq!(plan(&more, &policy()).moves, []);
        let eager = Policy {
            balance_gain_min: share(0.02),
            ..policy()
        };
        let plan = plan(&more, &eager);
        let average = 2 * more.tenants().len() / more.nodes().len();
        assert!(added(&plan) <= 2 * average, "{} of {average}", added(&plan));
        assert!(copies_on(&after(&more, &plan), NodeId(99)) > 0);
    });
}

#[test]
fn a_draining_node_gives_up_what_it_has_and_others_keep_theirs() {
    each_at_rest(|inventory| {
        let drained = with(&inventory, |nodes, _| nodes[2].state = NodeState::Draining);
        let plan = plan(&drained, &policy());
        let there = copies_on(&drained, drained.nodes()[2].id);
        // Without a need to repair, nothing else moves.
        let forced = plan.moves.iter().filter(|step| {
            matches!(step.change, Change::AddCopy { .. })
                && !matches!(step.reason, Reason::Draining { .. })
        });
        assert!(forced.count() <= there / 4, "{there} were there");
        assert!(added(&plan) >= there);
        assert_eq!(copies_on(&after(&drained, &plan), drained.nodes()[2].id), 0);
    });
}

#[test]
fn what_a_lost_node_had_is_copied_anew() {
    each_at_rest(|inventory| {
        let id = inventory.nodes()[4].id;
        let there = copies_on(&inventory, id);
        let lost = with(&inventory, |nodes, _| nodes[4].state = NodeState::Lost);
        let plan = plan(&lost, &policy());
        assert!(added(&plan) >= there && added(&plan) <= there + there / 4);
        // Leads first, then copies: the first moves give every tenant a leader.
        let leads = lost.tenants().iter().filter(|one| one.leader == Some(id));
        for step in &plan.moves[..leads.count()] {
            assert_eq!(step.reason, Reason::LeaderLost { node: id });
        }
        assert_eq!(copies_on(&after(&lost, &plan), id), 0);
    });
}

#[test]
fn a_tenant_that_grows_moves_few() {
    each_at_rest(|inventory| {
        let grown = with(&inventory, |_, tenants| {
            let largest = tenants.iter_mut().max_by(|one, other| {
                let loads = (one.load.get(), other.load.get());
                loads.0.total_cmp(&loads.1)
            });
            let largest = largest.unwrap();
            largest.load = load((largest.load.get() * 1.8).min(0.8));
        });
        let only_repairs = Policy {
            balance_gain_min: share(1.0),
            ..policy()
        };
        assert!(added(&plan(&grown, &only_repairs)) <= 8);
        // Its node is the fullest by far then, and balance is worth a tenth of all copies.
        assert!(added(&plan(&grown, &policy())) <= 30);
    });
}
