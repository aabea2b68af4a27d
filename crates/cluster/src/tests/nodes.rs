//! Two nodes: statements on either, leaders that change, nodes that end and come back.

use aerostat_catalog::admin::BOOTSTRAP;
use aerostat_types::ErrorKind;
use std::time::Duration;

use super::{TestNode, start, wait_until};
use crate::Space;

struct Two {
    shared: tempfile::TempDir,
    folders: [tempfile::TempDir; 2],
}

impl Two {
    fn new() -> Two {
        Two {
            shared: tempfile::tempdir().unwrap(),
            folders: [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
        }
    }

    fn start(&self, at: usize) -> TestNode {
        let space = Space::of(self.shared.path());
        start(&space, self.folders[at].path(), ["a", "b"][at])
    }

    /// Both, once both have the first database.
    fn both(&self) -> (TestNode, TestNode) {
        let a = self.start(0);
        wait_until("the first leads", || a.leads(BOOTSTRAP));
        let b = self.start(1);
        wait_until("both are members", || {
            a.has_members(BOOTSTRAP, 2) && b.shows(BOOTSTRAP)
        });
        (a, b)
    }
}

#[test]
fn what_is_made_on_one_node_is_on_the_other() {
    let two = Two::new();
    let (a, b) = two.both();
    a.ok("create user alice");
    a.ok("create database shop with owner = alice");
    assert!(a.leads("shop"), "it can be connected to at once");
    wait_until("b has it", || b.shows("shop"));
    assert!(!b.leads("shop"));
    wait_until("both are members", || a.has_members("shop", 2));
    a.comment("shop", "wares").unwrap();
    wait_until("b follows", || {
        b.comment_of("shop").as_deref() == Some("wares")
    });
    // What is defined on a copy is refused, and changes nothing.
    assert!(b.comment("shop", "no").is_err());
    assert_eq!(b.comment_of("shop").as_deref(), Some("wares"));
    // The record is everybody's: b makes a database, and leads it.
    b.ok("create database other");
    assert!(b.leads("other"));
    wait_until("a has it", || a.shows("other"));
    b.ok("alter database other rename to others");
    wait_until("a calls it so", || a.shows("others"));
    let id = a.database("others").unwrap().id;
    a.ok("drop database others");
    wait_until("b has it no more", || b.database("others").is_none());
    for folder in &two.folders {
        let files = folder.path().join("tenants").join(id.to_string());
        wait_until("its files are gone", || !files.exists());
    }
    // Who is named where another node leads is not renamed from here.
    let refused = b.run("alter role alice rename to bob").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ReadOnlyTransaction);
    assert!(b.node.has_role("alice"));
}

#[test]
fn both_nodes_change_the_record_at_once() {
    let two = Two::new();
    let (a, b) = two.both();
    std::thread::scope(|scope| {
        for (node, letter) in [(&a, 'a'), (&b, 'b')] {
            scope.spawn(move || {
                for number in 0..10 {
                    let sql = format!("create user {letter}{number}");
                    // Where the other was quicker nothing has happened.
                    let mut tries = 0;
                    while let Err(error) = node.run(&sql) {
                        assert_eq!(error.kind, ErrorKind::SerializationFailure, "{error:?}");
                        tries += 1;
                        assert!(tries < 100);
                    }
                }
            });
        }
    });
    for node in [&a, &b] {
        node.node.refresh().unwrap();
        let record = node.node.record();
        assert_eq!(record.roles.len(), 21);
        let mut oids: Vec<_> = record.roles.values().map(|role| role.oid).collect();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), 21, "no two have a number");
    }
}

#[test]
fn a_database_changes_hands_and_back() {
    let two = Two::new();
    let (a, b) = two.both();
    for round in 0..6 {
        let (to, from) = if round % 2 == 0 { (&b, &a) } else { (&a, &b) };
        let text = format!("round {round}");
        from.comment(BOOTSTRAP, &text).unwrap();
        let copy = to.database(BOOTSTRAP).unwrap().copy.clone().unwrap();
        assert!(
            copy.promote(Duration::from_secs(20), || false),
            "round {round}"
        );
        assert_eq!(to.comment_of(BOOTSTRAP), Some(text));
        wait_until("the other follows", || {
            !from.leads(BOOTSTRAP) && from.shows(BOOTSTRAP)
        });
        wait_until("both are members", || to.has_members(BOOTSTRAP, 2));
    }
}

#[test]
fn a_node_that_ends_is_taken_over_from_and_comes_back() {
    let two = Two::new();
    let (a, b) = two.both();
    a.comment(BOOTSTRAP, "one").unwrap();
    drop(a);
    wait_until("b leads", || b.leads(BOOTSTRAP) && b.leads("postgres"));
    assert_eq!(b.comment_of(BOOTSTRAP).as_deref(), Some("one"));
    b.comment(BOOTSTRAP, "two").unwrap();
    let a = two.start(0);
    wait_until("a is back", || {
        a.shows(BOOTSTRAP) && b.has_members(BOOTSTRAP, 2)
    });
    assert!(!a.leads(BOOTSTRAP));
    assert_eq!(a.comment_of(BOOTSTRAP).as_deref(), Some("two"));
    drop(b);
    wait_until("a leads again", || a.leads(BOOTSTRAP));
    a.comment(BOOTSTRAP, "three").unwrap();
    // All end, and all come back.
    drop(a);
    let (a, b) = (two.start(0), two.start(1));
    wait_until("somebody leads", || {
        a.leads(BOOTSTRAP) || b.leads(BOOTSTRAP)
    });
    wait_until("both show it", || a.shows(BOOTSTRAP) && b.shows(BOOTSTRAP));
    for node in [&a, &b] {
        wait_until("it is the newest", || {
            node.comment_of(BOOTSTRAP).as_deref() == Some("three")
        });
    }
}

#[test]
fn a_database_that_is_dropped_while_a_node_is_away_is_gone_when_it_comes() {
    let two = Two::new();
    let (a, b) = two.both();
    a.ok("create database shop");
    wait_until("b has it", || b.shows("shop") && a.has_members("shop", 2));
    let id = a.database("shop").unwrap().id;
    drop(b);
    wait_until("a goes on alone", || a.has_members("shop", 1));
    a.ok("drop database shop");
    a.ok("create database shop");
    let b = two.start(1);
    wait_until("b has the new one", || b.shows("shop"));
    assert_ne!(b.database("shop").unwrap().id, id);
    assert!(
        !two.folders[1]
            .path()
            .join("tenants")
            .join(id.to_string())
            .exists()
    );
}

#[test]
fn a_member_whose_files_are_lost_is_not_taken_for_one_that_has_them() {
    let two = Two::new();
    let (a, b) = two.both();
    a.comment(BOOTSTRAP, "kept").unwrap();
    let id = a.database(BOOTSTRAP).unwrap().id;
    drop((a, b));
    // Both have ended, and one has lost what it had.
    let lost = two.folders[0].path().join("tenants").join(id.to_string());
    std::fs::remove_dir_all(lost).unwrap();
    let a = two.start(0);
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        !a.leads(BOOTSTRAP) && !a.shows(BOOTSTRAP),
        "it has nothing to show"
    );
    let b = two.start(1);
    wait_until("the other leads", || b.leads(BOOTSTRAP));
    wait_until("it has it again", || {
        a.shows(BOOTSTRAP) && b.has_members(BOOTSTRAP, 2)
    });
    for node in [&a, &b] {
        assert_eq!(node.comment_of(BOOTSTRAP).as_deref(), Some("kept"));
    }
    // Where all have lost theirs nobody goes on with nothing.
    drop((a, b));
    for folder in &two.folders {
        std::fs::remove_dir_all(folder.path().join("tenants").join(id.to_string())).unwrap();
    }
    let (a, b) = (two.start(0), two.start(1));
    wait_until("others are there", || {
        a.shows("postgres") && b.shows("postgres")
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(!a.leads(BOOTSTRAP) && !b.leads(BOOTSTRAP));
    assert!(!a.shows(BOOTSTRAP) && !b.shows(BOOTSTRAP));
}

#[test]
fn a_node_that_was_away_for_long_is_made_anew() {
    let two = Two::new();
    let (a, b) = two.both();
    a.comment(BOOTSTRAP, "before").unwrap();
    let id = a.database(BOOTSTRAP).unwrap().id;
    let mut away = b;
    for round in 0..3 {
        drop(away);
        wait_until("a goes on alone", || a.has_members(BOOTSTRAP, 1));
        if round == 2 {
            // Its files are gone, too.
            let folder = two.folders[1].path().join("tenants").join(id.to_string());
            std::fs::remove_dir_all(folder).unwrap();
        }
        let text = format!("while it was away, {round}");
        let store = std::sync::Arc::clone(&a.database(BOOTSTRAP).unwrap().store);
        for number in 0..20 {
            a.comment(BOOTSTRAP, &format!("{number}")).unwrap();
            // The log of before goes, but for so many files.
            store.checkpoint().unwrap();
        }
        drop(store);
        a.comment(BOOTSTRAP, &text).unwrap();
        away = two.start(1);
        let b = &away;
        wait_until("b is back", || {
            b.shows(BOOTSTRAP) && a.has_members(BOOTSTRAP, 2)
        });
        wait_until("b has what was done", || {
            b.comment_of(BOOTSTRAP).as_ref() == Some(&text)
        });
        assert!(!b.leads(BOOTSTRAP));
    }
    drop(a);
    wait_until("b leads", || away.leads(BOOTSTRAP));
    assert_eq!(
        away.comment_of(BOOTSTRAP).as_deref(),
        Some("while it was away, 2")
    );
}

#[test]
fn sessions_end_where_their_database_has_been_renamed_and_dropped() {
    let two = Two::new();
    let (a, b) = two.both();
    a.ok("create database shop");
    wait_until("b has it", || b.shows("shop") && a.has_members("shop", 2));
    let id = b.database("shop").unwrap().id;
    a.ok("alter database shop rename to store");
    wait_until("b calls it so", || b.shows("store"));
    assert_eq!(b.database("store").unwrap().id, id);
    a.ok("drop database store");
    wait_until("b has it no more", || b.database("store").is_none());
    // Roles are dropped where their catalogues are led.
    a.ok("create user alice");
    wait_until("b knows her", || {
        b.node.refresh().is_ok() && b.node.has_role("alice")
    });
    let refused = b.run("drop role alice").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::ReadOnlyTransaction);
    a.ok("drop role alice");
}
