//! Budgets: who may use how much memory, and who does.
//!
//! ```text
//!  Governor (the node's limit) = root budget
//!    ├── Budget "tenant a"   max 2 GB   ← Reservation 32 MiB, Reservation 1 MiB, …
//!    └── Budget "tenant b"   no max
//! ```
//!
//! A byte is charged to a budget and to the root, or to neither. Counting is atomic and takes no
//! lock, and no counter ever exceeds its maximum (unless the maximum was lowered since). A
//! tenant's counter is raised first and lowered again if the node refuses; for that moment it
//! counts bytes that nobody has.
//!
//! What a budget gives is counted by [`MemoryClass`] as well, so that whoever asks where the
//! memory is gets an answer by tenant and class.
//!
//! Memory that the process holds and nobody has reserved also counts against the node's limit, by
//! its last measured size ([`Governor::set_unreserved`]).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use aerostat_types::{ByteSize, OutOfMemory};

use crate::class::{ByClass, MemoryClass};

/// A budget without maximum of its own.
const UNLIMITED: u64 = u64::MAX;

/// The node's memory: the root of all budgets.
#[derive(Debug)]
pub struct Governor {
    root: Arc<Budget>,
}

impl Governor {
    /// A governor over `limit` bytes.
    pub fn new(limit: ByteSize) -> Arc<Governor> {
        Arc::new(Governor {
            root: Arc::new(Budget::with("node".to_owned(), limit.0, None)),
        })
    }

    /// A budget below the node's, with a maximum of its own or none. It lives as long as it
    /// is referred to; the node forgets its bytes as they are given back.
    pub fn budget(self: &Arc<Self>, name: &str, max: Option<ByteSize>) -> Arc<Budget> {
        let max = max.map_or(UNLIMITED, |max| max.0);
        Arc::new(Budget::with(name.to_owned(), max, Some(self.root())))
    }

    /// The node's own budget, for what belongs to no tenant.
    pub fn root(&self) -> Arc<Budget> {
        Arc::clone(&self.root)
    }

    /// Bytes in use on the node.
    pub fn used(&self) -> u64 {
        self.root.used()
    }

    /// Tells how much the process holds that nobody has reserved: so much less is given to those who
    /// reserve, until it is told that there is less of it.
    pub fn set_unreserved(&self, bytes: u64) {
        self.root.unreserved.store(bytes, Ordering::Relaxed);
    }

    /// What was told last.
    pub fn unreserved(&self) -> u64 {
        self.root.unreserved.load(Ordering::Relaxed)
    }

    /// Bytes the node may use.
    pub fn limit(&self) -> u64 {
        self.root.max.load(Ordering::Relaxed)
    }
}

/// What one tenant, or the node, may use.
#[derive(Debug)]
pub struct Budget {
    name: String,
    max: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
    by_class: ByClass,
    /// What there is beside what is used; of the node's budget alone.
    unreserved: AtomicU64,
    parent: Option<Arc<Budget>>,
}

impl Budget {
    fn with(name: String, max: u64, parent: Option<Arc<Budget>>) -> Budget {
        Budget {
            name,
            max: max.into(),
            used: 0.into(),
            peak: 0.into(),
            by_class: ByClass::default(),
            unreserved: 0.into(),
            parent,
        }
    }

    /// Its name, for messages and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes bytes that are given back when the reservation is dropped.
    ///
    /// # Errors
    /// When this budget or the node's has not that much left.
    pub fn reserve(
        self: &Arc<Self>,
        class: MemoryClass,
        bytes: u64,
    ) -> Result<Reservation, OutOfMemory> {
        self.try_grow_raw(class, bytes)?;
        Ok(Reservation {
            budget: Arc::clone(self),
            class,
            bytes,
        })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of a class in use.
    pub fn used_for(&self, class: MemoryClass) -> u64 {
        self.by_class.get(class)
    }

    /// The most bytes that ever were in use.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// The maximum of its own; `None` when only the node's limit counts.
    pub fn max(&self) -> Option<ByteSize> {
        let max = self.max.load(Ordering::Relaxed);
        (max != UNLIMITED).then_some(ByteSize(max))
    }

    /// Changes the maximum. Below what is in use, nothing is taken away, but nothing more
    /// is given until enough has come back.
    pub fn set_max(&self, max: Option<ByteSize>) {
        self.max
            .store(max.map_or(UNLIMITED, |max| max.0), Ordering::Relaxed);
    }

    /// Bytes that could be reserved now, if nobody else does first.
    pub fn available(&self) -> u64 {
        let taken = self
            .used()
            .saturating_add(self.unreserved.load(Ordering::Relaxed));
        let own = self.max.load(Ordering::Relaxed).saturating_sub(taken);
        self.parent
            .as_ref()
            .map_or(own, |parent| own.min(parent.available()))
    }

    /// Takes bytes without a [`Reservation`], for callers with an accounting of their own;
    /// they give back exactly as much with [`Budget::shrink_raw`].
    ///
    /// # Errors
    /// When this budget or the node's has not that much left.
    pub fn try_grow_raw(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfMemory> {
        let limit = self.max.load(Ordering::Relaxed);
        let unreserved = self.unreserved.load(Ordering::Relaxed);
        let left = limit.saturating_sub(unreserved);
        let grown = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|&grown| grown <= left || bytes == 0)
            });
        let before = grown.map_err(|used| OutOfMemory {
            budget: self.name.clone(),
            requested: bytes,
            used: used + unreserved,
            limit,
        })?;
        if let Some(parent) = &self.parent
            && let Err(refused) = parent.try_grow_raw(class, bytes)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(refused);
        }
        self.by_class.add(class, bytes);
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back bytes of a class taken with [`Budget::try_grow_raw`].
    pub fn shrink_raw(&self, class: MemoryClass, bytes: u64) {
        self.by_class.subtract(class, bytes);
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            before >= bytes,
            "{}: {bytes} bytes given back, {before} were taken",
            self.name
        );
        if let Some(parent) = &self.parent {
            parent.shrink_raw(class, bytes);
        }
    }
}

/// Bytes taken from a budget; dropped, they are given back.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    budget: Arc<Budget>,
    class: MemoryClass,
    bytes: u64,
}

impl Reservation {
    /// Of a budget, nothing yet.
    pub fn none(budget: &Arc<Budget>, class: MemoryClass) -> Self {
        Self {
            budget: Arc::clone(budget),
            class,
            bytes: 0,
        }
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget it is taken from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Takes more.
    ///
    /// # Errors
    /// When there is not that much left; the reservation stays as it is.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.try_grow_raw(self.class, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back a part, or all.
    pub fn shrink(&mut self, bytes: u64) {
        assert!(
            bytes <= self.bytes,
            "{bytes} of {} bytes given back",
            self.bytes
        );
        self.bytes -= bytes;
        self.budget.shrink_raw(self.class, bytes);
    }

    /// Takes more or gives back, so that the size is `bytes`.
    ///
    /// # Errors
    /// When it would have to take more than is left; the reservation stays as it is.
    pub fn try_resize(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        if bytes > self.bytes {
            return self.try_grow(bytes - self.bytes);
        }
        self.shrink(self.bytes - bytes);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.shrink_raw(self.class, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: MemoryClass = MemoryClass::Hot;

    #[test]
    fn a_byte_counts_for_the_tenant_and_for_the_node() {
        let governor = Governor::new(ByteSize(1000));
        let (a, b) = (
            governor.budget("a", Some(ByteSize(600))),
            governor.budget("b", None),
        );
        let mut first = a.reserve(HOT, 500).unwrap();
        let second = b.reserve(HOT, 400).unwrap();
        assert_eq!((a.used(), b.used(), governor.used()), (500, 400, 900));
        assert_eq!((a.available(), b.available()), (100, 100));

        let over_own = a.reserve(HOT, 101).unwrap_err();
        assert_eq!(
            (over_own.budget.as_str(), over_own.used, over_own.limit),
            ("a", 500, 600)
        );
        let over_node = b.reserve(HOT, 101).unwrap_err();
        assert_eq!(
            (over_node.budget.as_str(), over_node.used, over_node.limit),
            ("node", 900, 1000)
        );
        assert_eq!(
            (a.used(), b.used(), governor.used()),
            (500, 400, 900),
            "a refusal leaves no trace"
        );

        first.try_resize(200).unwrap();
        assert!(first.try_resize(601).is_err());
        assert_eq!(first.bytes(), 200);
        drop(second);
        drop(first);
        assert_eq!((a.used(), a.peak(), governor.used()), (0, 500, 0));
    }

    #[test]
    fn a_lower_maximum_takes_nothing_away() {
        let governor = Governor::new(ByteSize(1000));
        let budget = governor.budget("a", None);
        let mut held = budget.reserve(HOT, 500).unwrap();
        budget.set_max(Some(ByteSize(100)));
        assert!(budget.reserve(HOT, 1).is_err());
        assert_eq!(budget.reserve(HOT, 0).unwrap().bytes(), 0);
        held.shrink(450);
        assert_eq!(budget.reserve(HOT, 50).unwrap().bytes(), 50);
        assert!(budget.reserve(HOT, u64::MAX).is_err(), "no overflow");
    }

    #[test]
    fn what_nobody_has_reserved_is_not_given_away() {
        let governor = Governor::new(ByteSize(1000));
        let budget = governor.budget("a", None);
        let _held = budget.reserve(HOT, 500).unwrap();
        governor.set_unreserved(300);
        assert_eq!((budget.available(), governor.used()), (200, 500));
        let refused = budget.reserve(HOT, 201).unwrap_err();
        assert_eq!((refused.used, refused.limit), (800, 1000));
        drop(budget.reserve(HOT, 200).unwrap());
        // More than there is room for takes nothing away.
        governor.set_unreserved(2000);
        assert!(budget.reserve(HOT, 1).is_err());
        assert_eq!(budget.reserve(HOT, 0).unwrap().bytes(), 0);
        governor.set_unreserved(0);
        drop(budget.reserve(HOT, 500).unwrap());
    }

    #[test]
    fn racing_reservations_never_exceed_the_limit() {
        let governor = Governor::new(ByteSize(100));
        let budgets: Vec<_> = (0..4)
            .map(|n| governor.budget(&n.to_string(), Some(ByteSize(60))))
            .collect();
        std::thread::scope(|scope| {
            for budget in &budgets {
                scope.spawn(|| {
                    for bytes in (1..=40).cycle().take(2000) {
                        let reservation = budget.reserve(HOT, bytes);
                        assert!(governor.used() <= 100 && budget.used() <= 60);
                        drop(reservation);
                    }
                });
            }
        });
        assert_eq!(governor.used(), 0);
    }
}
