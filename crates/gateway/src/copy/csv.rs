//! The CSV format, as PostgreSQL reads it: quotes may begin inside a field, and a quoted field may
//! contain line ends.

use memchr::{memchr2, memchr3};

use super::{
    decoder::{Step, Target, plain},
    lines::Form,
};
use crate::{api::CopyOptions, sqlstate::WireError};

/// Reads CSV records.
#[derive(Debug)]
pub(super) struct CsvReader {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    /// Per column: whether it is never NULL, and whether it may be NULL even when quoted.
    force: Vec<(bool, bool)>,
    /// Where the search for the record's end continues, and whether that is within quotes.
    searched: usize,
    quoted: bool,
    /// Whether the current record contains a quote.
    has_quotes: bool,
    crlf: Option<bool>,
    /// How many line ends within quotes the current record contains.
    inner_lines: u64,
    scratch: Vec<u8>,
}

/// A field whose value is in the scratch buffer.
struct Field<'a> {
    quoted: bool,
    rest: Option<&'a [u8]>,
}

impl CsvReader {
    pub(super) fn new(options: &CopyOptions, width: usize) -> Self {
        let force = (0..width)
            .map(|at| {
                (
                    options.force_not_null.contains(&at),
                    options.force_null.contains(&at),
                )
            })
            .collect();
        Self {
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape,
            null: options.null.clone(),
            force,
            searched: 0,
            quoted: false,
            has_quotes: false,
            crlf: None,
            inner_lines: 0,
            scratch: Vec::new(),
        }
    }

    /// Which lines are plain, unless a record is being read. With a single column no line is,
    /// because the end-of-data mark looks like a value.
    pub(super) fn form(&self) -> Option<Form> {
        let ready = self.searched == 0 && self.delimiter.is_ascii() && self.force.len() > 1;
        ready.then_some(Form {
            delimiter: self.delimiter,
            special: self.quote,
            marked_null: false,
        })
    }

    /// The text that stands for NULL in a column if it is not quoted.
    pub(super) fn null(&self, column: usize) -> Option<&str> {
        let (never_null, _) = self.force[column];
        (!never_null).then_some(self.null.as_str())
    }

    /// Notes that lines have ended without a carriage return.
    pub(super) fn lines_taken(&mut self) {
        self.crlf.get_or_insert(false);
    }

    /// The lengths of the first record without its line end, and with it.
    fn record(&mut self, data: &[u8], ended: bool) -> Option<(usize, usize)> {
        let mut at = self.searched;
        while let Some(offset) = self.next_mark(&data[at..]) {
            at += offset;
            let byte = data[at];
            if self.quoted {
                if byte == self.escape && byte != self.quote {
                    match data.get(at + 1) {
                        None if !ended => {
                            self.searched = at;
                            return None;
                        }
                        Some(&next) if next == self.quote || next == self.escape => at += 1,
                        _ => {}
                    }
                } else if byte == self.quote {
                    // A doubled quote closes and opens again, which has the same result here.
                    self.quoted = false;
                } else if byte == b'\n' {
                    self.inner_lines += 1;
                }
            } else if byte == self.quote {
                (self.quoted, self.has_quotes) = (true, true);
            } else {
                self.searched = 0;
                let carriage = at > 0 && data[at - 1] == b'\r';
                let crlf = *self.crlf.get_or_insert(carriage);
                return Some((at - usize::from(carriage && crlf), at + 1));
            }
            at += 1;
        }
        self.searched = data.len();
        if ended && !data.is_empty() {
            self.searched = 0;
            return Some((data.len(), data.len()));
        }
        None
    }

    /// The next byte that may matter for the record's end.
    fn next_mark(&self, data: &[u8]) -> Option<usize> {
        if self.quoted {
            memchr3(self.quote, self.escape, b'\n', data)
        } else {
            memchr2(self.quote, b'\n', data)
        }
    }

    pub(super) fn header(&mut self, data: &[u8], ended: bool) -> Option<(usize, Vec<Vec<u8>>)> {
        let (record, taken) = self.record(data, ended)?;
        (self.inner_lines, self.has_quotes) = (0, false);
        let mut names = Vec::new();
        let mut rest = Some(&data[..record]);
        while let Some(from) = rest {
            match self.field(from) {
                Some(field) => rest = field.rest,
                None => rest = None,
            }
            names.push(std::mem::take(&mut self.scratch));
        }
        Some((taken, names))
    }

    pub(super) fn step(
        &mut self,
        data: &[u8],
        ended: bool,
        target: &mut Target,
    ) -> Result<Step, WireError> {
        let Some((record, taken)) = self.record(data, ended) else {
            return Ok(Step::More);
        };
        target.line += 1;
        let record = &data[..record];
        if std::mem::take(&mut self.quoted) {
            return Err(target.bad_record("unterminated CSV quoted field", Some(record)));
        }
        if record == b"\\." {
            return Ok(Step::End);
        }
        if target.width() == 0 && record.is_empty() {
            return Ok(Step::Row(taken));
        }
        let has_quotes = std::mem::take(&mut self.has_quotes);
        if !has_quotes && let Some(text) = plain(record, self.delimiter) {
            let (null, force) = (self.null.as_str(), &self.force);
            target.put_plain(text, self.delimiter, |column, value| {
                let (never_null, _) = force[column];
                !never_null && value == null
            })?;
            return Ok(Step::Row(taken));
        }
        let mut rest = Some(record);
        for column in 0..target.width() {
            let Some(from) = rest else {
                return Err(target.missing(column, record));
            };
            let Some(field) = self.field(from) else {
                return Err(target.bad_record("unterminated CSV quoted field", Some(record)));
            };
            rest = field.rest;
            let (never_null, null_when_quoted) = self.force[column];
            let may_be_null = if field.quoted {
                null_when_quoted
            } else {
                !never_null
            };
            if may_be_null && self.scratch == self.null.as_bytes() {
                target.put_null(column);
            } else if !field.quoted && self.scratch.contains(&b'\r') {
                return Err(
                    target.bad_record("unquoted carriage return found in data", Some(record))
                );
            } else {
                target.put_bytes(column, &self.scratch)?;
            }
        }
        target.line += std::mem::take(&mut self.inner_lines);
        match rest {
            None => Ok(Step::Row(taken)),
            Some(_) => Err(target.extra(record)),
        }
    }

    /// Reads the first field into the scratch buffer; `None` if its quotes do not close.
    fn field<'a>(&mut self, record: &'a [u8]) -> Option<Field<'a>> {
        self.scratch.clear();
        let (mut quoted, mut inside) = (false, false);
        let mut at = 0;
        while let Some(&byte) = record.get(at) {
            at += 1;
            if inside {
                let next = record.get(at).copied();
                if byte == self.escape && next.is_some_and(|n| n == self.quote || n == self.escape)
                {
                    self.scratch.extend(next);
                    at += 1;
                } else if byte == self.quote {
                    inside = false;
                } else {
                    self.scratch.push(byte);
                }
            } else if byte == self.delimiter {
                return Some(Field {
                    quoted,
                    rest: Some(&record[at..]),
                });
            } else if byte == self.quote {
                (quoted, inside) = (true, true);
            } else {
                self.scratch.push(byte);
            }
        }
        (!inside).then_some(Field { quoted, rest: None })
    }
}
