//! Byte quantities as users write them: `'2GB'`, `512 MiB`, `65536`.
//!
//! As in PostgreSQL, `kB`, `MB`, `GB` and `TB` are powers of 1024; the IEC
//! spellings mean the same.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "ByteSizeText", into = "u64")]
pub struct ByteSize(pub u64);

/// Why a text is not a byte quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid byte quantity {0:?}: expected a number with an optional unit B, kB, MB, GB or TB")]
pub struct ParseByteSizeError(String);

const UNITS: [(&str, u64); 5] = [
    ("TB", 1 << 40),
    ("GB", 1 << 30),
    ("MB", 1 << 20),
    ("kB", 1 << 10),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseByteSizeError(text.to_owned());
        let trimmed = text.trim();
        let digits_end = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let unit = unit.trim().to_ascii_lowercase().replace("ib", "b");
        let factor = if unit.is_empty() {
            1
        } else {
            UNITS
                .iter()
                .find(|(name, _)| {
                    let name = name.to_ascii_lowercase();
                    name == unit
                        || name
                            .strip_suffix('b')
                            .is_some_and(|short| !short.is_empty() && short == unit)
                })
                .map(|&(_, factor)| factor)
                .ok_or_else(error)?
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(ByteSize).ok_or_else(error);
        }
        let fraction: f64 = number.parse().map_err(|_| error())?;
        let bytes = fraction * factor as f64;
        if !(0.0..u64::MAX as f64).contains(&bytes) {
            return Err(error());
        }
        Ok(ByteSize(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that divides the quantity, so that the text parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &(unit, factor) = UNITS
            .iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// What a configuration file may hold: a number of bytes or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum ByteSizeText {
    Number(u64),
    Text(String),
}

impl TryFrom<ByteSizeText> for ByteSize {
    type Error = ParseByteSizeError;

    fn try_from(value: ByteSizeText) -> Result<Self, Self::Error> {
        match value {
            ByteSizeText::Number(bytes) => Ok(ByteSize(bytes)),
            ByteSizeText::Text(text) => text.parse(),
        }
    }
}

impl From<ByteSize> for u64 {
    fn from(size: ByteSize) -> u64 {
        size.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_users_write() {
        for (text, bytes) in [
            ("0", 0),
            ("65536", 65536),
            ("2GB", 2 << 30),
            ("512 MiB", 512 << 20),
            ("1.5 gb", 3 << 29),
            ("8k", 8 << 10),
            (" 7 B ", 7),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(bytes), "{text}");
        }
        for text in ["", "GB", "-1", "1 XB", "1..5GB", "99999999999TB", "1e3"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn display_parses_back() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 30, (1 << 40) + 1] {
            let size = ByteSize(bytes);
            assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size);
        }
    }
}
