//! `aerostat broker`: runs a broker, and asks one.

mod metrics;
mod show;

use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aerostat_adapters::{Adapter, Ended, run_adapter};
use aerostat_balloon::endpoint::Endpoint;
use aerostat_broker::{
    admin::{Answer, Request, ask},
    core::Settings,
    policy::Policy,
    serve::{Broker, Network, Options},
};
use aerostat_embedded::{ByteSize, machine_memory_bytes};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{LogFormat, Tls},
    http, logs,
    secret::first_line,
    serve::Signals,
    tls,
};

/// The socket's name in the broker's folder.
const SOCKET: &str = "broker.sock";

/// How often `status --watch` looks.
const WATCH: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(crate) enum BrokerCommand {
    /// Run a broker
    Run(Box<RunArguments>),
    /// Stand for a program that does not speak the balloon protocol
    Adapter(AdapterArguments),
    /// Show who has how much memory, and why
    Status(StatusArguments),
    /// Have a participant live by so much memory, whatever the policy does
    Pin {
        /// The participant
        name: String,
        /// Its memory, such as 2GB
        memory: ByteSize,
        #[command(flatten)]
        at: Place,
    },
    /// Leave a participant to the policy again
    Unpin {
        /// The participant
        name: String,
        #[command(flatten)]
        at: Place,
    },
    /// Free the memory of a participant that is lost and whose process the kernel does not know
    Forget {
        /// The participant
        name: String,
        #[command(flatten)]
        at: Place,
    },
    /// Divide memory by another policy until the broker ends
    Policy {
        /// static, proportional or benefit
        policy: Policy,
        #[command(flatten)]
        at: Place,
    },
}

#[derive(Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    at: Place,
    /// Memory for all participants: 8GB, or a share of what machine and cgroup allow
    #[arg(long, env = "AEROSTAT_BROKER_MEMORY", default_value = "80%")]
    memory: String,
    /// What of it is never granted; a 32nd if not given
    #[arg(long)]
    reserve: Option<ByteSize>,
    /// How memory is divided: static, proportional or benefit
    #[arg(long, default_value_t)]
    policy: Policy,
    /// Only write down what would move
    #[arg(long)]
    dry_run: bool,
    /// Seconds between two moves at least
    #[arg(long, default_value_t = 30)]
    dwell: u64,
    /// Address for participants of other machines, by TLS; none if not given
    #[arg(long, requires = "token_file")]
    listen: Option<SocketAddr>,
    /// PEM file with the certificate chain; one is made in the folder if not given
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File whose first line participants of other machines must know
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Address for /healthz and /metrics; none if not given
    #[arg(long)]
    http: Option<SocketAddr>,
    /// Which log lines: a level or a filter
    #[arg(long, default_value = "info")]
    log_filter: String,
}

#[derive(Args)]
pub(crate) struct AdapterArguments {
    /// The kind of program: mariadb, redis, jvm or cgroup
    kind: String,
    /// What the program is called and where it is, such as
    /// name=db,socket=/run/mysqld/mysqld.sock,user=root,floor=512MB,ceiling=8GB
    options: String,
    #[command(flatten)]
    at: Place,
    /// Broker of another machine, host:port, instead of a socket
    #[arg(long, requires = "trust")]
    broker: Option<String>,
    /// PEM file with the certificate of that broker
    #[arg(long)]
    trust: Option<PathBuf>,
    /// File whose first line is the token of that broker
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Which log lines: a level or a filter
    #[arg(long, default_value = "info")]
    log_filter: String,
}

/// Where a broker is.
#[derive(Args)]
pub(crate) struct Place {
    /// Folder of the ledger and the audit log
    #[arg(
        long,
        env = "AEROSTAT_BROKER_DATA",
        default_value = "./aerostat-broker"
    )]
    data: PathBuf,
    /// Socket for participants and administrators; DATA/broker.sock if not given
    #[arg(long, env = "AEROSTAT_BROKER_SOCKET")]
    socket: Option<PathBuf>,
}

impl Place {
    fn socket(&self) -> PathBuf {
        self.socket
            .clone()
            .unwrap_or_else(|| self.data.join(SOCKET))
    }
}

#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    at: Place,
    /// As JSON
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Again every second, until interrupted
    #[arg(long)]
    watch: bool,
}

/// Runs a command.
///
/// # Errors
/// When the broker cannot run, cannot be asked, or does not do what it is asked.
pub(crate) fn run(command: BrokerCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.context("cannot start the runtime")?;
    runtime.block_on(async move {
        match command {
            BrokerCommand::Run(arguments) => serve(*arguments).await,
            BrokerCommand::Adapter(arguments) => adapter(arguments).await,
            BrokerCommand::Status(arguments) => status(&arguments).await,
            BrokerCommand::Pin { name, memory, at } => {
                let bytes = memory.0;
                done(&at, &Request::Pin { name, bytes }).await
            }
            BrokerCommand::Unpin { name, at } => done(&at, &Request::Unpin { name }).await,
            BrokerCommand::Forget { name, at } => done(&at, &Request::Forget { name }).await,
            BrokerCommand::Policy { policy, at } => done(&at, &Request::Policy { policy }).await,
        }
    })
}

async fn adapter(arguments: AdapterArguments) -> Result<()> {
    logs::install(LogFormat::Text, &arguments.log_filter)?;
    let mut signals = Signals::new()?;
    let adapter = Adapter::parse(&arguments.kind, &arguments.options)?;
    let endpoint = match &arguments.broker {
        Some(broker) => Endpoint::parse(broker, arguments.trust.as_deref())
            .with_context(|| format!("cannot use the broker {broker}"))?,
        None => Endpoint::Unix(arguments.at.socket()),
    };
    let token = arguments
        .token_file
        .as_deref()
        .map(first_line)
        .transpose()?;
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let run = tokio::spawn(run_adapter(adapter, endpoint, token, stopping));
    let waiting = tokio::spawn(async move {
        let name = signals.next().await;
        tracing::info!(signal = name, "stopping");
        stop.cancel();
    });
    let ended = run.await.context("the adapter died")?;
    waiting.abort();
    match ended? {
        Ended::Gone => tracing::info!("the program has gone"),
        Ended::Stopped => tracing::info!("stopped"),
    }
    Ok(())
}

async fn done(at: &Place, request: &Request) -> Result<()> {
    match ask(&at.socket(), request).await? {
        Answer::Error { message } => bail!(message),
        Answer::Ok | Answer::Status(_) => Ok(()),
    }
}

async fn status(arguments: &StatusArguments) -> Result<()> {
    let socket = arguments.at.socket();
    loop {
        let status = match ask(&socket, &Request::Status).await? {
            Answer::Status(status) => *status,
            Answer::Error { message } => bail!(message),
            Answer::Ok => bail!("the broker answered something else"),
        };
        let text = match arguments.json {
            true => serde_json::to_string_pretty(&status).context("a status is JSON")?,
            false => show::status(&status),
        };
        // The top of the screen, and nothing below.
        let before = if arguments.watch { "\x1b[H\x1b[2J" } else { "" };
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{before}{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(error.into());
            }
            Err(_) => return Ok(()),
            Ok(()) if !arguments.watch => return Ok(()),
            Ok(()) => {}
        }
        drop(out);
        tokio::time::sleep(WATCH).await;
    }
}

async fn serve(arguments: RunArguments) -> Result<()> {
    logs::install(LogFormat::Text, &arguments.log_filter)?;
    let mut signals = Signals::new()?;
    let settings = settings(&arguments)?;
    let (data, socket) = (arguments.at.data.clone(), arguments.at.socket());
    let network = match arguments.listen {
        Some(address) => Some(network(&arguments, address, &data).await?),
        None => None,
    };
    let budget = settings.budget;
    let options = Options {
        settings,
        data,
        socket: socket.clone(),
        network,
    };
    let broker = Broker::open(options).await.context("cannot run a broker")?;
    let stopping = CancellationToken::new();
    let numbers = Arc::new(metrics::Metrics::default());
    let pages = match arguments.http {
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
            let (numbers, stop) = (Arc::clone(&numbers), stopping.clone());
            Some(tokio::spawn(http::serve_text(
                listener,
                move || numbers.render(),
                stop,
            )))
        }
        None => None,
    };
    tracing::info!(socket = %socket.display(), memory = %ByteSize(budget), "ready");
    let running = tokio::spawn(broker.run(stopping.clone(), move |status| numbers.set(status)));
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping");
    stopping.cancel();
    running.await.context("the broker died")?;
    if let Some(pages) = pages {
        pages
            .await
            .context("the HTTP task died")?
            .context("the HTTP listener failed")?;
    }
    Ok(())
}

fn settings(arguments: &RunArguments) -> Result<Settings> {
    let budget = budget(&arguments.memory)?;
    let mut settings = Settings::of_budget(budget);
    if let Some(reserve) = arguments.reserve {
        anyhow::ensure!(
            reserve.0 < budget,
            "the reserve leaves nothing of {}",
            ByteSize(budget)
        );
        settings.reserve = reserve.0;
    }
    settings.policy = arguments.policy;
    settings.is_dry_run = arguments.dry_run;
    settings.dwell_ms = arguments.dwell.saturating_mul(1_000);
    Ok(settings)
}

/// A quantity, or a share of what machine and cgroup allow.
fn budget(text: &str) -> Result<u64> {
    let bytes = match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.trim().parse::<f64>().ok();
            let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
            percent.map(|percent| (machine_memory_bytes() as f64 * percent / 100.0) as u64)
        }
        None => text.parse::<ByteSize>().ok().map(|size| size.0),
    };
    match bytes {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => bail!("--memory: {text:?} is not a quantity such as 8GB or 80%"),
    }
}

async fn network(arguments: &RunArguments, address: SocketAddr, data: &Path) -> Result<Network> {
    let Some(file) = &arguments.token_file else {
        bail!("--listen needs --token-file");
    };
    let token = first_line(file)?;
    let files = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    let certificate = match files {
        Some((cert, key)) => Tls::Files { cert, key },
        None => {
            std::fs::create_dir_all(data)
                .with_context(|| format!("cannot make {}", data.display()))?;
            Tls::SelfSigned
        }
    };
    let options = tls::options(&certificate, data, true)?;
    let tls = options.context("TLS is on")?.config;
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    Ok(Network {
        listener,
        tls,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_quantities_or_shares() {
        assert_eq!(budget("2GB").unwrap(), 2 << 30);
        let half = budget("50%").unwrap();
        assert!(half > 0 && half <= machine_memory_bytes());
        for wrong in ["", "much", "0", "101%", "-5%"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }
}
