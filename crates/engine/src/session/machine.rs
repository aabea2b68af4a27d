//! Where a session stands with its transactions: a state machine without storage, threads or locks.
//!
//! It is told what happens ([`Event`]) and says what is to be done about it ([`Effect`]), or that it is
//! refused, with PostgreSQL's SQLSTATE. Whoever carries an effect out ([`super::transaction`]) decides
//! nothing about states.
//!
//! ```text
//!        a group's statement,                              Done, GroupEnds,
//!        or a definition                                   a statement for outside of blocks
//!   idle ───────────────────► implicit ───────────────────────────────────────► ending
//!    │ ▲                         │ BEGIN                                          ▲ │
//!    │ │ BEGIN                   ▼           COMMIT, ROLLBACK                     │ │
//!    └─┼──────────────────────► open ─────────────────────────────────────────────┤ │
//!      │                        │  ▲                                              │ │
//!      │               an error │  │ ROLLBACK TO         COMMIT (which undoes),   │ │
//!      │                        ▼  │                     ROLLBACK                 │ │
//!      │                       failed ────────────────────────────────────────────┘ │
//!      └────────────────── Ended, EndFailed ────────────────────────────────────────┘
//!                          (AND CHAIN: to open)
//! ```
//!
//! * One block at a time. What opened it in storage, [`Effect::Open`], is followed by exactly one of
//!   [`Effect::Commit`], [`Effect::Undo`] and [`Effect::Abandon`].
//! * An implicit block that fails is gone: nobody has begun it, so nobody would end it. One that a client
//!   has begun is undone at once if it has no savepoint to return to, and waits for its end.
//! * Without a group an implicit block is that of one statement, which defines something.
//! * Savepoints are found by name, the newest first; one of the same name hides those before it.
//! * A block may change its modes before its first snapshot, and not within a savepoint, as in PostgreSQL.
//!   Whether it has taken a snapshot, and which modes are those of a block that asks for none, it learns
//!   from [`Facts`].
//! * Modes are what clients have asked for. On a copy nothing can be written in any of them, and READ WRITE is
//!   refused ([`super::standing`]).

#[cfg(test)]
mod tests;

use aerostat_api::{Group, TransactionStatus};
use aerostat_catalog::CopyState;
use aerostat_sql::utility::{Isolation, TransactionModes};
use aerostat_types::{ErrorKind, SqlError};

/// What a transaction promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) isolation: Isolation,
    pub(super) read_only: bool,
}

impl Modes {
    fn with(self, asked: TransactionModes) -> Self {
        Self {
            isolation: asked.isolation.unwrap_or(self.isolation),
            read_only: asked.read_only.unwrap_or(self.read_only),
        }
    }
}

/// What the machine asks of its surroundings.
pub(super) trait Facts {
    /// The modes of a transaction that asks for none.
    fn defaults(&self) -> Modes;

    /// Whether the open block has taken its first snapshot.
    fn has_begun(&self) -> bool;

    /// The copy that the database is, while another node takes its changes: no transaction writes then.
    fn copy(&self) -> Option<&CopyState>;
}

/// What kind of statement begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// None at all: the text was empty.
    Nothing,
    /// COMMIT, ROLLBACK or ROLLBACK TO, which a failed block takes.
    Exit,
    /// BEGIN and the others about the transaction itself. Like an exit it has events of its own.
    Control,
    /// It defines something, and so is in a block always.
    Definition,
    /// PostgreSQL has this one, by its tag, outside of blocks only.
    Outside(&'static str),
    /// This one, by its tag, is about the node, and so is a transaction of its own.
    OfNode(&'static str),
    /// Any other.
    Other,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<'a> {
    /// The statements to come are one transaction.
    GroupBegins(Group),
    GroupEnds,
    /// A statement begins; of one about the transaction itself its own event follows.
    Starts(Kind),
    /// The statement is done; its rows may still come.
    Done,
    /// The statement at hand has failed, or something beside it that undoes its transaction.
    Failed,
    Begin(TransactionModes),
    Commit {
        chain: bool,
    },
    RollBack {
        chain: bool,
    },
    /// What [`Effect::Commit`] or [`Effect::Undo`] asked for has happened.
    Ended,
    /// It could not be done; nothing of the block is there.
    EndFailed,
    Savepoint(&'a str),
    Release(&'a str),
    RollBackTo(&'a str),
    /// SET TRANSACTION.
    SetModes(TransactionModes),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// No block was open: what the failed statement has said to others is not heard.
    Hush,
    /// A block begins in storage, and beside it what it goes back to.
    Open(Modes),
    /// The open block has these modes from now on.
    Tell(Modes),
    /// The block commits: then [`Event::Ended`] or [`Event::EndFailed`].
    Commit,
    /// The block is undone: then [`Event::Ended`] or [`Event::EndFailed`].
    Undo,
    /// The block is undone, and nobody waits for it.
    Abandon,
    /// All goes back to the savepoint of this number, and nobody waits for it.
    PutBack(usize),
    /// A savepoint is made, behind those that are there.
    Mark,
    /// The savepoints from this number on are forgotten. These are the modes.
    Release(usize, Modes),
    /// All goes back to the savepoint of this number, which stays.
    UndoTo(usize),
}

/// What the client is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warning {
    /// COMMIT or ROLLBACK ended nothing that was begun.
    NothingBegun,
    /// BEGIN within a block.
    AlreadyBegun,
    /// SET TRANSACTION for the next statement alone.
    OfOneStatement,
}

impl Warning {
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Warning::NothingBegun | Warning::OfOneStatement => ErrorKind::NoActiveTransaction,
            Warning::AlreadyBegun => ErrorKind::ActiveTransaction,
        }
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Warning::NothingBegun => "there is no transaction in progress",
            Warning::AlreadyBegun => "there is already a transaction in progress",
            Warning::OfOneStatement => "SET TRANSACTION can only be used in transaction blocks",
        }
    }
}

/// What the machine answers an event. Refused events change nothing.
#[derive(Debug)]
pub(super) struct Answer {
    /// Told also if the event is refused.
    pub(super) warning: Option<Warning>,
    pub(super) effect: Result<Effect, SqlError>,
}

impl From<Effect> for Answer {
    fn from(effect: Effect) -> Self {
        Ok(effect).into()
    }
}

impl From<SqlError> for Answer {
    fn from(error: SqlError) -> Self {
        Err(error).into()
    }
}

impl From<Result<Effect, SqlError>> for Answer {
    fn from(effect: Result<Effect, SqlError>) -> Self {
        Self {
            warning: None,
            effect,
        }
    }
}

impl Answer {
    fn warning(self, warning: Warning) -> Self {
        Self {
            warning: Some(warning),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Nobody has begun it.
    Implicit {
        /// Whether the statement at hand is its first, and may be its only one.
        is_first: bool,
    },
    /// A client has begun it.
    Open,
    /// It takes what ends it, or goes back to a savepoint.
    Failed,
    /// It is being committed or undone.
    Ending {
        /// AND CHAIN: the modes of the next.
        next: Option<Modes>,
    },
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    /// Whether the block only read when it was made.
    read_only: bool,
}

/// A session's transactions. See the module.
#[derive(Debug, Default)]
pub(super) struct Machine {
    state: State,
    /// How the statements at hand came together, if they did.
    group: Option<Group>,
    /// Those of the block; `None` if there is none.
    modes: Option<Modes>,
    /// Oldest first.
    savepoints: Vec<Savepoint>,
}

impl Machine {
    /// What `ReadyForQuery` says.
    pub(super) fn status(&self) -> TransactionStatus {
        match self.state {
            State::Idle | State::Implicit { .. } | State::Ending { .. } => TransactionStatus::Idle,
            State::Open => TransactionStatus::InTransaction,
            State::Failed => TransactionStatus::Failed,
        }
    }

    /// Whether there is no block.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether the statement at hand is in a transaction block: one that the client has opened, or
    /// that of several statements which came together.
    pub(super) fn is_in_block(&self) -> bool {
        !matches!(self.state, State::Idle | State::Implicit { is_first: true })
    }

    /// Whether the statement at hand is one of several of a transaction.
    pub(super) fn is_one_of_several(&self) -> bool {
        match self.state {
            State::Idle => false,
            State::Implicit { .. } => self.group.is_some(),
            State::Open | State::Failed | State::Ending { .. } => true,
        }
    }

    /// The modes of the block; `None` if there is none.
    pub(super) fn modes(&self) -> Option<Modes> {
        self.modes
    }

    /// Whether a statement by key may run where the session stands. The first of a group makes the
    /// group's block, and what is refused is refused in one place: both are the other way's.
    pub(super) fn admits_by_key(&self) -> bool {
        match self.state {
            State::Idle => self.group.is_none(),
            State::Implicit { .. } | State::Open => true,
            State::Failed | State::Ending { .. } => false,
        }
    }

    /// The tag of a COMMIT, which undoes a block that has failed.
    pub(super) fn tag_of_commit(&self) -> &'static str {
        match self.state {
            State::Failed => "ROLLBACK",
            _ => "COMMIT",
        }
    }

    /// Refuses what a failed block does not take.
    ///
    /// # Errors
    /// `InFailedTransaction`
    pub(super) fn admit(&self, kind: Kind) -> Result<(), SqlError> {
        if self.state != State::Failed || matches!(kind, Kind::Nothing | Kind::Exit) {
            return Ok(());
        }
        Err(SqlError::new(
            ErrorKind::InFailedTransaction,
            "current transaction is aborted, commands ignored until end of transaction block",
        ))
    }

    /// Something happens. What is refused changes nothing; the statement has failed then, which is an
    /// event of its own.
    pub(super) fn on(&mut self, event: Event<'_>, facts: &impl Facts) -> Answer {
        if let Err(error) = self.admit(event.kind()) {
            return error.into();
        }
        if let Event::Begin(asked) | Event::SetModes(asked) = event
            && asked.read_only == Some(false)
            && let Some(copy) = facts.copy()
        {
            return copy.no_read_write().into();
        }
        match event {
            Event::GroupBegins(group) => {
                self.group = Some(group);
                Effect::Nothing.into()
            }
            Event::GroupEnds => {
                self.group = None;
                self.commit_implicit()
            }
            Event::Starts(kind) => self.start(kind, facts),
            Event::Done if self.group.is_none() => self.commit_implicit(),
            Event::Done => Effect::Nothing.into(),
            Event::Failed => self.fail().into(),
            Event::Begin(asked) => self.begin(asked, facts),
            Event::Commit { chain } => {
                let next = self.modes.filter(|_| chain);
                self.end("COMMIT", chain, next, Effect::Commit)
            }
            Event::RollBack { chain } => {
                let next = self.modes_at_begin().filter(|_| chain);
                self.end("ROLLBACK", chain, next, Effect::Undo)
            }
            Event::Ended => match self.state {
                State::Ending { next } => self.rest(next).into(),
                _ => misplaced("the end of no block").into(),
            },
            Event::EndFailed => match self.state {
                State::Ending { .. } => self.rest(None).into(),
                _ => misplaced("the commit of no block").into(),
            },
            Event::Savepoint(name) => self.mark(name).into(),
            Event::Release(name) => self.release(name).into(),
            Event::RollBackTo(name) => self.roll_back_to(name).into(),
            Event::SetModes(asked) => self.set_modes(asked, facts),
        }
    }

    fn start(&mut self, kind: Kind, facts: &impl Facts) -> Answer {
        let is_outside = matches!(kind, Kind::Outside(_) | Kind::OfNode(_));
        let is_in_block = !matches!(kind, Kind::Nothing | Kind::Exit | Kind::Control);
        match self.state {
            State::Idle if is_outside || !is_in_block => Effect::Nothing.into(),
            State::Idle if self.group.is_some() || kind == Kind::Definition => {
                self.open_implicit(facts).into()
            }
            // A transaction of its own.
            State::Idle => Effect::Nothing.into(),
            State::Implicit { .. } if is_outside => self.commit_implicit(),
            State::Implicit { .. } if is_in_block => {
                self.state = State::Implicit { is_first: false };
                Effect::Nothing.into()
            }
            State::Implicit { .. } => Effect::Nothing.into(),
            State::Open => refuse_within(kind).map(|()| Effect::Nothing).into(),
            // The caller has seen to it that it is one that may follow.
            State::Failed => Effect::Nothing.into(),
            State::Ending { .. } => misplaced("a statement while a block ends").into(),
        }
    }

    fn open_implicit(&mut self, facts: &impl Facts) -> Effect {
        let modes = facts.defaults();
        self.state = State::Implicit {
            is_first: self.group != Some(Group::Message),
        };
        self.modes = Some(modes);
        Effect::Open(modes)
    }

    fn commit_implicit(&mut self) -> Answer {
        if matches!(self.state, State::Implicit { .. }) {
            self.state = State::Ending { next: None };
            return Effect::Commit.into();
        }
        Effect::Nothing.into()
    }

    fn fail(&mut self) -> Effect {
        self.group = None;
        match self.state {
            State::Idle => Effect::Hush,
            State::Implicit { .. } | State::Ending { .. } => {
                self.rest(None);
                Effect::Abandon
            }
            State::Open => {
                self.state = State::Failed;
                match self.savepoints.last() {
                    None => Effect::Abandon,
                    Some(savepoint) => {
                        let read_only = savepoint.read_only;
                        self.modes = self.modes.map(|modes| Modes { read_only, ..modes });
                        Effect::PutBack(self.savepoints.len() - 1)
                    }
                }
            }
            State::Failed => Effect::Nothing,
        }
    }

    fn begin(&mut self, asked: TransactionModes, facts: &impl Facts) -> Answer {
        match self.state {
            State::Idle => {
                let modes = facts.defaults().with(asked);
                if let Err(error) = supported(modes.isolation) {
                    return error.into();
                }
                (self.state, self.modes) = (State::Open, Some(modes));
                Effect::Open(modes).into()
            }
            State::Implicit { .. } => {
                let changed = self.change(asked, facts);
                if changed.is_ok() {
                    self.state = State::Open;
                }
                changed.into()
            }
            State::Open => {
                let changed: Answer = self.change(asked, facts).into();
                changed.warning(Warning::AlreadyBegun)
            }
            State::Failed | State::Ending { .. } => misplaced("BEGIN while a block ends").into(),
        }
    }

    fn end(&mut self, word: &str, chain: bool, next: Option<Modes>, effect: Effect) -> Answer {
        let is_begun = matches!(self.state, State::Open | State::Failed);
        if chain && !is_begun {
            return outside_block(&format!("{word} AND CHAIN")).into();
        }
        let answer: Answer = match self.state {
            State::Idle => Effect::Nothing.into(),
            // It has been undone.
            State::Failed if self.savepoints.is_empty() => self.rest(next).into(),
            State::Failed => self.wait_for(Effect::Undo, next).into(),
            State::Implicit { .. } | State::Open => self.wait_for(effect, next).into(),
            State::Ending { .. } => misplaced("the end of a block that ends").into(),
        };
        match is_begun {
            true => answer,
            false => answer.warning(Warning::NothingBegun),
        }
    }

    fn wait_for(&mut self, effect: Effect, next: Option<Modes>) -> Effect {
        self.state = State::Ending { next };
        effect
    }

    /// A block has ended; the next begins if it is to.
    fn rest(&mut self, next: Option<Modes>) -> Effect {
        self.savepoints.clear();
        self.modes = next;
        match next {
            None => {
                self.state = State::Idle;
                Effect::Nothing
            }
            Some(modes) => {
                self.state = State::Open;
                Effect::Open(modes)
            }
        }
    }

    fn mark(&mut self, name: &str) -> Result<Effect, SqlError> {
        let read_only = self.require_begun("SAVEPOINT")?.read_only;
        let name = name.to_owned();
        self.savepoints.push(Savepoint { name, read_only });
        Ok(Effect::Mark)
    }

    fn release(&mut self, name: &str) -> Result<Effect, SqlError> {
        let modes = self.require_begun("RELEASE SAVEPOINT")?;
        let at = self.find(name)?;
        // What was made read-only since then is so no longer.
        let read_only = self.savepoints[at].read_only;
        let modes = Modes { read_only, ..modes };
        self.modes = Some(modes);
        self.savepoints.truncate(at);
        Ok(Effect::Release(at, modes))
    }

    fn roll_back_to(&mut self, name: &str) -> Result<Effect, SqlError> {
        let modes = self.require_begun("ROLLBACK TO SAVEPOINT")?;
        let at = self.find(name)?;
        let read_only = self.savepoints[at].read_only;
        self.modes = Some(Modes { read_only, ..modes });
        self.savepoints.truncate(at + 1);
        self.state = State::Open;
        Ok(Effect::UndoTo(at))
    }

    fn set_modes(&mut self, asked: TransactionModes, facts: &impl Facts) -> Answer {
        match (self.state, self.group) {
            // It would be for this statement, which reads nothing.
            (State::Idle, None) => {
                let isolation = asked.isolation.map_or(Ok(()), supported);
                let answer: Answer = isolation.map(|()| Effect::Nothing).into();
                answer.warning(Warning::OfOneStatement)
            }
            (State::Idle, Some(group)) => {
                let modes = facts.defaults().with(asked);
                if let Err(error) = supported(modes.isolation) {
                    return error.into();
                }
                self.open_implicit(facts);
                self.modes = Some(modes);
                let answer = Answer::from(Effect::Open(modes));
                match group {
                    Group::Message => answer,
                    Group::Pipeline => answer.warning(Warning::OfOneStatement),
                }
            }
            (State::Implicit { .. } | State::Open, _) => self.change(asked, facts).into(),
            (State::Failed | State::Ending { .. }, _) => {
                misplaced("SET TRANSACTION while a block ends").into()
            }
        }
    }

    /// Changes the modes of the open block.
    fn change(&mut self, asked: TransactionModes, facts: &impl Facts) -> Result<Effect, SqlError> {
        let modes = self.modes.ok_or_else(|| misplaced("modes of no block"))?;
        let refuse = |message: &str| Err(SqlError::new(ErrorKind::ActiveTransaction, message));
        let changed = modes.with(asked);
        if changed.isolation != modes.isolation {
            supported(changed.isolation)?;
            if facts.has_begun() {
                return refuse("SET TRANSACTION ISOLATION LEVEL must be called before any query");
            }
            if !self.savepoints.is_empty() {
                return refuse(
                    "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction",
                );
            }
        }
        if modes.read_only && !changed.read_only {
            if !self.savepoints.is_empty() {
                return refuse(
                    "cannot set transaction read-write mode inside a read-only transaction",
                );
            }
            if facts.has_begun() {
                return refuse("transaction read-write mode must be set before any query");
            }
        }
        self.modes = Some(changed);
        Ok(Effect::Tell(changed))
    }

    /// The modes of a block that a client has begun.
    fn require_begun(&self, word: &str) -> Result<Modes, SqlError> {
        match self.state {
            State::Open | State::Failed => {
                self.modes.ok_or_else(|| misplaced("a block without modes"))
            }
            _ => Err(outside_block(word)),
        }
    }

    /// The modes that are the block's own, not those of a savepoint's.
    fn modes_at_begin(&self) -> Option<Modes> {
        let modes = self.modes?;
        let first = self.savepoints.first();
        let read_only = first.map_or(modes.read_only, |first| first.read_only);
        Some(Modes { read_only, ..modes })
    }

    /// The number of the newest savepoint of a name.
    fn find(&self, name: &str) -> Result<usize, SqlError> {
        let found = self
            .savepoints
            .iter()
            .rposition(|savepoint| savepoint.name == name);
        found.ok_or_else(|| {
            SqlError::new(
                ErrorKind::InvalidSavepoint,
                format!("savepoint \"{name}\" does not exist"),
            )
        })
    }
}

impl Event<'_> {
    /// The kind of statement that a failed block takes it for. Events that are no statements are taken.
    fn kind(&self) -> Kind {
        match self {
            Event::Starts(kind) => *kind,
            Event::Commit { .. } | Event::RollBack { .. } | Event::RollBackTo(_) => Kind::Exit,
            Event::Begin(_) | Event::Savepoint(_) | Event::Release(_) | Event::SetModes(_) => {
                Kind::Control
            }
            Event::GroupBegins(_)
            | Event::GroupEnds
            | Event::Done
            | Event::Failed
            | Event::Ended
            | Event::EndFailed => Kind::Nothing,
        }
    }
}

/// Refuses what cannot be in a block.
fn refuse_within(kind: Kind) -> Result<(), SqlError> {
    match kind {
        Kind::Outside(word) => Err(SqlError::new(
            ErrorKind::ActiveTransaction,
            format!("{word} cannot run inside a transaction block"),
        )),
        Kind::OfNode(word) => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("{word} inside a transaction block is not supported"),
        )
        .with_hint("Run it before BEGIN or after COMMIT; it is a transaction of its own.")),
        _ => Ok(()),
    }
}

/// SERIALIZABLE promises what snapshots do not give.
///
/// # Errors
/// `FeatureNotSupported`
pub(super) fn supported(isolation: Isolation) -> Result<(), SqlError> {
    if isolation == Isolation::Serializable {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "the isolation level SERIALIZABLE is not supported",
        )
        .with_hint("REPEATABLE READ, which is snapshot isolation, is the highest level."));
    }
    Ok(())
}

fn outside_block(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::NoActiveTransaction,
        format!("{word} can only be used in transaction blocks"),
    )
}

/// The error of an event that does not come in a state.
fn misplaced(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Internal,
        format!("{what} came to the transaction"),
    )
}
