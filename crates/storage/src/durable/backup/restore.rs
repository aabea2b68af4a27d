//! Creating a tenant's folder from a backup, with the log up to a point.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use aerostat_types::{CommitTs, TenantId};

use super::{BackupInfo, CHECKPOINT};
use crate::{
    Timeline,
    files::{
        archive::{
            BackupError, BackupSource, Hashing, begin_folder, copy, end_folder, named, read_whole,
        },
        disk::{Machine, Opened, Stream},
        fault,
        log::{
            read::{self, Expected, LogFile, Sequence},
            record::{FileHead, Format, Head},
        },
        manifest::{Manifest, is_file_name},
        origin::Origin,
    },
};

/// A point to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The last commit that counts.
    Commit(CommitTs),
    /// The last moment that counts.
    Time(SystemTime),
}

impl Until {
    fn excludes(self, head: &Head) -> bool {
        match self {
            Until::Commit(last) => head.lsn > last,
            Until::Time(last) => u128::from(head.wall_micros) > micros_of(last),
        }
    }

    fn is_before(self, info: &BackupInfo) -> bool {
        match self {
            Until::Commit(last) => last < info.at,
            Until::Time(last) => micros_of(last) < u128::from(info.taken_micros()),
        }
    }
}

fn micros_of(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros()
}

/// What to restore.
#[derive(Clone, Copy)]
pub struct Restore<'a> {
    /// The backup.
    pub backup: &'a dyn BackupSource,
    /// Where the log after it is: archives, the `log` folder of the tenant. Of a file that
    /// several have, the first counts. None: the backup alone.
    pub logs: &'a [&'a dyn BackupSource],
    /// How far to go; `None`: as far as the log goes. A moment counts as reached only
    /// when the log has a later commit, for else some may be missing.
    pub until: Option<Until>,
}

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The backup it began with.
    pub backup: BackupInfo,
    /// The last commit that is there.
    pub at: CommitTs,
    /// Bytes of images and log.
    pub bytes: u64,
}

/// Makes the folder of a new tenant, from which it can be opened. The folder is missing or
/// empty now; it is there as a whole or not at all afterwards, whatever happens meanwhile.
///
/// # Errors
/// [`BackupError`]. Nothing is left then, but after a crash a folder of the same name with
/// `.partial` behind it, which another attempt removes.
pub fn restore(
    what: &Restore<'_>,
    tenant: TenantId,
    folder: &Path,
) -> Result<Restored, BackupError> {
    restore_on(&Machine::default(), what, tenant, folder)
}

/// As [`restore`], on a machine.
pub(crate) fn restore_on(
    machine: &Machine,
    what: &Restore<'_>,
    tenant: TenantId,
    folder: &Path,
) -> Result<Restored, BackupError> {
    let info = BackupInfo::read(what.backup)?;
    if what.until.is_some_and(|until| until.is_before(&info)) {
        return Err(BackupError::BeforeBackup {
            at: info.at,
            taken: info.taken(),
        });
    }
    let mut new = NewFolder {
        path: begin_folder(&*machine.disk, folder)?,
        machine: machine.clone(),
        origin: Origin {
            tenant,
            timeline: Timeline::begin(&*machine.clock),
        },
        bytes: 0,
    };
    let manifest = info.manifest(what.backup)?;
    new.copy_images(what.backup, &info)?;
    let at = new.copy_log(what, &info)?;
    new.begin(manifest, at)?;
    end_folder(&*machine.disk, &new.path, folder).map_err(BackupError::io(folder))?;
    Ok(Restored {
        backup: info,
        at,
        bytes: new.bytes,
    })
}

/// A folder on its way.
struct NewFolder {
    machine: Machine,
    path: PathBuf,
    origin: Origin,
    bytes: u64,
}

impl Drop for NewFolder {
    /// After a success it has another name.
    fn drop(&mut self) {
        let _ = self.machine.disk.remove_folder(&self.path);
    }
}

impl NewFolder {
    fn copy_images(
        &mut self,
        backup: &dyn BackupSource,
        info: &BackupInfo,
    ) -> Result<(), BackupError> {
        let folder = self.path.join(CHECKPOINT);
        self.machine
            .disk
            .make_folder(&folder)
            .map_err(BackupError::io(&folder))?;
        let manifest_name = format!("{CHECKPOINT}/{}", Manifest::NAME);
        for file in info.files.iter().filter(|file| file.name != manifest_name) {
            let name = file.name.strip_prefix(CHECKPOINT).unwrap_or_default();
            let name = name.strip_prefix('/').filter(|name| is_file_name(name));
            let name = name.ok_or(BackupError::damaged(
                &file.name,
                "no file of a checkpoint has this name",
            ))?;
            let mut content = Hashing::new(backup.open(&file.name).map_err(named(&*file.name))?);
            let path = folder.join(name);
            let mut out = self.create(&path)?;
            copy(&mut content, &mut out).map_err(named(&*file.name))?;
            content.check(file)?;
            out.file().sync_all().map_err(BackupError::io(&path))?;
            fault::pass("restore.image");
        }
        self.bytes += info.bytes;
        Ok(())
    }

    /// Says whose it is, and that another history begins where the log ends: whoever led the one that was backed
    /// up has not led this one.
    fn begin(&self, of: Manifest, at: CommitTs) -> Result<(), BackupError> {
        let folder = self.path.join(CHECKPOINT);
        let own = Manifest {
            tenant: self.origin.tenant,
            timeline: self.origin.timeline,
            epochs: Vec::new(),
            begins: at,
            ..of
        };
        own.write(&*self.machine.disk, &folder)
            .map_err(BackupError::io(&folder))
    }

    /// Copies the log that counts under headers of its own, and returns the last commit.
    fn copy_log(&mut self, what: &Restore<'_>, info: &BackupInfo) -> Result<CommitTs, BackupError> {
        let folder = self.path.join("log");
        self.machine
            .disk
            .make_folder(&folder)
            .map_err(BackupError::io(&folder))?;
        let files = available(what.logs, info)?;
        let mut sequence = Sequence::after(info.at);
        let mut is_cut = false;
        if what.logs.is_empty() {
            self.write_log(&folder, info.log_from, info.at, &[])?;
        }
        for (position, &(number, (source, ref name))) in files.iter().enumerate() {
            let bytes = read_whole(source, name).map_err(named(name))?;
            let expected = Expected {
                tenant: info.tenant,
                timeline: Some(info.timeline),
                number,
                is_last: position + 1 == files.len(),
            };
            let file = LogFile::of(name.into(), bytes, expected).map_err(BackupError::Log)?;
            let after = file.head.map_or(sequence.last(), |head| head.after);
            if let Some(head) = file.head {
                let begun = sequence.begin_file(head.after);
                begun.map_err(|gap| BackupError::Log(file.damaged(0, gap)))?;
            }
            let mut end = file.end;
            for (offset, record) in file.records() {
                let head = record.head;
                if !head.kind.has_place() {
                    continue;
                }
                let before = sequence;
                // Also of the first that is left out: what is before it must be there.
                let followed = sequence.follow(&record);
                followed.map_err(|gap| BackupError::Log(file.damaged(offset, gap)))?;
                if head.lsn > info.at && what.until.is_some_and(|until| until.excludes(&head)) {
                    (sequence, end, is_cut) = (before, offset, true);
                    break;
                }
            }
            self.write_log(&folder, number, after, file.records_before(end))?;
            if is_cut {
                break;
            }
        }
        self.machine
            .disk
            .sync_folder(&folder)
            .map_err(BackupError::io(&folder))?;
        let last = sequence.last();
        let is_reached = match what.until {
            None => true,
            // What is cut off may speak of it as of a place at which there is nothing.
            Some(Until::Commit(commit)) => is_cut || commit <= last,
            Some(Until::Time(_)) => is_cut,
        };
        if is_reached {
            Ok(last)
        } else {
            Err(BackupError::BeyondLog { last })
        }
    }

    fn write_log(
        &mut self,
        folder: &Path,
        number: u64,
        after: CommitTs,
        records: &[u8],
    ) -> Result<(), BackupError> {
        let head = FileHead {
            origin: self.origin,
            number,
            after,
            begins_inside: true,
            format: Format::CURRENT,
        };
        let path = folder.join(read::file_name(number));
        let mut file = self.create(&path)?;
        file.write_all(&head.to_bytes())
            .and_then(|()| file.write_all(records))
            .and_then(|()| file.file().sync_all())
            .map_err(BackupError::io(&path))?;
        self.bytes += records.len() as u64;
        fault::pass("restore.log");
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Stream, BackupError> {
        let made = self.machine.disk.open(path, Opened::New);
        made.map(Stream::of).map_err(BackupError::io(path))
    }
}

/// A log file's number, and where it is.
type Found<'a> = (u64, (&'a dyn BackupSource, String));

/// The log files from the first that the backup needs, none missing between.
fn available<'a>(
    logs: &[&'a dyn BackupSource],
    info: &BackupInfo,
) -> Result<Vec<Found<'a>>, BackupError> {
    let mut found = BTreeMap::new();
    for &source in logs {
        for name in source.names().map_err(named("the log"))? {
            let (timeline, file) = match name.rsplit_once('/') {
                Some((timeline, file)) => (Some(timeline), file),
                None => (None, &*name),
            };
            // Archives have a folder for each timeline.
            let is_own = timeline.is_none_or(|timeline| timeline == info.timeline.to_string());
            if let Some(number) = read::number_of(file)
                && is_own
                && number >= info.log_from
            {
                found.entry(number).or_insert((source, name));
            }
        }
    }
    let count = found.len() as u64;
    let missing = (info.log_from..)
        .zip(found.keys())
        .find_map(|(expected, &number)| (number != expected).then_some(expected));
    match missing {
        Some(number) => Err(BackupError::LogMissing { number }),
        None if count == 0 && !logs.is_empty() => Err(BackupError::LogMissing {
            number: info.log_from,
        }),
        None => Ok(found.into_iter().collect()),
    }
}
