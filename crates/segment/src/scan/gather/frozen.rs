//! Gather from codes: the selected values of an encoded attribute as an Arrow array.

use std::sync::Arc;

use aerostat_types::{Physical, SqlType};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeBinaryArray, PrimitiveArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};

use crate::{
    Pinned, Selection,
    frozen::{Column, Frozen, Values, bits::Fixed, pack::Decode},
    kernel::lane::Lane,
    scan::buffer::Views,
};

/// The selected values of an attribute that is not [plain](Frozen::is_plain).
pub(super) fn gather(
    segment: &Pinned<'_>,
    frozen: &Frozen,
    attribute: usize,
    selection: &Selection,
) -> ArrayRef {
    let source = Source {
        frozen,
        attribute,
        column: frozen.column(attribute),
        selection,
    };
    let ty = segment.schema().attributes()[attribute].ty;
    match ty {
        SqlType::Boolean => source.booleans(),
        SqlType::SmallInt => source.primitive::<Int16Type>(ty),
        SqlType::Integer => source.primitive::<Int32Type>(ty),
        SqlType::BigInt => source.primitive::<Int64Type>(ty),
        SqlType::Real => source.primitive::<Float32Type>(ty),
        SqlType::Double => source.primitive::<Float64Type>(ty),
        SqlType::Numeric { .. } if ty.physical() == Physical::I64 => {
            source.finish::<Decimal128Type>(source.collect(|value: i64| i128::from(value)), ty)
        }
        SqlType::Numeric { .. } => source.primitive::<Decimal128Type>(ty),
        SqlType::Date => source.primitive::<Date32Type>(ty),
        SqlType::Time => source.primitive::<Time64MicrosecondType>(ty),
        SqlType::Timestamp | SqlType::TimestampTz => {
            source.primitive::<TimestampMicrosecondType>(ty)
        }
        SqlType::Interval => source.primitive::<IntervalMonthDayNanoType>(ty),
        SqlType::Uuid => {
            let values = source.collect(|value: [u8; 16]| value).into_flattened();
            Arc::new(FixedSizeBinaryArray::new(
                16,
                Buffer::from_vec(values),
                source.nulls(),
            ))
        }
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            Arc::new(source.views(segment).into_text(source.nulls()))
        }
        SqlType::Bytea => Arc::new(source.views(segment).into_bytes(source.nulls())),
    }
}

struct Source<'a> {
    frozen: &'a Frozen,
    attribute: usize,
    column: Column<'a>,
    selection: &'a Selection,
}

/// Turns codes to values as they come.
struct Converted<'a, U, F> {
    convert: F,
    out: &'a mut Vec<U>,
}

impl<U, F: Fn(u64) -> U + Copy> Decode for Converted<'_, U, F> {
    #[inline]
    fn codes<L: Lane>(&mut self, codes: &[L]) {
        // A copy: what it has captured could else be what is written, and is loaded each time.
        let convert = self.convert;
        self.out
            .extend(codes.iter().map(move |&code| convert(code.into())));
    }
}

impl Source<'_> {
    fn nulls(&self) -> Option<NullBuffer> {
        self.frozen
            .nulls_within(self.attribute, self.selection)?
            .gather(self.selection)
    }

    /// What the selected codes become.
    fn decode<U>(&self, convert: impl Fn(u64) -> U + Copy) -> Vec<U> {
        let mut out = Vec::with_capacity(self.selection.len());
        let mut to = Converted {
            convert,
            out: &mut out,
        };
        match (&self.column.codes, self.selection) {
            (Some(codes), Selection::Range(rows)) => codes.decode(rows.clone(), &mut to),
            (Some(codes), Selection::Rows(rows)) => codes.pick(rows, &mut to),
            (None, selection) => {
                let rows = selection.iter();
                to.out.extend(rows.map(|row| (to.convert)(row.into())));
            }
        }
        out
    }

    /// The selected values, converted.
    fn collect<T: Fixed, U: Copy>(&self, convert: impl Fn(T) -> U + Copy) -> Vec<U> {
        match self.column.values {
            Values::Frame { base } => self.decode(move |code| convert(T::from_code(base, code))),
            // A dictionary that has fewer values than are wanted is converted first.
            Values::Fixed(_) if self.column.codes_end < self.selection.len() as u128 => {
                let entries = self.column.codes_end.max(1) as u64;
                let table: Vec<U> = (0..entries)
                    .map(|code| convert(self.column.fixed(code)))
                    .collect();
                let table = table.as_slice();
                self.decode(move |code| table[code as usize])
            }
            _ => self.decode(move |code| convert(self.column.fixed(code))),
        }
    }

    fn primitive<T: ArrowPrimitiveType<Native: Fixed>>(&self, ty: SqlType) -> ArrayRef {
        self.finish::<T>(self.collect(|value: T::Native| value), ty)
    }

    fn finish<T: ArrowPrimitiveType>(&self, values: Vec<T::Native>, ty: SqlType) -> ArrayRef {
        let array = PrimitiveArray::<T>::new(ScalarBuffer::from(values), self.nulls());
        Arc::new(array.with_data_type(ty.arrow()))
    }

    fn booleans(&self) -> ArrayRef {
        let values = self.collect(|value: u8| value != 0);
        Arc::new(BooleanArray::new(BooleanBuffer::from(values), self.nulls()))
    }

    /// Views of strings; those of a dictionary with fewer strings than are wanted are made once.
    fn views<'s>(&self, segment: &'s Pinned<'s>) -> Views<'s> {
        let (Values::Sorted(strings) | Values::RowOrder(strings)) = &self.column.values else {
            unreachable!("a string attribute");
        };
        if strings.len < self.selection.len() {
            let all = (0..strings.len.max(1)).map(|at| strings.span(at));
            let views = Views::of_spans(segment, self.attribute, all);
            views.chosen(|table| self.decode(move |code| table[code as usize]))
        } else {
            let spans = self.decode(move |code| strings.span(code as usize));
            Views::of_spans(segment, self.attribute, spans.into_iter())
        }
    }
}
