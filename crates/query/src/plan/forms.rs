//! Forms of PostgreSQL that DataFusion has no plan for, written as forms it has.
//!
//! | written | becomes |
//! |---|---|
//! | `FROM generate_series(1, 3) AS g` | as [`super::sources`] says |
//! | `string_agg` with several orders | as [`super::ordered`] says |
//! | `a[2:]` | `a[2:2147483647]` |
//! | `SELECT generate_series(1, 3)` | as [`super::series`] says |
//! | `TABLE t` | `SELECT * FROM t` |
//! | `x BETWEEN SYMMETRIC a AND b` | `x BETWEEN a AND b OR x BETWEEN b AND a` |
//! | `LIMIT '2'` | `LIMIT 2` |
//! | `current_schema`, without parentheses | `current_schema()` |
//!
//! First [`super::grouping`] mends how some operators were grouped. And what DataFusion takes
//! although PostgreSQL does not is refused: a JOIN without ON, `count()` and `count(a, b)`. What may
//! stand in which clause is told by [`super::clauses`], which comes first.

use std::ops::ControlFlow;

use aerostat_semantics::walk;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{
        AccessExpr, BinaryOperator, CastKind, Expr, Function, FunctionArguments, JoinConstraint,
        JoinOperator, LimitClause, Query, Select, SetExpr, Statement,
        Subscript, TableFactor, UnaryOperator, Value, Visit, VisitMut, VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use crate::ddl::names::folded;

/// Functions in FROM that give one column.
pub(super) const SERIES: [&str; 3] = ["generate_series", "range", "unnest"];

/// Rewrites a statement, query or expression as the module says.
///
/// # Errors
/// `SyntaxError` for `TABLE` without a name; those of [`super::clauses::check`].
pub(crate) fn rewrite_forms<N: Visit + VisitMut>(node: &mut N) -> Result<(), SqlError> {
    super::clauses::check(node)?;
    super::grouping::regroup(node);
    match walk::change(node, &mut Forms) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Forms;

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
        table_command(&mut query.body)?;
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
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        super::ordered::rewrite(select);
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

/// `LIMIT '2'`: the text is read as the number it is; [`super::clauses`] refused others.
fn unquote_count(count: &mut Expr) {
    if let Expr::Value(value) = count
        && let Value::SingleQuotedString(text) = &value.value
        && let Ok(number) = text.trim().parse::<u64>()
    {
        value.value = Value::Number(number.to_string(), false);
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
    let marker = first_operand(&mut low);
    let Expr::UnaryOp {
        op: UnaryOperator::PGPrefixFactorial,
        expr: marked,
    } = marker
    else {
        return None;
    };
    *marker = (**marked).clone();
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

/// What an expression begins with, down to the operand of the first operator.
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

/// `count` takes one argument, or `*`.
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

/// The ends of a slice that are not there. As no array has items before the first, any number
/// below does for that.
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
    use crate::statement::{Statement as Text, StatementKind};

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
                "SELECT array_to_string(array_agg(a ORDER BY b) FILTER (WHERE (a) IS NOT NULL), ','), array_to_string(array_agg(a ORDER BY c) FILTER (WHERE (a) IS NOT NULL), ',') FROM t",
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
