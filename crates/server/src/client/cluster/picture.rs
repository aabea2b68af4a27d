//! What a node knows of its cluster, read from its views.

use std::{collections::BTreeSet, fmt, num::NonZeroU8, time::Duration};

use aerostat_cluster::{Picture, PictureDatabase, PictureNode};
use aerostat_types::{NodeId, TenantId};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio_postgres::{Client, Row};

/// A build of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BuildRow {
    version: String,
    build: String,
}

/// A row of `aerostat.cluster_nodes`.
#[derive(Debug, Serialize)]
pub(super) struct NodeRow {
    pub(super) name: String,
    node: i64,
    pub(super) state: String,
    pub(super) draining: bool,
    /// What it runs.
    pub(super) build: Option<BuildRow>,
    /// What it was last asked to go on as, until it does.
    pub(super) next_build: Option<BuildRow>,
    address: String,
    pub(super) clients: String,
    pub(super) copies: i64,
    pub(super) leads: i64,
    pub(super) memory_bytes: Option<i64>,
    pub(super) memory_used: Option<i64>,
    pub(super) load: Option<f64>,
    pub(super) heard_ms_ago: Option<i64>,
}

/// A row of `aerostat.cluster_databases`.
#[derive(Debug, Serialize)]
pub(super) struct DatabaseRow {
    pub(super) name: String,
    pub(super) number: i64,
    pub(super) copies: Option<i64>,
    /// `None`: all.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) leader: Option<String>,
    pub(super) members: Vec<String>,
    /// The nodes whose copies have everything.
    pub(super) current: Vec<String>,
    pub(super) bytes: Option<i64>,
    pub(super) load: Option<f64>,
    load_beside_leader: Option<f64>,
}

/// What a node knows of its cluster.
#[derive(Debug, Serialize)]
pub(super) struct Rows {
    pub(super) nodes: Vec<NodeRow>,
    pub(super) databases: Vec<DatabaseRow>,
}

const NODES: &str = "SELECT name::text, node, state, draining, address, clients, copies, leads, memory_bytes, \
    memory_used, load, heard_ms_ago, version, build, next_version, next_build FROM aerostat.cluster_nodes ORDER BY name";

const DATABASES: &str = "SELECT name::text, copies, nodes, leader, members, bytes, load, load_beside_leader, current, number \
    FROM aerostat.cluster_databases ORDER BY name";

/// Asks a node.
///
/// # Errors
/// It is in no cluster, or tells the role nothing of it.
pub(super) async fn read(client: &Client) -> Result<Rows> {
    let failed = "cannot ask the node of its cluster";
    let nodes = client.query(NODES, &[]).await.context(failed)?;
    let databases = client.query(DATABASES, &[]).await.context(failed)?;
    if nodes.is_empty() {
        bail!(
            "the node is in no cluster, or tells nothing of it to a role that is neither superuser nor a member of aerostat_operator"
        );
    }
    Ok(Rows {
        nodes: nodes.iter().map(node_of).collect::<Result<_>>()?,
        databases: databases.iter().map(database_of).collect::<Result<_>>()?,
    })
}

fn node_of(row: &Row) -> Result<NodeRow> {
    Ok(NodeRow {
        name: row.try_get(0)?,
        node: row.try_get(1)?,
        state: row.try_get(2)?,
        draining: row.try_get(3)?,
        build: BuildRow::of(row.try_get(12)?, row.try_get(13)?),
        next_build: BuildRow::of(row.try_get(14)?, row.try_get(15)?),
        address: row.try_get(4)?,
        clients: row.try_get(5)?,
        copies: row.try_get(6)?,
        leads: row.try_get(7)?,
        memory_bytes: row.try_get(8)?,
        memory_used: row.try_get(9)?,
        load: row.try_get(10)?,
        heard_ms_ago: row.try_get(11)?,
    })
}

fn database_of(row: &Row) -> Result<DatabaseRow> {
    let listed = |text: String| -> Vec<String> {
        let names = text.split(',').map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let nodes: Option<String> = row.try_get(2)?;
    let members: Option<String> = row.try_get(4)?;
    let current: Option<String> = row.try_get(8)?;
    Ok(DatabaseRow {
        name: row.try_get(0)?,
        number: row.try_get(9)?,
        copies: row.try_get(1)?,
        nodes: nodes.map(listed),
        leader: row.try_get(3)?,
        members: members.map(listed).unwrap_or_default(),
        current: current.map(listed).unwrap_or_default(),
        bytes: row.try_get(5)?,
        load: row.try_get(6)?,
        load_beside_leader: row.try_get(7)?,
    })
}

impl BuildRow {
    pub(super) fn of(version: Option<String>, build: Option<String>) -> Option<BuildRow> {
        Some(BuildRow {
            version: version?,
            build: build?,
        })
    }
}

impl fmt::Display for BuildRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.build)
    }
}

impl NodeRow {
    /// What it runs, for people.
    pub(super) fn running(&self) -> String {
        let build = self.build.as_ref();
        build.map_or_else(|| "an older build".to_owned(), ToString::to_string)
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == "up"
    }

    fn id(&self) -> Result<NodeId> {
        Ok(NodeId(
            u32::try_from(self.node).context("a node's number is none")?,
        ))
    }
}

impl DatabaseRow {
    /// Whether a node is to have a copy.
    pub(super) fn is_on(&self, node: &NodeRow) -> bool {
        self.nodes
            .as_ref()
            .is_none_or(|nodes| nodes.contains(&node.name))
    }

    /// Whether commits wait for exactly the nodes that are to have it, as far as these run.
    pub(super) fn is_there(&self, rows: &Rows) -> bool {
        let all = || rows.nodes.iter().map(|node| node.name.clone()).collect();
        let wanted: BTreeSet<String> = match &self.nodes {
            Some(nodes) => nodes.iter().cloned().collect(),
            None => all(),
        };
        let members: BTreeSet<String> = self.members.iter().cloned().collect();
        members == wanted
    }
}

impl Rows {
    /// For the planner.
    ///
    /// # Errors
    /// A number is none.
    pub(super) fn picture(&self, lost_after: Duration) -> Result<Picture> {
        let ids: Vec<NodeId> = self.nodes.iter().map(NodeRow::id).collect::<Result<_>>()?;
        let id_of = |name: &String| {
            let place = self.nodes.iter().position(|node| node.name == *name)?;
            Some(ids[place])
        };
        let silent = |node: &NodeRow| node.heard_ms_ago.and_then(|ms| u64::try_from(ms).ok());
        let bytes = |bytes: Option<i64>| bytes.and_then(|of| u64::try_from(of).ok()).unwrap_or(0);
        let nodes = self.nodes.iter().zip(&ids).map(|(node, id)| PictureNode {
            name: node.name.clone(),
            id: *id,
            is_up: node.is_up(),
            is_lost: silent(node).is_some_and(|ms| Duration::from_millis(ms) >= lost_after),
            is_draining: node.draining,
            memory_bytes: bytes(node.memory_bytes),
        });
        let databases = (0..).zip(&self.databases).map(|(number, row)| {
            let nodes: BTreeSet<NodeId> = match &row.nodes {
                Some(names) => names.iter().filter_map(id_of).collect(),
                None => ids.iter().copied().collect(),
            };
            let copies = row.copies.and_then(|copies| u8::try_from(copies).ok());
            PictureDatabase {
                name: row.name.clone(),
                // By its place here.
                id: TenantId(number),
                copies: copies.and_then(NonZeroU8::new),
                leader: row
                    .leader
                    .as_ref()
                    .and_then(id_of)
                    .filter(|leader| nodes.contains(leader)),
                nodes,
                members: row.members.iter().filter_map(id_of).collect(),
                bytes: bytes(row.bytes),
                load: row.load.unwrap_or(0.0),
                load_beside_leader: row.load_beside_leader.unwrap_or(0.0),
            }
        });
        Ok(Picture {
            nodes: nodes.collect(),
            databases: databases.collect(),
        })
    }

    /// Databases that a node that drains has yet to give away: those that are to be on it, and those that count with it.
    pub(super) fn left_on(&self, node: &str) -> Vec<&DatabaseRow> {
        let names = |names: &Vec<String>| names.iter().any(|name| name == node);
        let all = self.databases.iter();
        all.filter(|row| {
            row.nodes.as_ref().is_some_and(names) || { row.nodes.is_some() && names(&row.members) }
        })
        .collect()
    }

    /// Why databases stay on a node that drains, of those that do.
    ///
    /// # Errors
    /// They cannot be planned.
    pub(super) fn stays_on(&self, node: &str) -> Result<Vec<String>> {
        // Whoever is silent may be replaced later; now there is nobody.
        let picture = self.picture(Duration::MAX)?;
        let goes: BTreeSet<TenantId> = {
            let going = picture.needed()?.into_iter();
            going.map(|going| going.database).collect()
        };
        let named = picture.nodes.iter().find(|of| of.name == node);
        let Some(id) = named.map(|of| of.id) else {
            return Ok(Vec::new());
        };
        let on = picture.databases.iter().zip(&self.databases);
        let on = on.filter(|(of, row)| row.nodes.is_some() && of.nodes.contains(&id));
        let why = |(of, row): (&PictureDatabase, &DatabaseRow)| match of.copies {
            None => Some(format!(
                "the nodes of {} were chosen; ALTER DATABASE … SET (nodes = …) chooses others",
                row.name
            )),
            Some(_) if !goes.contains(&of.id) => Some(format!(
                "no other node takes {}, which is to have {} copies",
                row.name,
                row.copies.unwrap_or(1)
            )),
            Some(_) => None,
        };
        Ok(on.filter_map(why).collect())
    }
}

/// Rows as nodes would tell them.
#[cfg(test)]
pub(super) mod told {
    use super::{DatabaseRow, NodeRow};

    pub(in super::super) fn node(name: &str, state: &str) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            node: 1,
            state: state.to_owned(),
            draining: false,
            build: None,
            next_build: None,
            address: String::new(),
            clients: String::new(),
            copies: 0,
            leads: 0,
            memory_bytes: None,
            memory_used: None,
            load: None,
            heard_ms_ago: None,
        }
    }

    pub(in super::super) fn database(nodes: &[&str], current: &[&str]) -> DatabaseRow {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        DatabaseRow {
            name: "shop".to_owned(),
            number: 1,
            copies: None,
            nodes: Some(owned(nodes)),
            leader: None,
            members: Vec::new(),
            current: owned(current),
            bytes: None,
            load: None,
            load_beside_leader: None,
        }
    }
}
