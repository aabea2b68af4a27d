//! `percentile_cont`, `percentile_disc` and `mode`, over the array of what they aggregate.
//!
//! PostgreSQL's ordered-set aggregates take a group's values in an order. Here `array_agg`
//! gathers the values in that order, counted and spilled as usual, and a function looks into the
//! array:
//!
//! ```text
//! percentile_cont(0.5) WITHIN GROUP (ORDER BY x)  ─►  "\1percentile_cont"(array_agg(x ORDER BY x), 0.5)
//! ```
//!
//! | function | arguments | returns |
//! |---|---|---|
//! | `percentile_cont` | numbers or intervals, double precision | the value there, interpolated |
//! | `percentile_disc` | any, double precision | the first value at or above there |
//! | `mode` | any | the most frequent value, of several the first |
//!
//! NULLs among the values do not count. An array of fractions gives an array of values. A
//! fraction outside 0 to 1 is `NumericValueOutOfRange`.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, IntervalMonthDayNanoArray, ListArray, UInt32Array,
    UInt32Builder, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float32Type, Float64Type, IntervalMonthDayNanoType,
    IntervalUnit,
};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::arrays::rows::Items;
use super::lists::{item_type, list_of, missing};
use super::temporal;
use crate::growth::{Growth, for_each_row, size_of_argument};
use crate::raise;

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let of = |set| {
        Arc::new(ScalarUDF::new_from_impl(OrderedSet {
            set,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    };
    vec![of(Set::Cont), of(Set::Disc), of(Set::Mode)]
}

/// The function of an array that stands for an ordered-set aggregate; nothing for other names.
pub fn over_array(aggregate: &str) -> Option<&'static str> {
    let mut sets = [Set::Cont, Set::Disc, Set::Mode].into_iter();
    sets.find(|set| set.shown() == aggregate).map(Set::name)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Set {
    Cont,
    Disc,
    Mode,
}

impl Set {
    fn name(self) -> &'static str {
        match self {
            Self::Cont => "\u{1}percentile_cont",
            Self::Disc => "\u{1}percentile_disc",
            Self::Mode => "\u{1}mode",
        }
    }

    fn shown(self) -> &'static str {
        &self.name()[1..]
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedSet {
    set: Set,
    signature: Signature,
}

/// Bytes that a call works with, for each that it is given: what values are compared by.
const WORKING_BYTES: usize = 4;

impl OrderedSet {
    /// The arguments' types as the function takes them.
    fn accepted(&self, arguments: &[DataType]) -> Option<Vec<DataType>> {
        let item = match item_type(arguments.first()?)? {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => &DataType::Utf8View,
            item => item,
        };
        let values = match (self.set, item) {
            (Set::Cont, DataType::Interval(_)) => DataType::Interval(IntervalUnit::MonthDayNano),
            (Set::Cont, number) if number.is_numeric() => DataType::Float64,
            (Set::Cont, _) => return None,
            (_, item) => item.clone(),
        };
        let is_number = |ty: &DataType| {
            ty.is_numeric() || matches!(ty, DataType::Null | DataType::Utf8 | DataType::LargeUtf8)
        };
        match (self.set, &arguments[1..]) {
            (Set::Mode, []) => Some(vec![list_of(values)]),
            (Set::Cont | Set::Disc, [fraction]) => {
                let fraction = match item_type(fraction) {
                    Some(fractions) if is_number(fractions) => list_of(DataType::Float64),
                    None if is_number(fraction) => DataType::Float64,
                    _ => return None,
                };
                Some(vec![list_of(values), fraction])
            }
            _ => None,
        }
    }

    /// PostgreSQL's error, which names the fraction before the values.
    fn missing(&self, arguments: &[DataType]) -> datafusion::common::DataFusionError {
        let mut shown = arguments[1..].to_vec();
        let values = arguments
            .first()
            .map(|list| item_type(list).unwrap_or(list));
        shown.extend(values.cloned());
        missing(self.set.shown(), &shown)
    }
}

impl ScalarUDFImpl for OrderedSet {
    fn name(&self) -> &str {
        self.set.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // The return type raises the error: here it would lose its kind.
        let accepted = self.accepted(arguments);
        Ok(accepted.unwrap_or_else(|| arguments.to_vec()))
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let accepted = self
            .accepted(arguments)
            .ok_or_else(|| self.missing(arguments))?;
        let values = item_type(&accepted[0]).cloned().unwrap_or(DataType::Null);
        Ok(match accepted.get(1) {
            Some(DataType::List(_)) => list_of(values),
            _ => values,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let all_constant = args.args.iter().all(constant);
        let rows = if all_constant { 1 } else { args.number_rows };
        let mut growth = Growth::new();
        let arrays = args.args.iter();
        let arrays = arrays.map(|argument| for_each_row(argument, rows, &mut growth));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let given = arrays.iter().map(|array| size_of_argument(array.as_ref()));
        growth.make(given.sum::<usize>().saturating_mul(WORKING_BYTES))?;
        let sets = Sets::of(arrays[0].as_list::<i32>());
        let result = match (self.set, arrays.get(1)) {
            (Set::Mode, _) => sets.modes(&mut growth)?,
            (set, Some(fractions)) => match fractions.as_list_opt::<i32>() {
                Some(fractions) => sets.lists(set, fractions)?,
                None => {
                    let fractions = fractions.as_primitive::<Float64Type>();
                    let asked = (0..rows).map(|row| (row, value(fractions, row)));
                    sets.at(set, asked)?
                }
            },
            (_, None) => new_null_array(args.return_field.data_type(), rows),
        };
        assert_eq!(result.len(), rows, "each row has the value of its array");
        growth.finish(result, all_constant)
    }
}

fn value(fractions: &Float64Array, at: usize) -> Option<f64> {
    fractions.is_valid(at).then(|| fractions.value(at))
}

/// The values of each group, in order.
struct Sets<'a> {
    values: &'a ArrayRef,
    /// Where the values that are no NULL are, group after group.
    places: Vec<u32>,
    /// Where a group's places begin.
    offsets: Vec<usize>,
}

impl<'a> Sets<'a> {
    fn of(lists: &'a ListArray) -> Self {
        let values = lists.values();
        let (mut places, mut offsets) = (Vec::new(), vec![0]);
        for (row, window) in lists.value_offsets().windows(2).enumerate() {
            if lists.is_valid(row) {
                let all = window[0] as usize..window[1] as usize;
                places.extend(all.filter(|at| values.is_valid(*at)).map(|at| at as u32));
            }
            offsets.push(places.len());
        }
        Self {
            values,
            places,
            offsets,
        }
    }

    fn group(&self, row: usize) -> &[u32] {
        &self.places[self.offsets[row]..self.offsets[row + 1]]
    }

    /// The value at a fraction, for each group and fraction that is asked for.
    fn at(&self, set: Set, asked: impl Iterator<Item = (usize, Option<f64>)>) -> Result<ArrayRef> {
        // The values on both sides, and how far between them.
        let (mut below, mut above) = (UInt32Builder::new(), UInt32Builder::new());
        let mut shares = Vec::new();
        for (row, fraction) in asked {
            if let Some(fraction) = fraction
                && !(0.0..=1.0).contains(&fraction)
            {
                let message = format!("percentile value {fraction} is not between 0 and 1");
                return Err(raise(ErrorKind::NumericValueOutOfRange, message));
            }
            let group = self.group(row);
            let (Some(fraction), false) = (fraction, group.is_empty()) else {
                below.append_null();
                above.append_null();
                shares.push(0.0);
                continue;
            };
            let at = match set {
                Set::Cont => fraction * (group.len() - 1) as f64,
                _ => (fraction * group.len() as f64).ceil().max(1.0) - 1.0,
            };
            below.append_value(group[at.floor() as usize]);
            above.append_value(group[at.ceil() as usize]);
            shares.push(at - at.floor());
        }
        let (below, above) = (below.finish(), above.finish());
        match set {
            Set::Cont => self.between(&below, &above, &shares),
            _ => Ok(take(self.values, &below, None)?),
        }
    }

    fn between(
        &self,
        below: &UInt32Array,
        above: &UInt32Array,
        shares: &[f64],
    ) -> Result<ArrayRef> {
        let (low, high) = (
            take(self.values, below, None)?,
            take(self.values, above, None)?,
        );
        let is_between = |row: usize| below.value(row) != above.value(row);
        if let Some(low) = low.as_primitive_opt::<Float64Type>() {
            let high = high.as_primitive::<Float64Type>();
            let values = low.iter().enumerate().map(|(row, low)| {
                let low = low?;
                Some(match is_between(row) {
                    true => not_signed(low + shares[row] * (high.value(row) - low)),
                    false => low,
                })
            });
            return Ok(Arc::new(values.collect::<Float64Array>()));
        }
        let (low, high) = (
            low.as_primitive::<IntervalMonthDayNanoType>(),
            high.as_primitive::<IntervalMonthDayNanoType>(),
        );
        let values = low.iter().enumerate().map(|(row, low)| {
            let Some(low) = low else { return Ok(None) };
            if !is_between(row) {
                return Ok(Some(low));
            }
            let apart = temporal::add(high.value(row), low, -1)?;
            temporal::add(low, temporal::scale(apart, shares[row])?, 1).map(Some)
        });
        let values = values.collect::<Result<IntervalMonthDayNanoArray>>()?;
        Ok(Arc::new(values))
    }

    /// The values at each of a list of fractions, as lists; NULL for a group without values.
    fn lists(&self, set: Set, fractions: &ListArray) -> Result<ArrayRef> {
        let items = fractions.values().as_primitive::<Float64Type>();
        let (mut asked, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new());
        for (row, window) in fractions.value_offsets().windows(2).enumerate() {
            let is_there = fractions.is_valid(row) && !self.group(row).is_empty();
            let all = match is_there {
                true => window[0] as usize..window[1] as usize,
                false => 0..0,
            };
            lengths.push(all.len());
            valid.push(is_there);
            asked.extend(all.map(|at| (row, value(items, at))));
        }
        let values = self.at(set, asked.into_iter())?;
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let lists = ListArray::try_new(item, offsets, values, Some(NullBuffer::from(valid)))?;
        Ok(Arc::new(lists))
    }

    /// The value that each group has most often, of several the first.
    fn modes(&self, growth: &mut Growth) -> Result<ArrayRef> {
        let keys = keys(self.values);
        let items = Items::of(&[&keys])?;
        let mut modes = UInt32Builder::with_capacity(self.offsets.len() - 1);
        for row in 0..self.offsets.len() - 1 {
            let group = self.group(row);
            growth.work(group.len())?;
            let same = |a: &u32, b: &u32| items.same((0, *a as usize), (0, *b as usize));
            let mut most: Option<&[u32]> = None;
            for run in group.chunk_by(same) {
                if most.is_none_or(|most| run.len() > most.len()) {
                    most = Some(run);
                }
            }
            modes.append_option(most.map(|run| run[0]));
        }
        Ok(take(self.values, &modes.finish(), None)?)
    }
}

/// A difference of infinities is a NaN with a sign, which would come before all numbers.
fn not_signed(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// Values whose bits are the same where the values are equal.
fn keys(values: &ArrayRef) -> ArrayRef {
    // The sum of -0 and 0 is 0.
    match values.data_type() {
        DataType::Float32 => {
            let one = |value: f32| {
                if value.is_nan() {
                    f32::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(
                values
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(one),
            )
        }
        DataType::Float64 => {
            let one = |value: f64| {
                if value.is_nan() {
                    f64::NAN
                } else {
                    value + 0.0
                }
            };
            Arc::new(
                values
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(one),
            )
        }
        DataType::Interval(_) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            Arc::new(intervals.unary::<_, Decimal128Type>(temporal::order))
        }
        _ => Arc::clone(values),
    }
}
