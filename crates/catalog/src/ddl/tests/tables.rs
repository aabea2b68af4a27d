//! CREATE TABLE.

use aerostat_sql::deferral::Deferral;

use super::*;

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
    assert_ne!(table.key_oid, IndexId::NONE);
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
    assert_eq!(table.table.layout(), Layout::Column);
}

/// Rows do not lie by a key that two may have for a while.
#[test]
fn a_deferrable_primary_key_is_an_index() {
    let scene = scene();
    scene.ok("create table t (a int primary key deferrable, b int unique initially deferred)");
    let table = scene.table("t");
    let schema = table.table.schema();
    assert!(schema.primary_key.is_empty() && !schema.columns[0].nullable);
    assert_eq!(table.key_oid, IndexId::NONE);
    let indexes = table.indexes.iter();
    let indexes: Vec<_> = indexes
        .map(|index| (index.index.name.as_str(), index.is_primary, index.deferral))
        .collect();
    assert_eq!(
        indexes,
        [
            ("t_pkey", true, Deferral::Immediate),
            ("t_b_key", false, Deferral::Deferred)
        ]
    );
    assert_eq!(table.table.indexes().len(), 2);
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
    let layout = |name: &str| scene.table(name).table.layout();
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
    for (sql, kind, message) in [
        (
            "create table x (a int) with (nonsense = 1)",
            ErrorKind::InvalidParameterValue,
            "unrecognized parameter \"nonsense\"",
        ),
        (
            "create table x (a int) with (layout = '(z)')",
            ErrorKind::UndefinedColumn,
            "layout names column \"z\", which the table does not have",
        ),
        (
            "create table x (a int) with (layout = '(a')",
            ErrorKind::InvalidParameterValue,
            "invalid layout \"(a\": expected 'row', 'column' or groups such as '(a,b),(c)'",
        ),
    ] {
        assert_eq!(scene.error(sql), (kind, message.to_owned()), "{sql}");
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
            "create table t (a int unique not deferrable initially deferred)",
            SyntaxError,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        ),
        (
            "create table t (a int, unique (b))",
            UndefinedColumn,
            "column \"b\" named in key does not exist",
        ),
        (
            "create table t (a int primary key deferrable, b int references t)",
            ObjectNotInPrerequisiteState,
            "cannot use a deferrable primary key for referenced table \"t\"",
        ),
        (
            "create table t (a int unique initially deferred, b int references t (a))",
            ObjectNotInPrerequisiteState,
            "cannot use a deferrable unique constraint for referenced table \"t\"",
        ),
        (
            "create table t (a int, foreign key (a) references t)",
            UndefinedObject,
            "there is no primary key for referenced table \"t\"",
        ),
        (
            "create table t (a int generated always as (1) stored)",
            FeatureNotSupported,
            "generated columns are not supported",
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
            "create table t (a int primary key deferrable, b int primary key)",
            InvalidTableDefinition,
            "multiple primary keys for table \"t\" are not allowed",
        ),
        (
            "create table t (a int default bad())",
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
    let block = scene
        .database
        .store
        .txns()
        .begin_block(Isolation::default());
    let definitions = Definitions::new(&scene.database, &block);
    let draft = Draft::new(&definitions, CancelToken::new(), None);
    let create = |draft: &Draft, sql: &str, columns| {
        let Statement::CreateTable(create) = Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .unwrap()
            .remove(0)
        else {
            panic!("{sql}")
        };
        create_table_as(draft, &scene.actor, &create, scene.layout, columns)
    };
    let created = create(
        &draft,
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
    let other = scene
        .database
        .store
        .txns()
        .begin_block(Isolation::default());
    let rivals = Definitions::new(&scene.database, &other);
    let rival_draft = Draft::new(&rivals, CancelToken::new(), None);
    let rival = create(
        &rival_draft,
        "create table t as select 1",
        vec![integer("a")],
    )
    .unwrap();
    pending.publish(&draft).unwrap();
    assert!(scene.relation("public", "t").is_none());
    assert_eq!(draft.load().unwrap().relations().count(), 1);
    definitions.commit(block).unwrap();
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
    assert_eq!(
        rival.publish(&rival_draft).unwrap_err().kind,
        ErrorKind::DuplicateTable
    );
    let error = |sql, columns| create(&rival_draft, sql, columns).err().unwrap().kind;
    assert_eq!(
        error(
            "create table u as select 1, 2",
            vec![integer("a"), integer("a")]
        ),
        ErrorKind::DuplicateColumn
    );
    let exists = create(
        &rival_draft,
        "create table if not exists t as select 1",
        vec![integer("a")],
    )
    .unwrap();
    assert_eq!(exists.into_result().tag, "CREATE TABLE AS");
}
