//! Restrictions on recursive queries.
//!
//! `WITH RECURSIVE t AS (first UNION [ALL] again)`: the first term does not name `t`; the other
//! names it once, in FROM, outside subqueries and the nullable side of outer joins, and neither
//! aggregates nor sorts its rows. DataFusion accepts some queries that PostgreSQL refuses, and may
//! then never end.

use std::ops::ControlFlow;

use aerostat_semantics::functions::named::NAMED;
use aerostat_sql::{
    clauses::is_aggregate,
    names::folded,
    walk::{self, factors},
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    CastKind, Cte, DataType, Expr, JoinOperator, LimitClause, ObjectName, Query, Select,
    SelectItem, SetExpr, SetOperator, TableFactor, TableWithJoins, Value, Visit, Visitor, With,
};

use super::calls::call_of;

/// Checks the WITH clause of a query.
///
/// # Errors
/// `InvalidRecursion`, as the module says.
pub(super) fn check(with: &With) -> ControlFlow<SqlError> {
    if with.recursive {
        with.cte_tables.iter().try_for_each(check_cte)
    } else {
        ControlFlow::Continue(())
    }
}

/// Casts string literals and NULLs in the columns of first terms to text: the recursive term must
/// have the same types, and a literal has no type yet.
pub(super) fn type_first_terms(with: &mut With) {
    if !with.recursive {
        return;
    }
    for cte in &mut with.cte_tables {
        let name = folded(&cte.alias.name);
        let are_named = !cte.alias.columns.is_empty();
        if count(&*cte.query, &name) > 0
            && let SetExpr::SetOperation { left, .. } = &mut *cte.query.body
        {
            type_literals(left, are_named);
            type_nulls(left, are_named);
        }
    }
}

/// Casts NULLs of a term that is a single SELECT. In a union they have the types of the other
/// branches.
fn type_nulls(term: &mut SetExpr, are_named: bool) {
    let select = match term {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return type_nulls(&mut query.body, are_named),
        _ => return,
    };
    for item in &mut select.projection {
        let expr = match item {
            SelectItem::ExprWithAlias { expr, .. } => expr,
            SelectItem::UnnamedExpr(expr) if are_named => expr,
            _ => continue,
        };
        if matches!(expr, Expr::Value(value) if value.value == Value::Null) {
            to_text(expr);
        }
    }
}

/// Casts string literals of a term, but for columns without an alias: these are named after their
/// expression, which a cast would change.
fn type_literals(term: &mut SetExpr, are_named: bool) {
    match term {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                match item {
                    SelectItem::ExprWithAlias { expr, .. } => as_text(expr),
                    SelectItem::UnnamedExpr(expr) if are_named => as_text(expr),
                    _ => {}
                }
            }
        }
        SetExpr::Values(values) => {
            let rows = values.rows.iter_mut();
            rows.for_each(|row| row.iter_mut().for_each(as_text));
        }
        SetExpr::SetOperation { left, right, .. } => {
            type_literals(left, are_named);
            type_literals(right, are_named);
        }
        SetExpr::Query(query) => type_literals(&mut query.body, are_named),
        _ => {}
    }
}

fn as_text(expr: &mut Expr) {
    let is_text = matches!(
        expr,
        Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_))
    );
    if is_text {
        to_text(expr);
    }
}

fn to_text(expr: &mut Expr) {
    let literal = std::mem::replace(expr, Expr::value(Value::Null));
    *expr = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(literal),
        data_type: DataType::Text,
        array: false,
        format: None,
    };
}

/// Marks casts in recursive terms, and expressions that may become casts, by a call that returns
/// its argument. The marks tell them from casts that the planner adds to match the types of first
/// terms.
pub(super) fn mark_terms(with: &mut With) {
    if !with.recursive {
        return;
    }
    for cte in &mut with.cte_tables {
        let name = folded(&cte.alias.name);
        if count(&*cte.query, &name) > 0
            && let SetExpr::SetOperation { right, .. } = &mut *cte.query.body
        {
            mark_term(right);
        }
    }
}

fn mark_term(term: &mut SetExpr) {
    match term {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) = item
                    && may_be_cast(expr)
                {
                    let value = std::mem::replace(expr, Expr::value(Value::Null));
                    *expr = call_of(NAMED, vec![value]);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            mark_term(left);
            mark_term(right);
        }
        SetExpr::Query(query) => mark_term(&mut query.body),
        _ => {}
    }
}

/// Whether the planner may make a cast of an expression, or a value of another type.
fn may_be_cast(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => may_be_cast(inner),
        // Other literals have no type yet.
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::Boolean(_)),
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident());
            // Functions of rows must stand at the top of an expression, so they are not marked.
            let is_plain = name.is_some_and(|name| name.value != NAMED && folded(name) != "unnest");
            is_plain && function.over.is_none()
        }
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) => false,
        _ => true,
    }
}

fn check_cte(cte: &Cte) -> ControlFlow<SqlError> {
    let name = folded(&cte.alias.name);
    let query = &cte.query;
    if count(&**query, &name) == 0 {
        return ControlFlow::Continue(());
    }
    let SetExpr::SetOperation {
        op: SetOperator::Union,
        left,
        right,
        ..
    } = &*query.body
    else {
        let form = "non-recursive-term UNION [ALL] recursive-term";
        return refuse(format!(
            "recursive query \"{name}\" does not have the form {form}"
        ));
    };
    if count(&**left, &name) > 0 {
        return within(&name, "its non-recursive term");
    }
    if let Some(clause) = counting_clause(query) {
        let message = format!("{clause} in a recursive query is not implemented");
        return ControlFlow::Break(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    let SetExpr::Select(select) = &**right else {
        return ControlFlow::Continue(());
    };
    if query.order_by.is_some() {
        let message = "ORDER BY in a recursive query is not implemented";
        return ControlFlow::Break(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    let in_from: usize = select.from.iter().map(|table| in_from(table, &name)).sum();
    let inside = count(&**right, &name) - in_from.min(count(&**right, &name));
    let in_derived: usize = select
        .from
        .iter()
        .map(|table| in_derived(table, &name))
        .sum();
    if inside > in_derived {
        return within(&name, "a subquery");
    }
    if in_from + in_derived > 1 {
        let message =
            format!("recursive reference to query \"{name}\" must not appear more than once");
        return refuse(message);
    }
    for table in &select.from {
        check_joins(table, &name)?;
    }
    check_aggregates(select)
}

/// The clause that limits how many rows a query returns. PostgreSQL does not support it in
/// recursive queries, and the planner here would apply it to the rows of each step.
fn counting_clause(query: &Query) -> Option<&'static str> {
    match &query.limit_clause {
        Some(LimitClause::LimitOffset {
            offset: Some(_), ..
        }) => Some("OFFSET"),
        None if query.fetch.is_none() => None,
        _ => Some("LIMIT"),
    }
}

fn refuse(message: impl Into<String>) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::new(ErrorKind::InvalidRecursion, message))
}

fn within(name: &str, place: &str) -> ControlFlow<SqlError> {
    refuse(format!(
        "recursive reference to query \"{name}\" must not appear within {place}"
    ))
}

fn is(relation: &ObjectName, name: &str) -> bool {
    match &relation.0[..] {
        [only] => only.as_ident().map(folded).as_deref() == Some(name),
        _ => false,
    }
}

/// How often a tree names a relation. A WITH query of the same name counts as the relation.
fn count<N: Visit + ?Sized>(node: &N, name: &str) -> usize {
    struct Count<'a>(&'a str, usize);
    impl Visitor for Count<'_> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table {
                name, args: None, ..
            } = factor
            {
                self.1 += usize::from(is(name, self.0));
            }
            ControlFlow::Continue(())
        }
    }
    let mut counted = Count(name, 0);
    // The visitor never breaks.
    let _ = walk::look(node, &mut counted);
    counted.1
}

/// How often FROM itself names a relation.
fn in_from(table: &TableWithJoins, name: &str) -> usize {
    let of = |factor: &TableFactor| match factor {
        TableFactor::Table {
            name: relation,
            args: None,
            ..
        } => usize::from(is(relation, name)),
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => in_from(table_with_joins, name),
        _ => 0,
    };
    factors(table).map(of).sum()
}

/// How often subqueries in FROM name a relation, which PostgreSQL allows.
fn in_derived(table: &TableWithJoins, name: &str) -> usize {
    let of = |factor: &TableFactor| match factor {
        TableFactor::Derived { subquery, .. } => count(&**subquery, name),
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => in_derived(table_with_joins, name),
        _ => 0,
    };
    factors(table).map(of).sum()
}

fn check_joins(table: &TableWithJoins, name: &str) -> ControlFlow<SqlError> {
    use JoinOperator as J;
    let mut left = count(&table.relation, name);
    for join in &table.joins {
        let right = count(&join.relation, name);
        let is_nullable = match join.join_operator {
            J::Left(_) | J::LeftOuter(_) => right > 0,
            J::Right(_) | J::RightOuter(_) => left > 0,
            J::FullOuter(_) => left + right > 0,
            _ => false,
        };
        if is_nullable {
            return within(name, "an outer join");
        }
        left += right;
    }
    ControlFlow::Continue(())
}

fn check_aggregates(select: &Select) -> ControlFlow<SqlError> {
    walk::own_calls(select, |function| match function.over {
        None if is_aggregate(function) => {
            refuse("aggregate functions are not allowed in a recursive query's recursive term")
        }
        _ => ControlFlow::Continue(()),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;

    use super::*;
    use aerostat_sql::statement::{Statement as Text, StatementKind};

    fn refusal(recursive: &str) -> Option<String> {
        let sql = format!("WITH RECURSIVE t (n) AS ({recursive}) SELECT n FROM t");
        let StatementKind::Sql(parsed) = Text::single(&sql).unwrap().kind else {
            panic!("not SQL")
        };
        let Statement::Query(query) = &*parsed else {
            panic!("no query")
        };
        match check(query.with.as_ref().unwrap()) {
            ControlFlow::Continue(()) => None,
            ControlFlow::Break(error) => Some(error.message),
        }
    }

    #[test]
    fn recursion_has_one_reference_in_its_place() {
        for recursive in [
            "SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3",
            "SELECT 1 UNION SELECT q.n + 1 FROM (SELECT n FROM t) AS q",
            "SELECT 1 UNION ALL SELECT t.n FROM t LEFT JOIN u ON u.n = t.n",
            "SELECT 1 UNION ALL SELECT t.n FROM u RIGHT JOIN t ON u.n = t.n",
            "SELECT 1 UNION ALL SELECT n + (SELECT max(n) FROM u) FROM t",
            "SELECT sum(n) FROM u",
        ] {
            assert_eq!(refusal(recursive), None, "{recursive}");
        }
        for (recursive, part) in [
            ("SELECT n FROM t", "does not have the form"),
            ("SELECT 1 EXCEPT SELECT n FROM t", "does not have the form"),
            ("SELECT n FROM t UNION ALL SELECT 1", "non-recursive term"),
            (
                "SELECT 1 UNION ALL SELECT sum(n) FROM t",
                "aggregate functions",
            ),
            (
                "SELECT 1 UNION ALL SELECT a.n FROM t AS a, t AS b",
                "more than once",
            ),
            (
                "SELECT 1 UNION ALL SELECT u.n FROM u LEFT JOIN t ON true",
                "an outer join",
            ),
            (
                "SELECT 1 UNION ALL SELECT n FROM u WHERE n IN (SELECT n FROM t)",
                "a subquery",
            ),
        ] {
            let message = refusal(recursive).unwrap_or_default();
            assert!(message.contains(part), "{recursive}: {message}");
        }
    }
}
