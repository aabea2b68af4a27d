//! What a greedy tenant asks for, drawn from a seed.

use std::fmt::Write;

use crate::dice::Dice;

/// The greedy tenant's tables: enough rows to multiply, and texts to concatenate.
pub(super) const SETUP: [&str; 4] = [
    "CREATE TABLE wide (id integer PRIMARY KEY, k integer, t text, n numeric(20,4), d timestamp)",
    "INSERT INTO wide SELECT g, g % 97, repeat(md5(g::text), 3), g * 1.5, timestamp '2026-01-01' + g * interval '1 minute'
     FROM generate_series(1, 50000) AS g",
    "CREATE TABLE sink (id bigint, t text)",
    "CREATE TABLE texts AS SELECT g AS id, repeat(chr(97 + g % 26), 100000) AS t FROM generate_series(1, 200) AS g",
];

/// How many characters of a statement a complaint shows.
const SHOWN: usize = 160;

/// What is sent at once.
pub(super) enum Request {
    Query(String),
    /// One after another, in a transaction block.
    Block(Vec<String>),
    /// Its rows are never read.
    Unread(String),
    /// A prepared statement of the protocol.
    Parse {
        name: String,
        sql: String,
    },
}

impl Request {
    /// The beginning of its text.
    pub(super) fn shown(&self) -> String {
        let sql = match self {
            Self::Query(sql) | Self::Unread(sql) | Self::Parse { sql, .. } => sql,
            Self::Block(statements) => &statements.join("; "),
        };
        let start: String = sql.chars().take(SHOWN).collect();
        format!("{start} ({} bytes)", sql.len())
    }
}

/// One request of the session with this number.
pub(super) fn request(dice: &mut Dice, session: u64) -> Request {
    let sql = match dice.below(20) {
        0..=4 => format!("SELECT length({}::text)", growing(dice, 2)),
        5 => format!("SELECT {}", growing(dice, 1)),
        6 => rows_that_grow(dice),
        7 => aggregate(dice),
        8 => join(dice),
        9 => sort(dice),
        10 => recursion(dice),
        11 => long_list(dice),
        12 => deep(dice),
        13 => write(dice),
        14 => prepare(dice),
        15 => return held(dice, session),
        16 => arrays(dice),
        17 => pattern(dice),
        18 => return Request::Unread(unread(dice)),
        _ => {
            return Request::Parse {
                name: format!("s{}", dice.below(1 << 40)),
                sql: parsed(dice),
            };
        }
    };
    Request::Query(sql)
}

/// A size, any magnitude as likely as another.
fn size(dice: &mut Dice, most: u64) -> u64 {
    let bits = 64 - most.leading_zeros() as u64;
    let limit = 1 << (1 + dice.below(bits));
    (1 + dice.below(limit)).min(most)
}

/// A text that is larger than its arguments.
fn growing(dice: &mut Dice, depth: u64) -> String {
    if depth == 0 {
        return format!("repeat('a', {})", size(dice, 16_000_000));
    }
    let inner = growing(dice, depth - 1);
    let piece = format!("repeat('b', {})", size(dice, 20_000));
    match dice.below(18) {
        0 => format!("replace({inner}, 'a', {piece})"),
        1 => format!("array_to_string(string_to_array({inner}, 'a'), {piece})"),
        2 => format!("concat_ws({piece}, {inner}, {inner}, {inner})"),
        3 => format!("{inner} || {inner} || {piece}"),
        4 => format!("regexp_replace({inner}, '.', {piece}, 'g')"),
        5 => format!("lpad({inner}, {}, {piece})", size(dice, 1 << 31)),
        6 => format!("rpad({piece}, {}, {inner})", size(dice, 1 << 31)),
        7 => format!("repeat({inner}, {})", size(dice, 1 << 31)),
        8 => format!("format('%s %s %s', {inner}, {inner}, {piece})"),
        9 => format!("translate({inner}, 'a', 'ä')"),
        10 => format!("overlay({inner} placing {piece} from 3 for 1)"),
        11 => format!("encode(convert_to({inner}, 'UTF8'), 'hex')"),
        12 => format!("quote_literal({inner})"),
        13 => format!("upper(reverse({inner}))"),
        14 => format!("string_to_array({inner}, NULL)"),
        15 => format!("array_fill({inner}, ARRAY[{}])", size(dice, 1 << 30)),
        16 => format!("regexp_split_to_array({inner}, '')"),
        _ => format!("to_char({}, {piece})", size(dice, 1 << 30)),
    }
}

/// Growing values, one for each row.
fn rows_that_grow(dice: &mut Dice) -> String {
    let times = size(dice, 1_000_000);
    match dice.below(4) {
        0 => format!("SELECT count(*) FROM wide WHERE length(repeat(t, {times})) > 5"),
        1 => format!("SELECT max(replace(t, 'a', repeat('x', {times}))) FROM wide"),
        2 => format!(
            "SELECT count(DISTINCT repeat(t, {})) FROM wide",
            times % 10_000
        ),
        _ => format!(
            "SELECT sum(length(lpad(t, {}, 'ab'))) FROM generate_series(1, {times}) AS g, wide",
            size(dice, 1 << 24)
        ),
    }
}

fn aggregate(dice: &mut Dice) -> String {
    let times = size(dice, 10_000);
    match dice.below(6) {
        0 => format!("SELECT length(string_agg(repeat(t, {times}), ',')) FROM wide"),
        1 => format!("SELECT array_length(array_agg(repeat(t, {times})), 1) FROM wide"),
        2 => format!(
            "SELECT k, string_agg(t, ',' ORDER BY t) FROM wide, generate_series(1, {times}) GROUP BY k"
        ),
        3 => format!(
            "SELECT g, w.id, count(*) FROM wide w, generate_series(1, {times}) g GROUP BY g, w.id"
        ),
        4 => format!(
            "SELECT array_agg(g) FROM generate_series(1, {}) AS g",
            size(dice, 1 << 34)
        ),
        _ => format!("SELECT count(DISTINCT (t || g)) FROM wide, generate_series(1, {times}) AS g"),
    }
}

fn join(dice: &mut Dice) -> String {
    match dice.below(9) {
        0 => "SELECT count(*) FROM wide a, wide b, wide c WHERE a.t < b.t AND b.n < c.n".to_owned(),
        1 => "SELECT * FROM wide a JOIN wide b ON a.k = b.k ORDER BY a.t || b.t LIMIT 3".to_owned(),
        2 => "SELECT count(*) FROM texts a, texts b WHERE a.t || b.t LIKE '%ab%'".to_owned(),
        3 => "SELECT max(a.t || b.t) FROM texts a FULL JOIN texts b ON a.id = b.id + 1".to_owned(),
        4 => "SELECT a.id, (SELECT max(b.t) FROM wide b WHERE b.t > a.t AND b.k < a.k) FROM wide a"
            .to_owned(),
        5 => "SELECT b.t FROM wide a, texts b ORDER BY a.t, b.t OFFSET 1000000".to_owned(),
        6 => "SELECT count(*) FROM (SELECT DISTINCT b.t, a.k FROM wide a, texts b) AS s".to_owned(),
        7 => "SELECT max(cardinality(x)) FROM (SELECT array_agg(id) AS x FROM wide) AS s JOIN wide a ON a.k >= 0"
            .to_owned(),
        _ => format!(
            "SELECT count(*) FROM generate_series(1, {}) a, generate_series(1, {}) b",
            size(dice, 1 << 40),
            size(dice, 1 << 40)
        ),
    }
}

fn sort(dice: &mut Dice) -> String {
    let times = size(dice, 3_000);
    match dice.below(8) {
        0 => format!(
            "SELECT t FROM wide, generate_series(1, {times}) ORDER BY t DESC, id OFFSET 10000000"
        ),
        1 => format!(
            "SELECT count(*) FROM (SELECT DISTINCT t, g FROM wide, generate_series(1, {times}) AS g) AS s"
        ),
        2 => format!(
            "SELECT sum(x) FROM (SELECT rank() OVER (PARTITION BY k ORDER BY t) AS x FROM wide, generate_series(1, {times})) AS s"
        ),
        3 => "SELECT a.t FROM texts a, texts b ORDER BY a.t || b.t LIMIT 2".to_owned(),
        4 => "SELECT max(cardinality(x)) FROM (SELECT array_agg(t) OVER (ORDER BY id) AS x FROM wide) AS s"
            .to_owned(),
        5 => "SELECT max(length(x)) FROM (SELECT max(b.t) OVER (ORDER BY a.id) AS x FROM wide a, texts b) AS s"
            .to_owned(),
        6 => "SELECT max(length(x)) FROM (SELECT string_agg(t, '') OVER () AS x FROM wide) AS s".to_owned(),
        _ => "SELECT max(x) FROM (SELECT string_agg(t, '') OVER (ORDER BY id) AS x FROM wide) AS s"
            .to_owned(),
    }
}

fn recursion(dice: &mut Dice) -> String {
    match dice.below(4) {
        0 => "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r".to_owned(),
        1 => "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r, generate_series(1, 10)) SELECT sum(n) FROM r".to_owned(),
        2 => "WITH RECURSIVE r(x) AS (SELECT 'a'::text UNION ALL SELECT x || x FROM r) SELECT max(length(x)) FROM r".to_owned(),
        _ => "WITH RECURSIVE r(x) AS (SELECT g FROM generate_series(1, 100000) g UNION SELECT x + 1 FROM r) SELECT count(*) FROM r".to_owned(),
    }
}

/// A text of up to some 15 MB.
fn long_list(dice: &mut Dice) -> String {
    let count = size(dice, 1_000_000);
    let list = |item: &dyn Fn(&mut String, u64)| {
        let mut text = String::new();
        for number in 0..count {
            if number > 0 {
                text.push(',');
            }
            item(&mut text, number);
        }
        text
    };
    let numbers = |text: &mut String, number: u64| write!(text, "{}", number * 7).unwrap();
    match dice.below(6) {
        0 => format!("SELECT count(*) FROM wide WHERE id IN ({})", list(&numbers)),
        1 => format!(
            "SELECT count(*) FROM wide WHERE id = ANY ('{{{}}}')",
            list(&numbers)
        ),
        2 => format!(
            "SELECT count(*) FROM wide WHERE k = ANY (ARRAY[{}])",
            list(&numbers)
        ),
        3 => {
            let rows = |text: &mut String, number: u64| write!(text, "({number},'x')").unwrap();
            format!(
                "INSERT INTO sink VALUES {} ON CONFLICT DO NOTHING",
                list(&rows)
            )
        }
        4 => {
            let rows = |text: &mut String, number: u64| write!(text, "({number},'x')").unwrap();
            format!("SELECT sum(column1) FROM (VALUES {}) AS v", list(&rows))
        }
        _ => format!("SELECT length('{}')", "x".repeat(count as usize * 15)),
    }
}

/// Expressions that are deep or long.
fn deep(dice: &mut Dice) -> String {
    let count = size(dice, 100_000) as usize;
    match dice.below(8) {
        0 => format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count)),
        1 => format!("SELECT 1{}", "+1".repeat(count)),
        2 => format!(
            "SELECT count(*) FROM wide WHERE id = 1{}",
            " OR k = 2".repeat(count)
        ),
        3 => format!("SELECT {} true", "NOT ".repeat(count)),
        4 => format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(count)),
        5 => format!("SELECT {}1", "1, ".repeat(count)),
        6 => format!("SELECT CASE 1{} END", " WHEN 2 THEN 3".repeat(count)),
        _ => format!("SELECT {}1{}", "(SELECT ".repeat(count), ")".repeat(count)),
    }
}

/// Rows that fill the tenant's memory, or undo that again.
fn write(dice: &mut Dice) -> String {
    let rows = size(dice, 10_000_000);
    match dice.below(6) {
        0 => format!(
            "INSERT INTO sink SELECT g, repeat('x', {}) FROM generate_series(1, {rows}) AS g",
            size(dice, 100_000)
        ),
        1 => format!(
            "CREATE TEMP TABLE t{rows} AS SELECT g, repeat('y', 1000) AS t FROM generate_series(1, {rows}) AS g"
        ),
        2 => "UPDATE wide SET t = t || 'z'".to_owned(),
        3 => "UPDATE wide SET t = left(t, 96)".to_owned(),
        _ => "TRUNCATE sink".to_owned(),
    }
}

fn prepare(dice: &mut Dice) -> String {
    let name = dice.below(1 << 40);
    let bytes = size(dice, 4_000_000) as usize;
    match dice.below(3) {
        0 => format!("PREPARE p{name} AS SELECT '{}'", "p".repeat(bytes)),
        1 => format!("SET greedy.s{name} = '{}'", "s".repeat(bytes)),
        _ => format!("DO_NOT_KNOW {}", "d ".repeat(bytes / 2)),
    }
}

/// Cursors whose rows outlive their transaction.
fn held(dice: &mut Dice, session: u64) -> Request {
    let name = dice.below(1 << 40);
    Request::Query(match dice.below(3) {
        0 => format!(
            "DECLARE c{session}_{name} CURSOR WITH HOLD FOR SELECT a.t FROM wide a, generate_series(1, {})",
            size(dice, 10_000)
        ),
        1 => "CLOSE ALL".to_owned(),
        _ => {
            let statements = [
                "BEGIN",
                "DECLARE d SCROLL CURSOR FOR SELECT a.t || b.t FROM texts a, texts b",
                "MOVE LAST IN d",
            ];
            return Request::Block(statements.map(str::to_owned).to_vec());
        }
    })
}

fn arrays(dice: &mut Dice) -> String {
    let count = size(dice, 1 << 31);
    match dice.below(6) {
        0 => format!("SELECT array_length(array_fill(1, ARRAY[{count}]), 1)"),
        1 => format!("SELECT cardinality(ARRAY(SELECT g FROM generate_series(1, {count}) AS g))"),
        2 => format!("SELECT length(ARRAY(SELECT g FROM generate_series(1, {count}) AS g)::text)"),
        3 => format!(
            "SELECT count(*) FROM unnest(string_to_array(repeat('a,', {}), ',')) AS u",
            count % 8_000_000
        ),
        4 => format!(
            "SELECT count(*) FROM wide, generate_series(1, id * {})",
            count % 1_000
        ),
        _ => format!("SELECT generate_series(1, {count})"),
    }
}

/// Patterns that take their time.
fn pattern(dice: &mut Dice) -> String {
    let count = size(dice, 8_000_000);
    match dice.below(5) {
        0 => format!("SELECT repeat('a', {count}) ~ '(a+)+$'"),
        1 => format!("SELECT repeat('a', {count}) LIKE '{}b'", "%a".repeat(200)),
        2 => format!(
            "SELECT regexp_replace(repeat('ab', {count}), '(a)(b)?', '\\2\\1\\2', 'g') = ''"
        ),
        3 => format!(
            "SELECT count(*) FROM wide WHERE t SIMILAR TO '%({})%'",
            "a|".repeat(1_000) + "b"
        ),
        _ => "SELECT 'x' ~ '((((a{1,200}){1,200}){1,200}){1,200})'".to_owned(),
    }
}

fn unread(dice: &mut Dice) -> String {
    match dice.below(3) {
        0 => "SELECT a.* FROM wide a, generate_series(1, 1000)".to_owned(),
        1 => "SELECT a.t FROM texts a, texts b".to_owned(),
        _ => "COPY (SELECT a.t, b.t FROM texts a, texts b) TO STDOUT".to_owned(),
    }
}

/// The text of a prepared statement.
fn parsed(dice: &mut Dice) -> String {
    let bytes = size(dice, 2_000_000) as usize;
    match dice.below(2) {
        0 => format!("SELECT $1::int, '{}'", "q".repeat(bytes)),
        _ => format!("SELECT 1 WHERE $1 IN (1{})", ",2".repeat(bytes / 4)),
    }
}
