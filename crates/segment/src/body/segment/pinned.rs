//! The pin: what stands for a segment's values being in memory, and what they are charged to.
//!
//! ```text
//!  SegmentBody ─┐                  ┌ Segment   versions, zones, summaries: asked of it at any time
//!  Pinned ──────┼─► Body (counted) ┤           values: asked through a pin alone
//!  Buffer ──────┘                  └ charge    goes last
//!     └──────────────► extents of a frozen segment that the pin or the buffer reads
//! ```
//!
//! * **Values are read through a pin.** Whatever reads keys or values of rows is a method of
//!   [`Pinned`]; what [`Segment`] has of its own needs none of them. Nothing makes a pin of a
//!   segment that is borrowed, so a caller that gives away `&Segment` gives away no values.
//! * **A pin has what was asked for.** Of a frozen segment some extents may be evicted. A pin that was
//!   asked for them has them until it is dropped; a method that would read another panics.
//! * **Who reads keeps.** An Arrow array that shares a segment's bytes owns the extent and the body.
//! * **The charge goes with the memory.** It is dropped with the last pin, after the arena and
//!   what is kept beside it, never before. What it is is the caller's matter.

use std::{
    fmt,
    ops::{Deref, Range},
    panic::RefUnwindSafe,
    sync::Arc,
};

use crate::{
    Segment, SegmentError,
    body::{seal, segment::Form},
    frozen::{
        extents::{ExtentSet, Wanted},
        pages::{Charge, Extent, Held, HeldGuard, Pieces},
    },
};

/// A segment and what its memory is charged to; whoever has it can pin the values. Clones are cheap.
#[derive(Clone)]
pub struct SegmentBody(Arc<Body>);

/// A segment with values that are in memory, all or those asked for, for as long as this is held.
pub struct Pinned<'a> {
    /// Of a frozen segment. Before the body, so that it is dropped before that.
    held: Option<HeldExtents>,
    body: BodyRef<'a>,
}

enum BodyRef<'a> {
    Lent(&'a Arc<Body>),
    Own(Arc<Body>),
}

enum HeldExtents {
    /// Those that were current, without a count that threads share.
    Current(HeldGuard),
    Own(Arc<Held>),
}

/// What pins own together.
pub(crate) struct Body {
    segment: Segment,
    /// Behind the segment, so that it is dropped after that.
    _charge: Box<dyn Send + Sync>,
}

/// What keeps the bytes of a frozen segment in memory that an array shares.
struct Shared {
    _extent: Option<Arc<Extent>>,
    /// Behind the extent, as in [`Pinned`].
    _body: Arc<Body>,
}

impl SegmentBody {
    /// The segment, and what its memory is charged to: `charge` is dropped when the memory
    /// has been given back.
    pub fn new(segment: Segment, charge: impl Send + Sync + 'static) -> SegmentBody {
        SegmentBody(Arc::new(Body {
            segment,
            _charge: Box::new(charge),
        }))
    }

    /// A pin of what is in memory now.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        let held = match self.form() {
            Form::Hot(_) => None,
            Form::Frozen(frozen) => Some(HeldExtents::Current(frozen.held())),
        };
        Pinned {
            held,
            body: BodyRef::Lent(&self.0),
        }
    }

    /// The extents that a reader wants: none of a hot segment, whose values are always there.
    pub fn wanted(&self, want: impl FnOnce(&mut Wanted<'_>)) -> ExtentSet {
        match self.form() {
            Form::Hot(_) => ExtentSet::default(),
            Form::Frozen(frozen) => {
                let mut wanted = Wanted::of(frozen.schema());
                want(&mut wanted);
                wanted.into_extents()
            }
        }
    }

    /// Where in the arena those of these extents lie that are evicted now.
    pub fn evicted_spans(&self, extents: &ExtentSet) -> Vec<Range<usize>> {
        match self.form() {
            Form::Hot(_) => Vec::new(),
            Form::Frozen(frozen) => frozen.pages().absent_spans(extents, &frozen.held()),
        }
    }

    /// A pin of all that is wanted. What is evicted is read back: `charge` says what so many bytes
    /// are charged to, and `read` fills pieces of the arena with what
    /// [`Pinned::frozen_bytes`] had at these offsets. Other readers go on meanwhile; one that
    /// wants something evicted of the same segment waits.
    ///
    /// # Errors
    /// Those of `charge` and `read`; [`SegmentError::Corrupt`] when what was read is not what
    /// was evicted. A later call tries again.
    pub fn read_back<E: From<SegmentError>>(
        &self,
        wanted: &ExtentSet,
        charge: &mut dyn FnMut(u64) -> Result<Charge, E>,
        read: &mut dyn FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<Pinned<'_>, E> {
        let held = match self.form() {
            Form::Hot(_) => None,
            Form::Frozen(frozen) => {
                let (pages, current) = (frozen.pages(), frozen.current());
                let held = pages.read_back(wanted, current, charge, read)?;
                Some(HeldExtents::Own(held))
            }
        };
        Ok(Pinned {
            held,
            body: BodyRef::Lent(&self.0),
        })
    }

    /// Takes extents out of memory: each goes when the last pin and array that has it does.
    /// Whether one of them was in memory; nothing is done where none
    /// [can be read back](Self::allow_eviction), or some are read back now.
    pub fn evict(&self, extents: &ExtentSet) -> bool {
        match self.form() {
            Form::Hot(_) => false,
            Form::Frozen(frozen) => frozen.pages().evict(extents, frozen.current()),
        }
    }

    /// Whether some of it was [evicted](Self::evict), and is in memory until its last reader is done.
    pub fn is_leaving(&self) -> bool {
        match self.form() {
            Form::Hot(_) => false,
            Form::Frozen(frozen) => frozen.pages().is_leaving(frozen.current()),
        }
    }

    /// Says that values can be read back from now on, as [`Pinned::frozen_bytes`] gave them, and what
    /// the checksums of extents must be then.
    ///
    /// # Panics
    /// When these are not the checksums of this segment's extents.
    pub fn allow_eviction(&self, checksums: Box<[u32]>) {
        let Form::Frozen(frozen) = self.form() else {
            unreachable!("hot segments are not evicted");
        };
        frozen.pages().set_checksums(checksums);
    }

    /// Whether values can be read back.
    pub fn may_be_evicted(&self) -> bool {
        match self.form() {
            Form::Hot(_) => false,
            Form::Frozen(frozen) => frozen.pages().can_be_read_back(),
        }
    }

    /// Says what each extent's memory is charged to, by number. Dropped when the extent is
    /// given up.
    pub fn set_charges(&self, charges: impl Iterator<Item = Charge>) {
        if let Form::Frozen(frozen) = self.form() {
            frozen.pages().set_charges(charges);
        }
    }
}

impl Deref for SegmentBody {
    type Target = Segment;

    #[inline]
    fn deref(&self) -> &Segment {
        &self.0.segment
    }
}

impl Pinned<'static> {
    /// A pin of a segment that nobody else has; see [`SegmentBody::new`].
    pub fn new(segment: Segment, charge: impl Send + Sync + 'static) -> Pinned<'static> {
        let body = SegmentBody::new(segment, charge);
        let held = body.pin().held;
        Pinned {
            held,
            body: BodyRef::Own(body.0),
        }
    }
}

impl<'a> Pinned<'a> {
    fn body(&self) -> &Arc<Body> {
        match &self.body {
            BodyRef::Lent(body) => body,
            BodyRef::Own(body) => body,
        }
    }

    fn held(&self) -> Option<&Held> {
        Some(match self.held.as_ref()? {
            HeldExtents::Current(held) => held,
            HeldExtents::Own(held) => held,
        })
    }

    /// Whether nothing is evicted.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.held().is_none_or(Held::is_whole)
    }

    /// Whether it has an extent.
    pub fn has_extent(&self, extent: usize) -> bool {
        self.held().is_none_or(|held| held.has(extent))
    }

    /// Whether it has all of these extents.
    pub fn has_all(&self, extents: &ExtentSet) -> bool {
        self.held().is_none_or(|held| held.has_all(extents))
    }

    /// Whether something of the segment was evicted before: memory is short, or was.
    #[inline]
    pub fn is_after_eviction(&self) -> bool {
        self.held().is_some_and(Held::is_after_eviction)
    }

    /// The same pin of these extents alone, so that the others may leave memory meanwhile.
    pub fn only(self, extents: &ExtentSet) -> Self {
        match self.held().and_then(|held| held.only(extents)) {
            None => self,
            Some(held) => Self {
                held: Some(HeldExtents::Own(Arc::new(held))),
                body: self.body,
            },
        }
    }

    /// Whether arrays may share the segment's bytes, which they then keep in memory. After an eviction
    /// they may not: rows that are collected from many segments would keep all of these in memory.
    pub(crate) fn may_be_shared(&self) -> bool {
        !self.is_after_eviction()
    }

    /// Called by whatever reads an attribute's values, once.
    ///
    /// # Panics
    /// When they are not in memory: the pin was not asked for them.
    #[inline]
    pub(crate) fn assert_has(&self, attribute: usize) {
        if let Some(held) = self.held() {
            let group = self.schema().place(attribute).group;
            assert!(held.has(group), "attribute {attribute} was not pinned");
        }
    }

    /// As [`Self::assert_has`], of the key.
    #[inline]
    pub(crate) fn assert_has_key(&self) {
        if !self.is_whole() {
            let key = self.schema().key().iter();
            key.for_each(|&attribute| self.assert_has(attribute));
        }
    }

    /// As [`Self::assert_has`], of a secondary index and the values that its keys are made of.
    #[inline]
    pub(crate) fn assert_has_index(&self, index: usize) {
        if let Some(held) = self.held().filter(|held| !held.is_whole()) {
            let extent = self.schema().groups().len() + index;
            assert!(held.has(extent), "index {index} was not pinned");
            let attributes = self.schema().indexes()[index].attributes.iter();
            attributes.for_each(|&attribute| self.assert_has(attribute));
        }
    }

    /// As [`Self::assert_has`], of everything.
    pub(crate) fn assert_is_whole(&self) {
        assert!(self.is_whole(), "the segment was not pinned as a whole");
    }

    /// Computes the checksum, so that the bytes can be attached elsewhere. The next
    /// [writer](Segment::writer) breaks the seal.
    pub fn seal_checksum(&self) {
        self.assert_is_whole();
        match self.form() {
            Form::Hot(arena) => seal::seal(&arena.writer()),
            Form::Frozen(frozen) => {
                let _latch = frozen.latch();
                frozen.seal();
            }
        }
    }

    /// What keeps an attribute's bytes in memory: the owner of an Arrow buffer over them.
    pub(crate) fn owner(&self, attribute: usize) -> Arc<dyn arrow_buffer::alloc::Allocation> {
        let body = Arc::clone(self.body());
        let Some(held) = self.held() else {
            return body;
        };
        let extent = held.extent(self.schema().place(attribute).group);
        Arc::new(Shared {
            _extent: extent.map(Arc::clone),
            _body: body,
        })
    }

    /// The bytes of a frozen segment as it was made, sealed, without room for end stamps:
    /// which rows have ended is the caller's to keep. They do not change, so this may be
    /// asked while others stamp. `None` of a hot segment.
    pub fn frozen_bytes(&self) -> Option<Vec<u8>> {
        self.assert_is_whole();
        match self.form() {
            Form::Hot(_) => None,
            Form::Frozen(frozen) => Some(frozen.bytes_as_made()),
        }
    }

    /// The checksums of a frozen segment's extents, for [`SegmentBody::allow_eviction`]; none of a hot
    /// segment.
    pub fn extent_checksums(&self) -> Box<[u32]> {
        self.assert_is_whole();
        match self.form() {
            Form::Hot(_) => Box::default(),
            Form::Frozen(frozen) => frozen.pages().checksums(),
        }
    }
}

impl Clone for Pinned<'_> {
    fn clone(&self) -> Self {
        let held = self.held.as_ref().map(|held| {
            HeldExtents::Own(match held {
                HeldExtents::Current(held) => Arc::clone(held),
                HeldExtents::Own(held) => Arc::clone(held),
            })
        });
        let body = match &self.body {
            BodyRef::Lent(body) => BodyRef::Lent(body),
            BodyRef::Own(body) => BodyRef::Own(Arc::clone(body)),
        };
        Self { held, body }
    }
}

impl Deref for Pinned<'_> {
    type Target = Segment;

    #[inline]
    fn deref(&self) -> &Segment {
        &self.body().segment
    }
}

impl fmt::Debug for SegmentBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentBody").field(&**self).finish()
    }
}

impl fmt::Debug for Pinned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&**self).finish()
    }
}

// Arrow asks this of a buffer's owner. A panic leaves nothing half-changed that is
// published, and arrays touch neither the rest nor the charge.
impl RefUnwindSafe for Body {}
impl RefUnwindSafe for Shared {}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::{
        ops::Range,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use aerostat_types::{SegmentNo, SqlType, TableId};
    use arrow_array::{Array, ArrayRef, Int64Array, StringArray, cast::AsArray};

    use super::*;
    use crate::{
        AttributeSpec, FrozenFacts, FrozenImage, HeapRegion, Keys, Region, SegmentSchema, Selection,
    };

    /// A region that says when it is dropped.
    struct Watched(HeapRegion, Arc<AtomicBool>);

    // SAFETY: all is the inner region's, which this value owns for as long as it lives.
    unsafe impl Region for Watched {
        fn base(&self) -> std::ptr::NonNull<u8> {
            self.0.base()
        }

        fn bytes(&self) -> usize {
            self.0.bytes()
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    /// A charge that says when it is dropped, and that the region was before.
    struct Charge {
        region_is_gone: Arc<AtomicBool>,
        is_gone: Arc<AtomicBool>,
    }

    impl Drop for Charge {
        fn drop(&mut self) {
            assert!(
                self.region_is_gone.load(Ordering::SeqCst),
                "the memory goes before what it is charged to"
            );
            self.is_gone.store(true, Ordering::SeqCst);
        }
    }

    const ROWS: Range<usize> = 0..100;

    fn columns() -> [ArrayRef; 2] {
        let text = |row| format!("so long that a view points to it: {row}");
        [
            Arc::new(Int64Array::from_iter_values(
                ROWS.map(|row| (row * row) as i64),
            )),
            Arc::new(StringArray::from_iter_values(ROWS.map(text))),
        ]
    }

    fn schema() -> Arc<SegmentSchema> {
        let attributes = [SqlType::BigInt, SqlType::Text].map(|ty| AttributeSpec {
            ty,
            nullable: false,
        });
        let schema = SegmentSchema::new(attributes.to_vec(), vec![vec![0], vec![1]], vec![]);
        Arc::new(schema.unwrap())
    }

    /// A hot and a frozen segment of the columns, each with what becomes true when its charge
    /// is dropped.
    fn segments() -> [(Pinned<'static>, Arc<AtomicBool>); 2] {
        let watch = |make: &dyn Fn(Arc<AtomicBool>) -> Segment| {
            let charge = Charge {
                region_is_gone: Arc::default(),
                is_gone: Arc::default(),
            };
            let is_gone = Arc::clone(&charge.is_gone);
            let segment = make(Arc::clone(&charge.region_is_gone));
            (Pinned::new(segment, charge), is_gone)
        };
        let hot = watch(&|is_gone| {
            let region = Box::new(Watched(HeapRegion::new(64 << 10), is_gone));
            let segment = Segment::create(region, schema(), TableId(1), SegmentNo(1), 64).unwrap();
            let keys = Keys::encode(segment.schema(), &columns()).unwrap();
            let appended = segment.writer().append(&columns(), ROWS, &keys, 5);
            assert_eq!(appended.unwrap().count, 100);
            segment
        });
        let frozen = watch(&|is_gone| {
            let facts = FrozenFacts {
                table: TableId(1),
                no: SegmentNo(2),
                rows: 100,
                begin: 5,
            };
            let image = FrozenImage::encode(&schema(), facts, &mut |at| Arc::clone(&columns()[at]));
            let image = image.unwrap();
            let region = Box::new(Watched(HeapRegion::new(image.arena_bytes()), is_gone));
            Segment::create_frozen(region, schema(), image)
        });
        [hot, frozen]
    }

    #[test]
    fn an_array_that_shares_bytes_keeps_the_charge() {
        let all = Selection::Range(0..100);
        for (pinned, is_gone) in segments() {
            let clone = pinned.clone();
            let texts = pinned.gather(1, &all);
            let slice = texts.slice(90, 1);
            drop((pinned, texts));
            assert!(
                !is_gone.load(Ordering::SeqCst),
                "a clone and a slice hold it"
            );
            drop(clone);
            assert!(!is_gone.load(Ordering::SeqCst), "a slice holds it");
            let text = slice.as_string_view().value(0);
            assert_eq!(text, "so long that a view points to it: 90");
            drop(slice);
            assert!(is_gone.load(Ordering::SeqCst), "nobody holds it");
        }
        // Slots of a group of their own are shared, too.
        let [(hot, is_gone), _] = segments();
        let numbers = hot.gather(0, &all);
        drop(hot);
        assert!(!is_gone.load(Ordering::SeqCst));
        drop(numbers);
        assert!(is_gone.load(Ordering::SeqCst));
    }

    /// Rows of a segment that is evicted: enough for pages, and for Miri.
    const EVICTED_ROWS: u32 = if cfg!(miri) { 100 } else { 4_000 };

    /// A frozen segment of rows enough for pages, which can be read back from a copy of its bytes.
    fn evictable() -> (SegmentBody, Vec<u8>) {
        evictable_of(EVICTED_ROWS)
    }

    fn evictable_of(rows: u32) -> (SegmentBody, Vec<u8>) {
        let numbers = 0..i64::from(rows);
        let text = |row| format!("so long that a view points to it: {row}");
        let columns: [ArrayRef; 2] = [
            Arc::new(Int64Array::from_iter_values(numbers.clone())),
            Arc::new(StringArray::from_iter_values(numbers.map(text))),
        ];
        let facts = FrozenFacts {
            table: TableId(1),
            no: SegmentNo(2),
            rows,
            begin: 5,
        };
        let image = FrozenImage::encode(&schema(), facts, &mut |at| Arc::clone(&columns[at]));
        let image = image.unwrap();
        let region = Box::new(HeapRegion::new(image.arena_bytes()));
        let segment = Segment::create_frozen(region, schema(), image);
        let body = SegmentBody::new(segment, ());
        let bytes = body.pin().frozen_bytes().unwrap();
        (body, bytes)
    }

    fn read_back<'a>(
        body: &'a SegmentBody,
        bytes: &[u8],
        attribute: usize,
    ) -> Result<Pinned<'a>, SegmentError> {
        let wanted = body.wanted(|want| want.attribute(attribute));
        let read = &mut |pieces: Pieces<'_>| {
            for (offset, piece) in pieces {
                piece.copy_from_slice(&bytes[offset..offset + piece.len()]);
            }
            Ok(())
        };
        body.read_back(&wanted, &mut |_| Ok(Box::new(())), read)
    }

    #[test]
    fn what_a_reader_has_is_not_given_up() {
        let (body, bytes) = evictable();
        let everything = ExtentSet::all(2);
        assert!(
            !body.evict(&everything),
            "nothing is known to be read back from"
        );
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        let all = Selection::Range(0..EVICTED_ROWS);
        let texts = body.pin().gather(1, &all);
        let expected = texts.to_data();
        let pin = body.pin();
        assert!(body.evict(&everything) && !body.evict(&everything));
        assert_eq!(body.evicted_bytes(), 0, "the pin has them");
        assert_eq!(pin.gather(1, &all).to_data(), expected);
        drop(pin);
        let [numbers, strings] = body.extent_bytes()[..] else {
            panic!("two extents")
        };
        assert_eq!(body.evicted_bytes(), numbers, "the array has the texts");
        let last = EVICTED_ROWS - 1;
        let text = texts.as_string_view().value(last as usize);
        assert_eq!(text, format!("so long that a view points to it: {last}"));
        // Taken up again where they are: nothing is read.
        let again = read_back(&body, &[], 1).unwrap();
        assert_eq!(again.gather(1, &all).to_data(), expected);
        // The first to have them has them still.
        drop(again);
        assert!(body.evict(&everything));
        assert_eq!(body.evicted_bytes(), numbers);
        assert_eq!(texts.to_data(), expected);
        drop((read_back(&body, &[], 1).unwrap(), texts, expected));
        assert_eq!(body.evicted_bytes(), numbers);
        assert!(body.evict(&everything));
        assert_eq!(body.evicted_bytes(), numbers + strings);
        let back = read_back(&body, &bytes, 0).unwrap();
        assert_eq!(body.evicted_bytes(), strings);
        assert_eq!(back.value(77, 0), crate::ValueRef::I64(77));
        drop(back);
        let mut other = bytes.clone();
        other.iter_mut().for_each(|byte| *byte ^= 1);
        let refused = read_back(&body, &other, 1);
        assert!(
            matches!(refused, Err(SegmentError::Corrupt(_))),
            "{refused:?}"
        );
        let back = read_back(&body, &bytes, 1).unwrap();
        assert_eq!(back.frozen_bytes().unwrap(), bytes);
    }

    /// The last reader of an extent may be done while it is asked for with others that cannot be read.
    #[test]
    fn a_read_that_fails_gives_up_what_it_alone_has() {
        let (body, bytes) = evictable();
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        let all = ExtentSet::all(2);
        assert!(body.evict(&ExtentSet::from_iter([0])));
        let mut reader = Some(body.pin());
        assert!(body.evict(&all) && body.is_leaving());
        let charge = &mut |_| Ok(Box::new(()) as crate::Charge);
        let refused = body.read_back(&all, charge, &mut |_| {
            drop(reader.take());
            Err(SegmentError::Corrupt("the disk"))
        });
        assert!(refused.is_err() && !body.is_leaving());
        assert_eq!(body.evicted_bytes(), body.bytes_of_extents());
        drop(read_back(&body, &bytes, 0).unwrap());
        let back = read_back(&body, &bytes, 1).unwrap();
        assert_eq!(back.frozen_bytes().unwrap(), bytes);
    }

    /// As the models of `frozen::loom_tests`, without loom: Miri sees what orders reads of the bytes
    /// before these are given up.
    #[test]
    fn threads_evict_and_read_and_read_back() {
        let (body, bytes) = evictable_of(8);
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        let all = ExtentSet::all(2);
        let look = |pinned: Pinned<'_>| {
            assert!(!pinned.has_extent(0) || pinned.value(7, 0) == crate::ValueRef::I64(7));
        };
        for _ in 0..if cfg!(miri) { 10 } else { 2_000 } {
            std::thread::scope(|scope| {
                scope.spawn(|| look(body.pin()));
                scope.spawn(|| body.evict(&all));
                look(read_back(&body, &bytes, 0).unwrap());
                body.evict(&all);
            });
        }
        assert!(!body.is_leaving());
    }

    /// Once memory has been short, arrays are on their own.
    #[test]
    fn after_an_eviction_arrays_are_copies() {
        let (body, bytes) = evictable();
        let all = Selection::Range(0..EVICTED_ROWS);
        let texts = |array: &ArrayRef| -> Vec<String> {
            let texts = array.as_string_view().iter().flatten();
            texts.map(str::to_owned).collect()
        };
        let wanted = texts(&body.pin().gather(1, &all));
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        body.evict(&ExtentSet::all(2));
        let some = Selection::Rows((7..EVICTED_ROWS).step_by(3).collect());
        let pinned = read_back(&body, &bytes, 1).unwrap();
        let arrays = [pinned.gather(1, &all), pinned.gather(1, &some)];
        drop(pinned);
        body.evict(&ExtentSet::all(2));
        assert_eq!(body.evicted_bytes(), body.bytes_of_extents());
        assert_eq!(texts(&arrays[0]), wanted);
        let third: Vec<String> = wanted.into_iter().skip(7).step_by(3).collect();
        assert_eq!(texts(&arrays[1]), third);
    }

    #[test]
    #[should_panic(expected = "attribute 1 was not pinned")]
    fn what_is_not_pinned_is_not_read() {
        let (body, bytes) = evictable();
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        body.evict(&ExtentSet::all(2));
        let pinned = read_back(&body, &bytes, 0).unwrap();
        pinned.gather(1, &Selection::Range(0..1));
    }

    #[test]
    fn an_array_that_is_a_copy_keeps_nothing() {
        for (pinned, is_gone) in segments() {
            let some = Selection::Rows(vec![3, 7]);
            let numbers = pinned.gather(0, &some);
            drop(pinned);
            assert!(is_gone.load(Ordering::SeqCst));
            assert_eq!(numbers.to_data().len(), 2);
        }
    }
}
