//! Functions whose result is as long as they are told to make it. PostgreSQL
//! refuses what no value could hold; DataFusion would allocate it first.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, VALUE_BYTES_MAX};
use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    common::{DataFusionError, Result},
    execution::FunctionRegistry,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    },
};

/// Bytes that one call may make of a batch of rows: what a value may have for
/// each row of a small batch, and far below what a node can have.
const BATCH_BYTES_MAX: i64 = 1 << 30;

/// Puts the limit before DataFusion's `repeat`, `lpad` and `rpad`.
///
/// # Errors
/// The registry takes no functions.
pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in ["repeat", "lpad", "rpad"] {
        let inner = registry.udf(name)?;
        registry.register_udf(Arc::new(ScalarUDF::from(Bounded { inner })))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [text, count, ..] = &arguments.args[..] {
            let rows = match (text, count) {
                (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => 1,
                _ => arguments.number_rows,
            };
            check(self.name(), text, count, rows)?;
        }
        self.inner.invoke_with_args(arguments)
    }
}

fn check(name: &str, text: &ColumnarValue, count: &ColumnarValue, rows: usize) -> Result<()> {
    let counts = cast(&count.to_array(rows)?, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let texts = cast(&text.to_array(rows)?, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    let mut batch_bytes = 0i64;
    for row in 0..rows {
        if counts.is_null(row) || texts.is_null(row) {
            continue;
        }
        let unit = if name == "repeat" {
            texts.value(row).len() as i64
        } else {
            1
        };
        let bytes = counts.value(row).max(0).saturating_mul(unit);
        batch_bytes = batch_bytes.saturating_add(bytes);
        if bytes > VALUE_BYTES_MAX as i64 || batch_bytes > BATCH_BYTES_MAX {
            return Err(DataFusionError::External(Box::new(SqlError::new(
                ErrorKind::ProgramLimitExceeded,
                "requested length too large",
            ))));
        }
    }
    Ok(())
}
