//! A copy in a process: a thread for its driver, and one for what waits.
//!
//! ```text
//!  connections ── packets ──┐                       ┌─► links, one for each node
//!  whoever writes ── wakes ─┼─► inbox ─► driver ────┼─► aside: configurations, syncs ──► inbox
//!  time ── ticks ───────────┘            (a thread) └─► owner: sessions, catalogue
//! ```
//!
//! The driver's thread waits for nothing but its inbox, the copy's own log, and its owner. Packets that wait in
//! the inbox have a place each, so that a copy that is slow slows its leader's connection down.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use aerostat_replication::{Config, Member, NodeId, Settings};
use aerostat_storage::{Applier, MetaStore, RecoverError, Table, TenantStore, Wake};
use aerostat_types::{Clock, CommitTs, SystemClock, TableId};

use crate::{
    CopyError, Driver, Host, Packet,
    configurations::{load, swap},
    inbox::{Inbox, Told},
    link::Links,
};

/// How often the machine is told the time: several times in a heartbeat.
const TICK: Duration = Duration::from_millis(25);

/// What a process that has a copy does for it. Called by the driver's thread.
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

    /// See [`Host::lacks_log`].
    fn lacks_log(&mut self, node: NodeId);

    /// The copy has ended by itself. It may be opened again, by another member.
    fn ended(&mut self, error: CopyError);
}

/// A copy that runs, until this is dropped.
pub struct Running {
    inbox: Inbox,
    driver: Option<JoinHandle<()>>,
}

impl Running {
    /// The way to its driver.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inbox.tell(Told::Stop);
        if let Some(driver) = self.driver.take() {
            // One that panicked has said so.
            let _ = driver.join();
        }
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
    /// Where configurations are: the document of a version is the one of that epoch.
    pub configurations: Arc<dyn MetaStore>,
    /// The ways to other nodes.
    pub links: Links,
    /// What the process does for it.
    pub owner: Box<dyn Owner>,
}

/// Runs a copy that was opened.
///
/// # Errors
/// The system has no thread.
pub fn run(setup: Setup, opened: (Arc<TenantStore>, Applier)) -> std::io::Result<Running> {
    let (inbox, receiver) = Inbox::new();
    let Setup {
        me,
        settings,
        is_first,
        configurations,
        mut links,
        owner,
    } = setup;
    links.wakes(&inbox);
    let aside = aside(configurations, inbox.clone())?;
    let host = ProcessHost {
        owner,
        links,
        aside,
        inbox: inbox.clone(),
    };
    let driver = Driver::new(me, settings, opened, is_first);
    let thread = thread::Builder::new().name("aerostat-copy".to_owned());
    let driver = thread.spawn(move || drive(driver, host, &receiver))?;
    Ok(Running {
        inbox,
        driver: Some(driver),
    })
}

fn drive(mut driver: Driver, mut host: ProcessHost, inbox: &mpsc::Receiver<Told>) {
    let began = SystemClock.now();
    let mut ticked = None;
    loop {
        let told = inbox.recv_timeout(match driver.has_more() {
            true => Duration::ZERO,
            false => TICK,
        });
        let now = SystemClock.now().saturating_duration_since(began);
        let done = match told {
            Ok(Told::Packet(packet, _place)) => driver.receive(now, packet, &mut host),
            Ok(Told::Written) => {
                host.inbox.looks();
                driver.written(now, &mut host)
            }
            Ok(Told::Config(config)) => driver.config(now, config, &mut host),
            Ok(Told::Swapped(config)) => driver.swapped(now, config, &mut host),
            Err(RecvTimeoutError::Timeout) if driver.has_more() => driver.written(now, &mut host),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_due = ticked.is_none_or(|ticked: Duration| now >= ticked + TICK);
        let done = match is_due {
            true => {
                ticked = Some(now);
                done.and_then(|()| driver.tick(now, &mut host))
            }
            false => done,
        };
        if let Err(error) = done {
            // Committers are told before anybody opens it again.
            drop(driver);
            return host.owner.ended(error);
        }
    }
}

/// Something that waits.
enum Aside {
    Ask(Option<Config>),
    Sync(Arc<TenantStore>),
}

/// A thread that asks the store of configurations, and syncs.
fn aside(configurations: Arc<dyn MetaStore>, inbox: Inbox) -> std::io::Result<mpsc::Sender<Aside>> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("aerostat-aside".to_owned());
    thread.spawn(move || {
        // It ends with the driver.
        while let Ok(what) = receiver.recv() {
            match what {
                Aside::Ask(None) => {
                    if let Some(config) = load(&*configurations) {
                        inbox.tell(Told::Config(config));
                    }
                }
                Aside::Ask(Some(config)) => {
                    if let Some(config) = swap(&*configurations, &config) {
                        inbox.tell(Told::Swapped(config));
                    }
                }
                Aside::Sync(store) => {
                    // A failure is the log's, which everybody sees there.
                    let _ = store.sync_log();
                    drop(store);
                    inbox.wake();
                }
            }
        }
    })?;
    Ok(sender)
}

/// The driver's host.
struct ProcessHost {
    owner: Box<dyn Owner>,
    links: Links,
    aside: mpsc::Sender<Aside>,
    inbox: Inbox,
}

impl ProcessHost {
    fn aside(&self, what: Aside) {
        // Without it the copy asks in vain, and is taken for lost.
        let _ = self.aside.send(what);
    }
}

impl Host for ProcessHost {
    fn send(&mut self, to: NodeId, packet: Packet) {
        self.links.send(to, &packet);
    }

    fn room(&self, to: NodeId) -> usize {
        self.links.room(to)
    }

    fn ask(&mut self, swap: Option<Config>) {
        self.aside(Aside::Ask(swap));
    }

    fn sync(&mut self, store: &Arc<TenantStore>) {
        self.aside(Aside::Sync(Arc::clone(store)));
    }

    fn wake(&self) -> Wake {
        let inbox = self.inbox.clone();
        Arc::new(move || inbox.wake())
    }

    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        self.owner.reopen(through)
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

    fn lacks_log(&mut self, node: NodeId) {
        self.owner.lacks_log(node);
    }
}
