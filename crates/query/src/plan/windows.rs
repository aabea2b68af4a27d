//! Window definitions that build on others.
//!
//! | written | becomes |
//! |---|---|
//! | `sum(a) OVER (w ORDER BY b) … WINDOW w AS (PARTITION BY c)` | `sum(a) OVER (PARTITION BY c ORDER BY b)` |
//! | `sum(a) OVER v … WINDOW w AS (PARTITION BY c), v AS (w ORDER BY b)` | the same |
//!
//! DataFusion knows the windows of a SELECT by name, but not those that build on them.

use std::ops::ControlFlow;

use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    Expr, NamedWindowDefinition, NamedWindowExpr, OrderBy, Select, VisitorMut, WindowSpec,
    WindowType,
};

/// Writes the windows of a SELECT, and of the ORDER BY of its query, out where they are used.
///
/// # Errors
/// `UndefinedObject` for an unknown name; `WindowingError` for a definition that repeats a clause
/// of the one it builds on.
pub(super) fn write_out(
    select: &mut Select,
    order_by: &mut Option<OrderBy>,
) -> ControlFlow<SqlError> {
    let mut windows = Windows::default();
    for NamedWindowDefinition(name, definition) in std::mem::take(&mut select.named_window) {
        windows.define(folded(&name), definition)?;
    }
    // Subqueries have windows of their own.
    walk::change_own(&mut select.projection, &mut windows)?;
    walk::change_own(order_by, &mut windows)
}

#[derive(Default)]
struct Windows {
    defined: Vec<(String, WindowSpec)>,
}

impl Windows {
    fn define(&mut self, name: String, definition: NamedWindowExpr) -> ControlFlow<SqlError> {
        if self.defined.iter().any(|(known, _)| *known == name) {
            return refuse(format!("window \"{name}\" is already defined"));
        }
        let spec = match definition {
            NamedWindowExpr::WindowSpec(spec) => self.whole(spec, false)?,
            NamedWindowExpr::NamedWindow(other) => self.find(&folded(&other))?,
        };
        self.defined.push((name, spec));
        ControlFlow::Continue(())
    }

    fn find(&self, name: &str) -> ControlFlow<SqlError, WindowSpec> {
        match self.defined.iter().find(|(known, _)| known == name) {
            Some((_, spec)) => ControlFlow::Continue(spec.clone()),
            None => {
                let message = format!("window \"{name}\" does not exist");
                ControlFlow::Break(SqlError::new(ErrorKind::UndefinedObject, message))
            }
        }
    }

    /// A definition with the clauses of the one it builds on; `is_over` if it stands behind OVER.
    fn whole(&self, mut spec: WindowSpec, is_over: bool) -> ControlFlow<SqlError, WindowSpec> {
        let Some(name) = spec.window_name.take() else {
            return ControlFlow::Continue(spec);
        };
        let name = folded(&name);
        let base = self.find(&name)?;
        if !spec.partition_by.is_empty() {
            return refuse(format!(
                "cannot override PARTITION BY clause of window \"{name}\""
            ));
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return refuse(format!(
                "cannot override ORDER BY clause of window \"{name}\""
            ));
        }
        if base.window_frame.is_some() {
            let message = format!("cannot copy window \"{name}\" because it has a frame clause");
            let error = SqlError::new(ErrorKind::WindowingError, message);
            let is_copy = is_over && spec.order_by.is_empty() && spec.window_frame.is_none();
            return ControlFlow::Break(match is_copy {
                true => error.with_hint("Omit the parentheses in this OVER clause."),
                false => error,
            });
        }
        spec.partition_by = base.partition_by;
        if spec.order_by.is_empty() {
            spec.order_by = base.order_by;
        }
        ControlFlow::Continue(spec)
    }
}

fn refuse<T>(message: String) -> ControlFlow<SqlError, T> {
    ControlFlow::Break(SqlError::new(ErrorKind::WindowingError, message))
}

impl VisitorMut for Windows {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        if let Some(over) = function.over.take() {
            function.over = Some(WindowType::WindowSpec(match over {
                WindowType::WindowSpec(spec) => self.whole(spec, true)?,
                WindowType::NamedWindow(name) => self.find(&folded(&name))?,
            }));
        }
        ControlFlow::Continue(())
    }
}
