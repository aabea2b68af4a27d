//! A transaction's changes to rows, as bytes: a sequence of operations.
//!
//! ```text
//!  operation := kind u8, table u32, rows u32, bytes u32, body
//!    INSERT      body: the rows                       (codec)
//!    END_KEYS    body: rows × (varint length, key)    rows of a table with a key
//!    END_ROWS    body: the rows, whole                rows of a table without
//! ```

use std::ops::Deref;

use aerostat_segment::NewRows;
use aerostat_types::{SqlType, TableId};
use arrow_array::ArrayRef;

use crate::files::codec::{self, BadBytes, Reader, put_varint};

const INSERT: u8 = 1;
const END_KEYS: u8 = 2;
const END_ROWS: u8 = 3;

/// Bytes before an operation's body.
const HEAD_BYTES: usize = 13;

/// A part of what a transaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) table: TableId,
    pub(crate) rows: usize,
    pub(crate) change: Change,
    pub(crate) body: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Insert,
    EndKeys,
    EndRows,
}

impl Change {
    fn of(kind: u8) -> Option<Change> {
        match kind {
            INSERT => Some(Change::Insert),
            END_KEYS => Some(Change::EndKeys),
            END_ROWS => Some(Change::EndRows),
            _ => None,
        }
    }
}

/// Rows that were inserted.
pub(crate) fn insert(
    table: TableId,
    types: &[SqlType],
    new: NewRows<'_>,
    rows: std::ops::Range<usize>,
) -> Vec<u8> {
    let count = rows.len();
    operation(
        INSERT,
        table,
        count,
        body_bytes(types, count),
        |out| match new {
            NewRows::Columns(columns) => codec::encode(types, columns, rows, out),
            NewRows::Row(values) => codec::encode_row(types, values, out),
        },
    )
}

/// Rows that were ended, by key.
pub(crate) fn end_keys<K: Deref<Target = [u8]>>(
    table: TableId,
    keys: impl ExactSizeIterator<Item = K>,
) -> Vec<u8> {
    operation(END_KEYS, table, keys.len(), 0, |out| {
        for key in keys {
            put_varint(key.len() as u64, out);
            out.extend_from_slice(&key);
        }
    })
}

/// Rows that were ended, as a whole.
pub(crate) fn end_rows(
    table: TableId,
    types: &[SqlType],
    columns: &[ArrayRef],
    rows: usize,
) -> Vec<u8> {
    operation(END_ROWS, table, rows, body_bytes(types, rows), |out| {
        codec::encode(types, columns, 0..rows, out);
    })
}

/// About how many bytes the rows take, so that the buffer of many is not grown step by step.
fn body_bytes(types: &[SqlType], rows: usize) -> usize {
    let widths = types.iter().map(|ty| ty.physical().width());
    rows * widths.sum::<usize>()
}

fn operation(
    kind: u8,
    table: TableId,
    rows: usize,
    body_bytes: usize,
    body: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + body_bytes);
    out.push(kind);
    out.extend_from_slice(&table.0.to_le_bytes());
    let rows = u32::try_from(rows).expect("a segment has fewer rows");
    out.extend_from_slice(&rows.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(&mut out);
    // A run is of one segment, so it is little more than an arena's bytes.
    let bytes = u32::try_from(out.len() - HEAD_BYTES).expect("a run fits a few arenas");
    out[9..13].copy_from_slice(&bytes.to_le_bytes());
    debug_assert!(
        operations(&out).eq([Ok(Operation {
            table,
            rows: rows as usize,
            change: Change::of(kind).expect("a kind of ours"),
            body: &out[HEAD_BYTES..],
        })]),
        "an operation is read as it was written"
    );
    out
}

/// The operations in order. Ends after the first error.
pub(crate) fn operations(
    bytes: &[u8],
) -> impl Iterator<Item = Result<Operation<'_>, BadBytes>> + '_ {
    let mut reader = Reader(bytes);
    std::iter::from_fn(move || {
        if reader.0.is_empty() {
            return None;
        }
        let next = next(&mut reader);
        if next.is_err() {
            reader.0 = &[];
        }
        Some(next)
    })
}

fn next<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, BadBytes> {
    let change = Change::of(reader.byte()?).ok_or(BadBytes("an unknown operation"))?;
    let (table, rows) = (TableId(reader.u32()?), reader.u32()? as usize);
    let bytes = reader.u32()? as usize;
    Ok(Operation {
        table,
        rows,
        change,
        body: reader.take(bytes)?,
    })
}

/// The keys of an [`Change::EndKeys`].
pub(crate) fn keys(operation: &Operation<'_>) -> Result<Vec<Vec<u8>>, BadBytes> {
    let mut reader = Reader(operation.body);
    let mut keys = Vec::with_capacity(operation.rows.min(operation.body.len()));
    for _ in 0..operation.rows {
        let bytes = usize::try_from(reader.varint()?).map_err(|_| BadBytes("a key is too long"))?;
        keys.push(reader.take(bytes)?.to_vec());
    }
    if reader.0.is_empty() {
        Ok(keys)
    } else {
        Err(BadBytes("bytes are left over"))
    }
}
