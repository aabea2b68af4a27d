//! Accepting clients, and stopping.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::Backend, flag::Flag, limits::STARTUP_CONNECTIONS_EXTRA, listen::Listeners,
    options::GatewayOptions, registry::Registry, startup::serve_socket, threads::Threads,
};

/// Pause after `accept` failed, typically for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all connections of a gateway share.
pub(crate) struct Shared {
    pub(crate) options: GatewayOptions,
    pub(crate) registry: Arc<Registry>,
    /// One permit for each session there may be.
    pub(crate) sessions: Arc<Semaphore>,
    /// One permit for each KiB that large messages may hold.
    messages: Arc<Semaphore>,
    /// The node stops: no new statements.
    pub(crate) stopping: Arc<Flag>,
    /// The grace is over: running statements end now.
    pub(crate) kill: Arc<Flag>,
}

impl Shared {
    fn new(options: GatewayOptions) -> Self {
        Self {
            registry: Arc::new(Registry::default()),
            sessions: Arc::new(Semaphore::new(
                options.connections_max.min(Semaphore::MAX_PERMITS),
            )),
            messages: Arc::new(Semaphore::new(
                (options.message_budget_bytes >> 10).min(Semaphore::MAX_PERMITS),
            )),
            stopping: Arc::default(),
            kill: Arc::default(),
            options,
        }
    }

    /// Room for a message of this length; an error when large ones hold all there is.
    pub(crate) fn message_budget(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, ()> {
        if bytes < self.options.large_message_bytes {
            return Ok(None);
        }
        let permits = u32::try_from(bytes.div_ceil(1024)).map_err(|_| ())?;
        self.messages
            .clone()
            .try_acquire_many_owned(permits)
            .map(Some)
            .map_err(|_| ())
    }
}

/// Serves clients until `shutdown` is cancelled and the last client has gone: idle ones are told
/// 57P01 at once, running statements get [`GatewayOptions::shutdown_grace`].
///
/// # Errors
/// None at present; `accept` failures are logged and tried again.
pub async fn serve_backend<B: Backend>(
    listeners: impl Into<Listeners>,
    backend: Arc<B>,
    options: GatewayOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let listeners = listeners.into();
    let sockets = options
        .connections_max
        .saturating_add(STARTUP_CONNECTIONS_EXTRA)
        .min(Semaphore::MAX_PERMITS);
    let sockets = Arc::new(Semaphore::new(sockets));
    let threads = Threads::new(&options.threads);
    let shared = Arc::new(Shared::new(options));
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
            Ok((socket, peer)) => {
                // Beyond the reserve for startups a socket is closed unheard.
                let Ok(permit) = sockets.clone().try_acquire_owned() else {
                    continue;
                };
                let (backend, shared) = (backend.clone(), shared.clone());
                let served = threads.serve(socket, &mut connections, move |socket| async move {
                    serve_socket(socket, peer, backend, shared).await;
                    drop(permit);
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
    tracing::info!(sessions = shared.registry.len(), "gateway stops");
    let all_gone = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.options.shutdown_grace, all_gone)
        .await
        .is_err()
    {
        shared.kill.raise();
        while connections.join_next().await.is_some() {}
    }
    Ok(())
}
