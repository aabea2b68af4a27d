//! `aerostat backup` and `aerostat restore`: one database of a running node, while the
//! others go on. The node reads and writes the folders, so they are on its machine.

use std::path::{Path, PathBuf};

use aerostat_storage::backup::{BackupInfo, FolderSource, verify};
use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};

use super::{Target, block_on, connect};

/// What to do about a backup.
#[derive(Args)]
pub(crate) struct BackupArguments {
    #[command(subcommand)]
    what: Option<BackupCommand>,
    /// Database to back up
    #[arg(long, required = true)]
    database: Option<String>,
    /// Folder to write, empty or not there
    #[arg(long, required = true)]
    to: Option<PathBuf>,
    /// An earlier backup, whose files are linked instead of copied
    #[arg(long)]
    incremental_from: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Subcommand)]
enum BackupCommand {
    /// Read a whole backup and say what it is of; needs no node
    Verify {
        /// Its folder
        folder: PathBuf,
    },
}

/// What to make a database of.
#[derive(Args)]
pub(crate) struct RestoreArguments {
    /// Name of the database to make
    #[arg(long)]
    database: String,
    /// Folder of the backup
    #[arg(long)]
    from: PathBuf,
    /// Folders with the log after the backup
    #[arg(long)]
    log: Vec<PathBuf>,
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
    if let Some(BackupCommand::Verify { folder }) = &arguments.what {
        let info = verify(&FolderSource::new(folder))
            .with_context(|| format!("{} is no good backup", folder.display()))?;
        return crate::print(&shown(&info));
    }
    let (Some(database), Some(to)) = (&arguments.database, &arguments.to) else {
        return Err(anyhow!("name a database and a folder"));
    };
    let mut sql = format!("BACKUP DATABASE {} TO {}", name(database), path(to)?);
    if let Some(base) = &arguments.incremental_from {
        sql += &format!(" INCREMENTAL FROM {}", path(base)?);
    }
    block_on(execute(&arguments.target, &sql))?;
    let info = BackupInfo::read(&FolderSource::new(to));
    // On another machine the folder cannot be seen from here.
    info.map_or_else(|_| crate::print("done"), |info| crate::print(&shown(&info)))
}

/// Restores a backup as a new database.
///
/// # Errors
/// What the node refuses.
pub(crate) fn restore(arguments: RestoreArguments) -> Result<()> {
    let from = path(&arguments.from)?;
    let mut sql = format!("RESTORE DATABASE {} FROM {from}", name(&arguments.database));
    if !arguments.log.is_empty() {
        let logs: Vec<String> = arguments
            .log
            .iter()
            .map(|log| path(log))
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

async fn execute(target: &Target, sql: &str) -> Result<()> {
    let client = connect(&target.maintenance()?).await?;
    client
        .batch_execute(sql)
        .await
        .map_err(|error| match error.as_db_error() {
            Some(refused) => {
                let more = [refused.detail(), refused.hint()];
                let more = more.into_iter().flatten().map(|line| format!("\n{line}"));
                anyhow!("{}{}", refused.message(), more.collect::<String>())
            }
            None => error.into(),
        })
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

/// The absolute path of a folder as a literal.
fn path(folder: &Path) -> Result<String> {
    let absolute = std::path::absolute(folder)?;
    let text = absolute
        .to_str()
        .with_context(|| format!("{} is not UTF-8", absolute.display()))?;
    Ok(literal(text))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
