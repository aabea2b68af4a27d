//! What the target knows of an import: where it is, in the same transaction as the rows that took it there.
//!
//! ```text
//! aerostat_import.progress   name │ source │ slot │ publication │ state │ lsn │ epoch …
//! aerostat_import.tables     name │ oid at the source │ schema │ table │ created │ copied │ rows
//! ```
//!
//! `epoch` is a fence: each run begins by raising it, and commits only under its own. A run that was given up while
//! its COMMIT was on the way has either committed before the next one reads, or never does.
//!
//! What is confirmed to the source is at most `lsn`. So a slot that is ahead of it says that the target lost commits.

use tokio_postgres::Row;

use crate::{catalog::Table, connect::Connection, error::ImportError, lsn::Lsn};

/// The schema of the importer's tables at the target.
pub(crate) const SCHEMA: &str = "aerostat_import";

const TABLES: &str = "
CREATE SCHEMA IF NOT EXISTS aerostat_import;
CREATE TABLE IF NOT EXISTS aerostat_import.progress (
    name text PRIMARY KEY, source text NOT NULL, slot text NOT NULL, publication text NOT NULL,
    own_publication boolean NOT NULL, as_text boolean NOT NULL, state text NOT NULL, lsn text NOT NULL,
    epoch bigint NOT NULL, changed timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS aerostat_import.tables (
    name text NOT NULL, source_oid bigint NOT NULL, table_schema text NOT NULL, table_name text NOT NULL,
    created boolean NOT NULL, copied boolean NOT NULL, copied_rows bigint NOT NULL,
    PRIMARY KEY (name, source_oid))";

/// How far an import is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Rows are copied. An import that ends here begins again.
    Copying,
    /// The rows are there, as of `lsn`.
    Following,
    /// All is there, and only what the import needed is still to be taken away.
    Finished,
}

/// What the target knows of an import.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    /// The source's system identifier and database.
    pub(crate) source: String,
    /// Empty if changes are not followed.
    pub(crate) slot: String,
    pub(crate) publication: String,
    /// Whether the importer made the publication.
    pub(crate) own_publication: bool,
    pub(crate) as_text: bool,
    pub(crate) state: State,
    pub(crate) lsn: Lsn,
    pub(crate) epoch: i64,
}

/// A table of an import.
#[derive(Clone, Debug)]
pub(crate) struct RecordedTable {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// Whether the importer made it at the target.
    pub(crate) created: bool,
}

/// Makes the importer's tables.
///
/// # Errors
/// [`ImportError::Target`].
pub(crate) async fn prepare(target: &Connection) -> Result<(), ImportError> {
    target
        .batch_execute(TABLES)
        .await
        .map_err(ImportError::target("making the schema aerostat_import"))
}

impl Record {
    /// What is known of an import, and raises its epoch: whoever had it before commits nothing more.
    ///
    /// # Errors
    /// [`ImportError::Target`], or [`ImportError::Protocol`] if the table says nothing that an importer wrote.
    pub(crate) async fn take(
        target: &Connection,
        name: &str,
    ) -> Result<Option<Record>, ImportError> {
        let row = target
            .query_opt(
                "UPDATE aerostat_import.progress SET epoch = epoch + 1 WHERE name = $1
                 RETURNING name, source, slot, publication, own_publication, as_text, state, lsn, epoch",
                &[&name],
            )
            .await
            .map_err(ImportError::target("reading its progress"))?;
        row.map(|row| Record::from_row(&row)).transpose()
    }

    fn from_row(row: &Row) -> Result<Record, ImportError> {
        let state = match row.get(6) {
            "copying" => State::Copying,
            "following" => State::Following,
            "finished" => State::Finished,
            other => {
                return Err(ImportError::Options(format!(
                    "aerostat_import.progress has a state {other:?}"
                )));
            }
        };
        let lsn: &str = row.get(7);
        Ok(Record {
            name: row.get(0),
            source: row.get(1),
            slot: row.get(2),
            publication: row.get(3),
            own_publication: row.get(4),
            as_text: row.get(5),
            state,
            lsn: lsn.parse().map_err(|error| {
                ImportError::Options(format!("aerostat_import.progress: {error}"))
            })?,
            epoch: row.get(8),
        })
    }

    /// Writes down an import that begins to copy, with its tables: `created` are those that are not at the target yet.
    /// What stood there of the same import is replaced.
    ///
    /// # Errors
    /// [`ImportError::Target`], or [`ImportError::Superseded`] if another importer has begun since.
    pub(crate) async fn begin(
        &self,
        target: &Connection,
        tables: &[(&Table, bool)],
    ) -> Result<(), ImportError> {
        let failed = || ImportError::target("writing its progress");
        target.batch_execute("BEGIN").await.map_err(failed())?;
        let fenced = target
            .execute(
                "DELETE FROM aerostat_import.progress WHERE name = $1 AND epoch = $2",
                &[&self.name, &self.epoch],
            )
            .await
            .map_err(failed())?;
        let others = target
            .query_opt(
                "SELECT 1 FROM aerostat_import.progress WHERE name = $1",
                &[&self.name],
            )
            .await
            .map_err(failed())?;
        if fenced == 0 && others.is_some() {
            return self.superseded(target).await;
        }
        target
            .execute(
                "DELETE FROM aerostat_import.tables WHERE name = $1",
                &[&self.name],
            )
            .await
            .map_err(failed())?;
        target
            .execute(
                "INSERT INTO aerostat_import.progress VALUES ($1, $2, $3, $4, $5, $6, 'copying', '0/0', $7, now())",
                &[
                    &self.name,
                    &self.source,
                    &self.slot,
                    &self.publication,
                    &self.own_publication,
                    &self.as_text,
                    &self.epoch,
                ],
            )
            .await
            .map_err(failed())?;
        for (table, created) in tables {
            target
                .execute(
                    "INSERT INTO aerostat_import.tables VALUES ($1, $2, $3, $4, $5, false, 0)",
                    &[
                        &self.name,
                        &i64::from(table.oid),
                        &table.schema,
                        &table.name,
                        created,
                    ],
                )
                .await
                .map_err(failed())?;
        }
        target.batch_execute("COMMIT").await.map_err(failed())
    }

    /// The tables of the import.
    ///
    /// # Errors
    /// [`ImportError::Target`].
    pub(crate) async fn tables(
        &self,
        target: &Connection,
    ) -> Result<Vec<RecordedTable>, ImportError> {
        let rows = target
            .query(
                "SELECT source_oid, table_schema, table_name, created FROM aerostat_import.tables
                 WHERE name = $1 ORDER BY table_schema, table_name",
                &[&self.name],
            )
            .await
            .map_err(ImportError::target("reading its progress"))?;
        Ok(rows
            .iter()
            .map(|row| RecordedTable {
                oid: u32::try_from(row.get::<_, i64>(0)).unwrap_or_default(),
                schema: row.get(1),
                name: row.get(2),
                created: row.get(3),
            })
            .collect())
    }

    /// Says how many rows of a table are copied, within the transaction that copies them.
    ///
    /// # Errors
    /// [`ImportError::Target`], or [`ImportError::Superseded`].
    pub(crate) async fn copied(
        &self,
        target: &Connection,
        table: &Table,
        rows: u64,
        whole: bool,
    ) -> Result<(), ImportError> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        target
            .execute(
                "UPDATE aerostat_import.tables SET copied_rows = $3, copied = $4 WHERE name = $1 AND source_oid = $2",
                &[&self.name, &i64::from(table.oid), &rows, &whole],
            )
            .await
            .map_err(ImportError::target("writing its progress"))?;
        self.fence(target, State::Copying, Lsn::default()).await
    }

    /// Moves the import on, within the transaction at hand.
    ///
    /// # Errors
    /// [`ImportError::Target`], or [`ImportError::Superseded`] if another importer has begun since: the transaction
    /// must not commit.
    pub(crate) async fn fence(
        &self,
        target: &Connection,
        state: State,
        lsn: Lsn,
    ) -> Result<(), ImportError> {
        let state = match state {
            State::Copying => "copying",
            State::Following => "following",
            State::Finished => "finished",
        };
        let moved = target
            .execute(
                "UPDATE aerostat_import.progress SET state = $3, lsn = $4, changed = now()
                 WHERE name = $1 AND epoch = $2",
                &[&self.name, &self.epoch, &state, &lsn.to_string()],
            )
            .await
            .map_err(ImportError::target("writing its progress"))?;
        if moved == 1 {
            Ok(())
        } else {
            self.superseded(target).await
        }
    }

    /// Forgets the import.
    ///
    /// # Errors
    /// [`ImportError::Target`].
    pub(crate) async fn forget(&self, target: &Connection) -> Result<(), ImportError> {
        let name = crate::sql::literal(&self.name);
        target
            .batch_execute(&format!(
                "BEGIN; DELETE FROM aerostat_import.tables WHERE name = {name};
                 DELETE FROM aerostat_import.progress WHERE name = {name}; COMMIT"
            ))
            .await
            .map_err(ImportError::target("forgetting its progress"))
    }

    async fn superseded(&self, target: &Connection) -> Result<(), ImportError> {
        target
            .batch_execute("ROLLBACK")
            .await
            .map_err(ImportError::target("ROLLBACK"))?;
        Err(ImportError::Superseded {
            name: self.name.clone(),
        })
    }
}
