//! The client's messages of the extended protocol, and their lengths.

use aerostat_types::Charset;
use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    limits::{MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX},
    sqlstate::{Fault, WireError},
    wire::{Cursor, Format},
};

/// The length of the body of a message of this type, at most; `None` for types that no client
/// sends. COPY data have no limit here, because they are read in pieces.
pub(crate) const fn message_limit(kind: u8) -> Option<usize> {
    match kind {
        b'Q' | b'P' | b'B' | b'F' => Some(MESSAGE_BYTES_MAX),
        b'd' => Some(usize::MAX),
        b'C' | b'D' | b'E' | b'H' | b'S' | b'X' | b'c' | b'f' | b'p' => {
            Some(SMALL_MESSAGE_BYTES_MAX)
        }
        _ => None,
    }
}

/// A message with its names and statements in the server's encoding; `None` if it contains none.
/// Its other parts stay unchanged: values of parameters are converted by their types.
///
/// # Errors
/// A byte is not a character of the client's encoding.
pub(crate) fn decoded_body(
    kind: u8,
    body: &[u8],
    charset: &Charset,
) -> Result<Option<Bytes>, WireError> {
    let (before, texts) = match kind {
        b'Q' | b'E' => (0, 1),
        b'P' | b'B' => (0, 2),
        b'D' | b'C' => (1, 1),
        _ => return Ok(None),
    };
    let (head, mut rest) = body.split_at(before.min(body.len()));
    let mut decoded = Vec::with_capacity(body.len() + body.len() / 2);
    decoded.extend_from_slice(head);
    for _ in 0..texts {
        // The code that reads the message reports the missing end of a text.
        let Some(end) = memchr::memchr(0, rest) else {
            break;
        };
        decoded.extend_from_slice(charset.decode(&rest[..end])?.as_bytes());
        decoded.push(0);
        rest = &rest[end + 1..];
    }
    decoded.extend_from_slice(rest);
    Ok(Some(decoded.into()))
}

/// The object of a Describe or Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

/// Parse: prepares a statement under a name.
#[derive(Debug)]
pub(crate) struct Parse<'a> {
    pub(crate) name: &'a str,
    pub(crate) query: &'a str,
    pub(crate) parameter_oids: Vec<u32>,
}

impl<'a> Parse<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(body);
        let name = cursor.text()?;
        let query = cursor.text()?;
        let count = cursor.u16()?;
        let parameter_oids = (0..count).map(|_| cursor.u32()).collect::<Result<_, _>>()?;
        cursor.end()?;
        Ok(Self {
            name,
            query,
            parameter_oids,
        })
    }
}

/// Bind: makes a portal of a statement and parameters.
#[derive(Debug)]
pub(crate) struct Bind<'a> {
    pub(crate) portal: &'a str,
    pub(crate) statement: &'a str,
    pub(crate) parameter_formats: Formats,
    pub(crate) parameters: SmallVec<[Option<&'a [u8]>; 8]>,
    pub(crate) result_formats: Formats,
}

/// Formats of values, mostly one for all of them.
pub(crate) type Formats = SmallVec<[Format; 8]>;

fn formats(cursor: &mut Cursor<'_>) -> Result<Formats, Fault> {
    let count = cursor.u16()?;
    let mut formats = Formats::new();
    for _ in 0..count {
        formats.push(Format::from_code(cursor.u16()?)?);
    }
    Ok(formats)
}

impl<'a> Bind<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(body);
        let portal = cursor.text()?;
        let statement = cursor.text()?;
        let parameter_formats = formats(&mut cursor)?;
        let count = cursor.u16()?;
        let parameter = |cursor: &mut Cursor<'a>| match cursor.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length)
                    .map_err(|_| Fault::protocol("invalid parameter length"))?;
                cursor.bytes(length).map(Some)
            }
        };
        let mut parameters = SmallVec::new();
        for _ in 0..count {
            parameters.push(parameter(&mut cursor)?);
        }
        let result_formats = formats(&mut cursor)?;
        cursor.end()?;
        Ok(Self {
            portal,
            statement,
            parameter_formats,
            parameters,
            result_formats,
        })
    }
}

/// Describe or Close.
#[derive(Debug)]
pub(crate) struct Describe<'a> {
    pub(crate) target: Target,
    pub(crate) name: &'a str,
}

impl<'a> Describe<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(body);
        let target = match cursor.u8()? {
            b'S' => Target::Statement,
            b'P' => Target::Portal,
            other => {
                return Err(Fault::protocol(format!(
                    "invalid DESCRIBE or CLOSE message subtype {other}"
                )));
            }
        };
        let name = cursor.text()?;
        cursor.end()?;
        Ok(Self { target, name })
    }
}

/// Execute: runs a portal, for at most a number of rows.
#[derive(Debug)]
pub(crate) struct Execute<'a> {
    pub(crate) portal: &'a str,
    /// `None` for all.
    pub(crate) rows_max: Option<u64>,
}

impl<'a> Execute<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(body);
        let portal = cursor.text()?;
        let rows = cursor.i32()?;
        cursor.end()?;
        Ok(Self {
            portal,
            rows_max: u64::try_from(rows).ok().filter(|&rows| rows > 0),
        })
    }
}
