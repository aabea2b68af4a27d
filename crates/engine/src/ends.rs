//! Threads for what ends transactions: commits, rollbacks, and returns to a savepoint.
//!
//! Whoever waits for a row or a relation may have a thread of the queries' runtime meanwhile, and sessions that hold a
//! lock have one without a bound. So they may have all of them; what they wait for has threads that nothing else
//! takes, and comes to its end.

use tokio::{runtime::Handle, task::JoinHandle};

/// The threads, as a runtime of their own without a worker.
#[derive(Clone)]
pub(crate) struct Ends {
    threads: Handle,
    queries: Handle,
}

impl Ends {
    pub(crate) fn new(threads: Handle, queries: Handle) -> Self {
        Self { threads, queries }
    }

    /// Runs what ends a transaction, or a part of one. It must not wait for a lock.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let queries = self.queries.clone();
        self.threads.spawn_blocking(move || {
            // What the work begins by itself runs where there are workers.
            let _within = queries.enter();
            work()
        })
    }
}
