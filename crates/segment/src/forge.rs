//! Damage to a segment's bytes as anyone who has read the source could do it: for tests and fuzz
//! targets that must get past the checksum to the checks behind it.

use std::sync::Arc;

use crate::{HeapRegion, SegmentSchema, body::seal, frozen::Frozen};

/// Where the checksum stands.
const CHECKSUM: std::ops::Range<usize> = 24..32;

/// Sets the checksum that [`crate::Segment::attach`] will compute. Bytes that it refuses
/// before it computes any stay as they are.
pub fn checksum(bytes: &mut [u8], schema: &Arc<SegmentSchema>) {
    let region = Box::new(HeapRegion::copy_of(bytes));
    let schema = Arc::clone(schema);
    let checksum = if Frozen::is_at(region.as_ref()) {
        Frozen::checksum_in(region, schema)
    } else {
        seal::checksum_in(region, schema)
    };
    if let (Some(checksum), Some(to)) = (checksum, bytes.get_mut(CHECKSUM)) {
        to.copy_from_slice(&checksum.to_le_bytes());
    }
}
