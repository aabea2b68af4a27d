//! Which values leave memory first: S3-FIFO (Yang et al., SOSP 2023), by bytes.
//!
//! ```text
//!  new ──► small ──used once at most──► gone, and a ghost for a while
//!            │ used again                                │
//!            ▼                                           │ wanted again soon
//!          main ◄────────────────────────────────────────┘
//!            └──► not used since it came by last: gone
//! ```
//!
//! What a scan reads once passes through the small queue, a tenth of all bytes, and takes nothing
//! from what is read again and again. The queues have keys and sizes alone: how often a key was
//! used is the caller's to count, without a lock, and so is whether it is a ghost.

use std::collections::VecDeque;

/// The share of all bytes that the small queue has, as a divisor.
const SMALL_SHARE: u64 = 10;

/// How often a key was used since it was asked last, up to [`USES_MAX`].
pub(crate) trait Uses<K> {
    /// `None` of a key that is gone for good.
    fn get(&self, key: &K) -> Option<u8>;
    /// Sets it.
    fn set(&self, key: &K, uses: u8);
}

/// More uses are not counted.
pub(crate) const USES_MAX: u8 = 3;

/// Below this number of keys none is looked for that is gone.
const PRUNED_FROM: usize = 64;

/// In the small queue, so many uses are needed to stay.
const USES_TO_STAY: u8 = 2;

/// The keys whose values are in memory, each once.
pub(crate) struct S3Fifo<K> {
    small: Queue<K>,
    main: Queue<K>,
    /// How many keys there were when those that are gone were taken out.
    pruned_to: usize,
}

struct Queue<K> {
    keys: VecDeque<(K, u64)>,
    bytes: u64,
}

impl<K> Default for S3Fifo<K> {
    fn default() -> Self {
        Self {
            small: Queue::default(),
            main: Queue::default(),
            pruned_to: 0,
        }
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            keys: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<K> Queue<K> {
    fn push(&mut self, key: K, bytes: u64) {
        self.keys.push_back((key, bytes));
        self.bytes += bytes;
    }

    fn pop(&mut self) -> Option<(K, u64)> {
        let (key, bytes) = self.keys.pop_front()?;
        self.bytes -= bytes;
        Some((key, bytes))
    }
}

impl<K> S3Fifo<K> {
    /// Adds a key that is in neither queue.
    pub(crate) fn admit(&mut self, key: K, bytes: u64, was_ghost: bool) {
        match was_ghost {
            true => self.main.push(key, bytes),
            false => self.small.push(key, bytes),
        }
    }

    /// How many keys there are.
    fn len(&self) -> usize {
        self.small.keys.len() + self.main.keys.len()
    }

    /// Takes out the keys that are gone for good, once there are twice as many keys as were left the
    /// last time: where memory is never short, nobody else comes to them.
    pub(crate) fn prune(&mut self, uses: &dyn Uses<K>) {
        if self.len() < PRUNED_FROM.max(2 * self.pruned_to) {
            return;
        }
        for queue in [&mut self.small, &mut self.main] {
            queue.keys.retain(|(key, _)| uses.get(key).is_some());
            queue.bytes = queue.keys.iter().map(|(_, bytes)| bytes).sum();
        }
        self.pruned_to = self.len();
    }

    /// Bytes of all keys.
    pub(crate) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Takes the key out that is to go next, with its bytes.
    pub(crate) fn next(&mut self, uses: &dyn Uses<K>) -> Option<(K, u64)> {
        loop {
            let from_small = self.small.bytes > self.bytes() / SMALL_SHARE;
            if let Some((key, bytes)) = from_small.then(|| self.small.pop()).flatten() {
                match uses.get(&key) {
                    None => {}
                    Some(USES_TO_STAY..) => {
                        uses.set(&key, 0);
                        self.main.push(key, bytes);
                    }
                    Some(_) => return Some((key, bytes)),
                }
                continue;
            }
            let Some((key, bytes)) = self.main.pop() else {
                // What is left is in the small queue, and no more than its share.
                let (key, bytes) = self.small.pop()?;
                match uses.get(&key) {
                    None => continue,
                    Some(_) => return Some((key, bytes)),
                }
            };
            match uses.get(&key) {
                None => {}
                Some(0) => return Some((key, bytes)),
                // Each round takes one, so there is an end.
                Some(count) => {
                    uses.set(&key, count - 1);
                    self.main.push(key, bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::HashMap};

    use super::*;

    #[derive(Default)]
    struct Counted(RefCell<HashMap<u32, u8>>);

    impl Counted {
        fn use_it(&self, key: u32) {
            let mut uses = self.0.borrow_mut();
            let count = uses.entry(key).or_default();
            *count = USES_MAX.min(*count + 1);
        }
    }

    impl Uses<u32> for Counted {
        fn get(&self, key: &u32) -> Option<u8> {
            // Keys from 1,000 on are gone.
            (*key < 1_000).then(|| self.0.borrow().get(key).copied().unwrap_or(0))
        }

        fn set(&self, key: &u32, uses: u8) {
            self.0.borrow_mut().insert(*key, uses);
        }
    }

    #[test]
    fn what_was_not_used_goes_in_the_order_in_which_it_came() {
        let (mut queues, uses) = (S3Fifo::default(), Counted::default());
        (0..5).for_each(|key| queues.admit(key, 10, false));
        queues.admit(1_000, 10, false);
        let order: Vec<_> = std::iter::from_fn(|| queues.next(&uses)).collect();
        assert_eq!(order, [(0, 10), (1, 10), (2, 10), (3, 10), (4, 10)]);
        assert_eq!(queues.bytes(), 0);
    }

    #[test]
    fn a_scan_takes_nothing_from_what_is_used_again_and_again() {
        let (mut queues, uses) = (S3Fifo::default(), Counted::default());
        // Twenty that points read, among a hundred.
        (0..100).for_each(|key| queues.admit(key, 1, false));
        let points = |key: u32| key.is_multiple_of(5);
        (0..3).for_each(|_| {
            (0..100)
                .filter(|key| points(*key))
                .for_each(|key| uses.use_it(key))
        });
        let mut scanned = 100;
        let mut gone = Vec::new();
        while gone.len() < 500 {
            let (key, bytes) = queues.next(&uses).unwrap();
            gone.push(key);
            queues.admit(scanned, bytes, false);
            uses.use_it(scanned);
            scanned += 1;
            (0..100)
                .filter(|key| points(*key))
                .for_each(|key| uses.use_it(key));
        }
        assert!(!gone.iter().any(|key| *key < 100 && points(*key)));
        assert_eq!(queues.bytes(), 100);
    }

    #[test]
    fn a_ghost_stays_longer_than_what_is_new() {
        let (mut queues, uses) = (S3Fifo::default(), Counted::default());
        queues.admit(1, 10, true);
        (2..6).for_each(|key| queues.admit(key, 10, false));
        let order: Vec<_> = std::iter::from_fn(|| queues.next(&uses))
            .map(|(key, _)| key)
            .collect();
        assert_eq!(order, [2, 3, 4, 5, 1]);
    }

    #[test]
    fn keys_that_are_gone_are_taken_out() {
        let (mut queues, uses) = (S3Fifo::default(), Counted::default());
        for key in 0..10_000 {
            queues.admit(key, 10, key % 2 == 0);
            queues.prune(&uses);
            assert!(queues.len() <= 2_000, "{key}");
        }
        assert!(queues.bytes() < 20_000);
        let left: Vec<_> = std::iter::from_fn(|| queues.next(&uses)).collect();
        assert_eq!(left.len(), 1_000);
    }
}
