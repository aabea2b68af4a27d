//! What of the cluster a node reaches at the moment, for sessions that wait: networks may lose what is sent without a word.
//!
//! Nobody is asked without an occasion, and those who ask at a time share an answer, which holds for a moment.

use std::{collections::HashMap, future::Future, io, sync::Arc, time::Duration};

use aerostat_replication::NodeId;
use aerostat_transport::Peer;
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::Mutex as AsyncMutex,
    time::{Instant, timeout},
};

use crate::Space;

/// How long a machine may take to take a connection: longer than it takes until a first packet that was lost is sent again.
const CONNECT_MAX: Duration = Duration::from_millis(1_200);

/// How long an answer holds.
const HOLDS: Duration = Duration::from_millis(500);

/// What the nodes share may not answer for so long: a member of etcd that leads may have to be replaced.
const SILENCE: Duration = Duration::from_secs(2);

/// Whether a node was reached, and when that was tried.
type Tried = AsyncMutex<Option<(Instant, bool)>>;

/// What is reached.
pub(crate) struct Reach {
    nodes: Mutex<HashMap<NodeId, Arc<Tried>>>,
    shared: Arc<Mutex<Asked>>,
    space: Space,
    runtime: Handle,
}

/// What is known of the documents that nodes share.
#[derive(Default)]
struct Asked {
    is_asked: bool,
    answered: Option<Instant>,
    /// Since when there is no answer.
    silent: Option<Instant>,
}

impl Reach {
    pub(crate) fn new(space: Space, runtime: Handle) -> Reach {
        Reach {
            nodes: Mutex::default(),
            shared: Arc::default(),
            space,
            runtime,
        }
    }

    /// Whether a node's machine takes connections, or says that nothing listens there: no frozen process is taken for a
    /// network that is cut.
    pub(crate) fn is_reached(
        &self,
        node: NodeId,
        peer: Option<Peer>,
    ) -> impl Future<Output = bool> + Send + 'static {
        let tried = Arc::clone(self.nodes.lock().entry(node).or_default());
        let runtime = self.runtime.clone();
        async move {
            let Some(peer) = peer else { return false };
            let mut tried = tried.lock().await;
            if let Some((at, is_reached)) = *tried
                && at.elapsed() < HOLDS
            {
                return is_reached;
            }
            // The caller's runtime may be about to end.
            let connecting = runtime.spawn(timeout(CONNECT_MAX, TcpStream::connect(peer.address)));
            let is_reached = match connecting.await {
                Ok(Ok(Ok(_))) => true,
                Ok(Ok(Err(error))) => error.kind() == io::ErrorKind::ConnectionRefused,
                Ok(Err(_)) | Err(_) => false,
            };
            *tried = Some((Instant::now(), is_reached));
            is_reached
        }
    }

    /// Whether what the nodes share has given no answer for a while, of which the first to ask does not hear. Waits for
    /// nobody.
    pub(crate) fn is_alone(&self) -> bool {
        let mut asked = self.shared.lock();
        let is_due = asked.answered.is_none_or(|at| at.elapsed() >= HOLDS);
        if is_due && !asked.is_asked {
            asked.is_asked = true;
            asked.silent.get_or_insert_with(Instant::now);
            let (shared, space) = (Arc::clone(&self.shared), self.space.clone());
            self.runtime.spawn_blocking(move || {
                let answer = space.token();
                let mut asked = shared.lock();
                asked.is_asked = false;
                if answer.is_ok() {
                    (asked.answered, asked.silent) = (Some(Instant::now()), None);
                }
            });
        }
        asked.silent.is_some_and(|since| since.elapsed() >= SILENCE)
    }
}
