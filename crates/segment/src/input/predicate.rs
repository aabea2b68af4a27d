//! Predicates that a segment evaluates itself: a comparison of one attribute
//! with literals, or a test for NULL.

use aerostat_types::Physical;

use crate::{CompareOp, Literal, SegmentSchema, Zone};

/// A condition on one attribute. NULL satisfies none but `IsNull`.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `attribute op value`
    Compare {
        /// Position of the attribute.
        attribute: usize,
        /// The operator.
        op: CompareOp,
        /// The right-hand side.
        value: Literal,
    },
    /// `attribute IN (values)`, or NOT IN.
    InList {
        /// Position of the attribute.
        attribute: usize,
        /// The list, in any order.
        values: Vec<Literal>,
        /// NOT IN.
        negated: bool,
    },
    /// `attribute IS NULL`
    IsNull {
        /// Position of the attribute.
        attribute: usize,
    },
    /// `attribute IS NOT NULL`
    IsNotNull {
        /// Position of the attribute.
        attribute: usize,
    },
}

impl Predicate {
    /// The attribute it looks at.
    pub fn attribute(&self) -> usize {
        match self {
            Predicate::Compare { attribute, .. }
            | Predicate::InList { attribute, .. }
            | Predicate::IsNull { attribute }
            | Predicate::IsNotNull { attribute } => *attribute,
        }
    }

    /// Whether a row in a vector with this zone can satisfy it.
    pub fn may_match(&self, zone: Zone) -> bool {
        match self {
            Predicate::IsNull { .. } => zone.nulls,
            Predicate::IsNotNull { .. } => zone.any,
            Predicate::Compare { op, value, .. } => zone.any && may_compare(*op, value, zone),
            Predicate::InList {
                values,
                negated: false,
                ..
            } => {
                zone.any
                    && values
                        .iter()
                        .any(|value| may_compare(CompareOp::Eq, value, zone))
            }
            // A list rules out a vector only if that holds one value alone.
            Predicate::InList {
                values,
                negated: true,
                ..
            } => {
                zone.any
                    && values
                        .iter()
                        .all(|value| may_compare(CompareOp::Ne, value, zone))
            }
        }
    }
}

fn may_compare(op: CompareOp, value: &Literal, zone: Zone) -> bool {
    let (key, literal_exact) = value.order_key();
    // Where keys are exact, equal keys mean equal values; elsewhere equal keys leave all open.
    let exact = zone.exact && literal_exact;
    match op {
        CompareOp::Eq => zone.min <= key && key <= zone.max,
        CompareOp::Ne => !(exact && zone.min == key && zone.max == key),
        CompareOp::Lt => zone.min < key || !exact && zone.min == key,
        CompareOp::Le => zone.min <= key,
        CompareOp::Gt => zone.max > key || !exact && zone.max == key,
        CompareOp::Ge => zone.max >= key,
    }
}

impl SegmentSchema {
    /// Whether [`crate::Pinned::filter`] takes this predicate: the attribute exists,
    /// its type has comparisons here (`interval` has not), and the literals are of its kind.
    pub fn accepts(&self, predicate: &Predicate) -> bool {
        let Some(attribute) = self.attributes().get(predicate.attribute()) else {
            return false;
        };
        match predicate {
            Predicate::Compare { value, .. } => value.suits(attribute.ty),
            Predicate::InList { values, .. } => {
                attribute.ty.physical() != Physical::Interval
                    && values.iter().all(|value| value.suits(attribute.ty))
            }
            Predicate::IsNull { .. } | Predicate::IsNotNull { .. } => true,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::kernel::order::{key_of_i128, prefix_key};

    fn compare(op: CompareOp, value: Literal) -> Predicate {
        Predicate::Compare {
            attribute: 0,
            op,
            value,
        }
    }

    #[test]
    fn literals_beyond_the_type_do_not_fool_a_zone() {
        let max = key_of_i128(i64::MAX.into());
        let zone = Zone {
            min: max,
            max,
            nulls: false,
            any: true,
            exact: true,
        };
        assert!(compare(CompareOp::Lt, Literal::Int(1 << 70)).may_match(zone));
        assert!(!compare(CompareOp::Lt, Literal::Int(i64::MAX.into())).may_match(zone));
        assert!(compare(CompareOp::Ne, Literal::Int(1 << 70)).may_match(zone));
    }

    #[test]
    fn prefixes_leave_ties_open() {
        let key = prefix_key(b"AAAAAAAAzz");
        let zone = Zone {
            min: key,
            max: key,
            nulls: false,
            any: true,
            exact: false,
        };
        for op in [
            CompareOp::Eq,
            CompareOp::Ne,
            CompareOp::Lt,
            CompareOp::Le,
            CompareOp::Gt,
            CompareOp::Ge,
        ] {
            assert!(
                compare(op, Literal::Bytes(b"AAAAAAAAaa".to_vec())).may_match(zone),
                "{op:?}"
            );
        }
        assert!(!compare(CompareOp::Gt, Literal::Bytes(b"B".to_vec())).may_match(zone));
    }

    #[test]
    fn a_vector_of_nulls_matches_is_null_only() {
        let zone = Zone {
            min: 0,
            max: 0,
            nulls: true,
            any: false,
            exact: true,
        };
        assert!(Predicate::IsNull { attribute: 0 }.may_match(zone));
        assert!(!Predicate::IsNotNull { attribute: 0 }.may_match(zone));
        assert!(!compare(CompareOp::Ne, Literal::Int(1)).may_match(zone));
    }
}
