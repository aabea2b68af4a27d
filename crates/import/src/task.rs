//! A task that ends with its owner.

use std::future::Future;

use tokio::task::JoinHandle;

/// A spawned task that is aborted when this is dropped, so that an import that is dropped leaves no connection.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
