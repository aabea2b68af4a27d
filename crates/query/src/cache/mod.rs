//! Cached plans of repeated statements, by database.
//!
//! ```text
//!  text, types of parameters ─┐
//!  role, search path, zone    ├─► cached plan ─► locks ─► the new snapshot's tables ─► values ─► …
//!  catalogue, node's roles    ┘   (`kept`)
//!                                 the physical plan, of queries without values or for all of
//!                                 them (`physical`)
//!  text with other constants ──► the same, of the text with parameters in their place (`lift`)
//! ```
//!
//! A plan's key contains everything that names, rights and types depend on, so a plan that is
//! found needs no checks except its locks. All plans belong to one state of the catalogue and of
//! the node's roles: when a plan of another state is put in, the others are removed.
//!
//! A plan is cached if nothing in it belongs to one statement: no system relation, no function
//! that answers from the catalogue, no table function, no locks on rows (`fitness`). It holds no
//! rows and no snapshot, and holds its tables weakly, so that a dropped table's memory does not
//! wait for it.
//!
//! Cached plans are charged to the database's memory; a plan is not cached without room there.

mod fitness;
mod kept;
mod lift;
mod physical;
mod size;

use std::{
    collections::{HashMap, hash_map},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_api::ParameterType;
use aerostat_catalog::NodeRecord;
use aerostat_memory::{Budget, MemoryClass, Reclaim, Reservation};
use aerostat_sql::statement::{Source, Statement, StatementKind};
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;

use crate::plan::StatementContext;

pub use fitness::{Fitness, examine};
pub use kept::{KeptPlan, Stage, optimize_for_values};
pub use lift::{Lifted, lifted};
pub use physical::{Fit, KeptPhysical, Revived};

/// How many plans a database caches: as many as an application has queries, of about ten
/// kilobytes each.
const PLANS_MAX: usize = 512;

/// How many bytes they take together, by the estimate of [`KeptPlan::bytes`].
const BYTES_MAX: u64 = 16 << 20;

/// In a database with a memory limit of its own, they take at most this part of it.
const SHARE_MAX: u64 = 64;

/// How many texts with other constants are remembered. When there are more, all are forgotten.
const SIGHTS_MAX: usize = 4_096;

/// The length of a text whose plan is cached, at most. Programs write longer texts, each for a
/// single use.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The cached plans of a database.
pub struct PlanCache {
    budget: Arc<Budget>,
    shelf: Mutex<Shelf>,
    hits: AtomicU64,
    misses: AtomicU64,
    physical_hits: AtomicU64,
}

#[derive(Default)]
struct Shelf {
    /// The state under which all its plans were made; `None` while there are none.
    place: Option<PlanScope>,
    texts: HashMap<Arc<str>, Text>,
    plans: usize,
    bytes: u64,
    /// What is known of texts whose constants differ, by their hashes.
    sights: HashMap<u64, Sight>,
    /// Counts the uses of all plans.
    clock: u64,
}

/// The state that names and rights depend on, apart from the role that asks.
struct PlanScope {
    epoch: u64,
    node: Arc<NodeRecord>,
}

/// A statement's text, and its plans for different users.
struct Text {
    /// The statement, if it was read from a message that begins with it.
    parsed: Option<Arc<ast::Statement>>,
    entries: Vec<Entry>,
}

struct Entry {
    role: String,
    path: Vec<String>,
    zone: Option<String>,
    parameters: Vec<ParameterType>,
    plan: Arc<KeptPlan>,
    /// The clock at its last use.
    used: u64,
    memory: Reservation,
}

/// What is known of a text without its constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It comes for the first time.
    First,
    /// It has come before.
    Again,
    /// Its plan depends on the constants.
    Unfit,
}

/// The key of a plan.
#[derive(Clone, Copy)]
pub struct Sought<'a> {
    /// The statement's text.
    pub text: &'a Arc<str>,
    /// The types of its parameters.
    pub parameters: &'a [ParameterType],
    /// Role, search path, time zone and catalogue.
    pub context: &'a StatementContext,
}

/// What a database's plan cache has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanCacheCounts {
    /// Queries for which a cached plan was found.
    pub hits: u64,
    /// Queries that could have had a cached plan and had none.
    pub misses: u64,
    /// The hits for which the physical plan was cached, too.
    pub physical_hits: u64,
}

impl PlanCache {
    /// An empty cache, whose plans will be charged to this budget.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            shelf: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            physical_hits: AtomicU64::new(0),
        }
    }

    /// What the cache has done since the node started.
    pub fn counts(&self) -> PlanCacheCounts {
        PlanCacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            physical_hits: self.physical_hits.load(Ordering::Relaxed),
        }
    }

    /// Whether plans of statements with this text may be cached.
    #[inline]
    pub fn takes(text: &str) -> bool {
        text.len() <= TEXT_BYTES_MAX
    }

    /// The statement that a message consists of, if a plan of it is cached: then its text need not
    /// be parsed again.
    pub fn statement(&self, message: &str) -> Option<Statement> {
        let end = |char: char| char == ';' || char.is_ascii_whitespace();
        let shelf = self.shelf.lock();
        let (text, known) = shelf.texts.get_key_value(message.trim_end_matches(end))?;
        Some(Statement {
            kind: StatementKind::Sql(Arc::clone(known.parsed.as_ref()?)),
            source: Source::of(Arc::clone(text)),
        })
    }

    /// The plan of a query, if one is cached.
    pub fn find(&self, sought: &Sought<'_>) -> Option<Arc<KeptPlan>> {
        let found = self.shelf.lock().find(sought);
        if found.is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Notes that a query has to be planned.
    #[inline]
    pub fn note_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a text has come before, with these constants or others. From now on it has.
    pub fn sight(&self, text: &str) -> Sight {
        let mut shelf = self.shelf.lock();
        shelf.see(text, Sight::Again).unwrap_or(Sight::First)
    }

    /// Notes that the plan of a text depends on its constants.
    pub fn note_unfit(&self, text: &str) {
        self.shelf.lock().see(text, Sight::Unfit);
    }

    /// Notes that a cached physical plan runs.
    #[inline]
    pub fn note_physical(&self) {
        self.physical_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Caches the plan of a query, in the place of the previous one.
    ///
    /// `parsed` is the query, if it was read from a message that begins with it.
    pub fn keep(
        &self,
        sought: &Sought<'_>,
        parsed: Option<&Arc<ast::Statement>>,
        plan: Arc<KeptPlan>,
    ) {
        let bytes = plan.bytes() + sought.text.len() as u64;
        let bytes_max = self.bytes_max();
        if bytes > bytes_max {
            return;
        }
        let Ok(memory) = self.budget.reserve(MemoryClass::CachedPlans, bytes) else {
            return;
        };
        // The removed plans are freed after the lock is released.
        let mut shelf = self.shelf.lock();
        let mut gone = shelf.put(sought, parsed, plan, memory);
        while shelf.plans > PLANS_MAX || shelf.bytes > bytes_max {
            match shelf.remove_oldest() {
                Some(text) => gone.push(text),
                None => break,
            }
        }
        drop(shelf);
        drop(gone);
    }

    /// Bytes that its plans take.
    pub fn bytes(&self) -> u64 {
        self.budget.used_for(MemoryClass::CachedPlans)
    }

    fn bytes_max(&self) -> u64 {
        let ceiling = self.budget.max();
        ceiling.map_or(BYTES_MAX, |max| BYTES_MAX.min(max.0 / SHARE_MAX))
    }
}

/// A plan costs a few milliseconds to have again: those that were used longest ago go first.
impl Reclaim for PlanCache {
    fn reclaim(&self, bytes: u64) -> u64 {
        // Whoever has the lock, this thread perhaps, is about to find or to keep a plan.
        let Some(mut shelf) = self.shelf.try_lock() else {
            return 0;
        };
        let before = shelf.bytes;
        let mut gone = Vec::new();
        while before - shelf.bytes < bytes {
            match shelf.remove_oldest() {
                Some(text) => gone.push(text),
                None => break,
            }
        }
        let given = before - shelf.bytes;
        drop(shelf);
        drop(gone);
        given
    }
}

impl Shelf {
    fn find(&mut self, sought: &Sought<'_>) -> Option<Arc<KeptPlan>> {
        if !self.place.as_ref()?.is_of(sought.context) {
            return None;
        }
        self.clock += 1;
        let entries = &mut self.texts.get_mut(&**sought.text)?.entries;
        let entry = entries.iter_mut().find(|entry| entry.is_for(sought))?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.plan))
    }

    /// Puts a plan in, and returns the plans of another state, which it replaces.
    fn put(
        &mut self,
        sought: &Sought<'_>,
        parsed: Option<&Arc<ast::Statement>>,
        plan: Arc<KeptPlan>,
        memory: Reservation,
    ) -> Vec<Text> {
        let context = sought.context;
        let mut gone = Vec::new();
        match &self.place {
            Some(place) if place.is_of(context) => {}
            // The statement began before the catalogue changed.
            Some(place) if place.epoch > context.catalog.epoch => return gone,
            _ => {
                gone.extend(self.texts.drain().map(|(_, text)| text));
                self.sights.clear();
                (self.plans, self.bytes) = (0, 0);
                self.place = Some(PlanScope {
                    epoch: context.catalog.epoch,
                    node: Arc::clone(&context.system.node),
                });
            }
        }
        self.clock += 1;
        self.bytes += memory.bytes();
        self.plans += 1;
        let entry = Entry {
            role: context.actor.role.clone(),
            path: context.actor.search_path.clone(),
            zone: context.zone().map(str::to_owned),
            parameters: sought.parameters.to_vec(),
            plan,
            used: self.clock,
            memory,
        };
        let text = self.texts.entry(Arc::clone(sought.text));
        let text = text.or_insert_with(|| Text {
            parsed: None,
            entries: Vec::new(),
        });
        if text.parsed.is_none() {
            text.parsed = parsed.cloned();
        }
        match text.entries.iter_mut().find(|other| other.is_for(sought)) {
            Some(before) => {
                self.bytes -= before.memory.bytes();
                self.plans -= 1;
                *before = entry;
            }
            None => text.entries.push(entry),
        }
        assert!(
            self.plans >= self.texts.len(),
            "{} plans are counted, and {} texts have one each at least",
            self.plans,
            self.texts.len()
        );
        gone
    }

    /// Notes what is known of a text now, unless it is unfit. Returns what was known before.
    fn see(&mut self, text: &str, now: Sight) -> Option<Sight> {
        if self.sights.len() >= SIGHTS_MAX {
            self.sights.clear();
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
        match self.sights.entry(hash) {
            hash_map::Entry::Occupied(mut known) => Some(match *known.get() {
                Sight::Unfit => Sight::Unfit,
                _ => known.insert(now),
            }),
            hash_map::Entry::Vacant(place) => {
                place.insert(now);
                None
            }
        }
    }

    /// Removes the text that was used longest ago, with all its plans.
    fn remove_oldest(&mut self) -> Option<Text> {
        let last_use = |text: &Text| text.entries.iter().map(|entry| entry.used).max();
        let oldest = self.texts.iter().min_by_key(|(_, text)| last_use(text));
        let oldest = Arc::clone(oldest?.0);
        let text = self.texts.remove(&oldest)?;
        self.plans -= text.entries.len();
        let bytes = text.entries.iter().map(|entry| entry.memory.bytes());
        self.bytes -= bytes.sum::<u64>();
        assert!(
            !self.texts.is_empty() || (self.plans, self.bytes) == (0, 0),
            "{} plans of {} bytes are counted, and none is there",
            self.plans,
            self.bytes
        );
        Some(text)
    }
}

impl PlanScope {
    fn is_of(&self, context: &StatementContext) -> bool {
        self.epoch == context.catalog.epoch && Arc::ptr_eq(&self.node, &context.system.node)
    }
}

impl Entry {
    fn is_for(&self, sought: &Sought<'_>) -> bool {
        let context = sought.context;
        self.role == context.actor.role
            && self.path == context.actor.search_path
            && self.zone.as_deref() == context.zone()
            && self.parameters == sought.parameters
    }
}
