//! Memory for work that gives back more than it takes, beyond the limits if need be.
//!
//! ```text
//!  limit ─┬──────────────────┐            the work's bytes
//!         │ rows in 10 parts │▓▓▓▓▓▓▓▓▓▓▓
//!         │ rows in 9 parts │░░░░            one is made anew: what stays is handed over
//!         │ rows in 9 parts │░                the old one is given back
//! ```
//!
//! Where all memory is taken by what only such work makes smaller, refusing it would leave it taken for good.

use std::sync::{Arc, atomic::Ordering};

use aerostat_types::OutOfMemory;

use super::{Budget, Reservation};
use crate::class::MemoryClass;

/// No budget goes beyond its limit by more than this.
const BEYOND_BYTES_MAX: u64 = 256 << 20;

/// The largest part of a limit that this may be, as a divisor.
const BEYOND_PARTS_MIN: u64 = 2;

/// Bytes for a piece of work, given back when it is dropped.
#[derive(Debug)]
#[must_use = "an overdraft that is dropped is given back"]
pub struct Overdraft {
    /// Before the turn, which it ends.
    reservation: Reservation,
    /// Where it may be beyond the limits.
    _turn: Option<Turn>,
}

/// One has it at a time.
#[derive(Debug)]
struct Turn {
    root: Arc<Budget>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.root.is_overdrawn.store(false, Ordering::Release);
    }
}

impl Budget {
    /// Takes bytes as [`Budget::reserve`] does, beyond the limits if need be: by a half, and 256 MiB at the most.
    /// For work that gives back more than it takes, as soon as it is done.
    ///
    /// # Errors
    /// When there is not that much left, and somebody else is beyond the limits or this would be too far.
    pub fn overdraft(
        self: &Arc<Self>,
        class: MemoryClass,
        bytes: u64,
    ) -> Result<Overdraft, OutOfMemory> {
        let refused = match self.reserve(class, bytes) {
            Ok(reservation) => return Ok(reservation.into()),
            Err(refused) => refused,
        };
        let root = self.parent.as_ref().unwrap_or(self);
        if root.is_overdrawn.swap(true, Ordering::Acquire) {
            return Err(refused);
        }
        let turn = Turn {
            root: Arc::clone(root),
        };
        self.take_beyond(class, bytes)?;
        Ok(Overdraft {
            reservation: Reservation {
                budget: Arc::clone(self),
                class,
                bytes,
            },
            _turn: Some(turn),
        })
    }

    fn take_beyond(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfMemory> {
        self.try_take_beyond(bytes, self.beyond_max())?;
        if let Some(root) = &self.parent {
            let promised = self.take_promised(bytes);
            if let Err(refused) = root.try_take_beyond(bytes - promised, root.beyond_max()) {
                self.promised.fetch_add(promised, Ordering::Relaxed);
                self.counted.fetch_sub(bytes, Ordering::Relaxed);
                return Err(refused);
            }
            root.promised.fetch_sub(promised, Ordering::Relaxed);
            root.has_taken(class, bytes);
        }
        self.has_taken(class, bytes);
        Ok(())
    }

    fn beyond_max(&self) -> u64 {
        (self.limit() / BEYOND_PARTS_MIN).min(BEYOND_BYTES_MAX)
    }

    /// Counts bytes that are taken as of another class.
    fn reclassify(&self, bytes: u64, from: MemoryClass, to: MemoryClass) {
        for budget in [Some(self), self.parent.as_deref()].into_iter().flatten() {
            budget.by_class.subtract(from, bytes);
            budget.by_class.add(to, bytes);
        }
    }
}

/// Within the limits.
impl From<Reservation> for Overdraft {
    fn from(reservation: Reservation) -> Self {
        Self {
            reservation,
            _turn: None,
        }
    }
}

impl Overdraft {
    /// Bytes for what stays when the work is done: out of these, and what they lack as [`Budget::reserve`] gives it.
    ///
    /// # Errors
    /// When there is not that much left.
    pub fn hand_over(
        &mut self,
        class: MemoryClass,
        bytes: u64,
    ) -> Result<Reservation, OutOfMemory> {
        let budget = Arc::clone(self.reservation.budget());
        let own = bytes.min(self.reservation.bytes());
        if own < bytes {
            budget.try_grow_raw(class, bytes - own)?;
        }
        budget.reclassify(own, self.reservation.class, class);
        self.reservation.bytes -= own;
        Ok(Reservation {
            budget,
            class,
            bytes,
        })
    }
}
