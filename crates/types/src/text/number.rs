//! Integers and floats.

use std::fmt::Write as _;

use super::{TextError, TextSink, is_blank, put_ascii, trim};

/// Reads a smallint.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`.
pub fn parse_i16(text: &str) -> Result<i16, TextError> {
    let value = parse_integer(text, "smallint")?;
    i16::try_from(value).map_err(|_| TextError::out_of_range("smallint", text))
}

/// Reads an integer.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`.
pub fn parse_i32(text: &str) -> Result<i32, TextError> {
    let value = parse_integer(text, "integer")?;
    i32::try_from(value).map_err(|_| TextError::out_of_range("integer", text))
}

/// Reads a bigint.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`.
pub fn parse_i64(text: &str) -> Result<i64, TextError> {
    parse_integer(text, "bigint")
}

/// Digits that cannot overflow 64 bits.
const SAFE_DIGITS: usize = 18;

/// The number that the first `count` bytes of a little-endian word write in decimal digits.
/// `None` when they are none, more than eight, or not all digits.
///
/// All digits at once, by a multiplication each: neighbours are joined to pairs, pairs to
/// fours, fours to the number (Langdale and Lemire, simdjson).
pub fn digits_of_word(word: u64, count: usize) -> Option<u32> {
    if !(1..=8).contains(&count) {
        return None;
    }
    // As many zeros in front as make eight digits.
    let spare_bits = 64 - 8 * count as u32;
    let zeros = u64::from_le_bytes([b'0'; 8]) & ((1 << spare_bits) - 1);
    let digits = word << spare_bits | zeros;
    // A digit is 3 in the upper half of its byte, and still is with 6 added.
    let upper = u64::from_le_bytes([0xF0; 8]);
    let above = digits.wrapping_add(u64::from_le_bytes([6; 8])) & upper;
    if digits & upper | above >> 4 != u64::from_le_bytes([0x33; 8]) {
        return None;
    }
    let ones = digits & u64::from_le_bytes([0x0F; 8]);
    let pairs = ones.wrapping_mul(10 << 8 | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32) as u32)
}

/// One to eight digits.
fn short_digits(digits: &[u8]) -> Option<i64> {
    let word = match *digits {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        // Two loads that may overlap, in place of a loop.
        _ => {
            let first = u64::from(u32::from_le_bytes(*digits.first_chunk()?));
            let last = u64::from(u32::from_le_bytes(*digits.last_chunk()?));
            first | last << (8 * (digits.len() - 4))
        }
    };
    digits_of_word(word, digits.len()).map(i64::from)
}

/// Digits and perhaps a minus, nothing else and few enough: nearly every integer there is.
fn plain_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let value = match digits.len() {
        1..=8 => short_digits(digits)?,
        9..=16 => {
            let (high, low) = digits.split_at(digits.len() - 8);
            short_digits(high)? * 100_000_000 + short_digits(low)?
        }
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

/// Blanks, a sign, digits, blanks.
fn parse_integer(text: &str, type_name: &str) -> Result<i64, TextError> {
    let bytes = text.as_bytes();
    if let Some(value) = plain_integer(bytes) {
        return Ok(value);
    }
    let mut at = bytes.iter().take_while(|&&b| is_blank(b)).count();
    let negative = bytes.get(at) == Some(&b'-');
    if negative || bytes.get(at) == Some(&b'+') {
        at += 1;
    }
    let digits = &bytes[at..];
    let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if count == 0 || digits[count..].iter().any(|&b| !is_blank(b)) {
        return Err(TextError::invalid(type_name, text));
    }
    let digit = |b: &u8| i64::from(b - b'0');
    if count <= SAFE_DIGITS {
        let value = digits[..count]
            .iter()
            .fold(0, |value, b| value * 10 + digit(b));
        return Ok(if negative { -value } else { value });
    }
    digits[..count]
        .iter()
        .try_fold(0i64, |value, b| {
            let shifted = value.checked_mul(10)?;
            if negative {
                shifted.checked_sub(digit(b))
            } else {
                shifted.checked_add(digit(b))
            }
        })
        .ok_or_else(|| TextError::out_of_range(type_name, text))
}

/// Pairs of digits, so that formatting divides half as often.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// The decimal digits of `value` at the end of `buffer`; gives where they begin.
pub(super) fn put_digits(mut value: u64, buffer: &mut [u8; 20]) -> usize {
    let mut at = buffer.len();
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value > 0 || at == buffer.len() {
        at -= 1;
        buffer[at] = b'0' + value as u8;
    }
    at
}

/// Writes an integer of any width.
pub fn format_int(value: i64, out: &mut impl TextSink) {
    let mut buffer = [0; 20];
    let start = put_digits(value.unsigned_abs(), &mut buffer);
    if value < 0 {
        out.put("-");
    }
    put_ascii(out, &buffer[start..]);
}

/// Reads a double precision.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`.
pub fn parse_f64(text: &str) -> Result<f64, TextError> {
    let (number, special) = float_text(text, "double precision")?;
    if let Some(value) = special {
        return Ok(value);
    }
    let value: f64 = number
        .parse()
        .map_err(|_| TextError::invalid("double precision", text))?;
    if value.is_infinite() || value == 0.0 && has_nonzero_digit(number) {
        return Err(float_range("double precision", number));
    }
    Ok(value)
}

/// Reads a real.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`.
pub fn parse_f32(text: &str) -> Result<f32, TextError> {
    let (number, special) = float_text(text, "real")?;
    if let Some(value) = special {
        return Ok(value as f32);
    }
    let value: f32 = number
        .parse()
        .map_err(|_| TextError::invalid("real", text))?;
    if value.is_infinite() || value == 0.0 && has_nonzero_digit(number) {
        return Err(float_range("real", number));
    }
    Ok(value)
}

fn float_range(type_name: &str, number: &str) -> TextError {
    let mut error = TextError::out_of_range(type_name, number);
    error.message = error.message.trim_start_matches("value ").to_owned();
    error
}

/// The trimmed text, and the value if it is NaN or an infinity.
fn float_text<'a>(text: &'a str, type_name: &str) -> Result<(&'a str, Option<f64>), TextError> {
    let number = trim(text);
    let is_numeric = number
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_numeric && !number.is_empty() {
        return Ok((number, None));
    }
    let (sign, word) = match number.as_bytes().first() {
        Some(b'-') => (-1.0, &number[1..]),
        Some(b'+') => (1.0, &number[1..]),
        _ => (1.0, number),
    };
    if word.eq_ignore_ascii_case("infinity") || word.eq_ignore_ascii_case("inf") {
        return Ok((number, Some(sign * f64::INFINITY)));
    }
    if word.eq_ignore_ascii_case("nan") {
        return Ok((number, Some(f64::NAN)));
    }
    Err(TextError::invalid(type_name, text))
}

fn has_nonzero_digit(number: &str) -> bool {
    let mantissa = number.split(['e', 'E']).next().unwrap_or(number);
    mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

/// A stack buffer for the shortest digits of a float: `-d.dddddddddddddddde-ddd` is 24 bytes.
struct FloatText {
    bytes: [u8; 32],
    len: usize,
}

impl FloatText {
    fn new(scientific: std::fmt::Arguments<'_>) -> Self {
        let mut text = FloatText {
            bytes: [0; 32],
            len: 0,
        };
        text.write_fmt(scientific)
            .expect("the digits of a float fit 32 bytes");
        text
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("digits are UTF-8")
    }

    /// How many digits stand before the exponent.
    fn digits(&self) -> usize {
        let mantissa = self.bytes[..self.len].iter().take_while(|&&b| b != b'e');
        mantissa.filter(|b| b.is_ascii_digit()).count()
    }
}

impl std::fmt::Write for FloatText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes
            .get_mut(self.len..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Writes a double precision: the shortest digits that parse back, in scientific
/// form below 1e-4 and from 1e15.
pub fn format_f64(value: f64, out: &mut impl TextSink) {
    if !value.is_finite() {
        return format_special(value.is_nan(), value < 0.0, out);
    }
    let shortest = FloatText::new(format_args!("{value:e}"));
    let bits = value.to_bits() & (u64::MAX >> 1);
    let binary = Binary::new(bits >> 52, bits & ((1 << 52) - 1), 52, 1075);
    let digits = shortest.digits();
    let text = if binary.may_differ(digits, 16, -30) {
        binary.postgresql_digits(digits..=17, shortest, |count| {
            let text = FloatText::new(format_args!("{value:.count$e}"));
            let parses_back = text.as_str().parse() == Ok(value);
            (text, parses_back)
        })
    } else {
        shortest
    };
    lay_out(text.as_str(), 15, out);
}

/// Writes a real: the shortest digits that parse back, in scientific form below
/// 1e-4 and from 1e6.
pub fn format_f32(value: f32, out: &mut impl TextSink) {
    if !value.is_finite() {
        return format_special(value.is_nan(), value < 0.0, out);
    }
    let shortest = FloatText::new(format_args!("{value:e}"));
    let bits = value.to_bits() & (u32::MAX >> 1);
    let binary = Binary::new(
        u64::from(bits >> 23),
        u64::from(bits & ((1 << 23) - 1)),
        23,
        150,
    );
    let digits = shortest.digits();
    let text = if binary.may_differ(digits, 7, -15) {
        binary.postgresql_digits(digits..=9, shortest, |count| {
            let text = FloatText::new(format_args!("{value:.count$e}"));
            let parses_back = text.as_str().parse() == Ok(value);
            (text, parses_back)
        })
    } else {
        shortest
    };
    lay_out(text.as_str(), 6, out);
}

/// A finite float's magnitude, `mantissa · 2^exponent`.
///
/// Rust and PostgreSQL (Ryu) agree on the shortest digits except where a
/// candidate is exactly half-way to the next float, which PostgreSQL does not
/// take, and where two candidates are equally near, when PostgreSQL takes the
/// even one. Both need a value whose decimal expansion is short, so few values
/// go the slow way.
struct Binary {
    mantissa: u64,
    exponent: i32,
}

impl Binary {
    fn new(biased: u64, fraction: u64, fraction_bits: u32, bias: i32) -> Self {
        match biased {
            0 => Self {
                mantissa: fraction,
                exponent: 1 - bias,
            },
            _ => Self {
                mantissa: fraction | 1 << fraction_bits,
                exponent: biased as i32 - bias,
            },
        }
    }

    /// Whether PostgreSQL's digits may be others than the `digits` Rust gives: ties need
    /// `tie_digits` and no more fractional bits than `exponent_min`, half-way candidates an
    /// integer beyond the mantissa's bits.
    fn may_differ(&self, digits: usize, tie_digits: usize, exponent_min: i32) -> bool {
        let odd_exponent = self.exponent + self.mantissa.trailing_zeros() as i32;
        self.mantissa != 0
            && (self.exponent >= 1 || digits >= tie_digits && odd_exponent >= exponent_min)
    }

    /// The fewest digits in `counts` that parse back and are not half-way to a neighbour.
    fn postgresql_digits(
        &self,
        counts: std::ops::RangeInclusive<usize>,
        shortest: FloatText,
        rounded: impl Fn(usize) -> (FloatText, bool),
    ) -> FloatText {
        for count in counts {
            let (text, parses_back) = rounded(count - 1);
            if parses_back && !self.is_half_way(text.as_str()) {
                return text;
            }
            // Below a power of two floats are denser: the even one may belong to the neighbour.
            if !self.is_half_way(shortest.as_str()) {
                return shortest;
            }
        }
        shortest
    }

    /// Whether a text `d.ddde±n` is exactly the middle between this float and a neighbour.
    fn is_half_way(&self, text: &str) -> bool {
        let (mantissa, exponent) = text
            .trim_start_matches('-')
            .split_once('e')
            .unwrap_or((text, "0"));
        let mut decimal = 0u128;
        for b in mantissa.bytes().filter(u8::is_ascii_digit) {
            decimal = decimal * 10 + u128::from(b - b'0');
        }
        let point = mantissa.len().saturating_sub(2) as i32;
        let tens = exponent.parse::<i32>().unwrap_or(0) - point;
        let Ok(tens) = u32::try_from(tens) else {
            return false;
        };
        let Some(product) = 5u128
            .checked_pow(tens)
            .and_then(|fives| fives.checked_mul(decimal))
        else {
            return false;
        };
        if product == 0 {
            return false;
        }
        let twos = product.trailing_zeros();
        let (odd, exponent) = (product >> twos, (twos + tens) as i32);
        let middle = 2 * u128::from(self.mantissa);
        exponent == self.exponent - 1 && (odd == middle + 1 || odd == middle - 1)
    }
}

fn format_special(nan: bool, negative: bool, out: &mut impl TextSink) {
    out.put(match (nan, negative) {
        (true, _) => "NaN",
        (false, true) => "-Infinity",
        (false, false) => "Infinity",
    });
}

/// Rewrites `d.ddde-n` as PostgreSQL lays it out.
fn lay_out(text: &str, plain_exponent_max: i32, out: &mut impl TextSink) {
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text
        .split_once('e')
        .expect("scientific form has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if negative {
        out.put("-");
    }
    if !(-4..plain_exponent_max).contains(&exponent) {
        out.put(mantissa);
        out.put(if exponent < 0 { "e-" } else { "e+" });
        if exponent.abs() < 10 {
            out.put("0");
        }
        format_int(i64::from(exponent.abs()), out);
    } else if exponent < 0 {
        out.put("0.");
        out.fill(b'0', (-exponent - 1) as usize);
        out.put(first);
        out.put(rest);
    } else {
        let whole = (exponent as usize).min(rest.len());
        out.put(first);
        out.put(&rest[..whole]);
        out.fill(b'0', exponent as usize - whole);
        if whole < rest.len() {
            out.put(".");
            out.put(&rest[whole..]);
        }
    }
}
