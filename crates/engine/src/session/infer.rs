//! Types of the parameters of a statement that nobody has told, and the columns of its result.

use std::sync::Arc;

use aerostat_api::{ColumnDescription, ParameterType};
use aerostat_query::{
    Work,
    physical::analyze,
    plan::{
        StatementContext, array_parameters, bare_placeholder, column_identifiers, declare,
        declared_parameters, describe_columns, table_reference, without_locks, write_arrays,
    },
};
use aerostat_sql::tree::{
    merge::{Action, action},
    modifying::changes,
};
use aerostat_types::{Column, NUMERIC_DEFAULT, SqlType};
use datafusion::{
    arrow::datatypes::{Field, FieldRef},
    logical_expr::LogicalPlan,
    sql::sqlparser::ast::{
        self, AssignmentTarget, Distinct, GroupByExpr, OnConflictAction, OnInsert, OrderByKind,
        SelectItem, SetExpr, TableObject,
    },
};

use super::{
    run::{Parameters, bind_work},
    steps::{bind_steps, has_steps},
};

/// What a parameter is to the planner. One that goes into a `varchar(n)` or `char(n)` may be
/// longer: it is measured when it gets there.
pub(super) fn parameter_field(ty: ParameterType) -> FieldRef {
    let any_length = match ty.carrier() {
        SqlType::Varchar(_) => SqlType::Varchar(None),
        SqlType::Char(_) => SqlType::BPCHAR,
        other => other,
    };
    Arc::new(any_length.field("", true))
}

/// Finds the types that are still open, and the columns of the result.
pub(super) fn infer(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) -> datafusion::common::Result<Option<Arc<[ColumnDescription]>>> {
    take_digits(context, parsed, types);
    find_types(context, parsed, types)?;
    let mut written = parsed.clone();
    write_arrays(&mut written, types, &[], &[]);
    match plan_any(context, &written, &known(types))?.pop() {
        Some(Work::Query(plan, origins)) => {
            let analyzed = analyze(&context.state, plan)?;
            let schema = analyzed.schema().as_arrow();
            Ok(Some(describe_columns(&origins, schema)))
        }
        Some(Work::Dml(bound)) => {
            let analyzed = analyze(&context.state, bound.source.clone())?;
            Ok(bound.returned(&analyzed))
        }
        None if matches!(parsed, ast::Statement::Explain { .. }) => Ok(Some(
            [ColumnDescription::new("QUERY PLAN", SqlType::Text)].into(),
        )),
        None => Ok(None),
    }
}

/// A numeric that the client declares has no digits of its own: it takes those of the numeric that it stands
/// beside or goes into, lest a value loses what there is room for.
fn take_digits(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut [Option<ParameterType>],
) {
    let declared = Some(ParameterType::Value(NUMERIC_DEFAULT));
    if !types.contains(&declared) {
        return;
    }
    let mut found: Vec<_> = types
        .iter()
        .map(|ty| ty.filter(|_| *ty != declared))
        .collect();
    // What cannot be told without the type keeps it.
    if find_types(context, parsed, &mut found).is_err() {
        return;
    }
    for (ty, found) in types.iter_mut().zip(found) {
        if *ty == declared && found.is_some_and(|found| found.oid() == NUMERIC_DEFAULT.oid()) {
            *ty = found;
        }
    }
}

fn known(types: &[Option<ParameterType>]) -> Parameters {
    Parameters {
        fields: types.iter().map(|ty| ty.map(parameter_field)).collect(),
        ..Parameters::default()
    }
}

/// Finds the types that are still open: a first plan tells what DataFusion infers.
fn find_types(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) -> datafusion::common::Result<()> {
    declared_parameters(parsed, types);
    declare_by_column(context, parsed, types);
    if types.iter().any(Option::is_none) {
        let arrays = array_parameters(parsed);
        let mut written = parsed.clone();
        write_arrays(&mut written, types, &arrays, &[]);
        let inferred_type = |n: usize, ty: SqlType| {
            if arrays.contains(&n) {
                ParameterType::Array(ty)
            } else {
                ParameterType::Value(ty)
            }
        };
        // A subquery that locks is planned apart, out of sight.
        let works = plan_any(context, &without_locks(&written), &known(types))?;
        let plans: Vec<&LogicalPlan> = works.iter().flat_map(Work::plans).collect();
        let take = |types: &mut Vec<Option<ParameterType>>,
                    plan: &LogicalPlan,
                    told_by: fn(&Field) -> Option<SqlType>|
         -> datafusion::common::Result<()> {
            for (name, field) in plan.get_parameter_fields()? {
                let number = name.strip_prefix('$').and_then(|n| n.parse().ok());
                if let (Some(number), Some(field)) = (number, field)
                    && let Some(ty) = told_by(&field)
                {
                    declare(types, number, inferred_type(number, ty));
                }
            }
            Ok(())
        };
        plans
            .iter()
            .try_for_each(|plan| take(types, plan, type_beside))?;
        // What stands beside others in CASE, COALESCE, UNION and the like is known once they are brought
        // to one type. A plan that cannot be made without all types is made below, or refused there.
        if types.iter().any(Option::is_none) {
            for plan in plans {
                let analyzed = analyze(&context.state, plan.clone());
                let _ = analyzed.and_then(|plan| take(types, &plan, type_among));
            }
        }
        for (at, ty) in types.iter_mut().enumerate() {
            ty.get_or_insert(inferred_type(at + 1, SqlType::Text));
        }
    }
    Ok(())
}

/// The type of a parameter that stands beside a value of this field, which for PostgreSQL is a text beside a
/// `varchar`, and a `bpchar` of any length, whose trailing blanks count for nothing, beside a `char`.
fn type_beside(field: &Field) -> Option<SqlType> {
    match SqlType::of_field(field)? {
        SqlType::Char(_) => Some(SqlType::BPCHAR),
        SqlType::Varchar(_) => Some(SqlType::Text),
        other => Some(other),
    }
}

/// The type of a parameter that is one of several values, which has no length.
fn type_among(field: &Field) -> Option<SqlType> {
    match SqlType::of_field(field)? {
        SqlType::Varchar(_) => Some(SqlType::Varchar(None)),
        _ => type_beside(field),
    }
}

/// What a statement does, step by step, itself last; nothing for one that is no query and
/// changes no rows.
fn plan_any(
    context: &StatementContext,
    parsed: &ast::Statement,
    parameters: &Parameters,
) -> datafusion::common::Result<Vec<Work>> {
    Ok(match parsed {
        ast::Statement::Query(_) if has_steps(context, parsed) => {
            let steps = bind_steps(context, parsed, parameters)?;
            steps.into_iter().map(|step| step.work).collect()
        }
        ast::Statement::Query(_)
        | ast::Statement::Insert(_)
        | ast::Statement::Update(_)
        | ast::Statement::Delete(_)
        | ast::Statement::Merge(_) => vec![bind_work(context, parsed, parameters)?],
        _ => Vec::new(),
    })
}

/// Parameters that stand alone as a column's new value have the column's type.
fn declare_by_column(
    context: &StatementContext,
    parsed: &ast::Statement,
    types: &mut Vec<Option<ParameterType>>,
) {
    let column_types = |name: &ast::ObjectName| {
        let reference = table_reference(name).ok()?;
        let (_, relation) = context.resolve(&reference).ok()?;
        Some(relation.columns().to_vec())
    };
    changes(parsed).for_each(|change| match change {
        ast::Statement::Insert(insert) => {
            let TableObject::TableName(name) = &insert.table else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            if let Some(OnInsert::OnConflict(on)) = &insert.on
                && let OnConflictAction::DoUpdate(update) = &on.action
            {
                declare_assigned(&update.assignments, &columns, types);
            }
            let Some(query) = &insert.source else { return };
            match &*query.body {
                SetExpr::Values(values) => {
                    for row in &values.rows {
                        declare_row(&row.content, &insert.columns, &columns, types);
                    }
                }
                _ => declare_row(&selected(query), &insert.columns, &columns, types),
            }
        }
        ast::Statement::Update(update) => {
            let ast::TableFactor::Table { name, .. } = &update.table.relation else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            declare_assigned(&update.assignments, &columns, types);
        }
        ast::Statement::Merge(merge) => {
            let ast::TableFactor::Table { name, .. } = &merge.table else {
                return;
            };
            let Some(columns) = column_types(name) else {
                return;
            };
            for clause in &merge.clauses {
                match action(&clause.action) {
                    Some(Action::Update(set)) => declare_assigned(set, &columns, types),
                    Some(Action::Insert(row)) => {
                        let cells = row.values.unwrap_or_default();
                        declare_row(cells, row.columns, &columns, types);
                    }
                    Some(Action::Nothing | Action::Delete) | None => {}
                }
            }
        }
        _ => {}
    });
}

/// What a query selects for the columns of a table, as far as it is known which these are, with NULL
/// in the place of what is sorted, grouped or compared, and so has a type before it is inserted.
fn selected(query: &ast::Query) -> Vec<ast::Expr> {
    let select = match &*query.body {
        SetExpr::Select(select) => select,
        SetExpr::Query(inner) if query.order_by.is_none() => return selected(inner),
        _ => return Vec::new(),
    };
    if !matches!(select.distinct, None | Some(Distinct::All)) {
        return Vec::new();
    }
    let mut keys: Vec<String> = Vec::new();
    if let GroupByExpr::Expressions(grouped, _) = &select.group_by {
        keys.extend(grouped.iter().map(ToString::to_string));
    }
    if let Some(OrderByKind::Expressions(sorted)) = query.order_by.as_ref().map(|by| &by.kind) {
        keys.extend(sorted.iter().map(|key| key.expr.to_string()));
    }
    let is_key = |name: &str| keys.iter().any(|key| key == name);
    let mut cells = Vec::with_capacity(select.projection.len());
    for (at, item) in select.projection.iter().enumerate() {
        let (value, name) = match item {
            SelectItem::UnnamedExpr(value) => (value, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.to_string())),
            // How many columns stand for it is not known here.
            _ => break,
        };
        let has_type = is_key(&(at + 1).to_string()) || name.is_some_and(|name| is_key(&name));
        cells.push(match has_type {
            true => ast::Expr::value(ast::Value::Null),
            false => value.clone(),
        });
    }
    cells
}

/// Parameters that the columns listed, or all, are inserted as.
fn declare_row(
    cells: &[ast::Expr],
    listed: &[ast::ObjectName],
    columns: &[Column],
    types: &mut Vec<Option<ParameterType>>,
) {
    let Ok(listed) = column_identifiers(listed) else {
        return;
    };
    for (at, cell) in cells.iter().enumerate() {
        let column = match listed.get(at) {
            Some(name) => columns.iter().find(|column| column.name == *name),
            None if listed.is_empty() => columns.get(at),
            None => None,
        };
        if let (Some(n), Some(column)) = (bare_placeholder(cell), column) {
            declare(types, n, ParameterType::Value(column.ty));
        }
    }
}

/// Parameters that a column is set to.
fn declare_assigned(
    assignments: &[ast::Assignment],
    columns: &[Column],
    types: &mut Vec<Option<ParameterType>>,
) {
    for assignment in assignments {
        if let AssignmentTarget::ColumnName(name) = &assignment.target
            && let Some(n) = bare_placeholder(&assignment.value)
            && let Ok(names) = column_identifiers(std::slice::from_ref(name))
            && let Some(column) = columns.iter().find(|column| column.name == names[0])
        {
            declare(types, n, ParameterType::Value(column.ty));
        }
    }
}
