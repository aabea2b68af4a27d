//! Sizes, rates and times as people write them.

use crate::PlanError;

/// How large a tenant is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Rows of its fact table.
    Rows(f64),
    /// Bytes in a node's memory.
    Bytes(f64),
}

const ROWS: &[(&str, f64)] = &[
    ("rows", 1.0),
    ("row", 1.0),
    ("krows", 1e3),
    ("mrows", 1e6),
    ("grows", 1e9),
];

/// As PostgreSQL's settings and those of a node: powers of 1,024, however they are written.
const BYTES: &[(&str, f64)] = &[
    ("b", 1.0),
    ("kb", 1024.0),
    ("kib", 1024.0),
    ("mb", 1048576.0),
    ("mib", 1048576.0),
    ("gb", 1073741824.0),
    ("gib", 1073741824.0),
    ("tb", 1099511627776.0),
    ("tib", 1099511627776.0),
];

const RATES: &[(&str, f64)] = &[
    ("", 1.0),
    ("/s", 1.0),
    ("/min", 1.0 / 60.0),
    ("/h", 1.0 / 3600.0),
];

const TIMES_MS: &[(&str, f64)] = &[("ms", 1.0), ("s", 1000.0)];

/// A tenant's size, such as `6000000 rows`, `6 Mrows` or `2.5 GB`.
///
/// # Errors
/// [`PlanError::Number`], [`PlanError::Unit`].
pub fn parse_size(text: &str) -> Result<Size, PlanError> {
    let (number, unit) = split(text)?;
    if let Some(factor) = factor(ROWS, &unit) {
        return Ok(Size::Rows(number * factor));
    }
    match factor(BYTES, &unit) {
        Some(factor) => Ok(Size::Bytes(number * factor)),
        None => Err(unknown(
            text,
            "rows, krows, Mrows, Grows, B, kB, MB, GB, TB",
        )),
    }
}

/// Bytes, such as `16 GB`.
///
/// # Errors
/// [`PlanError::Number`], [`PlanError::Unit`].
pub fn parse_bytes(text: &str) -> Result<f64, PlanError> {
    parse(text, BYTES, "B, kB, MB, GB, TB")
}

/// Requests per second, from such as `20`, `20/s` or `90/min`.
///
/// # Errors
/// [`PlanError::Number`], [`PlanError::Unit`].
pub fn parse_rate(text: &str) -> Result<f64, PlanError> {
    parse(text, RATES, "/s, /min, /h")
}

/// Milliseconds, from such as `50 ms` or `1 s`.
///
/// # Errors
/// [`PlanError::Number`], [`PlanError::Unit`].
pub fn parse_time_ms(text: &str) -> Result<f64, PlanError> {
    parse(text, TIMES_MS, "ms, s")
}

fn parse(text: &str, units: &[(&str, f64)], known: &'static str) -> Result<f64, PlanError> {
    let (number, unit) = split(text)?;
    let factor = factor(units, &unit).ok_or_else(|| unknown(text, known))?;
    Ok(number * factor)
}

/// A number above zero, and its unit in small letters.
fn split(text: &str) -> Result<(f64, String), PlanError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.replace('_', "").parse().ok();
    match number.filter(|number: &f64| number.is_finite() && *number > 0.0) {
        Some(number) => Ok((number, unit.trim().to_ascii_lowercase())),
        None => Err(PlanError::Number {
            text: text.to_owned(),
        }),
    }
}

fn factor(units: &[(&str, f64)], unit: &str) -> Option<f64> {
    let found = units.iter().find(|(name, _)| *name == unit);
    found.map(|(_, factor)| *factor)
}

fn unknown(text: &str, known: &'static str) -> PlanError {
    PlanError::Unit {
        text: text.to_owned(),
        known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(parse_size("6_000_000 rows").unwrap(), Size::Rows(6e6));
        assert_eq!(parse_size("1.5Mrows").unwrap(), Size::Rows(1.5e6));
        assert_eq!(parse_size(" 2 GB ").unwrap(), Size::Bytes(2147483648.0));
        assert_eq!(parse_bytes("16GiB").unwrap(), 17179869184.0);
        assert_eq!(parse_rate("90/min").unwrap(), 1.5);
        assert_eq!(parse_rate("20").unwrap(), 20.0);
        assert_eq!(parse_time_ms("1 s").unwrap(), 1000.0);
    }

    #[test]
    fn other_things_are_refused_with_what_is_known() {
        let refused = |error: PlanError| error.to_string();
        let size = refused(parse_size("6 parsecs").unwrap_err());
        assert!(
            size.contains("6 parsecs") && size.contains("Mrows"),
            "{size}"
        );
        assert!(refused(parse_bytes("16").unwrap_err()).contains("GB"));
        assert!(refused(parse_rate("20/d").unwrap_err()).contains("/min"));
        for none in ["", "-3 GB", "0 rows", "GB", "1.2.3 GB", "1e3 GB"] {
            let error = refused(parse_bytes(none).unwrap_err());
            assert!(error.contains(none), "{error}");
        }
    }
}
