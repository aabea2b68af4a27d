//! Literals and rows, read and refused as PostgreSQL does.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::*;

fn rewritten(sql: &str) -> String {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
    type_literals(&mut statements).unwrap();
    let once = statements[0].to_string();
    type_literals(&mut statements).unwrap();
    assert_eq!(
        once,
        statements[0].to_string(),
        "a second call changes nothing"
    );
    once
}

#[test]
fn numbers_get_types_but_not_where_they_count_something() {
    assert_eq!(
        rewritten(
            "SELECT 1, -2, 3000000000, 9223372036854775808, 1.5 FROM t GROUP BY 1, a + 1 ORDER BY 2, b + 1 LIMIT 3 OFFSET 4"
        ),
        "SELECT 1::INT4, -2::INT4, 3000000000::INT8, 9223372036854775808::NUMERIC(19,0), 1.5 FROM t GROUP BY 1, a + 1::INT4 ORDER BY 2, b + 1::INT4 LIMIT 3 OFFSET 4"
    );
    assert_eq!(
        rewritten(
            "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) FROM t"
        ),
        "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING) FROM t"
    );
}

#[test]
fn signs_bind_closer_than_powers() {
    assert_eq!(
        rewritten("SELECT -2 ^ 2, -a ^ 2 ^ b, -a * b, -1.5, - -a"),
        "SELECT -2::INT4 ^ 2::INT4, checked_negate(a) ^ 2::INT4 ^ b, checked_negate(a) * b, -1.5, checked_negate(checked_negate(a))"
    );
}

#[test]
fn literals_and_rows_are_checked_wherever_they_stand() {
    for (sql, kind) in [
        ("SELECT abs('x'::date)", ErrorKind::InvalidDatetimeFormat),
        (
            "SELECT f(DATE '2023-02-30')",
            ErrorKind::DatetimeFieldOverflow,
        ),
        (
            "SELECT CASE WHEN false THEN 'x'::uuid END",
            ErrorKind::InvalidTextRepresentation,
        ),
        ("SELECT 1 = (1, 2)", ErrorKind::UndefinedFunction),
    ] {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        assert_eq!(
            type_literals(&mut statements).unwrap_err().kind,
            kind,
            "{sql}"
        );
    }
}

#[test]
fn rows_compare_by_members() {
    assert_eq!(
        rewritten("SELECT (a, b) = (c, d)"),
        "SELECT (a = c AND b = d)"
    );
    assert_eq!(
        rewritten("SELECT (a, b) <= (c, d)"),
        "SELECT (a < c OR (a = c AND b <= d))"
    );
    assert_eq!(
        rewritten("SELECT (a, b) IN ((c, d), (e, f))"),
        "SELECT ((a = c AND b = d) OR (a = e AND b = f))"
    );
}

#[test]
fn intervals_become_texts() {
    assert_eq!(
        rewritten("SELECT interval '90' day"),
        "SELECT '90 days'::INTERVAL"
    );
    assert_eq!(
        rewritten("SELECT interval '1 year 2 mons'"),
        "SELECT '1 year 2 mons'::INTERVAL"
    );
}
