//! The locks that a statement takes while it is planned.
//!
//! ```text
//!  catalogue ──► snapshot ──► planning: each relation is locked as it is met
//!     ▲                          │ somebody is in the way, or others have
//!     │                          │ changed what exists by the end
//!     └── wait for the lock ◄────┘
//! ```
//!
//! Planning finds out which relations a statement needs, and runs on threads that must not
//! sleep. So it never waits: a lock that is not free is an obstacle, the plan is given up,
//! the session waits and plans again on what there is then.
//!
//! A transaction that changes what exists lets others see its rows first, then its
//! catalogue, and gives its locks back last. So a statement that has loaded the catalogue
//! before its snapshot, and finds it unchanged once it has all its locks, has a snapshot
//! with everything that was done to its relations, and nobody does more to them.

use std::sync::Arc;

use aerostat_catalog::{
    CatalogState, Database, Definitions, SequenceEntry, Temporaries, relation_tag,
};
use aerostat_txn::{LockMode, LockTag, RelationLocks};
use aerostat_types::{ErrorKind, RelationId, SqlError};
use parking_lot::Mutex;

/// What a statement is planned on, and with which locks.
pub struct Gate {
    database: Arc<Database>,
    /// What there is for the statement.
    catalog: Arc<CatalogState>,
    /// What others have committed of it.
    committed: Arc<CatalogState>,
    /// `None` for a plan that is not run.
    locks: Option<Arc<RelationLocks>>,
    obstacle: Mutex<Option<Obstacle>>,
}

/// Why a statement must be planned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Somebody has, or waits for, a lock that excludes this one.
    Locked(LockTag, LockMode),
    /// Others have changed what exists.
    Changed,
}

impl Gate {
    /// Of what there is now.
    ///
    /// # Errors
    /// The transaction's definitions contradict what others have committed.
    pub fn new(
        database: &Arc<Database>,
        definitions: Option<&Definitions>,
        temporaries: &Temporaries,
        locks: Option<Arc<RelationLocks>>,
    ) -> Result<Arc<Self>, SqlError> {
        let committed = database.catalog.load();
        let catalog = match definitions {
            Some(definitions) => definitions.load()?,
            None => temporaries.over(&committed),
        };
        Ok(Arc::new(Self {
            database: Arc::clone(database),
            catalog,
            committed,
            locks,
            obstacle: Mutex::new(None),
        }))
    }

    /// The definitions that the statement sees.
    #[inline]
    pub fn catalog(&self) -> &Arc<CatalogState> {
        &self.catalog
    }

    /// The locks of the statement; `None` for a plan that is not run.
    #[inline]
    pub fn locks(&self) -> Option<&Arc<RelationLocks>> {
        self.locks.as_ref()
    }

    /// Whether it sees what all see, and no definitions of its own.
    #[inline]
    pub fn is_committed(&self) -> bool {
        Arc::ptr_eq(&self.catalog, &self.committed)
    }

    /// Locks a relation that the statement needs.
    ///
    /// # Errors
    /// Somebody is in the way. The statement is planned again.
    #[inline]
    pub fn require(&self, oid: RelationId, mode: LockMode) -> Result<(), SqlError> {
        let Some(locks) = &self.locks else {
            return Ok(());
        };
        let tag = relation_tag(oid);
        if locks.try_acquire(tag, mode) {
            return Ok(());
        }
        Err(self.meet(Obstacle::Locked(tag, mode)))
    }

    /// A sequence that the running statement takes numbers from; `None` if it is not there.
    /// One that was not known when the statement was planned is locked now.
    ///
    /// # Errors
    /// Somebody is changing it.
    pub fn sequence(&self, oid: RelationId) -> Result<Option<Arc<SequenceEntry>>, SqlError> {
        let of = |state: &CatalogState| state.sequence(oid).map(|(_, entry)| Arc::clone(entry));
        let Some(planned) = of(&self.catalog) else {
            return Ok(None);
        };
        let is_locked = self
            .locks
            .as_ref()
            .is_none_or(|locks| locks.try_acquire(relation_tag(oid), LockMode::RowExclusive));
        if !is_locked {
            return Err(SqlError::new(
                ErrorKind::LockNotAvailable,
                format!("could not obtain lock on relation \"{}\"", planned.name),
            ));
        }
        // Under the lock nobody changes it, but somebody may have before. What the
        // transaction has changed itself is only in its own state.
        let committed = of(&self.committed);
        if committed.is_some_and(|committed| Arc::ptr_eq(&committed, &planned)) {
            return Ok(of(&self.database.catalog.load()));
        }
        Ok(Some(planned))
    }

    /// Says that the statement has all its locks.
    ///
    /// # Errors
    /// It must be planned again.
    #[inline]
    pub fn confirm(&self) -> Result<(), SqlError> {
        if self.locks.is_none() {
            return Ok(());
        }
        let met = *self.obstacle.lock();
        match met {
            Some(obstacle) => Err(self.meet(obstacle)),
            None if Arc::ptr_eq(&self.database.catalog.load(), &self.committed) => Ok(()),
            None => Err(self.meet(Obstacle::Changed)),
        }
    }

    /// Why the statement must be planned again, if it must.
    #[inline]
    pub fn obstacle(&self) -> Option<Obstacle> {
        *self.obstacle.lock()
    }

    /// The error stands for the obstacle on the way out of the planner; no user sees it.
    fn meet(&self, obstacle: Obstacle) -> SqlError {
        // A lock to wait for says more than that something has changed.
        self.obstacle.lock().get_or_insert(obstacle);
        SqlError::new(
            ErrorKind::LockNotAvailable,
            "the statement is planned again",
        )
    }
}
