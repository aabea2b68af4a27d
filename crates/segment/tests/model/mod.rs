//! A model of rows as plain values, against which a segment is tested: how to
//! make them at random, put them in Arrow columns of every accepted form, read
//! them back, and compare them as SQL does.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part; these are tests"
)]

use std::{cmp::Ordering, sync::Arc};

use aerostat_segment::{
    AttributeSpec, CompareOp, FrozenFacts, FrozenImage, HeapRegion, IndexSpec, Literal, Pinned,
    Predicate, Segment, SegmentSchema, Selection, ValueRef,
};
use aerostat_types::{IndexKind, Physical, SegmentNo, SqlType, TableId};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
    cast::AsArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_buffer::IntervalMonthDayNano;

/// Every type a segment stores differently.
pub const TYPES: [SqlType; 16] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric {
        precision: 12,
        scale: 2,
    },
    SqlType::Numeric {
        precision: 30,
        scale: 4,
    },
    SqlType::Char(3),
    SqlType::Text,
    SqlType::Bytea,
    SqlType::Uuid,
    SqlType::Date,
    SqlType::Time,
    SqlType::TimestampTz,
    SqlType::Interval,
];

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Bytes(Vec<u8>),
    Interval(IntervalMonthDayNano),
}

impl PartialEq for Value {
    /// The same value, bit by bit (0 is not −0); of NaN a conversion need not keep the bits.
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => {
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
            }
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(a), Value::Int(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Interval(a), Value::Interval(b)) => a == b,
            (Value::Null, Value::Null) => true,
            _ => false,
        }
    }
}

impl Value {
    pub fn literal(&self) -> Option<Literal> {
        Some(match self {
            Value::Bool(value) => Literal::Bool(*value),
            Value::Int(value) => Literal::Int(*value),
            Value::Float(value) => Literal::Float(*value),
            Value::Bytes(value) => Literal::Bytes(value.clone()),
            Value::Null | Value::Interval(_) => return None,
        })
    }

    /// PostgreSQL's order, written the slow and obvious way. Both are not NULL.
    pub fn compare(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => match (a.is_nan(), b.is_nan()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => a.partial_cmp(b).unwrap(),
            },
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Interval(a), Value::Interval(b)) => total_ns(a).cmp(&total_ns(b)),
            _ => panic!("{self:?} and {other:?} are not of one type"),
        }
    }

    /// What a WHERE clause makes of it.
    pub fn satisfies(&self, predicate: &Predicate) -> bool {
        let null = *self == Value::Null;
        match predicate {
            Predicate::IsNull { .. } => null,
            Predicate::IsNotNull { .. } => !null,
            Predicate::Compare { op, value, .. } => {
                !null && {
                    let order = self.compare(&of_literal(value));
                    match op {
                        CompareOp::Eq => order.is_eq(),
                        CompareOp::Ne => order.is_ne(),
                        CompareOp::Lt => order.is_lt(),
                        CompareOp::Le => order.is_le(),
                        CompareOp::Gt => order.is_gt(),
                        CompareOp::Ge => order.is_ge(),
                    }
                }
            }
            Predicate::InList {
                values, negated, ..
            } => {
                !null
                    && values
                        .iter()
                        .any(|value| self.compare(&of_literal(value)).is_eq())
                        != *negated
            }
        }
    }
}

fn of_literal(literal: &Literal) -> Value {
    match literal {
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Float(value) => Value::Float(*value),
        Literal::Bytes(value) => Value::Bytes(value.clone()),
    }
}

/// What a value read by itself is.
pub fn of_ref(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Bool(value) => Value::Bool(value),
        ValueRef::I16(value) => Value::Int(value.into()),
        ValueRef::I32(value) => Value::Int(value.into()),
        ValueRef::I64(value) => Value::Int(value.into()),
        ValueRef::I128(value) => Value::Int(value),
        ValueRef::F32(value) => Value::Float(value.into()),
        ValueRef::F64(value) => Value::Float(value),
        ValueRef::Bytes16(value) => Value::Bytes(value.to_vec()),
        ValueRef::Interval(value) => Value::Interval(value),
        ValueRef::Bytes(value) => Value::Bytes(value.to_vec()),
    }
}

fn total_ns(i: &IntervalMonthDayNano) -> i128 {
    (i128::from(i.months) * 30 + i128::from(i.days)) * 86_400_000_000_000
        + i128::from(i.nanoseconds)
}

/// SplitMix64: as random as tests need, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}

/// A value that is often equal to another, often at an edge, and never NULL.
pub fn value(ty: SqlType, random: &mut Random) -> Value {
    let near = i128::from(random.below(7)) - 3;
    match ty.physical() {
        Physical::Bool => Value::Bool(random.below(2) == 0),
        Physical::I16 => {
            Value::Int(random.pick(&[near, i16::MIN.into(), i16::MAX.into(), 300 * near]))
        }
        Physical::I32 => {
            Value::Int(random.pick(&[near, i32::MIN.into(), i32::MAX.into(), 70_000 * near]))
        }
        Physical::I64 if matches!(ty, SqlType::Numeric { .. }) => {
            Value::Int(random.pick(&[near, 99_999_999_999 * near.signum()]))
        }
        Physical::I64 => {
            Value::Int(random.pick(&[near, i64::MIN.into(), i64::MAX.into(), near << 40]))
        }
        Physical::I128 => {
            Value::Int(random.pick(&[near, near << 70, 10i128.pow(30) - 1, 1 - 10i128.pow(30)]))
        }
        Physical::F32 => Value::Float(f64::from(random.pick(&[
            near as f32,
            -0.0,
            0.1,
            f32::NAN,
            f32::INFINITY,
            f32::MIN,
        ]))),
        Physical::F64 => {
            Value::Float(random.pick(&[near as f64, -0.0, 0.1, f64::NAN, f64::NEG_INFINITY, 1e300]))
        }
        Physical::Bytes16 => Value::Bytes(
            random
                .pick(&[[0; 16], [255; 16], [near as u8; 16]])
                .to_vec(),
        ),
        Physical::Interval => Value::Interval(IntervalMonthDayNano::new(
            random.below(3) as i32 - 1,
            random.pick(&[0, 30, -30, 1]),
            random.pick(&[0, 86_400_000_000_000, -1, i64::MAX]),
        )),
        Physical::Variable => {
            let len = random.pick(&[0, 1, 3, 6, 7, 8, 9, 11, 12, 13, 20, 40]);
            let fill = random.pick(&[b'a', b'b', 0, b'\x7F']);
            let mut bytes = vec![fill; len];
            if let Some(last) = bytes.last_mut() {
                *last = random.pick(b"abcz\0");
            }
            if ty == SqlType::Bytea && len > 2 {
                bytes[1] = random.pick(&[0xFF, 0, 0xC3]);
            }
            if ty == SqlType::Text && len > 3 && random.below(4) == 0 {
                bytes[..2].copy_from_slice("ü".as_bytes());
            }
            Value::Bytes(bytes)
        }
    }
}

/// A value that is mostly another than any before.
pub fn wide(ty: SqlType, random: &mut Random) -> Value {
    let bits = random.next();
    match ty.physical() {
        Physical::Bool => Value::Bool(bits & 1 == 1),
        Physical::I16 => Value::Int((bits as i16).into()),
        Physical::I32 => Value::Int((bits as i32).into()),
        Physical::I64
            if ty
                == (SqlType::Numeric {
                    precision: 12,
                    scale: 2,
                }) =>
        {
            Value::Int((bits as i64 % 1_000_000_000_000).into())
        }
        Physical::I64 => Value::Int((bits as i64).into()),
        Physical::I128 => Value::Int(i128::from(bits as i64) << random.below(36)),
        Physical::F32 => Value::Float(f64::from(bits as f32)),
        Physical::F64 => Value::Float(bits as f64 / 7.0),
        Physical::Bytes16 => Value::Bytes(bits.to_le_bytes().repeat(2)),
        Physical::Interval => value(ty, random),
        Physical::Variable => {
            Value::Bytes(format!("{bits:016x}")[..random.below(15) as usize + 1].into())
        }
    }
}

/// Attributes of random types in random groups, and the values of `rows` rows, by column.
pub struct Model {
    pub schema: Arc<SegmentSchema>,
    pub columns: Vec<Vec<Value>>,
}

impl Model {
    pub fn random(seed: u64, rows: usize) -> Model {
        let mut random = Random(seed);
        let count = 1 + random.below(7) as usize;
        let attributes: Vec<AttributeSpec> = (0..count)
            .map(|_| AttributeSpec {
                ty: random.pick(&TYPES),
                nullable: random.below(2) == 0,
            })
            .collect();
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); 1 + random.below(count as u64) as usize];
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|_| random.next());
        for attribute in order {
            let group = random.below(groups.len() as u64) as usize;
            groups[group].push(attribute);
        }
        let mut key: Vec<usize> = (0..count).filter(|&at| !attributes[at].nullable).collect();
        key.sort_by_key(|_| random.next());
        key.truncate(random.below(4) as usize);
        let columns = attributes
            .iter()
            .map(|spec| {
                (0..rows)
                    .map(|_| match spec.nullable && random.below(5) == 0 {
                        true => Value::Null,
                        false => value(spec.ty, &mut random),
                    })
                    .collect()
            })
            .collect();
        let schema = SegmentSchema::new(attributes, groups, key).unwrap();
        let indexes = match random.below(2) {
            0 => Vec::new(),
            _ => random_indexes(count, &mut random),
        };
        let schema = Arc::new(schema.with_indexes(indexes).unwrap());
        Model { schema, columns }
    }

    /// Makes of some columns what calls for another encoding than the few values they have:
    /// wide ranges, values that are all different, runs, and NULLs alone.
    pub fn reshape(&mut self, random: &mut Random) {
        for (column, spec) in self.columns.iter_mut().zip(self.schema.attributes()) {
            match random.below(5) {
                0 => {
                    for value in column.iter_mut().filter(|value| **value != Value::Null) {
                        *value = wide(spec.ty, random);
                    }
                }
                1 => {
                    for at in 1..column.len() {
                        if random.below(9) > 0 {
                            column[at] = column[at - 1].clone();
                        }
                    }
                }
                2 if spec.nullable => column.fill(Value::Null),
                _ => {}
            }
        }
    }

    pub fn rows(&self) -> usize {
        self.columns[0].len()
    }

    pub fn segment(&self, arena_bytes: usize) -> Segment {
        let region = Box::new(HeapRegion::new(arena_bytes));
        Segment::create(
            region,
            Arc::clone(&self.schema),
            TableId(7),
            SegmentNo(3),
            16,
        )
        .unwrap()
    }

    /// The columns in Arrow, texts in a form of the seed's choice.
    pub fn arrays(&self, seed: u64) -> Vec<ArrayRef> {
        let mut random = Random(seed);
        let attributes = self.schema.attributes().iter();
        attributes
            .zip(&self.columns)
            .map(|(spec, values)| array(spec.ty, values, random.below(3)))
            .collect()
    }
}

/// Up to three indexes of some of so many attributes.
pub fn random_indexes(attributes: usize, random: &mut Random) -> Vec<IndexSpec> {
    let mut all: Vec<IndexSpec> = Vec::new();
    for _ in 0..=random.below(3) {
        let mut chosen: Vec<usize> = (0..attributes).collect();
        chosen.sort_by_cached_key(|_| random.next());
        chosen.truncate(1 + random.below(3) as usize);
        let index = IndexSpec {
            kind: random.pick(&[IndexKind::Hash, IndexKind::Ordered]),
            attributes: chosen,
            unique: random.below(2) == 0,
        };
        if !all.contains(&index) {
            all.push(index);
        }
    }
    all
}

fn ints<T: TryFrom<i128, Error: std::fmt::Debug>>(
    values: &[Value],
) -> impl Iterator<Item = Option<T>> + '_ {
    values.iter().map(|value| match value {
        Value::Int(value) => Some(T::try_from(*value).unwrap()),
        _ => None,
    })
}

fn floats(values: &[Value]) -> impl Iterator<Item = Option<f64>> + '_ {
    values.iter().map(|value| match value {
        Value::Float(value) => Some(*value),
        _ => None,
    })
}

fn bytes(values: &[Value]) -> impl Iterator<Item = Option<&[u8]>> + Clone + '_ {
    values.iter().map(|value| match value {
        Value::Bytes(value) => Some(value.as_slice()),
        _ => None,
    })
}

pub fn array(ty: SqlType, values: &[Value], form: u64) -> ArrayRef {
    let texts =
        || bytes(values).map(|value| value.map(|value| std::str::from_utf8(value).unwrap()));
    match ty {
        SqlType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(
            |value| match value {
                Value::Bool(value) => Some(*value),
                _ => None,
            },
        ))),
        SqlType::SmallInt => Arc::new(Int16Array::from_iter(ints(values))),
        SqlType::Integer => Arc::new(Int32Array::from_iter(ints(values))),
        SqlType::BigInt => Arc::new(Int64Array::from_iter(ints(values))),
        SqlType::Real => Arc::new(Float32Array::from_iter(
            floats(values).map(|v| v.map(|v| v as f32)),
        )),
        SqlType::Double => Arc::new(Float64Array::from_iter(floats(values))),
        SqlType::Numeric { precision, scale } => Arc::new(
            Decimal128Array::from_iter(ints::<i128>(values))
                .with_precision_and_scale(precision, scale)
                .unwrap(),
        ),
        SqlType::Date => Arc::new(Date32Array::from_iter(ints(values))),
        SqlType::Time => Arc::new(Time64MicrosecondArray::from_iter(ints(values))),
        SqlType::Timestamp => Arc::new(TimestampMicrosecondArray::from_iter(ints(values))),
        SqlType::TimestampTz => {
            let zone = ["UTC", "+00:00"][form as usize % 2];
            Arc::new(TimestampMicrosecondArray::from_iter(ints(values)).with_timezone(zone))
        }
        SqlType::Interval => Arc::new(IntervalMonthDayNanoArray::from_iter(values.iter().map(
            |value| match value {
                Value::Interval(value) => Some(*value),
                _ => None,
            },
        ))),
        SqlType::Uuid => Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes(values), 16).unwrap(),
        ),
        SqlType::Bytea => match form {
            0 => Arc::new(BinaryArray::from_iter(bytes(values))),
            1 => Arc::new(LargeBinaryArray::from_iter(bytes(values))),
            _ => Arc::new(BinaryViewArray::from_iter(bytes(values))),
        },
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => match form {
            0 => Arc::new(StringArray::from_iter(texts())),
            1 => Arc::new(LargeStringArray::from_iter(texts())),
            _ => Arc::new(StringViewArray::from_iter(texts())),
        },
    }
}

/// Reads an array of the type's own Arrow form back, and checks that form.
pub fn values(ty: SqlType, array: &ArrayRef) -> Vec<Value> {
    assert_eq!(*array.data_type(), ty.arrow());
    array.to_data().validate_full().unwrap();
    (0..array.len())
        .map(|row| {
            if array.is_null(row) {
                return Value::Null;
            }
            match ty {
                SqlType::Boolean => Value::Bool(array.as_boolean().value(row)),
                SqlType::SmallInt => {
                    Value::Int(array.as_primitive::<Int16Type>().value(row).into())
                }
                SqlType::Integer => Value::Int(array.as_primitive::<Int32Type>().value(row).into()),
                SqlType::BigInt => Value::Int(array.as_primitive::<Int64Type>().value(row).into()),
                SqlType::Real => {
                    Value::Float(array.as_primitive::<Float32Type>().value(row).into())
                }
                SqlType::Double => Value::Float(array.as_primitive::<Float64Type>().value(row)),
                SqlType::Numeric { .. } => {
                    Value::Int(array.as_primitive::<Decimal128Type>().value(row))
                }
                SqlType::Date => Value::Int(array.as_primitive::<Date32Type>().value(row).into()),
                SqlType::Time => Value::Int(
                    array
                        .as_primitive::<Time64MicrosecondType>()
                        .value(row)
                        .into(),
                ),
                SqlType::Timestamp | SqlType::TimestampTz => Value::Int(
                    array
                        .as_primitive::<TimestampMicrosecondType>()
                        .value(row)
                        .into(),
                ),
                SqlType::Interval => {
                    Value::Interval(array.as_primitive::<IntervalMonthDayNanoType>().value(row))
                }
                SqlType::Uuid => Value::Bytes(array.as_fixed_size_binary().value(row).to_vec()),
                SqlType::Bytea => Value::Bytes(array.as_binary_view().value(row).to_vec()),
                _ => Value::Bytes(array.as_string_view().value(row).as_bytes().to_vec()),
            }
        })
        .collect()
}

/// The frozen segment of a hot one's rows, in key order, and where each was.
pub fn freeze(hot: &Pinned) -> (Pinned<'static>, Vec<u32>) {
    let mut order: Vec<u32> = (0..hot.rows()).collect();
    order.sort_by_cached_key(|&row| hot.key_of(row));
    let selection = Selection::Rows(order.clone());
    let facts = FrozenFacts {
        table: TableId(7),
        no: SegmentNo(4),
        rows: hot.rows(),
        begin: 5,
    };
    let image =
        FrozenImage::encode(hot.schema(), facts, &mut |at| hot.gather(at, &selection)).unwrap();
    let region = Box::new(HeapRegion::new(image.arena_bytes()));
    let frozen = Segment::create_frozen(region, Arc::clone(hot.schema()), image);
    (Pinned::new(frozen, ()), order)
}
