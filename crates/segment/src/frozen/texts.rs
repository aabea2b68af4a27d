//! Encoding of texts and byte strings: by a sorted dictionary, or in order of rows.

use aerostat_types::VALUE_BYTES_MAX;

use crate::{
    SegmentError,
    frozen::{
        distinct::Numbering,
        encoded::Encoded,
        lanes::LaneVec,
        plan::{EncodingKind, offset_width},
        scalars::{bounds_by_vector, zones_of},
    },
    input::source::{Source, Strings},
    kernel::{
        lane::width_of,
        order::{Scalar, prefix_key},
    },
};

/// Views are worth comparing before the strings they point to while each has so many rows.
const ROWS_PER_VIEW: usize = 16;

/// The strings of all rows, numbered.
struct Numbered<'a> {
    /// Each distinct string once, in no order.
    items: Vec<&'a [u8]>,
    /// Of each row the position of its string; under a NULL that of the row before, or 0.
    numbers: Vec<u32>,
    /// The sum of the lengths in all rows.
    bytes: usize,
}

/// Encodes the strings of an attribute.
///
/// # Errors
/// [`SegmentError::ValueTooLong`] when a string is longer than a value may be.
pub(crate) fn encode(
    attribute: usize,
    source: &Source<'_>,
    strings: Strings<'_>,
    rows: usize,
) -> Result<Encoded, SegmentError> {
    let rows = Rows {
        attribute,
        source,
        strings,
        rows,
    };
    let numbered = match strings.views() {
        Some(views) => match rows.number_views(views)? {
            Some(numbered) => numbered,
            None => rows.number_strings()?,
        },
        None => rows.number_strings()?,
    };
    let distinct = numbered.items.len();
    let distinct_bytes: usize = numbered.items.iter().map(|item| item.len()).sum();
    let width = width_of((distinct as u64).saturating_sub(1)) as usize;
    let offset = |bytes: usize| offset_width(u32::try_from(bytes).unwrap_or(u32::MAX)) as usize;
    let sorted_bits = distinct_bytes * 8 + distinct * offset(distinct_bytes) + rows.rows * width;
    let row_order_bits = numbered.bytes * 8 + rows.rows * offset(numbered.bytes);
    Ok(if distinct == 0 || sorted_bits <= row_order_bits {
        rows.encode_sorted(numbered)
    } else {
        rows.encode_in_row_order(distinct)
    })
}

/// The strings of an attribute as they come.
struct Rows<'a> {
    attribute: usize,
    source: &'a Source<'a>,
    strings: Strings<'a>,
    rows: usize,
}

impl<'a> Rows<'a> {
    /// Numbers the strings by their views: equal views are equal strings, and a segment
    /// gives few different views of few strings. `None` when they are too many for that.
    fn number_views(&self, views: &[u128]) -> Result<Option<Numbered<'a>>, SegmentError> {
        let (mut by_view, mut items) = (Numbering::new(), Numbering::new());
        // Views may differ although what they point to is equal.
        let mut item_of_view: Vec<u32> = Vec::new();
        let mut numbers = Vec::with_capacity(self.rows);
        let (mut bytes, views_max) = (0, self.rows / ROWS_PER_VIEW + 64);
        for (row, &view) in views.iter().enumerate() {
            if self.source.is_null(row) {
                numbers.push(numbers.last().copied().unwrap_or(0));
                continue;
            }
            let number = by_view.number(view) as usize;
            if number == item_of_view.len() {
                if number == views_max {
                    return Ok(None);
                }
                item_of_view.push(items.number(self.get(row)?));
            }
            bytes += view as u32 as usize;
            numbers.push(item_of_view[number]);
        }
        Ok(Some(Numbered {
            items: items.into_items(),
            numbers,
            bytes,
        }))
    }

    fn number_strings(&self) -> Result<Numbered<'a>, SegmentError> {
        let mut items = Numbering::new();
        let mut numbers = Vec::with_capacity(self.rows);
        let mut bytes = 0;
        for row in 0..self.rows {
            if self.source.is_null(row) {
                numbers.push(numbers.last().copied().unwrap_or(0));
                continue;
            }
            let value = self.get(row)?;
            bytes += value.len();
            numbers.push(items.number(value));
        }
        Ok(Numbered {
            items: items.into_items(),
            numbers,
            bytes,
        })
    }

    /// The string of a row that is not NULL.
    fn get(&self, row: usize) -> Result<&'a [u8], SegmentError> {
        let value = self.strings.get(row);
        if value.len() > VALUE_BYTES_MAX {
            return Err(SegmentError::ValueTooLong {
                attribute: self.attribute,
                row,
                bytes: value.len(),
            });
        }
        Ok(value)
    }

    fn encode_sorted(&self, numbered: Numbered<'_>) -> Encoded {
        let mut encoded = Encoded::new(EncodingKind::Sorted);
        let mut sorted: Vec<(&[u8], usize)> = numbered.items.into_iter().zip(0..).collect();
        sorted.sort_unstable();
        let mut code_of = vec![0; sorted.len().max(1)];
        for (code, &(_, number)) in (0..).zip(&sorted) {
            code_of[number] = code;
        }
        let numbers = numbered.numbers.iter();
        let codes: Vec<i32> = numbers.map(|&number| code_of[number as usize]).collect();
        // Codes are in the order of strings.
        let vectors = bounds_by_vector(&codes, self.source.nulls);
        encoded.zones = zones_of(&vectors, |code| prefix_key(sorted[code as usize].0));
        encoded.descriptor.width = width_of((sorted.len() as u64).saturating_sub(1));
        encoded.codes = LaneVec::of(&codes, encoded.descriptor.width, |code: i32| code as u64);
        if !sorted.is_empty() {
            encoded.set_strings(sorted.into_iter().map(|(value, _)| value));
        }
        encoded
    }

    fn encode_in_row_order(&self, distinct: usize) -> Encoded {
        let present = |row: usize| match self.source.is_null(row) {
            true => &[],
            false => self.strings.get(row),
        };
        let mut encoded = Encoded::new(EncodingKind::RowOrder);
        encoded.distinct = Some(distinct);
        encoded.set_strings((0..self.rows).map(present));
        // As signed numbers of the same order.
        let key = |row| (prefix_key(present(row)) ^ 1 << 63) as i64;
        let keys: Vec<i64> = (0..self.rows).map(key).collect();
        let vectors = bounds_by_vector(&keys, self.source.nulls);
        encoded.zones = zones_of(&vectors, i64::order_key);
        encoded
    }
}

impl Encoded {
    fn set_strings<'a>(&mut self, strings: impl Iterator<Item = &'a [u8]>) {
        self.offsets.push(0);
        for value in strings {
            self.heap.extend_from_slice(value);
            self.offsets.push(self.heap.len() as u64);
        }
        self.descriptor.entries = self.offsets.len() as u32 - 1;
        // More than an arena holds is refused by the plan.
        self.descriptor.heap_bytes = u32::try_from(self.heap.len()).unwrap_or(u32::MAX);
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::useless_conversion, reason = "of lanes of any width")]
mod tests {
    use std::sync::Arc;

    use aerostat_types::SqlType;
    use arrow_array::{ArrayRef, StringArray, StringViewArray};

    use super::*;
    use crate::{AttributeSpec, frozen::lanes::with_lanes, input::source::Values, model::Random};

    fn encoded(array: &ArrayRef) -> Encoded {
        let spec = AttributeSpec {
            ty: SqlType::Text,
            nullable: true,
        };
        let source = Source::of(array, 0, spec).unwrap();
        let Values::Variable(strings) = source.values else {
            panic!("texts");
        };
        encode(0, &source, strings, array.len()).unwrap()
    }

    /// An array of views numbers views first, as far as there are few; what comes out is
    /// the same.
    #[test]
    fn views_are_as_good_as_strings() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let rows = random.pick(&[1, 70, 3_000, 9_000]);
            let distinct = random.pick(&[1, 5, 100, 1 << 30]);
            let nulls = random.pick(&[1, 3, 1 << 40]);
            let texts: Vec<Option<String>> = (0..rows)
                .map(|_| {
                    let text = random.below(distinct);
                    let long = if text.is_multiple_of(2) {
                        "a text that is long "
                    } else {
                        ""
                    };
                    (random.below(nulls) > 0 || nulls > 3).then(|| format!("{long}{text}"))
                })
                .collect();
            let texts = || texts.iter().map(Option::as_deref);
            let views: ArrayRef = Arc::new(texts().collect::<StringViewArray>());
            let strings: ArrayRef = Arc::new(texts().collect::<StringArray>());
            let (views, strings) = (encoded(&views), encoded(&strings));
            assert_eq!(views.descriptor, strings.descriptor, "seed {seed}");
            assert_eq!(views.heap, strings.heap, "seed {seed}");
            assert_eq!(views.offsets, strings.offsets, "seed {seed}");
            assert_eq!(views.zones, strings.zones, "seed {seed}");
            assert_eq!(views.distinct, strings.distinct, "seed {seed}");
            let [a, b] = [views, strings].map(|encoded| {
                with_lanes!(&encoded.codes, codes => {
                    codes.iter().map(|&code| code.into()).collect::<Vec<u64>>()
                })
            });
            assert_eq!(a, b, "seed {seed}");
        }
    }
}
