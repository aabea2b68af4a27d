//! Damage to a tenant's files as anyone who has read the source could do it: for tests and fuzz
//! targets that must get past the checksums to the checks behind them.

use crate::{
    OpenOptions,
    durable::image,
    files::{
        log::record::{self, FILE_HEAD_BYTES, FileHead, HEAD_BYTES},
        manifest::{Manifest, TableDescription},
    },
    store::{arena::ArenaSizes, shape::Shape},
};

/// Arenas so small that a few hundred rows are many segments.
const ARENA_BYTES: [usize; 3] = [16 << 10, 24 << 10, 48 << 10];

/// Opens with small arenas.
pub fn tiny_arenas() -> OpenOptions {
    OpenOptions {
        sizes: Some(ArenaSizes::of(&ARENA_BYTES)),
        ..OpenOptions::default()
    }
}

/// The header and the records of a log file.
pub fn split_log(file: &[u8]) -> Vec<Vec<u8>> {
    let Some((head, mut rest)) = file.split_at_checked(FILE_HEAD_BYTES) else {
        return vec![file.to_vec()];
    };
    let mut pieces = vec![head.to_vec()];
    while let Some((_, bytes)) = record::parse(rest) {
        let (record, behind) = rest.split_at(bytes);
        pieces.push(record.to_vec());
        rest = behind;
    }
    pieces
}

/// A log file of a header and records, with the lengths and checksums they should have.
pub fn join_log(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let mut piece = piece.clone();
        if at > 0 && piece.len() >= HEAD_BYTES {
            record::seal(&mut piece);
        } else if let Ok(head) = <&mut [u8; FILE_HEAD_BYTES]>::try_from(&mut piece[..]) {
            FileHead::seal(head);
        }
        file.extend(piece);
    }
    file
}

/// The JSON and the catalogue of a manifest.
pub fn split_manifest(file: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let length = u32::from_le_bytes(file.get(12..16)?.try_into().ok()?) as usize;
    let (json, catalog) = file[16..].split_at_checked(length)?;
    Some((json.to_vec(), catalog.to_vec()))
}

/// A manifest of JSON and a catalogue, with the checksum it should have.
pub fn join_manifest(json: &[u8], catalog: &[u8]) -> Vec<u8> {
    Manifest::to_bytes(json, catalog).unwrap_or_default()
}

/// Sets the checksums in an image, given the JSON of its table as the manifest has it.
pub fn image(file: &mut [u8], table: &[u8]) {
    let Ok(description) = serde_json::from_slice::<TableDescription>(table) else {
        return;
    };
    let largest = ARENA_BYTES[ARENA_BYTES.len() - 1];
    let shape = Shape::of(
        &description.schema,
        &description.layout,
        Vec::new(),
        largest,
    );
    if let Ok(shape) = shape {
        image::seal(file, &shape.segment_schema);
    }
}

/// A `backup.json` of JSON, with the checksum it should have.
pub fn join_backup(json: &[u8]) -> Vec<u8> {
    let mut file = json.to_vec();
    let crc32 = crc32fast::hash(json);
    file.extend_from_slice(format!("\n{{\"crc32\":{crc32}}}\n").as_bytes());
    file
}
