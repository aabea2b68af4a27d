//! `aerostat cluster upgrade`: one node after another goes on as another build.
//!
//! ```text
//!  every node: CHECK UPGRADE ──► one refuses: nothing has happened
//!  the next that runs another build, the one that coordinates last:
//!     all nodes run, all copies are current ──► UPGRADE ──► it is back, as that build ──► its copies are current ─┐
//!              ▲                                    └── not in time: the error says what to do              │
//!              └────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Nothing is remembered but by the nodes themselves, so that whoever runs it again goes on.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Error, error::SqlState};

use super::{
    super::{Target, quote_name, refusal},
    LOOK,
    looking::{Looking, at_node},
    picture::{BuildRow, NodeRow, Rows},
};

/// Nodes that go on as another build.
#[derive(Args)]
pub(crate) struct Upgraded {
    /// The program of that build, as each node finds it: in the folder of its --upgrades
    #[arg(long, value_name = "PATH")]
    binary: String,
    /// Only find out whether every node could
    #[arg(long)]
    dry_run: bool,
    /// Although databases without another copy are away meanwhile; nodes that do not run are passed over
    #[arg(long)]
    accept_outage: bool,
    /// Seconds that a node may take to come back and to have its copies current
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    wait: u32,
    #[command(flatten)]
    target: Target,
}

/// Why a node did not take a statement.
enum Untold {
    /// It says why.
    Refused(anyhow::Error),
    /// It is not known; it may be on its way.
    Away(anyhow::Error),
}

/// The builds that nodes are to run, by node.
type Wanted = BTreeMap<String, BuildRow>;

/// Upgrades a cluster.
///
/// # Errors
/// A node cannot go on as that build, or did not come back.
pub(super) async fn run(upgraded: &Upgraded) -> Result<()> {
    let upgrade = Upgrade {
        upgraded,
        wait: Duration::from_secs(upgraded.wait.into()),
    };
    let mut looking = Looking::new(&upgraded.target);
    let rows = looking.rows().await?;
    upgrade.require_others(&rows)?;
    let wanted = upgrade.check_all(&mut looking).await?;
    let rows = looking.rows().await?;
    let due = due(&rows, &wanted);
    for node in &rows.nodes {
        crate::print(&told(node, &wanted, &due))?;
    }
    if due.is_empty() || upgraded.dry_run {
        return crate::print(match due.is_empty() {
            true => "nothing is left to do",
            false => "every node can; nothing has been done",
        });
    }
    upgrade.go_on(&mut looking, &wanted).await
}

/// What is about to happen to a node.
fn told(node: &NodeRow, wanted: &Wanted, due: &[&NodeRow]) -> String {
    let name = &node.name;
    match wanted.get(name) {
        None => format!("node {name} does not run, and is passed over"),
        Some(build) if due.iter().any(|of| of.name == *name) => {
            format!("node {name} runs {}, and is to run {build}", node.running())
        }
        Some(build) => format!("node {name} runs {build} already"),
    }
}

/// Nodes that run another build than they are to.
fn due<'r>(rows: &'r Rows, wanted: &Wanted) -> Vec<&'r NodeRow> {
    let is_due = |node: &&NodeRow| {
        let build = wanted.get(&node.name);
        build.is_some_and(|build| node.build.as_ref() != Some(build))
    };
    rows.nodes.iter().filter(is_due).collect()
}

/// The node that is to go on next: the one that coordinates, which leads the database with the lowest number, is the
/// last, so that the coordinator does not change with every node.
fn next<'r>(rows: &Rows, due: &[&'r NodeRow]) -> Option<&'r NodeRow> {
    let first = rows.databases.iter().min_by_key(|row| row.number);
    let coordinates = first.and_then(|row| row.leader.as_ref());
    let others = due.iter().find(|node| Some(&node.name) != coordinates);
    others.or(due.first()).copied()
}

/// Why the cluster is not whole, if it is not. Where an outage is accepted, nodes that do not run do not count, nor
/// databases of which only one node that runs has a copy: they are away in any case.
fn lacks(rows: &Rows, is_outage_accepted: bool) -> Option<String> {
    let away = rows.nodes.iter().find(|node| !node.is_up());
    let is_any_up = rows.nodes.iter().any(NodeRow::is_up);
    if let Some(node) = away
        && !(is_outage_accepted && is_any_up)
    {
        return Some(format!("node {} does not run ({})", node.name, node.state));
    }
    let late = rows.databases.iter().find_map(|row| {
        let up = rows.nodes.iter().filter(|node| node.is_up());
        let on: Vec<&NodeRow> = up.filter(|node| row.is_on(node)).collect();
        if is_outage_accepted && on.len() < 2 {
            return None;
        }
        let mut on = on.into_iter();
        let node = on.find(|node| !row.current.contains(&node.name))?;
        Some((row, node))
    });
    late.map(|(row, node)| {
        format!(
            "the copy of database {} on node {} is not current",
            row.name, node.name
        )
    })
}

struct Upgrade<'a> {
    upgraded: &'a Upgraded,
    wait: Duration,
}

impl Upgrade<'_> {
    /// Refuses to take databases away that have no other copy, unless that is accepted.
    fn require_others(&self, rows: &Rows) -> Result<()> {
        let copies =
            |nodes: &Option<Vec<String>>| nodes.as_ref().map_or(rows.nodes.len(), Vec::len);
        let alone = rows.databases.iter().filter(|row| copies(&row.nodes) < 2);
        let alone: Vec<&str> = alone.map(|row| row.name.as_str()).collect();
        if alone.is_empty() || self.upgraded.accept_outage {
            return Ok(());
        }
        bail!(
            "these databases have one copy, and would be away while its node restarts: {}\nGive them another (ALTER DATABASE … SET (copies = 2)), or run this with --accept-outage",
            alone.join(", ")
        )
    }

    /// Waits until every node runs and every copy is current, or for as long as that may take.
    async fn whole(&self, looking: &mut Looking<'_>) -> Result<Rows> {
        let began = Instant::now();
        loop {
            let rows = looking.rows().await;
            let lacking = match &rows {
                Ok(rows) => lacks(rows, self.upgraded.accept_outage),
                Err(error) => Some(format!("{error:#}")),
            };
            match (rows, lacking) {
                (Ok(rows), None) => return Ok(rows),
                (_, Some(why)) if began.elapsed() > self.wait => {
                    bail!(
                        "{why} after {} s; nothing more has been done",
                        self.wait.as_secs()
                    )
                }
                _ => sleep(LOOK).await,
            }
        }
    }

    /// Has every node find out whether it can go on as the build; which that is.
    async fn check_all(&self, looking: &mut Looking<'_>) -> Result<Wanted> {
        let began = Instant::now();
        loop {
            let rows = self.whole(looking).await?;
            let mut wanted = Wanted::new();
            let mut away = None;
            for node in rows.nodes.iter().filter(|node| node.is_up()) {
                match self.check(&rows, node).await {
                    Ok(build) => {
                        wanted.insert(node.name.clone(), build);
                    }
                    Err(Untold::Refused(error)) => {
                        return Err(error.context(format!(
                            "node {} cannot go on as {}; nothing has been done",
                            node.name, self.upgraded.binary
                        )));
                    }
                    Err(Untold::Away(error)) => away = Some((node.name.clone(), error)),
                }
            }
            match away {
                None => return Ok(wanted),
                Some((name, error)) if began.elapsed() > self.wait => {
                    return Err(error.context(format!(
                        "node {name} cannot be asked; nothing has been done"
                    )));
                }
                // One that was on its way when this was ended comes back.
                Some(_) => sleep(LOOK).await,
            }
        }
    }

    async fn check(&self, rows: &Rows, node: &NodeRow) -> Result<BuildRow, Untold> {
        let client = self.tell(rows, node, "CHECK UPGRADE").await?;
        let sql = "SELECT next_version, next_build FROM aerostat.cluster_nodes WHERE name = $1";
        let row = client.query_one(sql, &[&node.name]).await;
        let row = row.map_err(|error| Untold::Away(error.into()))?;
        let build = BuildRow::of(row.try_get(0).ok().flatten(), row.try_get(1).ok().flatten());
        build.ok_or_else(|| {
            let why = anyhow::anyhow!("node {} does not say which build it has checked", node.name);
            Untold::Away(why)
        })
    }

    /// Has a node do something about the program.
    async fn tell(&self, rows: &Rows, node: &NodeRow, what: &str) -> Result<Client, Untold> {
        let client = at_node(&self.upgraded.target, rows, node).await;
        let client = client.map_err(Untold::Away)?;
        let sql = format!(
            "ALTER NODE {} {what} TO '{}'",
            quote_name(&node.name),
            self.upgraded.binary.replace('\'', "''")
        );
        let told = client.batch_execute(&sql).await;
        match told {
            Ok(()) => Ok(client),
            Err(error) if is_away(&error) => Err(Untold::Away(refusal(error))),
            Err(error) => Err(Untold::Refused(refusal(error))),
        }
    }

    /// One node after another, until none is due.
    async fn go_on(&self, looking: &mut Looking<'_>, wanted: &Wanted) -> Result<()> {
        let mut done = 0;
        let mut tried = Instant::now();
        loop {
            let rows = self.whole(looking).await?;
            // Some may have been made meanwhile.
            self.require_others(&rows)?;
            let due = due(&rows, wanted);
            let Some(node) = next(&rows, &due) else {
                return crate::print(&format!("{done} nodes have gone on as another build"));
            };
            let began = Instant::now();
            match self.tell(&rows, node, "UPGRADE").await {
                Ok(_) => {}
                Err(Untold::Refused(error)) => {
                    return Err(error.context(format!(
                        "node {} stays as it is, and so do those behind it",
                        node.name
                    )));
                }
                Err(Untold::Away(error)) if tried.elapsed() > self.wait => {
                    return Err(error.context(format!(
                        "node {} stays as it is, and so do those behind it",
                        node.name
                    )));
                }
                // It may have been told, or not: it is looked at again.
                Err(Untold::Away(_)) => {
                    sleep(LOOK).await;
                    continue;
                }
            }
            crate::print(&format!(
                "node {} gives its leads to others and restarts",
                node.name
            ))?;
            self.await_back(looking, node, &wanted[&node.name]).await?;
            done += 1;
            tried = Instant::now();
            let seconds = began.elapsed().as_secs_f64();
            crate::print(&format!(
                "node {} is back, and its copies are current, after {seconds:.1} s",
                node.name
            ))?;
        }
    }

    /// Waits until a node runs the build, and has its copies current.
    async fn await_back(
        &self,
        looking: &mut Looking<'_>,
        node: &NodeRow,
        build: &BuildRow,
    ) -> Result<()> {
        let began = Instant::now();
        let name = &node.name;
        let before = node.running();
        loop {
            sleep(LOOK).await;
            let rows = looking.rows().await;
            let is_late = began.elapsed() > self.wait;
            let seconds = self.wait.as_secs();
            let rows = match rows {
                Ok(rows) => rows,
                Err(error) if is_late => {
                    return Err(error).with_context(|| format!("node {name} was told to restart"));
                }
                Err(_) => continue,
            };
            let now = rows.nodes.iter().find(|of| of.name == *name);
            let now = now.with_context(|| format!("the cluster has no node {name} any more"))?;
            let is_back = now.build.as_ref() == Some(build) && now.next_build.is_none();
            if !is_back && now.next_build.is_none() && now.build.is_some() {
                bail!(
                    "node {name} came back as {}, and not as {build}; the other nodes are as they are\nIts log says why: either the program did not start, or something else has started the node",
                    now.running()
                );
            }
            let late: Vec<&str> = rows
                .databases
                .iter()
                .filter(|row| row.is_on(now) && !row.current.contains(name))
                .map(|row| row.name.as_str())
                .collect();
            match (is_back && now.is_up(), late.is_empty()) {
                (true, true) => return Ok(()),
                (true, false) if is_late => bail!(
                    "node {name} runs {build}, and after {seconds} s its copies are not current of {}; the other nodes are as they are\nIts log says why. When they are (`aerostat cluster status`), run this again to go on",
                    late.join(", ")
                ),
                (false, _) if is_late => bail!(
                    "node {name} did not come back as {build} within {seconds} s; the other nodes are as they are\nIts log says why. Start it with what it ran before ({before}), or with a program that works, and run this again to go on"
                ),
                _ => {}
            }
        }
    }
}

/// Whether a node may not have heard, or is about to end.
fn is_away(error: &Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => {
            *code == SqlState::ADMIN_SHUTDOWN
                || *code == SqlState::CANNOT_CONNECT_NOW
                || code.code().starts_with("08")
                // Another node is on its way, by somebody else's upgrade or one that was ended.
                || *code == SqlState::OBJECT_IN_USE
                // Another node has changed the list at the same time.
                || *code == SqlState::T_R_SERIALIZATION_FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::picture::told::{database, node},
        *,
    };

    #[test]
    fn an_outage_that_is_accepted_is_not_one_more() {
        let lacking = |c: &str, nodes: &[&str], current: &[&str]| {
            let rows = Rows {
                nodes: vec![node("a", "up"), node("b", "up"), node("c", c)],
                databases: vec![database(nodes, current)],
            };
            [false, true].map(|is_accepted| lacks(&rows, is_accepted).is_some())
        };
        let all = ["a", "b", "c"];
        assert_eq!(lacking("up", &all, &all), [false, false]);
        // The next one to go could be the only one that has everything.
        assert_eq!(lacking("up", &all, &["a"]), [true, true]);
        assert_eq!(lacking("lost", &all, &["a"]), [true, true]);
        assert_eq!(lacking("lost", &all, &["a", "b"]), [true, false]);
        // It is away in any case.
        assert_eq!(lacking("up", &["a"], &[]), [true, false]);
        assert_eq!(lacking("lost", &["b", "c"], &[]), [true, false]);
        let rows = Rows {
            nodes: vec![node("a", "lost")],
            databases: Vec::new(),
        };
        assert!(lacks(&rows, true).is_some());
    }
}
