//! A cluster of three nodes and three members of etcd with many tenants, of which nodes and members are killed and frozen
//! at random while every tenant's client writes and others read: what was acknowledged is there, once, no strong read is
//! older than what was acknowledged before it, and nobody lends a hand. Where the machine has network namespaces, networks
//! are cut, too.
//!
//! `CLUSTER_SEED`, `CLUSTER_ROUNDS` (6) and `CLUSTER_TENANTS` (12) choose what is played, `CLUSTER_TROUBLE` (its place among
//! `TROUBLES`) that nothing else is; the seed is printed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::{
    copies::{Cluster, wait_for_members, wait_for_value, wait_until},
    etcd_members::Members,
    harness::{Aerostat, sqlstate},
    networks::Networks,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long a client waits for an answer of a node that may be frozen.
const ANSWER: Duration = Duration::from_secs(15);

/// How often a tenant's client writes.
const PERIOD: Duration = Duration::from_millis(100);

fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A tenant's counter, as its only writer knows it.
#[derive(Default)]
struct Counter {
    acknowledged: AtomicI64,
    /// Additions of which it is not known whether they were done. One whose client has left may be done later than others
    /// that were sent after it.
    unsure: AtomicI64,
    /// How it was cut off last.
    cut: Mutex<Vec<String>>,
    /// When additions were acknowledged.
    times: Mutex<Vec<Instant>>,
}

/// A host, or a folder with a socket, and a port.
type Way = (String, u16);

struct Play {
    counters: Vec<Counter>,
    /// Where nodes are that clients may go to.
    nodes: Mutex<[Option<Way>; 3]>,
    /// Changes with each change of these: clients leave nodes that are away.
    version: tokio::sync::watch::Sender<u64>,
    stops: AtomicBool,
    wrong: Mutex<Vec<String>>,
    reads: AtomicUsize,
    done: AtomicUsize,
    cut: AtomicUsize,
}

impl Play {
    fn any(&self, random: &mut StdRng) -> Option<Way> {
        let nodes = self.nodes.lock().unwrap();
        let there: Vec<&Way> = nodes.iter().flatten().collect();
        there.choose(random).copied().cloned()
    }

    fn is_there(&self, at: &Way) -> bool {
        self.nodes
            .lock()
            .unwrap()
            .iter()
            .flatten()
            .any(|way| way == at)
    }

    fn set(&self, node: usize, at: Option<Way>) {
        self.nodes.lock().unwrap()[node] = at;
        self.version.send_modify(|version| *version += 1);
    }

    /// Does something at a node, unless that is away, or nothing comes of it for long.
    async fn at<T>(&self, node: &Way, work: impl Future<Output = T>) -> Option<T> {
        let mut version = self.version.subscribe();
        let left = async {
            while self.is_there(node) {
                if version.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            done = work => Some(done),
            () = left => None,
            () = tokio::time::sleep(ANSWER) => None,
        }
    }

    fn wrong(&self, text: String) {
        let mut wrong = self.wrong.lock().unwrap();
        // The first say enough.
        if wrong.len() < 10 {
            wrong.push(text);
        }
    }

    async fn connect(
        &self,
        tenant: usize,
        options: &str,
        random: &mut StdRng,
    ) -> Option<(Way, Client)> {
        let node = self.any(random)?;
        let mut config = Config::new();
        config
            .host(&node.0)
            .port(node.1)
            .user("aerostat")
            .dbname(format!("t{tenant}"))
            .options(options);
        let (client, connection) = self.at(&node, config.connect(NoTls)).await?.ok()?;
        tokio::spawn(connection);
        Some((node, client))
    }
}

/// Adds to a tenant's counter, through any node.
async fn write(play: Arc<Play>, tenant: usize, seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    let counter = &play.counters[tenant];
    while !play.stops.load(Ordering::Relaxed) {
        let Some((node, client)) = play.connect(tenant, "", random).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while !play.stops.load(Ordering::Relaxed) && play.is_there(&node) {
            // Until it is known otherwise it may be done.
            counter.unsure.fetch_add(1, Ordering::SeqCst);
            let sql = "UPDATE counter SET n = n + 1 RETURNING n";
            let result = play.at(&node, client.query_one(sql, &[])).await;
            match result {
                Some(Ok(row)) => {
                    let n: i64 = row.get(0);
                    let before = counter.acknowledged.load(Ordering::SeqCst);
                    let unsure = counter.unsure.load(Ordering::SeqCst);
                    if n <= before || n > before + unsure {
                        let cut = counter.cut.lock().unwrap();
                        play.wrong(format!(
                            "t{tenant}: {n} after {before} and at most {unsure} more; cut off by {cut:?}"
                        ));
                    }
                    counter.acknowledged.store(n, Ordering::SeqCst);
                    // This one, and those that show now.
                    counter.unsure.fetch_sub(n - before, Ordering::SeqCst);
                    counter.times.lock().unwrap().push(Instant::now());
                    play.done.fetch_add(1, Ordering::Relaxed);
                }
                Some(Err(error)) => {
                    play.cut.fetch_add(1, Ordering::Relaxed);
                    let code = error.code().map(|code| code.code().to_owned());
                    {
                        let mut cut = counter.cut.lock().unwrap();
                        cut.push(format!("{error:?}"));
                        let more = cut.len().saturating_sub(3);
                        cut.drain(..more);
                    }
                    // What was not done for certain.
                    if matches!(code.as_deref(), Some("08006" | "57P03" | "25006")) {
                        counter.unsure.fetch_sub(1, Ordering::SeqCst);
                    } else if code
                        .as_deref()
                        .is_some_and(|code| !(code.starts_with("08") || code.starts_with("57P")))
                    {
                        play.wrong(format!("t{tenant}: {error:?}"));
                    }
                    break;
                }
                None => break,
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Reads counters of any tenants through any node: none is older than what was acknowledged before.
async fn read(play: Arc<Play>, seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    while !play.stops.load(Ordering::Relaxed) {
        let tenant = random.random_range(0..play.counters.len());
        let options = "-c aerostat.read_from=leader";
        let Some((node, client)) = play.connect(tenant, options, random).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for _ in 0..random.random_range(1..20) {
            if !play.is_there(&node) || play.stops.load(Ordering::Relaxed) {
                break;
            }
            let before = play.counters[tenant].acknowledged.load(Ordering::SeqCst);
            let asked = play
                .at(&node, client.query_one("SELECT n FROM counter", &[]))
                .await;
            let Some(Ok(row)) = asked else { break };
            let n: i64 = row.get(0);
            if n < before {
                play.wrong(format!(
                    "t{tenant}: read {n} after {before} was acknowledged"
                ));
            }
            play.reads.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A node, or what is left of one.
enum Node {
    Runs(Aerostat),
    Killed(TempDir),
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_takes_care_of_itself() {
    if let Some(members) = Members::start() {
        play(&members, None).await;
    }
}

/// The same where each node is on a machine of its own, as far as networks go, and known by its certificate: nodes are cut
/// off from everything but their own clients, from one other node, or from etcd, and nobody is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_takes_care_of_itself_while_its_network_is_cut() {
    let Some(networks) = Networks::new(NAMES.len()) else {
        return;
    };
    let hosts = [0, 1, 2].map(|member| networks.member(member));
    if let Some(members) = Members::start_in(&networks.hub(), hosts) {
        play(&members, Some(&networks)).await;
    }
}

const TROUBLES: [&str; 7] = [
    "nodes killed",
    "nodes frozen",
    "members of etcd frozen",
    "nodes stopped",
    "nodes cut off",
    "nodes cut off from one",
    "nodes cut off from etcd",
];

/// Those of the waits in which another had to lead.
fn waits(gaps: &[Duration]) -> String {
    let mut waited: Vec<f64> = gaps.iter().map(Duration::as_secs_f64).collect();
    waited.retain(|gap| *gap > 0.7);
    waited.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (waited.len() as f64 * share) as usize;
        waited
            .get(place.min(waited.len().saturating_sub(1)))
            .copied()
    };
    match (at(0.5), at(0.99), at(1.0)) {
        (Some(median), Some(p99), Some(longest)) => {
            let of = gaps.len();
            format!(
                "{} of {of}: {median:.2} {p99:.2} {longest:.2}",
                waited.len()
            )
        }
        _ => format!("none of {}", gaps.len()),
    }
}

async fn play(members: &Members, networks: Option<&Networks>) {
    let seed = number("CLUSTER_SEED", rand::random::<u32>().into());
    let rounds = number("CLUSTER_ROUNDS", 6);
    let tenants = usize::try_from(number("CLUSTER_TENANTS", 12)).unwrap();
    eprintln!("CLUSTER_SEED={seed} CLUSTER_ROUNDS={rounds} CLUSTER_TENANTS={tenants}");
    let random = &mut StdRng::seed_from_u64(seed);
    let mut setup = Cluster::of_etcd(members).that_replaces();
    if networks.is_some() {
        setup = setup.secured();
    }
    let start = |node: usize, data: TempDir| match networks {
        None => setup.start_on(data, NAMES[node]),
        Some(networks) => setup.start_in(networks, node, data, NAMES[node]),
    };
    let mut nodes: Vec<Option<Node>> = (0..3)
        .map(|node| Some(Node::Runs(start(node, tempfile::tempdir().unwrap()))))
        .collect();
    let runs = |node: &Option<Node>| match node {
        Some(Node::Runs(node)) => node.way(),
        _ => panic!("it runs"),
    };
    let play = Arc::new(Play {
        counters: (0..tenants).map(|_| Counter::default()).collect(),
        nodes: Mutex::new([0, 1, 2].map(|at| Some(runs(&nodes[at])))),
        version: tokio::sync::watch::Sender::new(0),
        stops: AtomicBool::new(false),
        wrong: Mutex::default(),
        reads: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
    });
    {
        let Some(Node::Runs(a)) = &nodes[0] else {
            panic!("it runs")
        };
        wait_for_members(a, "aerostat", 3);
        let admin = a.connect("aerostat").await;
        let up = "SELECT count(*) FROM aerostat.cluster_nodes WHERE state = 'up'";
        wait_for_value(&admin, up, "3").await;
        for tenant in 0..tenants {
            let durability = ["memory2", "fsync"][tenant % 2];
            let sql = format!("CREATE DATABASE t{tenant} WITH (durability = '{durability}')");
            admin.batch_execute(&sql).await.unwrap();
            let client = a.connect(&format!("t{tenant}")).await;
            client
                .batch_execute("CREATE TABLE counter (n bigint); INSERT INTO counter VALUES (0)")
                .await
                .unwrap();
        }
        let two = "SELECT count(*) FROM aerostat.cluster_databases WHERE copies = 2 AND members LIKE '%, %'";
        wait_for_value(&admin, two, &tenants.to_string()).await;
    }
    let mut tasks = Vec::new();
    for tenant in 0..tenants {
        let play = Arc::clone(&play);
        tasks.push(tokio::spawn(write(play, tenant, seed ^ tenant as u64)));
    }
    for reader in 0..4 {
        let play = Arc::clone(&play);
        tasks.push(tokio::spawn(read(play, seed ^ (1_000 + reader))));
    }
    // By trouble.
    let mut gaps: [Vec<Duration>; TROUBLES.len()] = Default::default();
    for round in 0..rounds {
        // Two that are left, and everything settled: of two copies one is always there.
        tokio::time::sleep(Duration::from_millis(random.random_range(200..1_500))).await;
        let began = Instant::now();
        let victim = random.random_range(0..3);
        let what = match networks {
            None => random.random_range(0..10),
            Some(_) => random.random_range(8..20),
        };
        let away = Duration::from_millis(random.random_range(0..5_000));
        let trouble = match what {
            0..5 => 0,
            5..8 => 1,
            8 => 2,
            10..14 => 4,
            14..17 => 5,
            17..20 => 6,
            _ => 3,
        };
        let trouble = usize::try_from(number("CLUSTER_TROUBLE", trouble as u64)).unwrap();
        match trouble {
            0 => {
                play.set(victim, None);
                let Some(Node::Runs(node)) = nodes[victim].take() else {
                    panic!("it runs")
                };
                nodes[victim] = Some(Node::Killed(node.kill()));
                tokio::time::sleep(away).await;
            }
            1 => {
                play.set(victim, None);
                if let Some(Node::Runs(node)) = &nodes[victim] {
                    node.signal("STOP");
                    tokio::time::sleep(away).await;
                    node.signal("CONT");
                }
            }
            2 => {
                members.freeze(victim);
                tokio::time::sleep(away).await;
                members.thaw(victim);
            }
            4 => {
                let networks = networks.unwrap();
                networks.cut(victim);
                tokio::time::sleep(away).await;
                networks.heal(victim);
            }
            5 => {
                let networks = networks.unwrap();
                let other = (victim + 1 + random.random_range(0..2)) % 3;
                let other = [networks.node(other).into()];
                networks.cut_from(victim, &other);
                tokio::time::sleep(away).await;
                networks.heal_from(victim, &other);
            }
            6 => {
                let networks = networks.unwrap();
                let all = [0, 1, 2].map(|member| networks.member(member));
                networks.cut_from(victim, &all);
                tokio::time::sleep(away).await;
                networks.heal_from(victim, &all);
            }
            _ => {
                play.set(victim, None);
                let Some(Node::Runs(node)) = nodes[victim].take() else {
                    panic!("it runs")
                };
                let data = tokio::task::block_in_place(|| node.stop());
                nodes[victim] = Some(Node::Killed(data));
            }
        }
        if let Some(Node::Killed(_)) = &nodes[victim] {
            let Some(Node::Killed(data)) = nodes[victim].take() else {
                panic!("it was killed")
            };
            let node = tokio::task::block_in_place(|| start(victim, data));
            nodes[victim] = Some(Node::Runs(node));
        }
        play.set(victim, Some(runs(&nodes[victim])));
        // Everybody goes on, and has two copies: one more may end.
        let goes_on = |tenant: &Counter| {
            let times = tenant.times.lock().unwrap();
            times.last().is_some_and(|at| *at > began + away)
        };
        let play_now = Arc::clone(&play);
        tokio::task::block_in_place(|| {
            wait_until("every tenant is written to", || {
                play_now.counters.iter().all(goes_on)
            });
        });
        let all: Vec<&Aerostat> = nodes
            .iter()
            .flatten()
            .filter_map(|node| match node {
                Node::Runs(node) => Some(node),
                Node::Killed(_) => None,
            })
            .collect();
        tokio::task::block_in_place(|| await_two(&all, tenants));
        for counter in &play.counters {
            let times = counter.times.lock().unwrap();
            let pairs = times.windows(2);
            let within = pairs.filter(|pair| pair[1] > began);
            gaps[trouble].extend(within.map(|pair| pair[1] - pair[0]).max());
        }
        let wrong = play.wrong.lock().unwrap().clone();
        assert!(
            wrong.is_empty(),
            "CLUSTER_SEED={seed}, round {round}: {wrong:?}"
        );
    }
    play.stops.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    // Everything is there, and nothing twice.
    for (tenant, counter) in play.counters.iter().enumerate() {
        let Some(Node::Runs(node)) = &nodes[tenant % 3] else {
            panic!("it runs")
        };
        let client = node.connect(&format!("t{tenant}")).await;
        let row = client
            .query_one("SELECT n FROM counter", &[])
            .await
            .unwrap();
        let n: i64 = row.get(0);
        let least = counter.acknowledged.load(Ordering::SeqCst);
        let most = least + counter.unsure.load(Ordering::SeqCst);
        assert!(
            (least..=most).contains(&n),
            "t{tenant}: {n} of {least} to {most}"
        );
        assert_eq!(sqlstate(&client, "SELECT nosuch").await, "42703");
    }
    eprintln!(
        "{} additions, {} reads, {} cut",
        play.done.load(Ordering::Relaxed),
        play.reads.load(Ordering::Relaxed),
        play.cut.load(Ordering::Relaxed)
    );
    eprintln!("waits of over 0.7 s for a successor, median, p99 and longest in seconds:");
    for (trouble, gaps) in TROUBLES.iter().zip(&gaps) {
        eprintln!("{trouble:24} {}", waits(gaps));
    }
    eprintln!("{:24} {}", "all", waits(&gaps.concat()));
    let wrong = play.wrong.lock().unwrap().clone();
    assert!(wrong.is_empty(), "CLUSTER_SEED={seed}: {wrong:?}");
}

/// Waits until commits of every tenant wait for two nodes.
fn await_two(nodes: &[&Aerostat], tenants: usize) {
    wait_until("every tenant has two copies", || {
        let led: f64 = nodes
            .iter()
            .map(|node| {
                let (_, page) = node.ask("/metrics");
                let two = page.lines().filter(|line| {
                    line.starts_with("aerostat_copy_members{tenant=\"t") && line.ends_with(" 2")
                });
                let leads: Vec<&str> = page
                    .lines()
                    .filter(|line| {
                        line.starts_with("aerostat_copy_leads{tenant=\"t") && line.ends_with(" 1")
                    })
                    .collect();
                let tenant = |line: &str| line.split('"').nth(1).map(str::to_owned);
                let led: Vec<Option<String>> = leads.iter().map(|line| tenant(line)).collect();
                two.filter(|line| led.contains(&tenant(line))).count() as f64
            })
            .sum();
        led >= tenants as f64
    });
}
