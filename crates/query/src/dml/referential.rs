//! Foreign keys: what a statement must check, and do to other tables, for the rows that it wrote.
//!
//! ```text
//!  rows written ──► events, one after another
//!    new values ────────► the rows they refer to are locked FOR KEY SHARE, or missing
//!    rows are gone ─┬───► NO ACTION, RESTRICT   no row may refer to them
//!                   └───► CASCADE, SET …        rows that refer to them change: events
//! ```
//!
//! * The order is that of PostgreSQL's triggers. Rows come in the order in which they were
//!   written; for rows that are gone, foreign keys come in the order of their creation; and the
//!   rows that an action writes come after all waiting events. NOT NULL and CHECK are tested when
//!   rows are written, so before any event.
//! * Events are about batches: they look keys up in unique indexes, scan the referring table once
//!   for the keys of a batch, and belong to the statement's transaction.
//! * Checks of deferrable constraints may be deferred to the end of the transaction
//!   ([`deferred`](crate::deferred)); actions never are. Keys of deferrable unique indexes are
//!   noted here, too, because storage does not check them.
//! * Checks and actions see the newest rows, whatever the statement's snapshot is. An insert of a
//!   referring row locks the referenced row, and a delete of the referenced row waits for that
//!   lock, so that each finds what the other has committed.

mod concerned;
mod lookup;
mod part;
mod put_off;
mod violation;

use std::{collections::VecDeque, sync::Arc};

use aerostat_catalog::{ForeignKey, IndexEntry, ReferentialAction, TableEntry};
use aerostat_storage::{RowId, describe_key};
use aerostat_txn::Transaction;
use aerostat_types::{ConstraintId, ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array},
        compute::take,
    },
    common::Result,
    execution::memory_pool::{MemoryConsumer, MemoryReservation},
    physical_plan::collect,
};

use super::{
    insert::{bind_table_rows, default_row},
    rights::described_key,
    rows::{blocking, check, plan_source, table_rows},
};
use crate::{
    deferred::{About, PutOff},
    error::external,
    physical::{optimize, plan_physical, task_context},
    plan::{StatementContext, Target},
};

use lookup::{by_index, first_there, lock_rows};
use part::{Completeness, all_valid, changed, complete, complete_only, converted, replaced};
use violation::{mixed, not_present, schema_of, violation};

pub use concerned::{lock_concerned, lock_concerned_by_insert};
pub(super) use part::Part;
pub use put_off::{check_put_off, lock_put_off};

/// What one statement has to do for foreign keys.
pub(super) struct Referential<'a> {
    context: &'a StatementContext,
    transaction: Arc<Transaction>,
    /// Whether the statement changes several tables, or one several times.
    is_several: bool,
    events: VecDeque<Event>,
    /// Whether an event is an error, so that later events do not count.
    has_failed: bool,
    /// Whether an action has changed rows, so that some rows of waiting events may be gone again.
    has_acted: bool,
    /// Checks that are deferred to the end of the transaction.
    put_off: Vec<Arc<PutOff>>,
    /// The memory of the events' values.
    reservation: MemoryReservation,
}

enum Event {
    New(New),
    Gone(Gone),
    /// Values refer to no row. The error is reported in the order of the events.
    Failed(SqlError),
}

/// Values of the columns of a foreign key, none of them NULL.
struct New {
    entry: Arc<TableEntry>,
    key: ForeignKey,
    values: Vec<ArrayRef>,
}

/// Rows that have ended, and their new versions unless they were deleted.
struct Gone {
    entry: Arc<TableEntry>,
    old: Part,
    new: Option<Part>,
}

impl Event {
    /// The size of its values in memory.
    fn bytes(&self) -> usize {
        match self {
            Event::New(new) => new.values.iter().map(|v| v.get_array_memory_size()).sum(),
            Event::Gone(gone) => gone.old.bytes() + gone.new.as_ref().map_or(0, Part::bytes),
            Event::Failed(_) => 0,
        }
    }
}

impl<'a> Referential<'a> {
    /// Whether a table refers to another or is referred to, or checks of its unique indexes are
    /// deferred.
    pub(super) fn concerns(context: &StatementContext, entry: &TableEntry) -> bool {
        !entry.foreign_keys.is_empty()
            || !context.indexes_put_off(entry).is_empty()
            || context.catalog.referring(entry.oid).next().is_some()
    }

    /// Begins the work for the changes of one statement.
    pub(super) fn new(
        context: &'a StatementContext,
        transaction: &Arc<Transaction>,
        is_several: bool,
    ) -> Self {
        let pool = &context.state.runtime_env().memory_pool;
        Self {
            context,
            transaction: Arc::clone(transaction),
            is_several,
            events: VecDeque::new(),
            has_failed: false,
            has_acted: false,
            put_off: Vec::new(),
            reservation: MemoryConsumer::new("foreign keys").register(pool),
        }
    }

    /// The columns of a table that its foreign keys, foreign keys that refer to it, or its
    /// deferrable unique indexes contain, in ascending order.
    pub(super) fn columns(&self, entry: &TableEntry) -> Vec<usize> {
        let referring = self.context.catalog.referring(entry.oid);
        let mut positions: Vec<usize> = referring
            .flat_map(|(_, key)| &key.referenced_columns)
            .chain(entry.foreign_keys.iter().flat_map(|key| &key.columns))
            .chain(
                entry
                    .deferrable_indexes()
                    .flat_map(|index| &index.index.columns),
            )
            .copied()
            .collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Notes that rows were inserted. The referenced rows are locked at once, so that a load of
    /// any size need not keep its values; unless the statement may still insert the referenced
    /// rows.
    pub(super) async fn inserted(
        &mut self,
        entry: &Arc<TableEntry>,
        rows: &RecordBatch,
    ) -> Result<()> {
        let part = Part::all(rows.clone());
        for index in self.indexes_put_off(entry) {
            let keys = part.values(&index.index.columns);
            self.put_off(index.constraint_id(), About::Keys, keys)?;
        }
        for key in &entry.foreign_keys {
            let Some(new) = self.referring(entry, key, part.values(&key.columns))? else {
                continue;
            };
            if self.puts_off(key) {
                self.put_off(key.oid, About::References, new.values)?;
            } else if key.referenced == entry.oid || self.is_several {
                self.push(Event::New(new))?;
            } else if !self.has_failed
                && let Some(violation) = self.lock_referenced(&new).await?
            {
                self.push(Event::Failed(violation))?;
            }
        }
        Ok(())
    }

    /// Notes that rows were updated, or are about to be. Both parts have the same rows in the same
    /// order, with at least the columns of [`Self::columns`].
    pub(super) fn updated(&mut self, entry: &Arc<TableEntry>, old: Part, new: Part) -> Result<()> {
        assert_eq!(
            old.len(),
            new.len(),
            "each updated row of {} has one new version",
            entry.name
        );
        for index in self.indexes_put_off(entry) {
            let changed = changed(&old, &new, &index.index.columns)?;
            if changed.true_count() > 0 {
                let keys = new.filtered(&changed)?.values(&index.index.columns);
                self.put_off(index.constraint_id(), About::Keys, keys)?;
            }
        }
        let mut given = Vec::new();
        for key in &entry.foreign_keys {
            let changed = changed(&old, &new, &key.columns)?;
            if changed.true_count() > 0 {
                given.push((key, new.filtered(&changed)?.values(&key.columns)));
            }
        }
        self.push(Event::Gone(Gone {
            entry: Arc::clone(entry),
            old,
            new: Some(new),
        }))?;
        for (key, values) in given {
            match self.referring(entry, key, values)? {
                Some(new) if self.puts_off(key) => {
                    self.put_off(key.oid, About::References, new.values)?;
                }
                Some(new) => self.push(Event::New(new))?,
                None => {}
            }
        }
        Ok(())
    }

    /// Notes that rows were deleted, or are about to be.
    pub(super) fn deleted(&mut self, entry: &Arc<TableEntry>, old: Part) -> Result<()> {
        self.push(Event::Gone(Gone {
            entry: Arc::clone(entry),
            old,
            new: None,
        }))
    }

    /// Does the remaining work, after all rows of the statement have been written.
    pub(super) async fn finish(mut self) -> Result<()> {
        while let Some(event) = self.events.pop_front() {
            self.reservation.shrink(event.bytes());
            match event {
                Event::New(new) => {
                    if let Some(violation) = self.lock_referenced(&new).await? {
                        return Err(external(violation));
                    }
                }
                Event::Gone(gone) => self.let_go(&gone).await?,
                Event::Failed(violation) => return Err(external(violation)),
            }
        }
        if let Some(deferred) = &self.context.deferred {
            deferred.add(self.put_off);
        }
        Ok(())
    }

    /// Whether checks of a foreign key are deferred to the end of the transaction.
    fn puts_off(&self, key: &ForeignKey) -> bool {
        self.context.puts_off(key.oid, key.deferral)
    }

    /// The unique indexes whose checks are deferred to the end of the transaction.
    fn indexes_put_off<'e>(&self, entry: &'e TableEntry) -> Vec<&'e IndexEntry> {
        let context = self.context;
        entry
            .deferrable_indexes()
            .filter(|index| context.puts_off(index.constraint_id(), index.deferral))
            .collect()
    }

    fn put_off(
        &mut self,
        constraint: ConstraintId,
        about: About,
        values: Vec<ArrayRef>,
    ) -> Result<()> {
        let pool = &self.context.state.runtime_env().memory_pool;
        let check = PutOff::new(pool, constraint, about, values)?;
        self.put_off.push(check);
        Ok(())
    }

    fn push(&mut self, event: Event) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.has_failed = matches!(event, Event::Failed(_));
        self.reservation.try_grow(event.bytes())?;
        self.events.push_back(event);
        Ok(())
    }

    /// The new values that refer to a row, as an event; `None` if there are none.
    fn referring(
        &mut self,
        entry: &Arc<TableEntry>,
        key: &ForeignKey,
        values: Vec<ArrayRef>,
    ) -> Result<Option<New>> {
        let values = match complete(&values)? {
            Completeness::All => values,
            Completeness::None => return Ok(None),
            Completeness::Some { filtered, is_mixed } => {
                if key.is_full && is_mixed {
                    self.push(Event::Failed(mixed(self.context, entry, key)))?;
                    return Ok(None);
                }
                filtered
            }
        };
        Ok(Some(New {
            entry: Arc::clone(entry),
            key: key.clone(),
            values,
        }))
    }

    /// Locks the rows that values refer to. Returns a violation if a referenced row is missing and,
    /// after an action, the row with the values still exists.
    async fn lock_referenced(&self, new: &New) -> Result<Option<SqlError>> {
        let New { entry, key, values } = new;
        let referenced = self.referenced(key)?;
        let wanted = converted(values, &referenced, &key.referenced_columns)?;
        let (constraint, wanted) = by_index(&referenced, key, wanted)?;
        let target = self.target(&referenced);
        let (transaction, table) = (Arc::clone(&self.transaction), Arc::clone(&referenced.table));
        let referring = self.has_acted.then(|| Arc::clone(&entry.table));
        let (columns, own) = (key.columns.clone(), values.clone());
        let missing = blocking(&target, move || {
            let view = table.view(transaction.newest_snapshot());
            let found = view.find_by_key(&constraint, &wanted)?;
            assert!(
                wanted.iter().all(|values| values.len() == found.len()),
                "storage looks each referenced key up"
            );
            let mut missing = (0..found.len()).filter(|&row| found[row].is_none());
            let missing = match referring {
                None => missing.next(),
                Some(referring) => {
                    let view = referring.view(transaction.newest_snapshot());
                    first_there(&view, &columns, &own, missing.collect())?
                }
            };
            if missing.is_none() {
                lock_rows(&view, &transaction, found)?;
            }
            Ok(missing)
        });
        let Some(row) = missing.await? else {
            return Ok(None);
        };
        let described = described_key(self.context, entry, || {
            describe_key(entry.table.schema(), &key.columns, values, row)
        });
        let detail = format!(
            "{described} is not present in table \"{}\".",
            referenced.name
        );
        Ok(Some(not_present(self.context, entry, key, detail)))
    }

    /// Handles rows that are gone, for all foreign keys that refer to their table.
    async fn let_go(&mut self, gone: &Gone) -> Result<()> {
        let mut referring: Vec<(Arc<TableEntry>, ForeignKey)> = self
            .context
            .catalog
            .referring(gone.entry.oid)
            .map(|(entry, key)| (Arc::clone(entry), key.clone()))
            .collect();
        referring.sort_by_key(|(_, key)| key.oid);
        for (entry, key) in referring {
            self.let_go_of(gone, &entry, &key).await?;
        }
        Ok(())
    }

    /// Handles rows that are gone, for one foreign key.
    async fn let_go_of(
        &mut self,
        gone: &Gone,
        referring: &Arc<TableEntry>,
        key: &ForeignKey,
    ) -> Result<()> {
        let (old, new, action) = match &gone.new {
            None => (gone.old.clone(), None, key.on_delete),
            Some(new) => {
                let changed = changed(&gone.old, new, &key.referenced_columns)?;
                let new = new.filtered(&changed)?;
                (gone.old.filtered(&changed)?, Some(new), key.on_update)
            }
        };
        let values = old.values(&key.referenced_columns);
        let complete = all_valid(&values)?;
        let (old, new) = match complete.false_count() {
            0 => (old, new),
            _ => (
                old.filtered(&complete)?,
                new.map(|new| new.filtered(&complete)).transpose()?,
            ),
        };
        if old.len() == 0 {
            return Ok(());
        }
        let values = old.values(&key.referenced_columns);
        if action == ReferentialAction::NoAction && self.puts_off(key) {
            return self.put_off(key.oid, About::Gone, values);
        }
        let check = Check {
            entry: &gone.entry,
            referring,
            key,
        };
        match action {
            ReferentialAction::NoAction | ReferentialAction::Restrict => {
                self.require_unreferred(check, action, values).await
            }
            ReferentialAction::Cascade | ReferentialAction::SetNull => {
                self.act(referring, key, action, &values, new).await
            }
            ReferentialAction::SetDefault => {
                self.act(referring, key, action, &values, None).await?;
                // A default may equal the previous value, which still refers to the row that is
                // gone.
                let action = ReferentialAction::NoAction;
                self.require_unreferred(check, action, values).await
            }
        }
    }

    /// CASCADE, SET NULL or SET DEFAULT for the rows that refer to these values.
    async fn act(
        &mut self,
        referring: &Arc<TableEntry>,
        key: &ForeignKey,
        action: ReferentialAction,
        values: &[ArrayRef],
        new: Option<Part>,
    ) -> Result<()> {
        let target = self.target(referring);
        let (transaction, table) = (Arc::clone(&self.transaction), Arc::clone(&referring.table));
        let (positions, wanted) = (
            key.columns.clone(),
            complete_only(converted(values, referring, &key.columns)?)?,
        );
        let deletes = action == ReferentialAction::Cascade && new.is_none();
        let concerned = self.columns(referring);
        let fetched = match deletes {
            true => concerned.clone(),
            false => (0..table.schema().columns.len()).collect(),
        };
        let (rows, sources, view) = blocking(&target, move || {
            let view = table.view(transaction.newest_snapshot());
            let found = view.find_by_values(&positions, &wanted.values)?;
            let (ids, sources): (Vec<RowId>, Vec<u32>) = found
                .into_iter()
                .map(|(id, nth)| (id, wanted.rows[nth]))
                .unzip();
            let rows = view.fetch(&ids, &fetched)?;
            if deletes {
                view.delete(&transaction, &ids)?;
            }
            Ok((rows, (ids, sources), view))
        })
        .await?;
        let (ids, sources) = sources;
        if ids.is_empty() {
            return Ok(());
        }
        self.has_acted = true;
        if deletes {
            return self.deleted(referring, Part::new(concerned, rows));
        }
        let given = match (&action, &new) {
            (ReferentialAction::Cascade, Some(new)) => {
                let values = new.values(&key.referenced_columns);
                let values = converted(&values, referring, &key.columns)?;
                let order = UInt32Array::from(sources);
                let chosen = values.iter().map(|values| Ok(take(values, &order, None)?));
                chosen.collect::<Result<Vec<_>>>()?
            }
            (ReferentialAction::SetDefault, _) => {
                self.defaults(referring, &key.columns, ids.len()).await?
            }
            _ => {
                let schema = rows.schema();
                let null = |at: &usize| new_null_array(schema.field(*at).data_type(), ids.len());
                key.columns.iter().map(null).collect()
            }
        };
        let old = Part::new(concerned.clone(), rows.project(&concerned)?);
        let changed = replaced(&rows, &key.columns, given)?;
        let changed = self.checked(&target, changed).await?;
        let new = Part::new(concerned.clone(), changed.project(&concerned)?);
        let transaction = Arc::clone(&self.transaction);
        let put_off = self.context.indexes_put_off(referring);
        blocking(&target, move || {
            view.update_but(&transaction, &ids, &changed, &put_off)
        })
        .await?;
        self.updated(referring, old, new)
    }

    /// The defaults of columns, each repeated for this number of rows.
    async fn defaults(
        &self,
        entry: &Arc<TableEntry>,
        positions: &[usize],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let target = self.target(entry);
        let source = default_row(self.context, &target)?;
        let state = &self.context.state;
        let plan = plan_physical(state, &optimize(state, source)?).await?;
        let batches = collect(plan, task_context(state)).await?;
        let first = UInt32Array::from(vec![0; rows]);
        let row = batches
            .iter()
            .find(|batch| batch.num_rows() > 0)
            .ok_or_else(|| external(internal("the defaults of a table are no row")))?;
        let schema = entry.table.arrow_schema();
        positions
            .iter()
            .map(|&at| {
                let to = schema.field(at).data_type();
                let values = arrow::compute::cast(row.column(at), to)?;
                Ok(take(&values, &first, None)?)
            })
            .collect()
    }

    /// Checks the rows that an action makes against NOT NULL and CHECK, and returns them.
    async fn checked(&self, target: &Target, rows: RecordBatch) -> Result<RecordBatch> {
        let bound = bind_table_rows(self.context, target.clone(), rows.clone())?;
        let plan = plan_source(&self.context.state, &bound).await?;
        for batch in collect(plan, task_context(&self.context.state)).await? {
            check(&bound, &batch)?;
        }
        table_rows(&bound, &rows)
    }

    /// Refuses that rows with these values go while other rows still refer to them.
    async fn require_unreferred(
        &self,
        check: Check<'_>,
        action: ReferentialAction,
        values: Vec<ArrayRef>,
    ) -> Result<()> {
        let Check {
            entry,
            referring,
            key,
        } = check;
        let target = self.target(entry);
        let transaction = Arc::clone(&self.transaction);
        let (table, other) = (Arc::clone(&entry.table), Arc::clone(&referring.table));
        let (constraint, own) = by_index(entry, key, values.clone())?;
        let wanted = complete_only(converted(&values, referring, &key.columns)?)?;
        let positions = key.columns.clone();
        let still = blocking(&target, move || {
            let newest = transaction.newest_snapshot();
            let found = other
                .view(newest.clone())
                .find_by_values(&positions, &wanted.values)?;
            let mut rows: Vec<usize> = found
                .into_iter()
                .map(|(_, nth)| wanted.rows[nth] as usize)
                .collect();
            rows.sort_unstable();
            if action == ReferentialAction::NoAction && !rows.is_empty() {
                // Another row may have got the key since.
                let there = table.view(newest).find_by_key(&constraint, &own)?;
                rows.retain(|&row| there[row].is_none());
            }
            Ok(rows.first().copied())
        });
        let Some(row) = still.await? else {
            return Ok(());
        };
        let described = described_key(self.context, entry, || {
            describe_key(entry.table.schema(), &key.referenced_columns, &values, row)
        });
        let message = format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
            entry.name, key.name, referring.name
        );
        let detail = format!(
            "{described} is still referenced from table \"{}\".",
            referring.name
        );
        Err(external(violation(
            self.context,
            referring,
            key,
            message,
            detail,
        )))
    }

    fn referenced(&self, key: &ForeignKey) -> Result<Arc<TableEntry>> {
        let found = self.context.catalog.table(key.referenced);
        let (_, entry) = found.ok_or_else(|| {
            external(internal(
                "a foreign key refers to a table that is not there",
            ))
        })?;
        Ok(Arc::clone(entry))
    }

    fn target(&self, entry: &Arc<TableEntry>) -> Target {
        Target::unpublished(entry, &schema_of(self.context, entry))
    }
}

/// A foreign key, and the tables that it refers to and from.
#[derive(Clone, Copy)]
struct Check<'c> {
    entry: &'c Arc<TableEntry>,
    referring: &'c Arc<TableEntry>,
    key: &'c ForeignKey,
}

fn internal(message: &str) -> SqlError {
    SqlError::new(ErrorKind::Internal, message)
}
