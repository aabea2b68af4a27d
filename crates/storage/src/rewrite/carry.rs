//! Carrying over the ends that rows have got since they were chosen: to the new segments, first
//! while the unit's writers go on, and then, under its latches, those that have changed since.

use aerostat_segment::BLOCK_ROWS;
use aerostat_txn::{END_NONE, Stamp};

use crate::{
    StorageError, Table,
    rewrite::made::Made,
    store::{directory::Forward, unit::Unit},
};

/// End stamps of rows in made segments, by position among the chosen.
#[derive(Default)]
pub(crate) struct Ends(Vec<(u32, u64)>);

impl Ends {
    /// Stamps the rows of made segments, which nobody else knows, that have ended by now,
    /// whether for good or not, or are locked by somebody; and those that were carried
    /// before and are free again. Final if the caller holds the latches of the unit.
    ///
    /// # Errors
    /// Lack of memory.
    pub(crate) fn carry(
        &mut self,
        table: &Table,
        unit: &Unit,
        positions: &[Vec<u32>],
        made: &[Made],
    ) -> Result<(), StorageError> {
        assert_eq!(
            unit.entries.len(),
            positions.len(),
            "each segment's rows have positions"
        );
        let now = ended_now(table, unit, positions);
        let changed = changes(&self.0, &now);
        self.0 = now;
        let mut rest = &changed[..];
        for made in made {
            let (own, others) = rest.split_at(rest.partition_point(|(at, _)| made.has(*at)));
            rest = others;
            if own.is_empty() {
                continue;
            }
            let row_of = |position: u32| position - made.rows.start as u32;
            let blocks = own.chunk_by(|a, b| row_of(a.0) / BLOCK_ROWS == row_of(b.0) / BLOCK_ROWS);
            let mut latch = made.entry.latch();
            latch.reserve_stamps(blocks.count())?;
            for &(position, end) in own {
                latch.writer.set_end(row_of(position), end);
            }
            latch.settle_reservation()?;
            // An end that stands for good is never carried again.
            let dead = own.iter().filter(|(_, end)| Stamp::has_ended(*end));
            made.entry.add_dead(dead.count() as u32);
        }
        assert!(
            rest.is_empty(),
            "{} ends are of rows that no segment has",
            rest.len()
        );
        Ok(())
    }
}

/// The positions of chosen rows that have ended, for good or not, or that somebody has locked,
/// and their end stamps, by position.
fn ended_now(table: &Table, unit: &Unit, positions: &[Vec<u32>]) -> Vec<(u32, u64)> {
    let locks = table.store().txns().row_locks();
    let stands = |end: u64| match Stamp::of(end) {
        Stamp::Locked(set) => locks.is_held(set),
        _ => true,
    };
    let mut ended = Vec::new();
    for (entry, positions) in unit.entries.iter().zip(positions) {
        let rows = 0..positions.len() as u32;
        entry.segment().each_end(rows, &mut |row, end| {
            let position = positions[row as usize];
            if position != Forward::DROPPED && stands(end) {
                ended.push((position, end));
            }
        });
    }
    ended.sort_unstable();
    ended
}

/// What makes the one list the other: both by position, as is what is given.
fn changes(before: &[(u32, u64)], now: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut changes = Vec::new();
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    loop {
        match (before.peek(), now.peek()) {
            (None, None) => return changes,
            (Some(&&(old, _)), next) if next.is_none_or(|(new, _)| old < *new) => {
                changes.push((old, END_NONE));
                before.next();
            }
            (Some(&old), Some(&new)) if old.0 == new.0 => {
                if old != new {
                    changes.push(*new);
                }
                before.next();
                now.next();
            }
            (_, Some(&new)) => {
                changes.push(*new);
                now.next();
            }
            (Some(_), None) => unreachable!("the first case takes what is left of it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_make_one_list_the_other() {
        let before = [(1, 10), (3, 30), (4, 40), (9, 90)];
        let now = [(2, 20), (3, 31), (4, 40), (7, 70)];
        let expected = vec![(1, END_NONE), (2, 20), (3, 31), (7, 70), (9, END_NONE)];
        assert_eq!(changes(&before, &now), expected);
        assert_eq!(changes(&before, &before), vec![]);
        assert_eq!(changes(&[], &now), now.to_vec());
        assert_eq!(changes(&before[3..], &[]), vec![(9, END_NONE)]);
    }
}
