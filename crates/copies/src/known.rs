//! What a copy's driver knows, for views and metrics.

use std::time::Duration;

use aerostat_replication::{Config, NodeId};
use aerostat_types::CommitTs;

/// What a copy's driver knows.
#[derive(Clone, Debug)]
pub struct Known {
    /// The newest configuration.
    pub config: Option<Config>,
    /// Whether commits wait for this process of its node, by that configuration.
    pub counts: bool,
    /// Whether what it shows is committed.
    pub is_shown: bool,
    /// The log is written through this.
    pub written: CommitTs,
    /// The disk has it through this.
    pub durable: CommitTs,
    /// Everything through this is committed.
    pub committed: CommitTs,
    /// How long ago its leader was heard last; `None` at the leader, and where none was heard.
    pub heard: Option<Duration>,
    /// How long ago its leader said of the last time that what is shown is all that was committed then; `None` at the
    /// leader, and before that.
    pub current: Option<Duration>,
    /// How long a leader may answer strong reads from now on; `None`: it may not, or this is none.
    pub lease: Option<Duration>,
    /// What a leader knows of others.
    pub peers: Vec<KnownPeer>,
}

/// What a leader knows of another copy.
#[derive(Clone, Copy, Debug)]
pub struct KnownPeer {
    /// Its node.
    pub node: NodeId,
    /// How long ago it was heard last.
    pub heard: Duration,
    /// It has written the log through this.
    pub written: CommitTs,
    /// The log was sent through this.
    pub sent: CommitTs,
    /// Its disk has it through this.
    pub durable: CommitTs,
}
