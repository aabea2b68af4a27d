//! Dialogues about transactions, with the answers of PostgreSQL 15, and what others see of them.

use std::sync::Arc;

use crate::common::{Fixture, rows_of};
use aerostat_api::{Group, TransactionStatus};
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, SqlError};

/// What comes in one go: a message of the simple protocol, or statements up to a Sync.
enum Sent {
    Message(&'static str),
    Pipeline(&'static [&'static str]),
}

use Sent::{Message, Pipeline};

/// Sends it as a connection does. Gives what comes back: rows and tags, `!` with the SQLSTATE of an error,
/// `?` with that of a warning, and the state that `ReadyForQuery` tells.
async fn send(session: &mut Session, sent: &Sent) -> String {
    let mut said = Vec::new();
    let done = match sent {
        Message(text) => message(session, text, &mut said).await,
        Pipeline(texts) => pipeline(session, texts, &mut said).await,
    };
    if let Err(error) = done {
        session.fail();
        warnings(session, &mut said);
        said.push(format!("!{}", error.kind.sqlstate()));
    }
    said.push(
        match session.rest() {
            TransactionStatus::Idle => "I",
            TransactionStatus::InTransaction => "T",
            TransactionStatus::Failed => "E",
        }
        .to_owned(),
    );
    said.join(" ")
}

async fn message(
    session: &mut Session,
    text: &str,
    said: &mut Vec<String>,
) -> Result<(), SqlError> {
    let statements = session.split(text).await?;
    if statements.len() > 1 {
        session.begin_group(Group::Message);
    }
    for statement in &statements {
        let outcome = session.execute(statement).await?;
        warnings(session, said);
        said.extend(rows_of(outcome).await?);
    }
    session.end_group().await
}

async fn pipeline(
    session: &mut Session,
    texts: &[&str],
    said: &mut Vec<String>,
) -> Result<(), SqlError> {
    for text in texts {
        let prepared = session.prepare(text, &[]).await?;
        session.begin_group(Group::Pipeline);
        let outcome = session.execute_prepared(&prepared, &Arc::default()).await?;
        warnings(session, said);
        said.extend(rows_of(outcome).await?);
    }
    session.end_group().await
}

fn warnings(session: &mut Session, said: &mut Vec<String>) {
    for notice in session.take_notices() {
        said.extend(notice.kind.map(|kind| format!("?{}", kind.sqlstate())));
    }
}

fn hold(dialogues: &[&[(Sent, &str)]]) {
    let fixture = Fixture::new();
    for dialogue in dialogues {
        let mut session = fixture.session();
        for (at, (sent, expected)) in dialogue.iter().enumerate() {
            let text = match sent {
                Message(text) => (*text).to_owned(),
                Pipeline(texts) => texts.join(" | "),
            };
            let answer = fixture.runtime.block_on(send(&mut session, sent));
            assert_eq!(answer, *expected, "line {at}: {text}");
        }
    }
}

#[test]
fn blocks_answer_as_postgresql_does() {
    hold(&[
        // A block that nobody has begun is gone with its error, also if BEGIN was that.
        &[
            (
                Message("select 1; begin isolation level repeatable read"),
                "1 !25001 I",
            ),
            (Message("rollback"), "?25P01 ROLLBACK I"),
        ],
        &[
            (Message("begin"), "BEGIN T"),
            (Message("select 1"), "1 T"),
            (
                Message("begin isolation level repeatable read"),
                "?25001 !25001 E",
            ),
            (Message("begin"), "!25P02 E"),
            (Message("set transaction read only"), "!25P02 E"),
            (Message(";"), "E"),
            (Message("commit and chain"), "ROLLBACK T"),
            (Message("rollback"), "ROLLBACK I"),
        ],
        &[
            (Message("select 1; commit and chain"), "1 !25P01 I"),
            (Message("select 1; savepoint s"), "1 !25P01 I"),
            (
                Message("select 1; commit; rollback; select 2"),
                "1 ?25P01 COMMIT ?25P01 ROLLBACK 2 I",
            ),
            (
                Message("select 1; begin; savepoint s; select 1/0"),
                "1 BEGIN SAVEPOINT !22012 E",
            ),
            (Message("rollback to nope"), "!3B001 E"),
            (Message("rollback to s"), "ROLLBACK T"),
            (Message("commit"), "COMMIT I"),
        ],
        &[
            (Pipeline(&["begin", "select 1/0"]), "BEGIN !22012 E"),
            (Message("rollback"), "ROLLBACK I"),
            (Pipeline(&["select 1", "begin", "select 2"]), "1 BEGIN 2 T"),
            (Message("rollback"), "ROLLBACK I"),
            (
                Pipeline(&["select 1", "commit", "select 2"]),
                "1 ?25P01 COMMIT 2 I",
            ),
        ],
    ]);
}

/// SET TRANSACTION is for the block of several statements that it begins, and for none within savepoints.
#[test]
fn modes_are_as_postgresql_has_them() {
    hold(&[
        &[
            (
                Message(
                    "set transaction isolation level repeatable read; show transaction_isolation",
                ),
                "SET repeatable read I",
            ),
            (Message("show transaction_isolation"), "read committed I"),
            (
                Pipeline(&[
                    "set transaction isolation level repeatable read",
                    "show transaction_isolation",
                ]),
                "?25P01 SET repeatable read I",
            ),
            (
                Message("set transaction isolation level repeatable read"),
                "?25P01 SET I",
            ),
            (Message("set transaction_read_only = on"), "SET I"),
            (Message("show transaction_read_only"), "off I"),
            (
                Message("set transaction read only; create table q (a int)"),
                "SET !25006 I",
            ),
        ],
        &[
            (Message("begin read only"), "BEGIN T"),
            (Message("savepoint s"), "SAVEPOINT T"),
            (Message("set transaction read write"), "!25001 E"),
            (Message("rollback"), "ROLLBACK I"),
            (Message("begin"), "BEGIN T"),
            (Message("savepoint s"), "SAVEPOINT T"),
            (
                Message("set transaction isolation level read committed"),
                "SET T",
            ),
            (
                Message("set transaction isolation level repeatable read"),
                "!25001 E",
            ),
            (Message("rollback"), "ROLLBACK I"),
        ],
        // A savepoint's READ ONLY is not the chained block's, unless it was committed.
        &[
            (Message("begin"), "BEGIN T"),
            (Message("savepoint s"), "SAVEPOINT T"),
            (Message("set transaction read only"), "SET T"),
            (Message("commit and chain"), "COMMIT T"),
            (Message("show transaction_read_only"), "on T"),
            (Message("rollback"), "ROLLBACK I"),
            (Message("begin"), "BEGIN T"),
            (Message("savepoint s"), "SAVEPOINT T"),
            (Message("set transaction read only"), "SET T"),
            (Message("rollback and chain"), "ROLLBACK T"),
            (Message("show transaction_read_only"), "off T"),
            (Message("rollback"), "ROLLBACK I"),
        ],
        // What is said of the transactions to come is a part of its own.
        &[
            (
                Message("set session characteristics as transaction read only; select 1/0"),
                "SET !22012 I",
            ),
            (Message("show default_transaction_read_only"), "off I"),
        ],
        &[
            (
                Pipeline(&["set local application_name = 'a'", "show application_name"]),
                "?25P01 SET a I",
            ),
            (
                Message("set local application_name = 'a'; show application_name"),
                "SET a I",
            ),
            (Message("show application_name"), " I"),
        ],
    ]);
}

/// The settings of a block that has failed are what they were, at once: the client is told before it ends
/// the block.
#[test]
fn a_failed_block_has_no_settings() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    let mut all = |lines: &[(&'static str, Option<&str>)]| {
        for (text, told) in lines {
            fixture.runtime.block_on(send(&mut session, &Message(text)));
            let changes = session.parameter_changes().into_iter();
            let mut names = changes.filter(|(name, _)| name == "application_name");
            assert_eq!(
                names.next().map(|(_, value)| value).as_deref(),
                *told,
                "{text}"
            );
        }
    };
    all(&[
        ("begin", None),
        ("set application_name = 'x'", Some("x")),
        ("select 1/0", Some("")),
        ("rollback", None),
        ("begin", None),
        ("set application_name = 'w'", Some("w")),
        ("savepoint s", None),
        ("set application_name = 'x'", Some("x")),
        ("select 1/0", Some("w")),
        ("rollback to s", None),
        ("commit", None),
        ("set application_name = ''", Some("")),
    ]);
}

/// What a failed block has locked since its newest savepoint is free at once.
#[test]
fn a_failed_block_keeps_nobody_waiting() {
    let fixture = Fixture::new();
    let (mut one, mut other) = (fixture.session(), fixture.session());
    fixture.ok(&mut one, "create table t (id int primary key, a int)");
    fixture.ok(&mut one, "insert into t values (1, 0), (2, 0)");
    let say = |session: &mut Session, text: &'static str| {
        fixture.runtime.block_on(send(session, &Message(text)))
    };
    assert_eq!(say(&mut one, "begin"), "BEGIN T");
    assert_eq!(
        say(&mut one, "update t set a = 1 where id = 1"),
        "UPDATE 1 T"
    );
    assert_eq!(say(&mut one, "savepoint s"), "SAVEPOINT T");
    assert_eq!(
        say(&mut one, "update t set a = 1 where id = 2"),
        "UPDATE 1 T"
    );
    assert_eq!(say(&mut one, "create table u (a int)"), "CREATE TABLE T");
    assert_eq!(say(&mut one, "select 1/0"), "!22012 E");
    assert_eq!(say(&mut other, "set lock_timeout = '10s'"), "SET I");
    assert_eq!(
        say(&mut other, "update t set a = 2 where id = 2"),
        "UPDATE 1 I"
    );
    assert_eq!(say(&mut other, "create table u (b int)"), "CREATE TABLE I");
    assert_eq!(say(&mut other, "set lock_timeout = '50ms'"), "SET I");
    assert_eq!(
        say(&mut other, "update t set a = 2 where id = 1"),
        "!55P03 I"
    );
    assert_eq!(say(&mut one, "rollback to s"), "ROLLBACK T");
    assert_eq!(
        say(&mut one, "update t set a = a + 1 where id = 2"),
        "UPDATE 1 T"
    );
    assert_eq!(say(&mut one, "commit"), "COMMIT I");
    let rows = fixture.ok(&mut one, "select id, a from t order by id");
    assert_eq!(rows, ["1|1", "2|3"]);
}

/// A client that goes while its failed block goes back to a savepoint leaves nothing behind.
#[test]
fn who_leaves_a_failed_block_leaves_nothing() {
    let fixture = Fixture::new();
    let (mut one, mut other) = (fixture.session(), fixture.session());
    fixture.ok(&mut other, "create table t (id int primary key)");
    for text in [
        "begin",
        "insert into t values (1)",
        "create table u (a int)",
        "savepoint s",
        "insert into t values (2)",
        "create table v (a int)",
        "select 1/0",
    ] {
        fixture.runtime.block_on(send(&mut one, &Message(text)));
    }
    drop(one);
    fixture.ok(&mut other, "insert into t values (1), (2)");
    fixture.ok(&mut other, "create table u (a int)");
    fixture.ok(&mut other, "create table v (a int)");
    assert_eq!(fixture.ok(&mut other, "select count(*) from t"), ["2"]);
}

/// What a function sets for the transaction while the rows of its query go out ends with them.
#[test]
fn set_config_ends_with_its_rows() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    let local = "select count(*), max(set_config('application_name', g::text, true)) \
                 from generate_series(1, 10) g";
    let many =
        "select set_config('application_name', 'far', true) from generate_series(1, 300000) g";
    for text in [local, many] {
        fixture.runtime.block_on(send(&mut session, &Message(text)));
        let shown = fixture.ok(&mut session, "show application_name");
        assert_eq!(shown, [""], "{text}");
    }
}

/// Others see where a session stands after an error, whatever way the statement took.
#[test]
fn activity_tells_of_failed_blocks() {
    let fixture = Fixture::new();
    let (mut one, mut other, mut third) = (fixture.session(), fixture.session(), fixture.session());
    fixture.ok(&mut one, "create table t (id int primary key, a int)");
    fixture.ok(&mut one, "insert into t values (1, 0)");
    let mut seen = |number: i32| {
        let text = format!("select state from pg_stat_activity where pid = {number}");
        fixture.ok(&mut third, &text).remove(0)
    };
    let say = |session: &mut Session, text: &'static str| {
        fixture.runtime.block_on(send(session, &Message(text)))
    };
    let number = one.number();
    assert_eq!(say(&mut one, "begin"), "BEGIN T");
    assert_eq!(seen(number), "idle in transaction");
    // It is not even read.
    assert_eq!(say(&mut one, "selekt"), "!42601 E");
    assert_eq!(seen(number), "idle in transaction (aborted)");
    assert_eq!(say(&mut one, "rollback"), "ROLLBACK I");
    assert_eq!(seen(number), "idle");
    // By key, after a wait.
    assert_eq!(say(&mut other, "begin"), "BEGIN T");
    assert_eq!(
        say(&mut other, "update t set a = 1 where id = 1"),
        "UPDATE 1 T"
    );
    assert_eq!(say(&mut one, "set lock_timeout = '20ms'"), "SET I");
    assert_eq!(say(&mut one, "update t set a = 2 where id = 1"), "!55P03 I");
    assert_eq!(seen(number), "idle");
    assert_eq!(say(&mut one, "begin"), "BEGIN T");
    assert_eq!(say(&mut one, "update t set a = 2 where id = 1"), "!55P03 E");
    assert_eq!(seen(number), "idle in transaction (aborted)");
}

/// A statement is refused alike, whatever way it would take.
#[test]
fn all_ways_are_guarded_alike() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (id int primary key, a int)");
    fixture.ok(&mut session, "insert into t values (1, 0)");
    fixture.ok(&mut session, "prepare p as update t set a = 1 where id = 1");
    let ways = [
        "update t set a = 1 where id = 1",
        "update t set a = a + 1 where id + 0 = 1",
        "execute p",
        "explain analyze update t set a = 1 where id = 1",
        "copy (update t set a = 1 where id = 1 returning a) to stdout",
        "with u as (update t set a = 1 returning a) select * from u",
    ];
    let prepared = fixture
        .runtime
        .block_on(session.prepare(ways[0], &[]))
        .unwrap();
    let by_protocol = |session: &mut Session| {
        let values = Arc::default();
        let run = session.execute_prepared(&prepared, &values);
        let ran = fixture.runtime.block_on(run).map(drop);
        if ran.is_err() {
            session.fail();
        }
        ran
    };
    for (before, kind) in [
        ("begin read only", ErrorKind::ReadOnlyTransaction),
        ("begin; select 1/0", ErrorKind::InFailedTransaction),
        (
            "set default_transaction_read_only = on",
            ErrorKind::ReadOnlyTransaction,
        ),
    ] {
        for way in ways {
            fixture
                .runtime
                .block_on(send(&mut session, &Message(before)));
            assert_eq!(fixture.kind(&mut session, way), kind, "{before}: {way}");
            session.fail();
            fixture
                .runtime
                .block_on(send(&mut session, &Message("rollback")));
        }
        fixture
            .runtime
            .block_on(send(&mut session, &Message(before)));
        assert_eq!(
            by_protocol(&mut session).unwrap_err().kind,
            kind,
            "{before}"
        );
        fixture
            .runtime
            .block_on(send(&mut session, &Message("rollback")));
    }
    fixture.ok(&mut session, "reset all");
    assert_eq!(fixture.ok(&mut session, "select a from t"), ["0"]);
    by_protocol(&mut session).unwrap();
    assert_eq!(fixture.ok(&mut session, "select a from t"), ["1"]);
}
