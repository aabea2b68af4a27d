//! Folders and files that only their owner may read, and the disk that they are on.
//!
//! The data folder holds password verifiers and every row, so nobody else may look into it, as in
//! PostgreSQL: mode 0700, or 0750 if a group is allowed to read. A folder that others may read is
//! closed to them if it is a data folder or empty; any other folder, such as one shared with
//! other programs, is left alone, and the log warns.

use std::{io, path::Path};

use super::disk::{Disk, DiskSpace, SystemDisk};

/// What a data folder must not allow: writing by the group, and anything by others.
const OPEN_TO_OTHERS: u32 = 0o027;

/// Of a folder in which everybody may make files.
const STICKY: u32 = 0o1000;

/// Makes a folder and those above it, if they are missing.
///
/// # Errors
/// As those of [`std::fs::create_dir_all`].
pub fn make_folder(path: &Path) -> io::Result<()> {
    SystemDisk.make_folder(path)
}

/// Takes a folder's permissions from others, if it is ours by having a `mark` in it, or is
/// empty; else warns.
pub(crate) fn close_to_others(folder: &Path, mark: &Path) {
    let Ok(mode) = SystemDisk.mode(folder) else {
        return;
    };
    if mode & OPEN_TO_OTHERS == 0 {
        return;
    }
    let shown = folder.display();
    let is_shared = mode & STICKY != 0;
    let mode = format!("{mode:04o}");
    if is_shared || !(SystemDisk.look(mark).is_ok() || is_new(folder)) {
        tracing::warn!(folder = %shown, mode, "others may read the data folder; use one of its own");
        return;
    }
    match SystemDisk.close_folder(folder) {
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
    SystemDisk
        .list(folder)
        .is_ok_and(|entries| entries.len() <= 1)
}

impl DiskSpace {
    /// Of the file system that has this file or folder.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn of(path: &Path) -> io::Result<DiskSpace> {
        SystemDisk.space(path)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

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
