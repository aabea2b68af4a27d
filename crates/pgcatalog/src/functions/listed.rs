//! Every function that SQL can call, with its number in `pg_proc`.

use super::descriptions;
use crate::{CatalogView, FunctionDescription, FunctionKind, data, types};

/// The first number of this module's functions, and of the engine's others: most
/// have none of PostgreSQL's.
const FIRST_FUNCTION: u32 = 14_000;
const FIRST_ENGINE_FUNCTION: u32 = 15_000;

/// Functions of this module that have PostgreSQL's numbers.
const NUMBERED: [(&str, u32); 9] = [
    ("pg_is_in_recovery", 3810),
    ("pg_promote", 3436),
    ("pg_last_wal_receive_lsn", 3820),
    ("pg_last_wal_replay_lsn", 3821),
    ("pg_last_xact_replay_timestamp", 3830),
    ("pg_current_wal_lsn", 2849),
    ("pg_current_wal_insert_lsn", 2852),
    ("pg_current_wal_flush_lsn", 3330),
    ("pg_wal_lsn_diff", 3165),
];

impl CatalogView {
    /// Every function with its number.
    pub(crate) fn procedures(&self) -> &[(u32, FunctionDescription)] {
        self.index.procedures.get_or_init(|| all_functions(self))
    }
}

/// Every function with its number: those `pg_type` refers to, those of this module,
/// those the engine has beside them.
fn all_functions(view: &CatalogView) -> Vec<(u32, FunctionDescription)> {
    let table = data::Table::read(data::PG_PROC);
    let type_names = |text: Option<&str>| -> Vec<String> {
        text.unwrap_or_default()
            .split_whitespace()
            .map(|oid| types::format_type(oid.parse().unwrap_or(0), None))
            .collect()
    };
    let mut all: Vec<(u32, FunctionDescription)> = table
        .rows
        .iter()
        .filter_map(|row| {
            let description = FunctionDescription {
                name: table.value(row, "proname")?.to_owned(),
                arguments: type_names(table.value(row, "proargtypes")),
                result: type_names(table.value(row, "prorettype"))
                    .into_iter()
                    .next()
                    .unwrap_or_default(),
                kind: FunctionKind::Plain,
            };
            Some((table.value(row, "oid")?.parse().ok()?, description))
        })
        .collect();
    let ours = descriptions();
    let others = view
        .functions
        .iter()
        .filter(|function| !ours.iter().any(|our| our.name == function.name))
        .cloned();
    let numbered = (FIRST_FUNCTION..).zip(ours.iter().cloned());
    all.extend(numbered.map(|(number, function)| {
        let known = NUMBERED.iter().find(|(name, _)| *name == function.name);
        (known.map_or(number, |(_, known)| *known), function)
    }));
    all.extend((FIRST_ENGINE_FUNCTION..).zip(others));
    all
}
