//! Random subqueries, each compared with its own rows with the outer row's values written into
//! it.

use datafusion::prelude::SessionContext;

use aerostat_types::{SqlError, SqlType};

use super::{ints, is_second_row, register};
use crate::tests::{context, query};

/// How many random subqueries one run tries; `SEED` tries one alone.
const CASES: u64 = 250;

/// A generator of numbers (SplitMix64), so that a seed says all.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn value(&mut self) -> Option<i32> {
        (self.below(5) > 0).then(|| self.below(4) as i32)
    }
}

/// The forms in which a subquery stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Scalar,
    Exists,
    In,
    Any(&'static str),
    All(&'static str),
    Row,
}

struct Case {
    form: Form,
    negated: bool,
    /// SQL of the subquery; `o.a`, `o.b` and `o.id` are the outer row's.
    subquery: String,
}

impl Case {
    fn new(random: &mut Random) -> Case {
        let form = match random.below(8) {
            0..3 => Form::Scalar,
            3 => Form::Exists,
            4 => Form::In,
            5 => Form::Any(random.one(&["=", "<", ">=", "<>"])),
            6 => Form::All(random.one(&["=", "<", ">=", "<>"])),
            _ => Form::Row,
        };
        let subquery = if form == Form::Row {
            let from = source(random);
            format!("SELECT s.x, s.y FROM {from} WHERE {}", condition(random, 1))
        } else {
            subquery(random)
        };
        let negated = form != Form::Scalar && random.below(2) == 0;
        Case {
            form,
            negated,
            subquery,
        }
    }

    fn sql(&self) -> String {
        let s = &self.subquery;
        let not = if self.negated { "NOT " } else { "" };
        match self.form {
            Form::Scalar => format!("({s})"),
            Form::Exists => format!("{not}EXISTS ({s})"),
            Form::In => format!("o.a {not}IN ({s})"),
            Form::Any(op) => format!("{not}(o.a {op} ANY ({s}))"),
            Form::All(op) => format!("{not}(o.a {op} ALL ({s}))"),
            Form::Row => format!("(o.a, o.b) {not}IN ({s})"),
        }
    }

    /// The value by the subquery's rows.
    fn value(&self, rows: &[Vec<Option<String>>], outer: &Outer) -> Result<Option<String>, ()> {
        let number = |text: &Option<String>| text.as_ref().map(|text| text.parse::<f64>().unwrap());
        let a = outer.a.map(f64::from);
        let b = outer.b.map(f64::from);
        let any = |op: &str| or(rows.iter().map(|row| compare(op, a, number(&row[0]))));
        let truth = match self.form {
            Form::Scalar if rows.len() > 1 => return Err(()),
            Form::Scalar => return Ok(rows.first().and_then(|row| row[0].clone())),
            Form::Exists => Some(!rows.is_empty()),
            Form::In => any("="),
            Form::Any(op) => any(op),
            Form::All(op) => {
                let not = rows
                    .iter()
                    .map(|row| compare(op, a, number(&row[0])).map(|is| !is));
                or(not).map(|is| !is)
            }
            Form::Row => or(rows.iter().map(|row| {
                let differs = [(a, &row[0]), (b, &row[1])]
                    .map(|(outer, inner)| compare("<>", outer, number(inner)));
                or(differs.into_iter()).map(|differs| !differs)
            })),
        };
        Ok(truth.map(|truth| (truth != self.negated).to_string()))
    }
}

fn compare(op: &str, left: Option<f64>, right: Option<f64>) -> Option<bool> {
    let (left, right) = (left?, right?);
    Some(match op {
        "=" => left == right,
        "<" => left < right,
        ">=" => left >= right,
        _ => left != right,
    })
}

fn or(mut values: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut unknown = false;
    let found = values.any(|value| {
        unknown |= value.is_none();
        value == Some(true)
    });
    if found {
        Some(true)
    } else if unknown {
        None
    } else {
        Some(false)
    }
}

/// A condition over `s` and the outer row.
fn condition(random: &mut Random, depth: usize) -> String {
    match random.below(if depth > 0 { 13 } else { 8 }) {
        0 | 1 => "s.x = o.a".to_owned(),
        2 => "s.x >= o.b".to_owned(),
        3 => format!("s.x = o.a AND s.y {} o.b", random.one(&["<", "=", "<>"])),
        4 => "s.y IS NOT NULL".to_owned(),
        5 => format!("o.a > {}", random.below(3)),
        6 => format!("s.x = {} OR s.y = o.b", random.below(3)),
        7 => "s.id = o.id".to_owned(),
        8 => format!(
            "EXISTS (SELECT 1 FROM r WHERE r.x = s.x AND {})",
            random.one(&["r.y <= o.a", "r.y = o.b", "true", "r.y = s.y"])
        ),
        9 => "s.x NOT IN (SELECT r.y FROM r WHERE r.x = o.a)".to_owned(),
        10 => "s.x = (SELECT max(r.x) FROM r WHERE r.y >= o.b AND r.x <> s.y)".to_owned(),
        11 => "s.y IN (SELECT r.y FROM r WHERE r.x = s.x)".to_owned(),
        _ => "(SELECT count(*) FROM r WHERE r.y = s.y) > (SELECT o.a)".to_owned(),
    }
}

/// A relation named `s` with columns `id`, `x` and `y`.
fn source(random: &mut Random) -> String {
    match random.below(7) {
        0..4 => "s".to_owned(),
        4 => format!("(SELECT * FROM s WHERE {}) AS s", condition(random, 0)),
        5 => {
            let join = random.one(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
            let on = random.one(&[
                "s.x = r.x",
                "s.x = r.x AND r.y = o.a",
                "s.x = r.x AND s.y >= o.b",
            ]);
            // Full joins take equalities alone.
            let on = if join == "FULL JOIN" { "s.x = r.x" } else { on };
            format!("(SELECT s.id, s.x, r.y FROM s {join} r ON {on}) AS s")
        }
        _ => format!(
            "(SELECT id, x, y FROM s WHERE {} UNION ALL SELECT id, y AS x, o.a AS y FROM r AS s WHERE {}) AS s",
            condition(random, 0),
            condition(random, 0)
        ),
    }
}

fn subquery(random: &mut Random) -> String {
    let from = source(random);
    let filter = condition(random, 1);
    let other = condition(random, 0);
    let output = random.one(&["s.x", "s.y", "s.id", "s.x + o.a", "coalesce(s.x, o.b)"]);
    let aggregate = random.one(&[
        "count(*)",
        "count(s.x)",
        "sum(s.x)",
        "max(s.x + o.a)",
        "count(*) + 1",
        "coalesce(sum(s.y), 7)",
        "min(s.x) - count(*)",
    ]);
    match random.below(14) {
        0..3 => format!("SELECT {output} FROM {from} WHERE {filter}"),
        3..6 => format!("SELECT {aggregate} FROM {from} WHERE {filter}"),
        6 => format!("SELECT {aggregate} FROM {from} WHERE {filter} HAVING count(*) > 1"),
        7 => format!("SELECT {aggregate} FROM {from} WHERE {filter} GROUP BY s.y"),
        8 => format!("SELECT DISTINCT {output} FROM {from} WHERE {filter}"),
        9 => {
            let set = random.one(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
            format!("SELECT s.x FROM s WHERE {other} {set} SELECT s.y FROM {from} WHERE {filter}")
        }
        10 => format!(
            "SELECT s.x FROM s WHERE {other} ORDER BY s.y DESC, s.id LIMIT {} OFFSET {}",
            random.below(3),
            random.below(2)
        ),
        11 => format!("SELECT sum(s.x) OVER (ORDER BY s.id) FROM s WHERE {other}"),
        12 => "SELECT o.a + o.b".to_owned(),
        _ => format!(
            "SELECT max(v.z) FROM (VALUES (o.a), (1), (o.b)) AS v(z) WHERE v.z <> {}",
            random.below(3)
        ),
    }
}

struct Outer {
    id: i32,
    a: Option<i32>,
    b: Option<i32>,
}

fn table(
    context: &SessionContext,
    name: &str,
    names: [&'static str; 3],
    random: &mut Random,
) -> Vec<Outer> {
    let rows: Vec<Outer> = (0..random.below(7))
        .map(|id| Outer {
            id: id as i32,
            a: random.value(),
            b: random.value(),
        })
        .collect();
    // `id` is never NULL, and its field says so.
    let ids: Vec<_> = rows.iter().map(|row| Some(row.id)).collect();
    let firsts: Vec<_> = rows.iter().map(|row| row.a).collect();
    let seconds: Vec<_> = rows.iter().map(|row| row.b).collect();
    let columns = [ids, firsts, seconds];
    let columns = names
        .into_iter()
        .zip(&columns)
        .map(|(name, values)| (name, SqlType::Integer, ints(values)))
        .collect();
    register(context, name, columns);
    rows
}

fn written(sql: &str, outer: &Outer) -> String {
    let literal = |value: Option<i32>| match value {
        Some(value) => format!("({value}::integer)"),
        None => "(NULL::integer)".to_owned(),
    };
    sql.replace("o.id", &literal(Some(outer.id)))
        .replace("o.a", &literal(outer.a))
        .replace("o.b", &literal(outer.b))
}

/// One query's rows, sorted, or its error.
async fn sorted(context: &SessionContext, sql: &str) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let (_, mut rows) = query(context, sql).await?;
    rows.sort();
    Ok(rows)
}

async fn try_case(seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let context = context();
    let outer = table(&context, "o", ["id", "a", "b"], &mut random);
    table(&context, "s", ["id", "x", "y"], &mut random);
    table(&context, "r", ["id", "x", "y"], &mut random);
    let case = Case::new(&mut random);
    let expression = case.sql();
    let mut values = Vec::new();
    for row in &outer {
        let sql = written(&case.subquery, row);
        let rows = sorted(&context, &sql)
            .await
            .map_err(|error| format!("{sql}: {}", error.message))?;
        values.push((row.id.to_string(), case.value(&rows, row)));
    }
    let select = format!("SELECT o.id, {expression} AS value FROM o");
    let test = if case.form == Form::Scalar {
        format!("{expression} >= 2")
    } else {
        expression
    };
    let queries = [
        select,
        format!("SELECT o.id FROM o WHERE {test}"),
        format!("SELECT o.id FROM o WHERE NOT ({test})"),
        format!("SELECT o.id FROM o WHERE ({test}) IS NULL"),
        format!("SELECT o.id FROM o WHERE ({test}) OR o.id = 1"),
    ];
    for (at, sql) in queries.iter().enumerate() {
        let expected = expected(&values, at, case.form == Form::Scalar);
        let got = sorted(&context, sql).await;
        let same = match (&expected, &got) {
            (Some(expected), Ok(got)) => expected == got,
            (None, Err(error)) => is_second_row(error),
            // DataFusion runs an uncorrelated subquery although no row asks for it.
            (Some(_), Err(error)) => is_second_row(error) && !case.subquery.contains("o."),
            _ => false,
        };
        if !same {
            return Err(format!("{sql}\n  want {expected:?}\n  got  {got:?}"));
        }
    }
    Ok(())
}

type Values = [(String, Result<Option<String>, ()>)];

/// The rows of the query at this position of the list, or nothing for an error.
fn expected(values: &Values, at: usize, scalar: bool) -> Option<Vec<Vec<Option<String>>>> {
    let mut rows = Vec::new();
    for (id, value) in values {
        let value = value.clone().ok()?;
        let truth = match &value {
            Some(text) if scalar => Some(text.parse::<f64>().unwrap() >= 2.0),
            Some(text) => Some(text == "true"),
            None => None,
        };
        let id = Some(id.clone());
        match at {
            0 => rows.push(vec![id, value]),
            1 if truth == Some(true) => rows.push(vec![id]),
            2 if truth == Some(false) => rows.push(vec![id]),
            3 if truth.is_none() => rows.push(vec![id]),
            4 if truth == Some(true) || id.as_deref() == Some("1") => rows.push(vec![id]),
            _ => {}
        }
    }
    rows.sort();
    Some(rows)
}

#[tokio::test]
async fn subqueries_answer_as_if_run_for_each_row() {
    let seeds = match std::env::var("SEED").map(|seed| seed.parse()) {
        Ok(Ok(seed)) => seed..seed + 1,
        _ => 0..CASES,
    };
    let mut wrong = Vec::new();
    for seed in seeds {
        if let Err(difference) = try_case(seed).await {
            wrong.push(format!("SEED={seed}: {difference}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
