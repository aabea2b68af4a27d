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
//! Before a budget refuses, it asks whoever has memory to spare for it ([`Reclaim`]): what costs
//! least to have again goes first.
//!
//! The node's limit moves ([`Governor::set_target`]). A higher one counts at once. A lower one is
//! approached: the limit falls as memory comes back, and stays a little above what is held, so that
//! nothing that was promised is taken away and small requests still have room.
//!
//! ```text
//!  limit ───┐            ┌ held + a 64th of the target
//!           └──┐ ┌───────┤
//!  target ─ ─ ─└─┘─ ─ ─ ─└ ─ reached: held is below
//! ```
//!
//! Memory that the process holds and nobody has reserved also counts against the node's limit, by
//! its last measured size ([`Governor::set_unreserved`]).

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use aerostat_types::{ByteSize, OutOfMemory};

use crate::class::{ByClass, MemoryClass};

/// A budget without maximum of its own.
const UNLIMITED: u64 = u64::MAX;

/// The part of a target that the limit stays above what is held, as a divisor, while the target is
/// approached. A neighbour's row or plan fits, a sort does not.
const SPARE_PARTS: u64 = 64;

/// How often memory is asked for before a budget refuses: others may take what came back.
const RECLAIMS_MAX: usize = 8;

/// Gives memory back that can be had again.
pub trait Reclaim: Send + Sync {
    /// Gives back `bytes` or what there is, and says how many. It is called by whoever a budget
    /// would refuse, with whatever locks that caller has, so it waits for no lock under which
    /// somebody reserves.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// The node's memory: the root of all budgets.
#[derive(Debug)]
pub struct Governor {
    root: Arc<Budget>,
    /// What the node's settings say.
    target: AtomicU64,
    /// What a broker grants of it.
    cap: AtomicU64,
    /// The limit that it began with.
    configured: ByteSize,
    is_given: bool,
}

impl Governor {
    /// A governor over `limit` bytes, for which a node's catalogue may have another value.
    pub fn new(limit: ByteSize) -> Arc<Governor> {
        Self::with(limit, false)
    }

    /// A governor over `limit` bytes, whatever the node's catalogue says: whoever starts the node
    /// has said so.
    pub fn given(limit: ByteSize) -> Arc<Governor> {
        Self::with(limit, true)
    }

    fn with(limit: ByteSize, is_given: bool) -> Arc<Governor> {
        Arc::new(Governor {
            root: Arc::new(Budget::with("node".to_owned(), limit.0, None)),
            target: limit.0.into(),
            cap: UNLIMITED.into(),
            configured: limit,
            is_given,
        })
    }

    /// The limit that it began with.
    pub fn configured(&self) -> ByteSize {
        self.configured
    }

    /// Whether that counts before what a node's catalogue says.
    pub fn is_given(&self) -> bool {
        self.is_given
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

    /// Bytes the node may use now.
    pub fn limit(&self) -> u64 {
        self.root.max.load(Ordering::Relaxed)
    }

    /// Bytes the node may use once what it holds beyond has come back: what its settings say, or
    /// less where a broker grants less.
    pub fn target(&self) -> u64 {
        self.configured_target()
            .min(self.cap.load(Ordering::Relaxed))
    }

    /// Bytes the node may use by its settings.
    pub fn configured_target(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    /// What a broker grants, if there is one.
    pub fn cap(&self) -> Option<ByteSize> {
        let cap = self.cap.load(Ordering::Relaxed);
        (cap != UNLIMITED).then_some(ByteSize(cap))
    }

    /// Changes what a broker grants; `None` where there is none. It counts as
    /// [`Governor::set_target`] does, beside it.
    pub fn set_cap(&self, cap: Option<ByteSize>) {
        let cap = cap.map_or(UNLIMITED, |cap| cap.0);
        self.cap.store(cap, Ordering::Relaxed);
        self.approach();
    }

    /// Changes what the node's settings say. A higher target is the limit from now on; a lower one is
    /// approached, from this call on and by [`Governor::approach`].
    pub fn set_target(&self, bytes: ByteSize) {
        self.target.store(bytes.0, Ordering::Relaxed);
        self.approach();
    }

    /// Brings the limit as near to the target as what is held allows, and asks for memory that can
    /// be had again; whether the target is reached. To be called from time to time until it is.
    pub fn approach(&self) -> bool {
        let (target, before) = (self.target(), self.limit());
        if before <= target {
            self.root.max.store(target, Ordering::Relaxed);
            return true;
        }
        let held = || self.used().saturating_add(self.unreserved());
        let beyond = held().saturating_sub(target);
        if beyond > 0 {
            self.root.reclaim(beyond);
        }
        let beside = held().saturating_add(target / SPARE_PARTS);
        let limit = beside.clamp(target, before);
        self.root.max.store(limit, Ordering::Relaxed);
        limit == target
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
    /// Who gives memory back before this refuses, in the order in which they are asked.
    reclaim: Mutex<Vec<(u8, Weak<dyn Reclaim>)>>,
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
            reclaim: Mutex::default(),
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

    /// Changes the maximum. Below what is in use, what can be had again is asked for; the rest is
    /// not taken away, but nothing more is given until enough has come back.
    pub fn set_max(&self, max: Option<ByteSize>) {
        let max = max.map_or(UNLIMITED, |max| max.0);
        self.max.store(max, Ordering::Relaxed);
        let beyond = self.used().saturating_sub(max);
        if beyond > 0 {
            self.reclaim(beyond);
        }
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

    /// Says who gives memory back, too, before this budget refuses, from now on: who has a lower rank
    /// is asked first. Each is asked as long as somebody else has it.
    pub fn reclaim_from(&self, rank: u8, reclaim: Weak<dyn Reclaim>) {
        let mut all = self.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, one)| one.strong_count() > 0);
        let at = all.partition_point(|(other, _)| *other <= rank);
        all.insert(at, (rank, reclaim));
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let all: Vec<Arc<dyn Reclaim>> = {
            let all = self.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(|(_, one)| one.upgrade()).collect()
        };
        let mut given = 0;
        for one in all {
            if given >= bytes {
                break;
            }
            given += one.reclaim(bytes - given);
        }
        given
    }

    /// Takes bytes without a [`Reservation`], for callers with an accounting of their own;
    /// they give back exactly as much with [`Budget::shrink_raw`].
    ///
    /// # Errors
    /// When this budget or the node's has not that much left, and nobody gives it back.
    pub fn try_grow_raw(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfMemory> {
        for _ in 0..RECLAIMS_MAX {
            let refused = match self.try_take(bytes) {
                Ok(()) => return self.taken(class, bytes),
                Err(refused) => refused,
            };
            if self.reclaim(refused.missing()) == 0 {
                return Err(refused);
            }
        }
        self.try_take(bytes)?;
        self.taken(class, bytes)
    }

    /// Counts bytes here, if there are so many left.
    fn try_take(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let limit = self.max.load(Ordering::Relaxed);
        let unreserved = self.unreserved.load(Ordering::Relaxed);
        let left = limit.saturating_sub(unreserved);
        let grown = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|&grown| grown <= left || bytes == 0)
            });
        grown.map(|_| ()).map_err(|used| OutOfMemory {
            budget: self.name.clone(),
            requested: bytes,
            used: used + unreserved,
            limit,
        })
    }

    /// Has the parent count bytes that are counted here, or nobody.
    fn taken(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfMemory> {
        if let Some(parent) = &self.parent {
            let taken = parent.try_grow_raw(class, bytes).or_else(|refused| {
                // Nobody there had enough for it: it gives what it has of its own.
                let missing = refused.missing();
                match self.reclaim(missing) {
                    0 => Err(refused),
                    _ => parent.try_grow_raw(class, bytes),
                }
            });
            if let Err(refused) = taken {
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                return Err(refused);
            }
        }
        self.by_class.add(class, bytes);
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
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

    /// Divides it: so many bytes are the new one's.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn split(&mut self, bytes: u64) -> Reservation {
        assert!(bytes <= self.bytes, "{bytes} of {} bytes", self.bytes);
        self.bytes -= bytes;
        Reservation {
            budget: Arc::clone(&self.budget),
            class: self.class,
            bytes,
        }
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

    /// Has a reservation, and gives it back in pieces.
    struct Hoard(Mutex<Reservation>);

    impl Reclaim for Hoard {
        fn reclaim(&self, bytes: u64) -> u64 {
            let Ok(mut held) = self.0.try_lock() else {
                return 0;
            };
            let given = bytes.min(held.bytes());
            held.shrink(given);
            given
        }
    }

    fn hoard(budget: &Arc<Budget>, bytes: u64) -> Arc<dyn Reclaim> {
        let held = budget.reserve(MemoryClass::CachedPlans, bytes).unwrap();
        Arc::new(Hoard(Mutex::new(held)))
    }

    #[test]
    fn what_can_be_had_again_goes_before_anything_is_refused() {
        let governor = Governor::new(ByteSize(1000));
        let budget = governor.budget("a", Some(ByteSize(600)));
        let hoarded = hoard(&budget, 300);
        budget.reclaim_from(0, Arc::downgrade(&hoarded));
        let held = budget.reserve(HOT, 400).unwrap();
        assert_eq!(budget.used_for(MemoryClass::CachedPlans), 200);
        assert!(
            budget.reserve(HOT, 201).is_err(),
            "there is not so much to give"
        );
        assert_eq!(
            (budget.used(), budget.used_for(MemoryClass::CachedPlans)),
            (400, 0)
        );
        drop((held, hoarded));
        assert_eq!((budget.used(), governor.used()), (0, 0));

        // The node's is asked where the node refuses, whoever wants to have.
        let other = governor.budget("b", None);
        let hoarded = hoard(&budget, 500);
        governor.root().reclaim_from(0, Arc::downgrade(&hoarded));
        let held = other.reserve(HOT, 900).unwrap();
        assert_eq!((budget.used(), other.used()), (100, 900));
        drop(hoarded);
        assert_eq!(budget.used(), 0);
        assert!(
            other.reserve(HOT, 101).is_err(),
            "nobody has anything any more"
        );
        drop(held);
    }

    #[test]
    fn a_broker_grants_less_than_the_settings_and_never_more() {
        let governor = Governor::new(ByteSize(100_000));
        governor.set_cap(Some(ByteSize(60_000)));
        assert_eq!((governor.target(), governor.limit()), (60_000, 60_000));
        governor.set_target(ByteSize(50_000));
        assert_eq!((governor.target(), governor.limit()), (50_000, 50_000));
        governor.set_target(ByteSize(200_000));
        assert_eq!((governor.target(), governor.limit()), (60_000, 60_000));
        governor.set_cap(None);
        assert_eq!((governor.target(), governor.cap()), (200_000, None));
        assert_eq!(governor.limit(), 200_000);
    }

    #[test]
    fn a_lower_target_is_approached() {
        let governor = Governor::new(ByteSize(64_000));
        let budget = governor.budget("a", None);
        let mut held = budget.reserve(HOT, 40_000).unwrap();
        let hoarded = hoard(&budget, 5_000);
        governor.root().reclaim_from(0, Arc::downgrade(&hoarded));
        governor.set_target(ByteSize(32_000));
        assert_eq!((governor.target(), governor.limit()), (32_000, 40_500));
        assert_eq!(budget.used(), 40_000, "the hoard went first");
        // A little more is given, and does not move the limit.
        let little = budget.reserve(HOT, 400).unwrap();
        assert!(!governor.approach());
        assert_eq!(governor.limit(), 40_500);
        assert!(budget.reserve(HOT, 101).is_err());
        held.shrink(5_000);
        assert!(!governor.approach());
        assert_eq!(governor.limit(), 35_900);
        drop((held, little));
        assert!(governor.approach());
        assert_eq!(governor.limit(), 32_000);
        // A higher one counts at once, and so does a lower one with room.
        governor.set_target(ByteSize(50_000));
        assert_eq!(governor.limit(), 50_000);
        governor.set_target(ByteSize(10_000));
        assert_eq!((governor.limit(), governor.approach()), (10_000, true));
    }

    #[test]
    fn racing_reservations_beside_reclaims_leave_nothing_behind() {
        let governor = Governor::new(ByteSize(100));
        let budget = governor.budget("a", Some(ByteSize(60)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in (1..=40).cycle().take(2_000) {
                        let reservation = budget.reserve(HOT, bytes);
                        assert!(budget.used() <= 60 && governor.used() <= 100);
                        drop(reservation);
                    }
                });
            }
            scope.spawn(|| {
                for limit in (20..=100).cycle().take(2_000) {
                    governor.set_target(ByteSize(limit));
                }
                governor.set_target(ByteSize(100));
            });
        });
        assert_eq!(
            (budget.used(), governor.used(), governor.limit()),
            (0, 0, 100)
        );
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
