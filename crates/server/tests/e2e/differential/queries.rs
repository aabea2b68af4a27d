//! Random statements that only read.

use super::statements::{Statement, copy_out, pair};
use super::tables::Table;
use super::values::Kind;
use crate::dice::Dice;

/// A statement that reads one table or joins two.
pub(super) fn query(dice: &mut Dice, tables: &[Table]) -> Statement {
    let table = &tables[dice.below(tables.len() as u64) as usize];
    match dice.below(12) {
        0 => Statement::new(table.everything()).ordered(),
        1 | 2 => top(dice, table),
        3 | 4 => projection(dice, table),
        5 | 6 => aggregates(dice, table),
        7 | 8 => groups(dice, table),
        9 => sets(dice, table),
        10 => copy_out(dice, table),
        _ => {
            let other = &tables[dice.below(tables.len() as u64) as usize];
            join(dice, table, other)
        }
    }
}

/// Rows in an order that leaves no choice, and some of them.
fn top(dice: &mut Dice, table: &Table) -> Statement {
    let mut order: Vec<String> = table
        .columns
        .iter()
        .map(|column| {
            let direction = dice.pick(&["", "", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST"]);
            format!("{}{direction}", column.name)
        })
        .collect();
    dice.shuffle(&mut order);
    let limit = match dice.below(3) {
        0 => String::new(),
        1 => format!(" LIMIT {}", dice.below(20)),
        _ => format!(" LIMIT {} OFFSET {}", dice.below(20), dice.below(30)),
    };
    Statement::new(format!(
        "SELECT * FROM {} WHERE {} ORDER BY {}{limit}",
        table.name,
        table.predicate(dice, ""),
        order.join(", ")
    ))
    .ordered()
}

/// Some columns, and a truth made of others.
fn projection(dice: &mut Dice, table: &Table) -> Statement {
    let names: Vec<&str> = table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let mut chosen: Vec<String> = dice.some(&names).iter().map(ToString::to_string).collect();
    dice.shuffle(&mut chosen);
    if dice.one_in(3) {
        chosen.push(format!("({}) AS truth", table.predicate(dice, "")));
    }
    if dice.one_in(4) {
        let column = dice.pick(&names);
        chosen.push(format!("coalesce({column}::text, 'none') AS shown"));
    }
    let distinct = if dice.one_in(5) { "DISTINCT " } else { "" };
    Statement::new(format!(
        "SELECT {distinct}{} FROM {} WHERE {}",
        chosen.join(", "),
        table.name,
        table.predicate(dice, "")
    ))
}

/// Aggregates whose value does not depend on the order of rows.
fn aggregate(dice: &mut Dice, name: &str, kind: Kind) -> String {
    let plain = ["count(#)", "count(DISTINCT #)"];
    let more: &[&str] = match kind {
        Kind::Boolean => &["bool_and(#)", "bool_or(#)"],
        Kind::Smallint | Kind::Integer => &["sum(#)", "min(#)", "max(#)", "round(avg(#), 4)"],
        Kind::Bigint => &["sum(#)", "min(#)", "max(#)"],
        Kind::Numeric(precision, _) if precision < 20 => &["sum(#)", "min(#)", "max(#)"],
        Kind::Bytea | Kind::Uuid => &["count(#)"],
        _ => &["min(#)", "max(#)"],
    };
    let call = if dice.one_in(3) {
        dice.pick(&plain)
    } else {
        dice.pick(more)
    };
    call.replace('#', name)
}

fn some_aggregates(dice: &mut Dice, columns: &[(String, Kind)]) -> String {
    let mut list = vec!["count(*)".to_owned()];
    for (name, kind) in dice.some(columns).into_iter().take(4) {
        list.push(aggregate(dice, &name, kind));
    }
    list.join(", ")
}

fn aggregates(dice: &mut Dice, table: &Table) -> Statement {
    let list = some_aggregates(dice, &table.called(""));
    let filter = if dice.one_in(5) {
        format!(", count(*) FILTER (WHERE {})", table.predicate(dice, ""))
    } else {
        String::new()
    };
    Statement::new(format!(
        "SELECT {list}{filter} FROM {} WHERE {}",
        table.name,
        table.predicate(dice, "")
    ))
}

fn groups(dice: &mut Dice, table: &Table) -> Statement {
    let columns = table.called("");
    let mut by: Vec<String> = dice
        .some(&columns)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    by.truncate(2);
    let having = if dice.one_in(3) {
        " HAVING count(*) > 1"
    } else {
        ""
    };
    let list = some_aggregates(dice, &columns);
    Statement::new(format!(
        "SELECT {}, {list} FROM {} WHERE {} GROUP BY {}{having}",
        by.join(", "),
        table.name,
        table.predicate(dice, ""),
        by.join(", ")
    ))
}

/// UNION, EXCEPT and INTERSECT of two parts of a table.
fn sets(dice: &mut Dice, table: &Table) -> Statement {
    let operator = dice.pick(&["UNION ALL", "UNION", "EXCEPT", "INTERSECT"]);
    Statement::new(format!(
        "SELECT * FROM {0} WHERE {1} {operator} SELECT * FROM {0} WHERE {2}",
        table.name,
        table.predicate(dice, ""),
        table.predicate(dice, "")
    ))
}

/// Two tables, or one with itself, by columns of one type.
fn join(dice: &mut Dice, left: &Table, right: &Table) -> Statement {
    let Some((mine, theirs)) = pair(dice, left, right) else {
        return aggregates(dice, left);
    };
    let kind = dice.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
    // FULL JOIN takes equality alone in PostgreSQL.
    let and = if kind == "JOIN" && dice.one_in(2) {
        format!(" AND ({})", right.predicate(dice, "b"))
    } else {
        String::new()
    };
    let from = format!(
        "{} AS a {kind} {} AS b ON a.{mine} = b.{theirs}{and} WHERE {}",
        left.name,
        right.name,
        left.predicate(dice, "a")
    );
    let columns: Vec<(String, Kind)> = [left.called("a"), right.called("b")].concat();
    if dice.one_in(2) {
        let list = some_aggregates(dice, &columns);
        return Statement::new(format!("SELECT {list} FROM {from}"));
    }
    let places: Vec<String> = (1..=columns.len()).map(|at| at.to_string()).collect();
    Statement::new(format!(
        "SELECT a.*, b.* FROM {from} ORDER BY {} LIMIT 25",
        places.join(", ")
    ))
    .ordered()
}
