//! Copies that are opened, or made anew, by a few workers at once.
//!
//! ```text
//!  keeper ── each pass ──┐
//!  worker ── is done ────┴─► due: claimed ─► another worker, while there are fewer than may be
//! ```
//!
//! Whoever finds that a copy is due claims it: it has a worker from then on, or has had one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use aerostat_catalog::{
    CopiesRecord, CopyState, DatabaseRecord, Order, admin::Unopened, failure::with_causes,
};
use aerostat_copies::{
    Links, Running, run,
    seed::{SeedHold, SeedNeed, fetch_from_leader},
};
use aerostat_replication::Settings;
use aerostat_schedule::behind_others;
use aerostat_storage::SystemDisk;
use aerostat_types::TenantId;
use parking_lot::Mutex;

use super::{AGAIN, Copy, Inner};
use crate::owner::{CopyOwner, Ending, Held};

/// Copies that are opened or made anew at once.
const WORKERS_MAX: usize = 4;

/// Counts a worker until it ends.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is to be done about a copy.
enum Due {
    No,
    Opening(Option<Running>),
    Seeding(Option<Running>),
}

impl Inner {
    /// Opens copies that do not run; of databases that are to be elsewhere the keeper alone, since it removes their files.
    pub(super) fn start_due(self: &Arc<Self>, by_keeper: bool) {
        let record = self.home.node.record();
        let all = record.databases.iter();
        for (name, entry, copies) in
            all.filter_map(|(name, entry)| Some((name, entry, entry.copies?)))
        {
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            if self.working.load(Ordering::Acquire) >= WORKERS_MAX {
                return;
            }
            if self.is_here(entry) || by_keeper && self.is_left_over(entry.oid, copies) {
                self.start_if_due(name, entry, copies);
            }
        }
    }

    /// What is to be done about a copy, and what is left of the one before.
    fn due(&self, copy: Option<&mut Copy>) -> Due {
        let Some(copy) = copy else {
            return Due::Opening(None);
        };
        if copy.state.is_shown() {
            copy.hold = None;
        }
        let ended = copy.held.lock().ended;
        match ended {
            Some((at, Ending::Failed)) if at.elapsed() >= AGAIN => {
                Due::Opening(copy.running.take())
            }
            Some((at, Ending::NeedsSeed)) if at.elapsed() >= AGAIN => {
                Due::Seeding(copy.running.take())
            }
            _ => Due::No,
        }
    }

    /// Opens a copy, made anew of what its leader has if that is to be, and runs it: in a thread of its own, so
    /// that others need not wait.
    fn start_if_due(self: &Arc<Self>, name: &str, entry: &DatabaseRecord, of: CopiesRecord) {
        let id = entry.oid;
        let mut copies = self.copies.lock();
        let is_full = self.working.load(Ordering::Acquire) >= WORKERS_MAX;
        if is_full || self.stops.load(Ordering::Acquire) {
            return;
        }
        let (before, anew) = match self.due(copies.get_mut(&id)) {
            Due::No => return,
            Due::Opening(before) => (before, false),
            Due::Seeding(before) => (before, true),
        };
        let copy = copies
            .entry(id)
            .or_insert_with(|| Copy::new(self.identity.node, self.home.reach.clone()));
        copy.held.lock().ended = None;
        self.working.fetch_add(1, Ordering::AcqRel);
        let (keeper, name, entry) = (Arc::clone(self), name.to_owned(), entry.clone());
        let work = move || {
            let working = Working(&keeper.working);
            drop(before);
            if !anew || keeper.seed(&name, &entry, of) {
                keeper.start(&name, &entry, of);
            }
            drop(working);
            // The next, which need not wait for the keeper's next pass.
            keeper.start_due(false);
        };
        let thread = thread::Builder::new().name("aerostat-opens".to_owned());
        match thread.spawn(work) {
            Ok(worker) => copy.worker = Some(worker),
            Err(error) => {
                self.working.fetch_sub(1, Ordering::AcqRel);
                copy.held.lock().ended = Some((Instant::now(), Ending::Failed));
                tracing::error!(%error, "no thread to open a copy with");
            }
        }
    }

    /// What is kept of a copy that is about to be opened.
    pub(super) fn begin(&self, id: TenantId) -> (Arc<CopyState>, Arc<Mutex<Held>>) {
        let mut copies = self.copies.lock();
        let copy = copies
            .entry(id)
            .or_insert_with(|| Copy::new(self.identity.node, self.home.reach.clone()));
        copy.held.lock().ended = None;
        (Arc::clone(&copy.state), Arc::clone(&copy.held))
    }

    fn start(self: &Arc<Self>, name: &str, entry: &DatabaseRecord, of: CopiesRecord) {
        let id = entry.oid;
        let (state, held) = self.begin(id);
        state.take_orders(None);
        state.hide();
        match self.opened(entry, of, &state, &held) {
            Ok(running) => {
                let inbox = running.inbox().clone();
                state.take_orders(Some(Box::new(move |order| match order {
                    Order::Lead => inbox.lead(),
                    Order::Quiet => inbox.quiet(true),
                    Order::Durability(durability) => {
                        inbox.and_sync(durability.syncs_beside_copies());
                    }
                })));
                if let Some(copy) = self.copies.lock().get_mut(&id) {
                    copy.running = Some(running);
                    copy.told = None;
                }
            }
            Err(why) => {
                tracing::warn!(
                    database = name,
                    reason = why.reason,
                    "a copy does not run yet"
                );
                self.home.close(id, &held);
                let ending = match why.is_diverged() {
                    true => Ending::NeedsSeed,
                    false => Ending::Failed,
                };
                self.home.node.fail_copy(id, why);
                held.lock().ended = Some((Instant::now(), ending));
            }
        }
    }

    /// Makes a copy anew of what its leader has; whether it is to be opened.
    fn seed(&self, name: &str, entry: &DatabaseRecord, of: CopiesRecord) -> bool {
        let id = entry.oid;
        let (stop, held) = {
            let copies = self.copies.lock();
            let Some(copy) = copies.get(&id) else {
                return false;
            };
            (Arc::clone(&copy.stop), Arc::clone(&copy.held))
        };
        match self.fetch(entry, of, &stop) {
            Ok(hold) => {
                if let Some(copy) = self.copies.lock().get_mut(&id) {
                    copy.hold = Some(hold);
                }
                self.home.node.found(id);
                true
            }
            Err(reason) => {
                tracing::info!(database = name, reason, "a copy is not made anew yet");
                let reason = format!("its copy is being made anew: {reason}");
                self.home.node.fail_copy(id, Unopened::ended(reason));
                // Where nobody leads it goes on with what it has.
                held.lock().ended = Some((Instant::now(), Ending::Failed));
                false
            }
        }
    }

    fn fetch(
        &self,
        entry: &DatabaseRecord,
        of: CopiesRecord,
        stop: &Arc<AtomicBool>,
    ) -> Result<SeedHold, String> {
        let id = entry.oid;
        let configurations = self.space.configurations(id);
        let configurations = configurations.map_err(|error| error.to_string())?;
        let need = SeedNeed {
            token: self.token.clone(),
            me: self.next_member(),
            tenant: id,
            timeline: Some(of.timeline),
            folder: self.home.node.copy_folder(id),
            disk: Arc::new(SystemDisk),
            stop: Arc::clone(stop),
        };
        let fetched = fetch_from_leader(&need, &*configurations, &self.peers);
        let seeded = fetched.map_err(|error| with_causes(&error))?;
        Ok(seeded.hold)
    }

    /// Opens a copy and runs it.
    pub(super) fn opened(
        self: &Arc<Self>,
        entry: &DatabaseRecord,
        of: CopiesRecord,
        state: &Arc<CopyState>,
        held: &Arc<Mutex<Held>>,
    ) -> Result<Running, Unopened> {
        let id = entry.oid;
        let failed = |error: &dyn std::error::Error| Unopened::ended(error.to_string());
        let configurations = self.space.configurations(id);
        let configurations = configurations.map_err(|error| failed(&error))?;
        let has_lost = self.has_lost(id)?;
        let me = self.next_member();
        let open = || self.home.node.open_copy(id, state, None);
        let opened = match self.is_made_anew(id) {
            // No commit waits for it: whoever leads goes on meanwhile, here or elsewhere on this machine.
            true => behind_others(open),
            false => open(),
        }?;
        let store = Arc::clone(&opened.database.store);
        held.lock().database = Some(opened.database);
        let links = Links::new(
            self.runtime.clone(),
            self.peers.clone(),
            id,
            me,
            self.token.clone(),
        );
        let setup = aerostat_copies::Setup {
            me,
            settings: Settings {
                and_sync: entry.commit_durability().syncs_beside_copies(),
                ..self.settings
            },
            is_first: of.home == self.identity.node,
            has_lost,
            configurations,
            links,
            owner: Box::new(CopyOwner {
                home: Arc::clone(&self.home),
                id,
                state: Arc::clone(state),
                held: Arc::clone(held),
                catalog: opened.catalog,
            }),
            threads: self.threads.clone(),
        };
        Ok(run(setup, (store, opened.applier)))
    }

    /// Whether a copy was made of what its leader has, and has not been shown since.
    fn is_made_anew(&self, id: TenantId) -> bool {
        let copies = self.copies.lock();
        copies.get(&id).is_some_and(|copy| copy.hold.is_some())
    }

    /// Whether the files of a database are gone that the cluster takes this node to have. Where others have
    /// theirs it is a new copy in time; where none has, nobody goes on with nothing.
    fn has_lost(&self, id: TenantId) -> Result<bool, Unopened> {
        if self.home.node.is_lost(id) {
            return Ok(true);
        }
        if self.home.node.has_log(id) {
            return Ok(false);
        }
        let config = self.space.config(id);
        let config = config.map_err(|error| Unopened::ended(error.to_string()))?;
        let was_member = config.is_some_and(|config| config.of(self.identity.node).is_some());
        if was_member {
            tracing::error!(tenant = %id, "the files of a database are missing");
            // Opening makes some that are empty.
            let marked = self.home.node.set_lost(id);
            marked.map_err(|error| Unopened::ended(error.to_string()))?;
        }
        Ok(was_member)
    }
}
