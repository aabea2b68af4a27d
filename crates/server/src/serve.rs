//! `aerostat serve`: wires configuration, engine, gateway and HTTP, and stops them
//! in order.
//!
//! ```text
//!   SIGTERM, Ctrl-C ─► /healthz 503, no new connections, sessions told to end
//!                      ─► up to STOP_GRACE for open statements ─► exit 0
//!   second signal, or grace over ─► exit at once
//!   ALTER NODE … UPGRADE ─► the same, and then exec of the other build (`successor`), unless a signal comes until then
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use aerostat_balloon::{endpoint::Endpoint, participant};
use aerostat_cluster::{Programs, Shared};
use aerostat_embedded::{
    Aerostat, ByteSize, Engine, ErrorKind, Observer, SERVER_VERSION, StatementRecord,
    leave_purging_to_others,
};
use aerostat_gateway::{GatewayOptions, Listeners, LocalListener, NodeSecret};
use aerostat_transport::Transport;
use anyhow::{Context, Result};
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::balloon::{Granted, NodeMemory};
use crate::before;
use crate::cluster::{Joining, Member};
use crate::config::{Auth, Balloon, Config};
use crate::http::{self, Pages};
use crate::logs;
use crate::metrics::{MemorySample, Metrics, NodeSample, Outcome, TenantSample, TenantState};
use crate::secret::{self, first_line};
use crate::successor::Successor;
use crate::threads::Threads;
use crate::tls;

/// How long open statements get after the first signal. Orchestrators send SIGKILL
/// after 30 s or 10 s; this is less than both.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// What the gateway may take beyond the grace to tell its sessions.
const STOP_MARGIN: Duration = Duration::from_secs(1);

/// Exit code after a second signal, as a shell reports death by SIGINT.
const EXIT_FORCED: i32 = 130;

/// The role that every data folder begins with.
const SUPERUSER: &str = "aerostat";

/// Runs a node until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it fails.
pub(crate) fn run(config: Config) -> Result<()> {
    logs::install(config.log_format, &config.log_filter)?;
    // Upkeep gives back what is free.
    leave_purging_to_others();
    let upgrades = config
        .peers
        .as_ref()
        .and_then(|peers| peers.upgrades.as_deref());
    // Before threads get what the next process is not to inherit.
    let successor = upgrades.map(Successor::begin).transpose()?.map(Arc::new);
    let threads = Threads::start(config.threads, config.io_precedence)?;
    let result = threads.block_on(node(config, &threads, successor.as_ref()));
    threads.shut_down();
    let Some(successor) = successor else {
        return result;
    };
    if successor.is_replaced()
        && let Err(error) = &result
    {
        tracing::error!(
            error = &**error,
            "this process did not end as it should, and is to be replaced"
        );
    }
    successor.replace_now()?;
    result
}

async fn node(config: Config, threads: &Threads, successor: Option<&Arc<Successor>>) -> Result<()> {
    // Handlers first: a signal during start must stop, not kill.
    let mut signals = Signals::new()?;
    // One that came before is known elsewhere.
    if successor.is_some_and(|successor| successor.is_signalled()) {
        return Ok(());
    }
    let metrics = Arc::new(Metrics::new());
    let balloon = match &config.balloon {
        Some(balloon) => Some(Broker::ask(balloon, &config).await?),
        None => None,
    };
    let cap = balloon.as_ref().and_then(|broker| broker.granted.cap());
    // Other nodes are told where its clients find it.
    let (joining, early) = match &config.peers {
        Some(peers) => {
            let sql = bind("listen", config.listen).await?;
            let clients = sql.local_addr()?;
            let joining = Joining::begin(peers, &config.data, clients, successor).await?;
            (Some(joining), Some(sql))
        }
        None => (None, None),
    };
    let shared = joining.as_ref().map(Joining::shared).transpose()?;
    let database = open(&config, cap, shared, Arc::clone(&metrics))?;
    threads.caller_serves();
    let engine = Arc::clone(database.engine());
    // Beyond loopback nobody comes in without it.
    let tls = tls::options(&config.tls, &config.data, !config.listen.ip().is_loopback())?;
    let sql = match early {
        Some(sql) => sql,
        None => bind("listen", config.listen).await?,
    };
    let web = bind("http", config.http).await?;
    let (sql_address, web_address) = (sql.local_addr()?, web.local_addr()?);
    let local = match &config.socket_dir {
        Some(folder) => Some(bind_local(folder, sql_address.port())?),
        None => None,
    };
    if let Some(local) = &local {
        tracing::info!(socket = %local.path().display(), "listening");
    }
    let scram_secret = NodeSecret(secret::scram(&config.data)?);
    let (door, guests) = aerostat_gateway::door();
    // Nothing that may fail comes behind: others rely on what it leads.
    let member = match joining {
        Some(joining) => Some(joining.start(&engine, threads.io(), door).await?),
        None => None,
    };
    let degraded = degraded(&engine);

    let stopping = CancellationToken::new();
    let stopped = CancellationToken::new();
    let options = GatewayOptions {
        tls,
        threads: threads.io().to_vec(),
        trust_loopback: config.auth == Auth::Trust,
        connections_max: config.max_connections,
        authentication_timeout: config.authentication_timeout,
        scram_secret,
        shutdown_grace: STOP_GRACE,
        server_version: SERVER_VERSION.to_owned(),
    };
    let gateway = tokio::spawn(aerostat_gateway::serve(
        Listeners {
            tcp: sql,
            local,
            guests: Some(guests),
        },
        Arc::clone(&engine),
        options,
        stopping.clone(),
    ));
    let pages = Pages {
        metrics,
        sample: {
            let engine = Arc::clone(&engine);
            let transport = member.as_ref().map(|member| member.transport().clone());
            move || {
                let expires = transport.as_ref().and_then(Transport::expires);
                let since = expires.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
                NodeSample {
                    certificate_expires_s: since.map(|since| since.as_secs()),
                    ..sample(&engine)
                }
            }
        },
        states: move || states(&engine),
        stopping: stopping.clone(),
    };
    let pages = tokio::spawn(http::serve(web, pages, stopped.clone()));
    if !config.http.ip().is_loopback() {
        tracing::warn!(address = %web_address, "metrics are readable by whoever reaches this address");
    }
    tracing::info!(
        listen = %sql_address, http = %web_address, data = %config.data.display(),
        memory = %config.memory, threads = config.threads, degraded, "ready"
    );
    before::has_served();

    let balloon = balloon.map(|broker| broker.decides_on(database.engine(), stopping.clone()));

    let ends = wait(&mut signals, successor, member.as_ref(), stopping, gateway);
    let result = ends.await;
    stopped.cancel();
    if let Some(balloon) = balloon {
        // It has said goodbye, or has no broker.
        balloon.await.context("the participant's task died")?;
    }
    if let Some(member) = member {
        member.leave().await;
    }
    // Whoever has stopped the process meanwhile does not want another.
    if let (Some(name), Some(successor)) = (signals.next().now_or_never(), successor) {
        tracing::info!(signal = name, "stopping");
        successor.close();
    }
    let pages = pages.await;
    // Queries that ignore their cancellation must not hold the process.
    database.abandon();
    pages
        .context("the HTTP task died")?
        .context("the HTTP listener failed")?;
    tracing::info!("stopped");
    result
}

/// The broker that divides memory between the node and others.
struct Broker {
    endpoint: Endpoint,
    token: Option<String>,
    granted: Granted,
}

impl Broker {
    /// Asks what the node may begin with.
    async fn ask(balloon: &Balloon, config: &Config) -> Result<Broker> {
        let endpoint = Endpoint::parse(&balloon.broker, balloon.trust.as_deref())
            .with_context(|| format!("cannot use the broker {}", balloon.broker))?;
        let token = balloon.token_file.as_deref().map(first_line).transpose()?;
        let identity = balloon.identity.clone();
        let (data, memory) = (&config.data, config.memory);
        let granted = Granted::ask(identity, data, memory, &endpoint, token.clone()).await;
        Ok(Broker {
            endpoint,
            token,
            granted,
        })
    }

    /// Has it decide on the node's memory, until `stopping`.
    fn decides_on(self, engine: &Arc<Engine>, stopping: CancellationToken) -> JoinHandle<()> {
        let memory = NodeMemory::new(Arc::clone(engine), self.granted);
        let run = participant::run(Arc::new(memory), self.endpoint, self.token, stopping);
        tokio::spawn(run)
    }
}

fn open(
    config: &Config,
    cap: Option<ByteSize>,
    shared: Option<Shared>,
    metrics: Arc<Metrics>,
) -> Result<Aerostat> {
    let mut options = config.options();
    options.memory_cap = cap;
    options.shared = shared;
    options.observer = metrics;
    let database = Aerostat::open(options)
        .with_context(|| format!("cannot open the data folder {}", config.data.display()))?;
    if let Some(file) = &config.password_file {
        // Without a session: the database it would be of may be one that cannot be opened.
        let password = first_line(file)?;
        let node = database.engine().node();
        node.set_password(SUPERUSER, &password)
            .with_context(|| format!("cannot set the password of {SUPERUSER}"))?;
    }
    let role = database.engine().role(SUPERUSER);
    if config.auth == Auth::Scram && role.is_none_or(|role| role.scram.is_none()) {
        tracing::warn!(
            "role {SUPERUSER} has no password, so it cannot log in; give one with --password-file"
        );
    }
    Ok(database)
}

async fn bind(setting: &str, address: std::net::SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another with --{setting}"))
}

fn bind_local(folder: &Path, port: u16) -> Result<LocalListener> {
    LocalListener::bind(folder, port).with_context(|| {
        format!(
            "cannot listen on .s.PGSQL.{port} in {}; choose another folder with --socket-dir",
            folder.display()
        )
    })
}

/// Waits for a signal or another build, then until others lead what this node does, and for the gateway to end its
/// sessions.
async fn wait(
    signals: &mut Signals,
    successor: Option<&Arc<Successor>>,
    member: Option<&Member>,
    stopping: CancellationToken,
    mut gateway: JoinHandle<std::io::Result<()>>,
) -> Result<()> {
    let close = || successor.is_some_and(|successor| successor.close());
    tokio::select! {
        ended = &mut gateway => {
            close();
            ended.context("the gateway died")?.context("the SQL listener failed")?;
            anyhow::bail!("the gateway ended by itself");
        }
        name = signals.next() => {
            tracing::info!(signal = name, "stopping");
            close();
        }
        () = asked(successor) => tracing::info!("stopping to go on as another build"),
    }
    let stopped = async {
        if let Some(member) = member {
            member.hand_over().await;
        }
        stopping.cancel();
        let grace = tokio::time::sleep(STOP_GRACE + STOP_MARGIN);
        tokio::select! {
            ended = &mut gateway => ended.context("the gateway died")?.context("the SQL listener failed"),
            () = grace => {
                tracing::warn!("sessions were still open after {} s; they end now", STOP_GRACE.as_secs());
                gateway.abort();
                Ok(())
            }
        }
    };
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            result = &mut stopped => return result,
            name = signals.next() => {
                if !close() {
                    tracing::warn!(signal = name, "stopping at once");
                    std::process::exit(EXIT_FORCED);
                }
                tracing::info!(signal = name, "stopping, and not going on as another build");
            }
        }
    }
}

/// Waits until the process is to be replaced, if it can be.
async fn asked(successor: Option<&Arc<Successor>>) {
    match successor {
        Some(successor) => successor.asked().await,
        None => std::future::pending().await,
    }
}

/// The signals that stop a node.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

impl Observer for Metrics {
    fn statement(&self, record: &StatementRecord<'_>) {
        let outcome = match record.error {
            None => Outcome::Ok,
            Some(ErrorKind::QueryCanceled) => Outcome::Cancelled,
            Some(_) => Outcome::Error,
        };
        self.count(
            record.database,
            record.kind,
            outcome,
            record.elapsed,
            record.rows,
        );
    }
}

fn sample(engine: &Engine) -> NodeSample {
    let tenants = engine.databases().into_iter().map(|database| TenantSample {
        name: database.name,
        memory_used_bytes: database.memory_used,
        memory_max_bytes: database.memory_max,
        memory_min_bytes: database.memory_min,
        connections: u64::try_from(database.connections).unwrap_or(0),
        statements: database.statements,
        query_seconds: database.query_time.as_secs_f64(),
        plan_cache_hits: database.plan_cache_hits,
        plan_cache_misses: database.plan_cache_misses,
        rows_to_merge: database.freeze_backlog.rows_to_merge,
        rows_due: database.freeze_backlog.rows_due,
        spilled_bytes: database.spilled,
        evicted_bytes: database.evicted,
        read_back_bytes: database.read_back,
    });
    let memory = engine.memory_ledger().into_iter().map(|of| MemorySample {
        tenant: of.database,
        class: of.class,
        bytes: of.bytes,
    });
    NodeSample {
        memory_used_bytes: engine.governor().used(),
        memory_unreserved_bytes: engine.governor().unreserved(),
        memory_max_bytes: engine.governor().limit(),
        memory_target_bytes: engine.governor().target(),
        memory: memory.collect(),
        tenants: tenants.collect(),
        states: states(engine),
        copies: aerostat_cluster::samples(engine.node()),
        certificate_expires_s: None,
    }
}

fn states(engine: &Engine) -> Vec<TenantState> {
    let states = engine.states().into_iter();
    states
        .map(|(tenant, state)| TenantState {
            tenant,
            state: state.name(),
            is_degraded: state.is_degraded(),
        })
        .collect()
}

/// How many databases are not served as they should be.
fn degraded(engine: &Engine) -> usize {
    let states = states(engine);
    states.iter().filter(|state| state.is_degraded).count()
}
