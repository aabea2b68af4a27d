//! PostgreSQL arrays from Arrow lists: `{1,NULL,"a b"}`, and their binary form.
//!
//! ```text
//! i32 dimensions (0 or 1) · i32 has NULL · u32 element type · [i32 length · i32 lower bound 1]
//! per element: i32 bytes or −1 · the element
//! ```

use std::ops::Range;

use aerostat_types::ErrorKind;
use arrow::{
    array::{Array, ArrayRef, AsArray},
    compute::cast,
    datatypes::{DataType, Field},
};

use super::{Column, Zone};
use crate::{sqlstate::WireError, wire::Format};

/// A column of lists.
#[derive(Debug)]
pub(crate) struct ListColumn {
    lists: ArrayRef,
    offsets: Vec<i32>,
    values: Column,
    element_oid: u32,
    /// `int2vector` and `oidvector` write blanks and no braces.
    vector: bool,
}

impl ListColumn {
    pub(super) fn new(
        array: &ArrayRef,
        element_oid: u32,
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
        let values = Column::of_type(list.values(), element_oid, -1, zone)?;
        let offsets = list.value_offsets().to_vec();
        Ok(Self {
            offsets,
            values,
            element_oid,
            vector,
            lists,
        })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.lists.is_null(row)
    }

    fn elements(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    pub(super) fn put_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut scratch = Vec::new();
        let (open, between, close): (&[u8], u8, &[u8]) = if self.vector {
            (b"", b' ', b"")
        } else {
            (b"{", b',', b"}")
        };
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
        }
        Ok(())
    }
}

/// A value with its length before it; −1 for NULL.
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

/// An element's text, quoted where PostgreSQL's `array_out` quotes.
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
