//! Schema statements against a database in memory.

use std::sync::Arc;

use aerostat_memory::Governor;
use aerostat_storage::TenantStore;
use aerostat_types::{
    ByteSize, Column, ErrorKind, Layout, SqlError, SqlType, TableSchema, TenantId,
};
use datafusion::sql::sqlparser::{
    ast::{Query, SelectItem, SetExpr, Statement},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::*;
use crate::{
    catalog::{Privilege, Relation, TableEntry, ViewEntry, node::Database},
    utility::{self, Utility},
};

/// A database and whoever speaks to it.
struct Scene {
    database: Arc<Database>,
    actor: Actor,
    layout: DefaultLayout,
}

/// Stands for the planner: an expression with `bad` in it is wrong, and a
/// query gives integers named as its select list names them.
struct Planner;

impl ExpressionChecker for Planner {
    fn check_default(&self, column: &Column, sql: &str) -> Result<(), SqlError> {
        if sql.contains("bad") {
            return Err(SqlError::new(
                ErrorKind::DatatypeMismatch,
                format!("bad default of {}", column.name),
            ));
        }
        Ok(())
    }

    fn check_condition(&self, schema: &TableSchema, sql: &str) -> Result<(), SqlError> {
        if sql.contains("bad") {
            return Err(SqlError::new(
                ErrorKind::UndefinedColumn,
                format!("bad check of {}", schema.name),
            ));
        }
        Ok(())
    }
}

impl PlanColumns for Planner {
    fn plan_columns(&self, query: &Query) -> Result<Vec<Column>, SqlError> {
        let SetExpr::Select(select) = &*query.body else {
            return Ok(vec![integer("column1")]);
        };
        Ok(select
            .projection
            .iter()
            .map(|item| match item {
                SelectItem::ExprWithAlias { alias, .. } => integer(&alias.value),
                other => integer(&other.to_string()),
            })
            .collect())
    }
}

fn integer(name: &str) -> Column {
    Column {
        name: name.to_owned(),
        ty: SqlType::Integer,
        nullable: true,
        default: None,
    }
}

fn scene() -> Scene {
    let governor = Governor::new(ByteSize(64 << 20));
    let store = TenantStore::new(TenantId(1), governor.budget("d", None));
    Scene {
        database: Database::new(TenantId(1), "d", "owner", store),
        actor: actor("owner"),
        layout: DefaultLayout::Column,
    }
}

fn actor(role: &str) -> Actor {
    Actor {
        role: role.to_owned(),
        superuser: role == "root",
        database: "d".to_owned(),
        database_owner: role == "owner",
        create_in_database: false,
        search_path: vec!["$user".to_owned(), "public".to_owned()],
    }
}

impl Scene {
    fn run(&self, sql: &str) -> Result<CommandResult, SqlError> {
        let exists = |name: &str| ["owner", "alice", "bob", "root"].contains(&name);
        match utility::parse(sql)? {
            Some(Utility::Schema(command)) => {
                execute(&self.database, &self.actor, &command, &exists)
            }
            Some(Utility::Grant(statement)) => {
                grant(&self.database, &self.actor, &statement, &exists)
            }
            Some(Utility::Comment(statement)) => comment(&self.database, &self.actor, &statement),
            Some(other) => panic!("not a schema statement: {other:?}"),
            None => match Parser::parse_sql(&PostgreSqlDialect {}, sql)
                .unwrap()
                .remove(0)
            {
                Statement::CreateTable(create) => {
                    create_table(&self.database, &self.actor, &create, self.layout, &Planner)
                }
                Statement::CreateView(create) => {
                    create_view(&self.database, &self.actor, &create, &Planner)
                }
                other => panic!("not a schema statement: {other:?}"),
            },
        }
    }

    fn ok(&self, sql: &str) -> CommandResult {
        self.run(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The error's kind and message.
    fn error(&self, sql: &str) -> (ErrorKind, String) {
        let error = self.run(sql).expect_err(sql);
        (error.kind, error.message)
    }

    fn as_role(&self, role: &str) -> Scene {
        Scene {
            database: Arc::clone(&self.database),
            actor: actor(role),
            layout: self.layout,
        }
    }

    fn relation(&self, schema: &str, name: &str) -> Option<Relation> {
        self.database.catalog.load().relation(schema, name).cloned()
    }

    fn table(&self, name: &str) -> Arc<TableEntry> {
        match self.relation("public", name) {
            Some(Relation::Table(table)) => table,
            _ => panic!("no table {name}"),
        }
    }

    fn view(&self, name: &str) -> Arc<ViewEntry> {
        match self.relation("public", name) {
            Some(Relation::View(view)) => view,
            _ => panic!("no view {name}"),
        }
    }
}

#[test]
fn a_table_has_what_its_definition_says() {
    let scene = scene();
    let result = scene.ok(
        "create table T (a int primary key, b varchar(3) not null default 'x' || 'y' check (b <> ''), \
         \"C\" numeric(5,2) null, check (a > 0), check (a < b), constraint named check (a <> 7), check (b < 'z'))",
    );
    assert_eq!(result, CommandResult::new("CREATE TABLE"));
    let table = scene.table("t");
    let schema = table.table.schema();
    assert_eq!(schema.primary_key, [0]);
    assert_eq!(schema.primary_key_name, "t_pkey");
    assert_ne!(table.key_oid, 0);
    let columns: Vec<_> = schema
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.nullable, c.default.as_deref()))
        .collect();
    assert_eq!(
        columns,
        [
            ("a", false, None),
            ("b", false, Some("'x' || 'y'")),
            ("C", true, None)
        ]
    );
    let checks: Vec<_> = schema
        .checks
        .iter()
        .map(|c| (c.name.as_str(), c.expression.as_str()))
        .collect();
    assert_eq!(
        checks,
        [
            ("t_b_check", "b <> ''"),
            ("t_a_check", "a > 0"),
            ("t_check", "a < b"),
            ("named", "a <> 7"),
            ("t_b_check1", "b < 'z'"),
        ]
    );
    assert_eq!(table.table.layout(), &Layout::Column);
}

#[test]
fn keys_may_be_named_and_span_columns() {
    let scene = scene();
    scene.ok("create table t (a int, b int, constraint k primary key (b, a))");
    let schema = scene.table("t").table.schema().clone();
    assert_eq!(
        (&schema.primary_key[..], schema.primary_key_name.as_str()),
        (&[1, 0][..], "k")
    );
    assert!(schema.columns.iter().all(|column| !column.nullable));
    scene.ok("create table u_pkey (a int constraint k2 primary key)");
    scene.ok("create table u (a int, primary key (a))");
    assert_eq!(scene.table("u").table.schema().primary_key_name, "u_pkey1");
    assert_eq!(
        scene.error("create table k (a int)"),
        (
            ErrorKind::DuplicateTable,
            "relation \"k\" already exists".into()
        )
    );
    assert_eq!(
        scene
            .error("create table w (a int constraint k primary key)")
            .0,
        ErrorKind::DuplicateTable
    );
}

#[test]
fn layouts_come_from_the_table_or_the_setting() {
    let mut scene = scene();
    scene.ok("create table r (a int, b int) with (layout = 'row')");
    scene.ok("create table g (a int, b int, c int) with (layout = '(c,a),(b)')");
    scene.layout = DefaultLayout::Pairs;
    scene.ok("create table p (a int, b int, c int)");
    let layout = |name: &str| scene.table(name).table.layout().clone();
    assert_eq!(layout("r"), Layout::Row);
    assert_eq!(layout("g").to_string(), "(c,a),(b)");
    assert_eq!(layout("p").to_string(), "(a,b),(c)");
    let notices = scene
        .ok("create table f (a int) with (fillfactor = 90)")
        .notices;
    assert_eq!(
        notices[0].message,
        "storage parameter \"fillfactor\" has no effect"
    );
    for (sql, message) in [
        (
            "create table x (a int) with (nonsense = 1)",
            "unrecognized parameter \"nonsense\"",
        ),
        (
            "create table x (a int) with (layout = '(z)')",
            "layout names column \"z\", which the table does not have",
        ),
        (
            "create table x (a int) with (layout = '(a')",
            "invalid layout \"(a\": expected 'row', 'column' or groups such as '(a,b),(c)'",
        ),
    ] {
        assert_eq!(
            scene.error(sql),
            (ErrorKind::InvalidParameterValue, message.to_owned()),
            "{sql}"
        );
    }
    assert_eq!(
        "pairs".parse::<DefaultLayout>().unwrap().to_string(),
        "pairs"
    );
    assert!("nonsense".parse::<DefaultLayout>().is_err());
}

#[test]
fn wrong_definitions_are_refused() {
    use ErrorKind::*;
    let scene = scene();
    let many = |count: usize| {
        let columns: Vec<_> = (0..count).map(|at| format!("c{at} int")).collect();
        format!("create table t ({})", columns.join(", "))
    };
    for (sql, kind, message) in [
        (
            "create table t (a int, A int)",
            DuplicateColumn,
            "column \"a\" specified more than once",
        ),
        (
            "create table t (ctid int)",
            DuplicateColumn,
            "column name \"ctid\" conflicts with a system column name",
        ),
        (
            "create table t (a int null not null)",
            SyntaxError,
            "conflicting NULL/NOT NULL declarations for column \"a\" of table \"t\"",
        ),
        (
            "create table t (a int null primary key)",
            SyntaxError,
            "conflicting NULL/NOT NULL declarations for column \"a\" of table \"t\"",
        ),
        (
            "create table t (a int primary key, primary key (a))",
            InvalidTableDefinition,
            "multiple primary keys for table \"t\" are not allowed",
        ),
        (
            "create table t (a int, primary key (b))",
            UndefinedColumn,
            "column \"b\" named in key does not exist",
        ),
        (
            "create table t (a int, primary key (a, a))",
            DuplicateColumn,
            "column \"a\" appears twice in primary key constraint",
        ),
        (
            "create table t (a int default 1 default 2)",
            SyntaxError,
            "multiple default values specified for column \"a\" of table \"t\"",
        ),
        (
            "create table t (a int, constraint c check (a > 0), constraint c check (a > 1))",
            DuplicateObject,
            "constraint \"c\" for relation \"t\" already exists",
        ),
        (
            "create table t (end int)",
            SyntaxError,
            "syntax error at or near \"end\"",
        ),
        (
            "create table grant (a int)",
            SyntaxError,
            "syntax error at or near \"grant\"",
        ),
        (
            "create table t (a nonsense)",
            UndefinedObject,
            "type \"nonsense\" does not exist",
        ),
        (
            "create table t (a int unique)",
            FeatureNotSupported,
            "UNIQUE constraints are not supported",
        ),
        (
            "create table t (a int, unique (a))",
            FeatureNotSupported,
            "UNIQUE constraints are not supported",
        ),
        (
            "create table t (a int references u)",
            FeatureNotSupported,
            "foreign keys are not supported",
        ),
        (
            "create table t (a int, foreign key (a) references u (a))",
            FeatureNotSupported,
            "foreign keys are not supported",
        ),
        (
            "create table t (a int generated always as identity)",
            FeatureNotSupported,
            "generated and identity columns are not supported",
        ),
        (
            "create table t (a int generated always as (1) stored)",
            FeatureNotSupported,
            "generated and identity columns are not supported",
        ),
        (
            "create table t (a text collate \"de_DE\")",
            FeatureNotSupported,
            "collation \"de_DE\" is not supported",
        ),
        (
            "create table t (a int) inherits (u)",
            FeatureNotSupported,
            "inheritance is not supported",
        ),
        (
            "create table t (a int) partition by range (a)",
            FeatureNotSupported,
            "partitioned tables are not supported",
        ),
        (
            "create table t (a int primary key deferrable)",
            FeatureNotSupported,
            "deferrable constraints are not supported",
        ),
        (
            "create table t (a int default bad)",
            DatatypeMismatch,
            "bad default of a",
        ),
        (
            "create table t (a int check (bad))",
            UndefinedColumn,
            "bad check of t",
        ),
        (
            "create table nowhere.t (a int)",
            InvalidSchemaName,
            "schema \"nowhere\" does not exist",
        ),
        (
            "create table pg_catalog.t (a int)",
            InsufficientPrivilege,
            "permission denied to create \"pg_catalog.t\"",
        ),
        (
            "create table other.public.t (a int)",
            FeatureNotSupported,
            "cross-database references are not implemented: \"other.public.t\"",
        ),
        (
            many(1601).as_str(),
            TooManyColumns,
            "tables can have at most 1600 columns",
        ),
    ] {
        assert_eq!(scene.error(sql), (kind, message.to_owned()), "{sql}");
    }
    assert!(scene.relation("public", "t").is_none());
    scene.ok(&many(1600));
    scene.ok("create table ok (a text collate \"C\")");
}

#[test]
fn names_that_exist_are_refused_or_skipped() {
    let scene = scene();
    scene.ok("create table t (a int)");
    assert_eq!(
        scene.error("create table t (b int)").1,
        "relation \"t\" already exists"
    );
    let notices = scene.ok("create table if not exists t (b int)").notices;
    assert_eq!(
        notices[0].message,
        "relation \"t\" already exists, skipping"
    );
    assert_eq!(scene.table("t").table.schema().columns[0].name, "a");
    let long = "x".repeat(70);
    let notices = scene.ok(&format!("create table {long} (a int)")).notices;
    assert!(notices[0].message.ends_with(
        "will be truncated to \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""
    ));
    scene.ok(&format!("drop table {long}"));
}

#[test]
fn a_table_can_be_like_another() {
    let scene = scene();
    scene.ok("create table t (a int primary key default 5, b text)");
    scene.ok("create table u (like t)");
    scene.ok("create table w (like t including defaults)");
    let columns = scene.table("u").table.schema().columns.clone();
    assert_eq!(
        (
            columns[0].nullable,
            columns[0].default.as_deref(),
            columns[1].ty
        ),
        (false, None, SqlType::Text)
    );
    assert!(scene.table("u").table.schema().primary_key.is_empty());
    assert_eq!(
        scene.table("w").table.schema().columns[0]
            .default
            .as_deref(),
        Some("5")
    );
}

#[test]
fn a_table_made_from_a_query_is_unseen_until_it_is_published() {
    let scene = scene();
    let create = |sql: &str, columns| {
        let Statement::CreateTable(create) = Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .unwrap()
            .remove(0)
        else {
            panic!("{sql}")
        };
        create_table_as(
            &scene.database,
            &scene.actor,
            &create,
            scene.layout,
            columns,
        )
    };
    let created = create(
        "create table t as select 1 as x, 2 as b",
        vec![integer("x"), integer("b")],
    )
    .unwrap();
    let CreatedTable::Pending(pending) = created else {
        panic!()
    };
    assert_eq!(
        (pending.schema(), pending.entry().name.as_str()),
        ("public", "t")
    );
    assert!(scene.relation("public", "t").is_none());
    let rival = create("create table t as select 1", vec![integer("a")]).unwrap();
    pending.publish().unwrap();
    let names: Vec<_> = scene
        .table("t")
        .table
        .schema()
        .columns
        .iter()
        .map(|c| c.name.clone())
        .collect();
    assert_eq!(names, ["x", "b"]);
    let CreatedTable::Pending(rival) = rival else {
        panic!()
    };
    assert_eq!(rival.publish().unwrap_err().kind, ErrorKind::DuplicateTable);
    let error = |sql, columns| create(sql, columns).err().unwrap().kind;
    assert_eq!(
        error(
            "create table u as select 1, 2",
            vec![integer("a"), integer("a")]
        ),
        ErrorKind::DuplicateColumn
    );
    let exists = create(
        "create table if not exists t as select 1",
        vec![integer("a")],
    )
    .unwrap();
    assert_eq!(exists.into_result().tag, "CREATE TABLE AS");
}

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
    for (sql, kind) in [
        (
            "alter table z.u rename to w",
            ErrorKind::FeatureNotSupported,
        ),
        ("alter schema z rename to y", ErrorKind::FeatureNotSupported),
        (
            "alter table z.u rename a to b",
            ErrorKind::FeatureNotSupported,
        ),
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
    assert_eq!(scene.database.catalog.load().epoch, before.epoch + 1);
    assert_eq!(before.relations().count(), 2);
    let before = scene.database.catalog.load();
    scene.run("drop table t").unwrap_err();
    assert!(Arc::ptr_eq(&before, &scene.database.catalog.load()));
}
