//! Keys of rows that are in segments of different shapes: where an attribute takes NULL, a mark is in front of it.

use aerostat_types::Physical;

use super::{Key, KeyRef, NULL, VALUE, key_width, take_escaped};
use crate::SegmentSchema;

/// Whether keys of these attributes are the same bytes in both schemas, which have the same types.
pub(crate) fn are_same(attributes: &[usize], a: &SegmentSchema, b: &SegmentSchema) -> bool {
    let nullable = |schema: &SegmentSchema, at: usize| schema.attributes()[at].nullable;
    attributes
        .iter()
        .all(|&at| nullable(a, at) == nullable(b, at))
}

/// The key of these attributes in another schema of the same types, which may take NULL in others of them;
/// `None` of one that has a NULL which it does not take.
pub(crate) fn translated(
    key: KeyRef<'_>,
    attributes: &[usize],
    from: &SegmentSchema,
    to: &SegmentSchema,
) -> Option<Key> {
    let (mut rest, mut bytes) = (key.0, Vec::with_capacity(key.0.len() + attributes.len()));
    for &attribute in attributes {
        let mark = match from.attributes()[attribute].nullable {
            true => *rest
                .split_off_first()
                .expect("a mark is in front of each value"),
            false => VALUE,
        };
        match to.attributes()[attribute].nullable {
            true => bytes.push(mark),
            false if mark == NULL => return None,
            false => {}
        }
        let value = rest;
        match from.physical(attribute) {
            Physical::Variable if mark == NULL => {}
            Physical::Variable => drop(take_escaped(&mut rest).expect("text in a key ends")),
            fixed => rest = &rest[key_width(fixed)..],
        }
        bytes.extend_from_slice(&value[..value.len() - rest.len()]);
    }
    assert!(rest.is_empty(), "a key of these attributes");
    Some(Key(bytes))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{
        Keys,
        model::{Model, Random},
    };

    /// The schema, with other attributes that take NULL.
    fn with_nullable(schema: &SegmentSchema, nullable: impl Fn(usize) -> bool) -> SegmentSchema {
        let mut attributes = schema.attributes().to_vec();
        for (at, attribute) in attributes.iter_mut().enumerate() {
            attribute.nullable = nullable(at);
        }
        SegmentSchema::new(attributes, schema.groups().to_vec(), Vec::new()).unwrap()
    }

    /// A translated key is what would have been made of the row in the first place, whatever types, NULLs and bytes
    /// it has.
    #[test]
    fn translated_is_what_would_have_been_made() {
        let (mut refused, mut changed) = (0, 0);
        for seed in 0..400 {
            let mut random = Random(seed);
            let model = Model::random(seed, random.below(40) as usize + 1);
            let width = model.schema.attributes().len() as u64;
            let mut attributes: Vec<usize> = (0..random.below(3) + 1)
                .map(|_| random.below(width) as usize)
                .collect();
            attributes.sort_unstable();
            attributes.dedup();
            let arrays = model.arrays(seed);
            let has_null = |row: usize| attributes.iter().any(|&at| arrays[at].is_null(row));
            let own = with_nullable(&model.schema, |at| model.schema.attributes()[at].nullable);
            let wide = with_nullable(&model.schema, |_| true);
            let narrow = with_nullable(&model.schema, |_| false);
            let of_own = Keys::of(&own, &attributes, &arrays).unwrap();
            let of_wide = Keys::of(&wide, &attributes, &arrays).unwrap();
            for row in 0..of_own.len() {
                let translated =
                    |key, from, to| translated(key, &attributes, from, to).map(|key| key.0);
                let (small, large) = (of_own.get(row), of_wide.get(row));
                let widened = translated(small, &own, &wide).unwrap();
                assert_eq!(widened, large.0, "seed {seed}, row {row}");
                let back = translated(large, &wide, &own).unwrap();
                assert_eq!(back, small.0, "seed {seed}, row {row}");
                changed += usize::from(small != large);
                match translated(large, &wide, &narrow) {
                    None => assert!(has_null(row), "seed {seed}, row {row}"),
                    Some(bare) => {
                        assert!(!has_null(row), "seed {seed}, row {row}");
                        let again = translated(KeyRef(&bare), &narrow, &wide).unwrap();
                        assert_eq!(again, large.0, "seed {seed}, row {row}");
                    }
                }
                refused += usize::from(has_null(row));
            }
        }
        assert!(refused > 500 && changed > 500, "{refused}, {changed}");
    }
}
