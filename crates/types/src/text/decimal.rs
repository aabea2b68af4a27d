//! Numerics: an i128 of units at a fixed scale.

use super::{TextError, TextSink, is_blank, number::put_digits, put_ascii, trim};
use crate::ErrorKind;

/// Exponents beyond this are nonsense for 38 digits; the cap keeps arithmetic in range.
const EXPONENT_MAX: i64 = 1 << 20;

/// Reads a `numeric(precision, scale)` as units of 10^-scale, rounding half away from zero.
///
/// # Errors
/// `InvalidTextRepresentation`, `NumericValueOutOfRange`; `FeatureNotSupported` for NaN and infinity.
pub fn parse_numeric(text: &str, precision: u8, scale: i8) -> Result<i128, TextError> {
    let parsed = scan(text.as_bytes()).ok_or_else(|| not_a_number(text))?;
    let limit = 10i128
        .checked_pow(u32::from(precision))
        .unwrap_or(i128::MAX);
    parsed
        .units(i64::from(scale))
        .filter(|units| units.unsigned_abs() < limit.unsigned_abs())
        .ok_or_else(|| overflow(precision, scale))
}

fn not_a_number(text: &str) -> TextError {
    let word = trim(text);
    let unsigned = word.trim_start_matches(['+', '-']);
    if ["nan", "infinity", "inf"]
        .iter()
        .any(|special| unsigned.eq_ignore_ascii_case(special))
    {
        return TextError::unsupported("numeric", word);
    }
    TextError::invalid("numeric", text)
}

fn overflow(precision: u8, scale: i8) -> TextError {
    let mut error = TextError::new(ErrorKind::NumericValueOutOfRange, "numeric field overflow");
    let digits = i32::from(precision) - i32::from(scale);
    let bound = if digits == 0 {
        "1".to_owned()
    } else {
        format!("10^{digits}")
    };
    error.detail = Some(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
    ));
    error
}

/// A decimal numeral: its digits without the point, and how many stood after it.
struct Numeral<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

fn scan(bytes: &[u8]) -> Option<Numeral<'_>> {
    let start = bytes.iter().take_while(|&&b| is_blank(b)).count();
    let mut rest = &bytes[start..];
    let negative = rest.first() == Some(&b'-');
    if negative || rest.first() == Some(&b'+') {
        rest = &rest[1..];
    }
    let digits = |rest: &[u8]| rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (whole, mut rest) = rest.split_at(digits(rest));
    let mut fraction = &rest[..0];
    if rest.first() == Some(&b'.') {
        (fraction, rest) = rest[1..].split_at(digits(&rest[1..]));
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut exponent = 0i64;
    if let Some(b'e' | b'E') = rest.first() {
        rest = &rest[1..];
        let down = rest.first() == Some(&b'-');
        if down || rest.first() == Some(&b'+') {
            rest = &rest[1..];
        }
        let count = digits(rest);
        if count == 0 {
            return None;
        }
        for b in &rest[..count] {
            exponent = (exponent * 10 + i64::from(b - b'0')).min(EXPONENT_MAX);
        }
        exponent = if down { -exponent } else { exponent };
        rest = &rest[count..];
    }
    rest.iter().all(|&b| is_blank(b)).then_some(Numeral {
        negative,
        whole,
        fraction,
        exponent,
    })
}

impl Numeral<'_> {
    /// The value in units of 10^-scale; `None` when it does not fit 128 bits.
    fn units(&self, scale: i64) -> Option<i128> {
        let all = self
            .whole
            .iter()
            .chain(self.fraction)
            .map(|b| i128::from(b - b'0'));
        let count = (self.whole.len() + self.fraction.len()) as i64;
        // Digits that stay before the point of the scaled value.
        let kept = self.whole.len() as i64 + self.exponent + scale;
        let mut units = 0i128;
        for digit in all.clone().take(usize::try_from(kept).unwrap_or(0)) {
            units = units.checked_mul(10)?.checked_add(digit)?;
        }
        if kept > count && units != 0 {
            let zeros = u32::try_from(kept - count).ok()?;
            units = units.checked_mul(10i128.checked_pow(zeros)?)?;
        }
        if (0..count).contains(&kept)
            && all
                .clone()
                .nth(kept as usize)
                .is_some_and(|digit| digit >= 5)
        {
            units = units.checked_add(1)?;
        }
        Some(if self.negative { -units } else { units })
    }
}

/// Writes `value` units of 10^-scale with all `scale` digits after the point.
pub fn format_numeric(value: i128, scale: i8, out: &mut impl TextSink) {
    if value < 0 {
        out.put("-");
    }
    let magnitude = value.unsigned_abs();
    if scale <= 0 {
        put_u128(magnitude, 1, out);
        if magnitude != 0 {
            out.fill(b'0', usize::from(scale.unsigned_abs()));
        }
        return;
    }
    let places = scale.unsigned_abs();
    let unit = 10u128.pow(u32::from(places.min(38)));
    put_u128(magnitude / unit, 1, out);
    out.put(".");
    put_u128(magnitude % unit, usize::from(places), out);
}

/// The digits of `value`, with zeros before them up to `width`.
fn put_u128(value: u128, width: usize, out: &mut impl TextSink) {
    const CHUNK: u128 = 10_000_000_000_000_000_000;
    if let Ok(small) = u64::try_from(value) {
        let mut buffer = [0; 20];
        let start = put_digits(small, &mut buffer);
        out.fill(b'0', width.saturating_sub(20 - start));
        put_ascii(out, &buffer[start..]);
    } else {
        put_u128(value / CHUNK, width.saturating_sub(19), out);
        put_u128(value % CHUNK, 19, out);
    }
}
