//! The hash index of a hot segment: chains of rows, the newest first.
//!
//! ```text
//!  heads   a cell for each row there is room for     ┌────────────┬───────────────────────┐
//!  links   a cell for each row: the next older row   │ hash tag   │ row number + 1        │
//!          with the same head                        └────────────┴───────────────────────┘
//! ```
//!
//! A cell holds the number of the row it leads to and a tag of its key, as in the key index
//! (`index`), so that few wrong rows are examined. Inserting takes the same time however many
//! rows have the key. Along a chain row numbers descend.

use std::ops::ControlFlow;

use aerostat_sync::{AtomicU32, Ordering};

use crate::{
    format::index::{ROW_MASK, start},
    kernel::hash::hash_bytes,
};

/// Cells for so many rows: as many heads as links, for 1.5 looks at a cell per hit.
pub(crate) fn cells(capacity: u32) -> usize {
    2 * capacity as usize
}

fn parts(cells: &[AtomicU32]) -> (&[AtomicU32], &[AtomicU32]) {
    cells.split_at(cells.len() / 2)
}

/// Enters a row. For the holder of the latch only.
pub(crate) fn insert(cells: &[AtomicU32], key: &[u8], row: u32) {
    let (heads, links) = parts(cells);
    let (head, tag) = start(hash_bytes(key), heads.len());
    links[row as usize].store(heads[head].load(Ordering::Relaxed), Ordering::Release);
    heads[head].store(tag | (row + 1), Ordering::Release);
}

/// Calls `f` with each row below `rows` that may have the key, the newest first.
pub(crate) fn candidates(
    cells: &[AtomicU32],
    key: &[u8],
    rows: u32,
    f: &mut dyn FnMut(u32) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (heads, links) = parts(cells);
    let (head, tag) = start(hash_bytes(key), heads.len());
    let mut cell = heads[head].load(Ordering::Acquire);
    while let Some(row) = (cell & ROW_MASK).checked_sub(1) {
        // A row that is not published yet belongs to a writer at work.
        if cell & !ROW_MASK == tag && row < rows {
            f(row)?;
        }
        cell = links[row as usize].load(Ordering::Acquire);
    }
    ControlFlow::Continue(())
}

/// Whether all cells lead to rows there are, and along every chain these descend.
pub(crate) fn is_sound(cells: &[AtomicU32], rows: u32) -> bool {
    let (heads, links) = parts(cells);
    let leads_below = |cell: &AtomicU32, end: u32| cell.load(Ordering::Relaxed) & ROW_MASK <= end;
    heads.iter().all(|head| leads_below(head, rows))
        && (0..rows)
            .zip(links)
            .all(|(row, link)| leads_below(link, row))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn found(cells: &[AtomicU32], key: &[u8], rows: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let _ = candidates(cells, key, rows, &mut |row| {
            found.push(row);
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn rows_are_found_the_newest_first_as_far_as_published() {
        let cells: Vec<AtomicU32> = (0..cells(8)).map(|_| AtomicU32::new(0)).collect();
        for row in 0..8 {
            insert(&cells, &[(row % 2) as u8], row);
        }
        assert_eq!(found(&cells, &[1], 8), [7, 5, 3, 1]);
        assert_eq!(found(&cells, &[0], 5), [4, 2, 0]);
        assert!(found(&cells, b"absent", 8).is_empty());
        assert!(is_sound(&cells, 8));
        assert!(!is_sound(&cells, 7));
        // A circle.
        cells[8].store(8, Ordering::Relaxed);
        assert!(!is_sound(&cells, 8));
    }
}
