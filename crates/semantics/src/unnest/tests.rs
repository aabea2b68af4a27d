//! Subqueries compared with PostgreSQL 15's answers.

mod random;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};
use arrow::datatypes::Schema;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;

use crate::tests::{context, query};

type Column = (&'static str, SqlType, ArrayRef);

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn register(context: &SessionContext, name: &str, columns: Vec<Column>) {
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, ty, _)| ty.field(name, *name != "id"))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, _, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
    let table = MemTable::try_new(schema, vec![vec![batch]]).unwrap();
    context.register_table(name, Arc::new(table)).unwrap();
}

/// `p(id, k, v)` and `q(id, k, w)`.
fn tables() -> SessionContext {
    let context = context();
    let keys = |keys: Vec<Option<&str>>| Arc::new(StringViewArray::from(keys)) as ArrayRef;
    register(
        &context,
        "p",
        vec![
            (
                "id",
                SqlType::Integer,
                ints(&[Some(1), Some(2), Some(3), Some(4)]),
            ),
            (
                "k",
                SqlType::Text,
                keys(vec![Some("a"), Some("a"), Some("b"), None]),
            ),
            (
                "v",
                SqlType::Integer,
                ints(&[Some(10), Some(20), None, Some(40)]),
            ),
        ],
    );
    register(
        &context,
        "q",
        vec![
            (
                "id",
                SqlType::Integer,
                ints(&[Some(1), Some(3), Some(5), Some(6)]),
            ),
            (
                "k",
                SqlType::Text,
                keys(vec![Some("a"), Some("b"), Some("b"), None]),
            ),
            (
                "w",
                SqlType::Integer,
                ints(&[Some(100), None, Some(300), Some(40)]),
            ),
        ],
    );
    context
}

/// Rows as text, or the error; `!` begins an error.
async fn answer(context: &SessionContext, sql: &str) -> String {
    match query(context, sql).await {
        Ok((_, rows)) => {
            let line = |row: Vec<Option<String>>| {
                let values: Vec<String> = row
                    .into_iter()
                    .map(|value| value.unwrap_or("∅".to_owned()))
                    .collect();
                values.join("|")
            };
            rows.into_iter().map(line).collect::<Vec<_>>().join(" ")
        }
        Err(error) if is_second_row(&error) => "!second row".to_owned(),
        Err(error) => format!("!{:?}: {}", error.kind, error.message),
    }
}

/// Whether a scalar subquery gave two rows: our error, or DataFusion's for an uncorrelated one.
fn is_second_row(error: &SqlError) -> bool {
    let message = "more than one row returned by a subquery used as an expression";
    (error.kind == ErrorKind::CardinalityViolation && error.message == message)
        || error
            .message
            .contains("Scalar subquery returned more than one row")
}

macro_rules! check {
    ($($name:ident: $($sql:expr => $expected:expr),+ $(,)?;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                let context = tables();
                let mut wrong = Vec::new();
                $({
                    let got = answer(&context, $sql).await;
                    if got != $expected {
                        wrong.push(format!("{}\n  want {}\n  got  {}", $sql, $expected, got));
                    }
                })+
                assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            }
        )+
    };
}

check! {
    scalar_subqueries_select_by_the_outer_row:
        "SELECT id, (SELECT w FROM q WHERE q.id = p.id) FROM p ORDER BY id" => "1|100 2|∅ 3|∅ 4|∅",
        "SELECT id, (SELECT count(*) FROM q WHERE q.id >= p.id) FROM p ORDER BY id" => "1|4 2|3 3|3 4|2",
        "SELECT id, (SELECT sum(w) FROM q WHERE q.k = p.k AND q.id > p.id) FROM p ORDER BY id" => "1|∅ 2|∅ 3|300 4|∅",
        "SELECT id, (SELECT w FROM q WHERE q.k = p.k) FROM p ORDER BY id" => "!second row",
        "SELECT id, (SELECT w FROM q) FROM p" => "!second row",
        "SELECT id, CASE WHEN id < 3 THEN (SELECT w FROM q WHERE q.k = p.k) END FROM p ORDER BY id" => "1|100 2|100 3|∅ 4|∅",
        "SELECT id, (SELECT w FROM q WHERE q.k = p.k) FROM p WHERE id <> 3 ORDER BY id" => "1|100 2|100 4|∅",
        "SELECT id, (SELECT w FROM q WHERE q.id >= p.id ORDER BY q.id DESC LIMIT 1) FROM p ORDER BY id" => "1|40 2|40 3|40 4|40",
        "SELECT id, (SELECT w FROM q WHERE q.id >= p.id ORDER BY q.id LIMIT 1 OFFSET 1) FROM p ORDER BY id" => "1|∅ 2|300 3|300 4|40",
        "SELECT id, (SELECT p.v + 1) FROM p ORDER BY id" => "1|11 2|21 3|∅ 4|41",
        "SELECT id, (SELECT max(x) FROM (VALUES (p.id), (p.v)) AS y(x)) FROM p ORDER BY id" => "1|10 2|20 3|3 4|40",
        "SELECT id, (SELECT x FROM (SELECT q.w AS x FROM q WHERE q.id = p.id UNION SELECT p.id) AS y ORDER BY x LIMIT 1) FROM p ORDER BY id" => "1|1 2|2 3|3 4|4",
        "SELECT sum((SELECT count(*) FROM q WHERE q.id > p.id)) FROM p" => "10",
        "SELECT (SELECT count(*) FROM q WHERE q.id > p.id) AS n, count(*) FROM p GROUP BY 1 ORDER BY 1" => "2|2 3|2",
        "SELECT id FROM p ORDER BY (SELECT count(*) FROM q WHERE q.id > p.id), id DESC" => "4 3 2 1",
        "SELECT p.v AS z FROM p ORDER BY (SELECT count(*) FROM q WHERE q.id > p.id), p.id DESC" => "40 ∅ 20 10",
        "SELECT id, row_number() OVER (ORDER BY (SELECT max(w) FROM q WHERE q.id <> p.id) DESC, id DESC) FROM p ORDER BY id" => "1|4 2|3 3|2 4|1",
        "SELECT k, (SELECT count(*) FROM q WHERE q.k = p.k) FROM p GROUP BY k ORDER BY k" => "a|1 b|2 ∅|0",
        "SELECT k, (SELECT count(*) FROM q WHERE q.id = p.id) FROM p GROUP BY k" => "!GroupingError: subquery uses ungrouped column \"p.id\" from outer query",
        "SELECT p.id, (SELECT q.w FROM q WHERE q.id = x.id) FROM p LEFT JOIN p AS x ON x.id = p.id + 2 ORDER BY 1" => "1|∅ 2|∅ 3|∅ 4|∅";

    keys_compare_as_values:
        "SELECT (SELECT count(*) FROM q WHERE q.w >= y.x) AS n FROM (VALUES (0.0::float8), ('-0'::float8), (200::float8), (NULL)) AS y(x) ORDER BY n" => "0 1 3 3",
        "SELECT (SELECT count(*) FROM q WHERE q.k <= y.c) FROM (VALUES ('a'::char(3)), ('b'::char(3))) AS y(c) ORDER BY c" => "1 3",
        "SELECT (SELECT count(*) FROM q WHERE q.id > y.x) FROM (SELECT CASE WHEN id > 2 THEN id / 2.0 END AS x FROM p) AS y ORDER BY x" => "3 3 0 0";

    no_row_is_null_whatever_the_column:
        "SELECT (SELECT id FROM p WHERE id = 99) AS a, (SELECT count(*) + 1 FROM p HAVING count(*) > 9) AS b" => "∅|∅",
        "SELECT x FROM (SELECT id, (SELECT q.id FROM q WHERE q.id = p.id + 2) AS x FROM p) AS y ORDER BY id" => "3|∅|5|6".replace('|', " "),
        "SELECT x FROM (SELECT (SELECT q.id FROM q WHERE q.id = p.id) AS x FROM p WHERE id = 2 UNION ALL SELECT id FROM p WHERE id = 1) AS y ORDER BY x" => "1 ∅";

    truth_has_three_values:
        "SELECT id, EXISTS (SELECT 1 FROM q WHERE q.id = p.id), NOT EXISTS (SELECT 1 FROM q WHERE q.id > p.id + 2) FROM p ORDER BY id" => "1|true|false 2|false|false 3|true|false 4|false|true",
        "SELECT EXISTS (SELECT 1 FROM q WHERE id = 1) AS a, EXISTS (SELECT 1 FROM q WHERE id = 99) AS b" => "true|false",
        "SELECT id, v IN (SELECT w FROM q) FROM p ORDER BY id" => "1|∅ 2|∅ 3|∅ 4|true",
        "SELECT id, v NOT IN (SELECT w FROM q WHERE w IS NOT NULL) FROM p ORDER BY id" => "1|true 2|true 3|∅ 4|false",
        "SELECT id, v IN (SELECT w FROM q WHERE false) FROM p ORDER BY id" => "1|false 2|false 3|false 4|false",
        "SELECT id, id IN (SELECT q.id FROM q WHERE q.k = p.k) FROM p ORDER BY id" => "1|true 2|false 3|true 4|false",
        "SELECT 3 IN (SELECT id FROM p) AS a, 99 IN (SELECT id FROM p) AS b, NULL IN (SELECT id FROM p) AS c, 99 IN (SELECT v FROM p) AS d, NULL IN (SELECT id FROM p WHERE false) AS e" => "true|false|∅|∅|false",
        "SELECT id FROM p WHERE v NOT IN (SELECT w FROM q)" => "",
        "SELECT id FROM p WHERE v NOT IN (SELECT w FROM q WHERE w > 1) ORDER BY id" => "1 2",
        "SELECT id FROM p WHERE v NOT IN (SELECT w FROM q WHERE q.k = p.k) ORDER BY id" => "1 2 4",
        "SELECT id FROM p WHERE NOT (v IN (SELECT w FROM q) OR false)" => "",
        "SELECT id FROM p WHERE v NOT IN (SELECT w FROM q) OR id = 2" => "2",
        "SELECT id FROM p WHERE (v IN (SELECT w FROM q)) IS NULL ORDER BY id" => "1 2 3",
        "SELECT id FROM p WHERE v IN (SELECT w FROM q) OR id = 1 ORDER BY id" => "1 4",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.id = p.id) OR id = 2 ORDER BY id" => "1 2 3",
        "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM q WHERE q.id = p.id) THEN 'y' ELSE 'n' END FROM p ORDER BY id" => "1|y 2|n 3|y 4|n",
        "SELECT k FROM p GROUP BY k HAVING EXISTS (SELECT 1 FROM q WHERE q.k = p.k AND q.id > 3) ORDER BY k" => "b",
        "SELECT id, id > ANY (SELECT q.id FROM q), id >= ALL (SELECT q.id FROM q), v < ALL (SELECT w FROM q WHERE w > 40) FROM p ORDER BY id" => "1|false|false|true 2|true|false|true 3|true|false|∅ 4|true|false|true",
        "SELECT id FROM p WHERE id > ALL (SELECT q.id FROM q WHERE q.k = p.k) ORDER BY id" => "2 4",
        "SELECT id FROM p WHERE id = ANY (SELECT q.id FROM q) ORDER BY id" => "1 3",
        "SELECT id FROM p WHERE id <> ALL (SELECT q.id FROM q) ORDER BY id" => "2 4",
        "SELECT 'x' IN (SELECT id FROM p)" => "!InvalidTextRepresentation: invalid input syntax for type integer: \"x\"",
        "SELECT k IN (SELECT id FROM q) FROM p" => "!UndefinedFunction: operator does not exist: text = integer";

    rows_compare_with_subqueries:
        "SELECT id FROM p WHERE (id, k) IN (SELECT id, k FROM q) ORDER BY id" => "1 3",
        "SELECT id FROM p WHERE (id, k) NOT IN (SELECT id, k FROM q) ORDER BY id" => "2 4",
        "SELECT id FROM p WHERE (v, k) NOT IN (SELECT w, k FROM q) ORDER BY id" => "1 2",
        "SELECT id FROM p WHERE (id, k) IN (SELECT q.id, 'a' FROM q WHERE q.k = p.k) ORDER BY id" => "1",
        "SELECT id, (v, k) IN (SELECT w, k FROM q) FROM p ORDER BY id" => "1|false 2|false 3|∅ 4|∅",
        "SELECT id, (id, v) = ANY (SELECT id, 10 FROM q) FROM p ORDER BY id" => "1|true 2|false 3|∅ 4|false",
        "SELECT (1, 2) IN (SELECT id FROM p)" => "!SyntaxError: subquery has too few columns",
        "SELECT (1, 2) IN (SELECT id, v, k FROM p)" => "!SyntaxError: subquery has too many columns";

    inner_tables_may_bear_the_outer_name:
        "SELECT id FROM p WHERE (id, v) IN (SELECT id, v FROM p WHERE id = 2)" => "2",
        "SELECT id FROM p WHERE (id, v) NOT IN (SELECT id, v FROM p WHERE id < 3) ORDER BY id" => "3 4",
        "SELECT id, id IN (SELECT id FROM p WHERE v > 10) AS x FROM p ORDER BY id" => "1|false 2|true 3|false 4|true",
        "SELECT id FROM p WHERE id IN (SELECT id FROM p WHERE v > 10) OR id = 1 ORDER BY id" => "1 2 4",
        "SELECT p.id FROM p, q WHERE q.id = 3 AND p.id NOT IN (SELECT p.id FROM p WHERE p.k = q.k) ORDER BY id" => "1 2 4",
        "SELECT id, id > ALL (SELECT id FROM p WHERE id < 3) AS x, v = ANY (SELECT v FROM p WHERE id <> 4) AS y FROM p ORDER BY id" => "1|false|true 2|false|true 3|true|∅ 4|true|∅",
        "SELECT id, EXISTS (SELECT id FROM p WHERE v > 30) AS x FROM p WHERE id IN (SELECT id FROM p WHERE id = 1)" => "1|true";

    subqueries_nest:
        "SELECT id, (SELECT count(*) FROM q WHERE EXISTS (SELECT 1 FROM p AS i WHERE i.id = q.id AND i.v < p.v)) FROM p ORDER BY id" => "1|0 2|1 3|0 4|1",
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.id > p.id AND q.w > (SELECT max(i.v) FROM p AS i WHERE i.id <= p.id AND i.id <= q.id)) ORDER BY id" => "1 2 3 4",
        "SELECT id, EXISTS (SELECT 1 FROM q WHERE q.id = p.id LIMIT 1) FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.id = p.id LIMIT 1) ORDER BY id" => "1|true 3|true",
        "SELECT id, EXISTS (SELECT 1 FROM q WHERE q.id = p.id LIMIT 1) FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.id = p.id LIMIT 1) = (id < 3) ORDER BY id" => "1|true 4|false",
        "SELECT id, (SELECT (SELECT p.id + q.id) FROM q WHERE q.id = p.id) FROM p ORDER BY id" => "1|2 2|∅ 3|6 4|∅",
        "SELECT id, (SELECT (SELECT p.id * 2) FROM q WHERE q.id = 5) FROM p ORDER BY id" => "1|2 2|4 3|6 4|8",
        "SELECT id FROM p WHERE id IN (SELECT q.id FROM q WHERE q.k IN (SELECT i.k FROM p AS i WHERE i.id <> p.id)) ORDER BY id" => "1",
        "SELECT id, (SELECT sum(p.v)) FROM p" => "!FeatureNotSupported: an aggregate of an outer query's columns in a subquery is not supported";

    lateral_items_refer_to_the_left:
        "SELECT p.id, l.w FROM p, LATERAL (SELECT w FROM q WHERE q.id >= p.id ORDER BY q.id DESC LIMIT 1) AS l ORDER BY 1" => "1|40 2|40 3|40 4|40",
        "SELECT p.id, l.n FROM p LEFT JOIN LATERAL (SELECT count(*) AS n FROM q WHERE q.id > p.id) AS l ON l.n > 2 ORDER BY 1" => "1|3 2|3 3|∅ 4|∅",
        "SELECT p.id, l.id FROM p CROSS JOIN LATERAL (SELECT q.id FROM q WHERE q.k = p.k) AS l ORDER BY 1, 2" => "1|1 2|1 3|3 3|5",
        "SELECT p.id, a.x, b.y FROM p, LATERAL (SELECT p.id + 1 AS x) AS a, LATERAL (SELECT a.x * 2 AS y) AS b ORDER BY 1" => "1|2|4 2|3|6 3|4|8 4|5|10",
        "SELECT p.id, l.m FROM p LEFT JOIN LATERAL (SELECT max(w) AS m FROM q WHERE q.k = p.k GROUP BY q.k) AS l ON true ORDER BY 1" => "1|100 2|100 3|300 4|∅";

    joins_take_subqueries_in_on:
        "SELECT p.id, q.id FROM p JOIN q ON q.id = p.id AND EXISTS (SELECT 1 FROM p AS i WHERE i.v > q.w OR i.id = p.id) ORDER BY 1" => "1|1 3|3",
        "SELECT p.id, q.id FROM p LEFT JOIN q ON q.id = p.id AND p.v IN (SELECT v FROM p AS i WHERE i.id = 1) ORDER BY 1" => "1|1 2|∅ 3|∅ 4|∅",
        "SELECT p.id, q.id FROM p LEFT JOIN q ON q.id = p.id AND (SELECT count(*) FROM p AS i WHERE i.v < q.w) > 0 ORDER BY 1" => "1|1 2|∅ 3|∅ 4|∅",
        "SELECT p.id FROM p LEFT JOIN q ON q.id = (SELECT max(i.id) FROM p AS i WHERE i.id >= q.id AND i.id <= p.id)" => "!FeatureNotSupported: a subquery that refers to both sides of an outer join, in its ON is not supported";

    what_would_be_guessed_is_refused:
        "SELECT id, (SELECT random() FROM q WHERE q.id = p.id) FROM p" => "!FeatureNotSupported: a volatile function in a correlated subquery is not supported",
        "SELECT (SELECT w FROM q WHERE q.id = x.id) FROM (SELECT id FROM p LIMIT 2) AS x" => "!FeatureNotSupported: a correlated subquery over rows that LIMIT, window functions, volatile functions or sums of floats choose is not supported",
        "SELECT random() < 2, (SELECT w FROM q WHERE q.id = p.id) FROM p WHERE id = 1" => "true|100",
        "SELECT (SELECT count(*) FROM q WHERE q.id >= x.id) FROM (SELECT id, random() FROM p) AS x ORDER BY 1" => "2 3 3 4",
        "SELECT (SELECT count(*) FROM q WHERE q.w = x.s) FROM (SELECT k, sum(v) AS s FROM p GROUP BY k) AS x ORDER BY 1" => "0 0 1";
}

/// What DataFusion plans well passes through both rules as it is.
#[tokio::test]
async fn plain_subqueries_are_left_to_datafusion() {
    let context = tables();
    for sql in [
        "SELECT id FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.k = p.k AND q.id <> p.id)",
        "SELECT id FROM p WHERE NOT EXISTS (SELECT 1 FROM q AS i WHERE i.k = p.k)",
        "SELECT id FROM p WHERE id IN (SELECT id FROM q) AND v NOT IN (SELECT w FROM q)",
        "SELECT id FROM p WHERE id IN (SELECT id FROM q GROUP BY id HAVING sum(w) > 3)",
        "SELECT id FROM p WHERE v < (SELECT 0.2 * avg(w) FROM q WHERE q.k = p.k)",
        "SELECT id, (SELECT count(*) FROM q WHERE q.k = p.k) FROM p",
        "SELECT id FROM p WHERE v = (SELECT max(w) FROM q)",
    ] {
        let plan = crate::tests::plan(&context, sql).await.unwrap();
        let state = context.state();
        let analyzed = state
            .analyzer()
            .execute_and_check(plan, state.config_options(), |_, _| {})
            .unwrap()
            .display_indent()
            .to_string();
        assert!(analyzed.contains("<subquery>"), "{sql}:\n{analyzed}");
        assert!(!analyzed.contains("__"), "{sql}:\n{analyzed}");
    }
}
