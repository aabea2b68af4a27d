//! The text format: lines of fields with backslash escapes.

use memchr::memchr2;

use super::{
    decoder::{Step, Target, plain},
    lines::{Form, MARKED_NULL},
};
use crate::{api::CopyOptions, sqlstate::WireError};

/// Reads text records.
#[derive(Debug)]
pub(super) struct TextReader {
    delimiter: u8,
    null: String,
    /// Where the search for the record's end continues. All bytes before have been searched.
    searched: usize,
    /// Whether the searched bytes contain a backslash.
    escaped: bool,
    /// Whether the first line ended with a carriage return, too, so that the others must.
    crlf: Option<bool>,
    scratch: Vec<u8>,
}

impl TextReader {
    pub(super) fn new(options: &CopyOptions) -> Self {
        Self {
            delimiter: options.delimiter,
            null: options.null.clone(),
            searched: 0,
            escaped: false,
            crlf: None,
            scratch: Vec::new(),
        }
    }

    /// Which lines are plain, unless a line is being read.
    pub(super) fn form(&self) -> Option<Form> {
        let ready = self.searched == 0 && self.delimiter.is_ascii();
        ready.then_some(Form {
            delimiter: self.delimiter,
            special: b'\\',
            marked_null: self.null == MARKED_NULL,
        })
    }

    /// The text that stands for NULL.
    pub(super) fn null(&self) -> &str {
        &self.null
    }

    /// Notes that lines have ended without a carriage return.
    pub(super) fn lines_taken(&mut self) {
        self.crlf.get_or_insert(false);
    }

    /// The lengths of the first line without its line end, and with it.
    fn line(&mut self, data: &[u8], ended: bool) -> Option<(usize, usize)> {
        let mut at = self.searched;
        while let Some(offset) = memchr2(b'\n', b'\\', &data[at..]) {
            at += offset;
            if data[at] == b'\n' {
                self.searched = 0;
                let carriage = at > 0 && data[at - 1] == b'\r';
                let crlf = *self.crlf.get_or_insert(carriage);
                return Some((at - usize::from(carriage && crlf), at + 1));
            }
            self.escaped = true;
            // A backslash escapes the next byte, even a line end.
            if at + 1 == data.len() {
                self.searched = at;
                return self.last_line(data, ended);
            }
            at += 2;
        }
        self.searched = data.len();
        self.last_line(data, ended)
    }

    /// The bytes behind the last line end, which are a line only at the end of the data.
    fn last_line(&mut self, data: &[u8], ended: bool) -> Option<(usize, usize)> {
        if ended && !data.is_empty() {
            self.searched = 0;
            return Some((data.len(), data.len()));
        }
        None
    }

    pub(super) fn header(&mut self, data: &[u8], ended: bool) -> Option<(usize, Vec<Vec<u8>>)> {
        let (line, taken) = self.line(data, ended)?;
        self.escaped = false;
        let mut names = Vec::new();
        let mut rest = Some(&data[..line]);
        while let Some(from) = rest {
            let (raw, _, after) = field(from, self.delimiter);
            let mut name = Vec::new();
            unescape(raw, &mut name);
            names.push(name);
            rest = after;
        }
        Some((taken, names))
    }

    pub(super) fn step(
        &mut self,
        data: &[u8],
        ended: bool,
        target: &mut Target,
    ) -> Result<Step, WireError> {
        let Some((line, taken)) = self.line(data, ended) else {
            return Ok(Step::More);
        };
        target.line += 1;
        let record = &data[..line];
        if record == b"\\." {
            return Ok(Step::End);
        }
        if target.width() == 0 && record.is_empty() {
            return Ok(Step::Row(taken));
        }
        let escaped = std::mem::take(&mut self.escaped);
        if !escaped && let Some(text) = plain(record, self.delimiter) {
            let null = self.null.as_str();
            target.put_plain(text, self.delimiter, |_, value| value == null)?;
            return Ok(Step::Row(taken));
        }
        let mut rest = Some(record);
        for column in 0..target.width() {
            let Some(from) = rest else {
                return Err(target.missing(column, record));
            };
            let (raw, escaped, after) = field(from, self.delimiter);
            rest = after;
            if raw == self.null.as_bytes() {
                target.put_null(column);
            } else if escaped {
                self.scratch.clear();
                unescape(raw, &mut self.scratch);
                target.put_bytes(column, &self.scratch)?;
            } else if raw.contains(&b'\r') {
                return Err(
                    target.bad_record("literal carriage return found in data", Some(record))
                );
            } else {
                target.put_bytes(column, raw)?;
            }
        }
        match rest {
            None => Ok(Step::Row(taken)),
            Some(_) => Err(target.extra(record)),
        }
    }
}

/// The first field as it is written, whether it contains backslashes, and the bytes behind its
/// delimiter.
fn field(record: &[u8], delimiter: u8) -> (&[u8], bool, Option<&[u8]>) {
    let mut escaped = false;
    let mut at = 0;
    while let Some(&byte) = record.get(at) {
        if byte == delimiter {
            return (&record[..at], escaped, Some(&record[at + 1..]));
        }
        if byte == b'\\' {
            escaped = true;
            at += 1;
        }
        at += 1;
    }
    (record, escaped, None)
}

fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let Some((&escape, tail)) = rest.split_first() else {
            out.push(b'\\');
            return;
        };
        rest = tail;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let mut value = u32::from(escape - b'0');
                let digits = rest
                    .iter()
                    .take(2)
                    .take_while(|b| matches!(b, b'0'..=b'7'))
                    .count();
                rest[..digits]
                    .iter()
                    .for_each(|b| value = value * 8 + u32::from(b - b'0'));
                rest = &rest[digits..];
                out.push(value as u8);
            }
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
                let digits = rest
                    .iter()
                    .take(2)
                    .take_while(|b| b.is_ascii_hexdigit())
                    .count();
                let value = rest[..digits].iter().fold(0, |sum, &b| {
                    sum * 16 + (b as char).to_digit(16).unwrap_or(0)
                });
                rest = &rest[digits..];
                out.push(value as u8);
            }
            other => out.push(other),
        }
    }
}
