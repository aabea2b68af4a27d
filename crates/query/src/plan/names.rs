//! Names of result columns, as PostgreSQL gives them.
//!
//! DataFusion names an expression by its text and refuses two outputs with one name. So each
//! unnamed expression of a query gets an alias before planning: PostgreSQL's name, made unique by a
//! suffix that no identifier can hold and that [`describe`] cuts off again.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use aerostat_api::ColumnDescription;
use aerostat_pgcatalog::PG_TYPE_KEY;
use aerostat_semantics::functions::{merged::MERGED, named::NAMED};
use aerostat_sql::{
    names::{SUFFIX, folded, visible_name},
    walk::{self, unnested},
};
use aerostat_types::SqlType;
use datafusion::{
    arrow::datatypes::{DataType, Field, Schema},
    common::Result,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, expr::ScalarFunction},
    sql::sqlparser::ast::{self, Ident, SelectItem, SetExpr, VisitMut, VisitorMut},
};

use super::{
    StatementContext,
    positions::{at_position, position},
};

/// Gives every unnamed output of the query's SELECTs its name in PostgreSQL.
pub(super) fn name_outputs(query: &mut ast::Query) {
    let named: Vec<String> = match &*query.body {
        SetExpr::Select(select) => select.projection.iter().map(item_name).collect(),
        _ => Vec::new(),
    };
    let columns = columns_of_keys(query);
    name_body(&mut query.body, &columns);
    let SetExpr::Select(select) = &*query.body else {
        return;
    };
    let Some(ast::OrderByKind::Expressions(keys)) =
        query.order_by.as_mut().map(|order_by| &mut order_by.kind)
    else {
        return;
    };
    // A key of ORDER BY follows the output that it names, if that is the only one of its name and
    // has been renamed.
    for key in keys {
        let Some(ident) = bare_name_mut(&mut key.expr) else {
            continue;
        };
        let wanted = folded(ident);
        let mut found = (0..named.len()).filter(|at| named[*at] == wanted);
        if let (Some(at), None) = (found.next(), found.next())
            && let Some(SelectItem::ExprWithAlias { alias, .. }) = select.projection.get(at)
        {
            *ident = alias.clone();
        }
    }
}

/// The names of columns in ORDER BY that are not outputs: columns with their relations, and columns
/// in expressions, where PostgreSQL does not look for outputs. Such a name must not be taken for an
/// output of the same name, which is another column: `SELECT t.a::int FROM t ORDER BY t.a`,
/// `SELECT -a AS a FROM t ORDER BY abs(a)`. The same holds for a column that is grouped by a cast
/// of it, because DataFusion names the cast like the column: `SELECT -t.a::int AS a, t.a::int FROM
/// t GROUP BY t.a::int ORDER BY 1`.
fn columns_of_keys(query: &ast::Query) -> HashSet<String> {
    let mut names = HashSet::new();
    let order_by = query.order_by.as_ref();
    let Some(ast::OrderByKind::Expressions(keys)) = order_by.map(|order_by| &order_by.kind) else {
        return names;
    };
    let select = match &*query.body {
        SetExpr::Select(select) => Some(select),
        _ => None,
    };
    let grouped = select.map(|select| grouped_by_casts(select));
    for key in keys {
        let bare = bare_name(&key.expr);
        let _ = walk::expressions(&key.expr, |expression| {
            match expression {
                ast::Expr::CompoundIdentifier(parts) => names.extend(parts.last().map(folded)),
                ast::Expr::Identifier(ident) if select.is_some() && bare.is_none() => {
                    names.insert(folded(ident));
                }
                _ => {}
            }
            ControlFlow::<()>::Continue(())
        });
        let output = || select?.projection.get(position(&key.expr)?).map(item_name);
        let output = bare.map(folded).or_else(output);
        names.extend(output.filter(|name| grouped.iter().any(|grouped| grouped.contains(name))));
    }
    names
}

/// The names of columns whose casts are keys of GROUP BY.
fn grouped_by_casts(select: &ast::Select) -> HashSet<String> {
    let mut names = HashSet::new();
    let ast::GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return names;
    };
    for key in keys {
        let output = at_position(select, key);
        let _ = walk::expressions(output.as_ref().unwrap_or(key), |expression| {
            if let ast::Expr::Cast { expr, .. } = expression {
                match unnested(expr) {
                    ast::Expr::Identifier(name) => names.extend([folded(name)]),
                    ast::Expr::CompoundIdentifier(parts) => names.extend(parts.last().map(folded)),
                    _ => {}
                }
            }
            ControlFlow::<()>::Continue(())
        });
    }
    names
}

/// The name that a key consists of. Such a key names an output before it names a column.
fn bare_name(key: &ast::Expr) -> Option<&Ident> {
    match key {
        ast::Expr::Identifier(ident) => Some(ident),
        ast::Expr::Nested(inner) => bare_name(inner),
        _ => None,
    }
}

fn bare_name_mut(key: &mut ast::Expr) -> Option<&mut Ident> {
    match key {
        ast::Expr::Identifier(ident) => Some(ident),
        ast::Expr::Nested(inner) => bare_name_mut(inner),
        _ => None,
    }
}

/// Gives the outputs of queries in FROM and WITH PostgreSQL's names, by which the queries around
/// them name them: `count` in `SELECT max(count) FROM (SELECT count(*) FROM t) AS q`. If several
/// outputs have one name, also in other subqueries, each gets the name with a suffix. Outputs that
/// are columns stay as they are, except in LATERAL, where they may be columns of an outer query.
pub(super) fn name_derived<N: VisitMut>(node: &mut N) {
    struct Derived;
    impl VisitorMut for Derived {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
            for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
                name_from_columns(&mut cte.query, Some(&mut cte.alias), false);
                name_apart(&mut cte.query);
                name_unique(&mut cte.query.body, false);
            }
            if let Some(with) = &mut query.with {
                super::recursion::mark_terms(with);
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<()> {
            if let ast::TableFactor::Derived {
                lateral,
                subquery,
                alias,
                ..
            } = factor
            {
                if let Some(alias) = alias {
                    name_from_columns(subquery, Some(alias), *lateral);
                }
                name_apart(subquery);
                name_unique(&mut subquery.body, *lateral);
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &mut ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::Subquery(subquery)
            | ast::Expr::Exists { subquery, .. }
            | ast::Expr::InSubquery { subquery, .. } = expression
            {
                name_from_columns(subquery, None, false);
                name_apart(subquery);
            }
            if let ast::Expr::Function(ast::Function {
                args: ast::FunctionArguments::Subquery(subquery),
                ..
            }) = expression
            {
                name_from_columns(subquery, None, false);
            }
            ControlFlow::Continue(())
        }
    }
    // The visitor never breaks.
    let _ = walk::change(node, &mut Derived);
}

/// Renames outputs whose names stand for columns in ORDER BY (see [`columns_of_keys`]). The query's
/// alias, if it has one, keeps their names for the query around it. Outputs that are columns need
/// no other name, because their relations tell them from others, unless [`name_unique`] names them,
/// too.
fn name_from_columns(
    query: &mut ast::Query,
    alias: Option<&mut ast::TableAlias>,
    are_all_named: bool,
) {
    let columns = columns_of_keys(query);
    let SetExpr::Select(select) = &mut *query.body else {
        return;
    };
    let names: Vec<String> = select.projection.iter().map(item_name).collect();
    let is_output = |name: &String| names.contains(name);
    // It is not known how many columns a wildcard stands for.
    if !columns.iter().any(is_output) || names.iter().any(String::is_empty) {
        return;
    }
    let suffixed = |at: usize| Ident::with_quote('"', format!("{}{SUFFIX}{at}", names[at]));
    let mut renamed = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)) = &*item
        else {
            continue;
        };
        let expr = expr.clone();
        let is_itself =
            matches!(&expr, ast::Expr::Identifier(column) if folded(column) == names[at]);
        let is_bare = matches!(
            item,
            SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(_))
        );
        if columns.contains(&names[at]) && !is_itself && (!is_bare || are_all_named) {
            let alias = suffixed(at);
            renamed.push((names[at].clone(), alias.clone()));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
    if renamed.is_empty() {
        return;
    }
    if let Some(alias) = alias
        && alias.columns.is_empty()
    {
        // A name that several outputs have cannot be used for any of them.
        let is_alone = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
        let column = |(at, name): (usize, &String)| ast::TableAliasColumnDef {
            name: match is_alone(name) {
                true => Ident::with_quote('"', name.clone()),
                false => suffixed(at),
            },
            data_type: None,
        };
        alias.columns = names.iter().enumerate().map(column).collect();
    }
    let Some(ast::OrderByKind::Expressions(keys)) =
        query.order_by.as_mut().map(|order_by| &mut order_by.kind)
    else {
        return;
    };
    for ident in keys
        .iter_mut()
        .filter_map(|key| bare_name_mut(&mut key.expr))
    {
        if let Some((_, alias)) = renamed.iter().find(|(name, _)| *name == folded(ident)) {
            *ident = alias.clone();
        }
    }
}

/// Gives outputs with one name different names, and lets ORDER BY name the first of them.
fn name_apart(query: &mut ast::Query) {
    let ast::Query { body, order_by, .. } = query;
    let renamed = rename_equal(body);
    let Some(ast::OrderByKind::Expressions(keys)) =
        order_by.as_mut().map(|order_by| &mut order_by.kind)
    else {
        return;
    };
    for key in keys {
        if let ast::Expr::Identifier(ident) = &mut key.expr
            && let Some((_, alias)) = renamed.iter().find(|(name, _)| *name == folded(ident))
        {
            *ident = alias.clone();
        }
    }
}

/// Appends suffixes to the names of outputs with one name. Returns the names that aliases had
/// given, with the new ones.
fn rename_equal(body: &mut SetExpr) -> Vec<(String, Ident)> {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => {
            name_apart(query);
            return Vec::new();
        }
        SetExpr::SetOperation { left, right, .. } => {
            rename_equal(right);
            return rename_equal(left);
        }
        _ => return Vec::new(),
    };
    let names: Vec<String> = select.projection.iter().map(item_name).collect();
    let mut renamed = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let is_alone = names.iter().filter(|name| **name == names[at]).count() == 1;
        if is_alone || names[at].is_empty() {
            continue;
        }
        let alias = Ident::with_quote('"', format!("{}{SUFFIX}{at}", names[at]));
        *item = match item {
            SelectItem::UnnamedExpr(expr) => SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias,
            },
            SelectItem::ExprWithAlias { expr, .. } => {
                renamed.push((names[at].clone(), alias.clone()));
                SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias,
                }
            }
            _ => continue,
        };
    }
    renamed
}

/// Gives calls of functions and casts their names as aliases where no other output has the name;
/// with `all` columns, too.
fn name_unique(body: &mut SetExpr, all: bool) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return name_unique(&mut query.body, all),
        // The left side names the columns.
        SetExpr::SetOperation { left, .. } => return name_unique(left, all),
        _ => return,
    };
    let names: Vec<String> = select.projection.iter().map(item_name).collect();
    let is_wildcard = |name: &String| name.is_empty();
    if names.iter().any(is_wildcard) {
        return;
    }
    for (at, item) in select.projection.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expression) = item
            && (all
                || !matches!(
                    expression,
                    ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)
                ))
            && names[at] != UNNAMED
            && names.iter().filter(|name| **name == names[at]).count() == 1
        {
            *item = SelectItem::ExprWithAlias {
                expr: expression.clone(),
                alias: Ident::with_quote('"', names[at].clone()),
            };
        }
    }
}

/// The name of an expression for which PostgreSQL has none.
const UNNAMED: &str = "?column?";

/// The name of an item in PostgreSQL; empty for a wildcard.
fn item_name(item: &SelectItem) -> String {
    match item {
        SelectItem::UnnamedExpr(expression) => output_name(expression),
        SelectItem::ExprWithAlias { alias, .. } => folded(alias),
        _ => String::new(),
    }
}

fn name_body(body: &mut SetExpr, qualified: &HashSet<String>) {
    match body {
        SetExpr::Select(select) => name_items(&mut select.projection, qualified),
        SetExpr::Query(query) => name_body(&mut query.body, qualified),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left, qualified);
            name_body(right, qualified);
        }
        _ => {}
    }
}

fn name_items(items: &mut [SelectItem], qualified: &HashSet<String>) {
    let has_wildcard = items.iter().any(|item| {
        matches!(
            item,
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
        )
    });
    let mut taken = HashSet::new();
    for (at, item) in items.iter_mut().enumerate() {
        match item {
            SelectItem::UnnamedExpr(expression) => {
                let name = output_name(expression);
                let plain = matches!(
                    expression,
                    ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)
                );
                let unique = taken.insert(name.clone());
                if plain && unique && !has_wildcard {
                    continue;
                }
                let alias = if unique && !has_wildcard && !qualified.contains(&name) {
                    name
                } else {
                    format!("{name}{SUFFIX}{at}")
                };
                *item = SelectItem::ExprWithAlias {
                    expr: expression.clone(),
                    alias: Ident::with_quote('"', alias),
                };
            }
            SelectItem::ExprWithAlias { alias, .. } => {
                let name = folded(alias);
                if !taken.insert(name.clone()) || has_wildcard || qualified.contains(&name) {
                    *alias = Ident::with_quote('"', format!("{name}{SUFFIX}{at}"));
                }
            }
            _ => {}
        }
    }
}

/// PostgreSQL's `FigureColname`.
pub(crate) fn output_name(expression: &ast::Expr) -> String {
    any_name(expression).unwrap_or_else(|| UNNAMED.to_owned())
}

/// The name of an expression, including names that a cast around it would replace by its type's
/// name.
fn any_name(expression: &ast::Expr) -> Option<String> {
    use ast::Expr as E;
    match expression {
        E::Nested(inner) | E::Collate { expr: inner, .. } => any_name(inner),
        E::Function(function) if is_named(function) => argument_of(function).and_then(any_name),
        E::Cast {
            expr, data_type, ..
        } => strong_name(expr).or_else(|| Some(cast_name(data_type))),
        E::CompoundFieldAccess { root, .. } => any_name(root),
        E::TypedString(typed) => Some(cast_name(&typed.data_type)),
        E::Interval(_) => Some("interval".to_owned()),
        E::Case { else_result, .. } => {
            let otherwise = else_result.as_deref().and_then(strong_name);
            otherwise.or_else(|| Some("case".to_owned()))
        }
        other => strong_name(other),
    }
}

/// Whether a call is one of ours that stands for its first argument.
pub(super) fn is_named(function: &ast::Function) -> bool {
    let name = function.name.0.last().and_then(|name| name.as_ident());
    name.is_some_and(|name| name.value == NAMED || name.value == MERGED)
}

fn argument_of(function: &ast::Function) -> Option<&ast::Expr> {
    let ast::FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.first()? {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

fn strong_name(expression: &ast::Expr) -> Option<String> {
    use ast::Expr as E;
    Some(match expression {
        E::Identifier(ident) => folded(ident),
        E::CompoundIdentifier(parts) => folded(parts.last()?),
        E::Function(function) => {
            let name = folded(function.name.0.last()?.as_ident()?);
            if is_named(function) {
                return argument_of(function).and_then(strong_name);
            }
            // Our function for an aggregate has the aggregate's name.
            name.trim_start_matches('\u{1}').to_owned()
        }
        E::Nested(inner) | E::Collate { expr: inner, .. } => return strong_name(inner),
        E::Cast { expr, .. } => return strong_name(expr),
        E::Case { else_result, .. } => return else_result.as_deref().and_then(strong_name),
        E::CompoundFieldAccess { root, .. } => return strong_name(root),
        E::Exists { negated: false, .. } => "exists".to_owned(),
        E::BinaryOp {
            op: ast::BinaryOperator::Overlaps,
            ..
        } => "overlaps".to_owned(),
        E::Array(_) => "array".to_owned(),
        E::Extract { .. } => "extract".to_owned(),
        E::Ceil { .. } => "ceil".to_owned(),
        E::Floor { .. } => "floor".to_owned(),
        E::Position { .. } => "position".to_owned(),
        E::Substring {
            shorthand: true, ..
        } => "substr".to_owned(),
        E::Substring { .. } => "substring".to_owned(),
        E::Trim { trim_where, .. } => match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim".to_owned(),
            Some(ast::TrimWhereField::Trailing) => "rtrim".to_owned(),
            _ => "btrim".to_owned(),
        },
        E::Overlay { .. } => "overlay".to_owned(),
        E::AtTimeZone { .. } => "timezone".to_owned(),
        E::Subquery(query) => {
            let mut body = &query.body;
            let select = loop {
                match &**body {
                    SetExpr::Select(select) => break select,
                    SetExpr::Query(inner) => body = &inner.body,
                    SetExpr::SetOperation { left, .. } => body = left,
                    _ => return None,
                }
            };
            match select.projection.first()? {
                SelectItem::UnnamedExpr(inner) => return any_name(inner),
                SelectItem::ExprWithAlias { alias, .. } => folded(alias),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// PostgreSQL names a cast of an unnamed expression by the type's internal name.
fn cast_name(data_type: &ast::DataType) -> String {
    let text = data_type.to_string().to_ascii_lowercase();
    let base = text.split(['(', ' ', '[']).next().unwrap_or_default();
    match base {
        "int" | "integer" | "int4" => "int4",
        "smallint" | "int2" => "int2",
        "bigint" | "int8" => "int8",
        "boolean" | "bool" => "bool",
        "real" | "float4" => "float4",
        "double" | "float" | "float8" => "float8",
        "decimal" | "dec" | "numeric" => "numeric",
        "char" | "character" if text.contains("varying") => "varchar",
        "char" | "character" => "bpchar",
        "timestamp" if text.contains("with time zone") => "timestamptz",
        other => other.rsplit('.').next().unwrap_or(other),
    }
    .trim_matches('"')
    .to_owned()
}

/// Renames a plan's outputs to these names, in order.
pub(crate) fn rename_outputs<'a>(
    plan: LogicalPlan,
    names: impl Iterator<Item = &'a str>,
) -> Result<LogicalPlan> {
    let renamed: Vec<Expr> = plan
        .schema()
        .iter()
        .zip(names)
        .map(|((qualifier, field), name)| Expr::from((qualifier, field)).alias(name))
        .collect();
    LogicalPlanBuilder::from(plan).project(renamed)?.build()
}

/// Shows numbers of catalogue entries as names, as PostgreSQL shows columns of `regproc` and
/// similar types.
///
/// # Errors
/// The errors of DataFusion.
pub fn show_entries(context: &StatementContext, plan: LogicalPlan) -> Result<LogicalPlan> {
    let shower = |field: &Field| {
        let typname = field.metadata().get(PG_TYPE_KEY)?;
        let is_number = *field.data_type() == DataType::Int64;
        context.function(aerostat_pgcatalog::shower(typname).filter(|_| is_number)?)
    };
    if !plan
        .schema()
        .fields()
        .iter()
        .any(|field| shower(field).is_some())
    {
        return Ok(plan);
    }
    let shown: Vec<Expr> = plan
        .schema()
        .iter()
        .map(|(qualifier, field)| {
            let column = Expr::from((qualifier, field));
            match shower(field) {
                Some(function) => {
                    let call = ScalarFunction::new_udf(function, vec![column]);
                    Expr::ScalarFunction(call).alias_qualified(qualifier.cloned(), field.name())
                }
                None => column,
            }
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(shown)?.build()
}

/// The description of a result's columns for the client.
pub fn describe(schema: &Schema) -> Arc<[ColumnDescription]> {
    schema
        .fields()
        .iter()
        .map(|field| describe_field(field))
        .collect()
}

fn describe_field(field: &Field) -> ColumnDescription {
    let name = visible_name(field.name());
    let oid = aerostat_pgcatalog::oid_of_field(field);
    match SqlType::of_field(field) {
        Some(ty) if ty.oid() == oid => ColumnDescription::new(name, ty),
        _ => {
            let mut described =
                ColumnDescription::of_oid(name, oid, aerostat_pgcatalog::length_of_type(oid));
            // Blanks of `char(n)` items are restored by the length.
            let item = SqlType::item_of(field).and_then(|item| SqlType::of_field(&item));
            if let Some(ty @ SqlType::Char(_)) = item {
                described.typmod = ty.typmod();
            }
            described
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aerostat_sql::statement::{Statement, StatementKind};

    fn names(sql: &str) -> Vec<String> {
        let StatementKind::Sql(parsed) = Statement::single(sql).unwrap().kind else {
            panic!("not SQL")
        };
        let ast::Statement::Query(mut query) = (*parsed).clone() else {
            panic!("not a query")
        };
        name_outputs(&mut query);
        let SetExpr::Select(select) = *query.body else {
            panic!("not a SELECT")
        };
        select
            .projection
            .iter()
            .map(|item| match item {
                SelectItem::UnnamedExpr(e) => output_name(e),
                SelectItem::ExprWithAlias { alias, .. } => visible_name(&folded(alias)).to_owned(),
                other => other.to_string(),
            })
            .collect()
    }

    #[test]
    fn names_are_postgresqls() {
        assert_eq!(
            names(
                "select 1, 1, a, a, t.a, count(*), count(b), x::text, '1'::int, case when a then 1 end, (select max(q) from t), a + 1 as B from t"
            ),
            [
                "?column?", "?column?", "a", "a", "a", "count", "count", "x", "int4", "case",
                "max", "b"
            ]
        );
    }
}
