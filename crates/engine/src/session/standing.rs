//! What a session sees of it that other nodes have its database, too.
//!
//! ```text
//!  Database::copy ──► ClientState::copy ──► admission   changes are refused       25006
//!                 │                     ├─► machine     READ WRITE is refused     0A000
//!                 │                     └─► gate        reading may be refused    25006, 55000
//!                 └─► Settings          ──► in_hot_standby, transaction_read_only
//! ```
//!
//! * A database whose changes another node takes is read only, whatever the transaction's modes are, and so
//!   is a block until its end that began when it was one. Nothing else of a statement is another than at the
//!   leader.
//! * Who may do what is PostgreSQL's rule for a hot standby. Statements about the node change no database, so
//!   they are not refused for this.
//! * A statement that reads tables may ask for the leader (`aerostat.read_from`), or for a copy that lately had
//!   all that its leader had (`aerostat.max_staleness`). Whoever asks for the leader is answered by one that no
//!   other node can have followed by now. It is asked where a statement takes the locks of its
//!   relations, so that statements without tables run on any copy.

use std::sync::Arc;

use aerostat_catalog::{CopyState, Database};
use aerostat_types::{ErrorKind, SqlError};

use super::{ClientState, Session, TransactionState};
use crate::engine::Engine;

impl Engine {
    /// Opens a session in a database that this node does not serve by itself, as if it were the one of its
    /// name: for tests of what sessions do on copies.
    ///
    /// # Errors
    /// As [`Self::connect`].
    #[doc(hidden)]
    pub fn connect_to(
        self: &Arc<Self>,
        role: &str,
        database: &Arc<Database>,
        options: &[(String, String)],
    ) -> Result<Session, SqlError> {
        let connection = self.node().connect(role, &database.name.read().clone())?;
        Session::of_database(Arc::clone(self), connection, database, role, options)
    }
}

impl ClientState {
    /// The copy of a database whose changes another node takes.
    pub(super) fn follows(&self) -> Option<&CopyState> {
        self.copy.as_deref().filter(|copy| !copy.leads())
    }

    /// The copy of a database that this node leads, or did, and whose other copies it does not hear of.
    pub(super) fn cut_off(&self) -> Option<&CopyState> {
        self.copy.as_deref().filter(|copy| copy.is_cut_off())
    }

    /// Why a statement may not read tables here, if it may not.
    pub(super) fn refuses_reading(&self) -> Option<SqlError> {
        let copy = self.copy.as_deref()?;
        let settings = self.settings.lock();
        if settings.reads_from_leader() {
            return match copy.leads() {
                false => Some(not_the_leader()),
                // It may have been stopped, and another lead since.
                true => (!copy.may_answer_as_leader()).then(perhaps_not_the_leader),
            };
        }
        if copy.leads() {
            return None;
        }
        let bound = settings.staleness_max()?;
        let age = copy.facts().current.map(|current| current.elapsed());
        let is_late = age.is_none_or(|age| age > bound);
        is_late.then(|| {
            let error = SqlError::new(
                ErrorKind::ObjectNotInPrerequisiteState,
                "this copy of the database may be older than \"aerostat.max_staleness\" allows",
            );
            let detail = match age {
                None => "It has not caught up with a leader yet.".to_owned(),
                Some(age) => format!(
                    "It had everything that its leader had {} ms ago.",
                    age.as_millis()
                ),
            };
            error
                .with_detail(detail)
                .with_hint("Read from another node, or raise \"aerostat.max_staleness\".")
        })
    }
}

/// The error of whoever reads from the leader alone.
fn not_the_leader() -> SqlError {
    SqlError::new(
        ErrorKind::ReadOnlyTransaction,
        "cannot read from a copy while \"aerostat.read_from\" is \"leader\"",
    )
    .with_detail("This node has a copy of the database; another node takes its changes.")
    .with_hint(
        "Connect with target_session_attrs=read-write, or set \"aerostat.read_from\" to \"any\".",
    )
}

/// The error of whoever reads from the leader alone, where it is not known who that is.
fn perhaps_not_the_leader() -> SqlError {
    SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        "another node may lead the database by now, and \"aerostat.read_from\" is \"leader\"",
    )
    .with_detail("This node has not heard of all nodes lately that may lead.")
    .with_hint("Try again in a moment, or set \"aerostat.read_from\" to \"any\".")
}

impl TransactionState {
    /// Whether the transaction is on a copy: nothing can be changed in it.
    pub(super) fn is_on_copy(&self, client: &ClientState) -> bool {
        let began_so = self.block.as_ref().is_some_and(|open| open.is_on_copy);
        began_so || client.follows().is_some()
    }
}
