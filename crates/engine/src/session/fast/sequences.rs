//! Numbers that statements of the fast path take of sequences.

use std::{fmt, sync::Arc};

use aerostat_catalog::{
    SequenceEntry,
    sequence::{Before, Position, Taken},
};
use aerostat_fast::Numbers;
use aerostat_types::RelationId;
use parking_lot::Mutex;

/// The sequences of a program, and where the session notes what it takes of them.
pub(super) struct Sequences {
    pub(super) entries: Vec<Arc<SequenceEntry>>,
    pub(super) taken: Arc<Mutex<Taken>>,
}

/// The numbers that a statement takes, whose attempts take the same. If the statement turns out to be
/// the planner's, they are given back, so that the planner's way takes them and no others.
pub(super) struct Drawing {
    pub(super) sequences: Arc<Sequences>,
    pub(super) drawn: Mutex<Drawn>,
}

#[derive(Default)]
pub(super) struct Drawn {
    /// In the order of the program.
    numbers: Vec<DrawnNumber>,
    /// How many of them the attempt at hand has had.
    used: usize,
}

/// A number, and what was there before it was taken.
struct DrawnNumber {
    sequence: RelationId,
    number: i64,
    stood: Position,
    known: Before,
}

impl Drawing {
    /// Gives all numbers back, the last one first.
    pub(super) fn give_back(&self) {
        let mut drawn = self.drawn.lock();
        let mut taken = self.sequences.taken.lock();
        for one in drawn.numbers.drain(..).rev() {
            let mut entries = self.sequences.entries.iter();
            if let Some(entry) = entries.find(|entry| entry.oid == one.sequence) {
                entry.counter.give_back(one.number, one.stood);
                taken.undo(one.sequence, one.known);
            }
        }
        drawn.used = 0;
    }
}

impl fmt::Debug for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.sequences.entries.iter().map(|entry| &entry.name);
        f.debug_list().entries(names).finish()
    }
}

impl Numbers for Drawing {
    fn next(&self, sequence: RelationId) -> Option<i64> {
        let mut drawn = self.drawn.lock();
        let number = match drawn.numbers.get(drawn.used) {
            Some(one) if one.sequence == sequence => one.number,
            _ => {
                let mut entries = self.sequences.entries.iter();
                let entry = entries.find(|entry| entry.oid == sequence)?;
                let (number, stood) = entry.counter.next_at_hand(&entry.definition)?;
                let mut taken = self.sequences.taken.lock();
                let known = taken.before(sequence);
                taken.note(sequence, number);
                let used = drawn.used;
                drawn.numbers.truncate(used);
                drawn.numbers.push(DrawnNumber {
                    sequence,
                    number,
                    stood,
                    known,
                });
                number
            }
        };
        drawn.used += 1;
        Some(number)
    }

    fn again(&self) {
        self.drawn.lock().used = 0;
    }
}
