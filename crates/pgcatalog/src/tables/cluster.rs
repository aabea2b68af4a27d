//! Relations of a cluster: its nodes, and which of them have which database. Rows are for roles that may see other
//! tenants' statistics; a node in no cluster has none.

use aerostat_catalog::{BuildName, ClusterFacts, NodeFacts};
use aerostat_sql::names::AEROSTAT;
use aerostat_types::NodeId;

use super::{Builder, replication::sees_nodes};
use crate::{CatalogView, cell::Rows};

pub(super) const BUILDERS: [(&str, &str, Builder); 2] = [
    (AEROSTAT, "cluster_nodes", nodes),
    (AEROSTAT, "cluster_databases", databases),
];

fn facts(view: &CatalogView) -> Option<ClusterFacts> {
    match sees_nodes(view) {
        true => view.facts.cluster(),
        false => None,
    }
}

/// `up`, or why not: it has said that it ends, or says nothing.
fn state(node: &NodeFacts) -> &'static str {
    match (node.is_up(), node.is_stopped) {
        (true, _) => "up",
        (_, true) => "stopped",
        _ => "silent",
    }
}

fn version(build: &Option<BuildName>) -> Option<&String> {
    build.as_ref().map(|build| &build.version)
}

fn build(build: &Option<BuildName>) -> Option<&String> {
    build.as_ref().map(|build| &build.id)
}

/// One row for each node.
fn nodes(view: &CatalogView, rows: &mut Rows) {
    let Some(facts) = facts(view) else { return };
    for node in &facts.nodes {
        let all = view.node.databases.values();
        let copies = all.filter(|entry| entry.copies.is_some() && entry.is_on(&node.name));
        let all = facts.databases.values();
        let led = all.filter(|of| of.leader == Some(node.id));
        let is_heard = node.silent.is_some();
        let heard_ms = node
            .silent
            .map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX));
        rows.push([
            ("name", (&node.name).into()),
            ("node", node.id.0.into()),
            ("state", state(node).into()),
            ("draining", node.is_draining.into()),
            ("version", version(&node.build).into()),
            ("build", build(&node.build).into()),
            ("next_version", version(&node.next_build).into()),
            ("next_build", build(&node.next_build).into()),
            ("address", (&node.address).into()),
            ("clients", (&node.clients).into()),
            ("copies", copies.count().into()),
            ("leads", led.count().into()),
            ("memory_bytes", is_heard.then_some(node.memory_bytes).into()),
            ("memory_used", is_heard.then_some(node.memory_used).into()),
            ("load", is_heard.then_some(node.load).into()),
            ("heard_ms_ago", heard_ms.into()),
        ]);
    }
}

/// One row for each database.
fn databases(view: &CatalogView, rows: &mut Rows) {
    let Some(facts) = facts(view) else { return };
    let entries = view.node.databases.iter();
    for (name, entry) in entries.filter(|(_, entry)| entry.copies.is_some()) {
        let told = facts.databases.get(&entry.oid);
        let nodes: Vec<&str> = entry.nodes.iter().map(String::as_str).collect();
        let names = |ids: &Vec<NodeId>| {
            let names: Vec<String> = ids.iter().map(|id| facts.name_of(*id)).collect();
            names.join(", ")
        };
        let members = told.map(|told| names(&told.members));
        let current = told.map(|told| names(&told.current));
        let leader = told
            .and_then(|told| told.leader)
            .map(|id| facts.name_of(id));
        rows.push([
            ("name", name.into()),
            ("number", entry.oid.0.into()),
            (
                "copies",
                entry.copies_kept.map(|kept| u64::from(kept.get())).into(),
            ),
            (
                "nodes",
                (!nodes.is_empty()).then(|| nodes.join(", ")).into(),
            ),
            ("leader", leader.into()),
            ("members", members.into()),
            ("current", current.into()),
            ("epoch", told.map(|told| told.epoch).into()),
            ("bytes", told.map(|told| told.bytes).into()),
            ("load", told.map(|told| told.load).into()),
            (
                "load_beside_leader",
                told.map(|told| told.load_beside_leader).into(),
            ),
        ]);
    }
}
