//! Converting the texts in a value's bytes between the client's encoding and the server's.
//!
//! The text form of every value is a text. The binary form of a text is one, too, and the binary
//! form of an array of texts contains some.

use std::borrow::Cow;

use aerostat_types::Charset;

use crate::{sqlstate::WireError, wire::utf8};

/// Which of a value's bytes are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    /// All of them.
    Whole,
    /// The items of an array in its binary form.
    Items,
}

/// The size of the length before a value.
const LENGTH_BYTES: usize = 4;

impl Texts {
    /// Converts the value at the end of `out`, whose length is at `start`, to the client's
    /// encoding.
    ///
    /// # Errors
    /// A character is not in the client's encoding.
    pub(crate) fn encode_last(
        self,
        charset: &Charset,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let body = start + LENGTH_BYTES;
        if out.get(body..).is_none_or(<[u8]>::is_ascii) {
            return Ok(());
        }
        let value = out.split_off(body);
        let encode = |text: &[u8], out: &mut Vec<u8>| Ok(charset.encode(utf8(text)?, out)?);
        match self {
            Texts::Whole => encode(&value, out)?,
            Texts::Items => each_item(&value, out, encode)?,
        }
        let length = (out.len() - body) as u32;
        out[start..body].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// A value from the client with its texts in the server's encoding.
    ///
    /// # Errors
    /// A byte is not a character of the client's encoding.
    pub(crate) fn decode<'a>(
        self,
        charset: &Charset,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, WireError> {
        if bytes.is_ascii() {
            return Ok(Cow::Borrowed(bytes));
        }
        match self {
            Texts::Whole => Ok(match charset.decode(bytes)? {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            }),
            Texts::Items => {
                let mut out = Vec::with_capacity(bytes.len() * 2);
                each_item(bytes, &mut out, |text, out| {
                    out.extend_from_slice(charset.decode(text)?.as_bytes());
                    Ok(())
                })?;
                Ok(Cow::Owned(out))
            }
        }
    }
}

/// Appends an array in its binary form with each item converted. Bytes that are not an array are
/// appended unchanged; the code that reads them reports the error.
fn each_item(
    array: &[u8],
    out: &mut Vec<u8>,
    convert: impl Fn(&[u8], &mut Vec<u8>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let word = |at: usize| {
        let bytes = array.get(at..at + LENGTH_BYTES)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    let dimensions = word(0).and_then(|count| usize::try_from(count).ok());
    // Dimensions, whether there are NULLs, the items' type; size and lower bound of each dimension.
    let head = dimensions.and_then(|count| count.checked_mul(8)?.checked_add(12));
    let Some(head) = head.filter(|head| *head <= array.len()) else {
        out.extend_from_slice(array);
        return Ok(());
    };
    out.extend_from_slice(&array[..head]);
    let mut at = head;
    while let Some(length) = word(at) {
        at += LENGTH_BYTES;
        let start = out.len();
        out.extend_from_slice(&length.to_be_bytes());
        let Ok(length) = usize::try_from(length) else {
            continue;
        };
        let Some(item) = array.get(at..at.saturating_add(length)) else {
            break;
        };
        convert(item, out)?;
        let converted = (out.len() - start - LENGTH_BYTES) as u32;
        out[start..start + LENGTH_BYTES].copy_from_slice(&converted.to_be_bytes());
        at += length;
    }
    out.extend_from_slice(&array[at..]);
    Ok(())
}
