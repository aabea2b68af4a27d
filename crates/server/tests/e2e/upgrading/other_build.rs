//! Programs that nodes may go on as: another build, and scripts.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    process::Command,
    sync::Mutex,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{BINARY, command};

/// What another build's file begins with, before the digest of the one that it is a copy of.
const PREFIX: &str = "other-build-";

/// A folder of programs.
pub(super) struct Programs {
    folder: TempDir,
}

/// What a program says of itself.
pub(super) fn about(program: &str) -> Value {
    let mut command = Command::new(program);
    for (name, value) in self::command().get_envs() {
        if value.is_none() {
            command.env_remove(name);
        }
    }
    let output = command.args(["serve", "--check"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What tells it from other builds.
pub(super) fn build_of(program: &str) -> String {
    about(program)["id"].as_str().unwrap().to_owned()
}

impl Programs {
    pub(super) fn new() -> Programs {
        Programs {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn folder(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The build that the tests are of.
    pub(super) fn this_build(&self) -> String {
        let path = self.path("this");
        have(BINARY, &path);
        path
    }

    /// A build with another digest, which speaks a further version between nodes.
    pub(super) fn other_build(&self) -> String {
        // Tests run at a time, and it is large.
        static MADE: Mutex<()> = Mutex::new(());
        let id = build_of(BINARY);
        let digest = id.rsplit('-').next().unwrap();
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PREFIX}{digest}"));
        {
            let _making = MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if !made.exists() {
                forget_others(&made);
                let begun = made.with_extension(std::process::id().to_string());
                fs::copy(BINARY, &begun).unwrap();
                // In hexadecimal, as grep reads it.
                let bytes: String = (0..digest.len() / 2)
                    .map(|at| format!("\\x{}", &digest[at * 2..at * 2 + 2]))
                    .collect();
                replace(&begun, &bytes, |program, at| {
                    let mut first = [0];
                    program.read_exact_at(&mut first, at).unwrap();
                    program.write_all_at(&[first[0] ^ 0xff], at).unwrap();
                });
                let spoken = "aerostat speaks between nodes: v0001";
                let last = spoken.len() as u64 - 1;
                replace(&begun, spoken, |program, at| {
                    program.write_all_at(b"2", at + last).unwrap();
                });
                fs::rename(&begun, &made).unwrap();
            }
        }
        let path = self.path("other");
        have(made.to_str().unwrap(), &path);
        let said = about(&path);
        assert_ne!(said["id"], id.as_str());
        assert_eq!(said["between_nodes"]["most"], 2);
        path
    }

    pub(super) fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// Has a program be there, for its owner to write alone: by another name where that can be, since it is large.
fn have(program: &str, path: &str) {
    let is_open = fs::metadata(program).unwrap().permissions().mode() & 0o022 != 0;
    if is_open || fs::hard_link(program, path).is_err() {
        fs::copy(program, path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Removes those of builds before.
fn forget_others(made: &Path) {
    for entry in made.parent().unwrap().read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name.starts_with(PREFIX) && path != made {
            fs::remove_file(&path).ok();
        }
    }
}

/// Changes a program wherever it has these bytes.
fn replace(program: &Path, bytes: &str, change: impl Fn(&File, u64)) {
    let found = Command::new("grep")
        .args([
            "--only-matching",
            "--byte-offset",
            "--text",
            "--perl-regexp",
            bytes,
        ])
        .arg(program)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(program)
        .unwrap();
    let offsets = found.stdout.split(|byte| *byte == b'\n');
    let offsets = offsets.filter_map(|line| {
        let digits = line.split(|byte| *byte == b':').next()?;
        std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
    });
    let count = offsets.inspect(|at| change(&file, *at)).count();
    assert!(count > 0, "the program has no {bytes}");
}
