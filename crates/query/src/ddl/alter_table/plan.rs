//! The queries of an ALTER TABLE: the rows as they come to be, and the rows that break what
//! comes to hold.

use std::sync::Arc;

use aerostat_semantics::{functions, type_literals};
use aerostat_types::{Column, ErrorKind, SqlError, SqlType, quote_ident};
use datafusion::{
    common::{DFSchema, Result, TableReference},
    datasource::provider_as_source,
    logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder},
    prelude::Column as ColumnName,
    scalar::ScalarValue,
    sql::{planner::PlannerContext, sqlparser::ast},
};

use super::{PendingAlter, Source};
use crate::{
    dml::parse_expression,
    error::{external, from_datafusion},
    pgcatalog::numbers_of,
    plan::{StatementContext, rewrite_forms},
    scan::TableScanProvider,
    statement,
};

/// All rows of the table as it is.
fn scan(context: &StatementContext, pending: &PendingAlter) -> Result<LogicalPlanBuilder> {
    let entry = pending.entry();
    let provider = TableScanProvider::new(context.table_view(entry), Arc::clone(&entry.usage));
    let source = provider_as_source(Arc::new(provider));
    LogicalPlanBuilder::scan(TableReference::bare(entry.name.clone()), source, None)
}

/// A query of the rows as they come to be, under the table's name.
///
/// # Errors
/// As PostgreSQL: a type that values are not cast to, an expression that cannot be planned.
pub(crate) fn plan_rows(
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
            Source::Kept(at) => own(*at),
            Source::Added => added(context, pending, column).map_err(fail)?,
            Source::Converted(at, None) => converted(own(*at), rows.schema(), column)
                .map_err(|error| not_cast(fail(error), column, old[*at].ty, false))?,
            Source::Converted(at, Some(using)) => {
                let value = computed(context, using, rows.schema()).map_err(fail)?;
                converted(value, rows.schema(), column)
                    .map_err(|error| not_cast(fail(error), column, old[*at].ty, true))?
            }
        };
        outputs.push(value.alias_qualified(Some(table.clone()), column.name.as_str()));
    }
    let planned = rows.project(outputs).and_then(LogicalPlanBuilder::build);
    planned.map_err(fail)
}

/// A new column's value in rows that are there.
fn added(context: &StatementContext, pending: &PendingAlter, column: &Column) -> Result<Expr> {
    let empty = DFSchema::empty();
    if let Some(sequence) = pending.new_sequence(&column.name) {
        return converted(numbers_of(sequence), &empty, column);
    }
    let Some(default) = &column.default else {
        return Expr::Literal(ScalarValue::Null, None).cast_to(&column.ty.arrow(), &empty);
    };
    let parsed = parse_expression(default)?;
    let parameters = &mut PlannerContext::new();
    let value = context.planner().sql_to_expr(parsed, &empty, parameters)?;
    converted(value, &empty, column)
}

/// What USING says.
fn computed(context: &StatementContext, using: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
    let mut using = using.clone();
    rewrite_forms(&mut using).map_err(external)?;
    type_literals(&mut using).map_err(external)?;
    context
        .planner()
        .sql_to_expr(using, schema, &mut PlannerContext::new())
}

/// The value in the column's type, by PostgreSQL's assignment casts.
fn converted(value: Expr, schema: &DFSchema, column: &Column) -> Result<Expr> {
    let (_, field) = value.to_field(schema)?;
    functions::assign(value, &field, column.ty, &column.name)
}

/// PostgreSQL's words for a value that is not assigned to the type.
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

/// Queries of rows that break what comes to hold of rows that stay where they are, each with
/// the error if it has any.
///
/// # Errors
/// A condition that cannot be planned.
pub(crate) fn plan_violations(
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

/// The words for what a row breaks that is being copied, where an INSERT has others.
pub(crate) fn of_rewrite(error: SqlError, pending: &PendingAlter) -> SqlError {
    match (error.kind, &error.object, &error.constraint) {
        (ErrorKind::NotNullViolation, Some(object), _) => match &object.2 {
            Some(column) => pending.has_null(column.clone()),
            None => error,
        },
        (ErrorKind::CheckViolation, _, Some(check)) => pending.is_violated(check.clone()),
        (ErrorKind::UniqueViolation, object, Some(index)) => {
            let mut duplicated = SqlError::new(
                error.kind,
                format!("could not create unique index \"{index}\""),
            )
            .with_constraint(index.clone());
            duplicated.object.clone_from(object);
            let detail = error.detail.as_deref().unwrap_or_default();
            duplicated.with_detail(detail.replace("already exists.", "is duplicated."))
        }
        _ => error,
    }
}

impl PendingAlter {
    fn has_null(&self, column: String) -> SqlError {
        let table = self.before.name.clone();
        let mut error = SqlError::new(
            ErrorKind::NotNullViolation,
            format!("column \"{column}\" of relation \"{table}\" contains null values"),
        );
        error.object = Some(Box::new((self.place.schema.clone(), table, Some(column))));
        error
    }

    fn is_violated(&self, check: String) -> SqlError {
        let table = self.before.name.clone();
        let mut error = SqlError::new(
            ErrorKind::CheckViolation,
            format!("check constraint \"{check}\" of relation \"{table}\" is violated by some row"),
        )
        .with_constraint(check);
        error.object = Some(Box::new((self.place.schema.clone(), table, None)));
        error
    }
}
