//! Two nodes, one of which loses its folder, or is away for longer than its leader keeps the log: it is made anew
//! by itself while clients write. And what a connection for a seed is answered that is no node's.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_replication::{Epoch, Incarnation, Member, NodeId};
use aerostat_storage::{MetaShared, OpenOptions, SystemDisk, Table, TenantStore, seed::SeedError};
use aerostat_types::TenantId;
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};
use tokio::{net::TcpListener, runtime::Runtime};

use super::{
    node::{BAG, KEYED, begun, budget, listed, noise},
    pair::{CLIENTS, TENANT, TOKEN, TestNode, led, members, open, options, wait_until},
};
use crate::{
    Greeting, Peer, Peers, Purpose, Served, Transport, VERSION,
    seed::{Fetch, FetchError, PaceLimits, Refusal, SeedNeed, Seeded, Seeds, fetch_seed},
    serve, wire,
};

/// So that the log runs away from a copy within a second.
const LOG_FILE_BYTES: usize = 64 << 10;

fn small_files() -> OpenOptions {
    options().with_log_files_of(LOG_FILE_BYTES)
}

#[test]
fn a_copy_that_the_log_does_not_lead_to_is_made_anew_by_itself() {
    let seed = 5;
    let mut random = StdRng::seed_from_u64(seed);
    let runtime = Runtime::new().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let configurations = Arc::new(MetaShared::open(shared.path()).unwrap());
    let nodes = [0, 1].map(|id| TestNode::new(id, small_files(), &runtime));
    let addresses = [nodes[0].address, nodes[1].address];
    let timeline = {
        let opened = TenantStore::open(TENANT, budget(), &nodes[0].path(), &small_files());
        begun(opened.unwrap().0)
    };
    let served: Vec<_> = nodes.iter().map(|node| Arc::clone(&node.served)).collect();
    let nodes = nodes.map(Mutex::new);
    let both = || members(&configurations) == 2 && led(&served).is_some();
    let start = |node: usize| {
        let mut node = nodes[node].lock().unwrap();
        node.start(timeline, &configurations, &addresses, &runtime);
    };
    start(0);
    start(1);
    wait_until("both are members", both);

    let (next_key, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
    let acknowledged: Mutex<BTreeSet<i32>> = Mutex::default();
    let (checkpoints, seeds, sent) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let longest: Mutex<Duration> = Mutex::default();
    let rounds: u32 = std::env::var("PAIR_ROUNDS").map_or(6, |text| text.parse().unwrap());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let Some(table) = led(&served) else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    let key = next_key.fetch_add(1, Ordering::Relaxed);
                    let txn = table.store().txns().begin();
                    let done = table.insert(&txn, &noise(&table, &[(key, 1)], 500));
                    if let Ok(Ok(_)) = done.map(|_| txn.commit()) {
                        acknowledged.lock().unwrap().insert(key);
                    }
                    // Rounds of loaded machines are not to fill them.
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        // Checkpoints of whoever leads, and freezing.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                if let Some(table) = led(&served) {
                    let began = Instant::now();
                    let _ = table.freeze();
                    if let Ok(Some(_)) = table.store().checkpoint() {
                        checkpoints.fetch_add(1, Ordering::Relaxed);
                        let mut longest = longest.lock().unwrap();
                        *longest = longest.max(began.elapsed());
                    }
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        // The owner of each copy.
        for node in &nodes {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    {
                        let mut node = node.lock().unwrap();
                        if node.is_running()
                            && let Some(bytes) =
                                node.recover(timeline, &configurations, &addresses, &runtime)
                        {
                            seeds.fetch_add(1, Ordering::Relaxed);
                            sent.fetch_add(bytes, Ordering::Relaxed);
                        }
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        for round in 0..rounds {
            let count = || acknowledged.lock().unwrap().len();
            let before = count();
            wait_until("commits are acknowledged", || count() > before + 50);
            wait_until("both are members", both);
            let node = random.random_range(0..2);
            let other = 1 - node;
            let loses = random.random_bool(0.5);
            let seeds_before = seeds.load(Ordering::Relaxed);
            {
                let mut node = nodes[node].lock().unwrap();
                node.stop();
                if loses {
                    std::fs::remove_dir_all(node.path()).unwrap();
                }
            }
            // Until the other has gone on for longer than it keeps the log.
            let log_bytes = || {
                let served = served[other].lock().unwrap();
                served.store.as_ref().map_or(0, |s| s.log_bytes_written())
            };
            wait_until("the other leads", || led(&served).is_some());
            let from = log_bytes();
            wait_until("the log has gone on", || {
                log_bytes() > from + 25 * LOG_FILE_BYTES as u64
            });
            start(node);
            wait_until("it was made anew", || {
                seeds.load(Ordering::Relaxed) > seeds_before
            });
            wait_until("both are members", both);
            println!("round {round}: node {node} was away, its folder gone: {loses}");
        }
        wait_until("both are members", both);
        is_over.store(true, Ordering::Release);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    println!(
        "{} acknowledged, {} seeds of {} KiB, {} checkpoints, the longest of {:?}",
        acknowledged.len(),
        seeds.load(Ordering::Relaxed),
        sent.load(Ordering::Relaxed) >> 10,
        checkpoints.load(Ordering::Relaxed),
        longest.lock().unwrap(),
    );
    let keys_of = |table: &Arc<Table>| -> BTreeSet<i32> { listed(table).into_keys().collect() };
    let there = keys_of(&led(&served).unwrap());
    let missing: Vec<_> = acknowledged.difference(&there).collect();
    assert!(
        missing.is_empty(),
        "seed {seed}: {missing:?} were acknowledged"
    );
    for node in &nodes {
        node.lock().unwrap().stop();
    }
    for node in &nodes {
        let path = node.lock().unwrap().path();
        let (_store, applier) = open(&path, timeline, &small_files(), None).unwrap();
        assert!(keys_of(&applier.tables()[&KEYED]).is_superset(&acknowledged));
        assert!(applier.tables().contains_key(&BAG));
    }
}

/// A leader by itself, which takes connections.
struct Leader {
    store: Arc<TenantStore>,
    table: Arc<Table>,
    address: SocketAddr,
    leads: Arc<AtomicBool>,
    next_key: AtomicI32,
    _folder: tempfile::TempDir,
    _runtime: Runtime,
}

impl Leader {
    /// With so many rows of noise, most of which are frozen.
    fn new(rows: i32, limits: PaceLimits) -> Leader {
        let folder = tempfile::tempdir().unwrap();
        let opened = TenantStore::open(TENANT, budget(), folder.path(), &small_files());
        begun(opened.unwrap().0);
        let opened = TenantStore::open(TENANT, budget(), folder.path(), &small_files());
        let (store, recovered) = opened.unwrap();
        let table = Arc::clone(&recovered.tables[&KEYED]);
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let leads = Arc::new(AtomicBool::new(true));
        let (weak, does) = (Arc::downgrade(&store), Arc::clone(&leads));
        let leading = Arc::new(move |tenant| {
            let store = weak.upgrade()?;
            (tenant == TENANT && does.load(Ordering::Relaxed)).then_some(store)
        });
        let route = Arc::new(|_| None);
        let seeds = Seeds::new(leading, limits);
        let served = Served {
            me: NodeId(0),
            token: TOKEN.into(),
            peers: Peers::plain(|_| None),
            route,
            seeds,
            door: Arc::new(()),
            sessions: Arc::default(),
        };
        runtime.spawn(serve(listener, served));
        let leader = Leader {
            store,
            table,
            address,
            leads,
            next_key: AtomicI32::new(0),
            _folder: folder,
            _runtime: runtime,
        };
        leader.load(rows - rows / 10);
        leader.table.freeze().unwrap();
        leader.load(rows / 10);
        leader
    }

    fn load(&self, rows: i32) {
        for _ in 0..rows / 100 {
            let from = self.next_key.fetch_add(100, Ordering::Relaxed);
            let rows: Vec<(i32, i64)> = (from..from + 100).map(|key| (key, 1)).collect();
            let txn = self.store.txns().begin();
            self.table
                .insert(&txn, &noise(&self.table, &rows, 500))
                .unwrap();
            txn.commit().unwrap();
        }
    }

    fn need(&self, folder: &Path) -> SeedNeed {
        SeedNeed {
            token: TOKEN.to_vec(),
            me: Member {
                node: NodeId(1),
                incarnation: Incarnation(3),
            },
            tenant: TENANT,
            timeline: self.store.timeline(),
            folder: folder.to_owned(),
            disk: Arc::new(SystemDisk),
            stop: Arc::default(),
        }
    }

    fn fetch(&self, folder: &Path) -> Fetch {
        Fetch {
            peer: at(self.address),
            version: VERSION,
            transport: Transport::plain(),
            to: NodeId(0),
            need: self.need(folder),
            epoch: Epoch(0),
        }
    }

    /// What a copy shows that was made of it, once it has what was written since.
    fn compare(&self, folder: &Path, seeded: &Seeded) {
        let timeline = seeded.taken.timeline;
        assert_eq!(Some(timeline), self.store.timeline());
        let (copy, mut applier) = open(folder, timeline, &small_files(), None).unwrap();
        assert_eq!(copy.received().after, seeded.taken.through);
        let mut reader = self
            .store
            .log_reader(seeded.taken.through, Arc::new(|| {}))
            .unwrap();
        while let Some(bytes) = reader.next(1 << 20).unwrap() {
            copy.receive(&bytes).unwrap();
        }
        let last = self.store.txns().last_commit();
        while applier.applied() < last {
            applier.apply(last).unwrap();
        }
        let rows = |table: &Arc<Table>| -> Vec<(i32, i64)> {
            let listed = listed(table).into_iter();
            listed.map(|(key, row)| (key, row.0)).collect()
        };
        assert!(rows(&applier.tables()[&KEYED]) == rows(&self.table));
    }
}

#[test]
fn a_copy_is_made_of_what_a_leader_has_and_takes_as_its_history_what_that_says() {
    let leader = Leader::new(8_000, PaceLimits::default());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("copy");
    let mut what = leader.fetch(&folder);
    what.need.timeline = None;
    let runtime = Runtime::new().unwrap();
    let seeded = runtime.block_on(crate::seed::fetch(what.clone())).unwrap();
    assert!(seeded.bytes_sent > 3 << 20, "{seeded:?}");
    leader.load(500);
    leader.compare(&folder, &seeded);
    // Once more, and little is sent.
    what.need.timeline = leader.store.timeline();
    let again = fetch_seed(&what).unwrap();
    assert!(
        again.bytes_sent < seeded.bytes_sent / 2 && again.taken.through > seeded.taken.through,
        "{again:?}"
    );
    leader.compare(&folder, &again);
}

#[test]
fn a_leader_keeps_its_log_until_the_copy_lets_go() {
    let leader = Leader::new(1_000, PaceLimits::default());
    let folder = tempfile::tempdir().unwrap();
    let seeded = fetch_seed(&leader.fetch(&folder.path().join("copy"))).unwrap();
    let through = seeded.taken.through;
    let may_go_on = || leader.store.log_reader(through, Arc::new(|| {})).is_ok();
    for _ in 0..3 {
        leader.load(200);
        leader.store.checkpoint().unwrap().unwrap();
        assert!(may_go_on());
    }
    drop(seeded.hold);
    wait_until("the leader lets go", || {
        leader.store.checkpoint().unwrap().unwrap();
        !may_go_on()
    });
}

#[test]
fn no_seed_is_given_to_whom_it_is_not_for() {
    let leader = Leader::new(500, PaceLimits::default());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("copy");
    let refused = |change: &dyn Fn(&mut Fetch)| {
        let mut what = leader.fetch(&folder);
        change(&mut what);
        fetch_seed(&what).unwrap_err()
    };
    let is = |error: FetchError, refusal: Refusal| {
        assert!(
            matches!(&error, FetchError::Refused(found) if *found == refusal),
            "{error:?}"
        );
    };
    let token = refused(&|what| what.need.token = b"between un".to_vec());
    assert!(matches!(token, FetchError::Io(_)), "{token:?}");
    let node = refused(&|what| what.to = NodeId(2));
    assert!(matches!(node, FetchError::Io(_)), "{node:?}");
    is(
        refused(&|what| what.need.tenant = TenantId(2)),
        Refusal::DoesNotLead,
    );
    is(
        refused(&|what| what.epoch = Epoch(1)),
        Refusal::Over(Epoch(0)),
    );
    leader.store.begin_epoch(Epoch(3)).unwrap();
    is(
        refused(&|what| what.epoch = Epoch(4)),
        Refusal::Over(Epoch(3)),
    );
    let other = Leader::new(100, PaceLimits::default()).store.timeline();
    is(
        refused(&|what| what.need.timeline = other),
        Refusal::OfAnother,
    );
    let stopped = refused(&|what| what.need.stop.store(true, Ordering::Relaxed));
    assert!(matches!(stopped, FetchError::Stopped));
    leader.leads.store(false, Ordering::Relaxed);
    is(refused(&|_| {}), Refusal::DoesNotLead);
    assert!(!folder.exists());
    leader.leads.store(true, Ordering::Relaxed);
    fetch_seed(&leader.fetch(&folder)).unwrap();
}

/// Sends what it is given behind a greeting, and gives what is answered until the connection ends.
fn answers(leader: &Leader, greeting: &[u8], sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(leader.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let _ = stream.write_all(greeting);
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    answers
}

#[test]
fn whatever_is_asked_a_leader_answers_or_hangs_up_and_goes_on() {
    let leader = Leader::new(500, PaceLimits::default());
    let greeting = wire::of_greeting(&Greeting {
        version: VERSION,
        token: TOKEN.to_vec(),
        tenant: TENANT,
        from: leader.need(Path::new("/")).me,
        to: NodeId(0),
        purpose: Purpose::Seed,
    });
    let request = |json: &str| -> Vec<u8> {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        wire::frame(&value, &[])
    };
    let begin = request(r#"{"Begin":{"timeline":null,"epoch":0,"pass":4000000000}}"#);
    // Before there is a seed, and what is none.
    for json in [
        r#"{"Image":{"name":"manifest","from":0}}"#,
        r#"{"Log":{"file":1,"from":0,"bytes_max":10}}"#,
        r#""Done""#,
        r#""Other""#,
        "7",
    ] {
        assert!(answers(&leader, &greeting, &request(json)).is_empty());
    }
    for (json, found) in [
        (
            r#"{"Image":{"name":"../log/0000000000000001.log","from":0}}"#,
            "Unknown",
        ),
        (r#"{"Image":{"name":"/etc/passwd","from":0}}"#, "Unknown"),
        (
            r#"{"Image":{"name":"","from":18446744073709551615}}"#,
            "Unknown",
        ),
        (
            r#"{"Log":{"file":18446744073709551615,"from":0,"bytes_max":1}}"#,
            "Unknown",
        ),
        (
            r#"{"Log":{"file":0,"from":18446744073709551615,"bytes_max":18446744073709551615}}"#,
            "Unknown",
        ),
    ] {
        let mut sent = begin.clone();
        sent.extend(request(json));
        let answered = answers(&leader, &greeting, &sent);
        let text = String::from_utf8_lossy(&answered);
        assert!(
            text.contains("Plan") && text.contains(found),
            "{json}: {text}"
        );
    }
    // Behind the end there is nothing, and no harm in asking.
    let mut sent = begin.clone();
    for file in 1..40_u64 {
        sent.extend(request(&format!(
            r#"{{"Log":{{"file":{file},"from":18446744073709551615,"bytes_max":18446744073709551615}}}}"#
        )));
    }
    assert!(String::from_utf8_lossy(&answers(&leader, &greeting, &sent)).contains("Log"));
    let mut random = StdRng::seed_from_u64(9);
    for round in 0..200 {
        let mut sent = request(r#"{"Image":{"name":"00000001-1-1.img","from":0}}"#);
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..sent.len());
            sent[at] = random.random();
        }
        if round % 3 == 0 {
            sent = vec![0; random.random_range(0..300)];
            random.fill_bytes(&mut sent);
        }
        answers(&leader, &greeting, &sent);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let seeded = fetch_seed(&leader.fetch(&path)).unwrap();
    leader.compare(&path, &seeded);
}

/// Between a copy and its leader: what the leader says is handed on by `change`, which may end the connection.
fn between(
    leader: SocketAddr,
    change: impl Fn(&mut Vec<u8>, u64) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let change = Arc::new(change);
    thread::spawn(move || {
        for copy in listener.incoming() {
            let mut copy = copy.unwrap();
            let change = Arc::clone(&change);
            thread::spawn(move || {
                let mut behind = TcpStream::connect(leader).unwrap();
                let (mut from, mut to) = (copy.try_clone().unwrap(), behind.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                let (mut buffer, mut passed) = (vec![0; 16 << 10], 0);
                while let Ok(count @ 1..) = behind.read(&mut buffer) {
                    let mut bytes = buffer[..count].to_vec();
                    let goes_on = change(&mut bytes, passed);
                    passed += count as u64;
                    if copy.write_all(&bytes).is_err() || !goes_on {
                        break;
                    }
                }
                let _ = copy.shutdown(Shutdown::Both);
                let _ = behind.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn a_transfer_that_breaks_off_again_and_again_goes_on_where_it_was() {
    let leader = Leader::new(8_000, PaceLimits::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let total = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&total);
    let address = between(leader.address, move |bytes, passed| {
        counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        passed < 900_000
    });
    let (attempts, seeded) = loop_until_made(&leader, address, &path);
    leader.compare(&path, &seeded);
    let (sent, whole) = (total.load(Ordering::Relaxed), seeded.taken.bytes);
    println!("{attempts} attempts, {sent} bytes sent of {whole}");
    // Of each attempt a part on its way, the manifest and the log are sent again.
    assert!(attempts > 3 && sent < whole + attempts * 500_000);
}

/// A node that needs no name.
fn at(address: SocketAddr) -> Peer {
    Peer {
        name: String::new(),
        address,
    }
}

fn loop_until_made(leader: &Leader, address: SocketAddr, path: &Path) -> (u64, Seeded) {
    for attempt in 1..100 {
        let what = Fetch {
            peer: at(address),
            ..leader.fetch(path)
        };
        match fetch_seed(&what) {
            Ok(seeded) => return (attempt, seeded),
            Err(error) => assert!(error.is_passing(), "{error:?}"),
        }
        assert!(!path.exists(), "there was none");
    }
    panic!("not within a hundred attempts");
}

#[test]
fn what_is_changed_on_its_way_is_never_taken() {
    let leader = Leader::new(2_000, PaceLimits::default());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let random = Mutex::new(StdRng::seed_from_u64(4));
    let address = between(leader.address, move |bytes, _| {
        let mut random = random.lock().unwrap();
        if random.random_bool(0.02) {
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        true
    });
    let (attempts, seeded) = loop_until_made(&leader, address, &path);
    println!("{attempts} attempts");
    assert!(attempts > 1);
    leader.compare(&path, &seeded);
}

#[test]
fn a_leader_that_writes_faster_than_it_sends_is_caught_up_with_in_passes() {
    // At the pace with which it begins the log runs away while the images are sent.
    let limits = PaceLimits {
        bytes_per_s_min: 400 << 10,
        bytes_per_s_max: 6_400 << 10,
    };
    let leader = Leader::new(3_000, limits);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let is_over = AtomicBool::new(false);
    let seeded = thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while !is_over.load(Ordering::Acquire) && began.elapsed() < Duration::from_secs(3) {
                leader.load(100);
                leader.store.checkpoint().unwrap().unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        let seeded = fetch_seed(&leader.fetch(&path));
        is_over.store(true, Ordering::Release);
        seeded
    });
    let seeded = seeded.unwrap();
    println!("{} passes, {} bytes", seeded.passes, seeded.bytes_sent);
    assert!(seeded.passes > 1);
    leader.compare(&path, &seeded);
}

#[test]
fn a_leader_that_is_closed_in_the_middle_ends_the_seed_and_nothing_else() {
    let limits = PaceLimits {
        bytes_per_s_min: 1 << 20,
        bytes_per_s_max: 1 << 20,
    };
    let leader = Leader::new(8_000, limits);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let what = leader.fetch(&path);
    let fetched = thread::spawn(move || fetch_seed(&what));
    let growing = folder.path().join("copy.seed").join("checkpoint");
    wait_until("something has come", || {
        std::fs::read_dir(&growing).is_ok_and(|found| found.count() > 1)
    });
    let Leader {
        store,
        table,
        _runtime,
        _folder,
        ..
    } = leader;
    let ended = store.ended().unwrap();
    drop((store, table));
    assert!(ended.wait(Duration::from_secs(5)), "a seed keeps it");
    let error = fetched.join().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Refused(Refusal::Gone | Refusal::DoesNotLead)
        ),
        "{error:?}"
    );
    assert!(!path.exists() && growing.exists());
}

#[test]
fn odd_leaders_make_no_copy() {
    let leader = Leader::new(500, PaceLimits::default());
    let seed = leader.store.seed().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    let frame = |json: &str, bytes: &[u8]| -> Vec<u8> {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        wire::frame(&value, bytes)
    };
    let plan = frame("\"Plan\"", seed.manifest());
    let log = |json: &str, bytes: &[u8]| frame(&format!("{{\"Log\":{json}}}"), bytes);
    let empty = log(r#"{"file_bytes":9,"is_complete":false,"end":[1,9]}"#, &[]);
    let far = log(
        r#"{"file_bytes":9,"is_complete":false,"end":[18446744073709551615,18446744073709551615]}"#,
        &[1; 9],
    );
    let long = log(
        r#"{"file_bytes":3,"is_complete":true,"end":[1,9]}"#,
        &[1; 9],
    );
    let junk = log(
        r#"{"file_bytes":90000000,"is_complete":true,"end":[7,9]}"#,
        &[7; 900],
    );
    let mut huge = plan.clone();
    huge[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let answers: Vec<Vec<Vec<u8>>> = vec![
        vec![],
        vec![vec![0; 400]],
        vec![huge],
        vec![frame("\"Image\"", &[1])],
        vec![frame("\"Wait\"", &[]), frame("\"Plan\"", b"no manifest")],
        vec![plan.clone(), plan.clone()],
        vec![plan.clone(), empty.clone(), empty],
        vec![plan.clone(), far.clone(), far],
        vec![plan.clone(), long],
        vec![plan.clone(), junk.clone(), junk],
        vec![plan.clone(), frame("{\"Refused\":\"Gone\"}", &[])],
        vec![plan, frame("{\"Refused\":{\"Failed\":\"so\"}}", &[])],
    ];
    for (number, answers) in answers.into_iter().enumerate() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let odd = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = stream.write_all(&answer);
            }
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let what = Fetch {
            peer: at(address),
            ..leader.fetch(&path)
        };
        let error = fetch_seed(&what).unwrap_err();
        let is_own = matches!(&error, FetchError::Seed(SeedError::Locked { .. }));
        assert!(!is_own && !path.exists(), "{number}: {error:?}");
        odd.join().unwrap();
    }
    let seeded = fetch_seed(&leader.fetch(&path)).unwrap();
    leader.compare(&path, &seeded);
}

#[test]
fn four_copies_are_made_at_a_time_and_a_fifth_waits() {
    let limits = PaceLimits {
        bytes_per_s_min: 2 << 20,
        bytes_per_s_max: 2 << 20,
    };
    let leader = Leader::new(6_000, limits);
    let folder = tempfile::tempdir().unwrap();
    let made = thread::scope(|scope| {
        let fetches = (0..6).map(|number| {
            let what = leader.fetch(&folder.path().join(format!("copy{number}")));
            scope.spawn(move || fetch_seed(&what))
        });
        let fetches: Vec<_> = fetches.collect();
        let done = fetches.into_iter().map(|fetch| fetch.join().unwrap());
        done.collect::<Vec<_>>()
    });
    let busy =
        |one: &Result<Seeded, FetchError>| matches!(one, Err(FetchError::Refused(Refusal::Busy)));
    assert_eq!(made.iter().filter(|one| busy(one)).count(), 2);
    assert_eq!(made.iter().filter(|one| one.is_ok()).count(), 4);
    // Those that hold the log only are in nobody's way.
    let last = fetch_seed(&leader.fetch(&folder.path().join("last"))).unwrap();
    leader.compare(&folder.path().join("last"), &last);
}
