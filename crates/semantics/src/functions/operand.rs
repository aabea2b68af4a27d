//! An operand of an operator, as PostgreSQL's type resolution rules see it.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::cast::{self, Zone};

/// The type of an operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A string literal, NULL or a parameter that nothing has given a type yet.
    Unknown,
    /// A value of a column type.
    Typed(SqlType),
    /// A list, struct or other type that no column has: DataFusion's business.
    Foreign,
}

impl Operand {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operand::Unknown => "unknown",
            Operand::Typed(ty) => ty.plain_name(),
            Operand::Foreign => "record",
        }
    }
}

/// Classifies an expression over `schema`.
pub(crate) fn operand(expr: &Expr, schema: &DFSchema) -> Result<Operand> {
    Ok(match expr {
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _) => Operand::Unknown,
        Expr::Placeholder(Placeholder { field: None, .. }) => Operand::Unknown,
        _ => {
            let (_, field) = expr.to_field(schema)?;
            match field.data_type() {
                DataType::Null => Operand::Unknown,
                _ => SqlType::of_field(&field).map_or(Operand::Foreign, Operand::Typed),
            }
        }
    })
}

/// Gives an unknown operand the type its context wants: a string literal is
/// parsed, a parameter declared, NULL typed. Other expressions are left alone.
pub(crate) fn literal_as(expr: Expr, ty: SqlType, zone: &Zone) -> Result<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Null | ScalarValue::Utf8(None), metadata) => Ok(Expr::Literal(
            ScalarValue::try_new_null(&ty.arrow())?,
            metadata,
        )),
        Expr::Literal(ScalarValue::Utf8(Some(_)), _)
            if ty == SqlType::TimestampTz && zone.is_unsettled() =>
        {
            Ok(expr)
        }
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            Ok(Expr::Literal(cast::literal(&text, ty, zone)?, metadata))
        }
        Expr::Placeholder(Placeholder { id, field: None }) => Ok(Expr::Placeholder(
            Placeholder::new_with_field(id, Some(Arc::new(ty.field("", true)))),
        )),
        other => Ok(other),
    }
}
