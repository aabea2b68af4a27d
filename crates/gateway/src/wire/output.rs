//! Our messages, written into one output buffer.

use aerostat_types::{Charset, ErrorKind};

use crate::api::{ColumnDescription, Notice, NoticeSeverity, Notification, TransactionStatus};
use crate::sqlstate::{Fault, WireError};

/// The form of a value on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Binary,
}

impl Format {
    pub(crate) fn from_code(code: u16) -> Result<Self, Fault> {
        match code {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(Fault::Sql(WireError::new(
                ErrorKind::InvalidParameterValue,
                format!("unsupported format code: {other}"),
            ))),
        }
    }

    pub(crate) const fn code(self) -> i16 {
        match self {
            Format::Text => 0,
            Format::Binary => 1,
        }
    }
}

/// The format of the value at a position, from the formats that the client gave: none, one for all,
/// or one for each.
pub(crate) fn format_of(formats: &[Format], at: usize) -> Format {
    match *formats {
        [] => Format::Text,
        [format] => format,
        _ => formats.get(at).copied().unwrap_or_default(),
    }
}

/// How many columns a result has, in the protocol's type.
///
/// # Errors
/// The result has more columns than the protocol can count.
pub(crate) fn count_of(columns: usize) -> Result<u16, WireError> {
    u16::try_from(columns).map_err(|_| {
        let message = format!("a result has {columns} columns, which are more than 65,535");
        WireError::new(ErrorKind::TooManyColumns, message)
    })
}

/// Bytes on their way to the client.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// The conversion of texts to the client's encoding; `None` if they stay as they are.
    pub(crate) charset: Option<&'static Charset>,
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    // A NUL would end the field early, and no text that we send may contain one.
    match memchr::memchr(0, text.as_bytes()) {
        None => bytes.extend_from_slice(text.as_bytes()),
        Some(_) => bytes.extend(text.bytes().filter(|&b| b != 0)),
    }
    bytes.push(0);
}

/// Appends a text for people, in the client's encoding as far as possible: an error must arrive,
/// whatever characters it contains.
fn put_message(bytes: &mut Vec<u8>, text: &str, charset: Option<&Charset>) {
    match charset.filter(|_| !text.is_ascii()) {
        None => put_text(bytes, text),
        Some(charset) => {
            charset.encode_lossy(&text.replace('\0', ""), bytes);
            bytes.push(0);
        }
    }
}

impl Output {
    /// Writes one message. Its length is filled in after `body` has written.
    pub(crate) fn message(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.begin(kind);
        body(&mut self.bytes);
        self.end(start);
    }

    /// Begins a message. Returns the position that [`Output::end`] needs.
    pub(crate) fn begin(&mut self, kind: u8) -> usize {
        self.bytes.push(kind);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        start
    }

    pub(crate) fn end(&mut self, start: usize) {
        assert!(
            start > 0 && start + 4 <= self.bytes.len(),
            "a message ends behind its type and its length"
        );
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    pub(crate) fn authentication(&mut self, code: u32, data: &[u8]) {
        self.message(b'R', |body| {
            body.extend_from_slice(&code.to_be_bytes());
            body.extend_from_slice(data);
        });
    }

    pub(crate) fn parameter_status(&mut self, name: &str, value: &str) {
        let charset = self.charset;
        self.message(b'S', |body| {
            put_text(body, name);
            put_message(body, value, charset);
        });
    }

    pub(crate) fn backend_key(&mut self, pid: i32, secret: i32) {
        self.message(b'K', |body| {
            body.extend_from_slice(&pid.to_be_bytes());
            body.extend_from_slice(&secret.to_be_bytes());
        });
    }

    pub(crate) fn negotiate_version(&mut self, unsupported: &[&str]) {
        self.message(b'v', |body| {
            body.extend_from_slice(&(3u32 << 16).to_be_bytes());
            body.extend_from_slice(&(unsupported.len() as u32).to_be_bytes());
            unsupported.iter().for_each(|name| put_text(body, name));
        });
    }

    pub(crate) fn ready(&mut self, status: TransactionStatus) {
        let letter = match status {
            TransactionStatus::Idle => b'I',
            TransactionStatus::InTransaction => b'T',
            TransactionStatus::Failed => b'E',
        };
        self.message(b'Z', |body| body.push(letter));
    }

    pub(crate) fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |body| put_text(body, tag));
    }

    /// A message without a body: `1`, `2`, `3`, `n`, `s`, `I`, `c`.
    pub(crate) fn bare(&mut self, kind: u8) {
        self.message(kind, |_| ());
    }

    /// # Errors
    /// There are more parameters than the protocol can count, as PREPARE may declare them; nothing
    /// is sent then.
    pub(crate) fn parameter_description(&mut self, oids: &[u32]) -> Result<(), WireError> {
        let count = u16::try_from(oids.len()).map_err(|_| {
            let message = format!("a statement has {} parameters", oids.len());
            WireError::new(ErrorKind::ProgramLimitExceeded, message)
                .with_detail("Clients are told of at most 65,535.")
        })?;
        self.message(b't', |body| {
            body.extend_from_slice(&count.to_be_bytes());
            oids.iter()
                .for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
        });
        Ok(())
    }

    /// `formats` as for [`format_of`].
    ///
    /// # Errors
    /// A name has a character that the client's encoding has not; nothing is sent then.
    pub(crate) fn row_description(
        &mut self,
        columns: &[ColumnDescription],
        formats: &[Format],
    ) -> Result<(), WireError> {
        let count = count_of(columns.len())?;
        let start = self.begin(b'T');
        let charset = self.charset;
        let body = &mut self.bytes;
        body.extend_from_slice(&count.to_be_bytes());
        for (at, column) in columns.iter().enumerate() {
            let format = format_of(formats, at);
            match charset.filter(|_| !column.name.is_ascii()) {
                None => put_text(body, &column.name),
                Some(charset) => {
                    if let Err(error) = charset.encode(&column.name, body) {
                        body.truncate(start - 1);
                        return Err(error.into());
                    }
                    body.push(0);
                }
            }
            body.extend_from_slice(&column.table_oid.0.to_be_bytes());
            body.extend_from_slice(&column.attnum.to_be_bytes());
            body.extend_from_slice(&column.oid.to_be_bytes());
            body.extend_from_slice(&column.typlen.to_be_bytes());
            body.extend_from_slice(&column.typmod.to_be_bytes());
            body.extend_from_slice(&format.code().to_be_bytes());
        }
        self.end(start);
        Ok(())
    }

    /// `G` (in) or `H` (out).
    ///
    /// # Errors
    /// There are more columns than the protocol can count; nothing is sent then.
    pub(crate) fn copy_response(
        &mut self,
        kind: u8,
        columns: usize,
        format: Format,
    ) -> Result<(), WireError> {
        let count = count_of(columns)?;
        self.message(kind, |body| {
            body.push(format.code() as u8);
            body.extend_from_slice(&count.to_be_bytes());
            (0..columns).for_each(|_| body.extend_from_slice(&format.code().to_be_bytes()));
        });
        Ok(())
    }

    pub(crate) fn error(&mut self, error: &WireError, fatal: bool) {
        let sql = &error.error;
        let severity = if fatal { "FATAL" } else { "ERROR" };
        let charset = self.charset;
        self.message(b'E', |body| {
            let mut field = |kind: u8, text: &str| {
                body.push(kind);
                put_message(body, text, charset);
            };
            field(b'S', severity);
            field(b'V', severity);
            field(b'C', error.code());
            field(b'M', &sql.message);
            let position = sql.position.map(|at| at.to_string());
            let (schema, table, column) = match sql.object.as_deref() {
                Some((schema, table, column)) => (
                    Some(schema.as_str()),
                    Some(table.as_str()),
                    column.as_deref(),
                ),
                None => (None, None, None),
            };
            let optional = [
                (b'D', sql.detail.as_deref()),
                (b'H', sql.hint.as_deref()),
                (b'P', position.as_deref()),
                (b'W', error.context.as_deref()),
                (b's', schema),
                (b't', table),
                (b'c', column),
                (b'n', sql.constraint.as_deref()),
                (b'R', error.routine()),
            ];
            for (kind, text) in optional {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    field(kind, text);
                }
            }
            body.push(0);
        });
    }

    /// `A`: the message of a session on a channel.
    pub(crate) fn notification(&mut self, notification: &Notification) {
        let charset = self.charset;
        self.message(b'A', |body| {
            body.extend_from_slice(&notification.sender.to_be_bytes());
            put_message(body, &notification.channel, charset);
            put_message(body, &notification.payload, charset);
        });
    }

    pub(crate) fn notice(&mut self, notice: &Notice) {
        let (severity, code) = match notice.severity {
            NoticeSeverity::Debug => ("DEBUG", "00000"),
            NoticeSeverity::Log => ("LOG", "00000"),
            NoticeSeverity::Info => ("INFO", "00000"),
            NoticeSeverity::Notice => ("NOTICE", "00000"),
            NoticeSeverity::Warning => ("WARNING", "01000"),
        };
        let charset = self.charset;
        self.message(b'N', |body| {
            let fields = [
                (b'S', Some(severity)),
                (b'V', Some(severity)),
                (b'C', Some(notice.kind.map_or(code, ErrorKind::sqlstate))),
                (b'M', Some(notice.message.as_str())),
                (b'D', notice.detail.as_deref()),
                (b'H', notice.hint.as_deref()),
            ];
            for (kind, text) in fields {
                if let Some(text) = text {
                    body.push(kind);
                    put_message(body, text, charset);
                }
            }
            body.push(0);
        });
    }
}
