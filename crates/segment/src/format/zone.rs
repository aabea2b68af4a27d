//! Zone maps: per vector of 8,192 rows and attribute, bounds on the values, so
//! that a scan skips vectors that cannot match.
//!
//! A zone is conservative: it covers every published value, perhaps more. The
//! writer widens it before it publishes rows. Readers take the words one by one;
//! since bounds only widen, any mixture of old and new words still covers all
//! rows that were published before the reader looked at the row count.

use aerostat_sync::{AtomicU64, Ordering};
use aerostat_types::Physical;

use crate::{
    SegmentSchema,
    format::{arena::Arena, header::ZONE_WORDS},
    kernel::simd,
};

const ANY: u64 = 1;
const NULLS: u64 = 2;

/// Bounds on the values of an attribute within a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The least order key of the values that are not NULL; meaningful when `any`.
    pub min: u64,
    /// The greatest order key of the values that are not NULL; meaningful when `any`.
    pub max: u64,
    /// There may be NULLs.
    pub nulls: bool,
    /// There may be values that are not NULL.
    pub any: bool,
    /// Different values have different order keys.
    pub exact: bool,
}

/// The words of a zone.
fn words<'a>(
    schema: &SegmentSchema,
    zones: &'a [AtomicU64],
    vector: u32,
    attribute: usize,
) -> &'a [AtomicU64] {
    assert!(
        attribute < schema.attributes().len(),
        "an attribute of the schema"
    );
    let at = zone_at(schema, vector, attribute);
    &zones[at..at + ZONE_WORDS]
}

/// The position of a zone's first word.
fn zone_at(schema: &SegmentSchema, vector: u32, attribute: usize) -> usize {
    (vector as usize * schema.attributes().len() + attribute) * ZONE_WORDS
}

pub(crate) fn read(arena: &Arena, vector: u32, attribute: usize) -> Zone {
    of_words(arena.schema(), arena.zones(), vector, attribute)
}

/// The words of a zone that will not change.
pub(crate) fn to_words(bounds: Option<(u64, u64)>, nulls: bool) -> [u64; ZONE_WORDS] {
    let (min, max) = bounds.unwrap_or_default();
    let any = if bounds.is_some() { ANY } else { 0 };
    [min, max, any | if nulls { NULLS } else { 0 }]
}

/// A zone among all zones of a segment.
pub(crate) fn of_words(
    schema: &SegmentSchema,
    zones: &[AtomicU64],
    vector: u32,
    attribute: usize,
) -> Zone {
    let words = words(schema, zones, vector, attribute);
    // A scan asks for the next vector's next, which lies on another cache line.
    simd::prefetch(zones, zone_at(schema, vector + 1, attribute));
    let flags = words[2].load(Ordering::Acquire);
    Zone {
        min: words[0].load(Ordering::Acquire),
        max: words[1].load(Ordering::Acquire),
        nulls: flags & NULLS != 0,
        any: flags & ANY != 0,
        exact: schema.physical(attribute).width() <= 8
            && schema.physical(attribute) != Physical::Variable,
    }
}

/// Widens a zone to values between two order keys, and to NULLs. For the holder of the latch only.
pub(crate) fn widen(
    arena: &Arena,
    vector: u32,
    attribute: usize,
    bounds: Option<(u64, u64)>,
    nulls: bool,
) {
    let words = words(arena.schema(), arena.zones(), vector, attribute);
    let mut flags = words[2].load(Ordering::Relaxed);
    if let Some((min, max)) = bounds {
        // The first bounds are stored before the flag that makes them count.
        let first = flags & ANY == 0;
        if first || min < words[0].load(Ordering::Relaxed) {
            words[0].store(min, Ordering::Release);
        }
        if first || max > words[1].load(Ordering::Relaxed) {
            words[1].store(max, Ordering::Release);
        }
        flags |= ANY;
    }
    if nulls {
        flags |= NULLS;
    }
    words[2].store(flags, Ordering::Release);
}
