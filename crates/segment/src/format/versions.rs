//! Version information: begin and end stamp of every row.
//!
//! Rows come in blocks of 1,024, and the rows of a block mostly share their stamps: loaded by one
//! transaction, never deleted. So a block's header holds one begin and one end for all of its
//! rows. Only when rows differ are the reserved arrays used (for one block 2 × 8 KiB, which are
//! whole pages) and the header says `VARIES`.
//!
//! ```text
//!  versions   │ begin 17     end NONE   │ begin VARIES  end NONE   │ …
//!  begins     │ (untouched)             │ 17 17 17 18 18 21 …      │
//!  ends       │ (untouched)             │ (untouched)              │
//! ```
//!
//! Stamps change under the latch; readers take them at any time. A reader finds either the old or
//! the new stamp of a row: the array is filled before the header says so, with Release and
//! Acquire.
//!
//! The rows of a frozen segment have all begun, and few of them end. Beside its stamps there is a
//! bit for each row of a block whose ends vary, set if the row has an end stamp ([`Ended`]). A
//! scan tests values first, and then reads the stamps only of the remaining rows whose bit is
//! set. A row that has ended thus costs its own stamp, not a look at the 8 KiB of its block.
//!
//! ```text
//!  conditions  all rows of the vector ─► █  █ █   █  ██
//!  ended                                     █        █
//!  stamps                                    17 ≤ 20  31 > 20, visible
//!  left                                  █    █   █  ██
//! ```

use std::ops::Range;

use aerostat_sync::{AtomicU64, Ordering, yield_now};

use crate::{
    BLOCK_ROWS, Selection,
    format::{
        arena::Arena,
        header::VERSION_WORDS,
        stamp::{END_NONE, TXN_BIT, VARIES},
    },
    kernel::selection::Collector,
};

/// The bit that is set in the stamp of a transaction alone.
const TXN_SHIFT: u32 = TXN_BIT.trailing_zeros();

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
    /// Of a segment without them, no words.
    ended: Ended<'a>,
}

/// A bit for each row, which means something in blocks whose ends vary: a row whose bit is
/// not set has no end stamp. It is set after the stamp and taken away after it.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a>(pub(crate) &'a [AtomicU64]);

/// A point in the order of commits at which rows are looked at, with whoever knows the
/// transactions that are not resolved.
pub struct Seen<'a> {
    /// The last commit that is seen: commit timestamps are compared with it.
    pub at: u64,
    /// Whether a row whose begin or end stamp names a transaction is visible; `None` if that
    /// is known no longer, because it has ended and the rows are being stamped: the stamps
    /// are read and asked again.
    pub sees: &'a mut dyn FnMut(u64, u64) -> Option<bool>,
}

impl<'a> Versions<'a> {
    pub(crate) fn of(arena: &'a Arena) -> Versions<'a> {
        Versions {
            headers: arena.versions(),
            begins: arena.begins(),
            ends: arena.ends(),
            ended: Ended(&[]),
        }
    }

    /// Of rows whose begin stamps never vary: the headers of blocks, the end stamps of those
    /// that vary, and which rows have one.
    pub(crate) fn of_ends(
        headers: &'a [AtomicU64],
        ends: &'a [AtomicU64],
        ended: Ended<'a>,
    ) -> Versions<'a> {
        Versions {
            headers,
            begins: &[],
            ends,
            ended,
        }
    }

    /// A row's stamp.
    pub(crate) fn get(&self, side: Side, row: u32) -> u64 {
        match self.header(side, row / BLOCK_ROWS).load(Ordering::Acquire) {
            VARIES => self.array(side)[row as usize].load(Ordering::Acquire),
            shared => shared,
        }
    }

    /// The stamps of a block, whose form is looked at once.
    fn of_block(&self, side: Side, block: u32) -> BlockStamps<'a> {
        match self.header(side, block).load(Ordering::Acquire) {
            VARIES => BlockStamps::Each(self.array(side)),
            shared => BlockStamps::Shared(shared),
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
            let ended = match side {
                Side::Begin => Ended(&[]),
                Side::End => self.ended,
            };
            if shared != VARIES {
                for slot in &array[first as usize..known as usize] {
                    slot.store(shared, Ordering::Relaxed);
                }
                ended.set(first..known, shared != END_NONE);
            }
            for slot in &array[rows.start as usize..rows.end as usize] {
                slot.store(stamp, Ordering::Release);
            }
            ended.set(rows, stamp != END_NONE);
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
        for part in blocks(rows) {
            let block = part.start / BLOCK_ROWS;
            if self.varies(Side::Begin, block) || self.varies(Side::End, block) {
                for (base, word) in words(part) {
                    let ask = |row| self.ask(row, visible, &mut last);
                    found.push_mask(base, mask_of(base, word, ask));
                }
            } else if self.ask(part.start, visible, &mut last) {
                found.push_run(part);
            }
        }
        *out = found.finish();
    }

    /// The rows that are visible, and with them, if `true` is returned, such as have ended:
    /// [`Versions::keep_seen`] takes these out.
    pub(crate) fn select_seen(
        &self,
        rows: Range<u32>,
        seen: &mut Seen<'_>,
        out: &mut Selection,
    ) -> bool {
        let mut found = Collector::reusing(out);
        let mut some_ended = false;
        for part in blocks(rows) {
            let block = part.start / BLOCK_ROWS;
            match (
                self.varies(Side::Begin, block),
                self.varies(Side::End, block),
            ) {
                (false, false) => {
                    if self.is_seen(part.start, seen) {
                        found.push_run(part);
                    }
                }
                (false, true) if !self.ended.0.is_empty() => {
                    let begin = self.get(Side::Begin, part.start);
                    if seen.is_visible(begin, END_NONE).unwrap_or(true) {
                        found.push_run(part);
                        some_ended = true;
                    }
                }
                _ => self.push_seen(part, seen, &mut found),
            }
        }
        *out = found.finish();
        some_ended
    }

    /// Adds the visible rows of a block whose stamps vary.
    fn push_seen(&self, part: Range<u32>, seen: &mut Seen<'_>, found: &mut Collector) {
        let block = part.start / BLOCK_ROWS;
        let (begins, ends) = (
            self.of_block(Side::Begin, block),
            self.of_block(Side::End, block),
        );
        for (base, word) in words(part) {
            let (mut visible, mut open) = (0u64, 0u64);
            for row in word {
                let (begin, end) = (begins.get(row), ends.get(row));
                visible |= u64::from(seen.has(begin) & !seen.has(end)) << (row - base);
                open |= ((begin | end) >> TXN_SHIFT) << (row - base);
            }
            for row in rows_of(base, open) {
                visible &= !(1 << (row - base));
                visible |= u64::from(self.is_seen(row, seen)) << (row - base);
            }
            found.push_mask(base, visible);
        }
    }

    /// Takes out the rows that have ended, of rows that [`Versions::select_seen`] has found.
    pub(crate) fn keep_seen(&self, seen: &mut Seen<'_>, selection: &mut Selection) {
        match selection {
            Selection::Rows(rows) => {
                rows.retain(|&row| !self.ended.has(row) || self.is_seen(row, seen));
            }
            Selection::Range(rows) => {
                let rows = rows.clone();
                let mut found = Collector::reusing(selection);
                for (base, word) in words(rows) {
                    let mut visible = all_of(base, &word);
                    for row in rows_of(base, visible & self.ended.word(base)) {
                        visible &= !(u64::from(!self.is_seen(row, seen)) << (row - base));
                    }
                    found.push_mask(base, visible);
                }
                *selection = found.finish();
            }
        }
    }

    /// Whether a row is visible, by its stamps.
    fn is_seen(&self, row: u32, seen: &mut Seen<'_>) -> bool {
        loop {
            let (begin, end) = (self.get(Side::Begin, row), self.get(Side::End, row));
            if let Some(answer) = seen.is_visible(begin, end) {
                return answer;
            }
            // Its transaction has ended and is about to stamp the row.
            yield_now();
        }
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
            yield_now();
        }
    }
}

/// The stamps of a block's rows.
enum BlockStamps<'a> {
    Shared(u64),
    /// By row of the segment.
    Each(&'a [AtomicU64]),
}

impl BlockStamps<'_> {
    fn get(&self, row: u32) -> u64 {
        match self {
            BlockStamps::Shared(stamp) => *stamp,
            BlockStamps::Each(stamps) => stamps[row as usize].load(Ordering::Acquire),
        }
    }
}

impl Seen<'_> {
    /// Whether what a commit timestamp or a constant says had happened by then.
    fn has(&self, stamp: u64) -> bool {
        stamp <= self.at
    }

    fn is_visible(&mut self, begin: u64, end: u64) -> Option<bool> {
        if (begin | end) >> TXN_SHIFT == 0 {
            return Some(self.has(begin) && !self.has(end));
        }
        (self.sees)(begin, end)
    }
}

impl Ended<'_> {
    /// Words for so many rows.
    pub(crate) fn words(rows: u32) -> usize {
        rows.div_ceil(64) as usize
    }

    /// Which of the 64 rows from a multiple of 64 on may have an end stamp.
    fn word(self, base: u32) -> u64 {
        let word = self.0.get(base as usize / 64);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn has(self, row: u32) -> bool {
        self.word(row) >> (row % 64) & 1 == 1
    }

    /// Notes of rows that they have end stamps now, or that they have none. For the holder of
    /// the latch only.
    pub(crate) fn set(self, rows: Range<u32>, have_ends: bool) {
        if self.0.is_empty() {
            return;
        }
        for (base, rows) in words(rows) {
            let (word, mask) = (&self.0[base as usize / 64], all_of(base, &rows));
            match have_ends {
                true => word.fetch_or(mask, Ordering::Release),
                false => word.fetch_and(!mask, Ordering::Release),
            };
        }
    }
}

/// The parts of a range that are of one block each.
fn blocks(rows: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    parts(rows, BLOCK_ROWS)
}

/// The parts of a range that are of one word of bits each, with the row of its first bit.
fn words(rows: Range<u32>) -> impl Iterator<Item = (u32, Range<u32>)> {
    parts(rows, 64).map(|word| (word.start & !63, word))
}

fn parts(rows: Range<u32>, length: u32) -> impl Iterator<Item = Range<u32>> {
    let mut from = rows.start;
    std::iter::from_fn(move || {
        let part = from..rows.end.min((from / length + 1) * length);
        from = part.end;
        (!part.is_empty()).then_some(part)
    })
}

/// A bit for each of the rows of a word, of which there is one at least.
fn all_of(base: u32, rows: &Range<u32>) -> u64 {
    (u64::MAX >> (64 - rows.len())) << (rows.start - base)
}

/// A bit for each of the rows of a word for which the test is true.
fn mask_of(base: u32, rows: Range<u32>, mut test: impl FnMut(u32) -> bool) -> u64 {
    rows.fold(0, |mask, row| mask | u64::from(test(row)) << (row - base))
}

/// The rows of the bits of a word, ascending.
fn rows_of(base: u32, mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(base + bit)
    })
}
