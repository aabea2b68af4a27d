//! Instants that the catalogue stores as text.
//!
//! A literal of `timestamptz` without a zone means a time on the clock of the session that writes
//! it. A stored definition is read again by sessions with other clocks, so such literals get an
//! offset when the definition is made.

use std::ops::ControlFlow;

use aerostat_sql::{sql_type::sql_type, walk};
use aerostat_types::{
    SqlError, SqlType, Zone,
    text::{format_timestamptz, parse_timestamptz},
};
use sqlparser::ast::{Expr, Value, ValueWithSpan, VisitMut, VisitorMut};

use super::expression;

/// Gives the literals of a tree that say their type an offset.
pub(super) fn settle<N: VisitMut>(node: &mut N, zone: Zone) {
    struct Literals(Zone);
    impl VisitorMut for Literals {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::TypedString(typed)
                    if sql_type(&typed.data_type) == Ok(SqlType::TimestampTz) =>
                {
                    settle_value(&mut typed.value, self.0);
                }
                Expr::Cast {
                    expr, data_type, ..
                } => {
                    if let Expr::Value(value) = &mut **expr
                        && sql_type(data_type) == Ok(SqlType::TimestampTz)
                    {
                        settle_value(value, self.0);
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    // It never breaks.
    let _ = walk::change(node, &mut Literals(zone));
}

/// A text that is no timestamp stays: what reads it says so.
fn settle_value(value: &mut ValueWithSpan, zone: Zone) {
    if let Value::SingleQuotedString(text) = &mut value.value
        && let Ok(micros) = parse_timestamptz(text, &zone)
    {
        text.clear();
        format_timestamptz(micros, 0, text);
    }
}

/// The default of a column with offsets.
///
/// # Errors
/// It cannot be read, which is a defect.
pub(super) fn settled_default(default: &str, ty: SqlType, zone: Zone) -> Result<String, SqlError> {
    if !default.contains('\'') {
        return Ok(default.to_owned());
    }
    let before = expression::parse(default)?;
    let mut parsed = before.clone();
    if let Expr::Value(value) = &mut parsed
        && ty == SqlType::TimestampTz
    {
        settle_value(value, zone);
    } else {
        settle(&mut parsed, zone);
    }
    Ok(match parsed == before {
        true => default.to_owned(),
        false => parsed.to_string(),
    })
}
