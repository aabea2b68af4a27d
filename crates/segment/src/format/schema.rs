//! What the rows of a segment look like: attributes, attribute groups, key, secondary indexes.

use std::fmt;

use aerostat_types::{IndexKind, Physical, SqlType};

use crate::{SegmentError, kernel::hash::hash_bytes};

/// An attribute: a column as a segment knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeSpec {
    /// Its type.
    pub ty: SqlType,
    /// Whether it takes NULL, and so has a bitmap.
    pub nullable: bool,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexSpec {
    /// How it is searched.
    pub kind: IndexKind,
    /// Positions of its attributes, the leading one first.
    pub attributes: Vec<usize>,
    /// Whether keys without NULL are to be unique. A frozen segment then has a Bloom filter
    /// of them, for every other segment is asked about a new key.
    pub unique: bool,
}

impl IndexSpec {
    /// Bytes that one row takes, at most.
    pub(crate) fn row_bytes(&self) -> usize {
        match self.kind {
            IndexKind::Hash => 8,
            IndexKind::Ordered => 6,
        }
    }

    /// Whether a frozen segment has a Bloom filter of its keys.
    pub(crate) fn has_bloom(&self) -> bool {
        self.unique || self.kind == IndexKind::Hash
    }
}

/// The form that the fingerprint is made of.
impl fmt::Display for IndexSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            IndexKind::Hash => "hash",
            IndexKind::Ordered => "ordered",
        };
        let unique = if self.unique { "unique " } else { "" };
        write!(f, "{unique}{kind}{:?}", self.attributes)
    }
}

/// Where an attribute's values lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributePlace {
    /// Position of the attribute group.
    pub(crate) group: usize,
    /// Offset within a tuple of the group.
    pub(crate) offset: usize,
    /// Position among the nullable attributes.
    pub(crate) nulls: Option<usize>,
}

/// Attributes, their groups, the key and the secondary indexes. The same schema reads the same bytes
/// everywhere; its [fingerprint](SegmentSchema::fingerprint) is in the header.
#[derive(Clone, Debug)]
pub struct SegmentSchema {
    attributes: Vec<AttributeSpec>,
    groups: Vec<Vec<usize>>,
    key: Vec<usize>,
    indexes: Vec<IndexSpec>,
    places: Vec<AttributePlace>,
    strides: Vec<usize>,
    nullable: usize,
    fingerprint: u64,
}

impl SegmentSchema {
    /// A schema of these attributes. `groups` holds every attribute once; a group
    /// is stored as packed tuples in the order given. `key` names the key's
    /// attributes in key order, none of them nullable; empty for no key.
    ///
    /// # Errors
    /// [`SegmentError::Schema`] when this does not hold.
    pub fn new(
        attributes: Vec<AttributeSpec>,
        groups: Vec<Vec<usize>>,
        key: Vec<usize>,
    ) -> Result<SegmentSchema, SegmentError> {
        let mut nullable = 0;
        let mut places: Vec<AttributePlace> = attributes
            .iter()
            .map(|attribute| {
                let nulls = attribute.nullable.then_some(nullable);
                nullable += usize::from(attribute.nullable);
                AttributePlace {
                    group: usize::MAX,
                    offset: 0,
                    nulls,
                }
            })
            .collect();
        let mut strides = Vec::with_capacity(groups.len());
        for (number, group) in groups.iter().enumerate() {
            let mut stride = 0;
            for &at in group {
                let place = places
                    .get_mut(at)
                    .ok_or(SegmentError::Schema("a group names an unknown attribute"))?;
                if place.group != usize::MAX {
                    return Err(SegmentError::Schema("an attribute is in two groups"));
                }
                (place.group, place.offset) = (number, stride);
                stride += attributes[at].ty.physical().width();
            }
            strides.push(stride);
        }
        if places.iter().any(|place| place.group == usize::MAX) {
            return Err(SegmentError::Schema("an attribute is in no group"));
        }
        for (nth, &at) in key.iter().enumerate() {
            let attribute = attributes
                .get(at)
                .ok_or(SegmentError::Schema("the key names an unknown attribute"))?;
            if attribute.nullable {
                return Err(SegmentError::Schema("a key attribute takes NULL"));
            }
            if key[..nth].contains(&at) {
                return Err(SegmentError::Schema("the key names an attribute twice"));
            }
        }
        let fingerprint = fingerprint(&attributes, &groups, &key, &[]);
        Ok(SegmentSchema {
            attributes,
            groups,
            key,
            indexes: Vec::new(),
            places,
            strides,
            nullable,
            fingerprint,
        })
    }

    /// The schema with these secondary indexes in place of those it has.
    ///
    /// # Errors
    /// [`SegmentError::Schema`] when one has no attribute, or names one that is unknown or
    /// twice, or two are the same.
    pub fn with_indexes(mut self, indexes: Vec<IndexSpec>) -> Result<SegmentSchema, SegmentError> {
        for (nth, index) in indexes.iter().enumerate() {
            if index.attributes.is_empty() {
                return Err(SegmentError::Schema("an index without attributes"));
            }
            for (at, attribute) in index.attributes.iter().enumerate() {
                if *attribute >= self.attributes.len() {
                    return Err(SegmentError::Schema("an index names an unknown attribute"));
                }
                if index.attributes[..at].contains(attribute) {
                    return Err(SegmentError::Schema("an index names an attribute twice"));
                }
            }
            if indexes[..nth].contains(index) {
                return Err(SegmentError::Schema("two indexes are the same"));
            }
        }
        self.fingerprint = fingerprint(&self.attributes, &self.groups, &self.key, &indexes);
        self.indexes = indexes;
        Ok(self)
    }

    /// The secondary indexes.
    pub fn indexes(&self) -> &[IndexSpec] {
        &self.indexes
    }

    /// The position of an index among the secondary ones.
    pub fn index_position(&self, index: &IndexSpec) -> Option<usize> {
        self.indexes.iter().position(|own| own == index)
    }

    /// The attributes in order.
    pub fn attributes(&self) -> &[AttributeSpec] {
        &self.attributes
    }

    /// The attribute groups.
    pub fn groups(&self) -> &[Vec<usize>] {
        &self.groups
    }

    /// The key's attributes in key order; empty for no key.
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// Bytes of a row in its groups, without nulls, versions and index.
    pub fn row_bytes_fixed(&self) -> usize {
        self.strides.iter().sum()
    }

    /// Bytes that the key index and the secondary ones take for a row, at most; without
    /// what is the same for any number of rows.
    pub fn index_bytes_per_row(&self) -> usize {
        let own = if self.key.is_empty() { 0 } else { 8 };
        let secondary = self.indexes.iter().map(IndexSpec::row_bytes);
        own + secondary.sum::<usize>()
    }

    /// A number that differs, for all practical purposes, between schemas that read bytes differently.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn place(&self, attribute: usize) -> AttributePlace {
        self.places[attribute]
    }

    pub(crate) fn physical(&self, attribute: usize) -> Physical {
        self.attributes[attribute].ty.physical()
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides
    }

    pub(crate) fn nullable_count(&self) -> usize {
        self.nullable
    }
}

/// Hashes a text form, so that a new variant of `SqlType` never changes old fingerprints.
fn fingerprint(
    attributes: &[AttributeSpec],
    groups: &[Vec<usize>],
    key: &[usize],
    indexes: &[IndexSpec],
) -> u64 {
    use std::fmt::Write;
    let mut text = String::new();
    for AttributeSpec { ty, nullable } in attributes {
        write!(text, "{ty}{};", if *nullable { "?" } else { "" })
            .expect("writing to a String does not fail");
    }
    write!(text, "{groups:?}{key:?}").expect("writing to a String does not fail");
    for index in indexes {
        write!(text, "{index}").expect("writing to a String does not fail");
    }
    hash_bytes(text.as_bytes())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn spec(ty: SqlType, nullable: bool) -> AttributeSpec {
        AttributeSpec { ty, nullable }
    }

    #[test]
    fn groups_pack_their_attributes() {
        let attributes = vec![
            spec(SqlType::Boolean, true),
            spec(SqlType::Integer, false),
            spec(SqlType::Text, true),
            spec(SqlType::Uuid, false),
        ];
        let schema =
            SegmentSchema::new(attributes.clone(), vec![vec![2, 0], vec![1, 3]], vec![1]).unwrap();
        assert_eq!(schema.strides(), [9, 20]);
        assert_eq!(schema.row_bytes_fixed(), 29);
        assert_eq!((schema.place(0).offset, schema.place(3).offset), (8, 4));
        assert_eq!(
            (schema.place(2).nulls, schema.place(3).nulls),
            (Some(1), None)
        );
        let other = SegmentSchema::new(attributes, vec![vec![0, 2], vec![1, 3]], vec![1]).unwrap();
        assert_ne!(schema.fingerprint(), other.fingerprint());
    }

    #[test]
    fn contradictions_are_refused() {
        let attributes = || vec![spec(SqlType::Integer, false), spec(SqlType::Text, true)];
        for (groups, key) in [
            (vec![vec![0]], vec![]),
            (vec![vec![0, 1], vec![1]], vec![]),
            (vec![vec![0, 1, 2]], vec![]),
            (vec![vec![0, 1]], vec![1]),
            (vec![vec![0, 1]], vec![2]),
            (vec![vec![0, 1]], vec![0, 0]),
        ] {
            assert!(
                SegmentSchema::new(attributes(), groups.clone(), key.clone()).is_err(),
                "{groups:?} {key:?}"
            );
        }
    }
}
