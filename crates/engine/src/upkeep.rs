//! What the node does by itself, for every database: checkpoints, so that logs stay
//! short, freezing, so that rows take less memory, and layouts that follow advice. Logs that
//! the disk refused are brought back once it takes them, and the heap is trimmed, so that
//! memory comes down with the load.
//!
//! All run on blocking threads of the query runtime, one database at a time, and
//! none stops readers or writers.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use aerostat_advice::{Machine, Verdict};
use aerostat_catalog::{Database, TableEntry, ddl};
use aerostat_memory::{HeapKeeper, purge_heap};
use aerostat_storage::{StorageError, Table};
use aerostat_txn::CancelToken;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// How often it is asked whether a checkpoint is due, and freed memory is given back: a log
/// grows by at most a few hundred MB meanwhile.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is looked meanwhile whether somebody waits for memory.
const WAITED_LOOKS: u32 = 10;

/// How often it is tried to bring back logs that the disk refused.
const MEND_INTERVAL: Duration = Duration::from_secs(2);

/// How often the freezer looks at each table. What was not written between two looks
/// counts as cold.
const FREEZE_INTERVAL: Duration = Duration::from_secs(5);

/// How upkeep is done.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepOptions {
    /// How much of one core the freezer may take, in percent; 0 pauses it.
    pub freezer_percent: u8,
    /// When values leave memory.
    pub eviction: Eviction,
}

/// When values of frozen segments leave memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// When it is full.
    #[default]
    WhenFull,
    /// For tests: as soon as nobody reads them, all of them, and everything is frozen without a rest.
    Always,
}

/// A pause of [`Eviction::Always`].
const ALWAYS_INTERVAL: Duration = Duration::from_millis(5);

impl Engine {
    /// Keeps the node up until it is told to stop.
    pub async fn keep_up(self: Arc<Self>, options: UpkeepOptions, stop: CancellationToken) {
        let _keeper = self.keep_heap_small();
        let all = async {
            tokio::join!(
                self.keep_logs_short(),
                self.keep_logs_open(),
                self.keep_rows_small(options),
                self.keep_values_out(options)
            )
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = all => {}
        }
    }

    /// Gives freed memory back at once where the process is large, and keeps the budget told of what it
    /// holds beyond.
    fn keep_heap_small(&self) -> Option<HeapKeeper> {
        match HeapKeeper::start(Arc::clone(self.governor())) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                tracing::warn!(%error, "no thread to keep the heap small");
                None
            }
        }
    }

    async fn keep_logs_short(self: &Arc<Self>) {
        loop {
            // Who waits for memory may wait for the images of what was frozen lately.
            for _ in 0..WAITED_LOOKS {
                sleep(CHECKPOINT_INTERVAL / WAITED_LOOKS).await;
                if self.is_waited_for() {
                    break;
                }
            }
            let engine = Arc::clone(self);
            let work = move || {
                engine.checkpoint_where_due();
                purge_heap();
            };
            self.wait_for_blocking(work).await;
        }
    }

    /// Whether a statement waits for memory.
    fn is_waited_for(&self) -> bool {
        let databases = self.kept_up();
        let mut databases = databases.iter().filter_map(|database| database.upgrade());
        databases.any(|database| database.store.is_waited_for())
    }

    async fn keep_logs_open(self: &Arc<Self>) {
        loop {
            sleep(MEND_INTERVAL).await;
            for database in self.kept_up() {
                let Some(database) = database.upgrade() else {
                    continue;
                };
                if database.store.log_failure().is_some() {
                    self.wait_for_blocking(move || mend(&database)).await;
                }
            }
        }
    }

    fn checkpoint_where_due(&self) {
        for database in self.kept_up() {
            let Some(database) = database.upgrade() else {
                continue;
            };
            if database.store.is_leaving() || !database.store.wants_checkpoint() {
                continue;
            }
            let name = database.name.read().clone();
            match database.store.checkpoint() {
                Ok(Some(done)) => tracing::info!(
                    database = name,
                    at = done.at.0,
                    images = done.images_written,
                    kept = done.images_kept,
                    bytes = done.bytes_written,
                    seconds = done.duration.as_secs_f64(),
                    "checkpoint"
                ),
                Ok(None) | Err(StorageError::Cancelled) => {}
                Err(error) => tracing::error!(
                    database = name,
                    error = &error as &dyn std::error::Error,
                    "no checkpoint; the log stays and a later one tries again"
                ),
            }
        }
    }

    async fn keep_rows_small(self: &Arc<Self>, options: UpkeepOptions) {
        if options.freezer_percent == 0 {
            tracing::info!("the freezer is paused");
            return std::future::pending().await;
        }
        loop {
            sleep(FREEZE_INTERVAL).await;
            for database in self.kept_up() {
                for entry in tables_of(&database) {
                    let started = Instant::now();
                    let (database, machine) = (database.clone(), Arc::clone(self.machine()));
                    let work = move || {
                        let database = database.upgrade()?;
                        if database.store.is_leaving() {
                            return None;
                        }
                        let entry = entry.upgrade()?;
                        keep(&database, &entry, &machine);
                        Some(())
                    };
                    self.wait_for_blocking(move || {
                        work();
                    })
                    .await;
                    sleep(rest(started.elapsed(), options.freezer_percent)).await;
                }
            }
        }
    }

    /// See [`Eviction::Always`].
    async fn keep_values_out(self: &Arc<Self>, options: UpkeepOptions) {
        if options.eviction == Eviction::WhenFull {
            return std::future::pending().await;
        }
        loop {
            for database in self.kept_up() {
                sleep(ALWAYS_INTERVAL).await;
                let work = move || {
                    if let Some(database) = database.upgrade() {
                        take_out(&database);
                    }
                };
                self.wait_for_blocking(work).await;
            }
        }
    }

    /// The databases that are there now. Nobody keeps one meanwhile: it may be closed.
    fn kept_up(&self) -> Vec<Weak<Database>> {
        let open = self.node().open_databases();
        open.iter().map(Arc::downgrade).collect()
    }

    async fn wait_for_blocking(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.queries().spawn_blocking(work).await {
            tracing::error!(%error, "a piece of upkeep ended early");
        }
    }
}

/// The tables of a database, if it is there; kept no more than that.
fn tables_of(database: &Weak<Database>) -> Vec<Weak<TableEntry>> {
    let Some(database) = database.upgrade() else {
        return Vec::new();
    };
    let entries = database.catalog.load().table_entries();
    entries.iter().map(Arc::downgrade).collect()
}

/// Brings a log that the disk refused back, if it takes it by now.
fn mend(database: &Database) {
    let name = database.name.read().clone();
    match database.store.mend_log() {
        Ok(()) => tracing::info!(database = name, "the commit log takes changes again"),
        Err(error) => tracing::debug!(
            database = name,
            error = &error as &dyn std::error::Error,
            "the commit log takes no changes yet"
        ),
    }
}

/// One table's turn.
fn keep(database: &Database, entry: &TableEntry, machine: &Machine) {
    let table = &entry.table;
    // On a copy that is its leader's to decide, whose catalogue names the layouts.
    if entry.auto_layout && database.takes_changes() {
        follow_advice(database, entry, machine);
    }
    // What ALTER TABLE or a crash has left in an older layout.
    let statistics = table.statistics();
    if statistics.segments_in_shape < statistics.segments {
        reshape(table);
    }
    freeze(table);
}

/// Gives the table the layout that its statements suggest, if that pays.
fn follow_advice(database: &Database, entry: &TableEntry, machine: &Machine) {
    let table = &entry.table;
    let advice = match entry.usage.advice(table, machine) {
        Ok(advice) => advice,
        Err(error) => {
            tracing::error!(%error, table = %table.id(), "no layout advice");
            return;
        }
    };
    if advice.verdict != Verdict::Change {
        return;
    }
    match ddl::follow_advice(database, entry, &advice.layout) {
        Ok(true) => tracing::info!(
            table = entry.name, layout = %advice.layout, gain = advice.gain_share,
            "the layout follows the statements"
        ),
        Ok(false) => {}
        Err(error) => tracing::error!(
            table = entry.name,
            message = error.message,
            "the layout stays; a later look tries again"
        ),
    }
}

fn reshape(table: &Table) {
    match table.reshape(&CancelToken::new()) {
        Ok(report) => tracing::debug!(table = %table.id(), ?report, "re-laid"),
        Err(error) => tracing::debug!(
            table = %table.id(), error = &error as &dyn std::error::Error,
            "not re-laid; a later look tries again"
        ),
    }
}

fn freeze(table: &Table) {
    match table.freeze_due() {
        Ok(report) if report.segments_made > 0 => tracing::debug!(
            table = %table.id(), rows = report.rows, segments = report.segments_made,
            bytes_before = report.bytes_before, bytes_after = report.bytes_after, "froze"
        ),
        Ok(_) => {}
        Err(error) => tracing::debug!(
            table = %table.id(), error = &error as &dyn std::error::Error,
            "not frozen; a later look tries again"
        ),
    }
}

/// Freezes, writes and evicts all there is.
fn take_out(database: &Database) {
    for entry in database.catalog.load().table_entries() {
        if let Err(error) = entry.table.freeze() {
            tracing::debug!(error = &error as &dyn std::error::Error, "not frozen");
        }
    }
    if let Err(error) = database.store.checkpoint() {
        tracing::debug!(error = &error as &dyn std::error::Error, "no checkpoint");
    }
    database.store.evict(u64::MAX);
}

/// How long to rest after working so long, for the work to be `percent` of the time.
fn rest(worked: Duration, percent: u8) -> Duration {
    let percent = u32::from(percent.clamp(1, 100));
    worked * (100 - percent) / percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_rest_are_in_proportion() {
        let worked = Duration::from_millis(300);
        assert_eq!(rest(worked, 100), Duration::ZERO);
        assert_eq!(rest(worked, 50), worked);
        assert_eq!(rest(worked, 25), worked * 3);
        assert_eq!(rest(worked, 1), worked * 99);
    }
}
