//! The queries of an ALTER TABLE: the rows as they will be, and the rows that break what it adds.

use std::sync::Arc;

use aerostat_catalog::{
    TableEntry,
    ddl::{ColumnSource, PendingAlter, Reference},
};
use aerostat_pgcatalog::numbers_of;
use aerostat_semantics::functions;
use aerostat_sql::statement;
use aerostat_types::{Column, ErrorKind, SqlError, SqlType, TableIndex, TableSchema, quote_ident};
use datafusion::{
    common::{DFSchema, JoinType, Result, TableReference},
    datasource::provider_as_source,
    functions_aggregate::expr_fn::count,
    logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit},
    prelude::Column as ColumnName,
    scalar::ScalarValue,
    sql::{planner::PlannerContext, sqlparser::ast},
};

use super::parse_expression;
use crate::{
    error::from_datafusion,
    plan::{StatementContext, rewrite_expression},
    scan::TableScanProvider,
};

/// All rows of the table as it is now.
fn scan(context: &StatementContext, pending: &PendingAlter) -> Result<LogicalPlanBuilder> {
    scan_of(context, pending.entry())
}

fn scan_of(context: &StatementContext, entry: &TableEntry) -> Result<LogicalPlanBuilder> {
    let provider = TableScanProvider::new(context.table_view(entry), Arc::clone(&entry.usage));
    let source = provider_as_source(Arc::new(provider));
    LogicalPlanBuilder::scan(TableReference::bare(entry.name.clone()), source, None)
}

/// A query of the rows as they will be, under the table's name.
///
/// # Errors
/// As in PostgreSQL: a type to which values cannot be cast, an expression that cannot be planned.
pub fn plan_rows(
    context: &StatementContext,
    pending: &PendingAlter,
    text: &statement::Source,
) -> Result<LogicalPlan, SqlError> {
    let fail = |error| from_datafusion(error, text);
    let rows = scan(context, pending).map_err(fail)?;
    let old = &pending.entry().table.schema().columns;
    let table = TableReference::bare(pending.entry().name.clone());
    let own = |at: usize| {
        let name = old[at].name.as_str();
        Expr::Column(ColumnName::new(Some(table.clone()), name))
    };
    let mut outputs = Vec::with_capacity(pending.schema.columns.len());
    for (source, column) in pending.sources.iter().zip(&pending.schema.columns) {
        let value = match source {
            ColumnSource::Kept(at) => own(*at),
            ColumnSource::Added => added(context, pending, column).map_err(fail)?,
            ColumnSource::Converted(at, using) => {
                let value = match using {
                    None => own(*at),
                    Some(using) => computed(context, using, rows.schema()).map_err(fail)?,
                };
                converted(context, value, rows.schema(), column)
                    .map_err(|error| not_cast(fail(error), column, old[*at].ty, using.is_some()))?
            }
        };
        outputs.push(value.alias_qualified(Some(table.clone()), column.name.as_str()));
    }
    let planned = rows.project(outputs).and_then(LogicalPlanBuilder::build);
    planned.map_err(fail)
}

/// Checks that a column's values, or the results of USING, can be assigned to its new type.
///
/// # Errors
/// The errors of [`plan_rows`].
pub fn plan_conversion(
    context: &StatementContext,
    before: &TableSchema,
    at: usize,
    to: &Column,
    using: Option<&ast::Expr>,
    text: &statement::Source,
) -> Result<(), SqlError> {
    let fail = |error| from_datafusion(error, text);
    let rows = DFSchema::try_from_qualified_schema(before.name.as_str(), &before.arrow());
    let rows = rows.map_err(fail)?;
    let value = match using {
        None => Expr::Column(ColumnName::from(rows.qualified_field(at))),
        Some(using) => computed(context, using, &rows).map_err(fail)?,
    };
    let by_using = using.is_some();
    converted(context, value, &rows, to)
        .map(drop)
        .map_err(|error| not_cast(fail(error), to, before.columns[at].ty, by_using))
}

/// A new column's value in existing rows.
fn added(context: &StatementContext, pending: &PendingAlter, column: &Column) -> Result<Expr> {
    let empty = DFSchema::empty();
    if let Some(sequence) = pending.new_sequence(&column.name) {
        return converted(context, numbers_of(sequence), &empty, column);
    }
    let Some(default) = &column.default else {
        return Expr::Literal(ScalarValue::Null, None).cast_to(&column.ty.arrow(), &empty);
    };
    let parsed = parse_expression(default)?;
    let parameters = &mut PlannerContext::new();
    let value = context.planner().sql_to_expr(parsed, &empty, parameters)?;
    converted(context, value, &empty, column)
}

/// The expression of USING.
fn computed(context: &StatementContext, using: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
    let mut using = using.clone();
    rewrite_expression(&mut using)?;
    context
        .planner()
        .sql_to_expr(using, schema, &mut PlannerContext::new())
}

/// The value in the column's type, by PostgreSQL's assignment casts.
fn converted(
    context: &StatementContext,
    value: Expr,
    schema: &DFSchema,
    column: &Column,
) -> Result<Expr> {
    let (_, field) = value.to_field(schema)?;
    let config = context.state.config_options();
    functions::assign(value, &field, column.ty, &column.name, config)
}

/// PostgreSQL's words for a value that cannot be assigned to the type.
fn not_cast(error: SqlError, column: &Column, from: SqlType, by_using: bool) -> SqlError {
    if error.kind != ErrorKind::DatatypeMismatch || from == column.ty {
        return error;
    }
    let Column { name, ty, .. } = column;
    if by_using {
        return SqlError::new(
            error.kind,
            format!(
                "result of USING clause for column \"{name}\" cannot be cast automatically to type {ty}"
            ),
        )
        .with_hint("You might need to add an explicit cast.");
    }
    SqlError::new(
        error.kind,
        format!("column \"{name}\" cannot be cast automatically to type {ty}"),
    )
    .with_hint(format!(
        "You might need to specify \"USING {}::{ty}\".",
        quote_ident(name)
    ))
}

/// Queries of rows that break a new condition, for rows that stay where they are. Each query
/// comes with the error if it has a row.
///
/// # Errors
/// A condition that cannot be planned.
pub fn plan_violations(
    context: &StatementContext,
    pending: &PendingAlter,
    text: &statement::Source,
) -> Result<Vec<(LogicalPlan, SqlError)>, SqlError> {
    let plan = || -> Result<Vec<(LogicalPlan, SqlError)>> {
        let mut violations = Vec::new();
        for &at in &pending.columns_to_verify {
            let rows = scan(context, pending)?;
            let column = ColumnName::from(rows.schema().qualified_field(at));
            let broken = rows.filter(Expr::Column(column).is_null())?;
            let name = pending.schema.columns[at].name.clone();
            violations.push((first(broken)?, pending.has_null(name)));
        }
        let checks = pending.schema.checks.iter();
        for check in checks.filter(|check| pending.checks_to_verify.contains(&check.name)) {
            let rows = scan(context, pending)?;
            let parsed = parse_expression(&check.expression)?;
            let parameters = &mut PlannerContext::new();
            let condition = context
                .planner()
                .sql_to_expr(parsed, rows.schema(), parameters)?;
            let broken = rows.filter(condition.is_false())?;
            violations.push((first(broken)?, pending.is_violated(check.name.clone())));
        }
        Ok(violations)
    };
    plan().map_err(|error| from_datafusion(error, text))
}

fn first(rows: LogicalPlanBuilder) -> Result<LogicalPlan> {
    rows.limit(0, Some(1))?.build()
}

/// Queries of rows that refer to no row, one for each foreign key that has to be checked: the
/// values of its columns in the first such row.
///
/// # Errors
/// The errors of [`plan_rows`].
pub fn plan_references<'p>(
    context: &StatementContext,
    pending: &'p PendingAlter,
    text: &statement::Source,
) -> Result<Vec<(LogicalPlan, &'p Reference)>, SqlError> {
    let rows_of = |other: Option<&TableEntry>| match other {
        None => plan_rows(context, pending, text),
        Some(entry) => scan_of(context, entry)
            .and_then(LogicalPlanBuilder::build)
            .map_err(|error| from_datafusion(error, text)),
    };
    let plan = |reference: &'p Reference| -> Result<(LogicalPlan, &'p Reference), SqlError> {
        let (key, from, to) = (&reference.key, &reference.from, &reference.to);
        let from = rows_of(from.as_ref().map(|other| &*other.entry))?;
        let to = rows_of(to.as_ref().map(|other| &*other.entry))?;
        let plan = || {
            let from = columns(from, &key.columns, "from")?;
            let to = columns(to, &key.referenced_columns, "to")?.build()?;
            let count = key.columns.len();
            let is_equal = (0..count).map(|nth| column("from", nth).eq(column("to", nth)));
            let refers = from.join_on(to, JoinType::LeftAnti, is_equal)?;
            let has_value = (0..count).map(|nth| column("from", nth).is_not_null());
            let must_refer = has_value.reduce(match key.is_full {
                true => Expr::or,
                false => Expr::and,
            });
            first(refers.filter(must_refer.unwrap_or_else(|| lit(true)))?)
        };
        let plan = plan().map_err(|error| from_datafusion(error, text))?;
        Ok((plan, reference))
    };
    pending.references.iter().map(plan).collect()
}

/// Columns of rows, named by a word and their number.
fn columns(rows: LogicalPlan, positions: &[usize], word: &str) -> Result<LogicalPlanBuilder> {
    let of = |(nth, at): (usize, &usize)| {
        let column = ColumnName::from(rows.schema().qualified_field(*at));
        Expr::Column(column).alias(format!("{word}{nth}"))
    };
    let outputs: Vec<Expr> = positions.iter().enumerate().map(of).collect();
    LogicalPlanBuilder::from(rows).project(outputs)
}

fn column(word: &str, nth: usize) -> Expr {
    Expr::Column(ColumnName::from_name(format!("{word}{nth}")))
}

/// Queries of keys that several rows have, one for each new unique index.
///
/// # Errors
/// The errors of [`plan_rows`].
pub fn plan_duplicates(
    context: &StatementContext,
    pending: &PendingAlter,
    text: &statement::Source,
) -> Result<Vec<(LogicalPlan, TableIndex)>, SqlError> {
    let plan = |index: TableIndex| -> Result<(LogicalPlan, TableIndex), SqlError> {
        let rows = plan_rows(context, pending, text)?;
        let plan = || {
            let mut rows = columns(rows, &index.columns, "key")?;
            let keys = || (0..index.columns.len()).map(|nth| column("key", nth));
            if !index.nulls_not_distinct {
                for key in keys() {
                    rows = rows.filter(key.is_not_null())?;
                }
            }
            let counted = rows.aggregate(keys(), [count(lit(1)).alias("rows")])?;
            let several = Expr::Column(ColumnName::from_name("rows")).gt(lit(1_i64));
            first(counted.filter(several)?.project(keys())?)
        };
        let plan = plan().map_err(|error| from_datafusion(error, text))?;
        Ok((plan, index))
    };
    pending.unique_to_come().into_iter().map(plan).collect()
}
