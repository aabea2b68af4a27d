//! Which build of the program this is: its version, and what tells it from others of the same version.
//!
//! The linker writes a digest of what it has linked into the program (`NT_GNU_BUILD_ID`), so that two builds have the
//! same only if they are the same. Whoever builds for others says the commit besides (`AEROSTAT_COMMIT` when compiling).

use std::{fs::File, io, os::unix::fs::FileExt, sync::OnceLock};

use aerostat_cluster::Build;

/// The program's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, if that was said.
const COMMIT: Option<&str> = option_env!("AEROSTAT_COMMIT");

/// Bytes of the digest that are shown.
const SHOWN_BYTES: usize = 8;

/// What this process runs, as long as it is there.
const THIS: &str = "/proc/self/exe";

/// What this build says of itself to other nodes.
pub(crate) fn build() -> Build {
    Build::here(VERSION, id())
}

/// Tells builds of one version apart.
pub(crate) fn id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let digest = File::open(THIS)
            .and_then(|file| digest(&file))
            .ok()
            .flatten();
        let digest = digest.map(|bytes| hex(&bytes[..bytes.len().min(SHOWN_BYTES)]));
        let parts = [COMMIT.map(str::to_owned), digest];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => "unknown".to_owned(),
            false => parts.join("-"),
        }
    })
}

/// As `--version` says it.
pub(crate) fn shown() -> &'static str {
    static SHOWN: OnceLock<String> = OnceLock::new();
    SHOWN.get_or_init(|| format!("{VERSION} (build {})", id()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Places in the head of an ELF file of 64 bits, and in the heads of its parts.
const HEAD_BYTES: usize = 64;
const PARTS_AT: usize = 0x20;
const PART_BYTES_AT: usize = 0x36;
const PARTS_COUNT_AT: usize = 0x38;
const OFFSET_AT: usize = 8;
const LENGTH_AT: usize = 0x20;

/// The kind of parts that have notes, and of the note with the digest.
const NOTES: u32 = 4;
const BUILD_ID: u32 = 3;

/// Notes are some hundred bytes.
const NOTES_BYTES_MAX: u64 = 1 << 16;

/// The linker's digest in a program; `None` where it has none, or is of another kind.
fn digest(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, 0)?;
    // Of 64 bits, with the least byte first.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (first, bytes) = (
        long(&head, PARTS_AT),
        u64::from(short(&head, PART_BYTES_AT)),
    );
    for number in 0..u64::from(short(&head, PARTS_COUNT_AT)) {
        let mut part = [0; LENGTH_AT + 8];
        file.read_exact_at(&mut part, first.saturating_add(number * bytes))?;
        let length = long(&part, LENGTH_AT);
        if word(&part, 0) != NOTES || length > NOTES_BYTES_MAX {
            continue;
        }
        let mut notes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut notes, long(&part, OFFSET_AT))?;
        if let Some(found) = among(&notes) {
            return Ok(Some(found.to_vec()));
        }
    }
    Ok(None)
}

/// The digest among notes: each is the lengths of its name and its content, its kind, and both, in whole words.
fn among(mut notes: &[u8]) -> Option<&[u8]> {
    const NOTE_HEAD_BYTES: usize = 12;
    while notes.len() >= NOTE_HEAD_BYTES {
        let length = |at| word(notes, at) as usize;
        let (name, content) = (length(0), length(4));
        let begins = NOTE_HEAD_BYTES + name.next_multiple_of(4);
        let found = notes.get(begins..begins.checked_add(content)?)?;
        if word(notes, 8) == BUILD_ID && notes[NOTE_HEAD_BYTES..].starts_with(b"GNU\0") {
            return Some(found);
        }
        notes = notes.get(begins + content.next_multiple_of(4)..)?;
    }
    None
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) | u32::from(short(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_a_digest() {
        let found = digest(&File::open(THIS).unwrap()).unwrap();
        assert!(found.is_some_and(|bytes| bytes.len() >= SHOWN_BYTES));
        assert!(shown().contains(id()));
    }

    #[test]
    fn whatever_is_no_program_has_none() {
        let note = b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\xcd\0\0";
        assert_eq!(among(note), Some(&b"\xab\xcd"[..]));
        let other = b"\x04\0\0\0\x02\0\0\0\x01\0\0\0GNU\0\xab\xcd\0\0";
        assert_eq!(among(&[&other[..], note].concat()), Some(&b"\xab\xcd"[..]));
        assert_eq!(among(other), None);
        let torn = b"\xff\xff\xff\xff\x02\0\0\0\x03\0\0\0GNU\0";
        assert_eq!(among(torn), None);
        assert_eq!(
            among(b"\x04\0\0\0\xff\xff\xff\xff\x03\0\0\0GNU\0\xab"),
            None
        );
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), [b'#'; 100]).unwrap();
        assert_eq!(digest(text.as_file()).unwrap(), None);
    }
}
