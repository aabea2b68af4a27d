//! The locks that a statement takes while it is planned.
//!
//! ```text
//!  catalogue ──► snapshot ──► planning: each relation is locked as it is met
//!     ▲                          │ a lock is not free, or others have
//!     │                          │ changed what exists by the end
//!     └── wait for the lock ◄────┘
//! ```
//!
//! Planning finds out which relations a statement needs, and runs on threads that must not
//! sleep. So it never waits: a lock that is not free is an obstacle, the plan is given up, and
//! the session waits and plans again.
//!
//! A transaction with definitions first makes its rows visible, then its catalogue, and
//! releases its locks last. So if a statement has loaded the catalogue before its snapshot, and
//! finds it unchanged once it has all its locks, its snapshot contains everything that was done
//! to its relations, and nobody does more to them.

use std::sync::Arc;

use aerostat_catalog::{
    CatalogState, Database, Definitions, SequenceEntry, Temporaries, relation_tag,
};
use aerostat_txn::{LockMode, LockTag, RelationLocks};
use aerostat_types::{ErrorKind, RelationId, SqlError};
use parking_lot::Mutex;

/// The catalogue that a statement is planned on, and the locks that it takes.
pub struct Gate {
    database: Arc<Database>,
    /// The definitions that the statement sees.
    catalog: Arc<CatalogState>,
    /// The part of them that others have committed.
    committed: Arc<CatalogState>,
    /// `None` for a plan that will not run.
    locks: Option<Arc<RelationLocks>>,
    /// Why no relation may be used, if so.
    bar: Option<SqlError>,
    obstacle: Mutex<Option<Obstacle>>,
}

/// Why a statement must be planned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another transaction has, or waits for, a lock that excludes this one.
    Locked(LockTag, LockMode),
    /// Other transactions have changed what exists.
    Changed,
}

impl Gate {
    /// A gate over the current catalogue. Where there is a `bar` a statement that runs may use no relation of
    /// the database.
    ///
    /// # Errors
    /// The transaction's definitions contradict what others have committed.
    pub fn new(
        database: &Arc<Database>,
        definitions: Option<&Definitions>,
        temporaries: &Temporaries,
        locks: Option<Arc<RelationLocks>>,
        bar: Option<SqlError>,
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
            bar,
            obstacle: Mutex::new(None),
        }))
    }

    /// The definitions that the statement sees.
    #[inline]
    pub fn catalog(&self) -> &Arc<CatalogState> {
        &self.catalog
    }

    /// The locks of the statement; `None` for a plan that will not run.
    #[inline]
    pub fn locks(&self) -> Option<&Arc<RelationLocks>> {
        self.locks.as_ref()
    }

    /// Whether the statement sees the committed catalogue, without definitions of its own.
    #[inline]
    pub fn is_committed(&self) -> bool {
        Arc::ptr_eq(&self.catalog, &self.committed)
    }

    /// Locks a relation that the statement needs.
    ///
    /// # Errors
    /// Another transaction is in the way, and the statement is planned again; or no relation may be used.
    #[inline]
    pub fn require(&self, oid: RelationId, mode: LockMode) -> Result<(), SqlError> {
        let Some(locks) = &self.locks else {
            return Ok(());
        };
        if let Some(bar) = &self.bar {
            return Err(bar.clone());
        }
        let tag = relation_tag(oid);
        if locks.try_acquire(tag, mode) {
            return Ok(());
        }
        Err(self.meet(Obstacle::Locked(tag, mode)))
    }

    /// A sequence that the running statement takes numbers from; `None` if it does not exist. If it
    /// was not known when the statement was planned, it is locked now.
    ///
    /// # Errors
    /// Another transaction is changing the sequence.
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
        // Under the lock nobody changes it, but another transaction may have changed it before. The
        // transaction's own changes are only in its own state.
        let committed = of(&self.committed);
        if committed.is_some_and(|committed| Arc::ptr_eq(&committed, &planned)) {
            return Ok(of(&self.database.catalog.load()));
        }
        Ok(Some(planned))
    }

    /// Confirms that the catalogue has not changed, once the statement has all its locks.
    ///
    /// # Errors
    /// The statement must be planned again.
    #[inline]
    pub fn confirm(&self) -> Result<(), SqlError> {
        if self.locks.is_none() {
            return Ok(());
        }
        let met = *self.obstacle.lock();
        match met {
            Some(obstacle) => Err(self.meet(obstacle)),
            // On a copy rows are shown a moment before the catalogue that was committed with them.
            None if self.database.store.is_defining() => Err(self.meet(Obstacle::Changed)),
            None if Arc::ptr_eq(&self.database.catalog.load(), &self.committed) => Ok(()),
            None => Err(self.meet(Obstacle::Changed)),
        }
    }

    /// Why the statement must be planned again, if it must.
    #[inline]
    pub fn obstacle(&self) -> Option<Obstacle> {
        *self.obstacle.lock()
    }

    /// Notes an obstacle. The error stands for it on the way out of the planner; no user sees it.
    fn meet(&self, obstacle: Obstacle) -> SqlError {
        // The first obstacle stays: a lock to wait for says more than that something has changed.
        self.obstacle.lock().get_or_insert(obstacle);
        SqlError::new(
            ErrorKind::LockNotAvailable,
            "the statement is planned again",
        )
    }
}
