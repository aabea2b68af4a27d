//! One segment as one snapshot sees it, as a file of a checkpoint.
//!
//! ```text
//!  rows    := "AEROIMG1", chunk*, rows 0 u32
//!  chunk   := rows u32, length u32, crc u32, rows as columns (codec)
//!  frozen  := "AEROIMF1", arena bytes u64, length u32, shape as JSON,
//!             count u32, bytes u64 of each variable-length attribute, ended u32, ended row u32 …,
//!             the segment as it was made, sealed
//! ```
//!
//! The image of a hot segment holds rows, not the arena: it needs no latch, has no stamps to sort
//! out and no dead versions, and is the same for every format of segments. Reading it costs an
//! append of its rows.
//!
//! A frozen segment never changes except for end stamps, so its image is its bytes and the list
//! of rows that have ended for the snapshot. Reading it costs little more than its bytes, and it
//! takes as little memory as before. Later checkpoints keep the image and write a list of their own
//! where rows have ended since ([`super::ended`]).

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
};

use aerostat_memory::{ArenaSource, MemoryClass};
use aerostat_segment::{
    ARENA_BYTES_MAX, BLOCK_ROWS, IndexSpec, ROWS_MAX, Segment, SegmentError, SegmentSchema,
};
use aerostat_txn::END_NONE;
use aerostat_types::{CommitTs, IndexKind, SqlType};
use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::{
    RecoverError, StorageError, Table, TableView,
    durable::ended::{self, ended_rows},
    files::{
        codec::{self, BadBytes, Reader, RowBuffer},
        disk::{Disk, Opened, Stream},
        fault,
        manifest::{ImageFile, ImageForm},
    },
    read::scan::Scan,
    store::directory::{Access, Entry},
};

const MAGIC_ROWS: &[u8; 8] = b"AEROIMG1";
const MAGIC_FROZEN: &[u8; 8] = b"AEROIMF1";

/// The bytes of an attribute's values as users count them: a segment's rows, each as long as
/// the longest `char(n)`, are fewer.
const VARIABLE_BYTES_MAX: u64 = (ROWS_MAX as u64) << 26;

/// An image that is being written.
pub(crate) struct ImageWriter {
    out: BufWriter<Stream>,
    name: String,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

impl ImageWriter {
    /// A new file: one that is there may be an image that a manifest names.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path, name: String) -> io::Result<ImageWriter> {
        let file = Stream::of(disk.open(&folder.join(&name), Opened::New)?);
        Ok(ImageWriter {
            out: BufWriter::with_capacity(1 << 20, file),
            name,
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
        })
    }

    /// Writes what the view sees of an entry of its directory. It is not durable yet: many
    /// files are synced together, which costs the file system little more than one.
    pub(crate) fn write(
        mut self,
        view: &TableView,
        entry: &Arc<Entry>,
        in_front: bool,
    ) -> io::Result<Written> {
        // The manifest says how the table is laid out.
        let of_layout = view.table().shape().has(entry.segment());
        let frozen = match of_layout {
            true => {
                let pinned = entry.pin_all(Access::Again);
                let pinned = pinned.map_err(io::Error::other)?;
                let bytes = pinned.frozen_bytes();
                bytes.map(|bytes| (bytes, pinned.extent_checksums()))
            }
            false => None,
        };
        let (form, rows, place) = match frozen {
            Some((bytes, checksums)) => {
                let rows = self.put_frozen(view, entry, &bytes)?;
                let offset = self.bytes - bytes.len() as u64;
                (ImageForm::Frozen, rows, Some((offset, checksums)))
            }
            None => (ImageForm::Rows, self.put_rows(view, entry)?, None),
        };
        self.out.flush()?;
        fault::pass("checkpoint.image");
        let file = ImageFile {
            name: self.name,
            rows,
            bytes: self.bytes,
            crc32: self.hasher.finalize(),
            form,
            in_front,
            ended: None,
        };
        Ok(Written { file, place })
    }

    fn put_rows(&mut self, view: &TableView, entry: &Arc<Entry>) -> io::Result<u64> {
        self.put(MAGIC_ROWS)?;
        let scan = Scan::of_segment(view.clone(), entry.place.no).map_err(io::Error::other)?;
        let scan = Arc::new(scan);
        let mut buffer = Vec::new();
        let mut all = 0;
        let mut reader = scan.reader();
        while let Some(batch) = reader.next_batch().map_err(io::Error::other)? {
            all += batch.num_rows() as u64;
            self.put_chunk(view.table().types(), &batch, &mut buffer)?;
        }
        self.put(&0_u32.to_le_bytes())?;
        Ok(all)
    }

    /// Appends the first columns of a batch, as many as there are types.
    fn put_chunk(
        &mut self,
        types: &[SqlType],
        batch: &RecordBatch,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        buffer.clear();
        let rows = batch.num_rows();
        codec::encode(types, batch.columns(), 0..rows, buffer);
        for word in [rows as u32, buffer.len() as u32, crc32fast::hash(buffer)] {
            self.put(&word.to_le_bytes())?;
        }
        self.put(buffer)
    }

    fn put_frozen(
        &mut self,
        view: &TableView,
        entry: &Arc<Entry>,
        segment_bytes: &[u8],
    ) -> io::Result<u64> {
        let segment = entry.segment();
        let ended = ended_rows(view, entry);
        let mut head = MAGIC_FROZEN.to_vec();
        head.extend((segment.arena_bytes() as u64).to_le_bytes());
        let shape = serde_json::to_vec(&ImageShape::of(segment.schema()))
            .expect("a shape has no odd map keys");
        head.extend((shape.len() as u32).to_le_bytes());
        head.extend(shape);
        let variable_bytes = entry.variable_bytes_of(segment.rows());
        head.extend((variable_bytes.len() as u32).to_le_bytes());
        head.extend(variable_bytes.iter().flat_map(|bytes| bytes.to_le_bytes()));
        head.extend((ended.len() as u32).to_le_bytes());
        head.extend(ended.iter().flat_map(|row| row.to_le_bytes()));
        self.put(&head)?;
        self.put(segment_bytes)?;
        Ok(u64::from(segment.rows()) - ended.len() as u64)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// What was written of a segment.
pub(crate) struct Written {
    pub(crate) file: ImageFile,
    /// Of a frozen one, where its bytes begin in the file, and the checksums of its extents.
    pub(crate) place: Option<(u64, Box<[u32]>)>,
}

/// Appends the rows of an image to a buffer.
pub(crate) fn read_rows(
    disk: &dyn Disk,
    folder: &Path,
    image: &ImageFile,
    rows: &mut RowBuffer,
) -> Result<(), RecoverError> {
    let path = folder.join(&image.name);
    let bytes = disk.read(&path).map_err(RecoverError::io(&path))?;
    let mut reader = Reader(&bytes);
    let before = rows.rows();
    let read = |reader: &mut Reader<'_>, rows: &mut RowBuffer| -> Result<(), BadBytes> {
        if reader.take(MAGIC_ROWS.len())? != MAGIC_ROWS {
            return Err(BadBytes("no image of rows begins like this"));
        }
        loop {
            let count = reader.u32()? as usize;
            if count == 0 {
                break;
            }
            let (length, crc) = (reader.u32()? as usize, reader.u32()?);
            let body = reader.take(length)?;
            if crc32fast::hash(body) != crc {
                return Err(BadBytes("the checksum does not match"));
            }
            rows.decode(count, body)?;
            if (rows.rows() - before) as u64 > image.rows {
                break;
            }
        }
        if (rows.rows() - before) as u64 != image.rows || !reader.0.is_empty() {
            return Err(BadBytes("not the rows that the manifest says"));
        }
        Ok(())
    };
    read(&mut reader, rows)
        .map_err(|what| RecoverError::damaged(&path, bytes.len() - reader.0.len(), what))
}

/// The frozen segment of an image. No directory has it yet.
pub(crate) fn attach(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    image: &ImageFile,
    table: &Table,
    at: CommitTs,
) -> Result<Arc<Entry>, RecoverError> {
    let path = folder.join(&image.name);
    // What is in memory beside the segment while it is made: others make room for it if they can. It is not
    // held, or two tables that are loaded side by side could refuse each other their segments.
    drop(
        table
            .store()
            .budget()
            .reserve(MemoryClass::Rewrites, image.bytes),
    );
    let mut bytes = disk.read(&path).map_err(RecoverError::io(&path))?;
    let damaged = |what| RecoverError::damaged(&path, 0, what);
    if bytes.len() as u64 != image.bytes || crc32fast::hash(&bytes) != image.crc32 {
        return Err(damaged(BadBytes("the checksum does not match")));
    }
    let head = FrozenHead::parse(&bytes).map_err(damaged)?;
    if head
        .variable_bytes
        .iter()
        .any(|bytes| *bytes > VARIABLE_BYTES_MAX)
    {
        return Err(damaged(BadBytes("more bytes than values have")));
    }
    bytes.drain(..head.bytes);
    let entry = table
        .attach_frozen(&head, bytes)
        .map_err(|error| match error {
            StorageError::Segment(SegmentError::Corrupt(what)) => damaged(BadBytes(what)),
            other => other.into(),
        })?;
    let ended = match &image.ended {
        Some(file) => ended::read(&**disk, folder, file)?,
        None => head.ended,
    };
    let rows = entry.segment().rows();
    let as_made = |row| {
        let (begin, end) = entry.segment().stamps(row);
        begin <= at.0 && end == END_NONE
    };
    if !(0..rows).all(as_made) {
        return Err(damaged(BadBytes("rows that were not there or had ended")));
    }
    let are_rows = ended.is_sorted_by(|a, b| a < b) && ended.last() < Some(&rows);
    if !are_rows || u64::from(rows) != image.rows + ended.len() as u64 {
        return Err(damaged(BadBytes("not the rows that the manifest says")));
    }
    if head.variable_bytes.len() != entry.variable_bytes_of(0).len() {
        return Err(damaged(BadBytes("not the attributes of the table")));
    }
    entry.add_variable_bytes(head.variable_bytes.iter().copied());
    end_all(&entry, &ended, at)?;
    let checksums = entry.pin_all(Access::Again)?.extent_checksums();
    let place = (path, head.bytes as u64);
    entry.set_image(table.store().evictor(), disk, place, checksums);
    Ok(entry)
}

/// Ends the rows as of a point that every snapshot will see.
fn end_all(entry: &Arc<Entry>, rows: &[u32], at: CommitTs) -> Result<(), StorageError> {
    let blocks = rows.chunk_by(|a, b| a / BLOCK_ROWS == b / BLOCK_ROWS);
    let mut latch = entry.latch();
    latch.reserve_stamps(blocks.count())?;
    for run in rows.chunk_by(|a, b| a + 1 == *b) {
        latch
            .writer
            .set_ends(run[0]..run[0] + run.len() as u32, at.0);
    }
    latch.settle_reservation()?;
    entry.add_dead(rows.len() as u32);
    Ok(())
}

/// What stands before the segment.
struct FrozenHead {
    arena_bytes: usize,
    shape: ImageShape,
    /// Of each variable-length attribute, the bytes of its values.
    variable_bytes: Vec<u64>,
    /// Rows that had ended.
    ended: Vec<u32>,
    /// Its length.
    bytes: usize,
}

impl FrozenHead {
    fn parse(image: &[u8]) -> Result<FrozenHead, BadBytes> {
        let mut reader = Reader(image);
        if reader.take(MAGIC_FROZEN.len())? != MAGIC_FROZEN {
            return Err(BadBytes("no image of a frozen segment begins like this"));
        }
        let arena_bytes = usize::try_from(reader.u64()?)
            .ok()
            .filter(|bytes| *bytes <= ARENA_BYTES_MAX)
            .ok_or(BadBytes("an impossible arena"))?;
        let shape_bytes = reader.u32()? as usize;
        let shape = serde_json::from_slice(reader.take(shape_bytes)?)
            .map_err(|_| BadBytes("the shape of the segment cannot be read"))?;
        let count = reader.u32()? as usize;
        let (variable, _) = reader.take(count.saturating_mul(8))?.as_chunks::<8>();
        let count = reader.u32()? as usize;
        let (ended, _) = reader.take(count.saturating_mul(4))?.as_chunks::<4>();
        Ok(FrozenHead {
            arena_bytes,
            shape,
            variable_bytes: variable
                .iter()
                .map(|bytes| u64::from_le_bytes(*bytes))
                .collect(),
            ended: ended.iter().map(|row| u32::from_le_bytes(*row)).collect(),
            bytes: image.len() - reader.0.len(),
        })
    }
}

/// How a frozen segment is laid out, which may not be how new ones are.
#[derive(Serialize, Deserialize)]
struct ImageShape {
    /// Which attributes take NULL; those of the table if it is not said.
    #[serde(default)]
    nullable: Vec<bool>,
    groups: Vec<Vec<usize>>,
    indexes: Vec<(IndexKind, Vec<usize>, bool)>,
}

impl ImageShape {
    fn of(schema: &SegmentSchema) -> Self {
        let index = |index: &IndexSpec| (index.kind, index.attributes.clone(), index.unique);
        let attributes = schema.attributes().iter();
        Self {
            nullable: attributes.map(|attribute| attribute.nullable).collect(),
            groups: schema.groups().to_vec(),
            indexes: schema.indexes().iter().map(index).collect(),
        }
    }

    /// The schema of the segment in a table whose new segments have this one.
    fn schema(&self, own: &Arc<SegmentSchema>) -> Result<Arc<SegmentSchema>, SegmentError> {
        let index = |(kind, attributes, unique): &(IndexKind, Vec<usize>, bool)| IndexSpec {
            kind: *kind,
            attributes: attributes.clone(),
            unique: *unique,
        };
        let (mut attributes, key) = (own.attributes().to_vec(), own.key().to_vec());
        for (attribute, nullable) in attributes.iter_mut().zip(&self.nullable) {
            attribute.nullable = *nullable;
        }
        let schema = SegmentSchema::new(attributes, self.groups.clone(), key)?
            .with_indexes(self.indexes.iter().map(index).collect())?;
        Ok(if schema.fingerprint() == own.fingerprint() {
            Arc::clone(own)
        } else {
            Arc::new(schema)
        })
    }
}

/// Sets the checksums in an image of a table whose new segments have this schema, as far as
/// it can be read: see [`crate::forge`].
pub(crate) fn seal(image: &mut [u8], own: &Arc<SegmentSchema>) {
    if let Ok(head) = FrozenHead::parse(image) {
        let Ok(schema) = head.shape.schema(own) else {
            return;
        };
        // Without the end stamps, which a segment as it was made does not need.
        let mut arena = image[head.bytes..].to_vec();
        arena.resize(head.arena_bytes.max(arena.len()), 0);
        aerostat_segment::forge::checksum(&mut arena, &schema);
        let bytes = image.len() - head.bytes;
        image[head.bytes..].copy_from_slice(&arena[..bytes]);
        return;
    }
    let mut at = MAGIC_ROWS.len();
    while let Some((head, rest)) = image
        .get_mut(at..)
        .and_then(|rest| rest.split_at_mut_checked(12))
    {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some(body) = rest.get(..length) else {
            return;
        };
        head[8..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        at += head.len() + length;
    }
}

impl Table {
    /// A frozen segment of its bytes, with a number of its own.
    fn attach_frozen(&self, head: &FrozenHead, bytes: Vec<u8>) -> Result<Arc<Entry>, StorageError> {
        let schema = head.shape.schema(&self.segment_schema());
        let schema = schema.map_err(StorageError::Segment)?;
        let budget = self.store().budget();
        let reservation = budget.reserve(MemoryClass::Frozen, bytes.len() as u64)?;
        let mapping = ArenaSource::allocate_filled(head.arena_bytes, bytes.len())?;
        let no = self.next_segment_no();
        let segment = Segment::attach_frozen(Box::new(mapping), bytes, schema, no)
            .map_err(StorageError::Segment)?;
        let entry = Entry::new(segment, reservation);
        let mut latch = entry.latch();
        if self.is_keyed() {
            let segment = entry.pin_key(Access::Again)?;
            latch.raise_key_max(segment.key_of(segment.rows() - 1).borrow());
        }
        latch.settle_reservation()?;
        drop(latch);
        Ok(entry)
    }
}
