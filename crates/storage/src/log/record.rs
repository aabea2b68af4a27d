//! The frame around everything in a log file.
//!
//! ```text
//!  file   := header 40 bytes, record*
//!  header := "AEROLOG1", format u32, tenant u32, number u64, last LSN before u64, crc u32, 0 u32
//!  record := length u32, crc u32, kind u8, "AEL", synced u32,
//!            LSN u64 (0 for ROWS), transaction u64, microseconds since 1970 u64, payload
//! ```
//!
//! `synced` is how much of the file was known to be on disk when the record was written.
//! It tells a torn tail from damage: a write that a power failure interrupts may leave
//! later pages without earlier ones, so a valid record behind an invalid one proves
//! nothing by itself. But what lies before a valid record's `synced` had been written
//! for good.

use aerostat_types::{CommitTs, TenantId, TxnId};

use super::codec::Reader;

/// Bytes before a record's payload.
pub(crate) const HEAD_BYTES: usize = 40;

/// Bytes before the first record.
pub(crate) const FILE_HEAD_BYTES: usize = 40;

const MAGIC: &[u8; 8] = b"AEROLOG1";

/// Raised whenever older bytes could be misread.
const FORMAT: u32 = 1;

/// Lets a search for records skip most bytes.
const SYNC: &[u8; 3] = b"AEL";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A part of a transaction's redo, before its commit.
    Rows = 1,
    /// A commit, with the rest of the redo.
    Commit = 2,
    /// A table as it is from now on, as JSON: a new one, or one with another layout.
    Table = 3,
    /// The end of a table: its id.
    DropTable = 4,
    /// The caller's catalogue.
    Catalog = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [
            Kind::Rows,
            Kind::Commit,
            Kind::Table,
            Kind::DropTable,
            Kind::Catalog,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// What stands before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) lsn: CommitTs,
    pub(crate) txn: TxnId,
    /// Microseconds since 1970.
    pub(crate) wall_micros: u64,
}

/// A record as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head,
    pub(crate) synced: u32,
    pub(crate) payload: &'a [u8],
}

/// Appends a record.
pub(crate) fn put(head: &Head, synced: u32, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let length = u32::try_from(payload.len()).expect("redo goes out long before 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.push(head.kind as u8);
    out.extend_from_slice(SYNC);
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&head.lsn.0.to_le_bytes());
    out.extend_from_slice(&head.txn.0.to_le_bytes());
    out.extend_from_slice(&head.wall_micros.to_le_bytes());
    out.extend_from_slice(payload);
    let crc = checksum(&out[start..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Of the length and of everything after the checksum.
fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// The record at the front of `bytes` and how many bytes it takes; `None` if none is.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let mut reader = Reader(bytes);
    let length = reader.u32().ok()? as usize;
    let total = HEAD_BYTES.checked_add(length)?;
    let whole = bytes.get(..total)?;
    let crc = reader.u32().ok()?;
    let kind = Kind::of(reader.byte().ok()?)?;
    if reader.take(3).ok()? != SYNC || checksum(whole) != crc {
        return None;
    }
    let synced = reader.u32().ok()?;
    let head = Head {
        kind,
        lsn: CommitTs(reader.u64().ok()?),
        txn: TxnId(reader.u64().ok()?),
        wall_micros: reader.u64().ok()?,
    };
    let payload = &whole[HEAD_BYTES..];
    Some((
        Record {
            head,
            synced,
            payload,
        },
        total,
    ))
}

/// Whether a valid record after `offset`, where none is, says that there had been one.
pub(crate) fn proves_damage(bytes: &[u8], offset: usize) -> bool {
    let mut at = offset + 1;
    while let Some(found) = bytes
        .get(at + 9..)
        .and_then(|rest| rest.windows(SYNC.len()).position(|window| window == SYNC))
    {
        if let Some((record, _)) = parse(&bytes[at + found..])
            && record.synced as usize > offset
        {
            return true;
        }
        at += found + 1;
    }
    false
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub(crate) tenant: TenantId,
    pub(crate) number: u64,
    /// Every record with an LSN in this file has a greater one.
    pub(crate) after: CommitTs,
}

impl FileHead {
    pub(crate) fn to_bytes(self) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = [0; FILE_HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tenant.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.after.0.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether a file of another version begins like this. One of zeros is torn.
    pub(crate) fn is_of_other_format(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
            && bytes
                .get(8..12)
                .is_some_and(|format| format != [0; 4] && format != FORMAT.to_le_bytes())
    }

    /// `None` when no file of this format begins like this.
    pub(crate) fn parse(bytes: &[u8]) -> Option<FileHead> {
        let mut reader = Reader(bytes.get(..FILE_HEAD_BYTES)?);
        let magic = reader.take(8).ok()?;
        let format = reader.u32().ok()?;
        let head = FileHead {
            tenant: TenantId(reader.u32().ok()?),
            number: reader.u64().ok()?,
            after: CommitTs(reader.u64().ok()?),
        };
        let crc = reader.u32().ok()?;
        (magic == MAGIC && format == FORMAT && crc == crc32fast::hash(&bytes[..32])).then_some(head)
    }
}
