//! Rows as bytes, column by column, without a schema of their own.
//!
//! ```text
//!  column := 0 | 1, bitmap ⌈rows/8⌉ (set = not NULL)      whether there are NULLs
//!            rows × width, little-endian                  fixed types, as in a segment
//!            rows × varint length, then all bytes         texts and byte strings
//! ```
//!
//! The reader knows the table's types. It trusts no byte: lengths are compared with the available
//! bytes before anything is allocated, and texts are checked to be UTF-8. Decoding appends to a
//! [`RowBuffer`], so that the rows of many small commits become one batch.

use std::{ops::Range, sync::Arc};

use aerostat_segment::{ROWS_MAX, ValueRef};
use aerostat_types::{Physical, SqlType};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, PrimitiveArray,
    cast::AsArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_buffer::{
    BooleanBuffer, Buffer, MutableBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::DataType;
use thiserror::Error;

// Fixed-width values are copied as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "the log is little-endian");

/// Bytes that are no rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct BadBytes(pub(crate) &'static str);

/// Appends rows of columns to `out`. The columns are of the types that tables take.
pub(crate) fn encode(
    types: &[SqlType],
    columns: &[ArrayRef],
    rows: Range<usize>,
    out: &mut Vec<u8>,
) {
    assert_eq!(
        types.len(),
        columns.len(),
        "a row has a value for each type"
    );
    debug_assert!(
        columns.iter().all(|column| rows.end <= column.len()),
        "the rows are of the columns"
    );
    for (ty, column) in types.iter().zip(columns) {
        let nulls = column
            .nulls()
            .map(|nulls| nulls.slice(rows.start, rows.len()))
            .filter(|nulls| nulls.null_count() > 0);
        out.push(u8::from(nulls.is_some()));
        if let Some(nulls) = &nulls {
            let start = out.len();
            out.resize(start + rows.len().div_ceil(8), 0);
            for row in nulls.valid_indices() {
                out[start + row / 8] |= 1 << (row % 8);
            }
        }
        let start = out.len();
        encode_values(*ty, column, rows.clone(), out);
        if let Some(nulls) = nulls
            && ty.physical() != Physical::Variable
        {
            // What lies under a NULL is anybody's, and equal rows are equal bytes: replay
            // finds rows by them.
            let width = (out.len() - start) / rows.len();
            for row in (0..rows.len()).filter(|&row| nulls.is_null(row)) {
                out[start + row * width..][..width].fill(0);
            }
        }
    }
}

/// Appends a single row. The values are of the physical forms of the types, or NULL.
pub(crate) fn encode_row(types: &[SqlType], values: &[ValueRef<'_>], out: &mut Vec<u8>) {
    assert_eq!(types.len(), values.len(), "a row has a value for each type");
    for (ty, value) in types.iter().zip(values) {
        // No NULLs; the texts' lengths stand before their bytes, which a single row has at once.
        out.push(0);
        match *value {
            ValueRef::Null => {
                let start = out.len() - 1;
                out[start] = 1;
                // The bitmap, and the length or the value.
                let width = match ty.physical() {
                    Physical::Variable => 1,
                    physical => physical.width(),
                };
                out.resize(start + 2 + width, 0);
            }
            ValueRef::Bool(value) => out.push(u8::from(value)),
            ValueRef::I16(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::I32(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::I64(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::I128(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::F32(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::F64(value) => out.extend_from_slice(&value.to_le_bytes()),
            ValueRef::Bytes16(value) => out.extend_from_slice(&value),
            ValueRef::Interval(value) => {
                out.extend_from_slice(&value.months.to_le_bytes());
                out.extend_from_slice(&value.days.to_le_bytes());
                out.extend_from_slice(&value.nanoseconds.to_le_bytes());
            }
            ValueRef::Bytes(bytes) => {
                put_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

fn encode_values(ty: SqlType, column: &ArrayRef, rows: Range<usize>, out: &mut Vec<u8>) {
    match ty {
        SqlType::Boolean => {
            let values = column.as_boolean();
            out.extend(rows.map(|row| u8::from(values.value(row))));
        }
        SqlType::SmallInt => put::<Int16Type>(column, rows, out),
        SqlType::Integer => put::<Int32Type>(column, rows, out),
        SqlType::BigInt => put::<Int64Type>(column, rows, out),
        SqlType::Real => put::<Float32Type>(column, rows, out),
        SqlType::Double => put::<Float64Type>(column, rows, out),
        SqlType::Date => put::<Date32Type>(column, rows, out),
        SqlType::Time => put::<Time64MicrosecondType>(column, rows, out),
        SqlType::Timestamp | SqlType::TimestampTz => {
            put::<TimestampMicrosecondType>(column, rows, out);
        }
        SqlType::Interval => put::<IntervalMonthDayNanoType>(column, rows, out),
        SqlType::Numeric { .. } if ty.physical() == Physical::I64 => {
            let values = column.as_primitive::<Decimal128Type>().values();
            // The segment took the values, so those that are not NULL fit.
            out.extend(
                values[rows]
                    .iter()
                    .flat_map(|&value| (value as i64).to_le_bytes()),
            );
        }
        SqlType::Numeric { .. } => put::<Decimal128Type>(column, rows, out),
        SqlType::Uuid => {
            let values = column.as_fixed_size_binary();
            rows.for_each(|row| out.extend_from_slice(values.value(row)));
        }
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text | SqlType::Bytea => {
            encode_variable(column, rows, out);
        }
    }
}

fn put<T: ArrowPrimitiveType>(column: &ArrayRef, rows: Range<usize>, out: &mut Vec<u8>) {
    let width = size_of::<T::Native>();
    let bytes = column.as_primitive::<T>().values().inner().as_slice();
    out.extend_from_slice(&bytes[rows.start * width..rows.end * width]);
}

fn encode_variable(column: &ArrayRef, rows: Range<usize>, out: &mut Vec<u8>) {
    fn put<'a>(
        column: &ArrayRef,
        rows: Range<usize>,
        out: &mut Vec<u8>,
        get: impl Fn(usize) -> &'a [u8],
    ) {
        let nulls = column.nulls();
        let value = |row| match nulls {
            Some(nulls) if nulls.is_null(row) => &[],
            _ => get(row),
        };
        for row in rows.clone() {
            put_varint(value(row).len() as u64, out);
        }
        for row in rows {
            out.extend_from_slice(value(row));
        }
    }
    match column.data_type() {
        DataType::Utf8View => {
            let values = column.as_string_view();
            put(column, rows, out, |row| values.value(row).as_bytes());
        }
        DataType::LargeUtf8 => {
            let values = column.as_string::<i64>();
            put(column, rows, out, |row| values.value(row).as_bytes());
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            put(column, rows, out, |row| values.value(row).as_bytes());
        }
        DataType::BinaryView => {
            let values = column.as_binary_view();
            put(column, rows, out, |row| values.value(row));
        }
        DataType::LargeBinary => {
            let values = column.as_binary::<i64>();
            put(column, rows, out, |row| values.value(row));
        }
        _ => {
            let values = column.as_binary::<i32>();
            put(column, rows, out, |row| values.value(row));
        }
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads from the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&'a [u8], BadBytes> {
        let (front, rest) = self
            .0
            .split_at_checked(bytes)
            .ok_or(BadBytes("bytes are missing"))?;
        self.0 = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], BadBytes> {
        Ok(self
            .take(N)?
            .try_into()
            .expect("take gives as many bytes as asked"))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, BadBytes> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BadBytes> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BadBytes> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, BadBytes> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadBytes("a number is too long"))
    }
}

/// Decoded rows that grow into a batch.
pub(crate) struct RowBuffer {
    types: Vec<SqlType>,
    columns: Vec<ColumnBuffer>,
    rows: usize,
    bytes: usize,
}

struct ColumnBuffer {
    nulls: NullBufferBuilder,
    values: MutableBuffer,
    /// Ends of the variable-length values in `values`.
    ends: Vec<i64>,
}

impl RowBuffer {
    pub(crate) fn new(types: &[SqlType]) -> Self {
        let column = |_: &SqlType| ColumnBuffer {
            nulls: NullBufferBuilder::new(0),
            values: MutableBuffer::new(0),
            ends: vec![0],
        };
        Self {
            columns: types.iter().map(column).collect(),
            types: types.to_vec(),
            rows: 0,
            bytes: 0,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Encoded bytes of the rows: about what the buffer takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends `rows` encoded rows; `bytes` are exactly theirs.
    ///
    /// # Errors
    /// When they are not. The buffer is of no use then.
    pub(crate) fn decode(&mut self, rows: usize, bytes: &[u8]) -> Result<(), BadBytes> {
        if self.types.is_empty() && rows > ROWS_MAX as usize {
            return Err(BadBytes("more rows than a segment has"));
        }
        let mut reader = Reader(bytes);
        for (ty, column) in self.types.iter().zip(&mut self.columns) {
            match reader.byte()? {
                0 => column.nulls.append_n_non_nulls(rows_within(rows, &reader)?),
                1 => {
                    let bits = reader.take(rows.div_ceil(8))?;
                    (0..rows).for_each(|row| {
                        column.nulls.append(bits[row / 8] >> (row % 8) & 1 == 1);
                    });
                }
                _ => return Err(BadBytes("neither with nor without NULLs")),
            }
            column.decode(*ty, rows, &mut reader)?;
        }
        if !reader.0.is_empty() {
            return Err(BadBytes("bytes are left over"));
        }
        self.rows += rows;
        self.bytes += bytes.len();
        Ok(())
    }

    /// All rows as columns that a table takes; the buffer is empty then.
    ///
    /// # Errors
    /// When a text is not UTF-8.
    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>, BadBytes> {
        let taken = std::mem::replace(self, Self::new(&self.types));
        let columns = taken.types.iter().zip(taken.columns);
        let columns = columns
            .map(|(ty, column)| column.finish(*ty))
            .collect::<Result<Vec<_>, _>>()?;
        assert!(
            columns.iter().all(|column| column.len() == taken.rows),
            "each column has a value for each of {} rows",
            taken.rows
        );
        Ok(columns)
    }
}

/// Every value takes a byte at least, so more rows than bytes are a lie.
fn rows_within(rows: usize, reader: &Reader<'_>) -> Result<usize, BadBytes> {
    if rows > reader.0.len() {
        return Err(BadBytes("fewer bytes than rows"));
    }
    Ok(rows)
}

impl ColumnBuffer {
    fn decode(
        &mut self,
        ty: SqlType,
        rows: usize,
        reader: &mut Reader<'_>,
    ) -> Result<(), BadBytes> {
        match ty.physical() {
            Physical::Variable => {
                rows_within(rows, reader)?;
                let mut end = self.values.len() as u64;
                let start = end;
                for _ in 0..rows {
                    end = end
                        .checked_add(reader.varint()?)
                        .filter(|end| *end < i64::MAX as u64)
                        .ok_or(BadBytes("values are too long"))?;
                    self.ends.push(end as i64);
                }
                self.values
                    .extend_from_slice(reader.take((end - start) as usize)?);
            }
            Physical::I64 if matches!(ty, SqlType::Numeric { .. }) => {
                let bytes = reader.take(byte_count(rows, 8)?)?;
                for value in bytes.chunks_exact(8) {
                    let value = i64::from_le_bytes(value.try_into().expect("eight bytes"));
                    self.values.extend_from_slice(&[i128::from(value)]);
                }
            }
            physical => self
                .values
                .extend_from_slice(reader.take(byte_count(rows, physical.width())?)?),
        }
        Ok(())
    }

    fn finish(mut self, ty: SqlType) -> Result<ArrayRef, BadBytes> {
        let nulls = self.nulls.finish();
        let values = Buffer::from(self.values);
        let primitive = Primitive { values, nulls };
        Ok(match ty {
            SqlType::Boolean => {
                let bits = primitive.values.as_slice();
                let bits = BooleanBuffer::collect_bool(bits.len(), |at| bits[at] != 0);
                Arc::new(BooleanArray::new(bits, primitive.nulls))
            }
            SqlType::SmallInt => primitive.array::<Int16Type>(ty),
            SqlType::Integer => primitive.array::<Int32Type>(ty),
            SqlType::BigInt => primitive.array::<Int64Type>(ty),
            SqlType::Real => primitive.array::<Float32Type>(ty),
            SqlType::Double => primitive.array::<Float64Type>(ty),
            SqlType::Date => primitive.array::<Date32Type>(ty),
            SqlType::Time => primitive.array::<Time64MicrosecondType>(ty),
            SqlType::Timestamp | SqlType::TimestampTz => {
                primitive.array::<TimestampMicrosecondType>(ty)
            }
            SqlType::Interval => primitive.array::<IntervalMonthDayNanoType>(ty),
            SqlType::Numeric { .. } => primitive.array::<Decimal128Type>(ty),
            SqlType::Uuid => Arc::new(
                FixedSizeBinaryArray::try_new(16, primitive.values, primitive.nulls)
                    .map_err(|_| BadBytes("uuids of another length"))?,
            ),
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
                Arc::new(
                    LargeStringArray::try_new(offsets, primitive.values, primitive.nulls)
                        .map_err(|_| BadBytes("a text that is not UTF-8"))?,
                )
            }
            SqlType::Bytea => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
                Arc::new(
                    LargeBinaryArray::try_new(offsets, primitive.values, primitive.nulls)
                        .map_err(|_| BadBytes("byte strings out of place"))?,
                )
            }
        })
    }
}

fn byte_count(rows: usize, width: usize) -> Result<usize, BadBytes> {
    rows.checked_mul(width)
        .ok_or(BadBytes("fewer bytes than rows"))
}

struct Primitive {
    values: Buffer,
    nulls: Option<arrow_buffer::NullBuffer>,
}

impl Primitive {
    fn array<T: ArrowPrimitiveType>(self, ty: SqlType) -> ArrayRef {
        let values = ScalarBuffer::<T::Native>::from(self.values);
        Arc::new(PrimitiveArray::<T>::new(values, self.nulls).with_data_type(ty.arrow()))
    }
}
