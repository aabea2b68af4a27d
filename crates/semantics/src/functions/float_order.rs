//! A float converted so that comparing bits gives PostgreSQL's order of floats: one zero, and one
//! NaN, above all others.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::AsArray;
use arrow::datatypes::{Float32Type, Float64Type};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::overload::{self, Overload, Returns};

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    overload::function("float_order", &[], Volatility::Immutable, FLOAT_ORDER)
}

/// The key of a `real`.
pub(crate) fn real(value: f32) -> f32 {
    match value.is_nan() {
        true => f32::NAN,
        // The sum of -0 and 0 is 0.
        false => value + 0.0,
    }
}

/// The key of a `double precision`.
pub(crate) fn double(value: f64) -> f64 {
    match value.is_nan() {
        true => f64::NAN,
        false => value + 0.0,
    }
}

const FLOAT_ORDER: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Real],
        returns: Returns::Type(SqlType::Real),
        body: |call| {
            let floats = call.args[0].as_primitive::<Float32Type>();
            Ok(Arc::new(floats.unary::<_, Float32Type>(real)))
        },
    },
    Overload {
        parameters: &[SqlType::Double],
        returns: Returns::Type(SqlType::Double),
        body: |call| {
            let floats = call.args[0].as_primitive::<Float64Type>();
            Ok(Arc::new(floats.unary::<_, Float64Type>(double)))
        },
    },
];
