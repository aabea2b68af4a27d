//! Deferred checks: checks of constraints that a transaction leaves to its end.
//!
//! ```text
//!  statement ──► values to be checked ──► Deferred, in the order in which they came
//!                                            │ SET CONSTRAINTS … IMMEDIATE: some
//!                                            │ COMMIT: all
//!                                            ▼
//!                                         checked against the rows of that moment, in a
//!                                         statement of the block's own, under the locks of
//!                                         any check
//! ```
//!
//! * Values wait, not rows. The check looks up whether a row with these values still exists and
//!   where it is, so the row may change as often as it likes before.
//! * The constraint is looked up by its number: a constraint that was dropped with its table, by
//!   CASCADE, needs no check. A table with deferred checks cannot be altered, emptied or dropped.
//! * A rollback to a savepoint forgets the checks that were deferred after it, and what SET
//!   CONSTRAINTS said after it. Checks that were done after it become due again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use aerostat_catalog::CatalogState;
use aerostat_sql::deferral::Deferral;
use aerostat_types::{ConstraintId, RelationId};
use datafusion::{
    arrow::array::{Array, ArrayRef},
    common::Result,
    execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
};
use parking_lot::Mutex;

/// The deferred checks of a transaction, and which constraints are deferred.
#[derive(Default)]
pub struct Deferred(Mutex<State>);

#[derive(Default)]
struct State {
    said: Said,
    waiting: Vec<Waiting>,
    /// Positions of the checks that were done, in the order in which they were done.
    checked: Vec<usize>,
}

/// What SET CONSTRAINTS has said: `true` for DEFERRED.
#[derive(Clone, Default)]
struct Said {
    all: Option<bool>,
    /// By the constraint's OID. These were said after `all`.
    of: HashMap<ConstraintId, bool>,
}

struct Waiting {
    check: Arc<PutOff>,
    is_checked: bool,
}

/// A moment of a transaction, to roll back to.
#[derive(Clone)]
pub struct Mark {
    said: Said,
    waiting: usize,
    checked: usize,
}

/// A deferred check.
pub struct PutOff {
    /// The constraint's OID.
    pub(crate) constraint: ConstraintId,
    pub(crate) about: About,
    /// Values of the constraint's columns; of the referenced columns, if referenced rows are gone.
    pub(crate) values: Vec<ArrayRef>,
    /// The memory of the values.
    reservation: MemoryReservation,
}

/// What the values of a check are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// Keys that rows have got in a unique index.
    Keys,
    /// Values with which rows have come to refer to another table.
    References,
    /// Keys that no longer exist, to which rows may refer.
    Gone,
}

/// Checks that are due.
#[derive(Default)]
pub struct Due {
    positions: Vec<usize>,
    /// The checks, in the order in which they were deferred.
    pub checks: Vec<Arc<PutOff>>,
}

impl Said {
    fn of(&self, constraint: ConstraintId) -> Option<bool> {
        self.of.get(&constraint).copied().or(self.all)
    }
}

impl PutOff {
    /// A deferred check, whose values are charged to the memory of queries.
    pub(crate) fn new(
        pool: &Arc<dyn MemoryPool>,
        constraint: ConstraintId,
        about: About,
        values: Vec<ArrayRef>,
    ) -> Result<Arc<Self>> {
        let reservation = MemoryConsumer::new("deferred constraints").register(pool);
        let check = Self {
            constraint,
            about,
            values,
            reservation,
        };
        check.reservation.try_grow(check.bytes())?;
        Ok(Arc::new(check))
    }

    /// The size of its values in memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.values.iter();
        let bytes: usize = values.map(|values| values.get_array_memory_size()).sum();
        size_of::<Self>() + bytes
    }
}

/// The table whose rows a check is about.
fn table_of(constraint: ConstraintId, about: About, catalog: &CatalogState) -> Option<RelationId> {
    match about {
        About::Keys => catalog.index(constraint).map(|(entry, _)| entry.oid),
        About::References => catalog.foreign_key(constraint).map(|(entry, _)| entry.oid),
        About::Gone => catalog
            .foreign_key(constraint)
            .map(|(_, key)| key.referenced),
    }
}

impl Deferred {
    /// Whether checks of a constraint are deferred now.
    pub(crate) fn puts_off(&self, constraint: ConstraintId, deferral: Deferral) -> bool {
        let said = || self.0.lock().said.of(constraint);
        deferral.is_deferrable() && said().unwrap_or(deferral == Deferral::Deferred)
    }

    /// Defers the checks of a statement that has finished. If the statement fails after all, so
    /// does its block, which ends or goes back to a savepoint before the statement.
    pub(crate) fn add(&self, checks: Vec<Arc<PutOff>>) {
        let waiting = checks.into_iter().map(|check| Waiting {
            check,
            is_checked: false,
        });
        self.0.lock().waiting.extend(waiting);
    }

    /// SET CONSTRAINTS ALL.
    pub fn say_of_all(&self, is_deferred: bool) {
        self.0.lock().said = Said {
            all: Some(is_deferred),
            of: HashMap::new(),
        };
    }

    /// SET CONSTRAINTS for these constraints.
    pub fn say(&self, constraints: &[ConstraintId], is_deferred: bool) {
        let said = constraints
            .iter()
            .map(|&constraint| (constraint, is_deferred));
        self.0.lock().said.of.extend(said);
    }

    /// Whether no check is left to do.
    pub fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.checked.len() == state.waiting.len()
    }

    /// The tables with rows that deferred checks are about.
    pub fn tables(&self, catalog: &CatalogState) -> HashSet<RelationId> {
        let state = self.0.lock();
        let waiting = state.waiting.iter().filter(|waiting| !waiting.is_checked);
        let constraints: HashSet<(ConstraintId, About)> = waiting
            .map(|waiting| (waiting.check.constraint, waiting.check.about))
            .collect();
        let tables = constraints.into_iter();
        tables
            .filter_map(|(constraint, about)| table_of(constraint, about, catalog))
            .collect()
    }

    /// The deferred checks: all of them, or those that SET CONSTRAINTS has made immediate.
    pub fn due(&self, all: bool) -> Due {
        let state = self.0.lock();
        let mut due = Due::default();
        for (at, waiting) in state.waiting.iter().enumerate() {
            let is_immediate = || state.said.of(waiting.check.constraint) == Some(false);
            if !waiting.is_checked && (all || is_immediate()) {
                due.positions.push(at);
                due.checks.push(Arc::clone(&waiting.check));
            }
        }
        due
    }

    /// Notes that these checks have been done. The caller has neither deferred nor forgotten
    /// checks since it asked for them.
    pub fn settle(&self, due: Due) {
        let mut state = self.0.lock();
        assert!(
            due.positions
                .iter()
                .all(|&at| !state.waiting[at].is_checked),
            "a deferred check is done once"
        );
        for &at in &due.positions {
            state.waiting[at].is_checked = true;
        }
        state.checked.extend(due.positions);
    }

    /// The current moment.
    pub fn mark(&self) -> Mark {
        let state = self.0.lock();
        Mark {
            said: state.said.clone(),
            waiting: state.waiting.len(),
            checked: state.checked.len(),
        }
    }

    /// Rolls back to a moment.
    pub fn rollback_to(&self, mark: &Mark) {
        let mut state = self.0.lock();
        assert!(
            mark.waiting <= state.waiting.len() && mark.checked <= state.checked.len(),
            "a transaction goes back to {} deferred checks of {}, {} of {} done",
            mark.waiting,
            state.waiting.len(),
            mark.checked,
            state.checked.len()
        );
        state.said = mark.said.clone();
        let again = state.checked.split_off(mark.checked);
        for at in again {
            state.waiting[at].is_checked = false;
        }
        state.waiting.truncate(mark.waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConstraintId = ConstraintId(1);
    const TWO: ConstraintId = ConstraintId(2);

    /// A check without values, which needs no context.
    fn put_off(constraint: ConstraintId) -> Arc<PutOff> {
        let pool: Arc<dyn MemoryPool> =
            Arc::new(datafusion::execution::memory_pool::UnboundedMemoryPool::default());
        Arc::new(PutOff {
            constraint,
            about: About::Keys,
            values: Vec::new(),
            reservation: MemoryConsumer::new("test").register(&pool),
        })
    }

    fn constraints(due: &Due) -> Vec<ConstraintId> {
        due.checks.iter().map(|check| check.constraint).collect()
    }

    #[test]
    fn what_is_said_last_counts() {
        let deferred = Deferred::default();
        assert!(!deferred.puts_off(ONE, Deferral::Never));
        assert!(!deferred.puts_off(ONE, Deferral::Immediate));
        assert!(deferred.puts_off(ONE, Deferral::Deferred));
        deferred.say_of_all(true);
        assert!(!deferred.puts_off(ONE, Deferral::Never));
        assert!(deferred.puts_off(ONE, Deferral::Immediate));
        deferred.say(&[ONE], false);
        assert!(!deferred.puts_off(ONE, Deferral::Deferred));
        assert!(deferred.puts_off(TWO, Deferral::Immediate));
        deferred.say_of_all(true);
        assert!(deferred.puts_off(ONE, Deferral::Immediate));
    }

    #[test]
    fn what_is_immediate_by_now_is_due() {
        let deferred = Deferred::default();
        deferred.add(vec![put_off(ONE), put_off(TWO), put_off(ONE)]);
        assert!(deferred.due(false).checks.is_empty());
        deferred.say(&[ONE], false);
        let due = deferred.due(false);
        assert_eq!(constraints(&due), [ONE, ONE]);
        deferred.settle(due);
        assert!(deferred.due(false).checks.is_empty());
        assert_eq!(constraints(&deferred.due(true)), [TWO]);
        assert!(!deferred.is_empty());
    }

    #[test]
    fn a_savepoint_brings_back_what_was_checked() {
        let deferred = Deferred::default();
        deferred.add(vec![put_off(ONE)]);
        let mark = deferred.mark();
        deferred.add(vec![put_off(TWO)]);
        deferred.say_of_all(false);
        deferred.settle(deferred.due(false));
        assert!(deferred.is_empty());
        deferred.rollback_to(&mark);
        assert_eq!(constraints(&deferred.due(true)), [ONE]);
        assert!(deferred.puts_off(ONE, Deferral::Deferred));
    }
}
