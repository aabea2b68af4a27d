//! Values as PostgreSQL's output functions write them, arrays among them: `{1,NULL,"a b"}`.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType, VALUE_BYTES_MAX, text::format_char};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::Result;

use super::super::texts::{Texts, extend};
use super::{Coercion, Zone, convert};
use crate::growth::{Growth, too_long};
use crate::type_names::blank_padded;
use crate::{name_of_arrow, raise};

/// Values as their types' output functions write them: a boolean is `t`, not `true`.
pub(crate) fn output_text(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let ty = SqlType::of_field(field);
    if let Some(length) = ty.and_then(blank_padded) {
        let texts = arrow::compute::cast(array, &DataType::Utf8View)?;
        let mut all = Texts::of(texts.len());
        for text in texts.as_string_view() {
            all.push(text.map(|text| filled(text, length)))?;
        }
        return all.finish();
    }
    match ty {
        Some(SqlType::Boolean) if *array.data_type() == DataType::Boolean => {
            let bits = array.as_boolean();
            let mut texts = Texts::of(bits.len());
            for bit in bits {
                texts.push(bit.map(|bit| if bit { "t" } else { "f" }))?;
            }
            texts.finish()
        }
        Some(from) => convert(array, from, SqlType::Text, Coercion::Explicit, &Zone::UTC),
        None => match SqlType::item_of(field) {
            Some(item) => list_text(array, &item, &Zone::UTC),
            None => Ok(arrow::compute::cast(array, &DataType::Utf8View)?),
        },
    }
}

/// A `char(n)` with its blanks.
pub(crate) fn filled(text: &str, length: u32) -> String {
    let mut filled = String::with_capacity(text.len().max(length as usize));
    format_char(text, length, &mut filled);
    filled
}

/// The text of each list; an item is of `item`.
pub(crate) fn list_text(lists: &ArrayRef, item: &Field, zone: &Zone) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let nested = matches!(item.data_type(), DataType::List(_));
    let items = item_texts(lists.values(), item, zone)?;
    let items = items.as_string_view();
    let mut texts = Texts::of(lists.len());
    let mut text = String::new();
    for (row, ends) in lists.value_offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            texts.push(None::<&str>)?;
            continue;
        }
        text.clear();
        text.push('{');
        for at in ends[0] as usize..ends[1] as usize {
            if at > ends[0] as usize {
                text.push(',');
            }
            let growth = &mut texts.growth;
            match items.is_valid(at).then(|| items.value(at)) {
                None => extend(&mut text, "NULL", growth)?,
                Some(item) if nested => extend(&mut text, item, growth)?,
                Some(item) => put_item(item, &mut text, growth)?,
            }
        }
        text.push('}');
        texts.push(Some(&text))?;
    }
    texts.finish()
}

pub(super) fn item_texts(items: &ArrayRef, item: &Field, zone: &Zone) -> Result<ArrayRef> {
    if let DataType::List(inner) = item.data_type() {
        return list_text(items, inner, zone);
    }
    if item.data_type().is_null() {
        return Ok(arrow::array::new_null_array(
            &DataType::Utf8View,
            items.len(),
        ));
    }
    match SqlType::of_field(item) {
        // Its output function is not its cast to text.
        Some(SqlType::Boolean) => {
            let bits = items.as_boolean().iter();
            let texts = bits.map(|bit| bit.map(|bit| if bit { "t" } else { "f" }));
            Ok(Arc::new(texts.collect::<arrow::array::StringViewArray>()))
        }
        Some(ty) if blank_padded(ty).is_some() => output_text(items, item),
        Some(from) => convert(items, from, SqlType::Text, Coercion::Explicit, zone),
        None => {
            let name = name_of_arrow(item.data_type());
            Err(raise(
                ErrorKind::CannotCoerce,
                format!("cannot cast type {name}[] to text"),
            ))
        }
    }
}

/// An item, quoted where it could be taken for something else.
fn put_item(item: &str, out: &mut String, growth: &mut Growth) -> Result<()> {
    let special = |c: char| {
        matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_ascii_whitespace() || c == '\u{b}'
    };
    if !item.is_empty() && !item.eq_ignore_ascii_case("null") && !item.contains(special) {
        return extend(out, item, growth);
    }
    // Each letter may have a backslash.
    extend(out, "\"", growth)?;
    growth.work(item.len())?;
    if out.len() + 2 * item.len() > VALUE_BYTES_MAX {
        return Err(too_long());
    }
    for c in item.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    Ok(())
}
