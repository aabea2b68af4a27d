//! The broker's folder: the ledger and the audit log.
//!
//! ```text
//!  broker.lock    held while a broker runs on the folder
//!  ledger.json    replaced as a whole: written aside, synced, renamed, the folder synced
//!  audit.jsonl    a line for each event; audit.1.jsonl is the one before
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::{
    core::AuditEntry,
    ledger::{Ledger, LedgerError},
};

const LOCK: &str = "broker.lock";
const LEDGER: &str = "ledger.json";
const AUDIT: &str = "audit.jsonl";
const AUDIT_BEFORE: &str = "audit.1.jsonl";

/// How long an audit log becomes before another is begun: some hundred thousand events.
const AUDIT_BYTES_MAX: u64 = 16 << 20;

/// The folder of a running broker.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    audit: File,
    audit_bytes: u64,
    /// Held open, since it holds the lock.
    _lock: File,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The file system refuses.
    #[error("cannot use {path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the file system says.
        #[source]
        source: io::Error,
    },
    /// Another broker runs on it.
    #[error("another broker runs on {0}")]
    Locked(PathBuf),
    /// The ledger cannot be used. It is left as it is.
    #[error("cannot use the ledger {path}")]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: LedgerError,
    },
}

impl Files {
    /// Opens a folder, which is made where there is none, and reads its ledger if there is one.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub fn open(folder: &Path) -> Result<(Files, Option<Ledger>), FilesError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FilesError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock_path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(&lock_path).map_err(failed(&lock_path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| FilesError::Locked(folder.to_owned()))?;
        let path = folder.join(LEDGER);
        let ledger = match fs::read(&path) {
            Ok(bytes) => {
                let parsed = Ledger::parse(&bytes);
                Some(parsed.map_err(|source| FilesError::Ledger { path, source })?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&path)(error)),
        };
        let audit_path = folder.join(AUDIT);
        let (audit, audit_bytes) = open_audit(&audit_path).map_err(failed(&audit_path))?;
        let files = Files {
            folder: folder.to_owned(),
            audit,
            audit_bytes,
            _lock: lock,
        };
        Ok((files, ledger))
    }

    /// Makes a ledger durable as a whole.
    ///
    /// # Errors
    /// The disk refuses. The ledger on disk is then the one before or, if the last sync failed,
    /// perhaps this one.
    pub fn persist(&self, ledger: &Ledger) -> io::Result<()> {
        let mut aside = tempfile::Builder::new()
            .prefix(LEDGER)
            .tempfile_in(&self.folder)?;
        aside.write_all(&ledger.render())?;
        aside.as_file().sync_all()?;
        aside
            .persist(self.folder.join(LEDGER))
            .map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Writes an event down. What the disk refuses is lost, and said in the broker's own log: moving memory
    /// does not wait for it.
    pub fn audit(&mut self, entry: AuditEntry<'_>) {
        let AuditEntry {
            what,
            name,
            bytes,
            why,
        } = entry;
        tracing::info!(what, name, bytes, why, "audit");
        if let Err(error) = self.append(entry) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "cannot write the audit log");
        }
    }

    fn append(&mut self, entry: AuditEntry<'_>) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            /// Seconds since 1970.
            at: f64,
            what: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            name: &'a str,
            bytes: u64,
            why: &'a str,
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            at: since.map_or(0.0, |since| since.as_millis() as f64 / 1_000.0),
            what: entry.what,
            name: entry.name,
            bytes: entry.bytes,
            why: entry.why,
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        if self.audit_bytes + bytes.len() as u64 > AUDIT_BYTES_MAX {
            let path = self.folder.join(AUDIT);
            fs::rename(&path, self.folder.join(AUDIT_BEFORE))?;
            (self.audit, self.audit_bytes) = open_audit(&path)?;
        }
        self.audit.write_all(&bytes)?;
        self.audit_bytes += bytes.len() as u64;
        Ok(())
    }
}

fn open_audit(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_found_again_and_its_folder_is_one_broker_s() {
        let folder = tempfile::tempdir().unwrap();
        let (files, ledger) = Files::open(folder.path()).unwrap();
        assert_eq!(ledger, None);
        let mut ledger = Ledger::new(1_000, 10);
        ledger.next_epoch();
        files.persist(&ledger).unwrap();
        let twice = Files::open(folder.path());
        assert!(matches!(twice, Err(FilesError::Locked(_))));
        drop(files);
        let (_files, found) = Files::open(folder.path()).unwrap();
        assert_eq!(found, Some(ledger));
        // Nothing is left lying about.
        let names = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = names.map(|one| one.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [AUDIT, LOCK, LEDGER]);
    }

    #[test]
    fn a_damaged_ledger_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LEDGER);
        fs::write(&path, "{").unwrap();
        let refused = Files::open(folder.path());
        assert!(matches!(refused, Err(FilesError::Ledger { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"{");
    }

    #[test]
    fn events_are_lines_and_the_log_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (mut files, _) = Files::open(folder.path()).unwrap();
        let entry = AuditEntry {
            what: "granted",
            name: "shop",
            bytes: 7,
            why: "it \"wants\" it\n",
        };
        files.audit(entry);
        let text = fs::read_to_string(folder.path().join(AUDIT)).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (line["name"].as_str(), line["bytes"].as_u64()),
            (Some("shop"), Some(7))
        );
        assert_eq!(text.lines().count(), 1);
        files.audit_bytes = AUDIT_BYTES_MAX;
        files.audit(entry);
        let before = fs::read_to_string(folder.path().join(AUDIT_BEFORE)).unwrap();
        assert_eq!(before, text);
        let now = fs::read_to_string(folder.path().join(AUDIT)).unwrap();
        assert_eq!(now.lines().count(), 1);
    }
}
