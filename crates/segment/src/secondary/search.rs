//! From predicates to the searches in an index.
//!
//! ```text
//!  index (a, b)     a = 1                  keys from 1 on, below what follows 1
//!                   a = 1 AND b = 2        the key 1 2
//!                   a IN (1, 3) AND b < 7  keys from 1 on below 1 7, and from 3 on below 3 7
//!                   b = 2                  nothing: the leading attribute is open
//! ```
//!
//! A search may find more rows than satisfy the predicates, never fewer: the caller evaluates the
//! predicates.

use aerostat_types::{IndexKind, Physical};

use crate::{
    CompareOp, IndexSpec, Key, Literal, Predicate, SegmentSchema,
    input::key::{NULL, VALUE, key_width, put_literal},
};

/// The most keys or spans of one search; lists that make more are left to a scan.
const PIECES_MAX: usize = 1024;

/// What to look for in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexSearch {
    /// These keys, ascending, none twice.
    Keys(Vec<Key>),
    /// All keys in these spans, ascending; only an ordered index has them.
    Spans(Vec<KeySpan>),
}

#[cfg(test)]
impl IndexSearch {
    /// All keys there may be.
    pub(crate) fn everything() -> IndexSearch {
        IndexSearch::Spans(vec![KeySpan {
            lower: Vec::new(),
            upper: None,
        }])
    }
}

/// Keys from `lower` on, below `upper`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySpan {
    /// The least.
    pub(crate) lower: Vec<u8>,
    /// What all are below; `None` for no bound.
    pub(crate) upper: Option<Vec<u8>>,
}

impl SegmentSchema {
    /// What to look for in an index so as to find all rows that satisfy the predicates, each
    /// of which the schema [accepts](SegmentSchema::accepts). `None` when they leave its
    /// leading attributes open.
    pub fn index_search(&self, index: &IndexSpec, predicates: &[Predicate]) -> Option<IndexSearch> {
        let mut prefixes = vec![Vec::new()];
        for (nth, &attribute) in index.attributes.iter().enumerate() {
            let of = || predicates.iter().filter(|one| one.attribute() == attribute);
            let fixed = of()
                .find_map(|one| self.pieces(one))
                .filter(|pieces| pieces.len().saturating_mul(prefixes.len()) <= PIECES_MAX);
            if let Some(pieces) = fixed {
                let longer = |prefix: &Vec<u8>, piece: &Vec<u8>| [&prefix[..], piece].concat();
                prefixes = prefixes
                    .iter()
                    .flat_map(|prefix| pieces.iter().map(move |piece| longer(prefix, piece)))
                    .collect();
                continue;
            }
            if index.kind == IndexKind::Hash {
                return None;
            }
            let range = self.range(attribute, of());
            return match range {
                Some(range) => Some(IndexSearch::Spans(spans(&prefixes, &range))),
                None if nth > 0 => Some(IndexSearch::Spans(spans(&prefixes, &Range::default()))),
                None => None,
            };
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        let keys = prefixes.into_iter().map(Key::from_bytes);
        Some(IndexSearch::Keys(keys.collect()))
    }

    /// The forms in a key of the values that satisfy a predicate, if they are few. A value
    /// beyond the attribute's range has none.
    fn pieces(&self, predicate: &Predicate) -> Option<Vec<Vec<u8>>> {
        let attribute = predicate.attribute();
        match predicate {
            Predicate::Compare {
                op: CompareOp::Eq,
                value,
                ..
            } => Some(self.piece(attribute, value).into_iter().collect()),
            Predicate::InList {
                values,
                negated: false,
                ..
            } if values.len() <= PIECES_MAX => {
                let pieces = values
                    .iter()
                    .filter_map(|value| self.piece(attribute, value));
                Some(pieces.collect())
            }
            Predicate::IsNull { .. } => Some(Vec::from_iter(self.null_piece(attribute))),
            _ => None,
        }
    }

    fn piece(&self, attribute: usize, value: &Literal) -> Option<Vec<u8>> {
        let mut bytes = self.mark(attribute);
        put_literal(&mut bytes, self.physical(attribute), value)?;
        Some(bytes)
    }

    /// What is in front of every value of the attribute.
    fn mark(&self, attribute: usize) -> Vec<u8> {
        let nullable = self.attributes()[attribute].nullable;
        Vec::from_iter(nullable.then_some(VALUE))
    }

    fn null_piece(&self, attribute: usize) -> Option<Vec<u8>> {
        if !self.attributes()[attribute].nullable {
            return None;
        }
        let mut bytes = vec![NULL];
        let physical = self.physical(attribute);
        if physical != Physical::Variable {
            bytes.resize(1 + key_width(physical), 0);
        }
        Some(bytes)
    }

    /// The range of an attribute's values that comparisons with `<`, `<=`, `>`, `>=` leave;
    /// `None` if there is no such comparison.
    fn range<'a>(
        &self,
        attribute: usize,
        predicates: impl Iterator<Item = &'a Predicate>,
    ) -> Option<Range> {
        let mut range: Option<Range> = None;
        for predicate in predicates {
            let Predicate::Compare { op, value, .. } = predicate else {
                continue;
            };
            // A value beyond the attribute's range bounds nothing here.
            let Some(piece) = self.piece(attribute, value) else {
                continue;
            };
            let own = match op {
                CompareOp::Lt => Range::new(Vec::new(), Some(piece)),
                CompareOp::Le => Range::new(Vec::new(), after(piece)),
                CompareOp::Gt => match after(piece) {
                    Some(lower) => Range::new(lower, None),
                    None => continue,
                },
                CompareOp::Ge => Range::new(piece, None),
                CompareOp::Eq | CompareOp::Ne => continue,
            };
            range.get_or_insert_default().narrow(own);
        }
        let mut range = range?;
        // No comparison is true of NULL, which comes last.
        if self.attributes()[attribute].nullable {
            range.narrow(Range::new(self.mark(attribute), Some(vec![NULL])));
        }
        Some(range)
    }
}

/// Part of a key: from `lower` on, below `upper`.
#[derive(Default)]
struct Range {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Range {
    fn new(lower: Vec<u8>, upper: Option<Vec<u8>>) -> Range {
        Range { lower, upper }
    }

    fn narrow(&mut self, other: Range) {
        if other.lower > self.lower {
            self.lower = other.lower;
        }
        if let Some(upper) = other.upper
            && self.upper.as_ref().is_none_or(|own| upper < *own)
        {
            self.upper = Some(upper);
        }
    }
}

/// The keys that begin with one of the prefixes and go on within the range.
fn spans(prefixes: &[Vec<u8>], range: &Range) -> Vec<KeySpan> {
    let mut spans: Vec<KeySpan> = prefixes
        .iter()
        .map(|prefix| KeySpan {
            lower: [&prefix[..], &range.lower].concat(),
            upper: match &range.upper {
                Some(upper) => Some([&prefix[..], upper].concat()),
                None => after(prefix.clone()),
            },
        })
        .filter(|span| span.upper.as_ref().is_none_or(|upper| span.lower < *upper))
        .collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

/// The least bytes that are greater than all that begin with these; `None` if there are none.
fn after(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(bytes);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use aerostat_types::SqlType;

    use super::*;
    use crate::AttributeSpec;

    fn schema() -> SegmentSchema {
        let spec = |ty, nullable| AttributeSpec { ty, nullable };
        let attributes = vec![
            spec(SqlType::SmallInt, false),
            spec(SqlType::SmallInt, true),
            spec(SqlType::Text, true),
        ];
        SegmentSchema::new(attributes, vec![vec![0, 1, 2]], vec![]).unwrap()
    }

    fn compare(attribute: usize, op: CompareOp, value: i128) -> Predicate {
        let value = Literal::Int(value);
        Predicate::Compare {
            attribute,
            op,
            value,
        }
    }

    fn search(kind: IndexKind, attributes: &[usize], of: &[Predicate]) -> Option<IndexSearch> {
        let index = IndexSpec {
            kind,
            attributes: attributes.to_vec(),
            unique: false,
        };
        schema().index_search(&index, of)
    }

    fn span(lower: &[u8], upper: Option<&[u8]>) -> KeySpan {
        KeySpan {
            lower: lower.to_vec(),
            upper: upper.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn what_is_open_is_no_search() {
        use CompareOp::{Eq, Gt, Ne};
        for kind in [IndexKind::Hash, IndexKind::Ordered] {
            assert_eq!(search(kind, &[0, 1], &[compare(1, Eq, 2)]), None);
            assert_eq!(search(kind, &[0], &[compare(0, Ne, 2)]), None);
            assert_eq!(search(kind, &[0], &[]), None);
        }
        assert_eq!(search(IndexKind::Hash, &[0, 1], &[compare(0, Eq, 2)]), None);
        assert_eq!(search(IndexKind::Hash, &[0], &[compare(0, Gt, 2)]), None);
    }

    #[test]
    fn all_attributes_fixed_are_keys() {
        let list = Predicate::InList {
            attribute: 0,
            values: vec![
                Literal::Int(3),
                Literal::Int(1),
                Literal::Int(3),
                Literal::Int(1 << 20),
            ],
            negated: false,
        };
        let key = |bytes: &[u8]| Key::from_bytes(bytes.to_vec());
        for kind in [IndexKind::Hash, IndexKind::Ordered] {
            assert_eq!(
                search(kind, &[0, 1], &[compare(1, CompareOp::Eq, 2), list.clone()]),
                Some(IndexSearch::Keys(vec![
                    key(&[0x80, 1, 0, 0x80, 2]),
                    key(&[0x80, 3, 0, 0x80, 2])
                ]))
            );
            let null = Predicate::IsNull { attribute: 1 };
            assert_eq!(
                search(kind, &[1], &[null]),
                Some(IndexSearch::Keys(vec![key(&[1, 0, 0])]))
            );
            assert_eq!(
                search(kind, &[0], &[compare(0, CompareOp::Eq, 1 << 20)]),
                Some(IndexSearch::Keys(vec![]))
            );
        }
    }

    #[test]
    fn a_range_leaves_nulls_out() {
        use CompareOp::{Eq, Ge, Gt, Le, Lt};
        let of = |predicates: &[Predicate]| search(IndexKind::Ordered, &[0, 1], predicates);
        let spans = |spans: Vec<KeySpan>| Some(IndexSearch::Spans(spans));
        assert_eq!(
            of(&[
                compare(0, Eq, 1),
                compare(1, Gt, 2),
                compare(1, Le, 4),
                compare(1, Lt, 9)
            ]),
            spans(vec![span(
                &[0x80, 1, 0, 0x80, 3],
                Some(&[0x80, 1, 0, 0x80, 5])
            )])
        );
        assert_eq!(
            of(&[compare(0, Eq, 1), compare(1, Ge, 2)]),
            spans(vec![span(&[0x80, 1, 0, 0x80, 2], Some(&[0x80, 1, 1]))])
        );
        assert_eq!(
            of(&[compare(0, Gt, i16::MAX.into())]),
            spans(vec![]).filter(|_| false),
            "nothing bounds the keys from above, and nothing can be greater"
        );
        assert_eq!(
            of(&[compare(0, Eq, 1)]),
            spans(vec![span(&[0x80, 1], Some(&[0x80, 2]))])
        );
        assert_eq!(of(&[compare(0, Gt, 5), compare(0, Lt, 3)]), spans(vec![]));
    }

    #[test]
    fn what_follows_a_prefix() {
        assert_eq!(after(vec![1, 2]), Some(vec![1, 3]));
        assert_eq!(after(vec![1, 0xFF, 0xFF]), Some(vec![2]));
        assert_eq!(after(vec![0xFF]), None);
        assert_eq!(after(vec![]), None);
    }
}
