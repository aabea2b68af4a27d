//! Values computed from a row and the inputs of a run.

use std::cmp::Ordering;

use aerostat_storage::{RowView, ValueRef};
use aerostat_types::{
    RelationId, SqlType,
    text::{fit_char, fit_varchar},
};

use crate::{
    Literal, Stop, Value,
    columns::as_wide,
    input::Values,
    shape::{Arithmetic, Operator},
};

/// Where columns are read from.
pub(crate) trait Row<'a> {
    fn value(&self, column: usize) -> ValueRef<'a>;
}

impl<'a> Row<'a> for RowView<'a> {
    fn value(&self, column: usize) -> ValueRef<'a> {
        RowView::value(self, column)
    }
}

/// A row that is on its way into the table.
impl<'a> Row<'a> for &[ValueRef<'a>] {
    fn value(&self, column: usize) -> ValueRef<'a> {
        self[column]
    }
}

/// For expressions that name no column.
pub(crate) struct NoRow;

impl<'a> Row<'a> for NoRow {
    fn value(&self, _column: usize) -> ValueRef<'a> {
        ValueRef::Null
    }
}

/// A bound expression. Types were settled when it was bound.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Column(usize),
    /// A parameter or literal.
    Input(usize),
    /// A literal of a default or CHECK.
    Constant(Literal),
    Null,
    /// When the transaction began, UTC.
    Now,
    /// The same in the session's zone, as a time without zone.
    LocalNow,
    /// The next number of a sequence, another each time.
    Next(RelationId),
    /// Of integers, in the width of the result.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>, Width),
    /// Brought to a type.
    Fitted(Box<Expr>, Fit),
}

/// Of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    I16,
    I32,
    I64,
}

/// How a value is brought to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Integer(Width),
    /// An integer, or a decimal of a smaller scale, times 10 to this power, with at most so
    /// many digits.
    Decimal {
        power: u8,
        digits: u8,
    },
    Double,
    Varchar(u32),
    Char(u32),
    /// A text read as a value of a type that is no text nor `bytea`.
    Read(SqlType),
}

/// Integers up to here are exact as `double precision`.
const EXACT_MAX: u64 = 1 << 53;

impl Expr {
    /// Whether it reads no column.
    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Expr::Column(_) => false,
            Expr::Input(_)
            | Expr::Constant(_)
            | Expr::Null
            | Expr::Now
            | Expr::LocalNow
            | Expr::Next(_) => true,
            Expr::Arithmetic(_, left, right, _) => left.is_constant() && right.is_constant(),
            Expr::Fitted(inner, _) => inner.is_constant(),
        }
    }

    /// Computes what of it reads no column, as a planner does before there is a row.
    pub(crate) fn settle<'a>(&'a self, values: &Values<'a>) -> Result<(), Stop> {
        match self {
            constant if constant.is_constant() => constant.eval(&NoRow, values).map(drop),
            Expr::Arithmetic(_, left, right, _) => {
                left.settle(values)?;
                right.settle(values)
            }
            Expr::Fitted(inner, _) => inner.settle(values),
            _ => Ok(()),
        }
    }

    /// Its value; [`Stop::Unfit`] where that would be an error.
    pub(crate) fn eval<'a>(
        &'a self,
        row: &impl Row<'a>,
        values: &Values<'a>,
    ) -> Result<ValueRef<'a>, Stop> {
        Ok(match self {
            Expr::Column(column) => row.value(*column),
            Expr::Input(at) => values.get(*at),
            Expr::Constant(literal) => literal.value(),
            Expr::Null => ValueRef::Null,
            Expr::Now => ValueRef::I64(values.inputs.now_micros),
            Expr::LocalNow => {
                let local = values.inputs.zone.to_local(values.inputs.now_micros);
                ValueRef::I64(local.ok_or(Stop::Unfit)?)
            }
            Expr::Next(sequence) => {
                let numbers = values.inputs.numbers.as_ref();
                let next = numbers.and_then(|numbers| numbers.next(*sequence));
                ValueRef::I64(next.ok_or(Stop::Unfit)?)
            }
            Expr::Arithmetic(operator, left, right, width) => {
                let (left, right) = (left.eval(row, values)?, right.eval(row, values)?);
                match (as_wide(left), as_wide(right)) {
                    (Some(left), Some(right)) => integer(compute(*operator, left, right)?, *width)?,
                    _ => ValueRef::Null,
                }
            }
            Expr::Fitted(inner, fit) => match inner.eval(row, values)? {
                ValueRef::Null => ValueRef::Null,
                value => fitted(value, *fit, values)?,
            },
        })
    }
}

/// Evaluates outputs of a row.
pub(crate) fn evaluate<'a>(
    outputs: &'a [Expr],
    row: &impl Row<'a>,
    values: &Values<'a>,
    into: &mut Vec<ValueRef<'a>>,
) -> Result<(), Stop> {
    for output in outputs {
        into.push(output.eval(row, values)?);
    }
    Ok(())
}

/// Of integers of at most 64 bits, so that nothing overflows here.
fn compute(operator: Arithmetic, left: i128, right: i128) -> Result<i128, Stop> {
    match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
    }
    .ok_or(Stop::Unfit)
}

fn integer<'a>(value: i128, width: Width) -> Result<ValueRef<'a>, Stop> {
    let out_of_range = |_| Stop::Unfit;
    Ok(match width {
        Width::I16 => ValueRef::I16(i16::try_from(value).map_err(out_of_range)?),
        Width::I32 => ValueRef::I32(i32::try_from(value).map_err(out_of_range)?),
        Width::I64 => ValueRef::I64(i64::try_from(value).map_err(out_of_range)?),
    })
}

pub(crate) fn fitted<'a>(
    value: ValueRef<'a>,
    fit: Fit,
    values: &Values<'_>,
) -> Result<ValueRef<'a>, Stop> {
    match fit {
        Fit::Integer(width) => integer(as_wide(value).ok_or(Stop::Unfit)?, width),
        Fit::Decimal { power, digits } => {
            let unscaled = as_wide(value)
                .and_then(|value| value.checked_mul(10_i128.checked_pow(u32::from(power))?))
                .filter(|value| value.unsigned_abs() < 10_u128.pow(u32::from(digits)));
            unscaled.map(ValueRef::I128).ok_or(Stop::Unfit)
        }
        Fit::Double => {
            let value = as_wide(value).and_then(|value| i64::try_from(value).ok());
            let exact = value.filter(|value| value.unsigned_abs() <= EXACT_MAX);
            exact
                .map(|value| ValueRef::F64(value as f64))
                .ok_or(Stop::Unfit)
        }
        Fit::Varchar(n) => text(value, |text| fit_varchar(text, n).ok()),
        Fit::Char(n) => text(value, |text| fit_char(text, n).ok()),
        Fit::Read(ty) => read(value, ty, values),
    }
}

fn read<'a>(value: ValueRef<'_>, ty: SqlType, values: &Values<'_>) -> Result<ValueRef<'a>, Stop> {
    let ValueRef::Bytes(bytes) = value else {
        return Err(Stop::Unfit);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| Stop::Unfit)?;
    match Value::read(ty, &values.inputs.zone, text) {
        Ok(value) => value.unshared().ok_or(Stop::Unfit),
        Err(_) => Err(Stop::Unfit),
    }
}

fn text<'a>(
    value: ValueRef<'a>,
    fit: impl Fn(&'a str) -> Option<&'a str>,
) -> Result<ValueRef<'a>, Stop> {
    match value {
        ValueRef::Bytes(bytes) => std::str::from_utf8(bytes)
            .ok()
            .and_then(fit)
            .map(|text| ValueRef::Bytes(text.as_bytes()))
            .ok_or(Stop::Unfit),
        _ => Err(Stop::Unfit),
    }
}

/// The order of two values of one kind: numbers, bytes. `None` if one is NULL.
pub(crate) fn compare(left: ValueRef<'_>, right: ValueRef<'_>) -> Option<Ordering> {
    match (left, right) {
        (ValueRef::Bytes(left), ValueRef::Bytes(right)) => Some(left.cmp(right)),
        (ValueRef::Bytes16(left), ValueRef::Bytes16(right)) => Some(left.cmp(&right)),
        _ => Some(as_wide(left)?.cmp(&as_wide(right)?)),
    }
}

/// A bound condition; its sides are of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) left: Expr,
    pub(crate) operator: Operator,
    pub(crate) right: Expr,
}

impl Condition {
    /// Whether it is true; `None` says neither true nor false.
    pub(crate) fn truth<'a>(
        &'a self,
        row: &impl Row<'a>,
        values: &Values<'a>,
    ) -> Result<Option<bool>, Stop> {
        let (left, right) = (self.left.eval(row, values)?, self.right.eval(row, values)?);
        Ok(compare(left, right).map(|order| self.operator.holds(order)))
    }
}
