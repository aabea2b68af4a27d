//! Which pages of a hot segment's arena are in use: how much of its tenant's memory it takes.
//!
//! Pages cost memory from their first write on, and areas share pages, so this is a set: a bit
//! for each page. The holder of the latch maintains it and adds touched pages (`touched`). The
//! number of pages can be read at any time, without the latch.
//!
//! Nothing is ever removed: a page that was written stays.

use aerostat_sync::{AtomicU64, Ordering};

use crate::format::plan::Plan;

/// What the system gives memory in.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The pages in use, and how far they are known.
pub(crate) struct Touched {
    pages: Box<[u64]>,
    /// Rows whose pages are among them.
    pub(crate) rows: u32,
    /// Heap bytes whose pages are among them.
    pub(crate) heap: usize,
}

impl Touched {
    pub(crate) fn new(plan: &Plan) -> Touched {
        let pages = plan.arena_bytes().div_ceil(PAGE_BYTES);
        Touched {
            pages: vec![0; pages.div_ceil(64)].into(),
            rows: 0,
            heap: 0,
        }
    }

    /// Adds the pages of a range of bytes; how many are new.
    pub(crate) fn add(&mut self, offset: usize, bytes: usize) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let mut new = 0;
        for page in offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES) {
            let (word, bit) = (&mut self.pages[page / 64], 1 << (page % 64));
            new += u64::from(*word & bit == 0);
            *word |= bit;
        }
        new
    }
}

/// The number of pages, for readers without the latch.
#[derive(Default)]
pub(crate) struct Footprint(AtomicU64);

impl Footprint {
    /// Bytes in use, in whole pages, but no more than the arena has.
    pub(crate) fn bytes(&self, plan: &Plan) -> u64 {
        let bytes = self.0.load(Ordering::Relaxed) * PAGE_BYTES as u64;
        bytes.min(plan.arena_bytes() as u64)
    }

    /// For the holder of the latch only.
    pub(crate) fn grow(&self, pages: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + pages, Ordering::Relaxed);
    }
}
