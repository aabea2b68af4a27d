//! Literals and comparisons with them: one side of a predicate.

use std::cmp::Ordering;

use aerostat_types::{Physical, SqlType};

use crate::kernel::order::{key_of_i128, prefix_key, rank_of_f64};

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Whether an operator holds of two values that are in this order.
pub(crate) fn holds(op: CompareOp, ordering: Ordering) -> bool {
    match op {
        CompareOp::Eq => ordering.is_eq(),
        CompareOp::Ne => ordering.is_ne(),
        CompareOp::Lt => ordering.is_lt(),
        CompareOp::Le => ordering.is_le(),
        CompareOp::Gt => ordering.is_gt(),
        CompareOp::Ge => ordering.is_ge(),
    }
}

/// A value to compare with; never NULL.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// For `boolean`.
    Bool(bool),
    /// For integers, dates (days), times and timestamps (microseconds), and
    /// decimals (unscaled, at the attribute's scale).
    Int(i128),
    /// For `real` and `double precision`.
    Float(f64),
    /// For texts, `bytea`, and `uuid` (16 bytes). Compared byte by byte, which for
    /// UTF-8 is the order of code points (collation "C").
    Bytes(Vec<u8>),
}

impl Literal {
    /// Whether it can be compared with values of a type.
    pub(crate) fn suits(&self, ty: SqlType) -> bool {
        match ty.physical() {
            Physical::Bool => matches!(self, Literal::Bool(_)),
            Physical::I16 | Physical::I32 | Physical::I64 | Physical::I128 => {
                matches!(self, Literal::Int(_))
            }
            Physical::F32 | Physical::F64 => matches!(self, Literal::Float(_)),
            Physical::Bytes16 | Physical::Variable => matches!(self, Literal::Bytes(_)),
            Physical::Interval => false,
        }
    }

    /// The order key, and whether no other value of this kind has the same.
    pub(crate) fn order_key(&self) -> (u64, bool) {
        match self {
            Literal::Bool(value) => (key_of_i128(i128::from(*value)), true),
            Literal::Int(value) => (key_of_i128(*value), i64::try_from(*value).is_ok()),
            Literal::Float(value) => (rank_of_f64(*value), true),
            Literal::Bytes(value) => (prefix_key(value), false),
        }
    }
}
