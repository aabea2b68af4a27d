//! The slot and the publication at the source: what keeps the log until the target has it.

use std::time::Duration;

use aerostat_pgclient::Server;
use tokio::time::sleep;
use tokio_postgres::error::SqlState;

use crate::{
    catalog::Table,
    connect::Connection,
    error::ImportError,
    lsn::Lsn,
    record::Record,
    sql,
    wire::{Stream, Wire},
};

/// How often, and how long between, something that a connection of ours before this one holds is asked for again:
/// a server takes a moment to see that it ended.
const TRIES: usize = 50;
const TRY_EVERY: Duration = Duration::from_millis(200);

/// After so many tries a connection that still reads the slot is ended: we have the lock, so it is a dead one of ours.
const TRIES_BEFORE_TERMINATE: usize = 10;

/// Takes the lock that one importer of this name has, for as long as the connection is.
///
/// # Errors
/// [`ImportError::Busy`] if another importer has it.
pub(crate) async fn lock(source: &Connection, name: &str) -> Result<(), ImportError> {
    for _ in 0..TRIES {
        let row = source
            .query_one(
                "SELECT pg_try_advisory_lock(hashtextextended('aerostat_import.' || $1, 0))",
                &[&name],
            )
            .await
            .map_err(ImportError::source("taking the lock of the import"))?;
        if row.get(0) {
            return Ok(());
        }
        sleep(TRY_EVERY).await;
    }
    Err(ImportError::Busy {
        name: name.to_owned(),
    })
}

/// What a source is recognised by: its cluster and database.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn identify(source: &Connection) -> Result<String, ImportError> {
    let query =
        "SELECT system_identifier::text || '/' || current_database() FROM pg_control_system()";
    let row = source
        .query_one(query, &[])
        .await
        .map_err(ImportError::source("reading its identifier"))?;
    Ok(row.get(0))
}

/// Whether there is a slot or a publication of this name.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn exists(source: &Connection, name: &str) -> Result<bool, ImportError> {
    let query = "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1::text)
                     OR EXISTS (SELECT FROM pg_publication WHERE pubname = $1::text)";
    let row = source
        .query_one(query, &[&name])
        .await
        .map_err(ImportError::source("reading its slots"))?;
    Ok(row.get(0))
}

/// Publishes tables; partitions as the tables that they are of.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn publish(
    source: &Connection,
    name: &str,
    tables: &[Table],
) -> Result<(), ImportError> {
    let only = |table: &Table| {
        if table.partitioned {
            table.sql()
        } else {
            format!("ONLY {}", table.sql())
        }
    };
    let tables: Vec<_> = tables.iter().map(only).collect();
    let statement = format!(
        "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)",
        sql::identifier(name),
        tables.join(", ")
    );
    source
        .batch_execute(&statement)
        .await
        .map_err(ImportError::source("CREATE PUBLICATION"))
}

/// Makes a slot. Gives where it begins, and the snapshot of all that came before, which is there until the
/// connection is used again or ends.
///
/// # Errors
/// [`ImportError::SourceRefused`].
pub(crate) async fn create(wire: &mut Wire, name: &str) -> Result<(Lsn, String), ImportError> {
    let command = format!(
        "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT",
        sql::identifier(name)
    );
    let rows = wire.query(&command).await?;
    let odd = || ImportError::Protocol("no position and snapshot of a new slot".to_owned());
    let mut cells = rows
        .into_iter()
        .next()
        .ok_or_else(odd)?
        .into_iter()
        .skip(1)
        .flatten();
    let lsn = cells
        .next()
        .and_then(|text| text.parse().ok())
        .ok_or_else(odd)?;
    let snapshot = cells.next().ok_or_else(odd)?;
    Ok((lsn, snapshot))
}

/// Checks that the slot has all that the target has not, and begins to read it.
///
/// # Errors
/// [`ImportError::SlotLost`] and [`ImportError::TargetBehind`], which cannot be mended; others as the source gives.
pub(crate) async fn open(
    source: &Connection,
    server: &Server,
    record: &Record,
) -> Result<Stream, ImportError> {
    let row = source
        .query_opt(
            "SELECT confirmed_flush_lsn::text, coalesce(wal_status, ''), plugin::text
             FROM pg_replication_slots WHERE slot_name = $1::text AND database = current_database()",
            &[&record.slot],
        )
        .await
        .map_err(ImportError::source("reading its slots"))?;
    let lost = |reason: &str| ImportError::SlotLost {
        slot: record.slot.clone(),
        reason: reason.to_owned(),
        lsn: record.lsn,
    };
    let row = row.ok_or_else(|| lost("is not at the source any more"))?;
    if row.get::<_, &str>(1) == "lost" {
        return Err(lost(
            "was invalidated, for it held more log than max_slot_wal_keep_size",
        ));
    }
    if row.get::<_, Option<&str>>(2) != Some("pgoutput") {
        return Err(lost("is one of another output plugin"));
    }
    let confirmed: Option<&str> = row.get(0);
    let confirmed: Lsn = confirmed
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| ImportError::Protocol("a slot without a position".to_owned()))?;
    if confirmed > record.lsn {
        return Err(ImportError::TargetBehind {
            slot: record.slot.clone(),
            lsn: record.lsn,
            confirmed,
        });
    }
    let mut tries = 0;
    loop {
        match Wire::connect(server)
            .await?
            .start(&record.slot, &record.publication)
            .await
        {
            Err(ImportError::SourceRefused { code, .. })
                if code == SqlState::OBJECT_IN_USE.code() && tries < TRIES =>
            {
                tries += 1;
                end_reader(source, &record.slot, tries).await?;
            }
            other => return other,
        }
    }
}

/// Takes slot and publication away, if they are there.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn remove(source: &Connection, record: &Record) -> Result<(), ImportError> {
    let mut tries = 0;
    while !record.slot.is_empty() {
        let query = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1::text";
        match source.query(query, &[&record.slot]).await {
            Ok(_) => break,
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && tries < TRIES => {
                tries += 1;
                end_reader(source, &record.slot, tries).await?;
            }
            // Somebody else dropped it in between.
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => break,
            Err(error) => return Err(ImportError::source("dropping the slot")(error)),
        }
    }
    if record.own_publication {
        let statement = format!(
            "DROP PUBLICATION IF EXISTS {}",
            sql::identifier(&record.publication)
        );
        source
            .batch_execute(&statement)
            .await
            .map_err(ImportError::source("DROP PUBLICATION"))?;
    }
    Ok(())
}

/// Waits for whoever reads the slot to go, and sends it away after a while.
async fn end_reader(source: &Connection, slot: &str, tries: usize) -> Result<(), ImportError> {
    if tries == TRIES_BEFORE_TERMINATE {
        let query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
                     WHERE slot_name = $1::text AND active_pid IS NOT NULL";
        source
            .query(query, &[&slot])
            .await
            .map_err(ImportError::source("ending who reads the slot"))?;
    }
    sleep(TRY_EVERY).await;
    Ok(())
}

/// Where the log of the source ends, after everything that was acknowledged: a message into the log is committed, and
/// with it all before it is on disk and can be read.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn end_of_log(source: &Connection) -> Result<Lsn, ImportError> {
    let failed = || ImportError::source("reading where its log ends");
    source
        .batch_execute("BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_logical_emit_message(true, 'aerostat', ''); COMMIT")
        .await
        .map_err(failed())?;
    Ok(flushed(source).await?.0)
}

/// Where the log of the source ends, and what its clock says: microseconds since 2000-01-01.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn flushed(source: &Connection) -> Result<(Lsn, i64), ImportError> {
    let row = source
        .query_one(
            "SELECT pg_current_wal_flush_lsn()::text,
                    (extract(epoch FROM clock_timestamp() - timestamptz '2000-01-01 00:00:00+00') * 1000000)::int8",
            &[],
        )
        .await
        .map_err(ImportError::source("reading where its log ends"))?;
    let lsn: &str = row.get(0);
    let lsn = lsn
        .parse()
        .map_err(|error| ImportError::Protocol(format!("{error}")))?;
    Ok((lsn, row.get(1)))
}
