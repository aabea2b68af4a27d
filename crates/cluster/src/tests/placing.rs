//! Three nodes that choose by themselves where databases are.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use aerostat_catalog::admin::BOOTSTRAP;
use aerostat_types::{ErrorKind, TenantId};

use super::{
    join,
    moving::{NAMES, Three},
    wait_until,
};
use crate::{JoinError, Space};

/// Twice what a node may be silent here.
const LONG: Duration = Duration::from_secs(4);

impl Three {
    /// Where a database is to be, by the record as a node has it.
    fn wanted(&self, asked: usize, name: &str) -> BTreeSet<usize> {
        let record = self.node(asked).node.record();
        let nodes = &record.databases[name].nodes;
        let place = |node: &String| NAMES.iter().position(|name| name == node);
        nodes.iter().filter_map(place).collect()
    }

    fn number(&self, name: &str) -> TenantId {
        let running = self.nodes.iter().flatten().next().unwrap();
        // It may have been made on another one, a moment ago.
        let known = || running.node.record().databases.get(name).map(|of| of.oid);
        wait_until("it is known", || known().is_some());
        known().unwrap()
    }

    /// Waits until a database is where the record says, of which this is true.
    fn await_placed(&self, name: &str, is_right: impl Fn(&BTreeSet<usize>) -> bool) -> Vec<usize> {
        let asked = (0..3).find(|at| self.nodes[*at].is_some()).unwrap();
        let id = self.number(name);
        wait_until("it is where it is to be", || {
            let wanted = self.wanted(asked, name);
            let at: Vec<usize> = wanted.iter().copied().collect();
            is_right(&wanted) && self.is_on(name, id, &at)
        });
        self.wanted(asked, name).into_iter().collect()
    }
}

fn refused(three: &Three, at: usize, sql: &str) -> (ErrorKind, String) {
    let error = three.node(at).run(sql).unwrap_err();
    let detail = error.detail.unwrap_or_default();
    (error.kind, format!("{} {detail}", error.message))
}

#[test]
fn a_lost_copy_is_made_elsewhere_and_given_up_by_who_comes_back() {
    let mut three = Three::with(Some(2));
    three.node(1).ok("create database shop");
    let at = three.await_placed("shop", |nodes| nodes.len() == 2);
    assert!(at.contains(&1), "made where it was asked for: {at:?}");
    assert_eq!(three.leader("shop"), Some(1));
    three.node(1).comment("shop", "wares").unwrap();
    let id = three.number("shop");
    // One after another, the leader first: each time the third takes its place.
    for round in 0..3 {
        let gone = three.leader("shop").unwrap();
        let text = format!("round {round}");
        three.node(gone).comment("shop", &text).unwrap();
        three.nodes[gone] = None;
        let now = three.await_placed("shop", |nodes| nodes.len() == 2 && !nodes.contains(&gone));
        for at in &now {
            wait_until("it has everything", || {
                three.node(*at).comment_of("shop").as_ref() == Some(&text)
            });
        }
        assert!(three.has_files(gone, id), "nobody has told it");
        three.start(gone);
        wait_until("it has given its copy up", || !three.has_files(gone, id));
        three.await_placed("shop", |nodes| nodes.len() == 2);
    }
}

/// Databases are made all the time, for which everybody's reports are read.
#[test]
fn a_node_is_lost_however_often_its_report_is_read() {
    let mut three = Three::with(Some(2));
    three.node(0).ok("create database shop");
    let at = three.await_placed("shop", |nodes| nodes.len() == 2);
    let copy = at.into_iter().find(|at| *at != 0).unwrap();
    three.nodes[copy] = None;
    let began = std::time::Instant::now();
    let mut count = 0;
    while three.wanted(0, "shop").contains(&copy) {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "it is never lost"
        );
        three
            .node(0)
            .ok(&format!("create database d{count} with (copies = 1)"));
        count += 1;
        thread::sleep(Duration::from_millis(20));
    }
    three.await_placed("shop", |nodes| nodes.len() == 2 && !nodes.contains(&copy));
}

#[test]
fn who_is_away_for_a_moment_is_waited_for() {
    let mut three = Three::with(Some(2));
    three.node(0).ok("create database shop");
    let at = three.await_placed("shop", |nodes| nodes.len() == 2);
    let copy = at.into_iter().find(|at| *at != 0).unwrap();
    let before = three.wanted(0, "shop");
    three.nodes[copy] = None;
    thread::sleep(Duration::from_millis(500));
    three.start(copy);
    thread::sleep(LONG);
    assert_eq!(three.wanted(0, "shop"), before);
    three.await_placed("shop", |nodes| *nodes == before);
    // What all share is away: nobody is lost for that.
    let (shared, aside) = (
        three.shared.path(),
        three.shared.path().with_extension("away"),
    );
    fs::rename(shared, &aside).unwrap();
    thread::sleep(LONG);
    // Nodes that ask make some of it anew, perhaps between these two.
    wait_until("it is there again", || {
        let _ = fs::remove_dir_all(shared);
        fs::rename(&aside, shared).is_ok()
    });
    thread::sleep(LONG);
    assert_eq!(three.wanted(0, "shop"), before);
    three.await_placed("shop", |nodes| *nodes == before);
}

#[test]
fn a_node_that_drains_is_left_and_may_go() {
    let mut three = Three::with(Some(2));
    for at in 0..6 {
        three.node(0).ok(&format!("create database d{at}"));
    }
    three
        .node(0)
        .ok("create database told with (nodes = 'b, c')");
    let names: Vec<String> = (0..6).map(|at| format!("d{at}")).collect();
    for name in &names {
        three.await_placed(name, |nodes| nodes.len() == 2);
    }
    let on_b = |three: &Three| {
        let on_b = names
            .iter()
            .filter(|name| three.wanted(0, name).contains(&1));
        on_b.count()
    };
    assert_eq!(on_b(&three), 3, "they are spread");
    // Said on another one, and by itself.
    three.node(1).ok("alter node b drain");
    for name in &names {
        three.await_placed(name, |nodes| *nodes == BTreeSet::from([0, 2]));
    }
    three.node(1).ok("create database late");
    three.await_placed("late", |nodes| *nodes == BTreeSet::from([0, 2]));
    assert_eq!(
        three.wanted(0, "told"),
        BTreeSet::from([1, 2]),
        "the operator's choice"
    );
    let (kind, text) = refused(&three, 0, "drop node b");
    assert_eq!(kind, ErrorKind::ObjectInUse);
    assert!(text.contains("told"), "{text}");
    three.node(0).ok("alter database told set (nodes = 'c')");
    let (kind, text) = refused(&three, 0, "drop node b");
    assert_eq!(kind, ErrorKind::ObjectInUse);
    assert!(text.contains("runs"), "{text}");
    three.nodes[1] = None;
    wait_until("it has said that it ends", || {
        three.node(0).run("drop node b").is_ok()
    });
    // It is none of them any more, and who drops it again hears so.
    let (kind, text) = refused(&three, 2, "drop node b");
    assert_eq!(kind, ErrorKind::UndefinedObject, "{text}");
    three.node(2).ok("drop node if exists b");
    let space = Space::of(three.shared.path());
    let address = "127.0.0.1:1".parse().unwrap();
    let back = join(&space, three.folders[1].path(), "b", (address, address));
    assert!(
        matches!(back, Err(JoinError::OtherCluster { .. })),
        "{back:?}"
    );
    // Where two are left, one that drains is left by what has one copy, and by nothing else.
    three.node(0).ok("alter node c drain");
    three.node(0).ok("alter database d0 set (copies = 1)");
    three.await_placed("d0", |nodes| *nodes == BTreeSet::from([0]));
    assert_eq!(three.wanted(0, "d1"), BTreeSet::from([0, 2]));
    three.node(0).ok("alter node c resume");
    three.node(0).ok("alter database d0 reset (copies)");
    three.await_placed("d0", |nodes| *nodes == BTreeSet::from([0, 2]));
}

/// A node that comes back leads some of what it has again, with nobody's hand.
#[test]
fn leads_are_spread_over_nodes_that_come_back() {
    let mut three = Three::with(Some(2));
    three.spreads = true;
    for at in 0..3 {
        three.nodes[at] = None;
        three.start(at);
    }
    wait_until("all are there", || {
        (0..3).any(|at| three.node(at).leads(BOOTSTRAP) && three.node(at).has_members(BOOTSTRAP, 3))
    });
    let names: Vec<String> = (0..6).map(|at| format!("d{at}")).collect();
    // All of them begin where they are made.
    for name in &names {
        let sql = format!("create database {name} with (copies = 2, nodes = 'a, b')");
        three.node(0).ok(&sql);
    }
    wait_until("both lead three of them", || {
        let led = |at: usize| {
            names
                .iter()
                .filter(|name| three.node(at).leads(name))
                .count()
        };
        led(0) == 3 && led(1) == 3
    });
    thread::sleep(LONG);
    let led = |at: usize| {
        names
            .iter()
            .filter(|name| three.node(at).leads(name))
            .count()
    };
    assert_eq!([led(0), led(1)], [3, 3], "and it rests");
}

#[test]
fn the_cluster_keeps_as_many_copies_as_it_is_told() {
    let three = Three::with(None);
    three.node(0).ok("create database shop");
    let id = three.number("shop");
    wait_until("it is everywhere", || three.is_on("shop", id, &[0, 1, 2]));
    for (copies, count) in [("2", 2), ("1", 1), ("3", 3), ("1", 1)] {
        let leader = three.leader("shop").unwrap();
        three.node(leader).comment("shop", copies).unwrap();
        let sql = format!("alter database shop set (copies = {copies})");
        three.node(count % 3).ok(&sql);
        let at = three.await_placed("shop", |nodes| nodes.len() == count);
        for at in at {
            wait_until("it has everything", || {
                three.node(at).comment_of("shop").as_deref() == Some(copies)
            });
        }
    }
    // More than there are nodes: as many as there can be.
    three.node(0).ok("alter database shop set (copies = 9)");
    three.await_placed("shop", |nodes| nodes.len() == 3);
    // And it is the operator's again.
    three.node(0).ok("alter database shop set (nodes = 'a, c')");
    three.await_placed("shop", |nodes| *nodes == BTreeSet::from([0, 2]));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(three.wanted(0, "shop"), BTreeSet::from([0, 2]));
    let record = three.node(0).node.record();
    assert_eq!(record.databases["shop"].copies_kept, None);
    assert_eq!(record.databases[BOOTSTRAP].copies_kept, None);
    for (sql, kind) in [
        ("alter node d drain", ErrorKind::UndefinedObject),
        ("drop node d", ErrorKind::UndefinedObject),
        ("drop node a", ErrorKind::ObjectInUse),
        ("drop node b with (force)", ErrorKind::ObjectInUse),
    ] {
        let (refused, text) = refused(&three, 0, sql);
        assert_eq!(refused, kind, "{sql}: {text}");
    }
}
