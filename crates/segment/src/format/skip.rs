//! The ordered index of a hot segment: a skip list (Pugh, CACM 1990) of row numbers.
//!
//! ```text
//!  heads    ──────────────────────────────► 9 ───────────►│   level 2, a link per 16 rows
//!           ──────────► 4 ────────────────► 9 ───────────►│   level 1, a link per 4 rows
//!           ──► 7 ──► 2 ──► 4 ──► 0 ──► 6 ► 9 ──► 3 … ───►│   level 0, a link per row
//! ```
//!
//! Of each four rows with neighbouring numbers one is on level 1, of each four of these one on
//! level 2, and so on; a hash of their common number chooses which. A level's links are therefore
//! adjacent, a row's link at its number divided by 4^level: a link and a third per row in all,
//! and neither heights nor offsets are stored.
//!
//! A cell is a row number + 1; 0 in a link is the end, and as a position it is the head.
//!
//! A row's own links are set before any link leads to it, level 0 first. A reader that reaches an
//! unpublished row does not look at its values but continues to the next.

use aerostat_sync::{AtomicU32, Ordering};

use crate::ROWS_MAX;

/// Levels of the largest list: the topmost has one row.
const LEVELS_MAX: usize = 12;
const _: () = assert!((ROWS_MAX as usize) < 1 << (2 * (LEVELS_MAX - 1)));

/// Cells of the heads, a cache line.
const HEAD_CELLS: usize = 16;

/// Cells for so many rows.
pub(crate) fn cells(capacity: u32) -> usize {
    HEAD_CELLS
        + (0..LEVELS_MAX)
            .map(|level| links(capacity, level))
            .sum::<usize>()
}

/// Links of a level.
fn links(capacity: u32, level: usize) -> usize {
    (capacity as usize).div_ceil(1 << (2 * level))
}

/// The pieces of an index that so many rows have touched, as offsets and lengths in cells.
pub(crate) fn touched(capacity: u32, rows: u32) -> impl Iterator<Item = (usize, usize)> {
    let mut first = HEAD_CELLS;
    let levels = (0..LEVELS_MAX).map(move |level| {
        let own = first;
        first += links(capacity, level);
        (own, links(rows, level))
    });
    std::iter::once((0, HEAD_CELLS)).chain(levels)
}

/// How many levels a row is on.
fn height(row: u32) -> usize {
    let is_on = |level: &usize| {
        let (own, common) = (row >> (2 * (level - 1)), row >> (2 * level));
        own & 3 == pick(common, *level)
    };
    1 + (1..LEVELS_MAX).take_while(is_on).count()
}

/// Which of four neighbours goes up to a level.
fn pick(common: u32, level: usize) -> u32 {
    let mixed = (u64::from(common) << 4 | level as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 62) as u32
}

/// The list of one index.
#[derive(Clone, Copy)]
pub(crate) struct SkipList<'a> {
    cells: &'a [AtomicU32],
    /// Where the links of each level begin.
    starts: [usize; LEVELS_MAX],
}

impl<'a> SkipList<'a> {
    /// The list in cells that are as many as [`cells`] says for the capacity.
    pub(crate) fn new(cells: &'a [AtomicU32], capacity: u32) -> SkipList<'a> {
        let mut starts = [HEAD_CELLS; LEVELS_MAX];
        for level in 1..LEVELS_MAX {
            starts[level] = starts[level - 1] + links(capacity, level - 1);
        }
        SkipList { cells, starts }
    }

    /// The link from a place.
    fn link(&self, place: u32, level: usize) -> &'a AtomicU32 {
        match place.checked_sub(1) {
            None => &self.cells[level],
            Some(row) => &self.cells[self.starts[level] + (row >> (2 * level)) as usize],
        }
    }

    fn next(&self, place: u32, level: usize) -> u32 {
        self.link(place, level).load(Ordering::Acquire)
    }

    /// The next place whose row is below `rows`.
    fn next_published(&self, place: u32, level: usize, rows: u32) -> u32 {
        let mut next = self.next(place, level);
        while next > rows {
            next = self.next(next, level);
        }
        next
    }

    /// The place of the first row below `rows` of which `is_before` is false; 0 if there is
    /// none. It is true of all rows up to some place in the order, and false beyond.
    pub(crate) fn seek(&self, rows: u32, is_before: &dyn Fn(u32) -> bool) -> u32 {
        let mut place = 0;
        for level in (0..LEVELS_MAX).rev() {
            loop {
                let next = self.next_published(place, level, rows);
                if next == 0 || !is_before(next - 1) {
                    break;
                }
                place = next;
            }
        }
        self.next_published(place, 0, rows)
    }

    /// The rows below `rows` from a place on, in order.
    pub(crate) fn rows_from(self, place: u32, rows: u32) -> impl Iterator<Item = u32> + 'a {
        let first = (place > 0).then_some(place);
        std::iter::successors(first, move |&place| {
            Some(self.next_published(place, 0, rows)).filter(|next| *next > 0)
        })
        .map(|place| place - 1)
    }

    /// Whether every row is on level 0 once, and each level has a part of the rows of the
    /// one below in the same order.
    pub(crate) fn is_sound(&self, rows: u32) -> bool {
        let mut positions = vec![0u32; rows as usize];
        for level in 0..LEVELS_MAX {
            let (mut place, mut count, mut last) = (self.next(0, level), 0, 0);
            while let Some(row) = place.checked_sub(1) {
                count += 1;
                let Some(position) = positions.get_mut(row as usize) else {
                    return false;
                };
                if level == 0 {
                    if *position != 0 {
                        return false;
                    }
                    *position = count;
                } else if height(row) <= level || *position <= last {
                    return false;
                }
                last = *position;
                place = self.next(place, level);
            }
            if level == 0 && count != rows {
                return false;
            }
        }
        true
    }
}

/// Enters rows in ascending order.
pub(crate) struct Inserter<'a> {
    list: SkipList<'a>,
    /// On each level the last place before or at the row that was entered last.
    path: [u32; LEVELS_MAX],
}

impl<'a> Inserter<'a> {
    pub(crate) fn of(list: SkipList<'a>) -> Inserter<'a> {
        Inserter {
            list,
            path: [0; LEVELS_MAX],
        }
    }

    /// Enters a row, not before the one entered last. `is_before` says of rows in the list
    /// whether they stay before it. For the holder of the latch only.
    pub(crate) fn insert(&mut self, row: u32, is_before: &dyn Fn(u32) -> bool) {
        let is_passed = |place: u32, level| {
            let next = self.list.next(place, level);
            next > 0 && is_before(next - 1)
        };
        // Up as far as the way on that level passes a row; above that the path still holds.
        let mut level = 0;
        while level + 1 < LEVELS_MAX && is_passed(self.path[level], level) {
            level += 1;
        }
        let mut place = self.path[level];
        let mut has_moved = false;
        for level in (0..=level).rev() {
            // Who has moved is beyond the row entered last, and so beyond all of the path.
            if !has_moved {
                place = self.path[level];
            }
            while is_passed(place, level) {
                place = self.list.next(place, level);
                has_moved = true;
            }
            self.path[level] = place;
        }
        for level in 0..height(row) {
            let before = self.list.link(self.path[level], level);
            let next = before.load(Ordering::Relaxed);
            self.list
                .link(row + 1, level)
                .store(next, Ordering::Release);
            before.store(row + 1, Ordering::Release);
            self.path[level] = row + 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Enters rows with these keys, `batch` at a time, and gives the list's cells.
    fn filled(keys: &[u32], batch: usize) -> Vec<AtomicU32> {
        let capacity = keys.len() as u32;
        let cells: Vec<AtomicU32> = (0..cells(capacity)).map(|_| AtomicU32::new(0)).collect();
        for first in (0..keys.len()).step_by(batch) {
            let mut rows: Vec<u32> = (first as u32..keys.len().min(first + batch) as u32).collect();
            rows.sort_by_key(|&row| keys[row as usize]);
            let mut inserter = Inserter::of(SkipList::new(&cells, capacity));
            for row in rows {
                inserter.insert(row, &|other| keys[other as usize] <= keys[row as usize]);
            }
        }
        cells
    }

    #[test]
    fn of_four_neighbours_one_goes_up() {
        for level in 1..5 {
            let on = |row: &u32| height(*row) > level;
            for group in 0..50u32 {
                let rows = group << (2 * level)..(group + 1) << (2 * level);
                assert_eq!(rows.filter(on).count(), 1, "level {level} group {group}");
            }
        }
    }

    #[test]
    fn rows_come_in_order_however_they_were_entered() {
        for batch in [1, 7, 1000] {
            for scatter in [1, 4, 7919, 999_983] {
                let keys: Vec<u32> = (0..1000u32).map(|n| n * scatter % 501).collect();
                let cells = filled(&keys, batch);
                let list = SkipList::new(&cells, 1000);
                assert!(list.is_sound(1000));
                let mut expected: Vec<u32> = (0..1000).collect();
                expected.sort_by_key(|&row| (keys[row as usize], row));
                for from in [0, 1, 250, 501] {
                    let first = list.seek(1000, &|row| keys[row as usize] < from);
                    let found: Vec<u32> = list.rows_from(first, 1000).collect();
                    let rest = expected.partition_point(|&row| keys[row as usize] < from);
                    assert_eq!(found, expected[rest..], "batch {batch} scatter {scatter}");
                }
                // What is not published is passed over.
                let found: Vec<u32> = list.rows_from(list.seek(100, &|_| false), 100).collect();
                expected.retain(|&row| row < 100);
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn a_search_looks_at_few_rows() {
        // Keys that go round in step with the row number, which heights must not.
        for period in [1, 4, 16, 64] {
            let keys: Vec<u32> = (0..65_536u32).map(|n| n % period * 100_000 + n).collect();
            let cells = filled(&keys, 1000);
            let list = SkipList::new(&cells, 65_536);
            let looks = std::cell::Cell::new(0);
            for &wanted in keys.iter().step_by(97) {
                list.seek(65_536, &|row| {
                    looks.set(looks.get() + 1);
                    keys[row as usize] < wanted
                });
            }
            let average = looks.get() / (65_536 / 97);
            assert!(average < 50, "{average} rows with period {period}");
        }
    }

    #[test]
    fn links_that_lead_astray_are_found() {
        let sound = filled(&(0..64).collect::<Vec<u32>>(), 64);
        for at in 0..sound.len() {
            let before = sound[at].load(Ordering::Relaxed);
            for wrong in [before ^ 1, before + 1000, 65] {
                sound[at].store(wrong, Ordering::Relaxed);
                let list = SkipList::new(&sound, 64);
                // Cells beyond those in use, and equal rows, aside.
                if list.is_sound(64) {
                    assert_eq!(list.rows_from(list.next(0, 0), 64).count(), 64);
                }
            }
            sound[at].store(before, Ordering::Relaxed);
        }
    }
}
