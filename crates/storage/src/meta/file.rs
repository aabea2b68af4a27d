//! The catalogue in a file.
//!
//! ```text
//!  file := {"crc32":"89abcdef","version":12,"document":⏎ the document ⏎}⏎
//! ```
//!
//! The checksum covers the version and the document's bytes, and all other bytes of the file are
//! fixed, so that no single damaged byte is read as another catalogue. A file without a version
//! has version 0, and its checksum covers the document; a file with the document alone, without a
//! checksum, is read as well. Both get what they lack at once.
//!
//! A replacement is written to another name, made durable, and renamed over the document, so that
//! a crash at any instruction leaves the old document or the new one. There are two of these
//! files. The copy is replaced first, so that it is never older than what anybody was told, and
//! stands in for the document if that is damaged or missing.

use std::{io, path::PathBuf, time::Duration};

use parking_lot::{Condvar, Mutex};
use serde::de::IgnoredAny;

use super::{DataFolder, MetaError, MetaStore, Swapped, Version, Versioned, folder::at, newer};
use crate::files::{
    disk::{Disk, Opened, SystemDisk},
    private,
};

const DOCUMENT: &str = "catalog.json";
const COPY: &str = "catalog.copy.json";
/// Behind the names of what is another store's.
const RETIRED: &str = ".before-cluster";
const REPLACEMENT: &str = "catalog.json.new";

/// What stands before the checksum, behind it, before the document, and behind that.
const BEFORE_CHECKSUM: &[u8] = b"{\"crc32\":\"";
const BEFORE_VERSION: &[u8] = b"\",\"version\":";
const BEFORE_DOCUMENT: &[u8] = b",\"document\":\n";
const BEHIND_DOCUMENT: &[u8] = b"\n}\n";

/// The same of a file without a version.
const BEFORE_BARE_DOCUMENT: &[u8] = b"\",\"document\":\n";

/// Hexadecimal digits of the checksum.
const CHECKSUM_DIGITS: usize = 8;

/// The document in a data folder, whose lock sees to it that there is one process that replaces it.
#[derive(Debug)]
pub struct MetaFile {
    folder: PathBuf,
    /// What was read or written last. Held while the files are read or replaced.
    known: Mutex<Option<Versioned>>,
    replaced: Condvar,
}

impl MetaFile {
    /// The document of a data folder.
    pub fn of(folder: &DataFolder) -> Self {
        private::close_to_others(folder.path(), &folder.path().join(DOCUMENT));
        Self {
            folder: folder.path().to_owned(),
            known: Mutex::new(None),
            replaced: Condvar::new(),
        }
    }

    /// The document is another store's from now on: its files get names under which nobody looks for them.
    ///
    /// # Errors
    /// [`MetaError::Io`].
    pub fn retire(&self) -> Result<(), MetaError> {
        let mut known = self.known.lock();
        // The copy first: it stands in for the document.
        for name in [COPY, DOCUMENT] {
            let path = self.folder.join(name);
            let renamed = SystemDisk.rename(&path, &self.folder.join(format!("{name}{RETIRED}")));
            match renamed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(at(&path)(error));
                }
                _ => {}
            }
        }
        *known = None;
        SystemDisk
            .sync_folder(&self.folder)
            .map_err(at(&self.folder))
    }

    /// The document as the files have it; if it is damaged or missing, its copy.
    fn read_either(&self) -> Result<Option<Versioned>, MetaError> {
        let (found, copy) = (self.read(DOCUMENT), self.read(COPY));
        let (read, is_settled) = match (found, copy) {
            (Ok(Some(read)), Ok(Some(copy))) => {
                let is_same = copy.kept == read.kept;
                (read, is_same)
            }
            (Ok(Some(read)), _) => (read, false),
            // A copy without a checksum was not written here.
            (found, Ok(Some(copy))) if copy.form != Form::Bare => {
                tracing::error!(
                    folder = %self.folder.display(),
                    damage = ?found.err().map(|error| error.to_string()),
                    "{DOCUMENT} is missing or damaged; its copy stands in and replaces it"
                );
                (copy, false)
            }
            (Err(error), _) | (Ok(None), Err(error)) => return Err(error),
            (Ok(None), Ok(_)) => return Ok(None),
        };
        if !is_settled || read.form != Form::Versioned {
            self.replace(&read.kept)?;
        }
        Ok(Some(read.kept))
    }

    fn read(&self, name: &str) -> Result<Option<Read>, MetaError> {
        let path = self.folder.join(name);
        let bytes = match SystemDisk.read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path)(error)),
        };
        let Some(read) = taken_apart(&bytes) else {
            return Err(MetaError::Damaged { path });
        };
        // Of a document without a checksum its own form is all that tells of damage.
        match serde_json::from_slice::<IgnoredAny>(&read.kept.document) {
            Ok(_) => Ok(Some(read)),
            Err(source) => Err(MetaError::Parse { path, source }),
        }
    }

    fn replace(&self, kept: &Versioned) -> Result<(), MetaError> {
        let bytes = with_checksum(kept.version, &kept.document);
        for name in [COPY, DOCUMENT] {
            self.replace_file(name, &bytes)?;
        }
        Ok(())
    }

    fn replace_file(&self, name: &str, bytes: &[u8]) -> Result<(), MetaError> {
        let path = self.folder.join(REPLACEMENT);
        // What a crash left behind is no replacement, and may have other permissions.
        let disk: &dyn Disk = &SystemDisk;
        let replace = || {
            disk.remove_if_there(&path)?;
            let file = disk.open(&path, Opened::New)?;
            file.write_all_at(bytes, 0)?;
            file.sync_all()?;
            disk.rename(&path, &self.folder.join(name))
        };
        replace().map_err(at(&path))?;
        disk.sync_folder(&self.folder).map_err(at(&self.folder))
    }
}

impl MetaStore for MetaFile {
    fn place(&self) -> PathBuf {
        self.folder.join(DOCUMENT)
    }

    fn load(&self) -> Result<Option<Versioned>, MetaError> {
        let mut known = self.known.lock();
        let read = self.read_either()?;
        known.clone_from(&read);
        Ok(read)
    }

    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError> {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = self.read_either()?;
        }
        let found = known.as_ref().map(|known| known.version);
        if found != expected {
            return Ok(Swapped::Lost(known.clone()));
        }
        let kept = Versioned {
            version: Version(found.unwrap_or_default().0 + 1),
            document: document.to_vec(),
        };
        if let Err(error) = self.replace(&kept) {
            // The new document may be in place with only its durability in doubt, so the old one is
            // put back.
            if let Some(before) = &*known
                && let Err(again) = self.replace(before)
            {
                let error = &again as &dyn std::error::Error;
                tracing::error!(error, "the node's catalogue could not be put back");
            }
            return Err(error);
        }
        let version = kept.version;
        *known = Some(kept);
        self.replaced.notify_all();
        Ok(Swapped::Done(version))
    }

    fn wait_newer(
        &self,
        version: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError> {
        let mut known = self.known.lock();
        if known.is_none() {
            *known = self.read_either()?;
        }
        Ok(newer(&mut known, &self.replaced, version, timeout))
    }
}

/// A file as it was read.
pub(super) struct Read {
    pub(super) kept: Versioned,
    form: Form,
}

/// What a file has around its document.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Versioned,
    /// A checksum, and no version.
    Checked,
    /// Nothing.
    Bare,
}

/// What a file's bytes say; nothing if they are damaged.
pub(super) fn taken_apart(bytes: &[u8]) -> Option<Read> {
    let read = |version, document: &[u8], form| {
        let document = document.to_vec();
        let kept = Versioned {
            version: Version(version),
            document,
        };
        Some(Read { kept, form })
    };
    // A document of its own begins with its first field, which no single byte tells from this.
    if !looks_checked(bytes) {
        return read(0, bytes, Form::Bare);
    }
    let rest = bytes.get(BEFORE_CHECKSUM.len() + CHECKSUM_DIGITS..)?;
    let rest = rest.strip_suffix(BEHIND_DOCUMENT)?;
    if let Some(document) = rest.strip_prefix(BEFORE_BARE_DOCUMENT) {
        return match without_version(document) == bytes {
            true => read(0, document, Form::Checked),
            false => None,
        };
    }
    let rest = rest.strip_prefix(BEFORE_VERSION)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(digits);
    let version = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let document = rest.strip_prefix(BEFORE_DOCUMENT)?;
    match with_checksum(Version(version), document) == bytes {
        true => read(version, document, Form::Versioned),
        false => None,
    }
}

/// Whether the bytes begin as those of a file with a checksum do, but for one at most.
fn looks_checked(bytes: &[u8]) -> bool {
    let same = bytes.iter().zip(BEFORE_CHECKSUM).filter(|(a, b)| a == b);
    same.count() + 1 >= BEFORE_CHECKSUM.len()
}

pub(super) fn with_checksum(version: Version, document: &[u8]) -> Vec<u8> {
    let version = version.to_string();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(version.as_bytes());
    hasher.update(document);
    [
        BEFORE_CHECKSUM,
        format!("{:08x}", hasher.finalize()).as_bytes(),
        BEFORE_VERSION,
        version.as_bytes(),
        BEFORE_DOCUMENT,
        document,
        BEHIND_DOCUMENT,
    ]
    .concat()
}

fn without_version(document: &[u8]) -> Vec<u8> {
    [
        BEFORE_CHECKSUM,
        format!("{:08x}", crc32fast::hash(document)).as_bytes(),
        BEFORE_BARE_DOCUMENT,
        document,
        BEHIND_DOCUMENT,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    fn opened(folder: &Path) -> (DataFolder, MetaFile) {
        let folder = DataFolder::open(folder).unwrap();
        let meta = MetaFile::of(&folder);
        (folder, meta)
    }

    fn document(meta: &MetaFile) -> Result<Option<String>, MetaError> {
        let text = |kept: Versioned| String::from_utf8(kept.document).unwrap();
        Ok(meta.load()?.map(text))
    }

    fn store(meta: &MetaFile, document: &str) -> Version {
        let before = meta.load().unwrap().map(|kept| kept.version);
        match meta.compare_and_swap(before, document.as_bytes()).unwrap() {
            Swapped::Done(version) => version,
            lost @ Swapped::Lost(_) => panic!("{lost:?}"),
        }
    }

    #[test]
    fn a_document_survives_and_a_torn_replacement_does_not_matter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let (folder, meta) = opened(&path);
        assert_eq!(document(&meta).unwrap(), None);
        assert_eq!(store(&meta, "[1, 2]"), Version(1));
        fs::write(path.join(REPLACEMENT), b"[1, 2, 3").unwrap();
        drop((folder, meta));
        let (_folder, meta) = opened(&path);
        assert_eq!(document(&meta).unwrap().unwrap(), "[1, 2]");
        assert_eq!(store(&meta, "[9]"), Version(2));
        assert_eq!(document(&meta).unwrap().unwrap(), "[9]");
        let mode = fs::metadata(path.join(DOCUMENT)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_folder_has_one_owner_and_a_broken_document_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (_locked, meta) = opened(folder.path());
        assert!(matches!(
            DataFolder::open(folder.path()),
            Err(MetaError::Locked { .. })
        ));
        fs::write(folder.path().join(DOCUMENT), b"{").unwrap();
        assert!(matches!(meta.load(), Err(MetaError::Parse { .. })));
        assert!(meta.compare_and_swap(None, b"1").is_err());
    }

    /// Any other byte in any place, and any shorter or longer file, of both forms.
    #[test]
    fn no_damage_is_taken_for_another_document() {
        let folder = tempfile::tempdir().unwrap();
        let (_locked, meta) = opened(folder.path());
        let path = folder.path().join(DOCUMENT);
        let text = "{\"a\": 1, \"b\": 20}";
        let load = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::remove_file(folder.path().join(COPY)).ok();
            document(&meta)
        };
        for whole in [
            with_checksum(Version(107), text.as_bytes()),
            without_version(text.as_bytes()),
        ] {
            for at in 0..whole.len() {
                for byte in 0..=u8::MAX {
                    let mut damaged = whole.clone();
                    damaged[at] = byte;
                    if byte != whole[at] {
                        let found = load(&damaged);
                        assert!(
                            matches!(found, Err(MetaError::Damaged { .. })),
                            "{at} {byte}"
                        );
                    }
                }
                assert!(load(&whole[..at]).is_err(), "{at}");
            }
            assert!(load(&[&whole[..], b" "].concat()).is_err());
            assert_eq!(load(&whole).unwrap().unwrap(), text);
        }
    }

    #[test]
    fn what_lacks_a_checksum_or_a_version_is_read_and_gets_it() {
        for old in [
            b"{\n  \"roles\": 7\n}".to_vec(),
            without_version(b"{\n  \"roles\": 7\n}"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(DOCUMENT);
            fs::write(&path, old).unwrap();
            let (_locked, meta) = opened(folder.path());
            let kept = meta.load().unwrap().unwrap();
            assert_eq!(kept.version, Version(0));
            assert_eq!(kept.document, b"{\n  \"roles\": 7\n}");
            assert_eq!(
                fs::read(&path).unwrap(),
                with_checksum(Version(0), &kept.document)
            );
            let mut bytes = fs::read(&path).unwrap();
            let at = bytes.iter().rposition(|byte| *byte == b'7').unwrap();
            bytes[at] = b'8';
            fs::write(&path, &bytes).unwrap();
            fs::write(folder.path().join(COPY), &bytes).unwrap();
            assert!(matches!(meta.load(), Err(MetaError::Damaged { .. })));
        }
    }

    #[test]
    fn the_copy_stands_in_for_a_damaged_or_missing_document() {
        let folder = tempfile::tempdir().unwrap();
        let (_locked, meta) = opened(folder.path());
        let (path, copy) = (folder.path().join(DOCUMENT), folder.path().join(COPY));
        for (number, damaged) in [Some(&b"{\"crc32\":\""[..]), Some(b""), None]
            .into_iter()
            .enumerate()
        {
            let text = format!("[{number}]");
            store(&meta, &text);
            for path in [&path, &copy] {
                match damaged {
                    Some(bytes) => fs::write(path, bytes).unwrap(),
                    None => fs::remove_file(path).unwrap(),
                }
                assert_eq!(document(&meta).unwrap().unwrap(), text);
                assert_eq!(fs::read(path).unwrap(), fs::read(&copy).unwrap());
            }
        }
    }

    #[test]
    fn what_could_not_be_written_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let (_locked, meta) = opened(folder.path());
        let before = store(&meta, "[1]");
        let obstacle = folder.path().join(REPLACEMENT);
        fs::create_dir(&obstacle).unwrap();
        assert!(matches!(
            meta.compare_and_swap(Some(before), b"[2]"),
            Err(MetaError::Io { .. })
        ));
        fs::remove_dir(&obstacle).unwrap();
        let kept = meta.load().unwrap().unwrap();
        assert_eq!((kept.version, &kept.document[..]), (before, &b"[1]"[..]));
        assert!(store(&meta, "[3]") > before);
    }
}
