//! The load driver: sends queries of many tenants and measures how long users wait.
//!
//! Two kinds of load:
//!
//! * **Closed loop**: a fixed number of users per tenant; each sends its next
//!   query when the last answer and a think time are over. Latency counts from
//!   sending. When the server stalls, the users send nothing, so the stall is one
//!   slow query per user: closed loops are for throughput.
//! * **Open loop**: queries arrive at a rate, whatever the server does, as users
//!   who do not know of each other do. Latency counts from the *intended* start,
//!   so every arrival that a stall delays shows the delay. (Tene, "How NOT to
//!   Measure Latency", calls leaving it out "coordinated omission".)
//!
//! ```text
//!  open loop, one tenant
//!   arrivals (Poisson or fixed) ─► queue (bounded, backlog reported) ─► connection 0
//!                                                                    ─► connection 1
//!        │◄────────────── latency: queueing and service ─────────────────►│
//!
//!  ──┬── warm-up ──┬────────── measured ───────────┬── drain ──┬──►
//!    start         only requests due in here count  no arrivals  give up
//! ```
//!
//! Nothing that was due is forgotten: a request that fails, that does not finish
//! within the drain, or that finds the queue full is counted, and counts against
//! the goal.
//!
//! The driver knows its server only as a [`Connect`] that makes [`Client`]s; [`pg`]
//! is the one for PostgreSQL's protocol. Time is tokio's, so tests run simulated
//! clients on a paused clock.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

mod closed;
mod open;
pub mod options;
pub mod pg;
mod record;
pub mod report;
#[cfg(test)]
mod tests;

pub use options::{Arrivals, Goal, Mode, Options, OptionsError, Selection};
pub use record::{Observer, Outcome, Sample};
pub use report::Report;

use record::Recorder;

/// A connection of one tenant.
pub trait Client: Send + 'static {
    /// Runs query number `query` to its last row; returns the number of rows.
    ///
    /// A broken connection is the client's own affair: it reports the error, and
    /// connects again when it is next called.
    fn run(&mut self, query: usize) -> impl Future<Output = Result<u64, ClientError>> + Send;
}

/// Makes connections.
pub trait Connect: Send + Sync + 'static {
    /// What it makes.
    type Client: Client;

    /// Connects as tenant number `tenant`.
    fn connect(
        &self,
        tenant: usize,
    ) -> impl Future<Output = Result<Self::Client, ClientError>> + Send;
}

/// Why a query, or a connection attempt, failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("cannot connect")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The query failed.
    #[error("query failed")]
    Query(#[source] Box<dyn Error + Send + Sync>),
}

/// Why a drive could not be done.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The options contradict themselves.
    #[error("the load cannot be driven as asked")]
    Options(#[source] OptionsError),
    /// There is nobody to drive, or nothing to run.
    #[error("a load needs at least one tenant and one query")]
    NothingToDo,
    /// A tenant cannot connect before the start.
    #[error("tenant {tenant} cannot connect")]
    Connect {
        /// The tenant's name.
        tenant: String,
        /// The client's error.
        #[source]
        source: ClientError,
    },
    /// A task of the driver died.
    #[error("a driver task ended early")]
    Task(#[source] tokio::task::JoinError),
}

/// A query as reports name it. What it runs is the [`Connect`]'s affair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryName {
    /// Name, such as `Q2.3`.
    pub id: String,
    /// Group of queries, such as `flight 2`.
    pub flight: String,
}

impl QueryName {
    /// A query's name and group.
    pub fn new(id: impl Into<String>, flight: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            flight: flight.into(),
        }
    }
}

/// Drives a load against every tenant at once and reports what users saw.
///
/// All connections are made before the clock starts. Returns after warm-up,
/// measured time and drain.
///
/// # Errors
/// [`DriveError`]; queries that fail are part of the report, not errors.
pub async fn drive<C: Connect>(
    connect: Arc<C>,
    tenants: &[String],
    queries: &[QueryName],
    options: &Options,
    observer: Arc<dyn Observer>,
) -> Result<Report, DriveError> {
    options.check().map_err(DriveError::Options)?;
    if tenants.is_empty() || queries.is_empty() {
        return Err(DriveError::NothingToDo);
    }
    let clients = connect_all(&*connect, tenants, options.mode.connections()).await?;
    let run = Arc::new(Run {
        recorder: Recorder::new(tenants.len(), queries.len(), options.goal.latency, observer),
        window: Window::new(Instant::now(), options),
        options: options.clone(),
        queries: queries.len(),
    });
    let mut tasks = JoinSet::new();
    for (tenant, clients) in clients.into_iter().enumerate() {
        match options.mode {
            Mode::Closed { .. } => closed::spawn(&mut tasks, &run, tenant, clients),
            Mode::Open { .. } => open::spawn(&mut tasks, &run, tenant, clients),
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(DriveError::Task)?;
    }
    Ok(report::build(&run.recorder, tenants, queries, options))
}

async fn connect_all<C: Connect>(
    connect: &C,
    tenants: &[String],
    connections: usize,
) -> Result<Vec<Vec<C::Client>>, DriveError> {
    let mut all = Vec::with_capacity(tenants.len());
    for (tenant, name) in tenants.iter().enumerate() {
        let mut clients = Vec::with_capacity(connections);
        for _ in 0..connections {
            let client = connect.connect(tenant).await;
            clients.push(client.map_err(|source| DriveError::Connect {
                tenant: name.clone(),
                source,
            })?);
        }
        all.push(clients);
    }
    Ok(all)
}

/// What the tasks of a drive share.
struct Run {
    recorder: Recorder,
    window: Window,
    options: Options,
    queries: usize,
}

/// The times of a drive.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    /// End of warm-up.
    measured_from: Instant,
    /// No request is due from here on.
    end: Instant,
    /// Requests still open are given up.
    give_up: Instant,
}

impl Window {
    fn new(start: Instant, options: &Options) -> Self {
        let measured_from = start + options.warm_up;
        let end = measured_from + options.duration;
        Self {
            start,
            measured_from,
            end,
            give_up: end + options.drain,
        }
    }
}

impl Run {
    /// Runs one request that was due at `due`, records it and says how it ended.
    async fn request<C: Client>(
        &self,
        client: &mut C,
        tenant: usize,
        query: usize,
        due: Instant,
    ) -> Outcome {
        // A future is polled once even when its deadline is past, and that would
        // send the query.
        let outcome = if Instant::now() >= self.window.give_up {
            Outcome::Unfinished
        } else {
            match tokio::time::timeout_at(self.window.give_up, client.run(query)).await {
                Ok(Ok(rows)) => Outcome::Done { rows },
                Ok(Err(_)) => Outcome::Failed,
                Err(_) => Outcome::Unfinished,
            }
        };
        self.record(tenant, query, due, outcome);
        outcome
    }

    /// Records a request, unless it was due in the warm-up.
    fn record(&self, tenant: usize, query: usize, due: Instant, outcome: Outcome) {
        if due < self.window.measured_from {
            return;
        }
        let now = Instant::now();
        self.recorder.record(&Sample {
            tenant,
            query,
            outcome,
            latency: now.saturating_duration_since(due),
            at: now.saturating_duration_since(self.window.measured_from),
        });
    }
}

/// Pause of a closed-loop user after an error, so that a server that refuses at
/// once is not flooded: at most 100 attempts per second and user.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
