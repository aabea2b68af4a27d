//! Types of bound scalars: which can be compared with one another, and which can become a
//! column's.

use aerostat_types::SqlType;

use crate::expression::{Expr, Fit, Width};

/// The type of a bound scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Sql(SqlType),
    /// A literal with so many digits after the point.
    Decimal(u8),
    /// A string whose place gives it a type.
    Unknown,
    Null,
}

pub(crate) fn width_of(ty: Type) -> Option<Width> {
    match ty {
        Type::Sql(SqlType::SmallInt) => Some(Width::I16),
        Type::Sql(SqlType::Integer) => Some(Width::I32),
        Type::Sql(SqlType::BigInt) => Some(Width::I64),
        _ => None,
    }
}

pub(crate) fn integer_of(width: Width) -> SqlType {
    match width {
        Width::I16 => SqlType::SmallInt,
        Width::I32 => SqlType::Integer,
        Width::I64 => SqlType::BigInt,
    }
}

/// Both sides as values of one kind, as PostgreSQL compares them.
pub(crate) fn comparable(left: (Expr, Type), right: (Expr, Type)) -> Option<(Expr, Expr)> {
    use Type::{Decimal, Sql, Unknown};
    let is_text = |ty: Type| matches!(ty, Sql(SqlType::Text | SqlType::Varchar(_)));
    let is_integer = |ty: Type| width_of(ty).is_some();
    let ((left, left_type), (right, right_type)) = (left, right);
    match (left_type, right_type) {
        (a, b) if is_integer(a) && is_integer(b) => Some((left, right)),
        (a, b) if is_text(a) && (is_text(b) || b == Unknown) => Some((left, right)),
        (Unknown, b) if is_text(b) => Some((left, right)),
        (Sql(a), Sql(b)) if a == b && is_ordered(a) && !matches!(a, SqlType::Char(_)) => {
            Some((left, right))
        }
        (Sql(SqlType::Numeric { scale, .. }), b) if is_integer(b) || matches!(b, Decimal(_)) => {
            Some((left, scaled(right, b, scale)?))
        }
        (a, Sql(SqlType::Numeric { scale, .. })) if is_integer(a) || matches!(a, Decimal(_)) => {
            Some((scaled(left, a, scale)?, right))
        }
        _ => None,
    }
}

/// Digits of the widest number that is compared or kept.
const DIGITS_MAX: u8 = 38;

/// An integer or a decimal of a smaller scale, at this one.
fn scaled(expr: Expr, ty: Type, scale: i8) -> Option<Expr> {
    Some(Expr::Fitted(
        Box::new(expr),
        decimal(ty, DIGITS_MAX, scale)?,
    ))
}

fn decimal(ty: Type, digits: u8, scale: i8) -> Option<Fit> {
    let scale = u8::try_from(scale).ok()?;
    let power = match ty {
        Type::Decimal(own) => scale.checked_sub(own)?,
        _ => scale,
    };
    Some(Fit::Decimal { power, digits })
}

/// A value as a column's type, by PostgreSQL's assignment casts, as far as they are known here.
pub(crate) fn fitted(expr: Expr, from: Type, to: SqlType) -> Option<Expr> {
    match (from, to) {
        (Type::Null, _) => Some(Expr::Null),
        (Type::Sql(SqlType::TimestampTz), SqlType::Timestamp) => {
            matches!(expr, Expr::Now).then_some(Expr::LocalNow)
        }
        _ => Some(match fit_of(from, to)? {
            Some(fit) => Expr::Fitted(Box::new(expr), fit),
            None => expr,
        }),
    }
}

/// How a parameter of a type becomes a column's, as [`fit_of`].
pub(crate) fn fit_of_sql(from: SqlType, to: SqlType) -> Option<Option<Fit>> {
    fit_of(Type::Sql(from), to)
}

/// How a value becomes a column's type; `Some(None)` for one that is of it, `None` for a cast
/// that is not known here.
fn fit_of(from: Type, to: SqlType) -> Option<Option<Fit>> {
    let is_text = |ty: Type| matches!(ty, Type::Sql(SqlType::Text | SqlType::Varchar(_)));
    Some(match (from, to) {
        (from, SqlType::Char(n))
            if is_text(from) || matches!(from, Type::Unknown | Type::Sql(SqlType::Char(_))) =>
        {
            Some(Fit::Char(n))
        }
        (from, SqlType::Varchar(n)) if is_text(from) || from == Type::Unknown => {
            n.map(Fit::Varchar)
        }
        (from, SqlType::Text) if is_text(from) || from == Type::Unknown => None,
        (Type::Sql(from), to) if from == to => None,
        (Type::Unknown, SqlType::Bytea) => return None,
        (Type::Unknown, to) => Some(Fit::Read(to)),
        (from, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => {
            width_of(from)?;
            Some(Fit::Integer(width_of(Type::Sql(to))?))
        }
        (from, SqlType::Numeric { precision, scale })
            if width_of(from).is_some() || matches!(from, Type::Decimal(_)) =>
        {
            Some(decimal(from, precision, scale)?)
        }
        (from, SqlType::Double) if width_of(from).is_some() => Some(Fit::Double),
        _ => return None,
    })
}

/// Whether values of the type are ordered by their numbers or bytes.
pub(crate) fn is_ordered(ty: SqlType) -> bool {
    !matches!(ty, SqlType::Real | SqlType::Double | SqlType::Interval)
}

/// Whether `min` and `max` are known here: numbers whose type the result has.
pub(crate) fn has_least(ty: SqlType) -> bool {
    matches!(
        ty,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Date
            | SqlType::Time
            | SqlType::Timestamp
            | SqlType::TimestampTz
    )
}
