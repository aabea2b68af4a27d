//! `generate_series` over numbers and times: in FROM, where it streams, and as a list ([`list`]).

pub(super) mod list;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, TimeUnit};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions_table::generate_series::GenerateSeriesFunc;
use datafusion::logical_expr::{Cast, Expr, LogicalPlanBuilder, col};

use super::cast::{self, Coercion, Zone};
use super::temporal::DAY_MICROS;
use crate::raise;

/// Its name, also that of its column.
pub(super) const NAME: &str = "generate_series";

/// PostgreSQL's function on DataFusion's, which knows only bigint and nanoseconds.
#[derive(Debug)]
pub(super) struct Series(pub(super) GenerateSeriesFunc);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let mut values = args
            .exprs()
            .iter()
            .map(constant)
            .collect::<Result<Vec<_>>>()?;
        type_literals(&mut values, &Zone::of(args.session().config_options()))?;
        if !(2..=3).contains(&values.len()) {
            return Err(undefined(&values));
        }
        let result = result_type(&values)?;
        let scale = match result {
            DataType::Decimal128(_, scale) => Some(scale),
            _ => None,
        };
        if scale.is_some() && values.len() == 2 {
            values.push(ScalarValue::Int64(Some(1)));
        }
        let inner: Vec<Expr> = values
            .iter()
            .map(|value| {
                let value = match scale {
                    Some(scale) => counted(value, scale),
                    None => widened(value),
                };
                value.map(|v| Expr::Literal(v, None))
            })
            .collect::<Result<_>>()?;
        let provider = self
            .0
            .call_with_args(TableFunctionArgs::new(&inner, args.session()))?;
        let column = provider.schema().field(0).name().clone();
        let mut item = col(column);
        if let Some(scale) = scale {
            item = Expr::Cast(Cast::new(Box::new(item), DataType::Decimal128(19, 0)))
                * Expr::Literal(unit(scale), None);
        }
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(provider), None)?
            .project([Expr::Cast(Cast::new(Box::new(item), result)).alias(NAME)])?
            .build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

fn constant(expr: &Expr) -> Result<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Ok(value.clone()),
        Expr::Cast(cast) => constant(&cast.expr)?.cast_to(cast.field.data_type()),
        _ => Err(raise(
            ErrorKind::FeatureNotSupported,
            "generate_series with arguments that are no constants is not supported",
        )),
    }
}

/// String literals are read as what the other bound is, or as the step that it takes.
fn type_literals(values: &mut [ScalarValue], zone: &Zone) -> Result<()> {
    let mut bounds = values.iter().take(2).map(ScalarValue::data_type);
    let typed = bounds.find(|ty| !matches!(ty, DataType::Utf8 | DataType::Null));
    let Some(bound) = typed.as_ref().and_then(SqlType::of_arrow) else {
        return Ok(());
    };
    let step = match bound {
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => SqlType::Interval,
        number => number,
    };
    for (at, value) in values.iter_mut().enumerate() {
        if let ScalarValue::Utf8(Some(text)) = value {
            *value = cast::literal(text, if at < 2 { bound } else { step }, zone)?;
        }
        // As PostgreSQL, which has no series of dates and prefers this to timestamps.
        if matches!(value, ScalarValue::Date32(Some(_))) {
            let to = SqlType::TimestampTz;
            let days = value.to_array()?;
            let moments = cast::convert(&days, SqlType::Date, to, Coercion::Explicit, zone)?;
            *value = ScalarValue::try_from_array(&moments, 0)?;
        }
    }
    Ok(())
}

fn result_type(values: &[ScalarValue]) -> Result<DataType> {
    let is_zero = |value: &ScalarValue| {
        !value.is_null() && ScalarValue::new_zero(&value.data_type()).is_ok_and(|z| z == *value)
    };
    if values.get(2).is_some_and(is_zero) {
        return Err(no_step());
    }
    let scale = |value: &ScalarValue| match value.data_type() {
        DataType::Decimal128(_, scale) => Some(scale),
        _ => None,
    };
    if values.iter().any(|value| value.data_type().is_floating()) {
        return Err(undefined(values));
    }
    if let Some(scale) = values.iter().filter_map(scale).max() {
        return Ok(DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale));
    }
    let mut types = values.iter().map(ScalarValue::data_type);
    Ok(match types.next() {
        Some(DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone),
        Some(DataType::Date32) => DataType::Timestamp(TimeUnit::Microsecond, None),
        Some(DataType::Int64) => DataType::Int64,
        Some(DataType::Int16 | DataType::Int32 | DataType::Null) => {
            if types.any(|ty| ty == DataType::Int64) {
                DataType::Int64
            } else {
                DataType::Int32
            }
        }
        Some(_) => return Err(undefined(values)),
        None => DataType::Int32,
    })
}

fn no_step() -> DataFusionError {
    raise(
        ErrorKind::InvalidParameterValue,
        "step size cannot equal zero",
    )
}

/// One in the last place of a numeric with this scale.
fn unit(scale: i8) -> ScalarValue {
    ScalarValue::Decimal128(Some(1), scale.unsigned_abs() + 1, scale)
}

/// A number counted in the last place of this scale.
fn counted(value: &ScalarValue, scale: i8) -> Result<ScalarValue> {
    let out_of_range = || {
        raise(
            ErrorKind::NumericValueOutOfRange,
            "generate_series of numeric is out of range",
        )
    };
    let to = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
    match value.cast_to(&to).map_err(|_| out_of_range())? {
        ScalarValue::Decimal128(count, ..) => {
            let count = count.map(i64::try_from).transpose();
            Ok(ScalarValue::Int64(count.map_err(|_| out_of_range())?))
        }
        _ => Err(undefined(std::slice::from_ref(value))),
    }
}

fn undefined(values: &[ScalarValue]) -> DataFusionError {
    let types: Vec<String> = values
        .iter()
        .map(|value| crate::name_of_arrow(&value.data_type()))
        .collect();
    let message = format!(
        "function generate_series({}) does not exist",
        types.join(", ")
    );
    crate::external(SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    ))
}

/// A bound or step as DataFusion's function takes it.
fn widened(value: &ScalarValue) -> Result<ScalarValue> {
    let nanos = |micros: i64| {
        micros
            .checked_mul(1000)
            .ok_or_else(|| raise(ErrorKind::DatetimeFieldOverflow, "timestamp out of range"))
    };
    Ok(match value {
        ScalarValue::Int16(v) => ScalarValue::Int64(v.map(i64::from)),
        ScalarValue::Int32(v) => ScalarValue::Int64(v.map(i64::from)),
        ScalarValue::TimestampMicrosecond(Some(micros), zone) => {
            ScalarValue::TimestampNanosecond(Some(nanos(*micros)?), zone.clone())
        }
        ScalarValue::Date32(Some(day)) => {
            ScalarValue::TimestampNanosecond(Some(nanos(i64::from(*day) * DAY_MICROS)?), None)
        }
        other => other.clone(),
    })
}
