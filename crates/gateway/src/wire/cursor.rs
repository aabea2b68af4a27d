//! A reader of message bodies, for which a short body is an error.

use aerostat_types::ErrorKind;

use crate::sqlstate::{Fault, WireError};

/// Reads a message body from its front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

fn short() -> Fault {
    Fault::protocol("insufficient data left in message")
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    /// The bytes up to a NUL, which is skipped.
    pub(crate) fn c_bytes(&mut self) -> Result<&'a [u8], Fault> {
        let end = self
            .rest
            .iter()
            .position(|&b| b == 0)
            .ok_or_else(|| Fault::protocol("invalid string in message"))?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(text)
    }

    /// A NUL-terminated text, which must be UTF-8.
    pub(crate) fn text(&mut self) -> Result<&'a str, Fault> {
        Ok(utf8(self.c_bytes()?)?)
    }

    /// Refuses bytes after the message's last field.
    pub(crate) fn end(self) -> Result<(), Fault> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Fault::protocol("invalid message format"))
        }
    }
}

/// `bytes` as text without NUL, or PostgreSQL's error 22021.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, WireError> {
    let bad = |at: usize, count: usize| {
        let shown: Vec<String> = bytes[at..bytes.len().min(at + count)]
            .iter()
            .map(|b| format!("0x{b:02x}"))
            .collect();
        let message = format!(
            "invalid byte sequence for encoding \"UTF8\": {}",
            shown.join(" ")
        );
        WireError::new(ErrorKind::CharacterNotInRepertoire, message)
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => match bytes.iter().position(|&b| b == 0) {
            None => Ok(text),
            Some(at) => Err(bad(at, 1)),
        },
        Err(error) => {
            let at = error.valid_up_to();
            // As in PostgreSQL, as many bytes are shown as the first one announces.
            let promised = match bytes[at] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 1,
            };
            Err(bad(at, promised))
        }
    }
}
