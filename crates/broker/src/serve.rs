//! The broker's sockets: who connects, and what goes to and fro.
//!
//! ```text
//!  connection ──first line──┬─ hello ──► events ─► one task with Core ─► a queue for each connection
//!                           └─ request of an administrator ─► answered by that task
//! ```
//!
//! One task owns [`Core`] and all that it acts on, so that nothing is decided at the same time as
//! something else. Every queue is bounded: a connection that does not read is closed.

mod machine;

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use aerostat_balloon::{
    endpoint::Stream,
    line::{self, ReadError},
    message::{FromBroker, FromParticipant, Hello, Refused, RefusedCode},
};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio::{
    io::{AsyncWriteExt, BufReader, ReadHalf, WriteHalf},
    net::{TcpListener, UnixListener, UnixStream},
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::machine::Machine;
use crate::{
    admin::{Answer, Request},
    core::{AdminError, Core, SessionId, Settings, Status},
    files::{Files, FilesError},
    ledger::Ledger,
};

/// How often the core looks at what is due.
const TICK: Duration = Duration::from_millis(250);

/// How long a connection may take until its first line, TLS included.
const FIRST_LINE_MAX: Duration = Duration::from_secs(5);

/// The most connections at a time: each participant may come back before its old one has ended.
const CONNECTIONS_MAX: usize = 2 * crate::core::PARTICIPANTS_MAX;

/// Events that wait for the core.
const EVENTS_MAX: usize = 1_024;

/// How a broker runs.
pub struct Options {
    /// How it decides.
    pub settings: Settings,
    /// The folder of its ledger and audit log.
    pub data: PathBuf,
    /// The socket for participants and administrators of this machine; readable by its owner alone.
    pub socket: PathBuf,
    /// For participants of other machines.
    pub network: Option<Network>,
}

/// How participants come over the network.
pub struct Network {
    /// Where they connect.
    pub listener: TcpListener,
    /// The broker's certificate and key.
    pub tls: Arc<rustls::ServerConfig>,
    /// What each must know.
    pub token: String,
}

/// Why a broker does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its folder cannot be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Its ledger cannot be written.
    #[error("cannot write the ledger")]
    Ledger(#[source] io::Error),
    /// It cannot listen.
    #[error("cannot listen on {path}")]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Somebody else listens there.
    #[error("somebody listens on {0} already")]
    InUse(PathBuf),
}

/// What the core is told.
enum Event {
    Hello {
        session: SessionId,
        peer: Option<u32>,
        hello: Hello,
        queue: mpsc::Sender<FromBroker>,
    },
    Message(SessionId, FromParticipant),
    Disconnected(SessionId),
    Request(Request, oneshot::Sender<Answer>),
}

/// A broker that listens.
pub struct Broker {
    core: Core<Machine>,
    socket: PathBuf,
    local: UnixListener,
    network: Option<Network>,
    started: Instant,
}

impl Broker {
    /// Opens the folder and listens.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn open(options: Options) -> Result<Broker, ServeError> {
        let (files, ledger) = Files::open(&options.data)?;
        let local = listen(&options.socket).await?;
        let machine = Machine::new(files);
        let core = Core::new(options.settings, machine, ledger, 0).map_err(ServeError::Ledger)?;
        Ok(Broker {
            core,
            socket: options.socket,
            local,
            network: options.network,
            started: Instant::now(),
        })
    }

    /// What it has granted.
    pub fn ledger(&self) -> &Ledger {
        self.core.ledger()
    }

    /// Runs until told to stop. `observe` is given each status, once a second.
    pub async fn run(self, stopping: CancellationToken, mut observe: impl FnMut(Status)) {
        let Broker {
            mut core,
            socket,
            local,
            network,
            started,
        } = self;
        let (events, mut queue) = mpsc::channel(EVENTS_MAX);
        let door = Door {
            events,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            next: Arc::default(),
        };
        let ended = stopping.child_token();
        let guard = ended.clone().drop_guard();
        tokio::spawn(door.clone().accept_local(local, ended.clone()));
        if let Some(network) = network {
            tokio::spawn(door.accept_network(network, ended));
        }
        let now = || u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut observed_at = 0;
        loop {
            tokio::select! {
                event = queue.recv() => match event {
                    Some(event) => handle(&mut core, event, now()),
                    None => break,
                },
                _ = ticks.tick() => {
                    core.tick(now());
                    if now() >= observed_at + 1_000 {
                        observed_at = now();
                        observe(core.status());
                    }
                }
                () = stopping.cancelled() => break,
            }
            for session in core.world_mut().take_broken() {
                core.disconnected(session);
            }
        }
        drop(guard);
        core.close();
        // Whoever comes later is told that nobody listens.
        if let Err(error) = std::fs::remove_file(&socket) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot remove the socket");
        }
    }
}

fn handle(core: &mut Core<Machine>, event: Event, now: u64) {
    match event {
        Event::Hello {
            session,
            peer,
            hello,
            queue,
        } => {
            core.world_mut().add(session, queue);
            core.connected(session, peer, now);
            core.message(session, FromParticipant::Hello(hello), now);
        }
        Event::Message(session, message) => core.message(session, message, now),
        Event::Disconnected(session) => {
            core.world_mut().remove(session);
            core.disconnected(session);
        }
        Event::Request(request, answer) => {
            // Whoever does not wait for it needs none.
            let _ = answer.send(answered(core, request));
        }
    }
}

fn answered(core: &mut Core<Machine>, request: Request) -> Answer {
    let done = |result: Result<(), AdminError>| match result {
        Ok(()) => Answer::Ok,
        Err(error) => Answer::Error {
            message: error.to_string(),
        },
    };
    match request {
        Request::Status => Answer::Status(Box::new(core.status())),
        Request::Pin { name, bytes } => done(core.pin(&name, Some(bytes))),
        Request::Unpin { name } => done(core.pin(&name, None)),
        Request::Forget { name } => done(core.forget(&name)),
        Request::Policy { policy } => {
            core.set_policy(policy);
            Answer::Ok
        }
    }
}

/// Listens on a socket that its owner alone may connect to. One that a dead broker left is replaced.
async fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let failed = |source| ServeError::Listen {
        path: path.to_owned(),
        source,
    };
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            return Err(ServeError::InUse(path.to_owned()));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    // Bound under another name, since it has its permissions only after that.
    let aside = path.with_extension(format!("{}.new", std::process::id()));
    let listener = UnixListener::bind(&aside).map_err(failed)?;
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    std::fs::rename(&aside, path).map_err(failed)?;
    Ok(listener)
}

/// Lets connections in.
#[derive(Clone)]
struct Door {
    events: mpsc::Sender<Event>,
    places: Arc<Semaphore>,
    next: Arc<std::sync::atomic::AtomicU64>,
}

/// The first line of a connection.
#[derive(Deserialize)]
#[serde(untagged)]
enum First {
    Participant(FromParticipant),
    Administrator(Request),
}

impl Door {
    async fn accept_local(self, listener: UnixListener, ended: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ended.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
                    let peer = peer.and_then(|pid| u32::try_from(pid).ok());
                    // A peer that the kernel does not name has no process to count.
                    let Some(peer) = peer else { continue };
                    self.enter(Box::new(stream), Some(peer), None, &ended);
                }
                Err(error) => refused_by_system(&error).await,
            }
        }
    }

    async fn accept_network(self, network: Network, ended: CancellationToken) {
        let Network {
            listener,
            tls,
            token,
        } = network;
        let (acceptor, token) = (TlsAcceptor::from(tls), Arc::<str>::from(token));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = ended.cancelled() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (door, token) = (self.clone(), Arc::clone(&token));
                    let (acceptor, ended) = (acceptor.clone(), ended.clone());
                    tokio::spawn(async move {
                        let shaken = timeout(FIRST_LINE_MAX, acceptor.accept(stream)).await;
                        if let Ok(Ok(stream)) = shaken {
                            door.enter(Box::new(stream), None, Some(token), &ended);
                        }
                    });
                }
                Err(error) => refused_by_system(&error).await,
            }
        }
    }

    /// Serves a connection, if there is a place for it. One over the network needs the token.
    fn enter(
        &self,
        stream: Box<dyn Stream>,
        peer: Option<u32>,
        token: Option<Arc<str>>,
        ended: &CancellationToken,
    ) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return;
        };
        let session = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (events, ended) = (self.events.clone(), ended.clone());
        tokio::spawn(async move {
            let _place = place;
            let connection = Connection {
                session,
                peer,
                token,
                events: events.clone(),
            };
            connection.serve(stream, &ended).await;
        });
    }
}

/// Waits before the next try: the system has no file descriptors, say, and will not have one at once.
async fn refused_by_system(error: &io::Error) {
    {
        let error = error as &dyn std::error::Error;
        tracing::warn!(error, "cannot accept a connection");
    }
    tokio::time::sleep(TICK).await;
}

/// One connection.
struct Connection {
    session: SessionId,
    peer: Option<u32>,
    token: Option<Arc<str>>,
    events: mpsc::Sender<Event>,
}

impl Connection {
    async fn serve(self, stream: Box<dyn Stream>, ended: &CancellationToken) {
        let (from, mut to) = tokio::io::split(stream);
        let mut from = BufReader::new(from);
        let first = timeout(FIRST_LINE_MAX, line::read::<First>(&mut from)).await;
        match first {
            Ok(Ok(Some(First::Participant(FromParticipant::Hello(hello))))) => {
                if !self.is_trusted(&hello) {
                    let why = "the token is not the broker's";
                    return refuse(&mut to, RefusedCode::Denied, why).await;
                }
                self.participate(hello, from, to, ended).await;
            }
            Ok(Ok(Some(First::Administrator(request)))) if self.peer.is_some() => {
                self.administrate(request, from, to).await;
            }
            Ok(Ok(Some(_)) | Err(ReadError::Invalid(_) | ReadError::TooLong)) => {
                let why = "the first message is not a hello of the protocol";
                refuse(&mut to, RefusedCode::Invalid, why).await;
            }
            Ok(Ok(None) | Err(_)) | Err(_) => {}
        }
    }

    /// Whether a participant has the token. What is compared are digests, so that the time that it
    /// takes tells nothing of the token.
    fn is_trusted(&self, hello: &Hello) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let told = hello.token.as_deref().unwrap_or_default();
        let of = |text: &str| digest(&SHA256, text.as_bytes());
        of(token).as_ref() == of(told).as_ref()
    }

    async fn participate(
        self,
        hello: Hello,
        from: BufReader<ReadHalf<Box<dyn Stream>>>,
        to: WriteHalf<Box<dyn Stream>>,
        ended: &CancellationToken,
    ) {
        let (session, peer) = (self.session, self.peer);
        let (queue, messages) = mpsc::channel(machine::MESSAGES_MAX);
        let entered = Event::Hello {
            session,
            peer,
            hello,
            queue,
        };
        if self.events.send(entered).await.is_err() {
            return;
        }
        let mut sending = pin!(send_all(to, messages));
        let is_sent = tokio::select! {
            () = &mut sending => true,
            () = receive_all(session, from, &self.events) => false,
            () = ended.cancelled() => false,
        };
        // The core may have gone first. It closes the queue; what is in it is still sent.
        let _ = self.events.send(Event::Disconnected(session)).await;
        if !is_sent {
            let _ = timeout(FIRST_LINE_MAX, sending).await;
        }
    }

    async fn administrate(
        self,
        request: Request,
        mut from: BufReader<ReadHalf<Box<dyn Stream>>>,
        mut to: WriteHalf<Box<dyn Stream>>,
    ) {
        let mut next = Some(request);
        while let Some(request) = next {
            let (sender, answer) = oneshot::channel();
            if self
                .events
                .send(Event::Request(request, sender))
                .await
                .is_err()
            {
                return;
            }
            let Ok(answer) = answer.await else { return };
            if line::write(&mut to, &answer).await.is_err() {
                return;
            }
            let read = timeout(FIRST_LINE_MAX, line::read::<Request>(&mut from)).await;
            next = read.ok().and_then(Result::ok).flatten();
        }
    }
}

async fn send_all(mut to: WriteHalf<Box<dyn Stream>>, mut messages: mpsc::Receiver<FromBroker>) {
    while let Some(message) = messages.recv().await {
        if line::write(&mut to, &message).await.is_err() {
            return;
        }
    }
    // The other side may have gone.
    let _ = to.shutdown().await;
}

async fn receive_all(
    session: SessionId,
    mut from: BufReader<ReadHalf<Box<dyn Stream>>>,
    events: &mpsc::Sender<Event>,
) {
    loop {
        match line::read(&mut from).await {
            Ok(Some(message)) => {
                if events.send(Event::Message(session, message)).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, session, "a connection ended");
                return;
            }
        }
    }
}

async fn refuse(to: &mut WriteHalf<Box<dyn Stream>>, code: RefusedCode, message: &str) {
    let message = message.to_owned();
    let refused = FromBroker::Refused(Refused { code, message });
    // The other side may have gone.
    let _ = line::write(to, &refused).await;
    let _ = to.shutdown().await;
}
