//! Names that several relations of a subquery have. The planner would look for them in the queries
//! around, where there may be one.

use std::ops::ControlFlow;

use aerostat_semantics::walk;
use datafusion::sql::sqlparser::ast::{Expr, Query, Select, SetExpr, Visitor};

use super::{Output, only};
use crate::ddl::names::folded;

/// Whether an expression is a subquery that joins relations.
pub(super) fn joins_inside(expression: &Expr) -> bool {
    let query = match expression {
        Expr::Subquery(query) => query,
        Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. } => subquery,
        _ => return false,
    };
    matches!(&*query.body, SetExpr::Select(select) if joins(select))
}

/// Whether a SELECT joins relations.
pub(super) fn joins(select: &Select) -> bool {
    select.from.len() > 1 || select.from.iter().any(|table| !table.joins.is_empty())
}

/// The first name in a SELECT, but for its FROM and its subqueries, that several of these columns have.
pub(super) fn name_in(select: &Select, columns: &[Output]) -> Option<String> {
    let mut names = Names {
        columns,
        subqueries: 0,
    };
    let mut look = || {
        walk::look(&select.projection, &mut names)?;
        walk::look(&select.selection, &mut names)?;
        walk::look(&select.group_by, &mut names)?;
        walk::look(&select.having, &mut names)
    };
    look().break_value()
}

struct Names<'a> {
    columns: &'a [Output],
    subqueries: usize,
}

impl Visitor for Names<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<String> {
        let Expr::Identifier(name) = expression else {
            return ControlFlow::Continue(());
        };
        let name = folded(name);
        let is_known = self.columns.iter().any(|column| column.name == name);
        match self.subqueries == 0 && is_known && only(self.columns, &name).is_none() {
            true => ControlFlow::Break(name),
            false => ControlFlow::Continue(()),
        }
    }
}
