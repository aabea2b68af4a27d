//! Functions on dates, times and intervals.

mod fields;
mod making;
mod now;

pub(crate) use making::ROUND_TIME;
pub use now::Times;

use std::sync::{Arc, LazyLock};

use aerostat_types::text::{civil_from_days, days_from_civil};
use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::cast::Zone;
use super::overload::{Call, Overload, Returns, function};
use super::temporal::DAY_MICROS;
use crate::raise;
use fields::{EXTRACT_SCALE, Moment, Unit, field_of_interval, field_of_moment, truncate};

type Ts = TimestampMicrosecondType;

static EXTRACT_FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| function("extract", &[], Volatility::Stable, EXTRACT));

/// `extract(field from source)`, with a numeric result.
pub(crate) fn extract() -> Arc<ScalarUDF> {
    Arc::clone(&EXTRACT_FUNCTION)
}

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let stable =
        |name, aliases: &[&str], overloads| function(name, aliases, Volatility::Stable, overloads);
    let mut functions = vec![
        extract(),
        stable("date_part", &["datepart"], DATE_PART),
        stable("date_trunc", &["datetrunc"], DATE_TRUNC),
        stable("timezone", &[], TIMEZONE),
        stable("age", &[], AGE),
        function("make_date", &[], Volatility::Immutable, MAKE_DATE),
        function("justify_hours", &[], Volatility::Immutable, JUSTIFY_HOURS),
        function("justify_days", &[], Volatility::Immutable, JUSTIFY_DAYS),
        function(
            "justify_interval",
            &[],
            Volatility::Immutable,
            JUSTIFY_INTERVAL,
        ),
        function(
            "clock_timestamp",
            &[],
            Volatility::Volatile,
            CLOCK_TIMESTAMP,
        ),
        stable("to_timestamp", &[], TO_TIMESTAMP),
        Arc::new(ScalarUDF::new_from_impl(now::Now::new(
            "now",
            &["current_timestamp", "transaction_timestamp"],
            SqlType::TimestampTz,
            now::Of::Transaction,
        ))),
        Arc::new(ScalarUDF::new_from_impl(now::Now::new(
            "statement_timestamp",
            &[],
            SqlType::TimestampTz,
            now::Of::Statement,
        ))),
        Arc::new(ScalarUDF::new_from_impl(now::Now::new(
            "localtimestamp",
            &[],
            SqlType::Timestamp,
            now::Of::Transaction,
        ))),
        Arc::new(ScalarUDF::new_from_impl(now::Now::new(
            "current_date",
            &["today"],
            SqlType::Date,
            now::Of::Transaction,
        ))),
        Arc::new(ScalarUDF::new_from_impl(now::Now::new(
            "localtime",
            &["current_time"],
            SqlType::Time,
            now::Of::Transaction,
        ))),
    ];
    functions.extend(making::all());
    functions
}

fn text_argument(call: &Call, at: usize, row: usize) -> Option<String> {
    let texts = call.args[at].as_string_view();
    (!texts.is_null(row)).then(|| texts.value(row).to_owned())
}

/// Applies `f` to the unit that the first argument names and each value of the second.
fn by_unit<A: ArrowPrimitiveType, O: ArrowPrimitiveType>(
    call: &Call,
    f: impl Fn(&str, Unit, A::Native) -> Result<Option<O::Native>>,
) -> Result<PrimitiveArray<O>> {
    let values = call.args[1].as_primitive::<A>();
    let type_name = crate::name_of_arrow(call.args[1].data_type());
    let mut last: Option<(String, Unit)> = None;
    let mut results = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        let Some(name) = text_argument(call, 0, row) else {
            results.push(None);
            continue;
        };
        let unit = match &last {
            Some((known, unit)) if *known == name => *unit,
            _ => Unit::parse(&name, &type_name)?,
        };
        results.push(if values.is_null(row) {
            None
        } else {
            f(&name, unit, values.value(row))?
        });
        last = Some((name, unit));
    }
    Ok(results.into_iter().collect())
}

fn moment_of_day(date: i32) -> Moment {
    Moment {
        local_micros: i64::from(date) * DAY_MICROS,
        offset_seconds: None,
        is_date: true,
        is_time: false,
    }
}

fn moment_in_zone(micros: i64, zone: &Zone) -> Moment {
    let offset = zone.offset_at(micros);
    let local_micros = micros + i64::from(offset) * 1_000_000;
    Moment {
        local_micros,
        offset_seconds: Some(offset),
        is_date: false,
        is_time: false,
    }
}

fn moment_of(micros: i64) -> Moment {
    Moment {
        local_micros: micros,
        offset_seconds: None,
        is_date: false,
        is_time: false,
    }
}

fn moment_of_time(micros: i64) -> Moment {
    Moment {
        local_micros: micros,
        offset_seconds: None,
        is_date: false,
        is_time: true,
    }
}

/// The field as a number scaled by 10^6, whatever the type of the second argument.
fn scaled_field(call: &Call) -> Result<PrimitiveArray<Decimal128Type>> {
    let zone = call.zone;
    match call.args[1].data_type() {
        DataType::Date32 => by_unit::<Date32Type, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_of_day(v))
        }),
        DataType::Time64(_) => by_unit::<Time64MicrosecondType, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_of_time(v))
        }),
        DataType::Timestamp(_, Some(_)) => by_unit::<Ts, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_in_zone(v, &zone))
        }),
        DataType::Timestamp(_, None) => by_unit::<Ts, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_of(v))
        }),
        _ => by_unit::<IntervalMonthDayNanoType, _>(call, |name, unit, v| {
            field_of_interval(name, unit, v)
        }),
    }
}

fn extract_body(call: &Call) -> Result<ArrayRef> {
    let scaled = scaled_field(call)?;
    let DataType::Decimal128(precision, scale) = *call.returns else {
        return Ok(Arc::new(scaled));
    };
    let divisor = super::cast::POWERS_OF_TEN[(EXTRACT_SCALE - scale) as usize];
    let values: PrimitiveArray<Decimal128Type> = scaled.unary(|value| value / divisor);
    Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
}

fn date_part_body(call: &Call) -> Result<ArrayRef> {
    let scaled = scaled_field(call)?;
    Ok(Arc::new(scaled.unary::<_, Float64Type>(|value| {
        super::cast::decimal_to_f64(value, EXTRACT_SCALE)
    })))
}

/// PostgreSQL gives each field its own scale: seconds and epoch six digits,
/// milliseconds three, the others none.
fn extract_type(_: &[DataType], constants: &[Option<&ScalarValue>]) -> DataType {
    let unit = match constants.first() {
        Some(Some(value)) => value
            .try_as_str()
            .flatten()
            .and_then(|name| Unit::parse(name, "").ok()),
        _ => None,
    };
    DataType::Decimal128(38, unit.map_or(EXTRACT_SCALE, Unit::scale))
}

macro_rules! field_overloads {
    ($returns:expr, $body:expr) => {
        &[
            Overload {
                parameters: &[SqlType::Text, SqlType::Date],
                returns: $returns,
                body: $body,
            },
            Overload {
                parameters: &[SqlType::Text, SqlType::Timestamp],
                returns: $returns,
                body: $body,
            },
            Overload {
                parameters: &[SqlType::Text, SqlType::TimestampTz],
                returns: $returns,
                body: $body,
            },
            Overload {
                parameters: &[SqlType::Text, SqlType::Time],
                returns: $returns,
                body: $body,
            },
            Overload {
                parameters: &[SqlType::Text, SqlType::Interval],
                returns: $returns,
                body: $body,
            },
        ]
    };
}

const EXTRACT: &[Overload] = field_overloads!(Returns::Computed(extract_type), extract_body);
const DATE_PART: &[Overload] = field_overloads!(Returns::Type(SqlType::Double), date_part_body);

const DATE_TRUNC: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Text, SqlType::Timestamp],
        returns: Returns::Type(SqlType::Timestamp),
        body: |call| {
            Ok(Arc::new(by_unit::<Ts, Ts>(call, |name, unit, v| {
                truncate(name, unit, v).map(Some)
            })?))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::TimestampTz],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| {
            let zone = call.zone;
            let truncated = by_unit::<Ts, Ts>(call, |name, unit, v| {
                let local = truncate(name, unit, v + i64::from(zone.offset_at(v)) * 1_000_000)?;
                Ok(Some(
                    local - i64::from(zone.offset_at_local(local)) * 1_000_000,
                ))
            })?;
            Ok(Arc::new(truncated.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Interval],
        returns: Returns::Type(SqlType::Interval),
        body: |call| {
            type I = IntervalMonthDayNanoType;
            Ok(Arc::new(by_unit::<I, I>(call, |name, unit, v| {
                fields::truncate_interval(name, unit, v).map(Some)
            })?))
        },
    },
];

fn zoned(call: &Call, f: impl Fn(&Zone, i64) -> i64) -> Result<PrimitiveArray<Ts>> {
    let values = call.args[1].as_primitive::<Ts>();
    let mut results = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        let name = text_argument(call, 0, row);
        results.push(match name {
            Some(name) if !values.is_null(row) => {
                let zone = Zone::named(&name).ok_or_else(|| {
                    raise(
                        ErrorKind::InvalidParameterValue,
                        format!("time zone \"{name}\" not recognized"),
                    )
                })?;
                Some(f(&zone, values.value(row)))
            }
            _ => None,
        });
    }
    Ok(results.into_iter().collect())
}

const TIMEZONE: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Text, SqlType::Timestamp],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| {
            let moved = zoned(call, |zone, v| {
                v - i64::from(zone.offset_at_local(v)) * 1_000_000
            })?;
            Ok(Arc::new(moved.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::TimestampTz],
        returns: Returns::Type(SqlType::Timestamp),
        body: |call| {
            Ok(Arc::new(zoned(call, |zone, v| {
                v + i64::from(zone.offset_at(v)) * 1_000_000
            })?))
        },
    },
];

fn now_micros() -> i64 {
    chrono::Utc::now().timestamp_micros()
}

const CLOCK_TIMESTAMP: &[Overload] = &[Overload {
    parameters: &[],
    returns: Returns::Type(SqlType::TimestampTz),
    body: |call| {
        let values = PrimitiveArray::<Ts>::from_iter_values(
            std::iter::repeat_with(now_micros).take(call.rows),
        );
        Ok(Arc::new(values.with_timezone("UTC")))
    },
}];

/// The months, days and time between two timestamps, as a person counts them.
fn age_between(later: i64, earlier: i64) -> IntervalMonthDayNano {
    let sign = if later < earlier { -1 } else { 1 };
    let (high, low) = if later < earlier {
        (earlier, later)
    } else {
        (later, earlier)
    };
    let (high_day, low_day) = (high.div_euclid(DAY_MICROS), low.div_euclid(DAY_MICROS));
    let ((y1, m1, d1), (y2, m2, d2)) = (civil_from_days(high_day), civil_from_days(low_day));
    let mut micros = high.rem_euclid(DAY_MICROS) - low.rem_euclid(DAY_MICROS);
    let mut days = i64::from(d1) - i64::from(d2);
    let mut months = (y1 - y2) * 12 + i64::from(m1) - i64::from(m2);
    if micros < 0 {
        micros += DAY_MICROS;
        days -= 1;
    }
    if days < 0 {
        // The days of the month that the earlier time lies in, or for a negative age the later.
        let (year, month) = if sign > 0 { (y2, m2) } else { (y1, m1) };
        let (year, month) = if sign > 0 || month > 1 {
            (year, if sign > 0 { month } else { month - 1 })
        } else {
            (year - 1, 12)
        };
        days += days_in_month(year, month);
        months -= 1;
    }
    IntervalMonthDayNano::new(
        (sign * months) as i32,
        (sign * days) as i32,
        sign * micros * 1000,
    )
}

fn days_in_month(year: i64, month: u32) -> i64 {
    let next = if month == 12 {
        days_from_civil(year + 1, 1, 1)
    } else {
        days_from_civil(year, month + 1, 1)
    };
    next - days_from_civil(year, month, 1)
}

fn ages(call: &Call) -> Result<ArrayRef> {
    let (a, b) = (
        call.args[0].as_primitive::<Ts>(),
        call.args[1].as_primitive::<Ts>(),
    );
    let ages = a
        .iter()
        .zip(b.iter())
        .map(|(a, b)| a.zip(b).map(|(a, b)| age_between(a, b)));
    Ok(Arc::new(
        ages.collect::<PrimitiveArray<IntervalMonthDayNanoType>>(),
    ))
}

const AGE: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Timestamp, SqlType::Timestamp],
        returns: Returns::Type(SqlType::Interval),
        body: ages,
    },
    Overload {
        parameters: &[SqlType::TimestampTz, SqlType::TimestampTz],
        returns: Returns::Type(SqlType::Interval),
        body: ages,
    },
    Overload {
        parameters: &[SqlType::Timestamp],
        returns: Returns::Type(SqlType::Interval),
        body: |call| {
            let now = now_micros();
            let today = (now + i64::from(call.zone.offset_at(now)) * 1_000_000)
                .div_euclid(DAY_MICROS)
                * DAY_MICROS;
            let ages = call.args[0]
                .as_primitive::<Ts>()
                .iter()
                .map(|at| at.map(|at| age_between(today, at)));
            Ok(Arc::new(
                ages.collect::<PrimitiveArray<IntervalMonthDayNanoType>>(),
            ))
        },
    },
];

const MAKE_DATE: &[Overload] = &[Overload {
    parameters: &[SqlType::Integer, SqlType::Integer, SqlType::Integer],
    returns: Returns::Type(SqlType::Date),
    body: |call| {
        let part = |at: usize| call.args[at].as_primitive::<Int32Type>();
        let (years, months, days) = (part(0), part(1), part(2));
        let made = years
            .iter()
            .zip(months.iter())
            .zip(days.iter())
            .map(|((year, month), day)| {
                let (Some(year), Some(month), Some(day)) = (year, month, day) else {
                    return Ok(None);
                };
                let refused = || {
                    let message =
                        format!("date field value out of range: {year}-{month:02}-{day:02}");
                    raise(ErrorKind::DatetimeFieldOverflow, message)
                };
                // Years before the common era count from −1; there is no year 0.
                let astronomical = i64::from(if year < 0 { year + 1 } else { year });
                if year == 0
                    || !(1..=12).contains(&month)
                    || day < 1
                    || i64::from(day) > days_in_month(astronomical, month as u32)
                {
                    return Err(refused());
                }
                i32::try_from(days_from_civil(astronomical, month as u32, day as u32))
                    .map(Some)
                    .map_err(|_| refused())
            });
        Ok(Arc::new(
            made.collect::<Result<PrimitiveArray<Date32Type>>>()?,
        ))
    },
}];

fn intervals(
    call: &Call,
    f: impl Fn(IntervalMonthDayNano) -> IntervalMonthDayNano,
) -> Result<ArrayRef> {
    type I = IntervalMonthDayNanoType;
    Ok(Arc::new(
        call.args[0]
            .as_primitive::<I>()
            .try_unary::<_, I, DataFusionError>(|v| Ok(f(v)))?,
    ))
}

const DAY_NANOS: i64 = DAY_MICROS * 1000;

fn justify_hours(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (mut days, mut nanos) = (
        value.days + (value.nanoseconds / DAY_NANOS) as i32,
        value.nanoseconds % DAY_NANOS,
    );
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + DAY_NANOS);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - DAY_NANOS);
    }
    IntervalMonthDayNano::new(value.months, days, nanos)
}

fn justify_days(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (mut months, mut days) = (value.months + value.days / 30, value.days % 30);
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    IntervalMonthDayNano::new(months, days, value.nanoseconds)
}

fn justify_interval(value: IntervalMonthDayNano) -> IntervalMonthDayNano {
    let (mut days, mut nanos) = (
        value.days + (value.nanoseconds / DAY_NANOS) as i32,
        value.nanoseconds % DAY_NANOS,
    );
    let mut months = value.months + days / 30;
    days %= 30;
    if months > 0 && (days < 0 || days == 0 && nanos < 0) {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && (days > 0 || days == 0 && nanos > 0) {
        (months, days) = (months + 1, days - 30);
    }
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + DAY_NANOS);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - DAY_NANOS);
    }
    IntervalMonthDayNano::new(months, days, nanos)
}

const TO_TIMESTAMP: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| {
            let seconds = call.args[0].as_primitive::<Float64Type>();
            let micros: PrimitiveArray<Ts> = seconds.try_unary(|seconds| {
                let micros = (seconds * 1e6).round_ties_even();
                if micros.abs() < 9.2e18 {
                    return Ok(micros as i64);
                }
                Err(raise(
                    ErrorKind::DatetimeFieldOverflow,
                    format!("timestamp out of range: \"{seconds}\""),
                ))
            })?;
            Ok(Arc::new(micros.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Text],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| super::format::to_timestamp(call),
    },
];

const INTERVAL: Returns = Returns::Type(SqlType::Interval);
const JUSTIFY_HOURS: &[Overload] = &[Overload {
    parameters: &[SqlType::Interval],
    returns: INTERVAL,
    body: |call| intervals(call, justify_hours),
}];
const JUSTIFY_DAYS: &[Overload] = &[Overload {
    parameters: &[SqlType::Interval],
    returns: INTERVAL,
    body: |call| intervals(call, justify_days),
}];
const JUSTIFY_INTERVAL: &[Overload] = &[Overload {
    parameters: &[SqlType::Interval],
    returns: INTERVAL,
    body: |call| intervals(call, justify_interval),
}];
