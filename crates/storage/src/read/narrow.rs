//! Conditions that a scan gets while it runs: what a join has learned of the keys of its other
//! side, or the rows that a top-n query has found so far.
//!
//! Nobody relies on them: a row that fails one may be returned or not. So a condition that admits
//! NULL is tested only where a zone shows that there is none.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use aerostat_segment::{Condition, Pinned, Predicate, Probe, Segment};
use arc_swap::ArcSwapOption;

use crate::{Lookup, read::lookup::Lookups};

/// Conditions, all of which must hold of the rows that whoever reads the scan has use for.
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    /// Each must be one that [`crate::TableView::accepts`].
    pub predicates: Vec<Bound>,
    /// As those of a [`crate::ScanSpec`].
    pub lookups: Vec<Lookup>,
}

/// A predicate that may admit NULL as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What a value must satisfy.
    pub predicate: Predicate,
    /// Whether NULL does as well.
    pub or_null: bool,
}

/// What a scan has left out by conditions that it was given while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NarrowedCounts {
    /// Morsels that zones ruled out, so that they were not read.
    pub morsels: u64,
    /// Visible rows that were read.
    pub rows: u64,
}

/// The conditions that hold now.
pub(crate) struct Narrowed {
    predicates: Vec<Bound>,
    lookups: Lookups,
}

/// A place for them, and what they have left out.
#[derive(Default)]
pub(crate) struct Narrow {
    now: ArcSwapOption<Narrowed>,
    morsels: AtomicU64,
    rows: AtomicU64,
}

impl Narrow {
    /// Replaces the conditions, in a scan of so many entries.
    pub(crate) fn set(&self, narrowing: Narrowing, entries: usize) {
        self.now.store(Some(Arc::new(Narrowed {
            lookups: Lookups::new(&narrowing.lookups, entries),
            predicates: narrowing.predicates,
        })));
    }

    pub(crate) fn now(&self) -> Option<Arc<Narrowed>> {
        self.now.load_full()
    }

    pub(crate) fn count_morsel(&self) {
        self.morsels.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> NarrowedCounts {
        NarrowedCounts {
            morsels: self.morsels.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}

impl Narrowed {
    /// Whether a vector of the segment at a position may have rows, as far as its zones tell.
    /// It is pinned with what [`Self::lookup_attributes`] are, if there are some.
    pub(crate) fn may_match(
        &self,
        position: usize,
        segment: &Segment,
        pinned: Option<&Pinned<'_>>,
        vector: u32,
    ) -> bool {
        let may_match = |bound: &Bound| {
            segment.may_match(vector, &bound.predicate)
                || bound.or_null && segment.zone(vector, bound.predicate.attribute()).nulls
        };
        self.predicates.iter().all(may_match)
            && pinned.is_none_or(|pinned| self.lookups.may_match(position, pinned, vector))
    }

    /// Appends what can be tested of rows of a vector; of rows from here and there, without
    /// one, what does not admit NULL.
    pub(crate) fn conditions<'a>(
        &'a self,
        segment: &Segment,
        vector: Option<u32>,
        probes: &'a [Probe],
        to: &mut Vec<Condition<'a>>,
    ) {
        for bound in &self.predicates {
            let attribute = bound.predicate.attribute();
            let has_nulls = |vector| segment.zone(vector, attribute).nulls;
            if !bound.or_null || !vector.is_none_or(has_nulls) {
                to.push(Condition::Predicate(&bound.predicate));
            }
        }
        to.extend(probes.iter().map(Condition::Member));
    }

    /// Whether there are lookups.
    pub(crate) fn has_lookups(&self) -> bool {
        self.lookup_attributes().next().is_some()
    }

    /// The attributes of lookups.
    pub(crate) fn lookup_attributes(&self) -> impl Iterator<Item = usize> + '_ {
        self.lookups.attributes()
    }

    /// Those of predicates.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = usize> + '_ {
        let predicates = self.predicates.iter();
        predicates.map(|bound| bound.predicate.attribute())
    }

    /// The probes of the segment at a position.
    pub(crate) fn probes(&self, position: usize, segment: &Pinned<'_>) -> &[Probe] {
        self.lookups.of(position, segment)
    }
}
