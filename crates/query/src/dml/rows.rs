//! The rows of a change: planning their query, checking them, and writing them off the query
//! threads.

use std::sync::Arc;

use aerostat_storage::StorageError;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, AsArray, RecordBatch},
        compute::cast,
        datatypes::Schema,
        util::display::{ArrayFormatter, FormatOptions},
    },
    common::Result,
    execution::SessionState,
    physical_plan::ExecutionPlan,
};

use super::{BoundDml, DmlKind};
use crate::{
    error::external,
    physical::{optimize, plan_physical},
    plan::Target,
    scan::locked::waiting,
};

/// Plans the query of a bound statement, without that of DO UPDATE.
///
/// # Errors
/// The errors of optimising and planning it.
pub async fn plan_source(state: &SessionState, bound: &BoundDml) -> Result<Arc<dyn ExecutionPlan>> {
    plan_physical(state, &optimize(state, bound.source.clone())?).await
}

/// The table's columns of a batch, in the types of the table's schema. All may be NULL.
pub(super) fn table_rows(bound: &BoundDml, batch: &RecordBatch) -> Result<RecordBatch> {
    let table = &bound.target.entry.table;
    assert_eq!(
        bound.columns.len(),
        table.arrow_schema().fields().len(),
        "the outputs of a change contain all columns of its table"
    );
    let columns = bound
        .columns
        .clone()
        .zip(table.arrow_schema().fields())
        .map(|(at, field)| {
            let column = batch.column(at);
            if column.data_type() == field.data_type() {
                Ok(Arc::clone(column))
            } else {
                Ok(cast(column, field.data_type())?)
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let fields: Vec<_> = table
        .arrow_schema()
        .fields()
        .iter()
        .map(|f| f.as_ref().clone().with_nullable(true))
        .collect();
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// Refuses the first row that has a NULL where none may be, or that breaks a CHECK. Of several
/// CHECKs the first by name is reported, as in PostgreSQL.
pub(super) fn check(bound: &BoundDml, batch: &RecordBatch) -> Result<()> {
    if bound.kind == DmlKind::Delete {
        return Ok(());
    }
    let schema = bound.target.entry.table.schema();
    assert!(
        bound.checks.is_empty() || bound.checks.len() == schema.checks.len(),
        "a change has {} truths of {} CHECK constraints",
        bound.checks.len(),
        schema.checks.len()
    );
    let nulls = bound.columns.clone().zip(&schema.columns).enumerate();
    let nulls = nulls
        .filter(|(_, (_, column))| !column.nullable)
        .filter_map(|(column, (at, _))| {
            let values = batch.column(at);
            let is_null = |row: &usize| values.is_null(*row);
            let row = (values.null_count() > 0).then(|| (0..values.len()).find(is_null))??;
            Some((row, Broken::NotNull(column)))
        });
    let checks = bound.checks.clone().zip(&schema.checks);
    let checks = checks.filter_map(|(at, check)| {
        let truths = batch.column(at).as_boolean();
        let row = (0..truths.len()).find(|&row| truths.is_valid(row) && !truths.value(row))?;
        Some((row, Broken::Check(&check.name)))
    });
    match nulls.chain(checks).min() {
        Some((row, broken)) => Err(external(broken.error(bound, batch, row))),
        None => Ok(()),
    }
}

/// What a row breaks, in the order in which PostgreSQL checks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Broken<'a> {
    /// NOT NULL of the column at this position.
    NotNull(usize),
    /// The CHECK constraint of this name.
    Check(&'a str),
}

impl Broken<'_> {
    fn error(&self, bound: &BoundDml, batch: &RecordBatch, row: usize) -> SqlError {
        let entry = &bound.target.entry;
        let table = &entry.name;
        let (mut error, column) = match self {
            Broken::NotNull(column) => {
                let column = &entry.table.schema().columns[*column].name;
                let message = format!(
                    "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
                );
                let error = SqlError::new(ErrorKind::NotNullViolation, message);
                (error, Some(column.clone()))
            }
            Broken::Check(name) => {
                let message = format!(
                    "new row for relation \"{table}\" violates check constraint \"{name}\""
                );
                let error = SqlError::new(ErrorKind::CheckViolation, message);
                (error.with_constraint(*name), None)
            }
        };
        error.object = Some(Box::new((
            bound.target.schema.clone(),
            table.clone(),
            column,
        )));
        let shown = shown(bound, batch, row);
        error.with_detail(format!("Failing row contains ({shown})."))
    }
}

fn shown(bound: &BoundDml, batch: &RecordBatch, row: usize) -> String {
    let options = FormatOptions::new().with_null("null");
    let value = |at: usize| {
        ArrayFormatter::try_new(batch.column(at), &options)
            .map_or_else(|_| "?".into(), |f| f.value(row).to_string())
    };
    bound
        .columns
        .clone()
        .map(value)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Runs a write to a table off the query threads, because it may wait for another transaction.
pub(super) async fn blocking<T: Send + 'static>(
    target: &Target,
    write: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T> {
    waiting(write, |mut error| {
        if let Some(object) = &mut error.object {
            // Storage knows a table by the name under which it was created.
            object.0.clone_from(&target.schema);
            object.1.clone_from(&target.entry.name);
        }
        error
    })
    .await
}
