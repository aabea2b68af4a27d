//! A value under a name of its own.
//!
//! DataFusion names an expression without its casts, and the column of a subquery by its name there.
//! Where two keys of GROUP BY would be called alike, one stands behind this function, which gives
//! what it is given. So do columns that are no keys any more (see `expanded`).

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// Its name, which nobody writes.
pub const NAMED: &str = "\u{1}named";

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Named {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    signature: Signature,
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        NAMED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => internal_err!("a name is for one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [argument] => Ok(Arc::clone(argument)),
            _ => internal_err!("a name is for one value"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("a name is for one value"),
        }
    }
}
