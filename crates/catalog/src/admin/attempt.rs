//! Somebody opens a database, and others wait: with a thread, or as futures.

use std::{
    future::poll_fn,
    task::{Context, Poll, Waker},
};

use aerostat_types::SqlError;
use parking_lot::{Condvar, Mutex};

/// Somebody opens a database, and others wait.
#[derive(Debug, Default)]
pub struct Attempt {
    state: Mutex<State>,
    turned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ending: Option<Result<(), SqlError>>,
    /// Of futures that wait.
    wakers: Vec<Waker>,
}

impl Attempt {
    /// Whether nobody has to wait any more.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().ending.is_some()
    }

    /// Waits until it is over. Then the database is open, or was given up, or has been closed
    /// again: look again.
    ///
    /// # Errors
    /// It could not be opened; the same for all who wait.
    pub fn wait(&self) -> Result<(), SqlError> {
        let mut state = self.state.lock();
        loop {
            if let Some(ending) = &state.ending {
                return ending.clone();
            }
            self.turned.wait(&mut state);
        }
    }

    /// As [`Self::wait`], without a thread.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub async fn over(&self) -> Result<(), SqlError> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Result<(), SqlError>> {
        let mut state = self.state.lock();
        if let Some(ending) = &state.ending {
            return Poll::Ready(ending.clone());
        }
        let waker = context.waker();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    /// The first ending counts.
    pub(super) fn end(&self, ending: Result<(), SqlError>) {
        let mut state = self.state.lock();
        state.ending.get_or_insert(ending);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.turned.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}
