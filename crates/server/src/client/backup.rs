//! `aerostat backup` and `aerostat restore`: one database of a running node, while the
//! others go on. The node reads and writes the places, so folders are those of its machine,
//! and credentials of object stores are in its environment. `verify` reads by itself.

use aerostat_objects::{ObjectPlaces, is_absolute};
use aerostat_storage::backup::{BackupInfo, BackupSource, Places, verify};
use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use tokio_postgres::error::SqlState;

use super::{Target, block_on, connect, refusal, tell};

/// What to do about a backup.
#[derive(Args)]
pub(crate) struct BackupArguments {
    #[command(subcommand)]
    what: Option<BackupCommand>,
    /// Database to back up
    #[arg(long, required = true)]
    database: Option<String>,
    /// Folder, or URL in an object store such as s3://bucket/prefix, where nothing is yet
    #[arg(long, required = true)]
    to: Option<String>,
    /// An earlier backup beside it, whose files are linked or copied there
    #[arg(long)]
    incremental_from: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum BackupCommand {
    /// Read a whole backup and say what it is of; needs no node
    Verify {
        /// Its folder or URL
        place: String,
    },
}

/// What to make a database of.
#[derive(Args)]
pub(crate) struct RestoreArguments {
    /// Name of the database to make
    #[arg(long)]
    database: String,
    /// Folder or URL of the backup
    #[arg(long)]
    from: String,
    /// Folders or URLs with the log after the backup
    #[arg(long)]
    log: Vec<String>,
    /// Go no further than this time, such as '2026-11-22 12:00:00+01'
    #[arg(long, conflicts_with = "until_commit")]
    until: Option<String>,
    /// Go no further than this commit
    #[arg(long)]
    until_commit: Option<u64>,
    #[command(flatten)]
    target: Target,
}

/// Backs a database up, or verifies a backup.
///
/// # Errors
/// What the node refuses, or what is wrong with the backup.
pub(crate) fn run(arguments: BackupArguments) -> Result<()> {
    if let Some(BackupCommand::Verify { place }) = &arguments.what {
        let info = source(place)
            .and_then(|source| Ok(verify(&*source)?))
            .context("this is no good backup")?;
        return crate::print(&shown(&info));
    }
    let (Some(database), Some(to)) = (&arguments.database, &arguments.to) else {
        return Err(anyhow!("name a database and a place"));
    };
    let mut sql = format!("BACKUP DATABASE {} TO {}", name(database), place(to)?);
    if let Some(base) = &arguments.incremental_from {
        sql += &format!(" INCREMENTAL FROM {}", place(base)?);
    }
    block_on(back_up(&arguments.target, database, &sql))?;
    let info = source(to).and_then(|source| Ok(BackupInfo::read(&*source)?));
    // The place may be one that only the node can see.
    info.map_or_else(|_| crate::print("done"), |info| crate::print(&shown(&info)))
}

/// Restores a backup as a new database.
///
/// # Errors
/// What the node refuses.
pub(crate) fn restore(arguments: RestoreArguments) -> Result<()> {
    let from = place(&arguments.from)?;
    let mut sql = format!("RESTORE DATABASE {} FROM {from}", name(&arguments.database));
    if !arguments.log.is_empty() {
        let logs: Vec<String> = arguments
            .log
            .iter()
            .map(|log| place(log))
            .collect::<Result<_>>()?;
        sql += &format!(" LOG {}", logs.join(", "));
    }
    if let Some(time) = &arguments.until {
        sql += &format!(" UNTIL {}", literal(time));
    }
    if let Some(commit) = arguments.until_commit {
        sql += &format!(" UNTIL COMMIT {commit}");
    }
    block_on(execute(&arguments.target, &sql))?;
    crate::print(&format!("database {} is there", arguments.database))
}

/// Runs a statement on the node that the URL names.
async fn execute(target: &Target, sql: &str) -> Result<()> {
    tell(&connect(&target.maintenance()?).await?, sql).await
}

/// Backs a database up, where it is: of a cluster's nodes not all have it.
async fn back_up(target: &Target, database: &str, sql: &str) -> Result<()> {
    let client = connect(&target.maintenance()?).await?;
    match client.batch_execute(sql).await {
        // Who connects to it is passed on to a node that has it.
        Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => {
            tell(&connect(&target.database(database)?).await?, sql).await
        }
        done => done.map_err(refusal),
    }
}

fn shown(info: &BackupInfo) -> String {
    format!(
        "backup of database {} at commit {}: {} rows, {} files, {} bytes",
        info.database,
        info.at,
        info.rows,
        info.files.len(),
        info.bytes
    )
}

/// The files at a place, read from here.
fn source(place: &str) -> Result<Box<dyn BackupSource>> {
    Ok(ObjectPlaces::new().source(&absolute(place)?)?)
}

/// A place as a literal, wherever the node was started.
fn place(text: &str) -> Result<String> {
    Ok(literal(&absolute(text)?))
}

fn absolute(place: &str) -> Result<String> {
    if is_absolute(place) {
        return Ok(place.to_owned());
    }
    let path = std::path::absolute(place)?;
    let text = path.into_os_string().into_string();
    text.map_err(|path| anyhow!("{} is not UTF-8", path.display()))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
