//! `aerostat cluster merge`: one copy of a database freezes while another serves.
//!
//! ```text
//!  a leads, b, c follow     b, c: VACUUM FREEZE, each by itself ─► b leads, sessions go along ─► a: VACUUM FREEZE
//! ```
//!
//! Freezing is a copy's own: what one has frozen is in no log. So statements at the leader never run beside it.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use tokio::time::{Instant, sleep};

use super::{
    super::{Target, promote::lead, refusal},
    LOOK,
    looking::{Looking, in_database},
    picture::{NodeRow, Rows},
};

/// Which databases are merged.
#[derive(Args)]
pub(crate) struct Merged {
    /// The database; without it, every one
    #[arg(long)]
    database: Option<String>,
    /// Seconds that it may take until another node leads, and the former leader's copy can be used
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    wait: u32,
    #[command(flatten)]
    target: Target,
}

/// Has copies freeze.
///
/// # Errors
/// One is refused, or no other node leads in time. What has frozen stays so.
pub(super) async fn run(merged: &Merged) -> Result<()> {
    let mut looking = Looking::new(&merged.target);
    let rows = looking.rows().await?;
    let names: Vec<String> = rows.databases.iter().map(|row| row.name.clone()).collect();
    let names = match &merged.database {
        None => names,
        Some(name) if names.contains(name) => vec![name.clone()],
        Some(name) => bail!("the cluster has no database {name}"),
    };
    for name in names {
        let merging = merge(merged, &mut looking, &name).await;
        merging.with_context(|| format!("database {name} is not merged"))?;
    }
    Ok(())
}

async fn merge(merged: &Merged, looking: &mut Looking<'_>, name: &str) -> Result<()> {
    let rows = looking.rows().await?;
    let row = rows.databases.iter().find(|row| row.name == name);
    let row = row.context("it was dropped")?;
    let leader = row.leader.as_ref().context("nobody leads it")?;
    let copies = rows.nodes.iter();
    let copies = copies.filter(|node| node.name != *leader && row.current.contains(&node.name));
    let copies: Vec<&NodeRow> = copies.collect();
    for node in &copies {
        freeze(merged, node, name).await?;
    }
    if let Some(next) = copies.first() {
        let mut at = merged.target.at(&next.clients)?;
        at.config.dbname(name);
        lead(at, merged.wait).await?;
        crate::print(&format!("{name}: node {} leads", next.name))?;
    }
    let node = node(&rows, leader)?;
    freeze(merged, node, name).await
}

fn node<'r>(rows: &'r Rows, name: &str) -> Result<&'r NodeRow> {
    let mut nodes = rows.nodes.iter();
    let node = nodes.find(|node| node.name == *name);
    node.ok_or_else(|| anyhow!("node {name} is gone"))
}

/// Has a node's copy freeze. One that has just led is opened again, and is waited for.
async fn freeze(merged: &Merged, node: &NodeRow, name: &str) -> Result<()> {
    let began = Instant::now();
    let client = loop {
        match in_database(&merged.target, node, name).await {
            Ok(client) => break client,
            Err(error) if began.elapsed() > Duration::from_secs(merged.wait.into()) => {
                return Err(error);
            }
            Err(_) => sleep(LOOK).await,
        }
    };
    let began = Instant::now();
    let frozen = client.batch_execute("VACUUM FREEZE").await;
    frozen
        .map_err(refusal)
        .with_context(|| format!("the copy on node {} has not frozen", node.name))?;
    let seconds = began.elapsed().as_secs_f64();
    crate::print(&format!(
        "{name}: the copy on node {} has frozen, in {seconds:.1} s",
        node.name
    ))
}
