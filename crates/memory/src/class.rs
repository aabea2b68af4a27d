//! What memory is used for: the classes in which a budget counts its bytes.
//!
//! A reservation is of one class for as long as it lasts. Classes partition what is reserved, so
//! their sum is [`crate::Budget::used`] whenever nobody reserves or gives back at that moment.

use std::sync::atomic::{AtomicU64, Ordering};

/// What reserved memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryClass {
    /// Arenas of hot segments: rows, their indexes and stamps.
    Hot,
    /// Arenas of frozen segments: encoded values, indexes, stamps of rows that have ended.
    Frozen,
    /// What a rewrite of segments needs beside the segments while it lasts.
    Rewrites,
    /// Redo that waits for its commit.
    Log,
    /// What operators and functions of running statements hold.
    Queries,
    /// Lookup tables of star joins.
    Lookups,
    /// Plans that are kept for the next statement of their shape.
    CachedPlans,
    /// What sessions keep, and rows on their way to clients.
    Sessions,
}

impl MemoryClass {
    /// All of them, in the order of their declaration.
    pub const ALL: [MemoryClass; 8] = [
        MemoryClass::Hot,
        MemoryClass::Frozen,
        MemoryClass::Rewrites,
        MemoryClass::Log,
        MemoryClass::Queries,
        MemoryClass::Lookups,
        MemoryClass::CachedPlans,
        MemoryClass::Sessions,
    ];

    /// Whether its bytes are in arenas, which are mapped; the others are on the heap.
    pub fn is_mapped(self) -> bool {
        matches!(self, MemoryClass::Hot | MemoryClass::Frozen)
    }
}

/// Bytes of each class.
#[derive(Debug, Default)]
pub(crate) struct ByClass([AtomicU64; MemoryClass::ALL.len()]);

impl ByClass {
    pub(crate) fn get(&self, class: MemoryClass) -> u64 {
        self.0[class as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, class: MemoryClass, bytes: u64) {
        self.0[class as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes off, which were added before.
    pub(crate) fn subtract(&self, class: MemoryClass, bytes: u64) {
        let before = self.0[class as usize].fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            before >= bytes,
            "{bytes} bytes of {class:?} given back, {before} were taken"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_place() {
        for (at, class) in MemoryClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at);
        }
    }
}
