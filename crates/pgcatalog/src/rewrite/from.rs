//! Functions in FROM.
//!
//! * A function that PostgreSQL also has as a view, `pg_timezone_names()`, is that view.
//! * `generate_series(a, b) AS s`, `generate_subscripts(a, 1) AS s` and
//!   `unnest(a, b) AS t(x, y)` with arguments from other relations become joins with
//!   the relation of small integers, bounded by a condition:
//!   `… CROSS JOIN integers s WHERE s.n BETWEEN a AND b`.

use std::ops::ControlFlow;

use aerostat_sql::{
    names::{AEROSTAT, PG_CATALOG, folded},
    walk,
};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableAliasColumnDef, TableFactor, VisitorMut,
    WildcardAdditionalOptions,
};

use super::{
    build::{and, bare_name, call, column, conjunction, number},
    expr_has, scope,
    spelling::unqualify,
};
use crate::functions::{self, ITEM, LISTENING};

/// What needs no context.
pub(super) fn after_children(factor: &mut TableFactor) {
    let TableFactor::Table {
        name,
        alias,
        args: Some(given),
        ..
    } = factor
    else {
        return;
    };
    let Some(function) = bare_name(name) else {
        return;
    };
    unqualify(name);
    if !given.args.is_empty() {
        return;
    }
    if function == "pg_listening_channels" {
        *name = ObjectName::from(vec![Ident::new("unnest")]);
        let channels = FunctionArgExpr::Expr(call(LISTENING, Vec::new()));
        given.args.push(FunctionArg::Unnamed(channels));
        alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: Ident::new(&function),
            columns: Vec::new(),
            at: None,
        });
        return;
    }
    let qualified = ObjectName::from(vec![Ident::new(PG_CATALOG), Ident::new(&function)]);
    let Some(relation) = scope::system_relation(&qualified) else {
        return;
    };
    // The alias of a function with one column names the column too.
    if let ([_], Some(alias)) = (&relation.columns[..], alias.as_mut())
        && alias.columns.is_empty()
    {
        alias.columns.push(TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
    let alias = alias.take();
    *factor = table(qualified, alias);
}

fn table(name: ObjectName, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A set-returning function in FROM with arguments that are not constant.
pub(super) struct Lateral {
    /// Its name in the SELECT.
    alias: String,
    /// The names of its value columns.
    values: Vec<String>,
    /// The name of its ordinality column.
    ordinality: Option<String>,
    kind: ItemKind,
}

enum ItemKind {
    /// From the first to the second, both included.
    Series(Box<(Expr, Expr)>),
    /// The items of arrays, side by side.
    Items(Vec<Expr>),
}

impl Lateral {
    /// All its columns.
    fn columns(&self) -> impl Iterator<Item = &String> {
        self.values.iter().chain(&self.ordinality)
    }
}

/// Replaces set-returning functions in the FROM of a SELECT: those over columns where
/// `over_columns`, those over functions of the catalogue always.
///
/// Gives the functions, for [`order_by`].
pub(super) fn expand(select: &mut Select, over_columns: bool) -> Vec<Lateral> {
    let mut found = Vec::new();
    for from in &mut select.from {
        for factor in std::iter::once(&mut from.relation)
            .chain(from.joins.iter_mut().map(|join| &mut join.relation))
        {
            if let Some(lateral) = lateral(factor, over_columns) {
                let name = ObjectName::from(vec![Ident::new(AEROSTAT), Ident::new("integers")]);
                let alias = TableAlias {
                    explicit: true,
                    name: Ident::with_quote('"', &lateral.alias),
                    columns: Vec::new(),
                    at: None,
                };
                *factor = table(name, Some(alias));
                found.push(lateral);
            }
        }
    }
    if found.is_empty() {
        return found;
    }
    name_wildcards(select, &found);
    // A replaced column keeps its name in the result.
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = item
            && let [table, name] = &parts[..]
            && found.iter().any(|lateral| lateral.alias == folded(table))
        {
            *item = SelectItem::ExprWithAlias {
                expr: Expr::CompoundIdentifier(parts.clone()),
                alias: name.clone(),
            };
        } else if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && found
                .iter()
                .any(|lateral| lateral.columns().any(|column| *column == folded(name)))
        {
            *item = SelectItem::ExprWithAlias {
                expr: Expr::Identifier(name.clone()),
                alias: name.clone(),
            };
        }
    }
    let _ = walk::change(select, &mut Columns { found: &found });
    let mut conditions: Vec<Expr> = found.iter().map(bounds).collect();
    conditions.extend(
        select
            .selection
            .take()
            .map(|condition| Expr::Nested(Box::new(condition))),
    );
    select.selection = conjunction(conditions);
    found
}

/// Replaces the columns of functions in the ORDER BY of the query whose SELECT had them.
pub(super) fn order_by(query: &mut Query, found: &[Lateral]) {
    if !found.is_empty()
        && let Some(order_by) = &mut query.order_by
    {
        let _ = walk::change(order_by, &mut Columns { found });
    }
}

/// Writes `*` as what it stands for, since a replaced function has other columns.
fn name_wildcards(select: &mut Select, found: &[Lateral]) {
    let all = |options: &WildcardAdditionalOptions| {
        let mut items = Vec::new();
        for from in &select.from {
            for factor in
                std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation))
            {
                let name = scope::alias_of(factor);
                match found.iter().find(|lateral| lateral.alias == name) {
                    Some(lateral) => {
                        items.extend(lateral.columns().map(|value| SelectItem::ExprWithAlias {
                            expr: column(&lateral.alias, value),
                            alias: Ident::with_quote('"', value),
                        }))
                    }
                    None => items.push(SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![
                            Ident::with_quote('"', name),
                        ])),
                        options.clone(),
                    )),
                }
            }
        }
        items
    };
    let items = select.projection.iter().flat_map(|item| match item {
        SelectItem::Wildcard(options) => all(options),
        other => vec![other.clone()],
    });
    select.projection = items.collect();
}

fn lateral(factor: &TableFactor, over_columns: bool) -> Option<Lateral> {
    let (name, alias, arguments, with_ordinality) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(given),
            with_ordinality,
            ..
        } => (
            bare_name(name)?,
            alias,
            plain(&given.args)?,
            *with_ordinality,
        ),
        TableFactor::Function {
            name,
            alias,
            args,
            with_ordinality,
            ..
        } => (bare_name(name)?, alias, plain(args)?, *with_ordinality),
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_ordinality,
            with_offset: false,
            ..
        } => (
            "unnest".to_owned(),
            alias,
            array_exprs.clone(),
            *with_ordinality,
        ),
        _ => return None,
    };
    let varies = |e: &Expr| {
        expr_has(e, |part| match part {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => over_columns,
            Expr::Function(function) => {
                bare_name(&function.name).is_some_and(|name| functions::is_function(&name))
            }
            _ => false,
        })
    };
    if !arguments.iter().any(varies) {
        return None;
    }
    let kind = match (name.as_str(), &arguments[..]) {
        ("generate_series", [low, high]) => ItemKind::Series(Box::new((low.clone(), high.clone()))),
        ("generate_subscripts", [array, dimension]) => {
            let end = |name| call(name, vec![array.clone(), dimension.clone()]);
            ItemKind::Series(Box::new((end("array_lower"), end("array_upper"))))
        }
        ("unnest", [_, ..]) => ItemKind::Items(arguments.clone()),
        _ => return None,
    };
    let count = match &kind {
        ItemKind::Series(..) => 1,
        ItemKind::Items(arrays) => arrays.len(),
    };
    let own = alias.as_ref().map_or(name, |alias| folded(&alias.name));
    let columns: Vec<String> = alias
        .iter()
        .flat_map(|alias| &alias.columns)
        .map(|column| folded(&column.name))
        .collect();
    Some(Lateral {
        values: (0..count)
            .map(|at| columns.get(at).unwrap_or(&own).clone())
            .collect(),
        ordinality: with_ordinality.then(|| {
            columns
                .get(count)
                .cloned()
                .unwrap_or_else(|| "ordinality".to_owned())
        }),
        alias: own,
        kind,
    })
}

fn plain(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    arguments
        .iter()
        .map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression.clone()),
            _ => None,
        })
        .collect()
}

fn bounds(lateral: &Lateral) -> Expr {
    let n = column(&lateral.alias, "n");
    let (low, high) = match &lateral.kind {
        ItemKind::Series(bounds) => (**bounds).clone(),
        ItemKind::Items(arrays) => {
            let upper = |array: &Expr| call("array_upper", vec![array.clone(), number(1)]);
            let high = match &arrays[..] {
                [array] => upper(array),
                arrays => call("greatest", arrays.iter().map(upper).collect()),
            };
            (number(1), high)
        }
    };
    let at_least = |low: Expr, high: Expr| Expr::BinaryOp {
        left: Box::new(low),
        op: datafusion::sql::sqlparser::ast::BinaryOperator::LtEq,
        right: Box::new(high),
    };
    and(at_least(low, n.clone()), at_least(n, high))
}

/// Replaces references to the columns of the functions.
struct Columns<'a> {
    found: &'a [Lateral],
}

impl VisitorMut for Columns<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let (table, name) = match &*expression {
            Expr::Identifier(ident) => (None, folded(ident)),
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, name] => (Some(folded(table)), folded(name)),
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        for lateral in self.found {
            if table.as_ref().is_some_and(|table| *table != lateral.alias) {
                continue;
            }
            let n = column(&lateral.alias, "n");
            if lateral.ordinality.as_ref() == Some(&name) {
                *expression = n;
            } else if let Some(at) = lateral.values.iter().position(|value| *value == name) {
                *expression = match &lateral.kind {
                    ItemKind::Series(..) => n,
                    ItemKind::Items(arrays) => call(ITEM, vec![arrays[at].clone(), n]),
                };
            } else {
                continue;
            }
            break;
        }
        ControlFlow::Continue(())
    }
}
