//! A tenant as the engine has it: one value, which comes with the first session and goes when the
//! database is closed or dropped.
//!
//! ```text
//!  catalog::admin    closed ─► opening ─► open ────────────────► leaving ─► ending ─► closed
//!                                          │ the first session    │ no session is left
//!  Engine::tenants                         └─► Tenant ────────────┘ let go
//! ```
//!
//! It owns all that is kept for the tenant beside its catalogue and rows, and nobody else keeps
//! anything by a tenant's number. Sessions have it, so it is there as long as one is. When the engine
//! has let go of it nothing of the tenant is left here: not its plans, not its budget's reservations,
//! not its share of the query threads. A database that is opened again has another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aerostat_catalog::Database;
use aerostat_query::{
    Cancellation, Heap, SpillSpace, TenantSpill,
    cache::{PlanCache, PlanCacheCounts},
    tenant_environment, turns,
};
use aerostat_schedule::{
    Scheduler, Share, WEIGHT_DEFAULT,
    admission::{Admission, Entrance, Limits},
};
use aerostat_sql::utility::CPU_WEIGHT_DEFAULT;
use datafusion::{common::Result, execution::runtime_env::RuntimeEnv};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{commits::Commits, notify::Channels};

/// All that the engine keeps for a tenant.
pub(crate) struct Tenant {
    /// What its queries run in: its memory and its part of the disk.
    environment: Arc<RuntimeEnv>,
    spill: Arc<TenantSpill>,
    /// What its statements hold.
    heap: Arc<Heap>,
    /// Where its commits wait.
    commits: Arc<Commits>,
    /// The plans that are kept for it.
    plans: Arc<PlanCache>,
    /// Where its sessions listen.
    channels: Arc<Channels>,
    /// What it has of the query threads.
    share: Arc<Share>,
    /// Where its statements come in.
    entrance: Arc<Entrance>,
    /// Nanoseconds that statements by key have taken, about.
    by_key: AtomicU64,
    /// The last to go: all others have to do with it.
    database: Arc<Database>,
}

impl Tenant {
    /// Of a database that is open, for its first session.
    ///
    /// # Errors
    /// Its queries have nothing to run in.
    pub(crate) fn of(
        database: &Arc<Database>,
        spill: &Arc<SpillSpace>,
        scheduler: &Arc<Scheduler>,
        admission: &Arc<Admission>,
    ) -> Result<Arc<Tenant>> {
        let budget = database.store.budget();
        let heap = Heap::new(budget);
        let spill = spill.of_tenant(&database.id.to_string());
        let environment =
            tenant_environment(Arc::clone(budget), Arc::clone(&heap), Arc::clone(&spill))?;
        let plans = Arc::new(PlanCache::new(Arc::clone(budget)));
        let reclaim = Arc::downgrade(&plans);
        budget.reclaim_from(0, reclaim);
        let (share, entrance) = (scheduler.share(database.id), admission.entrance());
        follow_limits(database, &share, &entrance);
        Ok(Arc::new(Tenant {
            environment,
            spill,
            heap,
            commits: Arc::default(),
            plans,
            channels: Arc::default(),
            share,
            entrance,
            by_key: AtomicU64::new(0),
            database: Arc::clone(database),
        }))
    }

    /// Whether it is of this very opening of the database.
    pub(crate) fn is_of(&self, database: &Arc<Database>) -> bool {
        Arc::ptr_eq(&self.database, database)
    }

    /// Runs a statement's work on the query threads, when it is the tenant's turn. The statement is
    /// stopped by this if it holds too much.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        queries: &Handle,
        cancellation: &Cancellation,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let holding = self.heap.statement(cancellation);
        turns::spawn(queries, self.share.work(), holding, work)
    }

    /// Where its statements come in.
    pub(crate) fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }

    pub(crate) fn environment(&self) -> &Arc<RuntimeEnv> {
        &self.environment
    }

    pub(crate) fn commits(&self) -> &Arc<Commits> {
        &self.commits
    }

    pub(crate) fn plans(&self) -> &Arc<PlanCache> {
        &self.plans
    }

    pub(crate) fn channels(&self) -> &Arc<Channels> {
        &self.channels
    }

    /// What its statements have taken: planned ones of the query threads, those by key of their clients' threads, of
    /// which some are measured.
    pub(crate) fn query_time(&self) -> Duration {
        self.share.used() + Duration::from_nanos(self.by_key.load(Ordering::Relaxed))
    }

    /// A statement by key has taken so long, and stands for as many.
    pub(crate) fn count_by_key(&self, taken: Duration, statements: u32) {
        let nanos = u64::try_from((taken * statements).as_nanos()).unwrap_or(u64::MAX);
        self.by_key.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn plan_counts(&self) -> PlanCacheCounts {
        self.plans.counts()
    }

    /// Bytes that its queries have on disk now.
    pub(crate) fn spilled(&self) -> u64 {
        self.spill.used()
    }
}

// Both say what holds where nobody has said anything.
const _: () = assert!(CPU_WEIGHT_DEFAULT == WEIGHT_DEFAULT);

/// Has what the database's record says of its statements hold, from now on and whenever it changes.
fn follow_limits(database: &Database, share: &Arc<Share>, entrance: &Arc<Entrance>) {
    // The database may outlive what is kept for it here.
    let (share, entrance) = (Arc::downgrade(share), Arc::downgrade(entrance));
    database.statements.tell(move |limits| {
        if let Some(share) = share.upgrade() {
            share.set_weight(limits.cpu_weight);
        }
        if let Some(entrance) = entrance.upgrade() {
            let of_tenant = Limits {
                running_max: limits.statements.running_max(),
                waiting_max: limits.statements.waiting_max(),
            };
            entrance.set_limits(of_tenant, limits.cpu_weight);
        }
    });
}
