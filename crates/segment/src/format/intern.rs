//! Variable slots, and the writer's memory of long values that it has stored recently.
//!
//! ```text
//!           byte 0   1        2        3        4        5        6        7
//! short   ┌────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┐
//!         │ 0 … 7  │ value, zero-padded                                           │
//!         └────────┴────────┴────────┴────────┴────────┴────────┴────────┴────────┘
//! long    ┌────────┬──────────────────────────┬───────────────────────────────────┐
//!         │ 0xFF   │ length, 24 bits          │ offset in the heap, 32 bits       │
//!         └────────┴──────────────────────────┴───────────────────────────────────┘
//! ```
//!
//! A short value has exactly one slot form, so short values are equal if and only if their slots
//! are. Long values have eight bytes or more.

use aerostat_types::VALUE_BYTES_MAX;

use crate::kernel::hash::{hash_bytes, load_short};

/// The longest value that fits its slot.
pub(crate) const INLINE_BYTES_MAX: usize = 7;

const TAG_LONG: u64 = 0xFF;

/// The slot of a value of at most [`INLINE_BYTES_MAX`] bytes.
pub(crate) fn short_slot(value: &[u8]) -> u64 {
    debug_assert!(value.len() <= INLINE_BYTES_MAX);
    load_short(value) << 8 | value.len() as u64
}

fn long_slot(bytes: usize, offset: usize) -> u64 {
    debug_assert!(
        (INLINE_BYTES_MAX + 1..=VALUE_BYTES_MAX).contains(&bytes) && offset <= u32::MAX as usize
    );
    (offset as u64) << 32 | (bytes as u64) << 8 | TAG_LONG
}

/// A slot, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotForm {
    /// The value's length and its bytes, little-endian.
    Short { len: usize, bytes: u64 },
    /// The value's length and where it starts in the heap.
    Long { len: usize, offset: usize },
}

impl SlotForm {
    /// Takes any number apart; whether it is a valid slot is for [`is_valid`] to say.
    pub(crate) fn of(slot: u64) -> SlotForm {
        if slot & 0xFF == TAG_LONG {
            SlotForm::Long {
                len: (slot as u32 >> 8) as usize,
                offset: (slot >> 32) as usize,
            }
        } else {
            SlotForm::Short {
                len: (slot & 0x7) as usize,
                bytes: slot >> 8,
            }
        }
    }
}

/// Whether a slot found in foreign bytes is one that a writer could have made.
pub(crate) fn is_valid(slot: u64, heap_bytes: usize) -> bool {
    match SlotForm::of(slot) {
        SlotForm::Long { len, offset } => len > INLINE_BYTES_MAX && offset + len <= heap_bytes,
        SlotForm::Short { len, bytes } => {
            slot & 0xFF <= INLINE_BYTES_MAX as u64 && bytes >> (8 * len) == 0
        }
    }
}

/// Calls `f` with the bytes of a slot's value.
pub(crate) fn with_value<R>(slot: u64, heap: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
    match SlotForm::of(slot) {
        SlotForm::Short { len, bytes } => f(&bytes.to_le_bytes()[..len]),
        SlotForm::Long { len, offset } => f(&heap[offset..offset + len]),
    }
}

/// Entries for a full-size heap. 8,192 × 8 bytes stay in L2 and hold the
/// dictionaries of the usual star schema (1,000 brands, 250 cities, 25 nations)
/// with few collisions.
const ENTRIES_MAX: usize = 8192;

/// A direct-mapped cache from a long value's hash to its slot. It lives in the
/// writer's memory, never in the arena, and forgetting costs heap bytes only.
pub(crate) struct Interned {
    /// Empty until the first long value; 0 = no entry (a long slot is never 0).
    slots: Vec<u64>,
    entries: usize,
}

impl Interned {
    /// A cache for a heap of this size: one entry for 64 bytes of heap, so that a small
    /// table's cache is small.
    pub(crate) fn new(heap_bytes: usize) -> Interned {
        Interned {
            slots: Vec::new(),
            entries: (heap_bytes / 64).next_power_of_two().clamp(16, ENTRIES_MAX),
        }
    }

    pub(crate) fn get(&self, value: &[u8], heap: &[u8]) -> Option<u64> {
        let slot = *self.slots.get(self.position(value))?;
        let SlotForm::Long { len, offset } = SlotForm::of(slot) else {
            return None;
        };
        (len == value.len() && heap.get(offset..offset + len)? == value).then_some(slot)
    }

    /// Remembers a value stored at `offset`; gives its slot.
    pub(crate) fn put(&mut self, value: &[u8], offset: usize) -> u64 {
        if self.slots.is_empty() {
            self.slots.resize(self.entries, 0);
        }
        let slot = long_slot(value.len(), offset);
        let at = self.position(value);
        self.slots[at] = slot;
        slot
    }

    pub(crate) fn clear(&mut self) {
        self.slots = Vec::new();
    }

    fn position(&self, value: &[u8]) -> usize {
        (hash_bytes(value) >> 32) as usize & (self.entries - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_come_apart_as_they_were_made() {
        for len in 0..=INLINE_BYTES_MAX {
            let value = &b"\xFF\0abcde"[..len];
            let slot = short_slot(value);
            assert!(is_valid(slot, 0));
            with_value(slot, &[], |bytes| assert_eq!(bytes, value));
        }
        let heap = b"..a long value..";
        let slot = long_slot(12, 2);
        with_value(slot, heap, |bytes| assert_eq!(bytes, b"a long value"));
        assert!(is_valid(slot, 14) && !is_valid(slot, 13));
    }

    #[test]
    fn foreign_slots_are_refused() {
        // Length 8 to 254 in byte 0; padding that is not zero; a long value that would be short.
        for slot in [
            0x08,
            0xFE,
            short_slot(b"a") | 1 << 16,
            long_slot(8, 0) - (1 << 8),
        ] {
            assert!(!is_valid(slot, 1 << 20), "{slot:#x}");
        }
    }
}
