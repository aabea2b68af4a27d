//! What cannot be imported is told by name, and nothing is changed on either side.

use aerostat_import::Action;

use crate::{
    compare::{rows, run, settle},
    imports::{chain, finish, import, options, start},
    servers::Pair,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_told_before_anything_begins() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("unfit").await;
    run(
        &source,
        "CREATE TYPE mood AS ENUM ('good', 'bad');
         CREATE TABLE kinds (id int PRIMARY KEY, j jsonb, a int[], m mood, n numeric(50,2), fine text);
         CREATE TABLE computed (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED);
         CREATE TABLE bare (v int);
         CREATE UNLOGGED TABLE quick (id int PRIMARY KEY);
         CREATE TABLE late (id int PRIMARY KEY DEFERRABLE);
         CREATE TABLE there (id int PRIMARY KEY); CREATE TABLE full_table (id int PRIMARY KEY, v int);",
    )
    .await;
    run(&target, "CREATE TABLE there (id bigint PRIMARY KEY); CREATE TABLE full_table (id int PRIMARY KEY, v int);
        INSERT INTO full_table VALUES (1, 1)")
    .await;
    let (result, _) = import(options(&pair, "unfit")).await;
    let error = result.expect_err("it does not fit").to_string();
    for text in [
        "public.kinds.j: the type jsonb is not supported",
        "public.kinds.a: the type integer[] is not supported",
        "public.kinds.m: the type public.mood is not supported",
        "public.kinds.n: the type numeric(50,2) is not supported",
        "public.computed.twice: generated columns",
        "public.bare: its rows have no identity",
        r#"ALTER TABLE "public"."bare" REPLICA IDENTITY FULL"#,
        "public.late: its rows have no identity",
        "public.quick: it is unlogged",
        "public.there at the target: column id is integer and not bigint",
        "public.full_table at the target: it has rows",
    ] {
        assert!(error.contains(text), "{text}: {error}");
    }
    assert!(!error.contains("fine"), "{error}");
    // Nothing was made on either side, and the source still takes changes of the table without an identity.
    let made = "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
                WHERE nspname = 'public' AND relkind = 'r' ORDER BY 1";
    assert_eq!(rows(&target, made).await, ["full_table", "there"]);
    for query in [
        "SELECT slot_name FROM pg_replication_slots",
        "SELECT pubname FROM pg_publication",
    ] {
        assert!(rows(&source, query).await.is_empty(), "{query}");
    }
    run(
        &source,
        "INSERT INTO bare VALUES (1); UPDATE bare SET v = 2",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_does_not_do_is_told() {
    let Some(pair) = Pair::with(&["wal_level=replica"]).await else {
        return;
    };
    let (source, _target) = pair.database("plain").await;
    run(
        &source,
        "CREATE TABLE a (id int PRIMARY KEY); CREATE ROLE weak LOGIN",
    )
    .await;
    let (result, _) = import(options(&pair, "plain")).await;
    let error = result.expect_err("no log to read").to_string();
    assert!(
        error.contains("its wal_level is replica, not logical"),
        "{error}"
    );
    let mut weak = options(&pair, "plain");
    weak.source = weak.source.replace("aerostat@", "weak@");
    let error = import(weak).await.0.expect_err("no rights").to_string();
    for text in [
        "role weak: it may not replicate",
        "public.a: the role weak may not read it",
    ] {
        assert!(error.contains(text), "{text}: {error}");
    }
    let mut nothing = options(&pair, "plain");
    nothing.tables = vec!["nowhere.b".to_owned()];
    let error = import(nothing)
        .await
        .0
        .expect_err("no such table")
        .to_string();
    assert!(
        error.contains("nowhere.b: there is no such table"),
        "{error}"
    );
    let mut wrong = options(&pair, "plain");
    wrong.source = wrong.source.replace("/plain", "/nowhere");
    let error = chain(&import(wrong).await.0.expect_err("no such database"));
    assert!(error.contains("does not exist"), "{error}");
    let mut unknown = options(&pair, "plain");
    unknown.action = Action::Finish;
    let error = import(unknown)
        .await
        .0
        .expect_err("nothing to finish")
        .to_string();
    assert!(
        error.contains("knows of no import named aerostat_plain"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_with_more_digits_are_errors_and_not_rounded() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("digits").await;
    run(&source, "CREATE TABLE n (id int PRIMARY KEY, v numeric); INSERT INTO n VALUES (1, 1.5), (2, 0.12345678901)").await;
    let error = import(options(&pair, "digits"))
        .await
        .0
        .expect_err("too many digits")
        .to_string();
    assert!(
        error.contains("public.n: the target's column v has 10 digits")
            && error.contains("0.12345678901"),
        "{error}"
    );
    run(&source, "UPDATE n SET v = 2.5000000000000000 WHERE id = 2").await;
    let running = start(options(&pair, "digits"));
    running.follows().await;
    run(&source, "INSERT INTO n VALUES (3, 3.25)").await;
    let values = "SELECT id, v::numeric(38,10) FROM n";
    settle(&running, &source, &target, &[values]).await;
    run(&source, "INSERT INTO n VALUES (4, 0.00000000001)").await;
    let error = running.error().await;
    assert!(error.contains("0.00000000001"), "{error}");
    // The target's column can be given more digits.
    run(&target, "ALTER TABLE n ALTER COLUMN v TYPE numeric(38,20)").await;
    let running = start(options(&pair, "digits"));
    settle(
        &running,
        &source,
        &target,
        &["SELECT id, v::numeric(38,20) FROM n"],
    )
    .await;
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_somebody_else_changed_stop_the_import() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("conflict").await;
    run(&source, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
    let running = start(options(&pair, "conflict"));
    running.follows().await;
    run(
        &target,
        "DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (9, 'theirs')",
    )
    .await;
    run(
        &source,
        "BEGIN; UPDATE t SET v = 'x' WHERE id = 1; UPDATE t SET v = 'y' WHERE id = 2; COMMIT",
    )
    .await;
    let error = running.error().await;
    assert!(
        error.contains("public.t has no row (id)=(2) at the target, which the source changed"),
        "{error}"
    );
    assert_eq!(
        rows(&target, "SELECT v FROM t WHERE id = 1").await,
        ["a"],
        "nothing is half made"
    );
    run(&target, "INSERT INTO t VALUES (2, 'b')").await;
    let running = start(options(&pair, "conflict"));
    running.follows().await;
    run(
        &source,
        "BEGIN; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (8, 'ours'), (9, 'ours'); COMMIT",
    )
    .await;
    let error = running.error().await;
    assert!(
        error.contains("public.t cannot take a row") && error.contains("(id)=(9)"),
        "{error}"
    );
    assert_eq!(
        rows(&target, "SELECT v FROM t WHERE id = 3").await,
        ["c"],
        "nothing is half made"
    );
    run(&target, "DELETE FROM t WHERE id = 9").await;
    finish(options(&pair, "conflict")).await;
    assert_eq!(
        rows(&target, "TABLE t").await,
        rows(&source, "TABLE t").await
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_importer_of_a_name_runs_and_foreign_slots_stay() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("busy").await;
    run(&source, "CREATE TABLE t (id int PRIMARY KEY)").await;
    run(
        &source,
        "SELECT pg_create_logical_replication_slot('aerostat_busy', 'pgoutput')",
    )
    .await;
    let error = import(options(&pair, "busy"))
        .await
        .0
        .expect_err("the slot is another's")
        .to_string();
    assert!(
        error.contains("aerostat_busy: the source has a slot or a publication of this name"),
        "{error}"
    );
    assert_eq!(
        rows(&source, "SELECT slot_name FROM pg_replication_slots").await,
        ["aerostat_busy"]
    );
    run(&source, "SELECT pg_drop_replication_slot('aerostat_busy')").await;
    let running = start(options(&pair, "busy"));
    running.follows().await;
    let error = import(options(&pair, "busy"))
        .await
        .0
        .expect_err("one runs")
        .to_string();
    assert!(
        error.contains("another import named aerostat_busy is running"),
        "{error}"
    );
    assert!(!running.ended());
    // One that came from elsewhere and took over: the first commits nothing more.
    run(
        &target,
        "UPDATE aerostat_import.progress SET epoch = epoch + 1",
    )
    .await;
    run(&source, "INSERT INTO t VALUES (1)").await;
    let error = running.error().await;
    assert!(
        error.contains("another import named aerostat_busy has taken over"),
        "{error}"
    );
    assert!(rows(&target, "TABLE t").await.is_empty());
    // A source that is another one.
    run(
        &target,
        "UPDATE aerostat_import.progress SET source = '1/elsewhere'",
    )
    .await;
    let error = import(options(&pair, "busy"))
        .await
        .0
        .expect_err("another source")
        .to_string();
    assert!(
        error.contains("is of another source: 1/elsewhere"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_that_ask_for_passwords_get_them() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("secret").await;
    pair.source.ask_for_passwords().await;
    run(
        &source,
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)",
    )
    .await;
    for role in ["scram-sha-256", "md5", "password"] {
        let encryption = if role == "md5" {
            "md5"
        } else {
            "scram-sha-256"
        };
        run(
            &source,
            &format!("SET password_encryption = '{encryption}'; CREATE ROLE \"{role}\" SUPERUSER LOGIN PASSWORD 'it''s \u{e9} secret'"),
        )
        .await;
        let mut asked = options(&pair, "secret");
        asked.truncate = true;
        let url = |password: &str| {
            pair.source
                .url("secret")
                .replace("aerostat@", &format!("{role}:{password}@"))
        };
        asked.source = url("wrong");
        let error = chain(&import(asked.clone()).await.0.expect_err("a wrong password"));
        assert!(
            error.contains("password authentication failed") && !error.contains("wrong"),
            "{error}"
        );
        asked.source = url("it's%20%C3%A9%20secret");
        let running = start(asked.clone());
        running.follows().await;
        settle(&running, &source, &target, &["t"]).await;
        running.kill().await;
        finish(asked).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_sources_are_checked() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("sealed").await;
    run(&source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE ROLE far SUPERUSER LOGIN").await;
    let certificate = pair.source.encrypt().await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let url = pair.source.url("sealed").replace("aerostat@", "far@");
    let mut plain = options(&pair, "sealed");
    plain.source = url.clone();
    let error = chain(&import(plain.clone()).await.0.expect_err("not encrypted"));
    assert!(error.contains("no encryption"), "{error}");
    let mut unknown = plain.clone();
    unknown.source = format!("{}?sslmode=require", url.replace("127.0.0.1", "localhost"));
    let trusted = tempfile::NamedTempFile::new().expect("a file");
    let other =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(trusted.path(), other.cert.pem()).expect("it is ours");
    unknown.trust = Some(trusted.path().to_owned());
    let error = chain(
        &import(unknown.clone())
            .await
            .0
            .expect_err("another's certificate"),
    );
    assert!(error.contains("certificate"), "{error}");
    let mut misnamed = unknown.clone();
    misnamed.source = format!("{url}?sslmode=require");
    misnamed.trust = Some(certificate.clone());
    let error = chain(
        &import(misnamed)
            .await
            .0
            .expect_err("a certificate for localhost"),
    );
    assert!(error.contains("certificate"), "{error}");
    let mut sealed = unknown;
    sealed.trust = Some(certificate);
    sealed.source = sealed.source.replace("=require", "=verify-full");
    let running = start(sealed.clone());
    running.follows().await;
    run(&source, "INSERT INTO t SELECT generate_series(2, 5000)").await;
    settle(&running, &source, &target, &["t"]).await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'far' AND NOT ssl";
    assert_eq!(rows(&source, encrypted).await, ["0"]);
    let senders = "SELECT count(*) FROM pg_stat_replication WHERE usename = 'far'";
    assert_eq!(rows(&source, senders).await, ["1"]);
    running.kill().await;
    finish(sealed).await;
}
