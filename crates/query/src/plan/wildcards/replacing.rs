//! Replacing the names of merged columns in clauses by their values. Items without an alias keep
//! their names: `(SELECT b)` is called `b`, not `coalesce`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SelectItem, VisitorMut};

use aerostat_sql::names::folded;

use super::{Output, Wildcards, output_name, quoted};

/// The name of an item without an alias.
pub(super) fn unnamed(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(output_name(expression)),
        _ => None,
    }
}

/// Gives an item the name that it had before names in it were replaced.
pub(super) fn name_as_before(item: &mut SelectItem, name: Option<String>) {
    let SelectItem::UnnamedExpr(expression) = item else {
        return;
    };
    let Some(name) = name.filter(|name| output_name(expression) != *name) else {
        return;
    };
    let expr = expression.clone();
    let alias = quoted(&name);
    *item = SelectItem::ExprWithAlias { expr, alias };
}

/// Puts the values of merged columns in the place of their names.
pub(super) struct Replacing<'a> {
    wildcards: &'a Wildcards<'a>,
    others: &'a [Output],
    /// The names that the subqueries around the visited node hide.
    hidden: Vec<Option<Vec<String>>>,
    /// The names of the outputs of the SELECTs around the visited node, where these have no alias.
    names: Vec<Vec<Option<String>>>,
}

impl<'a> Replacing<'a> {
    pub(super) fn new(wildcards: &'a Wildcards<'a>, others: &'a [Output]) -> Self {
        Replacing {
            wildcards,
            others,
            hidden: Vec::new(),
            names: Vec::new(),
        }
    }
}

impl VisitorMut for Replacing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.hidden.push(self.wildcards.names_in(query));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.hidden.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let names = select.projection.iter().map(unnamed);
        self.names.push(names.collect());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let names = self.names.pop().unwrap_or_default();
        for (item, name) in select.projection.iter_mut().zip(names) {
            name_as_before(item, name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = expression else {
            return ControlFlow::Continue(());
        };
        let name = folded(name);
        let hides = |hidden: &Option<Vec<String>>| match hidden {
            Some(names) => names.contains(&name),
            None => true,
        };
        if !self.hidden.iter().any(hides)
            && let Some(other) = self.others.iter().find(|other| other.name == name)
            && let Some(other) = self.wildcards.meant(other)
        {
            *expression = other.value.clone();
        }
        ControlFlow::Continue(())
    }
}
