//! A segment's live rows as a file of a checkpoint.
//!
//! ```text
//!  file  := "AEROIMG1", chunk*, rows 0 u32
//!  chunk := rows u32, length u32, crc u32, rows as columns (log::codec)
//! ```
//!
//! An image holds rows, not an arena: what one snapshot sees of one segment. So it needs
//! no latch, has no stamps to sort out and no dead versions, and is the same for every
//! state and format of segments. Reading one costs an append of its rows.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use aerostat_types::{CommitTs, SqlType};
use arrow_array::RecordBatch;

use crate::{
    RecoverError, StorageError, fault,
    log::codec::{self, BadBytes, Reader},
    replay::{Replay, ReplayError},
};

const MAGIC: &[u8; 8] = b"AEROIMG1";

/// An image that is being written.
pub(crate) struct ImageWriter {
    out: BufWriter<File>,
    buffer: Vec<u8>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl ImageWriter {
    /// A new file: one that is there may be an image that a manifest names.
    pub(crate) fn create(path: &Path) -> io::Result<ImageWriter> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut writer = ImageWriter {
            out: BufWriter::with_capacity(1 << 20, file),
            buffer: Vec::new(),
            rows: 0,
            bytes: MAGIC.len() as u64,
        };
        writer.out.write_all(MAGIC)?;
        Ok(writer)
    }

    /// Appends the first columns of a batch, as many as there are types.
    pub(crate) fn write(&mut self, types: &[SqlType], batch: &RecordBatch) -> io::Result<()> {
        self.buffer.clear();
        let rows = batch.num_rows();
        codec::encode(types, batch.columns(), 0..rows, &mut self.buffer);
        for word in [
            rows as u32,
            self.buffer.len() as u32,
            crc32fast::hash(&self.buffer),
        ] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(&self.buffer)?;
        self.rows += rows as u64;
        self.bytes += 12 + self.buffer.len() as u64;
        Ok(())
    }

    /// Says how many rows and bytes the file has. It is not durable yet: many are synced
    /// together, which costs the file system little more than one.
    pub(crate) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.out.write_all(&0_u32.to_le_bytes())?;
        self.out.flush()?;
        fault::pass("checkpoint.image");
        Ok((self.rows, self.bytes + 4))
    }
}

/// Loads an image into a table.
pub(crate) fn load(
    path: &Path,
    rows_expected: u64,
    at: CommitTs,
    replay: &mut Replay,
) -> Result<u64, RecoverError> {
    let bytes = std::fs::read(path).map_err(RecoverError::io(path))?;
    let mut reader = Reader(&bytes);
    let damaged =
        |rest: &Reader<'_>, what| RecoverError::damaged(path, bytes.len() - rest.0.len(), what);
    let mut rows = 0;
    let mut read = |reader: &mut Reader<'_>| -> Result<bool, ReplayError> {
        if reader.0.len() == bytes.len() && reader.take(MAGIC.len())? != MAGIC {
            return Err(BadBytes("no image begins like this").into());
        }
        let count = reader.u32()?;
        if count == 0 {
            return Ok(false);
        }
        let (length, crc) = (reader.u32()? as usize, reader.u32()?);
        let body = reader.take(length)?;
        if crc32fast::hash(body) != crc {
            return Err(BadBytes("the checksum does not match").into());
        }
        rows += u64::from(count);
        replay.load(count as usize, body, at)?;
        Ok(true)
    };
    loop {
        match read(&mut reader) {
            Ok(true) => {}
            Ok(false) => break,
            Err(ReplayError::Bad(what)) => return Err(damaged(&reader, what)),
            Err(ReplayError::Storage(error)) => return Err(error.into()),
        }
    }
    if rows != rows_expected || !reader.0.is_empty() {
        return Err(damaged(
            &reader,
            BadBytes("not the rows that the manifest says"),
        ));
    }
    match replay.flush() {
        Ok(()) => Ok(bytes.len() as u64),
        Err(ReplayError::Bad(what)) => Err(damaged(&reader, what)),
        Err(ReplayError::Storage(error)) => Err(StorageError::into(error)),
    }
}
