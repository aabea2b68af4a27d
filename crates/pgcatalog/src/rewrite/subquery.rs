//! Scalar subqueries over system relations as left joins.
//!
//! `SELECT (SELECT d.adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND …) FROM
//! pg_attribute a` asks for the one row that the catalogue's keys promise. The planner does not
//! know these keys and refuses; a left join needs none:
//!
//! ```text
//!  FROM pg_attribute a
//!  LEFT JOIN (SELECT d.adbin AS v, d.adrelid AS k0, … FROM pg_attrdef d) AS q1
//!         ON q1.k0 = a.attrelid AND …
//! ```
//!
//! PostgreSQL would fail on a second row; here the outer row would appear twice.

use std::{collections::BTreeMap, ops::ControlFlow};

use aerostat_sql::walk;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Join, JoinConstraint, JoinOperator, Query, Select,
    SelectItem, SetExpr, TableAlias, TableFactor, VisitorMut,
    helpers::attached_token::AttachedToken,
};

use super::{
    build::{call, column, conjunction, conjuncts, null, number, truth},
    expr_has,
    parts::{aggregates, is_aggregate},
    query_has,
    scope::{Scope, is_empty_query},
};

/// Replaces the scalar subqueries of a SELECT.
pub(super) fn join_scalars(select: &mut Select, derived: &mut usize) {
    if aggregates(select) {
        return;
    }
    let outer = Scope::of(&select.from);
    let mut joins = Vec::new();
    let mut replace = Replace {
        outer: &outer,
        joins: &mut joins,
        derived,
        in_projection: true,
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } = item {
            let _ = walk::change_own(item, &mut replace);
        }
    }
    replace.in_projection = false;
    if let Some(condition) = &mut select.selection {
        let _ = walk::change_own(condition, &mut replace);
    }
    if joins.is_empty() {
        return;
    }
    // A bare star must not show the joined columns.
    if select
        .projection
        .iter()
        .any(|item| matches!(item, SelectItem::Wildcard(_)))
    {
        select.projection = std::mem::take(&mut select.projection)
            .into_iter()
            .flat_map(|item| match item {
                SelectItem::Wildcard(options) => outer
                    .aliases()
                    .map(|alias| qualified_star(alias, &options))
                    .collect(),
                other => vec![other],
            })
            .collect();
    }
    let mut from = std::mem::take(&mut select.from).into_iter();
    let Some(mut first) = from.next() else { return };
    for table in from {
        let relation = if table.joins.is_empty() {
            table.relation
        } else {
            TableFactor::NestedJoin {
                table_with_joins: Box::new(table),
                alias: None,
            }
        };
        first.joins.push(Join {
            relation,
            global: false,
            join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
        });
    }
    first.joins.extend(joins);
    select.from = vec![first];
}

fn qualified_star(
    alias: &str,
    options: &datafusion::sql::sqlparser::ast::WildcardAdditionalOptions,
) -> SelectItem {
    use datafusion::sql::sqlparser::ast::{ObjectName, SelectItemQualifiedWildcardKind};
    let name = ObjectName::from(vec![Ident::with_quote('"', alias)]);
    SelectItem::QualifiedWildcard(
        SelectItemQualifiedWildcardKind::ObjectName(name),
        options.clone(),
    )
}

struct Replace<'a> {
    outer: &'a Scope,
    joins: &'a mut Vec<Join>,
    derived: &'a mut usize,
    in_projection: bool,
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expression {
            if is_empty_query(query) {
                *expression = null();
            } else if let Some((value, join)) = as_join(query, self.outer, *self.derived + 1) {
                *self.derived += 1;
                self.joins.push(join);
                *expression = value;
            }
        } else if self.in_projection
            && let Expr::Exists { subquery, negated } = expression
            && let Some(counted) = as_count(subquery, *negated)
        {
            *expression = counted;
        }
        ControlFlow::Continue(())
    }
}

/// `EXISTS (…)` as a comparison of a count: the planner has semi joins for conditions alone.
fn as_count(query: &Query, negated: bool) -> Option<Expr> {
    let mut query = query.clone();
    let SetExpr::Select(select) = &mut *query.body else {
        return None;
    };
    if query.limit_clause.is_some() || query.with.is_some() || aggregates(select) {
        return None;
    }
    query.order_by = None;
    select.distinct = None;
    select.projection = vec![SelectItem::UnnamedExpr(call("count", vec![number(1)]))];
    Some(Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(Expr::Subquery(Box::new(query))),
        op: if negated {
            BinaryOperator::Eq
        } else {
            BinaryOperator::Gt
        },
        right: Box::new(number(0)),
    })))
}

/// The value that stands for the subquery, and the join that provides it.
fn as_join(query: &Query, outer: &Scope, nth: usize) -> Option<(Expr, Join)> {
    let plain = query.with.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    if !plain || select.from.is_empty() || select.distinct.is_some() || aggregates(select) {
        return None;
    }
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &select.projection[..]
    else {
        return None;
    };
    let inner = Scope::of(&select.from);
    let foreign = |part: &Expr| is_reference(part) && !inner.owns(part) && outer.owns(part);
    if !query_has(query, foreign) || is_aggregate(item) {
        return None;
    }
    let mut parts = Vec::new();
    if let Some(condition) = &select.selection {
        conjuncts(condition.clone(), &mut parts);
    }
    let (correlated, own): (Vec<Expr>, Vec<Expr>) =
        parts.into_iter().partition(|part| expr_has(part, foreign));
    if correlated.iter().chain([item]).any(|part| {
        expr_has(part, |e| {
            matches!(
                e,
                Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. }
            )
        })
    }) {
        return None;
    }
    let name = format!("__scalar_{nth}");
    let mut exports = Exports {
        inner: &inner,
        table: &name,
        columns: BTreeMap::new(),
    };
    let mut on: Vec<Expr> = correlated;
    for part in &mut on {
        exports.rename(part);
    }
    let mut value = item.clone();
    let mut projection = Vec::new();
    if expr_has(item, foreign) {
        // A value made of outer columns too must still be NULL where no row matches.
        exports.rename(&mut value);
        projection.push(aliased(truth(true), "m"));
        value = Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen {
                condition: column(&name, "m"),
                result: value,
            }],
            else_result: None,
        };
    } else {
        projection.push(aliased(value, "v"));
        value = column(&name, "v");
    }
    projection.extend(
        exports
            .columns
            .into_values()
            .map(|(reference, alias)| aliased(reference, &alias)),
    );
    let mut body = select.clone();
    body.projection = projection;
    body.selection = conjunction(own);
    let mut table = query.clone();
    table.order_by = None;
    table.body = Box::new(SetExpr::Select(body));
    let join = Join {
        relation: TableFactor::Derived {
            lateral: false,
            subquery: Box::new(table),
            alias: Some(TableAlias {
                explicit: true,
                name: Ident::new(&name),
                columns: Vec::new(),
                at: None,
            }),
            sample: None,
        },
        global: false,
        join_operator: JoinOperator::LeftOuter(JoinConstraint::On(
            conjunction(on).unwrap_or_else(|| truth(true)),
        )),
    };
    Some((value, join))
}

fn is_reference(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

fn aliased(expression: Expr, alias: &str) -> SelectItem {
    SelectItem::ExprWithAlias {
        expr: expression,
        alias: Ident::new(alias),
    }
}

/// The columns of the inner query that the join condition needs, by their text.
struct Exports<'a> {
    inner: &'a Scope,
    table: &'a str,
    columns: BTreeMap<String, (Expr, String)>,
}

impl Exports<'_> {
    fn rename(&mut self, expression: &mut Expr) {
        let _ = walk::change(expression, self);
    }
}

impl VisitorMut for Exports<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if is_reference(expression) && self.inner.owns(expression) {
            let next = format!("k{}", self.columns.len());
            let (_, alias) = self
                .columns
                .entry(expression.to_string())
                .or_insert_with(|| (expression.clone(), next));
            *expression = column(self.table, alias);
        }
        ControlFlow::Continue(())
    }
}
