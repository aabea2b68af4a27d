//! A folder that takes the place of a tenant's, for good, or not at all.
//!
//! Two names that change one after the other are enough: a file system need not exchange them. What a crash has
//! left in between is seen from which names there are.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    RecoverError,
    files::{
        disk::{Disk, parent},
        fault,
        manifest::Manifest,
    },
};

/// A folder beside a tenant's.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where a seed for a folder grows.
pub(crate) fn growing(folder: &Path) -> PathBuf {
    beside(folder, ".seed")
}

/// What a folder is called that has been replaced.
fn replaced(folder: &Path) -> PathBuf {
    beside(folder, ".replaced")
}

/// Puts a complete seed in the place of a tenant's folder, which nobody has open. The names are changed so:
///
/// ```text
///   folder, folder.seed  ─►  folder.replaced, folder.seed  ─►  folder.replaced, folder  ─►  folder
/// ```
///
/// # Errors
/// [`RecoverError::Locked`] if somebody has it open, [`RecoverError::Io`].
pub(crate) fn replace(disk: &dyn Disk, folder: &Path) -> Result<(), RecoverError> {
    let (seed, old) = (growing(folder), replaced(folder));
    let sync = || {
        disk.sync_folder(parent(folder))
            .map_err(RecoverError::io(folder))
    };
    let is_there = has(disk, folder).map_err(RecoverError::io(folder))?;
    let _lock = match is_there {
        true => {
            let lock = disk.lock(folder).map_err(RecoverError::io(folder))?;
            let lock = lock.ok_or_else(|| RecoverError::Locked {
                path: folder.to_owned(),
            })?;
            disk.rename(folder, &old)
                .map_err(RecoverError::io(folder))?;
            fault::pass("seed.moved");
            sync()?;
            Some(lock)
        }
        false => None,
    };
    fault::pass("seed.between");
    disk.rename(&seed, folder)
        .map_err(RecoverError::io(folder))?;
    fault::pass("seed.in_place");
    sync()?;
    fault::pass("seed.before_remove");
    disk.remove_folder_if_there(&old)
        .map_err(RecoverError::io(&old))?;
    fault::pass("seed.removed");
    sync()
}

/// Does what a crash kept [`replace`] from doing, before somebody opens the folder or makes another seed.
///
/// # Errors
/// [`RecoverError::Locked`] while another process is at it, [`RecoverError::Io`].
pub(crate) fn settle(disk: &dyn Disk, folder: &Path) -> Result<(), RecoverError> {
    let (seed, old) = (growing(folder), replaced(folder));
    if !has(disk, &old).map_err(RecoverError::io(&old))? {
        return Ok(());
    }
    let lock = disk.lock(&old).map_err(RecoverError::io(&old))?;
    if lock.is_none() {
        return Err(RecoverError::Locked { path: old });
    }
    if !has(disk, folder).map_err(RecoverError::io(folder))? {
        // It was complete, or the old one would be where it was.
        let manifest = seed.join("checkpoint").join(Manifest::NAME);
        let is_complete = has(disk, &manifest).map_err(RecoverError::io(&seed))?;
        let found = if is_complete { &seed } else { &old };
        disk.rename(found, folder)
            .map_err(RecoverError::io(folder))?;
        disk.sync_folder(parent(folder))
            .map_err(RecoverError::io(folder))?;
    }
    disk.remove_folder_if_there(&old)
        .map_err(RecoverError::io(&old))?;
    disk.sync_folder(parent(folder))
        .map_err(RecoverError::io(folder))
}

/// Whether something has this name. An error is no answer: what is there must not be taken for missing.
fn has(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.look(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
