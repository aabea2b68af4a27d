//! Pieces of syntax trees.

use aerostat_sql::{names::folded, walk::unnested};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Value,
};

use crate::functions::INTERNAL;

/// A call of a function.
pub(super) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let ident = match name.starts_with(INTERNAL) {
        true => Ident::with_quote('"', name),
        false => Ident::new(name),
    };
    Expr::Function(Function {
        name: ObjectName::from(vec![ident]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments
                .into_iter()
                .map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)))
                .collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A number.
pub(super) fn number(value: i64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

/// A truth value.
pub(super) fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// NULL.
pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

/// A text.
pub(super) fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

/// A column of a table.
pub(super) fn column(table: &str, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![Ident::new(table), Ident::new(name)])
}

/// Both.
pub(super) fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    }
}

/// All, or `None` for nothing.
pub(super) fn conjunction(parts: Vec<Expr>) -> Option<Expr> {
    parts.into_iter().reduce(and)
}

/// The parts of a conjunction.
pub(super) fn conjuncts(expression: Expr, parts: &mut Vec<Expr>) {
    match expression {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(*left, parts);
            conjuncts(*right, parts);
        }
        Expr::Nested(inner)
            if matches!(
                *inner,
                Expr::BinaryOp {
                    op: BinaryOperator::And,
                    ..
                }
            ) =>
        {
            conjuncts(*inner, parts);
        }
        other => parts.push(other),
    }
}

/// The text of a literal.
pub(super) fn literal_text(expression: &Expr) -> Option<&str> {
    match unnested(expression) {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The last part of a function's name, if it is unqualified or in a system schema.
pub(super) fn bare_name(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident().map(folded))
        .collect();
    match &parts[..] {
        [name] => Some(name.clone()),
        [schema, name] if schema == "pg_catalog" || schema == "information_schema" => {
            Some(name.clone())
        }
        _ => None,
    }
}

/// The plain arguments of a call; `None` if one is named or a wildcard.
pub(super) fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    match &function.args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression),
                _ => None,
            })
            .collect(),
    }
}
