//! An import that is followed: both sides, and what the target knows of it.

use crate::{
    connect::Connection,
    lsn::Lsn,
    plan::Filter,
    record::{Record, RecordedTable},
};

/// What is followed.
pub(crate) struct Following<'a> {
    pub(crate) source: &'a Connection,
    pub(crate) target: &'a Connection,
    pub(crate) record: &'a Record,
    pub(crate) tables: Vec<RecordedTable>,
    pub(crate) filter: &'a Filter,
    /// Where to end, if not only when stopped.
    pub(crate) until: Option<Lsn>,
}
