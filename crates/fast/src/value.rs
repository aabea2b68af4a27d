//! Values that go in and out one by one: parameters, and the few rows of a result. A single value
//! needs no column.

use std::sync::Arc;

use aerostat_storage::ValueRef;
use aerostat_types::SqlType;
use arrow_array::{RecordBatch, RecordBatchOptions, types::IntervalMonthDayNano};
use arrow_schema::{ArrowError, SchemaRef};

use crate::columns::{array, as_wide};

/// A value. Its SQL type says which form it has: that of its Arrow type's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// `boolean`.
    Bool(bool),
    /// `smallint`.
    I16(i16),
    /// `integer`, and days of a `date` since 1970-01-01.
    I32(i32),
    /// `bigint`, and microseconds of times, and of timestamps since 1970-01-01.
    I64(i64),
    /// `numeric`, without its point.
    I128(i128),
    /// `real`.
    F32(f32),
    /// `double precision`.
    F64(f64),
    /// `uuid`.
    Uuid([u8; 16]),
    /// `interval`.
    Interval(IntervalMonthDayNano),
    /// A text.
    Text(Box<str>),
    /// `bytea`.
    Bytes(Box<[u8]>),
}

impl Value {
    /// Whether it has the form of the type, or is NULL.
    pub fn is_of(&self, ty: SqlType) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(_) => ty == SqlType::Boolean,
            Value::I16(_) => ty == SqlType::SmallInt,
            Value::I32(_) => matches!(ty, SqlType::Integer | SqlType::Date),
            Value::I64(_) => matches!(
                ty,
                SqlType::BigInt | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz
            ),
            Value::I128(_) => matches!(ty, SqlType::Numeric { .. }),
            Value::F32(_) => ty == SqlType::Real,
            Value::F64(_) => ty == SqlType::Double,
            Value::Uuid(_) => ty == SqlType::Uuid,
            Value::Interval(_) => ty == SqlType::Interval,
            Value::Text(_) => ty.is_text(),
            Value::Bytes(_) => ty == SqlType::Bytea,
        }
    }

    pub(crate) fn borrowed(&self) -> ValueRef<'_> {
        match self {
            Value::Text(value) => ValueRef::Bytes(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Bytes(value),
            other => other.unshared().expect("only texts and bytes own anything"),
        }
    }

    /// The same without what it owns; `None` for one that is nothing else.
    pub(crate) fn unshared<'a>(&self) -> Option<ValueRef<'a>> {
        Some(match self {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Bool(*value),
            Value::I16(value) => ValueRef::I16(*value),
            Value::I32(value) => ValueRef::I32(*value),
            Value::I64(value) => ValueRef::I64(*value),
            Value::I128(value) => ValueRef::I128(*value),
            Value::F32(value) => ValueRef::F32(*value),
            Value::F64(value) => ValueRef::F64(*value),
            Value::Uuid(value) => ValueRef::Bytes16(*value),
            Value::Interval(value) => ValueRef::Interval(*value),
            Value::Text(_) | Value::Bytes(_) => return None,
        })
    }

    /// A value of a row in the form of the type. It is NULL or of the type, perhaps in a
    /// narrower form, as columns keep it.
    pub(crate) fn of(ty: SqlType, value: ValueRef<'_>) -> Self {
        if matches!(value, ValueRef::Null) {
            return Value::Null;
        }
        match ty {
            SqlType::SmallInt => Value::I16(narrow(value)),
            SqlType::Integer | SqlType::Date => Value::I32(narrow(value)),
            SqlType::BigInt | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => {
                Value::I64(narrow(value))
            }
            SqlType::Numeric { .. } => Value::I128(narrow(value)),
            _ => match value {
                ValueRef::Bool(value) => Value::Bool(value),
                ValueRef::F32(value) => Value::F32(value),
                ValueRef::F64(value) => Value::F64(value),
                ValueRef::Bytes16(value) => Value::Uuid(value),
                ValueRef::Interval(value) => Value::Interval(value),
                ValueRef::Bytes(value) if ty.is_text() => {
                    let text = std::str::from_utf8(value).expect("texts are UTF-8");
                    Value::Text(text.into())
                }
                ValueRef::Bytes(value) => Value::Bytes(value.into()),
                _ => Value::Null,
            },
        }
    }
}

fn narrow<T: TryFrom<i128>>(value: ValueRef<'_>) -> T {
    let narrow = as_wide(value).and_then(|value| T::try_from(value).ok());
    narrow.expect("a value was fitted to its column's type")
}

/// The rows of a result, each value by itself.
#[derive(Clone, Debug)]
pub struct Rows {
    pub(crate) schema: SchemaRef,
    pub(crate) types: Arc<[SqlType]>,
    /// Row by row.
    pub(crate) values: Vec<Value>,
    pub(crate) rows: usize,
}

impl Rows {
    /// Rows of a schema's columns, which have these types. The values come row by row.
    ///
    /// # Panics
    /// When they are not whole rows.
    pub fn new(schema: SchemaRef, types: Arc<[SqlType]>, values: Vec<Value>) -> Self {
        let rows = values.len() / types.len().max(1);
        assert_eq!(values.len(), rows * types.len(), "rows are whole");
        Self {
            schema,
            types,
            values,
            rows,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The types of their columns.
    pub fn types(&self) -> &[SqlType] {
        &self.types
    }

    /// The rows, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[Value]> {
        let width = self.types.len();
        (0..self.rows).map(move |row| &self.values[row * width..(row + 1) * width])
    }

    /// The same rows as columns.
    ///
    /// # Errors
    /// A value is not of its column's type.
    pub fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let width = self.types.len();
        let columns = self.types.iter().enumerate().map(|(at, ty)| {
            let column = self.values.iter().skip(at).step_by(width);
            array(*ty, column.map(Value::borrowed))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options)
    }
}
