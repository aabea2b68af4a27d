//! Rows that share a large value: Arrow has a text once, however many rows a join or a window gives it to,
//! and whoever writes it out has it as often.

use super::{GROWTH_MB_MAX, Node};

/// What is free, and the allocator keeps for a moment, of the statements before.
const KEPT_MB_MAX: u64 = 128;

/// A text of 2 MB, which 20,000 rows can be joined with, and a hundred of 100 KB.
const SETUP: &str = "CREATE TABLE rows AS SELECT g AS id, g % 97 AS k, repeat(md5(g::text), 3) AS t FROM generate_series(1, 20000) AS g;
    CREATE TABLE one AS SELECT 1 AS id, repeat('xy', 1000000) AS big;
    CREATE TABLE few AS SELECT g AS id, repeat(chr(97 + g % 26), 100000) AS big FROM generate_series(1, 100) AS g";

const STATEMENTS: &[&str] = &[
    // A window has a copy for each row of a batch.
    "SELECT max(length(x)) FROM (SELECT string_agg(t, '') OVER (ORDER BY id) AS x FROM rows) AS s",
    "SELECT max(cardinality(x)) FROM (SELECT array_agg(t) OVER (ORDER BY id) AS x FROM rows) AS s",
    "SELECT max(length(x)) FROM (SELECT string_agg(t, '') OVER () AS x FROM rows) AS s",
    "SELECT max(length(x)) FROM (SELECT string_agg(t, '') FILTER (WHERE id < 50) OVER () AS x FROM rows) AS s",
    "SELECT max(cardinality(x)) FROM (SELECT array_agg(id) OVER (PARTITION BY k < 0) AS x FROM rows) AS s",
    "SELECT max(length(x)) FROM (SELECT max(big) OVER (ORDER BY r.id) AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT min(big) OVER (ORDER BY r.id ROWS 1000 PRECEDING) AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT max(big) OVER () AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT first_value(big) OVER (ORDER BY r.id) AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT last_value(big) OVER (ORDER BY r.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT nth_value(big, 1) OVER (ORDER BY r.id) AS x FROM rows r LEFT JOIN one o ON o.id = r.id) AS s",
    "SELECT max(length(x)) FROM (SELECT lag(big) OVER (ORDER BY r.id) AS x FROM rows r, one) AS s",
    "SELECT count(*) FROM (SELECT rank() OVER (PARTITION BY k, big ORDER BY big, t) AS x FROM rows, one) AS s WHERE x > 1",
    // Keys of several columns are written out.
    "SELECT rows.id FROM rows, one ORDER BY t, big OFFSET 19000",
    "SELECT rows.id FROM rows, one ORDER BY t, big LIMIT 5",
    "SELECT count(*) FROM (SELECT big, k FROM rows, one GROUP BY big, k) AS s",
    "SELECT count(*) FROM (SELECT DISTINCT big, t FROM rows, one) AS s",
    "SELECT DISTINCT ON (big, k) rows.id FROM rows, one ORDER BY big, k, rows.id",
    "SELECT count(*) FROM (SELECT big, k FROM rows, one UNION SELECT t, k FROM rows) AS s",
    "SELECT count(*) FROM (SELECT big, k FROM rows, one EXCEPT SELECT t, k FROM rows) AS s",
    "SELECT array_agg(big ORDER BY t, big) FROM rows, one",
    "SELECT string_agg(big, ',' ORDER BY t) FROM rows, one",
    "SELECT k, min(big || rows.id) FROM rows, one GROUP BY k",
    // What is sorted beside its keys is written to files when memory runs out.
    "SELECT max(length(x)) FROM (SELECT max(few.big) OVER (ORDER BY rows.id) AS x FROM rows, few) AS s",
    "SELECT max(length(big)) FROM (SELECT rows.id, big FROM rows, few ORDER BY rows.id, few.id OFFSET 10) AS s",
    "SELECT count(*) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY t) AS x, big FROM rows, few) AS s WHERE big > 'b'",
    // What goes from task to task is written to files when memory runs out.
    "SELECT max(length(s.x)) FROM (SELECT string_agg(t, '') AS x FROM rows) AS s, rows WHERE id % 2 = 0",
    "WITH x AS MATERIALIZED (SELECT big, rows.id FROM rows, one) SELECT count(*) FROM x p, x q WHERE p.id = q.id AND p.big > q.big",
    "SELECT count(*) FROM (SELECT big AS x, k FROM rows, one) p JOIN (SELECT big AS x, k FROM rows, one) q USING (x, k)",
    "WITH RECURSIVE r(n, x) AS (SELECT 1, big FROM one UNION ALL SELECT n + 1, x FROM r WHERE n < 10000) SELECT max(length(x)) FROM r",
    // Of arrays each row has a copy.
    "SELECT max(cardinality(x)) FROM (SELECT array_agg(id) AS x FROM rows) AS s, rows",
    "SELECT max(cardinality(x)) FROM (SELECT array_agg(id) AS x, 1 AS k FROM rows) AS s JOIN rows ON rows.k >= s.k",
    "SELECT rows.id FROM (SELECT array_agg(id) AS x FROM rows) AS s, rows ORDER BY t, x OFFSET 19000",
    "SELECT count(*) FROM (SELECT DISTINCT x, k FROM (SELECT array_agg(id) AS x FROM rows) AS s, rows) AS q",
    // Functions look at each row's text.
    "SELECT count(*) FROM rows, one WHERE split_part(big, t, 2) = ''",
    "SELECT count(*) FROM rows, one WHERE length(overlay(big PLACING t FROM 5)) = 0",
    "SELECT count(*) FROM rows, one WHERE position(t IN big) > 0",
    "SELECT count(*) FROM rows, one WHERE big LIKE '%' || t || '%'",
    "SELECT count(*) FROM rows, one WHERE md5(big || t) = t",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_share_a_large_value_stay_within_their_database() {
    let mut node = Node::start().await;
    node.client.batch_execute(SETUP).await.unwrap();
    // Some answers are had, some refused, some come too late.
    let mut answers: Vec<String> = Vec::new();
    for sql in STATEMENTS {
        let state = node.run(sql).await;
        let state = state.as_deref().unwrap_or("00000");
        assert!(
            matches!(state, "00000" | "53200" | "57014"),
            "{state}: {sql}"
        );
        let grown = node.settle(sql).await;
        eprintln!("{state} {grown} MB: {sql}");
        assert!(
            grown <= GROWTH_MB_MAX + KEPT_MB_MAX,
            "{grown} MB more after the end: {sql}"
        );
        answers.push(state.to_owned());
    }
    for state in ["00000", "53200"] {
        assert!(answers.iter().any(|answer| answer == state), "{answers:?}");
    }
}
