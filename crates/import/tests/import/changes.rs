//! Changes of every kind, row by row the same on both sides.

use crate::{
    compare::{run, same, settle},
    imports::{finish, import, notes, options, start},
    servers::Pair,
};

/// Every type that both sides have, with values at their ends.
const TYPES: &str = r#"
CREATE SCHEMA "Odd ""schema";
CREATE TABLE "Odd ""schema"."Tä ble" (
    "K ey" int PRIMARY KEY, b boolean, i2 smallint, i8 bigint, f4 real, f8 double precision, n numeric(38,10),
    n2 numeric(5,0), t text, vc varchar(7), v varchar, c char(5), by bytea, d date, ti time, ts timestamp,
    tz timestamptz, iv interval, u uuid, "select" text DEFAULT 'x''y');
INSERT INTO "Odd ""schema"."Tä ble" VALUES
    (1, true, -32768, 9223372036854775807, 1.1754944e-38, 1.7976931348623157e308, 1234567890123456789012345678.0123456789,
     -99999, E'tab\tnew\nline\\back\r\b', 'äöü€', '', 'ab', '\x00ff5c0a', '0001-01-01', '23:59:59.999999',
     '1999-12-31 23:59:59.999999', '2038-01-19 03:14:08.000001+00', '-1 year -2 mons +3 days -04:05:06.789',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', NULL),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '\N'),
    (-2147483648, false, 32767, -9223372036854775808, 'NaN', '-Infinity', -0.0000000001, 0, '', '', E'\\.', '',
     '', '9999-12-31', '00:00', '0001-01-01 00:00:00', '1970-01-01 00:00:00+14', '00:00',
     '00000000-0000-0000-0000-000000000000', repeat('long ', 3000));
"#;

const TYPED: &str = r#"SELECT * FROM "Odd ""schema"."Tä ble""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_and_definitions_come_whole() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("kinds").await;
    run(&source, TYPES).await;
    run(
        &source,
        "CREATE SEQUENCE loose START 5 INCREMENT 3; SELECT nextval('loose'), nextval('loose');
         CREATE TABLE parent (id serial PRIMARY KEY, code text UNIQUE, CONSTRAINT long CHECK (length(code) > 1));
         CREATE TABLE child (id bigint GENERATED ALWAYS AS IDENTITY (START WITH 10) PRIMARY KEY,
             parent int REFERENCES parent ON DELETE CASCADE, at timestamp(3) DEFAULT now(), note text);
         CREATE INDEX child_parent ON child (parent);
         CREATE INDEX child_some ON child (note) WHERE note IS NOT NULL;
         INSERT INTO parent (code) VALUES ('aa'), ('bb');
         INSERT INTO child (parent, note) VALUES (1, 'x'), (2, NULL);
         CREATE TABLE empty (id int PRIMARY KEY);",
    )
    .await;
    let running = start(options(&pair, "kinds"));
    let tables = [TYPED, "parent", "child", "empty"];
    running.follows().await;
    same(&source, &target, &tables).await;
    // The same values as changes, after they went through every column.
    run(
        &source,
        r#"UPDATE "Odd ""schema"."Tä ble" SET "K ey" = -"K ey" - 5 WHERE "K ey" > 0;
           INSERT INTO "Odd ""schema"."Tä ble" SELECT "K ey" + 100, b, i2, i8, f4, f8, n, n2, t, vc, v, c, by, d, ti, ts, tz,
               iv, u, "select" FROM "Odd ""schema"."Tä ble" WHERE "K ey" < 100;
           DELETE FROM "Odd ""schema"."Tä ble" WHERE "K ey" = -2147483648;
           INSERT INTO child (parent, note) SELECT 1, 'n' || g FROM generate_series(1, 300) g;
           DELETE FROM parent WHERE id = 1;
           INSERT INTO parent (code) VALUES ('cc');"#,
    )
    .await;
    settle(&running, &source, &target, &tables).await;
    let told = running.told.lock().expect("nobody panics").clone();
    running.kill().await;
    if pair.target.is_aerostat() {
        assert!(
            notes(&told).contains("index child_some of public.child is left out"),
            "{}",
            notes(&told)
        );
    }
    assert!(
        notes(&told).contains("public.child.at is timestamp without time zone instead of"),
        "{}",
        notes(&told)
    );
    finish(options(&pair, "kinds")).await;
    same(&source, &target, &tables).await;
    // The target is its own master: sequences go on, and foreign keys act.
    for client in [&source, &target] {
        run(
            client,
            "INSERT INTO parent (code) VALUES ('dd'); INSERT INTO child (parent) VALUES (2), (4);
             DELETE FROM parent WHERE id = 2; INSERT INTO parent (id) VALUES (nextval('loose') + 100)",
        )
        .await;
        let refused = client
            .batch_execute("INSERT INTO child (parent) VALUES (77)")
            .await
            .expect_err("no such parent");
        assert_eq!(refused.code().map(|code| code.code()), Some("23503"));
        let refused = client
            .batch_execute("INSERT INTO child (id) VALUES (77)")
            .await
            .expect_err("always");
        assert_eq!(refused.code().map(|code| code.code()), Some("428C9"));
        let refused = client
            .batch_execute("INSERT INTO parent (code) VALUES ('z')")
            .await
            .expect_err("too short");
        assert_eq!(refused.code().map(|code| code.code()), Some("23514"));
    }
    same(
        &source,
        &target,
        &["parent", "SELECT id, parent, note FROM child"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_every_kind_are_made() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("kinds").await;
    run(
        &source,
        "CREATE TABLE keyed (a int, b text, v int, PRIMARY KEY (a, b));
         CREATE TABLE keys_only (a int PRIMARY KEY);
         CREATE TABLE toasted (id int PRIMARY KEY, small int, big text, other text);
         ALTER TABLE toasted ALTER COLUMN big SET STORAGE EXTERNAL;
         CREATE TABLE whole (a int, b text, big text); ALTER TABLE whole REPLICA IDENTITY FULL;
         ALTER TABLE whole ALTER COLUMN big SET STORAGE EXTERNAL;
         CREATE TABLE whole_keyed (a int PRIMARY KEY, b text); ALTER TABLE whole_keyed REPLICA IDENTITY FULL;
         CREATE TABLE by_index (a int NOT NULL, b int); CREATE UNIQUE INDEX by_a ON by_index (a);
         ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_a;
         CREATE TABLE late (id int PRIMARY KEY, place int, UNIQUE (place) DEFERRABLE);
         CREATE TABLE parts (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
         CREATE TABLE wide (id int PRIMARY KEY, v text);
         INSERT INTO keyed SELECT g, 'k' || g, g FROM generate_series(1, 50) g;
         INSERT INTO toasted SELECT g, g, repeat(md5(g::text), 300), 'o' FROM generate_series(1, 20) g;
         INSERT INTO whole VALUES (1, 'x', NULL), (1, 'x', NULL), (1, 'x', NULL), (NULL, NULL, repeat('q', 9000));
         INSERT INTO late SELECT g, g FROM generate_series(1, 9) g;
         INSERT INTO parts VALUES (1, 1), (2, 11);",
    )
    .await;
    let tables = [
        "keyed",
        "keys_only",
        "toasted",
        "whole",
        "whole_keyed",
        "by_index",
        "late",
        "parts",
        "wide",
    ];
    let running = start(options(&pair, "kinds"));
    running.follows().await;
    same(&source, &target, &tables).await;
    for statements in [
        // Keys change, also so that each takes the place of the next.
        "UPDATE keyed SET a = a + 1000, b = b || 'x' WHERE a <= 25; UPDATE keyed SET v = v + 1; DELETE FROM keyed WHERE v = 30",
        "INSERT INTO keys_only SELECT generate_series(1, 200); UPDATE keys_only SET a = -a; DELETE FROM keys_only WHERE a = -7",
        "BEGIN; UPDATE keys_only SET a = 100000 - a WHERE a < 0; INSERT INTO keys_only VALUES (-1); COMMIT",
        "BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE late SET place = 10 - place; COMMIT; UPDATE late SET place = place + 1",
        // Long values that do not change are not told.
        "UPDATE toasted SET small = small + 1; UPDATE toasted SET other = 'p' WHERE id = 3; UPDATE toasted SET id = id + 500 WHERE id < 5",
        "UPDATE toasted SET big = repeat('z', 5000) WHERE id = 10; UPDATE toasted SET big = NULL WHERE id = 11; DELETE FROM toasted WHERE id = 12",
        // Of rows that are alike one changes.
        "DELETE FROM whole WHERE ctid = (SELECT min(ctid) FROM whole WHERE a = 1)",
        "UPDATE whole SET b = 'y' WHERE ctid = (SELECT min(ctid) FROM whole WHERE a = 1); UPDATE whole SET a = 5 WHERE a IS NULL",
        "UPDATE whole SET b = 'x' WHERE a = 1; UPDATE whole SET b = 'x' WHERE a = 5",
        "INSERT INTO whole_keyed SELECT g, 'w' FROM generate_series(1, 30) g; UPDATE whole_keyed SET a = a + 100 WHERE a > 20; UPDATE whole_keyed SET b = NULL; DELETE FROM whole_keyed WHERE a = 1",
        "INSERT INTO by_index SELECT g, g FROM generate_series(1, 30) g; UPDATE by_index SET a = a + 100 WHERE a > 20; UPDATE by_index SET b = NULL WHERE a = 2; DELETE FROM by_index WHERE a = 1",
        // A row that moves between partitions.
        "UPDATE parts SET at = at + 10 WHERE at < 10; INSERT INTO parts SELECT g, g % 20 FROM generate_series(10, 99) g",
        // Many rows, of which none, one and all are left in the end.
        "BEGIN; INSERT INTO wide SELECT g, repeat('w', g % 100) FROM generate_series(1, 20000) g; UPDATE wide SET v = v || '!' WHERE id % 3 = 0; DELETE FROM wide WHERE id % 2 = 0; COMMIT",
        "BEGIN; SAVEPOINT a; INSERT INTO wide VALUES (-1, 'no'); ROLLBACK TO a; INSERT INTO wide VALUES (-2, 'yes'); COMMIT",
        "BEGIN; INSERT INTO keyed VALUES (-1, 'no', 0); ROLLBACK",
        "TRUNCATE keyed; INSERT INTO keyed VALUES (1, 'after', 1); TRUNCATE by_index, whole_keyed RESTART IDENTITY CASCADE",
        "BEGIN; INSERT INTO late VALUES (70, 70); TRUNCATE late; INSERT INTO late VALUES (71, 71); COMMIT",
        "TRUNCATE parts",
    ] {
        run(&source, statements).await;
        settle(&running, &source, &target, &tables).await;
    }
    running.kill().await;
    finish(options(&pair, "kinds")).await;
    same(&source, &target, &tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_alone_needs_no_replication_and_leaves_nothing() {
    let Some(pair) = Pair::with(&["wal_level=replica"]).await else {
        return;
    };
    let (source, target) = pair.database("once").await;
    run(
        &source,
        "CREATE TABLE bare (a int, b text); INSERT INTO bare SELECT g, 'b' || g FROM generate_series(1, 100000) g;
         CREATE TABLE up (id serial PRIMARY KEY); CREATE TABLE down (up int REFERENCES up);
         INSERT INTO up DEFAULT VALUES; INSERT INTO down VALUES (1)",
    )
    .await;
    let mut once = options(&pair, "once");
    once.action = aerostat_import::Action::Once;
    let (summary, _) = import(once.clone()).await;
    let summary = summary.expect("it is copied");
    assert_eq!((summary.rows, summary.lsn), (100_002, None));
    same(&source, &target, &["bare", "up", "down"]).await;
    assert!(
        target
            .query("SELECT name FROM aerostat_import.progress", &[])
            .await
            .expect("rows")
            .is_empty()
    );
    let refused = target
        .batch_execute("INSERT INTO down VALUES (9)")
        .await
        .expect_err("the foreign key is there");
    assert_eq!(refused.code().map(|code| code.code()), Some("23503"));
    // A second time the rows would be there twice.
    let (again, _) = import(once.clone()).await;
    let again = again.expect_err("there are rows").to_string();
    assert!(
        again.contains("public.bare at the target: it has rows"),
        "{again}"
    );
    run(&target, "ALTER TABLE down DROP CONSTRAINT down_up_fkey").await;
    once.truncate = true;
    let (summary, _) = import(once).await;
    assert_eq!(summary.expect("it is copied").rows, 100_002);
    same(&source, &target, &["bare", "up", "down"]).await;
}
