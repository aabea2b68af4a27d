//! A document as the value of a key: a word of whoever wrote it, and the document, compressed where that is worth it.
//!
//! ```text
//!  0     16    17
//!  word  form  document: as it is (0), or as a frame of Zstandard with a checksum (1)
//! ```

use std::io;

/// Bytes of a writer's word.
pub(crate) const WORD_BYTES: usize = 16;

/// A document that is smaller goes as it is.
const COMPRESSED_BYTES_MIN: usize = 2 << 10;

/// A document that is larger than this is none of ours.
const DOCUMENT_BYTES_MAX: usize = 1 << 30;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

pub(crate) type Word = [u8; WORD_BYTES];

pub(crate) fn pack(word: Word, document: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = word.to_vec();
    if document.len() < COMPRESSED_BYTES_MIN {
        value.push(PLAIN);
        value.extend(document);
        return Ok(value);
    }
    value.push(ZSTD);
    let mut frame = zstd::Encoder::new(value, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    frame.include_checksum(true)?;
    io::Write::write_all(&mut frame, document)?;
    frame.finish()
}

pub(crate) fn unpack(value: &[u8]) -> io::Result<(Word, Vec<u8>)> {
    let odd = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let Some((word, [form, rest @ ..])) = value.split_first_chunk::<WORD_BYTES>() else {
        return Err(odd("it is no document of Aerostat"));
    };
    let document = match *form {
        PLAIN => rest.to_vec(),
        ZSTD => {
            let mut document = Vec::new();
            let frame = zstd::Decoder::new(rest)?;
            let most = DOCUMENT_BYTES_MAX as u64 + 1;
            io::Read::read_to_end(&mut io::Read::take(frame, most), &mut document)?;
            if document.len() > DOCUMENT_BYTES_MAX {
                return Err(odd("the document is too large"));
            }
            document
        }
        _ => return Err(odd("a later build has written it")),
    };
    Ok((*word, document))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: Word = [7; WORD_BYTES];

    #[test]
    fn documents_come_back() {
        for document in [
            vec![],
            b"{}".to_vec(),
            vec![0; COMPRESSED_BYTES_MIN - 1],
            (0..200_000_u32).flat_map(u32::to_le_bytes).collect(),
            vec![b'x'; 4 << 20],
        ] {
            let value = pack(WORD, &document).unwrap();
            assert_eq!(unpack(&value).unwrap(), (WORD, document));
        }
        assert!(pack(WORD, &vec![b'x'; 4 << 20]).unwrap().len() < 1 << 20);
    }

    #[test]
    fn what_is_odd_is_an_error() {
        let value = pack(WORD, &vec![b'x'; COMPRESSED_BYTES_MIN]).unwrap();
        for length in 0..value.len() {
            assert!(unpack(&value[..length]).is_err(), "{length} bytes");
        }
        for at in WORD_BYTES + 1..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 0x10;
            if let Ok((_, document)) = unpack(&damaged) {
                // Of a frame's head bits that say nothing of the document.
                assert_eq!(document, vec![b'x'; COMPRESSED_BYTES_MIN], "byte {at}");
            }
        }
        let mut later = value;
        later[WORD_BYTES] = 9;
        assert!(unpack(&later).is_err());
    }
}
