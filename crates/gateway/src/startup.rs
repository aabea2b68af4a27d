//! From an accepted socket to a session: TLS, the startup packet, authentication, and the first
//! messages to a client that is let in.

mod authenticate;
mod passing;

use std::sync::Arc;

use aerostat_types::ErrorKind;
use tokio::{io::AsyncWriteExt, sync::OwnedSemaphorePermit, time::timeout};
use tokio_rustls::TlsAcceptor;

use crate::{
    api::{Backend, BackendSession, Client, RoleInfo, TlsDescription},
    connection::{Connection, connection, shutting_down},
    limits::{FAREWELL_TIMEOUT, STARTUP_BYTES_MAX},
    listen::{Peer, Socket},
    lobby::LobbyPlace,
    packet::{self, Request, Startup},
    registry::{Entered, Registration},
    relay::Line,
    route::{Left, Reached, Route, Way},
    serve::Shared,
    sqlstate::{Fault, WireError},
    stream::{Reader, Writer, describe_tls, plain, whole, within_tls},
    wire::{Cursor, Input, Output, startup_length},
};

pub(crate) use passing::serve_guest;
use passing::{Passing, too_many_of};

/// A client that has not been let in yet.
pub(crate) struct Newcomer {
    pub(crate) input: Input<Reader>,
    pub(crate) socket: Writer,
    pub(crate) output: Output,
    /// Whether the connection uses TLS, and what was negotiated.
    encrypted: bool,
    tls: Option<TlsDescription>,
    peer: Peer,
    /// What the node says of the client that has let it in; `None`: it has come to this one.
    met: Option<Client>,
}

/// A client that has been let in, with its place.
pub(crate) struct Guest<S: BackendSession> {
    pub(crate) connection: Connection<S>,
    pub(crate) place: PlaceHeld,
    /// Of its cancel requests.
    key: (i32, i32),
}

/// The session's entry in the registry and its share of `connections_max`.
pub(crate) struct PlaceHeld {
    pid: Entered,
    session: OwnedSemaphorePermit,
}

/// Serves one socket from its first byte to its last.
pub(crate) async fn serve_socket<B: Backend>(
    socket: Socket,
    peer: Peer,
    lobby: LobbyPlace,
    backend: Arc<B>,
    shared: Arc<Shared>,
) {
    let limit = shared.options.authentication_timeout;
    let known = tokio::select! {
        known = timeout(limit, identify(socket, peer, &backend, &shared)) => known,
        () = lobby.lost() => return,
        () = shared.stopping.up() => return,
    };
    drop(lobby);
    let mut known = match known {
        Ok(Some(known)) => known,
        Ok(None) => return,
        Err(_) => {
            tracing::info!(%peer, "a client took too long to log in");
            return;
        }
    };
    let client = known.client();
    let route = Route {
        startup: &known.startup,
        client: &client,
        backend: &backend,
        readers: &shared.readers,
    };
    let (way, reading) = tokio::select! {
        found = route.find(None) => found,
        () = shared.stopping.up() => return,
    };
    let passing = match way {
        Way::Here => serve_here(known, client, &backend, &shared).await,
        Way::There(reached, _) => {
            // What was said to the client while it proved who it is.
            if known.newcomer.flush().await.is_err() {
                return;
            }
            serve_there(known, client, reached, &backend, &shared).await
        }
        Way::Nowhere(error) => return known.newcomer.refuse(Fault::Fatal(error)).await,
    };
    drop(reading);
    if let Some(passing) = passing {
        passing.go_on(&backend, &shared).await;
    }
}

/// Serves a client by a session of another node, to its last byte, or until the session is to go to another one.
async fn serve_there<B: Backend>(
    known: Known,
    client: Client,
    reached: Reached,
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Option<Passing> {
    let Known {
        newcomer: Newcomer {
            input, socket, met, ..
        },
        startup,
        role,
        permit,
    } = known;
    let is_guest = met.is_some();
    let line = Line::new((input, socket), &shared.registry, is_guest);
    let (line, left) = line.serve(&startup, reached, backend).await?;
    Some(Passing {
        startup,
        role,
        _permit: permit,
        client,
        line,
        left,
    })
}

/// Serves a client by a session of this node, to its last byte, or until the session is to go to another one.
async fn serve_here<B: Backend>(
    known: Known,
    client: Client,
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Option<Passing> {
    let (startup, role) = (known.startup.clone(), known.role.clone());
    // The client's database may have to be opened first, which may take a while.
    let guest = tokio::select! {
        guest = known.enter(backend, shared) => guest,
        () = shared.stopping.up() => return None,
    };
    let Guest {
        connection,
        place,
        key,
    } = guest?;
    let leaving = connection.serve(true).await.leaving()?;
    let relayed = shared.registry.enter_relayed(false);
    let PlaceHeld { pid, session } = place;
    drop(pid);
    let sides = (leaving.input, leaving.socket);
    Some(Passing {
        startup,
        role,
        _permit: session,
        client,
        line: Line::of_leaving(sides, relayed, Some(key)),
        left: Left {
            state: leaving.state,
            from: None,
        },
    })
}

/// A client that has authenticated.
struct Known {
    newcomer: Newcomer,
    startup: Startup,
    role: RoleInfo,
    /// A permit of `connections_max`.
    permit: OwnedSemaphorePermit,
}

async fn identify<B: Backend>(
    socket: Socket,
    peer: Peer,
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Option<Known> {
    let newcomer = Newcomer::new(socket, peer, None);
    let (mut newcomer, startup) = newcomer.negotiate(backend, shared).await?;
    match newcomer.prove(&startup, backend, shared).await {
        Ok((role, permit)) => Some(Known {
            newcomer,
            startup,
            role,
            permit,
        }),
        Err(fault) => {
            newcomer.refuse(fault).await;
            None
        }
    }
}

/// A session's share of `connections_max`.
fn permit(shared: &Shared) -> Result<OwnedSemaphorePermit, Fault> {
    let permit = shared.sessions.clone().try_acquire_owned();
    permit.map_err(|_| {
        Fault::Fatal(WireError::new(
            ErrorKind::TooManyConnections,
            "sorry, too many clients already",
        ))
    })
}

impl Known {
    /// How the client has come, to the node where its session is.
    fn client(&self) -> Client {
        self.newcomer.client()
    }

    /// Begins the client's session here.
    async fn enter<B: Backend>(
        self,
        backend: &Arc<B>,
        shared: &Arc<Shared>,
    ) -> Option<Guest<B::Session>> {
        let Known {
            mut newcomer,
            startup,
            role,
            permit,
        } = self;
        match newcomer.enter(&startup, &role, backend, shared).await {
            Ok((session, place)) => {
                let Newcomer {
                    input,
                    socket,
                    output,
                    ..
                } = newcomer;
                let key = (place.pid, place.secret);
                let (orders, entered) = place.split();
                let connection = connection(session, input, socket, orders, output, None);
                Some(Guest {
                    connection,
                    key,
                    place: PlaceHeld {
                        pid: entered,
                        session: permit,
                    },
                })
            }
            Err(fault) => {
                newcomer.refuse(fault).await;
                None
            }
        }
    }
}

impl Newcomer {
    fn new(socket: Socket, peer: Peer, met: Option<Client>) -> Newcomer {
        let (read, write) = plain(socket);
        Newcomer {
            input: Input::new(read),
            socket: write,
            output: Output::default(),
            encrypted: false,
            tls: None,
            peer,
            met,
        }
    }

    fn client(&self) -> Client {
        self.met.clone().unwrap_or_else(|| Client {
            address: self.peer.address(),
            tls: self.tls.clone(),
        })
    }

    /// The role of a client that another node has let in, if there is room for another session.
    async fn introduced<B: Backend>(
        &self,
        startup: &Startup,
        backend: &Arc<B>,
        shared: &Arc<Shared>,
    ) -> Result<(RoleInfo, OwnedSemaphorePermit), Fault> {
        if shared.stopping.is_up() {
            return Err(Fault::Fatal(shutting_down()));
        }
        let user = startup.user().unwrap_or("");
        let role = authenticate::may_log_in(user, backend.ask_role(user).await)?;
        Ok((role, permit(shared)?))
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        self.socket.write_all(&self.output.bytes).await?;
        self.socket.flush().await?;
        self.output.bytes.clear();
        Ok(())
    }

    /// Tells the client why it cannot be let in, and closes the connection.
    async fn refuse(&mut self, fault: Fault) {
        if let Fault::Fatal(error) | Fault::Sql(error) = fault {
            tracing::info!(peer = %self.peer, code = error.code(), message = %error.error.message, "client refused");
            self.output.error(&error, true);
            let _ = timeout(FAREWELL_TIMEOUT, self.flush()).await;
        }
        let _ = timeout(FAREWELL_TIMEOUT, self.socket.shutdown()).await;
    }

    /// Answers requests for encryption until a startup packet comes; `None` if the connection ends
    /// here.
    async fn negotiate<B: Backend>(
        mut self,
        backend: &Arc<B>,
        shared: &Shared,
    ) -> Option<(Self, Startup)> {
        // At most one request for TLS and one for GSSAPI.
        for _ in 0..3 {
            let request = self.request().await;
            match request {
                Ok(Request::Startup(startup)) => return Some((self, startup)),
                Ok(Request::Cancel { pid, secret }) => {
                    let is_known = shared.registry.cancel(pid, secret);
                    // The session may have come by another node.
                    if !is_known
                        && let Some(others) = backend.others()
                        && shared.cancels.is_admitted()
                    {
                        others.cancel(None, pid, secret);
                    }
                    return None;
                }
                Ok(Request::Gss) => self.socket.write_all(b"N").await.ok()?,
                Ok(Request::Tls)
                    if self.encrypted || self.peer.is_local() || shared.options.tls.is_none() =>
                {
                    self.socket.write_all(b"N").await.ok()?;
                }
                Ok(Request::Tls) => self = self.encrypt(shared).await?,
                Err(fault) => {
                    self.refuse(fault).await;
                    return None;
                }
            }
        }
        self.refuse(Fault::protocol("too many encryption requests"))
            .await;
        None
    }

    async fn request(&mut self) -> Result<Request, Fault> {
        let length = self.input.startup_length().await?;
        if !(4..=STARTUP_BYTES_MAX).contains(&length) {
            return Err(startup_length());
        }
        let body = self.input.body(length).await?;
        packet::read(Cursor::new(&body))
    }

    async fn encrypt(mut self, shared: &Shared) -> Option<Self> {
        let tls = shared.options.tls.as_ref()?;
        // Somebody in between could have inserted bytes before the handshake.
        if self.input.has_bytes() {
            self.refuse(Fault::protocol(
                "received unencrypted data after SSL request",
            ))
            .await;
            return None;
        }
        self.socket.write_all(b"S").await.ok()?;
        self.socket.flush().await.ok()?;
        let socket = whole(self.input.into_socket(), self.socket)?;
        match TlsAcceptor::from(tls.config.clone()).accept(socket).await {
            Ok(stream) => {
                let tls = describe_tls(&stream);
                let (read, write) = within_tls(stream);
                let (output, peer, met) = (self.output, self.peer, self.met);
                Some(Self {
                    input: Input::new(read),
                    socket: write,
                    output,
                    encrypted: true,
                    tls,
                    peer,
                    met,
                })
            }
            Err(error) => {
                tracing::info!(peer = %self.peer, %error, "TLS handshake failed");
                None
            }
        }
    }

    /// Authenticates the client, if there is room for another session.
    async fn prove<B: Backend>(
        &mut self,
        startup: &Startup,
        backend: &Arc<B>,
        shared: &Arc<Shared>,
    ) -> Result<(RoleInfo, OwnedSemaphorePermit), Fault> {
        let fatal = |kind, message: String| Fault::Fatal(WireError::new(kind, message));
        if shared.stopping.is_up() {
            return Err(Fault::Fatal(shutting_down()));
        }
        let user = startup.user().ok_or_else(|| {
            fatal(
                ErrorKind::InvalidAuthorization,
                "no PostgreSQL user name specified in startup packet".to_owned(),
            )
        })?;
        startup.check_replication()?;
        if startup.minor > 0 || !startup.unsupported().is_empty() {
            self.output.negotiate_version(&startup.unsupported());
        }
        let required = shared.options.tls.as_ref().is_some_and(|tls| tls.required);
        if required && !self.encrypted && !self.peer.is_local() {
            return Err(fatal(
                ErrorKind::InvalidAuthorization,
                "connections without TLS are refused".to_owned(),
            ));
        }
        let role = backend.ask_role(user).await;
        let role = self.authenticate(user, role, shared).await?;
        Ok((role, permit(shared)?))
    }

    /// Opens the client's session and sends the first messages.
    async fn enter<B: Backend>(
        &mut self,
        startup: &Startup,
        role: &RoleInfo,
        backend: &Arc<B>,
        shared: &Arc<Shared>,
    ) -> Result<(B::Session, Registration), Fault> {
        let user = &*role.name;
        let mut session = backend
            .connect(user, startup.database(), &startup.settings())
            .await
            .map_err(|error| Fault::Fatal(error.into()))?;
        session.set_client(self.client());
        let place = shared
            .registry
            .enter(
                session.number(),
                user,
                role.connection_limit,
                session.canceller(),
            )
            .ok_or_else(|| Fault::Fatal(too_many_of(user)))?;
        self.greet(startup, role, &mut session, &place, shared);
        Ok((session, place))
    }

    fn greet<S: BackendSession>(
        &mut self,
        startup: &Startup,
        role: &RoleInfo,
        session: &mut S,
        place: &Registration,
        shared: &Shared,
    ) {
        self.output.authentication(0, &[]);
        let zone = session.client_settings().zone;
        let mut parameters = vec![
            ("server_version", shared.options.server_version.clone()),
            ("server_encoding", "UTF8".to_owned()),
            ("client_encoding", "UTF8".to_owned()),
            (
                "application_name",
                startup.get("application_name").unwrap_or("").to_owned(),
            ),
            ("default_transaction_read_only", "off".to_owned()),
            ("in_hot_standby", "off".to_owned()),
            (
                "is_superuser",
                if role.superuser { "on" } else { "off" }.to_owned(),
            ),
            ("session_authorization", role.name.clone()),
            ("DateStyle", "ISO, MDY".to_owned()),
            ("IntervalStyle", "postgres".to_owned()),
            ("TimeZone", zone.name().to_owned()),
            ("integer_datetimes", "on".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
        ];
        // The session's values replace these; they include everything that has changed since it
        // began.
        drop(session.parameter_changes());
        let reported = session.reported_parameters();
        let is_reported = |name: &str| {
            reported
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(name))
        };
        parameters.retain(|(name, _)| !is_reported(name));
        let reported = reported.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in parameters
            .iter()
            .map(|(name, value)| (*name, value))
            .chain(reported)
        {
            self.output.parameter_status(name, value);
        }
        self.output.backend_key(place.pid, place.secret);
    }
}
