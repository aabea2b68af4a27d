//! A node of a move is killed at each of its steps: it converges all the same, to one owner, with everything that was
//! acknowledged.
//!
//! `MOVE_STEPS=all` plays every step with every node (36 moves); otherwise a few are drawn by `MOVE_SEED`.

use std::{
    fs,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio_postgres::NoTls;

use super::{Addresses, NAMES, Wrote, is_on, write};
use crate::{
    copies::{Cluster, leads, wait_for_members, wait_until},
    harness::{Aerostat, PATIENCE, value},
};

/// As many are played where not all are.
const PLAYED: usize = 4;

/// How far a move has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The record says where the database is to be.
    Meant,
    /// The node that is to have it has begun to.
    Begun,
    /// Its copy is a member.
    Joined,
    /// A node leads that is to have it.
    Led,
    /// The node that is not to have it is no member.
    Left,
    /// Its files are gone.
    Gone,
}

const STEPS: [Step; 6] = [
    Step::Meant,
    Step::Begun,
    Step::Joined,
    Step::Led,
    Step::Left,
    Step::Gone,
];

/// The configuration of a database: who leads, and who the members are, by their numbers.
fn configuration(cluster: &Cluster, oid: &str) -> Option<(u64, Vec<u64>)> {
    let folder = cluster.folder().join("databases").join(oid);
    let names = fs::read_dir(&folder).ok()?.flatten();
    let newest = names
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().ends_with(".json"));
    let text = fs::read_to_string(folder.join(newest.max()?)).ok()?;
    let found: serde_json::Value = serde_json::from_str(&text).ok()?;
    // What a folder keeps of a document may have a frame.
    let found = found.get("document").unwrap_or(&found);
    let number = |node: &serde_json::Value| node.as_u64();
    let members = found["members"].as_array()?.iter();
    let members = members.filter_map(|member| number(&member["node"]));
    Some((number(&found["leader"])?, members.collect()))
}

/// A move of a database from one node to another, which the third keeps.
struct Move {
    goes: usize,
    comes: usize,
}

impl Move {
    fn is_at(&self, step: Step, cluster: &Cluster, nodes: &[Option<Aerostat>], oid: &str) -> bool {
        let config = configuration(cluster, oid);
        let is_member = |at: usize| {
            config
                .as_ref()
                .is_some_and(|(_, members)| members.contains(&(at as u64)))
        };
        let has = |at: usize| nodes[at].as_ref().is_some_and(|node| is_on(node, oid));
        match step {
            Step::Meant => true,
            Step::Begun => has(self.comes) || is_member(self.comes),
            Step::Joined => is_member(self.comes),
            Step::Led => config
                .as_ref()
                .is_some_and(|(leader, _)| *leader != self.goes as u64),
            Step::Left => is_member(self.comes) && !is_member(self.goes),
            Step::Gone => !has(self.goes),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_of_which_a_node_is_killed_at_any_step_converges() {
    let seed =
        std::env::var("MOVE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    eprintln!("MOVE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // Who is killed, and whether the node that goes leads.
    let mut plans: Vec<(Step, usize, bool)> = Vec::new();
    for step in STEPS {
        for victim in 0..3 {
            plans.extend([(step, victim, true), (step, victim, false)]);
        }
    }
    plans.shuffle(&mut random);
    if std::env::var("MOVE_STEPS").as_deref() != Ok("all") {
        plans.truncate(PLAYED);
    }
    let cluster = Cluster::of_gateways();
    let mut nodes: Vec<Option<Aerostat>> = NAMES.map(|name| Some(cluster.start(name))).into();
    let node = |nodes: &[Option<Aerostat>], at: usize| nodes[at].as_ref().unwrap().sql;
    let first = nodes[0].as_ref().unwrap();
    wait_for_members(first, "aerostat", 3);
    let admin = first.connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE shop WITH (nodes = 'a, b', durability = 'memory2+fsync')")
        .await
        .unwrap();
    let oid = value(&admin, "SELECT oid FROM pg_database WHERE datname = 'shop'").await;
    wait_for_members(first, "shop", 2);
    let client = first.connect("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY);
             CREATE TABLE ballast AS SELECT g, repeat(md5(g::text), 20) AS v FROM generate_series(1, 20000) g",
        )
        .await
        .unwrap();
    drop((client, admin));
    let addresses: Addresses = Arc::new(Mutex::new(
        (0..3).map(|at| Some(node(&nodes, at))).collect(),
    ));
    let wrote = Arc::new(Wrote::default());
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (addresses, wrote) = (Arc::clone(&addresses), Arc::clone(&wrote));
            tokio::spawn(write(addresses, wrote, seed.wrapping_add(writer)))
        })
        .collect();
    let mut on = vec![0, 1];
    let mut longest = Duration::ZERO;
    for (step, victim, of_leader) in plans {
        let led = *on
            .iter()
            .find(|at| leads(nodes[**at].as_ref().unwrap(), "shop"))
            .expect("one leads");
        let goes = match of_leader {
            true => led,
            false => *on.iter().find(|at| **at != led).unwrap(),
        };
        let comes = 3 - on[0] - on[1];
        on.retain(|at| *at != goes);
        // The node that goes, the one that stays, the one that comes.
        let victim = [goes, on[0], comes][victim];
        on.push(comes);
        let names: Vec<&str> = on.iter().map(|at| NAMES[*at]).collect();
        let sql = format!("ALTER DATABASE shop SET (nodes = '{}')", names.join(", "));
        let teller = nodes[random.random_range(0..3)].as_ref().unwrap();
        let said = Instant::now();
        loop {
            let (client, connection) = teller.config("aerostat").connect(NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            let done = client.batch_execute(&sql).await;
            drop(client);
            connection.await.ok();
            match done {
                Ok(()) => break,
                Err(error) => assert!(said.elapsed() < PATIENCE, "{error:?}"),
            }
        }
        let moving = Move { goes, comes };
        while !moving.is_at(step, &cluster, &nodes, &oid) {
            assert!(said.elapsed() < PATIENCE, "{step:?} does not come");
            std::thread::sleep(Duration::from_micros(500));
        }
        let reached = said.elapsed();
        addresses.lock().unwrap()[victim] = None;
        let data = nodes[victim].take().unwrap().kill();
        let killed = Instant::now();
        let again = tokio::task::block_in_place(|| cluster.start_on(data, NAMES[victim]));
        addresses.lock().unwrap()[victim] = Some(again.sql);
        nodes[victim] = Some(again);
        tokio::task::block_in_place(|| {
            wait_until("it is where it is to be", || {
                let all: Vec<&Aerostat> = nodes.iter().flatten().collect();
                let is_right = |at: usize| is_on(all[at], &oid) == on.contains(&at);
                let leaders = (0..3).filter(|at| leads(all[*at], "shop")).count();
                let members = "aerostat_copy_members{tenant=\"shop\"}";
                let led = on.iter().find(|at| leads(all[**at], "shop"));
                let is_whole = led.is_some_and(|at| all[*at].metric(members) == 2.0);
                leaders == 1 && is_whole && (0..3).all(is_right)
            });
        });
        let converged = killed.elapsed();
        longest = longest.max(converged);
        eprintln!(
            "{step:?} after {reached:?}, {} of {} {} {} killed: converged {converged:?} later",
            NAMES[victim],
            NAMES[goes],
            if of_leader { "(led) ►" } else { "►" },
            NAMES[comes],
        );
        let before = wrote.acknowledged.lock().unwrap().len();
        while wrote.acknowledged.lock().unwrap().len() < before + 20 {
            assert!(
                killed.elapsed() < 2 * PATIENCE,
                "nobody writes after {step:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    wrote.stops.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let client = nodes[0].as_ref().unwrap().connect("shop").await;
    let rows = client.query("SELECT id FROM t", &[]).await.unwrap();
    let there: std::collections::HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    let acknowledged = wrote.acknowledged.lock().unwrap().clone();
    let lost: Vec<&i64> = acknowledged
        .iter()
        .filter(|id| !there.contains(id))
        .collect();
    assert!(
        lost.is_empty(),
        "MOVE_SEED={seed}: acknowledged and lost: {lost:?}"
    );
    assert_eq!(
        value(&client, "SELECT count(*) FROM ballast").await,
        "20000"
    );
    eprintln!(
        "{} written; the longest took {longest:?}",
        acknowledged.len()
    );
}
