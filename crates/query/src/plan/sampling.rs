//! `TABLESAMPLE`: each row of a table is taken with the given probability.
//!
//! `t TABLESAMPLE BERNOULLI (10)` becomes `(SELECT * FROM t WHERE random() < 0.1) AS t`. The
//! standard leaves it to the system what SYSTEM takes together; here it is a single row, too.
//! REPEATABLE would have to take the same rows each time, which is not supported, so it is refused.

use std::ops::ControlFlow;

use aerostat_catalog::Relation;
use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::{
    ast::{
        Expr, Ident, SetExpr, TableAlias, TableFactor, TableSample, TableSampleKind,
        TableSampleMethod, TableWithJoins, UnaryOperator, Value, VisitMut, VisitorMut,
    },
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::{StatementContext, target::table_reference};

/// Rewrites the samples in a tree as the module says.
///
/// # Errors
/// `FeatureNotSupported`, `UndefinedObject`, and `InvalidTablesampleArgument`, as the module says
/// and as PostgreSQL.
pub(super) fn rewrite<N: VisitMut>(
    context: &StatementContext,
    node: &mut N,
) -> Result<(), SqlError> {
    match walk::change(node, &mut Samples { context }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Samples<'a> {
    context: &'a StatementContext,
}

impl VisitorMut for Samples<'_> {
    type Break = SqlError;

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match self.sampled(factor) {
            Ok(Some(sampled)) => *factor = sampled,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Samples<'_> {
    fn sampled(&self, factor: &mut TableFactor) -> Result<Option<TableFactor>, SqlError> {
        let kind = match factor {
            TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => {
                sample.take()
            }
            _ => None,
        };
        let Some(
            TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample),
        ) = kind
        else {
            return Ok(None);
        };
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return Err(not_a_table());
        };
        match self.context.resolve(&table_reference(name)?) {
            Ok((_, Relation::Table(_))) => {}
            _ => return Err(not_a_table()),
        }
        let share = share_of(&sample)?;
        let called = name.0.last().and_then(|part| part.as_ident()).map(folded);
        let own = TableAlias {
            explicit: true,
            name: Ident::with_quote('"', called.unwrap_or_default()),
            columns: Vec::new(),
            at: None,
        };
        let alias = alias.take().unwrap_or(own);
        let text = format!("SELECT * FROM x WHERE random() < {share}::float8");
        let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
        let mut subquery = parser
            .and_then(|mut parser| parser.parse_query())
            .map_err(|error| SqlError::new(ErrorKind::Internal, error.to_string()))?;
        if let SetExpr::Select(select) = &mut *subquery.body {
            select.from = vec![TableWithJoins {
                relation: factor.clone(),
                joins: Vec::new(),
            }];
        }
        Ok(Some(TableFactor::Derived {
            lateral: false,
            subquery,
            alias: Some(alias),
            sample: None,
        }))
    }
}

fn not_a_table() -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        "TABLESAMPLE clause can only be applied to tables and materialized views",
    )
}

/// The share of rows, from 0 to 1.
fn share_of(sample: &TableSample) -> Result<f32, SqlError> {
    let method = sample.name.as_ref();
    let is_known = matches!(
        method,
        Some(TableSampleMethod::Bernoulli | TableSampleMethod::System)
    );
    let (true, Some(quantity)) = (is_known, &sample.quantity) else {
        let name = method.map_or_else(String::new, |name| {
            format!(" {}", name.to_string().to_lowercase())
        });
        let message = format!("tablesample method{name} does not exist");
        let error = SqlError::new(ErrorKind::UndefinedObject, message);
        return Err(error.with_hint("The methods are BERNOULLI and SYSTEM."));
    };
    if sample.seed.is_some() {
        let message = "TABLESAMPLE with REPEATABLE is not supported";
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message)
            .with_hint("Keep the sample in a table: CREATE TABLE … AS SELECT … TABLESAMPLE …."));
    }
    let refused = |message: &str| SqlError::new(ErrorKind::InvalidTablesampleArgument, message);
    let percent = match number(&quantity.value) {
        Number::Null => return Err(refused("TABLESAMPLE parameter cannot be null")),
        Number::Text(text) => text.trim().parse().map_err(|_| {
            let message = format!("invalid input syntax for type real: \"{text}\"");
            SqlError::new(ErrorKind::InvalidTextRepresentation, message)
        })?,
        Number::Value(value) => value,
        Number::Other => {
            let message = "TABLESAMPLE with an argument that is no number is not supported";
            return Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
        }
    };
    match (0.0..=100.0).contains(&percent) {
        true => Ok(percent / 100.0),
        false => Err(refused("sample percentage must be between 0 and 100")),
    }
}

enum Number {
    Null,
    Text(String),
    Value(f32),
    Other,
}

fn number(expression: &Expr) -> Number {
    match expression {
        Expr::Nested(inner) => number(inner),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match number(expr) {
            Number::Value(value) => Number::Value(-value),
            other => other,
        },
        Expr::Value(value) => match &value.value {
            Value::Null => Number::Null,
            Value::SingleQuotedString(text) => Number::Text(text.clone()),
            Value::Number(digits, _) => digits.parse().map_or(Number::Other, Number::Value),
            _ => Number::Other,
        },
        _ => Number::Other,
    }
}
