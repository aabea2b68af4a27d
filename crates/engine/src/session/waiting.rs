//! What functions of a running statement wait for: advisory locks, time, promotions, and places of the log.
//!
//! Functions are called by the query runtime's threads. Any query may call one that waits: that takes a
//! thread and nothing else ([`crate::asleep`]). It ends at the lock, at `lock_timeout`, and with its statement, whose token
//! ([`aerostat_query::Cancellation`]) is cancelled before the client is told of the statement's end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_catalog::{
    CopyState,
    failure::{canceled, from_storage},
};
use aerostat_pgcatalog::{LockDescription, Waits};
use aerostat_txn::{
    AdvisoryError, AdvisoryLock, AdvisoryLocks, CancelToken, RelationLocks, Term, TxnManager,
    WaitError,
};
use aerostat_types::{CommitTs, ErrorKind, SqlError};
use parking_lot::Mutex;

use super::{ClientState, Executor, settings::Settings};
use crate::{
    asleep::asleep,
    engine::{Engine, WAITS_MAX},
    seldom::Seldom,
};

/// Messages that wait to be told, at most. A function may have one to say of each of a million
/// rows, and the client is told before the first rows of its result.
const NOTICES_MAX: usize = 1_000;

/// How soon, and then how often, it is looked whether a copy has come to a place. A commit is on a copy some
/// hundred microseconds after its leader told of it.
const REACH_LOOK_MIN: Duration = Duration::from_micros(250);
const REACH_LOOK_MAX: Duration = Duration::from_millis(10);

/// Messages of a session that the client has yet to be told.
#[derive(Clone)]
pub(super) struct Notices {
    untold: Arc<Seldom<Vec<Notice>>>,
    settings: Arc<Mutex<Settings>>,
}

impl Notices {
    /// The messages of a session with these settings.
    pub(super) fn new(settings: &Arc<Mutex<Settings>>) -> Self {
        Self {
            untold: Arc::default(),
            settings: Arc::clone(settings),
        }
    }

    /// Adds a message, unless the client does not want such at this time
    /// (`client_min_messages`). Beyond the limit the last says that there were others.
    pub(super) fn tell(&self, notice: Notice) {
        if !self.settings.lock().wants_message(notice.severity) {
            return;
        }
        let mut untold = self.untold.lock();
        if untold.len() < NOTICES_MAX {
            untold.push(notice);
        } else if untold.len() == NOTICES_MAX {
            let message = "further messages are left out";
            untold.push(Notice::new(NoticeSeverity::Warning, message));
        }
    }

    /// Takes those since the last call.
    pub(super) fn take(&self) -> Vec<Notice> {
        self.untold.take()
    }
}

/// One statement's access to its session's advisory locks, and its way to wait.
pub(super) struct Waiting {
    engine: Arc<Engine>,
    txns: Arc<TxnManager>,
    advisory: Arc<AdvisoryLocks>,
    /// The relation locks of the statement's transaction; `None` for a plan that is not run.
    transaction: Option<Arc<RelationLocks>>,
    /// Cancelled when the statement is stopped.
    cancel: CancelToken,
    settings: Arc<Mutex<Settings>>,
    notices: Notices,
}

impl Waiting {
    /// The way to wait of a statement that has these locks.
    pub(super) fn new(
        client: &ClientState,
        executor: &Executor,
        transaction: Option<&Arc<RelationLocks>>,
        cancel: CancelToken,
    ) -> Self {
        Self {
            engine: Arc::clone(&executor.engine),
            txns: Arc::clone(executor.txns()),
            advisory: Arc::clone(&client.advisory),
            transaction: transaction.cloned(),
            cancel,
            settings: Arc::clone(&client.settings),
            notices: client.notices.clone(),
        }
    }
}

impl Waits for Waiting {
    fn lock(&self, lock: AdvisoryLock, is_session: bool, waits: bool) -> Result<bool, SqlError> {
        let term = match (&self.transaction, is_session) {
            (_, true) => Term::Session,
            (Some(locks), false) => Term::Transaction(locks),
            (None, false) => {
                return Err(SqlError::new(
                    ErrorKind::Internal,
                    "a statement that is not run asks for a lock",
                ));
            }
        };
        let granted = self.advisory.try_acquire(lock, term, &self.cancel);
        let granted = granted.map_err(refused)?;
        if granted || !waits {
            return Ok(granted);
        }
        let timeout = self.settings.lock().lock_timeout();
        self.asleep(|| self.advisory.acquire(lock, term, &self.cancel, timeout))?
            .map_err(refused)?;
        Ok(true)
    }

    fn unlock(&self, lock: AdvisoryLock) -> bool {
        self.advisory.release(lock)
    }

    fn unlock_all(&self) {
        self.advisory.release_all();
    }

    fn sleep_until(&self, time: Option<Instant>) -> Result<(), SqlError> {
        self.asleep(|| self.cancel.sleep_until(time))?
            .map_err(|_| canceled())
    }

    fn promote(&self, copy: &CopyState, at_most: Duration) -> Result<bool, SqlError> {
        let leads = self.asleep(|| copy.promote(at_most, || self.cancel.is_cancelled()))?;
        match self.cancel.is_cancelled() {
            true => Err(canceled()),
            false => Ok(leads),
        }
    }

    fn reach(&self, place: CommitTs, until: Instant) -> Result<bool, SqlError> {
        let is_reached = || self.txns.last_commit() >= place;
        if is_reached() {
            return Ok(true);
        }
        self.asleep(|| {
            let mut pause = REACH_LOOK_MIN;
            loop {
                let now = Instant::now();
                if is_reached() || now >= until {
                    return Ok(is_reached());
                }
                self.cancel.sleep_until(Some(until.min(now + pause)))?;
                pause = (pause * 2).min(REACH_LOOK_MAX);
            }
        })?
        .map_err(|_: WaitError| canceled())
    }

    fn warn(&self, message: String) {
        self.notices
            .tell(Notice::new(NoticeSeverity::Warning, message));
    }

    fn locks(&self) -> Vec<LockDescription> {
        let sessions = self.engine.advisory_locks_of(&self.txns);
        let pid_of = |owner| {
            let is_owner =
                |locks: &AdvisoryLocks| locks.owner() == owner || locks.transaction() == owner;
            let found = sessions.iter().find(|(_, locks)| is_owner(locks));
            found.map(|(pid, _)| *pid)
        };
        let all = self.txns.shown_locks().into_iter();
        all.map(|lock| LockDescription {
            lock,
            pid: pid_of(lock.owner),
        })
        .collect()
    }
}

impl Waiting {
    /// Runs what sleeps, on a thread that others' work does not wait for.
    fn asleep<T>(&self, sleep: impl FnOnce() -> T) -> Result<T, SqlError> {
        let _permit = self.engine.waits().try_acquire().map_err(|_| {
            SqlError::new(
                ErrorKind::ProgramLimitExceeded,
                format!("more than {WAITS_MAX} functions sleep or wait for advisory locks"),
            )
            .with_hint("Set lock_timeout, or try again when others have ended.")
        })?;
        Ok(asleep(sleep))
    }
}

fn refused(error: AdvisoryError) -> SqlError {
    match error {
        AdvisoryError::Wait(error) => from_storage(error.into()),
        AdvisoryError::TooMany(_) => SqlError::new(ErrorKind::OutOfMemory, "out of shared memory")
            .with_hint("Too many advisory locks are held: give some back, or lock fewer numbers."),
    }
}
