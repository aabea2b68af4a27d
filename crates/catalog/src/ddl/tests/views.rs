//! Views and dependencies.

use super::*;

#[test]
fn a_view_means_the_same_under_any_search_path() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create schema s");
    scene.ok("create table s.\"U\" (a int)");
    scene.ok(
        "create view v as with t2 as (select a from t), t as (select a from t) \
         select t.a from t, t2, s.\"U\" as x, generate_series(1, 2) where t.a in (select a from public.t) order by 1",
    );
    let view = scene.view("v");
    assert_eq!(
        view.query,
        "WITH t2 AS (SELECT a FROM public.t), t AS (SELECT a FROM public.t) \
         SELECT t.a FROM t, t2, s.\"U\" AS x, generate_series(1, 2) WHERE t.a IN (SELECT a FROM public.t) ORDER BY 1"
    );
    let state = scene.database.catalog.load();
    let needs: Vec<_> = relations_in(&state, &view.query)
        .unwrap()
        .into_iter()
        .map(|p| (p.schema, p.name))
        .collect();
    assert_eq!(
        needs,
        [
            ("public".to_owned(), "t".to_owned()),
            ("s".to_owned(), "U".to_owned())
        ]
    );
    scene.ok("create view r as with recursive t as (select 1 as a union all select a from t) select a from t");
    assert!(
        relations_in(&state, &scene.view("r").query)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn deeply_nested_common_table_expressions_are_visited_once() {
    let scene = scene();
    let mut query = "select 1 as a".to_owned();
    for depth in 0..40 {
        query = format!("with c{depth} as ({query}) select a from c{depth}");
    }
    let Statement::Query(mut query) = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(1000)
        .try_with_sql(&query)
        .unwrap()
        .parse_statement()
        .unwrap()
    else {
        panic!()
    };
    let state = scene.database.catalog.load();
    assert!(
        qualify_query(&state, &scene.actor, &mut query)
            .unwrap()
            .is_empty()
    );
    assert!(query.to_string().contains("WITH c0 AS"));
}

#[test]
fn views_are_made_and_replaced() {
    let scene = scene();
    scene.ok("create table t (a int, b int)");
    scene.ok("create view v (x) as select a, b from t");
    let oid = scene.view("v").oid;
    let names = |view: &ViewEntry| {
        view.columns
            .iter()
            .map(|c| c.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&scene.view("v")), ["x", "b"]);
    scene.ok("create or replace view v as select a as x, b, a as c from t");
    assert_eq!(
        (names(&scene.view("v")).len(), scene.view("v").oid),
        (3, oid)
    );
    for (sql, kind, message) in [
        (
            "create view v as select 1 as x",
            ErrorKind::DuplicateTable,
            "relation \"v\" already exists",
        ),
        (
            "create or replace view v as select a as x from t",
            ErrorKind::InvalidTableDefinition,
            "cannot drop columns from view",
        ),
        (
            "create or replace view v as select a as y, b, a as c from t",
            ErrorKind::InvalidTableDefinition,
            "cannot change name of view column \"x\" to \"y\"",
        ),
        (
            "create or replace view t as select 1 as a",
            ErrorKind::WrongObjectType,
            "\"t\" is not a view",
        ),
        (
            "create view w (p, q) as select 1 as a",
            ErrorKind::SyntaxError,
            "CREATE VIEW specifies more column names than columns",
        ),
        (
            "create view w as select 1 as a, 2 as a",
            ErrorKind::DuplicateColumn,
            "column \"a\" specified more than once",
        ),
        (
            "create view w as select a from nowhere.t",
            ErrorKind::InvalidSchemaName,
            "schema \"nowhere\" does not exist",
        ),
    ] {
        assert_eq!(scene.error(sql), (kind, message.to_owned()), "{sql}");
    }
    scene.ok("create view w as select x from v");
    assert_eq!(
        scene.error("create or replace view v as select x, 1 as b, 2 as c from w"),
        (
            ErrorKind::InvalidTableDefinition,
            "view \"v\" would depend on itself".to_owned()
        )
    );
    assert_eq!(
        scene.error("create or replace view w as select x from w").0,
        ErrorKind::InvalidTableDefinition
    );
}

#[test]
fn what_views_need_is_dropped_with_them_or_not_at_all() {
    let scene = scene();
    scene.ok("create table t (a int)");
    scene.ok("create table u (a int)");
    scene.ok("create view v as select a from t");
    scene.ok("create view w as select a from v");
    let error = scene.run("drop table u, t").unwrap_err();
    assert_eq!(
        error.message,
        "cannot drop desired object(s) because other objects depend on them"
    );
    let error = scene.run("drop table t").unwrap_err();
    assert_eq!(error.kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        error.message,
        "cannot drop table t because other objects depend on it"
    );
    assert_eq!(
        error.detail.unwrap(),
        "view v depends on table t\nview w depends on view v"
    );
    assert!(scene.relation("public", "u").is_some());
    let notice = scene.ok("drop view v cascade").notices.remove(0);
    assert_eq!(notice.message, "drop cascades to view w");
    scene.ok("create view v as select a from t");
    scene.ok("create view w as select a from v, u");
    let notice = scene.ok("drop table t, u cascade").notices.remove(0);
    assert_eq!(notice.message, "drop cascades to 2 other objects");
    assert_eq!(
        notice.detail.unwrap(),
        "drop cascades to view v\ndrop cascades to view w"
    );
    assert_eq!(scene.database.catalog.load().relations().count(), 0);
    scene.ok("create table t (a int)");
    scene.ok("create view v as select a from t");
    scene.ok("drop view v");
    scene.ok("drop table t");
}
