//! Words, cells and plain bytes of an arena as models of threads have them (`scripts/loom`).
//!
//! Loom's atomics are larger than what they stand for, so they lie beside the region: what the
//! arena hands out as words and cells are these. Plain bytes stay where they are; each row and
//! each byte of heap has a watch, which fails the model when somebody reads what another thread
//! may still be writing. Nobody attaches regions in models, but for what a frozen image has
//! written.

use std::{ops::Range, ptr::NonNull};

use aerostat_sync::{AtomicU32, AtomicU64, UnsafeCell};

use crate::format::{header::HEADER_WORDS, plan::Plan};

/// Areas of words, by offset.
pub(crate) struct Words(Vec<(usize, Box<[AtomicU64]>)>);

impl Words {
    /// Areas of so many words at these offsets, with what the region has there.
    ///
    /// # Safety
    /// The areas are in bounds, on multiples of eight, initialised, and the caller's alone.
    pub(crate) unsafe fn at(
        base: NonNull<u8>,
        areas: impl Iterator<Item = (usize, usize)>,
    ) -> Words {
        let area = |(offset, words): (usize, usize)| {
            let word = |at: usize| {
                // SAFETY: the word is in bounds, aligned, initialised and nobody else's (caller).
                AtomicU64::new(unsafe { base.add(offset).cast::<u64>().add(at).read() })
            };
            (offset, (0..words).map(word).collect())
        };
        Words(areas.map(area).collect())
    }

    /// The words of an area.
    pub(crate) fn of(&self, offset: usize) -> &[AtomicU64] {
        let found = self
            .0
            .iter()
            .find(|(at, words)| *at == offset && !words.is_empty());
        found.map_or(&[], |(_, words)| words)
    }
}

/// What a hot arena has beside its region.
pub(crate) struct Modelled {
    pub(crate) words: Words,
    pub(crate) cells: Box<[AtomicU32]>,
    rows: Box<[UnsafeCell<()>]>,
    heap: Box<[UnsafeCell<()>]>,
}

impl Modelled {
    /// Of a zeroed region.
    ///
    /// # Safety
    /// The plan is the region's, which begins at the address and is the caller's alone.
    pub(crate) unsafe fn of(base: NonNull<u8>, plan: &Plan) -> Modelled {
        // The rest of the header's page is for larger directories.
        let header = (0, HEADER_WORDS + plan.areas().len());
        let others = [
            plan.nulls(),
            plan.zones(),
            plan.versions(),
            plan.begins(),
            plan.ends(),
        ];
        let others = others.map(|area| (area.offset(), area.bytes() / 8));
        let watches = |count: usize| (0..count).map(|_| UnsafeCell::new(())).collect();
        Modelled {
            // SAFETY: areas of the plan are in bounds and aligned, regions initialised; the rest
            // is the caller's to see to.
            words: unsafe { Words::at(base, [header].into_iter().chain(others)) },
            cells: (0..plan.indexes().bytes() / 4)
                .map(|_| AtomicU32::new(0))
                .collect(),
            rows: watches(plan.capacity() as usize),
            heap: watches(plan.heap().bytes()),
        }
    }

    /// Somebody reads so many rows.
    pub(crate) fn read_rows(&self, rows: u32) {
        self.rows[..rows as usize]
            .iter()
            .for_each(|row| row.with(|_| ()));
    }

    /// The writer writes these rows.
    pub(crate) fn write_rows(&self, rows: Range<usize>) {
        self.rows[rows].iter().for_each(|row| row.with_mut(|_| ()));
    }

    /// Somebody reads so many bytes of heap.
    pub(crate) fn read_heap(&self, used: usize) {
        self.heap[..used].iter().for_each(|byte| byte.with(|_| ()));
    }

    /// The writer writes these bytes of heap.
    pub(crate) fn write_heap(&self, bytes: Range<usize>) {
        self.heap[bytes]
            .iter()
            .for_each(|byte| byte.with_mut(|_| ()));
    }
}
