//! A copy in a process: its driver, in turns of its own thread and of others (`turn`), and threads for what waits.
//!
//! ```text
//!  connections ── packets ──┐                       ┌─► ways, one to each node
//!  whoever writes ── wakes ─┼─► turn: driver ───────┼─► aside: configurations, syncs, applying ──► inbox
//!  time ── ticks ───────────┘   (or inbox ► thread) └─► owner: sessions, catalogue
//! ```
//!
//! Jobs of the connections' runtime apply and sync, while there is something to do.
//!
//! The thread waits for nothing but its inbox, its turn, the copy's own log, and its owner. Packets that wait in
//! the inbox have a place each, so that a copy that is slow slows its leader's connection down.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, RecvTimeoutError, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use aerostat_memory::trim_heap;
use aerostat_replication::{Config, Member, NodeId, Settings};
use aerostat_storage::{Applier, MetaStore, RecoverError, Table, TenantStore, Wake};
use aerostat_types::{Clock, CommitTs, SystemClock, TableId};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    CopyError, Driver, Host, Job, Known, Packet,
    configurations::{load, swap},
    inbox::{Inbox, Told},
    link::Links,
    turn::{Core, LARGE_BYTES, Turn, TurnHost},
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

    /// See [`Host::quieten`]; what it asks for is told by [`Inbox::quiet`]. It waits for nothing.
    fn quieten(&mut self, quiet: bool);

    /// See [`Host::lacks_log`].
    fn lacks_log(&mut self, node: NodeId);

    /// What the copy knows, several times a second.
    fn knows(&mut self, known: &Known);

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
    /// Whether the node has lost what it had, and may be counted as a member that has it.
    pub has_lost: bool,
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
    let turn = Arc::new(Turn::new());
    let (inbox, receiver) = Inbox::new(Arc::clone(&turn) as _);
    let Setup {
        me,
        settings,
        is_first,
        has_lost,
        configurations,
        mut links,
        owner,
    } = setup;
    links.wakes(&inbox);
    let asks = asker(configurations, inbox.clone())?;
    let host = ProcessHost {
        owner,
        links,
        asks,
        syncs: Arc::default(),
        inbox: inbox.clone(),
        short: Cell::new(None),
    };
    let mut driver = Driver::new(me, settings, opened, is_first);
    if has_lost {
        driver.set_lost();
    }
    turn.begin(Core {
        driver,
        host,
        began: SystemClock.now(),
        failed: None,
    });
    let thread = thread::Builder::new().name("aerostat-copy".to_owned());
    let driver = thread.spawn(move || drive(&turn, &receiver))?;
    Ok(Running {
        inbox,
        driver: Some(driver),
    })
}

/// How often a copy's threads give back what they have freed: each keeps a few hundred kilobytes otherwise, and a node has
/// hundreds of them.
const TRIM: Duration = Duration::from_secs(2);

/// A copy's thread.
fn drive(turn: &Turn<ProcessHost>, inbox: &mpsc::Receiver<Told>) {
    let mut ticked = None;
    let mut trimmed = SystemClock.now();
    let mut wait = Duration::ZERO;
    loop {
        let told = match inbox.recv_timeout(wait) {
            Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => None,
            Ok(told) => Some(Some(told)),
            Err(RecvTimeoutError::Timeout) => Some(None),
        };
        let mut guard = turn.lock();
        let (Some(told), Some(core)) = (told, guard.as_mut()) else {
            let ended = guard.take();
            drop(guard);
            return drop(ended);
        };
        match told {
            Some(told) => do_told(turn, core, told),
            None if core.driver.has_more() => {
                core.step(|driver, now, host| driver.written(now, host))
            }
            None => {}
        }
        let now = core.now();
        if ticked.is_none_or(|ticked: Duration| now >= ticked + TICK) {
            ticked = Some(now);
            core.step(|driver, now, host| driver.tick(now, host));
            if core.failed.is_none() {
                core.host.owner.knows(&core.driver.known(now));
            }
        }
        turn.look_at(core);
        if core.failed.is_some()
            && let Some(Core {
                driver,
                mut host,
                failed: Some(error),
                ..
            }) = guard.take()
        {
            drop(guard);
            // Committers are told before anybody opens it again.
            drop(driver);
            return host.owner.ended(error);
        }
        let has_more = guard.as_ref().is_some_and(|core| core.driver.has_more());
        drop(guard);
        wait = match has_more || turn.has_word() {
            true => Duration::ZERO,
            false => TICK,
        };
        if !wait.is_zero() && trimmed.elapsed() >= TRIM {
            trim_heap();
            trimmed = SystemClock.now();
        }
    }
}

fn do_told(turn: &Turn<ProcessHost>, core: &mut Core<ProcessHost>, told: Told) {
    match told {
        Told::Packet(packet, _place) => {
            let bytes = packet.records.bytes.len();
            if bytes > LARGE_BYTES {
                core.driver.wait_if_behind(bytes);
            }
            core.step(|driver, now, host| driver.receive(now, packet, host));
            turn.packet_done();
        }
        Told::Written => core.step(|driver, now, host| driver.written(now, host)),
        Told::Config(config) => core.step(|driver, now, host| driver.config(now, config, host)),
        Told::Swapped(config) => core.step(|driver, now, host| driver.swapped(now, config, host)),
        Told::Lead => core.step(|driver, _, host| {
            driver.ask_to_lead(host);
            Ok(())
        }),
        Told::HandOver(to) => core.step(|driver, now, host| driver.hand_over(now, to, host)),
        Told::Quiet(quiet) => core.step(|driver, now, host| driver.quiet(now, quiet, host)),
        Told::AndSync(and_sync) => {
            core.step(|driver, now, host| driver.and_sync(now, and_sync, host));
        }
        Told::Wanted(nodes) => core.step(|driver, now, host| driver.wanted(now, nodes, host)),
        // It has ended by then.
        Told::Stop => {}
    }
}

/// A thread that asks the store of configurations, which may not answer for long: what it has, or to have another.
fn asker(
    configurations: Arc<dyn MetaStore>,
    inbox: Inbox,
) -> std::io::Result<mpsc::Sender<Option<Config>>> {
    let (sender, receiver) = mpsc::channel::<Option<Config>>();
    let thread = thread::Builder::new().name("aerostat-asks".to_owned());
    thread.spawn(move || {
        // It ends with the driver.
        while let Ok(mut asked) = receiver.recv() {
            // What was asked while nobody answered: the newest is enough.
            loop {
                match receiver.try_recv() {
                    Ok(later) => asked = later.or(asked),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let told = match asked {
                None => load(&*configurations).map(Told::Config),
                Some(config) => swap(&*configurations, &config).map(Told::Swapped),
            };
            if let Some(told) = told {
                inbox.tell(told);
            }
            trim_heap();
        }
    })?;
    Ok(sender)
}

/// Has the disk have the log, one sync after the other: one is enough for all that were asked for before it began.
/// It keeps no tenant from being closed for longer than that.
#[derive(Default)]
struct Syncs {
    asked: Mutex<Asked>,
    rests: Condvar,
}

#[derive(Default)]
struct Asked {
    store: Option<Weak<TenantStore>>,
    /// Somebody sees to it, or is about to.
    is_served: bool,
    /// Somebody has the tenant for it.
    syncs: bool,
}

impl Syncs {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has a tenant for this when it returns, nor will have.
    fn end(&self) {
        let mut asked = self.lock();
        asked.store = None;
        while asked.syncs {
            asked = self
                .rests
                .wait(asked)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether [`Self::run`] is to be called.
    fn ask(&self, store: &Arc<TenantStore>) -> bool {
        let mut asked = self.lock();
        asked.store = Some(Arc::downgrade(store));
        !std::mem::replace(&mut asked.is_served, true)
    }

    /// Syncs as long as that is asked for.
    fn run(&self, inbox: &Inbox) {
        while let Some(asked) = self.next() {
            let _syncs = Syncing(self);
            if let Some(store) = asked.upgrade() {
                // A failure is the log's, which everybody sees there.
                let _ = store.sync_log();
                drop(store);
                inbox.wake();
            }
        }
    }

    fn next(&self) -> Option<Weak<TenantStore>> {
        let mut asked = self.lock();
        let next = asked.store.take();
        (asked.is_served, asked.syncs) = (next.is_some(), next.is_some());
        next
    }
}

/// A sync, until it has ended. Should it panic, the next who asks begins another.
struct Syncing<'a>(&'a Syncs);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let mut asked = self.0.lock();
        asked.syncs = false;
        asked.is_served &= !thread::panicking();
        drop(asked);
        self.0.rests.notify_all();
    }
}

/// The driver's host.
struct ProcessHost {
    owner: Box<dyn Owner>,
    links: Links,
    asks: mpsc::Sender<Option<Config>>,
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
        // Without the thread the copy asks in vain, and is taken for lost.
        let _ = self.asks.send(swap);
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
