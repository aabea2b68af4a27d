//! Turns of queries on their threads (`aerostat-schedule`): a statement's task, and those that
//! DataFusion's operators and ours make of it. In all of them functions know their statement
//! (`aerostat_semantics::growth`).

use std::{any::Any, future::Future, sync::Arc};

use aerostat_memory::Budget;
use aerostat_schedule::{Scheduled, current};
use aerostat_semantics::growth::{self, Running, running};
use aerostat_types::{OutOfMemory, SqlError};
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::{Engine, catalog::node::Database, session::Cancellation};

impl Engine {
    /// Runs a statement's work on the query threads, when it is its database's turn.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        database: &Database,
        cancellation: &Cancellation,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let statement = self.scheduler().work(database.id);
        let known = Arc::new(Known {
            budget: Arc::clone(database.store.budget()),
            cancellation: cancellation.clone(),
        });
        let work = growth::within(known, work);
        self.queries().spawn(Scheduled::new(statement, work))
    }
}

/// A statement as its functions know it.
struct Known {
    budget: Arc<Budget>,
    cancellation: Cancellation,
}

impl Running for Known {
    fn try_grow(&self, bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.try_grow_raw(bytes)
    }

    fn shrink(&self, bytes: u64) {
        self.budget.shrink_raw(bytes);
    }

    fn stopped(&self) -> Option<SqlError> {
        self.cancellation.due()
    }
}

/// From now on tasks that a statement's task makes are the statement's, in the whole process.
pub(crate) fn follow_tasks() {
    if set_join_set_tracer(&Follower).is_err() {
        // Another engine's, or the program that we are in has one of its own.
        tracing::debug!("tasks of DataFusion have a tracer already");
    }
}

struct Follower;

type Output = Box<dyn Any + Send>;

impl JoinSetTracer for Follower {
    fn trace_future(&self, future: BoxFuture<'static, Output>) -> BoxFuture<'static, Output> {
        let future = match running() {
            Some(running) => Box::pin(growth::within(running, future)),
            None => future,
        };
        match current() {
            Some(statement) => Box::pin(Scheduled::new(statement, future)),
            None => future,
        }
    }

    fn trace_block(
        &self,
        block: Box<dyn FnOnce() -> Output + Send>,
    ) -> Box<dyn FnOnce() -> Output + Send> {
        block
    }
}
