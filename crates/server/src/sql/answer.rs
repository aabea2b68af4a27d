//! A statement's result with all its rows.

use std::sync::Arc;
use std::time::Instant;

use aerostat_embedded::arrow::record_batch::RecordBatch;
use aerostat_embedded::{ColumnDescription, Connection, Rows, SqlError, Zone};

/// What a statement came to.
pub(super) enum Answer {
    Done(Done),
    Failed(SqlError),
}

/// A statement that has ended well.
pub(super) struct Done {
    /// Its columns, if it returns rows.
    pub(super) columns: Option<Arc<[ColumnDescription]>>,
    pub(super) batches: Vec<RecordBatch>,
    pub(super) tag: String,
    /// In which instants are shown.
    pub(super) zone: Zone,
    /// From the call until all rows were there.
    pub(super) ms: f64,
}

impl Answer {
    /// Runs a statement and waits for all its rows.
    pub(super) fn to(
        connection: &mut Connection,
        run: impl FnOnce(&mut Connection) -> Result<Rows<'_>, SqlError>,
    ) -> Self {
        let started = Instant::now();
        let read = read(connection, run);
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        match read {
            Ok((columns, batches, tag)) => Self::Done(Done {
                columns,
                batches,
                tag,
                zone: connection.time_zone(),
                ms,
            }),
            Err(error) => Self::Failed(error),
        }
    }

    /// How long it took, if it went well.
    pub(super) fn ms(&self) -> Option<f64> {
        match self {
            Self::Done(done) => Some(done.ms),
            Self::Failed(_) => None,
        }
    }
}

type Read = (Option<Arc<[ColumnDescription]>>, Vec<RecordBatch>, String);

fn read(
    connection: &mut Connection,
    run: impl FnOnce(&mut Connection) -> Result<Rows<'_>, SqlError>,
) -> Result<Read, SqlError> {
    let mut rows = run(connection)?;
    let batches = rows.by_ref().collect::<Result<Vec<_>, _>>()?;
    let columns = rows.columns().cloned();
    Ok((columns, batches, rows.finish()?.tag))
}
