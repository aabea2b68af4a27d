//! Set-returning functions in SELECT lists.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT generate_series(1, 3) + 1` | `SELECT s.s + 1 FROM generate_series(1, 3) AS s (s)`, which streams |
//! | `SELECT k, generate_series(1, k) FROM t` | `SELECT k, unnest(generate_series(1, k)) FROM t` |
//! | `INSERT INTO t VALUES (generate_series(1, 3))` | `INSERT INTO t SELECT generate_series(1, 3)` |
//!
//! The first form is for one call with constants where there is neither a FROM nor anything that
//! PostgreSQL computes before it expands sets. In the second form the function returns a list;
//! DataFusion's `unnest` expands several lists in lockstep, as PostgreSQL does. [`order`] treats
//! the ORDER BY of such a SELECT.

mod order;
mod parameters;

use std::{mem, ops::ControlFlow};

use aerostat_sql::{
    clauses::is_aggregate,
    names::{SUFFIX, folded},
    set_returning::{SERIES, UNNEST, named, named_function, refused, returns_set},
    walk,
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{
        Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
        Ident, ObjectName, OrderBy, Query, Select, SelectItem, SetExpr, TableAlias,
        TableAliasColumnDef, TableFactor, TableWithJoins, UnaryOperator, Value, Visit, VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

pub(super) use parameters::declare_bounds;

use super::names::output_name;

/// The function for a list of constants beside a table; it is not folded when the statement is
/// planned.
const EACH: &str = "\u{1}series_each";

/// The name of the relation of the first form, and of its column. Clients cannot write it.
const RELATION: &str = "generate_series\u{1}";

/// Whether this is the function for whose parameters [`declare_bounds`] is responsible.
pub(super) fn names_series(name: &ObjectName) -> bool {
    named_function(name).as_deref() == Some(SERIES)
}

/// Rewrites the SELECT of a query, or each SELECT of a set operation.
///
/// # Errors
/// `FeatureNotSupported` for a set-returning function in VALUES, and in an ORDER BY that cannot
/// be computed beside the SELECT list; `InvalidColumnReference` for an ORDER BY of SELECT DISTINCT
/// whose key is not in the list.
pub(super) fn expand(query: &mut Query) -> ControlFlow<SqlError> {
    let Query {
        body,
        order_by,
        locks,
        ..
    } = query;
    let SetExpr::Select(select) = &mut **body else {
        return expand_body(body);
    };
    // DataFusion itself matches the keys of DISTINCT ON with those of ORDER BY.
    if matches!(select.distinct, Some(Distinct::On(_))) {
        expand_select(select, order_by);
        return ControlFlow::Continue(());
    }
    order::by_position(select, order_by)?;
    expand_select(select, order_by);
    if locks.is_empty() {
        order::apart(body, order_by);
    }
    if has(&*order_by, returns_set) {
        let message =
            "a set-returning function in ORDER BY that is not in the SELECT list is not supported";
        return ControlFlow::Break(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    ControlFlow::Continue(())
}

fn expand_body(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::Select(select) => expand_select(select, &mut None),
        SetExpr::SetOperation { left, right, .. } => {
            expand_body(left)?;
            expand_body(right)?;
        }
        SetExpr::Values(values) if has(&*values, returns_set) => {
            return ControlFlow::Break(refused("VALUES"));
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// `INSERT … VALUES` of one row as a SELECT, if a set-returning function is in it.
pub(super) fn select_of_row(source: &mut Query) {
    let SetExpr::Values(values) = &mut *source.body else {
        return;
    };
    let [row] = &mut values.rows[..] else {
        return;
    };
    let is_default = |cell: &Expr| {
        matches!(cell, Expr::Identifier(ident) if ident.quote_style.is_none()
            && ident.value.eq_ignore_ascii_case("default"))
    };
    if !has(&*row, returns_set) || row.iter().any(is_default) {
        return;
    }
    let parsed = Parser::new(&PostgreSqlDialect {})
        .try_with_sql("SELECT 1")
        .and_then(|mut parser| parser.parse_query());
    if let Ok(mut query) = parsed
        && let SetExpr::Select(select) = &mut *query.body
    {
        select.projection = row.drain(..).map(SelectItem::UnnamedExpr).collect();
        source.body = query.body;
    }
}

fn expand_select(select: &mut Select, order_by: &mut Option<OrderBy>) {
    let is_called = has(&select.projection, is_series)
        || has(&*order_by, is_series)
        || has(&select.group_by, is_series);
    if !is_called {
        return;
    }
    name_items(&mut select.projection);
    if let Some(call) = only_call(select, order_by) {
        select.from.push(relation_of(&call));
        let mut column = |_: &Function| {
            let name = || Ident::with_quote('"', RELATION);
            Expr::CompoundIdentifier(vec![name(), name()])
        };
        replace(select, order_by, &mut column);
        return;
    }
    let is_beside = !select.from.is_empty();
    let mut unnested = |call: &Function| {
        let mut list = call.clone();
        let each = is_beside && has_constants(call);
        let name = match each {
            true => Ident::with_quote('"', EACH),
            false => Ident::new(SERIES),
        };
        list.name = ObjectName::from(vec![name]);
        let mut unnest = call.clone();
        unnest.name = ObjectName::from(vec![Ident::new(UNNEST)]);
        if let FunctionArguments::List(given) = &mut unnest.args {
            let list = FunctionArgExpr::Expr(Expr::Function(list));
            given.args = vec![FunctionArg::Unnamed(list)];
        }
        Expr::Function(unnest)
    };
    replace(select, order_by, &mut unnested);
}

/// Gives items the names that PostgreSQL derives from the functions that are about to be replaced.
fn name_items(items: &mut [SelectItem]) {
    let mut taken: Vec<String> = Vec::new();
    for (at, item) in items.iter_mut().enumerate() {
        match item {
            SelectItem::UnnamedExpr(expression) => {
                let mut name = output_name(expression);
                if has(&*expression, is_series) {
                    if taken.contains(&name) {
                        name = format!("{name}{SUFFIX}{at}");
                    }
                    *item = SelectItem::ExprWithAlias {
                        expr: expression.clone(),
                        alias: Ident::with_quote('"', name.clone()),
                    };
                }
                taken.push(name);
            }
            SelectItem::ExprWithAlias { alias, .. } => taken.push(folded(alias)),
            _ => {}
        }
    }
}

/// The single call of a SELECT that can become its FROM.
fn only_call(select: &Select, order_by: &Option<OrderBy>) -> Option<Function> {
    let is_plain = select.from.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, modifiers)
            if keys.is_empty() && modifiers.is_empty())
        && select.having.is_none()
        && !matches!(select.distinct, Some(Distinct::On(_)));
    if !is_plain {
        return None;
    }
    let mut calls = Calls::default();
    calls.look_in(&select.projection);
    calls.look_in(order_by);
    let first = calls.series.first()?;
    let alike = calls.series.iter().all(|call| call == first);
    (alike && !calls.others && has_constants(first)).then(|| first.clone())
}

/// The calls in a SELECT, without those in its subqueries.
#[derive(Default)]
struct Calls {
    series: Vec<Function>,
    /// Whether there are other sets, or something that is computed before sets are expanded.
    others: bool,
}

impl Calls {
    fn look_in<N: Visit + ?Sized>(&mut self, node: &N) {
        let _ = walk::own_calls(node, |function| {
            self.call(function);
            ControlFlow::<()>::Continue(())
        });
    }

    fn call(&mut self, function: &Function) {
        if is_series(function) {
            self.series.push(function.clone());
        } else {
            self.others |=
                function.over.is_some() || is_aggregate(function) || returns_set(function);
        }
    }
}

fn is_series(function: &Function) -> bool {
    function.over.is_none() && named(function).as_deref() == Some(SERIES)
}

/// Whether a tree calls a wanted function outside of subqueries.
fn has<N: Visit + ?Sized>(node: &N, wanted: fn(&Function) -> bool) -> bool {
    let found = walk::own_calls(node, |function| match wanted(function) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn has_constants(call: &Function) -> bool {
    let FunctionArguments::List(given) = &call.args else {
        return false;
    };
    given.args.iter().all(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => is_constant(expression),
        _ => false,
    })
}

fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
        Expr::TypedString(_) => true,
        Expr::Interval(interval) => is_constant(&interval.value),
        Expr::Nested(expr)
        | Expr::Cast { expr, .. }
        | Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => is_constant(expr),
        _ => false,
    }
}

fn relation_of(call: &Function) -> TableWithJoins {
    let args = match &call.args {
        FunctionArguments::List(given) => given.args.clone(),
        _ => Vec::new(),
    };
    let name = Ident::with_quote('"', RELATION);
    TableWithJoins {
        relation: TableFactor::Function {
            lateral: false,
            name: ObjectName::from(vec![Ident::new(SERIES)]),
            args,
            with_ordinality: false,
            alias: Some(TableAlias {
                explicit: true,
                columns: vec![TableAliasColumnDef {
                    name: name.clone(),
                    data_type: None,
                }],
                name,
                at: None,
            }),
        },
        joins: Vec::new(),
    }
}

/// Replaces each call of `generate_series`, the inner ones first.
fn replace(
    select: &mut Select,
    order_by: &mut Option<OrderBy>,
    with: &mut dyn FnMut(&Function) -> Expr,
) {
    struct Replace<'a> {
        with: &'a mut dyn FnMut(&Function) -> Expr,
        /// How many calls of `unnest` are around the visited node: their arguments are already
        /// lists.
        unnests: usize,
    }
    impl VisitorMut for Replace<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            if is_unnest(expression) {
                self.unnests += 1;
            }
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            if is_unnest(expression) {
                self.unnests -= 1;
            }
            if let Expr::Function(function) = expression
                && self.unnests == 0
                && is_series(function)
            {
                *expression = (self.with)(function);
            }
            ControlFlow::Continue(())
        }
    }
    let mut visitor = Replace { with, unnests: 0 };
    // The visitor never breaks.
    let mut items = mem::take(&mut select.projection);
    let _ = walk::change_own(&mut items, &mut visitor);
    let _ = walk::change_own(order_by, &mut visitor);
    let _ = walk::change_own(&mut select.group_by, &mut visitor);
    let _ = walk::change_own(&mut select.distinct, &mut visitor);
    select.projection = items;
}

fn is_unnest(expression: &Expr) -> bool {
    matches!(expression, Expr::Function(function)
        if named(function).as_deref() == Some(UNNEST))
}
