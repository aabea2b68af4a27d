//! Tests: statements of the grammar and texts outside it; programs against a table in memory.

use std::{sync::Arc, time::Duration};

use aerostat_memory::Governor;
use aerostat_storage::{Table, TenantStore};
use aerostat_types::{
    ByteSize, CheckConstraint, Column, Layout, RelationId, SqlType, TableId, TableSchema, TenantId,
};
use arrow_array::{Array, RecordBatch, cast::AsArray, types::*};

use crate::*;

/// A program whose columns have the defaults that the table says.
fn bind(shape: &Shape, table: &Arc<Table>, types: &[SqlType]) -> Option<Program> {
    let default = |at: usize| table.schema().columns[at].default.clone();
    crate::bind(shape, table, types, &default)
}

#[test]
fn the_grammar_reads_these() {
    for text in [
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1;",
        "select c from sbtest1 where id between $1 and $2 order by c",
        "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN 5 AND 104 ORDER BY c",
        "select sum(k), count(*) as n from s.sbtest1 where id >= 1 and id < 100",
        "select *, a + 1 * -2 as b from \"T\" as x where x.k = 'it''s' and (v > 1.50 and w <> $3) limit 10",
        "update t set a = a + -5, b = default, c = null where 5 = k returning *",
        "insert into t (a, b) values (1, 'x'), ($1, current_timestamp), (default, now()) returning a",
        "insert into t values (((1)))",
        "delete from t where a = (1 + 2) ;;",
    ] {
        assert!(parse(text).is_some(), "{text}");
    }
}

#[test]
fn the_grammar_does_not_read_these() {
    for text in [
        "",
        "select 1",
        "select a from t",
        "select a from t, u where a = 1",
        "select a from t join u on a = b where a = 1",
        "select a from t where a = 1 or a = 2",
        "select a from t where not a = 1",
        "select a from t where a = 1 for update",
        "select a from t where a = 1 group by a",
        "select a from t where a in (1)",
        "select a from t where a = (select 1)",
        "select a b from t where a = 1",
        "select a::text from t where a = 1",
        "select lower(a) from t where a = 1",
        "select count(distinct a) from t where a = 1",
        "select a from only t where a = 1",
        "select a from t where a = 1 order by a nulls first",
        "select a from t where a = 1 limit 1 offset 2",
        "select a from t where a = 1; select b from t where a = 1",
        "with x as (select 1) select a from t where a = 1",
        "insert into t select 1",
        "insert into t default values",
        "insert into t values (1) on conflict on constraint t_pkey do nothing",
        "insert into t values (1) on conflict do nothing returning a",
        "update t set a = 1",
        "update t set (a, b) = (1, 2) where a = 1",
        "update t set a = 1 from u where a = 1",
        "delete from t using u where a = 1",
        "select current_timestamp(3) from t where a = 1",
        "select a from t where a = 1e5",
        "select user from t where a = 1",
        "select a from t where a = -2147483648",
        "explain select a from t where a = 1",
        "select a from t where ((((((((((((((((((a = 1))))))))))))))))))",
    ] {
        assert!(parse(text).is_none(), "{text}");
    }
}

#[test]
fn literals_are_not_of_the_shape() {
    let shape = |text: &str| parse(text).unwrap().shape;
    let first = shape("SELECT a FROM t WHERE k = 7");
    assert_eq!(first, shape("select a from T where K=1234567;"));
    assert_ne!(first, shape("select a from t where k = 3000000000"));
    assert_ne!(first, shape("select a from t where k = '7'"));
    assert_ne!(first, shape("select a from \"T\" where k = 7"));
}

fn column(name: &str, ty: SqlType, nullable: bool, default: Option<&str>) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: default.map(str::to_owned),
    }
}

fn table() -> (Arc<TenantStore>, Arc<Table>) {
    let memory: ByteSize = "1GB".parse().unwrap();
    let store = TenantStore::new(TenantId(1), Governor::new(memory).budget("test", None));
    let schema = TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::Integer, false, None),
            column("v", SqlType::SmallInt, true, Some("5")),
            column("c", SqlType::Char(4), true, None),
        ],
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: vec![CheckConstraint {
            not_valid: false,
            name: "t_v_check".to_owned(),
            expression: "v < 100".to_owned(),
        }],
    };
    let table = store
        .create_table(
            TableId(7),
            Arc::new(schema),
            &Layout::parse("(k,c),(v)").unwrap(),
        )
        .unwrap();
    (store, table)
}

fn inputs(parsed: &Parsed, parameters: Vec<Value>, types: &[SqlType]) -> Inputs {
    Inputs {
        parameters: parameters.into(),
        types: types.into(),
        literals: parsed.literals.clone().into(),
        now_micros: 0,
        zone: aerostat_types::Zone::UTC,
        rows: None,
        numbers: None,
    }
}

/// The same with the rows of the text.
fn listing(text: &str, parsed: &Parsed, parameters: Vec<Value>, types: &[SqlType]) -> Inputs {
    Inputs {
        rows: parsed.rows.map(|rows| rows.within(&text.into())),
        ..inputs(parsed, parameters, types)
    }
}

fn write(store: &Arc<TenantStore>, table: &Arc<Table>, text: &str) -> Result<u64, Stop> {
    let parsed = parse(text).unwrap();
    let program = bind(&parsed.shape, table, &[]).ok_or(Stop::Unfit)?;
    let transaction = store.txns().begin();
    let written = program.write(&transaction, &listing(text, &parsed, Vec::new(), &[]))?;
    transaction.commit().unwrap();
    Ok(written.rows)
}

fn read(store: &Arc<TenantStore>, table: &Arc<Table>, text: &str) -> Result<RecordBatch, Stop> {
    let parsed = parse(text).unwrap();
    let program = bind(&parsed.shape, table, &[]).ok_or(Stop::Unfit)?;
    let rows = program.read(store.txns().snapshot(), &inputs(&parsed, Vec::new(), &[]))?;
    Ok(rows.batch().unwrap())
}

fn integers(batch: &RecordBatch, column: usize) -> Vec<Option<i32>> {
    let array = batch.column(column).as_primitive::<Int32Type>();
    array.iter().collect()
}

#[test]
fn rows_are_written_and_found() {
    let (store, table) = table();
    let rows: Vec<String> = (0..100)
        .map(|k| format!("({k}, {}, 'r{k} ')", k % 7))
        .collect();
    let insert = format!("insert into t values {}", rows.join(", "));
    assert_eq!(write(&store, &table, &insert), Ok(100));
    assert_eq!(
        write(&store, &table, "insert into t (c, k) values (null, 100)"),
        Ok(1)
    );
    assert_eq!(
        write(
            &store,
            &table,
            "update t set v = v + 10, c = 'x' where k between 98 and 1000000 - 999500"
        ),
        Ok(3)
    );
    assert_eq!(
        write(&store, &table, "delete from t where k = 99 and v = 11"),
        Ok(1)
    );
    assert_eq!(write(&store, &table, "delete from t where k = 99"), Ok(0));

    let batch = read(
        &store,
        &table,
        "select k, v, c from t where k > 96 and k <= 200 order by v desc, k limit 3",
    )
    .unwrap();
    // v: 98 % 7 + 10 = 10, 5 + 10 = 15 for 100, 97 % 7 = 6.
    assert_eq!(integers(&batch, 0), [Some(100), Some(98), Some(97)]);
    let texts = batch.column(2).as_string_view();
    assert_eq!(
        texts.iter().collect::<Vec<_>>(),
        [Some("x"), Some("x"), Some("r97")]
    );

    let batch = read(
        &store,
        &table,
        "select distinct v from t where k between 0 and 50 order by v",
    )
    .unwrap();
    assert_eq!(batch.num_rows(), 7);
    let batch = read(
        &store,
        &table,
        "select count(*), sum(v), min(k), max(k), count(c) from t where k between 90 and 110",
    )
    .unwrap();
    let number = |at: usize| batch.column(at).as_primitive::<Int64Type>().value(0);
    // 90 to 97 have 6, 0, 1, … 6; 98 has 10, 100 has 15, 99 is gone.
    assert_eq!((number(0), number(1), number(4)), (10, 27 + 10 + 15, 10));
    assert_eq!(
        (integers(&batch, 2)[0], integers(&batch, 3)[0]),
        (Some(90), Some(100))
    );
    let batch = read(
        &store,
        &table,
        "select sum(v) from t where k between 500 and 510",
    )
    .unwrap();
    assert!(batch.column(0).is_null(0));
}

#[test]
fn errors_are_the_other_ways() {
    let (store, table) = table();
    assert_eq!(
        write(&store, &table, "insert into t values (1, 32000)"),
        Err(Stop::Unfit),
        "CHECK"
    );
    assert_eq!(write(&store, &table, "insert into t values (1, 99)"), Ok(1));
    for text in [
        "insert into t values (1, 1)",
        "insert into t values (null, 1)",
        "insert into t values (2, 1, 'abcde')",
        "insert into t values (2, 40000)",
        "insert into t (k, k) values (2, 2)",
        "insert into t (k) values (2, 2)",
        "insert into t (nobody) values (2)",
        "insert into t values (2, 'two')",
        "update t set v = v + 1 where k = 1",
        "update t set v = v * 1000 where k = 1",
        "update t set v = 1 where k > 0",
        "update t set c = 'abcde' where k = 77",
        "update t set v = v + 1, c = 'abcde' where k between 9 and 8",
        "update t set v = 1, v = 2 where k = 1",
        "update t set v = 1 where v = 99",
        "delete from t where k between 1 and 1000000",
        "delete from t where k = '1'",
        "delete from t where c = 'a' and k = k",
    ] {
        assert_eq!(write(&store, &table, text), Err(Stop::Unfit), "{text}");
    }
    let batch = read(&store, &table, "select v from t where k = 1").unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int16Type>().values(), &[99]);
    assert_eq!(
        read(&store, &table, "select v from t where k = 3000000000")
            .unwrap()
            .num_rows(),
        0
    );
    assert_eq!(
        read(&store, &table, "select v from t where k = null"),
        Err(Stop::Unfit)
    );
}

#[test]
fn who_must_not_wait_says_so() {
    let (store, table) = table();
    write(&store, &table, "insert into t values (1, 1)").unwrap();
    let update = parse("update t set v = 2 where k = 1").unwrap();
    let program = bind(&update.shape, &table, &[]).unwrap();
    let values = inputs(&update, Vec::new(), &[]);
    let (first, second) = (store.txns().begin(), store.txns().begin());
    let second = second.without_waiting();
    program.write(&first, &values).unwrap();
    let Err(Stop::WouldWait(Some(awaited))) = program.write(&second, &values) else {
        panic!("the row is held");
    };
    assert_eq!(awaited.holder, Some(first.id()));
    first.commit().unwrap();
    assert_eq!(program.write(&second, &values).err(), Some(Stop::Conflict));
}

#[test]
fn a_wait_that_fails_says_why() {
    let (store, table) = table();
    write(&store, &table, "insert into t values (1, 1), (2, 1)").unwrap();
    let of = |text: &str| {
        let update = parse(text).unwrap();
        let program = bind(&update.shape, &table, &[]).unwrap();
        (program, inputs(&update, Vec::new(), &[]))
    };
    let (program, one) = of("update t set v = 2 where k = 1");
    let (_, two) = of("update t set v = 2 where k = 2");
    let (first, second) = (store.txns().begin(), store.txns().begin());
    program.write(&first, &one).unwrap();
    program.write(&second, &two).unwrap();

    let third = store.txns().begin();
    third.set_lock_timeout(Some(Duration::from_millis(1)));
    assert_eq!(program.write(&third, &one).err(), Some(Stop::TimedOut));
    third.set_lock_timeout(None);
    third.cancel_token().cancel();
    assert_eq!(program.write(&third, &one).err(), Some(Stop::Cancelled));

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| program.write(&first, &two));
        while store.txns().waiting() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(program.write(&second, &one).err(), Some(Stop::Deadlock));
        second.rollback();
        assert_eq!(waiting.join().unwrap().unwrap().rows, 1);
    });
}

#[test]
fn parameters_have_the_types_they_were_given() {
    let (store, table) = table();
    write(&store, &table, "insert into t values (1, 1)").unwrap();
    let parsed = parse("select k + $2 as n from t where k = $1").unwrap();
    let types = [SqlType::Integer, SqlType::Integer];
    let program = bind(&parsed.shape, &table, &types).unwrap();
    assert_eq!(
        program.outputs(),
        [Output {
            name: "n".to_owned(),
            ty: SqlType::Integer,
            column: None,
        }]
    );
    let run = |key: Option<i32>, more: i32| {
        let parameters = vec![key.map_or(Value::Null, Value::I32), Value::I32(more)];
        let values = inputs(&parsed, parameters, &types);
        program.read(store.txns().snapshot(), &values)
    };
    let rows = run(Some(1), 41).unwrap();
    assert_eq!(rows.iter().collect::<Vec<_>>(), [[Value::I32(42)]]);
    assert_eq!(integers(&rows.batch().unwrap(), 0), [Some(42)]);
    assert!(run(None, 41).unwrap().is_empty());
    assert_eq!(run(Some(1), i32::MAX).err(), Some(Stop::Unfit));
    assert!(bind(&parsed.shape, &table, &types[..1]).is_none());
    assert!(bind(&parsed.shape, &table, &[SqlType::Text, SqlType::Integer]).is_none());
}

/// Gives the numbers that are left, downwards.
#[derive(Debug)]
struct Countdown(std::sync::atomic::AtomicI64);

impl Numbers for Countdown {
    fn next(&self, sequence: RelationId) -> Option<i64> {
        assert_eq!(sequence, RelationId(7));
        let before = self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        (before > 0).then_some(before)
    }

    fn again(&self) {}
}

#[test]
fn numbers_of_sequences_are_taken_while_there_are_some() {
    let store = TenantStore::new(
        TenantId(1),
        Governor::new(ByteSize(64 << 20)).budget("numbers", None),
    );
    let schema = TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::Integer, false, Some("nextval(7)")),
            column("v", SqlType::Integer, true, None),
        ],
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    };
    let table = store
        .create_table(TableId(1), Arc::new(schema), &Layout::Row)
        .unwrap();
    let text = "insert into t (v) values (1), (2) returning k";
    let parsed = parse(text).unwrap();
    let program = bind(&parsed.shape, &table, &[]).unwrap();
    assert_eq!(program.sequences(), [RelationId(7)]);
    let numbers = Countdown(3.into());
    let given = Inputs {
        numbers: Some(Arc::new(numbers)),
        ..listing(text, &parsed, Vec::new(), &[])
    };
    let transaction = store.txns().begin();
    let written = program.write(&transaction, &given).unwrap();
    assert_eq!(
        integers(&written.returned.unwrap()[0], 0),
        [Some(3), Some(2)]
    );
    let again = program.write(&transaction, &given);
    assert!(matches!(again, Err(Stop::Unfit)), "one is left for two");
    let without = program.write(&transaction, &listing(text, &parsed, Vec::new(), &[]));
    assert!(matches!(without, Err(Stop::Unfit)));
}

/// All that a table of `k`, `v` and `c` holds.
fn contents(
    store: &Arc<TenantStore>,
    table: &Arc<Table>,
) -> Vec<(i32, Option<i16>, Option<String>)> {
    let batch = read(
        store,
        table,
        "select k, v, c from t where k >= -100 and k <= 400 order by k",
    )
    .unwrap();
    let (v, c) = (
        batch.column(1).as_primitive::<Int16Type>(),
        batch.column(2).as_string_view(),
    );
    let text = |row: usize| c.is_valid(row).then(|| c.value(row).to_owned());
    let number = |row: usize| v.is_valid(row).then(|| v.value(row));
    integers(&batch, 0)
        .into_iter()
        .enumerate()
        .map(|(row, k)| (k.unwrap(), number(row), text(row)))
        .collect()
}

#[test]
fn listed_rows_take_any_length() {
    let (store, table) = table();
    // Several chunks of cells, and a text longer than others may have.
    let rows: Vec<String> = (0..20_000)
        .map(|k| format!("({k}, {}, 'its''s')", k % 100))
        .collect();
    let insert = format!("INSERT INTO t VALUES {} ;", rows.join(","));
    assert!(insert.len() > TEXT_BYTES_MAX);
    let refused = "insert into t values (30000, 1, 'x'), (30001, 1, 'longer')";
    assert_eq!(write(&store, &table, refused), Err(Stop::Unfit));
    assert_eq!(
        write(&store, &table, &insert),
        Err(Stop::Unfit),
        "five characters"
    );
    let insert = insert.replace("its''s", "i''s ");
    assert_eq!(write(&store, &table, &insert), Ok(20_000));
    let last = read(&store, &table, "select v, c from t where k = 19999").unwrap();
    assert_eq!(last.column(0).as_primitive::<Int16Type>().value(0), 99);
    assert_eq!(last.column(1).as_string_view().value(0), "i's");
}

#[test]
fn cells_are_columns_values() {
    let (store, table) = table();
    let insert =
        "insert into t (c, k, v) values ('a', -1, default), (null, 2, null), ('', '3', '7')";
    assert_eq!(write(&store, &table, insert), Ok(3));
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (-1, Some(5), text("a")),
        (2, None, None),
        (3, Some(7), text("")),
    ];
    assert_eq!(contents(&store, &table), expected);
    for unfit in [
        "insert into t values (10), (3000000000)",
        "insert into t values (10), (1.0)",
        "insert into t values (10, 40000), (11, 1)",
        "insert into t values (10, 1, 5), (11, 1, 'a')",
        "insert into t values (10, 1, 'abcde'), (11, 1, 'a')",
        "insert into t values (10, 100), (11, 1)",
        "insert into t values (10), (10)",
        "insert into t values (10), (null)",
        "insert into t values (10), (true)",
        "insert into t values (10), ('x')",
        "insert into t values (10), ($1)",
        "insert into t values (10, 1, 'a', 1), (11, 1, 'a', 1)",
        "insert into t (k, k) values (10, 1), (11, 2)",
        "insert into t (k, x) values (10, 1), (11, 2)",
        "insert into t (k, v) values (10), (11)",
    ] {
        assert_eq!(write(&store, &table, unfit), Err(Stop::Unfit), "{unfit}");
    }
    assert_eq!(contents(&store, &table), expected);
}

#[test]
fn listed_parameters_fit_their_columns() {
    let (store, table) = table();
    let text = "insert into t values ($1, $2, $3), (2, $2, $3)";
    let parsed = parse(text).unwrap();
    let types = [SqlType::BigInt, SqlType::SmallInt, SqlType::Text];
    let program = bind(&parsed.shape, &table, &types).unwrap();
    let run = |k: Value, c: &str| {
        let values = vec![k, Value::I16(4), Value::Text(c.into())];
        let transaction = store.txns().begin();
        let written = program.write(&transaction, &listing(text, &parsed, values, &types))?;
        transaction.commit().unwrap();
        Ok(written.rows)
    };
    assert_eq!(run(Value::I64(1 << 40), "a"), Err(Stop::Unfit));
    assert_eq!(run(Value::I64(1), "abcde"), Err(Stop::Unfit));
    assert_eq!(run(Value::Null, "a"), Err(Stop::Unfit));
    assert_eq!(run(Value::I64(1), "abc"), Ok(2));
    let row = |k| (k, Some(4), Some("abc".to_owned()));
    assert_eq!(contents(&store, &table), [row(1), row(2)]);
}

#[test]
fn what_is_in_the_way_is_left_or_updated() {
    let (store, table) = table();
    write(
        &store,
        &table,
        "insert into t values (1, 1, 'a'), (2, 2, 'b')",
    )
    .unwrap();
    for (insert, rows) in [
        (
            "insert into t values (1, 9), (3, 3) on conflict do nothing",
            1,
        ),
        (
            "insert into t values (4, 4), (4, 5), (2, 9) on conflict (k) do nothing",
            1,
        ),
        (
            "insert into t values (2, 10, 'c'), (5, 5, 'e') on conflict (k) do update \
             set v = t.v + excluded.v, c = excluded.c where t.v < 50",
            2,
        ),
        (
            "insert into t values (2, 1) on conflict (k) do update set v = excluded.v where t.v > 50",
            0,
        ),
        (
            "insert into t values (1, 7) on conflict (k) do update set c = 'z', v = default",
            1,
        ),
    ] {
        assert_eq!(write(&store, &table, insert), Ok(rows), "{insert}");
    }
    let row = |k, v, c: Option<&str>| (k, Some(v), c.map(str::to_owned));
    let expected = [
        row(1, 5, Some("z")),
        row(2, 12, Some("c")),
        row(3, 3, None),
        row(4, 4, None),
        row(5, 5, Some("e")),
    ];
    assert_eq!(contents(&store, &table), expected);
    for unfit in [
        // A second time, a NULL, a CHECK, and names that are either's or nobody's.
        "insert into t values (1), (1) on conflict (k) do update set v = 1",
        "insert into t values (7), (7) on conflict (k) do update set v = 1",
        "insert into t values (null), (8) on conflict do nothing",
        "insert into t values (1, 100), (8, 1) on conflict do nothing",
        "insert into t values (1), (8) on conflict (k) do update set v = 100",
        "insert into t values (1), (8) on conflict (k) do update set v = v + 1",
        "insert into t values (1), (8) on conflict (v) do nothing",
        "insert into t values (1), (8) on conflict do update set v = 1",
        "insert into t values (1), (8) on conflict (k) do update set v = other.v",
    ] {
        assert_eq!(write(&store, &table, unfit), Err(Stop::Unfit), "{unfit}");
    }
    assert_eq!(contents(&store, &table), expected);
}

#[test]
fn arrays_make_rows() {
    let (store, table) = table();
    let text = "insert into t (k, c) select * from unnest($1::bigint[], $2::text[]) as a on conflict do nothing";
    let parsed = parse(text).unwrap();
    let types = [SqlType::Text, SqlType::Text];
    let program = bind(&parsed.shape, &table, &types).unwrap();
    let run = |k: &str, c: &str| {
        let values = vec![Value::Text(k.into()), Value::Text(c.into())];
        let transaction = store.txns().begin();
        let written = program.write(&transaction, &inputs(&parsed, values, &types))?;
        transaction.commit().unwrap();
        Ok(written.rows)
    };
    assert_eq!(run("{}", "{}"), Ok(0));
    assert_eq!(run("{1,2,3}", "{a,\"b\"}"), Ok(3));
    assert_eq!(run("{3,4}", "{x,NULL}"), Ok(1));
    for (k, c) in [
        ("{9}", "{abcde}"),
        ("{9,NULL}", "{}"),
        ("{9,x}", "{}"),
        ("{3000000000}", "{}"),
        ("{{9}}", "{}"),
    ] {
        assert_eq!(run(k, c), Err(Stop::Unfit), "{k} {c}");
    }
    let row = |k, c: Option<&str>| (k, Some(5), c.map(str::to_owned));
    let expected = [
        row(1, Some("a")),
        row(2, Some("b")),
        row(3, None),
        row(4, None),
    ];
    assert_eq!(contents(&store, &table), expected);
}

#[test]
fn few_cells_may_be_rows_of_many_columns() {
    let (store, _) = table();
    let columns = (0..100).map(|at| column(&format!("c{at}"), SqlType::Text, at > 0, None));
    let schema = TableSchema {
        name: "w".to_owned(),
        columns: columns.collect(),
        primary_key: vec![0],
        primary_key_name: "w_pkey".to_owned(),
        checks: Vec::new(),
    };
    let wide = store
        .create_table(TableId(8), Arc::new(schema), &Layout::Column)
        .unwrap();
    let rows: Vec<String> = (0..2_000).map(|k| format!("('{k}', $1)")).collect();
    let text = format!("insert into w (c0, c7) values {}", rows.join(", "));
    let parsed = parse(&text).unwrap();
    let types = [SqlType::Text];
    let program = bind(&parsed.shape, &wide, &types).unwrap();
    // Batches end by their values, and by the bytes of a text that is in each row.
    let long = Value::Text("x".repeat(10_000).into());
    let inputs = listing(&text, &parsed, vec![long], &types);
    let transaction = store.txns().begin();
    let written = program.write(&transaction, &inputs).unwrap();
    transaction.commit().unwrap();
    assert_eq!(written.rows, 2_000);
    let last = read(&store, &wide, "select c7, c8 from w where c0 = '1999'").unwrap();
    assert_eq!(last.column(0).as_string_view().value(0).len(), 10_000);
    assert!(last.column(1).is_null(0));
}
