//! The node's limit, which moves ([`Governor::set_target`]). A higher one counts at once. A lower one is
//! approached: the limit falls as memory comes back, and stays a little above what is held, so that
//! nothing that was promised is taken away and small requests still have room.
//!
//! ```text
//!  limit ───┐
//!           └──────┐ held + spare
//!                  └───┐
//!  target ─ ─ ─ ─ ─ ─ ─└──── reached: no more than the target is held
//! ```
//!
//! Memory that the process holds and nobody has reserved also counts against the node's limit, by
//! its last measured size ([`Governor::set_unreserved`]).

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_types::ByteSize;

use crate::budget::{Budget, UNLIMITED};

/// What the limit stays above what is held while the target is approached: a split of a full segment in
/// two fits, a sort does not.
const SPARE_BYTES_MAX: u64 = 16 << 20;

/// The largest part of a target that this may be, as a divisor.
const SPARE_PARTS_MIN: u64 = 8;

/// How often tenants are asked for what others lack to their minima.
const PROMISES_EVERY: Duration = Duration::from_secs(1);

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
    /// When tenants were asked last for what others lack to their minima.
    asked_at: Mutex<Option<Instant>>,
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
            asked_at: Mutex::default(),
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
        let budget = Arc::new(Budget::with(name.to_owned(), max, Some(self.root())));
        self.root.has_child(&budget);
        budget
    }

    /// The node's own budget, for what belongs to no tenant.
    pub fn root(&self) -> Arc<Budget> {
        Arc::clone(&self.root)
    }

    /// Bytes in use on the node.
    pub fn used(&self) -> u64 {
        self.root.used()
    }

    /// Bytes that are kept free for those who have less than their minimum.
    pub fn promised(&self) -> u64 {
        self.root.promised()
    }

    /// What is kept for tenants, together.
    pub fn minima(&self) -> u64 {
        self.root.minima()
    }

    /// Tells how much the process holds that nobody has reserved: so much less is given to those who
    /// reserve, until it is told that there is less of it.
    pub fn set_unreserved(&self, bytes: u64) {
        self.root.set_unreserved(bytes);
    }

    /// What was told last.
    pub fn unreserved(&self) -> u64 {
        self.root.unreserved()
    }

    /// How often the node, and not a tenant's own maximum, has refused what somebody asked for.
    pub fn refusals(&self) -> u64 {
        self.root.refusals()
    }

    /// Bytes the node may use now.
    pub fn limit(&self) -> u64 {
        self.root.limit()
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

    /// Brings the limit as near to the target as what is held allows, and each minimum as near as what is
    /// free; asks for memory that can be had again for both. Whether the target is reached. To be called
    /// from time to time.
    pub fn approach(&self) -> bool {
        let is_reached = self.approach_target();
        let mut asked_at = self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        // Memory that nobody can have again is not asked for all the time: plans would go for nothing.
        let may_ask = asked_at.is_none_or(|at| at.elapsed() >= PROMISES_EVERY);
        if may_ask {
            *asked_at = Some(Instant::now());
        }
        drop(asked_at);
        self.root.keep_promises(may_ask);
        is_reached
    }

    fn approach_target(&self) -> bool {
        let (target, before) = (self.target(), self.limit());
        if before <= target {
            self.root.set_limit(target);
            return true;
        }
        let held = || self.root.counted().saturating_add(self.unreserved());
        let beyond = held().saturating_sub(target);
        if beyond > 0 {
            self.root.reclaim(beyond);
        }
        let held = held();
        if held <= target {
            self.root.set_limit(target);
            return true;
        }
        let spare = SPARE_BYTES_MAX.min(target / SPARE_PARTS_MIN);
        self.root.set_limit(before.min(held.saturating_add(spare)));
        false
    }
}
