//! The writer's side of a segment: appending rows and stamping them.
//!
//! Rows are appended in chunks that never cross a version block (1,024 rows), so a chunk is in
//! one vector too and fits the L1 cache column by column. Nothing is visible before `publish` at
//! the very end, so an error leaves the segment as it was except for some wasted heap, and a full
//! heap wastes at most one row's.

use std::ops::Range;

use aerostat_sync::MutexGuard;
use aerostat_types::VALUE_BYTES_MAX;
use arrow_array::{Array, ArrayRef};

use crate::{
    ARENA_BYTES_MAX, BLOCK_ROWS, Forwarding, Keys, NewRows, Pinned, Segment, SegmentError,
    SegmentSchema, Selection, VECTOR_ROWS,
    body::{seal, segment::Form, touched},
    format::{
        arena::{Arena, Writer},
        index,
        intern::{INLINE_BYTES_MAX, short_slot},
        nulls::Nulls,
        plan,
        stamp::END_NONE,
        versions::{Side, Versions},
        zone,
    },
    frozen::Frozen,
    input::source::{Source, Strings, Values},
    kernel::order::{Scalar, prefix_key},
    secondary,
};

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Number of the first appended row.
    pub first: u32,
    /// Appended rows.
    pub count: u32,
    /// Rows were left over, because rows or heap ran out.
    pub full: bool,
}

/// The latch of a segment, held.
enum Latch<'a> {
    Hot(Writer<'a>),
    /// Rows can be stamped, none appended.
    Frozen {
        frozen: &'a Frozen,
        _latch: MutexGuard<'a, ()>,
    },
}

/// The one writer of a segment. Holds the latch until dropped.
pub struct SegmentWriter<'a> {
    segment: &'a Segment,
    latch: Latch<'a>,
}

impl Segment {
    /// Takes the latch, waiting for the writer that holds it.
    pub fn writer(&self) -> SegmentWriter<'_> {
        let latch = match self.form() {
            Form::Hot(arena) => {
                let writer = arena.writer();
                seal::break_seal(&writer);
                Latch::Hot(writer)
            }
            Form::Frozen(frozen) => {
                let latch = frozen.latch();
                frozen.break_seal();
                Latch::Frozen {
                    frozen,
                    _latch: latch,
                }
            }
        };
        SegmentWriter {
            segment: self,
            latch,
        }
    }
}

impl<'a> SegmentWriter<'a> {
    /// The segment.
    pub fn segment(&self) -> &'a Segment {
        self.segment
    }

    /// Appends rows `rows` of `new`, all stamped `begin`, as far as they fit, and publishes
    /// them. `keys` are those of *all* rows of `new`. Whether a key is there already is the
    /// caller's to check.
    ///
    /// # Errors
    /// A column of another type, a NULL where none may be, a value that is too long or out
    /// of range, a row too wide for any segment. Nothing is appended then.
    ///
    /// # Panics
    /// When the segment is retired (ask under this latch), or the columns are not as many as
    /// the attributes or shorter than `rows`.
    pub fn append<'n>(
        &mut self,
        new: impl Into<NewRows<'n>>,
        rows: Range<usize>,
        keys: &Keys,
        begin: u64,
    ) -> Result<Appended, SegmentError> {
        let first = self.segment.rows();
        if self.segment.is_frozen() {
            return Ok(refused(first, rows.len()));
        }
        let appended = self.store(new.into(), rows.clone(), keys)?;
        self.stamp_new(first, appended.count, begin, END_NONE);
        self.publish(first + appended.count);
        Ok(appended)
    }

    /// Appends rows of another segment, in any order, with the stamps they have now, as far
    /// as they fit. That segment has the same attributes and key; groups may differ. A caller
    /// that does not hold its latch too compares the stamps later, when it does.
    ///
    /// # Errors
    /// A row too wide for any segment, which cannot be since it is in one.
    ///
    /// # Panics
    /// When the attributes differ.
    pub fn append_rows_from(
        &mut self,
        other: &Pinned<'_>,
        rows: &[u32],
    ) -> Result<Appended, SegmentError> {
        let first = self.segment.rows();
        if self.segment.is_frozen() {
            return Ok(refused(first, rows.len()));
        }
        let mut count = 0;
        for part in rows.chunks(VECTOR_ROWS as usize) {
            let selection = Selection::of_rows(part.to_vec());
            let columns: Vec<ArrayRef> = (0..other.schema().attributes().len())
                .map(|at| other.gather(at, &selection))
                .collect();
            let keys = Keys::encode(self.segment.schema(), &columns)?;
            let at = self.segment.rows();
            let appended = self.store(NewRows::from(&columns), 0..part.len(), &keys)?;
            let mut from = 0;
            let copied = &part[..appended.count as usize];
            for run in copied.chunk_by(|&a, &b| other.stamps(a) == other.stamps(b)) {
                let (begin, end) = other.stamps(run[0]);
                self.stamp_new(at + from, run.len() as u32, begin, end);
                from += run.len() as u32;
            }
            self.publish(at + appended.count);
            count += appended.count;
            if appended.full {
                return Ok(Appended {
                    first,
                    count,
                    full: true,
                });
            }
        }
        Ok(Appended {
            first,
            count,
            full: false,
        })
    }

    /// Replaces the begin stamp of published rows. Adjacent rows are best stamped in one
    /// call: a block whose rows get one stamp at once keeps needing no array.
    pub fn set_begin(&mut self, rows: Range<u32>, stamp: u64) {
        self.set(Side::Begin, rows, stamp);
    }

    /// Replaces the end stamp of a published row.
    pub fn set_end(&mut self, row: u32, stamp: u64) {
        self.set(Side::End, row..row + 1, stamp);
    }

    /// Replaces the end stamp of published rows.
    pub fn set_ends(&mut self, rows: Range<u32>, stamp: u64) {
        self.set(Side::End, rows, stamp);
    }

    /// Says where the rows have gone. From now on the segment takes no more rows; readers
    /// that hold it may finish.
    ///
    /// # Panics
    /// When the segment is retired already.
    pub fn retire(&mut self, forwarding: Forwarding) {
        if let Latch::Hot(writer) = &mut self.latch {
            writer.forget_interned();
        }
        self.segment.set_forwarding(forwarding);
    }

    fn set(&mut self, side: Side, rows: Range<u32>, stamp: u64) {
        let known = self.segment.rows();
        assert!(rows.end <= known, "rows {rows:?} of {known} published");
        assert!(
            side == Side::End || !self.segment.is_frozen(),
            "all rows of a frozen segment have begun"
        );
        match &mut self.latch {
            Latch::Hot(writer) => {
                Versions::of(writer.arena()).assign(side, rows.clone(), stamp, known);
                touched::note_stamps(writer, rows);
            }
            Latch::Frozen { frozen, .. } => frozen.set_ends(rows, stamp),
        }
    }

    /// Lets readers see the first `rows` rows.
    fn publish(&mut self, rows: u32) {
        let writer = self.hot();
        writer.publish(rows);
        touched::note_rows(writer);
    }

    /// Stamps rows that are not published, and are the next after all that have a stamp.
    fn stamp_new(&mut self, first: u32, count: u32, begin: u64, end: u64) {
        let versions = Versions::of(self.arena());
        versions.assign(Side::Begin, first..first + count, begin, first);
        versions.assign(Side::End, first..first + count, end, first);
    }

    fn arena(&self) -> &'a Arena {
        match &self.latch {
            Latch::Hot(writer) => writer.arena(),
            Latch::Frozen { .. } => unreachable!("a frozen segment takes no rows"),
        }
    }

    fn hot(&mut self) -> &mut Writer<'a> {
        match &mut self.latch {
            Latch::Hot(writer) => writer,
            Latch::Frozen { .. } => unreachable!("a frozen segment takes no rows"),
        }
    }

    /// Stores values, zones and index entries of as many rows as fit, unpublished.
    fn store(
        &mut self,
        new: NewRows<'_>,
        rows: Range<usize>,
        keys: &Keys,
    ) -> Result<Appended, SegmentError> {
        let schema = self.segment.schema();
        assert!(
            !self.segment.is_retired(),
            "a retired segment takes no rows"
        );
        assert!(
            rows.end.checked_sub(1).is_none_or(|last| new.has_row(last)),
            "rows of the columns"
        );
        let sources = Source::all(new, schema.attributes())?;
        check_nulls(&sources, schema, &rows)?;
        let first = self.segment.rows();
        let room = (self.segment.capacity() - first) as usize;
        let wanted = rows.len().min(room);
        let mut done = 0;
        while done < wanted {
            let row = first + done as u32;
            let to_block_end = (BLOCK_ROWS - row % BLOCK_ROWS) as usize;
            let mut chunk = Chunk {
                from: rows.start + done,
                row,
                len: (wanted - done).min(to_block_end),
            };
            chunk.len = self.rows_with_heap(&sources, chunk)?;
            let fitted = self.store_chunk(&sources, chunk)?;
            done += fitted;
            if fitted < chunk.len {
                break;
            }
        }
        if done == 0 && !rows.is_empty() && first == 0 {
            self.refuse_wider_than_any(&sources, rows.start)?;
        }
        if !schema.key().is_empty() {
            let cells = self.arena().index();
            for nth in 0..done {
                index::insert(cells, keys.get(rows.start + nth).0, first + nth as u32);
            }
        }
        if !schema.indexes().is_empty() && done > 0 {
            let part = |column: &ArrayRef| column.slice(rows.start, done);
            let stored: Vec<ArrayRef>;
            let stored = match new {
                NewRows::Columns(columns) => {
                    stored = columns.iter().map(part).collect();
                    NewRows::from(&stored)
                }
                NewRows::Row(_) => new,
            };
            secondary::enter(self.arena(), stored, first)?;
        }
        let full = done < rows.len();
        if full {
            self.hot().forget_interned();
        }
        Ok(Appended {
            first,
            count: done as u32,
            full,
        })
    }

    /// How many of the chunk's rows surely have room in the heap, all long values being
    /// new; at least one, which may have room if its values are not. So a heap that runs
    /// out is not spent on the first attribute of rows whose others then lack room.
    fn rows_with_heap(&self, sources: &[Source<'_>], chunk: Chunk) -> Result<usize, SegmentError> {
        let room = self.segment.heap_bytes() - self.segment.heap_used_bytes();
        let rows = chunk.from..chunk.from + chunk.len;
        let needed: usize = sources
            .iter()
            .map(|source| match source.values {
                Values::Variable(strings) => strings.long_bytes(rows.clone()),
                _ => 0,
            })
            .sum();
        if needed <= room {
            return Ok(chunk.len);
        }
        let (mut fit, mut needed) = (0, 0);
        for row in rows {
            needed += row_heap_bytes(sources, row)?;
            if needed > room {
                break;
            }
            fit += 1;
        }
        Ok(fit.max(1))
    }

    /// An empty segment has no room for the row: would any?
    fn refuse_wider_than_any(
        &self,
        sources: &[Source<'_>],
        row: usize,
    ) -> Result<(), SegmentError> {
        let heap_bytes = row_heap_bytes(sources, row)?;
        let bytes = plan::fixed_bytes(self.segment.schema(), 1) + heap_bytes;
        if bytes > ARENA_BYTES_MAX {
            Err(SegmentError::RowTooWide { row, bytes })
        } else {
            Ok(())
        }
    }

    /// Gives the rows that fit, fewer than the chunk's when the heap is full.
    fn store_chunk(&mut self, sources: &[Source<'_>], chunk: Chunk) -> Result<usize, SegmentError> {
        let mut fit = chunk;
        // Variable attributes first: they decide how many rows there is heap for.
        for (attribute, source) in sources.iter().enumerate() {
            if let Values::Variable(strings) = source.values {
                fit.len = self.store_variable(attribute, strings, source, fit)?;
            }
        }
        for (attribute, source) in sources.iter().enumerate() {
            self.store_fixed(attribute, source, fit)?;
            self.store_nulls(attribute, source, fit);
        }
        Ok(fit.len)
    }

    fn store_nulls(&mut self, attribute: usize, source: &Source<'_>, chunk: Chunk) {
        let Some(nulls) = Nulls::of(self.arena(), attribute) else {
            return;
        };
        match source.nulls {
            Some(bits) if bits.slice(chunk.from, chunk.len).null_count() > 0 => {
                nulls.store(chunk.row, chunk.len as u32, |at| {
                    bits.is_null(chunk.from + at as usize)
                });
                zone::widen(self.arena(), chunk.vector(), attribute, None, true);
            }
            _ => nulls.clear(chunk.row, chunk.len as u32),
        }
    }

    fn store_fixed(
        &mut self,
        attribute: usize,
        source: &Source<'_>,
        chunk: Chunk,
    ) -> Result<(), SegmentError> {
        let rows = chunk.from..chunk.from + chunk.len;
        match source.values {
            Values::I16(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::I32(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::I64(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::I128(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::F32(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::F64(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::Bytes16(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::Interval(values) => self.store_scalars(attribute, source, chunk, &values[rows]),
            Values::Bool(array) => {
                self.store_converted(attribute, source, chunk, |row| {
                    Some(u8::from(array.value(row)))
                })?;
            }
            Values::Narrow(values) => {
                self.store_converted(attribute, source, chunk, |row| {
                    i64::try_from(values[row]).ok()
                })?;
            }
            Values::Variable(_) => {}
        }
        Ok(())
    }

    /// Stores values that need a conversion first, which fails on values out of range.
    fn store_converted<T: Scalar>(
        &mut self,
        attribute: usize,
        source: &Source<'_>,
        chunk: Chunk,
        convert: impl Fn(usize) -> Option<T>,
    ) -> Result<(), SegmentError> {
        let mut values = vec![T::default(); chunk.len];
        for (row, value) in (chunk.from..).zip(&mut values) {
            *value = match convert(row) {
                Some(converted) => converted,
                // What lies under a NULL is anything.
                None if source.is_null(row) => T::default(),
                None => return Err(SegmentError::ValueOutOfRange { attribute }),
            };
        }
        self.store_scalars(attribute, source, chunk, &values);
        Ok(())
    }

    /// Stores values in the form of their slots, zeros for NULLs.
    fn store_scalars<T: Scalar>(
        &mut self,
        attribute: usize,
        source: &Source<'_>,
        chunk: Chunk,
        values: &[T],
    ) {
        let bounds = if source.nulls.is_none() {
            self.hot().store(attribute, chunk.row, values);
            bounds_of(values.iter().map(|value| value.rank()))
        } else {
            let mut cleared = vec![T::default(); chunk.len];
            for (nth, value) in cleared.iter_mut().enumerate() {
                if !source.is_null(chunk.from + nth) {
                    *value = values[nth];
                }
            }
            self.hot().store(attribute, chunk.row, &cleared);
            let present = (0..chunk.len).filter(|nth| !source.is_null(chunk.from + nth));
            bounds_of(present.map(|nth| values[nth].rank()))
        };
        if let Some((min, max)) = bounds {
            let bounds = (T::order_key(min), T::order_key(max));
            zone::widen(self.arena(), chunk.vector(), attribute, Some(bounds), false);
        }
    }

    /// Gives the rows that there was heap for.
    fn store_variable(
        &mut self,
        attribute: usize,
        strings: Strings<'_>,
        source: &Source<'_>,
        chunk: Chunk,
    ) -> Result<usize, SegmentError> {
        // The array's form is told once for all rows.
        match strings {
            Strings::Utf8View(array) => {
                self.store_values(attribute, |row| array.value(row).as_bytes(), source, chunk)
            }
            Strings::BinaryView(array) => {
                self.store_values(attribute, |row| array.value(row), source, chunk)
            }
            other => self.store_values(attribute, |row| other.get(row), source, chunk),
        }
    }

    fn store_values<'v>(
        &mut self,
        attribute: usize,
        get: impl Fn(usize) -> &'v [u8],
        source: &Source<'_>,
        chunk: Chunk,
    ) -> Result<usize, SegmentError> {
        let mut slots = vec![0u64; chunk.len];
        let mut bounds: Option<(u64, u64)> = None;
        let mut fitted = chunk.len;
        for (nth, slot) in slots.iter_mut().enumerate() {
            let row = chunk.from + nth;
            if source.is_null(row) {
                continue;
            }
            let value = get(row);
            if value.len() <= INLINE_BYTES_MAX {
                *slot = short_slot(value);
            } else if value.len() > VALUE_BYTES_MAX {
                return Err(SegmentError::ValueTooLong {
                    attribute,
                    row,
                    bytes: value.len(),
                });
            } else if let Some(long) = self.hot().intern(value) {
                *slot = long;
            } else {
                fitted = nth;
                break;
            }
            let key = prefix_key(value);
            bounds = Some(bounds.map_or((key, key), |(min, max)| (min.min(key), max.max(key))));
        }
        self.hot().store(attribute, chunk.row, &slots[..fitted]);
        zone::widen(self.arena(), chunk.vector(), attribute, bounds, false);
        Ok(fitted)
    }
}

/// A segment that has no room for any of so many rows.
fn refused(first: u32, rows: usize) -> Appended {
    Appended {
        first,
        count: 0,
        full: rows > 0,
    }
}

/// Rows of the source columns that go to rows of one version block.
#[derive(Clone, Copy)]
struct Chunk {
    /// First row in the columns.
    from: usize,
    /// First row in the segment.
    row: u32,
    len: usize,
}

impl Chunk {
    fn vector(self) -> u32 {
        self.row / VECTOR_ROWS
    }
}

fn bounds_of<R: Ord + Copy>(mut ranks: impl Iterator<Item = R>) -> Option<(R, R)> {
    let first = ranks.next()?;
    Some(ranks.fold((first, first), |(min, max), rank| {
        (min.min(rank), max.max(rank))
    }))
}

fn check_nulls(
    sources: &[Source<'_>],
    schema: &SegmentSchema,
    rows: &Range<usize>,
) -> Result<(), SegmentError> {
    for (attribute, source) in sources.iter().enumerate() {
        let has_null = || {
            source
                .nulls
                .is_some_and(|bits| bits.slice(rows.start, rows.len()).null_count() > 0)
        };
        if !schema.attributes()[attribute].nullable && has_null() {
            return Err(SegmentError::NullValue { attribute });
        }
    }
    Ok(())
}

/// Heap bytes of a row when none of its values is there yet.
fn row_heap_bytes(sources: &[Source<'_>], row: usize) -> Result<usize, SegmentError> {
    let mut sum = 0;
    for (attribute, source) in sources.iter().enumerate() {
        if let Values::Variable(strings) = source.values {
            sum += long_value_bytes(attribute, source, strings, row)?;
        }
    }
    Ok(sum)
}

/// The length of a value that is too long for its slot; 0 of any other.
fn long_value_bytes(
    attribute: usize,
    source: &Source<'_>,
    strings: Strings<'_>,
    row: usize,
) -> Result<usize, SegmentError> {
    if source.is_null(row) {
        return Ok(0);
    }
    let bytes = strings.get(row).len();
    if bytes > VALUE_BYTES_MAX {
        return Err(SegmentError::ValueTooLong {
            attribute,
            row,
            bytes,
        });
    }
    Ok(if bytes > INLINE_BYTES_MAX { bytes } else { 0 })
}

impl SegmentSchema {
    /// The heap bytes that these rows need at most: the lengths of all values too long for
    /// their slots. Equal values mostly share, so less may do.
    ///
    /// # Errors
    /// A column of another type, or a value longer than a value may be.
    pub fn heap_bytes<'a>(
        &self,
        new: impl Into<NewRows<'a>>,
        rows: Range<usize>,
    ) -> Result<usize, SegmentError> {
        let new = new.into();
        let mut sum = 0;
        for (attribute, &spec) in self.attributes().iter().enumerate() {
            let source = new.source(attribute, spec)?;
            let Values::Variable(strings) = source.values else {
                continue;
            };
            // Column by column: the lengths lie side by side.
            let bytes = strings.long_bytes(rows.clone());
            if bytes > VALUE_BYTES_MAX || source.nulls.is_some() {
                for row in rows.clone() {
                    sum += long_value_bytes(attribute, &source, strings, row)?;
                }
            } else {
                sum += bytes;
            }
        }
        Ok(sum)
    }
}
