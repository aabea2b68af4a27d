//! Encoding of fixed-width values: as their distance from the least, by a dictionary, or as they
//! are.

use std::borrow::Cow;

use arrow_buffer::NullBuffer;

use crate::{
    VECTOR_ROWS,
    format::{header::ZONE_WORDS, zone},
    frozen::{
        bits::Fixed,
        distinct::{Estimate, Members, Numbering},
        encoded::Encoded,
        lanes::LaneVec,
        plan::EncodingKind,
    },
    kernel::{
        hash::hash_number,
        lane::width_of,
        simd::{self, Kernel, Simd},
    },
};

/// A dictionary of fixed-width values has at most this many: their codes then fit 16
/// bits, and a scan's condition on them a bitmap in the L1 cache.
const ENTRIES_WIDTH_MAX: u32 = 16;

/// Frames this narrow are not worth looking for a dictionary.
const FRAME_WIDTH_SMALL: u32 = 3;

/// Up to here the values of a frame are counted by a bit each: half a MiB stays in the L2
/// cache.
const MEMBERS_WIDTH_MAX: u32 = 22;

/// After so many rows it is asked whether there are too many different values already.
const CHECK_ROWS: usize = 1024;

/// The bounds of a vector's values that are not NULL, and whether there are NULLs.
pub(crate) struct VectorBounds<T> {
    values: Option<(T, T)>,
    nulls: bool,
}

/// Encodes the values of an attribute.
pub(crate) fn encode<T: Fixed>(values: Cow<'_, [T]>, nulls: Option<&NullBuffer>) -> Encoded {
    let vectors = bounds_by_vector(&values, nulls);
    let zones = zones_of(&vectors, |value| T::order_key(value.rank()));
    let all: Vec<T> = vectors
        .iter()
        .flat_map(|vector| vector.values)
        .flat_map(<[T; 2]>::from)
        .collect();
    let (min, max) = bounds_of(&all).unwrap_or_default();
    let values = match nulls {
        // What lies under a NULL is anything: then the least value.
        Some(nulls) => {
            let mut values = values.into_owned();
            let is_null = |row: &usize| nulls.is_null(*row);
            (0..values.len())
                .filter(is_null)
                .for_each(|row| values[row] = min);
            Cow::Owned(values)
        }
        None => values,
    };
    let frame = min.to_int().zip(max.to_int()).and_then(|(min, max)| {
        let width = width_of(u64::try_from(max.checked_sub(min)?).ok()?);
        Some(Frame { base: min, width })
    });
    let mut encoded = match (dictionary(&values, frame), frame) {
        (Some(dictionary), _) => dictionary.into_encoded(),
        (None, Some(Frame { base, width })) => {
            let mut encoded = Encoded::new(EncodingKind::Frame);
            (encoded.descriptor.base, encoded.descriptor.width) = (base, width);
            encoded.codes = LaneVec::of(&values, width, |value: T| value.to_code(base));
            encoded
        }
        (None, None) => {
            let mut encoded = Encoded::new(EncodingKind::Plain);
            encoded.slots = slots_of(&values);
            encoded
        }
    };
    encoded.zones = zones;
    encoded
}

/// The bounds of each vector of values.
pub(crate) fn bounds_by_vector<T: Fixed>(
    values: &[T],
    nulls: Option<&NullBuffer>,
) -> Vec<VectorBounds<T>> {
    let vectors = values.chunks(VECTOR_ROWS as usize).enumerate();
    let bounds = vectors.map(|(nth, values)| {
        let nulls = nulls
            .map(|nulls| nulls.slice(nth * VECTOR_ROWS as usize, values.len()))
            .filter(|nulls| nulls.null_count() > 0);
        match nulls {
            None => VectorBounds {
                values: bounds_of(values),
                nulls: false,
            },
            Some(nulls) => {
                let present: Vec<T> = nulls.valid_indices().map(|at| values[at]).collect();
                VectorBounds {
                    values: bounds_of(&present),
                    nulls: true,
                }
            }
        }
    });
    bounds.collect()
}

/// The zones of vectors whose values have these order keys.
pub(crate) fn zones_of<T: Fixed>(
    vectors: &[VectorBounds<T>],
    key: impl Fn(T) -> u64,
) -> Vec<[u64; ZONE_WORDS]> {
    let zone = |vector: &VectorBounds<T>| {
        let bounds = vector.values.map(|(min, max)| (key(min), key(max)));
        zone::to_words(bounds, vector.nulls)
    };
    vectors.iter().map(zone).collect()
}

fn bounds_of<T: Fixed>(values: &[T]) -> Option<(T, T)> {
    simd::dispatch(Bounds(values))
}

/// Finds the least and the greatest value.
struct Bounds<'a, T>(&'a [T]);

impl<T: Fixed> Kernel for Bounds<'_, T> {
    type Output = Option<(T, T)>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Option<(T, T)> {
        let (mut min, mut max) = (*self.0.first()?, *self.0.first()?);
        for &value in self.0 {
            min = if value.rank() < min.rank() {
                value
            } else {
                min
            };
            max = if value.rank() > max.rank() {
                value
            } else {
                max
            };
        }
        Some((min, max))
    }
}

/// Values as distances from the least.
#[derive(Clone, Copy)]
struct Frame {
    base: i128,
    /// Bits of the greatest distance.
    width: u32,
}

/// The values, side by side.
fn slots_of<T: Fixed>(values: &[T]) -> Vec<u8> {
    let mut slots = vec![0; size_of_val(values)];
    for (slot, value) in slots.chunks_exact_mut(size_of::<T>()).zip(values) {
        slot.copy_from_slice(&value.to_raw().to_le_bytes()[..size_of::<T>()]);
    }
    slots
}

/// The distinct values of a fixed width, in order, and the codes of all rows.
struct Dictionary<T> {
    entries: Vec<T>,
    codes: LaneVec,
}

impl<T: Fixed> Dictionary<T> {
    fn into_encoded(self) -> Encoded {
        let mut encoded = Encoded::new(EncodingKind::Sorted);
        encoded.descriptor.entries = self.entries.len() as u32;
        encoded.descriptor.width = code_width(self.entries.len());
        encoded.values = slots_of(&self.entries);
        encoded.codes = self.codes;
        encoded
    }
}

/// What a dictionary may cost.
struct Limit {
    rows: usize,
    /// Bits of a row without it.
    row_bits: usize,
    value_bits: usize,
}

impl Limit {
    /// As many entries as pay with codes of so many bits.
    fn entries_of_width(&self, width: u32) -> usize {
        let saved = self.row_bits.saturating_sub(width as usize) * self.rows;
        saved.saturating_sub(1) / self.value_bits
    }

    /// No more entries ever pay.
    fn entries_max(&self) -> usize {
        let widths = 0..=ENTRIES_WIDTH_MAX;
        let entries = widths.map(|width| self.entries_of_width(width).min(1 << width));
        entries.max().unwrap_or(0)
    }

    fn allows(&self, entries: usize) -> bool {
        let width = code_width(entries);
        width <= ENTRIES_WIDTH_MAX && entries <= self.entries_of_width(width)
    }
}

/// Bits of the codes of so many entries.
fn code_width(entries: usize) -> u32 {
    width_of((entries as u64).saturating_sub(1))
}

/// The dictionary of values, if it is smaller than their frame, or than they are. Mostly it
/// is not, which shows after some rows: there are too many different values.
fn dictionary<T: Fixed>(values: &[T], frame: Option<Frame>) -> Option<Dictionary<T>> {
    let value_bits = size_of::<T>() * 8;
    let limit = Limit {
        rows: values.len(),
        row_bits: frame.map_or(value_bits, |frame| frame.width as usize),
        value_bits,
    };
    match frame {
        Some(frame) if frame.width <= FRAME_WIDTH_SMALL => None,
        Some(frame) if frame.width <= MEMBERS_WIDTH_MAX => of_members(values, frame, &limit),
        _ => of_numbers(values, &limit),
    }
}

/// Of a narrow frame, whose values are bits in order.
fn of_members<T: Fixed>(values: &[T], frame: Frame, limit: &Limit) -> Option<Dictionary<T>> {
    let Frame { base, width } = frame;
    let mut members = Members::below(1 << width);
    let entries_max = limit.entries_max();
    for values in values.chunks(CHECK_ROWS) {
        for value in values {
            members.add(value.to_code(base));
        }
        if members.count() > entries_max {
            return None;
        }
    }
    if !limit.allows(members.count()) {
        return None;
    }
    let entries: Vec<T> = members
        .iter()
        .map(|code| T::from_code(base, code))
        .collect();
    let (width, ranks) = (code_width(entries.len()), members.into_ranks());
    let codes = LaneVec::of(values, width, |value: T| ranks.of(value.to_code(base)));
    Some(Dictionary { entries, codes })
}

/// Whether there are more different values than so many; of a few more it is not told.
fn are_too_many<T: Fixed>(values: &[T], entries_max: usize) -> bool {
    let surely = entries_max + entries_max / 32 + 8;
    let mut estimate = Estimate::of_at_most(values.len());
    values.chunks(CHECK_ROWS).any(|values| {
        for value in values {
            estimate.add(hash_number(value.to_raw()));
        }
        estimate.count() > surely
    })
}

/// Of any values.
fn of_numbers<T: Fixed>(values: &[T], limit: &Limit) -> Option<Dictionary<T>> {
    let entries_max = limit.entries_max();
    if are_too_many(values, entries_max) {
        return None;
    }
    let mut numbering = Numbering::new();
    let mut numbers: Vec<u32> = Vec::with_capacity(values.len());
    for values in values.chunks(CHECK_ROWS) {
        numbers.extend(values.iter().map(|value| numbering.number(value.to_raw())));
        if numbering.items().len() > entries_max {
            return None;
        }
    }
    if !limit.allows(numbering.items().len()) {
        return None;
    }
    let items = numbering.items().iter().zip(0..);
    let mut sorted: Vec<(T, usize)> = items
        .map(|(&bits, number)| (T::from_raw(bits), number))
        .collect();
    // Equal values may differ in their bits, as 0 and −0 do.
    sorted.sort_unstable_by_key(|(value, _)| (value.rank(), value.to_raw()));
    let mut codes = vec![0; sorted.len()];
    for (code, &(_, number)) in (0..).zip(&sorted) {
        codes[number] = code;
    }
    let width = code_width(sorted.len());
    Some(Dictionary {
        codes: LaneVec::of(&numbers, width, |number: u32| codes[number as usize]),
        entries: sorted.into_iter().map(|(value, _)| value).collect(),
    })
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::useless_conversion, reason = "of lanes of any width")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{frozen::lanes::with_lanes, kernel::order::Scalar, model::Random};

    /// Values as they come out of what was made of them.
    fn decoded<T: Fixed>(encoded: &Encoded, rows: usize) -> Vec<T> {
        let codes: Vec<u64> = match encoded.descriptor.width {
            0 => vec![0; rows],
            _ => with_lanes!(&encoded.codes, codes => {
                codes.iter().map(|&code| code.into()).collect()
            }),
        };
        match encoded.descriptor.kind {
            EncodingKind::Frame => codes
                .iter()
                .map(|&code| T::from_code(encoded.descriptor.base, code))
                .collect(),
            EncodingKind::Sorted => codes
                .iter()
                .map(|&code| T::from_bytes(&encoded.values, code as usize))
                .collect(),
            _ => (0..rows)
                .map(|row| T::from_bytes(&encoded.slots, row))
                .collect(),
        }
    }

    #[test]
    fn the_smallest_encoding_is_chosen() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let rows = random.pick(&[1, 2, 100, 3_000, 20_000]);
            let distinct = random.pick(&[1, 2, 9, 40, 600, 5_000, 1 << 40]);
            let step = random.pick(&[1, 3, 1 << 10, 1 << 30, (1 << 40) + 7]);
            let least = random.next() as i64 >> random.below(64);
            let values: Vec<i64> = (0..rows)
                .map(|_| least.wrapping_add(random.below(distinct).wrapping_mul(step) as i64))
                .collect();
            let encoded = encode(Cow::Borrowed(&values[..]), None);
            assert_eq!(decoded::<i64>(&encoded, rows), values, "seed {seed}");
            let entries: BTreeSet<i64> = values.iter().copied().collect();
            let [min, max] = [values.iter().min(), values.iter().max()].map(|v| *v.unwrap());
            let frame = u64::try_from(i128::from(max) - i128::from(min)).unwrap();
            let frame = width_of(frame);
            let width = code_width(entries.len());
            let is_smaller = entries.len() * 64 + rows * (width as usize) < rows * frame as usize;
            let is_sorted = is_smaller && frame > FRAME_WIDTH_SMALL && width <= ENTRIES_WIDTH_MAX;
            let expected = match is_sorted {
                true => (EncodingKind::Sorted, width),
                false => (EncodingKind::Frame, frame),
            };
            let found = (encoded.descriptor.kind, encoded.descriptor.width);
            assert_eq!(found, expected, "seed {seed}: {} entries", entries.len());
            let limit = Limit {
                rows,
                row_bits: frame as usize,
                value_bits: 64,
            };
            assert!(
                !is_sorted || entries.len() <= limit.entries_max(),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn nulls_are_out_of_bounds_and_floats_keep_their_bits() {
        let mut random = Random(3);
        let rows = 2 * VECTOR_ROWS as usize + 5;
        let values: Vec<f64> = (0..rows)
            .map(|_| random.pick(&[0.0, -0.0, 1.5, f64::NAN, -7.25, f64::INFINITY]))
            .collect();
        // The whole first vector is NULL, and some of the second.
        let is_valid = |row: usize| row >= VECTOR_ROWS as usize && !row.is_multiple_of(3);
        let nulls: NullBuffer = (0..rows).map(is_valid).collect();
        let encoded = encode(Cow::Borrowed(&values[..]), Some(&nulls));
        assert_eq!(encoded.descriptor.kind, EncodingKind::Sorted);
        for (row, value) in decoded::<f64>(&encoded, rows).into_iter().enumerate() {
            assert!(!is_valid(row) || value.to_bits() == values[row].to_bits());
        }
        let zone = |min: f64, max: f64, nulls| {
            let keys = (f64::order_key(min.rank()), f64::order_key(max.rank()));
            zone::to_words(Some(keys), nulls)
        };
        assert_eq!(encoded.zones[0], zone::to_words(None, true));
        assert_eq!(encoded.zones[1], zone(-7.25, f64::NAN, true));
        assert_eq!(encoded.zones.len(), 3);
    }
}
