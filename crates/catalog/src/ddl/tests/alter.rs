//! ALTER TABLE: its effect on definitions and their dependants.

use super::*;

fn columns(scene: &Scene, table: &str) -> String {
    let entry = scene.table(table);
    let schema = entry.table.schema();
    let shown = schema.columns.iter().map(|column| {
        let null = if column.nullable { "" } else { " not null" };
        let default = column.default.as_ref();
        let default = default.map_or_else(String::new, |text| format!(" default {text}"));
        format!("{} {}{null}{default}", column.name, column.ty)
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn checks(scene: &Scene, table: &str) -> Vec<String> {
    let entry = scene.table(table);
    let checks = entry.table.schema().checks.iter();
    checks
        .map(|check| {
            let valid = if check.not_valid { " not valid" } else { "" };
            format!("{}: {}{valid}", check.name, check.expression)
        })
        .collect()
}

fn key(scene: &Scene, table: &str) -> (Vec<usize>, String) {
    let entry = scene.table(table);
    let schema = entry.table.schema();
    assert_eq!(
        entry.key_oid != IndexId::NONE,
        !schema.primary_key.is_empty()
    );
    (schema.primary_key.clone(), schema.primary_key_name.clone())
}

fn indexes(scene: &Scene, table: &str) -> Vec<(String, Vec<usize>)> {
    let entry = scene.table(table);
    let mut stored: Vec<_> = entry
        .table
        .indexes()
        .into_iter()
        .map(|index| index.name)
        .collect();
    let listed: Vec<_> = entry
        .indexes
        .iter()
        .map(|index| (index.index.name.clone(), index.index.columns.clone()))
        .collect();
    let mut names: Vec<_> = listed.iter().map(|(name, _)| name.clone()).collect();
    stored.sort();
    names.sort();
    assert_eq!(stored, names, "storage has the catalogue's indexes");
    listed
}

#[test]
fn actions_are_done_as_a_whole_whatever_their_order() {
    let scene = scene();
    scene.ok("create table t (a int primary key, b int check (b > 0), c int default 7 not null, check (b < c))");
    let before = scene.table("t");
    assert_eq!(
        scene
            .ok(
                "alter table t add column b text default 'x' check (b <> ''), drop column b, \
             alter c drop default, alter c type bigint, alter a set default 1, \
             drop constraint t_pkey, add primary key (b, a)"
            )
            .tag,
        "ALTER TABLE"
    );
    assert_eq!(
        columns(&scene, "t"),
        "a integer not null default 1, c bigint not null, b text not null default 'x'"
    );
    assert_eq!(key(&scene, "t"), (vec![2, 0], "t_pkey".to_owned()));
    assert_eq!(checks(&scene, "t"), ["t_b_check: b <> ''"]);
    let after = scene.table("t");
    assert_eq!(before.oid, after.oid);
    assert_ne!(before.table.id(), after.table.id());
    // Nothing of a statement that fails is there.
    assert_eq!(
        scene.error("alter table t add column d int, drop column nothing"),
        (
            ErrorKind::UndefinedColumn,
            "column \"nothing\" of relation \"t\" does not exist".to_owned()
        )
    );
    assert!(Arc::ptr_eq(&after, &scene.table("t")));
}

#[test]
fn a_definition_alone_leaves_the_rows_where_they_are() {
    let scene = scene();
    scene.ok(
        "create table t (a int primary key, b int not null, c int) with (layout = '(a,b),(c)')",
    );
    scene.ok("create index t_b on t (b)");
    scene.ok("comment on column t.b is 'bee'");
    let id = scene.table("t").table.id();
    scene.ok("alter table t alter b drop not null, alter b set default 5, alter c set not null");
    scene.ok("alter table t add constraint p check (b > 0) not valid, add check (c > b)");
    scene.ok("alter table t rename b to \"B b\"");
    assert_eq!(
        columns(&scene, "t"),
        "a integer not null, B b integer default 5, c integer not null"
    );
    assert_eq!(
        checks(&scene, "t"),
        ["p: \"B b\" > 0 not valid", "t_check: c > \"B b\""]
    );
    scene.ok("alter table t validate constraint p");
    scene.ok("alter table t rename constraint p to q");
    assert_eq!(checks(&scene, "t")[0], "q: \"B b\" > 0");
    let entry = scene.table("t");
    assert_eq!(entry.table.id(), id);
    assert_eq!(entry.table.layout().to_string(), "(a,\"B b\"),(c)");
    assert_eq!(entry.column_comments["B b"], "bee");
    assert_eq!(indexes(&scene, "t"), [("t_b".to_owned(), vec![1])]);
    scene.ok("alter table t rename to u");
    assert_eq!(scene.table("u").table.schema().name, "u");
}

#[test]
fn what_has_a_column_goes_with_it() {
    let scene = scene();
    scene.ok("create table t (a int, b int, c int, unique (a, b), check (c > 0), check (a > b), primary key (c, a))");
    scene.ok("create index t_bc on t (b, c)");
    scene.ok("create index t_c on t (c)");
    scene.ok("comment on column t.a is 'gone'");
    scene.ok("alter table t drop column a");
    assert_eq!(columns(&scene, "t"), "b integer, c integer not null");
    assert_eq!(key(&scene, "t"), (Vec::new(), String::new()));
    assert_eq!(checks(&scene, "t"), ["t_c_check: c > 0"]);
    assert_eq!(
        indexes(&scene, "t"),
        [("t_bc".to_owned(), vec![0, 1]), ("t_c".to_owned(), vec![1])]
    );
    assert!(scene.table("t").column_comments.is_empty());
    scene.ok("alter table t drop b");
    assert_eq!(
        scene.error("alter table t drop c"),
        (
            ErrorKind::FeatureNotSupported,
            "tables without columns are not supported".to_owned()
        )
    );
}

#[test]
fn constraints_come_and_go_with_their_indexes() {
    let scene = scene();
    scene.ok("create table t (a int, b int)");
    scene.ok("alter table t add unique (b), add constraint k primary key (a)");
    assert_eq!(key(&scene, "t"), (vec![0], "k".to_owned()));
    assert_eq!(indexes(&scene, "t"), [("t_b_key".to_owned(), vec![1])]);
    scene.ok("alter table t add constraint b_a unique (b, a)");
    scene.ok("alter table t rename constraint b_a to a_b");
    scene.ok("alter index t_b_key rename to of_b");
    scene.ok("alter index k rename to key_of_t");
    assert_eq!(key(&scene, "t"), (vec![0], "key_of_t".to_owned()));
    assert_eq!(
        indexes(&scene, "t"),
        [("of_b".to_owned(), vec![1]), ("a_b".to_owned(), vec![1, 0])]
    );
    for (sql, kind, message) in [
        (
            "alter table t add primary key (b)",
            ErrorKind::InvalidTableDefinition,
            "multiple primary keys for table \"t\" are not allowed",
        ),
        (
            "alter table t add constraint of_b check (a > 0)",
            ErrorKind::DuplicateObject,
            "constraint \"of_b\" for relation \"t\" already exists",
        ),
        (
            "alter table t add constraint of_b unique (a)",
            ErrorKind::DuplicateTable,
            "relation \"of_b\" already exists",
        ),
        (
            "alter table t validate constraint of_b",
            ErrorKind::WrongObjectType,
            "constraint \"of_b\" of relation \"t\" is not a foreign key or check constraint",
        ),
        (
            "alter table t drop constraint nothing",
            ErrorKind::UndefinedObject,
            "constraint \"nothing\" of relation \"t\" does not exist",
        ),
        (
            "alter table t rename constraint nothing to x",
            ErrorKind::UndefinedObject,
            "constraint \"nothing\" for table \"t\" does not exist",
        ),
        (
            "alter table t alter a drop not null",
            ErrorKind::InvalidTableDefinition,
            "column \"a\" is in a primary key",
        ),
        (
            "alter table t add unique (a) not valid",
            ErrorKind::FeatureNotSupported,
            "UNIQUE constraints cannot be marked NOT VALID",
        ),
        (
            "alter index t rename to u",
            ErrorKind::WrongObjectType,
            "\"t\" is not an index",
        ),
    ] {
        assert_eq!(scene.error(sql), (kind, message.to_owned()), "{sql}");
    }
    scene.ok("alter table t drop constraint of_b, drop constraint a_b, drop constraint key_of_t");
    assert_eq!(indexes(&scene, "t"), []);
    assert_eq!(key(&scene, "t"), (Vec::new(), String::new()));
    // What was part of the key still refuses NULL, as in PostgreSQL.
    assert_eq!(columns(&scene, "t"), "a integer not null, b integer");
}

#[test]
fn views_go_with_columns_they_use_or_keep_them() {
    let scene = scene();
    scene.ok("create table t (a int, b int, c int)");
    scene.ok("create view uses_b as select b, a from t");
    scene.ok("create view above as select b from uses_b");
    scene.ok("create view uses_a as select a from t");
    scene.ok("create view all_of_it as select * from t");
    let error = scene.run("alter table t drop b").unwrap_err();
    assert_eq!(error.kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        error.message,
        "cannot drop column b of table t because other objects depend on it"
    );
    assert_eq!(
        error.detail.as_deref(),
        Some(
            "view all_of_it depends on column b of table t\n\
             view uses_b depends on column b of table t\n\
             view above depends on view uses_b"
        )
    );
    let error = scene.run("alter table t alter b type bigint").unwrap_err();
    assert_eq!(error.kind, ErrorKind::FeatureNotSupported);
    assert_eq!(
        error.message,
        "cannot alter type of a column used by a view or rule"
    );
    let notices = scene.ok("alter table t drop c cascade").notices;
    assert_eq!(notices[0].message, "drop cascades to view all_of_it");
    let notices = scene.ok("alter table t drop b cascade").notices;
    assert_eq!(notices[0].message, "drop cascades to 2 other objects");
    assert!(scene.relation("public", "above").is_none());
    assert_eq!(scene.view("uses_a").query, "SELECT a FROM public.t");
}

#[test]
fn views_keep_the_columns_they_had() {
    let scene = scene();
    scene.ok("create table t (a int, b int)");
    scene.ok("create view v as select * from t");
    scene.ok("create view w as select * from v, t");
    scene.ok("alter table t add column c int");
    assert_eq!(
        scene.view("v").query,
        "SELECT * FROM (SELECT a, b FROM public.t) AS t"
    );
    assert_eq!(
        scene.view("w").query,
        "SELECT * FROM public.v, (SELECT a, b FROM public.t) AS t"
    );
    scene.ok("alter table t rename a to d");
    assert_eq!(
        scene.view("v").query,
        "SELECT * FROM (SELECT d AS a, b FROM public.t) AS t"
    );
    scene.ok("alter table t drop c");
    assert_eq!(columns(&scene, "t"), "d integer, b integer");
    assert_eq!(
        scene.error("alter view v add column c int"),
        (
            ErrorKind::WrongObjectType,
            "ALTER action ADD COLUMN cannot be performed on relation \"v\"".to_owned()
        )
    );
}

#[test]
fn if_exists_only_tells() {
    let scene = scene();
    scene.ok("create table t (a int)");
    let notices = |sql: &str| -> Vec<String> {
        let notices = scene.ok(sql).notices;
        notices.into_iter().map(|notice| notice.message).collect()
    };
    assert_eq!(
        notices("alter table if exists nothing add column a int"),
        ["relation \"nothing\" does not exist, skipping"]
    );
    assert_eq!(
        notices(
            "alter table t drop if exists b, drop constraint if exists c, add if not exists a int"
        ),
        [
            "column \"b\" of relation \"t\" does not exist, skipping",
            "constraint \"c\" of relation \"t\" does not exist, skipping",
            "column \"a\" of relation \"t\" already exists, skipping",
        ]
    );
    assert_eq!(
        scene
            .as_role("alice")
            .error("alter table t add column b int")
            .1,
        "must be owner of table t"
    );
}

#[test]
fn foreign_keys_follow_columns_and_indexes_on_both_sides() {
    let scene = scene();
    scene.ok("create table p (x int, id int primary key, y int unique)");
    scene.ok("create table c (a int, b int, d int)");
    scene.ok("alter table c add foreign key (d) references p, drop a, add e int references c (b), add unique (b), add constraint f foreign key (b) references p (y) not valid");
    scene.ok("alter table p drop x");
    let (c, p) = (scene.table("c"), scene.table("p"));
    let keys: Vec<_> = c
        .foreign_keys
        .iter()
        .map(|key| {
            let refers = (key.referenced, key.referenced_columns.clone(), key.index);
            (key.name.as_str(), key.columns.clone(), refers, key.is_valid)
        })
        .collect();
    assert_eq!(
        keys,
        [
            (
                "c_e_fkey",
                vec![2],
                (c.oid, vec![0], c.indexes[0].oid),
                true
            ),
            ("c_d_fkey", vec![1], (p.oid, vec![0], p.key_oid), true),
            ("f", vec![0], (p.oid, vec![1], p.indexes[0].oid), false),
        ]
    );
    scene.ok("alter table c validate constraint f, drop constraint c_b_key cascade");
    let c = scene.table("c");
    let left: Vec<_> = c
        .foreign_keys
        .iter()
        .map(|key| (key.name.as_str(), key.is_valid))
        .collect();
    assert_eq!(left, [("c_d_fkey", true), ("f", true)]);
    for (sql, kind, message) in [
        (
            "alter table c add constraint f foreign key (b) references p",
            ErrorKind::DuplicateObject,
            "constraint \"f\" for relation \"c\" already exists",
        ),
        (
            "alter table c add foreign key (b, d) references p",
            ErrorKind::InvalidForeignKey,
            "number of referencing and referenced columns for foreign key disagree",
        ),
        (
            "alter table c alter d type text",
            ErrorKind::DatatypeMismatch,
            "foreign key constraint \"c_d_fkey\" cannot be implemented",
        ),
        (
            "alter table p alter y type text",
            ErrorKind::DatatypeMismatch,
            "foreign key constraint \"f\" cannot be implemented",
        ),
        (
            "alter table p drop constraint p_pkey",
            ErrorKind::DependentObjectsStillExist,
            "cannot drop constraint p_pkey on table p because other objects depend on it",
        ),
    ] {
        assert_eq!(scene.error(sql), (kind, message.to_owned()), "{sql}");
    }
}
