//! Memory: who may use how much ([`Governor`], [`Budget`], [`Reservation`]), what for
//! ([`MemoryClass`]), where it comes from
//! ([`ArenaSource`], [`Mapping`]), what threads take from the heap ([`Counted`]), when the heap
//! gives free memory back ([`trim_heap`]), and how much memory there is
//! ([`machine_memory_bytes`]).
//!
//! Accounting and mapping are separate: an arena is charged for what it touches, not for the
//! address space it reserves, and only its owner knows what it touches. Nothing here knows SQL,
//! or what is in an arena.
//!
//! Unsafe code is in `arena`, the calls to `mmap`, `madvise` and `munmap`, and in `count` and
//! `heap`, calls of the allocator.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod arena;
mod budget;
mod class;
mod count;
mod divide;
mod governor;
mod heap;
mod machine;

pub use aerostat_types::OutOfMemory;
pub use arena::{ArenaSource, Mapping, MemoryError, give_up_lines};
pub use budget::{Budget, Overdraft, Reclaim, Reservation};
pub use class::MemoryClass;
pub use count::{Counted, heap_bytes, thread_heap_bytes};
pub use governor::Governor;
pub use heap::{
    HeapKeeper, leave_purging_to_others, purge_heap, release_heap_if_asked, trim_heap,
    trim_heap_if_asked,
};
pub use machine::{PageFacts, ResidentParts, machine_memory_bytes, page_bytes, resident_bytes};
