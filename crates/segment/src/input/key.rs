//! Keys: the key attributes of a row as bytes whose order is the SQL order of the rows
//! (memcomparable), so that keys of any attributes are compared with `memcmp`.
//!
//! | attribute | bytes |
//! |---|---|
//! | boolean | 0 or 1 |
//! | integers, dates, times, decimals | big-endian, sign bit flipped |
//! | floats | 8 bytes: the rank; −0 as 0, NaN the greatest |
//! | uuid | as it is |
//! | interval | 16 bytes: nanoseconds in all, so that `1 mon` equals `30 days` |
//! | text, bytea | bytes, 00 written as 00 FF, ended by 00 00 |
//!
//! The key of a secondary index may have NULLs. An attribute that takes them has a byte in front
//! of its value, 00, and 01 for NULL, so that NULLs are last; an 01 is followed by zeros, or by
//! nothing for text and bytea.
//!
//! A key is not stored in the segment: it is derived from the row's attributes.

mod order;
pub(crate) mod translated;

use std::{cmp::Ordering, fmt, ops::Deref};

use aerostat_types::Physical;
use arrow_buffer::NullBuffer;

use crate::{
    Literal, SegmentError, SegmentSchema,
    format::{arena::Arena, intern::with_value, nulls::Nulls},
    input::source::{NewRows, Values},
    kernel::{
        order::{Scalar, f64_of_rank, rank_of_f64},
        plain::interval_of,
    },
};

/// A key of its own.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Vec<u8>);

/// A borrowed key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef<'a>(pub &'a [u8]);

impl Key {
    /// A key from its bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Key {
        Key(bytes)
    }

    /// The borrowed form.
    pub fn borrow(&self) -> KeyRef<'_> {
        KeyRef(&self.0)
    }

    /// The key of these values, one for each key attribute, in key order. `None` when a
    /// value is not of the attribute's kind or beyond its range: no row has such a key.
    pub fn encode(schema: &SegmentSchema, values: &[Literal]) -> Option<Key> {
        if values.len() != schema.key().len() {
            return None;
        }
        let mut bytes = Vec::new();
        for (&attribute, value) in schema.key().iter().zip(values) {
            put_literal(&mut bytes, schema.physical(attribute), value)?;
        }
        Some(Key(bytes))
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl KeyRef<'_> {
    /// A copy of its own.
    pub fn to_key(self) -> Key {
        Key(self.0.to_vec())
    }

    /// The values that make this key, in key order; an interval as its nanoseconds in all,
    /// for that is what it is compared by. `None` when it is no key of the schema.
    pub fn values(self, schema: &SegmentSchema) -> Option<Vec<Literal>> {
        let mut rest = self.0;
        let values = schema
            .key()
            .iter()
            .map(|&attribute| take_literal(&mut rest, schema.physical(attribute)))
            .collect::<Option<Vec<Literal>>>()?;
        rest.is_empty().then_some(values)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// The keys of all rows of a batch.
#[derive(Clone, Debug)]
pub struct Keys {
    len: usize,
    bytes: Vec<u8>,
    ends: Ends,
}

#[derive(Clone, Debug)]
enum Ends {
    /// Every key has this many bytes.
    Fixed(usize),
    /// The end of each key in `bytes`.
    Each(Vec<usize>),
}

impl Keys {
    /// The keys of all these rows. Of a schema without key every row has the empty key.
    ///
    /// # Errors
    /// A column of another type than its attribute, a NULL in a key column, or a decimal
    /// out of range.
    pub fn encode<'a>(
        schema: &SegmentSchema,
        rows: impl Into<NewRows<'a>>,
    ) -> Result<Keys, SegmentError> {
        Keys::of(schema, schema.key(), rows)
    }

    /// The keys that the rows have in a secondary index of these attributes.
    ///
    /// # Errors
    /// Those of [`Keys::encode`], of attributes that take no NULL.
    pub fn of<'a>(
        schema: &SegmentSchema,
        attributes: &[usize],
        rows: impl Into<NewRows<'a>>,
    ) -> Result<Keys, SegmentError> {
        let rows = rows.into();
        let len = rows.len();
        let mut parts = Vec::with_capacity(attributes.len());
        for &attribute in attributes {
            let spec = schema.attributes()[attribute];
            let source = rows.source(attribute, spec)?;
            if source.nulls.is_some() && !spec.nullable {
                return Err(SegmentError::NullValue { attribute });
            }
            parts.push(Part {
                attribute,
                values: source.values,
                nulls: source.nulls,
                nullable: spec.nullable,
            });
        }
        let widths: Option<Vec<usize>> =
            parts.iter().map(|part| fixed_width(&part.values)).collect();
        match widths {
            Some(widths) => encode_fixed(len, &parts, &widths),
            None => encode_each(len, &parts),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A row's key.
    pub fn get(&self, row: usize) -> KeyRef<'_> {
        assert!(row < self.len, "row {row} of {}", self.len);
        KeyRef(match &self.ends {
            Ends::Fixed(width) => &self.bytes[row * width..(row + 1) * width],
            Ends::Each(ends) => {
                &self.bytes[row.checked_sub(1).map_or(0, |before| ends[before])..ends[row]]
            }
        })
    }

    /// The keys in order of rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = KeyRef<'_>> + '_ {
        (0..self.len).map(|row| self.get(row))
    }
}

/// In front of a value, and of none, of an attribute that takes NULL.
pub(crate) const VALUE: u8 = 0;
pub(crate) const NULL: u8 = 1;

/// An attribute on its way into keys.
struct Part<'a> {
    attribute: usize,
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
    nullable: bool,
}

impl Part<'_> {
    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

/// Bytes of an attribute in a key, when all values have as many.
fn fixed_width(values: &Values<'_>) -> Option<usize> {
    Some(match values {
        Values::Bool(_) => 1,
        Values::I16(_) => 2,
        Values::I32(_) => 4,
        Values::I64(_) | Values::Narrow(_) | Values::F32(_) | Values::F64(_) => 8,
        Values::I128(_) | Values::Bytes16(_) | Values::Interval(_) => 16,
        Values::Variable(_) => return None,
    })
}

/// Column by column, each filling its stripe of all keys.
fn encode_fixed(len: usize, parts: &[Part<'_>], widths: &[usize]) -> Result<Keys, SegmentError> {
    let marks = parts.iter().filter(|part| part.nullable).count();
    let width = widths.iter().sum::<usize>() + marks;
    let mut bytes = vec![0; len * width];
    let mut offset = 0;
    for (part, own) in parts.iter().zip(widths) {
        let first = offset;
        offset += usize::from(part.nullable);
        let out = Stripe {
            bytes: &mut bytes,
            width,
            offset,
        };
        match part.values {
            Values::Bool(array) => out.fill((0..len).map(|row| [u8::from(array.value(row))])),
            Values::I16(values) => out.fill(values.iter().map(|&v| flip_i16(v))),
            Values::I32(values) => out.fill(values.iter().map(|&v| flip_i32(v))),
            Values::I64(values) => out.fill(values.iter().map(|&v| flip_i64(v))),
            Values::Narrow(values) => {
                let out_of_range =
                    |row: usize| !part.is_null(row) && i64::try_from(values[row]).is_err();
                if (0..len).any(out_of_range) {
                    let attribute = part.attribute;
                    return Err(SegmentError::ValueOutOfRange { attribute });
                }
                out.fill(values.iter().map(|&v| flip_i64(v as i64)));
            }
            Values::I128(values) => out.fill(values.iter().map(|&v| flip_i128(v))),
            Values::F32(values) => out.fill(values.iter().map(|&v| v.rank().to_be_bytes())),
            Values::F64(values) => out.fill(values.iter().map(|&v| v.rank().to_be_bytes())),
            Values::Bytes16(values) => out.fill(values.iter().copied()),
            Values::Interval(values) => out.fill(values.iter().map(|&v| flip_i128(v.rank()))),
            Values::Variable(_) => unreachable!("variable attributes have no fixed width"),
        }
        offset += own;
        for row in (0..len).filter(|&row| part.is_null(row)) {
            let key = &mut bytes[row * width..][..width];
            key[first] = NULL;
            key[first + 1..offset].fill(0);
        }
    }
    Ok(Keys {
        len,
        bytes,
        ends: Ends::Fixed(width),
    })
}

/// An attribute's part of every key.
struct Stripe<'a> {
    bytes: &'a mut [u8],
    width: usize,
    offset: usize,
}

impl Stripe<'_> {
    fn fill<const N: usize>(self, values: impl Iterator<Item = [u8; N]>) {
        for (key, value) in self.bytes.chunks_exact_mut(self.width).zip(values) {
            key[self.offset..self.offset + N].copy_from_slice(&value);
        }
    }
}

/// Row by row, for keys with text.
fn encode_each(len: usize, parts: &[Part<'_>]) -> Result<Keys, SegmentError> {
    let (mut bytes, mut ends) = (Vec::with_capacity(len * 16), Vec::with_capacity(len));
    for row in 0..len {
        for part in parts {
            let is_null = part.is_null(row);
            if part.nullable {
                bytes.push(if is_null { NULL } else { VALUE });
            }
            if is_null {
                bytes.resize(bytes.len() + fixed_width(&part.values).unwrap_or(0), 0);
                continue;
            }
            match part.values {
                Values::Bool(array) => bytes.push(u8::from(array.value(row))),
                Values::I16(values) => bytes.extend(flip_i16(values[row])),
                Values::I32(values) => bytes.extend(flip_i32(values[row])),
                Values::I64(values) => bytes.extend(flip_i64(values[row])),
                Values::Narrow(values) => {
                    let attribute = part.attribute;
                    bytes.extend(flip_i64(
                        i64::try_from(values[row])
                            .map_err(|_| SegmentError::ValueOutOfRange { attribute })?,
                    ));
                }
                Values::I128(values) => bytes.extend(flip_i128(values[row])),
                Values::F32(values) => bytes.extend(values[row].rank().to_be_bytes()),
                Values::F64(values) => bytes.extend(values[row].rank().to_be_bytes()),
                Values::Bytes16(values) => bytes.extend(values[row]),
                Values::Interval(values) => bytes.extend(flip_i128(values[row].rank())),
                Values::Variable(strings) => put_escaped(&mut bytes, strings.get(row)),
            }
        }
        ends.push(bytes.len());
    }
    Ok(Keys {
        len,
        bytes,
        ends: Ends::Each(ends),
    })
}

pub(crate) fn put_literal(out: &mut Vec<u8>, physical: Physical, value: &Literal) -> Option<()> {
    match (physical, value) {
        (Physical::Bool, Literal::Bool(value)) => out.push(u8::from(*value)),
        (Physical::I16, Literal::Int(value)) => out.extend(flip_i16(i16::try_from(*value).ok()?)),
        (Physical::I32, Literal::Int(value)) => out.extend(flip_i32(i32::try_from(*value).ok()?)),
        (Physical::I64, Literal::Int(value)) => out.extend(flip_i64(i64::try_from(*value).ok()?)),
        (Physical::I128, Literal::Int(value)) => out.extend(flip_i128(*value)),
        (Physical::F32 | Physical::F64, Literal::Float(value)) => {
            out.extend(rank_of_f64(*value).to_be_bytes())
        }
        (Physical::Bytes16, Literal::Bytes(value)) => {
            out.extend(<[u8; 16]>::try_from(value.as_slice()).ok()?)
        }
        (Physical::Variable, Literal::Bytes(value)) => put_escaped(out, value),
        _ => return None,
    }
    Some(())
}

/// Takes the first value off a key.
fn take_literal(rest: &mut &[u8], physical: Physical) -> Option<Literal> {
    fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
        let (first, others) = rest.split_first_chunk::<N>()?;
        *rest = others;
        Some(*first)
    }
    Some(match physical {
        Physical::Bool => Literal::Bool(take::<1>(rest)? == [1]),
        Physical::I16 => Literal::Int(unflip(u16::from_be_bytes(take(rest)?).into(), 16)),
        Physical::I32 => Literal::Int(unflip(u32::from_be_bytes(take(rest)?).into(), 32)),
        Physical::I64 => Literal::Int(unflip(u64::from_be_bytes(take(rest)?).into(), 64)),
        Physical::I128 | Physical::Interval => {
            Literal::Int((u128::from_be_bytes(take(rest)?) ^ 1 << 127) as i128)
        }
        Physical::F32 | Physical::F64 => {
            Literal::Float(f64_of_rank(u64::from_be_bytes(take(rest)?)))
        }
        Physical::Bytes16 => Literal::Bytes(take::<16>(rest)?.to_vec()),
        Physical::Variable => Literal::Bytes(take_escaped(rest)?),
    })
}

/// The inverse of [`put_escaped`].
fn take_escaped(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    loop {
        let zero = rest.iter().position(|&byte| byte == 0)?;
        value.extend_from_slice(&rest[..zero]);
        let mark = *rest.get(zero + 1)?;
        *rest = &rest[zero + 2..];
        match mark {
            0 => return Some(value),
            0xFF => value.push(0),
            _ => return None,
        }
    }
}

/// What takes the bytes of a key piece by piece: a vector, or a comparison.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Compares a key with one that comes piece by piece, without storing that.
struct Comparison<'a> {
    rest: Option<&'a [u8]>,
}

impl Sink for Comparison<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.rest = self.rest.and_then(|rest| rest.strip_prefix(bytes));
    }
}

/// Orders a key that comes piece by piece relative to another.
pub(crate) struct Comparer<'a> {
    rest: &'a [u8],
    order: Ordering,
}

impl<'a> Comparer<'a> {
    pub(crate) fn with(key: &'a [u8]) -> Comparer<'a> {
        Comparer {
            rest: key,
            order: Ordering::Equal,
        }
    }

    /// The order of what came; less if it only begins the other.
    pub(crate) fn order(self) -> Ordering {
        if self.rest.is_empty() {
            self.order
        } else {
            self.order.then(Ordering::Less)
        }
    }
}

impl Sink for Comparer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if self.order.is_ne() {
            return;
        }
        let (own, rest) = self.rest.split_at(self.rest.len().min(bytes.len()));
        // The longer of the two is the greater, should this be where the other ends.
        self.order = bytes.cmp(own);
        self.rest = rest;
    }
}

/// The key that a published row has of these attributes.
pub(crate) fn of_row(arena: &Arena, attributes: &[usize], row: u32) -> Key {
    let mut bytes = Vec::new();
    put_row(arena, attributes, row, &mut bytes);
    Key(bytes)
}

/// Whether a published row has this key of these attributes.
pub(crate) fn row_has(arena: &Arena, attributes: &[usize], row: u32, key: KeyRef<'_>) -> bool {
    let mut comparison = Comparison { rest: Some(key.0) };
    put_row(arena, attributes, row, &mut comparison);
    comparison.rest.is_some_and(<[u8]>::is_empty)
}

/// The key that a published row has of these attributes, piece by piece.
pub(crate) fn put_row(arena: &Arena, attributes: &[usize], row: u32, out: &mut impl Sink) {
    let at = row as usize;
    for &attribute in attributes {
        let physical = arena.schema().physical(attribute);
        if let Some(nulls) = Nulls::of(arena, attribute)
            && put_mark(physical, nulls.is_null(row), out)
        {
            continue;
        }
        match physical {
            Physical::Bool => out.put(&[arena.slots::<u8>(attribute).get(at)]),
            Physical::I16 => out.put(&flip_i16(arena.slots(attribute).get(at))),
            Physical::I32 => out.put(&flip_i32(arena.slots(attribute).get(at))),
            Physical::I64 => out.put(&flip_i64(arena.slots(attribute).get(at))),
            Physical::I128 => out.put(&flip_i128(arena.slots(attribute).get(at))),
            Physical::F32 => out.put(&arena.slots::<f32>(attribute).get(at).rank().to_be_bytes()),
            Physical::F64 => out.put(&arena.slots::<f64>(attribute).get(at).rank().to_be_bytes()),
            Physical::Bytes16 => out.put(&arena.slots::<[u8; 16]>(attribute).get(at)),
            Physical::Interval => {
                let value = arena
                    .slots::<arrow_buffer::IntervalMonthDayNano>(attribute)
                    .get(at);
                out.put(&flip_i128(value.rank()));
            }
            Physical::Variable => {
                let slot = arena.slots::<u64>(attribute).get(at);
                with_value(slot, arena.heap(), |value| put_escaped(out, value));
            }
        }
    }
}

/// What is in front of an attribute that takes NULL; for a NULL all that it has, and true.
pub(crate) fn put_mark(physical: Physical, is_null: bool, out: &mut impl Sink) -> bool {
    if !is_null {
        out.put(&[VALUE]);
        return false;
    }
    out.put(&[NULL]);
    if physical != Physical::Variable {
        out.put(&[0; 16][..key_width(physical)]);
    }
    true
}

/// Bytes of a value of a fixed width in a key.
pub(crate) fn key_width(physical: Physical) -> usize {
    match physical {
        Physical::F32 => 8,
        other => other.width(),
    }
}

/// A value of a fixed width, given as the bits of its slot.
pub(crate) fn put_slot(physical: Physical, bits: u128, out: &mut impl Sink) {
    match physical {
        Physical::Bool => out.put(&[bits as u8]),
        Physical::I16 => out.put(&flip_i16(bits as i16)),
        Physical::I32 => out.put(&flip_i32(bits as i32)),
        Physical::I64 => out.put(&flip_i64(bits as i64)),
        Physical::I128 => out.put(&flip_i128(bits as i128)),
        Physical::F32 => out.put(&f32::from_bits(bits as u32).rank().to_be_bytes()),
        Physical::F64 => out.put(&f64::from_bits(bits as u64).rank().to_be_bytes()),
        Physical::Bytes16 => out.put(&bits.to_le_bytes()),
        Physical::Interval => out.put(&flip_i128(interval_of(bits).rank())),
        Physical::Variable => unreachable!("strings have no fixed width"),
    }
}

/// 00 becomes 00 FF, and 00 00 ends the value: no value's form is a prefix of
/// another's, and a shorter value is before the longer ones that it begins.
pub(crate) fn put_escaped(out: &mut impl Sink, value: &[u8]) {
    let mut pieces = value.split(|&byte| byte == 0);
    if let Some(first) = pieces.next() {
        out.put(first);
    }
    for piece in pieces {
        out.put(&[0, 0xFF]);
        out.put(piece);
    }
    out.put(&[0, 0]);
}

/// The number whose sign bit was flipped among its lowest `bits`.
fn unflip(flipped: u128, bits: u32) -> i128 {
    flipped as i128 - (1 << (bits - 1))
}

fn flip_i16(value: i16) -> [u8; 2] {
    (value as u16 ^ 1 << 15).to_be_bytes()
}

fn flip_i32(value: i32) -> [u8; 4] {
    (value as u32 ^ 1 << 31).to_be_bytes()
}

fn flip_i64(value: i64) -> [u8; 8] {
    (value as u64 ^ 1 << 63).to_be_bytes()
}

fn flip_i128(value: i128) -> [u8; 16] {
    (value as u128 ^ 1 << 127).to_be_bytes()
}
