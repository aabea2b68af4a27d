//! Nodes that share a folder or etcd: what they are started with.

use std::{net::SocketAddr, path::Path};

use tempfile::TempDir;
use tokio_postgres::Client;

use crate::{
    certificates::{Certificates, is_secured},
    copies::{refusal, wait_for_members},
    etcd_members::Members,
    harness::Aerostat,
    networks::Networks,
};

/// Memory of a node, or another for nodes of many databases: `TEST_NODE_MEMORY`.
fn memory() -> String {
    std::env::var("TEST_NODE_MEMORY").unwrap_or_else(|_| "512MB".to_owned())
}

/// What the nodes share, and their flags.
pub(crate) struct Cluster {
    pub(crate) space: String,
    /// Where its nodes have clients' sessions.
    sessions: &'static str,
    /// How many copies new databases have.
    copies: &'static str,
    /// The folder, if it is one.
    shared: Option<TempDir>,
    /// Certificates by which nodes know each other, if they do.
    certificates: Option<Certificates>,
}

impl Cluster {
    /// Of nodes that have sessions themselves: what is asked of one is answered by it.
    pub(crate) fn new() -> Cluster {
        let shared = tempfile::tempdir().unwrap();
        Cluster {
            space: format!("file://{}", shared.path().display()),
            sessions: "here",
            copies: "all",
            shared: Some(shared),
            certificates: is_secured().then(Certificates::new),
        }
    }

    /// The same nodes, which know each other by certificates.
    pub(crate) fn secured(self) -> Cluster {
        Cluster {
            certificates: Some(Certificates::new()),
            ..self
        }
    }

    /// Of nodes each of which serves whatever another one leads.
    pub(crate) fn of_gateways() -> Cluster {
        Cluster {
            sessions: "leader",
            ..Cluster::new()
        }
    }

    /// Of gateways that choose where new databases go, and soon replace who is lost.
    pub(crate) fn that_chooses() -> Cluster {
        Cluster::new().that_replaces()
    }

    /// The same nodes as gateways that choose where new databases go.
    pub(crate) fn that_replaces(self) -> Cluster {
        Cluster {
            copies: "2",
            sessions: "leader",
            ..self
        }
    }

    /// Of nodes that share etcd.
    pub(crate) fn of_etcd(members: &Members) -> Cluster {
        let members: Vec<String> = members
            .clients()
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        Cluster {
            space: format!("etcd://{}/house", members.join(",")),
            sessions: "here",
            copies: "all",
            shared: None,
            certificates: is_secured().then(Certificates::new),
        }
    }

    pub(crate) fn start_on(&self, data: TempDir, name: &str) -> Aerostat {
        self.start_with_flags(data, name, &["--memory", &memory()])
    }

    /// Starts a node with these flags besides, which say how much memory it has.
    pub(crate) fn start_with_flags(&self, data: TempDir, name: &str, more: &[&str]) -> Aerostat {
        let made = self.certificates.as_ref().map(|made| made.of(name));
        let certs = made.as_ref().map(|made| ["--peer-certs", made]);
        let certs = certs.as_ref().map_or(&[][..], |certs| certs);
        self.start_by(data, name, &[more, certs].concat())
    }

    /// The folder that the nodes share.
    pub(crate) fn folder(&self) -> &Path {
        self.shared.as_ref().unwrap().path()
    }

    /// Starts a node with these flags, and no certificates but by them.
    pub(crate) fn start_by(&self, data: TempDir, name: &str, more: &[&str]) -> Aerostat {
        let flags = self.flags(name);
        let peers = ["--peer-listen", "127.0.0.1:0"];
        Aerostat::start_on(data, &[&flags[..], &peers, more].concat())
    }

    /// Starts a node on a machine of its own, as far as networks go.
    pub(crate) fn start_in(
        &self,
        networks: &Networks,
        node: usize,
        data: TempDir,
        name: &str,
    ) -> Aerostat {
        let certificates = self.certificates.as_ref().unwrap().of(name);
        let flags = [
            &self.flags(name)[..],
            &["--memory", &memory(), "--peer-certs", &certificates],
        ];
        Aerostat::start_in(
            &networks.space(node),
            networks.node(node),
            data,
            &flags.concat(),
        )
    }

    fn flags<'a>(&'a self, name: &'a str) -> [&'a str; 10] {
        [
            ["--cluster", &self.space],
            ["--node-name", name],
            ["--sessions", self.sessions],
            ["--copies", self.copies],
            ["--replace-after", "12"],
        ]
        .concat()
        .try_into()
        .unwrap()
    }

    pub(crate) fn start(&self, name: &str) -> Aerostat {
        self.start_on(tempfile::tempdir().unwrap(), name)
    }

    /// What a node says that cannot join with this folder.
    pub(crate) fn is_refused(&self, data: &Path, name: &str) -> String {
        let flags = ["--cluster", &self.space, "--node-name", name];
        refusal(
            data,
            &[&flags[..], &["--peer-listen", "127.0.0.1:0"]].concat(),
        )
    }

    /// Both, as soon as commits wait for both.
    pub(crate) fn pair(&self) -> (Aerostat, Aerostat) {
        let (a, b) = (self.start("a"), self.start("b"));
        wait_for_members(&a, "aerostat", 2);
        (a, b)
    }

    /// Both with a database `shop`, for which commits wait for both, and a session at the first, which leads it.
    pub(crate) async fn shop(&self) -> (Aerostat, Aerostat, Client) {
        let (a, b) = self.pair();
        let client = a.create("shop").await;
        wait_for_members(&a, "shop", 2);
        (a, b, client)
    }
}
