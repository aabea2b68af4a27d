//! The node against a data folder.

mod stages;
mod statements;

use std::{path::Path, sync::Arc};

use aerostat_api::hash_password;
use aerostat_memory::Governor;
use aerostat_sql::utility::{self, Utility};
use aerostat_storage::backup::Folders;
use aerostat_txn::CancelToken;
use aerostat_types::{ByteSize, Durability, ErrorKind, SqlError, TenantId};

use super::*;
use crate::{actor::Actor, ddl::CommandResult, state::NodeRecord};

fn open(data: &Path) -> Node {
    let governor = Governor::new(ByteSize(1 << 30));
    Node::open(data, Host::new(governor, Arc::new(Folders)), Opening::Eager).unwrap()
}

fn actor(node: &Node, role: &str) -> Actor {
    let database = node.database(BOOTSTRAP).unwrap();
    node.actor(role, &database, vec!["public".to_owned()])
        .unwrap()
}

fn run(node: &Node, role: &str, sql: &str) -> Result<CommandResult, SqlError> {
    let actor = actor(node, role);
    let current = node.database(BOOTSTRAP).unwrap();
    match utility::parse(sql)?.unwrap() {
        Utility::Database(command) => {
            let cancel = CancelToken::new();
            node.execute_database(&actor, &current, &command, &NoHolders, &cancel)
        }
        Utility::Role(command) => node.execute_role(&actor, &command),
        Utility::System(command) => node.execute_system(&actor, &command),
        Utility::Node(command) => node.execute_node(&actor, &command),
        Utility::Grant(statement) => node.grant(&actor, &statement),
        Utility::Comment(statement) => node.comment(&actor, &statement),
        other => panic!("not the node's: {other:?}"),
    }
}

fn ok(node: &Node, sql: &str) -> CommandResult {
    run(node, BOOTSTRAP, sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
}

fn error(node: &Node, role: &str, sql: &str) -> (ErrorKind, String) {
    let error = run(node, role, sql).expect_err(sql);
    (error.kind, error.message)
}

#[test]
fn a_new_node_has_a_superuser_and_a_database() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    let role = node.role(BOOTSTRAP).unwrap();
    assert!(role.superuser && role.login && role.scram.is_none());
    let connection = node.connect(BOOTSTRAP, BOOTSTRAP).unwrap();
    assert_eq!(connection.database().connection_count(), 1);
    drop(connection);
    assert_eq!(node.database(BOOTSTRAP).unwrap().connection_count(), 0);
    // What tools connect to is there, may be dropped, and does not come again.
    ok(&node, "drop database postgres");
    drop(node);
    assert!(open(data.path()).database("postgres").is_none());
}

#[test]
fn what_was_changed_is_there_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(
        &node,
        "create user alice password 'secret' connection limit 3",
    );
    ok(
        &node,
        "create database shop with owner = alice (memory_max = '2MB', connection_limit = 5)",
    );
    ok(&node, "comment on database shop is 'wares'");
    ok(&node, "comment on role alice is 'a user'");
    let before = node.record();
    drop(node);
    let node = open(data.path());
    assert_eq!(*node.record(), *before);
    assert_eq!(
        node.database("shop").unwrap().store.budget().max(),
        Some(ByteSize(2 << 20))
    );
    let alice = node.role("alice").unwrap();
    assert!(alice.login && !alice.superuser && alice.scram.is_some());
    assert_eq!(alice.connection_limit, Some(3));
    assert_eq!(before.databases["shop"].comment.as_deref(), Some("wares"));
}

#[test]
fn databases_are_made_changed_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    assert_eq!(ok(&node, "create database d").tag, "CREATE DATABASE");
    assert_eq!(
        error(&node, BOOTSTRAP, "create database d"),
        (
            ErrorKind::DuplicateDatabase,
            "database \"d\" already exists".to_owned()
        )
    );
    ok(
        &node,
        "alter database d set (memory_max = '3MB', connection_limit = 0)",
    );
    assert_eq!(
        node.database("d").unwrap().store.budget().max(),
        Some(ByteSize(3 << 20))
    );
    ok(&node, "alter database d reset (memory_max)");
    assert_eq!(node.database("d").unwrap().store.budget().max(), None);
    let id = node.database("d").unwrap().id;
    ok(&node, "alter database d rename to e");
    assert!(node.database("d").is_none());
    assert_eq!(
        (
            node.database("e").unwrap().id,
            node.database("e").unwrap().name.read().as_str()
        ),
        (id, "e")
    );
    let connection = node.connect(BOOTSTRAP, "e").unwrap();
    let busy = run(&node, BOOTSTRAP, "drop database e").unwrap_err();
    assert_eq!(busy.kind, ErrorKind::ObjectInUse);
    assert_eq!(
        busy.detail.as_deref(),
        Some("There is 1 other session using the database.")
    );
    assert_eq!(
        error(&node, BOOTSTRAP, "alter database e rename to f").0,
        ErrorKind::ObjectInUse
    );
    drop(connection);
    ok(&node, "drop database e with (force)");
    assert_eq!(
        node.connect(BOOTSTRAP, "e").unwrap_err().kind,
        ErrorKind::InvalidCatalogName
    );
    assert_eq!(
        error(&node, BOOTSTRAP, "drop database e").0,
        ErrorKind::InvalidCatalogName
    );
    let skipped = ok(&node, "drop database if exists e");
    assert_eq!(
        skipped.notices[0].message,
        "database \"e\" does not exist, skipping"
    );
    assert_eq!(
        error(&node, BOOTSTRAP, "drop database aerostat"),
        (
            ErrorKind::ObjectInUse,
            "cannot drop the currently open database".to_owned()
        )
    );
    ok(&node, "create database e");
    assert_ne!(node.database("e").unwrap().id, id);
}

#[test]
fn a_tenant_lets_in_its_owner_and_those_it_is_granted_to() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    for sql in [
        "create user alice",
        "create user bob",
        "create role nobody",
        "create database d owner alice",
    ] {
        ok(&node, sql);
    }
    let refused = |role: &str| node.connect(role, "d").unwrap_err();
    node.connect("alice", "d").unwrap();
    assert_eq!(refused("bob").kind, ErrorKind::InsufficientPrivilege);
    assert_eq!(
        refused("bob").message,
        "permission denied for database \"d\""
    );
    assert_eq!(
        refused("nobody").message,
        "role \"nobody\" is not permitted to log in"
    );
    assert_eq!(refused("ghost").message, "role \"ghost\" does not exist");
    run(&node, "alice", "grant connect, create on database d to bob").unwrap();
    assert!(node.may_connect("bob", "d"));
    let database = node.database("d").unwrap();
    let bob = node.actor("bob", &database, Vec::new()).unwrap();
    assert!(bob.create_in_database && !bob.database_owner && !bob.superuser);
    assert!(
        node.actor("alice", &database, Vec::new())
            .unwrap()
            .database_owner
    );
    run(&node, "alice", "revoke all on database d from bob").unwrap();
    assert!(!node.may_connect("bob", "d"));
    run(&node, "alice", "grant connect on database d to public").unwrap();
    assert!(node.may_connect("bob", "d"));
    assert_eq!(
        error(&node, "bob", "grant connect on database d to bob").1,
        "permission denied for database d"
    );
    assert_eq!(
        error(&node, "alice", "grant connect on database d to ghost").1,
        "role \"ghost\" does not exist"
    );
    assert_eq!(
        error(&node, "alice", "grant connect on database x to bob").0,
        ErrorKind::InvalidCatalogName
    );
}

#[test]
fn limits_count_connections() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user alice connection limit 1");
    ok(&node, "create user bob");
    ok(&node, "create database d connection limit 2");
    ok(&node, "grant connect on database d to public");
    let first = node.connect("alice", "d").unwrap();
    assert_eq!(
        node.connect("alice", "d").unwrap_err().message,
        "too many connections for role \"alice\""
    );
    let _second = node.connect("bob", "d").unwrap();
    assert_eq!(
        node.connect("bob", "d").unwrap_err().message,
        "too many connections for database \"d\""
    );
    let _superuser = node.connect(BOOTSTRAP, "d").unwrap();
    drop(first);
    assert_eq!(
        node.connect("bob", "d").unwrap_err().kind,
        ErrorKind::TooManyConnections
    );
    drop(_superuser);
    node.connect("bob", "d").unwrap();
}

#[test]
fn roles_are_made_changed_and_dropped() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create role r password 'x' createdb");
    assert_eq!(
        error(&node, BOOTSTRAP, "create role r").0,
        ErrorKind::DuplicateObject
    );
    for name in ["public", "none", "pg_x"] {
        assert_eq!(
            error(&node, BOOTSTRAP, &format!("create role {name}")).0,
            ErrorKind::ReservedName,
            "{name}"
        );
    }
    ok(&node, "alter role r login nocreatedb password null");
    let role = node.role("r").unwrap();
    assert!(role.login && role.scram.is_none());
    assert!(!node.record().roles["r"].create_database);
    let cleared = ok(&node, "alter role r password ''");
    assert_eq!(cleared.notices.len(), 1);
    let verifier = hash_password("y").unwrap().unwrap();
    ok(&node, &format!("alter role r password '{verifier}'"));
    assert_eq!(
        node.record().roles["r"].verifier.as_deref(),
        Some(verifier.as_str())
    );
    ok(&node, "create database d owner r");
    ok(&node, "grant connect on database aerostat to r");
    ok(&node, "alter role r rename to s");
    let record = node.record();
    assert_eq!(record.databases["d"].owner, "s");
    assert_eq!(record.databases[BOOTSTRAP].connect, ["s"]);
    let owned = run(&node, BOOTSTRAP, "drop role s").unwrap_err();
    assert_eq!(owned.kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        owned.detail.as_deref(),
        Some("owner of database d\nprivileges for database aerostat")
    );
    ok(&node, "alter database d owner to current_user");
    ok(&node, "revoke connect on database aerostat from s");
    let database = node.database("d").unwrap();
    assert_eq!(database.catalog.load().schemas["public"].owner, BOOTSTRAP);
    ok(&node, "create role t");
    assert_eq!(
        error(&node, BOOTSTRAP, "drop role t, ghost").0,
        ErrorKind::UndefinedObject
    );
    assert!(node.has_role("t"));
    assert_eq!(
        ok(&node, "drop role if exists s, ghost, t").notices.len(),
        1
    );
    assert!(!node.has_role("s") && !node.has_role("t"));
    assert_eq!(
        error(&node, BOOTSTRAP, "drop role current_user").0,
        ErrorKind::ObjectInUse
    );
    assert_eq!(
        error(&node, BOOTSTRAP, "alter role aerostat nosuperuser").0,
        ErrorKind::InsufficientPrivilege
    );
}

#[test]
fn what_a_role_has_in_a_database_keeps_it() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user alice");
    let database = node.database(BOOTSTRAP).unwrap();
    let Some(Utility::Schema(command)) =
        utility::parse("create schema authorization alice").unwrap()
    else {
        panic!()
    };
    let owner = actor(&node, BOOTSTRAP);
    let judges = crate::ddl::Judges {
        checker: &crate::ddl::tests::Planner,
        views: &crate::ddl::tests::Planner,
        role_exists: &|name| node.has_role(name),
    };
    database
        .define(|draft| crate::ddl::execute(draft, &owner, &command, &judges))
        .unwrap();
    let error = run(&node, BOOTSTRAP, "drop role alice").unwrap_err();
    assert_eq!(
        error.detail.as_deref(),
        Some("owner of schema alice in database aerostat")
    );
    ok(&node, "alter role alice rename to bob");
    assert_eq!(database.catalog.load().schemas["alice"].owner, "bob");
    ok(&node, "grant connect on database aerostat to bob");
    let _connected = node.connect("bob", BOOTSTRAP).unwrap();
    assert_eq!(
        run(&node, BOOTSTRAP, "alter role bob rename to carol")
            .unwrap_err()
            .kind,
        ErrorKind::ObjectInUse
    );
}

#[test]
fn only_those_who_may_change_roles_and_databases() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    for sql in [
        "create user plain",
        "create user maker createrole createdb",
        "create user boss superuser",
        "create database d owner plain (memory_max = '1GB', connection_limit = 8)",
        "create user keeper",
        "grant aerostat_operator to keeper",
    ] {
        ok(&node, sql);
    }
    for (role, sql, message) in [
        (
            "plain",
            "create database x",
            "permission denied to create database",
        ),
        ("plain", "create role x", "permission denied to create role"),
        (
            "plain",
            "alter role maker nologin",
            "permission denied to alter role",
        ),
        ("plain", "drop role maker", "permission denied to drop role"),
        (
            "plain",
            "alter role plain superuser",
            "must be superuser to alter superuser roles or change superuser attribute",
        ),
        (
            "plain",
            "alter database d set (memory_max = '9GB')",
            "permission denied to raise memory_max above 1GB",
        ),
        (
            "plain",
            "alter database d owner to maker",
            "must be able to SET ROLE \"maker\"",
        ),
        (
            "plain",
            "drop database aerostat",
            "must be owner of database aerostat",
        ),
        (
            "plain",
            "comment on role maker is 'x'",
            "must have CREATEROLE privilege",
        ),
        (
            "plain",
            "alter database d rename to e",
            "permission denied to rename database",
        ),
        (
            "maker",
            "create role x superuser",
            "must be superuser to create superusers",
        ),
        (
            "maker",
            "alter role boss nologin",
            "must be superuser to alter superuser roles or change superuser attribute",
        ),
        (
            "maker",
            "drop role boss",
            "must be superuser to drop superusers",
        ),
        (
            "maker",
            "create database x owner plain",
            "must be able to SET ROLE \"plain\"",
        ),
        ("maker", "drop database d", "must be owner of database d"),
    ] {
        assert_eq!(
            error(&node, role, sql),
            (ErrorKind::InsufficientPrivilege, message.to_owned()),
            "{role}: {sql}"
        );
    }
    for (role, sql, message) in [
        (
            "maker",
            "grant aerostat_operator to maker",
            "must be superuser to grant membership in role \"aerostat_operator\"",
        ),
        (
            "maker",
            "alter role keeper password 'known'",
            "must be superuser to alter members of predefined roles",
        ),
        (
            "maker",
            "drop role keeper",
            "must be superuser to drop members of predefined roles",
        ),
        ("keeper", "drop database d", "must be owner of database d"),
        (
            "plain",
            "alter database d connection limit 9",
            "permission denied to raise connection_limit above 8",
        ),
    ] {
        assert_eq!(
            error(&node, role, sql),
            (ErrorKind::InsufficientPrivilege, message.to_owned()),
            "{role}: {sql}"
        );
    }
    run(&node, "keeper", "alter database d set (memory_max = '2GB')").unwrap();
    run(&node, "plain", "alter database d set (memory_max = '2GB')").unwrap();
    run(&node, "plain", "alter role plain password 'mine'").unwrap();
    run(&node, "plain", "alter database d connection limit 4").unwrap();
    run(&node, "maker", "create database m").unwrap();
    run(&node, "maker", "alter database m set (memory_max = '9MB')").unwrap();
    run(&node, "maker", "create role made").unwrap();
    run(&node, "maker", "drop role made").unwrap();
    run(&node, "plain", "drop database d").unwrap();
}

/// The four durabilities, what an operator may make of one, and what an owner may.
#[test]
fn an_owner_may_lower_the_durability() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user plain");
    ok(&node, "create database d owner plain");
    let names = ["fsync", "none", "memory2", "memory2+fsync"];
    let set = |role: &str, name: &str| {
        let sql = format!("alter database d set (durability = '{name}')");
        run(&node, role, &sql).map(drop).map_err(|error| error.kind)
    };
    let now = || {
        let record = node.record();
        record.databases["d"].commit_durability().to_string()
    };
    let of_owners = |given: &str, wanted: &str| match given {
        "none" => wanted == "none",
        "memory2" => ["none", "memory2"].contains(&wanted),
        _ => true,
    };
    for given in names {
        for wanted in names {
            set(BOOTSTRAP, given).unwrap();
            assert_eq!(now(), given);
            let may = of_owners(given, wanted);
            let refused = Err(ErrorKind::InsufficientPrivilege);
            let expected = if may { Ok(()) } else { refused };
            assert_eq!(set("plain", wanted), expected, "{given}: {wanted}");
            assert_eq!(now(), if may { wanted } else { given });
            // And back, up to the operator's.
            assert_eq!(set("plain", given), Ok(()), "{given}: {wanted}");
            assert_eq!(now(), given);
        }
    }
    // Both are there after a restart. A node that is alone with a database has its commits on disk.
    set(BOOTSTRAP, "memory2+fsync").unwrap();
    set("plain", "memory2").unwrap();
    let database = node.database("d").unwrap();
    assert_eq!(database.store.durability(), Some(Durability::Fsync));
    drop(database);
    drop(node);
    let node = open(data.path());
    let record = node.record();
    assert_eq!(
        record.databases["d"].durability.to_string(),
        "memory2+fsync"
    );
    assert_eq!(
        record.databases["d"].commit_durability().to_string(),
        "memory2"
    );
    ok(&node, "drop database d");
    for name in names {
        ok(&node, &format!("create database d (durability = '{name}')"));
        let record = node.record();
        assert_eq!(record.databases["d"].durability.to_string(), name);
        ok(&node, "drop database d");
    }
}

/// A folder of before there were predefined roles and owners' limits.
#[test]
fn records_of_before_are_read() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    ok(&node, "create user plain");
    ok(&node, "create database d owner plain (memory_max = '64MB')");
    let record = serde_json::to_string(&*node.record()).unwrap();
    let lowered = r#","lowered":{"memory_max":null,"connection_limit":null,"durability":null}"#;
    let before = record.replace(lowered, "");
    assert!(before.len() < record.len() && !before.contains("member_of"));
    let read: NodeRecord = serde_json::from_str(&before).unwrap();
    assert_eq!(read, *node.record());
}

#[test]
fn a_change_that_cannot_be_stored_has_not_happened() {
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    // A folder where the replacement should go cannot be written as a file.
    let obstacle = data.path().join("catalog.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let before = node.record();
    for sql in [
        "create database d",
        "create role r",
        "drop database aerostat2",
        "comment on database aerostat is 'x'",
    ] {
        let failed = run(&node, BOOTSTRAP, sql).unwrap_err();
        assert!(
            matches!(
                failed.kind,
                ErrorKind::IoError | ErrorKind::InvalidCatalogName
            ),
            "{sql}"
        );
    }
    assert!(Arc::ptr_eq(&before, &node.record()));
    assert!(node.database("d").is_none());
    std::fs::remove_dir(&obstacle).unwrap();
    ok(&node, "create database d");
}

#[test]
fn one_folder_has_one_node() {
    let data = tempfile::tempdir().unwrap();
    let _node = open(data.path());
    let governor = Governor::new(ByteSize(1));
    let again = Node::open(
        data.path(),
        Host::new(governor, Arc::new(Folders)),
        Opening::Eager,
    );
    assert!(again.is_err());
}

#[test]
fn dropping_a_database_gives_its_memory_back() {
    let data = tempfile::tempdir().unwrap();
    let governor = Governor::new(ByteSize(1 << 30));
    let shared = Arc::clone(&governor);
    let node = Node::open(
        data.path(),
        Host::new(shared, Arc::new(Folders)),
        Opening::Eager,
    )
    .unwrap();
    ok(&node, "create database d");
    let database = node.database("d").unwrap();
    let kept = database
        .store
        .budget()
        .reserve(aerostat_memory::MemoryClass::Hot, 1 << 20)
        .unwrap();
    assert_eq!(governor.used(), 1 << 20);
    let weak = Arc::downgrade(&database);
    drop(database);
    ok(&node, "drop database d");
    assert!(weak.upgrade().is_none());
    drop(kept);
    assert_eq!(governor.used(), 0);
}

#[test]
fn the_nodes_memory_moves_and_is_kept() {
    let data = tempfile::tempdir().unwrap();
    let configured = ByteSize(1 << 30);
    let open_with = |governor: &Arc<Governor>| {
        let governor = Arc::clone(governor);
        Node::open(
            data.path(),
            Host::new(governor, Arc::new(Folders)),
            Opening::Eager,
        )
        .unwrap()
    };
    let governor = Governor::new(configured);
    let node = open_with(&governor);
    ok(&node, "create user alice");
    for (role, sql, kind) in [
        (
            "alice",
            "alter system set memory = '2GB'",
            ErrorKind::InsufficientPrivilege,
        ),
        (
            BOOTSTRAP,
            "alter system set memory = '1MB'",
            ErrorKind::InvalidParameterValue,
        ),
        (
            BOOTSTRAP,
            "alter system set memory = 0",
            ErrorKind::InvalidParameterValue,
        ),
    ] {
        assert_eq!(error(&node, role, sql).0, kind, "{sql}");
    }
    assert_eq!(governor.limit(), configured.0);
    assert!(
        ok(&node, "alter system set memory = '2GB'")
            .notices
            .is_empty()
    );
    assert_eq!(governor.limit(), 2 << 30);
    // What is held stays, and is approached; it is the same after a restart.
    let database = node.database(BOOTSTRAP).unwrap();
    let held = database
        .store
        .budget()
        .reserve(aerostat_memory::MemoryClass::Hot, 1 << 30)
        .unwrap();
    ok(&node, "alter system set memory = '512MB'");
    assert_eq!(
        (governor.target(), governor.limit()),
        (512 << 20, (1 << 30) + (16 << 20))
    );
    drop((held, database));
    assert!(governor.approach());
    assert_eq!(governor.limit(), 512 << 20);
    drop(node);
    let governor = Governor::new(configured);
    let node = open_with(&governor);
    assert_eq!(governor.limit(), 512 << 20);
    ok(&node, "alter system reset memory");
    assert_eq!(governor.limit(), configured.0);
    ok(&node, "alter system set memory = '512MB'");
    drop(node);
    // A value that the node is started with counts first, and whoever changes it is told.
    let governor = Governor::given(configured);
    let node = open_with(&governor);
    assert_eq!(governor.limit(), configured.0);
    let notices = ok(&node, "alter system set memory = '256MB'").notices;
    assert!(
        notices[0].message.contains("flag or variable"),
        "{notices:?}"
    );
    assert_eq!(governor.limit(), 256 << 20);
}

#[test]
fn operators_say_what_is_kept_for_a_database() {
    let data = tempfile::tempdir().unwrap();
    let governor = Governor::new(ByteSize(256 << 20));
    let open_with = |governor: &Arc<Governor>| {
        Node::open(
            data.path(),
            Host::new(Arc::clone(governor), Arc::new(Folders)),
            Opening::Eager,
        )
        .unwrap()
    };
    let node = open_with(&governor);
    ok(&node, "create user plain createdb");
    ok(&node, "create database d owner plain");
    ok(
        &node,
        "alter database d set (memory_min = '100MB', memory_weight = 300)",
    );
    let kept = |node: &Node, name: &str| {
        let budget = Arc::clone(node.database(name).unwrap().store.budget());
        (budget.min().0 >> 20, budget.weight())
    };
    assert_eq!(kept(&node, "d"), (100, 300));
    assert!(governor.promised() > 98 << 20, "{}", governor.promised());
    for (role, sql, kind, message) in [
        (
            "plain",
            "alter database d set (memory_min = '1MB')",
            ErrorKind::InsufficientPrivilege,
            "permission denied to set memory_min",
        ),
        (
            "plain",
            "alter database d reset (memory_weight)",
            ErrorKind::InsufficientPrivilege,
            "permission denied to set memory_weight",
        ),
        (
            "plain",
            "create database e (memory_weight = 200)",
            ErrorKind::InsufficientPrivilege,
            "permission denied to set memory_weight",
        ),
        (
            BOOTSTRAP,
            "create database e (memory_min = '157MB')",
            ErrorKind::InvalidParameterValue,
            "memory_min of all databases would be 257MB, the node has 256MB",
        ),
        (
            BOOTSTRAP,
            "alter database d set (memory_max = '50MB')",
            ErrorKind::InvalidParameterValue,
            "memory_min (100MB) must not be above memory_max (50MB)",
        ),
        (
            BOOTSTRAP,
            "alter system set memory = '99MB'",
            ErrorKind::InvalidParameterValue,
            "100MB are kept for databases, as memory_min",
        ),
    ] {
        assert_eq!(error(&node, role, sql), (kind, message.to_owned()), "{sql}");
    }
    assert!(!data.path().join("tenants/e").exists() && node.database("e").is_none());
    // A database of somebody without rights gets the weight of the one it is made from, and nothing is kept.
    run(&node, "plain", "create database e").unwrap();
    assert_eq!(kept(&node, "e"), (0, 100));
    ok(&node, "alter database e set (memory_min = '156MB')");
    drop(node);
    let governor = Governor::new(ByteSize(256 << 20));
    let node = open_with(&governor);
    assert_eq!(
        (kept(&node, "d"), kept(&node, "e")),
        ((100, 300), (156, 100))
    );
    ok(&node, "drop database e");
    ok(&node, "alter database d reset (memory_min, memory_weight)");
    assert_eq!((kept(&node, "d"), governor.promised()), ((0, 100), 0));
}
