//! Budgets: who may use how much memory, and who does.
//!
//! ```text
//!  Governor (the node's limit) = root budget
//!    ├── Budget "tenant a"   max 2 GB            ← Reservation 32 MiB, Reservation 1 MiB, …
//!    └── Budget "tenant b"   min 1 GB, weight 2
//! ```
//!
//! A byte is charged to a budget and to the root, or to neither. Counting is atomic and takes no
//! lock, and no counter ever exceeds its maximum (unless the maximum was lowered since, or overdrawn). A
//! tenant's counter is raised first and lowered again if the node refuses; for that moment it
//! counts bytes that nobody has.
//!
//! What a budget gives is counted by [`MemoryClass`] as well, so that whoever asks where the
//! memory is gets an answer by tenant and class.
//!
//! **A minimum** is kept for whoever has it: the root counts what a tenant lacks to its minimum as if it
//! was used (*promised*). What the tenant takes then comes out of that, and what it gives back goes
//! there.
//!
//! ```text
//!  root:  │ used by a │ used by b │ promised to b │   free   │
//!                     └── min of b ──────────────┘
//! ```
//!
//! **Work that gives back more than it takes** ([`Budget::overdraft`]) is not refused for want of memory: one piece of
//! it at a time may go beyond the limits.
//!
//! **Before a budget refuses**, it asks whoever has memory to spare for it ([`Reclaim`]): what costs
//! least to have again goes first. The root asks all tenants, as `divide` says: for what they have
//! beyond their minimum, of those first that have the most for their weight.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use aerostat_types::{ByteSize, OutOfMemory};

use crate::{
    class::{ByClass, MemoryClass},
    divide::{Claim, divide},
};

/// A budget without maximum of its own.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The weight of who has none of its own.
const WEIGHT_DEFAULT: u32 = 100;

/// The part of the node's limit that is promised to nobody, as a divisor: whoever comes to change minima
/// needs some memory, too.
const OPEN_PARTS: u64 = 16;

/// How often memory is asked for before a budget refuses: others may take what came back.
const RECLAIMS_MAX: usize = 8;

/// Gives memory back that can be had again.
pub trait Reclaim: Send + Sync {
    /// Gives back `bytes` or what there is, and says how many. It is called by whoever a budget
    /// would refuse, with whatever locks that caller has, so it waits for no lock under which
    /// somebody reserves.
    fn reclaim(&self, bytes: u64) -> u64;
}

/// What one tenant, or the node, may use.
#[derive(Debug)]
pub struct Budget {
    name: String,
    max: AtomicU64,
    /// What is kept for it.
    min: AtomicU64,
    weight: AtomicU32,
    /// What it has given. The root's has what is promised, too.
    counted: AtomicU64,
    /// What it lacks to its minimum and the root counts for it; the root's is the sum.
    promised: AtomicU64,
    peak: AtomicU64,
    by_class: ByClass,
    /// What there is beside what is used; of the node's budget alone.
    unreserved: AtomicU64,
    /// What it is being asked for by those who ask all tenants.
    asked: AtomicU64,
    /// Who gives memory back before this refuses, in the order in which they are asked.
    reclaim: Mutex<Vec<(u8, Weak<dyn Reclaim>)>>,
    parent: Option<Arc<Budget>>,
    /// Those whose parent it is.
    children: Mutex<Vec<Weak<Budget>>>,
    /// Held by whoever raises what is promised.
    promising: Mutex<()>,
    /// How often it has refused, or the root for it.
    refusals: AtomicU64,
    /// Whether somebody has an overdraft; of the root.
    is_overdrawn: AtomicBool,
}

impl Budget {
    pub(crate) fn with(name: String, max: u64, parent: Option<Arc<Budget>>) -> Budget {
        Budget {
            name,
            max: max.into(),
            min: 0.into(),
            weight: WEIGHT_DEFAULT.into(),
            counted: 0.into(),
            promised: 0.into(),
            peak: 0.into(),
            by_class: ByClass::default(),
            unreserved: 0.into(),
            asked: 0.into(),
            reclaim: Mutex::default(),
            parent,
            children: Mutex::default(),
            promising: Mutex::default(),
            refusals: 0.into(),
            is_overdrawn: false.into(),
        }
    }

    pub(crate) fn has_child(&self, child: &Arc<Budget>) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(child));
    }

    fn children(&self) -> Vec<Arc<Budget>> {
        let children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.iter().filter_map(Weak::upgrade).collect()
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
        match self.parent {
            Some(_) => self.counted(),
            None => self.counted().saturating_sub(self.promised()),
        }
    }

    /// Bytes in use and, of the root, promised.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Bytes that are kept free for it, or, of the root, for all others.
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn unreserved(&self) -> u64 {
        self.unreserved.load(Ordering::Relaxed)
    }

    pub(crate) fn set_unreserved(&self, bytes: u64) {
        self.unreserved.store(bytes, Ordering::Relaxed);
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
        let own = self.free();
        self.parent.as_ref().map_or(own, |parent| {
            own.min(parent.available().saturating_add(self.promised()))
        })
    }

    fn free(&self) -> u64 {
        let taken = self.counted().saturating_add(self.unreserved());
        self.limit().saturating_sub(taken)
    }

    /// Says who gives memory back, too, before this budget refuses, from now on: who has a lower rank
    /// is asked first. Each is asked as long as somebody else has it.
    pub fn reclaim_from(&self, rank: u8, reclaim: Weak<dyn Reclaim>) {
        let mut all = self.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, one)| one.strong_count() > 0);
        let at = all.partition_point(|(other, _)| *other <= rank);
        all.insert(at, (rank, reclaim));
    }

    pub(crate) fn reclaim(&self, bytes: u64) -> u64 {
        let mut given = 0;
        for (_, one) in self.reclaimers() {
            if given >= bytes {
                return given;
            }
            given += one.reclaim(bytes - given);
        }
        let children = self.children();
        let mut ranks: Vec<u8> = children.iter().flat_map(|child| child.ranks()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        for rank in ranks {
            if given >= bytes {
                break;
            }
            given += reclaim_from_all(&children, rank, bytes - given);
        }
        given
    }

    fn reclaimers(&self) -> Vec<(u8, Arc<dyn Reclaim>)> {
        let all = self.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter();
        all.filter_map(|(rank, one)| Some((*rank, one.upgrade()?)))
            .collect()
    }

    fn ranks(&self) -> Vec<u8> {
        let all = self.reclaim.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(rank, _)| *rank).collect()
    }

    fn reclaim_of_rank(&self, rank: u8, bytes: u64) -> u64 {
        let mut given = 0;
        for (of, one) in self.reclaimers() {
            if of == rank && given < bytes {
                given += one.reclaim(bytes - given);
            }
        }
        given
    }

    /// Takes bytes without a [`Reservation`], for callers with an accounting of their own;
    /// they give back exactly as much with [`Budget::shrink_raw`].
    ///
    /// # Errors
    /// When this budget or the node's has not that much left, and nobody gives it back.
    pub fn try_grow_raw(&self, class: MemoryClass, bytes: u64) -> Result<(), OutOfMemory> {
        self.try_grow_beside(class, bytes, 0)
    }

    /// Takes bytes of which some are counted already, as promised.
    fn try_grow_beside(
        &self,
        class: MemoryClass,
        bytes: u64,
        promised: u64,
    ) -> Result<(), OutOfMemory> {
        let more = bytes - promised;
        for _ in 0..RECLAIMS_MAX {
            let refused = match self.try_take(more) {
                Ok(()) => return self.taken(class, bytes, promised),
                Err(refused) => refused,
            };
            if self.reclaim(refused.missing()) == 0 {
                if !self.is_asking() {
                    return Err(self.refuse(refused));
                }
                // What another was given by now counts twice until he has all: there may be more.
                std::thread::yield_now();
            }
        }
        self.try_take(more)
            .map_err(|refused| self.refuse(refused))?;
        self.taken(class, bytes, promised)
    }

    fn refuse(&self, refused: OutOfMemory) -> OutOfMemory {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        refused
    }

    /// How often it has refused what somebody asked for, or the root has.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Counts bytes here, if there are so many left.
    fn try_take(&self, bytes: u64) -> Result<(), OutOfMemory> {
        self.try_take_beyond(bytes, 0)
    }

    /// The same, with so much more than the limit.
    fn try_take_beyond(&self, bytes: u64, beyond: u64) -> Result<(), OutOfMemory> {
        let limit = self.limit();
        let unreserved = self.unreserved();
        let left = limit.saturating_add(beyond).saturating_sub(unreserved);
        let grown = self
            .counted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counted| {
                counted
                    .checked_add(bytes)
                    .filter(|&grown| grown <= left || bytes == 0)
            });
        grown.map(|_| ()).map_err(|counted| OutOfMemory {
            budget: self.name.clone(),
            requested: bytes,
            used: counted + unreserved,
            limit,
        })
    }

    /// Has the parent count bytes that are counted here, or nobody.
    fn taken(&self, class: MemoryClass, bytes: u64, promised: u64) -> Result<(), OutOfMemory> {
        match &self.parent {
            Some(parent) => {
                let mut promised = self.take_promised(bytes);
                let taken = parent.try_grow_beside(class, bytes, promised);
                let taken = taken.or_else(|refused| {
                    // Nobody there had enough for it: it gives what it has of its own, which below its
                    // minimum is promised to it again.
                    if self.reclaim(refused.missing()) == 0 {
                        return Err(refused);
                    }
                    promised += self.take_promised(bytes - promised);
                    parent.try_grow_beside(class, bytes, promised)
                });
                if let Err(refused) = taken {
                    self.promised.fetch_add(promised, Ordering::Relaxed);
                    self.counted.fetch_sub(bytes, Ordering::Relaxed);
                    return Err(self.refuse(refused));
                }
            }
            None => {
                self.promised.fetch_sub(promised, Ordering::Relaxed);
            }
        }
        self.has_taken(class, bytes);
        Ok(())
    }

    /// Of bytes that are counted here.
    fn has_taken(&self, class: MemoryClass, bytes: u64) {
        self.by_class.add(class, bytes);
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
    }

    /// Gives back bytes of a class taken with [`Budget::try_grow_raw`].
    pub fn shrink_raw(&self, class: MemoryClass, bytes: u64) {
        self.by_class.subtract(class, bytes);
        let before = self.counted.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            before >= bytes,
            "{}: {bytes} bytes given back, {before} were taken",
            self.name
        );
        if let Some(root) = &self.parent {
            let kept = self.promise_again(bytes);
            root.by_class.subtract(class, bytes);
            root.promised.fetch_add(kept, Ordering::Relaxed);
            root.counted.fetch_sub(bytes - kept, Ordering::Relaxed);
        }
    }
}

/// What is kept for a tenant.
///
/// At all times the root counts what its children have and what is promised to them, to the byte. That a
/// child's promise is what it lacks to its minimum holds when nobody is just changing it.
impl Budget {
    /// What is kept for it, whatever others want.
    pub fn min(&self) -> ByteSize {
        ByteSize(self.min.load(Ordering::Relaxed))
    }

    /// Its weight among others, for what is beyond minima.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Changes the weight, which is 1 at least.
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.max(1), Ordering::Relaxed);
    }

    /// Changes what is kept for it. What others have now is asked back as far as it can be had again; the
    /// rest is kept as it comes back ([`Governor::approach`](crate::Governor::approach)). Never more than its
    /// maximum is kept.
    pub fn set_min(&self, min: ByteSize) {
        self.min.store(min.0, Ordering::Relaxed);
        self.let_go();
        self.keep_promise(true);
    }

    /// What it has beyond its minimum, and nobody is just asking it for.
    fn beyond_min(&self) -> u64 {
        let kept = self
            .min()
            .0
            .saturating_add(self.asked.load(Ordering::Relaxed));
        self.counted().saturating_sub(kept)
    }

    /// Asks for what costs as much to have again, for no more than what is beyond the minimum: of two who ask at a
    /// time, each for all of that, one gets it.
    fn reclaim_beyond_min(&self, rank: u8, bytes: u64) -> u64 {
        let mut share = 0;
        let more = |asked: u64| {
            let kept = self.min().0.saturating_add(asked);
            share = self.counted().saturating_sub(kept).min(bytes);
            (share > 0).then_some(asked + share)
        };
        if self
            .asked
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            return 0;
        }
        let _asked = Asked(self, share);
        self.reclaim_of_rank(rank, share)
    }

    /// Whether others are just asking one of the tenants.
    fn is_asking(&self) -> bool {
        let children = self.children();
        children
            .iter()
            .any(|child| child.asked.load(Ordering::Relaxed) > 0)
    }

    /// What it lacks to its minimum.
    fn lacking(&self) -> u64 {
        let min = self.min.load(Ordering::Relaxed).min(self.limit());
        min.saturating_sub(self.counted())
    }

    /// What the root may promise beside what it has: never all of the node.
    fn promisable(&self) -> u64 {
        let of = |root: &Arc<Budget>| {
            let most = root.limit() - root.limit() / OPEN_PARTS;
            most.saturating_sub(root.promised())
        };
        self.parent.as_ref().map_or(0, of)
    }

    /// Out of what is promised, up to so many bytes.
    fn take_promised(&self, bytes: u64) -> u64 {
        if self.promised() == 0 {
            return 0;
        }
        let before = self
            .promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |promised| {
                Some(promised.saturating_sub(bytes))
            });
        before.unwrap_or_else(|kept| kept).min(bytes)
    }

    /// Of bytes that were given back, how many are promised again.
    fn promise_again(&self, bytes: u64) -> u64 {
        let mut kept = 0;
        // Read again each time: of two that give back at a time the second sees what both have left.
        let again = |promised: u64| {
            let lacking = self.lacking().saturating_sub(promised);
            kept = lacking.min(bytes).min(self.promisable());
            (kept > 0).then_some(promised + kept)
        };
        match self
            .promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, again)
        {
            Ok(_) => kept,
            Err(_) => 0,
        }
    }

    /// Lets go of what is promised beyond what is lacking.
    fn let_go(&self) {
        let Some(root) = &self.parent else { return };
        let mut left = 0;
        let less = |promised: u64| {
            left = promised.saturating_sub(self.lacking());
            (left > 0).then_some(promised - left)
        };
        let changed = self
            .promised
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if changed.is_ok() {
            root.forget_promise(left);
        }
    }

    /// Of the root.
    fn forget_promise(&self, bytes: u64) {
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
        self.counted.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Has the root promise what is lacking and is not promised yet, as far as that is free; `may_ask` others
    /// for it, or not.
    fn keep_promise(&self, may_ask: bool) {
        let Some(root) = &self.parent else { return };
        // One at a time, so that no two see the same lack.
        let _one = root
            .promising
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let missing = self.lacking().saturating_sub(self.promised());
        let missing = missing.min(self.promisable());
        if missing == 0 {
            return;
        }
        let short = missing.saturating_sub(root.free());
        if short > 0 && may_ask {
            root.reclaim(short);
        }
        let bytes = missing.min(root.free());
        // Whoever came first has it.
        if bytes > 0 && root.try_take(bytes).is_ok() {
            root.promised.fetch_add(bytes, Ordering::Relaxed);
            // Some of it may have been taken meanwhile. What is too much then is there for its next bytes,
            // or is promised no more when it gives back.
            self.promised.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Of the root: the minima of all.
    pub(crate) fn minima(&self) -> u64 {
        let minima = self.children().into_iter().map(|child| child.min().0);
        minima.fold(0, u64::saturating_add)
    }

    /// Of the root: [`Self::keep_promise`] of all.
    pub(crate) fn keep_promises(&self, may_ask: bool) {
        self.children()
            .iter()
            .for_each(|child| child.keep_promise(may_ask));
    }
}

/// Bytes for which somebody asks a tenant, until it has answered.
struct Asked<'a>(&'a Budget, u64);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let promised = *self.promised.get_mut();
        if let Some(root) = &self.parent
            && promised > 0
        {
            root.forget_promise(promised);
        }
    }
}

/// Asks tenants for what costs as much to have again, and says how much they gave.
fn reclaim_from_all(tenants: &[Arc<Budget>], rank: u8, bytes: u64) -> u64 {
    let claim = |tenant: &Arc<Budget>| Claim {
        // Below its minimum what it gives is kept for it.
        beyond: tenant.beyond_min(),
        weight: tenant.weight(),
    };
    let mut given = 0;
    let mut asked: Vec<(&Arc<Budget>, Claim)> = tenants
        .iter()
        .map(|tenant| (tenant, claim(tenant)))
        .collect();
    // Each time somebody gives all that is missing, or some are asked no more.
    while given < bytes && !asked.is_empty() {
        let claims: Vec<Claim> = asked.iter().map(|(_, claim)| *claim).collect();
        let mut can_more = Vec::new();
        for (at, share) in divide(bytes - given, &claims) {
            let (tenant, claim) = asked[at];
            let gave = tenant.reclaim_beyond_min(rank, share);
            given += gave;
            let beyond = claim.beyond.saturating_sub(gave);
            if gave >= share && beyond > 0 {
                can_more.push((tenant, Claim { beyond, ..claim }));
            }
        }
        if can_more.len() == asked.len() {
            break;
        }
        asked = can_more;
    }
    given
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

mod overdraft;
#[cfg(test)]
mod tests;

pub use overdraft::Overdraft;
