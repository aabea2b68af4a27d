//! `aerostat promote`: a node leads a database from now on.

use aerostat_pgclient::Server;
use anyhow::{Context, Result, anyhow};
use clap::Args;

use super::{Target, block_on, connect};

/// Which node is to lead which database.
#[derive(Args)]
pub(crate) struct PromoteArguments {
    /// The database
    #[arg(long)]
    database: String,
    /// Seconds to wait until the node leads
    #[arg(long, default_value_t = 60)]
    wait: u32,
    /// The node that is to lead
    #[command(flatten)]
    target: Target,
}

/// Has the node that the URL names lead a database.
///
/// # Errors
/// What the node refuses, or it does not lead in time.
pub(crate) fn run(arguments: &PromoteArguments) -> Result<()> {
    block_on(promote(arguments))
}

async fn promote(arguments: &PromoteArguments) -> Result<()> {
    let database = &arguments.database;
    let target = arguments.target.database(database)?;
    crate::print(&match lead(target, arguments.wait).await? {
        true => format!("the node leads database {database}"),
        false => format!("the node leads database {database} already"),
    })
}

/// Has a node lead the database that is connected to there, and waits so many seconds; `false` if it did already.
///
/// # Errors
/// What the node refuses, or it does not lead in time.
pub(super) async fn lead(mut server: Server, wait: u32) -> Result<bool> {
    // The node itself is meant, and not the one that leads.
    let target = &mut server.config;
    let options = target.get_options().unwrap_or_default();
    let options = format!("{options} -c aerostat.read_from=any");
    target.options(options);
    let database = target.get_dbname().unwrap_or_default().to_owned();
    let client = connect(&server).await?;
    let row = client
        .query_one("SELECT pg_is_in_recovery()", &[])
        .await
        .context("cannot ask the node")?;
    if !row.get::<_, bool>(0) {
        return Ok(false);
    }
    let sql = format!("SELECT pg_promote(true, {wait})");
    let promoted =
        client
            .query_one(&sql, &[])
            .await
            .map_err(|error| match error.as_db_error() {
                Some(refused) => anyhow!("{}", refused.message()),
                None => error.into(),
            })?;
    match promoted.get::<_, bool>(0) {
        true => Ok(true),
        false => Err(anyhow!(
            "the node does not lead database {database} after {wait} s"
        )),
    }
}
