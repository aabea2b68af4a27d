//! Times made of numbers, and functions of times: bins, fewer digits, overlaps.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use aerostat_types::text::{self, IntervalField, IntervalType, days_from_civil};
use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::days_in_month;
use crate::functions::cast::DAY_MICROS;
use crate::functions::overload::{Call, Overload, Returns, function};
use crate::functions::temporal::{order, shift, shift_in_zone};
use crate::raise;

type Ts = TimestampMicrosecondType;
type Interval = IntervalMonthDayNanoType;

const TIME: Returns = Returns::Type(SqlType::Time);
const TIMESTAMP: Returns = Returns::Type(SqlType::Timestamp);
const TIMESTAMPTZ: Returns = Returns::Type(SqlType::TimestampTz);
const BOOLEAN: Returns = Returns::Type(SqlType::Boolean);

/// Gives a time as many digits after the second's point as its second argument says.
pub(crate) const ROUND_TIME: &str = "round_time";

/// What a type of intervals keeps of an interval: the code of its last field, and its digits
/// after the second's point.
pub(crate) const KEEP_FIELDS: &str = "keep_fields";

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let stable = |name, overloads| function(name, &[], Volatility::Stable, overloads);
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("make_time", MAKE_TIME),
        immutable("make_timestamp", MAKE_TIMESTAMP),
        stable("make_timestamptz", MAKE_TIMESTAMPTZ),
        immutable("make_interval", MAKE_INTERVAL),
        immutable("isfinite", IS_FINITE),
        immutable("date_bin", DATE_BIN),
        immutable(ROUND_TIME, ROUNDED),
        immutable(KEEP_FIELDS, KEPT_FIELDS),
        immutable("overlaps", OVERLAPS),
    ]
}

fn out_of_range(what: &str) -> DataFusionError {
    raise(ErrorKind::DatetimeFieldOverflow, what)
}

fn integer(call: &Call, at: usize, row: usize) -> i32 {
    call.args[at].as_primitive::<Int32Type>().value(row)
}

fn double(call: &Call, at: usize, row: usize) -> f64 {
    call.args[at].as_primitive::<Float64Type>().value(row)
}

/// What `f` makes of each row whose arguments are all there.
fn rows<T: ArrowPrimitiveType>(
    call: &Call,
    f: impl Fn(usize) -> Result<T::Native>,
) -> Result<PrimitiveArray<T>> {
    let made = (0..call.rows).map(|row| match call.args.iter().any(|arg| arg.is_null(row)) {
        true => Ok(None),
        false => f(row).map(Some),
    });
    made.collect()
}

/// The microseconds of a time of day, whose hour is the argument `at`.
fn time_of_day(call: &Call, at: usize, row: usize) -> Result<i64> {
    let (hour, minute) = (integer(call, at, row), integer(call, at + 1, row));
    let second = double(call, at + 2, row);
    let micros = (second * 1e6).round_ties_even();
    let whole = i64::from(hour) * 3600 + i64::from(minute) * 60;
    let fits = (0..=24).contains(&hour)
        && (0..60).contains(&minute)
        && (0.0..=60.0).contains(&second)
        && whole * 1_000_000 + micros as i64 <= DAY_MICROS;
    match fits {
        true => Ok(whole * 1_000_000 + micros as i64),
        false => Err(out_of_range(&format!(
            "time field value out of range: {hour}:{minute:02}:{second:02}"
        ))),
    }
}

const MAKE_TIME: &[Overload] = &[Overload {
    parameters: &[SqlType::Integer, SqlType::Integer, SqlType::Double],
    returns: TIME,
    body: |call| {
        Ok(Arc::new(rows::<Time64MicrosecondType>(call, |row| {
            time_of_day(call, 0, row)
        })?))
    },
}];

fn local_moment(call: &Call, row: usize) -> Result<i64> {
    let [year, month, day] = [0, 1, 2].map(|at| integer(call, at, row));
    // Years before the common era count from −1; there is no year 0.
    let astronomical = i64::from(if year < 0 { year + 1 } else { year });
    let is_month = (1..=12).contains(&month);
    if year == 0
        || !is_month
        || day < 1
        || i64::from(day) > days_in_month(astronomical, month as u32)
    {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        return Err(out_of_range(&message));
    }
    days_from_civil(astronomical, month as u32, day as u32)
        .checked_mul(DAY_MICROS)
        .and_then(|micros| micros.checked_add(time_of_day(call, 3, row).ok()?))
        .map_or_else(
            || {
                time_of_day(call, 3, row)?;
                Err(out_of_range("timestamp out of range"))
            },
            Ok,
        )
}

const MOMENT: &[SqlType] = &[
    SqlType::Integer,
    SqlType::Integer,
    SqlType::Integer,
    SqlType::Integer,
    SqlType::Integer,
    SqlType::Double,
];

const MAKE_TIMESTAMP: &[Overload] = &[Overload {
    parameters: MOMENT,
    returns: TIMESTAMP,
    body: |call| Ok(Arc::new(rows::<Ts>(call, |row| local_moment(call, row))?)),
}];

const MAKE_TIMESTAMPTZ: &[Overload] = &[Overload {
    parameters: MOMENT,
    returns: TIMESTAMPTZ,
    body: |call| {
        let moments = rows::<Ts>(call, |row| {
            let local = local_moment(call, row)?;
            call.zone.instant(local)
        })?;
        Ok(Arc::new(moments.with_timezone("UTC")))
    },
}];

const MAKE_INTERVAL: &[Overload] = &[Overload {
    parameters: &[
        SqlType::Integer,
        SqlType::Integer,
        SqlType::Integer,
        SqlType::Integer,
        SqlType::Integer,
        SqlType::Integer,
        SqlType::Double,
    ],
    returns: Returns::Type(SqlType::Interval),
    body: |call| {
        let made = rows::<Interval>(call, |row| {
            let [years, months, weeks, days, hours, minutes] =
                [0, 1, 2, 3, 4, 5].map(|at| i64::from(integer(call, at, row)));
            let seconds = (double(call, 6, row) * 1e6).round_ties_even();
            let micros = (hours * 3600 + minutes * 60) * 1_000_000;
            let nanos = (seconds.abs() < 9e15)
                .then(|| micros.checked_add(seconds as i64)?.checked_mul(1000))
                .flatten();
            let months = i32::try_from(years * 12 + months).ok();
            let days = i32::try_from(weeks * 7 + days).ok();
            match (months, days, nanos) {
                (Some(months), Some(days), Some(nanos)) => {
                    Ok(IntervalMonthDayNano::new(months, days, nanos))
                }
                _ => Err(out_of_range("interval out of range")),
            }
        })?;
        Ok(Arc::new(made))
    },
}];

/// Infinite dates are refused where they would come into being.
fn all_finite(call: &Call) -> Result<ArrayRef> {
    let finite = (0..call.rows).map(|row| call.args[0].is_valid(row).then_some(true));
    Ok(Arc::new(finite.collect::<BooleanArray>()))
}

const IS_FINITE: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Date],
        returns: BOOLEAN,
        body: all_finite,
    },
    Overload {
        parameters: &[SqlType::Timestamp],
        returns: BOOLEAN,
        body: all_finite,
    },
    Overload {
        parameters: &[SqlType::TimestampTz],
        returns: BOOLEAN,
        body: all_finite,
    },
    Overload {
        parameters: &[SqlType::Interval],
        returns: BOOLEAN,
        body: all_finite,
    },
];

fn bins(call: &Call) -> Result<PrimitiveArray<Ts>> {
    rows::<Ts>(call, |row| {
        let stride = call.args[0].as_primitive::<Interval>().value(row);
        if stride.months != 0 {
            let message = "timestamps cannot be binned into intervals containing months or years";
            return Err(raise(ErrorKind::FeatureNotSupported, message));
        }
        let stride = i64::from(stride.days)
            .checked_mul(DAY_MICROS)
            .and_then(|days| days.checked_add(stride.nanoseconds / 1000))
            .ok_or_else(|| out_of_range("interval out of range"))?;
        if stride <= 0 {
            return Err(out_of_range("stride must be greater than zero"));
        }
        let [source, origin] = [1, 2].map(|at| call.args[at].as_primitive::<Ts>().value(row));
        source
            .checked_sub(origin)
            .and_then(|behind| origin.checked_add(behind.div_euclid(stride) * stride))
            .filter(|&at| text::is_timestamp(at))
            .ok_or_else(|| out_of_range("timestamp out of range"))
    })
}

const DATE_BIN: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Interval, SqlType::Timestamp, SqlType::Timestamp],
        returns: TIMESTAMP,
        body: |call| Ok(Arc::new(bins(call)?)),
    },
    Overload {
        parameters: &[
            SqlType::Interval,
            SqlType::TimestampTz,
            SqlType::TimestampTz,
        ],
        returns: TIMESTAMPTZ,
        body: |call| Ok(Arc::new(bins(call)?.with_timezone("UTC"))),
    },
];

/// Rounds to so many digits after the second's point, half away from zero.
fn rounded(micros: i64, digits: i32) -> i64 {
    let unit = 10_i64.pow(6 - digits.clamp(0, 6) as u32);
    let half = if micros < 0 { -unit / 2 } else { unit / 2 };
    micros.saturating_add(half) / unit * unit
}

const ROUNDED: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Time, SqlType::Integer],
        returns: TIME,
        body: |call| {
            Ok(Arc::new(rows::<Time64MicrosecondType>(call, |row| {
                let times = call.args[0].as_primitive::<Time64MicrosecondType>();
                Ok(rounded(times.value(row), integer(call, 1, row)))
            })?))
        },
    },
    Overload {
        parameters: &[SqlType::Timestamp, SqlType::Integer],
        returns: TIMESTAMP,
        body: |call| Ok(Arc::new(rounded_moments(call)?)),
    },
    Overload {
        parameters: &[SqlType::TimestampTz, SqlType::Integer],
        returns: TIMESTAMPTZ,
        body: |call| Ok(Arc::new(rounded_moments(call)?.with_timezone("UTC"))),
    },
];

/// The last field of a type of intervals by its code in a call.
fn field_of(code: i32) -> IntervalField {
    FIELDS
        .get(code.unsigned_abs() as usize)
        .copied()
        .unwrap_or_default()
}

const FIELDS: [IntervalField; 6] = [
    IntervalField::Year,
    IntervalField::Month,
    IntervalField::Day,
    IntervalField::Hour,
    IntervalField::Minute,
    IntervalField::Second,
];

/// The code of a type's last field in a call.
pub(crate) fn code_of(field: IntervalField) -> i32 {
    let at = FIELDS.iter().position(|known| *known == field);
    at.unwrap_or(FIELDS.len() - 1) as i32
}

static INTERVAL_LARGER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let overloads = const { &[longer_of(|call| extreme(call, Ordering::is_ge))] };
    function("interval_larger", &[], Volatility::Immutable, overloads)
});

static INTERVAL_SMALLER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let overloads = const { &[longer_of(|call| extreme(call, Ordering::is_le))] };
    function("interval_smaller", &[], Volatility::Immutable, overloads)
});

/// The longer of two intervals; NULL is neither longer nor shorter than any.
pub(crate) fn interval_larger() -> Arc<ScalarUDF> {
    Arc::clone(&INTERVAL_LARGER)
}

/// The shorter of two intervals, likewise.
pub(crate) fn interval_smaller() -> Arc<ScalarUDF> {
    Arc::clone(&INTERVAL_SMALLER)
}

const fn longer_of(body: fn(&Call) -> Result<ArrayRef>) -> Overload {
    Overload {
        parameters: &[SqlType::Interval, SqlType::Interval],
        returns: Returns::Type(SqlType::Interval),
        body,
    }
}

fn extreme(call: &Call, wins: fn(Ordering) -> bool) -> Result<ArrayRef> {
    let [a, b] = [0, 1].map(|at| call.args[at].as_primitive::<Interval>());
    let chosen = a.iter().zip(b).map(|pair| match pair {
        (Some(a), Some(b)) => Some(if wins(order(a).cmp(&order(b))) { a } else { b }),
        (a, b) => a.or(b),
    });
    Ok(Arc::new(chosen.collect::<PrimitiveArray<Interval>>()))
}

const KEPT_FIELDS: &[Overload] = &[Overload {
    parameters: &[SqlType::Interval, SqlType::Integer, SqlType::Integer],
    returns: Returns::Type(SqlType::Interval),
    body: |call| {
        let kept = rows::<Interval>(call, |row| {
            let value = call.args[0].as_primitive::<Interval>().value(row);
            let ty = IntervalType {
                last: field_of(integer(call, 1, row)),
                digits: u32::try_from(integer(call, 2, row)).ok(),
            };
            let kept = ty.kept(text::Interval {
                months: value.months,
                days: value.days,
                micros: value.nanoseconds / 1000,
            });
            kept.and_then(|kept| {
                let nanos = kept.nanos()?;
                Some(IntervalMonthDayNano::new(kept.months, kept.days, nanos))
            })
            .ok_or_else(|| out_of_range("interval out of range"))
        })?;
        Ok(Arc::new(kept))
    },
}];

fn rounded_moments(call: &Call) -> Result<PrimitiveArray<Ts>> {
    rows::<Ts>(call, |row| {
        let micros = call.args[0].as_primitive::<Ts>().value(row);
        Ok(rounded_moment(micros, integer(call, 1, row)))
    })
}

/// Rounds a moment to so many digits after the second's point, half away from the beginning of 2000, from
/// which PostgreSQL counts.
pub(in crate::functions) fn rounded_moment(micros: i64, digits: i32) -> i64 {
    const EPOCH: i64 = 10_957 * DAY_MICROS;
    rounded(micros.saturating_sub(EPOCH), digits).saturating_add(EPOCH)
}

/// A moment, or the one that an interval behind another leads to.
fn end_of(call: &Call, at: usize, row: usize) -> Result<Option<i64>> {
    let value = |at: usize| match call.args[at].data_type() {
        DataType::Time64(_) => call.args[at]
            .as_primitive::<Time64MicrosecondType>()
            .value(row),
        _ => call.args[at].as_primitive::<Ts>().value(row),
    };
    if call.args[at].is_null(row) {
        return Ok(None);
    }
    if !matches!(call.args[at].data_type(), DataType::Interval(_)) {
        return Ok(Some(value(at)));
    }
    if call.args[at - 1].is_null(row) {
        return Ok(None);
    }
    let interval = call.args[at].as_primitive::<Interval>().value(row);
    let begin = value(at - 1);
    match call.args[at - 1].data_type() {
        DataType::Timestamp(_, Some(_)) => shift_in_zone(begin, interval, 1, &call.zone),
        _ => shift(begin, interval, 1),
    }
    .map(Some)
}

/// Whether two periods overlap. An end may stand before its begin, and one of them be NULL.
fn overlap(call: &Call) -> Result<ArrayRef> {
    let mut answers = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        let period = |at: usize| -> Result<(Option<i64>, Option<i64>)> {
            let begin = end_of(call, at, row)?;
            let end = end_of(call, at + 1, row)?;
            Ok(match (begin, end) {
                (None, end) => (end, None),
                (Some(begin), Some(end)) if end < begin => (Some(end), Some(begin)),
                pair => pair,
            })
        };
        answers.push(overlaps(period(0)?, period(2)?));
    }
    Ok(Arc::new(BooleanArray::from(answers)))
}

type Period = (Option<i64>, Option<i64>);

/// PostgreSQL's `overlaps`, of periods whose begins are there unless both ends are NULL.
fn overlaps(first: Period, second: Period) -> Option<bool> {
    let (begin, other) = (first.0?, second.0?);
    if begin == other {
        // They have the moment in common, if neither is open.
        return match (first.1, second.1) {
            (Some(_), Some(_)) => Some(true),
            _ => None,
        };
    }
    let (earlier, later) = if begin < other {
        (first, second)
    } else {
        (second, first)
    };
    match (earlier.1, later.1) {
        (None, _) => None,
        (Some(end), _) if later.0 < Some(end) => Some(true),
        (_, None) => None,
        _ => Some(false),
    }
}

macro_rules! periods {
    ($ty:expr) => {
        [
            Overload {
                parameters: &[$ty, $ty, $ty, $ty],
                returns: BOOLEAN,
                body: overlap,
            },
            Overload {
                parameters: &[$ty, SqlType::Interval, $ty, SqlType::Interval],
                returns: BOOLEAN,
                body: overlap,
            },
            Overload {
                parameters: &[$ty, SqlType::Interval, $ty, $ty],
                returns: BOOLEAN,
                body: overlap,
            },
            Overload {
                parameters: &[$ty, $ty, $ty, SqlType::Interval],
                returns: BOOLEAN,
                body: overlap,
            },
        ]
    };
}

const OVERLAPS: &[Overload] = {
    const TIMES: [Overload; 4] = periods!(SqlType::Time);
    const TIMESTAMPS: [Overload; 4] = periods!(SqlType::Timestamp);
    const MOMENTS: [Overload; 4] = periods!(SqlType::TimestampTz);
    &[
        TIMES[0],
        TIMESTAMPS[0],
        TIMESTAMPS[1],
        TIMESTAMPS[2],
        TIMESTAMPS[3],
        MOMENTS[0],
        MOMENTS[1],
        MOMENTS[2],
        MOMENTS[3],
    ]
};
