//! Functions that return sizes of objects.

use aerostat_catalog::{DatabaseRecord, NodeRecord};
use aerostat_types::{ByteSize, ErrorKind, SqlError};

use super::{Call, Definition, Reg, function};
use crate::{CatalogView, cell::Cell, view::rights::is_granted};

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        function("pg_size_pretty", &["int8"], "text", |call| {
            Ok(call.int(0).map(pretty).into())
        }),
        function("pg_size_bytes", &["text"], "int8", |call| {
            let invalid = || {
                SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    format!("invalid size: \"{}\"", call.text(0)),
                )
            };
            call.text(0)
                .parse::<ByteSize>()
                .map(|bytes| bytes.0.into())
                .map_err(|_| invalid())
        }),
        function("pg_database_size", &["any"], "int8", database),
        function("pg_tablespace_size", &["any"], "int8", |call| {
            let all = call
                .view
                .node
                .databases
                .keys()
                .filter_map(|name| call.view.facts.database_bytes(name));
            Ok(all.sum::<u64>().into())
        }),
        function("pg_relation_size", &["regclass", "text?"], "int8", relation),
        function("pg_table_size", &["regclass"], "int8", relation),
        function("pg_total_relation_size", &["regclass"], "int8", relation),
        // A key's index lies inside its table's segments and is counted there.
        function("pg_indexes_size", &["regclass"], "int8", |_| Ok(0.into())),
        function("pg_stat_get_numscans", &["oid"], "int8", |_| Ok(0.into())),
        function("pg_stat_get_live_tuples", &["oid"], "int8", |call| {
            let table = call
                .int(0)
                .and_then(|oid| call.view.class(oid))
                .and_then(|class| class.table());
            Ok(table
                .map_or(0, |table| table.table.statistics().rows)
                .into())
        }),
        function("pg_stat_get_dead_tuples", &["oid"], "int8", |call| {
            let table = call
                .int(0)
                .and_then(|oid| call.view.class(oid))
                .and_then(|class| class.table());
            Ok(table
                .map_or(0, |table| table.table.statistics().rows_dead)
                .into())
        }),
    ]
}

fn relation(call: &Call<'_>) -> Result<Cell, SqlError> {
    Ok(match call.view.class(call.oid(0, Reg::Class)?) {
        Some(class) => class
            .table()
            .map_or(0, |table| table.table.statistics().bytes_whole())
            .into(),
        None => Cell::Null,
    })
}

fn database(call: &Call<'_>) -> Result<Cell, SqlError> {
    let node: &NodeRecord = &call.view.node;
    let name = match call.at(0) {
        Cell::Text(name) if name.parse::<u32>().is_err() => Some(name.to_string()),
        other => node
            .databases
            .iter()
            .find(|(_, database)| Some(i64::from(database.oid)) == other.int())
            .map(|(name, _)| name.clone()),
    };
    let Some(name) = name else {
        return Ok(Cell::Null);
    };
    if let Some(database) = node.databases.get(&name)
        && !may_see(call.view, database)
    {
        return Err(aerostat_catalog::ddl::denied("database", &name));
    }
    match call.view.facts.database_bytes(&name) {
        Some(bytes) => Ok(bytes.into()),
        None if node.databases.contains_key(&name) => Ok(0.into()),
        None => Err(SqlError::new(
            ErrorKind::InvalidCatalogName,
            format!("database \"{name}\" does not exist"),
        )),
    }
}

/// Who may connect to a database may see how large it is.
fn may_see(view: &CatalogView, database: &DatabaseRecord) -> bool {
    view.superuser
        || database.owner == view.role
        || is_granted(&database.connect, &view.role)
        || view.may_read_all_statistics()
}

/// PostgreSQL's `pg_size_pretty`: the largest unit in which the number has at most five digits, rounded half up.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes;
    if value.unsigned_abs() < 10 * 1_024 {
        return format!("{value} {}", UNITS[0]);
    }
    // One bit more than the unit, for rounding at the end.
    value /= 1 << 9;
    for unit in &UNITS[1..] {
        if value.unsigned_abs() < 20 * 1_024 - 1 || *unit == UNITS[UNITS.len() - 1] {
            let rounded = (value + value.signum()) / 2;
            return format!("{rounded} {unit}");
        }
        value /= 1 << 10;
    }
    format!("{bytes} {}", UNITS[0])
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn sizes_read_as_in_postgresql() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (8_192, "8192 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (7_715_840, "7535 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (1 << 40, "1024 GB"),
            (-20_480, "-20 kB"),
            (-1_234_567_890, "-1177 MB"),
            (-1_000_000_000_000_000, "-909 TB"),
            (i64::MAX, "8192 PB"),
            (i64::MIN, "-8192 PB"),
        ] {
            assert_eq!(pretty(bytes), text, "{bytes}");
        }
    }
}
