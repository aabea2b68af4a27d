//! What comes and goes at the source without a change of a table that is followed.

use std::collections::{HashMap, HashSet};

use crate::{catalog, error::ImportError, following::Following};

/// What there is to tell: tables that are new, that are gone, and that another stands in the place of.
///
/// # Errors
/// [`ImportError::Source`], and [`ImportError::Difference`] if changes of a table do not come any more.
pub(crate) async fn notes(following: &Following<'_>) -> Result<Vec<String>, ImportError> {
    let failed = || ImportError::source("reading its tables");
    let tables = catalog::tables(following.source, |_, _| true).await?;
    let rows = following
        .source
        .query(
            "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = $1::text",
            &[&following.record.publication],
        )
        .await
        .map_err(failed())?;
    let published: HashSet<(String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let known: HashMap<u32, _> = following
        .tables
        .iter()
        .map(|table| (table.oid, table))
        .collect();
    let mut notes = Vec::new();
    for table in &tables {
        let label = table.label();
        let is_published = published.contains(&(table.schema.clone(), table.name.clone()));
        if known.contains_key(&table.oid) {
            if !is_published {
                return Err(ImportError::Difference {
                    table: label,
                    differences: vec![format!(
                        "it is not in the publication {} any more, so changes of it are missing: \
                         drop the import and begin again",
                        following.record.publication
                    )],
                    statements: Vec::new(),
                });
            }
        } else if following.filter.wants_name(&table.schema, &table.name)
            && (following.record.own_publication || is_published)
        {
            notes.push(format!(
                "{label} is new at the source, and not part of the import"
            ));
        }
    }
    for recorded in &following.tables {
        if !tables.iter().any(|table| table.oid == recorded.oid) {
            notes.push(format!(
                "{}.{} is gone from the source; the target's stays as it is",
                recorded.schema, recorded.name
            ));
        }
    }
    Ok(notes)
}
