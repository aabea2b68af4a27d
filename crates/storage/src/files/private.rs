//! Folders and files that nobody but their owner may read, and the disk that they are on.
//!
//! The data folder holds password verifiers and every row, so that nobody else may look
//! into it, as in PostgreSQL: mode 0700, or 0750 for whoever lets a group read. One that others
//! may read is closed to them if it is a data folder or empty; any other folder, such as one
//! that is shared with other programs, is left alone, and the log warns.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

/// What nobody but the owner may do with a folder that is made here.
const FOLDER_MODE: u32 = 0o700;

/// What a data folder must not allow: writing by the group, and anything by others.
const OPEN_TO_OTHERS: u32 = 0o027;

/// Of a folder in which everybody may make files.
const STICKY: u32 = 0o1000;

/// Makes a folder and those above it, if they are missing.
///
/// # Errors
/// As [`fs::create_dir_all`].
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(FOLDER_MODE).create(path)
}

/// Takes a folder's permissions from others, if it is ours by having a `mark` in it, or is
/// empty; else warns.
pub(crate) fn close_to_others(folder: &Path, mark: &Path) {
    let Ok(metadata) = fs::metadata(folder) else {
        return;
    };
    let mode = metadata.permissions().mode();
    if mode & OPEN_TO_OTHERS == 0 {
        return;
    }
    let shown = folder.display();
    let mode = format!("{:04o}", mode & 0o7777);
    if metadata.permissions().mode() & STICKY != 0 || !(mark.exists() || is_new(folder)) {
        tracing::warn!(folder = %shown, mode, "others may read the data folder; use one of its own");
        return;
    }
    match fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)) {
        Ok(()) => tracing::warn!(
            folder = %shown, mode,
            "others could read the data folder; from now on only its owner may"
        ),
        Err(error) => tracing::warn!(
            folder = %shown, mode, %error,
            "others may read the data folder, and that cannot be changed"
        ),
    }
}

/// Whether the folder has nothing yet but the lock that was just made.
fn is_new(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| entries.count() <= 1)
}

/// The size of a file system, and what of it is free to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// All of it.
    pub bytes: u64,
    /// What can be written still.
    pub bytes_free: u64,
}

impl DiskSpace {
    /// Of the file system that has this file or folder.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn of(path: &Path) -> io::Result<DiskSpace> {
        let found = rustix::fs::statvfs(path)?;
        Ok(DiskSpace {
            bytes: found.f_blocks.saturating_mul(found.f_frsize),
            bytes_free: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn with_mode(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
        folder
    }

    #[test]
    fn only_folders_of_ours_are_closed() {
        let root = tempfile::tempdir().unwrap();
        let made = root.path().join("a/b");
        make_folder(&made).unwrap();
        assert_eq!(mode(&made), 0o700);
        for (before, after) in [
            (0o755, 0o700),
            (0o777, 0o700),
            (0o770, 0o700),
            (0o750, 0o750),
        ] {
            let folder = with_mode(before);
            let mark = folder.path().join("catalog.json");
            for name in ["catalog.json", "lock", "other"] {
                fs::write(folder.path().join(name), b"").unwrap();
            }
            close_to_others(folder.path(), &mark);
            assert_eq!(mode(folder.path()), after);
        }
        let shared = with_mode(0o755);
        for name in ["lock", "others'"] {
            fs::write(shared.path().join(name), b"").unwrap();
        }
        close_to_others(shared.path(), &shared.path().join("catalog.json"));
        assert_eq!(mode(shared.path()), 0o755);
        let everybodys = with_mode(0o1777);
        close_to_others(everybodys.path(), &everybodys.path().join("catalog.json"));
        assert_eq!(mode(everybodys.path()), 0o1777);
    }
}
