//! Columns of derived tables and WITH queries that show numbers of catalogue entries as names:
//! in `WITH t AS (SELECT 'a'::regclass AS r) … WHERE attrelid = t.r`, `t.r` is a name, and
//! read as a number again where it is compared.

use std::ops::ControlFlow;

use aerostat_sql::{
    names::folded,
    walk::{self, unnested},
};
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, VisitorMut,
};

use super::{
    build::{bare_name, call},
    parts::for_each_expression,
    spelling::{number_operands, reg_type},
};
use crate::functions::{INTERNAL, Reg};

/// The columns of a WITH query that are names, by the name of the query.
pub(super) type Named = Vec<(String, Vec<(String, Reg)>)>;

/// Notes what the WITH queries of a query show as names, before they are rewritten.
pub(super) fn note_with(query: &Query, named: &mut Named) {
    for table in query.with.iter().flat_map(|with| &with.cte_tables) {
        let columns = columns(&table.query, Some(&table.alias));
        if !columns.is_empty() {
            named.push((folded(&table.alias.name), columns));
        }
    }
}

/// The columns of a query that are names.
fn columns(query: &Query, alias: Option<&TableAlias>) -> Vec<(String, Reg)> {
    let SetExpr::Select(select) = &*query.body else {
        return Vec::new();
    };
    let renamed = |at: usize| Some(folded(&alias?.columns.get(at)?.name));
    select
        .projection
        .iter()
        .enumerate()
        .filter_map(|(at, item)| {
            let (expression, own) = match item {
                SelectItem::UnnamedExpr(expression) => (expression, own_name(expression)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(folded(alias))),
                _ => return None,
            };
            Some((renamed(at).or(own)?, kind_of(expression)?))
        })
        .collect()
}

/// The name that a column of this expression has by itself.
fn own_name(expression: &Expr) -> Option<String> {
    match unnested(expression) {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded),
        Expr::Cast { expr, .. } => own_name(expr),
        _ => None,
    }
}

/// What an expression names, rewritten or not.
fn kind_of(expression: &Expr) -> Option<Reg> {
    match unnested(expression) {
        Expr::Cast { data_type, .. } => reg_type(data_type),
        Expr::Function(function) => {
            let name = bare_name(&function.name)?;
            Reg::of_finder(&name).or_else(|| Reg::of_shower(&name))
        }
        _ => None,
    }
}

/// Reads the names that a SELECT compares as numbers.
pub(super) fn read_as_numbers(select: &mut Select, named: &Named) {
    let mut entries = Vec::new();
    for from in &select.from {
        let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
        for factor in factors {
            match factor {
                TableFactor::Derived {
                    subquery,
                    alias: Some(alias),
                    ..
                } => entries.push((folded(&alias.name), columns(subquery, Some(alias)))),
                TableFactor::Table {
                    name,
                    alias,
                    args: None,
                    ..
                } => {
                    let [own] = &name.0[..] else { continue };
                    let Some(own) = own.as_ident().map(folded) else {
                        continue;
                    };
                    if let Some((_, columns)) = named.iter().rev().find(|(name, _)| *name == own) {
                        let alias = alias.as_ref().map_or(own, |alias| folded(&alias.name));
                        entries.push((alias, columns.clone()));
                    }
                }
                _ => {}
            }
        }
    }
    entries.retain(|(_, columns)| !columns.is_empty());
    if entries.is_empty() {
        return;
    }
    for_each_expression(select, &mut |expression| {
        let _ = walk::change(expression, &mut Reader { entries: &entries });
    });
}

struct Reader<'a> {
    entries: &'a [(String, Vec<(String, Reg)>)],
}

impl Reader<'_> {
    fn kind(&self, expression: &Expr) -> Option<Reg> {
        let (table, column) = match unnested(expression) {
            Expr::Identifier(column) => (None, column),
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, column] => (Some(folded(table)), column),
                _ => return None,
            },
            _ => return None,
        };
        let column = folded(column);
        self.entries
            .iter()
            .filter(|(alias, _)| table.as_ref().is_none_or(|table| table == alias))
            .flat_map(|(_, columns)| columns)
            .find(|(name, _)| *name == column)
            .map(|(_, kind)| *kind)
    }
}

impl VisitorMut for Reader<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        // One that is read already is an argument of ours, and would be read for ever.
        if let Expr::Function(function) = &*expression
            && bare_name(&function.name).is_some_and(|name| name.starts_with(INTERNAL))
        {
            return ControlFlow::Continue(());
        }
        let read = number_operands(expression, &mut |operand| {
            if let Some(kind) = self.kind(operand) {
                *operand = call(kind.reader(), vec![operand.clone()]);
            }
            Ok(())
        });
        // Reading a column fails when it is evaluated, not here.
        debug_assert!(read.is_ok());
        ControlFlow::Continue(())
    }
}
