//! Statements of PostgreSQL's clients, turned into statements that DataFusion can plan.
//!
//! The work is in two layers:
//!
//! * *Spelling* ([`spelling`]) applies to every statement: names qualified by `pg_catalog`,
//!   `OPERATOR(pg_catalog.~)`, `COLLATE`, PostgreSQL's type names, `regclass` and similar types,
//!   `ARRAY(SELECT …)`. A statement without them stays as it is. Columns that show names are read
//!   as numbers where they are compared ([`names`]).
//! * *Shape* ([`select`], [`subquery`], [`from`]) applies to a SELECT that reads a system
//!   relation: comparisons of numbers with texts, `tableoid`, array operators, scalar subqueries
//!   that return one row by the catalogue's keys, and set-returning functions in FROM.
//!
//! Inner queries are rewritten before outer ones. A relation that has no rows in any database
//! makes much of this unnecessary: a subquery over it is a constant.

mod build;
mod from;
mod names;
mod parts;
mod scope;
mod select;
mod spelling;
mod subquery;

use std::ops::ControlFlow;

use aerostat_sql::walk;
use aerostat_types::SqlError;
use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SetExpr, Statement, TableFactor, Visitor, VisitorMut,
};

use crate::CatalogView;

/// Rewrites a statement in place.
pub(crate) fn statement(statement: &mut Statement, view: &CatalogView) -> Result<(), SqlError> {
    let mut rewriter = Rewriter {
        view,
        named: Vec::new(),
        expanded: Vec::new(),
        derived: 0,
    };
    match walk::change(statement, &mut rewriter) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Rewriter<'a> {
    view: &'a CatalogView,
    /// The WITH queries seen so far that show names.
    named: names::Named,
    /// The functions in FROM of the SELECT done last that became relations.
    expanded: Vec<from::Lateral>,
    /// Derived tables made so far, for their names.
    derived: usize,
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        names::note_with(query, &mut self.named);
        flow(spelling::set_operation(&mut query.body, self.view))
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        flow(spelling::before_children(expression, self.view))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Self::Break> {
        flow(spelling::after_children(expression, self.view))
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        from::after_children(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        self.expanded = select::after_children(select, &self.named, &mut self.derived);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let expanded = std::mem::take(&mut self.expanded);
        if matches!(*query.body, SetExpr::Select(_)) {
            from::order_by(query, &expanded);
        }
        ControlFlow::Continue(())
    }
}

fn flow(result: Result<(), SqlError>) -> ControlFlow<Box<SqlError>> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

/// Whether a query has something inside it that `found` is true for, subqueries included.
fn query_has(query: &Query, found: impl Fn(&Expr) -> bool) -> bool {
    walk::look(query, &mut Finder { found }).is_break()
}

/// Whether an expression has something inside it that `found` is true for, subqueries included.
fn expr_has(expression: &Expr, found: impl Fn(&Expr) -> bool) -> bool {
    walk::look(expression, &mut Finder { found }).is_break()
}

struct Finder<F> {
    found: F,
}

impl<F: Fn(&Expr) -> bool> Visitor for Finder<F> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if (self.found)(expression) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
