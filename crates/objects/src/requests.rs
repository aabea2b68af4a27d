//! Runs requests for callers that wait for them.

use std::{future::Future, io};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Runs requests on a thread of its own: signing parts takes milliseconds, which no thread
/// that carries other bytes has. Dropping it ends them.
pub(crate) struct Requests {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Requests {
    /// Begins the thread.
    pub(crate) fn start() -> io::Result<Requests> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("aerostat-objects")
            .enable_all()
            .build()?;
        Ok(Requests {
            runtime: Some(runtime),
        })
    }

    /// Begins something.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let runtime = self.runtime.as_ref();
        runtime
            .expect("the runtime is there until this is dropped")
            .spawn(work)
    }

    /// Runs something to its end. Called by any thread but the one of the requests.
    ///
    /// # Errors
    /// Its own; [`object_store::Error::JoinError`] if it panicked.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        finished(self.spawn(work))
    }
}

/// Waits for what was begun. Unlike tokio's own, it may be called within any runtime.
pub(crate) fn finished<T>(work: JoinHandle<object_store::Result<T>>) -> object_store::Result<T> {
    futures::executor::block_on(work)?
}

impl Drop for Requests {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
