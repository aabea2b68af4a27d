//! Random tables, their layouts, and predicates on their columns.

use super::values::{Kind, literal, plain, quoted, typed};
use crate::dice::Dice;

/// A column as both servers have it.
#[derive(Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
    default: Option<String>,
}

/// A table as both servers have it.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// The key's columns. The first tells the rows apart, by [`Kind::numbered`].
    pub(super) key: Vec<usize>,
    check: Option<String>,
    /// Numbers below were given to rows.
    pub(super) next: i64,
    /// About how many rows there are.
    pub(super) rows: u64,
}

impl Table {
    pub(super) fn random(dice: &mut Dice, name: String) -> Self {
        let count = 1 + dice.below(12) as usize;
        let mut columns: Vec<Column> = (0..count).map(|at| Column::random(dice, at)).collect();
        let mut places: Vec<usize> = (0..count).collect();
        dice.shuffle(&mut places);
        let key: Vec<usize> = places.into_iter().take(dice.below(4) as usize).collect();
        for (nth, &at) in key.iter().enumerate() {
            columns[at].nullable = false;
            columns[at].default = None;
            if nth == 0 {
                columns[at].kind = Kind::random_key(dice);
            }
        }
        let checked = columns.iter().position(|column| column.kind.is_integer());
        let check = checked
            .filter(|at| !key.contains(at) && dice.one_in(3))
            .map(|at| format!("{} <> 7", columns[at].name));
        Self {
            name,
            columns,
            key,
            check,
            next: 1,
            rows: 0,
        }
    }

    /// CREATE TABLE as both servers take it.
    pub(super) fn create(&self) -> String {
        let mut parts: Vec<String> = self.columns.iter().map(Column::definition).collect();
        if !self.key.is_empty() {
            let names: Vec<&str> = self.names(&self.key);
            parts.push(format!("PRIMARY KEY ({})", names.join(", ")));
        }
        if let Some(check) = &self.check {
            parts.push(format!("CHECK ({check})"));
        }
        format!("CREATE TABLE {} ({})", self.name, parts.join(", "))
    }

    /// Any layout: one group, a group for each column, the adviser's, or any partition.
    pub(super) fn layout(&self, dice: &mut Dice) -> String {
        match dice.below(6) {
            0 => "row".to_owned(),
            1 => "column".to_owned(),
            2 => "auto".to_owned(),
            _ => {
                let mut names: Vec<&str> = self.names(&self.all());
                dice.shuffle(&mut names);
                let mut groups: Vec<Vec<&str>> = vec![Vec::new()];
                for name in names {
                    let last = groups.len() - 1;
                    if !groups[last].is_empty() && dice.one_in(3) {
                        groups.push(vec![name]);
                    } else {
                        groups[last].push(name);
                    }
                }
                let shown = groups.iter().map(|group| format!("({})", group.join(",")));
                shown.collect::<Vec<_>>().join(",")
            }
        }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.columns.len()).collect()
    }

    pub(super) fn names(&self, places: &[usize]) -> Vec<&str> {
        places
            .iter()
            .map(|&at| self.columns[at].name.as_str())
            .collect()
    }

    /// The columns that are no part of the key.
    pub(super) fn others(&self) -> Vec<usize> {
        let mut places = self.all();
        places.retain(|at| !self.key.contains(at));
        places
    }

    /// Every row, in an order that leaves no choice.
    pub(super) fn everything(&self) -> String {
        let order: Vec<String> = (1..=self.columns.len()).map(|at| at.to_string()).collect();
        format!("SELECT * FROM {} ORDER BY {}", self.name, order.join(", "))
    }

    /// Names and types as a statement calls them that knows the table as `alias`.
    pub(super) fn called(&self, alias: &str) -> Vec<(String, Kind)> {
        let prefix = if alias.is_empty() {
            String::new()
        } else {
            format!("{alias}.")
        };
        let name = |column: &Column| (format!("{prefix}{}", column.name), column.kind);
        self.columns.iter().map(name).collect()
    }

    /// The number of a row that is there, was there, or comes next.
    pub(super) fn known_number(&self, dice: &mut Dice) -> i64 {
        dice.below(self.next as u64 + 1) as i64
    }

    /// A condition on the table, which the statement knows as `alias`.
    pub(super) fn predicate(&self, dice: &mut Dice, alias: &str) -> String {
        if let Some(&first) = self.key.first()
            && dice.one_in(4)
        {
            let (name, kind) = &self.called(alias)[first];
            return self.by_key(dice, name, *kind);
        }
        let columns = self.called(alias);
        let depth = dice.below(3);
        predicate(dice, &columns, depth)
    }

    fn by_key(&self, dice: &mut Dice, name: &str, kind: Kind) -> String {
        let mut value = || {
            let text = kind.numbered(self.known_number(dice));
            literal(dice, kind, &text)
        };
        let (one, two) = (value(), value());
        match dice.below(4) {
            0 => format!("{name} IN ({one}, {two})"),
            1 => format!("{name} BETWEEN {one} AND {two}"),
            _ => format!("{name} = {one}"),
        }
    }
}

impl Column {
    fn random(dice: &mut Dice, at: usize) -> Self {
        let kind = Kind::random(dice);
        let default = dice.one_in(6).then(|| {
            let text = kind.value(dice);
            quoted(dice, &text)
        });
        Self {
            name: format!("c{at}"),
            kind,
            nullable: !dice.one_in(5),
            default,
        }
    }

    fn definition(&self) -> String {
        let mut text = format!("{} {}", self.name, self.kind.name());
        if !self.nullable {
            text.push_str(" NOT NULL");
        }
        if let Some(default) = &self.default {
            text.push_str(" DEFAULT ");
            text.push_str(default);
        }
        text
    }

    /// A value, or NULL where the column takes it.
    pub(super) fn value(&self, dice: &mut Dice) -> Option<String> {
        if self.nullable && dice.one_in(6) {
            return None;
        }
        Some(self.kind.value(dice))
    }
}

/// A condition on these columns; `depth` says how deep AND, OR and NOT may nest.
pub(super) fn predicate(dice: &mut Dice, columns: &[(String, Kind)], depth: u64) -> String {
    if depth > 0 {
        let left = predicate(dice, columns, depth - 1);
        return match dice.below(5) {
            0 => format!("NOT ({left})"),
            1 | 2 => format!("({left}) AND ({})", predicate(dice, columns, depth - 1)),
            _ => format!("({left}) OR ({})", predicate(dice, columns, depth - 1)),
        };
    }
    let (name, kind) = &columns[dice.below(columns.len() as u64) as usize];
    let kind = *kind;
    let value = |dice: &mut Dice| {
        let text = kind.value(dice);
        literal(dice, kind, &text)
    };
    let operator = dice.pick(&["=", "<>", "<", "<=", ">", ">="]);
    match dice.below(12) {
        0 | 1 => format!("{name} IS NULL"),
        2 => format!("{name} IS NOT NULL"),
        3 | 4 => {
            let not = dice.pick(&["", "NOT "]);
            let (low, high) = (value(dice), value(dice));
            format!("{name} {not}BETWEEN {low} AND {high}")
        }
        5 => {
            let not = dice.pick(&["", "", "NOT "]);
            // All with their type or none; a list with both is left alone.
            let write = dice.pick(&[plain, typed]);
            let mut list: Vec<String> = (0..1 + dice.below(4))
                .map(|_| {
                    let text = kind.value(dice);
                    write(dice, kind, &text)
                })
                .collect();
            if dice.one_in(8) {
                list.push("NULL".to_owned());
            }
            format!("{name} {not}IN ({})", list.join(", "))
        }
        6 => {
            let text = kind.value(dice);
            format!("{name} IS DISTINCT FROM {}", literal(dice, kind, &text))
        }
        7 | 8 if kind.is_text() => {
            let not = dice.pick(&["", "", "NOT "]);
            let like = dice.pick(&["LIKE", "LIKE", "ILIKE"]);
            let text = kind.value(dice);
            let pattern = pattern(dice, &text);
            format!("{name} {not}{like} {}", quoted(dice, &pattern))
        }
        7 | 8 if kind == Kind::Boolean => dice
            .pick(&["#", "NOT #", "# IS TRUE", "# IS NOT FALSE", "# IS UNKNOWN"])
            .replace('#', name),
        9 | 10 => {
            let peers: Vec<&str> = columns
                .iter()
                .filter(|(other, like)| other != name && like.is_like(kind))
                .map(|(other, _)| other.as_str())
                .collect();
            if peers.is_empty() {
                format!("{name} {operator} {}", value(dice))
            } else {
                format!("{name} {operator} {}", dice.pick(&peers))
            }
        }
        _ => format!("{name} {operator} {}", value(dice)),
    }
}

/// A LIKE pattern that the text may match; none ends in its escape character.
fn pattern(dice: &mut Dice, text: &str) -> String {
    let mut pattern = String::new();
    for char in text.chars().take(12) {
        match dice.below(6) {
            0 => pattern.push('_'),
            1 => pattern.push('%'),
            _ if matches!(char, '%' | '_' | '\\') => pattern.extend(['\\', char]),
            _ => pattern.push(char),
        }
    }
    if dice.one_in(2) {
        pattern.push('%');
    }
    pattern
}
