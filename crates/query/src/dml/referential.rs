//! Foreign keys: what a statement must check, and do to other tables, for the
//! rows it wrote.
//!
//! ```text
//!  new rows ──────────► the rows they refer to are locked FOR KEY SHARE, or missing
//!  rows that are gone ─► NO ACTION, RESTRICT    checked at the end
//!                      └ CASCADE, SET …         rows that refer to them change;
//!                                               those are gone, too, and so on
//! ```
//!
//! * All is done batch by batch, by look-ups in unique indexes and one scan of the
//!   referring table for the keys of a batch, and within the statement's transaction.
//! * It is done to the newest rows, whatever the statement's snapshot: who inserts a
//!   row that refers to another holds that one, who deletes that one waits for it,
//!   and each finds what the other has committed.
//! * Actions come before checks, so that a row may be referred to by one that goes
//!   with it.

use std::{collections::VecDeque, sync::Arc};

use aerostat_storage::{RowId, StorageError, Table, WaitPolicy, describe_key};
use aerostat_txn::{RowLock, Transaction};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array},
        compute::{
            CastOptions, and, cast_with_options, filter_record_batch,
            kernels::cmp::{distinct, not_distinct},
            nullif, or, take,
        },
        datatypes::{Field, Schema},
    },
    common::Result,
    physical_plan::collect,
};

use super::{
    insert::{bind_table_rows, default_row},
    sink::{blocking, check, plan, table_rows},
};
use crate::{
    catalog::{ForeignKey, ReferentialAction, TableEntry},
    error::external,
    plan::{StatementContext, Target},
};

/// What one statement has to do for foreign keys.
pub(super) struct Referential<'a> {
    context: &'a StatementContext,
    transaction: Arc<Transaction>,
    gone: VecDeque<Gone>,
    /// New rows that refer to rows of their own table, which may come later.
    new: Vec<New>,
    checks: Vec<Check>,
}

/// Some columns of some rows of a table.
#[derive(Clone)]
pub(super) struct Part {
    positions: Vec<usize>,
    rows: RecordBatch,
}

/// Rows that are no longer as they were, and what they are now unless they are deleted.
struct Gone {
    entry: Arc<TableEntry>,
    old: Part,
    new: Option<Part>,
}

/// Values of the columns of a foreign key, none of them NULL.
struct New {
    entry: Arc<TableEntry>,
    key: ForeignKey,
    values: Vec<ArrayRef>,
}

/// Values that rows were referred to by, and must not be any more.
struct Check {
    entry: Arc<TableEntry>,
    referring: Arc<TableEntry>,
    key: ForeignKey,
    action: ReferentialAction,
    values: Vec<ArrayRef>,
}

impl<'a> Referential<'a> {
    /// For a statement; `None` if no foreign key refers to the table or from it.
    pub(super) fn of(
        context: &'a StatementContext,
        entry: &TableEntry,
        transaction: &Arc<Transaction>,
    ) -> Option<Self> {
        let is_concerned =
            !entry.foreign_keys.is_empty() || context.catalog.referring(entry.oid).next().is_some();
        is_concerned.then(|| Self {
            context,
            transaction: Arc::clone(transaction),
            gone: VecDeque::new(),
            new: Vec::new(),
            checks: Vec::new(),
        })
    }

    /// The columns of a table that foreign keys refer from or to.
    pub(super) fn columns(&self, entry: &TableEntry) -> Vec<usize> {
        let referring = self.context.catalog.referring(entry.oid);
        let mut positions: Vec<usize> = referring
            .flat_map(|(_, key)| &key.referenced_columns)
            .chain(entry.foreign_keys.iter().flat_map(|key| &key.columns))
            .copied()
            .collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    /// Rows were inserted.
    pub(super) async fn inserted(
        &mut self,
        entry: &Arc<TableEntry>,
        rows: &RecordBatch,
    ) -> Result<()> {
        let part = Part::all(rows.clone());
        for key in &entry.foreign_keys {
            self.refer(entry, key, part.values(&key.columns)).await?;
        }
        Ok(())
    }

    /// Rows were updated, or are about to be; both parts in the same order, with at least
    /// [`Self::columns`].
    pub(super) async fn updated(
        &mut self,
        entry: &Arc<TableEntry>,
        old: Part,
        new: Part,
    ) -> Result<()> {
        for key in &entry.foreign_keys {
            let changed = changed(&old, &new, &key.columns)?;
            if changed.true_count() > 0 {
                let values = new.filtered(&changed)?.values(&key.columns);
                self.refer(entry, key, values).await?;
            }
        }
        self.gone.push_back(Gone {
            entry: Arc::clone(entry),
            old,
            new: Some(new),
        });
        Ok(())
    }

    /// Rows were deleted.
    pub(super) fn deleted(&mut self, entry: &Arc<TableEntry>, old: Part) {
        self.gone.push_back(Gone {
            entry: Arc::clone(entry),
            old,
            new: None,
        });
    }

    /// Does what is left to do, after all rows of the statement are written.
    pub(super) async fn finish(mut self) -> Result<()> {
        while let Some(gone) = self.gone.pop_front() {
            let referring: Vec<(Arc<TableEntry>, ForeignKey)> = self
                .context
                .catalog
                .referring(gone.entry.oid)
                .map(|(entry, key)| (Arc::clone(entry), key.clone()))
                .collect();
            for (entry, key) in referring {
                self.let_go(&gone, entry, key).await?;
            }
        }
        for new in std::mem::take(&mut self.new) {
            self.lock_referenced(&new.entry, &new.key, new.values)
                .await?;
        }
        for check in std::mem::take(&mut self.checks) {
            self.check_unreferred(check).await?;
        }
        Ok(())
    }

    /// New values of a foreign key's columns.
    async fn refer(
        &mut self,
        entry: &Arc<TableEntry>,
        key: &ForeignKey,
        values: Vec<ArrayRef>,
    ) -> Result<()> {
        let values = match complete(&values)? {
            Completeness::All => values,
            Completeness::None => return Ok(()),
            Completeness::Some { filtered, is_mixed } => {
                if key.is_full && is_mixed {
                    return Err(external(mixed(self.context, entry, key)));
                }
                filtered
            }
        };
        if key.referenced == entry.oid {
            self.new.push(New {
                entry: Arc::clone(entry),
                key: key.clone(),
                values,
            });
            return Ok(());
        }
        self.lock_referenced(entry, key, values).await
    }

    /// Locks the rows that these values refer to.
    async fn lock_referenced(
        &self,
        entry: &Arc<TableEntry>,
        key: &ForeignKey,
        values: Vec<ArrayRef>,
    ) -> Result<()> {
        let referenced = self.referenced(key)?;
        let wanted = converted(&values, &referenced, &key.referenced_columns)?;
        let (constraint, wanted) = by_index(&referenced, key, wanted)?;
        let target = self.target(&referenced);
        let (transaction, table) = (Arc::clone(&self.transaction), Arc::clone(&referenced.table));
        let missing = blocking(&target, move || {
            lock_by_key(&table, &transaction, &constraint, &wanted)
        });
        let Some(row) = missing.await? else {
            return Ok(());
        };
        let described = describe_key(entry.table.schema(), &key.columns, &values, row);
        let message = format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            entry.name, key.name
        );
        let detail = format!(
            "{described} is not present in table \"{}\".",
            referenced.name
        );
        Err(external(violation(
            self.context,
            entry,
            key,
            message,
            detail,
        )))
    }

    /// Rows are gone that rows of another table, or the same, may refer to.
    async fn let_go(
        &mut self,
        gone: &Gone,
        referring: Arc<TableEntry>,
        key: ForeignKey,
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
        if old.rows.num_rows() == 0 {
            return Ok(());
        }
        let values = old.values(&key.referenced_columns);
        if matches!(
            action,
            ReferentialAction::NoAction | ReferentialAction::Restrict
        ) {
            self.checks.push(Check {
                entry: Arc::clone(&gone.entry),
                referring,
                key,
                action,
                values,
            });
            return Ok(());
        }
        self.act(&referring, &key, action, &values, new).await
    }

    /// CASCADE, SET NULL, SET DEFAULT for the rows that refer to these values.
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
        let (rows, sources, view) = blocking(&target, move || {
            let view = table.view(transaction.newest_snapshot());
            let found = view.find_by_values(&positions, &wanted.values)?;
            let (ids, sources): (Vec<RowId>, Vec<u32>) = found
                .into_iter()
                .map(|(id, nth)| (id, wanted.rows[nth]))
                .unzip();
            let all: Vec<usize> = (0..table.schema().columns.len()).collect();
            let rows = view.fetch(&ids, &all)?;
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
        let old = Part::all(rows.clone());
        if deletes {
            self.deleted(referring, old);
            return Ok(());
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
        let changed = replaced(&rows, &key.columns, given)?;
        let changed = self.checked(&target, changed).await?;
        let (transaction, new_rows) = (Arc::clone(&self.transaction), changed.clone());
        blocking(&target, move || view.update(&transaction, &ids, &new_rows)).await?;
        Box::pin(self.updated(referring, old, Part::all(changed))).await
    }

    /// The defaults of columns, for so many rows.
    async fn defaults(
        &self,
        entry: &Arc<TableEntry>,
        positions: &[usize],
        rows: usize,
    ) -> Result<Vec<ArrayRef>> {
        let target = self.target(entry);
        let source = default_row(self.context, &target)?;
        let state = &self.context.state;
        let optimized = state.optimize(&source)?;
        let planner = state.query_planner();
        let plan = planner
            .create_physical_plan(&optimized, state.as_ref())
            .await?;
        let batches = collect(plan, state.task_ctx()).await?;
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

    /// Rows that an action makes, if they keep NOT NULL and CHECK.
    async fn checked(&self, target: &Target, rows: RecordBatch) -> Result<RecordBatch> {
        let bound = bind_table_rows(self.context, target.clone(), rows.clone())?;
        let plan = plan(&self.context.state, &bound).await?;
        for batch in collect(plan, self.context.state.task_ctx()).await? {
            check(&bound, &batch)?;
        }
        table_rows(&bound, &rows)
    }

    /// Refuses to let go of what is still referred to.
    async fn check_unreferred(&self, check: Check) -> Result<()> {
        let Check {
            entry,
            referring,
            key,
            action,
            values,
        } = check;
        let target = self.target(&entry);
        let transaction = Arc::clone(&self.transaction);
        let (table, other) = (Arc::clone(&entry.table), Arc::clone(&referring.table));
        let (constraint, own) = by_index(&entry, &key, values.clone())?;
        let wanted = complete_only(converted(&values, &referring, &key.columns)?)?;
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
                // Another row may have the key by now.
                let there = table.view(newest).find_by_key(&constraint, &own)?;
                rows.retain(|&row| there[row].is_none());
            }
            Ok(rows.first().copied())
        });
        let Some(row) = still.await? else {
            return Ok(());
        };
        let described = describe_key(entry.table.schema(), &key.referenced_columns, &values, row);
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
            &referring,
            &key,
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

impl Part {
    /// Columns of a table at these positions.
    pub(super) fn new(positions: Vec<usize>, rows: RecordBatch) -> Self {
        Self { positions, rows }
    }

    /// All columns of a table.
    pub(super) fn all(rows: RecordBatch) -> Self {
        let positions = (0..rows.num_columns()).collect();
        Self { positions, rows }
    }

    /// The columns at these positions of the table, all of which it has.
    fn values(&self, positions: &[usize]) -> Vec<ArrayRef> {
        let of = |wanted: &usize| self.positions.iter().position(|at| at == wanted);
        let found = positions.iter().filter_map(of);
        found.map(|at| Arc::clone(self.rows.column(at))).collect()
    }

    fn filtered(&self, mask: &BooleanArray) -> Result<Self> {
        Ok(Self {
            positions: self.positions.clone(),
            rows: filter_record_batch(&self.rows, mask)?,
        })
    }
}

/// Which rows differ in one of the columns.
fn changed(old: &Part, new: &Part, positions: &[usize]) -> Result<BooleanArray> {
    let (old_values, new_values) = (old.values(positions), new.values(positions));
    let mut changed = BooleanArray::from(vec![false; old.rows.num_rows()]);
    for (old, new) in old_values.iter().zip(&new_values) {
        changed = or(&changed, &distinct(old, new)?)?;
    }
    Ok(changed)
}

fn all_valid(values: &[ArrayRef]) -> Result<BooleanArray> {
    let rows = values.first().map_or(0, |values| values.len());
    let mut valid = BooleanArray::from(vec![true; rows]);
    for values in values.iter().filter(|values| values.null_count() > 0) {
        valid = and(&valid, &arrow::compute::is_not_null(values)?)?;
    }
    Ok(valid)
}

/// Whether rows have NULLs in the columns of a foreign key.
enum Completeness {
    /// None has.
    All,
    /// All are NULL throughout.
    None,
    /// Some have: those that have none, and whether one has NULLs and others.
    Some {
        filtered: Vec<ArrayRef>,
        is_mixed: bool,
    },
}

fn complete(values: &[ArrayRef]) -> Result<Completeness> {
    let valid = all_valid(values)?;
    if valid.false_count() == 0 {
        return Ok(Completeness::All);
    }
    let is_mixed = (0..valid.len())
        .any(|row| !valid.value(row) && values.iter().any(|values| values.is_valid(row)));
    if valid.true_count() == 0 && !is_mixed {
        return Ok(Completeness::None);
    }
    let filtered = values
        .iter()
        .map(|values| Ok(arrow::compute::filter(values, &valid)?))
        .collect::<Result<Vec<_>>>()?;
    Ok(Completeness::Some { filtered, is_mixed })
}

/// Values without those that are NULL in one column, and which rows they are of.
struct Found {
    values: Vec<ArrayRef>,
    rows: Vec<u32>,
}

fn complete_only(values: Vec<ArrayRef>) -> Result<Found> {
    let valid = all_valid(&values)?;
    let rows: Vec<u32> = (0..valid.len() as u32)
        .filter(|&row| valid.value(row as usize))
        .collect();
    if valid.false_count() == 0 {
        return Ok(Found { values, rows });
    }
    let filtered = values
        .iter()
        .map(|values| Ok(arrow::compute::filter(values, &valid)?))
        .collect::<Result<Vec<_>>>()?;
    Ok(Found {
        values: filtered,
        rows,
    })
}

/// Values as those of a table's columns at these positions; NULL where such a column has no
/// such value.
fn converted(
    values: &[ArrayRef],
    entry: &TableEntry,
    positions: &[usize],
) -> Result<Vec<ArrayRef>> {
    let schema = entry.table.arrow_schema();
    values
        .iter()
        .zip(positions)
        .map(|(values, &at)| {
            let to = schema.field(at).data_type();
            if values.data_type() == to {
                return Ok(Arc::clone(values));
            }
            let safe = CastOptions {
                safe: true,
                ..CastOptions::default()
            };
            let there = cast_with_options(values, to, &safe)?;
            let back = cast_with_options(&there, values.data_type(), &safe)?;
            let is_other = arrow::compute::not(&not_distinct(&back, values)?)?;
            Ok(nullif(&there, &is_other)?)
        })
        .collect()
}

/// The rows with other values in these columns.
fn replaced(rows: &RecordBatch, positions: &[usize], given: Vec<ArrayRef>) -> Result<RecordBatch> {
    let mut columns = rows.columns().to_vec();
    for (&at, values) in positions.iter().zip(given) {
        columns[at] = values;
    }
    let schema = rows.schema();
    let fields = schema.fields().iter();
    let nullable = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Schema::new(nullable.collect::<Vec<Field>>());
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Locks the rows that have these keys, in the newest state; the first of `values` that no
/// row has. A conflict if one is taken away meanwhile: a later look tells by whom.
fn lock_by_key(
    table: &Arc<Table>,
    transaction: &Transaction,
    constraint: &str,
    values: &[ArrayRef],
) -> Result<Option<usize>, StorageError> {
    let view = table.view(transaction.newest_snapshot());
    let found = view.find_by_key(constraint, values)?;
    if let Some(missing) = found.iter().position(Option::is_none) {
        return Ok(Some(missing));
    }
    let mut ids: Vec<RowId> = found.into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    view.lock(transaction, &ids, RowLock::KeyShare, WaitPolicy::Wait)?;
    Ok(None)
}

/// The name of the constraint that a foreign key refers to, and values of the columns
/// referred to in the order of that.
fn by_index(
    referenced: &TableEntry,
    key: &ForeignKey,
    values: Vec<ArrayRef>,
) -> Result<(String, Vec<ArrayRef>)> {
    let index = referenced.index(key.index);
    let index = index.ok_or_else(|| {
        external(internal(
            "a foreign key refers to an index that is not there",
        ))
    })?;
    let of = |wanted: &usize| key.referenced_columns.iter().position(|at| at == wanted);
    let order = index.index.columns.iter().filter_map(of);
    let ordered = order.map(|nth| Arc::clone(&values[nth])).collect();
    Ok((referenced.stored_name(&index), ordered))
}

fn schema_of(context: &StatementContext, entry: &TableEntry) -> String {
    let found = context.catalog.table(entry.oid);
    found.map_or_else(String::new, |(schema, _)| schema.name.clone())
}

fn mixed(context: &StatementContext, entry: &TableEntry, key: &ForeignKey) -> SqlError {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        entry.name, key.name
    );
    let detail = "MATCH FULL does not allow mixing of null and nonnull key values.";
    violation(context, entry, key, message, detail.to_owned())
}

fn violation(
    context: &StatementContext,
    entry: &TableEntry,
    key: &ForeignKey,
    message: String,
    detail: String,
) -> SqlError {
    let mut error = SqlError::new(ErrorKind::ForeignKeyViolation, message)
        .with_detail(detail)
        .with_constraint(key.name.clone());
    let schema = schema_of(context, entry);
    error.object = Some(Box::new((schema, entry.name.clone(), None)));
    error
}

fn internal(message: &str) -> SqlError {
    SqlError::new(ErrorKind::Internal, message)
}
