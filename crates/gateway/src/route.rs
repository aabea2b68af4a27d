//! Where a client's session is to be: at the node that leads its database, or, where it only reads, at one with a copy.
//!
//! ```text
//!  client ─► this node ──────────────────────────► the one that leads
//!                └── no answer: by way of another ──┘
//! ```
//!
//! A network may lose what two nodes say to each other and nothing else. So a session that is to begin goes by way of
//! another node where the one that leads does not answer soon; and where nobody is reached that knows more, its client is
//! told so, and not kept until it may have tried elsewhere.

use std::{future::pending, io, pin::pin, sync::Arc, time::Duration};

use aerostat_transport::Stream;
use aerostat_types::{ErrorKind, NodeId};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep, timeout},
};

use crate::{
    api::{Backend, Client, Leader, OtherNodes, OwnCopy, Reads},
    door::{Comes, HERE, Introduction},
    farewell,
    limits::RESUME_MAX,
    packet::Startup,
    readers::{Readers, Reading},
    sqlstate::WireError,
};

/// How long a client waits for its database to have a leader, or a copy, that is reached: longer than it takes for a
/// leader that is lost to have a successor.
const REACH_MAX: Duration = Duration::from_secs(10);

/// How soon another attempt is made.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a node may take to say whether it serves the session.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How often it is looked whether the node still leads: a client waits for that after a leader was lost without a word.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// How soon it is looked again for the next node of a session that has left the one before.
const SOON: Duration = Duration::from_millis(5);

/// How soon the node that a session has left is asked again: it may lead on.
const BACK_AGAIN: Duration = Duration::from_millis(250);

/// How soon a node that does not answer is tried by way of others.
const BY_WAY: Duration = Duration::from_millis(250);

/// How long a client waits at least where nobody is reached: a network may be there again.
const ALONE: Duration = Duration::from_millis(300);

/// How long those may take.
const BY_WAY_MAX: Duration = Duration::from_secs(1);

/// Where a client's session is.
pub(crate) enum Way {
    Here,
    /// At a node; with the session's key, if it has gone on there.
    There(Reached, Option<(i32, i32)>),
    Nowhere(WireError),
}

/// A node that serves a session.
pub(crate) struct Reached {
    pub(crate) node: NodeId,
    /// Where the connection goes: the node itself, or another that passes on what is said.
    pub(crate) at: NodeId,
    pub(crate) stream: Stream,
}

/// What has become of an attempt to reach a node.
enum Attempt {
    Reached(Way),
    /// It does not serve the session.
    NotThere,
    /// Neither it nor another one that would know more.
    Alone,
}

/// What a session has that has left a node.
pub(crate) struct Left {
    pub(crate) state: Vec<u8>,
    /// The node, if it was another one.
    pub(crate) from: Option<NodeId>,
}

/// Where a session is to be, as far as is known at the moment. One that reads is counted there.
enum Target {
    Here(Option<Reading>),
    Node(NodeId, Option<Reading>),
    /// At no other node than this one, whose copy nobody may enter yet.
    Closed,
    Unknown,
}

/// A client whose session is to be somewhere.
pub(crate) struct Route<'c, B> {
    pub(crate) startup: &'c Startup,
    pub(crate) client: &'c Client,
    pub(crate) backend: &'c Arc<B>,
    pub(crate) readers: &'c Arc<Readers>,
}

impl<B: Backend> Route<'_, B> {
    /// Looks for the node where the session begins, or goes on. One that reads counts there as long as what is given
    /// beside the way.
    pub(crate) async fn find(&self, left: Option<&Left>) -> (Way, Option<Reading>) {
        let reads = self.backend.reads(&self.startup.settings());
        let begun = Instant::now();
        let from = left.and_then(|left| left.from);
        // It was asked by its leaving.
        let mut back_at = begun + BACK_AGAIN;
        let mut unreached: Vec<NodeId> = Vec::new();
        loop {
            let mut without = unreached.clone();
            without.extend(from.filter(|_| Instant::now() < back_at));
            let target = self.target(reads, &without, begun).await;
            match (target, self.backend.others()) {
                (Target::Here(reading), _) => return (Way::Here, reading),
                // Whoever serves clients here says what is wrong.
                (_, None) => return (Way::Here, None),
                (Target::Closed, _) if begun.elapsed() >= REACH_MAX => return (Way::Here, None),
                (Target::Closed | Target::Unknown, Some(others)) => {
                    if reads != Reads::Here && is_alone(&*others, begun) {
                        return (Way::Nowhere(self.cut_off()), None);
                    }
                    unreached.clear();
                }
                (Target::Node(node, _), Some(_)) if without.contains(&node) => {}
                (Target::Node(node, reading), Some(others)) => {
                    back_at = Instant::now() + BACK_AGAIN;
                    match self.reach(&*others, reads, node, (left, begun)).await {
                        Attempt::Reached(way) => return (way, reading),
                        Attempt::Alone => return (Way::Nowhere(self.cut_off()), None),
                        Attempt::NotThere => {}
                    }
                    if reading.is_some() && begun.elapsed() < REACH_MAX {
                        // There may be another copy.
                        unreached.push(node);
                        continue;
                    }
                }
            }
            if begun.elapsed() >= REACH_MAX {
                return (Way::Nowhere(self.not_reached(reads)), None);
            }
            sleep(if left.is_some() { SOON } else { AGAIN }).await;
        }
    }

    async fn target(&self, reads: Reads, without: &[NodeId], begun: Instant) -> Target {
        let database = self.startup.database();
        if reads == Reads::Leader {
            return match leader(database, self.backend, begun).await {
                // Whoever serves clients here says that there is no such database.
                Leader::Here | Leader::NoDatabase => Target::Here(None),
                Leader::Node(node) => Target::Node(node, None),
                Leader::Unknown => Target::Unknown,
            };
        }
        let asked = timeout(ANSWER_MAX, self.backend.ask_copies(database)).await;
        let copies = match asked {
            Ok(Some(copies)) => copies,
            Ok(None) => return Target::Here(None),
            Err(_) => return Target::Unknown,
        };
        match self.readers.choose(database, reads, &copies, without) {
            Some((None, reading)) => Target::Here(Some(reading)),
            Some((Some(node), reading)) => Target::Node(node, Some(reading)),
            None if copies.own == OwnCopy::Closed => Target::Closed,
            None => Target::Unknown,
        }
    }

    /// A connection to a node that says that it serves the session.
    async fn reach(
        &self,
        others: &dyn OtherNodes,
        reads: Reads,
        node: NodeId,
        (left, begun): (Option<&Left>, Instant),
    ) -> Attempt {
        let succeeded = async {
            match reads {
                Reads::Leader => succeeded(self.startup.database(), node, self.backend).await,
                Reads::Here | Reads::Any => pending().await,
            }
        };
        let answered = async {
            let comes = match left {
                Some(_) => Comes::Resumed,
                None => Comes::New,
            };
            let mut by_way = pin!(self.by_way(others, reads, node, (left, begun)));
            let asked = tokio::select! {
                biased;
                asked = self.ask(others, node, comes) => asked,
                reached = &mut by_way => return reached,
            };
            match asked {
                Ok(Some(stream)) => Ok(Reached {
                    node,
                    at: node,
                    stream,
                }),
                Ok(None) => Err(Attempt::NotThere),
                // Its machine has said so.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    Err(Attempt::NotThere)
                }
                Err(error) => {
                    tracing::debug!(%node, %error, "a node is not reached");
                    match (reads, left) {
                        (Reads::Leader, None) => by_way.await,
                        _ => Err(Attempt::NotThere),
                    }
                }
            }
        };
        let answered = tokio::select! {
            biased;
            answered = timeout(ANSWER_MAX, answered) => answered.unwrap_or(Err(Attempt::NotThere)),
            () = succeeded => Err(Attempt::NotThere),
        };
        let mut reached = match answered {
            Ok(reached) => reached,
            Err(attempt) => return attempt,
        };
        let Some(left) = left else {
            return Attempt::Reached(Way::There(reached, None));
        };
        // From here on the session may go on there.
        let handed = farewell::hand_on(&mut reached.stream, &left.state);
        Attempt::Reached(match timeout(RESUME_MAX, handed).await {
            Ok(Ok(key)) => Way::There(reached, key),
            _ => {
                let message =
                    "the session was lost on its way to the node that leads the database now";
                Way::Nowhere(WireError::new(ErrorKind::ConnectionFailure, message))
            }
        })
    }

    /// Asks a node to serve the session; a connection where it says that it does.
    async fn ask(
        &self,
        others: &dyn OtherNodes,
        node: NodeId,
        comes: Comes,
    ) -> io::Result<Option<Stream>> {
        let said = Introduction::encode(self.startup, self.client, comes);
        let mut stream = others.session(node, said).await?.resume()?;
        let answer = stream.read_u8().await?;
        Ok((answer == HERE).then_some(stream))
    }

    /// A connection to a node by way of another one, where the node is not reached, unless nobody is who would know of a
    /// successor. Whoever reads a copy goes to another one instead, and a session that goes on has its own way.
    async fn by_way(
        &self,
        others: &dyn OtherNodes,
        reads: Reads,
        node: NodeId,
        (left, begun): (Option<&Left>, Instant),
    ) -> Result<Reached, Attempt> {
        if reads != Reads::Leader {
            return pending().await;
        }
        sleep(BY_WAY).await;
        tokio::select! {
            reached = self.by_any(others, node), if left.is_none() => Ok(reached),
            () = alone(others, begun) => Err(Attempt::Alone),
        }
    }

    /// By one other node after the other: each that reaches it begins the session there.
    async fn by_any(&self, others: &dyn OtherNodes, node: NodeId) -> Reached {
        loop {
            let mut ways = match others.seems_reached(node) && others.is_reached(node).await {
                // It is slow.
                true => Vec::new(),
                false => others.up(),
            };
            ways.retain(|way| *way != node && others.seems_reached(*way));
            let first = rand::random_range(0..ways.len().max(1));
            ways.rotate_left(first);
            for at in ways {
                let asked = timeout(BY_WAY_MAX, self.ask(others, at, Comes::ByWay));
                if let Ok(Ok(Some(stream))) = asked.await {
                    return Reached { node, at, stream };
                }
            }
            sleep(BY_WAY).await;
        }
    }

    /// The same for a session that comes by another node, which does not reach the one that leads; `None`: nor does this
    /// one.
    pub(crate) async fn pass_on(&self) -> Option<Reached> {
        let others = self.backend.others()?;
        let Leader::Node(node) =
            leader(self.startup.database(), self.backend, Instant::now()).await
        else {
            return None;
        };
        let asked = timeout(BY_WAY_MAX, self.ask(&*others, node, Comes::New));
        let stream = asked.await.ok()?.ok()??;
        Some(Reached {
            node,
            at: node,
            stream,
        })
    }

    /// What a client is told of a node that reaches no others.
    fn cut_off(&self) -> WireError {
        let database = self.startup.database();
        let message = format!(
            "this node does not reach the others, of which one leads database \"{database}\""
        );
        WireError::new(ErrorKind::CannotConnectNow, message).with_hint(
            "Connect to another node, or read a copy: connect with options='-c aerostat.read_from=any'.",
        )
    }

    fn not_reached(&self, reads: Reads) -> WireError {
        let database = self.startup.database();
        let (message, hint) = match reads {
            Reads::Leader => (
                format!("the node that leads database \"{database}\" cannot be reached"),
                "Try again in a moment, or read a copy: connect with options='-c aerostat.read_from=any'.",
            ),
            Reads::Here | Reads::Any => (
                format!("no node with a copy of database \"{database}\" can be reached"),
                "Try again in a moment.",
            ),
        };
        WireError::new(ErrorKind::CannotConnectNow, message).with_hint(hint)
    }
}

/// Whether nobody is reached who would know of another leader, for a client that waits since it has begun to.
fn is_alone(others: &dyn OtherNodes, begun: Instant) -> bool {
    others.is_alone() && begun.elapsed() >= ALONE
}

/// Waits until that is so. Where an answer comes at once nobody is asked for this.
async fn alone(others: &dyn OtherNodes, begun: Instant) {
    loop {
        sleep(AGAIN).await;
        if is_alone(others, begun) {
            return;
        }
    }
}

/// Whether a session with these settings may be at this node.
pub(crate) async fn is_here<B: Backend>(startup: &Startup, backend: &Arc<B>) -> bool {
    let database = startup.database();
    if backend.reads(&startup.settings()) == Reads::Leader {
        let leader = leader(database, backend, Instant::now()).await;
        return matches!(leader, Leader::Here | Leader::NoDatabase);
    }
    let copies = backend.ask_copies(database).await;
    copies.is_none_or(|copies| copies.own.is_open())
}

/// Which node leads a database, also if another one has made it a moment ago, or it has no copy here, for a client that
/// waits since it has begun to.
async fn leader<B: Backend>(database: &str, backend: &Arc<B>, begun: Instant) -> Leader {
    match backend.leader(database) {
        // What the nodes share may be away.
        unknown @ (Leader::NoDatabase | Leader::Unknown) => {
            let ask = || timeout(ANSWER_MAX, backend.ask_leader(database));
            let Some(others) = backend.others() else {
                return ask().await.unwrap_or(unknown);
            };
            let asked = tokio::select! {
                biased;
                asked = ask() => asked,
                // From here on what was known last is the answer.
                () = alone(&*others, begun) => ask().await,
            };
            asked.unwrap_or(unknown)
        }
        known => known,
    }
}

/// Waits until a node that is waited for has a successor: one that is frozen takes connections, and says nothing.
async fn succeeded<B: Backend>(database: &str, node: NodeId, backend: &Arc<B>) {
    loop {
        sleep(2 * LOOK).await;
        if is_another(&leader(database, backend, Instant::now()).await, node) {
            return;
        }
    }
}

/// Whether a database is led by another node than this one.
pub(crate) fn is_another(leader: &Leader, node: NodeId) -> bool {
    match leader {
        Leader::Node(now) => *now != node,
        Leader::Here => true,
        // Who leads is not known: nobody else may. A database that has another name now is led as before.
        Leader::Unknown | Leader::NoDatabase => false,
    }
}
