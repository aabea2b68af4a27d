//! bytea and uuid.

use super::{TextError, TextSink, put_ascii};
use crate::ErrorKind;

/// Reads a bytea in hex (`\x0aff`) or escape form (`a\\b\001`).
///
/// # Errors
/// `InvalidTextRepresentation`, `InvalidParameterValue`.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::new();
    parse_bytea_into(text, &mut bytes)?;
    Ok(bytes)
}

/// As [`parse_bytea`], appending to `bytes`; after an error `bytes` may hold a part.
///
/// # Errors
/// `InvalidTextRepresentation`, `InvalidParameterValue`.
pub fn parse_bytea_into(text: &str, bytes: &mut Vec<u8>) -> Result<(), TextError> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex, bytes),
        None => parse_escaped(text, bytes),
    }
}

fn parse_hex(hex: &str, bytes: &mut Vec<u8>) -> Result<(), TextError> {
    bytes.reserve(hex.len() / 2);
    let mut at = 0;
    let source = hex.as_bytes();
    while at < source.len() {
        if super::is_blank(source[at]) {
            at += 1;
            continue;
        }
        let high = hex_digit(hex, at)?;
        if at + 1 == source.len() {
            let message = "invalid hexadecimal data: odd number of digits";
            return Err(TextError::new(ErrorKind::InvalidParameterValue, message));
        }
        bytes.push(high << 4 | hex_digit(hex, at + 1)?);
        at += 2;
    }
    Ok(())
}

fn hex_digit(hex: &str, at: usize) -> Result<u8, TextError> {
    let byte = hex.as_bytes()[at];
    match (byte as char).to_digit(16) {
        Some(digit) => Ok(digit as u8),
        None => {
            let character = hex
                .get(at..)
                .and_then(|rest| rest.chars().next())
                .unwrap_or('\u{fffd}');
            let message = format!("invalid hexadecimal digit: \"{character}\"");
            Err(TextError::new(ErrorKind::InvalidParameterValue, message))
        }
    }
}

fn parse_escaped(text: &str, bytes: &mut Vec<u8>) -> Result<(), TextError> {
    let invalid = || {
        TextError::new(
            ErrorKind::InvalidTextRepresentation,
            "invalid input syntax for type bytea",
        )
    };
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        rest = match *tail {
            [b'\\', ..] => {
                bytes.push(b'\\');
                &tail[1..]
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                &tail[3..]
            }
            _ => return Err(invalid()),
        };
    }
    Ok(())
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writes a bytea in hex form.
pub fn format_bytea(bytes: &[u8], out: &mut impl TextSink) {
    out.put("\\x");
    let mut buffer = [0; 256];
    for chunk in bytes.chunks(buffer.len() / 2) {
        for (at, byte) in chunk.iter().enumerate() {
            buffer[2 * at] = HEX[usize::from(byte >> 4)];
            buffer[2 * at + 1] = HEX[usize::from(byte & 15)];
        }
        put_ascii(out, &buffer[..2 * chunk.len()]);
    }
}

/// Reads a uuid: 32 hex digits, a hyphen allowed after each group of four, braces allowed around all.
///
/// # Errors
/// `InvalidTextRepresentation`.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], TextError> {
    let parse = || {
        let inner = match text.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}')?,
            None => text,
        };
        let mut rest = inner.as_bytes();
        let mut uuid = [0; 16];
        for (at, byte) in uuid.iter_mut().enumerate() {
            let [high, low, tail @ ..] = rest else {
                return None;
            };
            let digit = |b: u8| (b as char).to_digit(16);
            *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
            rest = tail;
            if at % 2 == 1 && at < 15 {
                rest = rest.strip_prefix(b"-").unwrap_or(rest);
            }
        }
        rest.is_empty().then_some(uuid)
    };
    parse().ok_or_else(|| TextError::invalid("uuid", text))
}

/// Writes a uuid in its canonical form.
pub fn format_uuid(uuid: &[u8; 16], out: &mut impl TextSink) {
    let mut buffer = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        buffer[at] = HEX[usize::from(byte >> 4)];
        buffer[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    put_ascii(out, &buffer);
}
