//! Tables that change while they are followed: the import stops before the first row of the new form, says what to do,
//! and goes on once that is done.

use crate::{
    compare::{rows, run, same, settle},
    imports::{finish, notes, options, start},
    servers::Pair,
};

/// What is run at the source, what the error says, and the statements it gives.
const CHANGES: &[(&str, &str, &[&str])] = &[
    (
        "ALTER TABLE items ADD COLUMN extra text; INSERT INTO items VALUES (100, 'new', 1, 'e')",
        "column extra is new",
        &[r#"ALTER TABLE "public"."items" ADD COLUMN "extra" text"#],
    ),
    (
        "ALTER TABLE items ADD COLUMN filled int NOT NULL DEFAULT 7; UPDATE items SET label = 'f' WHERE id = 1",
        "column filled is new",
        &[
            r#"ALTER TABLE "public"."items" ADD COLUMN "filled" integer DEFAULT '7' NOT NULL"#,
            r#"ALTER TABLE "public"."items" ALTER COLUMN "filled" SET DEFAULT 7"#,
        ],
    ),
    (
        "ALTER TABLE items RENAME COLUMN label TO title; DELETE FROM items WHERE id = 2",
        "column label is named title",
        &[r#"ALTER TABLE "public"."items" RENAME COLUMN "label" TO "title""#],
    ),
    (
        "ALTER TABLE items ALTER COLUMN amount TYPE bigint; INSERT INTO items (id, amount) VALUES (101, 5000000000)",
        "column amount is bigint and not integer",
        &[r#"ALTER TABLE "public"."items" ALTER COLUMN "amount" TYPE bigint"#],
    ),
    (
        "ALTER TABLE items DROP COLUMN extra; INSERT INTO items (id) VALUES (102)",
        "column extra is gone",
        &[r#"ALTER TABLE "public"."items" DROP COLUMN "extra""#],
    ),
    (
        "ALTER TABLE items RENAME TO goods; INSERT INTO goods (id) VALUES (103)",
        "it was named public.items",
        &[r#"ALTER TABLE "public"."items" RENAME TO "goods""#],
    ),
    (
        "ALTER TABLE goods ALTER COLUMN title TYPE varchar(20); INSERT INTO goods (id, title) VALUES (104, 'short')",
        "column title is character varying(20) and not text",
        &[r#"ALTER TABLE "public"."goods" ALTER COLUMN "title" TYPE character varying(20)"#],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_stop_and_go_on_after_the_statement() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("forms").await;
    run(
        &source,
        "CREATE TABLE items (id int PRIMARY KEY, label text, amount int);
         INSERT INTO items SELECT g, 'l' || g, g FROM generate_series(1, 50) g;
         CREATE TABLE other (id int PRIMARY KEY, v int)",
    )
    .await;
    for (number, (change, text, statements)) in CHANGES.iter().enumerate() {
        let running = start(options(&pair, "forms"));
        running.follows().await;
        // Transactions right before the change are made, and the change's own one is not.
        let before: String = (0..20)
            .map(|at| format!("INSERT INTO other VALUES ({}, 0);", number * 100 + at))
            .collect();
        for statement in before.split_terminator(';') {
            run(&source, statement).await;
        }
        let within = format!(
            "BEGIN; INSERT INTO other VALUES ({}, 1); {change}; COMMIT",
            number * 100 + 50
        );
        run(&source, &within).await;
        let error = running.error().await;
        assert!(error.contains(text), "{change}: {error}");
        for statement in *statements {
            assert!(error.contains(statement), "{change}: {error}");
        }
        let there = rows(
            &target,
            &format!("SELECT id FROM other WHERE id >= {}", number * 100),
        )
        .await;
        assert_eq!(
            there.len(),
            20,
            "{change}: the transactions before it, and they alone"
        );
        // Again, the same; and then it goes on.
        assert!(start(options(&pair, "forms")).error().await.contains(text));
        for statement in *statements {
            run(&target, statement).await;
        }
        let running = start(options(&pair, "forms"));
        let table = if number >= 5 { "goods" } else { "items" };
        settle(&running, &source, &target, &[table, "other"]).await;
        running.kill().await;
    }
    finish(options(&pair, "forms")).await;
    same(&source, &target, &["goods", "other"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_statement_mends_is_told() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("forms").await;
    run(
        &source,
        "CREATE TABLE items (id int PRIMARY KEY, v int); INSERT INTO items VALUES (1, 1)",
    )
    .await;
    let running = start(options(&pair, "forms"));
    running.follows().await;
    run(
        &source,
        "ALTER TABLE items ADD COLUMN odd double precision DEFAULT random(), ADD COLUMN j jsonb; INSERT INTO items VALUES (2, 2)",
    )
    .await;
    let error = running.error().await;
    assert!(
        error.contains("column j is new, and has a type that is not supported"),
        "{error}"
    );
    assert!(
        error.contains("values are in no log, so drop the import and begin again"),
        "{error}"
    );
    let mut drop = options(&pair, "forms");
    drop.action = aerostat_import::Action::Drop;
    crate::imports::import(drop).await.0.expect("it is dropped");
    for query in [
        "SELECT slot_name FROM pg_replication_slots",
        "SELECT pubname FROM pg_publication",
    ] {
        assert!(
            source.query(query, &[]).await.expect("rows").is_empty(),
            "{query}"
        );
    }
    // As texts, and from the beginning, it goes.
    run(&target, "DROP TABLE items").await;
    let mut again = options(&pair, "forms");
    again.as_text = true;
    let running = start(again.clone());
    running.follows().await;
    run(
        &source,
        r#"INSERT INTO items VALUES (3, 3, 0.5, '{"a": [1, 2]}')"#,
    )
    .await;
    settle(&running, &source, &target, &["items"]).await;
    running.kill().await;
    finish(again).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_come_and_go_are_told() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("forms").await;
    run(&source, "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY)").await;
    let running = start(options(&pair, "forms"));
    running.follows().await;
    running.kill().await;
    run(
        &source,
        "CREATE TABLE d (id int PRIMARY KEY); DROP TABLE b; INSERT INTO a VALUES (1)",
    )
    .await;
    let running = start(options(&pair, "forms"));
    settle(&running, &source, &target, &["a"]).await;
    let told = notes(&running.told.lock().expect("nobody panics"));
    assert!(told.contains("public.d is new at the source"), "{told}");
    assert!(told.contains("public.b is gone from the source"), "{told}");
    running.kill().await;
    run(&source, "ALTER PUBLICATION aerostat_forms DROP TABLE c").await;
    let error = start(options(&pair, "forms")).error().await;
    assert!(
        error.contains("public.c differs at the source")
            && error.contains("is not in the publication"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publication_that_is_given_is_used_and_left() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("forms").await;
    run(
        &source,
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE TABLE c (j jsonb);
         CREATE PUBLICATION everything FOR ALL TABLES",
    )
    .await;
    let mut given = options(&pair, "forms");
    given.publication = Some("everything".to_owned());
    given.exclude = vec!["c".to_owned(), "b".to_owned()];
    let running = start(given.clone());
    running.follows().await;
    // Changes of a table that is left out pass by.
    run(
        &source,
        "INSERT INTO b VALUES (1); INSERT INTO a VALUES (1); INSERT INTO c VALUES ('1')",
    )
    .await;
    settle(&running, &source, &target, &["a"]).await;
    run(
        &source,
        "CREATE TABLE d (id int PRIMARY KEY); INSERT INTO d VALUES (1)",
    )
    .await;
    let error = running.error().await;
    assert!(
        error.contains("public.d differs at the source")
            && error.contains("came after the import began"),
        "{error}"
    );
    given.exclude.push("d".to_owned());
    finish(given).await;
    let left = rows(&source, "SELECT pubname FROM pg_publication").await;
    assert_eq!(left, ["everything"]);
}
