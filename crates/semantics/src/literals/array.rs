//! Arrays as text, and quantified comparisons with arrays: known items become lists and
//! conditions, in which they take the type of the other side.

use std::ops::ControlFlow;

use aerostat_sql::walk;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, Value, ValueWithSpan, VisitMut, VisitorMut,
};

use super::tuples::{is_comparison, join};
use super::{binary, call, cast_to, is_null, is_parameter, is_string, text_value, wrap};
use crate::functions::{QUANTIFIED, array_text::array_items, named::EACH};

/// The items of a literal with one dimension, as string literals and NULLs, or those of a
/// constructor.
fn items(array: &Expr) -> Option<Vec<Expr>> {
    match array {
        Expr::Nested(inner) => items(inner),
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text),
            ..
        }) => Some(array_items(text)?.into_iter().map(item_literal).collect()),
        Expr::Array(array) if !array.elem.iter().any(|item| matches!(item, Expr::Array(_))) => {
            Some(typed_items(array.elem.clone()))
        }
        Expr::Cast {
            expr,
            data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)),
            ..
        } if matches!(**expr, Expr::Array(_)) => {
            let typed = |value| cast_to(value, (**item).clone());
            Some(items(expr)?.into_iter().map(typed).collect())
        }
        _ => None,
    }
}

/// A constructor of nothing but strings, texts and parameters makes an array of texts, whatever
/// it is compared with: blanks count beside `char(n)`, and no number equals one. What a parameter
/// is has been said before.
fn typed_items(mut items: Vec<Expr>) -> Vec<Expr> {
    let is_text = |item: &Expr| match item {
        Expr::Cast { data_type, .. } => *data_type == DataType::Text,
        other => is_string(other) || is_null(other) || is_parameter(other),
    };
    if items.iter().all(is_text) {
        for item in items.iter_mut().filter(|item| is_string(item)) {
            wrap(item, DataType::Text);
        }
    }
    items
}

/// Writes constructors of items that name columns as calls, `make_array(t.a, 1)`: DataFusion plans the
/// items of a constructor by themselves, and does not find the columns of the queries around theirs.
pub(super) fn construct_by_call<N: VisitMut>(node: &mut N) {
    struct Constructors;
    impl VisitorMut for Constructors {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            let is_column = |item: &Expr| match item {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            };
            if let Expr::Array(array) = expression
                && array
                    .elem
                    .iter()
                    .any(|item| walk::expressions(item, is_column).is_break())
            {
                *expression = call("make_array", std::mem::take(&mut array.elem));
            }
            ControlFlow::Continue(())
        }
    }
    // It never breaks.
    let _ = walk::change(node, &mut Constructors);
}

fn item_literal(item: Option<String>) -> Expr {
    Expr::value(item.map_or(Value::Null, Value::SingleQuotedString))
}

/// `left op ANY (array)` or `left op ALL (array)` in other words; nothing for what stays as it
/// is, as subqueries do.
///
/// # Errors
/// `FeatureNotSupported` for other operators than comparisons and matches.
pub(super) fn quantified(
    left: &Expr,
    op: &BinaryOperator,
    array: &Expr,
    all: bool,
) -> Result<Option<Expr>, SqlError> {
    if matches!(array, Expr::Subquery(_)) {
        return match is_comparison(op) {
            true => Ok(None),
            false => Err(unsupported(&format!("{op} with ANY and ALL of a subquery"))),
        };
    }
    if let Some(items) = items(array) {
        match (op, all) {
            (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true) => {
                return Ok(Some(any_of(left, items, all)));
            }
            _ if items.is_empty() => return Ok(Some(Expr::value(Value::Boolean(all)))),
            // The left side is written as often as there are items.
            _ if items.len() <= WRITTEN_MAX && is_simple(left) => {
                let each = items
                    .into_iter()
                    .map(|item| binary(left.clone(), op.clone(), item));
                let joined = match all {
                    true => BinaryOperator::And,
                    false => BinaryOperator::Or,
                };
                return Ok(Some(join(each.collect(), joined)));
            }
            _ => {}
        }
    }
    let op = match op {
        BinaryOperator::PGLikeMatch => "~~".to_owned(),
        BinaryOperator::PGNotLikeMatch => "!~~".to_owned(),
        BinaryOperator::PGILikeMatch => "~~*".to_owned(),
        BinaryOperator::PGNotILikeMatch => "!~~*".to_owned(),
        other => other.to_string(),
    };
    if crate::functions::quantified_operator(&op).is_none() {
        return Err(unsupported(&format!("operator {op} with ANY and ALL")));
    }
    let arguments = vec![
        left.clone(),
        array.clone(),
        text_value(op),
        Expr::value(Value::Boolean(all)),
    ];
    Ok(Some(call(QUANTIFIED, arguments)))
}

fn unsupported(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{what} is not supported"),
    )
}

/// Items up to which a condition is written for each.
const WRITTEN_MAX: usize = 100;

/// Whether an expression may be computed several times in the place of once.
fn is_simple(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => true,
        Expr::TypedString(_) => true,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_simple(expr),
        _ => false,
    }
}

/// The array of `ANY (array)` and `ALL (array)` behind an operator that the parser does not
/// know them behind, and whether it is ALL.
pub(super) fn quantifier(right: &Expr) -> Option<(Expr, bool)> {
    let Expr::Function(function) = right else {
        return None;
    };
    let all = match function
        .name
        .to_string()
        .trim_matches('"')
        .to_ascii_lowercase()
        .as_str()
    {
        "all" => true,
        "any" | "some" => false,
        _ => return None,
    };
    match &function.args {
        FunctionArguments::List(list) => match &list.args[..] {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] => Some((array.clone(), all)),
            _ => None,
        },
        FunctionArguments::Subquery(query) => Some((Expr::Subquery(query.clone()), all)),
        FunctionArguments::None => None,
    }
}

/// [`quantified`] of LIKE and ILIKE.
pub(super) fn quantified_like(expr: &Expr) -> Result<Option<Expr>, SqlError> {
    let (negated, any, left, pattern, ignores_case) = match expr {
        Expr::Like {
            negated,
            any,
            expr,
            pattern,
            escape_char: None,
        } => (*negated, *any, expr, pattern, false),
        Expr::ILike {
            negated,
            any,
            expr,
            pattern,
            escape_char: None,
        } => (*negated, *any, expr, pattern, true),
        _ => return Ok(None),
    };
    let (array, all) = match quantifier(pattern) {
        Some(quantifier) => quantifier,
        None if any => (without_parentheses(pattern).clone(), false),
        None => return Ok(None),
    };
    let op = match (negated, ignores_case) {
        (false, false) => BinaryOperator::PGLikeMatch,
        (true, false) => BinaryOperator::PGNotLikeMatch,
        (false, true) => BinaryOperator::PGILikeMatch,
        (true, true) => BinaryOperator::PGNotILikeMatch,
    };
    quantified(left, &op, &array, all)
}

fn without_parentheses(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_parentheses(inner),
        other => other,
    }
}

/// `left = ANY (…)` of these items, or `left <> ALL (…)` if negated, as a list; of no items what
/// PostgreSQL says of an empty array.
///
/// The items of an array have a type without what they are compared with, those of IN one that
/// both have: where these might differ, the left side stands behind a function that says so.
pub fn any_of(left: &Expr, items: Vec<Expr>, negated: bool) -> Expr {
    if items.is_empty() {
        return Expr::value(Value::Boolean(negated));
    }
    let left = match items.len() == 1 || items.iter().all(is_same_in_list) {
        true => left.clone(),
        false => each(left.clone()),
    };
    Expr::InList {
        expr: Box::new(left),
        list: items,
        negated,
    }
}

fn each(left: Expr) -> Expr {
    let mut call = call(EACH, vec![left]);
    if let Expr::Function(function) = &mut call {
        // Quoted it is read again where a rewrite writes it as text.
        function.name = ObjectName::from(vec![Ident::with_quote('"', EACH)]);
    }
    call
}

/// Whether an item is compared as the same value in the list of IN, whatever is beside it.
fn is_same_in_list(item: &Expr) -> bool {
    match item {
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::Boolean
                | DataType::Bytea
                | DataType::Uuid
                | DataType::SmallInt(_)
                | DataType::Int2(_)
                | DataType::Int(_)
                | DataType::Integer(_)
                | DataType::Int4(_)
                | DataType::BigInt(_)
                | DataType::Int8(_)
        ),
        other => is_string(other) || is_null(other),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn written(text: &str) -> Option<String> {
        let items = items(&Expr::value(Value::SingleQuotedString(text.to_owned())))?;
        Some(items.iter().map(|item| format!("{item};")).collect())
    }

    #[test]
    fn items_of_any_are_told_from_those_of_a_list() {
        let cases = [
            ("x = ANY (ARRAY[1, 2])", false),
            ("x = ANY ('{a,b}')", false),
            ("x = ANY (ARRAY['a', 'b'])", true),
            ("x = ANY (ARRAY['a'])", false),
            ("x <> ALL (ARRAY[0.1, y])", true),
            ("x IN (0.1, y)", false),
        ];
        for (sql, expected) in cases {
            let mut parser = Parser::new(&PostgreSqlDialect {})
                .try_with_sql(sql)
                .unwrap();
            let mut expr = parser.parse_expr().unwrap();
            for _ in 0..2 {
                crate::type_literals(&mut expr).unwrap();
                let Expr::InList { expr: left, .. } = &expr else {
                    panic!("{expr}");
                };
                assert_eq!(matches!(**left, Expr::Function(_)), expected, "{sql}");
            }
        }
    }

    #[test]
    fn items_are_those_of_postgresql() {
        let cases = [
            ("{}", Some("")),
            (" { } ", Some("")),
            ("{1,2}", Some("'1';'2';")),
            ("{ a b , NULL,\"NULL\"}", Some("'a b';NULL;'NULL';")),
            (r#"{"a,\"b\"" , \\x}"#, Some(r#"'a,"b"';'\x';"#)),
            ("{1,}", None),
            ("{,1}", None),
            ("{{1},{2}}", None),
            ("{\"a\"b}", None),
            ("{\"a}", None),
            ("1,2", None),
        ];
        for (text, expected) in cases {
            assert_eq!(written(text).as_deref(), expected, "{text}");
        }
    }
}
