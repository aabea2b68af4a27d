//! Which nodes of a cluster have copies of a database, and who says so.
//!
//! | of the record | the database is on | who says so |
//! |---|---|---|
//! | no `nodes` | all | |
//! | `nodes` | these | the operator: they stay |
//! | `nodes`, `copies_kept` | these | the cluster, which keeps so many: lost ones are replaced, and draining nodes left |

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
};

use aerostat_sql::{
    grants::PredefinedRole,
    utility::{DatabaseOptions, NodeCommand},
};
use aerostat_types::{ErrorKind, NodeId, SqlError, TenantId};

use super::{
    database::{denied, record_of},
    databases::opening,
    node::{Node, role_in},
};
use crate::{
    Actor,
    admin::Shared,
    ddl::CommandResult,
    state::{ClusterFacts, CopiesRecord, Database, DatabaseRecord, undefined_node},
};

/// What a statement says of a database's nodes.
pub(super) enum Placed {
    /// All of them.
    Everywhere,
    /// These, with their numbers.
    On(BTreeMap<String, NodeId>),
    /// The cluster keeps so many copies: now on those that were named, if any.
    Kept {
        copies: NonZeroU8,
        named: Option<BTreeMap<String, NodeId>>,
        /// The cluster's nodes.
        all: BTreeSet<String>,
    },
}

/// Where a new database is to be, and what its copies are of.
pub(super) struct NewPlace {
    nodes: BTreeSet<String>,
    copies_kept: Option<NonZeroU8>,
    begins: CopiesRecord,
}

impl Node {
    /// What the options say of nodes; `None` where they say nothing. Asks the list of the cluster's nodes.
    ///
    /// # Errors
    /// Only operators choose machines, and hear which there are; the node is in no cluster, or one of those is not in
    /// its; the list cannot be read.
    pub(super) fn placed(
        &self,
        actor: &Actor,
        options: &DatabaseOptions,
    ) -> Result<Option<Placed>, SqlError> {
        let (nodes, copies) = (&options.nodes, options.copies);
        if nodes.is_none() && copies.is_none() {
            return Ok(None);
        }
        self.require_operator(actor, "set nodes")?;
        let shared = self.require_cluster("a database cannot be on others")?;
        let named = match nodes {
            Some(Some(names)) => Some(named(shared, names)?),
            _ => None,
        };
        let kept = match copies {
            None => None,
            Some(copies) => copies.or(shared.copies),
        };
        Ok(Some(match (kept, named) {
            (Some(copies), named) => Placed::Kept {
                copies,
                named,
                all: shared.nodes.list()?.into_keys().collect(),
            },
            (None, Some(named)) => Placed::On(named),
            (None, None) => Placed::Everywhere,
        }))
    }

    /// Where a new database goes; `None` at a node that is in no cluster. Asks what the nodes share, so that nobody's
    /// connecting waits for this.
    ///
    /// # Errors
    /// As [`Self::placed`]; no node takes databases.
    pub(super) fn place_new(
        &self,
        actor: &Actor,
        options: &DatabaseOptions,
        current: &Database,
    ) -> Result<Option<NewPlace>, SqlError> {
        let placed = self.placed(actor, options)?;
        let (Some(shared), Some(begins)) = (&self.host.shared, self.copies_from_here()) else {
            return Ok(None);
        };
        let record = self.record();
        let (nodes, copies_kept) = match placed {
            Some(placed) => placed.parts(),
            None => {
                let rights = role_in(&record, &actor.role)?;
                let is_operator = rights.is_member_of(PredefinedRole::AerostatOperator);
                let beside = record_of(&record, current)?;
                match beside.copies_kept {
                    _ if is_operator => (None, shared.copies),
                    Some(copies) => (None, Some(copies)),
                    None if beside.nodes.is_empty() => (None, shared.copies),
                    // They were chosen for who makes databases there.
                    None => (Some(named(shared, &beside.nodes)?), None),
                }
            }
        };
        let mut place = NewPlace {
            nodes: BTreeSet::new(),
            copies_kept,
            begins,
        };
        match (nodes, copies_kept) {
            (Some(named), _) => {
                let is_among = named.values().any(|id| *id == begins.home);
                let other = named.values().next().filter(|_| !is_among);
                place.begins.home = other.copied().unwrap_or(begins.home);
                place.nodes = named.into_keys().collect();
            }
            (None, Some(copies)) => {
                let chosen = shared.nodes.place(&record, copies, None)?;
                (place.nodes, place.begins.home) = (chosen.nodes, chosen.leader);
            }
            (None, None) => {}
        }
        Ok(Some(place))
    }

    /// Where a database is kept that this node has restored.
    ///
    /// # Errors
    /// What the nodes share cannot be read.
    pub(super) fn place_restored(&self, entry: &mut DatabaseRecord) -> Result<(), SqlError> {
        if let Some(shared) = &self.host.shared
            && let Some(copies) = shared.copies
        {
            let record = self.record();
            entry.nodes = shared.nodes.place(&record, copies, Some(shared.me))?.nodes;
            entry.copies_kept = Some(copies);
        }
        Ok(())
    }

    /// Has the cluster's choice of a database's nodes be another one, if it is the cluster's still and was this; whether
    /// that is so.
    ///
    /// # Errors
    /// It cannot be stored, or another node was quicker.
    pub fn place_again(
        &self,
        id: TenantId,
        before: &BTreeSet<String>,
        nodes: &BTreeSet<String>,
    ) -> Result<bool, SqlError> {
        assert!(!nodes.is_empty(), "a database is somewhere");
        self.change_databases(
            |record, _| {
                let mut all = record.databases.values_mut();
                let entry = all.find(|entry| entry.oid == id);
                let entry =
                    entry.filter(|entry| entry.copies_kept.is_some() && entry.nodes == *before);
                let Some(entry) = entry else {
                    return Ok(false);
                };
                entry.nodes.clone_from(nodes);
                Ok(true)
            },
            |_, is_placed| is_placed,
        )
    }

    /// Runs ALTER NODE or DROP NODE.
    ///
    /// # Errors
    /// Only operators may, and superusers alone have a node go on as another build; the node is in no cluster; there is
    /// none of the name; one that is to go runs, or has databases; that build cannot go on.
    pub fn execute_node(
        &self,
        actor: &Actor,
        command: &NodeCommand,
    ) -> Result<CommandResult, SqlError> {
        let tag = command.tag();
        self.require_operator(actor, &format!("run {tag}"))?;
        let shared = self.require_cluster("there are no others")?;
        let done = CommandResult::new(tag);
        match command {
            NodeCommand::Upgrade {
                name,
                program,
                only_check,
            } => {
                require_to_upgrade(actor, shared, name)?;
                shared.nodes.upgrade(program, *only_check)?;
            }
            NodeCommand::Drain { name } => shared.nodes.set_draining(name, true)?,
            NodeCommand::Resume { name } => shared.nodes.set_draining(name, false)?,
            NodeCommand::Drop {
                name,
                if_exists,
                force,
            } => {
                let is_there = shared.nodes.list()?.contains_key(name);
                if !is_there && *if_exists {
                    return Ok(done);
                }
                if is_there {
                    self.leave_node(name, *force)?;
                }
                shared.nodes.remove(name)?;
            }
        }
        Ok(done)
    }

    /// Has no database be on a node any more.
    fn leave_node(&self, name: &str, force: bool) -> Result<(), SqlError> {
        self.change_databases(
            |record, _| {
                let mut held = Vec::new();
                for (database, entry) in &mut record.databases {
                    let is_there = entry.nodes.contains(name);
                    if is_there && (!force || entry.nodes.len() == 1) {
                        held.push(database.as_str());
                    }
                    if is_there && force {
                        entry.nodes.remove(name);
                    }
                }
                if held.is_empty() {
                    return Ok(());
                }
                let message = format!("cannot drop node \"{name}\" because it has databases");
                let error = SqlError::new(ErrorKind::ObjectInUse, message)
                    .with_detail(format!("It is to have {}.", listed(&held)));
                Err(error.with_hint(match force {
                    false => "Run ALTER NODE … DRAIN and wait until they have gone. WITH (FORCE) goes on without its copies.",
                    true => "They are on no other node. Move or drop them first.",
                }))
            },
            |_, ()| (),
        )
    }

    fn require_operator(&self, actor: &Actor, doing: &str) -> Result<(), SqlError> {
        let record = self.record();
        match role_in(&record, &actor.role)?.is_member_of(PredefinedRole::AerostatOperator) {
            true => Ok(()),
            false => Err(denied(&format!("permission denied to {doing}")).with_detail(
                "Only superusers and members of aerostat_operator say which nodes have a database.",
            )),
        }
    }

    fn require_cluster(&self, consequence: &str) -> Result<&Shared, SqlError> {
        self.host.shared.as_ref().ok_or_else(|| {
            let message = format!("this node is in no cluster, so that {consequence}");
            SqlError::new(ErrorKind::FeatureNotSupported, message)
                .with_hint("Start the nodes with --cluster.")
        })
    }

    /// What is known of the cluster; `None` at a node that is in none.
    pub fn cluster_facts(&self) -> Option<ClusterFacts> {
        let shared = self.host.shared.as_ref()?;
        Some(shared.nodes.facts())
    }

    /// Whether it is this node of the cluster.
    pub fn is(&self, node: NodeId) -> bool {
        self.host
            .shared
            .as_ref()
            .is_some_and(|shared| shared.me == node)
    }

    /// The error of who comes to a database of a cluster that is not open here.
    pub(super) fn not_open(&self, name: &str, entry: Option<&DatabaseRecord>) -> SqlError {
        let shared = self.host.shared.as_ref();
        match (shared, entry) {
            (Some(shared), Some(entry)) if !entry.is_on(&shared.name) => {
                let nodes: Vec<&str> = entry.nodes.iter().map(String::as_str).collect();
                let message = format!(
                    "database \"{name}\" has no copy on node \"{}\"",
                    shared.name
                );
                SqlError::new(ErrorKind::CannotConnectNow, message)
                    .with_detail(format!("It is on {}.", nodes.join(", ")))
                    .with_hint("Connect to one of these, or through a node that passes sessions on (--sessions leader).")
            }
            _ => opening(name),
        }
    }
}

/// Whoever says which program a node runs, at the node itself: its machine is where the file is.
fn require_to_upgrade(actor: &Actor, shared: &Shared, name: &str) -> Result<(), SqlError> {
    if !actor.superuser {
        return Err(denied("permission denied to run ALTER NODE … UPGRADE")
            .with_detail("Only superusers say which program a node runs."));
    }
    let all = shared.nodes.list()?;
    if !all.contains_key(name) {
        return Err(undefined_node(name, all.keys()));
    }
    if name == shared.name {
        return Ok(());
    }
    let message = format!(
        "node \"{name}\" is another one than this, \"{}\"",
        shared.name
    );
    Err(
        SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message).with_hint(
            "Connect to that node with options='-c aerostat.read_from=any', so that the session is there; aerostat.cluster_nodes says where it is.",
        ),
    )
}

impl Placed {
    fn parts(self) -> (Option<BTreeMap<String, NodeId>>, Option<NonZeroU8>) {
        match self {
            Placed::Everywhere => (None, None),
            Placed::On(named) => (Some(named), None),
            Placed::Kept { copies, named, .. } => (named, Some(copies)),
        }
    }

    /// Has a database that there is be on these nodes.
    pub(super) fn give(&self, entry: &mut DatabaseRecord) {
        let names = |named: &BTreeMap<String, NodeId>| named.keys().cloned().collect();
        entry.copies_kept = None;
        match self {
            Placed::Everywhere => entry.nodes.clear(),
            Placed::On(named) => entry.nodes = names(named),
            Placed::Kept { copies, named, all } => {
                entry.copies_kept = Some(*copies);
                match named {
                    Some(named) => entry.nodes = names(named),
                    // Where it is; the cluster goes on from there.
                    None if entry.nodes.is_empty() => entry.nodes.clone_from(all),
                    None => {}
                }
            }
        }
    }
}

impl NewPlace {
    /// Has a new database be there.
    pub(super) fn give(self, entry: &mut DatabaseRecord) {
        entry.nodes = self.nodes;
        entry.copies_kept = self.copies_kept;
        entry.copies = Some(self.begins);
    }
}

/// The numbers of nodes that were named.
fn named(shared: &Shared, names: &BTreeSet<String>) -> Result<BTreeMap<String, NodeId>, SqlError> {
    let all = shared.nodes.list()?;
    let one = |name: &String| match all.get(name) {
        Some(id) => Ok((name.clone(), *id)),
        None => Err(undefined_node(name, all.keys())),
    };
    names.iter().map(one).collect()
}

/// Some of many names.
fn listed(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 10;
    let shown = names[..names.len().min(SHOWN_MAX)].join(", ");
    match names.len().checked_sub(SHOWN_MAX) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
