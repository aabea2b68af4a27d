//! Page views of many web sites in one wide table, `hits`, with the 43 queries that
//! ClickBench asks of such a table.
//!
//! ClickBench (<https://github.com/ClickHouse/ClickBench>) measures analytical databases on
//! 100 million rows of a web counter's log. Its files are under CC BY-NC-SA 4.0, so nothing of
//! them is here: names, rows and texts are our own, and only what is asked is the same, in the same
//! order. What its data are like is drawn instead:
//!
//! * Sites differ in size by 1/rank; a site's rows lie together and rise in time, as in a log.
//! * A page is a function of its number, and so are its URL and title; few pages have most views.
//! * What depends on the visitor (region, screen, browser, …) is drawn from the visitor's number.
//! * Most search texts, phone models and campaign columns are empty, most flags zero.

use std::ops::Range;

use crate::copy::{Format, RowWriter};

mod columns;
mod names;
pub mod queries;
mod view;

pub use queries::Query;
use view::Site;

/// The table's name.
pub const TABLE: &str = "hits";

/// Rows per chunk, about 1.5 MB of text.
pub const ROWS_PER_CHUNK: u64 = 2_048;

/// Number of sites.
const SITES: u64 = 4_096;

/// The `CREATE TABLE` statement, with a layout where given.
pub fn create_table(layout: Option<&str>) -> String {
    let columns = columns::COLUMNS.map(|(name, kind, _)| (name, kind));
    crate::dataset::create_table(TABLE, &columns, columns::PRIMARY_KEY, layout)
}

/// Streams of random numbers, one per kind of thing drawn.
mod stream {
    pub(super) const VIEW: u64 = 101;
    pub(super) const VISITOR: u64 = 102;
    pub(super) const VISITOR_ID: u64 = 103;
    pub(super) const PAGE: u64 = 104;
    pub(super) const PAGE_HASH: u64 = 105;
    pub(super) const PHRASE: u64 = 106;
    pub(super) const VIEW_ID: u64 = 107;
}

/// A data set: a pure function from (rows, seed) to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hits {
    rows: u64,
    seed: u64,
}

impl Hits {
    /// The data set of so many rows, at least one.
    pub fn new(rows: u64, seed: u64) -> Self {
        Self {
            rows: rows.max(1),
            seed,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of chunks; they are numbered from 0.
    pub fn chunks(&self) -> u64 {
        self.rows.div_ceil(ROWS_PER_CHUNK)
    }

    /// Appends chunk `chunk` to `out` as COPY text; returns the number of rows, zero for a
    /// chunk past the end.
    pub fn copy_chunk(&self, chunk: u64, out: &mut Vec<u8>) -> u64 {
        let start = chunk.saturating_mul(ROWS_PER_CHUNK).min(self.rows);
        let range = start..(start + ROWS_PER_CHUNK).min(self.rows);
        self.copy_rows(range.clone(), out);
        range.end - range.start
    }

    fn copy_rows(&self, rows: Range<u64>, out: &mut Vec<u8>) {
        let mut writer = RowWriter::new(out, Format::Text);
        let mut site = Site::of_row(self, rows.start);
        for row in rows {
            while row >= site.rows.end {
                site = site.next(self);
            }
            view::View::draw(self, &site, row).write(&mut writer);
            writer.end_row();
        }
    }

    /// Number of visitors there may be; nearly all have views, five on average.
    fn visitors(&self) -> u64 {
        self.rows / 5 + 1
    }

    /// Number of texts that are searched for.
    fn phrases(&self) -> u64 {
        self.rows / 20 + 100
    }
}

#[cfg(test)]
mod tests;
