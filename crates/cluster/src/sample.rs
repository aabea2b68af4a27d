//! What is measured of a node's copies.

use std::time::Instant;

use aerostat_catalog::admin::Node;

/// A database's copy at the moment of asking.
#[derive(Clone, Debug)]
pub struct CopySample {
    /// The database's name.
    pub database: String,
    /// Whether this node takes its changes.
    pub leads: bool,
    /// The number of the configuration by which it is led.
    pub epoch: u64,
    /// How many nodes must have a commit before it is acknowledged.
    pub members: usize,
    /// Commits that were made, or received, and are not known to be committed.
    pub uncommitted: u64,
    /// Seconds since its leader was heard; `None` at the leader, and where none was.
    pub silent_seconds: Option<f64>,
    /// At the leader: how many places each other node's log is behind.
    pub behind: Vec<(String, u64)>,
}

/// Of every copy that a node has open, in order of names.
pub fn samples(node: &Node) -> Vec<CopySample> {
    let now = Instant::now();
    let open = node.open_databases();
    let copies = open.iter().filter_map(|database| {
        let copy = database.copy.as_ref()?;
        let facts = copy.facts();
        let behind = facts.peers.iter().map(|peer| {
            let places = facts.written.0.saturating_sub(peer.written.0);
            (peer.name.clone(), places)
        });
        Some(CopySample {
            database: database.name.read().clone(),
            leads: copy.leads(),
            epoch: facts.epoch.0,
            members: facts.members.len(),
            uncommitted: facts.written.0.saturating_sub(facts.committed.0),
            silent_seconds: facts
                .heard
                .map(|heard| now.saturating_duration_since(heard).as_secs_f64()),
            behind: behind.collect(),
        })
    });
    copies.collect()
}
