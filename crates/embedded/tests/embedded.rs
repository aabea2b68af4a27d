//! A program's own database: what is committed is there again, errors leave connections usable,
//! threads work side by side, and everything ends in any order.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_embedded::{
    Aerostat, ByteSize, ConnectOptions, Connection, ErrorKind, Observer, OpenError, Options,
    Parameter, Pinning, Rows, SqlError, SqlType, StatementRecord, TransactionStatus, Value,
    arrow::{
        array::{
            Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, StringViewArray,
        },
        datatypes::{DataType, Int64Type},
        util::display::{ArrayFormatter, FormatOptions},
    },
};

fn options(data: &Path) -> Options {
    small(Options::new(data))
}

fn small(options: Options) -> Options {
    Options {
        memory: ByteSize(512 << 20),
        threads: 2,
        ..options
    }
}

fn temporary() -> Aerostat {
    Aerostat::open(small(Options::temporary())).unwrap()
}

/// Rows as `a|b`, NULL as nothing.
fn texts(rows: Rows<'_>) -> Result<Vec<String>, SqlError> {
    let options = FormatOptions::new().with_null("");
    let mut texts = Vec::new();
    for batch in rows {
        let batch = batch?;
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            texts.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    Ok(texts)
}

fn query(connection: &mut Connection, sql: &str) -> Vec<String> {
    let rows = connection.query(sql).and_then(texts);
    rows.unwrap_or_else(|error| panic!("{sql}\n{error:?}"))
}

fn kind(connection: &mut Connection, sql: &str) -> ErrorKind {
    match connection.query(sql).and_then(texts) {
        Ok(rows) => panic!("{sql}\ngave {rows:?}"),
        Err(error) => error.kind,
    }
}

#[test]
fn what_was_committed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = Aerostat::open(options(folder.path())).unwrap();
    let mut connection = database.connect().unwrap();
    let made = connection.execute("CREATE DATABASE shop").unwrap();
    assert_eq!((made.tag.as_str(), made.rows), ("CREATE DATABASE", 0));
    drop(connection);
    let shop = ConnectOptions {
        database: "shop".to_owned(),
        ..ConnectOptions::default()
    };
    let mut connection = database.connect_with(&shop).unwrap();
    connection
        .execute("CREATE TABLE t (id int PRIMARY KEY, word text)")
        .unwrap();
    let done = connection
        .execute("INSERT INTO t VALUES (1, 'one'), (2, NULL)")
        .unwrap();
    assert_eq!((done.tag.as_str(), done.rows), ("INSERT 0 2", 2));
    connection
        .execute("BEGIN; INSERT INTO t VALUES (3, 'lost')")
        .unwrap();
    drop(connection);
    database.close().unwrap();

    let database = Aerostat::open(options(folder.path())).unwrap();
    let mut connection = database.connect_with(&shop).unwrap();
    assert_eq!(
        query(&mut connection, "SELECT * FROM t ORDER BY id"),
        ["1|one", "2|"]
    );
}

#[test]
fn a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let database = Aerostat::open(options(folder.path())).unwrap();
    let refused = Aerostat::open(options(folder.path())).err().unwrap();
    assert!(
        matches!(&refused, OpenError::InUse { path } if path == folder.path()),
        "{refused:?}"
    );
    let message = refused.to_string();
    assert!(
        message.contains("another process uses the data folder"),
        "{message}"
    );
    let connection = database.connect().unwrap();
    let error = database.close().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ObjectInUse);
    assert!(Aerostat::open(options(folder.path())).is_err());
    // The last connection closes it.
    drop(connection);
    Aerostat::open(options(folder.path())).unwrap();
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Aerostat::open(Options {
        memory: ByteSize(1 << 20),
        ..options(folder.path())
    });
    assert!(matches!(error.err().unwrap(), OpenError::Memory { .. }));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Aerostat::open(options(&file)).err().unwrap();
    assert!(matches!(error, OpenError::Node { .. }), "{error:?}");
    let error = Aerostat::open(Options {
        calibration: Some(folder.path().join("none.json")),
        ..options(folder.path())
    });
    assert!(matches!(error.err().unwrap(), OpenError::Unreadable { .. }));
    let database = temporary();
    let nobody = ConnectOptions {
        role: "nobody".to_owned(),
        ..ConnectOptions::default()
    };
    let error = database.connect_with(&nobody).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAuthorization);
    let nowhere = ConnectOptions {
        database: "nowhere".to_owned(),
        ..ConnectOptions::default()
    };
    let error = database.connect_with(&nowhere).unwrap_err();
    assert_eq!(error.kind.sqlstate(), "3D000");
}

#[test]
fn a_temporary_folder_is_removed() {
    let database = temporary();
    let folder = database.data().to_owned();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        .unwrap();
    assert!(folder.join("catalog.json").exists());
    drop(connection);
    database.close().unwrap();
    assert!(!folder.exists());
}

#[test]
fn rows_of_all_types_are_arrow() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    let types = [
        ("boolean", "true"),
        ("smallint", "-7"),
        ("integer", "7"),
        ("bigint", "9000000000"),
        ("real", "0.5"),
        ("double precision", "0.25"),
        ("numeric(12,2)", "12.50"),
        ("char(3)", "'ab'"),
        ("varchar(5)", "'abc'"),
        ("text", "'ä'"),
        ("bytea", r"'\x0102'"),
        ("uuid", "'00000000-0000-0000-0000-00000000000a'"),
        ("date", "'2026-01-31'"),
        ("time", "'12:30'"),
        ("timestamp", "'2026-01-31 12:30'"),
        ("timestamptz", "'2026-01-31 12:30+00'"),
        ("interval", "'1 day'"),
    ];
    let columns: Vec<String> = types
        .iter()
        .enumerate()
        .map(|(at, (ty, _))| format!("c{at} {ty}"))
        .collect();
    let values: Vec<String> = types
        .iter()
        .map(|(ty, value)| format!("{value}::{ty}"))
        .collect();
    connection
        .execute(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, {})",
            columns.join(", ")
        ))
        .unwrap();
    connection
        .execute(&format!("INSERT INTO t VALUES (1, {})", values.join(", ")))
        .unwrap();
    let nulls = vec!["NULL"; types.len()].join(", ");
    connection
        .execute(&format!("INSERT INTO t VALUES (2, {nulls})"))
        .unwrap();
    // By key, on the caller's thread; and planned.
    for sql in [
        "SELECT * FROM t WHERE id = 1",
        "SELECT * FROM t WHERE id < 2",
    ] {
        let mut rows = connection.query(sql).unwrap();
        let described = rows.columns().unwrap().clone();
        let batch = rows.next().unwrap().unwrap();
        assert!(rows.next().is_none());
        assert_eq!(rows.finish().unwrap().tag, "SELECT 1");
        assert_eq!(batch.num_columns(), described.len());
        for (column, array) in described.iter().zip(batch.columns()) {
            let ty = column.ty.unwrap();
            assert_eq!(*array.data_type(), ty.arrow(), "{}", column.name);
            assert!(array.is_valid(0), "{}", column.name);
        }
        assert_eq!(
            described[7].ty,
            Some(SqlType::Numeric {
                precision: 12,
                scale: 2
            })
        );
        let numbers: &Decimal128Array = batch.column(7).as_primitive();
        assert_eq!(numbers.value(0), 1250);
        assert_eq!(batch.column(10).as_string_view().value(0), "ä");
    }
    let nulls = query(&mut connection, "SELECT * FROM t WHERE id = 2");
    assert_eq!(nulls, [format!("2{}", "|".repeat(types.len()))]);
}

#[test]
fn prepared_statements_take_parameters_of_all_types() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    let cases: [(&str, &dyn Parameter, &str); 16] = [
        ("boolean", &true, "true"),
        ("smallint", &7i32, "7"),
        ("integer", &7i64, "7"),
        ("bigint", &7i16, "7"),
        ("real", &0.5f64, "0.5"),
        ("double precision", &0.25f32, "0.25"),
        ("numeric(12,2)", &12.5f64, "12.50"),
        ("numeric(12,2)", &"3.10", "3.10"),
        ("text", &"x", "x"),
        ("varchar(5)", &"abc".to_owned(), "abc"),
        ("bytea", &vec![1u8, 2], "0102"),
        (
            "uuid",
            &"00000000-0000-0000-0000-00000000000a",
            "0000000000000000000000000000000a",
        ),
        ("date", &"2026-01-31", "2026-01-31"),
        ("date", &Value::I32(1), "1970-01-02"),
        ("timestamp", &"2026-01-31 12:30", "2026-01-31T12:30:00"),
        ("integer", &None::<i32>, ""),
    ];
    for (ty, parameter, expected) in cases {
        let statement = connection
            .prepare(&format!("SELECT $1::{ty} AS v"))
            .unwrap();
        assert_eq!(statement.parameters().len(), 1);
        assert_eq!(statement.columns().unwrap()[0].name, "v");
        for _ in 0..2 {
            let rows = statement.query(&mut connection, &[parameter]).unwrap();
            assert_eq!(texts(rows).unwrap(), [expected], "{ty}");
        }
    }
    let list = connection
        .prepare("SELECT id FROM generate_series(1, 5) g(id) WHERE id = ANY ($1) ORDER BY id")
        .unwrap();
    let rows = list.query(&mut connection, &[&"{2,4,9}"]).unwrap();
    assert_eq!(texts(rows).unwrap(), ["2", "4"]);
}

#[test]
fn prepared_statements_by_key_read_and_write() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id bigint PRIMARY KEY, n int)")
        .unwrap();
    let insert = connection.prepare("INSERT INTO t VALUES ($1, $2)").unwrap();
    for id in 0..100i64 {
        let done = insert.execute(&mut connection, &[&id, &(id * 2)]).unwrap();
        assert_eq!((done.tag.as_str(), done.rows), ("INSERT 0 1", 1));
    }
    let select = connection.prepare("SELECT n FROM t WHERE id = $1").unwrap();
    for id in [0i64, 50, 99] {
        let rows = select.query(&mut connection, &[&id]).unwrap();
        assert_eq!(texts(rows).unwrap(), [(id * 2).to_string()]);
    }
    let update = connection
        .prepare("UPDATE t SET n = n + $2 WHERE id = $1")
        .unwrap();
    assert_eq!(update.execute(&mut connection, &[&7, &1]).unwrap().rows, 1);
    assert_eq!(
        update.execute(&mut connection, &[&700, &1]).unwrap().rows,
        0
    );
    // Definitions that change are followed.
    connection
        .execute("ALTER TABLE t ADD COLUMN more text DEFAULT 'm'")
        .unwrap();
    let rows = select.query(&mut connection, &[&7]).unwrap();
    assert_eq!(texts(rows).unwrap(), ["15"]);
    connection.execute("DROP TABLE t").unwrap();
    let error = select.query(&mut connection, &[&7]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::UndefinedTable);
}

#[test]
fn mistakes_with_parameters_are_errors() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    let statement = connection.prepare("SELECT $1::int + $2::int").unwrap();
    let error = |connection: &mut Connection, parameters: &[&dyn Parameter]| {
        statement.query(connection, parameters).unwrap_err()
    };
    assert_eq!(
        error(&mut connection, &[&1]).kind,
        ErrorKind::UndefinedParameter
    );
    assert_eq!(
        error(&mut connection, &[&1, &2, &3]).kind,
        ErrorKind::UndefinedParameter
    );
    let wrong = error(&mut connection, &[&1, &true]);
    assert_eq!(wrong.kind, ErrorKind::DatatypeMismatch);
    assert!(wrong.detail.unwrap().contains("$2"));
    assert_eq!(
        error(&mut connection, &[&1, &i64::MAX]).kind,
        ErrorKind::NumericValueOutOfRange
    );
    let mut other = database.connect().unwrap();
    assert_eq!(
        error(&mut other, &[&1, &2]).kind,
        ErrorKind::InvalidStatementName
    );
    // Of another database with the same numbers of everything, too.
    let elsewhere = temporary();
    let mut elsewhere = elsewhere.connect().unwrap();
    assert_eq!(
        error(&mut elsewhere, &[&1, &2]).kind,
        ErrorKind::InvalidStatementName
    );
    let rows = statement.query(&mut connection, &[&1, &2]).unwrap();
    assert_eq!(texts(rows).unwrap(), ["3"]);
}

#[test]
fn errors_leave_the_connection_usable() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id int PRIMARY KEY)")
        .unwrap();
    let mut kinds = |sql: &str| kind(&mut connection, sql);
    assert_eq!(kinds("SELEC 1"), ErrorKind::SyntaxError);
    assert_eq!(kinds("SELECT 1; SELECT 2"), ErrorKind::SyntaxError);
    assert_eq!(kinds("SELECT * FROM nowhere"), ErrorKind::UndefinedTable);
    assert_eq!(
        kinds("SELECT 1 / (x - x) FROM generate_series(1, 2) g(x)"),
        ErrorKind::DivisionByZero
    );
    assert_eq!(
        kinds("INSERT INTO t VALUES (NULL)"),
        ErrorKind::NotNullViolation
    );
    assert_eq!(kinds("COPY t FROM STDIN"), ErrorKind::FeatureNotSupported);
    let several = connection.execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)");
    let error = several.unwrap_err();
    assert_eq!(
        (error.kind, error.kind.sqlstate()),
        (ErrorKind::UniqueViolation, "23505")
    );
    assert!(connection.prepare("SELECT nothing").is_err());
    // All of several statements, or none.
    assert_eq!(query(&mut connection, "SELECT count(*) FROM t"), ["0"]);
    let done = connection
        .execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); SELECT * FROM t")
        .unwrap();
    assert_eq!((done.tag.as_str(), done.rows), ("SELECT 2", 2));
    assert_eq!(connection.execute("  ").unwrap().tag, "");
    assert!(connection.query("").unwrap().columns().is_none());
    assert_eq!(connection.status(), TransactionStatus::Idle);
}

#[test]
fn transactions_are_blocks_of_sql() {
    let database = temporary();
    let mut one = database.connect().unwrap();
    let mut other = database.connect().unwrap();
    one.execute("CREATE TABLE t (id int PRIMARY KEY)").unwrap();
    one.execute("BEGIN").unwrap();
    one.execute("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(one.status(), TransactionStatus::InTransaction);
    assert_eq!(query(&mut other, "SELECT count(*) FROM t"), ["0"]);
    assert_eq!(query(&mut one, "SELECT count(*) FROM t"), ["1"]);
    one.execute("COMMIT").unwrap();
    assert_eq!(query(&mut other, "SELECT count(*) FROM t"), ["1"]);
    one.execute("BEGIN").unwrap();
    assert_eq!(
        kind(&mut one, "INSERT INTO t VALUES (1)"),
        ErrorKind::UniqueViolation
    );
    assert_eq!(one.status(), TransactionStatus::Failed);
    assert_eq!(kind(&mut one, "SELECT 1"), ErrorKind::InFailedTransaction);
    assert_eq!(one.execute("COMMIT").unwrap().tag, "ROLLBACK");
    // A block whose connection is dropped is rolled back.
    one.execute("BEGIN; DELETE FROM t").unwrap();
    drop(one);
    assert_eq!(query(&mut other, "DELETE FROM t RETURNING id"), ["1"]);
}

#[test]
fn rows_may_be_left() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    let sql = "SELECT x FROM generate_series(1, 10000000) g(x)";
    let mut rows = connection.query(sql).unwrap();
    assert!(rows.next().unwrap().unwrap().num_rows() > 0);
    drop(rows);
    assert_eq!(query(&mut connection, "SELECT 7"), ["7"]);
    // Whoever reads on after an error finds nothing.
    let sql = "SELECT 1 / (x - 9000) FROM generate_series(1, 20000) g(x)";
    let mut rows = connection.query(sql).unwrap();
    assert!(rows.by_ref().any(|batch| batch.is_err()));
    assert!(rows.next().is_none());
    drop(rows);
    assert_eq!(query(&mut connection, "SELECT 8"), ["8"]);
}

#[test]
fn another_thread_cancels() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    let cancel = connection.cancel_handle();
    for sql in [
        "SELECT sum(a.x * b.x % 7) FROM generate_series(1, 100000) a(x), generate_series(1, 100000) b(x)",
        "SELECT pg_sleep(600)",
    ] {
        let done = Arc::new(AtomicBool::new(false));
        let canceller = {
            let (cancel, done) = (cancel.clone(), Arc::clone(&done));
            // Before the statement runs it does nothing, so again and again.
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(20));
                    cancel.cancel();
                }
            })
        };
        let started = Instant::now();
        assert_eq!(kind(&mut connection, sql), ErrorKind::QueryCanceled);
        assert!(started.elapsed() < Duration::from_secs(30));
        done.store(true, Ordering::Relaxed);
        canceller.join().unwrap();
    }
    connection
        .execute("SET statement_timeout = '50ms'")
        .unwrap();
    assert_eq!(
        kind(&mut connection, "SELECT pg_sleep(600)"),
        ErrorKind::QueryCanceled
    );
    assert_eq!(query(&mut connection, "SELECT 1"), ["1"]);
}

#[test]
fn connections_work_side_by_side() {
    const EACH: i64 = 200;
    let database = temporary();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id int PRIMARY KEY, n bigint); INSERT INTO t VALUES (1, 0)")
        .unwrap();
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let mut connection = database.connect().unwrap();
            thread::spawn(move || {
                let add = connection
                    .prepare("UPDATE t SET n = n + $1 WHERE id = 1")
                    .unwrap();
                for _ in 0..EACH {
                    assert_eq!(add.execute(&mut connection, &[&1]).unwrap().rows, 1);
                }
            })
        })
        .collect();
    let mut last = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        let batch = connection
            .query("SELECT sum(n)::bigint FROM t")
            .unwrap()
            .next();
        let batch = batch.unwrap().unwrap();
        let now = batch.column(0).as_primitive::<Int64Type>().value(0);
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    for writer in writers {
        writer.join().unwrap();
    }
    let total = (3 * EACH).to_string();
    assert_eq!(query(&mut connection, "SELECT n FROM t"), [total]);
}

#[test]
fn batches_are_copied_in() {
    let database = temporary();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id bigint PRIMARY KEY, word text)")
        .unwrap();
    let batch = |from: i64, to: i64| {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
        let words: ArrayRef = Arc::new(StringViewArray::from_iter(
            (from..to).map(|id| (id % 2 == 0).then(|| format!("word {id}"))),
        ));
        RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("word", words, true)])
            .unwrap()
    };
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    let types: Vec<DataType> = copy
        .columns()
        .iter()
        .map(|column| column.ty.arrow())
        .collect();
    assert_eq!(types, [DataType::Int64, DataType::Utf8View]);
    copy.write(batch(0, 1000)).unwrap();
    copy.write(batch(1000, 2000)).unwrap();
    let done = copy.finish().unwrap();
    assert_eq!((done.tag.as_str(), done.rows), ("COPY 2000", 2000));
    // Dropped, and refused.
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    copy.write(batch(5000, 6000)).unwrap();
    drop(copy);
    let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
    let error = copy
        .write(batch(0, 1).project(&[1, 0]).unwrap())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::DatatypeMismatch);
    let failed = copy
        .write(batch(0, 10))
        .err()
        .or_else(|| copy.finish().err());
    assert_eq!(failed.unwrap().kind, ErrorKind::UniqueViolation);
    // What is of the Arrow type, but none of the column's values, is not taken.
    connection
        .execute("CREATE TABLE bounded (short varchar(3), padded char(3))")
        .unwrap();
    let texts = |short: &str| {
        let short: ArrayRef = Arc::new(StringViewArray::from(vec![short]));
        let padded: ArrayRef = Arc::new(StringViewArray::from(vec!["a    "]));
        RecordBatch::try_from_iter([("short", short), ("padded", padded)]).unwrap()
    };
    let mut copy = connection.copy_in("COPY bounded FROM STDIN").unwrap();
    let error = copy.write(texts("too long")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::StringDataRightTruncation);
    copy.write(texts("fit")).unwrap();
    copy.finish().unwrap();
    assert_eq!(
        query(
            &mut connection,
            "SELECT short, padded = 'a', length(padded) FROM bounded"
        ),
        ["fit|true|1"]
    );
    let error = connection.copy_in("SELECT 1").err().unwrap();
    assert_eq!(error.kind, ErrorKind::WrongObjectType);
    assert_eq!(
        query(&mut connection, "SELECT count(*), count(word) FROM t"),
        ["2000|1000"]
    );
    let out = connection
        .query("COPY (SELECT id FROM t WHERE id < 2) TO STDOUT")
        .unwrap();
    assert_eq!(out.finish().unwrap().tag, "COPY 2");
}

#[test]
fn everything_ends_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let database = Aerostat::open(options(folder.path())).unwrap();
    let mut connection = database.connect().unwrap();
    connection
        .execute("CREATE TABLE t (id int PRIMARY KEY)")
        .unwrap();
    let statement = connection.prepare("SELECT count(*) FROM t").unwrap();
    let cancel = connection.cancel_handle();
    let again = database.clone();
    drop(database);
    let mut rows = connection
        .query("SELECT x FROM generate_series(1, 10000000) g(x)")
        .unwrap();
    rows.next().unwrap().unwrap();
    drop(rows);
    drop(again);
    let rows = statement.query(&mut connection, &[]).unwrap();
    assert_eq!(texts(rows).unwrap(), ["0"]);
    drop(connection);
    cancel.cancel();
    drop(statement);
    let database = Aerostat::open(options(folder.path())).unwrap();
    database
        .connect()
        .unwrap()
        .execute("INSERT INTO t VALUES (1)")
        .unwrap();
    database.abandon();
}

#[test]
fn a_thread_that_runs_tasks_may_use_it() {
    let runtime = single_thread();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let error = Aerostat::open(options(Path::new("/dev/null/x")))
            .err()
            .unwrap();
        assert!(matches!(error, OpenError::Node { .. }), "{error:?}");
        let database = Aerostat::open(options(folder.path())).unwrap();
        let mut connection = database.connect().unwrap();
        assert_eq!(
            query(
                &mut connection,
                "SELECT sum(x) FROM generate_series(1, 4) g(x)"
            ),
            ["10"]
        );
        drop(connection);
        database.close().unwrap();
        Aerostat::open(options(folder.path())).unwrap();
    });
}

/// What a task may do before it gives way is none of the caller's business, who cannot.
#[test]
fn a_task_may_ask_as_often_as_it_likes() {
    let several = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    for runtime in [single_thread(), several] {
        let folder = tempfile::tempdir().unwrap();
        let database = Aerostat::open(options(folder.path())).unwrap();
        let ask = async move {
            let mut connection = database.connect().unwrap();
            for turn in 0..300 {
                let sql = format!("SELECT sum(x) + {turn} FROM generate_series(1, 4) g(x)");
                assert_eq!(query(&mut connection, &sql), [(10 + turn).to_string()]);
            }
        };
        runtime.block_on(async { tokio::spawn(ask).await.unwrap() });
    }
}

fn single_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

#[test]
fn an_observer_is_told() {
    #[derive(Default)]
    struct Counted(AtomicU64);
    impl Observer for Counted {
        fn statement(&self, record: &StatementRecord<'_>) {
            if record.kind == "select" && record.error.is_none() {
                self.0.fetch_add(record.rows, Ordering::Relaxed);
            }
        }
    }
    let counted = Arc::new(Counted::default());
    let database = Aerostat::open(Options {
        observer: Arc::clone(&counted) as Arc<dyn Observer>,
        pinning: Pinning::On,
        freezer_percent: 0,
        ..small(Options::temporary())
    })
    .unwrap();
    let mut connection = database.connect().unwrap();
    query(&mut connection, "SELECT x FROM generate_series(1, 42) g(x)");
    assert_eq!(counted.0.load(Ordering::Relaxed), 42);
}
