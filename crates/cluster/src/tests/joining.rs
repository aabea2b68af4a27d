//! Who is which node.

use std::{fs, thread};

use aerostat_catalog::admin::{BOOTSTRAP, Node, NodeError, Opening};

use aerostat_storage::{MetaStore, Swapped};
use serde_json::Value;

use super::{clients, host, join, start, wait_until};
use crate::{JoinError, Space, inventory::Inventory};

#[test]
fn a_name_and_a_folder_belong_together() {
    let (shared, one, other) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let space = Space::of(shared.path());
    let at = (clients(), clients());
    let first = join(&space, one.path(), "a", at).unwrap();
    let again = join(&space, one.path(), "a", at).unwrap();
    assert_eq!(first.node, again.node);
    assert!(
        again.incarnation > first.incarnation,
        "each process has a number of its own"
    );
    let renamed = join(&space, one.path(), "b", at);
    assert!(matches!(renamed, Err(JoinError::OtherName { node, .. }) if node == "a"));
    let taken = join(&space, other.path(), "a", at);
    assert!(matches!(taken, Err(JoinError::Taken { node }) if node == "a"));
    // The folder has no name by that which it could not have.
    for name in ["", "a b", "../a", "é", &"x".repeat(64)] {
        let odd = join(&space, other.path(), name, at);
        assert!(matches!(odd, Err(JoinError::Name(_))), "{name}");
    }
}

#[test]
fn nodes_that_come_at_once_have_different_numbers() {
    let shared = tempfile::tempdir().unwrap();
    let space = Space::of(shared.path());
    let folders: Vec<_> = (0..8).map(|_| tempfile::tempdir().unwrap()).collect();
    thread::scope(|scope| {
        for (at, folder) in folders.iter().enumerate() {
            let space = &space;
            scope.spawn(move || {
                join(
                    space,
                    folder.path(),
                    &format!("n{at}"),
                    (clients(), clients()),
                )
                .unwrap()
            });
        }
    });
    let nodes = Inventory::load(&*space.nodes().unwrap()).unwrap();
    let mut numbers: Vec<_> = nodes.nodes.values().map(|entry| entry.id).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 8);
    let words: Vec<_> = (0..3).map(|_| space.token().unwrap()).collect();
    assert!(
        words
            .iter()
            .all(|word| *word == words[0] && word.len() == 32)
    );
}

#[test]
fn what_is_no_space_is_refused() {
    for odd in ["", "file://", "etcd://127.0.0.1", "http://x"] {
        assert!(odd.parse::<Space>().is_err(), "{odd}");
    }
    let named: Space = "file:///srv/cluster".parse().unwrap();
    assert_eq!(named, "/srv/cluster".parse().unwrap());
    let named: Space = "etcd://127.0.0.1:2379/house".parse().unwrap();
    assert_eq!(named, "etcd://127.0.0.1:2379/house".parse().unwrap());
    assert_ne!(named, "etcd://127.0.0.1:2379/other".parse().unwrap());
    let shared = tempfile::tempdir().unwrap();
    fs::write(shared.path().join("token"), "short").unwrap();
    assert!(Space::of(shared.path()).token().is_err());
}

#[test]
fn a_single_nodes_databases_come_with_it_and_it_does_not_go_back() {
    let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let alone = Node::open(data.path(), host(None), Opening::Eager).unwrap();
    let database = alone.database(BOOTSTRAP).unwrap();
    database
        .define(|draft| {
            let mut change = draft.change()?;
            change.state.schema_mut("public")?.comment = Some("before".to_owned());
            change.publish()
        })
        .unwrap();
    let before = alone.record();
    drop((database, alone));
    let space = Space::of(shared.path());
    for _ in 0..2 {
        let node = start(&space, data.path(), "a");
        wait_until("it leads", || node.leads(BOOTSTRAP));
        assert_eq!(node.comment_of(BOOTSTRAP).as_deref(), Some("before"));
        assert_eq!(node.node.record().databases.len(), before.databases.len());
    }
    let back = Node::open(data.path(), host(None), Opening::Eager);
    assert!(matches!(back, Err(NodeError::InCluster { .. })));
}

#[test]
fn a_folder_with_databases_of_its_own_stays_outside() {
    let shared = tempfile::tempdir().unwrap();
    let (first, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let space = Space::of(shared.path());
    let node = start(&space, first.path(), "a");
    wait_until("it leads", || node.leads(BOOTSTRAP));
    drop(Node::open(other.path(), host(None), Opening::Eager).unwrap());
    let refused = join(&space, other.path(), "b", (clients(), clients()));
    assert!(matches!(refused, Err(JoinError::OwnDatabases { .. })));
    // Nothing of it has gone, and it starts alone.
    drop(Node::open(other.path(), host(None), Opening::Eager).unwrap());
}

#[test]
fn a_folder_of_one_cluster_is_none_of_another() {
    let (one, other, data) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let at = (clients(), clients());
    join(&Space::of(one.path()), data.path(), "a", at).unwrap();
    // Of a cluster that is there, and of one whose folder is empty, as where it is not mounted.
    let elsewhere = tempfile::tempdir().unwrap();
    join(&Space::of(other.path()), elsewhere.path(), "b", at).unwrap();
    for space in [other.path().to_owned(), one.path().join("not mounted")] {
        let refused = join(&Space::of(&space), data.path(), "a", at);
        assert!(
            matches!(refused, Err(JoinError::OtherCluster { .. })),
            "{space:?}"
        );
    }
    assert!(!one.path().join("not mounted").exists(), "nothing was made");
    join(&Space::of(one.path()), data.path(), "a", at).unwrap();
}

#[test]
fn a_node_that_runs_keeps_its_place() {
    let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let space = Space::of(shared.path());
    let node = start(&space, data.path(), "a");
    let before = Inventory::load(&*space.nodes().unwrap()).unwrap();
    assert!(join(&space, data.path(), "a", (clients(), clients())).is_err());
    assert_eq!(Inventory::load(&*space.nodes().unwrap()).unwrap(), before);
    drop(node);
}

/// Changes a document as a build would that knows more of it.
fn change(store: &dyn MetaStore, change: impl FnOnce(&mut Value)) {
    let found = store.load().unwrap().unwrap();
    let mut document: Value = serde_json::from_slice(&found.document).unwrap();
    change(&mut document);
    let bytes = serde_json::to_vec(&document).unwrap();
    let swapped = store.compare_and_swap(Some(found.version), &bytes);
    assert!(matches!(swapped.unwrap(), Swapped::Done(_)));
}

fn read(store: &dyn MetaStore) -> Value {
    serde_json::from_slice(&store.load().unwrap().unwrap().document).unwrap()
}

#[test]
fn what_later_builds_write_is_kept() {
    let (shared, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let space = Space::of(shared.path());
    let node = start(&space, data.path(), "a");
    wait_until("it leads", || node.leads(BOOTSTRAP));
    let (nodes, record) = (space.nodes().unwrap(), space.record().unwrap());
    change(&*nodes, |all| {
        all["later"] = 7.into();
        all["nodes"]["a"]["later"] = serde_json::json!({"deep": [1, 2]});
    });
    change(&*record, |all| {
        all["later"] = "x".into();
        all["roles"][BOOTSTRAP]["later"] = true.into();
        all["databases"][BOOTSTRAP]["later"] = 1.5.into();
    });
    node.run("CREATE ROLE eve LOGIN").unwrap();
    node.run("ALTER NODE a DRAIN").unwrap();
    drop(node);
    let marker = data.path().join(aerostat_catalog::admin::MARKER);
    let said = fs::read_to_string(&marker).unwrap();
    assert!(said.contains("\"cluster\""), "{said}");
    let at = (clients(), clients());
    join(&space, data.path(), "a", at).unwrap();
    let all = read(&*nodes);
    assert_eq!(all["later"], 7);
    assert_eq!(all["nodes"]["a"]["later"]["deep"][1], 2);
    assert_eq!(all["nodes"]["a"]["draining"], true);
    assert_eq!(all["nodes"]["a"]["build"]["version"], "1.0.0");
    let record = read(&*record);
    assert_eq!(record["later"], "x");
    assert!(record["roles"]["eve"].is_object());
    assert_eq!(record["roles"][BOOTSTRAP]["later"], true);
    assert_eq!(record["databases"][BOOTSTRAP]["later"], 1.5);
}
