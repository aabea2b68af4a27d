//! PostgreSQL arrays from Arrow lists: `{1,NULL,"a b"}` and their binary form; and the text of
//! a parameter's binary form.
//!
//! ```text
//! i32 dimensions (0 or 1) · i32 has NULL · u32 element type · [i32 length · i32 lower bound 1]
//! per element: i32 bytes or −1 · the element
//! ```

use std::{ops::Range, sync::Arc};

use aerostat_types::{ErrorKind, SqlType};
use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray},
    buffer::OffsetBuffer,
    compute::cast,
    datatypes::{DataType, Field},
};

use super::{Builder, Column, Zone, plain::read_oid};
use crate::{
    limits::VALUE_BYTES_MAX,
    sqlstate::WireError,
    wire::{Cursor, Format},
};

/// The number of PostgreSQL's type `oid`.
const OID: u32 = 26;

/// A column of lists.
#[derive(Debug)]
pub(crate) struct ListColumn {
    lists: ArrayRef,
    offsets: Vec<i32>,
    values: Column,
    element_oid: u32,
    /// Whether the texts are those of `int2vector` and `oidvector`, with blanks and without braces.
    vector: bool,
}

impl ListColumn {
    /// Lists whose items have this type and modifier.
    pub(super) fn new(
        array: &ArrayRef,
        (element_oid, typmod): (u32, i32),
        vector: bool,
        zone: Zone,
    ) -> Result<Self, WireError> {
        let internal = |error: &dyn std::fmt::Display| {
            WireError::new(
                ErrorKind::Internal,
                format!("cannot encode an array: {error}"),
            )
        };
        let item = match array.data_type() {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _) => field.data_type().clone(),
            other => return Err(internal(&format!("{other} is no list"))),
        };
        let target = DataType::List(Field::new_list_field(item, true).into());
        let lists =
            if array.data_type().is_nested() && matches!(array.data_type(), DataType::List(_)) {
                array.clone()
            } else {
                cast(array, &target).map_err(|error| internal(&error))?
            };
        let list = lists.as_list::<i32>();
        let values = Column::of_type(list.values(), element_oid, typmod, zone)?;
        let offsets = list.value_offsets().to_vec();
        Ok(Self {
            offsets,
            values,
            element_oid,
            vector,
            lists,
        })
    }

    /// Whether the items are texts.
    pub(super) fn is_of_texts(&self) -> bool {
        self.values.texts(Format::Binary).is_some()
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.lists.is_null(row)
    }

    fn elements(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    pub(super) fn put_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.put_text_of(row, VALUE_BYTES_MAX, out)
    }

    /// An array's text, if it has at most `bytes_max` bytes.
    fn put_text_of(
        &self,
        row: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let mut scratch = Vec::new();
        let (open, between, close): (&[u8], u8, &[u8]) = if self.vector {
            (b"", b' ', b"")
        } else {
            (b"{", b',', b"}")
        };
        // Each item with its separator takes at least two bytes.
        check_length(2 * self.elements(row).len(), bytes_max)?;
        let start = out.len();
        out.extend_from_slice(open);
        for (at, element) in self.elements(row).enumerate() {
            if at > 0 {
                out.push(between);
            }
            if self.values.is_null(element) {
                out.extend_from_slice(b"NULL");
            } else if self.values.is_plain() || matches!(self.values, Column::List(_)) {
                self.values.put_text(element, out)?;
            } else {
                scratch.clear();
                self.values.put_text(element, &mut scratch)?;
                put_element(&scratch, out);
            }
            check_length(out.len() - start, bytes_max)?;
        }
        out.extend_from_slice(close);
        Ok(())
    }

    pub(super) fn put_binary(&self, row: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        if matches!(self.values, Column::List(_)) {
            let message = "arrays of arrays have no binary form here";
            return Err(WireError::new(ErrorKind::FeatureNotSupported, message));
        }
        let elements = self.elements(row);
        check_length(size_of::<i32>() * elements.len(), VALUE_BYTES_MAX)?;
        let start = out.len();
        let has_null = elements.clone().any(|element| self.values.is_null(element));
        let dimensions = i32::from(!elements.is_empty());
        out.extend_from_slice(&dimensions.to_be_bytes());
        out.extend_from_slice(&i32::from(has_null).to_be_bytes());
        out.extend_from_slice(&self.element_oid.to_be_bytes());
        if !elements.is_empty() {
            out.extend_from_slice(&(elements.len() as i32).to_be_bytes());
            // A vector counts from 0, an array from 1.
            out.extend_from_slice(&i32::from(!self.vector).to_be_bytes());
        }
        for element in elements {
            put_value(&self.values, element, Format::Binary, out)?;
            check_length(out.len() - start, VALUE_BYTES_MAX)?;
        }
        Ok(())
    }
}

/// Refuses an array that is too long. In memory it may be longer than any stored value, and it is
/// sent in one step, while others wait.
fn check_length(bytes: usize, bytes_max: usize) -> Result<(), WireError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("an array of the result takes more than {bytes_max} bytes");
    Err(WireError::new(ErrorKind::ProgramLimitExceeded, message)
        .with_hint("Send its items as rows, which unnest makes of them."))
}

/// The text of an array, from the binary form that a client has sent. The items have the type
/// `item`, which the wire calls `element`. The text may be longer than the binary form.
pub(crate) fn text_of(
    bytes: &[u8],
    item: SqlType,
    element: u32,
    zone: Zone,
) -> Result<String, WireError> {
    let invalid = || {
        WireError::new(
            ErrorKind::InvalidBinaryRepresentation,
            "invalid binary data for an array",
        )
    };
    let mut cursor = Cursor::new(bytes);
    let mut number = || cursor.i32().map_err(|_| invalid());
    let (dimensions, _has_null, oid) = (number()?, number()?, number()?);
    let count = match dimensions {
        0 => 0,
        1 => {
            let (count, _lower_bound) = (number()?, number()?);
            usize::try_from(count).map_err(|_| invalid())?
        }
        _ => {
            let message = "parameters that are arrays of several dimensions are not supported";
            return Err(WireError::new(ErrorKind::FeatureNotSupported, message));
        }
    };
    let oid = oid.cast_unsigned();
    let is_text = |oid| SqlType::from_oid(oid).is_some_and(SqlType::is_text);
    if oid != element && !(is_text(oid) && item.is_text()) {
        return Err(WireError::new(
            ErrorKind::DatatypeMismatch,
            format!("binary data has array element type {oid} instead of expected {element}"),
        ));
    }
    // A count that is greater than the number of items leads to an error at the first missing item.
    let mut items = Builder::new(item, zone, 0);
    for _ in 0..count {
        let length = cursor.i32().map_err(|_| invalid())?;
        match usize::try_from(length) {
            Ok(length) => {
                let value = cursor.bytes(length).map_err(|_| invalid())?;
                match element == OID {
                    true => items.push(&read_oid(value)?.to_be_bytes(), Format::Binary)?,
                    false => items.push(value, Format::Binary)?,
                }
            }
            Err(_) if length == -1 => items.push_null(),
            Err(_) => return Err(invalid()),
        }
    }
    cursor.end().map_err(|_| invalid())?;
    let items = items.finish();
    let list: ArrayRef = Arc::new(ListArray::new(
        Field::new_list_field(items.data_type().clone(), true).into(),
        OffsetBuffer::from_lengths([count]),
        items,
        None,
    ));
    let mut text = Vec::new();
    ListColumn::new(&list, (item.oid(), -1), false, zone)?.put_text_of(0, usize::MAX, &mut text)?;
    String::from_utf8(text).map_err(|_| invalid())
}

/// Appends a value with its length before it; −1 for NULL.
pub(crate) fn put_value(
    column: &Column,
    row: usize,
    format: Format,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    if column.is_null(row) {
        out.extend_from_slice(&(-1i32).to_be_bytes());
        return Ok(());
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    column.put(row, format, out)?;
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Appends an element's text, quoted where PostgreSQL's `array_out` quotes.
fn put_element(text: &[u8], out: &mut Vec<u8>) {
    let special = |b: &u8| {
        matches!(
            b,
            b'{' | b'}' | b'"' | b'\\' | b',' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c
        )
    };
    if !text.is_empty() && !text.iter().any(special) && !text.eq_ignore_ascii_case(b"null") {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array in PostgreSQL's binary form, each of whose items is the greatest integer.
    fn sent(items: i32) -> Vec<u8> {
        let oid = SqlType::Integer.oid() as i32;
        let head = [1, 0, oid, items, 1];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(i32::to_be_bytes).collect();
        for _ in 0..items {
            bytes.extend(4i32.to_be_bytes());
            bytes.extend(i32::MAX.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn arrays_of_clients_may_be_longer_as_texts() {
        let items = 1_600_000;
        let bytes = sent(items);
        assert!(bytes.len() < VALUE_BYTES_MAX);
        let text = text_of(&bytes, SqlType::Integer, 23, Zone::default()).unwrap();
        assert!(text.len() > VALUE_BYTES_MAX);
    }

    #[test]
    fn arrays_that_are_sent_are_bounded() {
        let list = |items: usize| -> ArrayRef {
            let values: ArrayRef = Arc::new(arrow::array::Int32Array::from_value(7, items));
            let field = Field::new_list_field(DataType::Int32, true).into();
            let offsets = OffsetBuffer::from_lengths([items]);
            Arc::new(ListArray::new(field, offsets, values, None))
        };
        let put = |items: usize, format: Format| {
            let oid = SqlType::Integer.oid();
            let column = ListColumn::new(&list(items), (oid, -1), false, Zone::default()).unwrap();
            let mut out = Vec::new();
            match format {
                Format::Text => column.put_text(0, &mut out),
                Format::Binary => column.put_binary(0, &mut out),
            }
        };
        for (format, bytes) in [(Format::Text, 2), (Format::Binary, 8)] {
            let fits = VALUE_BYTES_MAX / bytes - 10;
            assert!(put(fits, format).is_ok(), "{format:?}");
            let refused = put(fits + 20, format).unwrap_err();
            assert_eq!(refused.code(), "54000", "{format:?}");
        }
    }
}
