//! Points of a log: where a part of it begins that one node sends to another.

use aerostat_types::CommitTs;
use serde::{Deserialize, Serialize};

use super::record::{self, Record};

/// A point between two records of a log, the same in every copy of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamPoint {
    /// The last record with a place before it.
    pub after: CommitTs,
    /// How many records without a place stand between that and the point.
    pub since: u64,
}

impl StreamPoint {
    /// Behind the next record.
    pub(super) fn pass(&mut self, record: &Record<'_>) {
        *self = match record.head.kind.has_place() {
            true => StreamPoint {
                after: record.head.lsn,
                since: 0,
            },
            false => StreamPoint {
                since: self.since + 1,
                ..*self
            },
        };
    }

    /// Of records that begin here, those behind another point; `None` if they begin behind that, or do not
    /// come to it.
    pub fn skip_to(mut self, to: StreamPoint, mut records: &[u8]) -> Option<&[u8]> {
        while self < to {
            let (record, length) = record::take_apart(records)?;
            self.pass(&record);
            records = &records[length..];
        }
        (self == to).then_some(records)
    }
}

/// The last place that one of these records has, if any has one.
pub fn last_place(mut records: &[u8]) -> Option<CommitTs> {
    let mut last = None;
    while let Some((record, length)) = record::take_apart(records) {
        if record.head.kind.has_place() {
            last = Some(record.head.lsn);
        }
        records = &records[length..];
    }
    last
}

/// The records at the front of `records` that have no place.
pub fn unplaced(records: &[u8]) -> &[u8] {
    let mut at = 0;
    while let Some((record, length)) = record::take_apart(&records[at..]) {
        if record.head.kind.has_place() {
            break;
        }
        at += length;
    }
    &records[..at]
}
