//! Numbers by pattern: `9 0 . , D G S MI PL FM $ L`. Without `EEEE`, `RN`, `TH`, `V`.

use aerostat_types::ErrorKind;
use aerostat_types::text::parse_numeric;
use datafusion::common::Result;

use crate::functions::cast::{POWERS_OF_TEN, rescale};
use crate::functions::overload::NUMERIC;
use crate::{external, raise};

#[derive(Default)]
struct Pattern {
    /// Digits before the point, and after it.
    before: usize,
    after: usize,
    /// Positions before the point from the first `0` on, counted from the point.
    zeros: usize,
    /// Whether digits after the point are always written.
    zeros_after: usize,
    fill: bool,
    sign: Sign,
    characters: Vec<char>,
}

#[derive(Default, PartialEq)]
enum Sign {
    /// Before the number, in its own place.
    #[default]
    Usual,
    Anchored,
    Trailing,
    Brackets,
}

fn parse(pattern: &str) -> Result<Pattern> {
    let mut parsed = Pattern {
        fill: true,
        ..Pattern::default()
    };
    let mut after_point = false;
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let upper: String = rest.chars().take(2).collect::<String>().to_uppercase();
        let mut taken = first.len_utf8();
        match (first.to_ascii_uppercase(), upper.as_str()) {
            (_, "FM") => (parsed.fill, taken) = (false, 2),
            (_, "MI") => (parsed.sign, taken) = (Sign::Trailing, 2),
            (_, "PR") => (parsed.sign, taken) = (Sign::Brackets, 2),
            (_, "PL" | "SG") => (parsed.sign, taken) = (Sign::Anchored, 2),
            (_, "EE" | "RN" | "TH") | ('V', _) => {
                let message = format!("number format \"{upper}\" is not supported");
                return Err(raise(ErrorKind::FeatureNotSupported, message));
            }
            ('S', _) => parsed.sign = Sign::Anchored,
            ('9' | '0', _) => {
                if after_point {
                    parsed.after += 1;
                    if first == '0' {
                        parsed.zeros_after = parsed.after;
                    }
                } else {
                    parsed.before += 1;
                    if first == '0' && parsed.zeros == 0 {
                        parsed.zeros = parsed.before;
                    }
                }
                parsed.characters.push(first);
            }
            ('.' | 'D', _) => {
                after_point = true;
                parsed.characters.push('.');
            }
            (',' | 'G', _) => parsed.characters.push(','),
            ('L', _) => {}
            _ => parsed.characters.push(first),
        }
        rest = &rest[taken..];
    }
    if parsed.zeros > 0 {
        parsed.zeros = parsed.before - parsed.zeros + 1;
    }
    Ok(parsed)
}

/// Writes a numeric.
pub(super) fn write(value: i128, scale: i8, pattern: &str) -> Result<String> {
    let parsed = parse(pattern)?;
    let rounded = rescale(value, scale, 38, parsed.after.min(37) as i8);
    let Some(rounded) = rounded else {
        return Ok(hashes(&parsed, value < 0));
    };
    let power = POWERS_OF_TEN[parsed.after.min(37)];
    let (whole, fraction) = (rounded.abs() / power, rounded.abs() % power);
    let whole_digits = if whole == 0 {
        String::new()
    } else {
        whole.to_string()
    };
    if whole_digits.len() > parsed.before {
        return Ok(hashes(&parsed, value < 0));
    }
    let shown = whole_digits
        .len()
        .max(parsed.zeros)
        .max(usize::from(parsed.after == 0 && parsed.before > 0));
    let digits = format!("{whole_digits:0>width$}", width = shown);
    let fraction = format!("{fraction:0>width$}", width = parsed.after);
    Ok(lay_out(&parsed, &digits, &fraction, rounded < 0))
}

/// Writes a double with 15 digits, as PostgreSQL does.
pub(super) fn write_double(value: f64, pattern: &str) -> Result<String> {
    if !value.is_finite() {
        return Ok(hashes(&parse(pattern)?, value < 0.0));
    }
    match parse_numeric(&format!("{value:.14e}"), 38, 15) {
        Ok(numeric) => write(numeric, 15, pattern),
        Err(_) => Ok(hashes(&parse(pattern)?, value < 0.0)),
    }
}

fn hashes(parsed: &Pattern, negative: bool) -> String {
    lay_out(
        parsed,
        &"#".repeat(parsed.before),
        &"#".repeat(parsed.after),
        negative,
    )
}

/// Puts digits in the pattern's places; the sign stands right before the first digit.
fn lay_out(parsed: &Pattern, digits: &str, fraction: &str, negative: bool) -> String {
    let mut out = String::new();
    let mut places_left = parsed.before;
    let mut started = false;
    let mut digits = digits.chars();
    let count = digits.clone().count();
    let kept = fraction_kept(parsed, fraction);
    let mut fraction = fraction.chars().take(kept);
    let mut after_point = false;
    for &character in &parsed.characters {
        match character {
            '9' | '0' if after_point => out.extend(fraction.next()),
            '9' | '0' => {
                if places_left <= count {
                    started = true;
                    out.extend(digits.next());
                } else if parsed.fill {
                    out.push(' ');
                }
                places_left -= 1;
            }
            '.' => {
                after_point = true;
                started = true;
                if kept > 0 || parsed.fill || parsed.after == 0 {
                    out.push('.');
                }
            }
            ',' if started => out.push(','),
            ',' if parsed.fill => out.push(' '),
            ',' => {}
            other => out.push(other),
        }
    }
    match parsed.sign {
        Sign::Trailing if negative => out.push('-'),
        Sign::Trailing if parsed.fill => out.push(' '),
        Sign::Trailing => {}
        Sign::Brackets if negative => return format!("{}>", put_sign(parsed, out, "<")),
        Sign::Brackets if parsed.fill => return format!(" {out} "),
        Sign::Brackets => {}
        Sign::Anchored => return put_sign(parsed, out, if negative { "-" } else { "+" }),
        Sign::Usual if negative => return put_sign(parsed, out, "-"),
        Sign::Usual if parsed.fill => return format!(" {out}"),
        Sign::Usual => {}
    }
    out
}

/// With FM, zeros at the end are dropped where the pattern has 9.
fn fraction_kept(parsed: &Pattern, fraction: &str) -> usize {
    if parsed.fill {
        fraction.len()
    } else {
        fraction.trim_end_matches('0').len().max(parsed.zeros_after)
    }
}

fn put_sign(parsed: &Pattern, out: String, sign: &str) -> String {
    if !parsed.fill {
        return format!("{sign}{out}");
    }
    let body = out.trim_start_matches(' ');
    format!("{}{sign}{body}", " ".repeat(out.len() - body.len()))
}

/// Reads a number: digits, sign and point count, what else the pattern has does not.
pub(super) fn read(text: &str, _: &str) -> Result<i128> {
    let negative = text.contains('-')
        || (text.trim_start().starts_with('<') && text.trim_end().ends_with('>'));
    let digits: String = text
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let aerostat_types::SqlType::Numeric { precision, scale } = NUMERIC else {
        return Err(raise(ErrorKind::Internal, "numeric is not numeric"));
    };
    let value = parse_numeric(&digits, precision, scale).map_err(external)?;
    Ok(if negative { -value } else { value })
}
