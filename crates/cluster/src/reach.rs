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

use crate::{Census, Space, SpaceError};

/// How long a machine may take to take a connection: longer than it takes until a first packet that was lost is sent again.
const CONNECT_MAX: Duration = Duration::from_millis(1_200);

/// The same of the second attempt: the network may have been away for as long as the first one took.
const CONNECT_AGAIN_MAX: Duration = Duration::from_millis(400);

/// How long an answer holds.
const HOLDS: Duration = Duration::from_millis(500);

/// How long it is remembered that a machine was not reached.
const REMEMBERED: Duration = Duration::from_secs(3);

/// How often what the nodes share is asked for, and how many questions may wait: one that was asked before a network was
/// there again waits longer than one that is asked then.
const ASKS_EVERY: Duration = Duration::from_millis(250);
const ASKS_MAX: usize = 8;

/// A machine that has not answered so soon is a reason to look at all others, too.
const SUSPECT: Duration = Duration::from_millis(300);

/// What the nodes share may not answer for so long: a member of etcd that leads may have to be replaced.
const SILENCE: Duration = Duration::from_millis(1_500);

/// What is reached.
#[derive(Clone)]
pub(crate) struct Reach(Arc<Inner>);

struct Inner {
    nodes: Mutex<HashMap<NodeId, Arc<Tried>>>,
    asked: Mutex<Asked>,
    space: Space,
    census: Arc<Census>,
    runtime: Handle,
}

/// A node that somebody wanted to reach.
#[derive(Default)]
struct Tried {
    /// Held by whoever tries.
    trying: AsyncMutex<()>,
    /// When it was tried, and whether it was reached.
    last: Mutex<Option<(Instant, bool)>>,
}

impl Tried {
    /// What was found so lately.
    fn within(&self, long: Duration) -> Option<bool> {
        let last = *self.last.lock();
        last.filter(|(at, _)| at.elapsed() < long)
            .map(|(_, is_reached)| is_reached)
    }
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
    pub(crate) fn new(space: Space, runtime: Handle, census: Arc<Census>) -> Reach {
        Reach(Arc::new(Inner {
            nodes: Mutex::default(),
            asked: Mutex::default(),
            space,
            census,
            runtime,
        }))
    }

    /// Whether a node's machine takes connections, or says that nothing listens there: no frozen process is taken for a
    /// network that is cut, nor anything that is wrong on this machine.
    pub(crate) fn is_reached(&self, node: NodeId) -> impl Future<Output = bool> + Send + 'static {
        let inner = Arc::clone(&self.0);
        async move {
            match inner.census.peer(node) {
                Some(peer) => inner.is_reached(node, peer).await,
                // It is not known where it is.
                None => true,
            }
        }
    }

    /// Whether nothing is known against it that a node is reached. Waits for nobody.
    pub(crate) fn seems_reached(&self, node: NodeId) -> bool {
        self.0.tried(node).within(REMEMBERED).unwrap_or(true)
    }

    /// The same, and it is looked at from then on.
    pub(crate) fn looks_reached(&self, node: NodeId) -> bool {
        let tried = self.0.tried(node);
        if tried.within(HOLDS).is_none()
            && let Some(peer) = self.0.census.peer(node)
        {
            self.0.look(&tried, node, peer);
        }
        tried.within(REMEMBERED).unwrap_or(true)
    }

    /// Whether neither another node is reached nor has what the nodes share given an answer for a while: who is the first
    /// to ask does not hear of it. Waits for nobody.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.is_alone()
    }

    /// Whether what the nodes share owes somebody an answer for a while. It is asked again from then on.
    pub(crate) fn is_unanswered(&self) -> bool {
        let is_owed = self.0.asked.lock().silent.is_some();
        is_owed && self.0.is_silent()
    }

    /// Asks what the nodes share. Waits for the answer, which counts for everybody.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn ask<T>(
        &self,
        question: impl FnOnce(&Space) -> Result<T, SpaceError>,
    ) -> Result<T, SpaceError> {
        self.0.ask(question)
    }
}

impl Inner {
    fn tried(&self, node: NodeId) -> Arc<Tried> {
        Arc::clone(self.nodes.lock().entry(node).or_default())
    }

    async fn is_reached(self: Arc<Self>, node: NodeId, peer: Peer) -> bool {
        let tried = self.tried(node);
        let _trying = tried.trying.lock().await;
        if let Some(is_reached) = tried.within(HOLDS) {
            return is_reached;
        }
        // The caller's runtime may be about to end.
        let connecting = self.runtime.spawn(Arc::clone(&self).connects(peer));
        let is_reached = connecting.await.unwrap_or(true);
        *tried.last.lock() = Some((Instant::now(), is_reached));
        is_reached
    }

    async fn connects(self: Arc<Self>, peer: Peer) -> bool {
        let connected = {
            let mut connecting = std::pin::pin!(TcpStream::connect(peer.address));
            match timeout(SUSPECT, &mut connecting).await {
                Ok(connected) => Ok(connected),
                Err(_) => {
                    self.is_alone();
                    timeout(CONNECT_MAX - SUSPECT, connecting).await
                }
            }
        };
        if connected.is_ok_and(|connected| is_machine(&connected)) {
            return true;
        }
        let again = timeout(CONNECT_AGAIN_MAX, TcpStream::connect(peer.address)).await;
        again.is_ok_and(|connected| is_machine(&connected))
    }

    fn is_alone(self: &Arc<Self>) -> bool {
        let is_silent = self.is_silent();
        let mut reaches_none = true;
        for (node, peer) in self.census.others(self.census.me()) {
            let tried = self.tried(node);
            reaches_none &= tried.within(REMEMBERED) == Some(false);
            if tried.within(HOLDS).is_none() {
                self.look(&tried, node, peer);
            }
        }
        is_silent && reaches_none
    }

    /// Has it tried whether a node is reached, unless somebody does.
    fn look(self: &Arc<Self>, tried: &Tried, node: NodeId, peer: Peer) {
        if tried.trying.try_lock().is_ok() {
            self.runtime.spawn(Arc::clone(self).is_reached(node, peer));
        }
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&Space) -> Result<T, SpaceError>,
    ) -> Result<T, SpaceError> {
        self.asked.lock().silent.get_or_insert_with(Instant::now);
        let answer = question(&self.space);
        if answer.is_ok() {
            self.asked.lock().silent = None;
        }
        answer
    }

    /// Asks what the nodes share, and does not wait for that; whether it has given no answer for a while.
    fn is_silent(self: &Arc<Self>) -> bool {
        let mut asked = self.asked.lock();
        let is_due = asked.last.is_none_or(|at| at.elapsed() >= ASKS_EVERY);
        if is_due && asked.waiting < ASKS_MAX {
            asked.waiting += 1;
            asked.last = Some(Instant::now());
            let inner = Arc::clone(self);
            self.runtime.spawn_blocking(move || {
                // How it went is known by all who ask.
                let _ = inner.ask(Space::is_there);
                inner.asked.lock().waiting -= 1;
            });
        }
        asked.silent.is_some_and(|since| since.elapsed() >= SILENCE)
    }
}

/// Whether a machine has answered, or it is this one that has not asked.
fn is_machine(connected: &io::Result<TcpStream>) -> bool {
    match connected {
        Ok(_) => true,
        // A route that leads nowhere is an invalid one.
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::NetworkDown
                | io::ErrorKind::InvalidInput
        ),
    }
}
