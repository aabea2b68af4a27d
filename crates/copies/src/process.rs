//! A copy in a process: its driver, in turns of the process's threads for copies (`pool`) and of others (`turn`), and
//! threads for what waits.
//!
//! ```text
//!  connections ── packets ──┐                       ┌─► ways, one to each node
//!  whoever writes ── wakes ─┼─► turn: driver ───────┼─► aside: configurations, syncs, applying ──► inbox
//!  time ── when it is due ──┘   (or inbox ► thread) └─► owner: sessions, catalogue
//! ```
//!
//! Jobs of the connections' runtime apply and sync, while there is something to do.
//!
//! A thread that has the turn waits for nothing but the copy's own log, and its owner. Packets that wait in
//! the inbox have a place each, so that a copy that is slow slows its leader's connection down.

use std::{cell::Cell, collections::BTreeMap, sync::Arc};

use aerostat_replication::{Config, Member, NodeId, Settings};
use aerostat_storage::{Applier, MetaStore, RecoverError, Table, TenantStore, Wake};
use aerostat_types::{CommitTs, TableId};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    CopyError, Driver, Host, Job, Known, Packet, Threads,
    asks::Asks,
    driving::Driving,
    inbox::Inbox,
    link::Links,
    syncs::Syncs,
    told::{Queue, Told},
    turn::{Turn, TurnHost},
};

/// What a process that has a copy does for it. Called by whoever has the copy's turn, one at a time.
pub trait Owner: Send {
    /// See [`Host::reopen`].
    ///
    /// # Errors
    /// [`RecoverError`]: the copy ends.
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError>;

    /// See [`Host::defined`].
    fn defined(&mut self, catalog: &Arc<[u8]>, tables: &BTreeMap<TableId, Arc<Table>>);

    /// See [`Host::leads`].
    fn leads(&mut self, store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>);

    /// See [`Host::follows`].
    fn follows(&mut self);

    /// See [`Host::quieten`]; what it asks for is told by [`Inbox::quiet`]. It waits for nothing.
    fn quieten(&mut self, quiet: bool);

    /// See [`Host::lacks_log`].
    fn lacks_log(&mut self, node: NodeId);

    /// What the copy knows, soon after it is something else, and some times a second while other nodes are heard.
    /// It waits for nothing, once the copy is shown.
    fn knows(&mut self, known: &Known);

    /// The copy has ended by itself. It may be opened again, by another member.
    fn ended(&mut self, error: CopyError);
}

/// A copy that runs, until this is dropped: then nothing is done for it any more.
pub struct Running {
    inbox: Inbox,
    /// They do something for it as long as it is there.
    _threads: Threads,
}

impl Running {
    /// The way to its driver.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Behind what was told before. One that has ended by itself is about to be over.
        self.inbox.tell(Told::Stop);
        self.inbox.await_over();
    }
}

/// What a copy is run with.
pub struct Setup {
    /// Who it is.
    pub me: Member,
    /// The machine's settings.
    pub settings: Settings,
    /// Whether it may lead where there is no configuration.
    pub is_first: bool,
    /// Whether the node has lost what it had, and may be counted as a member that has it.
    pub has_lost: bool,
    /// Where configurations are: the document of a version is the one of that epoch.
    pub configurations: Arc<dyn MetaStore>,
    /// The ways to other nodes.
    pub links: Links,
    /// What the process does for it.
    pub owner: Box<dyn Owner>,
    /// What drives it, beside other copies.
    pub threads: Threads,
}

/// Runs a copy that was opened.
pub fn run(setup: Setup, opened: (Arc<TenantStore>, Applier)) -> Running {
    let Setup {
        me,
        settings,
        is_first,
        has_lost,
        configurations,
        mut links,
        owner,
        threads,
    } = setup;
    let (turn, queue) = (Arc::new(Turn::new()), Arc::new(Queue::new()));
    let driving = Driving {
        turn: Arc::clone(&turn),
        queue: Arc::clone(&queue),
    };
    let entry = threads.drivers.entry(Arc::new(driving));
    let inbox = Inbox::new(queue, Arc::clone(&turn) as _, entry);
    links.wakes(&inbox);
    let host = ProcessHost {
        owner,
        links,
        asks: Asks::new(&threads.asks, configurations, inbox.clone()),
        syncs: Arc::default(),
        inbox: inbox.clone(),
        short: Cell::new(None),
    };
    let mut driver = Driver::new(me, settings, opened, is_first);
    if has_lost {
        driver.set_lost();
    }
    turn.begin(driver, host);
    inbox.begin();
    Running {
        inbox,
        _threads: threads,
    }
}

/// The driver's host.
struct ProcessHost {
    owner: Box<dyn Owner>,
    links: Links,
    asks: Asks,
    syncs: Arc<Syncs>,
    inbox: Inbox,
    /// What may be sent yet in the turn of somebody who has other things to do.
    short: Cell<Option<usize>>,
}

/// Does what may take long. It may be a connection's turn, whose runtime has others to see to.
fn aside<T>(long: impl FnOnce() -> T) -> T {
    let takes_tasks = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    match takes_tasks {
        true => tokio::task::block_in_place(long),
        false => long(),
    }
}

impl Drop for ProcessHost {
    fn drop(&mut self) {
        self.syncs.end();
    }
}

impl TurnHost for ProcessHost {
    fn begin_short_turn(&self, bytes: usize) {
        self.short.set(Some(bytes));
    }

    fn end_short_turn(&self) -> bool {
        self.short.take() == Some(0)
    }

    fn knows(&mut self, known: &Known) {
        self.owner.knows(known);
    }

    fn ended(&mut self, error: CopyError) {
        self.owner.ended(error);
    }
}

impl Host for ProcessHost {
    fn send(&mut self, to: NodeId, packet: Packet) {
        if let Some(left) = self.short.get() {
            self.short
                .set(Some(left.saturating_sub(packet.records.bytes.len())));
        }
        self.links.send(to, &packet);
    }

    fn room(&self, to: NodeId) -> usize {
        let room = self.links.room(to);
        self.short.get().map_or(room, |left| room.min(left))
    }

    fn ask(&mut self, swap: Option<Config>) {
        self.asks.ask(swap);
    }

    fn sync(&mut self, store: &Arc<TenantStore>) {
        if self.syncs.ask(store) {
            let (syncs, inbox) = (Arc::clone(&self.syncs), self.inbox.clone());
            self.links
                .runtime()
                .spawn_blocking(move || syncs.run(&inbox));
        }
    }

    fn wake(&self) -> Wake {
        let inbox = self.inbox.clone();
        Arc::new(move || inbox.wake())
    }

    fn apply(&mut self, job: Job) -> Option<Job> {
        self.links.runtime().spawn_blocking(|| job.run());
        None
    }

    fn wait(&mut self, wait: &mut dyn FnMut()) {
        aside(wait);
    }

    fn is_short(&self) -> bool {
        self.short.get().is_some()
    }

    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        // Sessions end meanwhile.
        aside(|| self.owner.reopen(through))
    }

    fn defined(&mut self, catalog: &Arc<[u8]>, tables: &BTreeMap<TableId, Arc<Table>>) {
        self.owner.defined(catalog, tables);
    }

    fn leads(&mut self, store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        self.owner.leads(store, tables);
    }

    fn follows(&mut self) {
        self.owner.follows();
    }

    fn quieten(&mut self, quiet: bool) {
        self.owner.quieten(quiet);
    }

    fn lacks_log(&mut self, node: NodeId) {
        self.owner.lacks_log(node);
    }
}
