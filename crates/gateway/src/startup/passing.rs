//! Clients whose sessions go from node to node: by the one that they have connected to, and guests of this one.

use std::{sync::Arc, time::Duration};

use aerostat_types::ErrorKind;
use tokio::{
    io::AsyncWriteExt,
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, timeout},
};

use super::{Guest, Known, Newcomer, serve_there};
use crate::{
    api::{Backend, BackendSession, Client, Kept, RoleInfo},
    connection::{Leaving, connection, shutting_down},
    door::{Comes, HERE, Introduction, NOT_HERE},
    farewell::{self, REFUSED},
    limits::RESUME_MAX,
    listen::{Peer, Socket},
    packet::Startup,
    registry::Registration,
    relay::Line,
    route::{self, Left, Route, Way},
    serve::Shared,
    sqlstate::{Fault, WireError},
    wire::Output,
};

/// How soon another attempt is made.
const RESUME_AGAIN: Duration = Duration::from_millis(5);

/// A client whose session has left the node where it was.
pub(super) struct Passing {
    pub(super) startup: Startup,
    pub(super) role: RoleInfo,
    /// Its share of `connections_max`.
    pub(super) _permit: OwnedSemaphorePermit,
    pub(super) client: Client,
    pub(super) line: Line,
    pub(super) left: Left,
}

impl Passing {
    /// Has the session go on wherever the database is led, to the client's last byte.
    pub(super) async fn go_on<B: Backend>(mut self, backend: &Arc<B>, shared: &Arc<Shared>) {
        loop {
            let route = Route {
                startup: &self.startup,
                client: &self.client,
                backend,
                readers: &shared.readers,
            };
            // A session that reads counts as long as it is there.
            let (way, _reading) = tokio::select! {
                found = route.find(Some(&self.left)) => found,
                () = shared.stopping.up() => (Way::Nowhere(shutting_down()), None),
            };
            let again = match way {
                Way::Here => self.resume_here(backend, shared).await,
                Way::There(reached, key) => {
                    if let (Some(key), Some(others)) = (key, backend.others()) {
                        self.line.is_at(&others, reached.at, key);
                    }
                    let served = self.line.serve(&self.startup, reached, backend).await;
                    served.map(|(line, left)| Passing { line, left, ..self })
                }
                Way::Nowhere(error) => return self.line.end(Some(error)).await,
            };
            match again {
                Some(passing) => self = passing,
                None => return,
            }
        }
    }

    /// The same by a session of this node.
    async fn resume_here<B: Backend>(
        self,
        backend: &Arc<B>,
        shared: &Arc<Shared>,
    ) -> Option<Passing> {
        let state = &self.left.state;
        let resumed = resume(
            &self.startup,
            &self.role,
            &self.client,
            state,
            backend,
            shared,
        );
        let resumed = tokio::select! {
            resumed = resumed => resumed,
            () = shared.stopping.up() => Err(shutting_down()),
        };
        let (session, unnamed, place) = match resumed {
            Ok(resumed) => resumed,
            Err(error) => {
                self.line.end(Some(error)).await;
                return None;
            }
        };
        let (input, socket, relayed, key) = self.line.into_parts();
        let (pid, secret) = (place.pid, place.secret);
        let registry = Arc::clone(&shared.registry);
        let tell = move || {
            registry.cancel_here(pid, secret);
        };
        relayed.set_key(key.unwrap_or((pid, secret)), Arc::new(tell));
        let (orders, entered) = place.split();
        let output = Output::default();
        let connection = connection(session, input, socket, orders, output, unnamed);
        let served = connection.serve(false).await;
        drop(entered);
        let leaving = served.leaving()?;
        let sides = (leaving.input, leaving.socket);
        Some(Passing {
            line: Line::of_leaving(sides, relayed, key.or(Some((pid, secret)))),
            left: Left {
                state: leaving.state,
                from: None,
            },
            ..self
        })
    }
}

/// A session of this node that goes on where another has left.
type GoesOn<B> = (
    <B as Backend>::Session,
    Option<Kept<<<B as Backend>::Session as BackendSession>::Prepared>>,
    Registration,
);

async fn resume<B: Backend>(
    startup: &Startup,
    role: &RoleInfo,
    client: &Client,
    state: &[u8],
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Result<GoesOn<B>, WireError> {
    let begun = Instant::now();
    let user = &*role.name;
    let (mut session, unnamed) = loop {
        let resumed = backend
            .resume(user, startup.database(), &startup.settings(), state)
            .await;
        match resumed {
            Ok(resumed) => break resumed,
            // It is being opened, as a copy or by who leads from now on.
            Err(error)
                if error.kind == ErrorKind::CannotConnectNow && begun.elapsed() < RESUME_MAX =>
            {
                sleep(RESUME_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    session.set_client(client.clone());
    let place = shared.registry.enter(
        session.number(),
        user,
        role.connection_limit,
        session.canceller(),
    );
    let place = place.ok_or_else(|| too_many_of(user))?;
    Ok((session, unnamed, place))
}

pub(super) fn too_many_of(user: &str) -> WireError {
    WireError::new(
        ErrorKind::TooManyConnections,
        format!("too many connections for role \"{user}\""),
    )
}

/// Serves a client that another node has let in, to its last byte, or until its session leaves this node.
pub(crate) async fn serve_guest<B: Backend>(
    socket: Socket,
    peer: Peer,
    said: &[u8],
    backend: Arc<B>,
    shared: Arc<Shared>,
) {
    let Introduction {
        startup,
        client,
        comes,
    } = match Introduction::decode(said) {
        Ok(introduction) => introduction,
        Err(_) => return tracing::warn!(%peer, "another node introduces nobody"),
    };
    let mut newcomer = Newcomer::new(socket, peer, Some(client.clone()));
    // Where the leader is may have changed on the way.
    let is_here = route::is_here(&startup, &backend).await;
    let reached = match !is_here && comes == Comes::ByWay {
        true => {
            let route = Route {
                startup: &startup,
                client: &client,
                backend: &backend,
                readers: &shared.readers,
            };
            route.pass_on().await
        }
        false => None,
    };
    let is_served = is_here || reached.is_some();
    let answer = [if is_served { HERE } else { NOT_HERE }];
    let answered = async {
        newcomer.socket.write_all(&answer).await?;
        newcomer.socket.flush().await
    };
    if answered.await.is_err() || !is_served {
        return;
    }
    let leaving = if comes == Comes::Resumed {
        resume_guest(newcomer, startup, client, &backend, &shared).await
    } else {
        let known = match newcomer.introduced(&startup, &backend, &shared).await {
            Ok((role, permit)) => Known {
                newcomer,
                startup,
                role,
                permit,
            },
            Err(fault) => return newcomer.refuse(fault).await,
        };
        match reached {
            None => serve_new_guest(known, &backend, &shared).await,
            Some(reached) => {
                let passing = serve_there(known, client, reached, &backend, &shared).await;
                if let Some(passing) = passing {
                    passing.go_on(&backend, &shared).await;
                }
                return;
            }
        }
    };
    if let Some(leaving) = leaving {
        match timeout(RESUME_MAX, farewell::give_away(leaving)).await {
            Ok(Ok(())) => {}
            _ => tracing::debug!(%peer, "a session was given away to a node that is gone"),
        }
    }
}

/// Begins a session for another node's client, and serves it.
async fn serve_new_guest<B: Backend>(
    known: Known,
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Option<Leaving> {
    // The client's database may have to be opened first, which may take a while.
    let guest = tokio::select! {
        guest = known.enter(backend, shared) => guest,
        () = shared.stopping.up() => return None,
    };
    let Guest {
        connection, place, ..
    } = guest?;
    let served = connection.serve(true).await;
    drop(place);
    served.leaving()
}

/// Goes on with a session of another node's client, and serves it.
async fn resume_guest<B: Backend>(
    mut newcomer: Newcomer,
    startup: Startup,
    client: Client,
    backend: &Arc<B>,
    shared: &Arc<Shared>,
) -> Option<Leaving> {
    let state = timeout(RESUME_MAX, farewell::take_up(&mut newcomer.input)).await;
    let Ok(Ok(state)) = state else {
        return None;
    };
    let introduced = newcomer.introduced(&startup, backend, shared).await;
    let resumed = match introduced {
        Ok((role, permit)) => {
            let resumed = resume(&startup, &role, &client, &state, backend, shared).await;
            resumed
                .map(|resumed| (resumed, permit))
                .map_err(Fault::Fatal)
        }
        Err(fault) => Err(fault),
    };
    let ((session, unnamed, place), permit) = match resumed {
        Ok(resumed) => resumed,
        Err(fault) => {
            newcomer.socket.write_all(&[REFUSED]).await.ok()?;
            newcomer.refuse(fault).await;
            return None;
        }
    };
    let Newcomer {
        input, mut socket, ..
    } = newcomer;
    farewell::go_on(&mut socket, (place.pid, place.secret))
        .await
        .ok()?;
    let (orders, entered) = place.split();
    let connection = connection(session, input, socket, orders, Output::default(), unnamed);
    let served = connection.serve(false).await;
    drop((entered, permit));
    served.leaving()
}
