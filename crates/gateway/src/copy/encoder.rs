//! COPY TO: encoding rows as `CopyData` messages, one for each row.

use std::sync::Arc;

use aerostat_types::{Charset, ErrorKind};
use arrow::record_batch::RecordBatch;

use super::binary::SIGNATURE;
use crate::{
    api::{ColumnDescription, CopyFormat, CopyHeader, CopyOptions, ForceQuote},
    sqlstate::WireError,
    value::{Column, Texts, Zone, check_length, put_value},
    wire::{Format, Output},
};

/// Encodes the rows of one COPY TO.
#[derive(Debug)]
pub(crate) struct Encoder {
    columns: Arc<[ColumnDescription]>,
    options: CopyOptions,
    zone: Zone,
    quote_always: Vec<bool>,
    scratch: Vec<u8>,
    /// Whether the binary header has been written, which is part of the first message.
    begun: bool,
    /// The conversion of texts to the data's encoding.
    charset: Option<&'static Charset>,
}

impl Encoder {
    /// An encoder for rows of `columns`.
    pub(crate) fn new(
        columns: Arc<[ColumnDescription]>,
        options: CopyOptions,
        zone: Zone,
        charset: Option<&'static Charset>,
    ) -> Self {
        let quote_always = (0..columns.len())
            .map(|at| match &options.force_quote {
                ForceQuote::None => false,
                ForceQuote::All => true,
                ForceQuote::Columns(columns) => columns.contains(&at),
            })
            .collect();
        Self {
            columns,
            options,
            zone,
            quote_always,
            scratch: Vec::new(),
            begun: false,
            charset,
        }
    }

    /// The format of all columns, for `CopyOutResponse`.
    pub(crate) fn format(&self) -> Format {
        match self.options.format {
            CopyFormat::Binary => Format::Binary,
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
        }
    }

    /// Prepares a batch for encoding.
    pub(crate) fn prepare(&self, batch: &RecordBatch) -> Result<Vec<Column>, WireError> {
        if batch.num_columns() != self.columns.len() {
            return Err(WireError::new(
                ErrorKind::Internal,
                "a batch has another number of columns than its COPY",
            ));
        }
        let columns = batch.columns().iter().zip(self.columns.iter());
        columns
            .map(|(array, declared)| Column::new(array, declared, self.zone))
            .collect()
    }

    /// Writes the header line, if the statement asks for one.
    ///
    /// # Errors
    /// A name has a character that the data's encoding does not have.
    pub(crate) fn put_header(&mut self, output: &mut Output) -> Result<(), WireError> {
        if self.options.header == CopyHeader::None {
            return Ok(());
        }
        let start = output.begin(b'd');
        for at in 0..self.columns.len() {
            if at > 0 {
                output.bytes.push(self.options.delimiter);
            }
            let name = self.columns[at].name.clone();
            match self.options.format {
                CopyFormat::Csv => self.put_csv(name.as_bytes(), false, &mut output.bytes),
                _ => escape(name.as_bytes(), self.options.delimiter, &mut output.bytes),
            }
        }
        output.bytes.push(b'\n');
        self.encode_line(start, output)
    }

    /// Converts the line behind a message's length to the data's encoding, and ends the message.
    fn encode_line(&self, start: usize, output: &mut Output) -> Result<(), WireError> {
        // The length of a message includes itself, that of a value does not, so it is written
        // again.
        let encoded = match self.charset {
            Some(charset) => Texts::Whole.encode_last(charset, start, &mut output.bytes),
            None => Ok(()),
        };
        match encoded {
            Ok(()) => output.end(start),
            Err(_) => output.bytes.truncate(start - 1),
        }
        encoded
    }

    /// Writes one row.
    pub(crate) fn put_row(
        &mut self,
        columns: &[Column],
        row: usize,
        output: &mut Output,
    ) -> Result<(), WireError> {
        assert_eq!(
            columns.len(),
            self.columns.len(),
            "a row has the columns of its COPY"
        );
        let start = output.begin(b'd');
        let put = match self.options.format {
            CopyFormat::Binary => self.put_tuple(columns, row, &mut output.bytes),
            CopyFormat::Text | CopyFormat::Csv => self.put_line(columns, row, &mut output.bytes),
        };
        match (put, self.options.format) {
            (Ok(()), CopyFormat::Binary) => output.end(start),
            (Ok(()), CopyFormat::Text | CopyFormat::Csv) => return self.encode_line(start, output),
            // No part of a row that failed may reach the client.
            (Err(error), _) => {
                output.bytes.truncate(start - 1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the end of the data.
    pub(crate) fn put_end(&mut self, output: &mut Output) {
        if self.options.format == CopyFormat::Binary {
            let start = output.begin(b'd');
            self.put_signature(&mut output.bytes);
            output.bytes.extend_from_slice(&(-1i16).to_be_bytes());
            output.end(start);
        }
    }

    fn put_signature(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(SIGNATURE);
            out.extend_from_slice(&[0; 8]);
        }
    }

    fn put_tuple(
        &mut self,
        columns: &[Column],
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        self.put_signature(out);
        let begin = out.len();
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for column in columns {
            let start = out.len();
            put_value(column, row, Format::Binary, out)?;
            if let Some(charset) = self.charset
                && let Some(texts) = column.texts(Format::Binary)
            {
                texts.encode_last(charset, start, out)?;
            }
            check_length(out.len() - begin)?;
        }
        Ok(())
    }

    fn put_line(
        &mut self,
        columns: &[Column],
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let csv = self.options.format == CopyFormat::Csv;
        let begin = out.len();
        for (at, column) in columns.iter().enumerate() {
            check_length(out.len() - begin)?;
            if at > 0 {
                out.push(self.options.delimiter);
            }
            if column.is_null(row) {
                out.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            let mut value = std::mem::take(&mut self.scratch);
            value.clear();
            column.put_text(row, &mut value)?;
            if csv {
                // A lone "\." would be read as the end of the data.
                let force = self.quote_always[at] || columns.len() == 1 && value == b"\\.";
                self.put_csv(&value, force, out);
            } else if column.is_plain() {
                out.extend_from_slice(&value);
            } else {
                escape(&value, self.options.delimiter, out);
            }
            self.scratch = value;
        }
        out.push(b'\n');
        Ok(())
    }

    fn put_csv(&self, value: &[u8], force: bool, out: &mut Vec<u8>) {
        let (delimiter, quote, escape) = (
            self.options.delimiter,
            self.options.quote,
            self.options.escape,
        );
        let special = |b: &u8| *b == delimiter || *b == quote || matches!(b, b'\n' | b'\r');
        if !force && value != self.options.null.as_bytes() && !value.iter().any(special) {
            out.extend_from_slice(value);
            return;
        }
        out.push(quote);
        for &byte in value {
            if byte == quote || byte == escape {
                out.push(escape);
            }
            out.push(byte);
        }
        out.push(quote);
    }
}

/// Appends a value with the text format's escapes.
fn escape(value: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for &byte in value {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            other if other == delimiter => other,
            other => {
                out.push(other);
                continue;
            }
        };
        out.push(b'\\');
        out.push(letter);
    }
}
