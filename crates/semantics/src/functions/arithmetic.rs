//! Number arithmetic that raises errors where DataFusion's wraps.
//!
//! [`Arithmetic`] replaces `+ - * / %` between numbers, [`Negate`] unary minus. Result types are
//! PostgreSQL's. The scale of a numeric is static here, whereas in PostgreSQL it belongs to each
//! value:
//!
//! | | scale of the result |
//! |---|---|
//! | `a + b`, `a - b`, `a % b` | the larger scale |
//! | `a * b` | the sum of the scales, cut to what 38 digits leave but at least the larger scale and 20 |
//! | `a / b` | the larger scale and at least 16 |
//!
//! A result that needs more than 38 digits is an error, not an approximation.

mod decimal;
mod kernel;

use std::sync::{Arc, LazyLock};

use aerostat_types::{ErrorKind, SqlError};
use arrow::compute::kernels::numeric::neg;
use arrow::datatypes::{
    DataType, Field, FieldRef, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::{external, name_of_arrow, no_operator_for, raise};
use kernel::Checked;

/// A checked `+ - * / %` between numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arithmetic {
    op: Operator,
    signature: Signature,
}

static ADD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arithmetic::function(Operator::Plus));
static SUBTRACT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arithmetic::function(Operator::Minus));
static MULTIPLY: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arithmetic::function(Operator::Multiply));
static DIVIDE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arithmetic::function(Operator::Divide));
static REMAINDER: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arithmetic::function(Operator::Modulo));
static NEGATE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::new_from_impl(Negate {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
});

impl Arithmetic {
    fn function(op: Operator) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Arithmetic { op, signature }))
    }
}

/// `left op right` for numbers, checked. Other operators stay as they are.
pub(crate) fn call(op: Operator, left: Expr, right: Expr) -> Expr {
    let function = match op {
        Operator::Plus => &ADD,
        Operator::Minus => &SUBTRACT,
        Operator::Multiply => &MULTIPLY,
        Operator::Divide => &DIVIDE,
        Operator::Modulo => &REMAINDER,
        _ => return Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))),
    };
    Expr::ScalarFunction(ScalarFunction::new_udf(
        Arc::clone(function),
        vec![left, right],
    ))
}

/// `- operand`, checked on integers.
pub(crate) fn negate(operand: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&NEGATE), vec![operand]))
}

/// Whether a function is unary minus.
pub(crate) fn is_negation(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Negate>().is_some()
}

/// Whether a function is `+ - * / %`.
pub(crate) fn is_operator(function: &ScalarUDF) -> bool {
    function.inner().is::<Arithmetic>()
}

/// Whether a function is division or remainder.
pub(crate) fn is_division(function: &ScalarUDF) -> bool {
    matches!(
        operator_of(function),
        Some(Operator::Divide | Operator::Modulo)
    )
}

/// The operator that a function is.
pub(crate) fn operator_of(function: &ScalarUDF) -> Option<Operator> {
    let function = function.inner().downcast_ref::<Arithmetic>();
    function.map(|function| function.op)
}

/// The functions behind the operators, for a registry.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    [&ADD, &SUBTRACT, &MULTIPLY, &DIVIDE, &REMAINDER, &NEGATE]
        .into_iter()
        .map(|function| Arc::clone(function))
        .collect()
}

/// The types the operands are brought to, and the type of the result.
struct Signed {
    left: DataType,
    right: DataType,
    result: DataType,
}

/// Integers by width; narrower and unsigned ones go to the next that holds them.
fn integer(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Some(DataType::Int16),
        DataType::UInt16 | DataType::Int32 => Some(DataType::Int32),
        DataType::UInt32 | DataType::Int64 => Some(DataType::Int64),
        _ => None,
    }
}

/// A number as a decimal type.
fn as_decimal(data_type: &DataType) -> Option<(u8, i8)> {
    match data_type {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            Some((*p, *s))
        }
        DataType::UInt64 => Some((20, 0)),
        other => match integer(other)? {
            DataType::Int16 => Some((5, 0)),
            DataType::Int32 => Some((10, 0)),
            _ => Some((19, 0)),
        },
    }
}

fn is_float(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Float16 | DataType::Float32 | DataType::Float64
    )
}

fn is_number(data_type: &DataType) -> bool {
    is_float(data_type) || as_decimal(data_type).is_some()
}

/// PostgreSQL's choice of operator for two number types.
fn resolve(op: Operator, left: &DataType, right: &DataType) -> Result<Signed> {
    let all = |data_type: DataType| Signed {
        left: data_type.clone(),
        right: data_type.clone(),
        result: data_type,
    };
    match (left, right) {
        (DataType::Null, DataType::Null) => return Ok(all(DataType::Int32)),
        (DataType::Null, other) => return resolve(op, other, other),
        (other, DataType::Null) => return resolve(op, other, other),
        _ => {}
    }
    if !is_number(left)
        || !is_number(right)
        || (op == Operator::Modulo && (is_float(left) || is_float(right)))
    {
        return Err(no_operator_for(left, op, right));
    }
    if matches!((left, right), (DataType::Float32, DataType::Float32)) {
        return Ok(all(DataType::Float32));
    }
    if is_float(left) || is_float(right) {
        return Ok(all(DataType::Float64));
    }
    if let (Some(l), Some(r)) = (integer(left), integer(right)) {
        return Ok(all(if l.primitive_width() >= r.primitive_width() {
            l
        } else {
            r
        }));
    }
    match (as_decimal(left), as_decimal(right)) {
        (Some((p1, s1)), Some((p2, s2))) => {
            let (p, s) = decimal::result_type(op, (p1, s1), (p2, s2));
            Ok(Signed {
                left: DataType::Decimal128(p1, s1),
                right: DataType::Decimal128(p2, s2),
                result: DataType::Decimal128(p, s),
            })
        }
        _ => Err(no_operator_for(left, op, right)),
    }
}

fn two<T>(args: &[T]) -> Result<(&T, &T)> {
    match args {
        [left, right] => Ok((left, right)),
        _ => Err(raise(ErrorKind::Internal, "an operator takes two operands")),
    }
}

/// The type of `left op right`, for types that have it; the left type otherwise.
pub(crate) fn result_type(op: Operator, left: &DataType, right: &DataType) -> DataType {
    resolve(op, left, right).map_or_else(|_| left.clone(), |types| types.result)
}

/// Evaluates `left op right` for operands of types that need no conversion.
pub(crate) fn evaluate(
    op: Operator,
    left: ColumnarValue,
    right: ColumnarValue,
    rows: usize,
) -> Result<ColumnarValue> {
    let result = resolve(op, &left.data_type(), &right.data_type())?.result;
    let field = |data_type| Arc::new(Field::new("", data_type, true));
    Arithmetic {
        op,
        signature: Signature::user_defined(Volatility::Immutable),
    }
    .invoke_with_args(ScalarFunctionArgs {
        arg_fields: vec![field(left.data_type()), field(right.data_type())],
        args: vec![left, right],
        number_rows: rows,
        return_field: field(result),
        config_options: Arc::default(),
    })
}

/// What went wrong, for a type and a flag of [`kernel`].
fn failure(data_type: &DataType, flag: u8) -> DataFusionError {
    if flag & kernel::ZERO != 0 {
        return raise(ErrorKind::DivisionByZero, "division by zero");
    }
    let message = match data_type {
        DataType::Int16 => "smallint out of range",
        DataType::Int32 => "integer out of range",
        DataType::Int64 => "bigint out of range",
        DataType::Decimal128(..) => "value overflows numeric format",
        _ if flag & kernel::UNDERFLOW != 0 => "value out of range: underflow",
        _ => "value out of range: overflow",
    };
    raise(ErrorKind::NumericValueOutOfRange, message)
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.op {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            Operator::Multiply => "checked_multiply",
            Operator::Divide => "checked_divide",
            _ => "checked_remainder",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let (left, right) = two(args)?;
        Ok(format!(
            "{} {} {}",
            left.schema_name(),
            self.op,
            right.schema_name()
        ))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let (left, right) = two(arg_types)?;
        // An error here would lose its kind on the way; the return type raises it again.
        match resolve(self.op, left, right) {
            Ok(types) => Ok(vec![types.left, types.right]),
            Err(_) => Ok(arg_types.to_vec()),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let (left, right) = two(arg_types)?;
        Ok(resolve(self.op, left, right)?.result)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let (left, right) = two(args.arg_fields)?;
        let result = resolve(self.op, left.data_type(), right.data_type())?.result;
        Ok(Arc::new(Field::new(
            self.name(),
            result,
            left.is_nullable() || right.is_nullable(),
        )))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (left, right) = two(&args.args)?;
        let result = args.return_field.data_type();
        let fail = |flag| failure(result, flag);
        match result {
            DataType::Int16 => integers::<Int16Type>(self.op, left, right, &fail),
            DataType::Int32 => integers::<Int32Type>(self.op, left, right, &fail),
            DataType::Int64 => integers::<Int64Type>(self.op, left, right, &fail),
            DataType::Float32 => integers::<Float32Type>(self.op, left, right, &fail),
            DataType::Float64 => integers::<Float64Type>(self.op, left, right, &fail),
            DataType::Decimal128(precision, scale) => {
                decimal::evaluate(self.op, left, right, (*precision, *scale), &fail)
            }
            other => Err(no_operator_for(other, self.op, other)),
        }
    }
}

fn integers<T>(
    op: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
    fail: &dyn Fn(u8) -> DataFusionError,
) -> Result<ColumnarValue>
where
    T: arrow::array::ArrowPrimitiveType,
    T::Native: Checked,
{
    match op {
        Operator::Plus => kernel::add::<T>(left, right, fail, false),
        Operator::Minus => kernel::add::<T>(left, right, fail, true),
        Operator::Multiply => kernel::multiply::<T>(left, right, fail),
        Operator::Divide => kernel::apply::<T>(left, right, fail, |a, b| a.over(b)),
        _ => kernel::apply::<T>(left, right, fail, |a, b| a.modulo(b)),
    }
}

/// Unary minus, checked on integers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Negate {
    signature: Signature,
}

/// PostgreSQL's error for a minus before what has no negative.
pub(crate) fn no_negation(operand: &str) -> DataFusionError {
    let message = format!("operator does not exist: - {operand}");
    external(SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(
        "No operator matches the given name and argument type. You might need to add an explicit type cast.",
    ))
}

/// The type of `- operand`.
fn negated(operand: &DataType) -> Result<DataType> {
    Ok(match operand {
        // A string literal, NULL and a parameter without type: double precision is preferred.
        DataType::Null | DataType::Utf8 => DataType::Float64,
        other if is_float(other) || matches!(other, DataType::Interval(_)) => other.clone(),
        other => match (integer(other), as_decimal(other)) {
            (Some(integer), _) => integer,
            (_, Some((precision, scale))) => DataType::Decimal128(precision, scale),
            _ => return Err(no_negation(&name_of_arrow(other))),
        },
    })
}

impl ScalarUDFImpl for Negate {
    fn name(&self) -> &str {
        "checked_negate"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(args.first().map_or_else(String::new, |operand| {
            format!("(- {})", operand.schema_name())
        }))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would lose its kind on the way; the return type raises it again.
        Ok(match arg_types {
            [operand] => vec![negated(operand).unwrap_or_else(|_| operand.clone())],
            other => other.to_vec(),
        })
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types {
            [operand] => negated(operand),
            _ => Err(raise(ErrorKind::Internal, "unary minus takes one operand")),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.return_type(&types)?,
            nullable,
        )))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let operand = &args.args[0];
        let result = args.return_field.data_type();
        let fail = |flag| failure(result, flag);
        match result {
            DataType::Int16 => kernel::apply_one::<Int16Type>(operand, &fail, |v| 0.minus(v)),
            DataType::Int32 => kernel::apply_one::<Int32Type>(operand, &fail, |v| 0.minus(v)),
            DataType::Int64 => kernel::apply_one::<Int64Type>(operand, &fail, |v| 0.minus(v)),
            // There is one NaN, which a sign would make another.
            DataType::Float32 => kernel::apply_one::<Float32Type>(operand, &fail, |v| {
                (if v.is_nan() { f32::NAN } else { -v }, 0)
            }),
            DataType::Float64 => kernel::apply_one::<Float64Type>(operand, &fail, |v| {
                (if v.is_nan() { f64::NAN } else { -v }, 0)
            }),
            _ => match operand {
                ColumnarValue::Array(values) => Ok(ColumnarValue::Array(neg(values)?)),
                ColumnarValue::Scalar(value) => {
                    let negated = neg(&value.to_array()?)?;
                    Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                        &negated, 0,
                    )?))
                }
            },
        }
    }
}

/// `abs` of an integer column or value, checked: used by the function of that name.
pub(crate) fn absolute(operand: &ColumnarValue) -> Result<ColumnarValue> {
    let data_type = operand.data_type();
    let fail = |flag| failure(&data_type, flag);
    match &data_type {
        DataType::Int16 => {
            kernel::apply_one::<Int16Type>(
                operand,
                &fail,
                |v| if v < 0 { 0.minus(v) } else { (v, 0) },
            )
        }
        DataType::Int32 => {
            kernel::apply_one::<Int32Type>(
                operand,
                &fail,
                |v| if v < 0 { 0.minus(v) } else { (v, 0) },
            )
        }
        DataType::Int64 => {
            kernel::apply_one::<Int64Type>(
                operand,
                &fail,
                |v| if v < 0 { 0.minus(v) } else { (v, 0) },
            )
        }
        other => Err(no_operator_for(&DataType::Null, Operator::Minus, other)),
    }
}

#[cfg(test)]
mod tests;
