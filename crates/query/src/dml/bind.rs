//! Binding UPDATE and DELETE, and the parts that all DML shares: RETURNING and CHECK.

use aerostat_sql::grants::Privilege;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    common::{DFSchema, Result, TableReference},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
    prelude::Column,
    sql::{
        planner::PlannerContext,
        sqlparser::{
            ast::{
                self, FromTable, GroupByExpr, SelectFlavor, SelectItem,
                SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins,
                UpdateTableFromKind, WildcardAdditionalOptions,
                helpers::attached_token::AttachedToken,
            },
            dialect::PostgreSqlDialect,
            parser::Parser,
        },
    },
};

use super::{
    BoundDml, DmlKind,
    assign::assigned_values,
    rights,
    values::{parse_expression, qualified, refuse, unsupported},
};
use crate::{
    error::external,
    pairs::ORDINAL_COLUMN,
    plan::{ROW_ID_COLUMN, StatementContext, Target, output_name, query_of, returned_origins},
};

/// Binds `UPDATE t SET … [FROM …] [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A mistake in the statement: names, types, the role's rights.
pub fn bind_update(
    context: &StatementContext,
    update: &ast::Update,
    with: Option<ast::With>,
    parameters: &mut PlannerContext,
) -> Result<BoundDml> {
    refuse_clauses(!update.order_by.is_empty(), update.limit.is_some())?;
    refuse(
        update.or.is_some() || update.output.is_some(),
        "this form of UPDATE",
    )?;
    let target = target_of(context, &update.table, Privilege::Update)?;
    let from = match &update.from {
        Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => {
            from.clone()
        }
        None => Vec::new(),
    };
    let found = plan_found(
        context,
        &target,
        with,
        from,
        update.selection.clone(),
        parameters,
    )?;
    let schema = target.entry.table.schema();
    let assigned = assigned_values(
        context,
        &target,
        &update.assignments,
        found.schema(),
        parameters,
    )?;
    rights::admit(context, &target, || {
        let values = assigned.iter().flatten();
        rights::found_by(&target, &found) || rights::any_names(values, &target.alias)
    })?;
    let changed = (0..assigned.len()).filter(|at| assigned[*at].is_some());
    let changed: Vec<usize> = changed.collect();
    let row_id = Expr::Column(Column::new(Some(target.reference()), ROW_ID_COLUMN));
    let mut outputs = vec![row_id.alias(ROW_ID_COLUMN)];
    for (at, assigned) in assigned.into_iter().enumerate() {
        let name = schema.columns[at].name.as_str();
        let unchanged = || Expr::Column(Column::new(Some(target.reference()), name));
        outputs.push(qualified(&target, at, assigned.unwrap_or_else(unchanged)));
    }
    outputs.extend(others(&found, &target));
    let plan = LogicalPlanBuilder::from(found).project(outputs)?.build()?;
    let bound = finish(
        context,
        DmlKind::Update,
        target,
        plan,
        update.returning.as_deref(),
        parameters,
    )?;
    Ok(BoundDml {
        assigned: changed,
        ..bound
    })
}

/// Binds `DELETE FROM t [USING …] [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A mistake in the statement: names, types, the role's rights.
pub fn bind_delete(
    context: &StatementContext,
    delete: &ast::Delete,
    with: Option<ast::With>,
    parameters: &mut PlannerContext,
) -> Result<BoundDml> {
    refuse_clauses(!delete.order_by.is_empty(), delete.limit.is_some())?;
    refuse(
        !delete.tables.is_empty() || delete.output.is_some(),
        "this form of DELETE",
    )?;
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [table] = &from[..] else {
        return Err(unsupported("DELETE from several tables"));
    };
    let target = target_of(context, table, Privilege::Delete)?;
    let using = delete.using.clone().unwrap_or_default();
    let found = plan_found(
        context,
        &target,
        with,
        using,
        delete.selection.clone(),
        parameters,
    )?;
    rights::admit(context, &target, || rights::found_by(&target, &found))?;
    let row_id = Expr::Column(Column::new(Some(target.reference()), ROW_ID_COLUMN));
    let mut outputs = vec![row_id.alias(ROW_ID_COLUMN)];
    for column in &target.entry.table.schema().columns {
        outputs.push(Expr::Column(Column::new(
            Some(target.reference()),
            column.name.as_str(),
        )));
    }
    outputs.extend(others(&found, &target));
    let plan = LogicalPlanBuilder::from(found).project(outputs)?.build()?;
    finish(
        context,
        DmlKind::Delete,
        target,
        plan,
        delete.returning.as_deref(),
        parameters,
    )
}

/// Adds RETURNING and CHECK to a plan of row ids, the target's columns and those of other
/// relations.
pub(super) fn finish(
    context: &StatementContext,
    kind: DmlKind,
    target: Target,
    plan: LogicalPlan,
    returning: Option<&[SelectItem]>,
    parameters: &mut PlannerContext,
) -> Result<BoundDml> {
    finish_with(
        context,
        kind,
        target,
        plan,
        returning,
        parameters,
        Vec::new(),
    )
}

/// As [`finish`], with further outputs at the end.
pub(super) fn finish_with(
    context: &StatementContext,
    kind: DmlKind,
    target: Target,
    plan: LogicalPlan,
    returning: Option<&[SelectItem]>,
    parameters: &mut PlannerContext,
    hidden: Vec<Expr>,
) -> Result<BoundDml> {
    let first = usize::from(kind != DmlKind::Insert);
    let columns = first..first + target.entry.table.schema().columns.len();
    assert!(
        plan.schema().fields().len() >= columns.end,
        "a plan of {} columns has no row ids, or not all columns of table {}",
        plan.schema().fields().len(),
        target.entry.name
    );
    let mut outputs: Vec<Expr> = plan
        .schema()
        .iter()
        .take(columns.end)
        .map(Expr::from)
        .collect();
    let returned = match returning {
        Some(items) => returning_expressions(context, &target, items, plan.schema(), parameters)?,
        None => Vec::new(),
    };
    rights::admit(context, &target, || {
        let expressions = returned.iter().map(|(_, expression)| expression);
        rights::any_names(expressions, &target.alias)
    })?;
    for (at, (name, expression)) in returned.iter().enumerate() {
        outputs.push(expression.clone().alias(format!("{name}\u{1}r{at}")));
    }
    let returning_end = columns.end + returned.len();
    let returned = returned.into_iter().map(|(_, expression)| expression);
    let origins = returned_origins(context, &target, returned, &plan, columns.clone());
    if kind != DmlKind::Delete {
        let truths = check_truths(context, &target, &plan, parameters)?;
        let named = truths.into_iter().enumerate();
        outputs.extend(named.map(|(at, truth)| truth.alias(check_name(at))));
    }
    let checks = returning_end..outputs.len();
    outputs.extend(hidden);
    let source = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
    Ok(BoundDml {
        kind,
        target,
        assigned: Vec::new(),
        source,
        columns: columns.clone(),
        returning: returning.map(|_| columns.end..returning_end),
        origins,
        told: None,
        checks,
        conflict: None,
        clauses: Vec::new(),
    })
}

/// The truth of each CHECK constraint, over a plan with the target's columns.
pub(super) fn check_truths(
    context: &StatementContext,
    target: &Target,
    plan: &LogicalPlan,
    parameters: &mut PlannerContext,
) -> Result<Vec<Expr>> {
    let schema = table_schema(target, plan)?;
    let checks = target.entry.table.schema().checks.iter();
    checks
        .map(|check| {
            let parsed = parse_expression(&check.expression)?;
            let planner = context.planner();
            planner.sql_to_expr(parsed, &schema, parameters)
        })
        .collect()
}

/// The name of the output with the truth of a CHECK constraint.
pub(super) fn check_name(at: usize) -> String {
    format!("\u{1}c{at}")
}

/// The schema of the target's own columns alone, over which CHECK is planned: columns of other
/// relations in the statement have no meaning there.
fn table_schema(target: &Target, plan: &LogicalPlan) -> Result<DFSchema> {
    let fields = plan
        .schema()
        .iter()
        .filter(|(qualifier, _)| qualifier.is_some_and(|q| q.table() == target.alias))
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    DFSchema::new_with_metadata(fields, Default::default())
}

fn returning_expressions(
    context: &StatementContext,
    target: &Target,
    items: &[SelectItem],
    schema: &DFSchema,
    parameters: &mut PlannerContext,
) -> Result<Vec<(String, Expr)>> {
    let visible = |qualifier: Option<&TableReference>, name: &str| {
        let is_hidden = matches!(name, ROW_ID_COLUMN | ORDINAL_COLUMN);
        !(is_hidden && qualifier.is_none_or(|q| q.table() == target.alias))
    };
    let mut expressions = Vec::new();
    for item in items {
        match item {
            SelectItem::UnnamedExpr(expression) => expressions.push((
                output_name(expression),
                context
                    .planner()
                    .sql_to_expr(expression.clone(), schema, parameters)?,
            )),
            SelectItem::ExprWithAlias { expr, alias } => expressions.push((
                aerostat_sql::names::folded(alias),
                context
                    .planner()
                    .sql_to_expr(expr.clone(), schema, parameters)?,
            )),
            SelectItem::Wildcard(_) => expressions.extend(
                schema
                    .iter()
                    .filter(|(qualifier, field)| visible(*qualifier, field.name()))
                    .map(|pair| (pair.1.name().clone(), Expr::from(pair))),
            ),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let wanted = name
                    .0
                    .last()
                    .and_then(|part| part.as_ident())
                    .map(aerostat_sql::names::folded);
                let before = expressions.len();
                expressions.extend(
                    schema
                        .iter()
                        .filter(|(qualifier, field)| {
                            qualifier.map(TableReference::table) == wanted.as_deref()
                                && visible(*qualifier, field.name())
                        })
                        .map(|pair| (pair.1.name().clone(), Expr::from(pair))),
                );
                if expressions.len() == before {
                    return Err(external(SqlError::new(
                        ErrorKind::UndefinedTable,
                        format!("missing FROM-clause entry for table \"{name}\""),
                    )));
                }
            }
            _ => return Err(unsupported("this form of RETURNING")),
        }
    }
    Ok(expressions)
}

/// The columns of the statement's other relations, which RETURNING may name.
fn others(found: &LogicalPlan, target: &Target) -> Vec<Expr> {
    found
        .schema()
        .iter()
        .filter(|(qualifier, _)| qualifier.is_none_or(|q| q.table() != target.alias))
        .map(Expr::from)
        .collect()
}

/// The rows that the statement concerns: all columns of the target, with row ids, and those of
/// the other relations.
fn plan_found(
    context: &StatementContext,
    target: &Target,
    with: Option<ast::With>,
    others: Vec<TableWithJoins>,
    selection: Option<ast::Expr>,
    parameters: &mut PlannerContext,
) -> Result<LogicalPlan> {
    let mut from = vec![TableWithJoins {
        relation: target.factor(context),
        joins: Vec::new(),
    }];
    from.extend(others);
    plan_from(context, with, from, selection, parameters)
}

/// All columns of relations, joined.
pub(super) fn plan_from(
    context: &StatementContext,
    with: Option<ast::With>,
    from: Vec<TableWithJoins>,
    selection: Option<ast::Expr>,
    parameters: &mut PlannerContext,
) -> Result<LogicalPlan> {
    let select = ast::Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    let query = ast::Query {
        with: with.clone(),
        ..query_of(SetExpr::Select(Box::new(select)))
    };
    let plan = context.plan_query(query, parameters)?;
    if let Some(with) = with {
        keep_with(context, &with, parameters)?;
    }
    Ok(plan)
}

/// Lets subqueries in the statement's expressions read its WITH queries, too.
pub(super) fn keep_with(
    context: &StatementContext,
    with: &ast::With,
    parameters: &mut PlannerContext,
) -> Result<()> {
    let mut planned = Vec::with_capacity(with.cte_tables.len());
    for cte in &with.cte_tables {
        let name = &cte.alias.name;
        let mut query = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(&format!("SELECT * FROM {name}"))
            .and_then(|mut parser| parser.parse_query())
            .map_err(|error| external(SqlError::new(ErrorKind::Internal, error.to_string())))?;
        query.with = Some(with.clone());
        let plan = context.plan_query(*query, parameters)?;
        planned.push((aerostat_sql::names::folded(name), plan));
    }
    for (name, plan) in planned {
        parameters.insert_cte(name, plan);
    }
    Ok(())
}

fn target_of(
    context: &StatementContext,
    table: &TableWithJoins,
    privilege: Privilege,
) -> Result<Target> {
    refuse(
        !table.joins.is_empty(),
        "joins in the target of UPDATE or DELETE",
    )?;
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = &table.relation
    else {
        return Err(unsupported("this target of UPDATE or DELETE"));
    };
    Target::resolve(
        context,
        name,
        alias.as_ref().map(|alias| &alias.name),
        privilege,
    )
    .map_err(external)
}

/// Refuses ORDER BY and LIMIT, which other systems accept after a change and PostgreSQL does not.
fn refuse_clauses(order_by: bool, limit: bool) -> Result<()> {
    let word = match (order_by, limit) {
        (true, _) => "ORDER",
        (_, true) => "LIMIT",
        _ => return Ok(()),
    };
    Err(external(SqlError::new(
        ErrorKind::SyntaxError,
        format!("syntax error at or near \"{word}\""),
    )))
}
