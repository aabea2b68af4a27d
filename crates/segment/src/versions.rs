//! Version information: begin and end stamp of every row.
//!
//! Rows come in blocks of 1,024, and the rows of a block mostly share their
//! stamps: loaded by one transaction, never deleted. So a block's header holds
//! one begin and one end for all of its rows. Only when rows differ are the
//! reserved arrays used (for one block 2 × 8 KiB, which are whole pages) and the
//! header says `VARIES`.
//!
//! ```text
//!  versions   │ begin 17     end NONE   │ begin VARIES  end NONE   │ …
//!  begins     │ (untouched)             │ 17 17 17 18 18 21 …      │
//!  ends       │ (untouched)             │ (untouched)              │
//! ```
//!
//! Stamps change under the latch; readers take them at any time. A reader finds
//! either the old or the new stamp of a row: the array is filled before the
//! header says so, with Release and Acquire.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    BLOCK_ROWS, Selection,
    arena::Arena,
    plan::VERSION_WORDS,
    selection::Collector,
    stamp::{END_NONE, VARIES},
};

/// Which of a row's two stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Begin = 0,
    End = 1,
}

/// The version areas of an arena.
#[derive(Clone, Copy)]
pub(crate) struct Versions<'a> {
    headers: &'a [AtomicU64],
    begins: &'a [AtomicU64],
    ends: &'a [AtomicU64],
}

impl<'a> Versions<'a> {
    pub(crate) fn of(arena: &'a Arena) -> Versions<'a> {
        Versions {
            headers: arena.versions(),
            begins: arena.begins(),
            ends: arena.ends(),
        }
    }

    /// The headers of blocks, and the stamps of those that vary. Without `begins` no
    /// block's begin stamps ever vary.
    pub(crate) fn new(
        headers: &'a [AtomicU64],
        begins: &'a [AtomicU64],
        ends: &'a [AtomicU64],
    ) -> Versions<'a> {
        Versions {
            headers,
            begins,
            ends,
        }
    }

    /// A row's stamp.
    pub(crate) fn get(&self, side: Side, row: u32) -> u64 {
        match self.header(side, row / BLOCK_ROWS).load(Ordering::Acquire) {
            VARIES => self.array(side)[row as usize].load(Ordering::Acquire),
            shared => shared,
        }
    }

    /// Whether the rows of a block have stamps of their own.
    pub(crate) fn varies(&self, side: Side, block: u32) -> bool {
        self.header(side, block).load(Ordering::Acquire) == VARIES
    }

    /// Stamps `rows`. `known` rows have a stamp already; those of a block that are
    /// not in `rows` keep theirs. For the holder of the latch only.
    pub(crate) fn assign(&self, side: Side, rows: Range<u32>, stamp: u64, known: u32) {
        let mut from = rows.start;
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            let to = rows.end.min((block + 1) * BLOCK_ROWS);
            self.assign_in_block(side, block, from..to, stamp, known);
            from = to;
        }
    }

    fn assign_in_block(&self, side: Side, block: u32, rows: Range<u32>, stamp: u64, known: u32) {
        let header = self.header(side, block);
        let first = block * BLOCK_ROWS;
        let known = known.clamp(first, first + BLOCK_ROWS);
        let all = rows.start == first && rows.end >= known;
        let shared = header.load(Ordering::Acquire);
        if all {
            header.store(stamp, Ordering::Release);
        } else if shared != stamp {
            let array = self.array(side);
            if shared != VARIES {
                for slot in &array[first as usize..known as usize] {
                    slot.store(shared, Ordering::Relaxed);
                }
            }
            for slot in &array[rows.start as usize..rows.end as usize] {
                slot.store(stamp, Ordering::Release);
            }
            header.store(VARIES, Ordering::Release);
        }
    }

    fn header(&self, side: Side, block: u32) -> &'a AtomicU64 {
        &self.headers[block as usize * VERSION_WORDS + side as usize]
    }

    fn array(&self, side: Side) -> &'a [AtomicU64] {
        match side {
            Side::Begin => self.begins,
            Side::End => self.ends,
        }
    }

    /// Calls `f` with each of the rows that has an end stamp, and that.
    pub(crate) fn each_end(&self, rows: Range<u32>, f: &mut dyn FnMut(u32, u64)) {
        let mut from = rows.start;
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            let to = rows.end.min((block + 1) * BLOCK_ROWS);
            match self.header(Side::End, block).load(Ordering::Acquire) {
                END_NONE => {}
                VARIES => {
                    let ends = &self.array(Side::End)[from as usize..to as usize];
                    for (row, end) in (from..).zip(ends) {
                        let end = end.load(Ordering::Acquire);
                        if end != END_NONE {
                            f(row, end);
                        }
                    }
                }
                shared => (from..to).for_each(|row| f(row, shared)),
            }
            from = to;
        }
    }

    /// The rows of which `visible` says yes. It is asked once for a block whose
    /// rows share both stamps, else for each row, and not again for the stamps of
    /// the row before. `None` means that a stamp is out of date: it is read again.
    pub(crate) fn select(
        &self,
        rows: Range<u32>,
        visible: &mut dyn FnMut(u64, u64) -> Option<bool>,
        out: &mut Selection,
    ) {
        let mut found = Collector::reusing(out);
        let mut last = None;
        let mut from = rows.start;
        while from < rows.end {
            let block = from / BLOCK_ROWS;
            let to = rows.end.min((block + 1) * BLOCK_ROWS);
            if self.varies(Side::Begin, block) || self.varies(Side::End, block) {
                for row in from..to {
                    if self.ask(row, visible, &mut last) {
                        found.push_run(row..row + 1);
                    }
                }
            } else if self.ask(from, visible, &mut last) {
                found.push_run(from..to);
            }
            from = to;
        }
        *out = found.finish();
    }

    fn ask(
        &self,
        row: u32,
        visible: &mut dyn FnMut(u64, u64) -> Option<bool>,
        last: &mut Option<(u64, u64, bool)>,
    ) -> bool {
        loop {
            let (begin, end) = (self.get(Side::Begin, row), self.get(Side::End, row));
            if let Some((last_begin, last_end, answer)) = *last
                && (begin, end) == (last_begin, last_end)
            {
                return answer;
            }
            if let Some(answer) = visible(begin, end) {
                *last = Some((begin, end, answer));
                return answer;
            }
            // Its transaction has ended and is about to stamp the row.
            std::thread::yield_now();
        }
    }
}
