//! The rows of the first copy, from one snapshot of the source.
//!
//! COPY gives rows as texts, and COPY takes them: they are not looked into. A table comes in several transactions of
//! the target, since nothing of it counts before all of it is there: a copy that is interrupted begins again.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};

use crate::{
    Event, Progress, catalog::Table, connect::Connection, differences::TargetTable,
    error::ImportError, plan::Plan, record::Record, sql, types::ColumnType,
};

/// How much of a table one transaction of the target takes: what it holds back from the target's memory until it
/// commits, against a commit for each.
const TRANSACTION_BYTES: u64 = 32 << 20;

/// How many bytes of rows go in a message.
const MESSAGE_BYTES: usize = 64 << 10;

/// Copies all tables. `source` is in a transaction with the snapshot.
///
/// # Errors
/// [`ImportError::Source`], [`ImportError::Target`], [`ImportError::Conflict`] for a value that the target does not
/// take, [`ImportError::Digits`].
pub(crate) async fn rows(
    source: &Connection,
    target: &Connection,
    plan: &Plan,
    record: &Record,
    progress: &mut dyn Progress,
) -> Result<u64, ImportError> {
    let mut rows = 0;
    for table in &plan.tables {
        check_digits(source, target, table).await?;
        rows += copy_table(source, target, table, record, progress).await?;
    }
    Ok(rows)
}

/// Numbers that would lose digits at the target are found before they go.
async fn check_digits(
    source: &Connection,
    target: &Connection,
    table: &Table,
) -> Result<(), ImportError> {
    let Some(there) = TargetTable::read(target, &table.schema, &table.name).await? else {
        return Ok(());
    };
    for column in &table.columns {
        let Some(at) = there.columns.iter().find(|at| at.name == column.name) else {
            continue;
        };
        let kind = ColumnType::from_source(column.type_oid, column.typmod, true);
        let Some(scale) = kind.and_then(|kind| kind.scale_to_check(at.typmod)) else {
            continue;
        };
        let name = sql::identifier(&column.name);
        let query = format!(
            "SELECT {name}::text FROM {} WHERE scale(trim_scale({name})) > {scale} LIMIT 1",
            from(table)
        );
        let row = source
            .query_opt(&query, &[])
            .await
            .map_err(ImportError::source(format!("reading {}", table.label())))?;
        if let Some(row) = row {
            return Err(ImportError::Digits {
                table: table.label(),
                column: column.name.clone(),
                scale,
                value: row.get(0),
            });
        }
    }
    Ok(())
}

/// The rows of a partitioned table are those of its partitions; tables that inherit are tables of their own.
fn from(table: &Table) -> String {
    if table.partitioned {
        table.sql()
    } else {
        format!("ONLY {}", table.sql())
    }
}

async fn copy_table(
    source: &Connection,
    target: &Connection,
    table: &Table,
    record: &Record,
    progress: &mut dyn Progress,
) -> Result<u64, ImportError> {
    let label = table.label();
    let reading = || ImportError::source(format!("reading {label}"));
    let out = format!(
        "COPY (SELECT {} FROM {}) TO STDOUT",
        table.columns_sql(),
        from(table)
    );
    let mut stream = pin!(source.copy_out(&out).await.map_err(reading())?);
    let (mut rows, mut bytes, mut ended) = (0, 0, false);
    while !ended {
        target
            .batch_execute("BEGIN")
            .await
            .map_err(ImportError::target("BEGIN"))?;
        let into = format!("COPY {} ({}) FROM STDIN", table.sql(), table.columns_sql());
        let mut sink = pin!(
            target
                .copy_in::<_, Bytes>(&into)
                .await
                .map_err(ImportError::row(&label))?
        );
        let (mut gathered, mut taken) = (BytesMut::new(), 0);
        while taken < TRANSACTION_BYTES {
            let Some(row) = stream.next().await else {
                ended = true;
                break;
            };
            // A message of the source is a row.
            let row = row.map_err(reading())?;
            (rows, taken) = (rows + 1, taken + row.len() as u64);
            gathered.extend_from_slice(&row);
            if gathered.len() >= MESSAGE_BYTES {
                sink.send(gathered.split().freeze())
                    .await
                    .map_err(ImportError::row(&label))?;
            }
        }
        if !gathered.is_empty() {
            sink.send(gathered.freeze())
                .await
                .map_err(ImportError::row(&label))?;
        }
        sink.finish().await.map_err(ImportError::row(&label))?;
        record.copied(target, table, rows, ended).await?;
        target
            .batch_execute("COMMIT")
            .await
            .map_err(ImportError::target("COMMIT"))?;
        bytes += taken;
        progress.tell(&Event::Copied {
            table: label.clone(),
            rows,
            bytes,
            whole: ended,
        });
    }
    Ok(rows)
}
