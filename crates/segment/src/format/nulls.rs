//! Null bitmaps: a bit per row for each nullable attribute, set for NULL, so
//! that the untouched pages of an attribute without NULLs cost nothing.
//!
//! Words are atomics because one word may hold bits of published rows and of
//! rows that the writer appends.

use aerostat_sync::{AtomicU64, Ordering};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

use crate::{
    Selection, VECTOR_ROWS,
    format::{arena::Arena, header::null_words, zone},
};

/// The bitmap of one attribute.
#[derive(Clone, Copy)]
pub(crate) struct Nulls<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Nulls<'a> {
    /// The bitmap of an attribute; `None` when it takes no NULL.
    pub(crate) fn of(arena: &'a Arena, attribute: usize) -> Option<Nulls<'a>> {
        let nth = arena.schema().place(attribute).nulls?;
        let len = null_words(arena.plan().capacity());
        Some(Nulls {
            words: &arena.nulls()[nth * len..(nth + 1) * len],
        })
    }

    /// The bitmap, if there may be a NULL in a vector that the selection touches.
    pub(crate) fn within(
        arena: &'a Arena,
        attribute: usize,
        selection: &Selection,
    ) -> Option<Nulls<'a>> {
        Nulls::of(arena, attribute)?.where_any(selection, |vector| {
            zone::read(arena, vector, attribute).nulls
        })
    }

    /// A bitmap, one bit per row.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Nulls<'a> {
        Nulls { words }
    }

    /// The bitmap, if a vector that the selection touches may have a NULL. Rows may come
    /// in any order here, for rows are copied in key order.
    pub(crate) fn where_any(
        self,
        selection: &Selection,
        vector_has: impl Fn(u32) -> bool,
    ) -> Option<Nulls<'a>> {
        let (first, last) = match selection {
            Selection::Range(_) => (selection.first()?, selection.last()?),
            Selection::Rows(rows) => (*rows.iter().min()?, *rows.iter().max()?),
        };
        (first / VECTOR_ROWS..=last / VECTOR_ROWS)
            .any(vector_has)
            .then_some(self)
    }

    pub(crate) fn is_null(&self, row: u32) -> bool {
        self.words[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 != 0
    }

    /// The bits of the 64 rows from `row` on, a multiple of 64.
    pub(crate) fn word(&self, row: u32) -> u64 {
        debug_assert!(row.is_multiple_of(64));
        self.words[row as usize / 64].load(Ordering::Relaxed)
    }

    /// The bits of the 64 rows from any row on; zeros beyond the end.
    fn word_from(&self, row: u32) -> u64 {
        let (at, shift) = (row as usize / 64, row % 64);
        let low = self.words[at].load(Ordering::Relaxed) >> shift;
        match self.words.get(at + 1) {
            Some(next) if shift > 0 => low | next.load(Ordering::Relaxed) << (64 - shift),
            _ => low,
        }
    }

    /// Arrow's form of the selected bits, in which a set bit means not NULL; `None` when all are.
    pub(crate) fn gather(&self, selection: &Selection) -> Option<NullBuffer> {
        let len = selection.len();
        let bits = match selection {
            Selection::Range(rows) => {
                let words: Vec<u64> = rows
                    .clone()
                    .step_by(64)
                    .map(|row| !self.word_from(row))
                    .collect();
                BooleanBuffer::new(Buffer::from_vec(words), 0, len)
            }
            Selection::Rows(rows) => BooleanBuffer::collect_bool(len, |at| !self.is_null(rows[at])),
        };
        let nulls = NullBuffer::new(bits);
        (nulls.null_count() > 0).then_some(nulls)
    }

    /// Sets the bits of rows from `first` on. For the holder of the latch only.
    pub(crate) fn store(&self, first: u32, len: u32, is_null: impl Fn(u32) -> bool) {
        let mut done = 0;
        while done < len {
            let row = first + done;
            let shift = row % 64;
            let count = (64 - shift).min(len - done);
            let bits = (0..count).fold(0u64, |bits, at| {
                bits | u64::from(is_null(done + at)) << (shift + at)
            });
            self.store_bits(row, count, bits);
            done += count;
        }
    }

    /// Clears the bits of rows from `first` on. For the holder of the latch only.
    pub(crate) fn clear(&self, first: u32, len: u32) {
        let mut done = 0;
        while done < len {
            let row = first + done;
            let count = (64 - row % 64).min(len - done);
            self.store_bits(row, count, 0);
            done += count;
        }
    }

    /// Replaces `count` bits within one word; writes only what differs, so that
    /// zeros over an untouched page leave it untouched.
    fn store_bits(&self, row: u32, count: u32, bits: u64) {
        let mask = (u64::MAX >> (64 - count)) << (row % 64);
        let word = &self.words[row as usize / 64];
        let old = word.load(Ordering::Relaxed);
        let new = old & !mask | bits;
        if new != old {
            word.store(new, Ordering::Relaxed);
        }
    }
}
