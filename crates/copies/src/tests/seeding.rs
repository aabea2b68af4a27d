//! Two nodes, one of which loses its folder, or is away for longer than its leader keeps the log: it is made anew
//! by itself while clients write. And what a connection for a seed is answered that is no node's.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_replication::{Epoch, Incarnation, Member, NodeId};
use aerostat_storage::{MetaShared, OpenOptions, SystemDisk, Table, TenantStore, Timeline};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{net::TcpListener, runtime::Runtime};

use super::{
    node::{BAG, KEYED, batch, begun, budget, listed},
    pair::{CLIENTS, TENANT, TOKEN, TestNode, led, members, open, options, wait_until},
};
use crate::{
    Greeting, Purpose,
    seed::{Fetch, FetchError, PaceLimits, Refusal, SeedNeed, Seeds, fetch_seed},
    serve,
    wire::{self, VERSION},
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
                    let done = table.insert(&txn, &batch(&table, &[(key, 1)], 500));
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
