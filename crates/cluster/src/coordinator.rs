//! One node of a cluster at a time carries out what databases need: the one that leads the database with the lowest
//! number. Where two take themselves for it, the record's versions keep them apart.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use aerostat_catalog::{ClusterNodes, NodeRecord, admin::Node};
use aerostat_types::{NodeId, TenantId};

use crate::{
    census::Census,
    placing::{Going, Picture, PictureDatabase},
};

/// Databases that get copies at a time.
const AT_ONCE: usize = 4;

/// For so long nothing is planned where nothing was needed: memory that has come back may be room for a copy.
const REST: Duration = Duration::from_secs(30);

/// A database whose copy is not there after so long holds up no others.
const STUCK: Duration = Duration::from_secs(600);

/// What is under way, while this node coordinates.
#[derive(Default)]
pub(crate) struct Coordinator {
    /// Databases that lack a copy on a node that runs, and since when.
    lacking: HashMap<TenantId, Instant>,
    /// Of which picture nothing was needed, and when that was found.
    rested: Option<(u64, Instant)>,
    /// What etcd had when.
    history: Option<(Instant, u64)>,
}

impl Coordinator {
    /// Has databases go where they need to, if this node coordinates.
    pub(crate) fn step(&mut self, node: &Node, census: &Census, replace_after: Duration) {
        let record = node.record();
        if !coordinates(node, &record) {
            self.lacking.clear();
            (self.history, self.rested) = (None, None);
            return;
        }
        if let Err(error) = census.forget_history(&mut self.history) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "etcd does not forget what was"
            );
        }
        let facts = census.facts();
        let picture = Picture::of(&record, &facts, Some(replace_after));
        let busy = self.busy(&picture);
        let shape = picture.shape();
        // A plan of many databases takes its time.
        if self
            .rested
            .is_some_and(|(of, at)| of == shape && at.elapsed() < REST)
        {
            return;
        }
        let needed = match picture.needed() {
            Ok(needed) => needed,
            Err(error) => {
                tracing::error!(%error, "nobody plans where databases are");
                return;
            }
        };
        self.rested = needed.is_empty().then(|| (shape, Instant::now()));
        let mut free = AT_ONCE.saturating_sub(busy);
        for going in needed {
            let since = self.lacking.get(&going.database);
            if since.is_some_and(|since| since.elapsed() < STUCK) {
                continue;
            }
            let before = picture.databases.iter().find(|of| of.id == going.database);
            let makes_copy = before.is_some_and(|of| !going.nodes.is_subset(&of.nodes));
            if makes_copy && free == 0 {
                continue;
            }
            free -= usize::from(makes_copy);
            carry_out(node, &record, &picture, &going);
        }
    }

    /// How many databases get copies now.
    fn busy(&mut self, picture: &Picture) -> usize {
        let up: BTreeSet<NodeId> = picture
            .nodes
            .iter()
            .filter(|node| node.is_up && !node.is_lost)
            .map(|node| node.id)
            .collect();
        let lacks = |of: &&PictureDatabase| {
            let mut awaited = of.nodes.intersection(&up);
            awaited.any(|node| !of.members.contains(node))
        };
        let kept = picture.databases.iter().filter(|of| of.copies.is_some());
        let lacking: BTreeSet<TenantId> = kept.filter(lacks).map(|of| of.id).collect();
        self.lacking.retain(|id, _| lacking.contains(id));
        let now = Instant::now();
        for id in lacking {
            self.lacking.entry(id).or_insert(now);
        }
        let since = self.lacking.values();
        since.filter(|since| since.elapsed() < STUCK).count()
    }
}

/// Whether this node leads the database with the lowest number.
fn coordinates(node: &Node, record: &NodeRecord) -> bool {
    let kept = record.databases.values().filter(|of| of.copies.is_some());
    let first = kept.map(|entry| entry.oid).min();
    let open = node.open_databases();
    let mut led = open.iter().filter(|database| database.takes_changes());
    led.any(|database| Some(database.id) == first)
}

fn carry_out(node: &Node, record: &NodeRecord, picture: &Picture, going: &Going) {
    let mut entries = record.databases.iter();
    let Some((name, entry)) = entries.find(|(_, entry)| entry.oid == going.database) else {
        return;
    };
    let nodes: BTreeSet<String> = going.nodes.iter().map(|id| picture.name_of(*id)).collect();
    let reasons: Vec<String> = going
        .reasons
        .iter()
        .map(|reason| reason.told(picture))
        .collect();
    match node.place_again(going.database, &entry.nodes, &nodes) {
        Ok(true) => tracing::info!(
            database = name,
            from = ?entry.nodes,
            to = ?nodes,
            because = reasons.join("; "),
            "a database goes to other nodes"
        ),
        // Somebody else has said where it goes.
        Ok(false) => {}
        Err(error) => tracing::warn!(
            database = name,
            message = error.message,
            detail = ?error.detail,
            "a database does not go to other nodes yet"
        ),
    }
}
