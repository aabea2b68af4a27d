//! The binary format.
//!
//! ```text
//! "PGCOPY\n\xff\r\n\0" · u32 flags · u32 bytes of extension · extension
//! per tuple: i16 fields · per field: i32 bytes or −1 · the value
//! i16 −1, which many clients leave out
//! ```

use aerostat_types::ErrorKind;

use super::decoder::{Step, Target};
use crate::{limits::VALUE_BYTES_MAX, sqlstate::WireError};

/// The beginning of a file.
pub(super) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// The number of fields behind the last tuple.
const END_MARK: [u8; 2] = (-1i16).to_be_bytes();

/// Flags that a reader must know: OIDs are included, which no PostgreSQL writes since version 12.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// The longest header extension that is skipped.
const EXTENSION_BYTES_MAX: usize = 1 << 20;

/// Reads binary tuples.
#[derive(Debug, Default)]
pub(super) struct BinaryReader {
    header_read: bool,
    ended: bool,
}

fn word(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..at + 4)
        .map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

impl BinaryReader {
    pub(super) fn step(
        &mut self,
        data: &[u8],
        ended: bool,
        target: &mut Target,
    ) -> Result<Step, WireError> {
        if self.ended {
            return Ok(Step::End);
        }
        let step = if self.header_read {
            self.tuple(data, target)?
        } else {
            self.header(data, target)?
        };
        let step = match step {
            Step::More if ended => self.end(data, target)?,
            step => step,
        };
        self.ended = step == Step::End;
        Ok(step)
    }

    /// Handles the end of the data. It is valid between two tuples and behind the end mark.
    fn end(&self, data: &[u8], target: &Target) -> Result<Step, WireError> {
        let message = match (self.header_read, data.len()) {
            (true, 0..2) => return Ok(Step::End),
            (true, _) if data == END_MARK => return Ok(Step::End),
            (true, _) => "unexpected EOF in COPY data",
            (false, 0..11) => "COPY file signature not recognized",
            (false, 11..15) => "invalid COPY file header (missing flags)",
            (false, 15..19) => "invalid COPY file header (missing length)",
            (false, _) => "invalid COPY file header (wrong length)",
        };
        Err(target.bad_record(message, None))
    }

    fn header(&mut self, data: &[u8], target: &Target) -> Result<Step, WireError> {
        let seen = data.len().min(SIGNATURE.len());
        if data[..seen] != SIGNATURE[..seen] {
            return Err(target.bad_record("COPY file signature not recognized", None));
        }
        let (Some(flags), Some(extension)) = (word(data, 11), word(data, 15)) else {
            return Ok(Step::More);
        };
        if flags as u32 & CRITICAL_FLAGS != 0 {
            return Err(target.bad_record("unrecognized critical flags in COPY file header", None));
        }
        let extension = usize::try_from(extension)
            .ok()
            .filter(|&bytes| bytes <= EXTENSION_BYTES_MAX);
        let Some(extension) = extension else {
            return Err(target.bad_record("invalid COPY file header (wrong length)", None));
        };
        if data.len() < 19 + extension {
            return Ok(Step::More);
        }
        self.header_read = true;
        Ok(Step::Skip(19 + extension))
    }

    /// Reads a tuple. It checks the whole tuple before it appends any value, so that a tuple which
    /// a piece cuts off can be read again from its beginning.
    fn tuple(&mut self, data: &[u8], target: &mut Target) -> Result<Step, WireError> {
        let Some(&[high, low]) = data.first_chunk::<2>() else {
            return Ok(Step::More);
        };
        let count = i16::from_be_bytes([high, low]);
        if count == -1 {
            // At the end of the data it is known whether anything follows the mark.
            return match data == END_MARK {
                true => Ok(Step::More),
                false => Err(target.bad_record("received copy data after EOF marker", None)),
            };
        }
        target.line += 1;
        let result = self.fields(data, count, target);
        if !matches!(result, Ok(Step::Row(_))) && result.is_ok() {
            target.line -= 1;
        }
        result
    }

    fn fields(&mut self, data: &[u8], count: i16, target: &mut Target) -> Result<Step, WireError> {
        if usize::try_from(count) != Ok(target.width()) {
            let message = format!("row field count is {count}, expected {}", target.width());
            return Err(target.bad_record(message, None));
        }
        let mut at = 2;
        for _ in 0..count {
            let Some(length) = word(data, at) else {
                return Ok(Step::More);
            };
            at += 4;
            match usize::try_from(length) {
                Ok(bytes) if bytes > VALUE_BYTES_MAX => {
                    let message = format!("a value of {bytes} bytes is too long");
                    return Err(WireError::new(ErrorKind::ProgramLimitExceeded, message));
                }
                Ok(bytes) => at += bytes,
                Err(_) if length == -1 => {}
                Err(_) => return Err(target.bad_record("invalid field size", None)),
            }
        }
        if data.len() < at {
            return Ok(Step::More);
        }
        let mut at = 2;
        for column in 0..target.width() {
            let length = word(data, at).unwrap_or(-1);
            at += 4;
            match usize::try_from(length) {
                Ok(bytes) => {
                    target.put_binary(column, &data[at..at + bytes])?;
                    at += bytes;
                }
                Err(_) => target.put_null(column),
            }
        }
        Ok(Step::Row(at))
    }
}
