//! What one statement makes: every function is called with arguments that grow, in a database of
//! little memory, and whatever it answers, the process stays small and the answer comes in time.

mod shared;

use std::fs;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::{Aerostat, PATIENCE, value};

/// What the database may have.
const MEMORY_MAX_MB: u64 = 64;

/// What the process may grow by while one statement runs: the database's memory, and beside it
/// what is not counted, which are a few values of 16 MB on their way (as a scalar, as an argument,
/// in the message to the client) and the batches below a mebibyte of each operator.
const GROWTH_MB_MAX: u64 = MEMORY_MAX_MB + 192;

/// After which a statement is told to stop.
const TIMEOUT: Duration = Duration::from_millis(1_000);

/// What the node may compute for one statement: all its threads until the timeout, and as long again
/// until they have stopped, which the nodes of tests, not optimised, may need. It is the processor's
/// time, for other tests take the machine's.
const THREADS: u32 = 2;
const COMPUTED_MAX: Duration = Duration::from_millis(THREADS as u64 * 3_500);

struct Node {
    node: Aerostat,
    client: Client,
    /// The process's memory before a statement.
    quiet_mb: u64,
}

impl Node {
    async fn start() -> Self {
        let threads = THREADS.to_string();
        let node = Aerostat::start_with(&["--memory", "1GB", "--threads", &threads]);
        let admin = node.connect("aerostat").await;
        let sql = format!("CREATE DATABASE small WITH (memory_max = '{MEMORY_MAX_MB}MB')");
        admin.batch_execute(&sql).await.unwrap();
        let client = node.connect("small").await;
        let sql = format!("SET statement_timeout = {}", TIMEOUT.as_millis());
        client.batch_execute(&sql).await.unwrap();
        let mut node = Self {
            node,
            client,
            quiet_mb: 0,
        };
        // Whatever a session makes once.
        node.run("SELECT count(*) FROM pg_class").await;
        node.quiet_mb = node.memory_mb("VmRSS");
        node
    }

    fn memory_mb(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.node.process_id());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() >> 10
    }

    /// The processor's time that the node has taken.
    fn computed(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.node.process_id());
        let stat = fs::read_to_string(path).unwrap();
        // Behind the name in brackets: of user and system the 12th and 13th field, in hundredths.
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: u64 = ticks.map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Waits until nobody computes any more, and gives what the process has grown to since it was quiet.
    async fn settle(&self, sql: &str) -> u64 {
        const LOOK: Duration = Duration::from_millis(200);
        let since = Instant::now();
        loop {
            let before = self.computed();
            tokio::time::sleep(LOOK).await;
            if self.computed() - before < LOOK / 4 {
                return self.memory_mb("VmHWM").saturating_sub(self.quiet_mb);
            }
            assert!(since.elapsed() < PATIENCE, "goes on for ever: {sql}");
        }
    }

    /// Runs a statement, and checks what it took. Gives the SQLSTATE of its error.
    async fn run(&mut self, sql: &str) -> Option<String> {
        self.run_shown(sql, sql).await
    }

    async fn run_shown(&mut self, sql: &str, shown: &str) -> Option<String> {
        // From now on the peak is this statement's.
        fs::write(format!("/proc/{}/clear_refs", self.node.process_id()), "5").unwrap();
        let before = self.memory_mb("VmRSS");
        let computed_before = self.computed();
        let done = tokio::time::timeout(PATIENCE, self.client.simple_query(sql));
        let done = done.await.unwrap_or_else(|_| panic!("hangs: {shown}"));
        let computed = self.computed().saturating_sub(computed_before);
        let error = done.err();
        assert!(
            self.node.is_running(),
            "the node ended: {shown}\n{}",
            self.node.log()
        );
        let state = error.map(|error| match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("the connection was lost: {error}: {shown}"),
        });
        let grown = self
            .memory_mb("VmHWM")
            .saturating_sub(before.max(self.quiet_mb));
        assert!(
            grown <= GROWTH_MB_MAX,
            "{grown} MB more, {state:?}: {shown}"
        );
        assert!(computed <= COMPUTED_MAX, "{computed:?}, {state:?}: {shown}");
        state
    }
}

/// Texts as wide as a planner would take hours for.
fn wide() -> Vec<String> {
    const COUNT: usize = 50_000;
    let list = |item: &str| [item; COUNT].join(", ");
    let numbered = |item: &str| {
        let items = (0..COUNT).map(|number| item.replace('#', &number.to_string()));
        items.collect::<Vec<_>>().join(", ")
    };
    vec![
        format!("SELECT {}", list("1")),
        format!("SELECT {}", numbered("# AS c#")),
        format!(
            "SELECT count(*) FROM (SELECT 1 AS a) t GROUP BY {}",
            list("a")
        ),
        format!("SELECT a FROM (SELECT 1 AS a) t ORDER BY {}", list("a")),
        format!(
            "SELECT DISTINCT ON ({}) a FROM (SELECT 1 AS a) t",
            list("a")
        ),
        format!("VALUES ({})", list("1")),
        format!("SELECT ROW({}) = ROW(1)", list("1")),
        format!("SELECT concat({})", list("'a'")),
        format!("SELECT coalesce({})", list("NULL::int")),
        format!("SELECT greatest({})", numbered("#")),
        format!(
            "SELECT greatest({}) FROM generate_series(1, 3) g",
            numbered("g + #")
        ),
        format!("SELECT ARRAY[{}]", numbered("#")),
        format!(
            "SELECT ARRAY[{}] FROM generate_series(1, 3) g",
            numbered("g + #")
        ),
        format!(
            "SELECT CASE g {} END FROM generate_series(1, 3) g",
            numbered("WHEN # THEN 1").replace(',', "")
        ),
        format!(
            "SELECT 1 FROM generate_series(1, 3) g WHERE g IN ({})",
            numbered("g + #")
        ),
        format!(
            "SELECT 1 FROM generate_series(1, 3) g WHERE g NOT IN ({})",
            numbered("#")
        ),
        format!("SELECT 1 FROM {}", numbered("(SELECT 1) t#")),
        format!("WITH {} SELECT 1", numbered("w# AS (SELECT 1)")),
        format!(
            "SELECT 1 FROM generate_series(1, 3) g WINDOW {}",
            numbered("w# AS (ORDER BY g)")
        ),
        format!(
            "SELECT count(*) FROM generate_series(1, 3) g GROUP BY GROUPING SETS ({})",
            list("(g)")
        ),
        format!(
            "SELECT count(*) FROM generate_series(1, 3) g GROUP BY CUBE ({})",
            ["g"; 20].join(", ")
        ),
        format!("PREPARE p ({}) AS SELECT 1", list("integer")),
        format!("CREATE TABLE t ({})", numbered("c# integer")),
        format!("CREATE TABLE t (a integer, {})", numbered("CHECK (a > #)")),
        format!("INSERT INTO pg_class VALUES ({})", list("1")),
        format!("DROP TABLE {}", numbered("t#")),
        format!("SELECT 1 WHERE 1 = ALL (VALUES {})", list("(1)")),
        format!(
            "SELECT sum(g) {} FROM generate_series(1, 3) g",
            ", sum(g)".repeat(1_600)
        ),
        format!(
            "SELECT g FROM generate_series(1, 3) g {}",
            "JOIN (SELECT 1 AS x) t USING (x) ".repeat(1_000)
        ),
        format!(
            "SELECT 1 FROM {}",
            (0..300)
                .map(|n| format!("(SELECT {n} AS a{n}) t{n}"))
                .collect::<Vec<_>>()
                .join(" NATURAL JOIN ")
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wide_text_is_refused_or_ends_with_its_statement() {
    let mut node = Node::start().await;
    for sql in wide() {
        let shown: String = sql.chars().take(60).collect();
        let state = node.run_shown(&sql, &shown).await;
        assert!(
            !state
                .as_deref()
                .is_some_and(|state| state.starts_with("XX")),
            "{state:?}: {shown}"
        );
        let grown = node.settle(&shown).await;
        eprintln!("{state:?} {grown} MB: {shown}");
        assert!(
            grown <= GROWTH_MB_MAX,
            "{grown} MB more after the end: {shown}"
        );
    }
}

/// Statements that make gigabytes of what fits in a line.
const HOSTILE: &[&str] = &[
    "CREATE TABLE long_texts AS SELECT g, repeat('x', 100000) AS t FROM generate_series(1, 100000) AS g",
    "SELECT replace(repeat('a', 1000000), 'a', repeat('b', 10000))",
    "SELECT array_to_string(string_to_array(repeat('a,', 1000000), ','), repeat('z', 2000))",
    "SELECT concat_ws(repeat('x', 10000000), 'a', repeat('b', 10000000), 'c')",
    "SELECT concat(repeat('x', 10000000), repeat('y', 10000000))",
    "SELECT repeat('x', 10000000) || repeat('y', 10000000)",
    "SELECT repeat('x', 10000000) || g FROM generate_series(1, 1000) g",
    "SELECT repeat('x', 1000000) || g FROM generate_series(1, 10000) g",
    "SELECT count(*) FROM generate_series(1, 10000) g WHERE length(repeat('x', 1000000) || g) > g",
    "SELECT regexp_replace(repeat('a', 1000000), 'a', repeat('b', 10000), 'g')",
    "SELECT regexp_replace(repeat('a', 10000000), '(a)', repeat('\\1', 10000), 'g')",
    "SELECT count(regexp_split_to_array(repeat('a', 10000000), ''))",
    "SELECT count(*) FROM generate_series(1, 8000) g WHERE 'abc' ~ ('\\w{30}' || g)",
    "SELECT count(*) FROM generate_series(1, 8000) g WHERE 'abc' ~ ('[a-z]{40}' || g)",
    "SELECT count(*) FROM generate_series(1, 8000) g WHERE 'abc' !~* ANY (ARRAY['\\w{30}' || g, '\\w{31}' || g])",
    "SELECT sum(regexp_count('abc', '\\w{30}' || g)) FROM generate_series(1, 8000) g",
    "SELECT regexp_substr('a', repeat('ab,', 4000000))",
    "SELECT count(regexp_match('a', repeat('ab,', 30000) || g)) FROM generate_series(1, 1000) g",
    "SELECT count(regexp_split_to_array(repeat('a', 1000000 + g), '')) FROM generate_series(1, 1000) g",
    "SELECT count(string_to_array(repeat('a', 10000000), NULL))",
    "SELECT count(string_to_array(repeat(',', 15000000 + g), ',')) FROM generate_series(1, 100) g",
    "SELECT string_agg(repeat('x', 100000), repeat(',', 100000)) FROM generate_series(1, 10000)",
    "SELECT array_agg(repeat('x', 100000) || g) FROM generate_series(1, 10000) g",
    "SELECT count(DISTINCT repeat('x', 100000) || g) FROM generate_series(1, 10000) g",
    "SELECT repeat('x', 100000) || g AS t, count(*) FROM generate_series(1, 10000) g GROUP BY t",
    "SELECT to_char(1, repeat('9', 15000000))",
    "SELECT to_char(now(), repeat('Month ', 2000000))",
    "SELECT count(concat_ws(array_fill(1, ARRAY[1000000]), g, array_fill(repeat('x', 1000), ARRAY[100000]))) FROM generate_series(1, 10000) g",
    "SELECT count(*) FROM generate_series(1, 10000) g WHERE g < ANY (array_fill(g / g, ARRAY[1]) || array_fill(1, ARRAY[1000000]))",
    "SELECT format(repeat('%1$s', 1000000), repeat('x', 10000000))",
    "SELECT format('%15000000s%15000000s%15000000s', 'a', 'b', 'c')",
    "SELECT lpad('x', 16000000 - g, 'ab') FROM generate_series(1, 1000) g",
    "SELECT count(rpad('x', 1000000, 'ab')) FROM generate_series(1, 8000) g WHERE g > 0",
    "SELECT translate(repeat('a', 15000000), 'a', '\u{10348}')",
    "SELECT overlay(repeat('a', 15000000) PLACING repeat('b', 15000000) FROM 7)",
    "SELECT encode(repeat('a', 15000000)::bytea, 'hex')",
    "SELECT quote_literal(repeat('''', 15000000))",
    "SELECT count(array_fill(1, ARRAY[16000000])) FROM generate_series(1, 100)",
    "SELECT array_fill(0, ARRAY[1000000]) FROM generate_series(1, 10000)",
    "SELECT array_fill(repeat('x', 1000), ARRAY[1000000])::text",
    "SELECT array_cat(array_fill(1, ARRAY[4000000]), array_fill(1, ARRAY[4000000])) FROM generate_series(1, 100)",
    "SELECT array_append(array_fill(g, ARRAY[1000000]), 1) FROM generate_series(1, 1000) g",
    "SELECT array_agg(g) FROM generate_series(1, 100000000) g",
    "SELECT generate_series(1, 10000000), array_fill(1, ARRAY[1000000])",
    "SELECT unnest(a), a FROM (SELECT array_fill(1, ARRAY[1000000]) AS a) t",
    "SELECT unnest(a), a FROM (SELECT array_agg(g) AS a FROM generate_series(1, 100000) g) t",
    "SELECT array_fill(1, ARRAY[4000000])::text FROM generate_series(1, 1000)",
    "WITH RECURSIVE t AS (SELECT 'x' AS v UNION ALL SELECT repeat(v, 2) FROM t) SELECT max(length(v)) FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS n, repeat('x', 1000000) AS v UNION ALL SELECT n + 1, v || n FROM t) SELECT count(*) FROM t",
    "SELECT row_number() OVER (ORDER BY g), lag(repeat('x', 100000) || g) OVER (ORDER BY g) FROM generate_series(1, 10000) g",
    "SELECT repeat('x', 1000000) || g AS t FROM generate_series(1, 1000) g ORDER BY t",
    "SELECT count(*) FROM (SELECT repeat('x', 100000) || g AS t FROM generate_series(1, 2000) g) a, (SELECT repeat('y', 100000) || g AS u FROM generate_series(1, 2000) g) b WHERE t < u",
    "SELECT array_fill(1, ARRAY[4000000]) && array_fill(2, ARRAY[4000000])",
    "SELECT array_fill(1, ARRAY[1000000]) @> array_fill(2, ARRAY[1000000])",
    "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
    "SELECT json_build_object('a', repeat('\"', 15000000), 'b', repeat('\"', 15000000))",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_makes_gigabytes_is_refused_or_made_in_pieces() {
    let mut node = Node::start().await;
    let mut answers = Vec::new();
    for sql in HOSTILE {
        let state = node.run(sql).await;
        let state = state.as_deref().unwrap_or("00000");
        let is_clean = matches!(
            state,
            "00000"
                | "22023"
                | "22000"
                | "2201B"
                | "54001"
                | "54011"
                | "54023"
                | "42883"
                | "53200"
                | "54000"
                | "57014"
        );
        assert!(is_clean, "{state}: {sql}");
        answers.push(state.to_owned());
        // What was told to stop may go on where nobody sees it.
        if state == "57014" {
            let grown = node.settle(sql).await;
            assert!(
                grown <= GROWTH_MB_MAX,
                "{grown} MB more after the end: {sql}"
            );
        }
    }
    // Some of each, so that nothing else is at work.
    for state in ["00000", "53200", "54000"] {
        assert!(answers.iter().any(|answer| answer == state), "{answers:?}");
    }
    // Nothing is left behind.
    assert_eq!(
        value(&node.client, "SELECT length(repeat('x', 15000000))").await,
        "15000000"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_in_pieces_is_whole() {
    let node = Node::start().await;
    let no_timeout = node.client.batch_execute("SET statement_timeout = 0");
    no_timeout.await.unwrap();
    // 300 MB through a database of 64.
    let sql = "SELECT repeat('x', 1000000) || g FROM generate_series(1, 300) g";
    let rows = node.client.simple_query(sql).await.unwrap();
    let rows = rows.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let ends: Vec<&str> = rows.map(|text| &text[1_000_000..]).collect();
    let expected: Vec<String> = (1..=300).map(|g| g.to_string()).collect();
    assert_eq!(ends, expected);
}

/// Numbers from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Arguments by kind: small ones, by which it is seen whether a function takes them, and growing
/// ones. `g` is the row's number.
const ARGUMENTS: &[(&str, &[&str])] = &[
    (
        "'ab'::text",
        &[
            "repeat('ab,', 4000000)",
            "repeat('a', 1000000)",
            "repeat('x', 100000 + g)",
            "'a'::text",
            "','::text",
            "''::text",
            "repeat('%1$s', 100000)",
            "repeat('\\\\&', 1000000)",
        ],
    ),
    (
        "2::int",
        &["1000000", "100000000", "2147483647", "g", "-5", "1000"],
    ),
    (
        "2::bigint",
        &["9000000000::bigint", "1000000::bigint", "g::bigint"],
    ),
    (
        "ARRAY['a','b']::text[]",
        &[
            "array_fill('ab'::text, ARRAY[1000000])",
            "string_to_array(repeat('a,', 1000000), ',')",
            "array_fill(repeat('x', 1000), ARRAY[100000])",
            "array_fill('a'::text, ARRAY[g])",
        ],
    ),
    (
        "ARRAY[1,2]",
        &[
            "array_fill(1, ARRAY[3000000])",
            "array_fill(g, ARRAY[100000])",
            "ARRAY[1000000]",
        ],
    ),
    (
        "2.5::numeric",
        &[
            "99999999999999999999999999999.5::numeric",
            "0.0000000001::numeric",
            "g::numeric",
        ],
    ),
    (
        "2.5::float8",
        &["1e308::float8", "g::float8", "1e-300::float8"],
    ),
    (
        "'ab'::bytea",
        &["repeat('a', 10000000)::bytea", "repeat('a', g)::bytea"],
    ),
    (
        "now()",
        &[
            "'294000-01-01'::timestamptz",
            "now() + g * interval '1 day'",
        ],
    ),
    (
        "interval '1 day'",
        &["interval '1000000 years'", "interval '1 microsecond'"],
    ),
    ("true", &["true", "g > 1"]),
];

/// Functions that wait, change what others see, or read and write types by name.
fn is_apart(name: &str) -> bool {
    let prefixes = ["pg_", "has_", "to_reg", "aerostat_", "regr_"];
    let suffixes = ["in", "out", "recv", "send", "privilege"];
    let kept = ["min", "sin", "asin", "tan"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || suffixes.iter().any(|suffix| name.ends_with(suffix)) && !kept.contains(&name)
        || matches!(
            name,
            "nextval" | "setval" | "set_config" | "row_in" | "quantified"
        )
}

/// Calls of random functions whose arguments grow: `ROUNDS` times the calls with the seed `SEED`
/// from the environment. `make crash` draws the seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_function_stays_within_its_database() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("SEED").unwrap_or(1);
    let calls_max = 150 * number("ROUNDS").unwrap_or(1);
    eprintln!("SEED={seed}");
    let mut random = Random(seed);
    let mut node = Node::start().await;
    let names = "SELECT DISTINCT proname FROM pg_proc ORDER BY proname";
    let names = node.client.query(names, &[]).await.unwrap();
    let names: Vec<String> = names.iter().map(|row| row.get(0)).collect();
    let names: Vec<&String> = names.iter().filter(|name| !is_apart(name)).collect();
    assert!(names.len() > 200, "{} functions", names.len());
    let (mut calls, mut known) = (0, 0);
    let patience =
        Instant::now() + Duration::from_secs(40) * u32::try_from(calls_max / 150).unwrap();
    while calls < calls_max && Instant::now() < patience {
        let name = random.of(&names);
        let Some(kinds) = accepted(&mut node, &mut random, name).await else {
            continue;
        };
        known += 1;
        for _ in 0..3 {
            let arguments: Vec<&str> = kinds
                .iter()
                .map(|kind| *random.of(ARGUMENTS[*kind].1))
                .collect();
            let call = format!("\"{name}\"({})", arguments.join(", "));
            let rows = random.of(&[1, 3, 100, 10_000]);
            let sql = match random.below(2) {
                0 => format!("SELECT count({call}) FROM generate_series(1, {rows}) g"),
                _ => format!(
                    "SELECT {call} FROM generate_series(1, {rows}) g OFFSET {}",
                    rows - 1
                ),
            };
            let state = node.run(&sql).await;
            // A broken invariant is no answer.
            assert_ne!(state.as_deref(), Some("XX000"), "{sql}");
            calls += 1;
        }
    }
    eprintln!("{calls} calls, {known} signatures");
    assert!(known >= 10, "{known} signatures");
}

/// Kinds of arguments that a function takes, found by asking.
async fn accepted(node: &mut Node, random: &mut Random, name: &str) -> Option<Vec<usize>> {
    for _ in 0..8 {
        let count = 1 + random.below(3);
        let kinds: Vec<usize> = (0..count).map(|_| random.below(ARGUMENTS.len())).collect();
        let small: Vec<&str> = kinds.iter().map(|kind| ARGUMENTS[*kind].0).collect();
        let sql = format!(
            "SELECT \"{name}\"({}) FROM generate_series(1, 1) g",
            small.join(", ")
        );
        if node.client.simple_query(&sql).await.is_ok() {
            return Some(kinds);
        }
        assert!(node.node.is_running(), "{sql}");
    }
    None
}
