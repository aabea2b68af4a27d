//! A unit: the ranges that are frozen, or rebuilt, together.

use std::sync::Arc;

use crate::store::{
    directory::{Directory, Entry, KeyRange},
    penalty,
};

/// A frozen segment is built anew without its garbage when that is more than a quarter
/// of its versions: what is given back is then a third of what is copied.
pub(crate) const DEAD_SHARE: u32 = 4;

/// Rows in front of a base wait for one another until they are an eighth of it: then the
/// base is copied nine times for each of its rows at most until it is twice as large.
const DELTA_SHARE: u32 = 8;

/// Neighbouring ranges that are frozen together.
pub(crate) struct Unit {
    /// Empty for a segment that is built anew wherever it is by then.
    pub(crate) ranges: Vec<KeyRange>,
    /// Of the ranges and their bases, each once.
    pub(crate) entries: Vec<Arc<Entry>>,
}

impl Unit {
    pub(crate) fn of(ranges: Vec<KeyRange>) -> Unit {
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        for entry in ranges.iter().flat_map(KeyRange::entries) {
            if !entries.iter().any(|known| Arc::ptr_eq(known, entry)) {
                entries.push(Arc::clone(entry));
            }
        }
        Unit { ranges, entries }
    }

    /// A segment apart from the range it is in.
    pub(crate) fn of_entry(entry: Arc<Entry>) -> Unit {
        Unit {
            ranges: Vec::new(),
            entries: vec![entry],
        }
    }

    /// The units of a directory; none shares a base with another.
    pub(crate) fn all(directory: &Directory) -> impl Iterator<Item = Unit> {
        directory
            .ranges()
            .chunk_by(KeyRange::shares_base)
            .map(|ranges| Unit::of(ranges.to_vec()))
    }

    pub(crate) fn has_base(&self) -> bool {
        self.ranges.iter().any(|range| range.base.is_some())
    }

    pub(crate) fn has_frozen(&self) -> bool {
        self.entries.iter().any(|entry| entry.segment().is_frozen())
    }

    fn hot(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries
            .iter()
            .filter(|entry| !entry.segment().is_frozen())
    }

    pub(crate) fn rows(&self) -> u64 {
        let rows = self.entries.iter().map(|entry| entry.segment().rows());
        rows.map(u64::from).sum()
    }

    pub(crate) fn whole_bytes(&self) -> u64 {
        let bytes = self
            .entries
            .iter()
            .map(|entry| entry.segment().whole_bytes());
        bytes.sum()
    }

    /// Whether there is anything to gain.
    pub(crate) fn is_worth(&self) -> bool {
        let garbage = |entry: &Arc<Entry>| {
            entry.segment().is_frozen() && entry.dead() > entry.segment().rows() / DEAD_SHARE
        };
        self.hot().any(|entry| entry.segment().rows() > 0) || self.entries.iter().any(garbage)
    }

    /// Whether it is worth it now: it is cold, and what is in front of a base is not too
    /// little to copy that for; or scans have paid for a merge by now.
    pub(crate) fn is_due(&self) -> bool {
        if !self.is_worth() {
            return false;
        }
        let is_written = self.hot().any(|entry| {
            let full = entry.segment().rows() == entry.segment().capacity();
            !entry.is_cold() && !full
        });
        if !self.has_base() {
            return !is_written;
        }
        let rows = |entries: &mut dyn Iterator<Item = &Arc<Entry>>| -> u32 {
            entries.map(|entry| entry.segment().rows()).sum()
        };
        let hot = rows(&mut self.hot());
        let frozen = rows(&mut self.entries.iter()) - hot;
        let dead: u32 = self.entries.iter().map(|entry| entry.dead()).sum();
        let little = hot <= frozen / DELTA_SHARE && dead <= frozen / DEAD_SHARE;
        !is_written && !little || penalty::pays(self.penalty_ns(), self.rows(), is_written)
    }

    /// What scans have paid since a merge was made or tried.
    pub(crate) fn penalty_ns(&self) -> u64 {
        self.entries.iter().map(|entry| entry.penalty.ns()).sum()
    }

    /// Row versions that are not in frozen segments, or have ended there: what freezing
    /// takes over or leaves out.
    pub(crate) fn rows_apart(&self) -> u64 {
        let apart = |entry: &Arc<Entry>| match entry.segment().is_frozen() {
            true => entry.dead(),
            false => entry.segment().rows(),
        };
        self.entries
            .iter()
            .map(|entry| u64::from(apart(entry)))
            .sum()
    }

    /// Where the unit's ranges are in a directory, if they are all there as they were.
    pub(crate) fn position(&self, directory: &Directory) -> Option<usize> {
        let all = directory.ranges();
        let first = directory.position(&self.ranges[0].entry)?;
        let end = first + self.ranges.len();
        let is_same = |(now, then): (&KeyRange, &KeyRange)| {
            Arc::ptr_eq(&now.entry, &then.entry)
                && match (&now.base, &then.base) {
                    (Some(now), Some(then)) => Arc::ptr_eq(now, then),
                    (now, then) => now.is_none() && then.is_none(),
                }
        };
        let same = all.get(first..end)?.iter().zip(&self.ranges).all(is_same);
        let apart = (first == 0 || !all[first - 1].shares_base(&all[first]))
            && all
                .get(end)
                .is_none_or(|next| !next.shares_base(&all[end - 1]));
        (same && apart).then_some(first)
    }
}
