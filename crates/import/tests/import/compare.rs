//! Whether both sides have the same rows.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::imports::{LIMIT, Running};

/// Runs statements.
pub(crate) async fn run(client: &Client, statements: &str) {
    let done = client.batch_execute(statements).await;
    done.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
}

/// The rows of a query, as texts, in any order.
pub(crate) async fn rows(client: &Client, query: &str) -> Vec<String> {
    let messages = client
        .simple_query(query)
        .await
        .unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let mut rows: Vec<String> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let cells: Vec<_> = (0..row.len())
                    .map(|at| row.get(at).unwrap_or("NULL"))
                    .collect();
                Some(cells.join("|"))
            }
            _ => None,
        })
        .collect();
    rows.sort();
    rows
}

/// The first difference between both sides' tables.
pub(crate) async fn difference(
    source: &Client,
    target: &Client,
    tables: &[&str],
) -> Option<String> {
    for table in tables {
        let query = if table.contains(' ') {
            (*table).to_owned()
        } else {
            format!("SELECT * FROM {table}")
        };
        let (here, there) = (rows(source, &query).await, rows(target, &query).await);
        if here == there {
            continue;
        }
        let missing: Vec<_> = here
            .iter()
            .filter(|row| there.binary_search(row).is_err())
            .take(3)
            .collect();
        let surplus: Vec<_> = there
            .iter()
            .filter(|row| here.binary_search(row).is_err())
            .take(3)
            .collect();
        let (here, there) = (here.len(), there.len());
        return Some(format!(
            "{table}: {here} rows and {there}; missing {missing:?}, surplus {surplus:?}"
        ));
    }
    None
}

/// Both sides are the same.
pub(crate) async fn same(source: &Client, target: &Client, tables: &[&str]) {
    if let Some(difference) = difference(source, target, tables).await {
        panic!("{difference}");
    }
}

/// Waits until both sides are the same, while an import follows and nobody writes to the source.
pub(crate) async fn settle(running: &Running, source: &Client, target: &Client, tables: &[&str]) {
    let begun = Instant::now();
    while let Some(difference) = difference(source, target, tables).await {
        assert!(
            !running.ended(),
            "the import ended; {difference}; {:?}",
            running.told
        );
        assert!(begun.elapsed() < LIMIT, "{difference}; {:?}", running.told);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
