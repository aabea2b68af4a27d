//! Making queries that a statement does not contain.

use datafusion::sql::sqlparser::ast::{self, SetExpr};

/// A query that consists of this body alone.
pub(crate) fn query_of(body: SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}
