//! A client whose session is at another node: the one that leads its database, or one that has a copy.
//!
//! ```text
//!  client ─► up: bytes as they come ──────────────────────► node
//!         ◄─ down: bytes as they come, messages counted ◄──
//! ```
//!
//! * **Nothing is understood** but where messages end, which of them ask for a `ReadyForQuery`, that, and the session's
//!   key. So whatever a client and a node say to each other passes, and what passes costs little.
//! * **A node that is lost is told**: the client gets an error between two messages, with a code that says whether a
//!   statement may have been done. Within a message it can only be cut off.
//! * **A network that loses what two nodes say to each other** is found out by clients that wait: whether the node is
//!   still reached is tried then.
//! * **A node that leads no more** may not know, or be able to say so: its clients are told by this one, which hears
//!   of the next leader. Those that read a copy are told once its node has said nothing for long.
//! * **A node that is about to lead no more** gives its sessions away ([`farewell`](crate::farewell)), each between two
//!   transactions: they go on at the next leader, and their clients notice a pause.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use aerostat_transport::Stream;
use aerostat_types::{ErrorKind, NodeId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    time::{Instant, sleep, timeout},
};

use crate::{
    api::{Backend, Canceller, Leader, OtherNodes, Reads},
    connection::shutting_down,
    farewell::{self, LEAVES},
    limits::{FAREWELL_TIMEOUT, READ_BYTES},
    orders::{End, Orders},
    packet::Startup,
    registry::{Registry, Relayed},
    route::{ANSWER_MAX, LOOK, Left, Reached, is_another},
    sqlstate::WireError,
    stream::{Reader, Writer},
    wire::{Input, Output},
};

/// Looks that find another leader before the node is given up, which is to tell its clients itself.
const LOOKS: u32 = 2;

/// How long a client has to wait for an answer until it is tried whether the node is reached.
const TRIES_AFTER: Duration = Duration::from_millis(500);

/// How long a client has to wait for an answer until others are asked whether the node still leads, where this one has no
/// copy that would hear of it; and how often they are asked then.
const ASKS_AFTER: Duration = Duration::from_secs(1);

/// How often a client that has a statement running is looked at while this node stops.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// The most of a message's body that is looked at.
const KEPT_BYTES: usize = 8;

/// Has a node stop what the session with a key runs there.
fn canceller(others: &Arc<dyn OtherNodes>, node: NodeId, (pid, secret): (i32, i32)) -> Canceller {
    let others = Arc::clone(others);
    Arc::new(move || others.cancel(Some(node), pid, secret))
}

/// What has been said.
struct Talk {
    /// How many times more the client is to be told that it may send its next statement.
    owed: AtomicU32,
    /// Whether it has sent something since it was told so last, with nothing owed.
    is_busy: AtomicBool,
    /// Whether the last message that it has sent asks for no answer yet, as one before a `Sync`.
    is_unasked: AtomicBool,
    /// The status of the last `ReadyForQuery`; 0: there has been none.
    status: AtomicU8,
    /// Whether all of the node's messages so far have come as a whole.
    is_between: AtomicBool,
    /// Whether the last of them is an error, which may be the last that the node says.
    is_told: AtomicBool,
    /// Whether the client has said that it leaves: the node closes the connection.
    is_leaving: AtomicBool,
}

impl Talk {
    /// Of a session that has not begun.
    fn new() -> Talk {
        Talk {
            owed: AtomicU32::new(1),
            is_busy: AtomicBool::new(true),
            is_unasked: AtomicBool::new(false),
            status: AtomicU8::new(0),
            is_between: AtomicBool::new(true),
            is_told: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
        }
    }

    fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    /// The client sends a message of this type.
    fn ask(&self, kind: u8) {
        let asks = matches!(kind, b'Q' | b'S' | b'F');
        if asks {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
        // Those of COPY are answered by what was asked before them.
        if !matches!(kind, b'd' | b'c' | b'f') {
            self.is_unasked.store(!asks, Ordering::Relaxed);
        }
        if kind == b'X' {
            self.is_leaving.store(true, Ordering::Relaxed);
        }
    }

    /// The client is told that it may send its next statement.
    fn answer(&self, status: u8) {
        self.status.store(status, Ordering::Relaxed);
        let owed = self.owed.load(Ordering::Relaxed).saturating_sub(1);
        // Both directions are one task's.
        self.owed.store(owed, Ordering::Relaxed);
        if owed == 0 && !self.is_unasked.load(Ordering::Relaxed) {
            self.is_busy.store(false, Ordering::Relaxed);
        }
    }

    /// The node takes COPY data: it answers what was asked before that by what comes behind them.
    fn copies(&self) {
        self.owed.store(0, Ordering::Relaxed);
    }
}

/// Why a relay ends.
#[derive(Debug)]
enum Ended {
    /// The client is gone.
    Client,
    /// The node is, or leads no more.
    Node,
    /// The node gives the session away. It has said this after all else.
    Leaves(Vec<u8>),
    /// This node stops.
    Stopping,
}

/// What a client has sent and its session has not got.
struct Ahead {
    bytes: Vec<u8>,
    /// So many of them are on their way.
    sent: usize,
    /// All of them were looked at.
    messages: Messages,
}

/// A client whose session is at another node, or was.
pub(crate) struct Line {
    reader: Reader,
    socket: Writer,
    ahead: Ahead,
    talk: Talk,
    relayed: Relayed,
    /// The key that the client was told.
    key: Option<(i32, i32)>,
}

impl Line {
    /// Of a client whose session has not begun.
    pub(crate) fn new(
        (input, socket): (Input<Reader>, Writer),
        registry: &Arc<Registry>,
        is_guest: bool,
    ) -> Line {
        let talk = Talk::new();
        Self::of(
            (input, socket),
            registry.enter_relayed(is_guest),
            talk,
            None,
        )
    }

    /// Of a client whose session was here, and who knows it by this key.
    pub(crate) fn of_leaving(
        (input, socket): (Input<Reader>, Writer),
        relayed: Relayed,
        key: Option<(i32, i32)>,
    ) -> Line {
        let talk = Talk::new();
        talk.answer(b'I');
        Self::of((input, socket), relayed, talk, key)
    }

    fn of(
        (input, socket): (Input<Reader>, Writer),
        relayed: Relayed,
        talk: Talk,
        key: Option<(i32, i32)>,
    ) -> Line {
        let (reader, ahead) = input.into_parts();
        let mut ahead = Ahead {
            bytes: ahead.to_vec(),
            sent: 0,
            messages: Messages::default(),
        };
        ahead.look(&talk);
        Line {
            reader,
            socket,
            ahead,
            talk,
            relayed,
            key,
        }
    }

    /// The client's sides, for a session of this node, which it knows by the key of one before.
    pub(crate) fn into_parts(self) -> (Input<Reader>, Writer, Relayed, Option<(i32, i32)>) {
        let ahead = &self.ahead.bytes[self.ahead.sent..];
        let input = Input::with(self.reader, ahead);
        (input, self.socket, self.relayed, self.key)
    }

    /// The session has this key now, at this node.
    pub(crate) fn is_at(&self, others: &Arc<dyn OtherNodes>, node: NodeId, now: (i32, i32)) {
        let key = self.key.unwrap_or(now);
        self.relayed.set_key(key, canceller(others, node, now));
    }

    /// Tells the client why nobody serves it any more, and closes its connection.
    pub(crate) async fn end(mut self, error: Option<WireError>) {
        let is_between = self.talk.is_between.load(Ordering::Relaxed);
        let _ = timeout(FAREWELL_TIMEOUT, async {
            if let Some(error) = error.filter(|_| is_between) {
                let mut output = Output::default();
                output.error(&error, true);
                self.socket.write_all(&output.bytes).await?;
            }
            self.socket.shutdown().await
        })
        .await;
    }

    /// Serves a client by another node, to its last byte, or until the session leaves that.
    pub(crate) async fn serve<B: Backend>(
        mut self,
        startup: &Startup,
        Reached { node, at, stream }: Reached,
        backend: &Arc<B>,
    ) -> Option<(Line, Left)> {
        let others = backend.others()?;
        let (mut from_node, mut to_node) = tokio::io::split(stream);
        let ended = {
            let Line {
                reader,
                socket,
                ahead,
                talk,
                relayed,
                key,
            } = &mut self;
            tokio::select! {
                () = up(reader, ahead, &mut to_node, talk) => Ended::Client,
                ended = down(&mut from_node, socket, talk, (relayed, key), (&others, at)) => ended,
                () = stopped(&relayed.orders, talk) => Ended::Stopping,
                () = moved(startup, (node, at), backend, talk) => Ended::Node,
            }
        };
        tracing::debug!(%node, ?ended, "a relayed session ended");
        let talk = &self.talk;
        let error = match ended {
            Ended::Leaves(begun) => {
                let taken = farewell::take_over(begun, &mut from_node, &mut to_node);
                if let Ok(Ok((state, rest))) = timeout(ANSWER_MAX, taken).await {
                    self.ahead.gets_back(rest);
                    let from = Some(node);
                    return Some((self, Left { state, from }));
                }
                Some(lost(talk))
            }
            Ended::Client => None,
            Ended::Node if talk.is_told.load(Ordering::Relaxed) => None,
            _ if talk.is_leaving.load(Ordering::Relaxed) => None,
            Ended::Node => Some(lost(talk)),
            Ended::Stopping => Some(shutting_down()),
        };
        self.end(error).await;
        None
    }
}

impl Ahead {
    /// Looks at the bytes, which have just come.
    fn look(&mut self, talk: &Talk) {
        if !self.bytes.is_empty() {
            talk.is_busy.store(true, Ordering::Relaxed);
            self.messages.take(&self.bytes, |kind, _| talk.ask(kind));
        }
    }

    /// The node has not looked at these, which come before those that were not sent.
    fn gets_back(&mut self, mut rest: Vec<u8>) {
        rest.extend_from_slice(&self.bytes[self.sent..]);
        (self.bytes, self.sent) = (rest, 0);
    }
}

/// Passes on what the client sends, until it is gone or the node takes nothing. This may be dropped while it waits.
async fn up(client: &mut Reader, ahead: &mut Ahead, node: &mut WriteHalf<Stream>, talk: &Talk) {
    loop {
        while ahead.sent < ahead.bytes.len() {
            match node.write(&ahead.bytes[ahead.sent..]).await {
                Ok(sent @ 1..) => ahead.sent += sent,
                // The other direction knows why.
                _ => return std::future::pending().await,
            }
        }
        if node.flush().await.is_err() {
            return std::future::pending().await;
        }
        ahead.sent = 0;
        ahead.bytes.clear();
        ahead.bytes.reserve(READ_BYTES);
        match client.read_buf(&mut ahead.bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => ahead.look(talk),
        }
    }
}

/// Passes on what the node sends, until one of the two is gone, or the node gives the session away.
async fn down(
    node: &mut ReadHalf<Stream>,
    client: &mut Writer,
    talk: &Talk,
    (relayed, known): (&Relayed, &mut Option<(i32, i32)>),
    (others, number): (&Arc<dyn OtherNodes>, NodeId),
) -> Ended {
    let mut messages = Messages::default();
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        match node.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return Ended::Node,
            Ok(_) => {}
        }
        talk.is_between.store(false, Ordering::Relaxed);
        let taken = messages.take(&buffer, |kind, body| {
            talk.is_told.store(kind == b'E', Ordering::Relaxed);
            match (kind, body) {
                (b'Z', [status, ..]) => talk.answer(*status),
                (b'G' | b'W', _) => talk.copies(),
                (b'K', [a, b, c, d, e, f, g, h]) => {
                    let pid = i32::from_be_bytes([*a, *b, *c, *d]);
                    let secret = i32::from_be_bytes([*e, *f, *g, *h]);
                    let key = (pid, secret);
                    *known = Some(key);
                    relayed.set_key(key, canceller(others, number, key));
                }
                _ => {}
            }
        });
        let written = async {
            client.write_all(&buffer[..taken]).await?;
            client.flush().await
        };
        if written.await.is_err() {
            return Ended::Client;
        }
        talk.is_between
            .store(messages.is_between(), Ordering::Relaxed);
        if taken < buffer.len() {
            return Ended::Leaves(buffer.split_off(taken));
        }
        buffer.clear();
    }
}

/// Waits until this node stops, and the client has nothing running or is waited for no longer.
async fn stopped(orders: &Orders, talk: &Talk) {
    orders.told(End::Stopping).await;
    while talk.is_busy() && !orders.is(End::Killed) {
        sleep(STOP_LOOK).await;
    }
}

/// Waits until the client's session should be at another node: one that leads its database now, or, where it reads a
/// copy, one that runs; or until the node is not reached on which a client waits, by the one at which the connection is.
async fn moved<B: Backend>(
    startup: &Startup,
    (node, at): (NodeId, NodeId),
    backend: &Arc<B>,
    talk: &Talk,
) {
    let database = startup.database();
    let reads = backend.reads(&startup.settings());
    let (mut looks, mut heard_at) = (0, Instant::now());
    let mut rested_at = Instant::now();
    while looks < LOOKS {
        sleep(LOOK).await;
        if !talk.is_busy() {
            // Whoever waits for nothing does not need to know.
            (heard_at, rested_at) = (Instant::now(), Instant::now());
        } else if rested_at.elapsed() >= TRIES_AFTER
            && let Some(others) = backend.others()
            && !others.is_reached(at).await
        {
            return;
        }
        let is_gone = match reads {
            // What is behind may be read, and be behind because much is read.
            Reads::Here | Reads::Any => {
                let others = backend.others();
                talk.is_busy() && others.is_some_and(|others| !others.is_up(node))
            }
            // Another node passes it on, and does so when the lead moves.
            Reads::Leader if at != node => false,
            Reads::Leader => {
                let mut known = backend.leader(database);
                // It has no copy here.
                if known == Leader::Unknown && (looks > 0 || heard_at.elapsed() >= ASKS_AFTER) {
                    let asked = timeout(ANSWER_MAX, backend.ask_leader(database)).await;
                    known = asked.unwrap_or(Leader::Unknown);
                    heard_at = Instant::now();
                }
                is_another(&known, node)
            }
        };
        looks = match is_gone {
            true => looks + 1,
            false => 0,
        };
    }
}

/// What a client is told whose node is gone.
fn lost(talk: &Talk) -> WireError {
    let message = "the connection to the node where the session is was lost";
    let begun = talk.status.load(Ordering::Relaxed) != 0;
    match begun && talk.is_busy() {
        false => WireError::new(ErrorKind::ConnectionFailure, message),
        true => WireError::new(ErrorKind::TransactionResolutionUnknown, message)
            .with_detail("Whether what was running has been committed is not known."),
    }
}

/// Finds messages in the bytes of a stream.
#[derive(Default)]
struct Messages {
    /// The type and length of the present one, as far as they have come.
    head: Vec<u8>,
    /// The beginning of its body.
    kept: Vec<u8>,
    /// Bytes of its body that have not come.
    left: usize,
}

impl Messages {
    /// Whether the next byte begins a message.
    fn is_between(&self) -> bool {
        self.head.is_empty()
    }

    /// Looks at the next bytes; `ended` gets each message that ends there, with the beginning of its body. How many belong
    /// to the protocol: what begins like [`LEAVES`] does not.
    fn take(&mut self, bytes: &[u8], mut ended: impl FnMut(u8, &[u8])) -> usize {
        let all = bytes.len();
        let mut bytes = bytes;
        loop {
            if self.head.is_empty() && bytes.first() == Some(&LEAVES) {
                return all - bytes.len();
            }
            if self.head.len() < 5 {
                let wanted = (5 - self.head.len()).min(bytes.len());
                let (head, rest) = bytes.split_at(wanted);
                self.head.extend_from_slice(head);
                bytes = rest;
                let &[_, a, b, c, d] = &self.head[..] else {
                    return all;
                };
                // A node sends none that is shorter than its length.
                self.left = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4);
            }
            let (body, rest) = bytes.split_at(self.left.min(bytes.len()));
            let room = KEPT_BYTES - self.kept.len();
            self.kept.extend_from_slice(&body[..body.len().min(room)]);
            self.left -= body.len();
            bytes = rest;
            if self.left > 0 {
                return all;
            }
            ended(self.head[0], &self.kept);
            self.head.clear();
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However a stream is cut, the same messages are found.
    #[test]
    fn messages_are_found_in_bytes_however_they_come() {
        let mut bytes = Vec::new();
        let mut message = |kind: u8, body: &[u8]| {
            bytes.push(kind);
            bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(body);
        };
        message(b'K', &[1, 2, 3, 4, 5, 6, 7, 8]);
        message(b'D', &[b'x'; 40]);
        message(b'I', b"");
        message(b'Z', b"T");
        let expected = [(b'K', 8), (b'D', 8), (b'I', 0), (b'Z', 1)];
        for step in 1..bytes.len() {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for (at, part) in bytes.chunks(step).enumerate() {
                messages.take(part, |kind, body| found.push((kind, body.len())));
                let is_last = (at + 1) * step >= bytes.len();
                assert!(!is_last || messages.is_between());
            }
            assert_eq!(found, expected, "in steps of {step}");
        }
    }
}
