//! Words from the system's allocator, whatever this program's own is: so an allocator that was
//! loaded before the program (`LD_PRELOAD`) is the one that is measured.

use std::alloc::{GlobalAlloc, Layout, System, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// A copy of some words in memory from the system's allocator.
pub struct SystemWords {
    at: NonNull<u32>,
    count: usize,
}

// SAFETY: it owns its words alone, and the system's allocator takes memory back from any thread.
unsafe impl Send for SystemWords {}

impl SystemWords {
    /// A copy of `words`. Without memory the program ends, as with any other allocation.
    pub fn copied(words: &[u32]) -> SystemWords {
        let layout = Layout::for_value(words);
        if layout.size() == 0 {
            return SystemWords {
                at: NonNull::dangling(),
                count: 0,
            };
        }
        // SAFETY: the layout is not of zero bytes.
        let at = unsafe { System.alloc(layout) };
        let Some(at) = NonNull::new(at.cast::<u32>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: `at` has room for all the words and is aligned for them, by the layout; it is
        // new, so it does not overlap them.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(words).cast(), words.len()) };
        SystemWords {
            at,
            count: words.len(),
        }
    }
}

impl Deref for SystemWords {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: `copied` wrote `count` words there, which only this value owns; without words
        // a dangling pointer that is aligned will do.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl Drop for SystemWords {
    fn drop(&mut self) {
        let layout = Layout::for_value(&**self);
        if layout.size() != 0 {
            // SAFETY: allocated by `copied` with the layout of as many words, and not yet freed.
            unsafe { System.dealloc(self.at.as_ptr().cast(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_their_own() {
        let mut words = vec![3, 1, 4];
        let copies = [
            SystemWords::copied(&words),
            SystemWords::copied(&words[..0]),
        ];
        words[0] = 9;
        assert_eq!(*copies[0], [3, 1, 4]);
        assert_eq!(*copies[1], []);
        assert!(
            std::thread::spawn(move || copies[0].len())
                .join()
                .is_ok_and(|n| n == 3)
        );
    }
}
