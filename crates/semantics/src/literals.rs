//! What can be said of a statement before any type is known: number literals
//! get PostgreSQL's types, and forms that DataFusion has no plan for are
//! written as forms it has.
//!
//! | written | becomes |
//! |---|---|
//! | `1`, `3000000000`, `2^63` and above | `1::int4`, `3000000000::int8`, `…::numeric(p,0)` |
//! | `-1` | `(-1)::int4` |
//! | `-x` | `checked_negate(x)`, which knows its types |
//! | `-x ^ y` | `(-x) ^ y`: the sign binds closer |
//! | `interval '90' day` | `'90 day'::interval` |
//! | `(a, b) = (c, d)`, `(a, b) < (c, d)` | comparisons of the members |
//! | `(a, b) IN ((1, 2), …)` | `(a, b) = (1, 2) OR …` |
//! | `(a, b) IN (SELECT …)` | a call that carries the subquery ([`crate::unnest`]) |
//! | `t AT TIME ZONE z` | `timezone(z, t)` |
//! | `x COLLATE "C"` | `x` |
//! | `FETCH FIRST 2 ROWS ONLY` | `LIMIT 2` |
//! | `@ x`, `~ x`, `\|/ x`, `\|\|/ x` | `abs(x)`, `bitwise_not(x)`, `sqrt(x)`, `cbrt(x)` |
//! | `VALUES (f(x)), ('1')` | `VALUES (f(x)), (CASE WHEN false THEN f(x) WHEN true THEN '1' END)` |
//! | `x = ANY ('{1,2}')`, `x <> ALL (ARRAY[1, 2])` | `x IN ('1', '2')`, `x NOT IN (1, 2)` |
//! | `x = ANY (ARRAY['a', y])` | `each(x) IN ('a', y)`, where IN might give the items another type |
//! | `x < ANY (ARRAY[1, 2])`, `x LIKE ALL ('{a%}')` | `x < 1 OR x < 2`, `x LIKE 'a%'` |
//! | `x < ANY (a)` | `quantified(x, a, '<', false)` ([`crate::functions`]) |
//! | `(a, b) IS NULL` | `a IS NULL AND b IS NULL` |
//! | `CASE WHEN c THEN '1' ELSE x END` | `CASE WHEN false THEN x WHEN c THEN '1' ELSE x END` |
//! | `nullif(x, 'a')` | `CASE WHEN x = 'a' THEN NULL ELSE x END` |
//! | `lead(x, n, y) OVER w` | `CASE WHEN lead(1, n) OVER w IS NULL THEN y ELSE lead(x, n) OVER w END` |
//! | `x IS NOT DISTINCT FROM 'a'` | `coalesce(x = 'a', false)` |
//! | `substring(x FOR 2)` | `substring(x FROM 1 FOR 2)` |
//! | `'…'::timestamp(0)`, `TIME(3) '…'` | `round_time('…'::timestamp, 0)` |
//! | `CURRENT_TIMESTAMP(0)` | `round_time(current_timestamp(), 0)` |
//! | `interval '1' year to month`, `'1'::interval month` | `'1 mon'::interval` |
//! | `x::interval hour`, `x::interval(2)` | `keep_fields(x::interval, …)` |
//! | `ARRAY[x]::interval(2)[]` | `ARRAY[keep_fields(x::interval, …)]::interval[]` |
//! | `age(x)` | `age(current_date, x)` |
//! | `text(x)`, `int4(x)`, `date(x)` | `x::text`, `x::int4`, `x::date` |
//! | `make_interval(days => 10)` | `make_interval(0, 0, 0, 10, 0, 0, 0)` |
//! | `(a, b) OVERLAPS (c, d)` | `overlaps(a, b, c, d)` |
//! | `gen_random_uuid()` | `uuid()::uuid` |
//! | `1e308`, which no numeric of 38 digits holds | `'1e308'::float8` |
//! | `x OPERATOR(pg_catalog.~) y` | `x ~ y` |
//!
//! A literal stays bare where its position gives it a meaning of its own:
//! LIMIT, OFFSET, FETCH, window frames, and ordinals in GROUP BY and ORDER BY.

use std::ops::ControlFlow;

use aerostat_sql::walk;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, Interval, LimitClause,
    NamedWindowExpr, ObjectName, ObjectNamePart, OrderByKind, Query, Select, SetExpr, Statement,
    UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut, WindowType,
};

use crate::{
    functions::cast::{self, Zone},
    precision, types,
};

mod array;
mod calls;
mod choice;
mod number;
mod rows;
mod tuples;

use choice::{null_if_literal, same_as_literal, typed_branch};
use number::{bare, bare_frame, fits_numeric, is_number, is_wrapped, literal_type, negate};
use tuples::{compare_rows, is_comparison, is_row_beside_value, members, row_in_list};

pub use array::any_of;

/// Rewrites a query, DML statement or expression as the module says. Call it
/// once between parser and planner; a second call changes nothing.
///
/// # Errors
/// `FeatureNotSupported` for integers of more than 38 digits and unknown
/// collations; `SyntaxError` for row comparisons of unequal width.
pub fn type_literals<N: VisitMut>(node: &mut N) -> Result<(), SqlError> {
    let mut rewriter = Rewriter::default();
    if let ControlFlow::Break(error) = walk::change(node, &mut rewriter) {
        return Err(error);
    }
    // Those around an array know it by its constructor until all are rewritten.
    if rewriter.has_arrays {
        array::construct_by_call(node);
    }
    Ok(())
}

#[derive(Default)]
struct Rewriter {
    /// Queries that the visitor is in.
    depth: usize,
    /// Whether the statement's own VALUES go into a table, whose columns say their types.
    inserts: bool,
    /// Whether there is a constructor of an array.
    has_arrays: bool,
}

impl VisitorMut for Rewriter {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<SqlError> {
        self.inserts = matches!(statement, Statement::Insert(_));
        ControlFlow::Continue(())
    }

    /// However a string is quoted, it is one from here on.
    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<SqlError> {
        let text = match &mut value.value {
            Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => text,
            Value::DollarQuotedString(quoted) => &mut quoted.value,
            _ => return ControlFlow::Continue(()),
        };
        value.value = Value::SingleQuotedString(std::mem::take(text));
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        self.has_arrays |= matches!(expr, Expr::Array(_));
        match rewrite(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(bare);
        }
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &mut window.1 {
                bare_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order_by.kind
        {
            keys.iter_mut().for_each(|key| bare(&mut key.expr));
        }
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                limit.iter_mut().for_each(bare);
                offset.iter_mut().for_each(|offset| bare(&mut offset.value));
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                bare(offset);
                bare(limit);
            }
            None => {}
        }
        if let Some(fetch) = &mut query.fetch {
            fetch.quantity.iter_mut().for_each(bare);
        }
        limit_for_fetch(query);
        self.depth -= 1;
        let is_plain = matches!(*query.body, SetExpr::Values(_));
        match is_plain && self.inserts && self.depth == 0 {
            true => rows::type_inserted(&mut query.body),
            false => rows::type_values(&mut query.body),
        }
        ControlFlow::Continue(())
    }
}

/// FETCH FIRST is LIMIT by another name, unless it counts ties or per cent.
fn limit_for_fetch(query: &mut Query) {
    if query
        .fetch
        .as_ref()
        .is_none_or(|fetch| fetch.with_ties || fetch.percent)
    {
        return;
    }
    let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
    let quantity = query
        .fetch
        .take()
        .map(|fetch| fetch.quantity.unwrap_or_else(one));
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, .. }) => *limit = quantity,
        Some(LimitClause::OffsetCommaLimit { .. }) => {}
        none => {
            *none = Some(LimitClause::LimitOffset {
                limit: quantity,
                offset: None,
                limit_by: vec![],
            })
        }
    }
}

fn rewrite(expr: &mut Expr) -> Result<(), SqlError> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Number(digits, _),
            ..
        }) => {
            if !fits_numeric(digits) {
                let text = text_value(digits.clone());
                *expr = cast_to(text, DataType::Float8);
            } else if let Some(data_type) = literal_type("", digits)? {
                wrap(expr, data_type);
            }
        }
        Expr::Cast { data_type, .. } if precision::digits(data_type).is_some() => {
            let digits = calls::take_digits(data_type);
            *expr = calls::rounded(std::mem::replace(expr, null()), digits);
        }
        Expr::TypedString(typed) if precision::digits(&typed.data_type).is_some() => {
            check_text(&typed.value.value, &typed.data_type)?;
            let digits = calls::take_digits(&mut typed.data_type);
            *expr = calls::rounded(std::mem::replace(expr, null()), digits);
        }
        Expr::Cast {
            expr: value,
            data_type,
            ..
        } if precision::interval_type(data_type).is_some() => {
            calls::check_digits(data_type)?;
            let ty = precision::interval_type(data_type).unwrap_or_default();
            *expr = match string_of(value) {
                Some(text) => calls::interval_of(text, ty)?,
                None => calls::kept_fields(std::mem::replace(value, null()), ty),
            };
        }
        Expr::Cast {
            expr: array,
            data_type,
            ..
        } if matches!(**array, Expr::Array(_)) && precision::items_keep_part(data_type) => {
            if let (Expr::Array(array), Some(item)) =
                (&mut **array, calls::take_item_type(data_type))
            {
                for value in &mut array.elem {
                    wrap(value, item.clone());
                    rewrite(value)?;
                }
            }
        }
        Expr::TypedString(typed) if precision::interval_type(&typed.data_type).is_some() => {
            let ty = precision::interval_type(&typed.data_type).unwrap_or_default();
            if let Value::SingleQuotedString(text) = &typed.value.value {
                *expr = calls::interval_of(text, ty)?;
            }
        }
        Expr::Cast {
            expr: inner,
            data_type,
            ..
        } if is_wrapped(inner)
            && matches!(&**inner, Expr::Cast { data_type: wrapped, .. } if wrapped == data_type) =>
        {
            // A literal that was wrapped before, visited again.
            let inner = std::mem::replace(inner, Box::new(null()));
            *expr = *inner;
        }
        Expr::Cast {
            expr: text,
            data_type,
            ..
        } => check_literal(text, data_type)?,
        Expr::TypedString(typed) => check_text(&typed.value.value, &typed.data_type)?,
        Expr::UnaryOp { .. } => rewrite_unary(expr)?,
        Expr::Interval(interval) => {
            if let (Some(ty), Some(text)) = (
                calls::interval_literal_type(interval)?,
                string_of(&interval.value),
            ) {
                *expr = calls::interval_of(text, ty)?;
            } else if let Some(text) = interval_text(interval) {
                *expr = cast_to(
                    text_value(text),
                    DataType::Interval {
                        fields: None,
                        precision: None,
                    },
                );
            }
        }
        Expr::Function(function) if calls::clock_with_digits(function).is_some() => {
            if let Some((name, digits)) = calls::clock_with_digits(function) {
                *expr = calls::rounded(call(name, vec![]), digits);
            }
        }
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("age") => {
            calls::age_until_today(function);
        }
        Expr::Function(function) if is_plain_call(function, "gen_random_uuid") => {
            *expr = cast_to(call("uuid", vec![]), DataType::Uuid);
        }
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("nullif") => {
            if let Some(choice) = null_if_literal(function) {
                *expr = choice;
            }
        }
        Expr::Function(function) if calls::as_cast(function).is_some() => {
            if let Some((argument, data_type)) = calls::as_cast(function) {
                check_literal(&argument, &data_type)?;
                *expr = cast_to(argument, data_type);
            }
        }
        Expr::Function(function)
            if function
                .name
                .to_string()
                .eq_ignore_ascii_case("make_interval") =>
        {
            calls::fill_interval(function)?;
        }
        Expr::Function(function) => {
            if let Some(WindowType::WindowSpec(spec)) = &mut function.over {
                bare_frame(spec);
            }
            if let Some(choice) = choice::default_of_neighbour(function) {
                *expr = choice;
            }
        }
        Expr::Collate {
            expr: inner,
            collation,
        } => {
            check_collation(collation)?;
            *expr = std::mem::replace(inner, null());
        }
        Expr::AtTimeZone {
            timestamp,
            time_zone,
        } => {
            let arguments = vec![
                std::mem::replace(&mut **time_zone, null()),
                std::mem::replace(&mut **timestamp, null()),
            ];
            *expr = call("timezone", arguments);
        }
        Expr::BinaryOp { left, op, right } => {
            if let BinaryOperator::PGCustomBinaryOperator(path) = op
                && let Some(plain) = path.last().and_then(|name| plain_operator(name))
            {
                *op = plain;
            }
            if let Some((array, all)) = array::quantifier(right) {
                if let Some(written) = array::quantified(left, op, &array, all)? {
                    *expr = written;
                }
            } else if let (Some(l), Some(r)) = (members(left), members(right)) {
                *expr = compare_rows(l, op, r)?;
            } else if is_comparison(op)
                && (is_row_beside_value(left, right) || is_row_beside_value(right, left))
            {
                let message = format!("operator does not exist: a row {op} a single value");
                return Err(SqlError::new(ErrorKind::UndefinedFunction, message));
            }
        }
        Expr::InList {
            expr: row,
            list,
            negated,
        } if members(row).is_some() => {
            *expr = row_in_list(members(row).unwrap_or_default(), list, *negated)?;
        }
        Expr::InSubquery {
            expr: row,
            subquery,
            negated,
        } => {
            if let Some(members) = members(row) {
                *expr = crate::unnest::row_in(members.to_vec(), subquery.clone(), *negated);
            }
        }
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => {
            if let (Some(members), Expr::Subquery(query), BinaryOperator::Eq) =
                (members(left), &**right, &*compare_op)
            {
                *expr = crate::unnest::row_in(members.to_vec(), query.clone(), false);
            } else if let Some(written) = array::quantified(left, compare_op, right, false)? {
                *expr = written;
            }
        }
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => {
            if let (Some(members), Expr::Subquery(query), BinaryOperator::NotEq) =
                (members(left), &**right, &*compare_op)
            {
                *expr = crate::unnest::row_in(members.to_vec(), query.clone(), true);
            } else if let Some(written) = array::quantified(left, compare_op, right, true)? {
                *expr = written;
            }
        }
        Expr::IsNull(row) | Expr::IsNotNull(row) if members(row).is_some() => {
            let row = members(row).unwrap_or_default();
            *expr = tuples::nulls(row, matches!(expr, Expr::IsNull(_)));
        }
        Expr::Like { .. } | Expr::ILike { .. } => {
            if let Some(written) = array::quantified_like(expr)? {
                *expr = written;
            }
        }
        Expr::Case {
            operand,
            conditions,
            else_result,
            ..
        } => {
            if let Some(typed) = typed_branch(conditions, else_result.as_deref()) {
                let result = typed.clone();
                // Never true.
                let condition = match operand {
                    Some(_) => null(),
                    None => Expr::value(Value::Boolean(false)),
                };
                conditions.insert(0, CaseWhen { condition, result });
            }
        }
        Expr::IsDistinctFrom(left, right) if is_string(left) || is_string(right) => {
            let same = same_as_literal(left, right);
            *expr = Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: Box::new(same),
            };
        }
        Expr::IsNotDistinctFrom(left, right) if is_string(left) || is_string(right) => {
            *expr = same_as_literal(left, right);
        }
        Expr::Substring {
            substring_from: from @ None,
            substring_for: Some(_),
            ..
        } => {
            let one = Expr::Value(Value::Number("1".to_owned(), false).into());
            *from = Some(Box::new(cast_to(one, DataType::Int4(None))));
        }
        _ => {}
    }
    Ok(())
}

/// Operators of one operand.
fn rewrite_unary(expr: &mut Expr) -> Result<(), SqlError> {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: inner,
        } => match &mut **inner {
            power @ Expr::BinaryOp {
                op: BinaryOperator::PGExp,
                ..
            } => {
                let base = first_base(power);
                *base = Expr::UnaryOp {
                    op: UnaryOperator::Minus,
                    expr: Box::new(std::mem::replace(base, null())),
                };
                rewrite(base)?;
                *expr = std::mem::replace(&mut **inner, null());
            }
            inner if is_wrapped(inner) => negate(expr)?,
            // DataFusion reads a sign with its number.
            inner if is_number(inner) => {}
            inner => *expr = call("checked_negate", vec![std::mem::replace(inner, null())]),
        },
        Expr::UnaryOp { op, expr: operand } => {
            let name = match op {
                UnaryOperator::Not => {
                    if let Expr::Value(ValueWithSpan {
                        value: Value::SingleQuotedString(_),
                        ..
                    }) = &**operand
                    {
                        wrap(operand, DataType::Boolean);
                    }
                    return Ok(());
                }
                UnaryOperator::BitwiseNot => "bitwise_not",
                UnaryOperator::PGAbs => "abs",
                UnaryOperator::PGSquareRoot => "sqrt",
                UnaryOperator::PGCubeRoot => "cbrt",
                _ => return Ok(()),
            };
            *expr = call(name, vec![std::mem::replace(&mut **operand, null())]);
        }
        _ => {}
    }
    Ok(())
}

fn is_string(expr: &Expr) -> bool {
    string_of(expr).is_some()
}

/// The text of a string literal.
fn string_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

/// A parameter, whose type nothing says.
fn is_parameter(expr: &Expr) -> bool {
    let Expr::Value(ValueWithSpan { value, .. }) = expr else {
        return false;
    };
    matches!(value, Value::Placeholder(_))
}

fn is_null(expr: &Expr) -> bool {
    let Expr::Value(ValueWithSpan { value, .. }) = expr else {
        return false;
    };
    matches!(value, Value::Null)
}

/// The base of `a ^ b ^ c`, which is read from the left.
fn first_base(expr: &mut Expr) -> &mut Expr {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::PGExp,
            ..
        } => first_base(left),
        _ => expr,
    }
}

fn check_literal(literal: &Expr, data_type: &DataType) -> Result<(), SqlError> {
    match literal {
        Expr::Value(ValueWithSpan { value, .. }) => check_text(value, data_type),
        _ => Ok(()),
    }
}

/// A literal that is no value of its type is an error wherever it stands, also
/// as the argument of a function that does not take the type.
fn check_text(value: &Value, data_type: &DataType) -> Result<(), SqlError> {
    let Value::SingleQuotedString(text) = value else {
        return Ok(());
    };
    match types::sql_type_of(data_type) {
        Ok(ty @ (SqlType::Date | SqlType::Uuid | SqlType::Boolean)) => {
            cast::literal(text, ty, &Zone::UTC)
                .map(|_| ())
                .map_err(|error| match error {
                    DataFusionError::External(inner) => match inner.downcast::<SqlError>() {
                        Ok(ours) => *ours,
                        Err(other) => SqlError::new(ErrorKind::DataException, other.to_string()),
                    },
                    other => SqlError::new(ErrorKind::DataException, other.to_string()),
                })
        }
        _ => Ok(()),
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

fn text_value(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

fn cast_to(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

fn wrap(expr: &mut Expr, data_type: DataType) {
    let inner = std::mem::replace(expr, null());
    *expr = cast_to(inner, data_type);
}

/// `interval '90' day` as one text, where it is one.
fn interval_text(interval: &Interval) -> Option<String> {
    let value = match &*interval.value {
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => text.clone(),
        wrapped @ Expr::Cast { expr, .. } if is_wrapped(wrapped) => expr.to_string(),
        _ => return None,
    };
    let is_bare_number = value.trim().parse::<f64>().is_ok();
    Some(match &interval.leading_field {
        Some(field) if is_bare_number => format!("{value} {field}"),
        _ => value,
    })
}

fn check_collation(collation: &ObjectName) -> Result<(), SqlError> {
    let name = collation
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map(|ident| ident.value.as_str());
    match name {
        Some("C" | "POSIX" | "default" | "ucs_basic") => Ok(()),
        _ => Err(SqlError::new(
            ErrorKind::UndefinedObject,
            format!("collation \"{collation}\" for encoding \"UTF8\" does not exist"),
        )),
    }
}

fn plain_operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// Whether this calls the function of a name without arguments.
fn is_plain_call(function: &Function, name: &str) -> bool {
    let has_none = matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty());
    has_none && function.over.is_none() && function.name.to_string().eq_ignore_ascii_case(name)
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments
        .into_iter()
        .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
        .collect();
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

#[cfg(test)]
mod tests;
