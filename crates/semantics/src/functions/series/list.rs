//! `generate_series` as a list: a SELECT list unnests it.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{
    Array, ArrayBuilder, ArrayRef, ArrowPrimitiveType, AsArray, ListArray, PrimitiveArray,
    PrimitiveBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, Int32Type, Int64Type,
    IntervalMonthDayNanoType, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::super::cast::Zone;
use super::super::overload::{Call, NUMERIC, Overload, Returns, function};
use super::super::temporal::{order, shift, shift_in_zone};
use super::{NAME, no_step};
use crate::growth::Growth;
use crate::raise;

/// The same function, computed anew for each batch of rows. It is meant for constants beside a
/// table: a list made when the statement is planned would be repeated for every row before
/// anybody has counted.
const EACH: &str = "\u{1}series_each";

/// Bytes that one call may make of a batch of rows.
const BATCH_BYTES_MAX: i128 = 256 << 20;

/// The functions.
pub(in crate::functions) fn all() -> Vec<Arc<ScalarUDF>> {
    vec![
        function(NAME, &[], Volatility::Immutable, OVERLOADS),
        function(EACH, &[], Volatility::Volatile, OVERLOADS),
    ]
}

const OVERLOADS: &[Overload] = {
    use SqlType::{BigInt, Integer, Interval, Timestamp, TimestampTz};
    const fn series(
        parameters: &'static [SqlType],
        body: fn(&Call) -> Result<ArrayRef>,
    ) -> Overload {
        Overload {
            parameters,
            returns: Returns::Computed(result),
            body,
        }
    }
    &[
        series(&[Integer, Integer], numbers::<Int32Type>),
        series(&[Integer, Integer, Integer], numbers::<Int32Type>),
        series(&[BigInt, BigInt], numbers::<Int64Type>),
        series(&[BigInt, BigInt, BigInt], numbers::<Int64Type>),
        series(&[NUMERIC, NUMERIC], decimals),
        series(&[NUMERIC, NUMERIC, NUMERIC], decimals),
        series(&[Timestamp, Timestamp, Interval], times),
        series(&[TimestampTz, TimestampTz, Interval], times),
    ]
};

/// A list of the bounds' type; of numerics, with the longest fraction among the arguments.
fn result(arguments: &[DataType], _: &[Option<&ScalarValue>]) -> DataType {
    let scale = |ty: &DataType| match ty {
        DataType::Decimal128(_, scale) => Some(*scale),
        _ => None,
    };
    let item = match arguments.iter().filter_map(scale).max() {
        Some(scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
        // An argument that is NULL has the type of the others, or integer.
        None => arguments
            .iter()
            .find(|ty| !matches!(ty, DataType::Null | DataType::Interval(_)))
            .cloned()
            .unwrap_or(DataType::Int32),
    };
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// Lists that grow item by item, up to [`BATCH_BYTES_MAX`].
struct Lists<T: ArrowPrimitiveType> {
    items: PrimitiveBuilder<T>,
    lengths: Vec<usize>,
    valid: Vec<bool>,
    begun: usize,
    growth: Growth,
}

impl<T: ArrowPrimitiveType> Lists<T> {
    fn of(rows: usize) -> Self {
        Lists {
            items: PrimitiveBuilder::new(),
            lengths: Vec::with_capacity(rows),
            valid: Vec::with_capacity(rows),
            begun: 0,
            growth: Growth::new(),
        }
    }

    /// Checks that there is room for this many more.
    fn reserve(&self, more: i128) -> Result<()> {
        let items = more.saturating_add(self.items.len() as i128);
        if items.saturating_mul(size_of::<T::Native>() as i128) > BATCH_BYTES_MAX {
            return Err(too_long());
        }
        Ok(())
    }

    fn push(&mut self, item: T::Native) -> Result<()> {
        self.reserve(1)?;
        // In a list that doubles.
        self.growth.make(2 * size_of::<T::Native>())?;
        self.growth.work(size_of::<T::Native>())?;
        self.items.append_value(item);
        Ok(())
    }

    fn end_row(&mut self, is_valid: bool) {
        self.lengths.push(self.items.len() - self.begun);
        self.valid.push(is_valid);
        self.begun = self.items.len();
    }

    fn finish(mut self, returns: &DataType) -> Result<ArrayRef> {
        let DataType::List(item) = returns else {
            return Err(raise(ErrorKind::Internal, "a series that is no list"));
        };
        let items: PrimitiveArray<T> = self.items.finish().with_data_type(item.data_type().clone());
        self.growth.keep(Arc::new(ListArray::try_new(
            Arc::clone(item),
            OffsetBuffer::from_lengths(self.lengths),
            Arc::new(items),
            Some(NullBuffer::from(self.valid)),
        )?))
    }
}

fn too_long() -> datafusion::common::DataFusionError {
    crate::external(
        aerostat_types::SqlError::new(
            ErrorKind::ProgramLimitExceeded,
            "generate_series in a SELECT list makes too many values at once",
        )
        .with_hint("Call it in FROM, with constants, where its values are not gathered."),
    )
}

/// Counts from `start` to `stop`; the series ends where a number would overflow.
fn count<T: ArrowPrimitiveType>(
    lists: &mut Lists<T>,
    (start, stop, step): (i128, i128, i128),
    native: impl Fn(i128) -> Option<T::Native>,
) -> Result<()> {
    if step == 0 {
        return Err(no_step());
    }
    let distance = stop.saturating_sub(start);
    let steps = distance.checked_div(step).unwrap_or(i128::MAX);
    lists.reserve(steps.max(0))?;
    let mut at = start;
    while if step > 0 { at <= stop } else { at >= stop } {
        let Some(item) = native(at) else { break };
        lists.push(item)?;
        let Some(next) = at.checked_add(step) else {
            break;
        };
        at = next;
    }
    Ok(())
}

fn numbers<T>(call: &Call) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i128> + TryFrom<i128>,
{
    let arguments = arguments::<T>(call);
    let mut lists = Lists::<T>::of(call.rows);
    for row in 0..call.rows {
        let is_valid = arguments.iter().all(|argument| argument.is_valid(row));
        if is_valid {
            let value = |at: usize| arguments.get(at).map(|values| values.value(row).into());
            let bounds = (
                value(0).unwrap_or_default(),
                value(1).unwrap_or_default(),
                value(2).unwrap_or(1),
            );
            count(&mut lists, bounds, |item| item.try_into().ok())?;
        }
        lists.end_row(is_valid);
    }
    lists.finish(call.returns)
}

fn arguments<'a, T: ArrowPrimitiveType>(call: &'a Call) -> Vec<&'a PrimitiveArray<T>> {
    let arguments = call.args.iter();
    arguments.map(|argument| argument.as_primitive()).collect()
}

fn decimals(call: &Call) -> Result<ArrayRef> {
    let scale = match call.returns {
        DataType::List(item) => match item.data_type() {
            DataType::Decimal128(_, scale) => *scale,
            _ => 0,
        },
        _ => 0,
    };
    let unit = |scale: i8| 10i128.checked_pow(u32::try_from(scale).unwrap_or(0));
    let arguments = arguments::<Decimal128Type>(call);
    let value = |at: usize, row: usize| match arguments.get(at) {
        Some(values) => unit(scale - values.scale())
            .and_then(|unit| values.value(row).checked_mul(unit))
            .ok_or_else(|| raise(ErrorKind::NumericValueOutOfRange, "numeric field overflow")),
        None => Ok(unit(scale).unwrap_or(1)),
    };
    let mut lists = Lists::<Decimal128Type>::of(call.rows);
    for row in 0..call.rows {
        let is_valid = arguments.iter().all(|argument| argument.is_valid(row));
        if is_valid {
            let bounds = (value(0, row)?, value(1, row)?, value(2, row)?);
            count(&mut lists, bounds, Some)?;
        }
        lists.end_row(is_valid);
    }
    lists.finish(call.returns)
}

fn times(call: &Call) -> Result<ArrayRef> {
    let has_zone = matches!(call.args[0].data_type(), DataType::Timestamp(_, Some(_)));
    let zone: Option<&Zone> = has_zone.then_some(&call.zone);
    let starts = call.args[0].as_primitive::<TimestampMicrosecondType>();
    let stops = call.args[1].as_primitive::<TimestampMicrosecondType>();
    let steps = call.args[2].as_primitive::<IntervalMonthDayNanoType>();
    let mut lists = Lists::<TimestampMicrosecondType>::of(call.rows);
    for row in 0..call.rows {
        let is_valid = starts.is_valid(row) && stops.is_valid(row) && steps.is_valid(row);
        if is_valid {
            let (mut at, stop, step) = (starts.value(row), stops.value(row), steps.value(row));
            let direction = order(step).signum();
            if direction == 0 {
                return Err(no_step());
            }
            while if direction > 0 {
                at <= stop
            } else {
                at >= stop
            } {
                lists.push(at)?;
                at = match zone {
                    Some(zone) => shift_in_zone(at, step, 1, zone)?,
                    None => shift(at, step, 1)?,
                };
            }
        }
        lists.end_row(is_valid);
    }
    lists.finish(call.returns)
}
