//! Doing what a leader has committed beside a copy's driver.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use aerostat_replication::{Config, NodeId};
use aerostat_storage::{Applier, RecoverError, Table, TenantStore, Wake};
use aerostat_types::{CommitTs, TableId};

use super::{
    node::{KEYED, budget, create, listed, noise},
    pair::{TENANT, open, options},
};
use crate::{CopyError, Host, Job, Packet, applying::Applying};

/// Keeps jobs until they are wanted.
#[derive(Default)]
struct Jobs {
    asked: Vec<Job>,
    woken: Arc<AtomicU32>,
    defined: Vec<Vec<u8>>,
}

impl Host for Jobs {
    fn send(&mut self, _to: NodeId, _packet: Packet) {}

    fn room(&self, _to: NodeId) -> usize {
        0
    }

    fn ask(&mut self, _swap: Option<Config>) {}

    fn sync(&mut self, _store: &Arc<TenantStore>) {}

    fn wake(&self) -> Wake {
        let woken = Arc::clone(&self.woken);
        Arc::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn apply(&mut self, job: Job) -> Option<Job> {
        self.asked.push(job);
        None
    }

    fn reopen(&mut self, _through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        unreachable!("nothing is opened again here")
    }

    fn defined(&mut self, catalog: &Arc<[u8]>, _tables: &BTreeMap<TableId, Arc<Table>>) {
        self.defined.push(catalog.to_vec());
    }

    fn leads(&mut self, _store: &Arc<TenantStore>, _tables: &BTreeMap<TableId, Arc<Table>>) {}

    fn follows(&mut self) {}

    fn quieten(&mut self, _quiet: bool) {}

    fn lacks_log(&mut self, _node: NodeId) {}
}

/// A leader and a copy that has received what it has, and done its tables.
struct Pair {
    _folders: [tempfile::TempDir; 2],
    leader: Arc<TenantStore>,
    keyed: Arc<Table>,
    reader: aerostat_storage::LogReader,
    copy: Arc<TenantStore>,
    applying: Applying,
    host: Jobs,
}

impl Pair {
    fn new() -> Pair {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let opened = TenantStore::open(TENANT, budget(), folders[0].path(), &options());
        let leader = opened.unwrap().0;
        let keyed = create(&leader, KEYED);
        let timeline = leader.timeline().unwrap();
        let (copy, applier) = open(folders[1].path(), timeline, &options(), None).unwrap();
        let mut pair = Pair {
            reader: leader.log_reader(CommitTs(0), Arc::new(|| {})).unwrap(),
            applying: Applying::new(applier),
            host: Jobs::default(),
            _folders: folders,
            leader,
            keyed,
            copy,
        };
        pair.ship();
        pair.go_on().unwrap();
        pair.run();
        assert_eq!(pair.applied(), pair.leader.written_through());
        pair
    }

    fn insert(&self, keys: std::ops::Range<i32>, text_bytes: usize) {
        let rows: Vec<(i32, i64)> = keys.map(|key| (key, 1)).collect();
        let txn = self.leader.txns().begin();
        let rows = noise(&self.keyed, &rows, text_bytes);
        self.keyed.insert(&txn, &rows).unwrap();
        txn.commit().unwrap();
    }

    /// Ships more than is done in a turn.
    fn load(&mut self) {
        self.insert(10..200, 2_000);
        self.ship();
    }

    fn ship(&mut self) {
        while let Some(bytes) = self.reader.next(100_000).unwrap() {
            self.copy.receive(&bytes).unwrap();
            self.applying.received(bytes.len());
        }
    }

    fn go_on(&mut self) -> Result<bool, CopyError> {
        let committed = self.leader.written_through();
        self.applying.go_on(committed, &mut self.host)
    }

    fn run(&mut self) {
        std::mem::take(&mut self.host.asked)
            .into_iter()
            .for_each(Job::run);
    }

    fn applied(&self) -> CommitTs {
        self.copy.txns().last_commit()
    }
}

#[test]
fn small_commits_are_done_at_once_and_large_ones_by_a_job() {
    let mut pair = Pair::new();
    pair.insert(0..3, 20);
    pair.insert(3..6, 20);
    pair.ship();
    assert!(!pair.go_on().unwrap());
    assert_eq!(pair.host.asked.len(), 0);
    assert_eq!(pair.applied(), pair.leader.written_through());
    let before = pair.applied();
    pair.load();
    for _ in 0..3 {
        assert!(!pair.go_on().unwrap());
    }
    assert_eq!((pair.host.asked.len(), pair.applied()), (1, before));
    // Behind it even a small one waits.
    pair.insert(6..7, 20);
    pair.ship();
    pair.go_on().unwrap();
    assert_eq!((pair.host.asked.len(), pair.applied()), (1, before));
    pair.run();
    assert_eq!(pair.applied(), pair.leader.written_through());
    assert_eq!(pair.host.woken.load(Ordering::Relaxed), 0);
    pair.insert(7..8, 20);
    pair.ship();
    pair.go_on().unwrap();
    assert_eq!(pair.applied(), pair.leader.written_through());
}

#[test]
fn a_commit_of_a_large_transaction_is_a_jobs_however_small_its_record_is() {
    let mut pair = Pair::new();
    let txn = pair.leader.txns().begin();
    let rows: Vec<(i32, i64)> = (0..200).map(|key| (key, 1)).collect();
    pair.keyed
        .insert(&txn, &noise(&pair.keyed, &rows, 2_000))
        .unwrap();
    pair.ship();
    pair.go_on().unwrap();
    pair.run();
    txn.commit().unwrap();
    pair.ship();
    pair.go_on().unwrap();
    assert_eq!(pair.host.asked.len(), 1);
    pair.run();
    assert_eq!(pair.applied(), pair.leader.written_through());
}

#[test]
fn a_catalogue_is_followed_before_anything_behind_it_is_done() {
    let mut pair = Pair::new();
    pair.leader.commit_catalog(vec![1, 2, 3]).unwrap();
    let defined = pair.leader.written_through();
    pair.insert(0..1, 20);
    pair.ship();
    pair.go_on().unwrap();
    pair.run();
    assert_eq!((pair.applied(), pair.host.defined.len()), (defined, 0));
    assert_eq!(pair.host.woken.load(Ordering::Relaxed), 1);
    pair.go_on().unwrap();
    assert_eq!(pair.host.defined, [vec![1, 2, 3]]);
    assert_eq!(pair.applied(), pair.leader.written_through());
}

#[test]
fn a_job_that_nobody_does_is_asked_for_again() {
    let mut pair = Pair::new();
    pair.load();
    pair.go_on().unwrap();
    pair.host.asked.clear();
    pair.go_on().unwrap();
    pair.run();
    assert_eq!(pair.applied(), pair.leader.written_through());
}

#[test]
fn whoever_takes_over_waits_for_no_job_that_has_not_begun() {
    let mut pair = Pair::new();
    pair.leader.commit_catalog(vec![7]).unwrap();
    pair.ship();
    pair.go_on().unwrap();
    pair.run();
    pair.load();
    let job = {
        let committed = pair.leader.written_through();
        let mut other = Jobs::default();
        // The catalogue is followed, and another job is asked for.
        pair.applying.go_on(committed, &mut other).unwrap();
        assert_eq!(other.defined, [vec![7]]);
        other.asked.pop().unwrap()
    };
    let Pair {
        applying,
        mut host,
        leader,
        copy,
        ..
    } = pair;
    let mut applier = applying.rest(&mut host).unwrap();
    job.run();
    let committed = leader.written_through();
    while crate::applying::apply(&mut applier, committed, &mut host).unwrap() {}
    assert_eq!(copy.txns().last_commit(), committed);
    let rows = listed(&applier.tables()[&KEYED]);
    assert_eq!(rows.len(), 190);
}

#[test]
fn a_copy_whose_job_has_panicked_ends_and_can_be_closed() {
    let mut pair = Pair::new();
    pair.load();
    pair.go_on().unwrap();
    pair.host.asked.pop().unwrap().panic();
    assert_eq!(pair.host.woken.load(Ordering::Relaxed), 1);
    assert!(matches!(pair.go_on(), Err(CopyError::Panicked)));
    let Pair { applying, copy, .. } = pair;
    drop(applying);
    let ended = copy.ended().unwrap();
    drop(copy);
    assert!(ended.wait(std::time::Duration::from_secs(20)));
    // The same while somebody waits for the applier.
    let mut pair = Pair::new();
    pair.load();
    pair.go_on().unwrap();
    pair.host.asked.pop().unwrap().panic();
    let rest = pair.applying.rest(&mut pair.host);
    assert!(matches!(rest, Err(CopyError::Panicked)));
}
