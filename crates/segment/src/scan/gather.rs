//! Gather: the selected values of an attribute as an Arrow array of
//! [`aerostat_types::SqlType::arrow`].
//!
//! A range over adjacent values in their Arrow form is handed out without a copy. Long texts are
//! copied only where they are a small part of those they lie among: else a view points into the heap.

mod frozen;

use std::sync::Arc;

use aerostat_types::{Physical, SqlType};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, PrimitiveArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::{
    Pinned, Selection,
    body::segment::Form,
    kernel::{
        plain::{Plain, Slots},
        simd,
    },
    scan::buffer::{self, Views},
};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// A line that the prefetcher does not foresee takes so many times as long as one in order.
const UNFORESEEN: usize = 5;

impl Pinned<'_> {
    /// Asks for the cache lines of attributes that are about to be gathered, where several of
    /// them lie in one row-wise group and the rows are so dense that reading past all of them
    /// in order takes less than one miss after the other.
    pub fn prefetch(&self, attributes: &[usize], selection: &Selection) {
        let (Form::Hot(arena), Selection::Rows(rows)) = (self.form(), selection) else {
            return;
        };
        let &[first, .., last] = &rows[..] else {
            return;
        };
        let schema = self.schema();
        let places = attributes.iter().map(|&attribute| schema.place(attribute));
        let mut places: Vec<(usize, usize)> =
            places.map(|place| (place.group, place.offset)).collect();
        places.sort_unstable();
        for of_group in places.chunk_by(|a, b| a.0 == b.0) {
            let &[(group, low), .., (_, high)] = of_group else {
                continue;
            };
            let stride = schema.strides()[group];
            let lines_wanted = rows.len() * ((high - low) / LINE_BYTES + 1);
            let span = first as usize * stride..(last as usize + 1) * stride;
            if lines_wanted * UNFORESEEN >= span.len() / LINE_BYTES {
                let tuples = arena.tuples(group);
                span.step_by(LINE_BYTES)
                    .for_each(|at| simd::prefetch(tuples, at));
            }
        }
    }

    /// The selected values of an attribute. Nothing is copied where the selection is a
    /// range and the attribute has a group of its own in Arrow's form; long texts are
    /// copied only where they are few. An array that shares bytes keeps them in memory.
    pub fn gather(&self, attribute: usize, selection: &Selection) -> ArrayRef {
        self.assert_has(attribute);
        if let Form::Frozen(frozen) = self.form()
            && !frozen.is_plain(attribute)
        {
            return frozen::gather(self, frozen, attribute, selection);
        }
        let ty = self.schema().attributes()[attribute].ty;
        // The slots first: they acquire the row count, which covers the null bits.
        let source = Source {
            segment: self,
            attribute,
            selection,
        };
        match ty {
            SqlType::Boolean => source.booleans(),
            SqlType::SmallInt => source.primitive::<Int16Type>(ty),
            SqlType::Integer => source.primitive::<Int32Type>(ty),
            SqlType::BigInt => source.primitive::<Int64Type>(ty),
            SqlType::Real => source.primitive::<Float32Type>(ty),
            SqlType::Double => source.primitive::<Float64Type>(ty),
            SqlType::Numeric { .. } if ty.physical() == Physical::I64 => source.narrow_decimals(ty),
            SqlType::Numeric { .. } => source.primitive::<Decimal128Type>(ty),
            SqlType::Date => source.primitive::<Date32Type>(ty),
            SqlType::Time => source.primitive::<Time64MicrosecondType>(ty),
            SqlType::Timestamp | SqlType::TimestampTz => {
                source.primitive::<TimestampMicrosecondType>(ty)
            }
            SqlType::Interval => source.primitive::<IntervalMonthDayNanoType>(ty),
            SqlType::Uuid => source.uuids(),
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
                Arc::new(Views::of(self, attribute, selection.iter()).into_text(source.nulls()))
            }
            SqlType::Bytea => {
                Arc::new(Views::of(self, attribute, selection.iter()).into_bytes(source.nulls()))
            }
        }
    }
}

struct Source<'a> {
    segment: &'a Pinned<'a>,
    attribute: usize,
    selection: &'a Selection,
}

impl Source<'_> {
    fn slots<T: Plain>(&self) -> Slots<'_, T> {
        self.segment.form().slots(self.attribute)
    }

    fn nulls(&self) -> Option<NullBuffer> {
        self.segment
            .form()
            .nulls_within(self.attribute, self.selection)?
            .gather(self.selection)
    }

    /// The selected values, converted.
    fn collect<T: Plain, U>(&self, convert: impl Fn(T) -> U) -> Vec<U> {
        let slots = self.slots::<T>();
        match self.selection {
            Selection::Range(rows) => slots
                .part(rows.start as usize, rows.end as usize)
                .iter()
                .map(convert)
                .collect(),
            Selection::Rows(rows) => rows
                .iter()
                .map(|&row| convert(slots.get(row as usize)))
                .collect(),
        }
    }

    /// Values whose slot is their Arrow form.
    fn primitive<T: ArrowPrimitiveType<Native: Plain>>(&self, ty: SqlType) -> ArrayRef {
        let values = self
            .shared()
            .unwrap_or_else(|| ScalarBuffer::from(self.collect(|value: T::Native| value)));
        self.finish::<T>(values, ty.arrow())
    }

    /// Decimals that are stored in eight bytes.
    fn narrow_decimals(&self, ty: SqlType) -> ArrayRef {
        self.finish::<Decimal128Type>(
            ScalarBuffer::from(self.collect(|value: i64| i128::from(value))),
            ty.arrow(),
        )
    }

    fn finish<T: ArrowPrimitiveType>(
        &self,
        values: ScalarBuffer<T::Native>,
        data_type: DataType,
    ) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::new(values, self.nulls()).with_data_type(data_type))
    }

    /// The values as they lie, when they can be shared.
    fn shared<T: Plain + ArrowNativeType>(&self) -> Option<ScalarBuffer<T>> {
        let Selection::Range(rows) = self.selection else {
            return None;
        };
        buffer::column(
            self.segment,
            self.attribute,
            rows.start as usize,
            rows.end as usize,
        )
    }

    fn booleans(&self) -> ArrayRef {
        let slots = self.slots::<u8>();
        let bits = match self.selection {
            Selection::Range(rows) => {
                let part = slots.part(rows.start as usize, rows.end as usize);
                BooleanBuffer::collect_bool(part.len(), |at| part.get(at) != 0)
            }
            Selection::Rows(rows) => {
                BooleanBuffer::collect_bool(rows.len(), |at| slots.get(rows[at] as usize) != 0)
            }
        };
        Arc::new(BooleanArray::new(bits, self.nulls()))
    }

    fn uuids(&self) -> ArrayRef {
        let values = self.collect(|value: [u8; 16]| value).into_flattened();
        Arc::new(FixedSizeBinaryArray::new(
            16,
            Buffer::from_vec(values),
            self.nulls(),
        ))
    }
}
