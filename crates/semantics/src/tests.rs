//! SQL over small tables, compared with PostgreSQL 15's answers.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array, Int64Array,
    RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Schema};
use datafusion::common::DataFusionError;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::functions::cast::{Coercion, Zone, convert};

/// A context with PostgreSQL's semantics and the tables `t` and `empty`.
pub(crate) fn context() -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().sql_parser.parse_float_as_decimal = true;
    config.options_mut().optimizer.skip_failed_rules = false;
    let mut builder = SessionStateBuilder::new_with_default_features().with_config(config);
    let mut planners = super::expr_planners();
    planners.extend(builder.expr_planners().take().unwrap_or_default());
    let mut state: SessionState = builder
        .with_analyzer_rules(super::analyzer_rules())
        .with_expr_planners(planners)
        .with_type_planner(super::type_planner())
        .with_optimizer_rules(super::optimizer_rules())
        .build();
    crate::register(&mut state);
    let context = SessionContext::new_with_state(state);
    let columns: Vec<(Field, ArrayRef)> = vec![
        (
            SqlType::Integer.field("i", true),
            Arc::new(Int32Array::from(vec![
                Some(1),
                Some(2),
                None,
                Some(2_000_000_000),
            ])),
        ),
        (
            SqlType::SmallInt.field("s", true),
            Arc::new(Int16Array::from(vec![Some(1), Some(-2), Some(3), None])),
        ),
        (
            SqlType::BigInt.field("b", true),
            Arc::new(Int64Array::from(vec![
                Some(10),
                None,
                Some(0),
                Some(i64::MAX),
            ])),
        ),
        (
            SqlType::Numeric {
                precision: 12,
                scale: 2,
            }
            .field("n", true),
            Arc::new(
                Decimal128Array::from(vec![Some(150), Some(-250), None, Some(1)])
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
        ),
        (
            SqlType::Double.field("d", true),
            Arc::new(Float64Array::from(vec![1.5, -2.5, 0.0, 1e300])),
        ),
        (
            SqlType::Char(5).field("c", true),
            Arc::new(StringViewArray::from(vec![
                Some("a"),
                Some("b"),
                None,
                Some("abc"),
            ])),
        ),
        (
            SqlType::Text.field("x", true),
            Arc::new(StringViewArray::from(vec![
                Some("a"),
                Some("1"),
                Some(""),
                None,
            ])),
        ),
        (
            SqlType::Date.field("day", true),
            Arc::new(Date32Array::from(vec![
                Some(18_262),
                Some(18_293),
                None,
                Some(0),
            ])),
        ),
        (
            SqlType::Timestamp.field("at", true),
            Arc::new(TimestampMicrosecondArray::from(vec![
                Some(0),
                Some(1_500_000),
                None,
                Some(86_400_000_000),
            ])),
        ),
    ];
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
    let table = MemTable::try_new(Arc::clone(&schema), vec![vec![batch]]).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    context
        .register_table(
            "empty",
            Arc::new(MemTable::try_new(schema, vec![vec![]]).unwrap()),
        )
        .unwrap();
    context
}

/// Our error inside DataFusion's.
pub(crate) fn sql_error(error: &DataFusionError) -> SqlError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(found) = current.downcast_ref::<SqlError>() {
            return found.clone();
        }
        source = match current.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Context(_, inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Diagnostic(_, inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Collection(inner)) => inner.first().map(|first| first as _),
            _ => current.source(),
        };
    }
    SqlError::new(ErrorKind::Internal, format!("not ours: {error}"))
}

pub(crate) async fn plan(
    context: &SessionContext,
    sql: &str,
) -> Result<LogicalPlan, DataFusionError> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)
        .map_err(|error| super::raise(ErrorKind::SyntaxError, error.to_string()))?;
    let mut statement = statements.remove(0);
    super::type_literals(&mut statement).map_err(super::external)?;
    context
        .state()
        .statement_to_plan(DfStatement::Statement(Box::new(statement)))
        .await
}

/// Types and text of all rows.
pub(crate) async fn query(
    context: &SessionContext,
    sql: &str,
) -> Result<(Vec<SqlType>, Vec<Vec<Option<String>>>), SqlError> {
    let run = async {
        let plan = plan(context, sql).await?;
        let frame = context.execute_logical_plan(plan).await?;
        let task = frame.task_ctx();
        let physical = frame.create_physical_plan().await?;
        let schema = physical.schema();
        Ok::<_, DataFusionError>((
            schema,
            datafusion::physical_plan::collect(physical, Arc::new(task)).await?,
        ))
    };
    let (schema, batches) = run.await.map_err(|error| sql_error(&error))?;
    let types: Vec<SqlType> = schema
        .fields()
        .iter()
        .map(|field| SqlType::of_field(field).unwrap())
        .collect();
    let mut rows = Vec::new();
    for batch in &batches {
        let texts: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .zip(&types)
            .map(|(column, ty)| {
                convert(column, *ty, SqlType::Text, Coercion::Explicit, &Zone::UTC).unwrap()
            })
            .collect();
        for row in 0..batch.num_rows() {
            let row = texts.iter().map(|column| {
                use arrow::array::{Array, AsArray};
                (!column.is_null(row)).then(|| column.as_string_view().value(row).to_owned())
            });
            rows.push(row.collect());
        }
    }
    Ok((types, rows))
}

async fn one(
    context: &SessionContext,
    expression: &str,
) -> Result<(String, Option<String>), SqlError> {
    let (types, rows) = query(context, &format!("SELECT {expression} AS x")).await?;
    Ok((types[0].plain_name().to_owned(), rows[0][0].clone()))
}

/// Numerics have a static scale here, so trailing zeros say nothing.
fn normal(ty: &str, text: &str) -> String {
    if ty != "numeric" || !text.contains('.') {
        return text.to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Whether two numerics agree in the 16 digits after the point that we keep.
fn close(ty: &str, expected: &str, got: &str) -> bool {
    ty == "numeric"
        && match (expected.parse::<f64>(), got.parse::<f64>()) {
            (Ok(expected), Ok(got)) => (expected - got).abs() <= 1e-15 * expected.abs().max(1.0),
            _ => false,
        }
}

/// Each line of `goldens.tsv` is an expression with its type and value, or its
/// error, as PostgreSQL 15 gives them. A line that begins with `-- ` says how
/// the line after it differs here, which then holds our answer.
#[tokio::test]
async fn expressions_are_postgresqls() {
    let context = context();
    let mut wrong = Vec::new();
    for line in include_str!("goldens.tsv")
        .lines()
        .filter(|line| !line.starts_with("-- "))
    {
        let mut parts = line.splitn(3, '\t');
        let (expression, ty, value) = (
            parts.next().unwrap(),
            parts.next().unwrap(),
            parts.next().unwrap(),
        );
        let got = one(&context, expression).await;
        let same = match &got {
            Ok((got_type, got_value)) => {
                let got_value = got_value.as_deref().unwrap_or("∅");
                got_type == ty
                    && (normal(ty, got_value) == normal(ty, value) || close(ty, value, got_value))
            }
            Err(error) => ty == "ERROR" && error.message == value,
        };
        if !same {
            let got = match got {
                Ok((ty, value)) => format!("{ty}\t{}", value.unwrap_or("∅".to_owned())),
                Err(error) => format!("ERROR\t{}", error.message),
            };
            wrong.push(format!("{line}\n    got: {got}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Rows of a query as text: values joined by `|`, rows by newlines.
async fn rows(context: &SessionContext, sql: &str) -> String {
    match query(context, sql).await {
        Ok((_, rows)) => {
            let line = |row: Vec<Option<String>>| {
                row.into_iter()
                    .map(|v| v.unwrap_or("∅".to_owned()))
                    .collect::<Vec<_>>()
                    .join("|")
            };
            rows.into_iter().map(line).collect::<Vec<_>>().join("\n")
        }
        Err(error) => format!("{:?}: {}", error.kind, error.message),
    }
}

macro_rules! check {
    ($($name:ident: $($sql:expr => $expected:expr),+ $(,)?;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                let context = context();
                $(assert_eq!(rows(&context, $sql).await, $expected, "{}", $sql);)+
            }
        )+
    };
}

check! {
    grouping_sets_take_expressions:
        "SELECT grouping(i % 2), i % 2, count(*), sum(i % 2) FROM t GROUP BY ROLLUP (i % 2) ORDER BY 1, 2" => "0|0|2|0\n0|1|1|1\n0|∅|1|∅\n1|∅|4|1",
        "SELECT 0 WHERE false GROUP BY GROUPING SETS ((3::float8::int), ())" => "0",
        "SELECT 0 FROM t WHERE false GROUP BY ROLLUP (to_hex(5))" => "0",
        "SELECT s % nullif(s, 3::smallint) FROM t GROUP BY CUBE ((s % nullif(s, 3::smallint))) ORDER BY 1" => "0\n∅\n∅",
        "SELECT i + 1 AS x, max(i + 1) FROM t WHERE i < 3 GROUP BY ROLLUP (i + 1) HAVING count(*) > 0 ORDER BY 1" => "2|2\n3|3\n∅|3",
        "SELECT s, i + 1 FROM t WHERE i < 3 GROUP BY s, ROLLUP (i + 1) ORDER BY 1, 2" => "-2|3\n-2|∅\n1|2\n1|∅";

    a_subquery_without_rows_is_null:
        "SELECT (SELECT 1 FROM t WHERE t.i < -5) IS NULL AS a, (SELECT count(*) FROM t WHERE false) IS NULL AS b" => "true|false",
        "SELECT 1 FROM empty RIGHT JOIN t ON true WHERE (SELECT 1 FROM empty) IS NULL AND t.i = 1" => "1";

    nullif_gives_what_it_was_given:
        "SELECT nullif(interval '1 day', interval '1 mon'), nullif(interval '30 days', interval '1 mon')" => "1 day|∅",
        "SELECT '1 day'::interval BETWEEN nullif(NULL::interval, '1 day') AND '1 mon'::interval" => "∅",
        "SELECT pg_typeof(nullif(1::real, 2::float8)) AS a, pg_typeof(nullif(1::smallint, 2::bigint)) AS b, pg_typeof(nullif(1, 2.5::float8)) AS c" => "real|smallint|double precision",
        "SELECT nullif(s, 1), nullif(x, 'a') FROM t WHERE i < 3 ORDER BY i" => "∅|∅\n-2|1",
        "SELECT pg_typeof(v) FROM (SELECT 0 EXCEPT SELECT 1::numeric) AS q(v)" => "numeric";

    defaults_of_neighbours_differ_by_row:
        "SELECT lead(i, 1, s) OVER (ORDER BY i), lag(i, 1, i * 2) OVER (ORDER BY i) FROM t WHERE i < 3 ORDER BY i" => "2|2\n-2|1";

    aggregates_have_wider_types:
        "SELECT sum(i), sum(s), sum(b), sum(n), sum(d), avg(i), avg(n) FROM t" =>
            "2000000003|2|9223372036854775817|-0.99|1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000|666666667.6666666666666667|-0.3300000000000000".replace("1000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000", "1e+300"),
        "SELECT sum(i), avg(i), count(*) FROM empty" => "∅|∅|0",
        "SELECT x, sum(i), avg(b) FROM t GROUP BY x ORDER BY x" => "|∅|0.0000000000000000\n1|2|∅\na|1|10.0000000000000000\n∅|2000000000|9223372036854775807.0000000000000000",
        "SELECT sum(DISTINCT i), count(DISTINCT i), sum(s), max(b) FROM t" => "2000000003|3|2|9223372036854775807",
        "SELECT count(DISTINCT i), sum(i) FROM t" => "3|2000000003",
        "SELECT sum(DISTINCT v), sum(DISTINCT v * 2), avg(DISTINCT v) FROM (VALUES (1), (1), (2)) AS q(v)" => "3|6|1.5000000000000000",
        "SELECT sum(s), sum(s::bigint), avg(s::float8), avg(s), sum(1), sum(1::bigint) FROM t" => "2|2|0.6666666666666666|0.6666666666666667|4|4",
        "SELECT min(x::bytea) FROM t" => "UndefinedFunction: function min(bytea) does not exist",
        "SELECT pg_typeof(sum(b)), pg_typeof(2000000000 * sum(i)) FROM t" => "numeric|bigint",
        "SELECT sum(i * 2) FROM t" => "NumericValueOutOfRange: integer out of range",
        "SELECT sum(x) FROM t" => "UndefinedFunction: function sum(text) does not exist",
        "SELECT i, sum(i) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t WHERE i < 10 ORDER BY i" => "1|1\n2|3",
        "SELECT bool_and(i > 0), every(i > 1), bool_or(i > 5) FROM t" => "true|false|true",
        "SELECT sum(i) FILTER (WHERE s > 0) FROM t" => "1",
        "SELECT string_agg(x, ',' ORDER BY x) FROM t WHERE x <> ''" => "1,a";

    columns_keep_their_types:
        "SELECT i + 1, i - s, b + 1 FROM t WHERE s = 1" => "2|0|11",
        "SELECT b + 1 FROM t WHERE i = 2000000000" => "NumericValueOutOfRange: bigint out of range",
        "SELECT b / s FROM t WHERE s = 1" => "10",
        "SELECT 1 / (i - i) FROM t" => "DivisionByZero: division by zero",
        "SELECT i FROM t WHERE c = 'a    '" => "1",
        "SELECT i FROM t WHERE x = 1" => "UndefinedFunction: operator does not exist: text = integer",
        "SELECT i FROM t WHERE i = '2'" => "2",
        "SELECT i FROM t WHERE day = '2020-01-01'" => "1",
        "SELECT i FROM t WHERE day >= '2020-01-01' AND day < date '2020-01-01' + interval '1' month" => "1",
        "SELECT count(*) FROM t WHERE n > 0 AND n < 1.505" => "2",
        "SELECT n * 2, n / 3, n + 0.001, -n FROM t WHERE i = 1" => "3.00|0.5000000000000000|1.501|-1.50",
        "SELECT count(*) FROM t WHERE i IN (1, '2', 3)" => "2",
        "SELECT count(*) FROM t WHERE i BETWEEN '1' AND 2" => "2",
        "SELECT count(*) FROM t WHERE s <> 0 AND 10 / s > 0" => "2",
        "SELECT count(*) FROM t WHERE b <> 0 AND 10 / b > 0" => "1",
        "SELECT count(*) FROM t WHERE 10 / b > 0 AND i = 1" => "DivisionByZero: division by zero",
        "SELECT CASE WHEN b <> 0 THEN 10 / b ELSE 0 END FROM t WHERE b IS NOT NULL ORDER BY 1" => "0\n0\n1";

    statements_stay_whole:
        "SELECT i FROM t ORDER BY 1 DESC NULLS LAST LIMIT 1" => "2000000000",
        "SELECT i FROM t ORDER BY i LIMIT 1 OFFSET 1" => "2",
        "SELECT s % 2, count(*) FROM t GROUP BY 1 ORDER BY 1" => "0|1\n1|2\n∅|1",
        "SELECT s + 1, count(*) FROM t GROUP BY s + 1 ORDER BY s + 1" => "-1|1\n2|1\n4|1\n∅|1",
        "SELECT 1 UNION ALL SELECT 3000000000 ORDER BY 1" => "1\n3000000000",
        "SELECT a FROM (VALUES (1), (2.5), (NULL)) AS v(a)" => "1.0\n2.5\n∅",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r" => "15",
        "SELECT (SELECT max(i) FROM t WHERE t.s = q.k) FROM (SELECT 1 AS k) q" => "1",
        "SELECT i FROM t WHERE i = (SELECT min(i) FROM t)" => "1",
        "SELECT i FROM t WHERE EXISTS (SELECT 1 FROM (VALUES (1)) AS v(a) WHERE v.a = t.i)" => "1",
        "SELECT i FROM t WHERE i IN (SELECT a FROM (VALUES (1), (2)) AS v(a)) ORDER BY 1" => "1\n2",
        "SELECT t.i FROM t JOIN (VALUES (1, 'one')) AS v(a, b) ON t.i = v.a" => "1",
        "SELECT t.i FROM t JOIN empty AS u ON t.i" => "DatatypeMismatch: argument of JOIN/ON must be type boolean, not type integer",
        "SELECT * FROM generate_series(1)" => "UndefinedFunction: function generate_series(integer) does not exist",
        "SELECT length(gen_random_uuid()::text)" => "36",
        "SELECT count(DISTINCT gen_random_uuid()) FROM t" => "4",
        "SELECT octet_length('ä'), octet_length('\\xdead'::bytea), bit_length('ab')" => "2|2|16",
        "SELECT -i, -s, -b, -n, -d FROM t WHERE i = 1" => "-1|-1|-10|-1.50|-1.5",
        "SELECT i FROM t WHERE i = -(-1)" => "1",
        "SELECT -x FROM t" => "UndefinedFunction: operator does not exist: - text",
        "SELECT t.i FROM t JOIN t AS u ON t.x = u.i" => "UndefinedFunction: operator does not exist: text = integer",
        "SELECT rank() OVER (ORDER BY i), lag(i, 1, 0) OVER (ORDER BY i) FROM t WHERE i < 5" => "1|0\n2|1",
        "SELECT ntile(2) OVER (ORDER BY i) FROM t WHERE i < 5" => "1\n2",
        "SELECT * FROM generate_series(1, 3)" => "1\n2\n3",
        "SELECT * FROM generate_series(1, 2, 0.5)" => "1.0\n1.5\n2.0",
        "SELECT unnest(generate_series(2147483646, 2147483647))" => "2147483646\n2147483647",
        "SELECT unnest(generate_series(9223372036854775806, 9223372036854775807))" => "9223372036854775806\n9223372036854775807",
        "SELECT unnest(generate_series(1.5, 3)), unnest(generate_series(2, 1, -1))" => "1.5|2\n2.5|1",
        "SELECT i, unnest(generate_series(1, i)) FROM t WHERE i < 3 ORDER BY 1, 2" => "1|1\n2|1\n2|2",
        "SELECT unnest(generate_series(1, NULL))" => "",
        "SELECT unnest(generate_series(1, 3, 0))" => "InvalidParameterValue: step size cannot equal zero",
        "SELECT unnest(generate_series('2024-01-31'::timestamp, '2024-03-01', '1 month'))" => "2024-01-31 00:00:00\n2024-02-29 00:00:00",
        "SELECT unnest(generate_series(1, 1000000000))" => "ProgramLimitExceeded: generate_series in a SELECT list makes too many values at once",
        "SELECT unnest(\"\u{1}series_each\"(1, 100000000)) FROM t" => "ProgramLimitExceeded: generate_series in a SELECT list makes too many values at once",
        "SELECT generate_series(true, i) FROM t" => "UndefinedFunction: function generate_series(boolean, integer) does not exist",
        "SELECT sum(i) FROM t HAVING sum(i) > 5" => "2000000003",
        "SELECT DISTINCT s > 0 FROM t WHERE s IS NOT NULL ORDER BY 1" => "false\ntrue",
        "SELECT count(*) FROM t GROUP BY GROUPING SETS ((), (x)) ORDER BY 1 DESC LIMIT 1" => "4";
}
