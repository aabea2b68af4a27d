//! What is seldom there, and looked for with every statement: looking costs a load, and no lock.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// A value under a lock that is mostly as it was made.
#[derive(Debug, Default)]
pub(crate) struct Seldom<T> {
    /// Whether it may be something else.
    is_touched: AtomicBool,
    value: Mutex<T>,
}

impl<T: Default> Seldom<T> {
    /// The value, to change it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let value = self.value.lock();
        self.is_touched.store(true, Ordering::Release);
        value
    }

    /// The value, unless it is as it was made.
    pub(crate) fn touched(&self) -> Option<MutexGuard<'_, T>> {
        self.is_touched
            .load(Ordering::Acquire)
            .then(|| self.value.lock())
    }

    /// The value, which is as it was made from then on.
    pub(crate) fn take(&self) -> T {
        let Some(mut value) = self.touched() else {
            return T::default();
        };
        // Under the lock: what is put in after it is touched again.
        self.is_touched.store(false, Ordering::Release);
        std::mem::take(&mut value)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn what_was_not_touched_is_not_locked() {
        let seldom = Seldom::<Vec<u8>>::default();
        assert!(seldom.touched().is_none() && seldom.take().is_empty());
        seldom.lock().push(1);
        assert_eq!(*seldom.touched().unwrap(), [1]);
        assert_eq!(seldom.take(), [1]);
        assert!(seldom.touched().is_none());
    }

    #[test]
    fn nothing_put_in_is_missed() {
        const EACH: usize = 10_000;
        let seldom = Arc::new(Seldom::<Vec<usize>>::default());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let seldom = Arc::clone(&seldom);
                thread::spawn(move || (0..EACH).for_each(|n| seldom.lock().push(n)))
            })
            .collect();
        let mut taken = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            taken += seldom.take().len();
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        assert_eq!(taken + seldom.take().len(), 2 * EACH);
    }
}
