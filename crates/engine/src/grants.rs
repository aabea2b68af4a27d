//! Statements that a broker's grant was too small for: they wait until more is granted, and run again.
//!
//! ```text
//!  statement ─► 53200 ─► may wait? ─► asks ─► broker ─► limit rises ─► runs again
//!                           │           └── 5 s ─► 53200
//!                           └─ no broker, all granted, refused by the tenant's own maximum,
//!                              or others have waited for nothing just now ─► 53200
//! ```
//!
//! Nothing is held meanwhile: the statement has been undone, and its thread runs others.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_memory::Governor;

/// How long a statement waits for a broker: a database server gives half a gigabyte in that time.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long nobody waits after somebody has waited for nothing: as long as a broker keeps its distance
/// between two moves, unless told otherwise.
const FRUITLESS: Duration = Duration::from_secs(30);

/// Between two looks at the limit.
const LOOK: Duration = Duration::from_millis(10);

/// How often a statement runs again at most. Each time more was granted, and more is asked for.
const ATTEMPTS_MAX: u32 = 16;

/// What a node does about a grant that is too small.
#[derive(Debug)]
pub(crate) struct Grants {
    governor: Arc<Governor>,
    waiting: AtomicUsize,
    /// When somebody has waited for nothing last.
    fruitless: Mutex<Option<Instant>>,
}

/// The node's memory when a statement began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    limit: u64,
    refusals: u64,
    attempts: u32,
}

impl Grants {
    pub(crate) fn new(governor: &Arc<Governor>) -> Grants {
        Grants {
            governor: Arc::clone(governor),
            waiting: AtomicUsize::new(0),
            fruitless: Mutex::default(),
        }
    }

    /// To be kept for when a statement is refused memory.
    pub(crate) fn before(&self) -> Before {
        Before {
            limit: self.governor.limit(),
            refusals: self.governor.refusals(),
            attempts: 0,
        }
    }

    /// Whether statements wait for a broker now.
    pub(crate) fn are_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a statement that was refused memory may run again, for which it waits.
    pub(crate) async fn more(&self, before: &mut Before) -> bool {
        if !self.may_wait(before) {
            return false;
        }
        before.attempts += 1;
        let waits = Waits::of(&self.waiting);
        let until = Instant::now() + WAIT_MAX;
        let has_risen = loop {
            if self.governor.limit() > before.limit {
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
            tokio::time::sleep(LOOK).await;
        };
        drop(waits);
        if !has_risen {
            *self.fruitless() = Some(Instant::now());
            return false;
        }
        let attempts = before.attempts;
        *before = Before {
            attempts,
            ..self.before()
        };
        true
    }

    fn may_wait(&self, before: &Before) -> bool {
        let is_granted_less = self
            .governor
            .cap()
            .is_some_and(|cap| cap.0 < self.governor.configured_target());
        // Others were refused meanwhile at worst.
        let was_refused_here = self.governor.refusals() > before.refusals;
        let is_fruitless = self.fruitless().is_some_and(|at| at.elapsed() < FRUITLESS);
        is_granted_less && was_refused_here && !is_fruitless && before.attempts < ATTEMPTS_MAX
    }

    fn fruitless(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.fruitless
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts somebody who waits, until it is dropped: statements are stopped while they wait.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn of(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use aerostat_memory::MemoryClass;
    use aerostat_types::ByteSize;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn refused(governor: &Arc<Governor>) {
        let root = governor.root();
        assert!(root.reserve(MemoryClass::Queries, 2_000 * MIB).is_err());
    }

    #[tokio::test]
    async fn a_statement_waits_only_where_a_broker_may_grant_more() {
        let governor = Governor::new(ByteSize(1_000 * MIB));
        let grants = Grants::new(&governor);
        let mut before = grants.before();
        refused(&governor);
        assert!(!grants.more(&mut before).await, "there is no broker");
        governor.set_cap(Some(ByteSize(1_000 * MIB)));
        assert!(!grants.more(&mut before).await, "everything is granted");
        governor.set_cap(Some(ByteSize(100 * MIB)));
        let mut before = grants.before();
        let tenant = governor.budget("small", Some(ByteSize(MIB)));
        assert!(tenant.reserve(MemoryClass::Queries, 2 * MIB).is_err());
        assert!(
            !grants.more(&mut before).await,
            "its own maximum refused it"
        );
    }

    #[tokio::test]
    async fn it_runs_again_once_more_is_granted() {
        let governor = Governor::new(ByteSize(1_000 * MIB));
        governor.set_cap(Some(ByteSize(100 * MIB)));
        let grants = Arc::new(Grants::new(&governor));
        let mut before = grants.before();
        refused(&governor);
        let waiting = Arc::clone(&grants);
        let waits = tokio::spawn(async move {
            let granted = waiting.more(&mut before).await;
            (granted, before)
        });
        while !grants.are_waited_for() {
            tokio::task::yield_now().await;
        }
        governor.set_cap(Some(ByteSize(300 * MIB)));
        let (granted, mut before) = waits.await.unwrap();
        assert!(granted && !grants.are_waited_for());
        // Without another refusal there is nothing to wait for.
        assert!(!grants.more(&mut before).await);
        // What was granted between the refusal and the wait is not waited for.
        refused(&governor);
        governor.set_cap(Some(ByteSize(400 * MIB)));
        assert!(grants.more(&mut before).await);
    }

    #[tokio::test]
    async fn nobody_is_counted_who_has_stopped_waiting() {
        let governor = Governor::new(ByteSize(1_000 * MIB));
        governor.set_cap(Some(ByteSize(100 * MIB)));
        let grants = Grants::new(&governor);
        let mut before = grants.before();
        refused(&governor);
        tokio::select! {
            _ = grants.more(&mut before) => unreachable!("nothing more is granted"),
            () = tokio::task::yield_now() => {}
        }
        assert!(!grants.are_waited_for());
    }
}
