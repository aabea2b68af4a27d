//! Positions in the write-ahead log of a PostgreSQL.

use std::{fmt, str::FromStr};

/// A log sequence number: a byte of the source's write-ahead log. Its text is PostgreSQL's, `16/B374D848`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// How many bytes of log lie between `earlier` and this one; 0 if `earlier` is not earlier.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

/// The text is no log sequence number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no log sequence number")]
pub struct LsnSyntax(String);

impl FromStr for Lsn {
    type Err = LsnSyntax;

    fn from_str(text: &str) -> Result<Lsn, LsnSyntax> {
        let syntax = || LsnSyntax(text.to_owned());
        let half = |digits: &str| {
            // `from_str_radix` takes a sign, which PostgreSQL does not write.
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(syntax());
            }
            u32::from_str_radix(digits, 16).map_err(|_| syntax())
        };
        let (high, low) = text.split_once('/').ok_or_else(syntax)?;
        Ok(Lsn(u64::from(half(high)?) << 32 | u64::from(half(low)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_postgresql() {
        for (text, number) in [
            ("0/0", 0),
            ("0/16B3748", 0x016B_3748),
            ("16/B374D848", 0x16_B374_D848),
            ("FFFFFFFF/FFFFFFFF", u64::MAX),
        ] {
            assert_eq!(text.parse::<Lsn>(), Ok(Lsn(number)));
            assert_eq!(Lsn(number).to_string(), text);
        }
        for text in [
            "",
            "/",
            "0",
            "0/",
            "/0",
            "0/+1",
            "0/1/2",
            "0/100000000",
            "g/0",
            "0/0 ",
        ] {
            assert!(text.parse::<Lsn>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_distance_is_never_negative() {
        assert_eq!(Lsn(10).bytes_since(Lsn(3)), 7);
        assert_eq!(Lsn(3).bytes_since(Lsn(10)), 0);
    }
}
