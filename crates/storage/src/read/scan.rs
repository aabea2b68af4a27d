//! Scanning a view: a queue of morsels (`queue`) that threads draw from.
//!
//! A morsel is a vector of a segment, or a part of one when the caller wants smaller batches. The
//! thread that claims it prunes it by the zones, selects the visible rows, filters them, and only
//! then gathers columns. Ended rows of frozen segments are removed after the filters, when few
//! rows are left to be checked.
//!
//! If the predicates fix the key there is one morsel, which is looked up. If they fix the leading
//! columns of a secondary index that a segment has, and few rows match there, these rows are the
//! segment's only morsel; each segment decides by itself.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use aerostat_segment::{
    CompareOp, Condition, IndexSearch, Key, KeyRef, Literal, Pinned, Predicate, SegmentSchema,
    Selection, VECTOR_ROWS, Wanted,
};
use aerostat_types::SegmentNo;
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::{
    Lookup, NarrowedCounts, Narrowing, ROW_ID_COLUMN, RowId, StorageError, TableView,
    read::{
        lookup::Lookups,
        narrow::{Narrow, Narrowed},
        queue::{Claim, Queue, QueueSlot},
        view::gather,
    },
    store::directory::{Access, Entry},
};

/// A secondary index is worth it when it finds at most this share of a segment's rows, as a
/// divisor: reading a row here and there costs as much as scanning a dozen.
const INDEX_SHARE: u32 = 16;

/// Morsels that are claimed at once for their rows alone: a join may leave a hundredth of
/// them, and what is done with these is then done once for some hundreds.
const MORSELS_AT_ONCE: usize = 8;

/// Rows that are given at once, if there are as many: their values stay in a second-level cache.
const ROWS_AT_ONCE: usize = VECTOR_ROWS as usize;

/// How many entries the disk reads ahead of the threads: some MB of a few columns.
const ENTRIES_AHEAD: usize = 8;

/// There are at least so many claims, so that a few morsels are shared by threads.
const CLAIMS_MIN: usize = 64;

/// What a scan gives.
#[derive(Clone, Debug, Default)]
pub struct ScanSpec {
    /// Positions of the columns, in the order wanted.
    pub projection: Vec<usize>,
    /// All must hold. Each must be one that [`TableView::accepts`].
    pub predicates: Vec<Predicate>,
    /// Whether [`ROW_ID_COLUMN`] follows the columns.
    pub row_ids: bool,
    /// The most rows of a batch; 0 for a vector's, which is also the most.
    pub batch_rows: usize,
    /// How many rows are wanted at most, over all threads.
    pub limit: Option<u64>,
    /// A row is in the scan if for each of these its value is a key. They are asked after
    /// the predicates, the one first that leaves the fewest rows.
    pub lookups: Vec<Lookup>,
}

/// A running scan.
pub struct Scan {
    view: TableView,
    spec: ScanSpec,
    schema: SchemaRef,
    /// The morsels of each entry of the directory; a single one if the key is fixed.
    queue: Queue,
    morsel_rows: u32,
    rows_left: AtomicU64,
    /// Set when the predicates fix the whole key: then there is one morsel, looked up.
    point: Option<Key>,
    /// For each entry of the directory the rows that a secondary index found, ascending.
    indexed: Vec<Option<Vec<u32>>>,
    lookups: Lookups,
    narrow: Narrow,
    /// What the disk was told to read, or need not, of the entries before this position.
    ahead: AtomicUsize,
    /// Whether some segment had rows, so that what is projected was read.
    projects: AtomicBool,
    /// Rows of the vectors that were not pruned, then those left after each predicate.
    rows_left_after: Box<[AtomicU64]>,
}

/// What a scan has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanCounts {
    /// Whether it looked one key up instead of scanning.
    pub is_lookup: bool,
    /// Segments whose rows a secondary index found.
    pub segments_by_index: usize,
    /// Rows in the vectors that zone maps did not rule out: those that are visible, and of
    /// frozen segments those that have ended, which are taken out when all conditions are
    /// tested.
    pub rows_scanned: u64,
    /// How many of them were left after each predicate, in order.
    pub rows_left: Vec<u64>,
    /// For each lookup, how many rows were asked for and how many had its keys. What was
    /// ruled out by zones was not asked.
    pub lookups: Vec<(u64, u64)>,
    /// What was left out by conditions given meanwhile. Such rows were scanned, and left after
    /// all predicates.
    pub narrowed: NarrowedCounts,
}

impl TableView {
    /// Begins a scan. Threads share it, and each gets other rows.
    ///
    /// # Errors
    /// As [`Self::lookup`]: indexes are searched before the first row is read.
    pub fn scan(&self, spec: ScanSpec) -> Result<Arc<Scan>, StorageError> {
        Ok(Arc::new(Scan::over(self.clone(), spec, |_| true)?))
    }
}

impl Scan {
    /// All columns of the rows that the view sees in one segment.
    pub(crate) fn of_segment(view: TableView, no: SegmentNo) -> Result<Self, StorageError> {
        let spec = ScanSpec {
            projection: (0..view.table().schema().columns.len()).collect(),
            ..ScanSpec::default()
        };
        Self::over(view, spec, |entry| entry.place.no == no)
    }

    /// A scan of the entries for which `includes` is true.
    fn over(
        view: TableView,
        spec: ScanSpec,
        includes: impl Fn(&Entry) -> bool,
    ) -> Result<Self, StorageError> {
        debug_assert!(
            spec.predicates
                .iter()
                .all(|predicate| view.accepts(predicate))
        );
        let morsel_rows = match u32::try_from(spec.batch_rows) {
            Ok(rows @ 1..VECTOR_ROWS) => rows,
            _ => VECTOR_ROWS,
        };
        let is_routed = |key: &Key| view.directory().route(KeyRef(key)).is_some();
        let point = point_key(&view, &spec.predicates).filter(is_routed);
        let (mut morsels, mut indexed) = (Vec::new(), Vec::new());
        if point.is_some() {
            morsels.push(1);
        } else {
            let per_vector = VECTOR_ROWS.div_ceil(morsel_rows) as usize;
            let mut searches = Searches::default();
            for entry in view.directory().entries() {
                let is_included = includes(entry);
                let found = match is_included {
                    true => searches.rows(entry, &spec.predicates, Access::Rows)?,
                    false => None,
                };
                morsels.push(match &found {
                    Some(rows) => rows.len().div_ceil(morsel_rows as usize),
                    None if is_included => {
                        entry.segment().rows().div_ceil(VECTOR_ROWS) as usize * per_vector
                    }
                    None => 0,
                });
                indexed.push(found);
            }
        }
        let mut fields = view.projected(&spec.projection).fields().to_vec();
        if spec.row_ids {
            fields.push(Arc::new(Field::new(ROW_ID_COLUMN, DataType::UInt64, false)));
        }
        let counted = 0..=spec.predicates.len();
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            rows_left_after: counted.map(|_| AtomicU64::new(0)).collect(),
            rows_left: AtomicU64::new(spec.limit.unwrap_or(u64::MAX)),
            ahead: AtomicUsize::new(0),
            projects: AtomicBool::new(false),
            lookups: Lookups::new(&spec.lookups, view.directory().entries().len()),
            narrow: Narrow::default(),
            queue: Queue::new(morsels),
            view,
            spec,
            morsel_rows,
            point,
            indexed,
        })
    }

    /// The projected columns, and [`ROW_ID_COLUMN`] last if it was asked for.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// An upper bound of the batches to come.
    pub fn morsels(&self) -> usize {
        self.queue.total()
    }

    /// What was done so far, by all threads.
    pub fn counts(&self) -> ScanCounts {
        let mut counts = self
            .rows_left_after
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        ScanCounts {
            is_lookup: self.point.is_some(),
            segments_by_index: self.indexed.iter().flatten().count(),
            rows_scanned: counts.next().unwrap_or(0),
            rows_left: counts.collect(),
            lookups: self.lookups.counts(),
            narrowed: self.narrow.counts(),
        }
    }

    /// From now on rows that fail one of these conditions may be left out; what was given
    /// before is forgotten. Rows that are in batches already stay there.
    ///
    /// The caller has no use for such rows. A limit counts those that are left, so that a scan
    /// with a limit must not be narrowed.
    pub fn narrow(&self, narrowing: Narrowing) {
        assert!(self.spec.limit.is_none(), "a limit counts rows in the scan");
        debug_assert!(
            narrowing
                .predicates
                .iter()
                .all(|bound| self.view.accepts(&bound.predicate))
        );
        let entries = self.view.directory().entries().len();
        self.narrow.set(narrowing, entries);
    }

    /// The table.
    pub fn view(&self) -> &TableView {
        &self.view
    }

    /// What was asked for.
    pub fn spec(&self) -> &ScanSpec {
        &self.spec
    }

    /// A part of the scan for one thread: each batch and each row is in one of them.
    pub fn reader(self: &Arc<Self>) -> ScanReader {
        ScanReader {
            scan: Arc::clone(self),
            place: QueueSlot::default(),
        }
    }

    /// The next morsels of an entry, at most so many, which are then the caller's.
    fn claim(&self, place: &mut QueueSlot, at_once: usize) -> Option<Claim> {
        match self.rows_left.load(Ordering::Relaxed) {
            0 => None,
            _ => self.queue.claim(place, at_once),
        }
    }

    /// Calls `f` with rows of claimed morsels that are in the scan, their segment and the
    /// position of its entry. Morsels side by side that are read as a whole are filtered in
    /// one go.
    fn each_rows(
        &self,
        claim: Claim,
        f: &mut dyn FnMut(usize, Selection) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let narrowed = self.narrow.now();
        let narrowed = narrowed.as_deref();
        let mut left = |position, vector, found: Found| {
            let Found {
                mut rows,
                some_ended,
            } = found;
            if rows.is_empty() {
                return Ok(());
            }
            if self.has_conditions(narrowed) {
                let want = |want: &mut Wanted<'_>| self.want_conditions(narrowed, want);
                let segment = self.entry(position).pin(Access::Again, want)?;
                self.filter(position, &segment, vector, narrowed, &mut rows);
            } else {
                self.rows_left_after[0].fetch_add(rows.len() as u64, Ordering::Relaxed);
            }
            if some_ended {
                self.take_out_ended(position, &mut rows);
            }
            rows.truncate(self.take_from_limit(rows.len()));
            if rows.is_empty() {
                return Ok(());
            }
            if !self.projects.load(Ordering::Relaxed) {
                self.projects.store(true, Ordering::Relaxed);
            }
            f(position, rows)
        };
        if let Some(key) = &self.point {
            return match self.look_up(key)? {
                Some((position, rows)) => left(position, None, Found::visible(rows)),
                None => Ok(()),
            };
        }
        let position = claim.entry;
        if claim.morsels.start == 0 {
            // A use for each scan, however many morsels there are.
            let projection = self.spec.projection.iter().copied();
            self.entry(position).note_use(|want| {
                self.want_conditions(narrowed, want);
                want.attributes(projection);
            });
            self.read_ahead(position, narrowed);
        }
        let mut whole = Whole::default();
        for morsel in claim.morsels {
            let (vector, found) = self.select(position, morsel, narrowed)?;
            match found.rows {
                // What a scan is narrowed by may be tested in one vector and not in the next.
                Selection::Range(rows) if narrowed.is_none() => {
                    if rows.start != whole.rows.end {
                        left(position, None, whole.take())?;
                        whole.rows = rows.start..rows.start;
                    }
                    whole.rows.end = rows.end;
                    whole.some_ended |= found.some_ended;
                }
                _ => {
                    left(position, None, whole.take())?;
                    left(position, vector, found)?;
                }
            }
        }
        left(position, None, whole.take())
    }

    /// An entry of the directory. A point's may be the base of a range.
    fn entry(&self, position: usize) -> &Arc<Entry> {
        &self.view.directory().entries()[position]
    }

    fn look_up(&self, key: &Key) -> Result<Option<(usize, Selection)>, StorageError> {
        let found = self.view.find(KeyRef(key))?;
        Ok(found.and_then(|(segment, row)| {
            let position = self.view.directory().place_of(segment.no())?;
            Some((position, Selection::Rows(vec![row])))
        }))
    }

    /// The rows of a morsel, none if the zones rule them all out, and the vector, unless an
    /// index found the rows.
    fn select(
        &self,
        position: usize,
        morsel: usize,
        narrowed: Option<&Narrowed>,
    ) -> Result<(Option<u32>, Found), StorageError> {
        let entry = self.entry(position);
        let segment = entry.segment();
        if let Some(found) = &self.indexed[position] {
            let rows = found.chunks(self.morsel_rows as usize).nth(morsel);
            let is_visible = |row: &u32| self.view.sees(segment, *row);
            let visible = rows.unwrap_or_default().iter().copied().filter(is_visible);
            return Ok((None, Found::visible(Selection::Rows(visible.collect()))));
        }
        let per_vector = VECTOR_ROWS.div_ceil(self.morsel_rows);
        let (vector, part) = (morsel as u32 / per_vector, morsel as u32 % per_vector);
        let vector_end = segment.rows().min((vector + 1) * VECTOR_ROWS);
        let first = (vector * VECTOR_ROWS + part * self.morsel_rows).min(vector_end);
        let end = vector_end.min(first + self.morsel_rows);
        let pruned = |predicate: &Predicate| !segment.may_match(vector, predicate);
        // What the segment's own zones rule out is left where it is; a join's keys are the
        // segment's codes, which are looked up among its values.
        if first >= end || self.spec.predicates.iter().any(pruned) {
            return Ok((Some(vector), Found::default()));
        }
        let joins = !self.spec.lookups.is_empty() || narrowed.is_some_and(Narrowed::has_lookups);
        let pinned = match joins {
            true => Some(entry.pin(Access::Again, |want| {
                self.want_lookups(narrowed, want);
            })?),
            false => None,
        };
        let pinned = pinned.as_ref();
        let found = if !pinned.is_none_or(|own| self.lookups.may_match(position, own, vector)) {
            Found::default()
        } else if narrowed.is_some_and(|by| !by.may_match(position, segment, pinned, vector)) {
            self.narrow.count_morsel();
            Found::default()
        } else {
            let (rows, some_ended) = self.view.visible_or_ended(entry, first..end);
            if !segment.is_frozen() {
                entry.penalty.add_hot(rows.len());
            }
            Found { rows, some_ended }
        };
        Ok((Some(vector), found))
    }

    fn take_out_ended(&self, position: usize, rows: &mut Selection) {
        let entry = self.entry(position);
        let before = rows.len();
        self.view.take_out_ended(entry, rows);
        entry.penalty.add_ended(before, before - rows.len());
    }

    /// Keeps the rows that satisfy the predicates and have keys of all lookups, and of these
    /// those that whoever reads the scan has use for.
    fn filter(
        &self,
        position: usize,
        segment: &Pinned<'_>,
        vector: Option<u32>,
        narrowed: Option<&Narrowed>,
        rows: &mut Selection,
    ) {
        let (probes, order) = (self.lookups.of(position, segment), self.lookups.order());
        let predicates = self.spec.predicates.iter().map(Condition::Predicate);
        let members = order.iter().map(|&at| Condition::Member(&probes[at]));
        let mut conditions: Vec<Condition<'_>> = predicates.chain(members).collect();
        let own = conditions.len();
        if let Some(narrowed) = narrowed {
            let probes = narrowed.probes(position, segment);
            narrowed.conditions(segment, vector, probes, &mut conditions);
        }
        let count = |after: usize, left: usize| {
            self.rows_left_after[after].fetch_add(left as u64, Ordering::Relaxed);
        };
        count(0, rows.len());
        let mut before = rows.len();
        segment.keep(&conditions, rows, &mut |at, left| {
            match at.checked_sub(self.spec.predicates.len()) {
                _ if at >= own => return,
                None => count(at + 1, left),
                Some(nth) => self.lookups.count(order[nth], before, left),
            }
            before = left;
        });
        self.narrow.count_rows(before - rows.len());
    }

    /// How many of `rows` the limit still has room for; they are then taken.
    fn take_from_limit(&self, rows: usize) -> usize {
        if self.spec.limit.is_none() {
            return rows;
        }
        let taken = |left: u64| rows.min(usize::try_from(left).unwrap_or(usize::MAX));
        let before = self
            .rows_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - taken(left) as u64)
            })
            .expect("the update always gives a value");
        taken(before)
    }

    /// Has the disk begin to read what the entries behind one are asked for, each once.
    fn read_ahead(&self, position: usize, narrowed: Option<&Narrowed>) {
        let entries = self.view.directory().entries();
        let until = entries.len().min(position + 1 + ENTRIES_AHEAD);
        let from = self.ahead.fetch_max(until, Ordering::Relaxed);
        let projects = self.projects.load(Ordering::Relaxed);
        for entry in entries.get(from..until).unwrap_or_default() {
            let segment = entry.segment();
            let may_match = |vector: u32| {
                let mut predicates = self.spec.predicates.iter();
                predicates.all(|predicate| segment.may_match(vector, predicate))
            };
            if segment.evicted_bytes() > 0 && (0..segment.vectors()).any(may_match) {
                entry.read_ahead(|want| {
                    self.want_conditions(narrowed, want);
                    if projects || !self.has_conditions(narrowed) {
                        want.attributes(self.spec.projection.iter().copied());
                    }
                });
            }
        }
    }

    /// Whether rows are tested.
    fn has_conditions(&self, narrowed: Option<&Narrowed>) -> bool {
        !self.spec.predicates.is_empty() || !self.spec.lookups.is_empty() || narrowed.is_some()
    }

    fn want_conditions(&self, narrowed: Option<&Narrowed>, want: &mut Wanted<'_>) {
        want.attributes(self.spec.predicates.iter().map(Predicate::attribute));
        if let Some(narrowed) = narrowed {
            want.attributes(narrowed.attributes());
        }
        self.want_lookups(narrowed, want);
    }

    fn want_lookups(&self, narrowed: Option<&Narrowed>, want: &mut Wanted<'_>) {
        want.attributes(self.spec.lookups.iter().map(|lookup| lookup.attribute));
        if let Some(narrowed) = narrowed {
            want.attributes(narrowed.lookup_attributes());
        }
    }

    fn gather(&self, position: usize, rows: &Selection) -> Result<RecordBatch, StorageError> {
        let projection = self.spec.projection.iter().copied();
        let entry = self.entry(position);
        let segment = &entry.pin(Access::Again, |want| want.attributes(projection))?;
        let row_ids = self.spec.row_ids.then(|| {
            let ids = rows.iter().map(|row| RowId::new(segment.no(), row).0);
            Arc::new(UInt64Array::from_iter_values(ids)) as ArrayRef
        });
        Ok(gather(
            segment,
            &self.schema,
            &self.spec.projection,
            rows,
            row_ids,
        ))
    }
}

/// Rows of a morsel before they are filtered.
#[derive(Default)]
struct Found {
    rows: Selection,
    /// Whether some of them may have ended.
    some_ended: bool,
}

impl Found {
    fn visible(rows: Selection) -> Self {
        Self {
            rows,
            some_ended: false,
        }
    }
}

/// Morsels side by side, so far.
#[derive(Default)]
struct Whole {
    rows: Range<u32>,
    some_ended: bool,
}

impl Whole {
    fn take(&mut self) -> Found {
        let Self { rows, some_ended } = std::mem::take(self);
        Found {
            rows: Selection::Range(rows),
            some_ended,
        }
    }
}

/// A part of a scan, for one thread at a time.
pub struct ScanReader {
    scan: Arc<Scan>,
    place: QueueSlot,
}

impl ScanReader {
    /// The next batch, which is never empty; `None` at the end. Rows come in no particular
    /// order.
    ///
    /// # Errors
    /// As [`TableView::lookup`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StorageError> {
        let scan = &self.scan;
        while let Some(claim) = scan.claim(&mut self.place, 1) {
            let mut batch = None;
            scan.each_rows(claim, &mut |position, rows| {
                assert!(batch.is_none(), "a morsel is one batch");
                batch = Some(scan.gather(position, &rows)?);
                Ok(())
            })?;
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }

    /// The rows of the next part of the table, by segment, for who takes no whole batches;
    /// there may be none. `None` at the end.
    ///
    /// # Errors
    /// As [`ScanReader::next_batch`].
    pub fn next_rows(&mut self) -> Result<Option<Vec<ScannedRows<'_>>>, StorageError> {
        let scan = &*self.scan;
        let at_once = (scan.queue.total() / CLAIMS_MIN).clamp(1, MORSELS_AT_ONCE);
        let Some(claim) = scan.claim(&mut self.place, at_once) else {
            return Ok(None);
        };
        let mut found: Vec<ScannedRows<'_>> = Vec::new();
        scan.each_rows(claim, &mut |position, rows| {
            match found.last_mut() {
                Some(last) if last.is_of(position) && last.len() + rows.len() <= ROWS_AT_ONCE => {
                    last.extend(rows);
                }
                _ => {
                    for rows in rows.split(ROWS_AT_ONCE) {
                        found.push(ScannedRows::new(scan, position, rows)?);
                    }
                }
            }
            Ok(())
        })?;
        Ok(Some(found))
    }
}

impl fmt::Debug for ScanReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanReader")
            .field("table", &self.scan.view.table().schema().name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// Rows of one segment that a scan has found.
pub struct ScannedRows<'a> {
    scan: &'a Scan,
    position: usize,
    /// With the columns that are projected, and those of lookups.
    segment: Pinned<'a>,
    rows: Selection,
}

impl<'a> ScannedRows<'a> {
    fn new(scan: &'a Scan, position: usize, rows: Selection) -> Result<Self, StorageError> {
        let projection = scan.spec.projection.iter().copied();
        let segment = scan.entry(position).pin(Access::Again, |want| {
            want.attributes(projection);
            want.attributes(scan.spec.lookups.iter().map(|lookup| lookup.attribute));
        })?;
        Ok(Self {
            scan,
            position,
            segment,
            rows,
        })
    }

    fn is_of(&self, position: usize) -> bool {
        self.position == position
    }

    /// Takes rows behind its own.
    fn extend(&mut self, rows: Selection) {
        match (&mut self.rows, rows) {
            (Selection::Range(own), Selection::Range(more)) if own.end == more.start => {
                own.end = more.end;
            }
            (Selection::Rows(own), more) => own.extend(more.iter()),
            (own, more) => *own = Selection::Rows(own.iter().chain(more.iter()).collect()),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows' values of an attribute that the scan projects.
    pub fn gather(&self, attribute: usize) -> ArrayRef {
        self.segment.gather(attribute, &self.rows)
    }

    /// Adds to each row's number the code that a lookup, by its position, has for it, times
    /// `scale`.
    ///
    /// # Panics
    /// When there is no such lookup, or not a number for each row.
    pub fn add_codes(&self, lookup: usize, scale: u64, to: &mut [u64]) {
        let probe = &self.scan.lookups.of(self.position, &self.segment)[lookup];
        self.segment.add_codes(probe, &self.rows, scale, to);
    }
}

impl fmt::Debug for ScannedRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScannedRows")
            .field("segment", &self.segment.no())
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

/// What to look for in the secondary indexes of a table's segments.
#[derive(Default)]
pub(crate) struct Searches {
    /// Segments mostly share their schema, and then what to look for.
    schema: Option<Arc<SegmentSchema>>,
    /// The position of an index, and the search.
    of_schema: Vec<(usize, IndexSearch)>,
}

impl Searches {
    /// The rows of a segment that the best of its indexes finds; `None` when a scan is better.
    ///
    /// # Errors
    /// Those of pinning the segment, which is done only if it has an index to search.
    pub(crate) fn rows(
        &mut self,
        entry: &Entry,
        predicates: &[Predicate],
        access: Access,
    ) -> Result<Option<Vec<u32>>, StorageError> {
        let schema = entry.segment().schema();
        if predicates.is_empty() || schema.indexes().is_empty() {
            return Ok(None);
        }
        let is_same = |own: &Arc<SegmentSchema>| Arc::ptr_eq(own, schema);
        if !self.schema.as_ref().is_some_and(is_same) {
            let indexes = schema.indexes().iter().enumerate();
            self.of_schema = indexes
                .filter_map(|(at, index)| Some((at, schema.index_search(index, predicates)?)))
                .collect();
            self.schema = Some(Arc::clone(schema));
        }
        if self.of_schema.is_empty() {
            return Ok(None);
        }
        let (segment, of_schema) = (entry.segment(), &self.of_schema);
        // Where a filter tells that there is no such key, nothing is read.
        let may_have = |(index, search): &(usize, IndexSearch)| match search {
            IndexSearch::Keys(keys) => keys
                .iter()
                .any(|key| segment.may_have_indexed(*index, key.borrow())),
            IndexSearch::Spans(_) => true,
        };
        if !of_schema.iter().all(may_have) {
            return Ok(Some(Vec::new()));
        }
        let indexes = of_schema.iter().map(|(index, _)| *index);
        let segment = entry.pin(access, |want| indexes.for_each(|index| want.index(index)))?;
        let mut rows_max = (segment.rows() / INDEX_SHARE).min(VECTOR_ROWS) as usize;
        let mut best = None;
        for (index, search) in &self.of_schema {
            if let Some(rows) = segment.search(*index, search, rows_max) {
                // Another one must find fewer.
                rows_max = rows.len();
                best = Some(rows);
            }
        }
        Ok(best)
    }
}

/// The one key that satisfies the predicates, if they fix every key column.
fn point_key(view: &TableView, predicates: &[Predicate]) -> Option<Key> {
    let table = view.table();
    let values = table
        .schema()
        .primary_key
        .iter()
        .map(|&column| {
            predicates.iter().find_map(|predicate| match predicate {
                Predicate::Compare {
                    attribute,
                    op: CompareOp::Eq,
                    value,
                } if *attribute == column => Some(value.clone()),
                _ => None,
            })
        })
        .collect::<Option<Vec<Literal>>>()?;
    table.key(&values)
}
