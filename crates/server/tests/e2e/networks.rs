//! Machines of their own, as far as networks go: a namespace for each node, joined by one more, whose links are cut.
//!
//! ```text
//!  root ── hub (a bridge; etcd's members are here) ─┬─ node 0
//!                                                   ├─ node 1
//!                                                   └─ node 2
//! ```

use std::{
    net::{IpAddr, Ipv4Addr},
    process::{Command, Stdio},
};

/// The namespaces of so many nodes, until this is dropped.
pub(crate) struct Networks {
    /// What their names begin with.
    name: String,
    /// The first bytes of their addresses behind 10.
    net: [u8; 2],
    nodes: usize,
}

impl Networks {
    /// Nothing, and that is said, where the system does not allow it.
    pub(crate) fn new(nodes: usize) -> Option<Networks> {
        let number: u16 = rand::random();
        let networks = Networks {
            name: format!("ae{number:04x}"),
            net: number.to_be_bytes(),
            nodes,
        };
        let hub = networks.hub();
        if let Err(error) = ip(&["netns", "add", &hub]) {
            eprintln!("skipped: networks that are cut (no network namespaces here: {error})");
            return None;
        }
        let within = |space: &str, command: &[&str]| {
            ip(&[&["-n", space][..], command].concat()).unwrap();
        };
        within(&hub, &["link", "set", "lo", "up"]);
        within(&hub, &["link", "add", "bridge", "type", "bridge"]);
        within(&hub, &["link", "set", "bridge", "up"]);
        for member in 0..3 {
            let address = format!("{}/24", networks.member(member));
            within(&hub, &["addr", "add", &address, "dev", "bridge"]);
        }
        for node in 0..nodes {
            let (space, link) = (networks.space(node), format!("node{node}"));
            ip(&["netns", "add", &space]).unwrap();
            within(&space, &["link", "set", "lo", "up"]);
            let ends = ["link", "add", &link, "type", "veth", "peer", "name", "eth0"];
            within(&hub, &[&ends[..], &["netns", &space]].concat());
            within(&hub, &["link", "set", &link, "master", "bridge", "up"]);
            let address = format!("{}/24", networks.node(node));
            within(&space, &["addr", "add", &address, "dev", "eth0"]);
            within(&space, &["link", "set", "eth0", "up"]);
        }
        // How tests look at nodes.
        let ends = ["link", "add", &networks.name, "type", "veth", "peer"];
        let peer = ["name", "root", "netns", &hub];
        ip(&[&ends[..], &peer].concat()).unwrap();
        within(&hub, &["link", "set", "root", "master", "bridge", "up"]);
        let address = format!("{}/24", networks.address(254));
        ip(&["addr", "add", &address, "dev", &networks.name]).unwrap();
        ip(&["link", "set", &networks.name, "up"]).unwrap();
        Some(networks)
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net[0], self.net[1], last)
    }

    pub(crate) fn node(&self, node: usize) -> Ipv4Addr {
        self.address(1 + node as u8)
    }

    pub(crate) fn member(&self, member: usize) -> IpAddr {
        self.address(201 + member as u8).into()
    }

    /// The namespace of etcd's members.
    pub(crate) fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    pub(crate) fn space(&self, node: usize) -> String {
        format!("{}-{node}", self.name)
    }

    /// Nothing reaches a node any more, or leaves it; whoever sends is not told.
    pub(crate) fn cut(&self, node: usize) {
        self.set_link(node, "down");
    }

    pub(crate) fn heal(&self, node: usize) {
        self.set_link(node, "up");
    }

    fn set_link(&self, node: usize, state: &str) {
        let link = format!("node{node}");
        ip(&["-n", &self.hub(), "link", "set", &link, state]).unwrap();
    }

    /// Nothing goes between a node and these any more.
    pub(crate) fn cut_from(&self, node: usize, others: &[IpAddr]) {
        self.routes(node, others, "add");
    }

    pub(crate) fn heal_from(&self, node: usize, others: &[IpAddr]) {
        self.routes(node, others, "del");
    }

    fn routes(&self, node: usize, others: &[IpAddr], what: &str) {
        for other in others {
            let to = format!("{other}/32");
            ip(&["-n", &self.space(node), "route", what, "blackhole", &to]).unwrap();
        }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        // Links go with either end.
        for space in (0..self.nodes).map(|node| self.space(node)) {
            let _ = ip(&["netns", "delete", &space]);
        }
        let _ = ip(&["netns", "delete", &self.hub()]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        )),
    }
}
