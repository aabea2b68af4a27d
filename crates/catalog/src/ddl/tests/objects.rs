//! DROP, TRUNCATE, ALTER, GRANT and COMMENT.

use super::*;

#[test]
fn drops_name_what_is_there() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create view v as select 1 as a");
    assert_eq!(
        scene.error("drop table nothing"),
        (
            ErrorKind::UndefinedTable,
            "table \"nothing\" does not exist".into()
        )
    );
    assert_eq!(
        scene.error("drop view nothing").1,
        "view \"nothing\" does not exist"
    );
    assert_eq!(
        scene.error("drop table v"),
        (ErrorKind::WrongObjectType, "\"v\" is not a table".into())
    );
    assert_eq!(
        scene.error("drop view if exists t").1,
        "\"t\" is not a view"
    );
    assert_eq!(
        scene.error("drop table t, nothing").0,
        ErrorKind::UndefinedTable
    );
    assert_eq!(
        scene.error("drop table pg_catalog.pg_class").0,
        ErrorKind::InsufficientPrivilege
    );
    let result = scene.ok("drop table if exists nothing, t, nowhere.u");
    let messages: Vec<_> = result
        .notices
        .iter()
        .map(|notice| notice.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "table \"nothing\" does not exist, skipping",
            "schema \"nowhere\" does not exist, skipping"
        ]
    );
    assert!(scene.relation("public", "t").is_none());
}

#[test]
fn schemas_come_and_go_with_what_is_in_them() {
    let scene = scene();
    scene.ok("create schema s");
    scene.ok("create table s.t (a int)");
    scene.ok("create view v as select a from s.t");
    assert_eq!(
        scene.error("create schema s"),
        (
            ErrorKind::DuplicateSchema,
            "schema \"s\" already exists".into()
        )
    );
    assert_eq!(
        scene.error("create schema pg_catalog").0,
        ErrorKind::DuplicateSchema
    );
    assert_eq!(
        scene.error("create schema pg_mine").0,
        ErrorKind::ReservedName
    );
    assert_eq!(scene.ok("create schema if not exists s").notices.len(), 1);
    let error = scene.run("drop schema s").unwrap_err();
    assert_eq!(
        error.message,
        "cannot drop schema s because other objects depend on it"
    );
    assert_eq!(
        error.detail.unwrap(),
        "table s.t depends on schema s\nview v depends on table s.t"
    );
    scene.ok("drop schema s cascade");
    assert!(scene.relation("public", "v").is_none());
    assert_eq!(scene.error("drop schema s").0, ErrorKind::InvalidSchemaName);
    assert_eq!(
        scene.ok("drop schema if exists s").notices[0].message,
        "schema \"s\" does not exist, skipping"
    );
    assert_eq!(
        scene.error("drop schema information_schema").0,
        ErrorKind::DependentObjectsStillExist
    );
    scene
        .as_role("root")
        .ok("create schema authorization alice");
    scene.as_role("alice").ok("create table mine (a int)");
    assert!(scene.relation("alice", "mine").is_some());
}

#[test]
fn truncate_empties_all_or_none() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create table u (a int)");
    scene.ok("create view v as select 1 as a");
    let before = scene.table("t");
    assert_eq!(
        scene.error("truncate t, v"),
        (ErrorKind::WrongObjectType, "\"v\" is not a table".into())
    );
    assert!(Arc::ptr_eq(&before.table, &scene.table("t").table));
    assert_eq!(scene.ok("truncate t, u").tag, "TRUNCATE TABLE");
    let after = scene.table("t");
    assert!(!Arc::ptr_eq(&before.table, &after.table));
    assert_eq!(
        (before.oid, before.table.schema()),
        (after.oid, after.table.schema())
    );
}

#[test]
fn relations_and_schemas_are_renamed_moved_and_given() {
    let scene = scene().as_role("root");
    scene.ok("create table t (a int primary key)");
    scene.ok("create schema s");
    scene.ok("alter table t rename to u");
    assert_eq!(scene.table("u").name, "u");
    scene.ok("alter table u set schema s");
    assert!(scene.relation("s", "u").is_some());
    scene.ok("alter schema s rename to z");
    scene.ok("alter table z.u owner to alice");
    assert_eq!(scene.relation("z", "u").unwrap().owner(), "alice");
    assert_eq!(
        scene.error("alter table z.u owner to nobody").1,
        "role \"nobody\" does not exist"
    );
    scene.ok("create view v as select a from z.u");
    scene.ok("alter table z.u rename to w");
    assert_eq!(scene.view("v").query, "SELECT a FROM z.w AS u");
    scene.ok("alter schema z rename to y");
    scene.ok("alter table y.w rename a to b");
    assert_eq!(
        scene.view("v").query,
        "SELECT a FROM (SELECT b AS a FROM y.w) AS u"
    );
    scene.ok("alter table y.w rename to u");
    scene.ok("alter schema y rename to z");
    for (sql, kind) in [
        ("alter table z.u rename c to d", ErrorKind::UndefinedColumn),
        ("alter view z.u rename to w", ErrorKind::WrongObjectType),
        ("alter table nothing rename to w", ErrorKind::UndefinedTable),
        (
            "alter schema pg_catalog rename to w",
            ErrorKind::InsufficientPrivilege,
        ),
        (
            "alter table v set schema pg_catalog",
            ErrorKind::InsufficientPrivilege,
        ),
        (
            "alter table v set schema nowhere",
            ErrorKind::InvalidSchemaName,
        ),
        (
            "alter schema z rename to public",
            ErrorKind::DuplicateSchema,
        ),
    ] {
        assert_eq!(scene.error(sql).0, kind, "{sql}");
    }
    assert_eq!(
        scene
            .ok("alter table if exists nothing rename to w")
            .notices
            .len(),
        1
    );
    scene.ok("create table t (a int)");
    assert_eq!(
        scene.error("alter view v rename to t").0,
        ErrorKind::DuplicateTable
    );
    scene.ok("alter view v rename column a to b");
    scene.ok("alter view v rename to w");
    assert_eq!(scene.view("w").columns[0].name, "b");
}

#[test]
fn rights_are_the_owners_and_those_granted() {
    let scene = scene();
    let alice = scene.as_role("alice");
    assert_eq!(
        alice.error("create table t (a int)"),
        (
            ErrorKind::InsufficientPrivilege,
            "permission denied for schema public".into()
        )
    );
    assert_eq!(
        alice.error("create schema s").1,
        "permission denied for database d"
    );
    scene.ok("grant create on schema public to alice");
    alice.ok("create table t (a int)");
    scene.ok("revoke create on schema public from alice");
    scene.ok("create table o (a int)");
    for (sql, message) in [
        ("truncate o", "permission denied for table o"),
        ("drop table o", "must be owner of table o"),
        ("alter table o rename to p", "must be owner of table o"),
        (
            "alter table t owner to bob",
            "must be able to SET ROLE \"bob\"",
        ),
        (
            "alter table t rename to p",
            "permission denied for schema public",
        ),
        (
            "grant select on o to alice",
            "permission denied for table o",
        ),
        (
            "grant usage on schema public to alice",
            "permission denied for schema public",
        ),
        ("comment on table o is 'x'", "must be owner of table o"),
        (
            "comment on schema public is 'x'",
            "must be owner of schema public",
        ),
        ("drop schema public", "must be owner of schema public"),
    ] {
        assert_eq!(
            alice.error(sql),
            (ErrorKind::InsufficientPrivilege, message.to_owned()),
            "{sql}"
        );
    }
    scene.ok("grant truncate, select on o to alice, public");
    scene.ok("grant select on o to alice");
    alice.ok("truncate o");
    let relation = scene.relation("public", "o").unwrap();
    assert_eq!(relation.grants().len(), 4);
    assert!(scene.as_role("bob").actor.may(&relation, Privilege::Select));
    assert!(!scene.as_role("bob").actor.may(&relation, Privilege::Insert));
    assert_eq!(
        scene
            .error("revoke all on all tables in schema public from public")
            .1,
        "permission denied for table t"
    );
    scene
        .as_role("root")
        .ok("revoke all on all tables in schema public from public, alice");
    assert!(
        !alice
            .actor
            .may(&scene.relation("public", "o").unwrap(), Privilege::Select)
    );
    assert_eq!(
        scene.error("grant select on o to nobody").1,
        "role \"nobody\" does not exist"
    );
    // The owner of the schema may drop what others made in it.
    scene.ok("drop table t");
    scene.ok("revoke usage on schema public from public");
    assert_eq!(
        alice.error("drop table public.o").1,
        "permission denied for schema public"
    );
    assert_eq!(alice.error("drop table o").0, ErrorKind::UndefinedTable);
}

#[test]
fn comments_are_kept_and_removed() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create view v as select 1 as a");
    scene.ok("comment on table t is 'a table'");
    scene.ok("comment on column public.t.a is 'a column'");
    scene.ok("comment on view v is 'a view'");
    scene.ok("comment on schema public is 'ours'");
    let table = scene.table("t");
    assert_eq!(
        (
            table.comment.as_deref(),
            table.column_comments["a"].as_str()
        ),
        (Some("a table"), "a column")
    );
    assert_eq!(scene.view("v").comment.as_deref(), Some("a view"));
    scene.ok("comment on table t is null");
    scene.ok("comment on column t.a is ''");
    assert_eq!(
        (
            scene.table("t").comment.clone(),
            scene.table("t").column_comments.len()
        ),
        (None, 0)
    );
    assert_eq!(
        scene.error("comment on column t.b is 'x'").1,
        "column \"b\" of relation \"t\" does not exist"
    );
    assert_eq!(
        scene.error("comment on view t is 'x'").1,
        "\"t\" is not a view"
    );
    assert_eq!(
        scene.error("comment on schema pg_catalog is 'x'").0,
        ErrorKind::InsufficientPrivilege
    );
}

#[test]
fn each_statement_is_one_publication() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create table u (a int)");
    let before = scene.database.catalog.load();
    scene.ok("drop table t, u");
    assert!(scene.database.catalog.load().epoch > before.epoch);
    assert_eq!(before.relations().count(), 2);
    let before = scene.database.catalog.load();
    scene.run("drop table t").unwrap_err();
    assert!(Arc::ptr_eq(&before, &scene.database.catalog.load()));
}
