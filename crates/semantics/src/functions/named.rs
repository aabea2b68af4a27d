//! An identity function that gives a value a name of its own.
//!
//! DataFusion names an expression without its casts, and the column of a subquery by its name
//! there. If two keys of GROUP BY would have the same name, one is wrapped in this function. So
//! are columns that are no longer keys (see `expanded`). A second argument, a number,
//! distinguishes keys of one expression.
//!
//! The left side of `= ANY` is wrapped in a similar function if its items are written as a list,
//! so that they are not taken for those of IN, which are converted to one type with it.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// Its name, which nobody writes.
pub const NAMED: &str = "\u{1}named";

/// The name of what the left side of `= ANY` stands behind, which nobody writes either.
pub(crate) const EACH: &str = "\u{1}each";

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    named(NAMED)
}

/// The function of [`EACH`].
pub(crate) fn each() -> Arc<ScalarUDF> {
    named(EACH)
}

/// What stands behind [`EACH`], or an expression as it is; and which of the two.
pub(crate) fn behind_each(expr: Expr) -> (Expr, bool) {
    match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == EACH && call.args.len() == 1 => {
            (call.args.remove(0), true)
        }
        other => (other, false),
    }
}

fn named(name: &'static str) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Named {
        name,
        signature: Signature::variadic_any(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument, ..] => Ok(argument.clone()),
            _ => internal_err!("a name is for one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [argument, ..] => Ok(Arc::clone(argument)),
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
