//! A seed at its copy: a folder that grows beside the tenant's, and takes its place.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use aerostat_types::{CommitTs, Epoch, TenantId};

use super::{CHECKPOINT, LOG, SeedError};
use crate::{
    Timeline,
    durable::recover::examine_log,
    files::{
        archive::{Hashing, copy},
        disk::{Disk, DiskFile, DiskLock, Opened, Stream, parent},
        fault,
        log::file_name,
        manifest::Manifest,
        replace::{growing, replace, settle},
    },
};

/// The end of the name of an image that has come in part. What it is to become stands before it.
const PART: &str = ".part";

/// What a copy is made of.
#[derive(Clone, Copy, Debug)]
pub struct SeedOf {
    /// Whose it is.
    pub tenant: TenantId,
    /// The history of which it is; `None` where the copy is new, and takes the leader's for it.
    pub timeline: Option<Timeline>,
    /// That of the configuration in which the leader leads: its log must have begun it. So the seed has all that
    /// was committed before, and may replace what a member of an earlier configuration had.
    pub epoch: Epoch,
}

/// An image that the copy lacks, or has in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedImage {
    /// Its name.
    pub name: String,
    /// Of all of it, as is the checksum.
    pub bytes: u64,
    /// The checksum.
    pub crc32: u32,
    /// How much of it is here.
    pub from: u64,
}

impl WantedImage {
    fn part_name(&self) -> String {
        format!("{}.{:08x}.{:x}{PART}", self.name, self.crc32, self.bytes)
    }
}

/// What was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The history.
    pub timeline: Timeline,
    /// The checkpoint's point.
    pub at: CommitTs,
    /// The last place of the log.
    pub through: CommitTs,
    /// The epochs that it has, and where they begin.
    pub epochs: Vec<(Epoch, CommitTs)>,
    /// Bytes of images and log in it.
    pub bytes: u64,
}

/// A seed that grows beside a tenant's folder. Nobody else makes one for that folder meanwhile; the tenant may be
/// open until it is replaced.
pub struct SeedFolder {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    path: PathBuf,
    of: SeedOf,
    lock: DiskLock,
    checkpoint: Option<(Vec<u8>, Manifest)>,
    log: Option<LogFile>,
    bytes: u64,
}

/// The log file that grows.
struct LogFile {
    number: u64,
    file: Box<dyn DiskFile>,
    bytes: u64,
    is_complete: bool,
}

impl SeedFolder {
    /// Begins a seed for a tenant's folder, or goes on with one.
    ///
    /// # Errors
    /// [`SeedError::Locked`], [`SeedError::Io`].
    pub fn begin(disk: Arc<dyn Disk>, folder: &Path, of: SeedOf) -> Result<SeedFolder, SeedError> {
        settle(&*disk, folder)?;
        let path = growing(folder);
        let failed = || SeedError::io(&path);
        disk.make_folder_for_good(&path).map_err(failed())?;
        let lock = disk.lock(&path).map_err(failed())?;
        let lock = lock.ok_or_else(|| SeedError::Locked { path: path.clone() })?;
        let checkpoint = path.join(CHECKPOINT);
        disk.make_folder(&checkpoint).map_err(failed())?;
        Ok(SeedFolder {
            disk,
            folder: folder.to_owned(),
            path,
            of,
            lock,
            checkpoint: None,
            log: None,
            bytes: 0,
        })
    }

    /// What the leader has a checkpoint of: gives the images that are to come. Others that are here go, and so
    /// does what has come of another log. It may be called again, where the leader has begun another seed.
    ///
    /// # Errors
    /// [`SeedError::Damaged`], [`SeedError::OfAnother`], [`SeedError::NoRoom`], [`SeedError::Io`].
    pub fn plan(&mut self, manifest: &[u8]) -> Result<Vec<WantedImage>, SeedError> {
        let damaged = |what| SeedError::Damaged {
            name: Manifest::NAME.to_owned(),
            what,
        };
        let parsed = Manifest::parse(manifest).map_err(|what| damaged(what.0))?;
        let is_other = |own: Timeline| own != parsed.timeline;
        if parsed.tenant != self.of.tenant || self.of.timeline.is_some_and(is_other) {
            return Err(SeedError::OfAnother);
        }
        let mut images: BTreeMap<String, WantedImage> = BTreeMap::new();
        for file in parsed.files() {
            let wanted = WantedImage {
                name: file.name.to_owned(),
                bytes: file.bytes,
                crc32: file.crc32,
                from: 0,
            };
            let known = images.entry(wanted.name.clone()).or_insert(wanted.clone());
            if *known != wanted {
                return Err(damaged("two images of one name"));
            }
        }
        self.forget_log()?;
        self.bytes = manifest.len() as u64 + images.values().map(|image| image.bytes).sum::<u64>();
        let checkpoint = self.path.join(CHECKPOINT);
        let parts: HashSet<String> = images.values().map(WantedImage::part_name).collect();
        for (path, _) in self.list(&checkpoint)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_wanted = |name: &str| images.contains_key(name) || parts.contains(name);
            if !name.is_some_and(is_wanted) {
                self.disk.remove_file(&path).map_err(SeedError::io(&path))?;
            }
        }
        let mut wanted = Vec::new();
        for image in images.into_values() {
            if !self.has(&image)? && !self.takes_over(&image)? {
                let from = self.part_bytes(&image)?;
                wanted.push(WantedImage { from, ..image });
            }
        }
        self.check_room(&wanted)?;
        self.checkpoint = Some((manifest.to_vec(), parsed));
        Ok(wanted)
    }

    fn list(&self, folder: &Path) -> Result<Vec<(PathBuf, bool)>, SeedError> {
        self.disk.list(folder).map_err(SeedError::io(folder))
    }

    /// No log counts that came before, nor a manifest that makes a seed complete.
    fn forget_log(&mut self) -> Result<(), SeedError> {
        self.log = None;
        self.checkpoint = None;
        let checkpoint = self.path.join(CHECKPOINT);
        let (manifest, log) = (checkpoint.join(Manifest::NAME), self.path.join(LOG));
        let disk = &*self.disk;
        disk.remove_if_there(&manifest)
            .and_then(|()| disk.sync_folder(&checkpoint))
            .map_err(SeedError::io(&manifest))?;
        disk.remove_folder_if_there(&log)
            .and_then(|()| disk.make_folder(&log))
            .map_err(SeedError::io(&log))
    }

    /// Whether an image is here as a whole. What has its name and is another goes.
    fn has(&self, image: &WantedImage) -> Result<bool, SeedError> {
        let path = self.path.join(CHECKPOINT).join(&image.name);
        let is_here = self.is(image, &path)?;
        if is_here == Some(false) {
            self.disk.remove_file(&path).map_err(SeedError::io(&path))?;
        }
        Ok(is_here == Some(true))
    }

    /// Takes an image over that the copy has which is to be replaced, if it has it.
    fn takes_over(&self, image: &WantedImage) -> Result<bool, SeedError> {
        let known = self.folder.join(CHECKPOINT).join(&image.name);
        if self.is(image, &known)? != Some(true) {
            return Ok(false);
        }
        let path = self.path.join(CHECKPOINT).join(&image.name);
        // Where that cannot be, it comes from the leader.
        let linked = self.disk.link(&known, &path).and_then(|()| {
            // Its name may never have been durable there.
            self.disk.open(&path, Opened::Write)?.sync_all()
        });
        Ok(linked.is_ok())
    }

    /// Whether a file is this image; `None` if there is none.
    fn is(&self, image: &WantedImage, path: &Path) -> Result<Option<bool>, SeedError> {
        let file = match self.disk.open(path, Opened::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SeedError::io(path)(error)),
        };
        if file.bytes().map_err(SeedError::io(path))? != image.bytes {
            return Ok(Some(false));
        }
        let mut content = Hashing::new(Stream::of(file));
        copy(&mut content, &mut io::sink()).map_err(SeedError::io(path))?;
        let found = content.file(&image.name);
        Ok(Some(
            (found.bytes, found.crc32) == (image.bytes, image.crc32),
        ))
    }

    fn part_bytes(&self, image: &WantedImage) -> Result<u64, SeedError> {
        let path = self.path.join(CHECKPOINT).join(image.part_name());
        match self.disk.look(&path) {
            Ok(found) => Ok(found.bytes.min(image.bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(SeedError::io(&path)(error)),
        }
    }

    fn check_room(&self, wanted: &[WantedImage]) -> Result<(), SeedError> {
        let needed: u64 = wanted.iter().map(|image| image.bytes - image.from).sum();
        match self.disk.space(&self.path) {
            Ok(space) if space.bytes_free < needed => Err(SeedError::NoRoom {
                needed,
                free: space.bytes_free,
            }),
            // One that does not say may have it.
            _ => Ok(()),
        }
    }

    /// Begins to take an image, or goes on with it.
    ///
    /// # Errors
    /// [`SeedError::Io`].
    pub fn image(&self, image: &WantedImage) -> Result<ImageTaker, SeedError> {
        let folder = self.path.join(CHECKPOINT);
        let part = folder.join(image.part_name());
        let failed = || SeedError::io(&part);
        let file = self.disk.open(&part, Opened::WriteOrNew);
        let file = file.map_err(failed())?;
        let here = file.bytes().map_err(failed())?.min(image.from);
        file.set_len(here).map_err(failed())?;
        let mut hasher = crc32fast::Hasher::new();
        let mut known = Stream::of(self.disk.open(&part, Opened::Read).map_err(failed())?);
        let mut at = 0;
        let mut buffer = vec![0; 256 << 10];
        while at < here {
            let read = io::Read::read(&mut known, &mut buffer).map_err(failed())?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            at += read as u64;
        }
        Ok(ImageTaker {
            disk: Arc::clone(&self.disk),
            path: folder.join(&image.name),
            part,
            file,
            hasher,
            at,
            image: image.clone(),
        })
    }

    /// Where the log goes on: the number of a file, and the byte in it.
    ///
    /// # Errors
    /// [`SeedError::Incomplete`] before there is a plan.
    pub fn log_position(&self) -> Result<(u64, u64), SeedError> {
        let (_, manifest) = self.checkpoint.as_ref().ok_or(SeedError::Incomplete {
            what: "it has no plan",
        })?;
        Ok(match &self.log {
            None => (manifest.log_from, 0),
            Some(log) if log.is_complete => (log.number + 1, 0),
            Some(log) => (log.number, log.bytes),
        })
    }

    /// Takes the next part of the log, which the leader has at [`Self::log_position`].
    ///
    /// # Errors
    /// [`SeedError::Damaged`], [`SeedError::Io`].
    pub fn take_log(&mut self, part: &super::LogPart) -> Result<(), SeedError> {
        let (number, at) = self.log_position()?;
        if part.bytes.is_empty() && !part.is_complete {
            return Ok(());
        }
        let path = self.path.join(LOG).join(file_name(number));
        let failed = || SeedError::io(&path);
        if at == 0 {
            let file = self.disk.open(&path, Opened::New).map_err(failed())?;
            self.log = Some(LogFile {
                number,
                file,
                bytes: 0,
                is_complete: false,
            });
        }
        let damaged = |what| SeedError::Damaged {
            name: file_name(number),
            what,
        };
        let log = self.log.as_mut().ok_or_else(|| damaged("it is missing"))?;
        let end = at + part.bytes.len() as u64;
        if end > part.file_bytes {
            return Err(damaged("it is longer than it is said to be"));
        }
        log.file.write_all_at(&part.bytes, at).map_err(failed())?;
        log.bytes = end;
        self.bytes += part.bytes.len() as u64;
        if part.is_complete && end == part.file_bytes {
            log.file.sync_all().map_err(failed())?;
            log.is_complete = true;
            fault::pass("seed.log");
        }
        Ok(())
    }

    /// Puts what has come in the place of the tenant's folder, which nobody has open, for good. From then on
    /// the folder can be opened as a copy.
    ///
    /// # Errors
    /// [`SeedError::Incomplete`], [`SeedError::Over`], [`SeedError::Recover`], [`SeedError::Locked`],
    /// [`SeedError::Io`]. The tenant's folder is as it was, or is replaced when it is opened next.
    pub fn finish(self) -> Result<Taken, SeedError> {
        let incomplete = |what| SeedError::Incomplete { what };
        let (bytes, manifest) = self.checkpoint.as_ref().ok_or(incomplete("no manifest"))?;
        let checkpoint = self.path.join(CHECKPOINT);
        for file in manifest.files() {
            // Its checksum was compared when it got its name.
            let found = self.disk.look(&checkpoint.join(file.name));
            if !found.is_ok_and(|found| found.bytes == file.bytes) {
                return Err(incomplete("an image is missing"));
            }
        }
        let log = self.log.as_ref().ok_or(incomplete("no log"))?;
        log.file.sync_all().map_err(SeedError::io(&self.path))?;
        let (through, epochs) = examine_log(&*self.disk, &self.path.join(LOG), manifest)?;
        let found = epochs.last().map_or(Epoch(0), |start| start.0);
        if found < self.of.epoch {
            let known = self.of.epoch;
            return Err(SeedError::Over { found, known });
        }
        let taken = Taken {
            timeline: manifest.timeline,
            at: manifest.at,
            through,
            epochs,
            bytes: self.bytes,
        };
        let disk = &*self.disk;
        let failed = || SeedError::io(&self.path);
        for folder in [&self.path.join(LOG), &checkpoint] {
            disk.sync_folder(folder).map_err(failed())?;
        }
        fault::pass("seed.before_manifest");
        let path = checkpoint.join(Manifest::NAME);
        disk.create_file(&path, bytes)
            .and_then(|file| file.sync_all())
            .map_err(SeedError::io(&path))?;
        for folder in [&*checkpoint, &*self.path, parent(&self.path)] {
            disk.sync_folder(folder).map_err(failed())?;
        }
        fault::pass("seed.complete");
        replace(disk, &self.folder)?;
        drop(self.lock);
        Ok(taken)
    }
}

/// An image on its way.
pub struct ImageTaker {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    part: PathBuf,
    file: Box<dyn DiskFile>,
    hasher: crc32fast::Hasher,
    at: u64,
    image: WantedImage,
}

impl ImageTaker {
    /// How much of it is here.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Whether all of it is.
    pub fn is_whole(&self) -> bool {
        self.at == self.image.bytes
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`SeedError::Damaged`], [`SeedError::Io`].
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), SeedError> {
        if bytes.len() as u64 > self.image.bytes - self.at {
            return Err(self.damaged("it is longer than it is said to be"));
        }
        let written = self.file.write_all_at(bytes, self.at);
        written.map_err(SeedError::io(&self.part))?;
        self.hasher.update(bytes);
        self.at += bytes.len() as u64;
        fault::pass("seed.part");
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> SeedError {
        SeedError::Damaged {
            name: self.image.name.clone(),
            what,
        }
    }

    /// The image is here as a whole and for good. One whose checksum is another is removed, and can be asked for
    /// again.
    ///
    /// # Errors
    /// [`SeedError::Damaged`], [`SeedError::Incomplete`], [`SeedError::Io`].
    pub fn finish(self) -> Result<(), SeedError> {
        if !self.is_whole() {
            let what = "an image has come in part";
            return Err(SeedError::Incomplete { what });
        }
        let failed = || SeedError::io(&self.part);
        if self.hasher.clone().finalize() != self.image.crc32 {
            self.disk.remove_file(&self.part).map_err(failed())?;
            return Err(self.damaged("the checksum does not match"));
        }
        self.file.sync_all().map_err(failed())?;
        self.disk
            .rename(&self.part, &self.path)
            .and_then(|()| self.disk.sync_folder(parent(&self.path)))
            .map_err(failed())?;
        fault::pass("seed.image");
        Ok(())
    }
}
