//! COPY FROM: decoding pieces of bytes to batches of rows.

use std::sync::Arc;

use aerostat_types::{Charset, ErrorKind};
use arrow::{
    datatypes::{Schema, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};

use memchr::memchr2;

use super::{
    binary::BinaryReader,
    csv::CsvReader,
    lines::{Lines, Splitter},
    text::TextReader,
};
use crate::{
    api::{CopyColumn, CopyFormat, CopyHeader, CopyOptions},
    limits::{COPY_BATCH_BYTES, COPY_BATCH_ROWS, COPY_ROW_BYTES_MAX},
    sqlstate::WireError,
    value::{Builder, Texts, Zone},
    wire::{Format, utf8},
};

/// Decodes the data of one COPY FROM.
#[derive(Debug)]
pub(crate) struct Decoder {
    reader: Reader,
    splitter: Splitter,
    target: Target,
    /// Bytes that have been received; from `start` on they have not been decoded.
    pending: Vec<u8>,
    start: usize,
    /// Whether no more bytes will come.
    ended: bool,
    /// Whether the end-of-data mark has been read. Later bytes are ignored, in whatever piece.
    marked: bool,
    header: CopyHeader,
    /// The conversion of the data to the server's encoding when they arrive. In the binary format
    /// each value is converted by itself.
    charset: Option<&'static Charset>,
}

#[derive(Debug)]
enum Reader {
    Text(TextReader),
    Csv(CsvReader),
    Binary(BinaryReader),
}

impl Reader {
    /// The text that stands for NULL in a column if nothing is quoted.
    fn null(&self, column: usize) -> Option<&str> {
        match self {
            Reader::Text(reader) => Some(reader.null()),
            Reader::Csv(reader) => reader.null(column),
            Reader::Binary(_) => None,
        }
    }
}

/// What a reader has found at the beginning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A row of this many bytes.
    Row(usize),
    /// This many bytes without a row.
    Skip(usize),
    /// A record that continues beyond the available bytes.
    More,
    /// The end-of-data mark.
    End,
}

/// The columns that rows are read into, and the current position in the data.
#[derive(Debug)]
pub(super) struct Target {
    table: String,
    columns: Vec<CopyColumn>,
    builders: Vec<Builder>,
    schema: SchemaRef,
    rows: usize,
    /// How many bytes of the data the rows took.
    bytes: usize,
    /// The number of the current line or tuple, from 1.
    pub(super) line: u64,
    charset: Option<&'static Charset>,
}

impl Target {
    pub(super) fn width(&self) -> usize {
        self.columns.len()
    }

    pub(super) fn name(&self, column: usize) -> &str {
        &self.columns[column].name
    }

    /// The error for a record that is wrong as a whole.
    pub(super) fn bad_record(
        &self,
        message: impl Into<String>,
        record: Option<&[u8]>,
    ) -> WireError {
        let mut context = format!("COPY {}, line {}", self.table, self.line);
        if let Some(record) = record {
            context.push_str(": \"");
            context.push_str(&shown(record));
            context.push('"');
        }
        WireError::new(ErrorKind::BadCopyFileFormat, message).with_context(context)
    }

    fn in_column(&self, error: WireError, column: usize, value: Option<&[u8]>) -> WireError {
        let mut context = format!(
            "COPY {}, line {}, column {}",
            self.table, self.line, self.columns[column].name
        );
        if let Some(value) = value {
            context.push_str(": \"");
            context.push_str(&shown(value));
            context.push('"');
        }
        error.with_context(context)
    }

    pub(super) fn missing(&self, column: usize, record: &[u8]) -> WireError {
        let message = format!("missing data for column \"{}\"", self.name(column));
        self.bad_record(message, Some(record))
    }

    pub(super) fn extra(&self, record: &[u8]) -> WireError {
        self.bad_record("extra data after last expected column", Some(record))
    }

    /// Appends the values of a [`plain`] record. `is_null` recognises NULL by column and text.
    pub(super) fn put_plain(
        &mut self,
        record: &str,
        delimiter: u8,
        is_null: impl Fn(usize, &str) -> bool,
    ) -> Result<(), WireError> {
        let mut rest = Some(record);
        for column in 0..self.width() {
            let Some(from) = rest else {
                return Err(self.missing(column, record.as_bytes()));
            };
            // Most fields are too short for a vectorised search to be worth it.
            let value = match from.bytes().position(|byte| byte == delimiter) {
                Some(end) => {
                    rest = Some(&from[end + 1..]);
                    &from[..end]
                }
                None => rest.take().unwrap_or_default(),
            };
            if is_null(column, value) {
                self.put_null(column);
            } else {
                let put = self.builders[column].push_text(value);
                put.map_err(|error| self.in_column(error, column, Some(value.as_bytes())))?;
            }
        }
        match rest {
            None => Ok(()),
            Some(_) => Err(self.extra(record.as_bytes())),
        }
    }

    /// Appends the values of lines, column by column.
    fn put_lines(&mut self, lines: Lines<'_>, reader: &Reader) -> Result<(), WireError> {
        let (mut rows, mut bad) = (lines.count(), None);
        for (column, builder) in self.builders.iter_mut().enumerate() {
            let fields = lines.column(column).take(rows);
            if let Err((row, error)) = builder.push_fields(fields, reader.null(column)) {
                // Later columns are read only up to this row, because an earlier row's error comes
                // first.
                (rows, bad) = (row, Some((column, error)));
            }
        }
        self.line += rows as u64;
        if let Some((column, error)) = bad {
            self.line += 1;
            let value = lines.column(column).nth(rows);
            let value = value.map(|field| field.text().as_bytes());
            return Err(self.in_column(error, column, value));
        }
        self.rows += rows;
        self.bytes += lines.bytes();
        Ok(())
    }

    pub(super) fn put_bytes(&mut self, column: usize, value: &[u8]) -> Result<(), WireError> {
        let put = utf8(value).and_then(|text| self.builders[column].push_text(text));
        put.map_err(|error| self.in_column(error, column, Some(value)))
    }

    pub(super) fn put_binary(&mut self, column: usize, value: &[u8]) -> Result<(), WireError> {
        let is_text = self.columns[column].ty.is_text();
        let put = match self.charset.filter(|_| is_text) {
            None => self.builders[column].push(value, Format::Binary),
            Some(charset) => {
                let decoded = Texts::Whole.decode(charset, value);
                decoded.and_then(|text| self.builders[column].push(&text, Format::Binary))
            }
        };
        put.map_err(|error| self.in_column(error, column, None))
    }

    pub(super) fn put_null(&mut self, column: usize) {
        self.builders[column].push_null();
    }

    fn is_full(&self) -> bool {
        self.rows >= COPY_BATCH_ROWS || self.bytes >= COPY_BATCH_BYTES
    }

    fn batch(&mut self) -> Result<RecordBatch, WireError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        let finish = |builder: &mut Builder| {
            let column = builder.finish();
            // The next batch probably has about as many rows.
            builder.restart(rows);
            column
        };
        let columns = self.builders.iter_mut().map(finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|error| {
            WireError::new(
                ErrorKind::Internal,
                format!("COPY built a bad batch: {error}"),
            )
        })
    }
}

/// The record as text, if its values are simply the texts between delimiters: it contains no byte
/// that is refused, and none that the delimiter could be a part of.
pub(super) fn plain(record: &[u8], delimiter: u8) -> Option<&str> {
    if !delimiter.is_ascii() || memchr2(0, b'\r', record).is_some() {
        return None;
    }
    std::str::from_utf8(record).ok()
}

/// How many bytes of a value an error's context shows; PostgreSQL's MAX_COPY_DATA_DISPLAY.
const SHOWN_BYTES_MAX: usize = 100;

fn shown(value: &[u8]) -> String {
    let cut = &value[..value.len().min(SHOWN_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < value.len() {
        text.push_str("...");
    }
    text
}

impl Decoder {
    /// A decoder for rows of `columns`, which are written as `options` say.
    pub(crate) fn new(
        table: &str,
        columns: &[CopyColumn],
        options: &CopyOptions,
        zone: Zone,
        charset: Option<&'static Charset>,
    ) -> Self {
        let fields: Vec<_> = columns.iter().map(|c| c.ty.field(&c.name, true)).collect();
        let target = Target {
            table: table.to_owned(),
            columns: columns.to_vec(),
            builders: columns
                .iter()
                .map(|c| Builder::new(c.ty, zone, COPY_BATCH_ROWS))
                .collect(),
            schema: Arc::new(Schema::new(fields)),
            rows: 0,
            bytes: 0,
            line: 0,
            charset,
        };
        let reader = match options.format {
            CopyFormat::Text => Reader::Text(TextReader::new(options)),
            CopyFormat::Csv => Reader::Csv(CsvReader::new(options, columns.len())),
            CopyFormat::Binary => Reader::Binary(BinaryReader::default()),
        };
        Self {
            reader,
            splitter: Splitter::default(),
            target,
            pending: Vec::new(),
            start: 0,
            ended: false,
            marked: false,
            header: options.header,
            charset: charset.filter(|_| options.format != CopyFormat::Binary),
        }
    }

    /// How many bytes have been received and not decoded yet.
    pub(crate) fn undecoded_bytes(&self) -> usize {
        self.pending.len() - self.start
    }

    /// Takes a piece of the data. The caller decodes everything with [`Decoder::next_batch`] before
    /// it pushes more, or after a few pieces together.
    ///
    /// # Errors
    /// A byte is not a character of the data's encoding.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), WireError> {
        self.pending.drain(..std::mem::take(&mut self.start));
        if self.marked {
            return Ok(());
        }
        match self.charset {
            None => self.pending.extend_from_slice(piece),
            // Each byte is a character, so a piece may end anywhere.
            Some(charset) => {
                let text = charset.decode(piece)?;
                self.pending.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }

    /// Notes that the data are complete.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// A full batch, or the rest after [`Decoder::end`]; `None` if more bytes are needed.
    ///
    /// # Errors
    /// A mistake in the data, with line and column as context.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, WireError> {
        while !self.marked && !self.target.is_full() {
            self.take_lines()?;
            if self.target.is_full() {
                break;
            }
            match self.step()? {
                Step::Row(bytes) => {
                    assert!(bytes > 0, "a row takes bytes, or COPY never ends");
                    self.start += bytes;
                    self.target.rows += 1;
                    self.target.bytes += bytes;
                }
                Step::Skip(bytes) => self.start += bytes,
                Step::End => {
                    self.marked = true;
                    self.start = self.pending.len();
                    break;
                }
                Step::More => {
                    self.check_pending()?;
                    break;
                }
            }
            assert!(
                self.start <= self.pending.len(),
                "{} bytes were decoded, and {} have come",
                self.start,
                self.pending.len()
            );
        }
        let ready = self.target.is_full() || self.ended && self.target.rows > 0;
        if ready {
            self.target.batch().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Decodes the plain lines at the beginning of the bytes. Nearly all lines are plain.
    fn take_lines(&mut self) -> Result<(), WireError> {
        let form = match &self.reader {
            Reader::Text(reader) => reader.form(),
            Reader::Csv(reader) => reader.form(),
            Reader::Binary(_) => None,
        };
        let width = self.target.width();
        let (Some(form), CopyHeader::None, 1..) = (form, self.header, width) else {
            return Ok(());
        };
        let rows_max = COPY_BATCH_ROWS - self.target.rows;
        let data = &self.pending[self.start..];
        let lines = self.splitter.split(data, &form, width, rows_max);
        if lines.count() == 0 {
            return Ok(());
        }
        self.target.put_lines(lines, &self.reader)?;
        self.start += lines.bytes();
        match &mut self.reader {
            Reader::Text(reader) => reader.lines_taken(),
            Reader::Csv(reader) => reader.lines_taken(),
            Reader::Binary(_) => {}
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step, WireError> {
        let data = &self.pending[self.start..];
        if self.header != CopyHeader::None {
            return self.skip_header();
        }
        match &mut self.reader {
            Reader::Text(reader) => reader.step(data, self.ended, &mut self.target),
            Reader::Csv(reader) => reader.step(data, self.ended, &mut self.target),
            Reader::Binary(reader) => reader.step(data, self.ended, &mut self.target),
        }
    }

    fn skip_header(&mut self) -> Result<Step, WireError> {
        let data = &self.pending[self.start..];
        let found = match &mut self.reader {
            Reader::Text(reader) => reader.header(data, self.ended),
            Reader::Csv(reader) => reader.header(data, self.ended),
            Reader::Binary(_) => None,
        };
        let Some((bytes, names)) = found else {
            return Ok(Step::More);
        };
        self.target.line = 1;
        if std::mem::take(&mut self.header) == CopyHeader::Match {
            self.check_header(&names)?;
        }
        Ok(Step::Skip(bytes))
    }

    fn check_header(&self, names: &[Vec<u8>]) -> Result<(), WireError> {
        let target = &self.target;
        if names.len() != target.width() {
            let message = format!(
                "wrong number of fields in header line: got {}, expected {}",
                names.len(),
                target.width()
            );
            return Err(target.bad_record(message, None));
        }
        for (at, name) in names.iter().enumerate() {
            if name != target.name(at).as_bytes() {
                let message = format!(
                    "column name mismatch in header line field {}: got \"{}\", expected \"{}\"",
                    at + 1,
                    shown(name),
                    target.name(at)
                );
                return Err(target.bad_record(message, None));
            }
        }
        Ok(())
    }

    fn check_pending(&self) -> Result<(), WireError> {
        if self.pending.len() - self.start <= COPY_ROW_BYTES_MAX {
            return Ok(());
        }
        let context = format!("COPY {}, line {}", self.target.table, self.target.line + 1);
        let message = format!("a row of COPY data is longer than {COPY_ROW_BYTES_MAX} bytes");
        Err(WireError::new(ErrorKind::ProgramLimitExceeded, message).with_context(context))
    }
}
