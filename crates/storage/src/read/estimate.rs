//! Estimates how many rows satisfy predicates, from a sample.
//!
//! ```text
//!  all vectors ─► those whose zones do not rule it out ─► a few of them are filtered
//! ```
//!
//! A planner that chooses which side of a join to hold in memory needs no more, and a sample
//! shows what statistics of single columns do not: skew, texts, correlated predicates.

use aerostat_segment::{Condition, Predicate, Selection, VECTOR_ROWS};

use crate::{StorageError, TableView, store::directory::Access};

/// Vectors whose zones are looked at: some ten microseconds.
const ZONES_MAX: usize = 1024;

/// Vectors that are filtered: 65,536 rows, which predicates on codes take a tenth of a
/// millisecond for.
const SAMPLE_VECTORS: usize = 8;

impl TableView {
    /// About how many rows satisfy all predicates, at least 1. Who sees them is not looked at.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn estimated_rows(&self, predicates: &[Predicate]) -> Result<u64, StorageError> {
        let entries = self.directory().entries().iter();
        let vectors = entries.flat_map(|entry| {
            let rows = entry.segment().rows();
            let vectors = (0..rows).step_by(VECTOR_ROWS as usize);
            vectors.map(move |first| (entry, first..rows.min(first + VECTOR_ROWS)))
        });
        let all: Vec<_> = vectors.collect();
        let zones_step = all.len().div_ceil(ZONES_MAX).max(1);
        let mut candidates = all.into_iter().step_by(zones_step).collect::<Vec<_>>();
        candidates.retain(|(entry, rows)| {
            let vector = rows.start / VECTOR_ROWS;
            let may_match = |one: &Predicate| entry.segment().may_match(vector, one);
            predicates.iter().all(may_match)
        });
        let conditions: Vec<_> = predicates.iter().map(Condition::Predicate).collect();
        let (mut asked, mut kept) = (0, 0);
        let sample_step = candidates.len().div_ceil(SAMPLE_VECTORS).max(1);
        for (entry, rows) in candidates.iter().step_by(sample_step) {
            let mut selection = Selection::Range(rows.clone());
            let attributes = predicates.iter().map(Predicate::attribute);
            let segment = entry.pin(Access::Again, |want| want.attributes(attributes))?;
            segment.keep(&conditions, &mut selection, &mut |_, _| ());
            asked += rows.len() as u64;
            kept += selection.len() as u64;
        }
        let possible: u64 = candidates.iter().map(|(_, rows)| rows.len() as u64).sum();
        // None of so many may still be some of all.
        let share = (kept as f64).max(0.5) / asked.max(1) as f64;
        let estimate = (possible * zones_step as u64) as f64 * share;
        Ok((estimate as u64).max(1))
    }
}
