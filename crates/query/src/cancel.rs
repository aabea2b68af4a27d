//! Stopping a statement: on the user's request, at its timeout, or because nobody reads its rows
//! any more.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use aerostat_catalog::failure::canceled;
use aerostat_txn::CancelToken;
use aerostat_types::{ErrorKind, SqlError};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The way to stop a session's running statement from elsewhere.
#[derive(Clone, Default)]
pub struct CancelHandle {
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    token: CancellationToken,
    waits: CancelToken,
}

impl CancelHandle {
    /// Stops the statement that runs now. Between statements it does nothing.
    pub fn cancel(&self) {
        let running = self.running.lock();
        running.token.cancel();
        running.waits.cancel();
    }

    /// Ends the waits of the functions of the statement that runs now.
    #[inline]
    pub fn waits(&self) -> CancelToken {
        self.running.lock().waits.clone()
    }

    /// Begins a statement.
    #[inline]
    pub fn begin(&self, timeout: Option<Duration>) -> Cancellation {
        let (token, waits) = (CancellationToken::new(), CancelToken::new());
        *self.running.lock() = Running {
            token: token.clone(),
            waits: waits.clone(),
        };
        Cancellation {
            token,
            waits,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            reason: Arc::default(),
        }
    }
}

/// When one statement must stop.
#[derive(Clone)]
pub struct Cancellation {
    /// Ends the wait for the statement.
    pub token: CancellationToken,
    /// Ends the waits of its functions, which block their thread.
    pub waits: CancelToken,
    deadline: Option<Instant>,
    /// Why it was stopped, unless the user wished it.
    reason: Arc<OnceLock<SqlError>>,
}

impl Cancellation {
    /// For work that no client and no timeout stops.
    #[inline]
    pub fn without_timeout() -> Self {
        Self {
            token: CancellationToken::new(),
            waits: CancelToken::new(),
            deadline: None,
            reason: Arc::default(),
        }
    }

    /// Waits until the statement must stop, and gives the error that says why.
    pub async fn stopped(&self) -> SqlError {
        match self.deadline {
            Some(deadline) => tokio::select! {
                () = self.token.cancelled() => {}
                () = tokio::time::sleep_until(deadline) => self.stop(timed_out()),
            },
            None => self.token.cancelled().await,
        }
        self.waits.cancel();
        self.error()
    }

    /// Why the statement must stop, if it must. It serves work that does not give its thread back,
    /// so that [`Self::stopped`] cannot be polled.
    #[inline]
    pub fn due(&self) -> Option<SqlError> {
        if self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now())
        {
            self.stop(timed_out());
        }
        let is_stopped = self.token.is_cancelled() || self.waits.is_cancelled();
        is_stopped.then(|| self.error())
    }

    /// Stops the statement with this error, if it is not stopped already.
    pub(crate) fn stop(&self, error: SqlError) {
        if !self.token.is_cancelled() && self.reason.set(error).is_ok() {
            self.token.cancel();
            self.waits.cancel();
        }
    }

    /// Why the statement was stopped.
    #[inline]
    pub fn error(&self) -> SqlError {
        self.reason.get().cloned().unwrap_or_else(canceled)
    }
}

fn timed_out() -> SqlError {
    SqlError::new(
        ErrorKind::QueryCanceled,
        "canceling statement due to statement timeout",
    )
}
