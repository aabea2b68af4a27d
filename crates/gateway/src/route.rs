//! Where a client's session is to be: at the node that leads its database, or, where it only reads, at one with a copy.

use std::{future::pending, sync::Arc, time::Duration};

use aerostat_transport::Stream;
use aerostat_types::{ErrorKind, NodeId};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep, timeout},
};

use crate::{
    api::{Backend, Client, Leader, OtherNodes, OwnCopy, Reads},
    door::{HERE, Introduction},
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

/// Where a client's session is.
pub(crate) enum Way {
    Here,
    /// At a node; with the session's key, if it has gone on there.
    There(NodeId, Stream, Option<(i32, i32)>),
    Nowhere(WireError),
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
            let target = self.target(reads, &without).await;
            match (target, self.backend.others()) {
                (Target::Here(reading), _) => return (Way::Here, reading),
                // Whoever serves clients here says what is wrong.
                (_, None) => return (Way::Here, None),
                (Target::Closed, _) if begun.elapsed() >= REACH_MAX => return (Way::Here, None),
                (Target::Closed | Target::Unknown, Some(_)) => unreached.clear(),
                (Target::Node(node, _), Some(_)) if without.contains(&node) => {}
                (Target::Node(node, reading), Some(others)) => {
                    back_at = Instant::now() + BACK_AGAIN;
                    if let Some(way) = self.reach(&*others, reads, node, left).await {
                        return (way, reading);
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

    async fn target(&self, reads: Reads, without: &[NodeId]) -> Target {
        let database = self.startup.database();
        if reads == Reads::Leader {
            return match leader(database, self.backend).await {
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
        left: Option<&Left>,
    ) -> Option<Way> {
        let said = Introduction::encode(self.startup, self.client, left.is_some());
        let answered = async {
            let mut stream = others.session(node, said).await?.resume()?;
            let answer = stream.read_u8().await?;
            std::io::Result::Ok((answer == HERE).then_some(stream))
        };
        let succeeded = async {
            match reads {
                Reads::Leader => succeeded(self.startup.database(), node, self.backend).await,
                Reads::Here | Reads::Any => pending().await,
            }
        };
        let answered = tokio::select! {
            biased;
            answered = timeout(ANSWER_MAX, answered) => answered,
            () = succeeded => return None,
        };
        let mut stream = match answered {
            Ok(Ok(stream)) => stream?,
            Ok(Err(error)) => {
                tracing::debug!(%node, %error, "a node is not reached");
                return None;
            }
            Err(_) => return None,
        };
        let Some(left) = left else {
            return Some(Way::There(node, stream, None));
        };
        // From here on the session may go on there.
        match timeout(RESUME_MAX, farewell::hand_on(&mut stream, &left.state)).await {
            Ok(Ok(key)) => Some(Way::There(node, stream, key)),
            _ => {
                let message =
                    "the session was lost on its way to the node that leads the database now";
                Some(Way::Nowhere(WireError::new(
                    ErrorKind::ConnectionFailure,
                    message,
                )))
            }
        }
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

/// Whether a session with these settings may be at this node.
pub(crate) async fn is_here<B: Backend>(startup: &Startup, backend: &Arc<B>) -> bool {
    let database = startup.database();
    if backend.reads(&startup.settings()) == Reads::Leader {
        let leader = leader(database, backend).await;
        return matches!(leader, Leader::Here | Leader::NoDatabase);
    }
    let copies = backend.ask_copies(database).await;
    copies.is_none_or(|copies| copies.own.is_open())
}

/// Which node leads a database, also if another one has made it a moment ago, or it has no copy here.
async fn leader<B: Backend>(database: &str, backend: &Arc<B>) -> Leader {
    match backend.leader(database) {
        // What the nodes share may be away.
        unknown @ (Leader::NoDatabase | Leader::Unknown) => {
            let asked = timeout(ANSWER_MAX, backend.ask_leader(database)).await;
            asked.unwrap_or(unknown)
        }
        known => known,
    }
}

/// Waits until a node that is waited for has a successor: one that is frozen takes connections, and says nothing.
async fn succeeded<B: Backend>(database: &str, node: NodeId, backend: &Arc<B>) {
    loop {
        sleep(2 * LOOK).await;
        if is_another(&leader(database, backend).await, node) {
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
