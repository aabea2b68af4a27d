//! The rows of a unit that are frozen together: the choice, their order, and their columns.

use std::{ops::Range, sync::Arc};

use aerostat_segment::{KeyRef, Keys, Pinned, Segment, Selection};
use aerostat_txn::Stamp;
use aerostat_types::CommitTs;
use arrow_array::{Array, ArrayRef, NullArray};
use arrow_select::interleave::interleave;

use crate::{
    StorageError, Table,
    store::{
        directory::{Access, Forward},
        unit::{DEAD_SHARE, Unit},
    },
};

/// A row on its way: which entry of the unit it is in, and where.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) entry: u32,
    pub(crate) row: u32,
}

impl Source {
    /// The segment it is in.
    pub(crate) fn segment(self, unit: &Unit) -> &Segment {
        unit.entries[self.entry as usize].segment()
    }
}

/// A unit's rows as they were when the build began.
pub(crate) struct Chosen {
    /// The rows to be frozen, in key order.
    sources: Vec<Source>,
    /// Their keys; `None` of a table without.
    keys: Option<Keys>,
    /// Rows of each entry that are too new.
    pub(crate) tail: Vec<Vec<u32>>,
    /// Rows there were in each entry.
    pub(crate) rows: Vec<u32>,
    /// None of the rows to be frozen has begun later.
    pub(crate) begin: CommitTs,
}

impl Table {
    /// Divides the rows that are not garbage into those to be frozen and the tail.
    ///
    /// # Errors
    /// Those of pinning the unit's segments; key columns that are not the schema's, which
    /// cannot be.
    pub(crate) fn choose(&self, unit: &Unit) -> Result<Chosen, StorageError> {
        let txns = self.store().txns();
        let (horizon, live) = (txns.horizon(), txns.live_snapshots());
        let mut chosen = Chosen {
            sources: Vec::new(),
            keys: None,
            tail: Vec::new(),
            rows: Vec::new(),
            begin: CommitTs(0),
        };
        for (at, entry) in (0..).zip(&unit.entries) {
            let segment = entry.segment();
            let rows = segment.rows();
            let (mut frozen, mut kept) = (Selection::default(), Selection::default());
            let mut is_final = |begin: u64, end: u64| match Stamp::of(begin) {
                _ if live.is_garbage(begin, end) => false,
                Stamp::At(ts) if ts <= horizon => {
                    chosen.begin = chosen.begin.max(ts);
                    true
                }
                _ => false,
            };
            segment.select_visible(0..rows, &mut |b, e| Some(is_final(b, e)), &mut frozen);
            if frozen.len() < rows as usize {
                let mut is_kept = |begin: u64, end: u64| Some(!live.is_garbage(begin, end));
                segment.select_visible(0..rows, &mut is_kept, &mut kept);
            }
            chosen.tail.push(without(&kept, &frozen));
            let source = |row| Source { entry: at, row };
            chosen.sources.extend(frozen.iter().map(source));
            chosen.rows.push(rows);
        }
        if self.is_keyed() {
            let keys = self.keys_chosen(unit, &chosen.sources)?;
            chosen.sort_by(keys);
        }
        Ok(chosen)
    }

    fn keys_chosen(&self, unit: &Unit, sources: &[Source]) -> Result<Keys, StorageError> {
        let columns = Columns::of(unit, sources)?;
        self.own_keys(sources.len(), &|at| columns.gather(at))
    }

    /// The keys of so many rows, given the values of an attribute.
    ///
    /// # Errors
    /// Key columns that are not the schema's.
    pub(crate) fn own_keys(
        &self,
        rows: usize,
        gather: &dyn Fn(usize) -> ArrayRef,
    ) -> Result<Keys, StorageError> {
        let schema = self.segment_schema();
        let column = |at: usize| match schema.key().contains(&at) {
            true => gather(at),
            false => Arc::new(NullArray::new(rows)),
        };
        let columns: Vec<ArrayRef> = (0..schema.attributes().len()).map(column).collect();
        Keys::encode(&schema, &columns).map_err(|error| self.segment_error(error))
    }
}

/// The rows of a selection that are not in another.
fn without(kept: &Selection, frozen: &Selection) -> Vec<u32> {
    let mut frozen = frozen.iter().peekable();
    let is_frozen = |row: &u32| {
        while frozen.next_if(|other| other < row).is_some() {}
        frozen.peek() == Some(row)
    };
    let mut is_frozen = is_frozen;
    kept.iter().filter(|row| !is_frozen(row)).collect()
}

impl Chosen {
    /// No row of a unit, each of which is then of the tail.
    pub(crate) fn none(unit: &Unit) -> Chosen {
        Chosen {
            sources: Vec::new(),
            keys: None,
            tail: vec![Vec::new(); unit.entries.len()],
            rows: vec![0; unit.entries.len()],
            begin: CommitTs(0),
        }
    }

    /// Puts the rows in the order of their keys. Rows of one key stay as they were.
    fn sort_by(&mut self, keys: Keys) {
        self.keys = Some(if keys.is_ascending() {
            keys
        } else {
            let order = keys.order();
            let sources = order.iter().map(|&at| self.sources[at as usize]);
            self.sources = sources.collect();
            keys.reordered(&order)
        });
    }

    /// How many rows are to be frozen.
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// How many rows are too new.
    pub(crate) fn tail_len(&self) -> usize {
        self.tail.iter().map(Vec::len).sum()
    }

    /// Whether freezing them gains anything: a row of a hot segment is among them, or enough
    /// garbage is left behind. Under a snapshot that is held for long neither may be so.
    pub(crate) fn is_worth(&self, unit: &Unit) -> bool {
        let is_hot = |source: &Source| !source.segment(unit).is_frozen();
        let rows: u32 = self.rows.iter().sum();
        let garbage = rows as usize - self.len() - self.tail_len();
        garbage > rows as usize / DEAD_SHARE as usize || self.sources.iter().any(is_hot)
    }

    /// The key at a position; of a table without keys the empty one.
    pub(crate) fn key(&self, at: usize) -> KeyRef<'_> {
        self.keys.as_ref().map_or(KeyRef(&[]), |keys| keys.get(at))
    }

    /// The position in a range, nearest to its middle, at which the key changes.
    pub(crate) fn cut(&self, range: &Range<usize>) -> Option<usize> {
        let middle = range.start.midpoint(range.end);
        let may_cut = |at: &usize| {
            (range.start + 1..range.end).contains(at)
                && (self.keys.is_none() || self.key(at - 1) != self.key(*at))
        };
        (0..=range.len() / 2 + 1)
            .flat_map(|distance| [Some(middle + distance), middle.checked_sub(distance)])
            .flatten()
            .find(may_cut)
    }

    /// The columns of a range of the rows.
    ///
    /// # Errors
    /// Those of pinning the unit's segments.
    pub(crate) fn columns<'u>(
        &self,
        unit: &'u Unit,
        range: Range<usize>,
    ) -> Result<Columns<'u>, StorageError> {
        Columns::of(unit, &self.sources[range])
    }

    /// For the rows of each entry their position among the chosen, or
    /// [`Forward::DROPPED`].
    pub(crate) fn positions(&self) -> Vec<Vec<u32>> {
        let entries = self.rows.iter();
        let mut positions: Vec<Vec<u32>> = entries
            .map(|&rows| vec![Forward::DROPPED; rows as usize])
            .collect();
        for (position, source) in (0..).zip(&self.sources) {
            positions[source.entry as usize][source.row as usize] = position;
        }
        positions
    }
}

/// The columns of rows from several segments.
pub(crate) struct Columns<'a> {
    /// Of the entries.
    segments: Vec<Pinned<'a>>,
    /// The rows of each entry, in the order in which they come.
    rows: Vec<Selection>,
    /// For each row its entry and position among the entry's rows; empty for one entry.
    places: Vec<(usize, usize)>,
}

impl<'a> Columns<'a> {
    fn of(unit: &'a Unit, sources: &[Source]) -> Result<Columns<'a>, StorageError> {
        let segments = unit.entries.iter();
        let segments = segments.map(|entry| entry.pin_all(Access::Again));
        let mut rows = vec![Vec::new(); unit.entries.len()];
        let mut places = Vec::new();
        if let [rows] = &mut rows[..] {
            *rows = sources.iter().map(|source| source.row).collect();
        } else {
            places.reserve_exact(sources.len());
            for source in sources {
                let rows = &mut rows[source.entry as usize];
                places.push((source.entry as usize, rows.len()));
                rows.push(source.row);
            }
        }
        let rows = rows.into_iter().map(Selection::of_rows).collect();
        Ok(Columns {
            segments: segments.collect::<Result<_, _>>()?,
            rows,
            places,
        })
    }

    /// How many rows of the entry at a position there are.
    pub(crate) fn rows_of(&self, entry: usize) -> usize {
        self.rows[entry].len()
    }

    /// The values of an attribute.
    pub(crate) fn gather(&self, attribute: usize) -> ArrayRef {
        let parts: Vec<ArrayRef> = self
            .segments
            .iter()
            .zip(&self.rows)
            .map(|(segment, rows)| segment.gather(attribute, rows))
            .collect();
        if let [only] = &parts[..] {
            return Arc::clone(only);
        }
        let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
        interleave(&parts, &self.places).expect("segments of one table give arrays of one type")
    }
}
