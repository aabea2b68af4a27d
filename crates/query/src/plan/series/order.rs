//! ORDER BY of a SELECT that expands sets, or is DISTINCT.
//!
//! DataFusion orders such a SELECT by its outputs alone. A key that is an item of the SELECT list
//! is replaced by its position. Other keys of a SELECT that expands sets are computed beside the
//! list. A SELECT DISTINCT may not have other keys, although DataFusion would compute those that
//! are made of outputs.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT unnest(a) FROM t ORDER BY unnest(a)` | `SELECT unnest(a) FROM t ORDER BY 1` |
//! | `SELECT DISTINCT a + b FROM t ORDER BY a + b` | `SELECT DISTINCT a + b FROM t ORDER BY 1` |
//! | `SELECT unnest(a) FROM t ORDER BY k` | `SELECT s.unnest FROM (SELECT unnest(a), k AS o FROM t) AS s ORDER BY s.o` |
//!
//! It is not known here whether a cast does nothing, as in `SELECT DISTINCT a FROM t ORDER BY
//! a::text`. So keys that differ from an item only by casts are left to DataFusion.

use std::ops::ControlFlow;

use aerostat_sql::{
    names::{SUFFIX, folded},
    walk::{self, unnested},
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{
        Distinct, Expr, Ident, OrderBy, OrderByExpr, OrderByKind, Select, SelectItem, SetExpr,
        TableFactor, Value, VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::{
    super::{grouping_sets::is_same, names::output_name},
    has, returns_set,
};

/// The name of the query that computes the keys. Clients cannot write it.
const INNER: &str = "ordered\u{1}";

/// Replaces each key that is an item of the list, and not a name, by its position.
///
/// # Errors
/// `InvalidColumnReference` for a key of a SELECT DISTINCT that is not an item.
pub(super) fn by_position(
    select: &Select,
    order_by: &mut Option<OrderBy>,
) -> ControlFlow<SqlError> {
    let items = &select.projection;
    if select.distinct.is_none() && !items.iter().any(|item| has(item, returns_set)) {
        return ControlFlow::Continue(());
    }
    let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
    for key in keys(order_by) {
        if matches!(key.expr, Expr::Identifier(_) | Expr::Value(_)) {
            continue;
        }
        let is_column = is_column(&key.expr);
        // A column with its relation may be another one than the column without.
        let is_key = |item: &SelectItem| match expression_of(item) {
            Some(expr) if is_column => unnested(expr) == unnested(&key.expr),
            Some(expr) => is_same(expr, &key.expr),
            None => false,
        };
        let at = items.iter().position(is_key);
        if is_distinct && at.is_none() && !is_column && !is_cast_item(items, &key.expr) {
            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
            let error = SqlError::new(ErrorKind::InvalidColumnReference, message);
            return ControlFlow::Break(error);
        }
        if let Some(at) = at.filter(|at| !items[..*at].iter().any(is_wildcard)) {
            key.expr = Expr::value(Value::Number((at + 1).to_string(), false));
        }
    }
    ControlFlow::Continue(())
}

fn expression_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether a key is a column, a constant or a parameter, which DataFusion finds itself.
fn is_column(key: &Expr) -> bool {
    matches!(
        unnested(key),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_)
    )
}

/// Whether a key is an item apart from casts, or a column apart from casts.
fn is_cast_item(items: &[SelectItem], key: &Expr) -> bool {
    let key = without_casts(key);
    let mut items = items.iter().filter_map(expression_of);
    matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        || items.any(|item| is_same(&without_casts(item), &key))
}

fn without_casts(expression: &Expr) -> Expr {
    struct Bare;
    impl VisitorMut for Bare {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            while let Expr::Cast { expr, .. } | Expr::Nested(expr) = expression {
                *expression = (**expr).clone();
            }
            ControlFlow::Continue(())
        }
    }
    let mut bare = expression.clone();
    // The visitor never breaks.
    let _ = walk::change(&mut bare, &mut Bare);
    bare
}

/// Computes keys that are not outputs beside the SELECT list.
pub(super) fn apart(body: &mut SetExpr, order_by: &mut Option<OrderBy>) {
    let SetExpr::Select(select) = body else {
        return;
    };
    let items = &mut select.projection;
    let can_be_moved = select.distinct.is_none()
        && has(&*items, returns_set)
        && !items.iter().any(is_wildcard)
        && keys(order_by).any(|key| !is_output(items, &key.expr));
    if !can_be_moved {
        return;
    }
    let parsed = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&format!("SELECT 1 FROM (SELECT 1) AS \"{INNER}\""))
        .and_then(|mut parser| parser.parse_query());
    let Ok(mut outer) = parsed.map(|query| query.body) else {
        return;
    };
    let SetExpr::Select(shell) = &mut *outer else {
        return;
    };
    let outputs = name_all(items);
    for (at, key) in keys(order_by).enumerate() {
        if !is_output(items, &key.expr) {
            let alias = Ident::with_quote('"', format!("order{SUFFIX}{at}"));
            let expr = std::mem::replace(&mut key.expr, of_inner(&alias));
            items.push(SelectItem::ExprWithAlias { expr, alias });
        }
    }
    shell.projection = outputs
        .iter()
        .map(|alias| SelectItem::ExprWithAlias {
            expr: of_inner(alias),
            alias: alias.clone(),
        })
        .collect();
    if let Some(TableFactor::Derived { subquery, .. }) =
        shell.from.first_mut().map(|from| &mut from.relation)
    {
        std::mem::swap(&mut *subquery.body, body);
        *body = *outer;
    }
}

fn keys(order_by: &mut Option<OrderBy>) -> impl Iterator<Item = &mut OrderByExpr> {
    let kind = order_by.as_mut().map(|order_by| &mut order_by.kind);
    let keys = match kind {
        Some(OrderByKind::Expressions(keys)) => keys.as_mut_slice(),
        _ => &mut [],
    };
    keys.iter_mut()
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

/// Whether a key is a position, or the name of an item.
fn is_output(items: &[SelectItem], key: &Expr) -> bool {
    match key {
        Expr::Value(_) => true,
        Expr::Identifier(ident) => items.iter().any(|item| match item {
            SelectItem::UnnamedExpr(expr) => output_name(expr) == folded(ident),
            SelectItem::ExprWithAlias { alias, .. } => folded(alias) == folded(ident),
            _ => false,
        }),
        _ => false,
    }
}

/// Gives each item a name of its own: PostgreSQL's, with a suffix if another item has it.
fn name_all(items: &mut [SelectItem]) -> Vec<Ident> {
    let mut names: Vec<Ident> = Vec::new();
    for (at, item) in items.iter_mut().enumerate() {
        let (expr, mut name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr.clone(), output_name(expr)),
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), folded(alias)),
            _ => continue,
        };
        if names.iter().any(|taken| taken.value == name) {
            name = format!("{name}{SUFFIX}{at}");
        }
        let alias = Ident::with_quote('"', name);
        names.push(alias.clone());
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
    names
}

fn of_inner(column: &Ident) -> Expr {
    Expr::CompoundIdentifier(vec![Ident::with_quote('"', INNER), column.clone()])
}
