//! Rewriting forms of PostgreSQL for which DataFusion has no plan as forms that it has.
//!
//! | written | becomes |
//! |---|---|
//! | `FROM generate_series(1, 3) AS g` | as [`super::sources`] says |
//! | `string_agg` with several orders | as [`super::ordered`] says |
//! | `mode() WITHIN GROUP (ORDER BY a)` | as [`super::ordered_sets`] says |
//! | `a[2:]` | `a[2:2147483647]` |
//! | `SELECT generate_series(1, 3)` | as [`super::series`] says |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN a AND b OR x BETWEEN b AND a` |
//! | `x IN (!! (SELECT 1), 2)` | `x IN ((SELECT 1), 2)` |
//! | `LIMIT '2'`, `LIMIT 1.25` | `LIMIT 2`, `LIMIT 1` |
//! | `OVER (w ORDER BY a)` | as [`super::windows`] says |
//! | `count(1)` | as [`super::twins`] says |
//! | `ROLLUP (a, a)` | as [`super::grouping_sets`] says |
//! | `SELECT 1 FROM t HAVING a` | `SELECT 1 FROM t HAVING (a) AND count(*) >= 0` |
//! | `VALUES ((SELECT 1)), (2)` | `SELECT (SELECT 1) AS column1 UNION ALL SELECT 2 AS column1` |
//! | `current_schema`, without parentheses | `current_schema()` |
//!
//! First [`super::grouping`] corrects how some operators were grouped. Forms that DataFusion
//! accepts although PostgreSQL does not are refused: `count()`, `count(a, b)`, a JOIN without ON.
//! [`aerostat_sql::clauses`], which runs before, checks what may stand in which clause.

use std::ops::ControlFlow;

use aerostat_sql::{
    clauses::{self, is_aggregate},
    names::folded,
    walk,
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{
        AccessExpr, BinaryOperator, CastKind, Expr, Function, FunctionArguments, GroupByExpr,
        Ident, JoinConstraint, JoinOperator, LimitClause, Query, Select, SelectItem, SetExpr,
        SetOperator, SetQuantifier, Statement, Subscript, TableFactor, UnaryOperator, Value, Visit,
        VisitMut, VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

/// Functions in FROM that give one column.
pub(super) const SERIES: [&str; 3] = ["generate_series", "range", "unnest"];

/// Rewrites a statement, query or expression as the module says.
///
/// # Errors
/// `SyntaxError` for `TABLE` without a name; the errors of [`aerostat_sql::clauses::check`] and
/// [`super::ordered_sets::rewrite`].
pub(super) fn rewrite_forms<N: Visit + VisitMut>(node: &mut N) -> Result<(), SqlError> {
    super::limits::check(node)?;
    clauses::check(node)?;
    super::whole_rows::check(node)?;
    super::grouping::regroup(node);
    super::ordered_sets::rewrite(node)?;
    match walk::change(node, &mut Forms::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Forms {
    /// Whether the next query is the source of an INSERT, whose VALUES may contain DEFAULT.
    is_inserted: bool,
}

impl VisitorMut for Forms {
    type Break = SqlError;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        super::sources::rewrite(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            let counts = limit
                .iter_mut()
                .chain(offset.iter_mut().map(|o| &mut o.value));
            counts.for_each(unquote_count);
        }
        if !std::mem::take(&mut self.is_inserted) {
            select_values(&mut query.body);
        }
        table_command(&mut query.body)?;
        let Query { body, order_by, .. } = query;
        if let SetExpr::Select(select) = &mut **body {
            super::windows::write_out(select, order_by)?;
            super::twins::tell_apart(select, order_by);
        }
        if let Some(with) = &mut query.with {
            super::recursion::check(with)?;
            super::recursion::type_first_terms(with);
        }
        super::series::expand(query)
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
        if let Statement::Insert(insert) = statement
            && let Some(source) = &mut insert.source
        {
            super::series::select_of_row(source);
            self.is_inserted = true;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        super::ordered::rewrite(select);
        // The SELECTs of plain queries have been done; those of set operations remain.
        super::windows::write_out(select, &mut None)?;
        super::twins::tell_apart(select, &mut None);
        aggregate_by_having(select);
        let joins = select.from.iter().flat_map(|table| &table.joins);
        for join in joins {
            if let JoinOperator::Join(JoinConstraint::None)
            | JoinOperator::Inner(JoinConstraint::None)
            | JoinOperator::Left(JoinConstraint::None)
            | JoinOperator::LeftOuter(JoinConstraint::None)
            | JoinOperator::Right(JoinConstraint::None)
            | JoinOperator::RightOuter(JoinConstraint::None)
            | JoinOperator::FullOuter(JoinConstraint::None) = join.join_operator
            {
                let message = "syntax error: a JOIN needs ON or USING";
                return ControlFlow::Break(SqlError::new(ErrorKind::SyntaxError, message));
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expression {
            return check_count(function);
        }
        if let Expr::CompoundFieldAccess { access_chain, .. } = expression {
            for access in access_chain {
                if let AccessExpr::Subscript(subscript) = access {
                    bound_slice(subscript);
                }
            }
        }
        if let Expr::InList { list, .. } = expression
            && let Some(first) = list.first_mut()
        {
            unmark(first);
        }
        if let Some(symmetric) = symmetric_between(expression) {
            *expression = symmetric;
        }
        if let Expr::Identifier(ident) = expression
            && ident.quote_style.is_none()
            && ident.value.eq_ignore_ascii_case("current_schema")
            && let Ok(call) = Parser::new(&PostgreSqlDialect {})
                .try_with_sql("current_schema()")
                .and_then(|mut parser| parser.parse_expr())
        {
            *expression = call;
        }
        ControlFlow::Continue(())
    }
}

/// `LIMIT '2'`: the text is read as a number; [`aerostat_sql::clauses`] has refused other texts. A
/// fraction is rounded as a cast to bigint would.
fn unquote_count(count: &mut Expr) {
    let Expr::Value(value) = count else { return };
    let number = match &value.value {
        Value::SingleQuotedString(text) => text.trim().parse::<u64>().ok(),
        Value::Number(digits, _) if digits.contains(['.', 'e', 'E']) => {
            // Halves are exact in binary, and numbers beyond 2^53 have no fraction.
            digits.parse::<f64>().ok().map(|count| count.round() as u64)
        }
        _ => None,
    };
    if let Some(number) = number {
        value.value = Value::Number(number.to_string(), false);
    }
}

/// Adds an aggregate to HAVING, which makes one group of all rows even without one.
fn aggregate_by_having(select: &mut Select) {
    let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else {
        return;
    };
    let Some(having) = &mut select.having else {
        return;
    };
    let is_grouped = !keys.is_empty() || !modifiers.is_empty();
    let aggregates = |function: &Function| match is_aggregate(function) && function.over.is_none() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    if is_grouped
        || walk::own_calls(&*having, aggregates).is_break()
        || walk::own_calls(&select.projection, aggregates).is_break()
    {
        return;
    }
    let all = Parser::new(&PostgreSqlDialect {})
        .try_with_sql("count(*) >= 0")
        .and_then(|mut parser| parser.parse_expr());
    if let Ok(all) = all {
        *having = Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(having.clone()))),
            op: BinaryOperator::And,
            right: Box::new(all),
        };
    }
}

/// VALUES with subqueries as a union: a list of values is computed before there is a plan to which
/// subqueries could belong.
fn select_values(body: &mut SetExpr) {
    let values = match body {
        SetExpr::Values(values) => values,
        SetExpr::SetOperation { left, right, .. } => {
            select_values(left);
            select_values(right);
            return;
        }
        _ => return,
    };
    let is_subquery = |expression: &Expr| match expression {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    if !walk::expressions(&*values, is_subquery).is_break() {
        return;
    }
    let template = Parser::new(&PostgreSqlDialect {})
        .try_with_sql("SELECT 1")
        .and_then(|mut parser| parser.parse_query());
    let Ok(SetExpr::Select(template)) = template.map(|query| *query.body) else {
        return;
    };
    let select = |row: &[Expr]| {
        let mut select = template.clone();
        let named = row.iter().enumerate();
        let item = |(at, expr): (usize, &Expr)| SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', format!("column{}", at + 1)),
        };
        select.projection = named.map(item).collect();
        SetExpr::Select(select)
    };
    let all = values.rows.iter().map(|row| select(row));
    let union = all.reduce(|left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    });
    if let Some(union) = union {
        *body = union;
    }
}

/// `x BETWEEN SYMMETRIC a AND b`, which the parser was given as `x BETWEEN !! a AND b`.
fn symmetric_between(expression: &Expr) -> Option<Expr> {
    let Expr::Between {
        expr,
        negated,
        low,
        high,
    } = expression
    else {
        return None;
    };
    let mut low = low.clone();
    if !unmark(&mut low) {
        return None;
    }
    let between = |low: &Expr, high: &Expr| {
        Box::new(Expr::Between {
            expr: expr.clone(),
            negated: *negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        })
    };
    Some(Expr::Nested(Box::new(Expr::BinaryOp {
        left: between(&low, high),
        op: if *negated {
            BinaryOperator::And
        } else {
            BinaryOperator::Or
        },
        right: between(high, &low),
    })))
}

/// Removes the marker that an expression begins with. Returns whether there was one.
fn unmark(expression: &mut Expr) -> bool {
    let marker = first_operand(expression);
    let Expr::UnaryOp {
        op: UnaryOperator::PGPrefixFactorial,
        expr: marked,
    } = marker
    else {
        return false;
    };
    *marker = (**marked).clone();
    true
}

/// The operand that an expression begins with.
fn first_operand(expression: &mut Expr) -> &mut Expr {
    match expression {
        Expr::BinaryOp { left: inner, .. }
        | Expr::AtTimeZone {
            timestamp: inner, ..
        }
        | Expr::Collate { expr: inner, .. }
        | Expr::CompoundFieldAccess { root: inner, .. }
        | Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: inner,
            ..
        } => first_operand(inner),
        _ => expression,
    }
}

/// Checks that `count` has one argument, or `*`.
fn check_count(function: &Function) -> ControlFlow<SqlError> {
    let named = function
        .name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(folded);
    let FunctionArguments::List(list) = &function.args else {
        return ControlFlow::Continue(());
    };
    if named.as_deref() != Some("count") || list.args.len() == 1 {
        return ControlFlow::Continue(());
    }
    ControlFlow::Break(if list.args.is_empty() {
        SqlError::new(
            ErrorKind::WrongObjectType,
            "count(*) must be used to call a parameterless aggregate function",
        )
    } else {
        SqlError::new(
            ErrorKind::UndefinedFunction,
            "function count does not take several arguments",
        )
        .with_hint("Count rows of a column list with count(*) and a condition.")
    })
}

/// Fills in the missing ends of a slice. No array has items before the first, so any lower number
/// serves as its beginning.
fn bound_slice(subscript: &mut Subscript) {
    if let Subscript::Slice {
        lower_bound,
        upper_bound,
        stride: None,
    } = subscript
    {
        let number = |digits: &str| Expr::value(Value::Number(digits.to_owned(), false));
        lower_bound.get_or_insert_with(|| number("1"));
        upper_bound.get_or_insert_with(|| number("2147483647"));
    }
}

fn table_command(body: &mut SetExpr) -> ControlFlow<SqlError> {
    match body {
        SetExpr::Table(table) => {
            let quoted =
                |name: &String| format!("\"{}\"", name.to_ascii_lowercase().replace('"', "\"\""));
            let parts: Vec<String> = [&table.schema_name, &table.table_name]
                .into_iter()
                .flatten()
                .map(quoted)
                .collect();
            let select = format!("SELECT * FROM {}", parts.join("."));
            let parsed = Parser::new(&PostgreSqlDialect {})
                .try_with_sql(&select)
                .and_then(|mut parser| parser.parse_query());
            match parsed {
                Ok(query) => *body = *query.body,
                Err(_) => {
                    let error =
                        SqlError::new(ErrorKind::SyntaxError, "syntax error at end of input");
                    return ControlFlow::Break(error);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            table_command(left)?;
            table_command(right)?;
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aerostat_sql::statement::{Statement as Text, StatementKind};

    fn rewritten(sql: &str) -> String {
        let StatementKind::Sql(parsed) = Text::single(sql).unwrap().kind else {
            panic!("not SQL")
        };
        let mut statement = (*parsed).clone();
        rewrite_forms(&mut statement).unwrap();
        statement.to_string()
    }

    #[test]
    fn forms_are_written_as_others() {
        for (written, read) in [
            (
                "SELECT x BETWEEN SYMMETRIC a + 1 AND b",
                "SELECT (x BETWEEN a + 1 AND b OR x BETWEEN b AND a + 1)",
            ),
            (
                "SELECT x NOT BETWEEN SYMMETRIC a::int AND b",
                "SELECT (x NOT BETWEEN a::INT AND b AND x NOT BETWEEN b AND a::INT)",
            ),
            (
                "SELECT 1 LIMIT '2' OFFSET ' 3'",
                "SELECT 1 LIMIT 2 OFFSET 3",
            ),
            (
                "SELECT * FROM generate_series(1, 3)",
                "SELECT * FROM generate_series(1, 3) AS generate_series (generate_series)",
            ),
            (
                "SELECT u FROM t, unnest(t.a) AS u",
                "SELECT u FROM t, UNNEST(t.a) AS u (u)",
            ),
            (
                "SELECT * FROM unnest(a) WITH ORDINALITY AS u (v)",
                "SELECT * FROM UNNEST(a, generate_series(1::BIGINT, cardinality(a))) AS u (v, ordinality)",
            ),
            (
                "SELECT * FROM t, generate_series(1, t.n) AS g",
                "SELECT * FROM t, UNNEST(generate_series(1, t.n)) AS g (g)",
            ),
            ("SELECT a[2:], a[:3]", "SELECT a[2:2147483647], a[1:3]"),
            (
                "SELECT string_agg(a, ',' ORDER BY b), string_agg(a, ',' ORDER BY c) FROM t",
                "SELECT array_to_string(\"\u{1}named\"(array_agg(a ORDER BY b) FILTER (WHERE \"\u{1}joinable\"(a, ',') IS NOT NULL)), ',') AS \"string_agg\", array_to_string(\"\u{1}named\"(array_agg(a ORDER BY c) FILTER (WHERE \"\u{1}joinable\"(a, ',') IS NOT NULL)), ',') AS \"string_agg\" FROM t",
            ),
            (
                "SELECT sum(a) OVER (w ORDER BY b) FROM t WINDOW w AS (PARTITION BY c)",
                "SELECT sum(a) OVER (PARTITION BY c ORDER BY b) FROM t",
            ),
            (
                "SELECT count(1), max(a), max(a::int) FROM t LIMIT 1.5",
                "SELECT count(*), max(a), max(a::INT) FILTER (WHERE true) FROM t LIMIT 2",
            ),
            (
                "SELECT every(a), bool_and(t.a::bool), max(t.b), max(u.b) FROM t, u",
                "SELECT every(a), bool_and(t.a::BOOL) FILTER (WHERE true), max(t.b), max(u.b) FROM t, u",
            ),
            (
                "SELECT lag(a) OVER (), lag(a::int) OVER (), rank() OVER (ORDER BY a), rank() OVER (ORDER BY a::int) FROM t",
                "SELECT lag(a) OVER (), lag(\"\u{1}named\"(a::INT)) OVER (), rank() OVER (ORDER BY a), rank() OVER (ORDER BY \"\u{1}named\"(a::INT)) FROM t",
            ),
            (
                "VALUES ((SELECT 1), 2)",
                "SELECT (SELECT 1) AS \"column1\", 2 AS \"column2\"",
            ),
            (
                "SELECT k, generate_series(1, k), generate_series(k, 3) AS b FROM t",
                "SELECT k, unnest(generate_series(1, k)) AS \"generate_series\", unnest(generate_series(k, 3)) AS b FROM t",
            ),
            (
                "SELECT generate_series(1, 2) FROM t",
                "SELECT unnest(\"\u{1}series_each\"(1, 2)) AS \"generate_series\" FROM t",
            ),
            (
                "SELECT a FROM t WHERE a IN (SELECT 2 * pg_catalog.generate_series(1, 3) AS b)",
                "SELECT a FROM t WHERE a IN (SELECT 2 * \"generate_series\u{1}\".\"generate_series\u{1}\" AS b FROM generate_series(1, 3) AS \"generate_series\u{1}\" (\"generate_series\u{1}\"))",
            ),
            (
                "INSERT INTO t VALUES (1, generate_series(1, 2 + 1))",
                "INSERT INTO t SELECT 1, unnest(generate_series(1, 2 + 1)) AS \"generate_series\"",
            ),
        ] {
            assert_eq!(rewritten(written), read);
        }
    }
}
