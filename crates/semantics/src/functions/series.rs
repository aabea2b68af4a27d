//! `generate_series` over numbers and times: in FROM, where it streams ([`times`]), and as a list
//! ([`list`]).

pub(super) mod list;
mod times;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions_table::generate_series::GenerateSeriesFunc;
use datafusion::logical_expr::{Cast, Expr, LogicalPlanBuilder, col};

use super::cast::{self, Coercion, Zone};
use super::temporal;
use crate::raise;
use times::{Steps, Times};

/// Its name, also that of its column.
pub(super) const NAME: &str = "generate_series";

/// PostgreSQL's function on DataFusion's, which knows only bigint and nanoseconds.
#[derive(Debug)]
pub(super) struct Series(pub(super) GenerateSeriesFunc);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let zone = Zone::of(args.session().config_options());
        let constants = args.exprs().iter().map(|expr| constant(expr, &zone));
        let mut values = constants.collect::<Result<Vec<_>>>()?;
        type_literals(&mut values, &zone)?;
        if !(2..=3).contains(&values.len()) {
            return Err(undefined(&values));
        }
        let result = result_type(&values)?;
        if let DataType::Timestamp(..) = result {
            let plan =
                LogicalPlanBuilder::scan(NAME, provider_as_source(times(&values, zone)?), None)?
                    .project([col("value").alias(NAME)])?
                    .build()?;
            return Ok(Arc::new(ViewTable::new(plan, None)));
        }
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
                    None => Ok(widened(value)),
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

fn constant(expr: &Expr, zone: &Zone) -> Result<ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Ok(value.clone()),
        Expr::Cast(cast) => {
            let value = constant(&cast.expr, zone)?;
            match (
                SqlType::of_arrow(&value.data_type()),
                SqlType::of_field(&cast.field),
            ) {
                (Some(from), Some(to)) if is_time(to) && !value.is_null() => {
                    converted(&value, from, to, zone)
                }
                _ => value.cast_to(cast.field.data_type()),
            }
        }
        _ => Err(raise(
            ErrorKind::FeatureNotSupported,
            "generate_series with arguments that are no constants is not supported",
        )),
    }
}

fn is_time(ty: SqlType) -> bool {
    use SqlType::{Date, Interval, Time, Timestamp, TimestampTz};
    matches!(ty, Date | Interval | Time | Timestamp | TimestampTz)
}

fn converted(value: &ScalarValue, from: SqlType, to: SqlType, zone: &Zone) -> Result<ScalarValue> {
    let array = cast::convert(&value.to_array()?, from, to, Coercion::Explicit, zone)?;
    ScalarValue::try_from_array(&array, 0)
}

/// Brings the bounds to one type, and string literals to it or to what steps in it.
fn type_literals(values: &mut [ScalarValue], zone: &Zone) -> Result<()> {
    use SqlType::{Date, Interval, Timestamp, TimestampTz};
    let bounds = values.iter().take(2).map(ScalarValue::data_type);
    let typed = bounds.filter(|ty| !matches!(ty, DataType::Utf8 | DataType::Null));
    let known: Vec<SqlType> = typed.filter_map(|ty| SqlType::of_arrow(&ty)).collect();
    let Some(&first) = known.first() else {
        return Ok(());
    };
    let are_times = known
        .iter()
        .all(|ty| matches!(ty, Date | Timestamp | TimestampTz));
    let (bound, step) = match are_times {
        // As PostgreSQL, which has no series of dates and prefers this to timestamps.
        true if known.contains(&TimestampTz) || !known.contains(&Timestamp) => {
            (TimestampTz, Interval)
        }
        true => (Timestamp, Interval),
        false => (first, first),
    };
    for (at, value) in values.iter_mut().enumerate() {
        if let ScalarValue::Utf8(Some(text)) = value {
            *value = cast::literal(text, if at < 2 { bound } else { step }, zone)?;
        } else if are_times
            && at < 2
            && !value.is_null()
            && let Some(from) = SqlType::of_arrow(&value.data_type())
        {
            *value = converted(value, from, bound, zone)?;
        }
    }
    Ok(())
}

/// The table of a series of timestamps.
fn times(values: &[ScalarValue], zone: Zone) -> Result<Arc<dyn TableProvider>> {
    let [start, stop, step] = values else {
        return Err(undefined(values));
    };
    let data_type = match (start.is_null(), stop.is_null()) {
        (true, _) => stop.data_type(),
        _ => start.data_type(),
    };
    let steps = match (start, stop, step) {
        (
            ScalarValue::TimestampMicrosecond(Some(start), has_zone),
            ScalarValue::TimestampMicrosecond(Some(stop), _),
            ScalarValue::IntervalMonthDayNano(Some(step)),
        ) => {
            if temporal::order(*step) == 0 {
                return Err(no_step());
            }
            Some(Steps {
                start: *start,
                stop: *stop,
                step: *step,
                zone: has_zone.is_some().then_some(zone),
            })
        }
        _ if values.iter().any(ScalarValue::is_null) => None,
        _ => return Err(undefined(values)),
    };
    Ok(Arc::new(Times::new(steps, data_type)))
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
    let is_time = |value: &&ScalarValue| matches!(value.data_type(), DataType::Timestamp(..));
    if let Some(time) = values.iter().find(is_time) {
        return Ok(time.data_type());
    }
    let mut types = values.iter().map(ScalarValue::data_type);
    Ok(match types.next() {
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
fn widened(value: &ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Int16(v) => ScalarValue::Int64(v.map(i64::from)),
        ScalarValue::Int32(v) => ScalarValue::Int64(v.map(i64::from)),
        other => other.clone(),
    }
}
