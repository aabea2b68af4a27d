//! A list of what somebody has: the tables of a tenant, durable, temporary or being made.
//!
//! The registry of a durable tenant says what the log knows. This list has every table whose
//! segments may take memory, for whoever asks where the memory is.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Below this length the list is not searched for values that are gone.
const PRUNED_FROM: usize = 64;

/// Weak references to values, each once.
pub(crate) struct Living<T>(Mutex<List<T>>);

struct List<T> {
    values: Vec<Weak<T>>,
    /// How many there were when those that are gone were taken out.
    pruned_to: usize,
}

impl<T> Default for Living<T> {
    fn default() -> Self {
        Self(Mutex::new(List {
            values: Vec::new(),
            pruned_to: 0,
        }))
    }
}

impl<T> Living<T> {
    /// Adds a value that is not in the list.
    pub(crate) fn add(&self, value: &Arc<T>) {
        let mut list = self.0.lock();
        if list.values.len() >= PRUNED_FROM.max(2 * list.pruned_to) {
            list.values.retain(|value| value.strong_count() > 0);
            list.pruned_to = list.values.len();
        }
        list.values.push(Arc::downgrade(value));
    }

    /// The values that somebody has now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let list = self.0.lock();
        list.values.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_somebody_has_and_does_not_grow_without_end() {
        let living = Living::default();
        let kept: Vec<_> = (0..10).map(Arc::new).collect();
        kept.iter().for_each(|value| living.add(value));
        (10..10_000).for_each(|number| living.add(&Arc::new(number)));
        let all: Vec<i32> = living.all().iter().map(|value| **value).collect();
        assert_eq!(all, Vec::from_iter(0..10));
        assert!(living.0.lock().values.len() <= PRUNED_FROM);
    }
}
