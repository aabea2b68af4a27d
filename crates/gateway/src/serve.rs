//! Accepting clients, and stopping.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Backend,
    flag::Flag,
    limits::STARTUP_CONNECTIONS_MIN,
    listen::{Arrival, Listeners},
    lobby::Lobby,
    options::GatewayOptions,
    orders::End,
    readers::Readers,
    registry::Registry,
    startup::{serve_guest, serve_socket},
    threads::Threads,
};

/// The pause after a failed `accept`, which typically lacks file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Requests to cancel with keys that are not this node's, in a second.
const CANCELS_MAX: u32 = 100;

/// The time between two log lines about clients that were dropped before they had logged in.
const DISMISSALS_PAUSE: Duration = Duration::from_secs(10);

/// What all connections of a gateway share.
pub(crate) struct Shared {
    pub(crate) options: GatewayOptions,
    pub(crate) registry: Arc<Registry>,
    /// A permit for each session that there may be.
    pub(crate) sessions: Arc<Semaphore>,
    /// Up when the node stops, and lets nobody in any more.
    pub(crate) stopping: Flag,
    /// Requests to cancel that other nodes were asked to see to.
    pub(crate) cancels: Asked,
    /// Sessions that read copies.
    pub(crate) readers: Arc<Readers>,
}

/// Counts what is asked of others, who are not to be flooded by whoever has not logged in.
#[derive(Default)]
pub(crate) struct Asked(Mutex<Option<(Instant, u32)>>);

impl Asked {
    /// Whether others may be asked once more.
    pub(crate) fn is_admitted(&self) -> bool {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = match *asked {
            Some((since, count)) if since.elapsed() < Duration::from_secs(1) => (since, count),
            _ => (Instant::now(), 0),
        };
        *asked = Some((since, count + 1));
        count < CANCELS_MAX
    }
}

impl Shared {
    fn new(options: GatewayOptions, registry: Arc<Registry>) -> Self {
        Self {
            registry,
            cancels: Asked::default(),
            readers: Arc::default(),
            sessions: Arc::new(Semaphore::new(
                options.connections_max.min(Semaphore::MAX_PERMITS),
            )),
            stopping: Flag::default(),
            options,
        }
    }
}

/// Logs that clients were dropped before they had logged in. It does so from time to time: the
/// crowd matters, and a line for each client would fill the log.
#[derive(Default)]
struct Dismissals {
    /// How many there had been at the last log line, and when that was written.
    told: Option<(u64, Instant)>,
}

impl Dismissals {
    fn tell(&mut self, lobby: &Lobby) {
        let dismissed = lobby.dismissed();
        let before = match self.told {
            Some((before, at)) if at.elapsed() < DISMISSALS_PAUSE || before == dismissed => return,
            Some((before, _)) => before,
            None if dismissed == 0 => return,
            None => 0,
        };
        self.told = Some((dismissed, Instant::now()));
        let clients = dismissed - before;
        tracing::warn!(
            clients,
            "dropped the clients that were longest in logging in: too many are"
        );
    }
}

/// Serves clients until `shutdown` is cancelled and the last client has left: idle clients get
/// 57P01 at once, running statements get [`GatewayOptions::shutdown_grace`].
///
/// # Errors
/// No errors at present; `accept` failures are logged and tried again.
pub async fn serve<B: Backend>(
    listeners: impl Into<Listeners>,
    backend: Arc<B>,
    options: GatewayOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listeners = listeners.into();
    let lobby = Lobby::new(options.connections_max.max(STARTUP_CONNECTIONS_MIN));
    let mut dismissals = Dismissals::default();
    let threads = Threads::new(&options.threads);
    let registry = listeners.guests.as_ref();
    let registry = registry.map(|guests| Arc::clone(&guests.registry));
    let shared = Arc::new(Shared::new(options, registry.unwrap_or_default()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listeners.accept() => accepted,
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection's task failed");
                }
                continue;
            }
        };
        match accepted {
            Ok(Arrival {
                socket,
                peer,
                introduction,
            }) => {
                let place = lobby.enter();
                dismissals.tell(&lobby);
                let (backend, shared) = (backend.clone(), shared.clone());
                let served = threads.serve(socket, &mut connections, move |socket| async move {
                    match introduction {
                        None => serve_socket(socket, peer, place, backend, shared).await,
                        Some(said) => {
                            drop(place);
                            serve_guest(socket, peer, &said, backend, shared).await;
                        }
                    }
                });
                if let Err(error) = served {
                    tracing::warn!(%error, "cannot serve a connection");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listeners);
    shared.stopping.raise();
    shared.registry.tell_all(End::Stopping);
    tracing::info!(sessions = shared.registry.len(), "gateway stops");
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.options.shutdown_grace, all_gone)
        .await
        .is_err()
    {
        shared.registry.tell_all(End::Killed);
        while connections.join_next().await.is_some() {}
    }
    Ok(())
}
