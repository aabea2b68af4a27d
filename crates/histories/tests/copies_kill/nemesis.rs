//! Who kills, starts, promotes and defines, and looks between whether both nodes have the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aerostat_histories::{Operation, Outcome, Transaction};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use tokio::time::timeout;

use crate::alike::wait_until_alike;
use crate::client::{Session, Shared};
use crate::definitions::Definitions;
use crate::node::Node;
use crate::run::Plan;

/// How long clients may go without an acknowledged commit once every node runs again.
const SERVED_MAX: Duration = Duration::from_secs(60);

/// So many commits after a fault are sure to be kept as the durability says, and all before them:
/// of `memory2` by two nodes again, or by the disk of one that went on alone. Only then may
/// another node be killed.
const SETTLED_COMMITS: u64 = 30;

/// What is done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillLeader,
    KillCopy,
    KillBoth,
    /// By SIGSTOP: for a while it does not know that the world goes on.
    StopLeader,
    Promote,
}

/// The nodes and what was done to them.
pub(crate) struct Nemesis<'a> {
    plan: &'a Plan,
    binary: &'a Path,
    shared: &'a Shared,
    pub(crate) nodes: Vec<Node>,
    dice: Pcg32,
    definitions: Definitions,
    faults: BTreeMap<Fault, u32>,
    promotions: u32,
    comparisons: u32,
    /// By fault, the longest time between two acknowledged commits, until all nodes ran again.
    gaps: BTreeMap<Fault, Vec<Duration>>,
    /// In how many rounds commits were acknowledged while a node was missing.
    served_alone: u32,
    last_round: String,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        binary: &'a Path,
        shared: &'a Shared,
        nodes: Vec<Node>,
    ) -> Self {
        Self {
            plan,
            binary,
            shared,
            nodes,
            dice: Pcg32::seed_from_u64(plan.seed),
            definitions: Definitions::new(std::env::var_os("COPIES_REWRITE").is_some()),
            faults: BTreeMap::new(),
            promotions: 0,
            comparisons: 0,
            gaps: BTreeMap::new(),
            served_alone: 0,
            last_round: "before the first round".to_owned(),
        }
    }

    /// Starts the nodes and makes what the clients use.
    ///
    /// # Errors
    /// When there is no node that can be written to.
    pub(crate) async fn prepare(&mut self) -> Result<(), String> {
        for node in &mut self.nodes {
            node.start(self.binary);
        }
        let session = self.writable().await?;
        let durability = self.plan.durability;
        for sql in [
            format!("ALTER DATABASE aerostat SET (durability = '{durability}')"),
            "CREATE TABLE lists (key bigint PRIMARY KEY, value text NOT NULL)".to_owned(),
            "CREATE TABLE items (key bigint, position bigint, value bigint NOT NULL, \
             PRIMARY KEY (key, position))"
                .to_owned(),
            "CREATE TABLE beside AS SELECT g AS key, g * g AS n FROM generate_series(1, 500) AS g"
                .to_owned(),
        ] {
            session
                .rows(&sql)
                .await
                .map_err(|failure| format!("{sql}: {failure}"))?;
        }
        Ok(())
    }

    /// All rounds, and the last look at everything.
    ///
    /// # Errors
    /// In words, when something is not as it must be.
    pub(crate) async fn run(&mut self) -> Result<(), String> {
        // Before the first copy has everything, nothing is in two memories.
        self.compare(false).await?;
        self.served(SETTLED_COMMITS).await?;
        let mut kills = 0;
        while kills < self.plan.kills {
            self.sleep(100, 900).await;
            for _ in 0..self.dice.random_range(0..3) {
                self.define().await;
            }
            let fault = self.choose();
            self.last_round = format!("round of kill {kills}, {fault:?}");
            *self.faults.entry(fault).or_default() += 1;
            self.shared.take_longest_gap();
            match fault {
                Fault::StopLeader => self.stop_leader().await?,
                Fault::Promote => self.promote_beside_leader().await?,
                Fault::KillLeader | Fault::KillCopy | Fault::KillBoth => {
                    kills += 1;
                    self.kill(fault).await?;
                }
            }
            let gap = self.shared.take_longest_gap();
            self.gaps.entry(fault).or_default().push(gap);
            if self.dice.random_range(0..4) == 0 {
                self.compare(false).await?;
            }
        }
        self.compare(true).await
    }

    async fn sleep(&mut self, from_ms: u64, to_ms: u64) {
        let ms = self.dice.random_range(from_ms..to_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    fn choose(&mut self) -> Fault {
        if self.nodes.len() == 1 {
            return Fault::KillLeader;
        }
        match self.dice.random_range(0..10) {
            0..4 if self.plan.together => Fault::KillBoth,
            0..6 => Fault::KillLeader,
            6..8 => Fault::KillCopy,
            8 => Fault::StopLeader,
            _ => Fault::Promote,
        }
    }

    async fn define(&mut self) {
        let Some(session) = self.shared.connect_writable().await else {
            return;
        };
        self.definitions.change(&session, &mut self.dice).await;
    }

    /// Kills, looks whether the other goes on, and starts again.
    async fn kill(&mut self, fault: Fault) -> Result<(), String> {
        let leader = match self.shared.connect_writable().await {
            Some(session) => session.node,
            None => self.dice.random_range(0..self.nodes.len()),
        };
        let other = self.nodes.len() - 1 - leader;
        let (killed, survivor) = match fault {
            Fault::KillBoth if self.dice.random_range(0..2) == 0 => (vec![other, leader], None),
            Fault::KillBoth => (vec![leader, other], None),
            Fault::KillCopy => (vec![other], Some(leader)),
            _ => (vec![leader], Some(other).filter(|&other| other != leader)),
        };
        for &node in &killed {
            self.nodes[node].kill();
            self.sleep(0, 60).await;
        }
        let before = self.shared.acknowledged.load(Ordering::Relaxed);
        if let Some(survivor) = survivor {
            self.sleep(0, 400).await;
            if fault == Fault::KillLeader && self.dice.random_range(0..2) == 0 {
                self.promote(survivor).await;
            }
        }
        self.sleep(0, 1200).await;
        if survivor.is_some() && self.shared.acknowledged.load(Ordering::Relaxed) > before {
            self.served_alone += 1;
        }
        self.look_for_ended()?;
        for &node in killed.iter().rev() {
            self.nodes[node].start(self.binary);
            self.sleep(0, 400).await;
        }
        // What is on a disk may be killed at once, also while it is being read.
        let on_disk = self.plan.durability.contains("fsync");
        if on_disk && self.dice.random_range(0..3) == 0 {
            return Ok(());
        }
        self.served(SETTLED_COMMITS).await
    }

    /// Stops the leader, and maybe promotes the copy; who goes on then must know what happened.
    async fn stop_leader(&mut self) -> Result<(), String> {
        let leader = self.writable().await?.node;
        self.nodes[leader].signal("STOP");
        self.sleep(0, 1500).await;
        if self.dice.random_range(0..2) == 0 {
            self.promote(self.nodes.len() - 1 - leader).await;
            self.sleep(0, 2500).await;
        }
        self.nodes[leader].signal("CONT");
        self.served(SETTLED_COMMITS).await
    }

    /// Promotes the copy while the leader leads.
    async fn promote_beside_leader(&mut self) -> Result<(), String> {
        let leader = self.writable().await?.node;
        self.promote(self.nodes.len() - 1 - leader).await;
        self.served(SETTLED_COMMITS).await
    }

    async fn promote(&mut self, node: usize) {
        if let Ok((session, true)) = self.shared.connect(node).await
            && session.rows("SELECT pg_promote()").await.is_ok()
        {
            self.promotions += 1;
        }
    }

    fn look_for_ended(&mut self) -> Result<(), String> {
        match self.nodes.iter_mut().find_map(Node::ended) {
            Some(text) => Err(format!("{text}\nNobody had killed it.")),
            None => Ok(()),
        }
    }

    /// Waits until so many more commits were acknowledged.
    async fn served(&mut self, commits: u64) -> Result<(), String> {
        let goal = self.shared.acknowledged.load(Ordering::Relaxed) + commits;
        let began = Instant::now();
        while self.shared.acknowledged.load(Ordering::Relaxed) < goal {
            self.look_for_ended()?;
            if began.elapsed() > SERVED_MAX {
                return Err(format!(
                    "no {commits} commits in {SERVED_MAX:?} though every node runs"
                ));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// The node that can be written to, as soon as there is one.
    async fn writable(&mut self) -> Result<Session, String> {
        let began = Instant::now();
        loop {
            self.look_for_ended()?;
            if let Some(session) = self.shared.connect_writable().await {
                return Ok(session);
            }
            if began.elapsed() > SERVED_MAX {
                return Err(format!("no node is writable after {SERVED_MAX:?}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The other node, as soon as it is a copy.
    async fn copy(&mut self, leader: usize) -> Result<Session, String> {
        let began = Instant::now();
        loop {
            self.look_for_ended()?;
            if let Ok((session, true)) = self.shared.connect(1 - leader).await {
                return Ok(session);
            }
            if began.elapsed() > SERVED_MAX {
                return Err(format!(
                    "node {} leads, and the other is no copy after {SERVED_MAX:?}",
                    self.nodes[leader].name
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// In a pause: definitions are there, both nodes have the same; at the end, what they have.
    async fn compare(&mut self, last: bool) -> Result<(), String> {
        for node in &mut self.nodes {
            if !node.is_started() {
                node.start(self.binary);
            }
        }
        let shared = self.shared;
        let Ok(_pause) = timeout(SERVED_MAX, shared.gate.write()).await else {
            return Err("a client's transaction does not end".to_owned());
        };
        let leader = self.writable().await?;
        self.comparisons += 1;
        let wrong = self.definitions.wrong(&leader).await?;
        if !wrong.is_empty() {
            return Err(format!("definitions: {}", wrong.join("; ")));
        }
        let copy = match self.nodes.len() {
            1 => None,
            _ => {
                let copy = self.copy(leader.node).await?;
                wait_until_alike(&leader, &copy).await?;
                Some(copy)
            }
        };
        if last {
            self.read_last(&leader, false).await?;
            if let Some(copy) = copy {
                self.read_last(&copy, true).await?;
            }
        }
        Ok(())
    }

    async fn read_last(&self, session: &Session, copy: bool) -> Result<(), String> {
        let invoked_ns = self.shared.now_ns();
        let lists = session
            .read_all()
            .await
            .map_err(|failure| format!("the last read: {failure}"))?;
        let read = |(key, list)| Operation::Read { key, list };
        self.shared.note(Transaction {
            process: 9000 + u32::from(copy),
            invoked_ns,
            completed_ns: self.shared.now_ns(),
            outcome: Outcome::Ok,
            copy,
            last: true,
            note: self.nodes[session.node].name.to_owned(),
            operations: lists.into_iter().map(read).collect(),
        });
        Ok(())
    }

    /// What there is to say when something is wrong.
    pub(crate) async fn standing(&self) -> String {
        let mut text = self.last_round.clone();
        for (at, node) in self.nodes.iter().enumerate() {
            let name = node.name;
            text += &match self.shared.connect(at).await {
                Ok((session, in_recovery)) => {
                    let copies = session.rows("SELECT * FROM aerostat.copies").await;
                    format!("\nnode {name}: in recovery {in_recovery}, aerostat.copies {copies:?}")
                }
                Err(failure) => format!("\nnode {name}: {failure}"),
            };
        }
        for node in &self.nodes {
            text += &format!("\nthe end of node {}'s log:\n{}", node.name, node.log_end());
        }
        text
    }

    /// What was done, in a few lines.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!(
            "{} promotions by command, {} definitions, {} comparisons; commits while a node was missing in {} rounds",
            self.promotions, self.definitions.acknowledged, self.comparisons, self.served_alone,
        );
        for (fault, count) in &self.faults {
            let mut gaps = self.gaps.get(fault).cloned().unwrap_or_default();
            gaps.sort_unstable();
            let ms = |at: usize| gaps.get(at).map_or(0, Duration::as_millis);
            let (median, most) = (ms(gaps.len() / 2), ms(gaps.len().saturating_sub(1)));
            text += &format!(
                "\n  {fault:?} {count} times; longest time without a commit: median {median} ms, at most {most} ms"
            );
        }
        text
    }
}
