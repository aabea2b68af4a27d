//! Random statements that change tables.

use super::tables::{Column, Table};
use super::values::{Kind, literal, plain, quoted};
use crate::dice::Dice;

/// How a statement travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A message with one statement or more.
    Message,
    /// COPY FROM STDIN with these bytes.
    CopyIn(Vec<u8>),
    /// COPY TO STDOUT.
    CopyOut,
}

/// A statement for both servers.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) way: Way,
    /// The order of rows is asked for, so it counts.
    pub(super) ordered: bool,
    /// It may fail for more than one reason; which is met first is the server's choice.
    pub(super) many_reasons: bool,
}

impl Statement {
    pub(super) fn new(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            way: Way::Message,
            ordered: false,
            many_reasons: false,
        }
    }

    pub(super) fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    fn with_many_reasons(mut self, many: bool) -> Self {
        self.many_reasons = many;
        self
    }
}

/// Rows that a table may have; INSERT … SELECT stops there.
const ROWS_MAX: u64 = 6_000;

/// A statement that changes one of the tables.
pub(super) fn change(dice: &mut Dice, tables: &mut [Table]) -> Statement {
    let at = dice.below(tables.len() as u64) as usize;
    match dice.below(20) {
        0..=4 => insert(dice, &mut tables[at]),
        5..=7 => insert_series(dice, &mut tables[at]),
        8 => insert_from(dice, tables, at),
        9..=13 => update(dice, tables, at),
        14..=16 => delete(dice, tables, at),
        17 => several(dice, tables),
        _ => copy_in(dice, &mut tables[at]),
    }
}

/// Statements in one message: all of them happen, or none.
fn several(dice: &mut Dice, tables: &mut [Table]) -> Statement {
    let count = 2 + dice.below(2);
    let parts: Vec<String> = (0..count)
        .map(|_| {
            let at = dice.below(tables.len() as u64) as usize;
            match dice.below(3) {
                0 => insert(dice, &mut tables[at]).sql,
                1 => update(dice, tables, at).sql,
                _ => delete(dice, tables, at).sql,
            }
        })
        .collect();
    Statement::new(parts.join("; ")).with_many_reasons(true)
}

/// What goes wrong in rows on purpose, and seldom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// A key that another row has, or may have.
    Key,
    /// A text that is not of the column's type, in this column.
    Invalid(usize),
    /// NULL in this column.
    Null(usize),
}

fn mistake(dice: &mut Dice, table: &Table) -> Mistake {
    let at = dice.below(table.columns.len() as u64) as usize;
    match dice.below(16) {
        0 => Mistake::Invalid(at),
        1 => Mistake::Null(at),
        2..=4 if !table.key.is_empty() => Mistake::Key,
        _ => Mistake::None,
    }
}

/// The values of new rows as texts; `None` is NULL.
fn new_rows(
    dice: &mut Dice,
    table: &mut Table,
    places: &[usize],
    count: u64,
    mistake: Mistake,
) -> Vec<Vec<Option<String>>> {
    let wrong = dice.below(count);
    (0..count)
        .map(|row| {
            let number = match mistake {
                Mistake::Key if row == wrong => table.known_number(dice),
                _ => {
                    table.next += 1;
                    table.next - 1
                }
            };
            places
                .iter()
                .map(|&at| {
                    let column = &table.columns[at];
                    match mistake {
                        Mistake::Null(place) if place == at && row == wrong => None,
                        Mistake::Invalid(place) if place == at && row == wrong => column
                            .kind
                            .invalid(dice)
                            .or_else(|| Some(column.kind.value(dice))),
                        _ if table.key.first() == Some(&at) => Some(column.kind.numbered(number)),
                        _ => column.value(dice),
                    }
                })
                .collect()
        })
        .collect()
}

fn insert(dice: &mut Dice, table: &mut Table) -> Statement {
    let mut places: Vec<usize> = (0..table.columns.len()).collect();
    let listed = dice.one_in(3);
    if listed {
        dice.shuffle(&mut places);
        let key = table.key.clone();
        // Those that are left out take their default, which may be none.
        places.retain(|at| key.contains(at) || !dice.one_in(4));
        if places.is_empty() {
            places.push(0);
        }
    }
    let mistake = mistake(dice, table);
    let count = dice.pick(&[1, 1, 1, 2, 5, 40]);
    let rows = new_rows(dice, table, &places, count, mistake);
    let shown: Vec<String> = rows
        .iter()
        .map(|row| {
            let values: Vec<String> = row
                .iter()
                .zip(&places)
                .map(|(text, &at)| match text {
                    None if dice.one_in(10) => "DEFAULT".to_owned(),
                    None => "NULL".to_owned(),
                    Some(text) if mistake == Mistake::Invalid(at) => quoted(dice, text),
                    // Rows with and without types in one column are left alone.
                    Some(text) if count > 1 => plain(dice, table.columns[at].kind, text),
                    Some(text) => literal(dice, table.columns[at].kind, text),
                })
                .collect();
            format!("({})", values.join(", "))
        })
        .collect();
    let list = if listed {
        format!(" ({})", table.names(&places).join(", "))
    } else {
        String::new()
    };
    let returning = if dice.one_in(5) { " RETURNING *" } else { "" };
    Statement::new(format!(
        "INSERT INTO {}{list} VALUES {}{returning}",
        table.name,
        shown.join(", ")
    ))
    .with_many_reasons(count > 1)
}

/// Many rows at once.
fn insert_series(dice: &mut Dice, table: &mut Table) -> Statement {
    if table.rows > ROWS_MAX {
        return insert(dice, table);
    }
    let count = dice.pick(&[10, 100, 1_100, 2_500]);
    let first = table.next;
    table.next += count;
    let values: Vec<String> = table
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| {
            if table.key.first() == Some(&at) {
                return column.kind.numbered_by(&format!("(g + {first} - 1)"));
            }
            let series = column.kind.series(dice);
            if column.nullable && dice.one_in(3) {
                let nth = dice.pick(&[2, 5, 40]);
                return format!("CASE WHEN g % {nth} > 0 THEN {series} END");
            }
            series
        })
        .collect();
    Statement::new(format!(
        "INSERT INTO {} SELECT {} FROM generate_series(1, {count}) AS g",
        table.name,
        values.join(", ")
    ))
    .with_many_reasons(true)
}

/// Rows of one table go into another without a key, or that key is new for each.
fn insert_from(dice: &mut Dice, tables: &mut [Table], at: usize) -> Statement {
    let from = dice.below(tables.len() as u64) as usize;
    if !tables[at].key.is_empty() || tables[at].rows + tables[from].rows > ROWS_MAX {
        return insert(dice, &mut tables[at]);
    }
    let (to, from) = (&tables[at], &tables[from]);
    let values: Vec<String> = to
        .columns
        .iter()
        .map(|column| {
            let peer = from.columns.iter().find(|peer| peer.kind == column.kind);
            match peer.filter(|peer| column.nullable || !peer.nullable) {
                Some(peer) => peer.name.clone(),
                None => {
                    let text = column.kind.value(dice);
                    format!("{}::{}", quoted(dice, &text), column.kind.name())
                }
            }
        })
        .collect();
    Statement::new(format!(
        "INSERT INTO {} SELECT {} FROM {} WHERE {}",
        to.name,
        values.join(", "),
        from.name,
        from.predicate(dice, "")
    ))
    .with_many_reasons(true)
}

fn update(dice: &mut Dice, tables: &[Table], at: usize) -> Statement {
    let table = &tables[at];
    let mut others = table.others();
    let condition = condition(dice, tables, at);
    let mut set = Vec::new();
    if !table.key.is_empty() && (others.is_empty() || dice.one_in(5)) {
        // A key becomes a constant: whether two rows meet does not depend on their order.
        let first = table.key[0];
        let kind = table.columns[first].kind;
        let number = kind.numbered(table.known_number(dice));
        set.push(format!(
            "{} = {}",
            table.columns[first].name,
            literal(dice, kind, &number)
        ));
    }
    if !others.is_empty() && (set.is_empty() || dice.one_in(2)) {
        dice.shuffle(&mut others);
        for &at in others.iter().take(1 + dice.below(3) as usize) {
            let column = &table.columns[at];
            set.push(format!(
                "{} = {}",
                column.name,
                assigned(dice, table, column)
            ));
        }
    }
    let returning = if dice.one_in(6) { " RETURNING *" } else { "" };
    Statement::new(format!(
        "UPDATE {} SET {}{condition}{returning}",
        table.name,
        set.join(", ")
    ))
    .with_many_reasons(true)
}

/// The new value of a column that is not in the key.
fn assigned(dice: &mut Dice, table: &Table, column: &Column) -> String {
    let kind = column.kind;
    let name = &column.name;
    match dice.below(20) {
        0 if column.nullable || dice.one_in(3) => return "NULL".to_owned(),
        1 if column.nullable => return "DEFAULT".to_owned(),
        2 => {
            if let Some(text) = kind.invalid(dice).filter(|_| dice.one_in(3)) {
                return quoted(dice, &text);
            }
        }
        3 | 4 => {
            let mut peers = table.columns.iter().filter(|peer| {
                peer.kind.is_like(kind) && peer.name != *name && (column.nullable || !peer.nullable)
            });
            if let Some(peer) = peers.next_back() {
                return peer.name.clone();
            }
        }
        5 | 6 => {
            let text = kind.value(dice);
            let value = literal(dice, kind, &text);
            let when = table.predicate(dice, "");
            return format!("CASE WHEN {when} THEN {value} ELSE {name} END");
        }
        7..=13 => {
            if let Some(expression) = computed(dice, kind) {
                return expression.replace('#', name);
            }
        }
        _ => {}
    }
    let text = kind.value(dice);
    literal(dice, kind, &text)
}

/// A value made of the old one, which `#` stands for.
fn computed(dice: &mut Dice, kind: Kind) -> Option<&'static str> {
    let choices: &[&'static str] = match kind {
        Kind::Boolean => &["NOT #"],
        Kind::Smallint | Kind::Integer | Kind::Bigint => {
            &["# + 1", "# - 3", "-#", "# * 2", "# % 5", "abs(#)"]
        }
        Kind::Real | Kind::Double => &["# + 0.25", "# * 2", "# - 1"],
        Kind::Numeric(..) => &["# + 1.5", "-#", "# * 2", "abs(#)"],
        Kind::Char(_) | Kind::Varchar(_) | Kind::Text => &[
            "# || 'x'",
            "upper(#)",
            "substr(#, 2)",
            "lower(#)",
            "replace(#, 'a', '')",
        ],
        Kind::Bytea => &["# || '\\x00'::bytea"],
        Kind::Date => &["# + 1", "# - 40"],
        Kind::Time => &["# + interval '1 hour'"],
        Kind::Timestamp | Kind::Timestamptz => &["# + interval '1 day'", "# - interval '1 month'"],
        Kind::Interval => &["-#"],
        Kind::Uuid => return None,
    };
    Some(dice.pick(choices))
}

fn delete(dice: &mut Dice, tables: &[Table], at: usize) -> Statement {
    let condition = condition(dice, tables, at);
    let returning = if dice.one_in(6) { " RETURNING *" } else { "" };
    Statement::new(format!(
        "DELETE FROM {}{condition}{returning}",
        tables[at].name
    ))
}

/// WHERE, or all rows now and then.
fn condition(dice: &mut Dice, tables: &[Table], at: usize) -> String {
    let table = &tables[at];
    let other = &tables[dice.below(tables.len() as u64) as usize];
    match dice.below(16) {
        0 if dice.one_in(3) => String::new(),
        1 => match pair(dice, table, other) {
            Some((mine, theirs)) => format!(
                " WHERE EXISTS (SELECT 1 FROM {} AS o WHERE o.{theirs} = {}.{mine} AND ({}))",
                other.name,
                table.name,
                other.predicate(dice, "o")
            ),
            None => format!(" WHERE {}", table.predicate(dice, "")),
        },
        2 => match pair(dice, table, other) {
            Some((mine, theirs)) => format!(
                " WHERE {mine} IN (SELECT o.{theirs} FROM {} AS o WHERE {})",
                other.name,
                other.predicate(dice, "o")
            ),
            None => format!(" WHERE {}", table.predicate(dice, "")),
        },
        _ => format!(" WHERE {}", table.predicate(dice, "")),
    }
}

/// Columns of one type in both tables, to join them by.
pub(super) fn pair<'a>(
    dice: &mut Dice,
    left: &'a Table,
    right: &'a Table,
) -> Option<(&'a str, &'a str)> {
    let pairs: Vec<(&str, &str)> = left
        .columns
        .iter()
        .flat_map(|mine| {
            let peers = right
                .columns
                .iter()
                .filter(|theirs| theirs.kind.is_like(mine.kind));
            peers.map(|theirs| (mine.name.as_str(), theirs.name.as_str()))
        })
        .collect();
    (!pairs.is_empty()).then(|| dice.pick(&pairs))
}

fn copy_in(dice: &mut Dice, table: &mut Table) -> Statement {
    let places: Vec<usize> = (0..table.columns.len()).collect();
    let mistake = mistake(dice, table);
    let count = dice.pick(&[0, 1, 3, 60]);
    let rows = if count == 0 {
        Vec::new()
    } else {
        new_rows(dice, table, &places, count, mistake)
    };
    let csv = dice.one_in(2);
    let line = |row: &Vec<Option<String>>| {
        let fields: Vec<String> = row
            .iter()
            .map(|field| {
                if csv {
                    csv_field(field)
                } else {
                    text_field(field)
                }
            })
            .collect();
        fields.join(if csv { "," } else { "\t" }) + "\n"
    };
    let data: String = rows.iter().map(line).collect();
    let options = if csv { " WITH (FORMAT csv)" } else { "" };
    let mut statement = Statement::new(format!("COPY {} FROM STDIN{options}", table.name))
        .with_many_reasons(count > 1);
    statement.way = Way::CopyIn(data.into_bytes());
    statement
}

fn text_field(field: &Option<String>) -> String {
    let Some(text) = field else {
        return "\\N".to_owned();
    };
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\t', "\\t")
        .replace('\r', "\\r")
}

fn csv_field(field: &Option<String>) -> String {
    let Some(text) = field else {
        return String::new();
    };
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A table's rows as COPY writes them, in an order that leaves no choice.
pub(super) fn copy_out(dice: &mut Dice, table: &Table) -> Statement {
    let options = dice.pick(&[
        "",
        " WITH (FORMAT csv)",
        " WITH (FORMAT csv, HEADER)",
        " WITH (FORMAT binary)",
        " WITH (NULL '-')",
    ]);
    let mut statement = Statement::new(format!("COPY ({}) TO STDOUT{options}", table.everything()));
    statement.way = Way::CopyOut;
    statement
}
