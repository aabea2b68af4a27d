//! The values that a condition admits: bounds for each column, perhaps a list, and whether NULL.
//!
//! A condition that is not understood admits all values. So a domain contains the values of every
//! row that satisfies the condition, and perhaps of others.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use aerostat_segment::{CompareOp, Literal};
use aerostat_types::SqlType;
use datafusion::{
    arrow::datatypes::DataType,
    common::ScalarValue,
    logical_expr::Operator,
    physical_expr::{
        PhysicalExpr, ScalarFunctionExpr,
        expressions::{
            BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr,
            Literal as Constant,
        },
    },
};

use super::predicate::{compare_op, constant, mirrored};

/// A column of the table that a filter refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// Its position in the table.
    pub(super) position: usize,
    pub(super) ty: SqlType,
    pub(super) is_nullable: bool,
}

/// A value, ordered as in storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Int(i128),
    Bytes(Vec<u8>),
}

impl Value {
    /// A constant as a value; `None` for floats, whose order differs, so that joins test them.
    fn of(value: &ScalarValue, ty: SqlType) -> Option<Value> {
        Some(match constant(value, ty)? {
            Literal::Bool(value) => Value::Int(value.into()),
            Literal::Int(value) => Value::Int(value),
            Literal::Bytes(value) => Value::Bytes(value),
            Literal::Float(_) => return None,
        })
    }

    /// The value in storage's form.
    pub(super) fn literal(&self, ty: SqlType) -> Literal {
        match self {
            Value::Int(value) if ty == SqlType::Boolean => Literal::Bool(*value != 0),
            Value::Int(value) => Literal::Int(*value),
            Value::Bytes(value) => Literal::Bytes(value.clone()),
        }
    }
}

/// The end of a range, and whether it belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) value: Value,
    pub(super) is_in: bool,
}

/// The values that a column may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Domain {
    pub(super) low: Option<End>,
    pub(super) high: Option<End>,
    /// In ascending order, each once. The bounds apply, too.
    pub(super) list: Option<Vec<Value>>,
    pub(super) nulls: bool,
}

impl Domain {
    /// All values except NULL.
    const VALUES: Domain = Domain {
        low: None,
        high: None,
        list: None,
        nulls: false,
    };

    fn of_list(mut list: Vec<Value>) -> Domain {
        // Keys often come in order, or in a few sorted runs, which this sort only merges.
        list.sort();
        list.dedup();
        let end = |value: Option<&Value>| {
            value.map(|value| End {
                value: value.clone(),
                is_in: true,
            })
        };
        Domain {
            low: end(list.first()),
            high: end(list.last()),
            list: Some(list),
            nulls: false,
        }
    }

    fn compared(op: CompareOp, value: Value) -> Domain {
        let end = |is_in| {
            Some(End {
                value: value.clone(),
                is_in,
            })
        };
        let mut domain = Domain::VALUES;
        match op {
            CompareOp::Eq => (domain.low, domain.high) = (end(true), end(true)),
            CompareOp::Lt => domain.high = end(false),
            CompareOp::Le => domain.high = end(true),
            CompareOp::Gt => domain.low = end(false),
            CompareOp::Ge => domain.low = end(true),
            CompareOp::Ne => {}
        }
        domain
    }

    /// Whether it is clear that no value is left.
    pub(super) fn has_no_value(&self) -> bool {
        let is_crossed = match (&self.low, &self.high) {
            (Some(low), Some(high)) => match low.value.cmp(&high.value) {
                Ordering::Less => false,
                Ordering::Equal => !(low.is_in && high.is_in),
                Ordering::Greater => true,
            },
            _ => false,
        };
        is_crossed || self.list.as_ref().is_some_and(Vec::is_empty)
    }

    /// The list, if its values can be keys of a lookup table.
    pub(super) fn integers(&self, ty: SqlType) -> Option<Vec<i64>> {
        let is_key = matches!(
            ty,
            SqlType::SmallInt | SqlType::Integer | SqlType::BigInt | SqlType::Date
        );
        let integer = |value: &Value| match value {
            Value::Int(value) => i64::try_from(*value).ok(),
            Value::Bytes(_) => None,
        };
        let list = self.list.as_ref().filter(|_| is_key)?;
        list.iter().map(integer).collect()
    }

    fn contains(&self, value: &Value) -> bool {
        let is_above = self.low.as_ref().is_none_or(|low| match low.is_in {
            true => *value >= low.value,
            false => *value > low.value,
        });
        let is_below = self.high.as_ref().is_none_or(|high| match high.is_in {
            true => *value <= high.value,
            false => *value < high.value,
        });
        is_above && is_below
    }

    fn and(self, other: Domain) -> Domain {
        debug_assert!(
            other.list.as_ref().is_none_or(|list| list.is_sorted()),
            "a list of values is in ascending order, as it is searched"
        );
        let mut both = Domain {
            low: stricter(self.low, other.low, |a, b| a > b),
            high: stricter(self.high, other.high, |a, b| a < b),
            list: match (self.list, other.list) {
                (Some(own), Some(other)) => Some(
                    own.into_iter()
                        .filter(|value| other.binary_search(value).is_ok())
                        .collect(),
                ),
                (own, other) => own.or(other),
            },
            nulls: self.nulls && other.nulls,
        };
        if let Some(mut list) = both.list.take() {
            list.retain(|value| both.contains(value));
            both.list = Some(list);
        }
        both
    }

    fn or(self, other: Domain) -> Domain {
        let nulls = self.nulls || other.nulls;
        if self.has_no_value() {
            return Domain { nulls, ..other };
        }
        if other.has_no_value() {
            return Domain { nulls, ..self };
        }
        Domain {
            low: wider(self.low, other.low, |a, b| a < b),
            high: wider(self.high, other.high, |a, b| a > b),
            list: self.list.zip(other.list).map(|(mut own, other)| {
                own.extend(other);
                own.sort();
                own.dedup();
                own
            }),
            nulls,
        }
    }
}

/// The lower or upper end that admits less.
fn stricter(
    own: Option<End>,
    other: Option<End>,
    is_within: fn(&Value, &Value) -> bool,
) -> Option<End> {
    match (own, other) {
        (Some(own), Some(other)) => Some(if own.value == other.value {
            End {
                is_in: own.is_in && other.is_in,
                ..own
            }
        } else if is_within(&own.value, &other.value) {
            own
        } else {
            other
        }),
        (own, other) => own.or(other),
    }
}

/// The lower or upper end that admits more.
fn wider(
    own: Option<End>,
    other: Option<End>,
    is_beyond: fn(&Value, &Value) -> bool,
) -> Option<End> {
    let (own, other) = own.zip(other)?;
    Some(if own.value == other.value {
        End {
            is_in: own.is_in || other.is_in,
            ..own
        }
    } else if is_beyond(&own.value, &other.value) {
        own
    } else {
        other
    })
}

/// The rows that a condition admits.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rows {
    None,
    /// Rows with values in these domains, by the column's position. Other columns may have any
    /// value.
    Within(BTreeMap<usize, (Attribute, Domain)>),
}

impl Rows {
    pub(super) const ALL: Rows = Rows::Within(BTreeMap::new());

    fn with(attribute: Attribute, mut domain: Domain) -> Rows {
        domain.nulls &= attribute.is_nullable;
        if domain.has_no_value() && !domain.nulls {
            return Rows::None;
        }
        Rows::Within(BTreeMap::from([(attribute.position, (attribute, domain))]))
    }

    /// The rows that both admit.
    pub(super) fn and(self, other: Rows) -> Rows {
        let (Rows::Within(mut own), Rows::Within(other)) = (self, other) else {
            return Rows::None;
        };
        for (position, (attribute, domain)) in other {
            let domain = match own.remove(&position) {
                Some((_, own)) => own.and(domain),
                None => domain,
            };
            if domain.has_no_value() && !domain.nulls {
                return Rows::None;
            }
            own.insert(position, (attribute, domain));
        }
        Rows::Within(own)
    }

    /// The rows that one of them admits, and perhaps others.
    pub(super) fn or(self, other: Rows) -> Rows {
        let (own, mut other) = match (self, other) {
            (Rows::None, rows) | (rows, Rows::None) => return rows,
            (Rows::Within(own), Rows::Within(other)) => (own, other),
        };
        let both = own.into_iter().filter_map(|(position, (attribute, own))| {
            let (_, other) = other.remove(&position)?;
            Some((position, (attribute, own.or(other))))
        });
        Rows::Within(both.collect())
    }

    /// The rows for which a filter may be true. `attribute` maps a column of the filter to the
    /// column of the table.
    pub(super) fn of(
        filter: &dyn PhysicalExpr,
        attribute: &dyn Fn(usize) -> Option<Attribute>,
    ) -> Rows {
        Reader { attribute }.rows(filter)
    }
}

struct Reader<'a> {
    attribute: &'a dyn Fn(usize) -> Option<Attribute>,
}

impl Reader<'_> {
    fn rows(&self, filter: &dyn PhysicalExpr) -> Rows {
        if let Some(binary) = filter.downcast_ref::<BinaryExpr>() {
            let (left, right) = (binary.left().as_ref(), binary.right().as_ref());
            return match binary.op() {
                Operator::And => self.rows(left).and(self.rows(right)),
                Operator::Or => self.rows(left).or(self.rows(right)),
                op => self.compared(left, *op, right).unwrap_or(Rows::ALL),
            };
        }
        if let Some(constant) = filter.downcast_ref::<Constant>() {
            return match constant.value() {
                ScalarValue::Boolean(Some(true)) => Rows::ALL,
                ScalarValue::Boolean(_) => Rows::None,
                _ => Rows::ALL,
            };
        }
        if let Some(list) = filter.downcast_ref::<InListExpr>() {
            return self.listed(list).unwrap_or(Rows::ALL);
        }
        if let Some(test) = filter.downcast_ref::<IsNullExpr>() {
            let nulls = Domain {
                nulls: true,
                ..Domain::of_list(Vec::new())
            };
            return self.column(test.arg().as_ref(), nulls);
        }
        if let Some(test) = filter.downcast_ref::<IsNotNullExpr>() {
            return self.column(test.arg().as_ref(), Domain::VALUES);
        }
        // It is not known which branch applies, so any may.
        if let Some(case) = filter.downcast_ref::<CaseExpr>() {
            let otherwise = case
                .else_expr()
                .map_or(Rows::None, |expr| self.rows(expr.as_ref()));
            let branches = case.when_then_expr().iter();
            return branches.fold(otherwise, |rows, (_, then)| {
                rows.or(self.rows(then.as_ref()))
            });
        }
        Rows::ALL
    }

    fn column(&self, expr: &dyn PhysicalExpr, domain: Domain) -> Rows {
        let column = expr.downcast_ref::<Column>();
        match column.and_then(|column| (self.attribute)(column.index())) {
            Some(attribute) => Rows::with(attribute, domain),
            None => Rows::ALL,
        }
    }

    fn compared(
        &self,
        left: &dyn PhysicalExpr,
        op: Operator,
        right: &dyn PhysicalExpr,
    ) -> Option<Rows> {
        let op = compare_op(op)?;
        let (attribute, widened, op, with) = match self.compared_column(left) {
            Some((attribute, widened)) => (attribute, widened, op, right),
            None => {
                let (attribute, widened) = self.compared_column(right)?;
                (attribute, widened, mirrored(op), left)
            }
        };
        let value = with.downcast_ref::<Constant>()?.value();
        if value.is_null() {
            return Some(Rows::None);
        }
        let domain = Domain::compared(op, Value::of(value, widened)?);
        Some(Rows::with(
            attribute,
            within_type(attribute, widened, domain),
        ))
    }

    fn listed(&self, list: &InListExpr) -> Option<Rows> {
        if list.negated() {
            return None;
        }
        if let Some(tuple) = list.expr().downcast_ref::<ScalarFunctionExpr>() {
            return self.listed_tuples(tuple, list.list());
        }
        let (attribute, widened) = self.compared_column(list.expr().as_ref())?;
        let mut values = Vec::with_capacity(list.list().len());
        for value in list.list() {
            let value = value.downcast_ref::<Constant>()?.value();
            if !value.is_null() {
                values.push(Value::of(value, widened)?);
            }
        }
        let domain = Domain::of_list(values);
        Some(Rows::with(
            attribute,
            within_type(attribute, widened, domain),
        ))
    }

    /// The rows that a list of tuples admits: each column of the tuples has a list of values.
    fn listed_tuples(
        &self,
        tuple: &ScalarFunctionExpr,
        list: &[Arc<dyn PhysicalExpr>],
    ) -> Option<Rows> {
        if tuple.name() != "struct" {
            return None;
        }
        let columns = tuple.args().iter().enumerate();
        let all = columns.filter_map(|(at, column)| {
            let (attribute, widened) = self.compared_column(column.as_ref())?;
            let mut values = Vec::with_capacity(list.len());
            for tuple in list {
                let ScalarValue::Struct(tuple) = tuple.downcast_ref::<Constant>()?.value() else {
                    return None;
                };
                let value = ScalarValue::try_from_array(tuple.columns().get(at)?, 0).ok()?;
                if !value.is_null() {
                    values.push(Value::of(&value, widened)?);
                }
            }
            let domain = Domain::of_list(values);
            Some(Rows::with(
                attribute,
                within_type(attribute, widened, domain),
            ))
        });
        Some(all.fold(Rows::ALL, Rows::and))
    }

    /// A column, or a column that is cast to a wider integer, and the type in which it is compared.
    fn compared_column(&self, expr: &dyn PhysicalExpr) -> Option<(Attribute, SqlType)> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            let attribute = (self.attribute)(column.index())?;
            return Some((attribute, attribute.ty));
        }
        let cast = expr.downcast_ref::<CastExpr>()?;
        let column = cast.expr().downcast_ref::<Column>()?;
        let attribute = (self.attribute)(column.index())?;
        let widened = match (attribute.ty, cast.cast_type()) {
            (SqlType::SmallInt, DataType::Int32) => SqlType::Integer,
            (SqlType::SmallInt | SqlType::Integer, DataType::Int64) => SqlType::BigInt,
            _ => return None,
        };
        Some((attribute, widened))
    }
}

/// Limits a domain of a wider integer type to the values of the column's own type.
fn within_type(attribute: Attribute, widened: SqlType, domain: Domain) -> Domain {
    let (least, greatest) = match attribute.ty {
        _ if widened == attribute.ty => return domain,
        SqlType::SmallInt => (i128::from(i16::MIN), i128::from(i16::MAX)),
        _ => (i128::from(i32::MIN), i128::from(i32::MAX)),
    };
    let own = Domain::of_list(vec![Value::Int(least), Value::Int(greatest)]);
    domain.and(Domain { list: None, ..own })
}

#[cfg(test)]
mod tests {
    use datafusion::{
        logical_expr::Operator::{And, Eq, Gt, GtEq, Lt, LtEq, Or},
        physical_expr::expressions::{CaseExpr, col, is_null, lit},
    };

    use super::*;

    fn column(at: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("any", at))
    }

    fn binary(
        left: Arc<dyn PhysicalExpr>,
        op: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    fn compare(at: usize, op: Operator, value: i32) -> Arc<dyn PhysicalExpr> {
        binary(column(at), op, lit(value))
    }

    /// Columns 0 and 1 are nullable integers 10 and 11 of the table; there is no other.
    fn attribute(at: usize) -> Option<Attribute> {
        (at < 2).then_some(Attribute {
            position: at + 10,
            ty: SqlType::Integer,
            is_nullable: true,
        })
    }

    fn domain(filter: &Arc<dyn PhysicalExpr>, position: usize) -> Option<Domain> {
        match Rows::of(filter.as_ref(), &attribute) {
            Rows::None => panic!("no rows"),
            Rows::Within(mut domains) => domains.remove(&position).map(|(_, domain)| domain),
        }
    }

    fn end(value: i128, is_in: bool) -> Option<End> {
        let value = Value::Int(value);
        Some(End { value, is_in })
    }

    #[test]
    fn conjunctions_are_the_stricter_and_disjunctions_the_wider_bounds() {
        let both = binary(compare(0, Gt, 3), And, binary(lit(9), GtEq, column(0)));
        let both = binary(both, And, compare(0, GtEq, 3));
        let found = domain(&both, 10).unwrap();
        assert_eq!((found.low, found.high), (end(3, false), end(9, true)));
        // The top of ORDER BY x DESC, y: x > 7 OR x = 7 AND y < 2.
        let tie = binary(compare(0, Eq, 7), And, compare(1, Lt, 2));
        let top = binary(compare(0, Gt, 7), Or, tie);
        let found = domain(&top, 10).unwrap();
        assert_eq!(
            (found.low, found.high, found.nulls),
            (end(7, true), None, false)
        );
        assert_eq!(domain(&top, 11), None);
        let nulls_first = binary(is_null(column(0)).unwrap(), Or, compare(0, Lt, 7));
        let found = domain(&nulls_first, 10).unwrap();
        assert_eq!(
            (found.low, found.high, found.nulls),
            (None, end(7, false), true)
        );
    }

    #[test]
    fn what_is_not_understood_leaves_all_rows() {
        for filter in [
            compare(5, Eq, 1),
            binary(column(0), Eq, column(1)),
            binary(binary(column(0), Operator::Plus, lit(1)), Lt, lit(4)),
            binary(column(0), Lt, lit(4i64)),
            binary(compare(0, Lt, 4), Or, compare(5, Lt, 4)),
            binary(compare(0, Lt, 4), Or, compare(1, Lt, 4)),
        ] {
            assert_eq!(Rows::of(filter.as_ref(), &attribute), Rows::ALL, "{filter}");
        }
        let half = binary(compare(5, Eq, 1), And, compare(0, LtEq, 1));
        assert_eq!(domain(&half, 10).unwrap().high, end(1, true));
    }

    #[test]
    fn what_cannot_be_leaves_none() {
        for filter in [
            lit(false),
            binary(compare(0, Lt, 4), And, compare(0, Gt, 4)),
            binary(compare(0, Lt, 4), And, is_null(column(0)).unwrap()),
            binary(column(0), Eq, lit(ScalarValue::Int32(None))),
        ] {
            assert_eq!(
                Rows::of(filter.as_ref(), &attribute),
                Rows::None,
                "{filter}"
            );
        }
    }

    #[test]
    fn lists_of_partitions_are_one_list() {
        let schema = arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
            "any",
            DataType::Int32,
            true,
        )]);
        let list = |values: &[i32]| -> Arc<dyn PhysicalExpr> {
            let array = Arc::new(arrow::array::Int32Array::from(values.to_vec()));
            let of = col("any", &schema).unwrap();
            Arc::new(InListExpr::try_new_from_array(of, array, false, &schema).unwrap())
        };
        let number = |at: u64| lit(ScalarValue::UInt64(Some(at)));
        let branches = vec![(number(0), list(&[5, 1])), (number(1), list(&[9, 5]))];
        let case: Arc<dyn PhysicalExpr> =
            Arc::new(CaseExpr::try_new(Some(number(7)), branches, Some(lit(false))).unwrap());
        let values = |values: &[i128]| Some(values.iter().copied().map(Value::Int).collect());
        let found = domain(&case, 10).unwrap();
        assert_eq!(
            (found.list.clone(), found.low),
            (values(&[1, 5, 9]), end(1, true))
        );
        let fewer = binary(case, And, compare(0, Gt, 1));
        let found = domain(&fewer, 10).unwrap();
        assert_eq!(found.integers(SqlType::Integer), Some(vec![5, 9]));
        assert_eq!(found.integers(SqlType::Text), None);
    }

    #[test]
    fn wider_integers_are_cut_to_the_columns_type() {
        let wide = |op, value: i64| {
            let cast = Arc::new(CastExpr::new(column(0), DataType::Int64, None));
            binary(cast, op, lit(value))
        };
        let found = domain(&wide(Lt, 1 << 40), 10).unwrap();
        assert_eq!(found.high, end(i32::MAX.into(), true));
        assert_eq!(Rows::of(wide(Gt, 1 << 40).as_ref(), &attribute), Rows::None);
        assert_eq!(domain(&wide(Eq, 4), 10).unwrap().low, end(4, true));
    }
}
