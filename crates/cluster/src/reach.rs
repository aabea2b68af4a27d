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

/// How often what the nodes share is asked for, and how many questions may wait: one that was asked before a network was
/// there again waits longer than one that is asked then.
const ASKS_EVERY: Duration = Duration::from_millis(250);
const ASKS_MAX: usize = 8;

/// A machine that has not answered so soon is a reason to ask what the nodes share, too.
const SUSPECT: Duration = Duration::from_millis(300);

/// What the nodes share may not answer for so long: a member of etcd that leads may have to be replaced.
const SILENCE: Duration = Duration::from_millis(1_500);

/// Whether a node was reached, and when that was tried.
type Tried = AsyncMutex<Option<(Instant, bool)>>;

/// What is reached.
pub(crate) struct Reach {
    nodes: Mutex<HashMap<NodeId, Arc<Tried>>>,
    shared: Arc<Shared>,
}

/// What the nodes share, and whether it answers.
struct Shared {
    asked: Mutex<Asked>,
    space: Space,
    runtime: Handle,
}

/// What is known of the documents that nodes share.
#[derive(Default)]
struct Asked {
    /// Questions without an answer.
    waiting: usize,
    /// When the last was asked.
    last: Option<Instant>,
    /// Since when there is no answer.
    silent: Option<Instant>,
}

impl Reach {
    pub(crate) fn new(space: Space, runtime: Handle) -> Reach {
        Reach {
            nodes: Mutex::default(),
            shared: Arc::new(Shared {
                asked: Mutex::default(),
                space,
                runtime,
            }),
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
        let shared = Arc::clone(&self.shared);
        async move {
            let Some(peer) = peer else { return false };
            let mut tried = tried.lock().await;
            if let Some((at, is_reached)) = *tried
                && at.elapsed() < HOLDS
            {
                return is_reached;
            }
            // The caller's runtime may be about to end.
            let connects = timeout(CONNECT_MAX, TcpStream::connect(peer.address));
            let mut connecting = shared.runtime.spawn(connects);
            let connected = match timeout(SUSPECT, &mut connecting).await {
                Ok(connected) => connected,
                Err(_) => {
                    shared.is_alone();
                    connecting.await
                }
            };
            let is_reached = match connected {
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
        self.shared.is_alone()
    }
}

impl Shared {
    fn is_alone(self: &Arc<Self>) -> bool {
        let mut asked = self.asked.lock();
        let is_due = asked.last.is_none_or(|at| at.elapsed() >= ASKS_EVERY);
        if is_due && asked.waiting < ASKS_MAX {
            asked.waiting += 1;
            asked.last = Some(Instant::now());
            asked.silent.get_or_insert_with(Instant::now);
            let shared = Arc::clone(self);
            self.runtime.spawn_blocking(move || {
                let answer = shared.space.token();
                let mut asked = shared.asked.lock();
                asked.waiting -= 1;
                if answer.is_ok() {
                    asked.silent = None;
                }
            });
        }
        asked.silent.is_some_and(|since| since.elapsed() >= SILENCE)
    }
}
