//! Changes of the source, made at the target.
//!
//! Changes are queued as they come and sent many at once, in their order; a run of new rows of one table becomes
//! statements of several rows. All of them, and how far they take the target, are one transaction there, which may
//! hold several of the source. An UPDATE or DELETE must find its row, and find it once.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use bytes::Bytes;
use tokio_postgres::{Statement, types::Oid};

use crate::{
    connect::Connection,
    error::ImportError,
    lsn::Lsn,
    pgoutput::{OldRow, Relation, Value},
    record::{Record, State},
    sql,
    statements::{Param, Shape, Table},
};

/// How many changes, and bytes of their values, are gathered before they are sent.
const QUEUE_CHANGES_MAX: usize = 512;
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// How many new rows one statement takes, in sizes of which each is prepared once.
const INSERT_ROWS: [usize; 3] = [64, 8, 1];

/// A protocol message counts parameters in 16 bits.
const PARAMETERS_MAX: usize = 65_535;

/// A change that waits to be sent.
enum Queued {
    /// New rows of a table.
    Insert {
        relation: Oid,
        rows: Vec<Vec<Value>>,
    },
    /// A change of one row.
    One {
        relation: Oid,
        shape: Shape,
        params: Vec<Param>,
        /// The row's key, for an error.
        key: Vec<Value>,
        action: &'static str,
    },
}

/// A statement that is ready to be sent.
struct Job {
    relation: Oid,
    statement: Statement,
    params: Vec<Param>,
    rows: u64,
    missing: Option<(Vec<Value>, &'static str)>,
}

/// What of the changes is at the target, and what is on its way.
pub(crate) struct Applier<'a> {
    target: &'a Connection,
    record: &'a Record,
    /// How tables look at this point of the log.
    relations: HashMap<Oid, Relation>,
    /// Those of which a change came, and which the target has alike.
    tables: HashMap<Oid, Table>,
    queue: Vec<Queued>,
    queued_changes: usize,
    queued_bytes: usize,
    open: bool,
    /// Changes in the target's transaction.
    pub(crate) changes: u64,
}

impl<'a> Applier<'a> {
    pub(crate) fn new(target: &'a Connection, record: &'a Record) -> Applier<'a> {
        Applier {
            target,
            record,
            relations: HashMap::new(),
            tables: HashMap::new(),
            queue: Vec::new(),
            queued_changes: 0,
            queued_bytes: 0,
            open: false,
            changes: 0,
        }
    }

    /// A table looks like this from here on.
    pub(crate) async fn describe(&mut self, relation: Relation) -> Result<(), ImportError> {
        // What is queued is of the table as it was.
        self.flush().await?;
        self.tables.remove(&relation.oid);
        self.relations.insert(relation.oid, relation);
        Ok(())
    }

    /// The relation of a change, as the source described it.
    pub(crate) fn relation(&self, oid: Oid) -> Result<&Relation, ImportError> {
        self.relations.get(&oid).ok_or_else(|| {
            ImportError::Protocol(format!(
                "a change of relation {oid}, which was not described"
            ))
        })
    }

    /// Whether the target's table was found to be alike since the source described it.
    pub(crate) fn knows(&self, oid: Oid) -> bool {
        self.tables.contains_key(&oid)
    }

    /// The target's table was found to be alike.
    pub(crate) fn know(&mut self, oid: Oid, table: Table) {
        self.tables.insert(oid, table);
    }

    pub(crate) async fn insert(&mut self, oid: Oid, new: Vec<Value>) -> Result<(), ImportError> {
        let table = self.table(oid)?;
        table.check_row(&new, false)?;
        self.count(&new);
        match self.queue.last_mut() {
            Some(Queued::Insert { relation, rows }) if *relation == oid => rows.push(new),
            _ => self.queue.push(Queued::Insert {
                relation: oid,
                rows: vec![new],
            }),
        }
        self.flush_if_full().await
    }

    pub(crate) async fn update(
        &mut self,
        oid: Oid,
        old: Option<OldRow>,
        mut new: Vec<Value>,
    ) -> Result<(), ImportError> {
        let table = self.table(oid)?;
        table.check_row(&new, true)?;
        if let Some(OldRow::Key(old) | OldRow::Full(old)) = &old {
            table.check_row(old, false)?;
        }
        if let Some(OldRow::Full(old)) = &old {
            for (value, old) in new.iter_mut().zip(old) {
                if *value == Value::Unchanged {
                    *value = old.clone();
                }
            }
        }
        if table.key.is_empty() {
            let Some(OldRow::Full(old)) = old else {
                return Err(table.no_identity());
            };
            return self.replace(oid, old, Some(new)).await;
        }
        let set = table.columns_to_set(&new, old.is_some());
        let key = match old {
            Some(OldRow::Key(old) | OldRow::Full(old)) => table.key_of(&old)?,
            None => table.key_of(&new)?,
        };
        let mut params: Vec<Param> = set.iter().map(|&at| Param::from(&new[at])).collect();
        params.extend(key.iter().map(Param::from));
        self.count(&new);
        self.queue.push(Queued::One {
            relation: oid,
            shape: Shape::Update(set),
            params,
            key,
            action: "changed",
        });
        self.flush_if_full().await
    }

    pub(crate) async fn delete(&mut self, oid: Oid, old: OldRow) -> Result<(), ImportError> {
        let table = self.table(oid)?;
        let (OldRow::Key(row) | OldRow::Full(row)) = &old;
        table.check_row(row, false)?;
        if table.key.is_empty() {
            let OldRow::Full(old) = old else {
                return Err(table.no_identity());
            };
            return self.replace(oid, old, None).await;
        }
        let key = table.key_of(row)?;
        let params = key.iter().map(Param::from).collect();
        self.count(&[]);
        self.queue.push(Queued::One {
            relation: oid,
            shape: Shape::Delete,
            params,
            key,
            action: "deleted",
        });
        self.flush_if_full().await
    }

    /// Deletes one of the rows that are like `old`, and puts `new` in its place. There is nothing by which one of
    /// several can be named, so all go, and all but one come back.
    async fn replace(
        &mut self,
        oid: Oid,
        old: Vec<Value>,
        new: Option<Vec<Value>>,
    ) -> Result<(), ImportError> {
        let action = if new.is_some() { "changed" } else { "deleted" };
        self.flush().await?;
        self.open().await?;
        let params: Vec<Param> = old.iter().map(Param::from).collect();
        let statement = self.statement(oid, Shape::DeleteAlike).await?;
        let table = self.table(oid)?;
        let gone = self
            .target
            .execute_raw(&statement, params.iter())
            .await
            .map_err(ImportError::row(&table.label))?;
        if gone == 0 {
            return Err(table.missing(&old, action));
        }
        for _ in 1..gone {
            self.insert(oid, old.clone()).await?;
        }
        match new {
            Some(new) => self.insert(oid, new).await,
            None => {
                self.count(&[]);
                Ok(())
            }
        }
    }

    pub(crate) async fn truncate(
        &mut self,
        oids: &[Oid],
        restart: bool,
    ) -> Result<(), ImportError> {
        if oids.is_empty() {
            return Ok(());
        }
        self.flush().await?;
        self.open().await?;
        let mut names = Vec::new();
        for &oid in oids {
            names.push(self.table(oid)?.sql.clone());
        }
        // A table of which checks are still to come is not emptied. At the source none were, or it would have refused.
        let deferrable = self.deferrable(oids).await?;
        let restart = if restart { " RESTART IDENTITY" } else { "" };
        let mut statement = format!("TRUNCATE {}{restart}", names.join(", "));
        if !deferrable.is_empty() {
            let list = deferrable.join(", ");
            statement = format!(
                "SET CONSTRAINTS {list} IMMEDIATE; {statement}; SET CONSTRAINTS {list} DEFERRED"
            );
        }
        self.changes += 1;
        self.target
            .batch_execute(&statement)
            .await
            .map_err(ImportError::target(&statement))
    }

    /// The constraints of tables of the target that can be deferred, as a statement names them.
    async fn deferrable(&self, oids: &[Oid]) -> Result<Vec<String>, ImportError> {
        let mut names = Vec::new();
        for &oid in oids {
            let relation = self.relation(oid)?;
            let rows = self
                .target
                .query(
                    "SELECT k.conname::text FROM pg_catalog.pg_constraint k
                     JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
                     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                     WHERE n.nspname = $1::text AND c.relname = $2::text AND k.condeferrable",
                    &[&relation.schema, &relation.name],
                )
                .await
                .map_err(ImportError::target("reading constraints"))?;
            names.extend(
                rows.iter()
                    .map(|row| sql::qualified(&relation.schema, row.get(0))),
            );
        }
        Ok(names)
    }

    /// Commits what came, as of `lsn`.
    ///
    /// # Errors
    /// [`ImportError::Superseded`], and what a change gives.
    pub(crate) async fn commit(&mut self, lsn: Lsn) -> Result<(), ImportError> {
        self.open().await?;
        self.flush().await?;
        self.record
            .fence(self.target, State::Following, lsn)
            .await?;
        self.target
            .batch_execute("COMMIT")
            .await
            .map_err(ImportError::target("COMMIT"))?;
        self.open = false;
        self.changes = 0;
        Ok(())
    }

    fn table(&self, oid: Oid) -> Result<&Table, ImportError> {
        self.tables.get(&oid).ok_or_else(|| {
            ImportError::Protocol(format!(
                "a change of relation {oid}, which was not compared"
            ))
        })
    }

    fn count(&mut self, values: &[Value]) {
        self.changes += 1;
        self.queued_changes += 1;
        self.queued_bytes += values
            .iter()
            .map(|value| {
                if let Value::Text(text) = value {
                    text.len()
                } else {
                    0
                }
            })
            .sum::<usize>();
    }

    async fn open(&mut self) -> Result<(), ImportError> {
        if !self.open {
            // Of constraints that can be deferred the source may have deferred any.
            let begin = "BEGIN; SET CONSTRAINTS ALL DEFERRED";
            self.target
                .batch_execute(begin)
                .await
                .map_err(ImportError::target(begin))?;
            self.open = true;
        }
        Ok(())
    }

    async fn flush_if_full(&mut self) -> Result<(), ImportError> {
        if self.queued_changes >= QUEUE_CHANGES_MAX || self.queued_bytes >= QUEUE_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what is queued, and hears that all of it was done.
    async fn flush(&mut self) -> Result<(), ImportError> {
        if self.queue.is_empty() {
            return Ok(());
        }
        self.open().await?;
        let queue = std::mem::take(&mut self.queue);
        (self.queued_changes, self.queued_bytes) = (0, 0);
        let mut jobs = Vec::new();
        for queued in queue {
            self.prepare(queued, &mut jobs).await?;
        }
        self.send(&jobs).await
    }

    async fn prepare(&mut self, queued: Queued, jobs: &mut Vec<Job>) -> Result<(), ImportError> {
        match queued {
            Queued::Insert { relation, rows } => {
                let mut rest = rows.as_slice();
                while !rest.is_empty() {
                    let columns = rest[0].len();
                    let fits =
                        |&&size: &&usize| size <= rest.len() && size * columns <= PARAMETERS_MAX;
                    let size = INSERT_ROWS.iter().find(fits).copied().unwrap_or(1);
                    let (these, after) = rest.split_at(size);
                    rest = after;
                    jobs.push(Job {
                        relation,
                        statement: self.statement(relation, Shape::Insert(size)).await?,
                        params: these.iter().flatten().map(Param::from).collect(),
                        rows: size as u64,
                        missing: None,
                    });
                }
            }
            Queued::One {
                relation,
                shape,
                params,
                key,
                action,
            } => jobs.push(Job {
                relation,
                statement: self.statement(relation, shape).await?,
                params,
                rows: 1,
                missing: Some((key, action)),
            }),
        }
        Ok(())
    }

    /// Sends statements without waiting for each, and then hears their answers in order.
    async fn send(&self, jobs: &[Job]) -> Result<(), ImportError> {
        type Answer<'b> =
            Pin<Box<dyn Future<Output = Result<u64, tokio_postgres::Error>> + Send + 'b>>;
        let mut waiting = Vec::with_capacity(jobs.len());
        for job in jobs {
            let mut answer: Answer<'_> =
                Box::pin(self.target.execute_raw(&job.statement, job.params.iter()));
            // The first poll sends it; they go one after the other.
            let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
            waiting.push((answer, first));
        }
        for (job, (answer, first)) in jobs.iter().zip(waiting) {
            let result = match first {
                Poll::Ready(result) => result,
                Poll::Pending => answer.await,
            };
            let table = self.table(job.relation)?;
            let rows = result.map_err(ImportError::row(&table.label))?;
            if rows != job.rows {
                return Err(match &job.missing {
                    Some((key, action)) => table.missing(key, action),
                    None => {
                        ImportError::Protocol(format!("{rows} rows came of {} new ones", job.rows))
                    }
                });
            }
        }
        Ok(())
    }

    async fn statement(&mut self, oid: Oid, shape: Shape) -> Result<Statement, ImportError> {
        let table = self.table(oid)?;
        if let Some(statement) = table.prepared.get(&shape) {
            return Ok(statement.clone());
        }
        let (text, types) = table.statement(&shape);
        let statement = self
            .target
            .prepare_typed(&text, &types)
            .await
            .map_err(ImportError::target(format!("preparing {text}")))?;
        if let Some(table) = self.tables.get_mut(&oid) {
            table.prepared.insert(shape, statement.clone());
        }
        Ok(statement)
    }
}

impl From<&Value> for Param {
    fn from(value: &Value) -> Param {
        match value {
            Value::Text(text) => Param(Some(Bytes::clone(text))),
            Value::Null | Value::Unchanged => Param(None),
        }
    }
}
