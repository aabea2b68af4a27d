//! Three nodes, and databases that are not on all of them.

use std::num::NonZeroU8;

use aerostat_catalog::admin::BOOTSTRAP;
use aerostat_types::{ErrorKind, TenantId};

use super::{TestNode, try_start, wait_until};
use crate::Space;

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) struct Three {
    pub(super) shared: tempfile::TempDir,
    pub(super) folders: Vec<tempfile::TempDir>,
    pub(super) nodes: Vec<Option<TestNode>>,
    /// How many copies a new database has.
    copies: Option<NonZeroU8>,
    pub(super) spreads: bool,
}

impl Three {
    fn new() -> Three {
        Self::with(None)
    }

    /// Three of which new databases have so many copies.
    pub(super) fn with(copies: Option<u8>) -> Three {
        let mut three = Three {
            copies: copies.and_then(NonZeroU8::new),
            spreads: false,
            shared: tempfile::tempdir().unwrap(),
            folders: NAMES.map(|_| tempfile::tempdir().unwrap()).into(),
            nodes: NAMES.map(|_| None).into(),
        };
        three.start(0);
        wait_until("the first leads", || three.node(0).leads(BOOTSTRAP));
        three.start(1);
        three.start(2);
        wait_until("all are members", || {
            three.node(0).has_members(BOOTSTRAP, 3)
        });
        three
    }

    pub(super) fn start(&mut self, at: usize) {
        let space = Space::of(self.shared.path());
        let folder = self.folders[at].path();
        let node = try_start(&space, folder, NAMES[at], (self.copies, self.spreads));
        self.nodes[at] = Some(node.unwrap());
    }

    pub(super) fn node(&self, at: usize) -> &TestNode {
        self.nodes[at].as_ref().unwrap()
    }

    pub(super) fn has_files(&self, at: usize, id: TenantId) -> bool {
        self.folders[at]
            .path()
            .join("tenants")
            .join(id.to_string())
            .exists()
    }

    pub(super) fn leader(&self, name: &str) -> Option<usize> {
        (0..3).find(|at| {
            self.nodes[*at]
                .as_ref()
                .is_some_and(|node| node.leads(name))
        })
    }

    /// Whether the database is on these nodes and no others, and changes are taken.
    pub(super) fn is_on(&self, name: &str, id: TenantId, nodes: &[usize]) -> bool {
        let Some(leader) = self.leader(name).filter(|at| nodes.contains(at)) else {
            return false;
        };
        let shows = |at: usize| at == leader || self.node(at).shows(name);
        let is_right = |at: usize| match nodes.contains(&at) {
            true => shows(at),
            false => {
                let node = self.nodes[at].as_ref();
                node.is_none_or(|node| !self.has_files(at, id) && !node.shows(name))
            }
        };
        self.node(leader).has_members(name, nodes.len()) && (0..3).all(is_right)
    }
}

#[test]
fn a_database_goes_where_it_is_to_be_and_keeps_everything() {
    let three = Three::new();
    three
        .node(0)
        .ok("create database shop with (nodes = 'a, b')");
    let id = three.node(0).database("shop").unwrap().id;
    wait_until("it is on a and b", || three.is_on("shop", id, &[0, 1]));
    assert!(three.node(0).leads("shop"));
    let rounds: [(&str, &[usize]); 7] = [
        ("b, c", &[1, 2]),
        ("a", &[0]),
        ("c", &[2]),
        ("a, b, c", &[0, 1, 2]),
        ("a, c", &[0, 2]),
        ("b", &[1]),
        ("c, a", &[2, 0]),
    ];
    for (round, (names, nodes)) in rounds.into_iter().enumerate() {
        let text = format!("round {round}");
        let leader = three.leader("shop").unwrap();
        three.node(leader).comment("shop", &text).unwrap();
        // Said on any node.
        three
            .node(round % 3)
            .ok(&format!("alter database shop set (nodes = '{names}')"));
        wait_until("it is where it is to be", || three.is_on("shop", id, nodes));
        for at in nodes {
            wait_until("it has everything", || {
                three.node(*at).comment_of("shop").as_ref() == Some(&text)
            });
        }
        // Whoever has none knows whom to ask.
        let leader = three.leader("shop").unwrap();
        for at in (0..3).filter(|at| !nodes.contains(at)) {
            let node = three.node(at);
            let others = node.cluster.as_ref().unwrap().others();
            let known = others.leader_of(id);
            assert!(known.is_some_and(|known| three.node(leader).node.is(known)));
            let refused = node.node.connect(BOOTSTRAP, "shop").unwrap_err();
            assert_eq!(refused.kind, ErrorKind::CannotConnectNow);
            assert!(
                refused.message.contains("has no copy on node"),
                "{refused:?}"
            );
        }
    }
    // All again, and gone everywhere.
    three.node(1).ok("alter database shop reset (nodes)");
    wait_until("it is everywhere", || three.is_on("shop", id, &[0, 1, 2]));
    three.node(1).ok("drop database shop");
    wait_until("it is gone", || (0..3).all(|at| !three.has_files(at, id)));
}

/// A node that is away while its database is moved gives it up when it is back; one that is needed is waited for.
#[test]
fn nodes_that_are_away_follow_when_they_are_back() {
    let mut three = Three::new();
    three
        .node(0)
        .ok("create database shop with (nodes = 'a, b')");
    let id = three.node(0).database("shop").unwrap().id;
    wait_until("it is on a and b", || three.is_on("shop", id, &[0, 1]));
    three.node(0).comment("shop", "wares").unwrap();
    three.nodes[1] = None;
    three.node(0).ok("alter database shop set (nodes = 'a, c')");
    wait_until("c has it", || {
        three.node(2).shows("shop") && three.node(0).has_members("shop", 2)
    });
    assert!(three.has_files(1, id), "nobody has told b");
    three.start(1);
    wait_until("b has given it up", || three.is_on("shop", id, &[0, 2]));
    // Where it is to be is away: it stays where it is.
    three.nodes[1] = None;
    three.node(0).ok("alter database shop set (nodes = 'b')");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(three.node(0).leads("shop") && three.has_files(2, id));
    three.node(0).comment("shop", "more wares").unwrap();
    three.start(1);
    wait_until("it is on b", || three.is_on("shop", id, &[1]));
    assert_eq!(
        three.node(1).comment_of("shop").as_deref(),
        Some("more wares")
    );
}

/// The one that is to begin it is away, and is not to have it any more when it is back: it begins it all the same.
#[test]
fn a_database_that_moves_before_it_has_begun_is_begun() {
    let mut three = Three::new();
    three.nodes[2] = None;
    three.node(0).ok("create database far with (nodes = 'c')");
    three.node(0).ok("alter database far set (nodes = 'b')");
    let id = three.node(0).node.record().databases["far"].oid;
    three.start(2);
    wait_until("it is on b", || three.is_on("far", id, &[1]));
}

/// Some are told where to go again while they go, and some are dropped.
#[test]
fn many_databases_move_at_a_time() {
    let three = Three::new();
    let names: Vec<String> = (0..16).map(|at| format!("d{at}")).collect();
    for name in &names {
        three
            .node(0)
            .ok(&format!("create database {name} with (nodes = 'a, b')"));
        three.node(0).comment(name, name).unwrap();
    }
    let record = three.node(0).node.record();
    let goes = |name: &str, nodes: &str| {
        let sql = format!("alter database {name} set (nodes = '{nodes}')");
        three.node(0).ok(&sql);
    };
    names.iter().for_each(|name| goes(name, "b, c"));
    names[..8].iter().for_each(|name| goes(name, "c"));
    names[12..]
        .iter()
        .for_each(|name| three.node(0).ok(&format!("drop database {name}")));
    for (at, name) in names.iter().enumerate() {
        let id = record.databases[name].oid;
        if at >= 12 {
            wait_until("it is gone", || {
                (0..3).all(|node| !three.has_files(node, id))
            });
            continue;
        }
        let nodes: &[usize] = if at < 8 { &[2] } else { &[1, 2] };
        wait_until("it is where it is to be", || three.is_on(name, id, nodes));
        assert_eq!(three.node(2).comment_of(name).as_ref(), Some(name));
    }
}

#[test]
fn nodes_that_are_none_are_refused() {
    let three = Three::new();
    three.node(0).ok("create database shop");
    for (sql, kind) in [
        (
            "alter database shop set (nodes = 'a, d')",
            ErrorKind::UndefinedObject,
        ),
        (
            "alter database shop set (nodes = 'a,,b')",
            ErrorKind::InvalidParameterValue,
        ),
        (
            "alter database shop set (nodes = '')",
            ErrorKind::InvalidParameterValue,
        ),
        (
            "create database other with (nodes = 'x')",
            ErrorKind::UndefinedObject,
        ),
    ] {
        let refused = three.node(1).run(sql).unwrap_err();
        assert_eq!(refused.kind, kind, "{sql}: {refused:?}");
    }
    assert!(
        three.node(0).node.record().databases["shop"]
            .nodes
            .is_empty()
    );
    assert!(!three.node(0).node.record().databases.contains_key("other"));
    // Made where it is not to be.
    three.node(0).ok("create database far with (nodes = 'c')");
    wait_until("c leads it", || three.leader("far") == Some(2));
    let id = three.node(2).database("far").unwrap().id;
    assert!(!three.has_files(0, id) && !three.has_files(1, id));
}
