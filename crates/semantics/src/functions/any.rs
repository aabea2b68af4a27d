//! Functions of arguments of any type: `pg_typeof`, `num_nulls`, `num_nonnulls`.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::array::{Array, ArrayRef, Int32Array};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use crate::growth::{Growth, for_each_row};
use crate::{external, name_of_arrow};

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    [
        Any::new("pg_typeof", AnyFunction::TypeOf),
        Any::new("num_nulls", AnyFunction::CountNulls(true)),
        Any::new("num_nonnulls", AnyFunction::CountNulls(false)),
    ]
    .map(|function| Arc::new(ScalarUDF::new_from_impl(function)))
    .into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AnyFunction {
    TypeOf,
    /// How many arguments are NULL, or are not.
    CountNulls(bool),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Any {
    name: &'static str,
    kind: AnyFunction,
    signature: Signature,
}

impl Any {
    fn new(name: &'static str, kind: AnyFunction) -> Self {
        let arguments = match kind {
            AnyFunction::TypeOf => TypeSignature::Any(1),
            AnyFunction::CountNulls(_) => {
                TypeSignature::OneOf(vec![TypeSignature::VariadicAny, TypeSignature::Nullary])
            }
        };
        Self {
            name,
            kind,
            signature: Signature::new(arguments, Volatility::Stable),
        }
    }
}

impl ScalarUDFImpl for Any {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match self.kind {
            AnyFunction::TypeOf => Ok(DataType::Utf8View),
            AnyFunction::CountNulls(_) if arg_types.is_empty() => {
                let message = format!("function {}() does not exist", self.name);
                Err(external(SqlError::new(
                    ErrorKind::UndefinedFunction,
                    message,
                )))
            }
            AnyFunction::CountNulls(_) => Ok(DataType::Int32),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match self.kind {
            AnyFunction::TypeOf => {
                let name = type_of(&args.arg_fields[0]);
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(name))))
            }
            AnyFunction::CountNulls(nulls) => count_nulls(&args, nulls),
        }
    }
}

/// The type of an argument, which `pg_typeof` tells without evaluating it.
///
/// Only a literal itself is unknown: what has left a subquery without a type is a text.
pub(crate) fn type_literal(func: &ScalarUDF, argument: &Expr, field: &Field) -> Option<Expr> {
    let function = func.inner().downcast_ref::<Any>()?;
    if function.kind != AnyFunction::TypeOf {
        return None;
    }
    let is_literal = matches!(argument, Expr::Literal(..) | Expr::Placeholder(_));
    let is_unknown = matches!(field.data_type(), DataType::Utf8 | DataType::Null);
    let name = match is_unknown && !is_literal {
        true => SqlType::Text.plain_name().to_owned(),
        false => type_of(field),
    };
    Some(Expr::Literal(ScalarValue::Utf8View(Some(name)), None))
}

/// The type of a field as `format_type` without modifiers writes it.
fn type_of(field: &Field) -> String {
    match field.data_type() {
        DataType::Utf8 | DataType::Null => "unknown".to_owned(),
        other => SqlType::of_field(field)
            .map_or_else(|| name_of_arrow(other), |ty| ty.plain_name().to_owned()),
    }
}

fn count_nulls(args: &ScalarFunctionArgs, nulls: bool) -> Result<ColumnarValue> {
    let mut counts = vec![0; args.number_rows];
    for argument in &args.args {
        let values = for_each_row(argument, args.number_rows, &mut Growth::new())?;
        let present = values.logical_nulls();
        for (row, count) in counts.iter_mut().enumerate() {
            let is_null = present.as_ref().is_some_and(|present| present.is_null(row));
            *count += i32::from(is_null == nulls);
        }
    }
    let all_constant = args
        .args
        .iter()
        .all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    if let (true, Some(&count)) = (all_constant, counts.first()) {
        return Ok(ColumnarValue::Scalar(ScalarValue::from(count)));
    }
    let counts: ArrayRef = Arc::new(Int32Array::from(counts));
    Ok(ColumnarValue::Array(counts))
}
