//! The build that a node's process goes on as: which programs may, what they say of themselves, and the change.
//!
//! ```text
//!  ALTER NODE … UPGRADE TO 'DIR/new' ─► is it a file of --upgrades, and nobody else's?      else refused
//!                                    ─► DIR/new serve --check, with this node's configuration
//!                                       its version and formats, as JSON                    else refused
//!                                    ─► the node stops as on SIGTERM: leads and sessions go to others
//!                                    ─► exec: the same process, with the same arguments
//! ```
//!
//! The process keeps its number, so that whoever has started it (systemd, a shell) sees it go on. A second signal, and
//! a SIGTERM that comes meanwhile, stop it as ever.

use std::{
    env,
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use aerostat_cluster::{Build, Programs};
use aerostat_types::{ErrorKind, SqlError};
use anyhow::{Context, Result};
use tokio::sync::Notify;

/// How long a program may take to say what it is.
const CHECK_MAX: Duration = Duration::from_secs(20);

/// How soon its end is seen.
const LOOK: Duration = Duration::from_millis(10);

/// How much of what it says is read.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// What this process runs, even where the file has been replaced.
const THIS: &str = "/proc/self/exe";

/// The command that a node is, and what has it only look at its configuration and say what it is.
const SERVE: &str = "serve";
const CHECK: &str = "--check";

/// Write permission of others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Permission to run it.
const RUNNABLE: u32 = 0o111;

/// Has the process go on as another build.
pub(crate) struct Successor {
    folder: PathBuf,
    chosen: Mutex<Option<PathBuf>>,
    asked: Notify,
    /// A thread that runs nothing else: what a process inherits of its thread, such as a core that it keeps to and its
    /// precedence, the next one does not get.
    replaces: mpsc::Sender<Replacing>,
}

/// A program, and who hears why it did not start.
type Replacing = (PathBuf, mpsc::Sender<io::Error>);

impl Successor {
    /// Of programs in a folder. The thread that calls this is as the process was started.
    ///
    /// # Errors
    /// The folder is none, or the system has no thread.
    pub(crate) fn begin(folder: &Path) -> Result<Successor> {
        let folder = fs::canonicalize(folder).with_context(|| {
            format!("cannot use the folder of --upgrades, {}", folder.display())
        })?;
        let (replaces, asked) = mpsc::channel::<Replacing>();
        let replacing = move || {
            for (program, failed) in asked {
                // Whoever waits for it ends otherwise.
                let _ = failed.send(go_on_as(&program));
            }
        };
        let thread = thread::Builder::new().name("aerostat-next".to_owned());
        thread
            .spawn(replacing)
            .context("cannot start the thread that replaces the process")?;
        Ok(Successor {
            folder,
            chosen: Mutex::default(),
            asked: Notify::new(),
            replaces,
        })
    }

    /// Waits until the process is to be replaced.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The program that is to go on, if one is.
    pub(crate) fn chosen(&self) -> Option<PathBuf> {
        self.lock().clone()
    }

    /// The process ends and is not replaced.
    pub(crate) fn forget(&self) {
        *self.lock() = None;
    }

    /// Goes on as the program. Returns only where that failed, and neither this build could.
    pub(crate) fn replace_now(&self, program: PathBuf) -> anyhow::Error {
        let (failed, why) = mpsc::channel();
        let is_sent = self.replaces.send((program.clone(), failed));
        let why = is_sent.ok().and_then(|()| why.recv().ok());
        match why {
            Some(error) => anyhow::Error::from(error),
            None => anyhow::anyhow!("the thread that replaces the process has died"),
        }
        .context(format!("cannot go on as {}", program.display()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<PathBuf>> {
        // Nobody leaves it half changed.
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that a path names, if its program may be run.
    fn permitted(&self, program: &str) -> Result<PathBuf, SqlError> {
        let refused = |why: String| {
            let message = format!("cannot go on as \"{program}\"");
            SqlError::new(ErrorKind::InvalidParameterValue, message)
                .with_detail(why)
                .with_hint(format!("Put the program into {}.", self.folder.display()))
        };
        let written = Path::new(program);
        if !written.is_absolute() {
            return Err(refused("It is no absolute path.".to_owned()));
        }
        // Links are followed first: what counts is where the file is.
        let path = fs::canonicalize(written).map_err(|error| refused(format!("{error}.")))?;
        if !path.starts_with(&self.folder) || path == self.folder {
            return Err(refused("It is not in the folder of --upgrades.".to_owned()));
        }
        let me = fs::metadata("/proc/self").map_err(|error| refused(format!("{error}.")))?;
        let mut place = path.as_path();
        loop {
            let found = fs::metadata(place).map_err(|error| refused(format!("{error}.")))?;
            if let Some(why) = distrusted(&found, me.uid()) {
                return Err(refused(format!("{} {why}.", place.display())));
            }
            if place == path && !(found.is_file() && found.permissions().mode() & RUNNABLE != 0) {
                return Err(refused("It is no file that can be run.".to_owned()));
            }
            match place.parent() {
                Some(parent) if place != self.folder => place = parent,
                _ => return Ok(path),
            }
        }
    }
}

/// Why a file or folder may have in it what somebody else has put there.
fn distrusted(found: &Metadata, me: u32) -> Option<&'static str> {
    if ![0, me].contains(&found.uid()) {
        return Some("belongs to another user");
    }
    let is_open = found.permissions().mode() & WRITABLE_BY_OTHERS != 0;
    is_open.then_some("can be written by other users")
}

impl Programs for Successor {
    fn examine(&self, program: &str) -> Result<Build, SqlError> {
        let path = self.permitted(program)?;
        let said = check(&path, &arguments_to_check(env::args_os().skip(1).collect()));
        said.map_err(|why| {
            let message = format!("\"{program}\" cannot go on in the place of this node");
            SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message)
                .with_detail(why)
                .with_hint("The node runs it as `serve --check`, with its own configuration.")
        })
    }

    fn replace(&self, program: &str) -> Result<(), SqlError> {
        // As it was examined, unless somebody who may has changed it since.
        *self.lock() = Some(self.permitted(program)?);
        self.asked.notify_one();
        Ok(())
    }
}

/// The process's arguments, so that it only says what it is.
fn arguments_to_check(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let behind = arguments.iter().position(|word| word == SERVE);
    arguments.insert(behind.map_or(0, |at| at + 1), CHECK.into());
    arguments
}

/// What a program says of itself, or why not.
fn check(program: &Path, arguments: &[OsString]) -> Result<Build, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("It does not start: {error}."))?;
    let (said, complained) = (heard(child.stdout.take()), heard(child.stderr.take()));
    let ended = await_end(&mut child);
    // What it has started itself may have both open still.
    let text =
        |of: mpsc::Receiver<String>| of.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    match ended {
        None => Err(format!("It says nothing for {} s.", CHECK_MAX.as_secs())),
        Some(Err(error)) => Err(format!("It is not known how it ended: {error}.")),
        Some(Ok(status)) if !status.success() => {
            let complained = text(complained);
            Err(format!("It ends with {status}: {}", complained.trim()))
        }
        Some(Ok(_)) => serde_json::from_str(&text(said))
            .map_err(|error| format!("It does not say what it is: {error}.")),
    }
}

/// What comes from a child, in a thread of its own: it may be more than a pipe takes.
fn heard(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = (&mut pipe).take(SAID_BYTES_MAX).read_to_end(&mut bytes);
            // The rest is nobody's, and must not stop it.
            let rest = read.and_then(|_| io::copy(&mut pipe, &mut io::sink()));
            if let Err(error) = rest {
                tracing::debug!(%error, "a program that is examined");
            }
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    receiver
}

fn await_end(child: &mut Child) -> Option<io::Result<std::process::ExitStatus>> {
    let began = Instant::now();
    while began.elapsed() < CHECK_MAX {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Some(Err(error)),
        }
    }
    let ended = child.kill().and_then(|()| child.wait());
    if let Err(error) = ended {
        tracing::warn!(%error, "a program that was examined does not end");
    }
    None
}

/// Replaces the process. A program that does not start at all is no reason to be away: this build goes on then.
fn go_on_as(program: &Path) -> io::Error {
    let arguments: Vec<OsString> = env::args_os().collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.clone(), rest),
        None => (OsString::from(THIS), &[][..]),
    };
    let error = Command::new(program).args(rest).exec();
    tracing::error!(program = %program.display(), %error, "it does not start; this build goes on");
    Command::new(THIS).arg0(name).args(rest).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str, mode: u32) -> String {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn folders() -> (tempfile::TempDir, PathBuf, Successor) {
        let all = tempfile::tempdir().unwrap();
        let folder = all.path().join("upgrades");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let successor = Successor::begin(&folder).unwrap();
        (all, folder, successor)
    }

    #[test]
    fn programs_of_the_folder_may_be_run_and_no_others() {
        let (all, folder, successor) = folders();
        let good = file(&folder, "good", "#!/bin/sh\n", 0o755);
        assert_eq!(successor.permitted(&good).unwrap(), Path::new(&good));
        let beside = file(all.path(), "beside", "#!/bin/sh\n", 0o755);
        let link = |name: &str, to: &str| {
            let path = folder.join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let within = link("within", &good);
        assert_eq!(successor.permitted(&within).unwrap(), Path::new(&good));
        let out = link("out", &beside);
        let around = format!("{}/../beside", folder.display());
        let named = file(all.path(), "upgrades-not", "#!/bin/sh\n", 0o755);
        let text = file(&folder, "text", "", 0o644);
        let open = file(&folder, "open", "#!/bin/sh\n", 0o777);
        let absent = format!("{}/absent", folder.display());
        let itself = folder.to_str().unwrap().to_owned();
        for refused in [
            &beside, &out, &around, &named, &text, &open, &absent, &itself, "good", "", "/bin/sh",
        ] {
            let error = successor.permitted(refused).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidParameterValue, "{refused}");
            assert!(error.hint.unwrap().contains(&itself));
        }
        // Somebody else could put something there.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(successor.permitted(&good).is_err());
    }

    #[test]
    fn what_does_not_say_what_it_is_is_refused() {
        let (_all, folder, _successor) = folders();
        let build = serde_json::to_string(&crate::program::build()).unwrap();
        let run = |name: &str, text: &str| {
            let path = file(&folder, name, &format!("#!/bin/sh\n{text}\n"), 0o755);
            check(
                Path::new(&path),
                &arguments_to_check(vec!["serve".into(), "x".into()]),
            )
        };
        let said = run(
            "good",
            &format!("[ \"$1 $2 $3\" = 'serve --check x' ] && echo '{build}'"),
        );
        assert_eq!(said, Ok(crate::program::build()));
        for (name, text, why) in [
            ("ends", "echo no such flag >&2; exit 2", "no such flag"),
            ("silent", "exit 0", "does not say what it is"),
            ("chats", "echo hello", "does not say what it is"),
            (
                "endless",
                "yes | head -c 1000000",
                "does not say what it is",
            ),
            ("killed", "kill -9 $$", "signal: 9"),
        ] {
            let refused = run(name, text).unwrap_err();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        let none = check(&folder.join("none"), &[]).unwrap_err();
        assert!(none.contains("does not start"), "{none}");
    }
}
