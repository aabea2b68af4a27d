//! A progress bar per table on the terminal; silent when there is none.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use aerostat_workload::load::{Progress, TableReport};
use indicatif::{ProgressBar, ProgressStyle};

/// How a bar looks while it fills.
const TEMPLATE: &str =
    "{prefix:>24} [{bar:32}] {human_pos}/{human_len} rows, {per_sec}, {eta} left";

/// Progress bars of one load.
pub(crate) struct Bars {
    tenant: String,
    bars: Mutex<HashMap<String, ProgressBar>>,
}

impl Bars {
    /// Bars that name the tenant before each table.
    pub(crate) fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            bars: Mutex::default(),
        }
    }

    fn with(&self, table: &str, act: impl FnOnce(&ProgressBar)) {
        let bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = bars.get(table) {
            act(bar);
        }
    }
}

/// A bar of rows, or of bytes for a file whose rows nobody has counted.
pub(crate) fn bar(prefix: String, length: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template(TEMPLATE).expect("the template is a constant that parses");
    ProgressBar::new(length)
        .with_style(style)
        .with_prefix(prefix)
}

impl Progress for Bars {
    fn table_started(&self, table: &str, rows_expected: u64) {
        let bar = bar(format!("{} {table}", self.tenant), rows_expected);
        self.bars
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(table.to_owned(), bar);
    }

    fn advanced(&self, table: &str, rows: u64, _bytes: u64) {
        self.with(table, |bar| bar.inc(rows));
    }

    fn table_finished(&self, report: &TableReport) {
        self.with(&report.table, ProgressBar::finish_and_clear);
    }
}
