//! `aerostat cluster`: who has which database, a plan for it, and nodes that come and go.
//!
//! ```text
//!  aerostat.cluster_nodes, cluster_databases ──► Picture ──► plan ──► printed, or
//!                                                             └── ALTER DATABASE … SET (nodes = …), one after another
//! ```

mod apply;
mod looking;
mod merge;
mod picture;
mod show;
mod upgrade;

use std::{num::NonZeroU32, time::Duration};

use aerostat_cluster::Picture;
use aerostat_placement::{Plan, Policy, Share};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use tokio_postgres::Client;

use super::{Target, block_on, connect, quote_name, tell};
use picture::{NodeRow, Rows};

/// How often it is looked how far something is.
const LOOK: Duration = Duration::from_millis(500);

/// A command about a cluster.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print the nodes, and which of them have which database
    Status(Shown),
    /// Print what `apply` would do, and how the nodes would bear the failure of any of them
    Plan(Planned),
    /// Move databases until every node bears the failure of any other
    Apply(Applied),
    /// Have a node give its databases to others, and wait for that
    Drain(Drained),
    /// Have a node take databases, as one that was drained does not
    Add(Named),
    /// Take a node that was drained and stopped out of the cluster
    Remove(Removed),
    /// Have one node after another go on as another build of the program
    Upgrade(upgrade::Upgraded),
    /// Have copies freeze, one while another serves
    Merge(merge::Merged),
}

/// What is printed.
#[derive(Args)]
pub(crate) struct Shown {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// What is planned.
#[derive(Args)]
pub(crate) struct Planned {
    /// The share of a node's threads that statements may take, also after a failure
    #[arg(long, default_value_t = 0.7, value_name = "SHARE")]
    load_max: f64,
    /// The share of a node's memory that copies may take
    #[arg(long, default_value_t = 0.8, value_name = "SHARE")]
    memory_max: f64,
    /// With how many other nodes a node may have databases in common: more divide a failed node's work better, fewer make
    /// it rarer that two failures take a database
    #[arg(long, default_value_t = 6, value_name = "NUMBER")]
    neighbours: usize,
    /// Copies that are made at most
    #[arg(long, default_value_t = 32, value_name = "NUMBER")]
    moves_max: usize,
    /// Seconds after which the copies of a node that says nothing are taken for lost
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    lost_after: u32,
    #[command(flatten)]
    shown: Shown,
}

/// How moves are made.
#[derive(Args)]
pub(crate) struct Applied {
    #[command(flatten)]
    planned: Planned,
    /// Databases that move at a time
    #[arg(long, default_value = "4", value_name = "NUMBER")]
    at_once: NonZeroU32,
    /// Seconds that one may take
    #[arg(long, default_value_t = 3_600, value_name = "SECONDS")]
    wait: u32,
}

/// A node.
#[derive(Args)]
pub(crate) struct Named {
    /// The node's name
    node: String,
    #[command(flatten)]
    target: Target,
}

/// A node that gives its databases to others.
#[derive(Args)]
pub(crate) struct Drained {
    #[command(flatten)]
    node: Named,
    /// Seconds to wait until it has none; 0: not at all
    #[arg(long, default_value_t = 3_600, value_name = "SECONDS")]
    wait: u32,
}

/// A node that goes.
#[derive(Args)]
pub(crate) struct Removed {
    #[command(flatten)]
    node: Named,
    /// Although it is to have copies of databases: these are made on other nodes
    #[arg(long)]
    force: bool,
}

/// Runs a command about a cluster.
///
/// # Errors
/// What the node refuses; something takes longer than it may.
pub(crate) fn run(command: &ClusterCommand) -> Result<()> {
    block_on(async {
        match command {
            ClusterCommand::Status(shown) => status(shown).await,
            ClusterCommand::Plan(planned) => plan(planned).await,
            ClusterCommand::Apply(applied) => apply(applied).await,
            ClusterCommand::Drain(drained) => drain(drained).await,
            ClusterCommand::Add(named) => add(named).await,
            ClusterCommand::Remove(removed) => remove(removed).await,
            ClusterCommand::Upgrade(upgraded) => upgrade::run(upgraded).await,
            ClusterCommand::Merge(merged) => merge::run(merged).await,
        }
    })
}

async fn session(target: &Target) -> Result<Client> {
    connect(&target.maintenance()?).await
}

async fn status(shown: &Shown) -> Result<()> {
    let rows = picture::read(&session(&shown.target).await?).await?;
    match shown.json {
        true => crate::print(&serde_json::to_string_pretty(&rows)?),
        false => crate::print(&show::status(&rows)),
    }
}

impl Planned {
    fn policy(&self) -> Result<Policy> {
        let rest = |name: &str, share: f64| match share > 0.0 && share <= 1.0 {
            true => Ok(Share::new(1.0 - share)?),
            false => Err(anyhow!("--{name} is a share above 0, and 1 at most")),
        };
        Ok(Policy {
            neighbours_max: self.neighbours,
            memory_headroom: rest("memory-max", self.memory_max)?,
            load_headroom: rest("load-max", self.load_max)?,
            copies_added_max: self.moves_max,
            ..Policy::default()
        })
    }

    async fn plan(&self, client: &Client) -> Result<(Picture, Plan)> {
        let policy = self.policy()?;
        let rows = picture::read(client).await?;
        let picture = rows.picture(Duration::from_secs(self.lost_after.into()))?;
        let plan = picture.plan(&policy)?;
        Ok((picture, plan))
    }
}

async fn plan(planned: &Planned) -> Result<()> {
    let (picture, plan) = planned.plan(&session(&planned.shown.target).await?).await?;
    match planned.shown.json {
        true => crate::print(&serde_json::to_string_pretty(&show::described(
            &picture, &plan,
        ))?),
        false => crate::print(&show::plan(&picture, &plan)),
    }
}

async fn apply(applied: &Applied) -> Result<()> {
    let client = session(&applied.planned.shown.target).await?;
    let (picture, plan) = applied.planned.plan(&client).await?;
    crate::print(&show::plan(&picture, &plan))?;
    let moves = apply::Moves {
        client: &client,
        target: &applied.planned.shown.target,
        at_once: applied.at_once.get() as usize,
        wait: Duration::from_secs(applied.wait.into()),
    };
    moves.run(&picture, picture.going(&plan, |_| true)).await
}

async fn drain(drained: &Drained) -> Result<()> {
    let Named { node, target } = &drained.node;
    let client = session(target).await?;
    tell(&client, &format!("ALTER NODE {} DRAIN", quote_name(node))).await?;
    if drained.wait == 0 {
        return crate::print(&format!("node {node} gives its databases to others"));
    }
    let began = tokio::time::Instant::now();
    let mut told = usize::MAX;
    loop {
        let rows = picture::read(&client).await?;
        let left = rows.left_on(node);
        if left.is_empty() {
            return crate::print(&drained_text(&rows, node));
        }
        if left.len() != told {
            told = left.len();
            crate::print(&format!("node {node} has {told} databases"))?;
        }
        let reasons = rows.stays_on(node)?;
        let is_over = began.elapsed() > Duration::from_secs(drained.wait.into());
        if is_over || (!reasons.is_empty() && reasons.len() == left.len()) {
            let left: Vec<&str> = left.iter().map(|row| row.name.as_str()).collect();
            bail!(
                "node {node} still has {}{}",
                left.join(", "),
                match reasons.is_empty() {
                    true => String::new(),
                    false => format!(": {}", reasons.join("; ")),
                }
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What is said when nothing has to be moved any more.
fn drained_text(rows: &Rows, node: &str) -> String {
    let everywhere = rows.databases.iter().filter(|row| row.nodes.is_none());
    let everywhere: Vec<&str> = everywhere.map(|row| row.name.as_str()).collect();
    match everywhere.is_empty() {
        true => format!("node {node} has no databases"),
        false => format!(
            "node {node} has no databases but those that every node has: {}",
            everywhere.join(", ")
        ),
    }
}

async fn add(named: &Named) -> Result<()> {
    let client = session(&named.target).await?;
    let node = &named.node;
    tell(&client, &format!("ALTER NODE {} RESUME", quote_name(node))).await?;
    let rows = picture::read(&client).await?;
    let is_up = |row: &&NodeRow| row.name == *node && row.is_up();
    crate::print(&match rows.nodes.iter().find(is_up) {
        Some(_) => format!(
            "node {node} takes databases; `aerostat cluster plan` shows which would be better there"
        ),
        None => format!("node {node} will take databases when it runs"),
    })
}

async fn remove(removed: &Removed) -> Result<()> {
    let Named { node, target } = &removed.node;
    let client = session(target).await?;
    let force = if removed.force { " WITH (FORCE)" } else { "" };
    let sql = format!("DROP NODE {}{force}", quote_name(node));
    tell(&client, &sql)
        .await
        .with_context(|| format!("node {node} stays"))?;
    crate::print(&format!("the cluster has no node {node} any more"))
}
