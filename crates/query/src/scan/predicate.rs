//! Filters that storage can evaluate exactly, and their form there.
//!
//! A filter is pushed down if it compares one column with constants of the column's own type:
//! comparison, IN list, BETWEEN, IS [NOT] NULL, and conjunctions of these. A disjunction of
//! equalities, as which DataFusion writes short IN lists, becomes one IN list. All other filters
//! stay with DataFusion.

use aerostat_segment::{CompareOp, Literal, Predicate};
use aerostat_types::{Physical, SqlType, TableSchema};
use datafusion::{
    common::ScalarValue,
    logical_expr::{Between, BinaryExpr, Expr, Operator, expr::InList},
};

/// Longer IN lists stay with DataFusion, which hashes them.
const IN_LIST_MAX: usize = 32;

/// The conjuncts that storage evaluates in place of this filter; `None` if storage cannot evaluate
/// it exactly.
pub(super) fn from_expr(filter: &Expr, table: &TableSchema) -> Option<Vec<Predicate>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => {
            let mut both = from_expr(left, table)?;
            both.extend(from_expr(right, table)?);
            Some(both)
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => Some(vec![either(
            from_expr(left, table)?,
            from_expr(right, table)?,
        )?]),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let op = compare_op(*op)?;
            if let Some((attribute, ty)) = column(left, table) {
                return compare(attribute, ty, op, right);
            }
            let (attribute, ty) = column(right, table)?;
            compare(attribute, ty, mirrored(op), left)
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let (attribute, ty) = column(expr, table)?;
            let mut both = compare(attribute, ty, CompareOp::Ge, low)?;
            both.extend(compare(attribute, ty, CompareOp::Le, high)?);
            Some(both)
        }
        Expr::InList(InList {
            expr,
            list,
            negated,
        }) if list.len() <= IN_LIST_MAX => {
            let (attribute, ty) = column(expr, table)?;
            let values = list
                .iter()
                .map(|value| literal(value, ty))
                .collect::<Option<Vec<_>>>()?;
            Some(vec![Predicate::InList {
                attribute,
                values,
                negated: *negated,
            }])
        }
        // The optimizer has folded a filter that storage had taken.
        Expr::Literal(ScalarValue::Boolean(Some(true)), _) => Some(Vec::new()),
        Expr::Literal(ScalarValue::Boolean(_), _) => Some(never()),
        Expr::IsNull(expr) => Some(vec![Predicate::IsNull {
            attribute: column(expr, table)?.0,
        }]),
        Expr::IsNotNull(expr) => Some(vec![Predicate::IsNotNull {
            attribute: column(expr, table)?.0,
        }]),
        Expr::Column(_) => {
            let (attribute, ty) = column(filter, table)?;
            (ty == SqlType::Boolean).then(|| vec![is(attribute, true)])
        }
        Expr::Not(inner) => {
            let (attribute, ty) = column(inner, table)?;
            (ty == SqlType::Boolean).then(|| vec![is(attribute, false)])
        }
        _ => None,
    }
}

/// The predicate for rows that satisfy one of two conditions, if both list values of one attribute.
fn either(one: Vec<Predicate>, other: Vec<Predicate>) -> Option<Predicate> {
    let ((attribute, mut values), (other, more)) = (listed(one)?, listed(other)?);
    values.extend(more);
    (attribute == other && values.len() <= IN_LIST_MAX).then_some(Predicate::InList {
        attribute,
        values,
        negated: false,
    })
}

/// The attribute, and the values one of which it must equal.
fn listed(mut conjuncts: Vec<Predicate>) -> Option<(usize, Vec<Literal>)> {
    let (Some(predicate), true) = (conjuncts.pop(), conjuncts.is_empty()) else {
        return None;
    };
    match predicate {
        Predicate::Compare {
            attribute,
            op: CompareOp::Eq,
            value,
        } => Some((attribute, vec![value])),
        Predicate::InList {
            attribute,
            values,
            negated: false,
        } => Some((attribute, values)),
        _ => None,
    }
}

/// A condition that no row satisfies.
fn never() -> Vec<Predicate> {
    let attribute = 0;
    vec![
        Predicate::IsNull { attribute },
        Predicate::IsNotNull { attribute },
    ]
}

fn is(attribute: usize, value: bool) -> Predicate {
    Predicate::Compare {
        attribute,
        op: CompareOp::Eq,
        value: Literal::Bool(value),
    }
}

fn compare(attribute: usize, ty: SqlType, op: CompareOp, value: &Expr) -> Option<Vec<Predicate>> {
    Some(vec![Predicate::Compare {
        attribute,
        op,
        value: literal(value, ty)?,
    }])
}

fn column(expr: &Expr, table: &TableSchema) -> Option<(usize, SqlType)> {
    let Expr::Column(column) = expr else {
        return None;
    };
    let at = table.position(&column.name)?;
    let ty = table.columns[at].ty;
    // Intervals compare by their normalised length, which storage does not know.
    (ty.physical() != Physical::Interval).then_some((at, ty))
}

/// The comparison operator of scans for an operator.
pub(crate) fn compare_op(op: Operator) -> Option<CompareOp> {
    Some(match op {
        Operator::Eq => CompareOp::Eq,
        Operator::NotEq => CompareOp::Ne,
        Operator::Lt => CompareOp::Lt,
        Operator::LtEq => CompareOp::Le,
        Operator::Gt => CompareOp::Gt,
        Operator::GtEq => CompareOp::Ge,
        _ => return None,
    })
}

pub(super) fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        CompareOp::Eq | CompareOp::Ne => op,
    }
}

/// A constant in the column's own type; `None` for NULL, because a comparison with it is never
/// true, and DataFusion folds it.
fn literal(expr: &Expr, ty: SqlType) -> Option<Literal> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    constant(value, ty)
}

/// As [`literal`].
pub(super) fn constant(value: &ScalarValue, ty: SqlType) -> Option<Literal> {
    let arrow = ty.arrow();
    Some(match value {
        ScalarValue::Boolean(Some(v)) if ty == SqlType::Boolean => Literal::Bool(*v),
        ScalarValue::Float32(Some(v)) if ty == SqlType::Real => Literal::Float(f64::from(*v)),
        ScalarValue::Float64(Some(v)) if ty == SqlType::Double => Literal::Float(*v),
        ScalarValue::Utf8(Some(v))
        | ScalarValue::LargeUtf8(Some(v))
        | ScalarValue::Utf8View(Some(v))
            if ty.is_text() =>
        {
            Literal::Bytes(v.as_bytes().to_vec())
        }
        ScalarValue::Binary(Some(v))
        | ScalarValue::LargeBinary(Some(v))
        | ScalarValue::BinaryView(Some(v))
            if ty == SqlType::Bytea =>
        {
            Literal::Bytes(v.clone())
        }
        ScalarValue::FixedSizeBinary(16, Some(v)) if ty == SqlType::Uuid => {
            Literal::Bytes(v.clone())
        }
        _ if value.data_type() != arrow => return None,
        ScalarValue::Int16(Some(v)) => Literal::Int(i128::from(*v)),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => Literal::Int(i128::from(*v)),
        ScalarValue::Int64(Some(v))
        | ScalarValue::Time64Microsecond(Some(v))
        | ScalarValue::TimestampMicrosecond(Some(v), _) => Literal::Int(i128::from(*v)),
        ScalarValue::Decimal128(Some(v), _, _) => Literal::Int(*v),
        _ => return None,
    })
}
