//! Arithmetic on dates, times and intervals.
//!
//! PostgreSQL's operators by operand types, each as one function: `date + 1`,
//! `date - date` (days), `timestamp - timestamp` (days and time), `timestamp +
//! interval` (months, then days, then time; the day is cut to the month's
//! length), `interval * 1.5` (fractions of months spill into days, of days into
//! time). Months and days move in the session's zone for `timestamptz`.

use std::sync::{Arc, LazyLock};

use aerostat_types::text::{civil_from_days, days_from_civil, is_date, is_timestamp};
use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::cast::Zone;
use crate::raise;

/// Microseconds in a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;

/// Days in a month, where an interval is spread or compared, as in PostgreSQL.
const MONTH_DAYS: i64 = 30;

/// One operator on dates, times and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Temporal {
    DatePlusDays,
    DateMinusDays,
    DateMinusDate,
    DatePlusTime,
    TimestampPlusInterval,
    TimestampMinusInterval,
    TimestampTzPlusInterval,
    TimestampTzMinusInterval,
    TimestampMinusTimestamp,
    TimestampTzMinusTimestampTz,
    TimePlusInterval,
    TimeMinusInterval,
    TimeMinusTime,
    IntervalPlusInterval,
    IntervalMinusInterval,
    IntervalTimesNumber,
    IntervalOverNumber,
    /// An interval as one number that orders as intervals do.
    IntervalOrder,
}

const ALL: [Temporal; 18] = [
    Temporal::DatePlusDays,
    Temporal::DateMinusDays,
    Temporal::DateMinusDate,
    Temporal::DatePlusTime,
    Temporal::TimestampPlusInterval,
    Temporal::TimestampMinusInterval,
    Temporal::TimestampTzPlusInterval,
    Temporal::TimestampTzMinusInterval,
    Temporal::TimestampMinusTimestamp,
    Temporal::TimestampTzMinusTimestampTz,
    Temporal::TimePlusInterval,
    Temporal::TimeMinusInterval,
    Temporal::TimeMinusTime,
    Temporal::IntervalPlusInterval,
    Temporal::IntervalMinusInterval,
    Temporal::IntervalTimesNumber,
    Temporal::IntervalOverNumber,
    Temporal::IntervalOrder,
];

static FUNCTIONS: LazyLock<Vec<Arc<ScalarUDF>>> = LazyLock::new(|| {
    ALL.iter()
        .map(|&op| Arc::new(ScalarUDF::new_from_impl(TemporalFunction::new(op))))
        .collect()
});

/// The functions behind the operators, for a registry.
pub(crate) fn all() -> Vec<Arc<ScalarUDF>> {
    FUNCTIONS.clone()
}

/// The operator that a function made here stands for; nothing for other functions.
pub(crate) fn operator_of(function: &ScalarUDF) -> Option<Temporal> {
    function
        .inner()
        .downcast_ref::<TemporalFunction>()
        .map(|function| function.op)
}

impl Temporal {
    /// The function applied to its operands, which must have [`Temporal::operands`]' types.
    pub(crate) fn call(self, args: Vec<Expr>) -> Expr {
        let at = ALL.iter().position(|op| *op == self).unwrap_or(0);
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTIONS[at]), args))
    }

    /// The operand types and the result type.
    fn types(self) -> (Vec<SqlType>, SqlType) {
        use SqlType::{Date, Double, Integer, Interval, Time, Timestamp, TimestampTz};
        match self {
            Self::DatePlusDays | Self::DateMinusDays => (vec![Date, Integer], Date),
            Self::DateMinusDate => (vec![Date, Date], Integer),
            Self::DatePlusTime => (vec![Date, Time], Timestamp),
            Self::TimestampPlusInterval | Self::TimestampMinusInterval => {
                (vec![Timestamp, Interval], Timestamp)
            }
            Self::TimestampTzPlusInterval | Self::TimestampTzMinusInterval => {
                (vec![TimestampTz, Interval], TimestampTz)
            }
            Self::TimestampMinusTimestamp => (vec![Timestamp, Timestamp], Interval),
            Self::TimestampTzMinusTimestampTz => (vec![TimestampTz, TimestampTz], Interval),
            Self::TimePlusInterval | Self::TimeMinusInterval => (vec![Time, Interval], Time),
            Self::TimeMinusTime => (vec![Time, Time], Interval),
            Self::IntervalPlusInterval | Self::IntervalMinusInterval => {
                (vec![Interval, Interval], Interval)
            }
            Self::IntervalTimesNumber | Self::IntervalOverNumber => {
                (vec![Interval, Double], Interval)
            }
            Self::IntervalOrder => (
                vec![Interval],
                SqlType::Numeric {
                    precision: 38,
                    scale: 0,
                },
            ),
        }
    }

    /// The types the operands must be cast to.
    pub(crate) fn operands(self) -> Vec<SqlType> {
        self.types().0
    }

    fn symbol(self) -> Option<Operator> {
        Some(match self {
            Self::DatePlusDays
            | Self::DatePlusTime
            | Self::TimestampPlusInterval
            | Self::TimestampTzPlusInterval
            | Self::TimePlusInterval
            | Self::IntervalPlusInterval => Operator::Plus,
            Self::IntervalTimesNumber => Operator::Multiply,
            Self::IntervalOverNumber => Operator::Divide,
            Self::IntervalOrder => return None,
            _ => Operator::Minus,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::DatePlusDays => "date_plus_days",
            Self::DateMinusDays => "date_minus_days",
            Self::DateMinusDate => "date_minus_date",
            Self::DatePlusTime => "date_plus_time",
            Self::TimestampPlusInterval => "timestamp_plus_interval",
            Self::TimestampMinusInterval => "timestamp_minus_interval",
            Self::TimestampTzPlusInterval => "timestamptz_plus_interval",
            Self::TimestampTzMinusInterval => "timestamptz_minus_interval",
            Self::TimestampMinusTimestamp => "timestamp_minus_timestamp",
            Self::TimestampTzMinusTimestampTz => "timestamptz_minus_timestamptz",
            Self::TimePlusInterval => "time_plus_interval",
            Self::TimeMinusInterval => "time_minus_interval",
            Self::TimeMinusTime => "time_minus_time",
            Self::IntervalPlusInterval => "interval_plus_interval",
            Self::IntervalMinusInterval => "interval_minus_interval",
            Self::IntervalTimesNumber => "interval_times_number",
            Self::IntervalOverNumber => "interval_over_number",
            Self::IntervalOrder => "interval_order",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TemporalFunction {
    op: Temporal,
    signature: Signature,
}

impl TemporalFunction {
    fn new(op: Temporal) -> Self {
        let volatility = match op {
            Temporal::TimestampTzPlusInterval | Temporal::TimestampTzMinusInterval => {
                Volatility::Stable
            }
            _ => Volatility::Immutable,
        };
        let types = op.operands().into_iter().map(SqlType::arrow).collect();
        Self {
            op,
            signature: Signature::exact(types, volatility),
        }
    }
}

impl ScalarUDFImpl for TemporalFunction {
    fn name(&self) -> &str {
        self.op.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(match (self.op.symbol(), args) {
            (Some(symbol), [left, right]) => {
                format!("{} {symbol} {}", left.schema_name(), right.schema_name())
            }
            // The key of a join may stand beside the column itself.
            (_, [single, ..]) if self.op == Temporal::IntervalOrder => {
                format!("{}({})", self.name(), single.schema_name())
            }
            (_, [single, ..]) => single.schema_name().to_string(),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.op.types().1.arrow())
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = Zone::of(&args.config_options);
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let result = evaluate(self.op, &arrays, &zone)?;
        if args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
        {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn overflow(what: &str) -> DataFusionError {
    raise(
        ErrorKind::DatetimeFieldOverflow,
        format!("{what} out of range"),
    )
}

/// A date that an operator came to.
fn days_off(date: Option<i32>) -> Result<i32> {
    date.filter(|&days| is_date(days))
        .ok_or_else(|| overflow("date"))
}

fn binary<A: ArrowPrimitiveType, B: ArrowPrimitiveType, O: ArrowPrimitiveType>(
    arrays: &[ArrayRef],
    f: impl Fn(A::Native, B::Native) -> Result<O::Native>,
) -> Result<PrimitiveArray<O>> {
    let (left, right) = (arrays[0].as_primitive::<A>(), arrays[1].as_primitive::<B>());
    assert_eq!(left.len(), right.len(), "each row has both operands");
    let pairs = left.iter().zip(right.iter());
    pairs
        .map(|(a, b)| a.zip(b).map(|(a, b)| f(a, b)).transpose())
        .collect()
}

/// Evaluates an operator over arrays of its operand types.
pub(crate) fn evaluate(op: Temporal, arrays: &[ArrayRef], zone: &Zone) -> Result<ArrayRef> {
    type D = Date32Type;
    type I = IntervalMonthDayNanoType;
    type T = Time64MicrosecondType;
    type S = TimestampMicrosecondType;
    Ok(match op {
        Temporal::DatePlusDays => Arc::new(binary::<D, Int32Type, D>(arrays, |date, days| {
            days_off(date.checked_add(days))
        })?),
        Temporal::DateMinusDays => Arc::new(binary::<D, Int32Type, D>(arrays, |date, days| {
            days_off(date.checked_sub(days))
        })?),
        Temporal::DateMinusDate => Arc::new(binary::<D, D, Int32Type>(arrays, |a, b| {
            a.checked_sub(b).ok_or_else(|| overflow("date"))
        })?),
        Temporal::DatePlusTime => Arc::new(binary::<D, T, S>(arrays, |date, time| {
            i64::from(date)
                .checked_mul(DAY_MICROS)
                .and_then(|start| start.checked_add(time))
                .filter(|&at| is_timestamp(at))
                .ok_or_else(|| overflow("timestamp"))
        })?),
        Temporal::TimestampPlusInterval => {
            Arc::new(binary::<S, I, S>(arrays, |at, by| shift(at, by, 1))?)
        }
        Temporal::TimestampMinusInterval => {
            Arc::new(binary::<S, I, S>(arrays, |at, by| shift(at, by, -1))?)
        }
        Temporal::TimestampTzPlusInterval => Arc::new(
            binary::<S, I, S>(arrays, |at, by| shift_in_zone(at, by, 1, zone))?
                .with_timezone("UTC"),
        ),
        Temporal::TimestampTzMinusInterval => Arc::new(
            binary::<S, I, S>(arrays, |at, by| shift_in_zone(at, by, -1, zone))?
                .with_timezone("UTC"),
        ),
        // Both count instants, so the zone does not matter.
        Temporal::TimestampMinusTimestamp | Temporal::TimestampTzMinusTimestampTz => {
            Arc::new(binary::<S, S, I>(arrays, |a, b| {
                let micros = a.checked_sub(b).ok_or_else(|| overflow("interval"))?;
                interval(
                    0,
                    micros / DAY_MICROS,
                    i128::from(micros % DAY_MICROS) * 1000,
                )
            })?)
        }
        Temporal::TimePlusInterval => Arc::new(binary::<T, I, T>(arrays, |time, by| {
            Ok((time + by.nanoseconds / 1000).rem_euclid(DAY_MICROS))
        })?),
        Temporal::TimeMinusInterval => Arc::new(binary::<T, I, T>(arrays, |time, by| {
            Ok((time - by.nanoseconds / 1000).rem_euclid(DAY_MICROS))
        })?),
        Temporal::TimeMinusTime => Arc::new(binary::<T, T, I>(arrays, |a, b| {
            Ok(IntervalMonthDayNano::new(0, 0, (a - b) * 1000))
        })?),
        Temporal::IntervalPlusInterval => Arc::new(binary::<I, I, I>(arrays, |a, b| add(a, b, 1))?),
        Temporal::IntervalMinusInterval => {
            Arc::new(binary::<I, I, I>(arrays, |a, b| add(a, b, -1))?)
        }
        Temporal::IntervalTimesNumber => Arc::new(binary::<I, Float64Type, I>(arrays, scale)?),
        Temporal::IntervalOverNumber => {
            Arc::new(binary::<I, Float64Type, I>(arrays, |value, by| {
                if by == 0.0 {
                    return Err(raise(ErrorKind::DivisionByZero, "division by zero"));
                }
                over(value, by)
            })?)
        }
        Temporal::IntervalOrder => {
            let values = arrays[0].as_primitive::<I>();
            let keys: PrimitiveArray<Decimal128Type> = values.unary(order);
            Arc::new(keys.with_precision_and_scale(38, 0)?)
        }
    })
}

/// An interval of three fields.
///
/// # Errors
/// `DatetimeFieldOverflow` when a field is out of range.
pub(super) fn interval(months: i64, days: i64, nanos: i128) -> Result<IntervalMonthDayNano> {
    match (
        i32::try_from(months),
        i32::try_from(days),
        i64::try_from(nanos),
    ) {
        (Ok(months), Ok(days), Ok(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
        _ => Err(overflow("interval")),
    }
}

/// A number that orders intervals.
pub(crate) fn order(value: IntervalMonthDayNano) -> i128 {
    let days = i64::from(value.months) * MONTH_DAYS + i64::from(value.days);
    i128::from(days) * i128::from(DAY_MICROS) * 1000 + i128::from(value.nanoseconds)
}

/// `a` and `sign` times `b`.
pub(super) fn add(
    a: IntervalMonthDayNano,
    b: IntervalMonthDayNano,
    sign: i64,
) -> Result<IntervalMonthDayNano> {
    interval(
        i64::from(a.months) + sign * i64::from(b.months),
        i64::from(a.days) + sign * i64::from(b.days),
        i128::from(a.nanoseconds) + i128::from(sign) * i128::from(b.nanoseconds),
    )
}

pub(super) fn scale(value: IntervalMonthDayNano, by: f64) -> Result<IntervalMonthDayNano> {
    scale_by(fields(value), |part| part * by)
}

/// A share of an interval; `by` is not zero.
pub(super) fn over(value: IntervalMonthDayNano, by: f64) -> Result<IntervalMonthDayNano> {
    scale_by(fields(value), |part| part / by)
}

/// A share of an interval whose hours may be beyond the longest interval; `by` is not zero.
pub(super) fn share(months: i32, days: i32, nanos: i128, by: f64) -> Result<IntervalMonthDayNano> {
    let fields = (f64::from(months), f64::from(days), nanos as f64);
    scale_by(fields, |part| part / by)
}

/// Months, days and nanoseconds.
fn fields(value: IntervalMonthDayNano) -> (f64, f64, f64) {
    let nanos = value.nanoseconds as f64;
    (f64::from(value.months), f64::from(value.days), nanos)
}

/// PostgreSQL's `interval_mul`: the fraction of a month becomes days, the fraction of a day time.
fn scale_by(
    (months, days, nanos): (f64, f64, f64),
    by: impl Fn(f64) -> f64,
) -> Result<IntervalMonthDayNano> {
    let round_micros = |seconds: f64| (seconds * 1e6).round_ties_even() / 1e6;
    let (months, days) = (by(months), by(days));
    let whole_in_range = |part: f64| part.is_finite() && part.abs() < 2_147_483_648.0;
    if !whole_in_range(months) || !whole_in_range(days) {
        return Err(overflow("interval"));
    }
    let month_remainder_days = round_micros((months - months.trunc()) * MONTH_DAYS as f64);
    let mut seconds_remainder =
        (days - days.trunc() + month_remainder_days - month_remainder_days.trunc()) * 86_400.0;
    seconds_remainder = round_micros(seconds_remainder);
    let mut whole_days = days.trunc() as i64 + month_remainder_days.trunc() as i64;
    if seconds_remainder.abs() >= 86_400.0 {
        whole_days += (seconds_remainder / 86_400.0) as i64;
        seconds_remainder -= (seconds_remainder / 86_400.0).trunc() * 86_400.0;
    }
    let micros = (by(nanos / 1000.0) + seconds_remainder * 1e6).round_ties_even();
    if !micros.is_finite() || micros.abs() > 9.2e15 {
        return Err(overflow("interval"));
    }
    interval(
        months.trunc() as i64,
        whole_days,
        i128::from(micros as i64) * 1000,
    )
}

fn month_length(year: i64, month: u32) -> u32 {
    let next = if month == 12 {
        days_from_civil(year + 1, 1, 1)
    } else {
        days_from_civil(year, month + 1, 1)
    };
    (next - days_from_civil(year, month, 1)) as u32
}

/// A timestamp without zone moved by an interval.
pub(crate) fn shift(at: i64, by: IntervalMonthDayNano, sign: i64) -> Result<i64> {
    let out_of_range = || overflow("timestamp");
    let moved = shift_days(at, by, sign)?;
    moved
        .checked_add(sign * (by.nanoseconds / 1000))
        .filter(|&at| is_timestamp(at))
        .ok_or_else(out_of_range)
}

fn shift_days(at: i64, by: IntervalMonthDayNano, sign: i64) -> Result<i64> {
    let out_of_range = || overflow("timestamp");
    let (mut day, time) = (at.div_euclid(DAY_MICROS), at.rem_euclid(DAY_MICROS));
    if by.months != 0 {
        let (year, month, day_of_month) = civil_from_days(day);
        let months = year * 12 + i64::from(month) - 1 + sign * i64::from(by.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        day = days_from_civil(year, month, day_of_month.min(month_length(year, month)));
    }
    day += sign * i64::from(by.days);
    day.checked_mul(DAY_MICROS)
        .and_then(|start| start.checked_add(time))
        .ok_or_else(out_of_range)
}

/// A timestamp with time zone moved by an interval: months, then days on the zone's clock, then
/// time. A local time that does not exist on the way is read as everywhere.
pub(crate) fn shift_in_zone(
    at: i64,
    by: IntervalMonthDayNano,
    sign: i64,
    zone: &Zone,
) -> Result<i64> {
    let mut at = at;
    for step in [
        IntervalMonthDayNano::new(by.months, 0, 0),
        IntervalMonthDayNano::new(0, by.days, 0),
    ] {
        if step.months != 0 || step.days != 0 {
            at = zone.instant(shift_days(zone.local(at)?, step, sign)?)?;
        }
    }
    at.checked_add(sign * (by.nanoseconds / 1000))
        .filter(|&at| is_timestamp(at))
        .ok_or_else(|| overflow("timestamp"))
}
