//! The key index: open addressing with linear probing over u32 cells.
//!
//! ```text
//!  31        21 20                    0
//! ┌────────────┬───────────────────────┐
//! │ hash tag   │ row number + 1        │   0 = free
//! └────────────┴───────────────────────┘
//! ```
//!
//! A cell does not contain the key: candidates are compared with the row's own attributes, and
//! the tag rules out 2,047 of 2,048 wrong candidates beforehand. All versions of a key are in the
//! index. Cells are never freed (a segment with many dead rows is rewritten), so readers need no
//! lock: a cell goes from free to taken once, before its row is published.

use std::ops::ControlFlow;

use aerostat_sync::{AtomicU32, Ordering};

use crate::{ROWS_MAX, kernel::hash::hash_bytes};

const ROW_BITS: u32 = 21;
pub(crate) const ROW_MASK: u32 = (1 << ROW_BITS) - 1;
const _: () = assert!(ROWS_MAX < 1 << ROW_BITS);

/// The first cell to look at, from the hash's upper half (a multiplication in place
/// of a division, so that the number of cells need not be a power of two), and the tag
/// from its lower half.
pub(crate) fn start(hash: u64, cells: usize) -> (usize, u32) {
    let first = (((hash >> 32) * cells as u64) >> 32) as usize;
    (first, (hash as u32) << ROW_BITS)
}

/// Enters a row. For the holder of the latch only.
pub(crate) fn insert(cells: &[AtomicU32], key: &[u8], row: u32) {
    let (first, tag) = start(hash_bytes(key), cells.len());
    let (before, from) = cells.split_at(first);
    let free = from
        .iter()
        .chain(before)
        .find(|cell| cell.load(Ordering::Relaxed) == 0)
        .expect("there are more cells than rows, and a row is entered once");
    free.store(tag | (row + 1), Ordering::Release);
}

/// Calls `f` with each row below `rows` that may have the key, in no certain order.
pub(crate) fn candidates(
    cells: &[AtomicU32],
    key: &[u8],
    rows: u32,
    f: &mut dyn FnMut(u32) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if cells.is_empty() {
        return ControlFlow::Continue(());
    }
    let (first, tag) = start(hash_bytes(key), cells.len());
    let (before, from) = cells.split_at(first);
    for cell in from.iter().chain(before) {
        let cell = cell.load(Ordering::Acquire);
        if cell == 0 {
            break;
        }
        // A row that is not published yet belongs to a writer at work.
        let row = (cell & ROW_MASK).wrapping_sub(1);
        if cell & !ROW_MASK == tag && row < rows {
            f(row)?;
        }
    }
    ControlFlow::Continue(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_still_ends_its_probes() {
        let cells: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
        for row in 0..8u32 {
            insert(&cells, &row.to_be_bytes(), row);
        }
        for row in 0..8u32 {
            let mut found = Vec::new();
            let _ = candidates(&cells, &row.to_be_bytes(), 8, &mut |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
            assert!(found.contains(&row));
        }
        let absent = candidates(&cells, b"absent", 0, &mut |_| ControlFlow::Break(()));
        assert_eq!(absent, ControlFlow::Continue(()));
    }
}
