//! Checks that `string_agg` accepts a value and a separator.
//!
//! A call of `string_agg` may be written as one of `array_agg` before any type is known. There
//! the value is wrapped, with its separator, in this function, which returns the value and
//! refuses what `string_agg` refuses: a text with a separator of bytes, or the other way round.
//! Bytes are not joined in this way.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::aggregate::gathered::of_bytes;
use super::lists::missing;
use crate::raise;

/// Its name, which nobody writes.
pub const JOINABLE: &str = "\u{1}joinable";

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Joinable {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Joinable {
    signature: Signature,
}

impl ScalarUDFImpl for Joinable {
    fn name(&self) -> &str {
        JOINABLE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // The return type raises the error: here it would lose its kind.
        Ok(match of_bytes(arguments) {
            Some(false) => vec![DataType::Utf8View; 2],
            _ => arguments.to_vec(),
        })
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match of_bytes(arguments) {
            Some(false) => Ok(DataType::Utf8View),
            Some(true) => {
                let message = "string_agg of bytea with several orders, or with a separator that is no constant, is not supported";
                Err(raise(ErrorKind::FeatureNotSupported, message))
            }
            None => Err(missing("string_agg", arguments)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("a value is joined with a separator"),
        }
    }
}
