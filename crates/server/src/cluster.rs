//! `aerostat serve --cluster`: the node as one of several that hold the same databases.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
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
        let host = peers.advertise.as_deref();
        let address = advertise(listener.local_addr()?, host)?;
        // Clients may be let in on this machine alone.
        let clients = advertise(clients, host)?;
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
        if peers.etcd_certificates.is_none() && !is_here(&peers.space) {
            bail!(
                "the password of etcd's user would go over the network in the clear; give --etcd-certs"
            );
        }
        access = access.with_user(user.clone(), first_line(file)?);
    }
    Ok(access)
}

/// Whether all members of etcd are on this machine.
fn is_here(space: &str) -> bool {
    let members = space.trim_start_matches("etcd://").split('/').next();
    let is_here = |member: &str| {
        let address = member.parse::<SocketAddr>();
        address.is_ok_and(|address| address.ip().is_loopback()) || member.starts_with("localhost:")
    };
    members.unwrap_or_default().split(',').all(is_here)
}

/// What others are told who are to reach what is listened to here: an address of the host that the listener has, or may
/// have.
fn advertise(listens: SocketAddr, host: Option<&str>) -> Result<SocketAddr> {
    let own = listens.ip();
    let Some(host) = host.filter(|_| !own.is_loopback()) else {
        if own.is_unspecified() {
            bail!(
                "{listens} is no address that other nodes can dial; say which one is with --advertise"
            );
        }
        return Ok(listens);
    };
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let found = (name, listens.port()).to_socket_addrs();
    let found = found.with_context(|| format!("cannot find the host {host} of --advertise"))?;
    // One that listens on [::] takes both.
    let is_reached = |address: &SocketAddr| {
        let ip = address.ip();
        let fits = address.is_ipv4() == own.is_ipv4() || own == IpAddr::from(Ipv6Addr::UNSPECIFIED);
        fits && !ip.is_loopback() && !ip.is_unspecified()
    };
    let mut fitting = found.filter(is_reached);
    fitting.next().with_context(|| {
        format!("the host {host} of --advertise has no address at which others reach what listens on {listens}")
    })
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

    fn copies_of(&self, database: TenantId) -> Vec<NodeId> {
        self.0.copies_of(database)
    }

    fn load_of(&self, node: NodeId) -> f64 {
        self.0.load_of(node)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.0.is_up(node)
    }

    fn up(&self) -> Vec<NodeId> {
        self.0.up()
    }

    fn is_reached(&self, node: NodeId) -> BoxFuture<'static, bool> {
        Box::pin(self.0.is_reached(node))
    }

    fn seems_reached(&self, node: NodeId) -> bool {
        self.0.seems_reached(node)
    }

    fn is_alone(&self) -> bool {
        self.0.is_alone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_an_address_that_listens() {
        let told = |listens: &str, host: Option<&str>| {
            let told = advertise(listens.parse().unwrap(), host);
            told.map(|told| told.to_string())
                .map_err(|error| format!("{error:#}"))
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(told("10.0.0.1:1", None), ok("10.0.0.1:1"));
        assert_eq!(told("127.0.0.1:1", None), ok("127.0.0.1:1"));
        assert_eq!(told("0.0.0.0:1", Some("10.0.0.2")), ok("10.0.0.2:1"));
        assert_eq!(told("[::]:1", Some("10.0.0.2")), ok("10.0.0.2:1"));
        assert_eq!(told("[::]:1", Some("[fd00::1]")), ok("[fd00::1]:1"));
        // Clients of this machine alone.
        assert_eq!(told("127.0.0.1:1", Some("10.0.0.2")), ok("127.0.0.1:1"));
        assert!(told("0.0.0.0:1", None).unwrap_err().contains("--advertise"));
        for odd in ["127.0.1.1", "0.0.0.0", "::1", "fd00::1", "localhost"] {
            assert!(
                told("0.0.0.0:1", Some(odd)).unwrap_err().contains(odd),
                "{odd}"
            );
        }
    }

    #[test]
    fn passwords_of_etcd_stay_on_the_machine_unless_they_are_encrypted() {
        assert!(is_here(
            "etcd://127.0.0.1:2379,[::1]:2379,localhost:2379/house"
        ));
        assert!(!is_here("etcd://127.0.0.1:2379,10.0.0.1:2379/house"));
        assert!(!is_here("etcd://db.example.com:2379"));
    }
}
