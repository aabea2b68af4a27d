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
//! The process keeps its number, so that whoever has started it (systemd, a shell) sees it go on. A signal that comes
//! until then stops it for good, and one that had been told to stop before goes on as nothing. The file that is executed
//! is the one that was examined; where it has become another meanwhile, this build goes on. One that does not come to serve
//! goes back (`before`).

use std::{
    env,
    ffi::OsString,
    fs::{self, Metadata},
    io::{self, Read},
    mem,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_cluster::{Build, Examined, FileState, Programs};
use aerostat_types::{ErrorKind, SqlError};
use anyhow::{Context, Result};
use futures::FutureExt;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, mpsc as tasks},
    task::yield_now,
};

use crate::{before, serve::Signals};

/// How long a program may take to say what it is.
const CHECK_MAX: Duration = Duration::from_secs(20);

/// How soon its end is seen.
const LOOK: Duration = Duration::from_millis(10);

/// How much of what it says is read.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// The command that a node is, and what has it only look at its configuration and say what it is.
const SERVE: &str = "serve";
const CHECK: &str = "--check";

/// Write permission of others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Permission to run it.
const RUNNABLE: u32 = 0o111;

/// How often, and how long apart, the system is asked for signals before the process is replaced. Whichever thread gets
/// one may have to wait for a core before it is known.
const LAST_LOOKS: usize = 10;
const LAST_LOOK: Duration = Duration::from_millis(5);

/// Has the process go on as another build.
pub(crate) struct Successor {
    folder: PathBuf,
    fate: Mutex<Fate>,
    asked: Notify,
    /// Whether the process has got a signal that stops it.
    is_signalled: Arc<AtomicBool>,
    /// A thread that only watches for signals: what a process inherits of its thread, such as a core that it keeps to
    /// and its precedence, the next one does not get.
    replaces: tasks::UnboundedSender<Replacing>,
}

/// What becomes of the process.
enum Fate {
    Stays,
    Replaced(Examined),
    /// It ends, and nothing goes on.
    Ends,
}

/// A program, and who hears why it did not start: nothing where a signal has come.
type Replacing = (Examined, mpsc::Sender<Option<io::Error>>);

impl Successor {
    /// Of programs in a folder. The thread that calls this is as the process was started.
    ///
    /// # Errors
    /// The folder is none, or the system has no thread, or no signals.
    pub(crate) fn begin(folder: &Path) -> Result<Successor> {
        let folder = fs::canonicalize(folder).with_context(|| {
            format!("cannot use the folder of --upgrades, {}", folder.display())
        })?;
        let (replaces, asked) = tasks::unbounded_channel();
        let is_signalled = Arc::new(AtomicBool::new(false));
        let runtime = Builder::new_current_thread()
            .enable_io()
            .event_interval(1)
            .build()
            .context("cannot watch for signals")?;
        let signals = {
            let _within = runtime.enter();
            Signals::new()?
        };
        let (programs, signalled) = (folder.clone(), Arc::clone(&is_signalled));
        let replacing = move || watch(&runtime, signals, asked, &programs, &signalled);
        let thread = thread::Builder::new().name("aerostat-next".to_owned());
        thread
            .spawn(replacing)
            .context("cannot start the thread that replaces the process")?;
        Ok(Successor {
            folder,
            fate: Mutex::new(Fate::Stays),
            asked: Notify::new(),
            is_signalled,
            replaces,
        })
    }

    /// Waits until the process is to be replaced.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// Whether a signal that stops the process has come since this began.
    pub(crate) fn is_signalled(&self) -> bool {
        self.is_signalled.load(Ordering::SeqCst)
    }

    /// The process ends and is not replaced, whoever asks. Tells whether it was about to be.
    pub(crate) fn close(&self) -> bool {
        let before = mem::replace(&mut *self.lock(), Fate::Ends);
        matches!(before, Fate::Replaced(_))
    }

    /// Goes on as the program that was chosen, if one was and no signal has come. Returns only where none was or one has,
    /// or where it failed and neither this build could go on.
    ///
    /// # Errors
    /// Neither could.
    pub(crate) fn replace_now(&self) -> Result<()> {
        let Fate::Replaced(program) = mem::replace(&mut *self.lock(), Fate::Ends) else {
            return Ok(());
        };
        let path = program.file.clone();
        let (failed, why) = mpsc::channel();
        let is_sent = self.replaces.send((program, failed));
        let error = match is_sent.ok().and_then(|()| why.recv().ok()) {
            Some(None) => return Ok(()),
            Some(Some(error)) => anyhow::Error::from(error),
            None => anyhow::anyhow!("the thread that replaces the process has died"),
        };
        Err(error.context(format!("cannot go on as {}", path.display())))
    }

    fn lock(&self) -> MutexGuard<'_, Fate> {
        // Nobody leaves it half changed.
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file that a path names, if its program may be run.
fn permitted(folder: &Path, program: &str) -> Result<PathBuf, SqlError> {
    let refused = |why: String| {
        let message = format!("cannot go on as \"{program}\"");
        SqlError::new(ErrorKind::InvalidParameterValue, message)
            .with_detail(why)
            .with_hint(format!("Put the program into {}.", folder.display()))
    };
    let written = Path::new(program);
    if !written.is_absolute() {
        return Err(refused("It is no absolute path.".to_owned()));
    }
    // Links are followed first: what counts is where the file is.
    let path = fs::canonicalize(written).map_err(|error| refused(format!("{error}.")))?;
    if !path.starts_with(folder) || path == folder {
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
            Some(parent) if place != folder => place = parent,
            _ => return Ok(path),
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

/// Which file a path is.
fn state_of(path: &Path) -> Result<FileState, SqlError> {
    let found = fs::metadata(path).map_err(|error| {
        let message = format!("cannot look at {}: {error}", path.display());
        SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message)
    })?;
    Ok(FileState::of(&found))
}

/// Refuses a program that may not be run any more, or is not the one that was examined.
fn require_same(folder: &Path, program: &Examined) -> Result<(), SqlError> {
    let path = program.file.to_string_lossy();
    let now = permitted(folder, &path)?;
    if now == program.file && state_of(&now)? == program.state {
        return Ok(());
    }
    let message = format!("\"{path}\" is not the program that was examined");
    Err(
        SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message)
            .with_detail("The file has become another meanwhile.")
            .with_hint("Leave the program as it is, and try again."),
    )
}

impl Programs for Successor {
    fn examine(&self, program: &str) -> Result<Examined, SqlError> {
        let file = permitted(&self.folder, program)?;
        // Before it says anything: that is what it is compared with.
        let state = state_of(&file)?;
        let said = check(&file, &arguments_to_check(env::args_os().skip(1).collect()));
        let build = said.map_err(|why| {
            let message = format!("\"{program}\" cannot go on in the place of this node");
            SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message)
                .with_detail(why)
                .with_hint("The node runs it as `serve --check`, with its own configuration.")
        })?;
        Ok(Examined { build, file, state })
    }

    fn replace(&self, program: &Examined) -> Result<(), SqlError> {
        require_same(&self.folder, program)?;
        let mut fate = self.lock();
        match *fate {
            Fate::Stays => {
                *fate = Fate::Replaced(program.clone());
                self.asked.notify_one();
                Ok(())
            }
            Fate::Replaced(_) => {
                let message = "this node is on its way to another build already";
                Err(SqlError::new(ErrorKind::ObjectInUse, message))
            }
            Fate::Ends => {
                let message = "this node stops, and goes on as no other build";
                Err(SqlError::new(ErrorKind::CannotConnectNow, message))
            }
        }
    }

    fn is_replaced(&self) -> bool {
        matches!(*self.lock(), Fate::Replaced(_))
    }
}

/// Replaces the process when it is asked to, unless a signal has come by then.
fn watch(
    runtime: &Runtime,
    mut signals: Signals,
    mut asked: tasks::UnboundedReceiver<Replacing>,
    folder: &Path,
    is_signalled: &AtomicBool,
) {
    runtime.block_on(async {
        loop {
            tokio::select! {
                biased;
                _ = signals.next() => is_signalled.store(true, Ordering::SeqCst),
                replacing = asked.recv() => {
                    let Some((program, failed)) = replacing else {
                        return;
                    };
                    for _ in 0..LAST_LOOKS {
                        thread::sleep(LAST_LOOK);
                        // The system is asked meanwhile.
                        yield_now().await;
                        if signals.next().now_or_never().is_some() {
                            is_signalled.store(true, Ordering::SeqCst);
                        }
                    }
                    let is_stopped = is_signalled.load(Ordering::SeqCst);
                    // Whoever waits for it ends otherwise.
                    let _ = failed.send((!is_stopped).then(|| go_on_as(&program, folder)));
                }
            }
        }
    });
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
        // What it starts itself ends with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("It does not start: {error}."))?;
    let (said, complained) = (heard(child.stdout.take()), heard(child.stderr.take()));
    let ended = await_end(&mut child, CHECK_MAX);
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

fn await_end(child: &mut Child, at_most: Duration) -> Option<io::Result<std::process::ExitStatus>> {
    let began = Instant::now();
    while began.elapsed() < at_most {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) => thread::sleep(LOOK),
            Err(error) => return Some(Err(error)),
        }
    }
    let killed = kill_process_group(Pid::from_child(child), Signal::KILL);
    let ended = killed.map_err(io::Error::from).and_then(|()| child.wait());
    if let Err(error) = ended {
        tracing::warn!(%error, "a program that was examined does not end");
    }
    None
}

/// Replaces the process. A program that does not start at all, or is not the one that was examined, is no reason to be
/// away: this build goes on then.
fn go_on_as(program: &Examined, folder: &Path) -> io::Error {
    let path = program.file.display();
    match require_same(folder, program) {
        Ok(()) => {
            let mut next = Command::new(&program.file);
            before::tell(&mut next);
            let error = next.args(env::args_os().skip(1)).exec();
            tracing::error!(program = %path, %error, "it does not start; this build goes on");
        }
        Err(error) => {
            tracing::error!(program = %path, %error, "it is not executed; this build goes on");
        }
    }
    // Also where the file has been replaced.
    before::go(Path::new(before::THIS))
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
        let (all, folder, _successor) = folders();
        let good = file(&folder, "good", "#!/bin/sh\n", 0o755);
        assert_eq!(permitted(&folder, &good).unwrap(), Path::new(&good));
        let beside = file(all.path(), "beside", "#!/bin/sh\n", 0o755);
        let link = |name: &str, to: &str| {
            let path = folder.join(name);
            std::os::unix::fs::symlink(to, &path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let within = link("within", &good);
        assert_eq!(permitted(&folder, &within).unwrap(), Path::new(&good));
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
            let error = permitted(&folder, refused).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidParameterValue, "{refused}");
            assert!(error.hint.unwrap().contains(&itself));
        }
        // Somebody else could put something there.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(permitted(&folder, &good).is_err());
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

    fn examined(successor: &Successor, path: &str) -> Examined {
        Examined {
            build: crate::program::build(),
            file: permitted(&successor.folder, path).unwrap(),
            state: state_of(Path::new(path)).unwrap(),
        }
    }

    #[test]
    fn a_program_that_has_become_another_is_refused() {
        let (_all, folder, successor) = folders();
        let path = file(&folder, "good", "#!/bin/sh\n", 0o755);
        let seen = examined(&successor, &path);
        fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        let error = successor.replace(&seen).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ObjectNotInPrerequisiteState);
        let seen = examined(&successor, &path);
        // Of the same length, by another file.
        let beside = file(&folder, "beside", "#!/bin/sh\nexit 2\n", 0o755);
        fs::rename(beside, &path).unwrap();
        assert!(successor.replace(&seen).is_err());
        let seen = examined(&successor, &path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(successor.replace(&seen).is_err());
        assert!(!successor.is_replaced());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        successor.replace(&seen).unwrap();
        assert!(successor.is_replaced());
    }

    #[test]
    fn a_process_that_stops_goes_on_as_nothing() {
        let (_all, folder, successor) = folders();
        let path = file(&folder, "good", "#!/bin/sh\n", 0o755);
        let seen = examined(&successor, &path);
        assert!(!successor.close());
        let error = successor.replace(&seen).unwrap_err();
        assert_eq!(error.kind, ErrorKind::CannotConnectNow);
        successor.replace_now().unwrap();
        let (_all, folder, successor) = folders();
        let path = file(&folder, "good", "#!/bin/sh\n", 0o755);
        let seen = examined(&successor, &path);
        successor.replace(&seen).unwrap();
        let error = successor.replace(&seen).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ObjectInUse);
        assert!(successor.close());
        assert!(!successor.close());
        successor.replace_now().unwrap();
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_what_it_has_started() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let said = heard(child.stdout.take());
        assert!(await_end(&mut child, Duration::from_millis(300)).is_none());
        // The pipe ends with the last that has it.
        let started = said.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(started.trim().parse::<u32>().is_ok(), "{started}");
    }

    #[test]
    fn a_signal_that_comes_at_last_is_seen() {
        let (_all, folder, successor) = folders();
        // Would end these tests as failed.
        let path = file(&folder, "good", "#!/bin/sh\nexit 1\n", 0o755);
        successor.replace(&examined(&successor, &path)).unwrap();
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, Signal::TERM).unwrap();
        successor.replace_now().unwrap();
        assert!(successor.is_signalled());
    }
}
