//! Binding INSERT, CREATE TABLE AS and COPY FROM.

use std::sync::Arc;

use aerostat_sql::{grants::Privilege, tree::merge::NewRow, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{array::RecordBatch, datatypes::Field},
    catalog::TableProvider,
    common::{DFSchema, Result},
    datasource::{MemTable, provider_as_source},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
    scalar::ScalarValue,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{self, SelectItem, SetExpr, TableObject},
    },
};

use super::{
    BoundDml, DmlKind,
    bind::{finish, keep_with},
    on_conflict::bind_on_conflict,
    values::{
        assign, default_value, is_always_generated, is_default, not_default, qualified, refuse,
        unsupported,
    },
};
use crate::{
    error::external,
    plan::{StatementContext, Target, column_identifiers, query_of},
};

/// Binds `INSERT INTO t [(…)] VALUES … | SELECT … | DEFAULT VALUES [ON CONFLICT …] [RETURNING …]`.
/// ON CONFLICT and RETURNING may read the queries of `with`, which also belong to the rows' query.
///
/// # Errors
/// A mistake in the statement: names, types, the role's rights.
pub fn bind_insert(
    context: &StatementContext,
    insert: &ast::Insert,
    with: Option<&ast::With>,
    parameters: &mut PlannerContext,
) -> Result<BoundDml> {
    refuse(
        insert.or.is_some()
            || insert.overwrite
            || insert.partitioned.is_some()
            || !insert.assignments.is_empty(),
        "this form of INSERT",
    )?;
    let TableObject::TableName(name) = &insert.table else {
        return Err(unsupported("INSERT into a table function"));
    };
    let alias = insert.table_alias.as_ref().map(|alias| &alias.alias);
    let target = Target::resolve(context, name, alias, Privilege::Insert).map_err(external)?;
    let listed = listed_columns(&target, &insert.columns)?;
    let explicit = !insert.columns.is_empty();
    let overriding = Overriding::of(insert.priority);
    check_values(&target, &listed, insert.source.as_deref(), overriding)?;
    let plan = match &insert.source {
        None => default_row(context, &target)?,
        Some(query) => match plain_values(query) {
            Some(rows) => {
                let written = Written { rows, overriding };
                plan_values(context, &target, &listed, explicit, &written, parameters)?
            }
            None => {
                let is_values = matches!(&*query.body, SetExpr::Values(_));
                let mut query = (**query).clone();
                expand_defaults(&target, &listed, &mut query.body);
                let plan = context.plan_query(query, parameters)?;
                if !is_values {
                    check_query(&target, &listed, &plan, overriding)?;
                }
                columns_from(context, &target, &listed, explicit, plan, overriding)?
            }
        },
    };
    let returning = insert.returning.as_deref();
    if let Some(with) = with
        && (returning.is_some() || insert.on.is_some())
    {
        keep_with(context, with, parameters)?;
    }
    let conflict = match &insert.on {
        Some(on) => Some(bind_on_conflict(
            context, &target, on, returning, parameters,
        )?),
        None => None,
    };
    let bound = finish(
        context,
        DmlKind::Insert,
        target,
        plan,
        returning,
        parameters,
    )?;
    Ok(BoundDml { conflict, ..bound })
}

/// Binds an INSERT that fills a table with a query of the same columns.
///
/// # Errors
/// A column cannot take the query's values.
pub fn bind_create_table_as(
    context: &StatementContext,
    target: Target,
    plan: LogicalPlan,
) -> Result<BoundDml> {
    let listed: Vec<usize> = (0..target.entry.table.schema().columns.len()).collect();
    let plan = columns_from(context, &target, &listed, true, plan, Overriding::System)?;
    finish(
        context,
        DmlKind::Insert,
        target,
        plan,
        None,
        &mut PlannerContext::new(),
    )
}

/// Binds an INSERT that fills a table with a plan of exactly its columns, under its name.
///
/// # Errors
/// The errors of DataFusion.
pub fn bind_rewrite(
    context: &StatementContext,
    target: Target,
    plan: LogicalPlan,
) -> Result<BoundDml> {
    let parameters = &mut PlannerContext::new();
    finish(context, DmlKind::Insert, target, plan, None, parameters)
}

/// Binds rows as rows of the table, so that its CHECKs are evaluated for them.
pub(super) fn bind_table_rows(
    context: &StatementContext,
    target: Target,
    rows: RecordBatch,
) -> Result<BoundDml> {
    let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
    let source = provider_as_source(Arc::new(table));
    let plan = LogicalPlanBuilder::scan("rows", source, None)?.build()?;
    let columns = plan.schema().iter().enumerate();
    let outputs: Vec<Expr> = columns
        .map(|(at, pair)| qualified(&target, at, Expr::from(pair)))
        .collect();
    let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
    let parameters = &mut PlannerContext::new();
    finish(context, DmlKind::Insert, target, plan, None, parameters)
}

/// Binds `COPY t (…) FROM STDIN`, whose rows come from `stream` with these columns of the table.
///
/// # Errors
/// A default cannot be planned, or an error of DataFusion.
pub fn bind_copy(
    context: &StatementContext,
    target: Target,
    listed: &[usize],
    stream: Arc<dyn TableProvider>,
) -> Result<BoundDml> {
    let plan = LogicalPlanBuilder::scan("copy", provider_as_source(stream), None)?.build()?;
    let plan = columns_from(context, &target, listed, true, plan, Overriding::System)?;
    finish(
        context,
        DmlKind::Insert,
        target,
        plan,
        None,
        &mut PlannerContext::new(),
    )
}

/// The clause of an INSERT about values for identity columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overriding {
    /// No clause: columns that are GENERATED ALWAYS refuse values.
    Nothing,
    /// OVERRIDING SYSTEM VALUE: the values are inserted.
    System,
    /// OVERRIDING USER VALUE: the columns take their own values instead.
    User,
}

impl Overriding {
    /// The clause, which the parser spells as a priority; see `statement::identity`.
    fn of(priority: Option<ast::MysqlInsertPriority>) -> Self {
        match priority {
            Some(ast::MysqlInsertPriority::LowPriority) => Self::System,
            Some(ast::MysqlInsertPriority::HighPriority) => Self::User,
            _ => Self::Nothing,
        }
    }

    /// Whether a column takes its own value instead of the given one.
    fn ignores(self, target: &Target, at: usize) -> bool {
        self == Self::User && target.entry.identity(at).is_some()
    }

    /// Whether a column refuses a given value.
    fn refuses(self, target: &Target, at: usize) -> bool {
        self == Self::Nothing && is_always_generated(target, at)
    }
}

/// The rows of a VALUES, with the columns and the clause that apply to them.
struct Written<'a> {
    rows: &'a [ast::Parens<Vec<ast::Expr>>],
    overriding: Overriding,
}

/// Refuses values for columns that take none; DEFAULT is no value.
fn check_values(
    target: &Target,
    listed: &[usize],
    query: Option<&ast::Query>,
    overriding: Overriding,
) -> Result<()> {
    let Some(SetExpr::Values(values)) = query.map(|query| &*query.body) else {
        return Ok(());
    };
    let is_given = |nth: usize| {
        let mut cells = values.rows.iter().filter_map(|row| row.get(nth));
        cells.any(|cell| !is_default(cell))
    };
    let mut columns = listed.iter().enumerate();
    match columns.find(|&(nth, &at)| overriding.refuses(target, at) && is_given(nth)) {
        Some((_, &at)) => Err(not_default(target, at, true)),
        None => Ok(()),
    }
}

/// As [`check_values`], for a query that is not VALUES.
fn check_query(
    target: &Target,
    listed: &[usize],
    plan: &LogicalPlan,
    overriding: Overriding,
) -> Result<()> {
    let mut given = listed.iter().take(plan.schema().fields().len());
    match given.find(|&&at| overriding.refuses(target, at)) {
        Some(&at) => Err(not_default(target, at, true)),
        None => Ok(()),
    }
}

/// The positions of the columns that a list names; of all columns for an empty list.
///
/// # Errors
/// A column does not exist, or is named twice.
pub fn listed_columns(target: &Target, names: &[ast::ObjectName]) -> Result<Vec<usize>> {
    if names.is_empty() {
        return Ok((0..target.entry.table.schema().columns.len()).collect());
    }
    let mut listed = Vec::with_capacity(names.len());
    for name in column_identifiers(names).map_err(external)? {
        let at = target.column(&name).map_err(external)?;
        if listed.contains(&at) {
            return Err(external(SqlError::new(
                ErrorKind::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            )));
        }
        listed.push(at);
    }
    Ok(listed)
}

/// The rows of a query that consists of VALUES without subqueries.
fn plain_values(query: &ast::Query) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    let bare = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match &*query.body {
        SetExpr::Values(values)
            if bare
                && !values
                    .rows
                    .iter()
                    .flat_map(|row| row.iter())
                    .any(has_subquery) =>
        {
            Some(&values.rows)
        }
        _ => None,
    }
}

fn has_subquery(expression: &ast::Expr) -> bool {
    use std::ops::ControlFlow;

    let found = walk::expressions(expression, |e| match e {
        ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Replaces DEFAULT by the column's expression in a VALUES that must be planned as a query.
fn expand_defaults(target: &Target, listed: &[usize], body: &mut SetExpr) {
    let SetExpr::Values(values) = body else {
        return;
    };
    let rows = std::mem::take(&mut values.rows);
    let selects = rows.into_iter().map(|row| {
        let items = row.iter().enumerate().map(|(at, cell)| {
            let default = || {
                let text = listed.get(at).and_then(|&at| target.entry.default_text(at));
                text.and_then(|text| super::values::parse_expression(&text).ok())
                    .unwrap_or(ast::Expr::value(ast::Value::Null))
            };
            let value = if is_default(cell) {
                default()
            } else {
                cell.clone()
            };
            SelectItem::ExprWithAlias {
                expr: value,
                alias: ast::Ident::with_quote('"', format!("column{}", at + 1)),
            }
        });
        select_of(items.collect())
    });
    let union = selects.reduce(|left, right| SetExpr::SetOperation {
        op: ast::SetOperator::Union,
        set_quantifier: ast::SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    });
    if let Some(union) = union {
        *body = union;
    }
}

fn select_of(projection: Vec<SelectItem>) -> SetExpr {
    let text = "SELECT 1";
    // Parsing is shorter than a SELECT with the defaults of all its fields would be.
    let parsed = datafusion::sql::sqlparser::parser::Parser::parse_sql(
        &datafusion::sql::sqlparser::dialect::PostgreSqlDialect {},
        text,
    );
    if let Ok(mut statements) = parsed
        && let Some(ast::Statement::Query(query)) = statements.pop()
        && let SetExpr::Select(mut select) = *query.body
    {
        select.projection = projection;
        return SetExpr::Select(select);
    }
    SetExpr::Query(Box::new(query_of(SetExpr::Values(ast::Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    }))))
}

pub(super) fn default_row(context: &StatementContext, target: &Target) -> Result<LogicalPlan> {
    let count = target.entry.table.schema().columns.len();
    let outputs: Vec<Expr> = (0..count)
        .map(|at| Ok(qualified(target, at, default_value(context, target, at)?)))
        .collect::<Result<_>>()?;
    LogicalPlanBuilder::empty(true).project(outputs)?.build()
}

/// Plans VALUES. Each cell is cast by itself, as PostgreSQL does for INSERT.
fn plan_values(
    context: &StatementContext,
    target: &Target,
    listed: &[usize],
    explicit: bool,
    written: &Written<'_>,
    parameters: &mut PlannerContext,
) -> Result<LogicalPlan> {
    let Written { rows, overriding } = *written;
    let width = rows.first().map_or(0, |row| row.len());
    if rows.iter().any(|row| row.len() != width) {
        return Err(external(SqlError::new(
            ErrorKind::SyntaxError,
            "VALUES lists must all be the same length",
        )));
    }
    check_width(width, listed, explicit)?;
    let empty = DFSchema::empty();
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        let mut planned = Vec::with_capacity(width);
        for (cell, &at) in row.iter().zip(listed) {
            let own = is_default(cell) || overriding.ignores(target, at);
            let cell = (!own).then_some(cell);
            planned.push(cell_value(context, target, at, cell, &empty, parameters)?);
        }
        cells.push(planned);
    }
    // The types are those of the columns, and a cell's metadata must not count for the others.
    let columns = &target.entry.table.schema().columns;
    let fields = listed[..width].iter().enumerate().map(|(nth, &at)| {
        let ty = columns[at].ty.field("", true).data_type().clone();
        Field::new(format!("column{}", nth + 1), ty, true)
    });
    let schema = DFSchema::from_unqualified_fields(fields.collect(), Default::default())?;
    let values = LogicalPlanBuilder::values_with_schema(cells, &Arc::new(schema))?.build()?;
    let given: Vec<Expr> = values.schema().iter().map(Expr::from).collect();
    project_columns(context, target, listed, width, given, values)
}

/// A cell's value for its column, over rows of this schema; without a cell the column's own value.
fn cell_value(
    context: &StatementContext,
    target: &Target,
    at: usize,
    cell: Option<&ast::Expr>,
    schema: &DFSchema,
    parameters: &mut PlannerContext,
) -> Result<Expr> {
    let Some(cell) = cell else {
        return default_value(context, target, at);
    };
    let planner = context.planner();
    let expression = planner.sql_to_expr(cell.clone(), schema, parameters)?;
    assign(context, expression, schema, target, at)
}

/// For each column of the target, the value that the INSERT of a MERGE gives it, over rows of this
/// schema.
pub(super) fn row_values(
    context: &StatementContext,
    target: &Target,
    row: &NewRow<'_>,
    schema: &DFSchema,
    parameters: &mut PlannerContext,
) -> Result<Vec<Expr>> {
    let overriding = Overriding::of(row.overriding);
    let listed = listed_columns(target, row.columns)?;
    let mut cells: Vec<Option<&ast::Expr>> = vec![None; target.entry.table.schema().columns.len()];
    if let Some(values) = row.values {
        check_width(values.len(), &listed, !row.columns.is_empty())?;
        for (cell, &at) in values.iter().zip(&listed) {
            if is_default(cell) {
                continue;
            }
            if overriding.refuses(target, at) {
                return Err(not_default(target, at, true));
            }
            cells[at] = Some(cell).filter(|_| !overriding.ignores(target, at));
        }
    }
    let columns = cells.into_iter().enumerate();
    columns
        .map(|(at, cell)| cell_value(context, target, at, cell, schema, parameters))
        .collect()
}

/// A query's outputs as columns of the table.
fn columns_from(
    context: &StatementContext,
    target: &Target,
    listed: &[usize],
    explicit: bool,
    plan: LogicalPlan,
    overriding: Overriding,
) -> Result<LogicalPlan> {
    let width = plan.schema().fields().len();
    check_width(width, listed, explicit)?;
    let given = plan
        .schema()
        .iter()
        .zip(listed)
        .enumerate()
        .map(|(output, (pair, &at))| {
            if overriding.ignores(target, at) {
                return default_value(context, target, at);
            }
            let given = string_literal(&plan, output).unwrap_or_else(|| Expr::from(pair));
            assign(context, given, plan.schema(), target, at)
        })
        .collect::<Result<Vec<_>>>()?;
    project_columns(context, target, listed, width, given, plan)
}

/// The string literal that a SELECT has as this output. It has no type until it is assigned to
/// a column.
fn string_literal(plan: &LogicalPlan, output: usize) -> Option<Expr> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let mut expression = projection.expr.get(output)?;
            while let Expr::Alias(alias) = expression {
                expression = &alias.expr;
            }
            let is_string = matches!(expression, Expr::Literal(ScalarValue::Utf8(_), _));
            is_string.then(|| expression.clone())
        }
        LogicalPlan::Sort(sort) => string_literal(&sort.input, output),
        LogicalPlan::Limit(limit) => string_literal(&limit.input, output),
        _ => None,
    }
}

/// Projects the given columns, and the defaults of the others, into the order of the table.
fn project_columns(
    context: &StatementContext,
    target: &Target,
    listed: &[usize],
    width: usize,
    given: Vec<Expr>,
    plan: LogicalPlan,
) -> Result<LogicalPlan> {
    assert_eq!(given.len(), width, "each listed column is given a value");
    let mut outputs: Vec<Option<Expr>> = vec![None; target.entry.table.schema().columns.len()];
    for (&at, expression) in listed[..width].iter().zip(given) {
        outputs[at] = Some(expression);
    }
    let outputs: Vec<Expr> = outputs
        .into_iter()
        .enumerate()
        .map(|(at, given)| {
            let value = given.map_or_else(|| default_value(context, target, at), Ok)?;
            Ok(qualified(target, at, value))
        })
        .collect::<Result<_>>()?;
    LogicalPlanBuilder::from(plan).project(outputs)?.build()
}

/// Refuses more values than columns, and fewer if the statement lists the columns.
fn check_width(width: usize, listed: &[usize], explicit: bool) -> Result<()> {
    let message = match width.cmp(&listed.len()) {
        std::cmp::Ordering::Greater => "INSERT has more expressions than target columns",
        std::cmp::Ordering::Less if explicit => "INSERT has more target columns than expressions",
        _ => return Ok(()),
    };
    Err(external(SqlError::new(ErrorKind::SyntaxError, message)))
}
