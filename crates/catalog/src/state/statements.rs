//! How many statements of a database run at once and wait, and what part of the query threads they have.
//!
//! ```text
//!  what its owner has lowered ─► what its operator said ─► the node's default ─► no limit
//! ```
//!
//! This is what the record says; whoever runs the statements is told of it when it changes ([`Statements::tell`]).

use std::{fmt, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What is said of a database's statements; `None` where nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementsRecord {
    /// So many run at once; −1 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statements_max: Option<i32>,
    /// So many wait; −1 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<i32>,
    /// So long each waits, in milliseconds; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u32>,
}

impl StatementsRecord {
    /// What this says, and where it says nothing, the other.
    pub fn or(self, other: Self) -> Self {
        Self {
            statements_max: self.statements_max.or(other.statements_max),
            queue_max: self.queue_max.or(other.queue_max),
            queue_timeout_ms: self.queue_timeout_ms.or(other.queue_timeout_ms),
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many run at once; `None` for any number.
    pub fn running_max(&self) -> Option<u32> {
        self.statements_max.and_then(limit)
    }

    /// How many wait; `None` for any number.
    pub fn waiting_max(&self) -> Option<u32> {
        self.queue_max.and_then(limit)
    }

    /// How long each waits; `None` for any time.
    pub fn timeout(&self) -> Option<Duration> {
        let ms = self.queue_timeout_ms.filter(|ms| *ms > 0);
        ms.map(|ms| Duration::from_millis(ms.into()))
    }
}

/// A count of which −1 is none.
fn limit(count: i32) -> Option<u32> {
    u32::try_from(count).ok()
}

/// What holds for a database's statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementLimits {
    /// How many run and wait, and how long.
    pub statements: StatementsRecord,
    /// Their weight for the time of the query threads.
    pub cpu_weight: u32,
}

type Listener = Box<dyn Fn(&StatementLimits) + Send + Sync>;

/// What holds for the statements of a database that is open, and who is to know.
#[derive(Default)]
pub struct Statements(Mutex<State>);

#[derive(Default)]
struct State {
    /// What the node has for databases of which nothing is said.
    defaults: StatementsRecord,
    limits: Option<StatementLimits>,
    listener: Option<Listener>,
}

impl Statements {
    /// The database is open, on a node with these defaults, and its record says this.
    pub(crate) fn begin(&self, defaults: StatementsRecord, said: StatementLimits) {
        self.0.lock().defaults = defaults;
        self.follow(said);
    }

    /// Its record says this from now on.
    pub(crate) fn follow(&self, said: StatementLimits) {
        let mut state = self.0.lock();
        let limits = StatementLimits {
            statements: said.statements.or(state.defaults),
            ..said
        };
        // Whoever is told does not come back here. With the lock, or what was said before could be told after.
        state.limits = Some(limits);
        if let Some(listener) = &state.listener {
            listener(&limits);
        }
    }

    /// Has somebody know what holds, now and whenever it changes, instead of whoever was told before.
    pub fn tell(&self, listener: impl Fn(&StatementLimits) + Send + Sync + 'static) {
        let mut state = self.0.lock();
        if let Some(limits) = &state.limits {
            listener(limits);
        }
        state.listener = Some(Box::new(listener));
    }

    /// What holds for how many run and wait.
    pub fn limits(&self) -> StatementsRecord {
        let state = self.0.lock();
        state
            .limits
            .map(|limits| limits.statements)
            .unwrap_or_default()
    }
}

impl fmt::Debug for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Statements").field(&self.limits()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn said(statements_max: i32) -> StatementsRecord {
        StatementsRecord {
            statements_max: Some(statements_max),
            ..StatementsRecord::default()
        }
    }

    #[test]
    fn what_is_said_goes_before_what_holds_otherwise() {
        let defaults = StatementsRecord {
            statements_max: Some(64),
            queue_max: Some(100),
            queue_timeout_ms: Some(0),
        };
        assert_eq!(StatementsRecord::default().or(defaults), defaults);
        assert_eq!(defaults.timeout(), None);
        let mut owner = said(3);
        owner.queue_timeout_ms = Some(250);
        let in_force = owner.or(said(8)).or(defaults);
        assert_eq!(in_force.running_max(), Some(3));
        assert_eq!(in_force.waiting_max(), Some(100));
        assert_eq!(in_force.timeout(), Some(Duration::from_millis(250)));
        // A word that there is no limit is one against the node's.
        assert_eq!(said(-1).or(defaults).running_max(), None);
    }

    #[test]
    fn whoever_listens_knows_what_holds_at_first_and_after_each_change() {
        let statements = Statements::default();
        let of = |statements, cpu_weight| StatementLimits {
            statements,
            cpu_weight,
        };
        statements.begin(said(64), of(StatementsRecord::default(), 100));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        statements.tell(move |limits| {
            let heard = (limits.statements.running_max(), limits.cpu_weight);
            hears.lock().push(heard);
        });
        statements.follow(of(said(7), 300));
        assert_eq!(*heard.lock(), [(Some(64), 100), (Some(7), 300)]);
        assert_eq!(statements.limits(), said(7));
    }
}
