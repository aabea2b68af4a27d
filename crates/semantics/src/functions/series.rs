//! `generate_series` over integers and times.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::{DataType, TimeUnit};
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
        let inner: Vec<Expr> = values
            .iter()
            .map(|value| widened(value).map(|v| Expr::Literal(v, None)))
            .collect::<Result<_>>()?;
        let provider = self
            .0
            .call_with_args(TableFunctionArgs::new(&inner, args.session()))?;
        let column = provider.schema().field(0).name().clone();
        let plan = LogicalPlanBuilder::scan(NAME, provider_as_source(provider), None)?
            .project([Expr::Cast(Cast::new(Box::new(col(column)), result)).alias(NAME)])?
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
        return Err(raise(
            ErrorKind::InvalidParameterValue,
            "step size cannot equal zero",
        ));
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
