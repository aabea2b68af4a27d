//! The check that a scalar subquery returned at most one row.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

/// `value`, unless more than one row stands behind it.
///
/// It is a function, not a property of the aggregation, so that a CASE that
/// does not ask for the value does not raise the error.
pub(super) fn single_row(value: Expr, rows: Expr) -> Expr {
    ScalarUDF::new_from_impl(SingleRow {
        signature: Signature::any(2, Volatility::Immutable),
    })
    .call(vec![value, rows])
}

/// `value`, which is a constant, where there is a row: it is not computed before there is one, as the
/// constant alone would be, which is never NULL.
pub(super) fn constant_of_row(value: Expr, row: Expr) -> Expr {
    ScalarUDF::new_from_impl(SingleRow {
        signature: Signature::any(3, Volatility::Immutable),
    })
    .call(vec![value, lit(1_i64), row])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleRow {
    signature: Signature,
}

impl ScalarUDFImpl for SingleRow {
    fn name(&self) -> &str {
        "single_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let value = &arguments.arg_fields[0];
        let field = Field::new(self.name(), value.data_type().clone(), true);
        Ok(Arc::new(field.with_metadata(value.metadata().clone())))
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let several = match &arguments.args[1] {
            ColumnarValue::Scalar(ScalarValue::Int64(rows)) => rows.is_some_and(|rows| rows > 1),
            ColumnarValue::Scalar(_) => false,
            ColumnarValue::Array(rows) => {
                let rows = rows.as_primitive::<Int64Type>();
                (0..rows.len()).any(|at| rows.is_valid(at) && rows.value(at) > 1)
            }
        };
        if several {
            return Err(crate::raise(
                ErrorKind::CardinalityViolation,
                "more than one row returned by a subquery used as an expression",
            ));
        }
        Ok(arguments.args.swap_remove(0))
    }
}
