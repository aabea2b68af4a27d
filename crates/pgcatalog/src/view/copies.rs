//! What is known of databases that several nodes have: places of their logs, standings, copies.
//!
//! A place of a log is the number of a commit. PostgreSQL's clients know it as an LSN, whose text has its upper
//! and its lower half in hexadecimal digits.

use aerostat_catalog::{CopyFacts, Database, Standing};
use aerostat_types::{CommitTs, ErrorKind, NodeId, SqlError};

/// How far a database has come on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPlaces {
    /// Snapshots see everything through this.
    pub shown: CommitTs,
    /// The disk has everything through this; `None` of a database without a log.
    pub durable: Option<CommitTs>,
}

impl LogPlaces {
    /// Of a database now.
    pub fn of(database: &Database) -> Self {
        let store = &database.store;
        Self {
            shown: store.txns().last_commit(),
            durable: store.is_durable().then(|| store.durable_through()),
        }
    }
}

/// A row of `aerostat.copies`.
#[derive(Clone, Debug)]
pub struct CopyDescription {
    /// The database.
    pub database: String,
    /// What this node does with it.
    pub standing: Standing,
    /// Which node this is; `None` if no other has the database.
    pub node: Option<NodeId>,
    /// What is known of the copies, if there are some.
    pub facts: Option<CopyFacts>,
    /// How far this node has come.
    pub places: LogPlaces,
}

/// A place as PostgreSQL writes an LSN.
pub(crate) fn lsn(place: CommitTs) -> String {
    let CommitTs(number) = place;
    format!("{:X}/{:X}", number >> 32, number & u64::from(u32::MAX))
}

/// The place that an LSN means.
///
/// # Errors
/// `InvalidTextRepresentation`
pub(crate) fn read_lsn(text: &str) -> Result<CommitTs, SqlError> {
    let half = |digits: &str| {
        let is_half = (1..=8).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_half.then(|| u64::from_str_radix(digits, 16).ok())?
    };
    let place = text.split_once('/').and_then(|(upper, lower)| {
        let (upper, lower) = (half(upper)?, half(lower)?);
        Some(CommitTs(upper << 32 | lower))
    });
    place.ok_or_else(|| {
        SqlError::new(
            ErrorKind::InvalidTextRepresentation,
            format!("invalid input syntax for type pg_lsn: \"{text}\""),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for (place, text) in [
            (0, "0/0"),
            (26, "0/1A"),
            (0x1_0000_0000, "1/0"),
            (0x12_0000_00AB, "12/AB"),
            (u64::MAX, "FFFFFFFF/FFFFFFFF"),
        ] {
            assert_eq!(lsn(CommitTs(place)), text);
            assert_eq!(read_lsn(text).unwrap(), CommitTs(place));
        }
        assert_eq!(read_lsn("0/0000001a").unwrap(), CommitTs(26));
        for wrong in [
            "",
            "0",
            "/",
            "0/",
            "/0",
            "0/0/0",
            "0/G",
            "0/+1",
            " 0/1",
            "0/123456789",
        ] {
            let error = read_lsn(wrong).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidTextRepresentation, "{wrong}");
        }
    }
}
