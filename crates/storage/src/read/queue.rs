//! Which morsels of a scan remain to be read.
//!
//! ```text
//!  entry    0          1          2          3
//!  thread 1 ████───────                      ████──      each has an entry of its own,
//!  thread 2            ████████──                        and when there are no more,
//!  thread 3                       ██████████             helps with one that another has
//! ```
//!
//! Two threads in one entry get in each other's way: what a scan has to know of a segment is made
//! by one while the other waits. So threads share an entry only at the end, where they claim a
//! morsel at a time, and no thread is idle while two morsels remain.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The morsels of all entries.
pub(crate) struct Queue {
    entries: Box<[Entry]>,
    /// No thread has this entry, or one behind it.
    begun: AtomicUsize,
    /// Nothing is left of the entries before.
    done: AtomicUsize,
    total: usize,
}

struct Entry {
    morsels: usize,
    /// May be more than there are.
    claimed: AtomicUsize,
}

/// The place of a thread in the queue: the entry that it has.
#[derive(Debug, Default)]
pub(crate) struct QueueSlot(Option<usize>);

/// Morsels of one entry, which are whose claimed them.
pub(crate) struct Claim {
    /// Position of the entry.
    pub(crate) entry: usize,
    /// Never empty.
    pub(crate) morsels: Range<usize>,
}

impl Queue {
    /// So many morsels of each entry.
    pub(crate) fn new(morsels: impl IntoIterator<Item = usize>) -> Self {
        let entry = |morsels| Entry {
            morsels,
            claimed: AtomicUsize::new(0),
        };
        let entries: Box<[Entry]> = morsels.into_iter().map(entry).collect();
        Self {
            total: entries.iter().map(|entry| entry.morsels).sum(),
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            entries,
        }
    }

    /// All morsels, claimed or not.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The next morsels of one entry, at most so many; `None` when nothing is left.
    pub(crate) fn claim(&self, place: &mut QueueSlot, at_once: usize) -> Option<Claim> {
        assert!(at_once > 0, "who claims nothing never comes to the end");
        if let Some(claim) = place.0.and_then(|entry| self.claim_of(entry, at_once)) {
            return Some(claim);
        }
        while let Some(entry) = self.begin() {
            place.0 = Some(entry);
            if let Some(claim) = self.claim_of(entry, at_once) {
                return Some(claim);
            }
        }
        // All entries have a thread; not so those that are in the way of a slow one.
        let mut entry = self.done.load(Ordering::Relaxed);
        while entry < self.entries.len() {
            if let Some(claim) = self.claim_of(entry, 1) {
                place.0 = None;
                return Some(claim);
            }
            entry += 1;
            self.done.fetch_max(entry, Ordering::Relaxed);
        }
        None
    }

    /// An entry that no thread has.
    fn begin(&self) -> Option<usize> {
        let is_left = self.begun.load(Ordering::Relaxed) < self.entries.len();
        let entry = is_left.then(|| self.begun.fetch_add(1, Ordering::Relaxed))?;
        (entry < self.entries.len()).then_some(entry)
    }

    fn claim_of(&self, entry: usize, at_once: usize) -> Option<Claim> {
        let Entry { morsels, claimed } = &self.entries[entry];
        // Keeps the counter from wrapping, however often it is asked.
        if claimed.load(Ordering::Relaxed) >= *morsels {
            return None;
        }
        let first = claimed.fetch_add(at_once, Ordering::Relaxed);
        (first < *morsels).then(|| Claim {
            entry,
            morsels: first..(first + at_once).min(*morsels),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn claims(queue: &Queue, at_once: usize) -> Vec<(usize, Range<usize>)> {
        let mut place = QueueSlot::default();
        let next = || {
            let Claim { entry, morsels } = queue.claim(&mut place, at_once)?;
            Some((entry, morsels))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn one_thread_goes_from_the_first_morsel_to_the_last() {
        let queue = Queue::new([3, 0, 5, 1]);
        assert_eq!(queue.total(), 9);
        let expected = [
            (0, 0..2),
            (0, 2..3),
            (2, 0..2),
            (2, 2..4),
            (2, 4..5),
            (3, 0..1),
        ];
        assert_eq!(claims(&queue, 2), expected);
        assert_eq!(claims(&queue, 2), []);
        assert_eq!(claims(&Queue::new([]), 2), []);
        assert_eq!(claims(&Queue::new([0, 0]), 2), []);
    }

    #[test]
    fn threads_have_entries_of_their_own_and_help_each_other_at_the_end() {
        let queue = Queue::new([4, 4]);
        let (mut slow, mut quick) = (QueueSlot::default(), QueueSlot::default());
        let next = |place: &mut QueueSlot| {
            let claim = queue.claim(place, 2)?;
            Some((claim.entry, claim.morsels))
        };
        assert_eq!(next(&mut slow), Some((0, 0..2)));
        assert_eq!(next(&mut quick), Some((1, 0..2)));
        assert_eq!(next(&mut quick), Some((1, 2..4)));
        assert_eq!(next(&mut quick), Some((0, 2..3)));
        assert_eq!(next(&mut slow), Some((0, 3..4)));
        assert_eq!(next(&mut slow), None);
        assert_eq!(next(&mut quick), None);
    }

    #[test]
    fn each_morsel_is_claimed_once() {
        for threads in 1..=4 {
            let morsels: Vec<usize> = (0..50).map(|entry| entry * 7 % 11).collect();
            let queue = Queue::new(morsels.iter().copied());
            let mut found: Vec<(usize, usize)> = thread::scope(|scope| {
                let tasks: Vec<_> = (0..threads)
                    .map(|_| scope.spawn(|| claims(&queue, 3)))
                    .collect();
                let claimed = tasks.into_iter().flat_map(|task| task.join().unwrap());
                claimed
                    .flat_map(|(entry, morsels)| morsels.map(move |morsel| (entry, morsel)))
                    .collect()
            });
            found.sort_unstable();
            let all = morsels.iter().enumerate();
            let all = all.flat_map(|(entry, &morsels)| (0..morsels).map(move |at| (entry, at)));
            assert!(found.into_iter().eq(all), "{threads} threads");
        }
    }
}
