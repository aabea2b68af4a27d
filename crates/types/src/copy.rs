//! The data of COPY: its formats and options.

use crate::{Encoding, ErrorKind, SqlError};

/// The format of COPY data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyFormat {
    /// Backslash escapes, tabs between fields.
    #[default]
    Text,
    /// Comma-separated values as PostgreSQL reads and writes them.
    Csv,
    /// PostgreSQL's binary form.
    Binary,
}

/// Whether COPY data begin with a line of column names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyHeader {
    /// They do not.
    #[default]
    None,
    /// They do; on input the line is skipped.
    Present,
    /// They do, and on input the names must be the columns'.
    Match,
}

/// Which columns CSV output quotes even where it need not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForceQuote {
    /// None.
    #[default]
    None,
    /// All, except NULL.
    All,
    /// Those at these positions of the COPY's column list.
    Columns(Vec<usize>),
}

/// The options of COPY. Positions are into the COPY's column list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// The format.
    pub format: CopyFormat,
    /// The byte between fields.
    pub delimiter: u8,
    /// The text that stands for NULL.
    pub null: String,
    /// Whether a header line is there.
    pub header: CopyHeader,
    /// CSV: the byte around quoted fields.
    pub quote: u8,
    /// CSV: the byte before a quote within quotes.
    pub escape: u8,
    /// CSV output: columns always quoted.
    pub force_quote: ForceQuote,
    /// CSV input: columns that never match the NULL text.
    pub force_not_null: Vec<usize>,
    /// CSV input: columns that match the NULL text even when quoted.
    pub force_null: Vec<usize>,
    /// The encoding of the data; `None` for the client's.
    pub encoding: Option<Encoding>,
}

impl CopyOptions {
    /// PostgreSQL's defaults for a format.
    pub fn new(format: CopyFormat) -> Self {
        let csv = format == CopyFormat::Csv;
        Self {
            format,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { String::new() } else { "\\N".to_owned() },
            header: CopyHeader::None,
            quote: b'"',
            escape: b'"',
            force_quote: ForceQuote::None,
            force_not_null: Vec::new(),
            force_null: Vec::new(),
            encoding: None,
        }
    }

    /// Refuses options that contradict each other or the format, in PostgreSQL's words.
    ///
    /// # Errors
    /// `FeatureNotSupported`, `InvalidParameterValue` or `SyntaxError`.
    pub fn check(&self) -> Result<(), SqlError> {
        let unsupported =
            |message: &str| Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
        let invalid =
            |message: String| Err(SqlError::new(ErrorKind::InvalidParameterValue, message));
        if self.format == CopyFormat::Binary {
            return if self.header == CopyHeader::None {
                Ok(())
            } else {
                unsupported("cannot specify HEADER in BINARY mode")
            };
        }
        if matches!(self.delimiter, b'\r' | b'\n') || !self.delimiter.is_ascii() {
            return invalid("COPY delimiter cannot be newline or carriage return".to_owned());
        }
        if self.null.contains(['\r', '\n']) {
            return invalid(
                "COPY null representation cannot use newline or carriage return".to_owned(),
            );
        }
        if self.format == CopyFormat::Text
            && b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&self.delimiter)
        {
            return invalid(format!(
                "COPY delimiter cannot be \"{}\"",
                self.delimiter as char
            ));
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return unsupported("COPY delimiter must not appear in the NULL specification");
        }
        if self.format == CopyFormat::Csv {
            if self.delimiter == self.quote {
                return unsupported("COPY delimiter and quote must be different");
            }
            if self.null.as_bytes().contains(&self.quote) {
                return unsupported(
                    "CSV quote character must not appear in the NULL specification",
                );
            }
        }
        Ok(())
    }
}
