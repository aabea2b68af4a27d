//! Functions on dates, times and intervals.

mod fields;
mod making;
mod now;

pub(super) use making::rounded_moment;
pub(crate) use making::{KEEP_FIELDS, ROUND_TIME, code_of, interval_larger, interval_smaller};
pub use now::Times;

use std::sync::{Arc, LazyLock};

use aerostat_types::text::{self as form, civil_from_days, days_from_civil};
use aerostat_types::{ErrorKind, SqlType, ZoneName};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::cast::DAY_MICROS;
use super::cast::{Coercion, Zone, convert, out_of_range};
use super::overload::{Call, Overload, Returns, function};
use crate::raise;
use fields::{
    EXTRACT_SCALE, JULIAN_SCALE, Moment, Unit, field_of_interval, field_of_moment, truncate,
};

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

fn moment_in_zone(micros: i64, zone: &Zone) -> Result<Moment> {
    Ok(Moment {
        local_micros: zone.local(micros)?,
        offset_seconds: Some(zone.get().offset_at(micros)),
        is_date: false,
        is_time: false,
    })
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
fn scaled_field(call: &Call, of_date: fn(i32) -> Moment) -> Result<PrimitiveArray<Decimal128Type>> {
    let zone = call.zone;
    match call.args[1].data_type() {
        DataType::Date32 => by_unit::<Date32Type, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &of_date(v))
        }),
        DataType::Time64(_) => by_unit::<Time64MicrosecondType, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_of_time(v))
        }),
        DataType::Timestamp(_, Some(_)) => by_unit::<Ts, _>(call, |name, unit, v| {
            field_of_moment(name, unit, &moment_in_zone(v, &zone)?)
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
    let DataType::Decimal128(precision, scale) = *call.returns else {
        return Err(raise(ErrorKind::Internal, "extract gives a numeric"));
    };
    if scale == JULIAN_SCALE {
        let values = julian_days(call)?;
        return Ok(Arc::new(values.with_precision_and_scale(precision, scale)?));
    }
    let scaled = scaled_field(call, moment_of_day)?;
    let divisor = super::cast::POWERS_OF_TEN[(EXTRACT_SCALE - scale) as usize];
    let values: PrimitiveArray<Decimal128Type> = scaled.unary(|value| value / divisor);
    Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
}

fn date_part_body(call: &Call) -> Result<ArrayRef> {
    // A date has its time, unlike with `extract`: it is midnight.
    let midnight = |date| moment_of(i64::from(date) * DAY_MICROS);
    let scaled = scaled_field(call, midnight)?;
    Ok(Arc::new(scaled.unary::<_, Float64Type>(|value| {
        super::cast::decimal_to_f64(value, EXTRACT_SCALE)
    })))
}

/// The Julian days of timestamps, which have a fraction that six digits do not hold.
fn julian_days(call: &Call) -> Result<PrimitiveArray<Decimal128Type>> {
    let has_zone = matches!(call.args[1].data_type(), DataType::Timestamp(_, Some(_)));
    let micros = call.args[1].as_primitive::<Ts>();
    micros.try_unary(|at| {
        Ok(fields::julian(match has_zone {
            true => call.zone.local(at)?,
            false => at,
        }))
    })
}

/// PostgreSQL gives each field its own scale: seconds and epoch six digits,
/// milliseconds three, the others none; twenty to the Julian day of a timestamp, as of noon.
fn extract_type(arguments: &[DataType], constants: &[Option<&ScalarValue>]) -> DataType {
    let unit = match constants.first() {
        Some(Some(value)) => value
            .try_as_str()
            .flatten()
            .and_then(|name| Unit::parse(name, "").ok()),
        _ => None,
    };
    let scale = match (unit, arguments.get(1)) {
        // Days have no fractions.
        (Some(_), Some(DataType::Date32)) => 0,
        (Some(Unit::Julian), Some(DataType::Timestamp(..))) => JULIAN_SCALE,
        (Some(unit), _) => unit.scale(),
        (None, _) => EXTRACT_SCALE,
    };
    DataType::Decimal128(38, scale)
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
                truncate_in_zone(name, unit, v, ZoneName::Zone(zone.get())).map(Some)
            })?;
            Ok(Arc::new(truncated.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::TimestampTz, SqlType::Text],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| {
            let units = call.args[0].as_string_view();
            let values = call.args[1].as_primitive::<Ts>();
            let zones = call.args[2].as_string_view();
            let rows = units.iter().zip(values.iter()).zip(zones.iter());
            let truncated = rows.map(|((name, value), zone)| {
                let (Some(name), Some(value), Some(zone)) = (name, value, zone) else {
                    return Ok(None);
                };
                let unit = Unit::parse(name, TIMESTAMPTZ_NAME)?;
                truncate_in_zone(name, unit, value, zone_of(zone)?).map(Some)
            });
            let truncated = truncated.collect::<Result<PrimitiveArray<Ts>>>()?;
            Ok(Arc::new(truncated.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Interval],
        returns: Returns::Type(SqlType::Interval),
        body: truncated_intervals,
    },
    // A time is an interval where one is wanted.
    Overload {
        parameters: &[SqlType::Text, SqlType::Time],
        returns: Returns::Type(SqlType::Interval),
        body: |call| {
            let intervals = time_as_interval(&call.args[1], &call.zone)?;
            truncated_intervals(&Call {
                args: &[Arc::clone(&call.args[0]), intervals],
                ..*call
            })
        },
    },
];

const TIMESTAMPTZ_NAME: &str = "timestamp with time zone";

fn truncated_intervals(call: &Call) -> Result<ArrayRef> {
    type I = IntervalMonthDayNanoType;
    Ok(Arc::new(by_unit::<I, I>(call, |name, unit, v| {
        fields::truncate_interval(name, unit, v).map(Some)
    })?))
}

/// Times of day as intervals.
pub(super) fn time_as_interval(times: &ArrayRef, zone: &Zone) -> Result<ArrayRef> {
    convert(
        times,
        SqlType::Time,
        SqlType::Interval,
        Coercion::Explicit,
        zone,
    )
}

/// An instant cut to a unit on a zone's clock. A day and what is longer begins by the offset that
/// it begins with, an hour and what is shorter keeps its own.
fn truncate_in_zone(name: &str, unit: Unit, at: i64, zone: ZoneName) -> Result<i64> {
    let local = zone.to_local(at).ok_or_else(out_of_range)?;
    let begin =
        truncate(name, unit, local).map_err(|_| fields::not_cut(name, unit, TIMESTAMPTZ_NAME))?;
    match unit.is_below_day() {
        true => Ok(at - (local - begin)),
        false => zone.to_instant(begin).ok_or_else(out_of_range),
    }
}

/// The zone that a name in a value stands for.
fn zone_of(name: &str) -> Result<ZoneName> {
    ZoneName::read(name).ok_or_else(|| {
        raise(
            ErrorKind::InvalidParameterValue,
            format!("time zone \"{name}\" not recognized"),
        )
    })
}

/// Applies `f` to the zone that the first argument is and each value of the second.
fn zoned(call: &Call, f: impl Fn(&ZoneName, i64) -> Option<i64>) -> Result<PrimitiveArray<Ts>> {
    let values = call.args[1].as_primitive::<Ts>();
    let mut last: Option<(String, ZoneName)> = None;
    let mut results = Vec::with_capacity(values.len());
    for row in 0..values.len() {
        let (false, false) = (call.args[0].is_null(row), values.is_null(row)) else {
            results.push(None);
            continue;
        };
        let zone = match call.args[0].data_type() {
            DataType::Interval(_) => zone_of_interval(call, row)?,
            _ => {
                let name = call.args[0].as_string_view().value(row);
                match &last {
                    Some((known, zone)) if known == name => *zone,
                    _ => last.insert((name.to_owned(), zone_of(name)?)).1,
                }
            }
        };
        let moved = f(&zone, values.value(row)).ok_or_else(out_of_range)?;
        results.push(Some(moved));
    }
    Ok(results.into_iter().collect())
}

/// The zone that is an interval east of UTC.
fn zone_of_interval(call: &Call, row: usize) -> Result<ZoneName> {
    let value = call.args[0]
        .as_primitive::<IntervalMonthDayNanoType>()
        .value(row);
    if value.months != 0 || value.days != 0 {
        let mut text = String::new();
        let interval = form::Interval {
            months: value.months,
            days: value.days,
            micros: value.nanoseconds / 1000,
        };
        form::format_interval(interval, &mut text);
        let message = format!("interval time zone \"{text}\" must not include months or days");
        return Err(raise(ErrorKind::InvalidParameterValue, message));
    }
    let seconds = i32::try_from(value.nanoseconds / 1_000_000_000);
    seconds.map(ZoneName::Fixed).map_err(|_| out_of_range())
}

fn instants_of_locals(call: &Call) -> Result<ArrayRef> {
    let moved = zoned(call, |zone, local| zone.to_instant(local))?;
    Ok(Arc::new(moved.with_timezone("UTC")))
}

fn locals_of_instants(call: &Call) -> Result<ArrayRef> {
    Ok(Arc::new(zoned(call, |zone, at| zone.to_local(at))?))
}

fn no_timetz(_: &Call) -> Result<ArrayRef> {
    let message = "type time with time zone is not supported";
    Err(raise(ErrorKind::FeatureNotSupported, message))
}

/// A value that nothing has given a type is taken for the first one.
const TIMEZONE: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Text, SqlType::TimestampTz],
        returns: Returns::Type(SqlType::Timestamp),
        body: locals_of_instants,
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Timestamp],
        returns: Returns::Type(SqlType::TimestampTz),
        body: instants_of_locals,
    },
    Overload {
        parameters: &[SqlType::Interval, SqlType::TimestampTz],
        returns: Returns::Type(SqlType::Timestamp),
        body: locals_of_instants,
    },
    Overload {
        parameters: &[SqlType::Interval, SqlType::Timestamp],
        returns: Returns::Type(SqlType::TimestampTz),
        body: instants_of_locals,
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Time],
        returns: Returns::Type(SqlType::Time),
        body: no_timetz,
    },
    Overload {
        parameters: &[SqlType::Interval, SqlType::Time],
        returns: Returns::Type(SqlType::Time),
        body: no_timetz,
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
        // The days of the month that the earlier time lies in.
        days += days_in_month(y2, m2);
        months -= 1;
    }
    IntervalMonthDayNano::new(
        (sign * months) as i32,
        (sign * days) as i32,
        sign * micros * 1000,
    )
}

pub(super) fn days_in_month(year: i64, month: u32) -> i64 {
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
    let has_zone = matches!(call.args[0].data_type(), DataType::Timestamp(_, Some(_)));
    let local = |at: i64| match has_zone {
        true => call.zone.local(at),
        false => Ok(at),
    };
    let ages = a.iter().zip(b.iter()).map(|pair| match pair {
        (Some(a), Some(b)) => Ok(Some(age_between(local(a)?, local(b)?))),
        _ => Ok(None),
    });
    Ok(Arc::new(
        ages.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?,
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
    f: impl Fn(IntervalMonthDayNano) -> Result<IntervalMonthDayNano>,
) -> Result<ArrayRef> {
    type I = IntervalMonthDayNanoType;
    Ok(Arc::new(
        call.args[0]
            .as_primitive::<I>()
            .try_unary::<_, I, DataFusionError>(&f)?,
    ))
}

const DAY_NANOS: i64 = DAY_MICROS * 1000;

/// An interval of these parts, which are in the range of one.
fn justified(months: i64, days: i64, nanos: i64) -> Result<IntervalMonthDayNano> {
    match (i32::try_from(months), i32::try_from(days)) {
        (Ok(months), Ok(days)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
        _ => Err(raise(
            ErrorKind::DatetimeFieldOverflow,
            "interval out of range",
        )),
    }
}

fn justify_hours(value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let (mut days, mut nanos) = (
        i64::from(value.days) + value.nanoseconds / DAY_NANOS,
        value.nanoseconds % DAY_NANOS,
    );
    if days > 0 && nanos < 0 {
        (days, nanos) = (days - 1, nanos + DAY_NANOS);
    } else if days < 0 && nanos > 0 {
        (days, nanos) = (days + 1, nanos - DAY_NANOS);
    }
    justified(value.months.into(), days, nanos)
}

fn justify_days(value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let (mut months, mut days) = (
        i64::from(value.months) + i64::from(value.days / 30),
        i64::from(value.days % 30),
    );
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    justified(months, days, value.nanoseconds)
}

fn justify_interval(value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let (mut days, mut nanos) = (
        i64::from(value.days) + value.nanoseconds / DAY_NANOS,
        value.nanoseconds % DAY_NANOS,
    );
    let mut months = i64::from(value.months) + days / 30;
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
    justified(months, days, nanos)
}

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
