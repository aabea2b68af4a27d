//! Turns of queries on their threads (`aerostat-schedule`): for a statement's task, and for the
//! tasks that DataFusion's operators and ours start from it. In all of them functions know their
//! statement (`aerostat_semantics::growth`).

use std::{any::Any, future::Future, sync::Arc};

use aerostat_schedule::{Scheduled, Work, current};
use aerostat_semantics::growth::{self, Running, running};
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::future::BoxFuture;
use tokio::{runtime::Handle, task::JoinHandle};

use crate::heap::{Holding, Metered, current_holding};

/// Runs a statement's work on the query threads when it is its turn. `holding` counts the heap
/// memory that the work takes.
pub fn spawn<T: Send + 'static>(
    queries: &Handle,
    statement: Arc<Work>,
    holding: Arc<Holding>,
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let known: Arc<dyn Running> = Arc::<Holding>::clone(&holding);
    let work = Metered::new(holding, growth::within(known, work));
    queries.spawn(Scheduled::new(statement, work))
}

/// Makes tasks that a statement's task starts belong to the statement, in the whole process.
pub fn follow_tasks() {
    if set_join_set_tracer(&Follower).is_err() {
        // Another engine has set the tracer, or the program that we run in has one of its own.
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
        let future = match current_holding() {
            Some(holding) => Box::pin(Metered::new(holding, future)),
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
