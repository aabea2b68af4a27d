//! `aerostat serve --cluster`: the node as one of several that hold the same databases.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use aerostat_api::OtherNodes;
use aerostat_cluster::{
    Access, Census, Cluster, Door, Identity, Others, Pace, Programs, Settings, Setup, Shared, Space,
};
use aerostat_embedded::Engine;
use aerostat_transport::{Parked, Transport};
use aerostat_types::{NodeId, TenantId};
use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use tokio::{net::TcpListener, runtime::Handle};

use crate::{config::Peers, program, secret::first_line, successor::Successor};

/// How long a start waits until its databases can be read: others may be about to start, too.
const SHOWN_WAIT: Duration = Duration::from_secs(5);

/// How long a node that stops gets for handing its databases over: longer than it is patient with sessions.
const LEAVE_WAIT: Duration = Duration::from_secs(3);

/// What of a cluster's node there is before its data folder is opened.
pub(crate) struct Joining {
    space: Space,
    identity: Identity,
    listener: TcpListener,
    transport: Transport,
    sessions_at_leader: bool,
    census: Arc<Census>,
    copies: Option<NonZeroU8>,
    pace: Pace,
}

impl Joining {
    /// Says to the cluster where the node is.
    ///
    /// # Errors
    /// The cluster cannot be used, or the node is not who it says.
    pub(crate) async fn begin(
        peers: &Peers,
        data: &std::path::Path,
        clients: SocketAddr,
        successor: Option<&Arc<Successor>>,
    ) -> Result<Joining> {
        let listener = TcpListener::bind(peers.listen).await.with_context(|| {
            let address = peers.listen;
            format!("cannot listen on {address}; choose another with --peer-listen")
        })?;
        let transport = match &peers.certificates {
            None => Transport::plain(),
            Some(folder) => Transport::secured(folder, &peers.name)?,
        };
        let advertised = match &peers.advertise {
            None => None,
            Some(host) => Some(resolve(host)?),
        };
        let address = advertise(listener.local_addr()?, advertised)?;
        // Clients may be let in on this machine alone.
        let clients = advertise(clients, advertised)?;
        let space = Space::open(&peers.space, &access(peers)?)?;
        let build = program::build();
        let identity =
            aerostat_cluster::join(&space, data, &peers.name, (address, clients), &build)
                .with_context(|| format!("cannot join the cluster {}", peers.space))?;
        tracing::info!(
            node = identity.name, number = %identity.node, process = identity.incarnation,
            peers = %address, cluster = peers.space, version = build.version, build = build.id, "joined"
        );
        let programs = successor.map(|successor| Arc::clone(successor) as Arc<dyn Programs>);
        let leads_new = !peers.sessions_at_leader;
        let census = Census::new(&space, &identity, leads_new, (build, programs))?;
        let census = Arc::new(census);
        Ok(Joining {
            space,
            identity,
            listener,
            transport,
            sessions_at_leader: peers.sessions_at_leader,
            census,
            copies: peers.copies,
            pace: Pace {
                replace_after: peers.replace_after,
                spreads: peers.sessions_at_leader,
                ..Pace::default()
            },
        })
    }

    /// What the node's catalogue is shared by.
    ///
    /// # Errors
    /// The cluster's documents cannot be used.
    pub(crate) fn shared(&self) -> Result<Shared> {
        let Joining {
            space,
            identity,
            census,
            copies,
            ..
        } = self;
        Ok(aerostat_cluster::shared(space, identity, census, *copies)?)
    }

    /// Has the node's databases be copies, and waits a while until they can be read.
    ///
    /// # Errors
    /// The cluster cannot be used.
    pub(crate) async fn start(
        self,
        engine: &Arc<Engine>,
        io: &[Handle],
        door: aerostat_gateway::Door,
    ) -> Result<Member> {
        let at_leader = self.sessions_at_leader;
        let transport = self.transport.clone();
        let setup = Setup {
            identity: self.identity,
            space: self.space,
            node: Arc::clone(engine.node()),
            holders: Arc::clone(engine) as _,
            listener: self.listener.into_std()?,
            transport: self.transport,
            door: Arc::new(Entrance(door)),
            sessions: io.into(),
            settings: Settings::default(),
            census: self.census,
            time_used: {
                let engine = Arc::clone(engine);
                Arc::new(move |database| engine.time_used(database))
            },
            pace: self.pace,
        };
        let started = tokio::task::spawn_blocking(move || -> Result<Cluster> {
            let cluster = Cluster::start(setup)?;
            if !cluster.await_shown(SHOWN_WAIT) {
                tracing::warn!(
                    "not all databases can be read yet; other nodes may be needed for that"
                );
            }
            Ok(cluster)
        });
        let cluster = started.await.context("the cluster's task died")??;
        if at_leader {
            engine.set_others(Arc::new(Nodes(cluster.others())));
        }
        Ok(Member {
            cluster: Arc::new(cluster),
            transport,
        })
    }
}

/// How etcd is asked.
fn access(peers: &Peers) -> Result<Access> {
    let mut access = Access::default();
    if let Some(folder) = &peers.etcd_certificates {
        access = access.with_certificates(folder)?;
    }
    if let Some((user, file)) = &peers.etcd_user {
        access = access.with_user(user.clone(), first_line(file)?);
    }
    Ok(access)
}

/// The address of a host.
fn resolve(host: &str) -> Result<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    let mut found = found.with_context(|| format!("cannot find the host {host} of --advertise"))?;
    let first = found.next();
    Ok(first
        .with_context(|| format!("the host {host} has no address"))?
        .ip())
}

/// What others are told who are to reach what is listened to here.
fn advertise(listens: SocketAddr, advertised: Option<IpAddr>) -> Result<SocketAddr> {
    match advertised {
        Some(ip) if !listens.ip().is_loopback() => Ok(SocketAddr::new(ip, listens.port())),
        None if listens.ip().is_unspecified() => {
            bail!(
                "{listens} is no address that other nodes can dial; say which one is with --advertise"
            )
        }
        _ => Ok(listens),
    }
}

/// Where clients come in that other nodes have let in.
struct Entrance(aerostat_gateway::Door);

impl Door for Entrance {
    fn session(&self, connection: Parked, introduction: Vec<u8>) {
        self.0.session(connection, introduction);
    }

    fn cancel(&self, pid: i32, secret: i32) {
        self.0.cancel(pid, secret);
    }
}

/// The other nodes, for the gateway.
struct Nodes(Others);

impl OtherNodes for Nodes {
    fn session(
        &self,
        node: NodeId,
        introduction: Vec<u8>,
    ) -> BoxFuture<'static, io::Result<Parked>> {
        Box::pin(self.0.session(node, introduction))
    }

    fn leader_of(&self, database: TenantId) -> Option<NodeId> {
        self.0.leader_of(database)
    }

    fn cancel(&self, node: Option<NodeId>, pid: i32, secret: i32) {
        self.0.cancel(node, pid, secret);
    }
}

/// A node's part in a cluster.
pub(crate) struct Member {
    cluster: Arc<Cluster>,
    transport: Transport,
}

impl Member {
    /// How connections with other nodes are made.
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Hands databases over to other nodes, and their sessions with them. Does not wait for long.
    pub(crate) async fn hand_over(&self) {
        let cluster = Arc::clone(&self.cluster);
        let handing = tokio::task::spawn_blocking(move || cluster.hand_over(LEAVE_WAIT));
        if tokio::time::timeout(LEAVE_WAIT * 2, handing).await.is_err() {
            tracing::warn!("not all databases have been handed over");
        }
    }

    /// Ends the copies, and hands over what is left. Does not wait for long.
    pub(crate) async fn leave(self) {
        let leaving = tokio::task::spawn_blocking(move || {
            self.cluster.hand_over(LEAVE_WAIT);
            drop(self);
        });
        if tokio::time::timeout(LEAVE_WAIT * 3, leaving).await.is_err() {
            tracing::warn!("copies were still being ended when the node stopped");
        }
    }
}
