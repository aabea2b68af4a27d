//! The list of a frozen segment's rows that have ended since its image was written.
//!
//! ```text
//!  list := "AEROEND1", ended u32, ended row u32 …
//! ```
//!
//! Nothing else of a frozen segment changes, so a checkpoint that finds its image there writes this
//! list beside it: four bytes for each row that has ended instead of the segment's megabytes. The
//! list replaces the one in the image. Its length and checksum are in the manifest.

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use crate::{
    RecoverError, TableView,
    files::{
        codec::{BadBytes, Reader},
        disk::{Disk, Opened, Stream},
        fault,
        manifest::{EndedFile, ImageFile, ImageForm},
    },
    store::directory::Entry,
};

const MAGIC: &[u8; 8] = b"AEROEND1";

/// The rows of a frozen segment that the view does not see, in order.
pub(crate) fn ended_rows(view: &TableView, entry: &Arc<Entry>) -> Vec<u32> {
    let rows = entry.segment().rows();
    let visible = view.visible(entry, 0..rows);
    let mut live = visible.iter().peekable();
    let ended: Vec<u32> = (0..rows)
        .filter(|row| live.next_if_eq(row).is_none())
        .collect();
    assert_eq!(
        visible.len() + ended.len(),
        rows as usize,
        "a snapshot sees each frozen row, or finds that it has ended"
    );
    ended
}

/// Writes the list of a frozen segment whose image is there, and describes both. It is not durable
/// yet, as images are not.
pub(crate) fn write(
    disk: &dyn Disk,
    folder: &Path,
    name: String,
    image: &ImageFile,
    (view, entry): (&TableView, &Arc<Entry>),
) -> io::Result<ImageFile> {
    assert_eq!(
        image.form,
        ImageForm::Frozen,
        "only the image of a frozen segment stays as it is"
    );
    let ended = ended_rows(view, entry);
    let mut bytes = MAGIC.to_vec();
    bytes.extend((ended.len() as u32).to_le_bytes());
    bytes.extend(ended.iter().flat_map(|row| row.to_le_bytes()));
    let mut file = Stream::of(disk.open(&folder.join(&name), Opened::New)?);
    file.write_all(&bytes)?;
    file.flush()?;
    fault::pass("checkpoint.ended");
    Ok(ImageFile {
        rows: u64::from(entry.segment().rows()) - ended.len() as u64,
        ended: Some(EndedFile {
            name,
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(&bytes),
        }),
        ..image.clone()
    })
}

/// Reads a list. Whether its rows are the segment's is the caller's to examine.
pub(crate) fn read(
    disk: &dyn Disk,
    folder: &Path,
    file: &EndedFile,
) -> Result<Vec<u32>, RecoverError> {
    let path = folder.join(&file.name);
    let bytes = disk.read(&path).map_err(RecoverError::io(&path))?;
    let damaged = |what| RecoverError::damaged(&path, 0, what);
    if bytes.len() as u64 != file.bytes || crc32fast::hash(&bytes) != file.crc32 {
        return Err(damaged(BadBytes("the checksum does not match")));
    }
    parse(&bytes).map_err(damaged)
}

fn parse(bytes: &[u8]) -> Result<Vec<u32>, BadBytes> {
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(BadBytes("no list of ended rows begins like this"));
    }
    let count = reader.u32()? as usize;
    let (ended, _) = reader.take(count.saturating_mul(4))?.as_chunks::<4>();
    if !reader.0.is_empty() {
        return Err(BadBytes("more than the rows that it counts"));
    }
    Ok(ended.iter().map(|row| u32::from_le_bytes(*row)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_or_not_at_all() {
        let list = |count: u32, rows: &[u32]| {
            let rows = rows.iter().flat_map(|row| row.to_le_bytes());
            let head = MAGIC.iter().copied().chain(count.to_le_bytes());
            head.chain(rows).collect::<Vec<u8>>()
        };
        assert_eq!(parse(&list(0, &[])).unwrap(), Vec::<u32>::new());
        assert_eq!(parse(&list(2, &[3, 9])).unwrap(), [3, 9]);
        for bad in [
            list(2, &[3]),
            list(1, &[3, 9]),
            list(u32::MAX, &[3]),
            b"AEROEND2".to_vec(),
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
    }
}
