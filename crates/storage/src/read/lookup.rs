//! Joins in a scan: rows whose values are keys of lookup tables, and the codes of these keys.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use aerostat_segment::{LookupTable, Pinned, Probe};

/// A row is in the scan if its value of an attribute is a key of a table.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// Position of the attribute, whose values are
    /// [keys](aerostat_segment::SegmentSchema::is_lookup_key).
    pub attribute: usize,
    /// The keys, and a code for each.
    pub table: Arc<LookupTable>,
}

/// A scan's lookups, as each segment is asked for them.
pub(crate) struct Lookups {
    all: Vec<Lookup>,
    /// By entry of the directory; made when its first morsel is claimed.
    probes: Vec<OnceLock<Box<[Probe]>>>,
    /// For each lookup, rows that were asked for it, and those of them that had its keys.
    counts: Box<[[AtomicU64; 2]]>,
}

impl Lookups {
    pub(crate) fn new(all: &[Lookup], entries: usize) -> Self {
        let entries = if all.is_empty() { 0 } else { entries };
        Self {
            all: all.to_vec(),
            probes: (0..entries).map(|_| OnceLock::new()).collect(),
            counts: all.iter().map(|_| Default::default()).collect(),
        }
    }

    pub(crate) fn attributes(&self) -> impl Iterator<Item = usize> + '_ {
        self.all.iter().map(|lookup| lookup.attribute)
    }

    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter();
        counts
            .map(|[asked, kept]| (asked.load(Ordering::Relaxed), kept.load(Ordering::Relaxed)))
            .collect()
    }

    /// The probes of a segment, in the order of lookups.
    pub(crate) fn of(&self, position: usize, segment: &Pinned<'_>) -> &[Probe] {
        let Some(probes) = self.probes.get(position) else {
            return &[];
        };
        probes.get_or_init(|| {
            let probe = |lookup: &Lookup| segment.probe(lookup.attribute, &lookup.table);
            self.all.iter().map(probe).collect()
        })
    }

    /// Whether a vector may have rows, as far as its zones tell.
    pub(crate) fn may_match(&self, position: usize, segment: &Pinned<'_>, vector: u32) -> bool {
        let mut probes = self.of(position, segment).iter();
        probes.all(|probe| segment.may_have_member(vector, probe))
    }

    /// Counts rows that were asked for a lookup, and those of them that had its keys.
    pub(crate) fn count(&self, at: usize, asked: usize, kept: usize) {
        let [all_asked, all_kept] = &self.counts[at];
        all_asked.fetch_add(asked as u64, Ordering::Relaxed);
        all_kept.fetch_add(kept as u64, Ordering::Relaxed);
    }

    /// The lookups, the one first that has left the smallest share of rows; before any rows,
    /// the one with the fewest keys for the numbers that they are among.
    pub(crate) fn order(&self) -> Vec<usize> {
        let share = |at: usize| {
            let [asked, kept] = &self.counts[at];
            match asked.load(Ordering::Relaxed) {
                0 => density(&self.all[at].table),
                asked => kept.load(Ordering::Relaxed) as f64 / asked as f64,
            }
        };
        let mut order: Vec<(f64, usize)> = (0..self.all.len()).map(|at| (share(at), at)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        order.into_iter().map(|(_, at)| at).collect()
    }
}

/// The share of the numbers between a table's least and greatest key that are keys.
fn density(table: &LookupTable) -> f64 {
    let Some((least, greatest)) = table.bounds() else {
        return 0.0;
    };
    table.len() as f64 / (greatest as f64 - least as f64 + 1.0)
}
