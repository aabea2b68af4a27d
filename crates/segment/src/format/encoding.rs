//! How an attribute is encoded in a segment: explains the bytes that it takes.

use std::fmt;

/// How values become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A slot per row.
    Plain,
    /// One value for all rows, and nothing per row.
    Constant,
    /// Codes are the distance from the least value.
    Frame,
    /// Codes are positions among the sorted distinct values.
    Dictionary,
    /// Strings end to end in order of rows.
    Strings,
}

/// An attribute of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeEncoding {
    /// How values become bytes.
    pub encoding: Encoding,
    /// Bits of a code or slot; 0 where nothing is kept per row.
    pub code_bits: u32,
    /// How many runs there are, where a code is kept per run instead of per row.
    pub runs: Option<u32>,
    /// Values in the dictionary.
    pub entries: u32,
    /// Bytes of slots or codes, and of a frozen attribute also of its dictionary, NULL bits
    /// and Bloom filter. In a hot segment NULL bits and the heap of long values, which the
    /// attributes share, are not in it.
    pub bytes: u64,
}

impl AttributeEncoding {
    pub(crate) fn slots(width: usize, rows: u32) -> AttributeEncoding {
        AttributeEncoding {
            encoding: Encoding::Plain,
            code_bits: width as u32 * 8,
            runs: None,
            entries: 0,
            bytes: width as u64 * u64::from(rows),
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoding::Plain => "plain",
            Encoding::Constant => "constant",
            Encoding::Frame => "frame of reference",
            Encoding::Dictionary => "dictionary",
            Encoding::Strings => "strings",
        })
    }
}

/// `dictionary`, or `dictionary, runs`.
impl fmt::Display for AttributeEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = if self.runs.is_some() { ", runs" } else { "" };
        write!(f, "{}{runs}", self.encoding)
    }
}
