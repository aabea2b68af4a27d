//! Copies of one process that share its threads: one whose owner waits or panics is nothing to the others.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_replication::{Incarnation, Member, NodeId, Settings};
use aerostat_storage::{Applier, MetaShared, RecoverError, Table, TenantStore, Timeline};
use aerostat_types::{CommitTs, TableId};
use tokio::runtime::Runtime;

use super::{
    node::{KEYED, batch, begun, budget},
    pair::{TENANT, TOKEN, open, options, wait_until},
};
use crate::{CopyError, Known, Links, Owner, Peers, Running, Setup, Threads, run};

/// What an owner is to do, and has done.
#[derive(Default)]
struct Told {
    /// It waits where its node begins to lead.
    waits: Mutex<bool>,
    changed: Condvar,
    is_waiting: AtomicBool,
    panics: AtomicBool,
    calls: AtomicUsize,
    leads: Mutex<Option<Arc<Table>>>,
    ended: Mutex<Option<CopyError>>,
}

impl Told {
    fn go_on(&self) {
        *self.waits.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

struct TestOwner {
    told: Arc<Told>,
    folder: PathBuf,
    timeline: Timeline,
}

impl Owner for TestOwner {
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        open(&self.folder, self.timeline, &options(), Some(through))
    }

    fn defined(&mut self, _catalog: &Arc<[u8]>, _tables: &BTreeMap<TableId, Arc<Table>>) {}

    fn leads(&mut self, _store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        self.told.calls.fetch_add(1, Ordering::SeqCst);
        let waits = self.told.waits.lock().unwrap();
        self.told.is_waiting.store(true, Ordering::SeqCst);
        drop(self.told.changed.wait_while(waits, |waits| *waits).unwrap());
        self.told.is_waiting.store(false, Ordering::SeqCst);
        *self.told.leads.lock().unwrap() = tables.get(&KEYED).cloned();
    }

    fn follows(&mut self) {}

    fn quieten(&mut self, _quiet: bool) {}

    fn lacks_log(&mut self, _node: NodeId) {}

    fn knows(&mut self, _known: &Known) {
        self.told.calls.fetch_add(1, Ordering::SeqCst);
        assert!(!self.told.panics.load(Ordering::SeqCst), "as it was told");
    }

    fn ended(&mut self, error: CopyError) {
        *self.told.ended.lock().unwrap() = Some(error);
    }
}

/// A copy that is alone, and is about to lead.
struct Alone {
    told: Arc<Told>,
    running: Option<Running>,
    _folder: tempfile::TempDir,
}

impl Alone {
    fn start(threads: &Threads, runtime: &Runtime, waits: bool) -> Alone {
        let folder = tempfile::tempdir().unwrap();
        let tenant = folder.path().join("tenant");
        let timeline = begun(
            TenantStore::open(TENANT, budget(), &tenant, &options())
                .unwrap()
                .0,
        );
        let told = Arc::new(Told::default());
        *told.waits.lock().unwrap() = waits;
        let me = Member {
            node: NodeId(0),
            incarnation: Incarnation(1),
        };
        let shared = MetaShared::open(&folder.path().join("shared")).unwrap();
        let handle = runtime.handle().clone();
        let setup = Setup {
            me,
            settings: Settings::default(),
            is_first: true,
            has_lost: false,
            configurations: Arc::new(shared),
            links: Links::new(handle, Peers::plain(|_| None), TENANT, me, TOKEN.to_vec()),
            owner: Box::new(TestOwner {
                told: Arc::clone(&told),
                folder: tenant.clone(),
                timeline,
            }),
            threads: threads.clone(),
        };
        let running = run(setup, open(&tenant, timeline, &options(), None).unwrap());
        Alone {
            told,
            running: Some(running),
            _folder: folder,
        }
    }

    /// Whether a commit is acknowledged.
    fn commits(&self, key: i32) -> bool {
        let table = self.told.leads.lock().unwrap().clone().unwrap();
        let txn = table.store().txns().begin();
        table.insert(&txn, &batch(&table, &[(key, 1)], 50)).unwrap();
        txn.commit().is_ok()
    }
}

#[test]
fn a_copy_whose_owner_waits_holds_up_no_others_and_ends_when_it_goes_on() {
    let (threads, runtime) = (Threads::new().unwrap(), Runtime::new().unwrap());
    let waiting: Vec<Alone> = (0..12)
        .map(|_| Alone::start(&threads, &runtime, true))
        .collect();
    wait_until("all wait", || {
        waiting
            .iter()
            .all(|one| one.told.is_waiting.load(Ordering::SeqCst))
    });
    let free = Alone::start(&threads, &runtime, false);
    wait_until("another leads", || {
        free.told.leads.lock().unwrap().is_some()
    });
    for key in 0..20 {
        assert!(free.commits(key));
    }

    // Nothing is done for a copy once it has been dropped, and not before its turn ends.
    let endings: Vec<_> = waiting
        .into_iter()
        .map(|one| {
            let told = Arc::clone(&one.told);
            (told, thread::spawn(move || drop(one.running)))
        })
        .collect();
    thread::sleep(Duration::from_millis(50));
    assert!(endings.iter().all(|(_, ending)| !ending.is_finished()));
    for (told, ending) in endings {
        told.go_on();
        ending.join().unwrap();
        let calls = told.calls();
        assert!(!told.is_waiting.load(Ordering::SeqCst));
        thread::sleep(Duration::from_millis(30));
        assert_eq!(told.calls(), calls);
        assert!(told.ended.lock().unwrap().is_none());
    }
    assert!(free.commits(20));
}

#[test]
fn a_copy_whose_owner_panics_ends_and_no_other_does() {
    let (threads, runtime) = (Threads::new().unwrap(), Runtime::new().unwrap());
    let mut all: Vec<Alone> = (0..6)
        .map(|_| Alone::start(&threads, &runtime, false))
        .collect();
    wait_until("all lead", || {
        all.iter()
            .all(|one| one.told.leads.lock().unwrap().is_some())
    });
    for one in &all[..4] {
        one.told.panics.store(true, Ordering::SeqCst);
        // Something is known that was not: in the turn of whoever commits, or of a thread a moment later.
        let table = one.told.leads.lock().unwrap().clone().unwrap();
        let txn = table.store().txns().begin();
        table.insert(&txn, &batch(&table, &[(1, 1)], 50)).unwrap();
        let _ = catch_unwind(AssertUnwindSafe(|| txn.commit()));
    }
    let began = Instant::now();
    for one in &all[..4] {
        while one.told.ended.lock().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "it goes on");
            thread::sleep(Duration::from_millis(5));
        }
        let ended = one.told.ended.lock().unwrap();
        assert!(matches!(*ended, Some(CopyError::Panicked)), "{ended:?}");
    }
    for one in &all[4..] {
        assert!(one.commits(1) && one.told.ended.lock().unwrap().is_none());
    }
    // Those that have ended are dropped as others are.
    for one in &mut all {
        drop(one.running.take());
    }
}
