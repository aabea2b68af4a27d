//! How many statements of a database run and wait: who says it, and what it is after a restart.

use super::*;

/// A node whose databases have a queue of 100 if nothing else is said.
fn open(data: &Path) -> Node {
    let mut host = Host::new(Governor::new(ByteSize(256 << 20)), Arc::new(Folders));
    host.statements.queue_max = Some(100);
    Node::open(data, host, Opening::Eager).unwrap()
}

/// statements_max, queue_max and queue_timeout in force.
fn holds(node: &Node, name: &str) -> (Option<i32>, Option<i32>, Option<u32>) {
    let limits = node.database(name).unwrap().statements.limits();
    let timeout = limits.queue_timeout_ms;
    (limits.statements_max, limits.queue_max, timeout)
}

fn weight(node: &Node, name: &str) -> u32 {
    node.record().databases[name].cpu_weight
}

#[test]
fn an_owner_lowers_what_the_operator_or_the_node_gave() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user plain createdb");
    ok(
        &node,
        "create database d owner plain (statements_max = 8, queue_timeout = '5s', cpu_weight = 300)",
    );
    assert_eq!(holds(&node, "d"), (Some(8), Some(100), Some(5_000)));
    let own =
        |sql: &str| run(&node, "plain", sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    own("alter database d set (statements_max = 3, queue_max = 0, queue_timeout = 100)");
    assert_eq!(holds(&node, "d"), (Some(3), Some(0), Some(100)));
    for (sql, message) in [
        (
            "alter database d set (statements_max = 9)",
            "permission denied to raise statements_max above 8",
        ),
        (
            "alter database d set (queue_max = 101)",
            "permission denied to raise queue_max above 100",
        ),
        (
            "alter database d set (queue_timeout = '6s')",
            "permission denied to raise queue_timeout above 5000 ms",
        ),
        (
            "alter database d set (cpu_weight = 1)",
            "permission denied to set cpu_weight",
        ),
        (
            "alter database d reset (cpu_weight)",
            "permission denied to set cpu_weight",
        ),
    ] {
        let denied = (ErrorKind::InsufficientPrivilege, message.to_owned());
        assert_eq!(error(&node, "plain", sql), denied, "{sql}");
    }
    // A limit of his that is none, and no word of his, are the operator's.
    own("alter database d set (statements_max = -1, queue_timeout = 0)");
    own("alter database d reset (queue_max)");
    assert_eq!(holds(&node, "d"), (Some(8), Some(100), Some(5_000)));
    // What the operator says holds, whatever the owner has said before.
    own("alter database d set (statements_max = 2)");
    ok(
        &node,
        "alter database d set (statements_max = 4, queue_max = -1)",
    );
    assert_eq!(holds(&node, "d"), (Some(4), Some(-1), Some(5_000)));
    own("alter database d set (queue_max = 1000)");
    own("alter database d set (statements_max = 1)");
    drop(node);
    let node = open(data.path());
    assert_eq!(holds(&node, "d"), (Some(1), Some(1_000), Some(5_000)));
    assert_eq!(weight(&node, "d"), 300);
    ok(
        &node,
        "alter database d reset (statements_max, queue_max, queue_timeout, cpu_weight)",
    );
    assert_eq!(holds(&node, "d"), (None, Some(100), None));
    assert_eq!(weight(&node, "d"), 100);
}

#[test]
fn a_database_that_others_make_has_the_limits_of_the_one_they_are_connected_to() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user plain createdb");
    ok(
        &node,
        "alter database aerostat set (statements_max = 5, queue_max = 7, cpu_weight = 40)",
    );
    run(&node, "plain", "create database e (statements_max = 2)").unwrap();
    assert_eq!(holds(&node, "e"), (Some(2), Some(7), None));
    assert_eq!(weight(&node, "e"), 40);
    let more = "create database f (statements_max = 6)";
    assert_eq!(
        error(&node, "plain", more).1,
        "permission denied to raise statements_max above 5"
    );
    run(&node, "plain", "alter database e reset (statements_max)").unwrap();
    assert_eq!(holds(&node, "e"), (Some(5), Some(7), None));
}
