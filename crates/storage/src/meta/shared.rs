//! The document in a folder that several processes share.
//!
//! ```text
//!  000000000000000b.json      one file for each version, with a checksum as in [`super::MetaFile`]
//!  000000000000000c.json      the newest counts
//! ```
//!
//! * **Comparing and swapping** is making the next version's name, which one process can: the document is
//!   written and synced under a name of the writer's own, and linked to it. A version that is there is never
//!   changed.
//! * **Crashes.** Whoever has read a version has its name durable first, so that nobody acts on one that a power
//!   failure takes back.
//! * The file system has to link exactly once, as those of one machine do. On network file systems a lost answer
//!   may leave a writer in doubt: it learns from loading what has become of its document.

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use aerostat_types::{Clock, SystemClock};

use super::{
    MetaError, MetaStore, Swapped, Version, Versioned,
    file::{taken_apart, with_checksum},
    folder::at,
};
use crate::files::{
    disk::{Disk, Opened, SystemDisk},
    private,
};

const SUFFIX: &str = ".json";

/// How often it is looked for a newer version.
const LOOK: Duration = Duration::from_millis(50);

/// Versions that stay behind the newest, for whoever has read a name and not its file yet.
const KEPT: u64 = 8;

/// The document in a folder.
#[derive(Debug)]
pub struct MetaShared {
    folder: PathBuf,
    /// Counts files of this process.
    written: AtomicU64,
}

impl MetaShared {
    /// The document in a folder, which is made if it is missing, for its owner alone.
    ///
    /// # Errors
    /// [`MetaError::Io`].
    pub fn open(folder: &Path) -> Result<MetaShared, MetaError> {
        private::make_folder(folder).map_err(at(folder))?;
        Ok(MetaShared {
            folder: folder.to_owned(),
            written: AtomicU64::new(0),
        })
    }

    /// The versions that are there, ascending.
    fn versions(&self) -> Result<Vec<u64>, MetaError> {
        let listed = SystemDisk.list(&self.folder).map_err(at(&self.folder))?;
        let mut versions: Vec<u64> = listed
            .iter()
            .filter_map(|(path, _)| version_of(path.file_name()?.to_str()?))
            .collect();
        versions.sort_unstable();
        Ok(versions)
    }

    fn path_of(&self, version: u64) -> PathBuf {
        self.folder.join(format!("{version:016x}{SUFFIX}"))
    }

    /// Has a file of a name of its own with these bytes, durably.
    fn write(&self, bytes: &[u8]) -> Result<PathBuf, MetaError> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}-{}.new", std::process::id(), unique());
        let path = self.folder.join(name);
        let write = || -> io::Result<()> {
            let file = SystemDisk.open(&path, Opened::New)?;
            file.write_all_at(bytes, 0)?;
            file.sync_all()
        };
        write().map_err(at(&path))?;
        Ok(path)
    }

    /// What nobody needs any more. What cannot be removed is in nobody's way.
    fn remove_before(&self, version: u64) {
        for old in self.versions().unwrap_or_default() {
            if old < version {
                let _ = SystemDisk.remove_file(&self.path_of(old));
            }
        }
    }
}

/// A number that another machine's process of the same number does not have.
fn unique() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u8(0);
    hasher.finish()
}

fn version_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let version = u64::from_str_radix(digits, 16).ok()?;
    (digits.len() == 16).then_some(version)
}

impl MetaStore for MetaShared {
    fn place(&self) -> PathBuf {
        self.folder.clone()
    }

    fn load(&self) -> Result<Option<Versioned>, MetaError> {
        loop {
            let Some(newest) = self.versions()?.pop() else {
                return Ok(None);
            };
            let path = self.path_of(newest);
            let bytes = match SystemDisk.read(&path) {
                // A later one has come meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read.map_err(at(&path))?,
            };
            SystemDisk
                .sync_folder(&self.folder)
                .map_err(at(&self.folder))?;
            let read = taken_apart(&bytes).filter(|read| read.kept.version == Version(newest));
            return match read {
                Some(read) => Ok(Some(read.kept)),
                None => Err(MetaError::Damaged { path }),
            };
        }
    }

    fn compare_and_swap(
        &self,
        expected: Option<Version>,
        document: &[u8],
    ) -> Result<Swapped, MetaError> {
        let there = self.load()?;
        if there.as_ref().map(|there| there.version) != expected {
            return Ok(Swapped::Lost(there));
        }
        let next = Version(expected.unwrap_or_default().0 + 1);
        let own = self.write(&with_checksum(next, document))?;
        let target = self.path_of(next.0);
        let linked = SystemDisk.link(&own, &target);
        let _ = SystemDisk.remove_file(&own);
        match linked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Ok(Swapped::Lost(self.load()?));
            }
            Err(error) => return Err(at(&target)(error)),
        }
        // A writer that stood still meanwhile may have taken a name that was there before, and was removed: then
        // what it expected is gone, too.
        let versions = self.versions()?;
        let is_late = match expected {
            Some(Version(expected)) => !versions.contains(&expected),
            None => versions.last() > Some(&next.0),
        };
        if is_late {
            let _ = SystemDisk.remove_file(&target);
            return Ok(Swapped::Lost(self.load()?));
        }
        SystemDisk
            .sync_folder(&self.folder)
            .map_err(at(&self.folder))?;
        self.remove_before(next.0.saturating_sub(KEPT));
        Ok(Swapped::Done(next))
    }

    fn wait_newer(
        &self,
        known: Option<Version>,
        timeout: Duration,
    ) -> Result<Option<Versioned>, MetaError> {
        let until = SystemClock.now().checked_add(timeout);
        loop {
            let newest = self.versions()?.pop().map(Version);
            if newest > known {
                return self.load();
            }
            let left = until.map(|until| until.saturating_duration_since(SystemClock.now()));
            match left {
                Some(Duration::ZERO) => return Ok(None),
                left => SystemClock.sleep(left.map_or(LOOK, |left| left.min(LOOK))),
            }
        }
    }
}
