//! Numbers that statements of the fast path take of sequences.

use std::{fmt, sync::Arc};

use aerostat_fast::Numbers;
use parking_lot::Mutex;

use crate::{catalog::SequenceEntry, sequence::Taken};

/// The sequences of a program, and where the session notes what it takes of them.
pub(super) struct Sequences {
    pub(super) entries: Vec<Arc<SequenceEntry>>,
    pub(super) taken: Arc<Mutex<Taken>>,
}

/// The numbers that a statement takes, whose attempts take the same.
pub(super) struct Drawing {
    pub(super) sequences: Arc<Sequences>,
    pub(super) drawn: Mutex<Drawn>,
}

#[derive(Default)]
pub(super) struct Drawn {
    /// Sequences and their numbers, in the order of the program.
    numbers: Vec<(u32, i64)>,
    /// How many of them the attempt at hand has had.
    used: usize,
}

impl fmt::Debug for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.sequences.entries.iter().map(|entry| &entry.name);
        f.debug_list().entries(names).finish()
    }
}

impl Numbers for Drawing {
    fn next(&self, sequence: u32) -> Option<i64> {
        let mut drawn = self.drawn.lock();
        let number = match drawn.numbers.get(drawn.used) {
            Some(&(of, number)) if of == sequence => number,
            _ => {
                let mut entries = self.sequences.entries.iter();
                let entry = entries.find(|entry| entry.oid == sequence)?;
                let number = entry.counter.next_at_hand(&entry.definition)?;
                self.sequences.taken.lock().note(sequence, number);
                let used = drawn.used;
                drawn.numbers.truncate(used);
                drawn.numbers.push((sequence, number));
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
