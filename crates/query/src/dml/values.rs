//! The values that a column takes: defaults, generated values, assignments; and refused ones.

use aerostat_semantics::{functions, type_literals};
use aerostat_sql::sequence_text::sequences_in;
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    common::{DFSchema, Result},
    logical_expr::{Expr, ExprSchemable, lit},
    scalar::ScalarValue,
    sql::{
        planner::PlannerContext,
        sqlparser::{ast, dialect::PostgreSqlDialect, parser::Parser},
    },
};

use crate::{
    error::external,
    plan::{StatementContext, Target},
};

/// Whether a value in a list is the keyword DEFAULT.
pub(super) fn is_default(value: &ast::Expr) -> bool {
    matches!(value, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The value that a column takes when the statement gives none.
pub(super) fn default_value(
    context: &StatementContext,
    target: &Target,
    at: usize,
) -> Result<Expr> {
    let column = &target.entry.table.schema().columns[at];
    match target.entry.default_text(at) {
        Some(text) => {
            for sequence in sequences_in(&text) {
                let locked = context.gate.require(sequence, LockMode::RowExclusive);
                locked.map_err(external)?;
            }
            let expression = context.planner().sql_to_expr(
                parse_expression(&text)?,
                &DFSchema::empty(),
                &mut PlannerContext::new(),
            )?;
            assign(context, expression, &DFSchema::empty(), target, at)
        }
        None => Ok(lit(ScalarValue::Null).cast_to(&column.ty.arrow(), &DFSchema::empty())?),
    }
}

/// Whether a column takes only values of its own.
pub(super) fn is_always_generated(target: &Target, at: usize) -> bool {
    let identity = target.entry.identity(at);
    identity.is_some_and(|identity| identity.is_always)
}

/// The error for giving such a column another value.
pub(super) fn not_default(
    target: &Target,
    at: usize,
    inserts: bool,
) -> datafusion::error::DataFusionError {
    let column = &target.entry.table.schema().columns[at].name;
    let message = match inserts {
        true => format!("cannot insert a non-DEFAULT value into column \"{column}\""),
        false => format!("column \"{column}\" can only be updated to DEFAULT"),
    };
    let error = SqlError::new(ErrorKind::GeneratedAlways, message).with_detail(format!(
        "Column \"{column}\" is an identity column defined as GENERATED ALWAYS."
    ));
    external(match inserts {
        true => error.with_hint("Use OVERRIDING SYSTEM VALUE to override."),
        false => error,
    })
}

/// An expression as the column's type, by PostgreSQL's assignment casts.
pub(super) fn assign(
    context: &StatementContext,
    expression: Expr,
    schema: &DFSchema,
    target: &Target,
    at: usize,
) -> Result<Expr> {
    let column = &target.entry.table.schema().columns[at];
    let (_, field) = expression.to_field(schema)?;
    let config = context.state.config_options();
    functions::assign(expression, &field, column.ty, &column.name, config)
}

/// The AST of an expression that the catalogue keeps as text.
///
/// # Errors
/// The text is not an expression.
pub fn parse_expression(text: &str) -> Result<ast::Expr> {
    let mut expression = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| external(SqlError::new(ErrorKind::SyntaxError, error.to_string())))?;
    type_literals(&mut expression).map_err(external)?;
    Ok(expression)
}

pub(super) fn unsupported(what: &str) -> datafusion::error::DataFusionError {
    external(SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{what} is not supported"),
    ))
}

pub(super) fn refuse(condition: bool, what: &str) -> Result<()> {
    if condition {
        Err(unsupported(what))
    } else {
        Ok(())
    }
}

/// A value as a column of the table, with the column's SQL type: the Arrow type of a `char(n)`
/// would not say it.
pub(super) fn qualified(target: &Target, at: usize, value: Expr) -> Expr {
    let column = &target.entry.table.schema().columns[at];
    let named = column.ty.field("", true).metadata().clone();
    let named = (!named.is_empty()).then(|| named.into());
    let (alias, name) = (target.reference(), column.name.as_str());
    value.alias_qualified_with_metadata(Some(alias), name, named)
}
