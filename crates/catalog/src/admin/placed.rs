//! Which nodes of a cluster have copies of a database.

use std::collections::BTreeMap;

use aerostat_sql::{grants::PredefinedRole, utility::DatabaseOptions};
use aerostat_types::{ErrorKind, NodeId, SqlError};

use super::{
    database::denied,
    databases::opening,
    node::{Node, role_in},
};
use crate::{
    Actor,
    state::{CopiesRecord, DatabaseRecord},
};

/// The nodes that were named, and their numbers.
pub(super) struct Placed(BTreeMap<String, NodeId>);

impl Node {
    /// The nodes that the options name; `None` where they say nothing of them. Asks the list of the cluster's nodes.
    ///
    /// # Errors
    /// Only operators choose machines, and hear which there are; the node is in no cluster, or one of those is not in
    /// its; the list cannot be read.
    pub(super) fn placed(
        &self,
        actor: &Actor,
        options: &DatabaseOptions,
    ) -> Result<Option<Placed>, SqlError> {
        let Some(named) = &options.nodes else {
            return Ok(None);
        };
        let record = self.record();
        if !role_in(&record, &actor.role)?.is_member_of(PredefinedRole::AerostatOperator) {
            return Err(denied("permission denied to set nodes").with_detail(
                "Only superusers and members of aerostat_operator say which nodes have a database.",
            ));
        }
        let Some(shared) = &self.host.shared else {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "this node is in no cluster, so that a database cannot be on others",
            )
            .with_hint("Start the nodes with --cluster."));
        };
        let Some(named) = named else {
            return Ok(Some(Placed(BTreeMap::new())));
        };
        let all = (shared.nodes)()?;
        let one = |name: &String| match all.get(name) {
            Some(id) => Ok((name.clone(), *id)),
            None => {
                let names: Vec<&str> = all.keys().map(String::as_str).collect();
                let message = format!("node \"{name}\" does not exist");
                Err(SqlError::new(ErrorKind::UndefinedObject, message)
                    .with_hint(format!("The cluster has {}.", names.join(", "))))
            }
        };
        let placed: Result<_, _> = named.iter().map(one).collect();
        Ok(Some(Placed(placed?)))
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

impl Placed {
    /// Has the database be on these nodes.
    pub(super) fn give(&self, entry: &mut DatabaseRecord) {
        entry.nodes = self.0.keys().cloned().collect();
    }

    /// Who begins to lead a database that is made by a node: that one if it is to have it.
    pub(super) fn home(&self, begins: CopiesRecord) -> CopiesRecord {
        let is_among = self.0.values().any(|id| *id == begins.home);
        let other = self.0.values().next().filter(|_| !is_among);
        CopiesRecord {
            home: other.copied().unwrap_or(begins.home),
            ..begins
        }
    }
}
