//! The node's databases, each at the stage it has come to.
//!
//! ```text
//!            somebody wants it            it is whole            CLOSE
//!   Closed ────────────────────► Opening ────────────► Open ─────────────► Leaving ──► Ending
//!     ▲                          ▲    │ it cannot be     ▲                    │ somebody   │
//!     │        again, and not    │    ▼                  └────────────────────┘ stays      │
//!     │        at once           └─ Failed                                                 │
//!     └────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! * Nobody opens a database, or waits for one, with the lock of this: [`super::opening`].
//! * One that could not be opened is known by its reason, which whoever connects is told. It
//!   can be dropped and restored under another name, and its options can be set; what would
//!   have to look inside it is refused.
//! * Of one that is closed it is known which roles it names once somebody has asked, as long as
//!   it stays closed: [`super::closed`].

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use aerostat_storage::{Ended, RecoverError, StorageError};
use aerostat_types::{ErrorKind, SqlError};

use super::{
    attempt::Attempt, database_state::DatabaseState, node::undefined_database, record::OpenError,
};
use crate::{
    failure::with_causes,
    state::{Database, NamedRoles},
};

/// A database that could not be opened is tried again, when somebody wants it, after so many
/// times what the attempt has taken: whoever comes again and again to a large one that is damaged
/// has the node read it for a tenth of the time.
const RETRY_FACTOR: u32 = 9;

/// And not before: an error for each try goes to the log.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// When a node opens its databases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// All of them when it starts, so that the operator is told of one that is damaged.
    #[default]
    Eager,
    /// Each when somebody wants it first: a start reads none.
    Lazy,
}

/// Why a database is there and not open.
#[derive(Clone, Debug)]
pub struct Unopened {
    kind: ErrorKind,
    /// What is wrong, with its causes.
    pub reason: String,
    /// Whether it is a copy of another history than it should be.
    is_diverged: bool,
}

impl Unopened {
    pub(super) fn of(error: &OpenError) -> Self {
        let kind = match error {
            OpenError::Recover(RecoverError::Damaged { .. })
            | OpenError::Missing { .. }
            | OpenError::Catalog(_) => ErrorKind::DataCorrupted,
            OpenError::Recover(RecoverError::Storage(StorageError::OutOfMemory(_)))
            | OpenError::Storage(StorageError::OutOfMemory(_)) => ErrorKind::OutOfMemory,
            _ => ErrorKind::IoError,
        };
        Self {
            kind,
            reason: with_causes(error),
            is_diverged: matches!(error, OpenError::Recover(RecoverError::Diverged { .. })),
        }
    }

    /// One that could not go on.
    pub fn ended(reason: String) -> Self {
        Self {
            kind: ErrorKind::IoError,
            reason,
            is_diverged: false,
        }
    }

    /// Whether its files are of another history than its leader's: it is to be made anew from what that has.
    pub fn is_diverged(&self) -> bool {
        self.is_diverged
    }

    /// Whether its files are damaged, and not the machine short of something.
    pub fn is_damaged(&self) -> bool {
        self.kind == ErrorKind::DataCorrupted
    }

    /// The error of whoever wants it open.
    pub(super) fn refusal(&self, name: &str) -> SqlError {
        let hint = match self.kind {
            ErrorKind::DataCorrupted => {
                "Restore it from a backup under another name and drop it, or stop the node and use \"aerostat repair\"."
            }
            ErrorKind::OutOfMemory => {
                "Raise the database's memory_max and connect again, or raise the server's --memory and start the node again."
            }
            _ => "Mend the cause, and connect again.",
        };
        SqlError::new(
            self.kind,
            format!("database \"{name}\" could not be opened"),
        )
        .with_detail(self.reason.clone())
        .with_hint(hint)
    }

    /// The error of whoever would have to look into every database.
    pub(super) fn bars(&self, name: &str, doing: &str) -> SqlError {
        SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            format!("cannot {doing} while database \"{name}\" could not be opened"),
        )
        .with_detail(self.reason.clone())
        .with_hint(
            "What belongs to the role in that database is not known. Repair or drop it first.",
        )
    }
}

/// Where a database stands.
pub(super) enum Stage {
    /// Its folder is nobody's, and nothing of it is in memory.
    Closed(Closed),
    /// Somebody opens it. An attempt that is over and has left nothing else was given up.
    Opening(Arc<Attempt>),
    /// It is served.
    Open(Arc<Database>),
    /// It could not be opened.
    Failed(Failed),
    /// Nobody is let in any more, and those who are wait for others to go.
    Leaving(Arc<Database>),
    /// Nothing of it is served; its folder is somebody's until this is over.
    Ending(Ended),
}

/// A database that is closed.
#[derive(Default)]
pub(super) struct Closed {
    /// The roles that it names, once somebody has read them. Whoever reads has this very cell: when
    /// the database has been open meanwhile, what was read is put into a cell that nobody has.
    pub(super) named: Arc<OnceLock<NamedRoles>>,
}

impl Closed {
    /// One of which it is known which roles it names.
    pub(super) fn knowing(named: NamedRoles) -> Self {
        Self {
            named: Arc::new(OnceLock::from(named)),
        }
    }
}

/// A database that could not be opened.
pub(super) struct Failed {
    pub(super) why: Unopened,
    /// When it may be tried again.
    again: Instant,
}

impl Failed {
    /// Just now, after so long.
    pub(super) fn now(why: Unopened, took: Duration) -> Self {
        let pause = took.saturating_mul(RETRY_FACTOR).max(RETRY_MIN);
        Self {
            why,
            again: Instant::now() + pause,
        }
    }

    /// Whether whoever wants it has it tried again.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.again
    }
}

impl Stage {
    /// Not open, and nobody is opening or closing it.
    pub(super) fn closed() -> Self {
        Stage::Closed(Closed::default())
    }

    /// Whether it comes to another stage by itself, soon.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Stage::Opening(attempt) => !attempt.is_over(),
            Stage::Leaving(_) => true,
            Stage::Ending(ended) => !ended.is_over(),
            Stage::Closed(_) | Stage::Open(_) | Stage::Failed(_) => false,
        }
    }

    /// Its catalogue and rows, while they are there.
    pub(super) fn inside(&self) -> Option<&Arc<Database>> {
        match self {
            Stage::Open(database) | Stage::Leaving(database) => Some(database),
            _ => None,
        }
    }

    /// For views and metrics.
    pub(super) fn state(&self) -> DatabaseState {
        match self {
            Stage::Closed(_) => DatabaseState::Closed,
            Stage::Opening(attempt) if attempt.is_over() => DatabaseState::Closed,
            Stage::Opening(_) => DatabaseState::Opening,
            Stage::Open(database) => match database.store.log_failure() {
                Some(failure) => DatabaseState::ReadOnly(with_causes(&failure)),
                None => DatabaseState::Open,
            },
            Stage::Failed(failed) => DatabaseState::Unopened(failed.why.reason.clone()),
            Stage::Ending(ended) if ended.is_over() => DatabaseState::Closed,
            Stage::Leaving(_) | Stage::Ending(_) => DatabaseState::Closing,
        }
    }
}

/// The error of who comes while a database is closed.
pub(super) fn closing(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::CannotConnectNow,
        format!("database \"{name}\" is being closed"),
    )
    .with_hint("Connect again in a moment: it is opened for whoever comes once it is closed.")
}

/// The error of who comes while a database is about to be opened, by whoever keeps its copies.
pub(super) fn opening(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::CannotConnectNow,
        format!("database \"{name}\" is being opened"),
    )
    .with_hint("Connect again in a moment.")
}

/// The error of a statement that would change a database while it comes to another stage.
pub(super) fn passing(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::ObjectInUse,
        format!("database \"{name}\" is being opened or closed"),
    )
    .with_hint("Run the statement again in a moment.")
}

/// Databases by name.
#[derive(Default)]
pub(super) struct Databases {
    stages: HashMap<String, Stage>,
}

impl Databases {
    /// Where the database of this name stands.
    pub(super) fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.get(name)
    }

    /// Where each stands, with their names.
    pub(super) fn stages(&self) -> impl Iterator<Item = (&String, &Stage)> {
        self.stages.iter()
    }

    /// The open database of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Database>> {
        match self.stages.get(name) {
            Some(Stage::Open(database)) => Some(database),
            _ => None,
        }
    }

    /// The open database of this name.
    ///
    /// # Errors
    /// There is none, it could not be opened, or it is being opened or closed.
    pub(super) fn find(&self, name: &str) -> Result<&Arc<Database>, SqlError> {
        match self.stages.get(name) {
            Some(Stage::Open(database)) => Ok(database),
            Some(Stage::Failed(failed)) => Err(failed.why.refusal(name)),
            Some(_) => Err(passing(name)),
            None => Err(undefined_database(name)),
        }
    }

    /// Takes those for closed whose opening was given up, or whose end has come.
    pub(super) fn settle(&mut self) {
        for stage in self.stages.values_mut() {
            let is_left = matches!(stage, Stage::Opening(_) | Stage::Ending(_));
            if is_left && !stage.is_passing() {
                *stage = Stage::closed();
            }
        }
    }

    /// Puts a database at a stage, and gives the one it was at.
    pub(super) fn put(&mut self, name: &str, stage: Stage) -> Option<Stage> {
        self.stages.insert(name.to_owned(), stage)
    }

    /// Takes a database out, and gives where it stood.
    pub(super) fn remove(&mut self, name: &str) -> Option<Stage> {
        self.stages.remove(name)
    }
}
