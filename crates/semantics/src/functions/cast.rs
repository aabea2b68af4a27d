//! Casts with PostgreSQL's semantics.
//!
//! Arrow's casts differ in ways that a user can see: they truncate floats instead of rounding, do
//! not read `'yes'` as a boolean, and say "Cast error" for a number out of range. [`resolve`]
//! keeps Arrow's cast where it means the same (widening a number, a text to a text), so that the
//! optimizer still understands it, and otherwise replaces it by a [`PostgresCast`].

mod list;
mod number;
mod output;
mod text;
mod time;
mod zone;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SQL_TYPE_KEY, SqlType};
use arrow::array::{Array, ArrayRef, StringViewArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::{ANY_NUMERIC, raise};

pub(crate) use list::{literal as list_literal, written};
pub(crate) use number::{POWERS_OF_TEN, decimal_to_f64, rescale};
pub(crate) use output::{filled, list_text, output_text};
pub(crate) use time::DAY_MICROS;
pub(crate) use zone::{Zone, out_of_range};

/// How a cast came about, which decides what may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coercion {
    /// The user wrote it: texts that are too long are cut.
    Explicit,
    /// A value is stored: texts that are too long are refused.
    Assignment,
}

/// One cast to one type, as a function of one argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PostgresCast {
    name: String,
    to: SqlType,
    coercion: Coercion,
    /// Whether it shows in the name of what it gives.
    is_shown: bool,
    signature: Signature,
}

impl PostgresCast {
    pub(super) fn call(
        from: Option<SqlType>,
        to: SqlType,
        coercion: Coercion,
        argument: Expr,
    ) -> Expr {
        // Only what depends on the session's zone may change between executions.
        let volatility = match to {
            SqlType::Timestamp if from == Some(SqlType::Date) => Volatility::Immutable,
            SqlType::TimestampTz
            | SqlType::Timestamp
            | SqlType::Date
            | SqlType::Time
            | SqlType::Text => Volatility::Stable,
            _ => Volatility::Immutable,
        };
        let verb = match coercion {
            Coercion::Explicit => "cast to",
            Coercion::Assignment => "assign to",
        };
        let function = Self {
            name: format!("{verb} {to}"),
            to,
            coercion,
            is_shown: false,
            signature: Signature::any(1, volatility),
        };
        Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(ScalarUDF::new_from_impl(function)),
            vec![argument],
        ))
    }
}

impl ScalarUDFImpl for PostgresCast {
    fn name(&self) -> &str {
        &self.name
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        // A cast does not show in a column's name, as in DataFusion's own.
        let name = args
            .first()
            .map(|argument| argument.schema_name().to_string());
        let name = name.unwrap_or_default();
        Ok(match self.is_shown {
            true => format!("{}({name})", self.name),
            false => name,
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(self.to.field(&self.name, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    /// A date beside a timestamp is compared as a date, so that a scan can do it: which days
    /// begin at that time, or between which two it is.
    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        let (
            [argument],
            SqlType::Timestamp,
            Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), None), _),
        ) = (args, self.to, literal)
        else {
            return Ok(PreimageResult::None);
        };
        if info.get_data_type(argument)? != DataType::Date32 {
            return Ok(PreimageResult::None);
        }
        let day_after = i32::try_from(micros.div_euclid(DAY_MICROS)).ok();
        let Some(day_after) = day_after.and_then(|day| day.checked_add(1)) else {
            return Ok(PreimageResult::None);
        };
        let is_midnight = micros.rem_euclid(DAY_MICROS) == 0;
        let first = day_after - i32::from(is_midnight);
        let day = |day| ScalarValue::Date32(Some(day));
        Ok(PreimageResult::Range {
            expr: argument.clone(),
            interval: Box::new(Interval::try_new(day(first), day(day_after))?),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = Zone::of(&args.config_options);
        if let Some(item) = args.arg_fields.first().and_then(|of| SqlType::item_of(of)) {
            let (lists, is_constant) = match &args.args[0] {
                ColumnarValue::Array(lists) => (Arc::clone(lists), false),
                ColumnarValue::Scalar(list) => (list.to_array()?, true),
            };
            let texts = list_text(&lists, &item, &zone)?;
            let texts = text::from_text(&texts, self.to, self.coercion, &zone)?;
            return match is_constant {
                true => ScalarValue::try_from_array(&texts, 0).map(ColumnarValue::Scalar),
                false => Ok(ColumnarValue::Array(texts)),
            };
        }
        let Some(from) = args
            .arg_fields
            .first()
            .and_then(|field| SqlType::of_field(field))
        else {
            return Err(raise(
                ErrorKind::CannotCoerce,
                format!("cannot cast to type {}", self.to.plain_name()),
            ));
        };
        match &args.args[0] {
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(convert(
                array,
                from,
                self.to,
                self.coercion,
                &zone,
            )?)),
            ColumnarValue::Scalar(value) => {
                let converted = convert(&value.to_array()?, from, self.to, self.coercion, &zone)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                    &converted, 0,
                )?))
            }
        }
    }
}

/// A cast that shows in its name: as a side of a comparison it may be the key of a join, and
/// then stands beside the column itself.
pub(crate) fn shown(expr: Expr) -> Expr {
    let Expr::ScalarFunction(call) = &expr else {
        return expr;
    };
    match call.func.inner().downcast_ref::<PostgresCast>() {
        Some(cast) if !cast.is_shown => {
            let cast = PostgresCast {
                is_shown: true,
                ..cast.clone()
            };
            let function = Arc::new(ScalarUDF::new_from_impl(cast));
            Expr::ScalarFunction(ScalarFunction::new_udf(function, call.args.clone()))
        }
        _ => expr,
    }
}

/// The type that a function made here casts to; nothing for other functions.
pub(crate) fn target_of(function: &ScalarUDF) -> Option<SqlType> {
    let cast = function.inner().downcast_ref::<PostgresCast>()?;
    (cast.coercion == Coercion::Explicit).then_some(cast.to)
}

/// Converts an array of `from` values, in whatever Arrow form, to `to`.
///
/// # Errors
/// As PostgreSQL: `CannotCoerce`, `InvalidTextRepresentation`, `NumericValueOutOfRange` and so on.
pub(crate) fn convert(
    array: &ArrayRef,
    from: SqlType,
    to: SqlType,
    coercion: Coercion,
    zone: &Zone,
) -> Result<ArrayRef> {
    let converted = converted(array, from, to, coercion, zone)?;
    assert_eq!(
        converted.len(),
        array.len(),
        "a cast of {from} to {to} gives each row a value"
    );
    Ok(converted)
}

fn converted(
    array: &ArrayRef,
    from: SqlType,
    to: SqlType,
    coercion: Coercion,
    zone: &Zone,
) -> Result<ArrayRef> {
    let canonical = SqlType::of_arrow(array.data_type()).map_or(from, |plain| match from {
        SqlType::Char(_) | SqlType::Varchar(_) => from,
        _ => plain,
    });
    let array = if *array.data_type() == canonical.arrow() {
        Arc::clone(array)
    } else {
        arrow::compute::cast(array, &canonical.arrow())?
    };
    if array.data_type().is_null() {
        return Ok(arrow::array::new_null_array(&to.arrow(), array.len()));
    }
    if canonical.is_text() {
        return text::from_text(&array, to, coercion, zone);
    }
    if to.is_text() {
        return text::to_text(&array, canonical, to, coercion, zone);
    }
    if let Some(converted) = number::convert(&array, canonical, to)? {
        return Ok(converted);
    }
    if let Some(converted) = time::convert(&array, canonical, to, zone)? {
        return Ok(converted);
    }
    if canonical == to {
        Ok(array)
    } else {
        Err(cannot_cast(canonical, to))
    }
}

fn cannot_cast(from: SqlType, to: SqlType) -> datafusion::common::DataFusionError {
    raise(
        ErrorKind::CannotCoerce,
        format!(
            "cannot cast type {} to {}",
            from.plain_name(),
            to.plain_name()
        ),
    )
}

/// Reads a string literal as `ty` without its modifiers: a number keeps its own
/// digits after the point, a text its length.
///
/// # Errors
/// `InvalidTextRepresentation` and its like.
pub(crate) fn literal(text: &str, ty: SqlType, zone: &Zone) -> Result<ScalarValue> {
    let ty = match ty {
        SqlType::Char(_) => {
            return Ok(ScalarValue::Utf8View(Some(
                text.trim_end_matches(' ').to_owned(),
            )));
        }
        SqlType::Varchar(_) | SqlType::Text => {
            return Ok(ScalarValue::Utf8View(Some(text.to_owned())));
        }
        SqlType::Numeric { .. } => return number::literal(text),
        other => other,
    };
    let array: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
    ScalarValue::try_from_array(&text::from_text(&array, ty, Coercion::Explicit, zone)?, 0)
}

/// What kind of cast PostgreSQL has from one type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CastClass {
    /// None.
    Missing,
    /// Only where the user writes it.
    Explicit,
    /// Also where a value is stored.
    Assignment,
}

pub(crate) fn is_number(ty: SqlType) -> bool {
    matches!(
        ty,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Numeric { .. }
    )
}

/// Whether a cast goes between local time and instants, which Arrow takes for the same.
pub(crate) fn depends_on_zone(from: SqlType, to: SqlType) -> bool {
    use SqlType::{Date, Time, Timestamp, TimestampTz};
    matches!(
        (from, to),
        (Date | Timestamp, TimestampTz) | (TimestampTz, Date | Time | Timestamp)
    )
}

pub(crate) fn class(from: SqlType, to: SqlType) -> CastClass {
    use SqlType::*;
    match (from, to) {
        _ if from.oid() == to.oid() => CastClass::Assignment,
        _ if is_number(from) && is_number(to) => CastClass::Assignment,
        _ if to.is_text() => CastClass::Assignment,
        (Char(_) | Varchar(_) | Text, _) => CastClass::Explicit,
        (Integer, Boolean) | (Boolean, Integer) => CastClass::Explicit,
        (Date, Timestamp | TimestampTz) | (Timestamp, Date | Time | TimestampTz) => {
            CastClass::Assignment
        }
        (TimestampTz, Date | Time | Timestamp) | (Time, Interval) | (Interval, Time) => {
            CastClass::Assignment
        }
        _ => CastClass::Missing,
    }
}

/// Whether Arrow's cast gives what PostgreSQL's gives for every value.
pub(super) fn arrow_agrees(from: &DataType, to: SqlType) -> bool {
    use DataType::*;
    match (from, to) {
        (Int8 | UInt8, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => true,
        (Int16 | UInt16, SqlType::Integer | SqlType::BigInt)
        | (Int32 | UInt32, SqlType::BigInt) => true,
        (Int16 | Int32 | Int64, SqlType::Double)
        | (Int16, SqlType::Real)
        | (Float32, SqlType::Double) => true,
        (Int16, SqlType::Numeric { precision, scale }) => digits_before(precision, scale) >= 5,
        (Int32, SqlType::Numeric { precision, scale }) => digits_before(precision, scale) >= 10,
        (Int64, SqlType::Numeric { precision, scale }) => digits_before(precision, scale) >= 19,
        (Decimal128(p, s), SqlType::Numeric { precision, scale }) => {
            scale >= *s && digits_before(precision, scale) >= digits_before(*p, *s)
        }
        (Boolean, SqlType::Integer) => true,
        (Utf8 | LargeUtf8 | Utf8View, SqlType::Text | SqlType::Varchar(None)) => true,
        (Timestamp(_, None), SqlType::Timestamp)
        | (Timestamp(_, Some(_)), SqlType::TimestampTz) => true,
        (from, to) => *from == to.arrow() && !to.is_text(),
    }
}

fn digits_before(precision: u8, scale: i8) -> i16 {
    i16::from(precision) - i16::from(scale)
}

/// What `target` asks for of a value of type `from`: `numeric` without
/// precision keeps the value's own scale.
fn target_type(from: Option<SqlType>, target: &Field) -> Option<SqlType> {
    let asked = target.metadata().get(SQL_TYPE_KEY).map(String::as_str);
    let to = SqlType::of_field(target)?;
    if asked != Some(ANY_NUMERIC) {
        // A target that names its type in another way belongs to the catalogue.
        return asked
            .is_none_or(|name| name.parse::<SqlType>().is_ok())
            .then_some(to);
    }
    Some(match from {
        Some(SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => SqlType::Numeric {
            precision: 19,
            scale: 0,
        },
        Some(numeric @ SqlType::Numeric { .. }) => numeric,
        _ => to,
    })
}

/// Whether the metadata of a cast's target names a catalogue type such as `regclass`.
pub(crate) fn is_catalogue_type(target: &Field) -> bool {
    target
        .metadata()
        .get(SQL_TYPE_KEY)
        .is_some_and(|name| name.parse::<SqlType>().is_err())
}

/// The expression for a cast of `expr`, a value of `from`, to `target`.
///
/// # Errors
/// `CannotCoerce` where PostgreSQL has no such cast; errors of values where a literal is cast.
pub(crate) fn resolve(expr: Expr, from: &Field, target: &FieldRef, zone: &Zone) -> Result<Expr> {
    let from_type = SqlType::of_field(from);
    if let (DataType::List(_), Some(to)) = (from.data_type(), SqlType::of_field(target))
        && to.is_text()
    {
        return Ok(PostgresCast::call(None, to, Coercion::Explicit, expr));
    }
    if let (DataType::List(_), Expr::Literal(ScalarValue::Utf8(Some(text)), _)) =
        (target.data_type(), &expr)
    {
        let list = Expr::Literal(list::literal(text, target.data_type(), zone)?, None);
        let (_, from) = list.to_field(&DFSchema::empty())?;
        return Ok(list::resolve(&list, &from, target)?.unwrap_or(list));
    }
    if let Some(cast) = list::resolve(&expr, from, target)? {
        return Ok(cast);
    }
    let (Some(from_type), Some(to)) = (from_type, target_type(from_type, target)) else {
        return Ok(Expr::Cast(Cast::new_from_field(
            Box::new(expr),
            Arc::clone(target),
        )));
    };
    if let Expr::Literal(value, metadata) = &expr {
        if zone.is_unsettled() && (to == SqlType::TimestampTz || from_type == SqlType::TimestampTz)
        {
            return Ok(Expr::Cast(Cast::new_from_field(
                Box::new(expr),
                Arc::clone(target),
            )));
        }
        let value = fold(value, from_type, to, target, zone)?;
        // Texts of a length look like texts, so the literal says what it is.
        let named = matches!(to, SqlType::Char(_) | SqlType::Varchar(_))
            .then(|| to.field("", true).metadata().clone().into());
        let named = match to {
            // Of a value of another type it says what it was.
            SqlType::Text => None,
            _ => named.or_else(|| metadata.clone()),
        };
        return Ok(Expr::Literal(value, named));
    }
    if !matches!(from.data_type(), DataType::Null) && class(from_type, to) == CastClass::Missing {
        return Err(cannot_cast(from_type, to));
    }
    if *from.data_type() == to.arrow() && !to.is_text() {
        return Ok(expr);
    }
    if from.data_type().is_null() || arrow_agrees(from.data_type(), to) {
        let field = Arc::new(target.as_ref().clone().with_data_type(to.arrow()));
        return Ok(Expr::Cast(Cast::new_from_field(Box::new(expr), field)));
    }
    Ok(PostgresCast::call(
        Some(from_type),
        to,
        Coercion::Explicit,
        expr,
    ))
}

/// A literal's value after a cast. Literals are cast when the statement is
/// planned, as in PostgreSQL, so that a bad one is an error even over no rows.
fn fold(
    value: &ScalarValue,
    from: SqlType,
    to: SqlType,
    target: &Field,
    zone: &Zone,
) -> Result<ScalarValue> {
    if value.is_null() {
        return ScalarValue::try_new_null(&to.arrow());
    }
    if let (ScalarValue::Utf8(Some(text)), Some(ANY_NUMERIC)) = (
        value,
        target.metadata().get(SQL_TYPE_KEY).map(String::as_str),
    ) {
        return number::literal(text);
    }
    if class(from, to) == CastClass::Missing {
        return Err(cannot_cast(from, to));
    }
    let array = convert(&value.to_array()?, from, to, Coercion::Explicit, zone)?;
    ScalarValue::try_from_array(&array, 0)
}

#[cfg(test)]
mod tests;
