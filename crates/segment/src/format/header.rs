//! What hot and frozen segments have in common: the facts in the words at the start of the
//! header, and the number of words of a null bitmap, a zone and a version block.
//!
//! ```text
//!  word    0     1      2      3        4     5           6        7        8    9       … 15
//!        ┌─────┬──────┬──────┬────────┬─────┬───────────┬────────┬────────┬────┬───────┬───┐
//!        │magic│format│sealed│checksum│bytes│fingerprint│identity│capacity│rows│ heap  │ 0 │
//!        └─────┴──────┴──────┴────────┴─────┴───────────┴────────┴────────┴────┴───────┴───┘
//! ```
//!
//! After the facts, a hot segment has a directory of its areas (`plan`), a frozen one the
//! descriptions of its encodings (`frozen::plan`).

use aerostat_sync::{AtomicU64, Ordering};
use crc32fast::Hasher;

/// Words of facts at the start of the header.
pub(crate) const HEADER_WORDS: usize = 16;

// Positions of facts among the words.
pub(crate) const MAGIC: usize = 0;
pub(crate) const FORMAT: usize = 1;
pub(crate) const SEALED: usize = 2;
pub(crate) const CHECKSUM: usize = 3;
pub(crate) const ARENA_BYTES: usize = 4;
pub(crate) const FINGERPRINT: usize = 5;
pub(crate) const IDENTITY: usize = 6;
pub(crate) const CAPACITY: usize = 7;
pub(crate) const ROWS: usize = 8;
pub(crate) const HEAP_USED: usize = 9;

/// Words of a zone: min, max, flags.
pub(crate) const ZONE_WORDS: usize = 3;

/// Words of a version block: begin, end.
pub(crate) const VERSION_WORDS: usize = 2;

/// Words of one attribute's null bitmap.
pub(crate) fn null_words(capacity: u32) -> usize {
    capacity.div_ceil(64) as usize
}

/// Adds words to a checksum, each read as the atomic that it is.
pub(crate) fn add_words(hasher: &mut Hasher, words: &[AtomicU64]) {
    let mut bytes = [0; 1024];
    for part in words.chunks(bytes.len() / 8) {
        for (to, word) in bytes.chunks_exact_mut(8).zip(part) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        hasher.update(&bytes[..part.len() * 8]);
    }
}
