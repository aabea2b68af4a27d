//! Columns that depend on a grouped primary key.
//!
//! `SELECT o.*, count(*) FROM o JOIN l ON … GROUP BY o.id` becomes `… GROUP BY o.id, o.a, o.b`: if
//! a table's primary key is grouped by, each of its columns has one value in each group, so all
//! columns that the query names outside of aggregates become keys. A key may be a position:
//! `GROUP BY 1`.

use std::{collections::HashSet, ops::ControlFlow};

use aerostat_catalog::Relation;
use aerostat_sql::{
    clauses::is_aggregate,
    names::folded,
    walk::{self, unnested},
};
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

use super::{StatementContext, positions::at_position, target::table_reference};

/// Rewrites the queries in a tree as the module says.
pub(super) fn rewrite<N: VisitMut>(context: &StatementContext, node: &mut N) {
    // The visitor never breaks.
    let _ = walk::change(node, &mut Grouped { context });
}

struct Grouped<'a> {
    context: &'a StatementContext,
}

impl VisitorMut for Grouped<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let order_by = query.order_by.clone();
        match &mut *query.body {
            SetExpr::Select(select) => self.extend(select, order_by.as_ref()),
            // The ORDER BY of a set operation sees outputs alone.
            body => self.extend_branches(body),
        }
        ControlFlow::Continue(())
    }
}

/// A table in FROM by whose primary key the query groups.
struct Keyed {
    name: String,
    columns: Vec<String>,
}

impl Grouped<'_> {
    /// Extends the branches of UNION and similar. The walk comes to queries in parentheses by
    /// itself.
    fn extend_branches(&self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => self.extend(select, None),
            SetExpr::SetOperation { left, right, .. } => {
                self.extend_branches(left);
                self.extend_branches(right);
            }
            _ => {}
        }
    }

    fn extend(&self, select: &mut Select, order_by: Option<&OrderBy>) {
        let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else {
            return;
        };
        if keys.is_empty() || !modifiers.is_empty() {
            return;
        }
        let whole = |key: &Expr| match at_position(select, key) {
            Some(output) => column(unnested(&output)),
            None => column(unnested(key)),
        };
        let grouped: Vec<(Option<String>, String)> = keys.iter().filter_map(whole).collect();
        let tables: Vec<&TableFactor> = select.from.iter().flat_map(factors).collect();
        let keyed = tables
            .iter()
            .filter_map(|factor| self.keyed(factor, &grouped));
        let keyed: Vec<Keyed> = keyed.collect();
        if keyed.is_empty() {
            return;
        }
        let mut named = Named::default();
        named.look_in(&select.projection);
        named.look_in(&select.having);
        if let Some(order_by) = order_by {
            named.look_in(order_by);
        }
        named.wildcards(&select.projection);
        let mut added = Vec::new();
        for table in &keyed {
            for name in &table.columns {
                let is_grouped = grouped.iter().any(|(owner, column)| {
                    column == name && owner.as_ref().is_none_or(|owner| *owner == table.name)
                });
                let others = keyed.iter().filter(|other| other.columns.contains(name));
                let is_alone = tables.len() == 1 || others.count() == 1;
                if !is_grouped && named.has(&table.name, name, is_alone) {
                    let parts = [&table.name, name].map(|part| Ident::with_quote('"', part));
                    added.push(Expr::CompoundIdentifier(parts.to_vec()));
                }
            }
        }
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.extend(added);
        }
    }

    /// The table of a relation in FROM, if its primary key is among these columns.
    fn keyed(&self, factor: &TableFactor, grouped: &[(Option<String>, String)]) -> Option<Keyed> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return None;
        };
        let called = match alias {
            Some(alias) if !alias.columns.is_empty() => return None,
            Some(alias) => folded(&alias.name),
            None => folded(name.0.last()?.as_ident()?),
        };
        let (_, relation) = self.context.resolve(&table_reference(name).ok()?).ok()?;
        let Relation::Table(entry) = relation else {
            return None;
        };
        let schema = entry.table.schema();
        let columns: Vec<String> = schema.columns.iter().map(|c| c.name.clone()).collect();
        let is_grouped = |at: &usize| {
            let mut wanted = grouped.iter().filter(|(_, column)| *column == columns[*at]);
            wanted.any(|(owner, _)| owner.as_ref().is_none_or(|owner| *owner == called))
        };
        let key = &schema.primary_key;
        (!key.is_empty() && key.iter().all(is_grouped)).then_some(Keyed {
            name: called,
            columns,
        })
    }
}

fn factors(table: &TableWithJoins) -> Vec<&TableFactor> {
    let all = walk::factors(table);
    all.flat_map(|factor| match factor {
        TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } => factors(table_with_joins),
        factor => vec![factor],
    })
    .collect()
}

/// A column, with the relation that qualifies it.
fn column(expression: &Expr) -> Option<(Option<String>, String)> {
    match expression {
        Expr::Identifier(name) => Some((None, folded(name))),
        Expr::CompoundIdentifier(parts) => {
            let mut last = parts.iter().rev().map(folded);
            let name = last.next()?;
            Some((last.next(), name))
        }
        _ => None,
    }
}

fn aggregates(expression: &Expr) -> bool {
    match expression {
        Expr::Function(function) => function.over.is_none() && is_aggregate(function),
        _ => false,
    }
}

/// The columns that a query names outside of aggregates.
#[derive(Default)]
struct Named {
    columns: HashSet<(Option<String>, String)>,
    /// The relations all of whose columns are named.
    all_of: Vec<String>,
    all: bool,
}

impl Named {
    fn look_in<N: Visit>(&mut self, node: &N) {
        struct Look<'a> {
            named: &'a mut Named,
            /// How many aggregates are around the visited node; their arguments need not be grouped
            /// by.
            aggregates: usize,
        }
        impl Visitor for Look<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                self.aggregates += usize::from(aggregates(expression));
                if self.aggregates == 0 {
                    self.named.columns.extend(column(expression));
                }
                ControlFlow::Continue(())
            }

            fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
                self.aggregates -= usize::from(aggregates(expression));
                ControlFlow::Continue(())
            }
        }
        // The visitor never breaks.
        let _ = walk::look(
            node,
            &mut Look {
                named: self,
                aggregates: 0,
            },
        );
    }

    fn wildcards(&mut self, items: &[SelectItem]) {
        for item in items {
            match item {
                SelectItem::Wildcard(_) => self.all = true,
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let last = name.0.last().and_then(|part| part.as_ident());
                    self.all_of.extend(last.map(folded));
                }
                _ => {}
            }
        }
    }

    /// Whether a column is named, also without its relation if `is_alone`.
    fn has(&self, owner: &str, name: &str, is_alone: bool) -> bool {
        self.all
            || self.all_of.iter().any(|of| of == owner)
            || is_alone && self.columns.contains(&(None, name.to_owned()))
            || self
                .columns
                .contains(&(Some(owner.to_owned()), name.to_owned()))
    }
}
