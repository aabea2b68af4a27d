//! Intervals: months, days and microseconds, which PostgreSQL keeps apart because months and days
//! differ in length.

use std::borrow::Cow;

use super::{
    TextError, TextSink,
    datetime::{DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, put_fraction},
    format_int, is_blank, put_ascii, trim,
};
use crate::ErrorKind;

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// The part below days in nanoseconds, as Arrow counts; `None` beyond about 292 years of them.
    pub fn nanos(&self) -> Option<i64> {
        self.micros.checked_mul(1000)
    }
}

/// The last field that a type of intervals keeps: `interval day to hour` keeps hours and what is
/// longer, also years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalField {
    /// `year`.
    Year,
    /// `month`, `year to month`.
    Month,
    /// `day`.
    Day,
    /// `hour`, `day to hour`.
    Hour,
    /// `minute`, `day to minute`, `hour to minute`.
    Minute,
    /// `second` and others that end so, or no fields at all.
    #[default]
    Second,
    /// `minute to second`, which reads `1:30` as a minute and a half.
    MinuteToSecond,
}

/// What a type of intervals keeps of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalType {
    /// The last field.
    pub last: IntervalField,
    /// Digits after the second's point, if they are limited.
    pub digits: Option<u32>,
}

impl IntervalField {
    fn unit(self) -> Unit {
        match self {
            Self::Year => Unit::Months(12),
            Self::Month => Unit::Months(1),
            Self::Day => Unit::Days(1),
            Self::Hour => Unit::Micros(HOUR_MICROS),
            Self::Minute => Unit::Micros(MINUTE_MICROS),
            Self::Second | Self::MinuteToSecond => Unit::Micros(SECOND_MICROS),
        }
    }
}

impl IntervalType {
    /// What the type keeps of an interval, as PostgreSQL's casts do. Longer fields than the type
    /// names stay. Nothing beyond the longest time.
    pub fn kept(self, value: Interval) -> Option<Interval> {
        let to = |unit: i64| value.micros / unit * unit;
        let (months, days, micros) = match self.last.unit() {
            Unit::Months(12) => (value.months / 12 * 12, 0, 0),
            Unit::Months(_) => (value.months, 0, 0),
            Unit::Days(_) => (value.months, value.days, 0),
            Unit::Micros(SECOND_MICROS) => (value.months, value.days, value.micros),
            Unit::Micros(unit) => (value.months, value.days, to(unit)),
        };
        let micros = match self.digits {
            Some(digits @ 0..6) => {
                let unit = 10i64.pow(6 - digits);
                let half = if micros < 0 { -unit / 2 } else { unit / 2 };
                micros.checked_add(half)? / unit * unit
            }
            _ => micros,
        };
        Some(Interval {
            months,
            days,
            micros,
        })
    }
}

/// Why a text is refused.
enum Refused {
    Syntax,
    Range,
}

use Refused::{Range, Syntax};

/// A longer text is no interval; PostgreSQL's MAXDATELEN is of this order.
const TEXT_BYTES_MAX: usize = 256;

/// Reads an interval: `1 year 2 mons 3 days 04:05:06.789`, `@ 1 hour ago`, `1-2 3 4:05:06`, `P1Y2M3DT4H5M6S`.
///
/// # Errors
/// `InvalidDatetimeFormat`, `DatetimeFieldOverflow`.
pub fn parse_interval(text: &str) -> Result<Interval, TextError> {
    parse_interval_as(text, IntervalType::default())
}

/// Reads an interval of a type: a number without a unit counts its last field.
///
/// # Errors
/// As [`parse_interval`].
pub fn parse_interval_as(text: &str, ty: IntervalType) -> Result<Interval, TextError> {
    let body = trim(text);
    let result = if body.len() > TEXT_BYTES_MAX || !body.is_ascii() {
        Err(Syntax)
    } else if body.starts_with(['P', 'p']) {
        parse_iso(body)
    } else {
        parse_verbose(body, ty.last)
    };
    let kept = result.and_then(|interval| ty.kept(interval).ok_or(Range));
    kept.map_err(|refused| match refused {
        Syntax => {
            let message = format!(
                "invalid input syntax for type interval: \"{}\"",
                super::quoted(text)
            );
            TextError::new(ErrorKind::InvalidDatetimeFormat, message)
        }
        Range => {
            let message = format!(
                "interval field value out of range: \"{}\"",
                super::quoted(text)
            );
            TextError::new(ErrorKind::DatetimeFieldOverflow, message)
        }
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Micros(i64),
    Days(i64),
    Months(i64),
}

const UNITS: [(&[&str], Unit); 12] = [
    (
        &[
            "us",
            "usec",
            "usecs",
            "usecond",
            "useconds",
            "microsecond",
            "microseconds",
            "microsecon",
        ],
        Unit::Micros(1),
    ),
    (
        &[
            "ms",
            "msec",
            "msecs",
            "msecond",
            "mseconds",
            "millisecond",
            "milliseconds",
            "millisecon",
        ],
        Unit::Micros(1000),
    ),
    (
        &["s", "sec", "secs", "second", "seconds"],
        Unit::Micros(SECOND_MICROS),
    ),
    (
        &["m", "min", "mins", "minute", "minutes"],
        Unit::Micros(MINUTE_MICROS),
    ),
    (
        &["h", "hr", "hrs", "hour", "hours"],
        Unit::Micros(HOUR_MICROS),
    ),
    (&["d", "day", "days"], Unit::Days(1)),
    (&["w", "week", "weeks"], Unit::Days(7)),
    (&["mon", "mons", "month", "months"], Unit::Months(1)),
    (&["y", "yr", "yrs", "year", "years"], Unit::Months(12)),
    (&["dec", "decs", "decade", "decades"], Unit::Months(120)),
    (&["c", "cent", "century", "centuries"], Unit::Months(1200)),
    (
        &["mil", "mils", "millennium", "millennia"],
        Unit::Months(12_000),
    ),
];

fn unit(word: &str) -> Option<Unit> {
    let found = UNITS
        .iter()
        .find(|(names, _)| names.iter().any(|name| word.eq_ignore_ascii_case(name)));
    found.map(|&(_, unit)| unit)
}

/// The units already given, by place in [`UNITS`]: none may come twice.
#[derive(Default)]
struct Given(u16);

impl Given {
    /// A time of day gives what is below its seconds, too.
    const CLOCK: [Unit; 5] = [
        Unit::Micros(HOUR_MICROS),
        Unit::Micros(MINUTE_MICROS),
        Unit::Micros(SECOND_MICROS),
        Unit::Micros(1000),
        Unit::Micros(1),
    ];
    /// What seconds with digits after their point give beside themselves.
    const BELOW_SECONDS: [Unit; 2] = [Unit::Micros(1000), Unit::Micros(1)];
    const YEAR_MONTH: [Unit; 2] = [Unit::Months(12), Unit::Months(1)];

    fn add(&mut self, units: &[Unit]) -> Result<(), Refused> {
        for unit in units {
            let bit = UNITS
                .iter()
                .position(|(_, known)| known == unit)
                .map_or(0, |at| 1 << at);
            if self.0 & bit != 0 {
                return Err(Syntax);
            }
            self.0 |= bit;
        }
        Ok(())
    }
}

/// A decimal numeral in two exact parts.
#[derive(Clone, Copy)]
struct Amount {
    negative: bool,
    whole: i64,
    /// 0 ≤ fraction < 1.
    fraction: f64,
}

impl Amount {
    fn parse(text: &str) -> Result<Self, Refused> {
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let numeric = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !numeric(whole) || !numeric(fraction) {
            return Err(Syntax);
        }
        let whole = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| Range)?
        };
        let fraction = if fraction.is_empty() {
            0.0
        } else {
            format!("0.{fraction}").parse().map_err(|_| Syntax)?
        };
        Ok(Self {
            negative,
            whole,
            fraction,
        })
    }

    fn sign(self) -> i64 {
        if self.negative { -1 } else { 1 }
    }
}

/// What has been read so far.
#[derive(Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

impl Sum {
    fn add(&mut self, amount: Amount, unit: Unit) -> Result<(), Refused> {
        let (sign, fraction) = (amount.sign(), amount.fraction);
        let scaled = |factor: i64| amount.whole.checked_mul(factor * sign).ok_or(Range);
        match unit {
            Unit::Micros(factor) => {
                self.add_micros(scaled(factor)?)?;
                self.add_fraction_micros(fraction * factor as f64, sign)
            }
            Unit::Days(factor) => {
                self.add_days(scaled(factor)?)?;
                self.add_fraction_days(fraction * factor as f64, sign)
            }
            Unit::Months(1) => {
                self.add_months(scaled(1)?)?;
                self.add_fraction_days(fraction * 30.0, sign)
            }
            Unit::Months(factor) => {
                self.add_months(scaled(factor)?)?;
                self.add_months(sign * (fraction * factor as f64).round_ties_even() as i64)
            }
        }
    }

    fn add_months(&mut self, months: i64) -> Result<(), Refused> {
        self.months = self.months.checked_add(months).ok_or(Range)?;
        Ok(())
    }

    fn add_days(&mut self, days: i64) -> Result<(), Refused> {
        self.days = self.days.checked_add(days).ok_or(Range)?;
        Ok(())
    }

    fn add_micros(&mut self, micros: i64) -> Result<(), Refused> {
        self.micros = self.micros.checked_add(micros).ok_or(Range)?;
        Ok(())
    }

    fn add_fraction_days(&mut self, days: f64, sign: i64) -> Result<(), Refused> {
        self.add_days(sign * days.trunc() as i64)?;
        self.add_fraction_micros((days - days.trunc()) * DAY_MICROS as f64, sign)
    }

    fn add_fraction_micros(&mut self, micros: f64, sign: i64) -> Result<(), Refused> {
        self.add_micros(sign * micros.round_ties_even() as i64)
    }

    fn finish(self) -> Result<Interval, Refused> {
        Ok(Interval {
            months: i32::try_from(self.months).map_err(|_| Range)?,
            days: i32::try_from(self.days).map_err(|_| Range)?,
            micros: self.micros,
        })
    }
}

enum Token<'a> {
    /// A sign, digits, `.`, `:` and inner `-`.
    Number(&'a str),
    Word(&'a str),
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, Refused> {
    let bytes = text.as_bytes();
    let run = |from: usize, accept: &dyn Fn(u8) -> bool| {
        from + bytes[from..].iter().take_while(|&&b| accept(b)).count()
    };
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b if is_blank(b) || matches!(b, b'@' | b',') => at += 1,
            b'0'..=b'9' | b'+' | b'-' | b'.' => {
                at = run(start + 1, &|b| {
                    b.is_ascii_digit() || matches!(b, b'.' | b':')
                });
                // "1-2" is years and months; "1 -2" is not.
                if bytes.get(at) == Some(&b'-') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
                {
                    at = run(at + 1, &|b| b.is_ascii_digit());
                }
                tokens.push(Token::Number(&text[start..at]));
            }
            b if b.is_ascii_alphabetic() => {
                at = run(start, &|b| b.is_ascii_alphabetic());
                tokens.push(Token::Word(&text[start..at]));
            }
            _ => return Err(Syntax),
        }
    }
    Ok(tokens)
}

/// The text with its signs at their numbers: `1 month - 1 day` is `1 month -1 day`. A sign behind a number is
/// none of the next one.
fn with_signs(text: &str) -> Cow<'_, str> {
    let is_sign = |b: &u8| matches!(b, b'+' | b'-');
    let bytes = text.as_bytes();
    if !bytes
        .windows(2)
        .any(|two| is_sign(&two[0]) && is_blank(two[1]))
    {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['+', '-']) {
        let (before, after) = rest.split_at(at + 1);
        joined.push_str(before);
        rest = match rest[..at].ends_with(|c: char| c.is_ascii_digit()) {
            true => after,
            false => after.trim_start_matches(|c: char| c.is_ascii() && is_blank(c as u8)),
        };
    }
    joined.push_str(rest);
    Cow::Owned(joined)
}

/// Reads from the right, so that a number knows the unit after it, or the unit
/// that follows the one after it downwards: `1 2:03` is a day and two hours.
fn parse_verbose(text: &str, last: IntervalField) -> Result<Interval, Refused> {
    let mut sum = Sum::default();
    let mut pending: Option<Unit> = None;
    let mut default = Some(last.unit());
    let mut ago = false;
    let mut any = false;
    let mut given = Given::default();
    let text = with_signs(text);
    for (from_right, token) in tokens(&text)?.iter().rev().enumerate() {
        match *token {
            Token::Word(word) if word.eq_ignore_ascii_case("ago") && from_right == 0 => ago = true,
            Token::Word(word) => {
                if pending.is_some() {
                    return Err(Syntax);
                }
                pending = Some(unit(word).ok_or(Syntax)?);
            }
            Token::Number(number) if number.contains(':') => {
                if pending.is_some() {
                    return Err(Syntax);
                }
                given.add(&Given::CLOCK)?;
                sum.add_micros(clock(number, last)?)?;
                (default, any) = (Some(Unit::Days(1)), true);
            }
            Token::Number(number) if number[1..].contains('-') => {
                if pending.is_some_and(|unit| unit != Unit::Months(12) && unit != Unit::Months(1)) {
                    return Err(Syntax);
                }
                given.add(&Given::YEAR_MONTH)?;
                sum.add_months(year_month(number)?)?;
                (pending, default, any) = (None, None, true);
            }
            Token::Number(number) => {
                let unit = pending.take().or(default.take()).ok_or(Syntax)?;
                let amount = Amount::parse(number)?;
                given.add(&[unit])?;
                if unit == Unit::Micros(SECOND_MICROS) && amount.fraction != 0.0 {
                    given.add(&Given::BELOW_SECONDS)?;
                }
                sum.add(amount, unit)?;
                // Before hours stand days.
                default = (unit == Unit::Micros(HOUR_MICROS)).then_some(Unit::Days(1));
                any = true;
            }
        }
    }
    if pending.is_some() || !any {
        return Err(Syntax);
    }
    if ago {
        sum.months = -sum.months;
        sum.days = -sum.days;
        sum.micros = sum.micros.checked_neg().ok_or(Range)?;
    }
    sum.finish()
}

/// `[±]h:mm[:ss[.f]]`, or `m:ss.f`, in microseconds.
fn clock(text: &str, last: IntervalField) -> Result<i64, Refused> {
    let (negative, body) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let parts: Vec<&str> = body.split(':').collect();
    let whole = |part: &str| -> Result<i64, Refused> {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Syntax);
        }
        part.parse().map_err(|_| Range)
    };
    let (hours, minutes, seconds) = match parts[..] {
        [minutes, seconds] if seconds.contains('.') || last == IntervalField::MinuteToSecond => {
            (0, whole(minutes)?, seconds)
        }
        [hours, minutes] => (whole(hours)?, whole(minutes)?, "0"),
        [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, seconds),
        _ => return Err(Syntax),
    };
    if seconds.starts_with(['+', '-']) {
        return Err(Syntax);
    }
    let seconds = Amount::parse(seconds)?;
    if minutes > 59 || seconds.whole > 60 {
        return Err(Range);
    }
    let below_hours = minutes * MINUTE_MICROS
        + seconds.whole * SECOND_MICROS
        + (seconds.fraction * SECOND_MICROS as f64).round_ties_even() as i64;
    let total = hours
        .checked_mul(HOUR_MICROS)
        .and_then(|h| h.checked_add(below_hours))
        .ok_or(Range)?;
    Ok(if negative { -total } else { total })
}

/// `[±]y-m` in months.
fn year_month(text: &str) -> Result<i64, Refused> {
    let (negative, body) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (years, months) = body.split_once('-').ok_or(Syntax)?;
    let (years, months): (i64, i64) = (
        years.parse().map_err(|_| Syntax)?,
        months.parse().map_err(|_| Syntax)?,
    );
    if months > 11 {
        return Err(Range);
    }
    let total = years
        .checked_mul(12)
        .and_then(|y| y.checked_add(months))
        .ok_or(Range)?;
    Ok(if negative { -total } else { total })
}

/// ISO 8601 with designators `P1Y2M3W4DT5H6M7.8S`, or the alternative form `P0001-02-03T04:05:06`.
fn parse_iso(text: &str) -> Result<Interval, Refused> {
    let (date, time) = match text[1..].split_once(['T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None => (&text[1..], None),
    };
    let mut sum = Sum::default();
    let mut any = iso_date(date, &mut sum)?;
    if let Some(time) = time {
        if time.contains(':') {
            sum.add_micros(clock(time, IntervalField::Second)?)?;
            any = true;
        } else {
            any = true;
            designated(time, &mut sum, |designator| match designator {
                b'H' => Some(Unit::Micros(HOUR_MICROS)),
                b'M' => Some(Unit::Micros(MINUTE_MICROS)),
                b'S' => Some(Unit::Micros(SECOND_MICROS)),
                _ => None,
            })?;
        }
    }
    if any { sum.finish() } else { Err(Syntax) }
}

fn iso_date(date: &str, sum: &mut Sum) -> Result<bool, Refused> {
    let is_alternative = date.contains('-') && !date.bytes().any(|b| b.is_ascii_alphabetic());
    if !is_alternative {
        return designated(date, sum, |designator| match designator {
            b'Y' => Some(Unit::Months(12)),
            b'M' => Some(Unit::Months(1)),
            b'W' => Some(Unit::Days(7)),
            b'D' => Some(Unit::Days(1)),
            _ => None,
        });
    }
    let units = [Unit::Months(12), Unit::Months(1), Unit::Days(1)];
    let parts: Vec<&str> = date.split('-').collect();
    if parts.len() > units.len() {
        return Err(Syntax);
    }
    for (part, unit) in parts.iter().zip(units) {
        sum.add(Amount::parse(part)?, unit)?;
    }
    Ok(true)
}

fn designated(
    mut text: &str,
    sum: &mut Sum,
    unit: impl Fn(u8) -> Option<Unit>,
) -> Result<bool, Refused> {
    let any = !text.is_empty();
    while !text.is_empty() {
        let end = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(Syntax)?;
        let unit = unit(text.as_bytes()[end].to_ascii_uppercase()).ok_or(Syntax)?;
        sum.add(Amount::parse(&text[..end])?, unit)?;
        text = &text[end + 1..];
    }
    Ok(any)
}

/// Writes an interval as `1 year 2 mons 3 days 04:05:06.789`.
pub fn format_interval(value: Interval, out: &mut impl TextSink) {
    let mut part = Part {
        first: true,
        after_negative: false,
    };
    part.put(value.months / 12, "year", out);
    part.put(value.months % 12, "mon", out);
    part.put(value.days, "day", out);
    if value.micros == 0 && !part.first {
        return;
    }
    if !part.first {
        out.put(" ");
    }
    if value.micros < 0 {
        out.put("-");
    } else if part.after_negative {
        out.put("+");
    }
    put_clock(value.micros.unsigned_abs(), out);
}

/// The state between the parts of an interval: a positive part after a negative one shows its sign.
struct Part {
    first: bool,
    after_negative: bool,
}

impl Part {
    fn put(&mut self, value: i32, unit: &str, out: &mut impl TextSink) {
        if value == 0 {
            return;
        }
        if !std::mem::take(&mut self.first) {
            out.put(" ");
        }
        if self.after_negative && value > 0 {
            out.put("+");
        }
        format_int(i64::from(value), out);
        out.put(" ");
        out.put(unit);
        if value != 1 {
            out.put("s");
        }
        self.after_negative = value < 0;
    }
}

fn put_clock(micros: u64, out: &mut impl TextSink) {
    let micros_per = |unit: i64| micros / unit.unsigned_abs();
    let hours = micros_per(HOUR_MICROS);
    if hours < 10 {
        out.put("0");
    }
    format_int(hours as i64, out);
    let [minutes, seconds] = [
        micros_per(MINUTE_MICROS) % 60,
        micros_per(SECOND_MICROS) % 60,
    ]
    .map(|n| n as u8);
    let digits = [
        b':',
        b'0' + minutes / 10,
        b'0' + minutes % 10,
        b':',
        b'0' + seconds / 10,
        b'0' + seconds % 10,
    ];
    put_ascii(out, &digits);
    put_fraction((micros % SECOND_MICROS.unsigned_abs()) as i64, out);
}
