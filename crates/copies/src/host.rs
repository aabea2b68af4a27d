//! What a driver asks of the process it is in.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_replication::{Config, NodeId};
use aerostat_storage::{Applier, RecoverError, Table, TenantStore, Wake};
use aerostat_types::{CommitTs, TableId};

use crate::{Job, Packet};

/// What a process does with a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does what its leader has done, and answers reads.
    Follows,
    /// It takes changes.
    Leads,
}

/// The process that a copy is in. Nothing here waits for another node.
pub trait Host {
    /// Sends a packet, if that can be.
    fn send(&mut self, to: NodeId, packet: Packet);

    /// How many bytes may wait to be sent to a node beyond those that do.
    fn room(&self, to: NodeId) -> usize;

    /// Asks the store of configurations for what it has, or to have this one if it has the epoch before it. What
    /// it says is told by [`crate::Driver::config`] and [`crate::Driver::swapped`].
    fn ask(&mut self, swap: Option<Config>);

    /// Has the tenant's log synced ([`TenantStore::sync_log`]), now or soon. Then [`crate::Driver::written`] is
    /// told.
    fn sync(&mut self, store: &Arc<TenantStore>);

    /// What is called when a leader's log has more: [`crate::Driver::written`] is to be told then.
    fn wake(&self) -> Wake;

    /// Has somebody else's thread do a job, soon, and be done with it before long; or gives it back, for a part
    /// of it to be done in each of the driver's turns.
    fn apply(&mut self, job: Job) -> Option<Job>;

    /// Whether it is the turn of somebody who has other things to do.
    fn is_short(&self) -> bool {
        false
    }

    /// Does something that may wait for a job.
    fn wait(&mut self, wait: &mut dyn FnMut()) {
        wait();
    }

    /// Closes the tenant, which the driver has let go of, and opens it as a copy whose log counts through this
    /// place.
    ///
    /// # Errors
    /// [`RecoverError`]: the copy ends.
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError>;

    /// A commit that was applied has changed the catalogue to this, with these tables.
    fn defined(&mut self, catalog: &Arc<[u8]>, tables: &BTreeMap<TableId, Arc<Table>>);

    /// The process leads from now on, with what it has applied: it takes changes once
    /// [`crate::Driver::standing`] says so to others.
    fn leads(&mut self, store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>);

    /// The process leads no more. The tenant takes nothing any more, and is about to be opened again.
    fn follows(&mut self);

    /// The process leads, and another is about to lead on purpose: sessions are to leave between their transactions,
    /// and new ones to wait, and [`crate::Driver::quiet`] is to be told whether none is left, then and when that
    /// changes.
    /// Or, where not `quiet`, it leads on, and sessions are served again. The first is `true`, then they alternate;
    /// [`Self::follows`], or the driver's end, ends it, whatever was said.
    fn quieten(&mut self, quiet: bool);

    /// A node asks for what the log has not any more: its copy has to be made anew.
    fn lacks_log(&mut self, node: NodeId);
}
