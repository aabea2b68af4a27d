//! The strings of a dictionary: packed offsets, and the bytes end to end.

use std::ops::Range;

use crate::frozen::{pack::Packed, search::bisect};

/// Byte strings by position.
#[derive(Clone, Copy)]
pub(crate) struct Strings<'a> {
    /// One more than there are strings.
    pub(crate) offsets: Packed<'a>,
    pub(crate) heap: &'a [u8],
    pub(crate) len: usize,
}

impl<'a> Strings<'a> {
    /// Where the string lies; the empty string at any position beyond.
    pub(crate) fn span(&self, at: usize) -> Range<usize> {
        if at >= self.len {
            return 0..0;
        }
        self.offsets.get(at) as usize..self.offsets.get(at + 1) as usize
    }

    pub(crate) fn get(&self, at: usize) -> &'a [u8] {
        &self.heap[self.span(at)]
    }

    /// Of sorted strings, the first position whose string is not before, or for `after`
    /// the first whose string is after.
    pub(crate) fn position(&self, value: &[u8], after: bool) -> usize {
        bisect(0..self.len, |at| {
            let own = self.get(at);
            own < value || after && own == value
        })
    }
}
