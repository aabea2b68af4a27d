//! Which nodes databases are to be on: what is known of a cluster, for the planner, and what of its plans is carried out
//! unasked.
//!
//! ```text
//!  the record ──┐
//!  ClusterFacts ┴► Picture ──► aerostat_placement::plan ──► Plan ──► aerostat cluster plan, apply
//!                                                            └── what is needed ──► Coordinator ──► the record
//! ```
//!
//! * **Databases whose nodes the operator has chosen** stay where they are. What they take of nodes is taken off these.
//! * **Needed** is what restores copies: those of lost nodes, those of draining ones, those that a database has too few or
//!   too many of. Moves for the sake of loads wait until somebody asks for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU8,
    time::Duration,
};

use aerostat_catalog::{ClusterFacts, NodeRecord, PlacedFacts, Placing};
use aerostat_placement::{
    Change, Inventory, InventoryError, Load, LoadSplit, Names, Node, NodeState, Plan, Policy,
    Reason, Share, Tenant, plan,
};
use aerostat_types::{ErrorKind, NodeId, SqlError, TenantId};

/// A database takes at least so much of a node, or a thousand that do nothing would all go to one.
const LOAD_MIN: f64 = 1e-5;
const BYTES_MIN: u64 = 1 << 20;

/// The share of a leader's load that copies have of the same writes, until that is measured.
const WRITTEN: f64 = 0.1;

/// The number of a database that has none yet.
const NEW: TenantId = TenantId(u32::MAX);

/// A node, for the planner.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureNode {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: NodeId,
    /// Whether it is taken to run.
    pub is_up: bool,
    /// Whether its copies count as gone.
    pub is_lost: bool,
    /// Whether its databases are to go to others.
    pub is_draining: bool,
    /// What databases and queries may use of its memory.
    pub memory_bytes: u64,
}

/// A database, for the planner.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureDatabase {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: TenantId,
    /// How many copies the cluster keeps; `None` where the operator has chosen the nodes.
    pub copies: Option<NonZeroU8>,
    /// The nodes that are to have it. Those that the cluster has no more are not among them.
    pub nodes: BTreeSet<NodeId>,
    /// The nodes that must have a commit before it is acknowledged.
    pub members: BTreeSet<NodeId>,
    /// Who leads it.
    pub leader: Option<NodeId>,
    /// Memory of a copy.
    pub bytes: u64,
    /// The share of a node's threads that its statements take.
    pub load: f64,
    /// Of that, the share that nodes have which do not lead it.
    pub load_beside_leader: f64,
}

/// A cluster, for the planner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// In any order.
    pub nodes: Vec<PictureNode>,
    /// In any order.
    pub databases: Vec<PictureDatabase>,
}

/// Where a database is to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Going {
    /// Which.
    pub database: TenantId,
    /// Where it is to be.
    pub nodes: BTreeSet<NodeId>,
    /// Who is to lead it there, if the plan says so.
    pub leader: Option<NodeId>,
    /// Why, once for each reason.
    pub reasons: Vec<Reason>,
}

impl Picture {
    /// What is known of a cluster. Nodes that were silent for `lost_after` are lost; `None`: none is.
    pub fn of(record: &NodeRecord, facts: &ClusterFacts, lost_after: Option<Duration>) -> Picture {
        let nodes: Vec<PictureNode> = facts
            .nodes
            .iter()
            .map(|node| PictureNode {
                name: node.name.clone(),
                id: node.id,
                is_up: node.is_up(),
                is_lost: lost_after.is_some_and(|after| {
                    // One that was never heard has no copies that others could miss.
                    node.silent.is_some_and(|silent| silent >= after)
                }),
                is_draining: node.is_draining,
                memory_bytes: node.memory_bytes,
            })
            .collect();
        let number = |name: &String| nodes.iter().find(|node| node.name == *name);
        let nothing = PlacedFacts::default();
        let entries = record.databases.iter();
        let databases = entries
            .filter(|(_, entry)| entry.copies.is_some())
            .map(|(name, entry)| {
                let told = facts.databases.get(&entry.oid).unwrap_or(&nothing);
                let nodes: BTreeSet<NodeId> = match entry.nodes.is_empty() {
                    true => nodes.iter().map(|node| node.id).collect(),
                    false => {
                        let named = entry.nodes.iter().filter_map(number);
                        named.map(|node| node.id).collect()
                    }
                };
                PictureDatabase {
                    name: name.clone(),
                    id: entry.oid,
                    copies: entry.copies_kept,
                    // Of one that was made a moment ago nobody has spoken.
                    leader: told
                        .leader
                        .or(entry.copies.map(|copies| copies.home))
                        .filter(|leader| nodes.contains(leader)),
                    members: told.members.iter().copied().collect(),
                    nodes,
                    bytes: told.bytes,
                    load: told.load,
                    load_beside_leader: told.load_beside_leader,
                }
            })
            .collect();
        Picture { nodes, databases }
    }

    /// The moves that a policy asks for.
    ///
    /// # Errors
    /// There are more nodes, databases, bytes or loads than the planner is made for.
    pub fn plan(&self, policy: &Policy) -> Result<Plan, InventoryError> {
        Ok(plan(&self.inventory(false)?, policy))
    }

    /// The planner's input. What takes no copies at the moment drains, if `avoids` says so.
    fn inventory(&self, avoids: bool) -> Result<Inventory, InventoryError> {
        let mut taken: BTreeMap<NodeId, (u64, f64)> = BTreeMap::new();
        let mut tenants = Vec::new();
        for database in &self.databases {
            match database.copies {
                Some(copies) => tenants.push(tenant(database, copies)),
                None => {
                    for node in &database.nodes {
                        let (bytes, load) = taken.entry(*node).or_default();
                        *bytes = bytes.saturating_add(database.bytes);
                        // Any of them may have to lead it.
                        *load += database.load;
                    }
                }
            }
        }
        let nodes = self.nodes.iter().map(|node| {
            let (bytes, load) = taken.get(&node.id).copied().unwrap_or_default();
            Node {
                id: node.id,
                memory_bytes: node.memory_bytes.saturating_sub(bytes),
                capacity: Load::new(1.0 - load).unwrap_or(Load::ZERO),
                state: match (node.is_lost, node.is_draining || avoids && !node.is_up) {
                    (true, _) => NodeState::Lost,
                    (false, true) => NodeState::Draining,
                    (false, false) => NodeState::Ready,
                },
            }
        });
        Inventory::new(nodes.collect(), tenants)
    }

    /// A number of what decides whether something is needed: of pictures that differ otherwise, in loads and sizes, it is the
    /// same.
    pub(crate) fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for node in &self.nodes {
            (node.id, node.is_up, node.is_lost, node.is_draining).hash(&mut hasher);
        }
        for database in &self.databases {
            (database.id, database.copies, &database.nodes).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// What of a plan is to be done unasked, by database, in the plan's order.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn needed(&self) -> Result<Vec<Going>, InventoryError> {
        let policy = Policy::default().without_budget();
        let plan = plan(&self.inventory(true)?, &policy);
        let is_needed = |reason: &Reason| match reason {
            Reason::TooFewCopies { .. }
            | Reason::NodeLost { .. }
            | Reason::TooManyCopies { .. }
            | Reason::NewTenant { .. } => true,
            Reason::Draining { node } => self
                .nodes
                .iter()
                .any(|known| known.id == *node && known.is_draining),
            Reason::LeaderLost { .. }
            | Reason::NoLeader
            | Reason::Memory { .. }
            | Reason::Overload { .. }
            | Reason::Neighbours { .. }
            | Reason::Balance { .. } => false,
        };
        let mut going = self.going(&plan, is_needed);
        // Leaders come and go by themselves.
        going.retain(|going| {
            let now = self.databases.iter().find(|of| of.id == going.database);
            now.is_some_and(|of| of.nodes != going.nodes)
        });
        Ok(going)
    }

    /// Where a plan has databases go, by database, in the plan's order; only for some reasons.
    pub fn going(&self, plan: &Plan, is_wanted: impl Fn(&Reason) -> bool) -> Vec<Going> {
        let mut all: Vec<Going> = Vec::new();
        for step in plan.moves.iter().filter(|step| is_wanted(&step.reason)) {
            let place = all.iter().position(|going| going.database == step.tenant);
            let place = place.unwrap_or_else(|| {
                let known = self.databases.iter().find(|of| of.id == step.tenant);
                all.push(Going {
                    database: step.tenant,
                    nodes: known.map(|of| of.nodes.clone()).unwrap_or_default(),
                    leader: None,
                    reasons: Vec::new(),
                });
                all.len() - 1
            });
            let going = &mut all[place];
            match step.change {
                Change::AddCopy { node } => {
                    going.nodes.insert(node);
                }
                Change::HandOverLead { to } => going.leader = Some(to),
                Change::RemoveCopy { node } => {
                    going.nodes.remove(&node);
                }
            }
            if !going.reasons.contains(&step.reason) {
                going.reasons.push(step.reason.clone());
            }
        }
        // A database is somewhere, whatever becomes of its nodes.
        all.retain(|going| !going.nodes.is_empty());
        all
    }

    /// What a node is called; its number if it is none.
    pub fn name_of(&self, id: NodeId) -> String {
        let node = self.nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_string(), |node| node.name.clone())
    }
}

impl Names for Picture {
    fn node(&self, id: NodeId) -> String {
        format!("node {}", self.name_of(id))
    }

    fn tenant(&self, id: TenantId) -> String {
        let mut all = self.databases.iter();
        let database = all.find(|database| database.id == id);
        match database {
            Some(database) => format!("database {}", database.name),
            None => format!("database {id}"),
        }
    }
}

fn tenant(database: &PictureDatabase, copies: NonZeroU8) -> Tenant {
    let load = database.load.max(LOAD_MIN);
    let share = |share: f64| Share::new(share.clamp(0.0, 1.0 - WRITTEN)).unwrap_or(Share::ZERO);
    let shared = share(database.load_beside_leader / load);
    let written = share(WRITTEN * (1.0 - shared.get()));
    Tenant {
        id: database.id,
        load: Load::new(load).unwrap_or(Load::ZERO),
        split: LoadSplit::new(written, shared).unwrap_or_default(),
        memory_bytes: database.bytes.max(BYTES_MIN),
        wanted: Some(copies.into()),
        copies: database.nodes.iter().copied().collect(),
        leader: database.leader,
    }
}

/// Where a new database goes: to `first` if that takes databases, or if it `must`, and to others.
pub(crate) fn place_new(
    mut picture: Picture,
    copies: NonZeroU8,
    first: Option<NodeId>,
    must: bool,
) -> Result<Placing, SqlError> {
    let takes = |id: &NodeId| {
        let node = picture.nodes.iter().find(|node| node.id == *id);
        node.is_some_and(|node| node.is_up && !node.is_draining)
    };
    let first = first.filter(|id| must || takes(id));
    picture.databases.push(PictureDatabase {
        name: String::new(),
        id: NEW,
        copies: Some(copies),
        nodes: first.into_iter().collect(),
        members: BTreeSet::new(),
        leader: first,
        bytes: 0,
        load: 0.0,
        load_beside_leader: 0.0,
    });
    let failed =
        |error: InventoryError| SqlError::new(ErrorKind::ProgramLimitExceeded, error.to_string());
    let policy = Policy::default().without_budget();
    let plan = plan(&picture.inventory(true).map_err(failed)?, &policy);
    let steps = plan.moves.iter().filter(|step| step.tenant == NEW);
    let mut nodes: BTreeSet<NodeId> = first.into_iter().collect();
    for step in steps {
        match step.change {
            Change::AddCopy { node } => {
                nodes.insert(node);
            }
            // It has no rows yet: whoever leads least may lead it.
            Change::HandOverLead { .. } => {}
            Change::RemoveCopy { node } if Some(node) != first => {
                nodes.remove(&node);
            }
            Change::RemoveCopy { .. } => {}
        }
    }
    let led = |node: &NodeId| {
        let all = picture.databases.iter();
        all.filter(|of| of.leader == Some(*node)).count()
    };
    let Some(leader) = first.or_else(|| nodes.iter().copied().min_by_key(led)) else {
        return Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            "no node of the cluster takes databases",
        )
        .with_detail("Each drains, is not heard, or has no memory left.")
        .with_hint("ALTER NODE … RESUME has one take some; aerostat.cluster_nodes has them all."));
    };
    Ok(Placing {
        nodes: nodes.into_iter().map(|id| picture.name_of(id)).collect(),
        leader,
    })
}

#[cfg(test)]
pub(crate) mod tests;
