//! The pin: what stands for a segment's values being in memory, and what they are charged to.
//!
//! ```text
//!  Pinned ─┐                  ┌ Segment   versions, zones, summaries: asked of it at any time
//!  Pinned ─┼─► Body (counted) ┤           values: asked through a pin alone
//!  Buffer ─┘                  └ charge    goes last
//! ```
//!
//! * **Values are read through a pin.** Whatever reads keys or values of rows is a method of
//!   [`Pinned`]; what [`Segment`] has of its own needs none of them. Nothing makes a pin of a
//!   segment that is borrowed, so a caller that gives away `&Segment` gives away no values.
//! * **Who reads keeps.** An Arrow array that shares a segment's bytes owns a pin.
//! * **The charge goes with the memory.** It is dropped with the last pin, after the arena and
//!   what is kept beside it, never before. What it is is the caller's matter.

use std::{fmt, ops::Deref, panic::RefUnwindSafe, sync::Arc};

use crate::{
    Segment,
    body::{seal, segment::Form},
};

/// A segment whose values are in memory, for as long as this or a clone of it is held. Clones
/// are cheap.
#[derive(Clone)]
pub struct Pinned(Arc<Body>);

/// What pins own together.
pub(crate) struct Body {
    segment: Segment,
    /// Behind the segment, so that it is dropped after that.
    _charge: Box<dyn Send + Sync>,
}

impl Pinned {
    /// The segment, and what its memory is charged to: `charge` is dropped when the memory
    /// has been given back.
    pub fn new(segment: Segment, charge: impl Send + Sync + 'static) -> Pinned {
        Pinned(Arc::new(Body {
            segment,
            _charge: Box::new(charge),
        }))
    }

    /// Computes the checksum, so that the bytes can be attached elsewhere. The next
    /// [writer](Segment::writer) breaks the seal.
    pub fn seal_checksum(&self) {
        match self.form() {
            Form::Hot(arena) => seal::seal(&arena.writer()),
            Form::Frozen(frozen) => {
                let _latch = frozen.latch();
                frozen.seal();
            }
        }
    }

    /// What keeps the bytes in memory: the owner of an Arrow buffer over them.
    pub(crate) fn body(&self) -> Arc<Body> {
        Arc::clone(&self.0)
    }

    /// The bytes of a frozen segment as it was made, sealed, without room for end stamps:
    /// which rows have ended is the caller's to keep. They do not change, so this may be
    /// asked while others stamp. `None` of a hot segment.
    pub fn frozen_bytes(&self) -> Option<Vec<u8>> {
        match self.form() {
            Form::Hot(_) => None,
            Form::Frozen(frozen) => Some(frozen.bytes_as_made()),
        }
    }
}

impl Deref for Pinned {
    type Target = Segment;

    #[inline]
    fn deref(&self) -> &Segment {
        &self.0.segment
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&**self).finish()
    }
}

// Arrow asks this of a buffer's owner. A panic leaves nothing half-changed that is
// published, and arrays touch neither the rest nor the charge.
impl RefUnwindSafe for Body {}

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
    fn segments() -> [(Pinned, Arc<AtomicBool>); 2] {
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
