//! Requests to a node's tenants, in open loops, and the response times of their users.
//!
//! Requests arrive as a Poisson process, whatever the node does, and a response time counts from
//! when its request was due (`aerostat_workload::drive`): if a node falls behind, every waiting
//! request shows it. The star schema benchmark's queries come in turn.
//!
//! Connections are kept from one measurement to the next, so that all but the first find their
//! statements prepared.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aerostat_workload::drive::pg::{PgClient, PgConnect, Protocol, fetch_text};
use aerostat_workload::drive::{
    self, Arrivals, Client, ClientError, Connect, Goal, Mode, Observer, Options, Outcome,
    QueryName, Sample, Selection,
};
use aerostat_workload::load;
use aerostat_workload::ssb::QUERIES;
use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use tokio::runtime::Runtime;

use crate::node::Node;
use crate::others::{DISTURBS, Moment};

/// Connections of a tenant, and so its queries under way at once. More than the cores of any
/// node measured here, few enough to be prepared in a moment.
const CONNECTIONS: usize = 16;

/// Between the start and the time that counts.
pub(crate) const WARM_UP: Duration = Duration::from_millis(250);

/// Requests to one tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stream {
    /// Its number.
    pub(crate) tenant: usize,
    /// Requests per second.
    pub(crate) rate: f64,
}

/// A request that was due in the time that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request {
    /// Its tenant's number.
    pub(crate) tenant: usize,
    /// When it was due, in seconds.
    pub(crate) due_s: f64,
    /// How long its user waited, ms; for ever if it was not answered.
    pub(crate) waited_ms: f64,
}

/// What users saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Every request.
    pub(crate) requests: Vec<Request>,
    /// Processors that other work took meanwhile.
    pub(crate) others: f64,
}

impl Seen {
    /// The mean of response times, ms.
    pub(crate) fn mean_ms(&self) -> f64 {
        let sum: f64 = self.requests.iter().map(|request| request.waited_ms).sum();
        sum / self.requests.len() as f64
    }

    /// The 99th percentile of response times, ms: the least that 99% of the requests do not
    /// exceed.
    pub(crate) fn p99_ms(&self) -> f64 {
        p99(self.requests.iter().map(|request| request.waited_ms))
    }

    /// The highest 99th percentile of any tenant, ms.
    pub(crate) fn worst_p99_ms(&self) -> f64 {
        let mut tenants: Vec<usize> = self.requests.iter().map(|one| one.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let of = |tenant| {
            let own = self.requests.iter().filter(move |one| one.tenant == tenant);
            p99(own.map(|one| one.waited_ms))
        };
        tenants.into_iter().map(of).fold(0.0, f64::max)
    }
}

/// The 99th percentile, by the nearest rank; zero of nothing.
pub(crate) fn p99(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * 0.99).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Clients of a node's tenants.
pub(crate) struct Traffic {
    runtime: Runtime,
    tenants: Vec<Arc<Pool>>,
    queries: Vec<QueryName>,
    /// The node's process and this one.
    own: [u32; 2],
    seed: u64,
}

impl Traffic {
    /// Clients of these tenants, who have the star schema benchmark's tables.
    ///
    /// # Errors
    /// When the system gives no means.
    pub(crate) fn new(node: &Node, tenants: &[String], seed: u64) -> Result<Traffic> {
        let texts: Vec<String> = QUERIES.iter().map(|query| query.sql.to_owned()).collect();
        let pool = |tenant: &String| {
            let servers = vec![node.config(tenant)?.into()];
            Ok(Arc::new(Pool {
                connect: PgConnect::new(servers, texts.clone(), Protocol::Prepared),
                idle: Idle::default(),
            }))
        };
        Ok(Traffic {
            // One thread sends thousands of requests per second and leaves the others to
            // the node.
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("cannot start the clients")?,
            tenants: tenants.iter().map(pool).collect::<Result<_>>()?,
            queries: query_names(),
            own: [node.pid(), std::process::id()],
            seed,
        })
    }

    /// Requests per second that a tenant gets with as many users as there are connections,
    /// none of whom thinks; prepares their statements.
    ///
    /// # Errors
    /// When queries fail.
    pub(crate) fn saturate(&mut self, tenant: usize, seconds: f64) -> Result<f64> {
        let users = Mode::Closed {
            users: CONNECTIONS,
            think_time: Duration::ZERO,
        };
        let seen = self.drive(&[(tenant, users)], seconds, seconds)?;
        Ok(seen.requests.len() as f64 / seconds)
    }

    /// Sends streams of requests for so long, all at once. Requests that are not answered
    /// within `patience` after the end are given up.
    ///
    /// # Errors
    /// When queries fail.
    pub(crate) fn send(
        &mut self,
        streams: &[Stream],
        seconds: f64,
        patience: Duration,
    ) -> Result<Seen> {
        let open = |stream: &Stream| {
            let mode = Mode::Open {
                rate: stream.rate,
                arrivals: Arrivals::Poisson,
                connections: CONNECTIONS,
            };
            (stream.tenant, mode)
        };
        let modes: Vec<(usize, Mode)> = streams.iter().map(open).collect();
        self.drive(&modes, seconds, patience.as_secs_f64())
    }

    /// Runs a statement of a tenant's; its result's rows as lines, the columns by tabs.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn text(&self, node: &Node, tenant: &str, sql: &str) -> Result<String> {
        let config = node.config(tenant)?;
        let rows = self.runtime.block_on(async {
            let client = load::connect(&config.into()).await?;
            anyhow::Ok(fetch_text(&client, sql).await?)
        });
        let rows = rows.with_context(|| format!("{sql} failed"))?;
        let line = |row: Vec<Option<String>>| -> String {
            let columns: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
            columns.join("\t")
        };
        let lines: Vec<String> = rows.into_iter().map(line).collect();
        Ok(lines.join("\n"))
    }

    /// The same, taken again if other work disturbs it and it breaks the goal; of several, the
    /// one with the lowest 99th percentile.
    ///
    /// # Errors
    /// When queries fail.
    pub(crate) fn send_quietly(
        &mut self,
        streams: &[Stream],
        seconds: f64,
        goal_ms: f64,
        tries: usize,
    ) -> Result<Seen> {
        // Who waits longer has broken the goal in any case.
        let patience = Duration::from_secs_f64(goal_ms * 3.0 / 1e3);
        let mut best = self.send(streams, seconds, patience)?;
        for _ in 1..tries {
            if best.p99_ms() <= goal_ms || best.others < DISTURBS {
                break;
            }
            let again = self.send(streams, seconds, patience)?;
            if again.p99_ms() < best.p99_ms() {
                best = again;
            }
        }
        Ok(best)
    }

    fn drive(&mut self, modes: &[(usize, Mode)], seconds: f64, drain_s: f64) -> Result<Seen> {
        let driven: Vec<Driven<Pool>> = modes
            .iter()
            .map(|(tenant, mode)| Driven {
                tenant: *tenant,
                pool: Arc::clone(&self.tenants[*tenant]),
                mode: *mode,
            })
            .collect();
        let times = (seconds, drain_s);
        drive_all(
            &self.runtime,
            driven,
            &self.queries,
            times,
            &mut self.seed,
            &self.own,
        )
    }
}

/// A tenant's requests.
pub(crate) struct Driven<P> {
    pub(crate) tenant: usize,
    /// Its connections.
    pub(crate) pool: Arc<P>,
    pub(crate) mode: Mode,
}

/// Sends the requests of tenants for so many seconds, all at once; waits for so many more until they are answered. `own` are
/// the processes whose work is not other work.
///
/// # Errors
/// When queries fail.
pub(crate) fn drive_all<P: Connect + 'static>(
    runtime: &Runtime,
    driven: Vec<Driven<P>>,
    queries: &[QueryName],
    (seconds, drain_s): (f64, f64),
    seed: &mut u64,
    own: &[u32],
) -> Result<Seen> {
    let log = Arc::new(Log::default());
    let drives = driven.into_iter().map(|one| {
        let options = Options {
            mode: one.mode,
            selection: Selection::InTurn,
            warm_up: WARM_UP,
            duration: Duration::from_secs_f64(seconds),
            drain: Duration::from_secs_f64(drain_s),
            goal: Goal::default(),
            // Tenants' requests come independently of each other.
            seed: seed.wrapping_add(one.tenant as u64),
        };
        let log = Arc::new(OfTenant(one.tenant, Arc::clone(&log)));
        let name = [format!("tenant {}", one.tenant)];
        async move { drive::drive(one.pool, &name, queries, &options, log).await }
    });
    let drives: Vec<_> = drives.collect();
    // The next measurement's requests come at other times.
    *seed = seed.wrapping_add(1 << 20);
    let before = Moment::now(own);
    runtime.block_on(try_join_all(drives))?;
    let others = before.others_until(&Moment::now(own));
    let mut log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    if log.failed > 0 {
        bail!("{} requests failed", log.failed);
    }
    if log.seen.requests.is_empty() {
        bail!("no request was due");
    }
    Ok(Seen {
        others,
        ..std::mem::take(&mut log.seen)
    })
}

/// The star schema benchmark's queries, by name.
pub(crate) fn query_names() -> Vec<QueryName> {
    let name = |query: &aerostat_workload::ssb::Query| {
        QueryName::new(query.id, format!("flight {}", query.flight))
    };
    QUERIES.iter().map(name).collect()
}

/// What the drives of one measurement have seen.
#[derive(Default)]
struct Log(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    seen: Seen,
    failed: u64,
}

/// A tenant's view of the log.
struct OfTenant(usize, Arc<Log>);

impl Observer for OfTenant {
    fn finished(&self, sample: &Sample) {
        let mut log = (self.1).0.lock().unwrap_or_else(PoisonError::into_inner);
        let latency_s = sample.latency.as_secs_f64();
        let waited_ms = match sample.outcome {
            Outcome::Done { .. } => latency_s * 1e3,
            Outcome::Unfinished | Outcome::Refused => f64::INFINITY,
            Outcome::Failed => {
                log.failed += 1;
                return;
            }
        };
        log.seen.requests.push(Request {
            tenant: self.0,
            due_s: sample.at.as_secs_f64() - latency_s,
            waited_ms,
        });
    }
}

/// A tenant's connections.
struct Pool {
    connect: PgConnect,
    idle: Idle,
}

/// Connections that are not in use.
type Idle = Arc<Mutex<Vec<PgClient>>>;

fn take(idle: &Idle) -> Option<PgClient> {
    idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

impl Connect for Pool {
    type Client = Kept;

    async fn connect(&self, _tenant: usize) -> Result<Kept, ClientError> {
        let client = match take(&self.idle) {
            Some(client) => client,
            None => self.connect.connect(0).await?,
        };
        Ok(Kept {
            client: Some(client),
            is_busy: false,
            idle: Arc::clone(&self.idle),
        })
    }
}

/// A connection that goes back to its pool, unless its query was given up.
struct Kept {
    client: Option<PgClient>,
    is_busy: bool,
    idle: Idle,
}

impl Client for Kept {
    async fn run(&mut self, query: usize) -> Result<u64, ClientError> {
        let client = self.client.as_mut().expect("taken when dropped alone");
        self.is_busy = true;
        let rows = client.run(query).await;
        self.is_busy = false;
        rows
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let client = self.client.take().filter(|_| !self.is_busy);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.extend(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(waited: &[(usize, f64)]) -> Seen {
        let request = |(tenant, waited_ms): &(usize, f64)| Request {
            tenant: *tenant,
            due_s: 0.0,
            waited_ms: *waited_ms,
        };
        Seen {
            requests: waited.iter().map(request).collect(),
            others: 0.0,
        }
    }

    #[test]
    fn percentiles_are_by_the_nearest_rank() {
        assert_eq!(p99((1..=100).map(f64::from)), 99.0);
        assert_eq!(p99((1..=101).map(f64::from)), 100.0);
        assert_eq!(p99([7.0].into_iter()), 7.0);
        assert_eq!(p99([].into_iter()), 0.0);
        // Whoever is not answered waits for ever.
        assert_eq!(p99([1.0, f64::INFINITY].into_iter()), f64::INFINITY);
    }

    #[test]
    fn the_worst_tenant_may_be_a_small_one() {
        let mut waited = vec![(0, 1.0); 1000];
        waited.extend([(1, 40.0), (1, 50.0)]);
        let seen = seen(&waited);
        assert_eq!(seen.p99_ms(), 1.0);
        assert_eq!(seen.worst_p99_ms(), 50.0);
        assert!(
            (seen.mean_ms() - 1.09 / 1.002).abs() < 1e-9,
            "{}",
            seen.mean_ms()
        );
    }
}
