//! Results whose columns are texts: what SHOW gives.

use std::sync::{Arc, LazyLock};

use aerostat_api::{ColumnDescription, Outcome, RowsTag};
use aerostat_types::SqlType;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringViewArray};

use super::stream::ready;

static SHOW_ALL_COLUMNS: LazyLock<Arc<[ColumnDescription]>> =
    LazyLock::new(|| text_columns(&["name", "setting", "description"]));

/// The columns of SHOW ALL.
pub(super) fn show_all_columns() -> Arc<[ColumnDescription]> {
    Arc::clone(&SHOW_ALL_COLUMNS)
}

fn text_columns(names: &[&str]) -> Arc<[ColumnDescription]> {
    names
        .iter()
        .map(|name| ColumnDescription::new(*name, SqlType::Text))
        .collect()
}

/// Rows of texts.
pub(super) fn text_rows(names: &[&str], values: Vec<Vec<String>>, tag: &str) -> Outcome {
    let arrays = names.iter().enumerate().map(|(at, name)| {
        let column: StringViewArray = values.iter().map(|row| Some(row[at].as_str())).collect();
        (*name, Arc::new(column) as ArrayRef)
    });
    let batches = RecordBatch::try_from_iter(arrays)
        .map(|batch| vec![batch])
        .unwrap_or_default();
    Outcome::Rows {
        columns: text_columns(names),
        batches: ready(batches),
        tag: RowsTag::Words(tag.to_owned()),
    }
}
