//! The frame around everything in a log file.
//!
//! ```text
//!  file   := header 48 bytes, record*
//!  header := "AEROLOG1", format u32, tenant u32, number u64, last LSN before u64,
//!            timeline u64, crc u32, flags u32 (1: begins inside)
//!  record := length u32, crc u32, kind u8, "AEL", synced u32,
//!            LSN u64 (0 for ROWS and ABORT), transaction u64, microseconds since 1970 u64, payload
//! ```
//!
//! The payload of a BLOCK ends with `transaction u64 × count, count u32`: the statements of which
//! there are ROWS before it. That of a DEFINING is that of a BLOCK, followed by `catalogue,
//! length u32`. That of a NOTHING is the first LSN that it speaks of, `u64`; that of an EPOCH its
//! number, `u64`.
//!
//! Formats 2 and 3 are read and not written. The third has no EPOCH, the second has neither ABORT nor
//! NOTHING: a place at which there is nothing is a COMMIT without redo there.
//!
//! `synced` is how much of the file was known to be on disk when the record was written. It
//! distinguishes a torn tail from damage: a write that a power failure interrupts may leave later
//! pages without earlier ones, so a valid record behind an invalid one proves nothing by itself.
//! But everything before a valid record's `synced` had been written durably.

use std::ops::RangeInclusive;

use aerostat_types::{CommitTs, Epoch, TenantId, TxnId};

use crate::files::{
    codec::{BadBytes, Reader},
    origin::{Origin, Timeline},
};

/// Bytes before a record's payload.
pub(crate) const HEAD_BYTES: usize = 40;

/// Bytes before the first record.
pub(crate) const FILE_HEAD_BYTES: usize = 48;

const MAGIC: &[u8; 8] = b"AEROLOG1";

/// Raised whenever older bytes could be misread, or an older version would misread these.
pub(crate) const FORMAT: u32 = 4;

/// The oldest that is read.
pub(crate) const FORMAT_MIN: u32 = 2;

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
    /// The commit of several statements, of some of which there are [`Kind::Rows`].
    Block = 6,
    /// As [`Kind::Block`], with the caller's catalogue: a commit that changes what exists.
    Defining = 7,
    /// A transaction, or a statement of a block, of which there are [`Kind::Rows`] will not commit.
    Abort = 8,
    /// At no place since the record before is anything, its own included: commits of temporary relations
    /// took them, or such as a failure of the log took back.
    Nothing = 9,
    /// From here on the log is that of another configuration of the tenant's copies.
    Epoch = 10,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [
            Kind::Rows,
            Kind::Commit,
            Kind::Table,
            Kind::DropTable,
            Kind::Block,
            Kind::Defining,
            Kind::Abort,
            Kind::Nothing,
            Kind::Epoch,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }

    /// Whether it has an LSN, and so a place in the order.
    pub(crate) fn has_place(self) -> bool {
        !matches!(self, Kind::Rows | Kind::Abort)
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

/// No LSN and no transaction reaches this: their stamps have other meanings from here on.
const NUMBER_END: u64 = 1 << 62;

/// No LSN, transaction or log file that was written has such a number: as many are left for
/// those to come, more than any node can use up.
pub(crate) const USED_END: u64 = 1 << 61;

/// Appends a record.
pub(crate) fn put(head: &Head, synced: u32, payload: &[u8], out: &mut Vec<u8>) {
    assert!(
        head.lsn.0 < NUMBER_END && head.txn.0 < NUMBER_END,
        "no reader takes LSN {} of transaction {}",
        head.lsn,
        head.txn
    );
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.push(head.kind as u8);
    out.extend_from_slice(SYNC);
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(&head.lsn.0.to_le_bytes());
    out.extend_from_slice(&head.txn.0.to_le_bytes());
    out.extend_from_slice(&head.wall_micros.to_le_bytes());
    out.extend_from_slice(payload);
    seal(&mut out[start..]);
    debug_assert!(
        parse(&out[start..]).is_some_and(|(record, bytes)| record.head == *head
            && record.synced == synced
            && record.payload == payload
            && bytes == out.len() - start),
        "a record is read as it was written"
    );
}

/// Sets a record's length and checksum.
pub(crate) fn seal(record: &mut [u8]) {
    let length = u32::try_from(record.len() - HEAD_BYTES).expect("redo goes out before 4 GiB");
    record[..4].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(record);
    record[4..8].copy_from_slice(&crc.to_le_bytes());
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
    let (record, total) = take_apart(bytes)?;
    let crc = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
    (checksum(&bytes[..total]) == crc).then_some((record, total))
}

/// How many bytes the record at the front of `bytes` takes, if its head is there.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    Some(HEAD_BYTES + Reader(bytes).u32().ok()? as usize)
}

/// [`parse`] of what was parsed before: the checksum is not computed again.
pub(crate) fn take_apart(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    let mut reader = Reader(bytes);
    let length = reader.u32().ok()? as usize;
    let total = HEAD_BYTES.checked_add(length)?;
    let whole = bytes.get(..total)?;
    reader.u32().ok()?;
    let kind = Kind::of(reader.byte().ok()?)?;
    if reader.take(3).ok()? != SYNC {
        return None;
    }
    let synced = reader.u32().ok()?;
    let head = Head {
        kind,
        lsn: CommitTs(reader.u64().ok()?),
        txn: TxnId(reader.u64().ok()?),
        wall_micros: reader.u64().ok()?,
    };
    if head.lsn.0 >= NUMBER_END || head.txn.0 >= NUMBER_END {
        return None;
    }
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

/// Makes redo the payload of a [`Kind::Block`].
pub(crate) fn put_parts(parts: &[TxnId], payload: &mut Vec<u8>) {
    payload.reserve(parts.len() * 8 + 4);
    for part in parts {
        payload.extend_from_slice(&part.0.to_le_bytes());
    }
    let count = u32::try_from(parts.len()).expect("a block's statements fit into memory");
    payload.extend_from_slice(&count.to_le_bytes());
}

/// The redo in the payload of a [`Kind::Block`], and its statements.
pub(crate) fn parts(payload: &[u8]) -> Result<(&[u8], impl Iterator<Item = TxnId> + '_), BadBytes> {
    let bad = BadBytes("the statements of a block are missing");
    let (rest, count) = payload.split_last_chunk::<4>().ok_or(bad)?;
    let bytes = u32::from_le_bytes(*count) as usize * 8;
    let redo = rest.len().checked_sub(bytes).ok_or(bad)?;
    let (redo, parts) = rest.split_at(redo);
    let id = |bytes: &[u8]| TxnId(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    Ok((redo, parts.chunks_exact(8).map(id)))
}

/// Makes the payload of a [`Kind::Block`] that of a [`Kind::Defining`].
pub(crate) fn put_catalog(catalog: &[u8], payload: &mut Vec<u8>) {
    payload.extend_from_slice(catalog);
    let length = u32::try_from(catalog.len()).expect("a catalogue is far smaller than 4 GiB");
    payload.extend_from_slice(&length.to_le_bytes());
}

/// The payload of a [`Kind::Defining`] as that of a [`Kind::Block`], and the catalogue.
pub(crate) fn catalog(payload: &[u8]) -> Result<(&[u8], &[u8]), BadBytes> {
    let bad = BadBytes("the catalogue of a commit is missing");
    let (rest, length) = payload.split_last_chunk::<4>().ok_or(bad)?;
    let length = u32::from_le_bytes(*length) as usize;
    let at = rest.len().checked_sub(length).ok_or(bad)?;
    Ok(rest.split_at(at))
}

/// The payload of a [`Kind::Nothing`] that speaks of everything from this LSN on.
pub(crate) fn nothing_from(first: CommitTs) -> Vec<u8> {
    first.0.to_le_bytes().to_vec()
}

/// The payload of a [`Kind::Epoch`].
pub(crate) fn put_epoch(epoch: Epoch) -> Vec<u8> {
    epoch.0.to_le_bytes().to_vec()
}

/// The epoch that a [`Kind::Epoch`] begins.
pub(crate) fn epoch(payload: &[u8]) -> Result<Epoch, BadBytes> {
    let number = payload
        .try_into()
        .map_err(|_| BadBytes("an epoch without a number"))?;
    Ok(Epoch(u64::from_le_bytes(number)))
}

/// The LSNs that a record with a place speaks of: its own and, of a [`Kind::Nothing`], others before it.
pub(crate) fn places(record: &Record<'_>) -> Result<RangeInclusive<u64>, BadBytes> {
    let last = record.head.lsn.0;
    let first = match record.head.kind {
        Kind::Nothing => {
            let bad = BadBytes("the places at which there is nothing are missing");
            u64::from_le_bytes(record.payload.try_into().map_err(|_| bad)?)
        }
        _ => last,
    };
    match (1..=last).contains(&first) {
        true => Ok(first..=last),
        false => Err(BadBytes("places that no commit had")),
    }
}

/// The statements of a block's commit, of which there are [`Kind::Rows`]; of other records none.
pub(crate) fn statements(record: &Record<'_>) -> Result<Vec<TxnId>, BadBytes> {
    let block = match record.head.kind {
        Kind::Block => record.payload,
        Kind::Defining => catalog(record.payload)?.0,
        _ => return Ok(Vec::new()),
    };
    Ok(parts(block)?.1.collect())
}

/// The redo of a commit.
pub(crate) fn redo<'a>(record: &Record<'a>) -> Result<&'a [u8], BadBytes> {
    match record.head.kind {
        Kind::Block => Ok(parts(record.payload)?.0),
        Kind::Defining => Ok(parts(catalog(record.payload)?.0)?.0),
        _ => Ok(record.payload),
    }
}

/// How often on average a byte behind an offset may be part of what could be a record. Of a
/// torn tail few are, once; values that look like records must not make recovery endless.
const LOOKS_MAX: usize = 64;

/// Whether a valid record after `offset`, where none is, says that there had been one. True
/// also where too much looks like records to tell.
pub(crate) fn proves_damage(bytes: &[u8], offset: usize) -> bool {
    let mut bytes_left = (bytes.len() - offset).saturating_mul(LOOKS_MAX);
    let mut at = offset + 1;
    while let Some(found) = bytes
        .get(at + 9..)
        .and_then(|rest| rest.windows(SYNC.len()).position(|window| window == SYNC))
    {
        at += found;
        // A record says what was on disk before it.
        if let Some((record, total)) = take_apart(&bytes[at..])
            && (offset + 1..=at).contains(&(record.synced as usize))
        {
            if total > bytes_left || parse(&bytes[at..]).is_some() {
                return true;
            }
            bytes_left -= total;
        }
        at += 1;
    }
    false
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHead {
    pub(crate) origin: Origin,
    pub(crate) number: u64,
    /// Every record with an LSN in this file has a greater one.
    pub(crate) after: CommitTs,
    /// Whether there may be records without a place between that of `after` and the file. Files of older
    /// formats do not say.
    pub(crate) begins_inside: bool,
    pub(crate) format: Format,
}

/// The flag of [`FileHead::begins_inside`].
const BEGINS_INSIDE: u32 = 1;

/// The first format whose files have flags, which are part of the checksum then.
const FORMAT_OF_FLAGS: u32 = 4;

/// How a file's records are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format(u32);

impl Format {
    /// What is written.
    pub(crate) const CURRENT: Format = Format(FORMAT);

    /// Whether records may be added to a file of it.
    pub(crate) fn is_current(self) -> bool {
        self == Format::CURRENT
    }
}

impl FileHead {
    pub(crate) fn to_bytes(self) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = [0; FILE_HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.format.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.origin.tenant.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.after.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.origin.timeline.0.to_le_bytes());
        let flags = u32::from(self.begins_inside) * BEGINS_INSIDE;
        bytes[44..].copy_from_slice(&flags.to_le_bytes());
        Self::seal(&mut bytes);
        debug_assert_eq!(
            FileHead::parse(&bytes),
            Some(self),
            "a header is read as it was written"
        );
        bytes
    }

    /// Sets a header's checksum.
    pub(crate) fn seal(bytes: &mut [u8; FILE_HEAD_BYTES]) {
        let crc = Self::checksum(bytes);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    }

    /// Of everything but itself; in older formats, of what is before it.
    fn checksum(bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..40]);
        let format = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if format >= FORMAT_OF_FLAGS {
            hasher.update(&bytes[44..FILE_HEAD_BYTES]);
        }
        hasher.finalize()
    }

    /// Whether a file of a version that is not read begins like this. One of zeros is torn.
    pub(crate) fn is_of_other_format(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
            && bytes
                .get(8..12)
                .and_then(|format| Some(u32::from_le_bytes(format.try_into().ok()?)))
                .is_some_and(|format| format != 0 && !(FORMAT_MIN..=FORMAT).contains(&format))
    }

    /// `None` when no file of a format that is read begins like this.
    pub(crate) fn parse(bytes: &[u8]) -> Option<FileHead> {
        let mut reader = Reader(bytes.get(..FILE_HEAD_BYTES)?);
        let magic = reader.take(8).ok()?;
        let format = reader.u32().ok()?;
        let tenant = TenantId(reader.u32().ok()?);
        let number = reader.u64().ok()?;
        let after = CommitTs(reader.u64().ok()?);
        let timeline = Timeline(reader.u64().ok()?);
        let (crc, flags) = (reader.u32().ok()?, reader.u32().ok()?);
        let is_known = magic == MAGIC && (FORMAT_MIN..=FORMAT).contains(&format);
        let valid = is_known && crc == Self::checksum(bytes);
        valid.then_some(FileHead {
            origin: Origin { tenant, timeline },
            number,
            after,
            begins_inside: format < FORMAT_OF_FLAGS || flags & BEGINS_INSIDE != 0,
            format: Format(format),
        })
    }
}
