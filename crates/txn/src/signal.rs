//! Where one thread or task sleeps until it learns how its wait ended.
//!
//! A signal is set once: by the one who ends what is waited for, or by the waiter's token. Later
//! calls change nothing. The reasons of waits are not known here (`wait`).

use std::{
    task::{Context, Poll, Waker},
    time::{Instant, SystemTime},
};

use aerostat_sync::{Condvar, Mutex};
use thiserror::Error;

/// Why a wait ended without the holder's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    /// The holder waits, directly or through others, for the waiter.
    #[error("deadlock detected")]
    Deadlock,
    /// The waiter's token was cancelled.
    #[error("canceled while waiting for another transaction")]
    Cancelled,
    /// It took longer than the waiter's lock timeout.
    #[error("waited too long for another transaction")]
    TimedOut,
}

/// Where one thread or task sleeps.
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    since: SystemTime,
}

#[derive(Default)]
struct State {
    result: Option<Result<(), WaitError>>,
    /// Of the task that sleeps here.
    waker: Option<Waker>,
}

impl Signal {
    /// Of a wait that begins now.
    pub(crate) fn new(since: SystemTime) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            since,
        }
    }

    /// When the wait began.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }

    /// The holder has ended.
    pub(crate) fn complete(&self) {
        self.set(Ok(()));
    }

    /// The waiter was cancelled.
    pub(crate) fn interrupt(&self) {
        self.set(Err(WaitError::Cancelled));
    }

    /// The first result stands.
    fn set(&self, result: Result<(), WaitError>) {
        let waker = {
            let mut state = self.state.lock();
            state.result.get_or_insert(result);
            state.waker.take()
        };
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Until the deadline, if there is one.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = state.result {
                return result;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        return state.result.unwrap_or(Err(WaitError::TimedOut));
                    }
                }
            }
        }
    }

    /// As [`Self::sleep`], of a task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), WaitError>> {
        let mut state = self.state.lock();
        match state.result {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
