//! Types of `$n` parameters.
//!
//! A client may leave a parameter's type open. The type then follows from the place of the
//! parameter: a cast, the column that it is inserted into or assigned to, a count of rows in LIMIT
//! and OFFSET, DataFusion's inference from comparisons, the analyzer's from CASE and similar
//! expressions. Otherwise it is `text`, as in PostgreSQL.

use std::ops::ControlFlow;

use aerostat_api::ParameterType;
use aerostat_sql::{sql_type::sql_type, walk};
use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::sql::sqlparser::ast::{self, ArrayElemTypeDef, DataType, Visitor};

use super::{
    arrays::{array_of_texts, called},
    series::{declare_bounds, names_series},
};

/// How many parameters a statement may have: the wire protocol counts them in 16 bits.
const PARAMETERS_MAX: usize = 65_535;

/// The number `n` of a placeholder `$n`.
pub(crate) fn placeholder_number(text: &str) -> Option<usize> {
    text.strip_prefix('$')?
        .parse()
        .ok()
        .filter(|n| (1..=PARAMETERS_MAX).contains(n))
}

/// The number of the parameter that an expression consists of, if it is one.
pub fn bare_placeholder(expression: &ast::Expr) -> Option<usize> {
    match expression {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(text) => placeholder_number(text),
            _ => None,
        },
        ast::Expr::Nested(inner) => bare_placeholder(inner),
        _ => None,
    }
}

/// How many parameters a statement has: its highest `$n`.
///
/// # Errors
/// `UndefinedParameter` for `$0` and numbers beyond the protocol's.
pub fn parameter_count(statement: &ast::Statement) -> Result<usize, SqlError> {
    struct Highest(usize);
    impl Visitor for Highest {
        type Break = String;
        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<String> {
            if let ast::Value::Placeholder(text) = &value.value {
                match placeholder_number(text) {
                    Some(n) => self.0 = self.0.max(n),
                    None => return ControlFlow::Break(text.clone()),
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut highest = Highest(0);
    match walk::look(statement, &mut highest) {
        ControlFlow::Continue(()) => Ok(highest.0),
        ControlFlow::Break(text) => Err(SqlError::new(
            ErrorKind::UndefinedParameter,
            format!("there is no parameter {text}"),
        )),
    }
}

/// The type of a parameter, by the type's name in SQL.
///
/// # Errors
/// The errors of [`sql_type`].
pub fn parameter_type(data_type: &DataType) -> Result<ParameterType, SqlError> {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) if is_oid(item) => {
            Ok(ParameterType::OidArray)
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => {
            item_type(item).map(ParameterType::Array)
        }
        oid if is_oid(oid) => Ok(ParameterType::Oid),
        DataType::Custom(name, _) => match array_named(name) {
            Some(item) => Ok(ParameterType::Array(item)),
            None => item_type(data_type).map(ParameterType::Value),
        },
        other => item_type(other).map(ParameterType::Value),
    }
}

/// The item type of an array type that is named as PostgreSQL names it internally: `_int4`.
fn array_named(name: &ast::ObjectName) -> Option<SqlType> {
    let name = name
        .0
        .last()?
        .as_ident()
        .filter(|name| name.value.starts_with('_'))?;
    aerostat_pgcatalog::oid_of_typname(&name.value.to_ascii_lowercase())
        .and_then(SqlType::from_array_oid)
}

fn is_oid(data_type: &DataType) -> bool {
    let DataType::Custom(name, _) = data_type else {
        return false;
    };
    let name = name.to_string();
    ["oid", "pg_catalog.oid"]
        .iter()
        .any(|oid| name.eq_ignore_ascii_case(oid))
}

fn item_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    match data_type {
        DataType::Custom(name, length)
            if length.is_empty()
                && ["bpchar", "pg_catalog.bpchar"]
                    .iter()
                    .any(|bpchar| name.to_string().eq_ignore_ascii_case(bpchar)) =>
        {
            Ok(SqlType::BPCHAR)
        }
        other => sql_type(other),
    }
}

/// Notes the types that casts `$n::type`, and calls of functions that imply them, give to
/// parameters, by position; extends `types` as needed.
pub fn declared_parameters(statement: &ast::Statement, types: &mut Vec<Option<ParameterType>>) {
    struct Casts<'a>(&'a mut Vec<Option<ParameterType>>);
    impl Visitor for Casts<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            if let Some(ast::LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
                let counts = limit
                    .iter()
                    .chain(offset.iter().map(|offset| &offset.value));
                for n in counts.filter_map(bare_placeholder) {
                    declare(self.0, n, ParameterType::Value(SqlType::BigInt));
                }
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &ast::TableFactor) -> ControlFlow<()> {
            if let Some((name, arguments)) = called(factor)
                && names_series(name)
            {
                declare_bounds(self.0, arguments);
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expression: &ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::Cast {
                expr, data_type, ..
            } = expression
                && let Some(n) = bare_placeholder(expr)
                && let Ok(ty) = parameter_type(data_type)
            {
                declare(self.0, n, ty);
            }
            if let ast::Expr::Cast {
                expr, data_type, ..
            } = expression
                && let Ok(ty) = parameter_type(data_type)
                && let Some(ty) = ty.item()
            {
                declare_items(self.0, expr, ty);
            }
            declare_items(self.0, expression, SqlType::Text);
            if let ast::Expr::Function(function) = expression {
                declare_arguments(self.0, function);
            }
            if let Some(n) = pattern_of(expression).and_then(bare_placeholder) {
                declare(self.0, n, ParameterType::Value(SqlType::Text));
            }
            if let Some(n) = array_of_texts(expression) {
                declare(self.0, n, ParameterType::Array(SqlType::Text));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = walk::look(statement, &mut Casts(types));
}

/// The pattern of LIKE and similar operators. It is a text even beside a `char(n)`, because its
/// blanks count.
fn pattern_of(expression: &ast::Expr) -> Option<&ast::Expr> {
    use ast::BinaryOperator::{
        PGILikeMatch, PGLikeMatch, PGNotILikeMatch, PGNotLikeMatch, PGRegexIMatch, PGRegexMatch,
        PGRegexNotIMatch, PGRegexNotMatch,
    };
    match expression {
        ast::Expr::Like { pattern, .. }
        | ast::Expr::ILike { pattern, .. }
        | ast::Expr::SimilarTo { pattern, .. } => Some(pattern),
        ast::Expr::BinaryOp {
            op:
                PGLikeMatch | PGILikeMatch | PGNotLikeMatch | PGNotILikeMatch | PGRegexMatch
                | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch,
            right,
            ..
        } => Some(right),
        _ => None,
    }
}

/// Notes the types of a call's arguments. When functions are planned they accept any types; those
/// that clients call with parameters alone declare their types here.
fn declare_arguments(types: &mut Vec<Option<ParameterType>>, function: &ast::Function) {
    let ast::FunctionArguments::List(list) = &function.args else {
        return;
    };
    if names_series(&function.name) {
        declare_bounds(types, &list.args);
        return;
    }
    let name = function.name.0.last().and_then(|part| part.as_ident());
    let ty =
        name.and_then(|name| aerostat_pgcatalog::waiting_parameter(&name.value, list.args.len()));
    let Some(ty) = ty else {
        return;
    };
    for argument in &list.args {
        if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expression)) = argument
            && let Some(n) = bare_placeholder(expression)
        {
            declare(types, n, ParameterType::Value(ty));
        }
    }
}

/// Declares the items of an array that contains only strings and parameters without a type: it is
/// an array of texts, whatever it is compared with, unless it is cast.
fn declare_items(types: &mut Vec<Option<ParameterType>>, expression: &ast::Expr, ty: SqlType) {
    let ast::Expr::Array(array) = expression else {
        return;
    };
    let parameters: Vec<usize> = array.elem.iter().filter_map(bare_placeholder).collect();
    let is_open = |n: &usize| types.get(n - 1).is_none_or(Option::is_none);
    let is_text = |item: &ast::Expr| match item {
        ast::Expr::Value(value) => matches!(
            &value.value,
            ast::Value::SingleQuotedString(_) | ast::Value::Null
        ),
        _ => false,
    };
    let texts = array.elem.iter().filter(|item| is_text(item)).count();
    if texts + parameters.len() == array.elem.len() && parameters.iter().all(is_open) {
        for n in parameters {
            declare(types, n, ParameterType::Value(ty));
        }
    }
}

/// Notes the type of `$n`, unless a type is already known.
pub fn declare(types: &mut Vec<Option<ParameterType>>, n: usize, ty: ParameterType) {
    if types.len() < n {
        types.resize(n, None);
    }
    types[n - 1].get_or_insert(ty);
}
