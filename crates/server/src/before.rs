//! The build that a process ran before it went on as this one (`successor`), to go back to where this one does not come
//! to serve.
//!
//! ```text
//!  build 1 ─ exec, AEROSTAT_BEFORE=build 1 ─► build 2 ─► ready: it stays
//!                                                └─► an error or a panic before that ─ exec ─► build 1
//! ```
//!
//! What has passed `serve --check` may still not start: the folder does not open, a port is taken, memory is not to be
//! had. Then the node would be away until somebody comes. It goes back once: the build before says itself why it does
//! not start. A build that is killed by the system, or hangs, is not seen.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

/// The program that the process ran before.
const BEFORE: &str = "AEROSTAT_BEFORE";

/// What this process runs.
pub(crate) const THIS: &str = "/proc/self/exe";

/// Whether this build serves, or has.
static HAS_SERVED: AtomicBool = AtomicBool::new(false);

/// The node serves: from now on it ends as it is told, and not by going back.
pub(crate) fn has_served() {
    HAS_SERVED.store(true, Ordering::SeqCst);
}

/// Has a program that the process goes on as know this one, if its file is still there.
pub(crate) fn tell(program: &mut Command) {
    match this() {
        Some(path) => program.env(BEFORE, path),
        None => program.env_remove(BEFORE),
    };
}

/// The file of this build; `None` if another has its place.
fn this() -> Option<PathBuf> {
    let path = fs::read_link(THIS).ok()?;
    let (named, runs) = (fs::metadata(&path).ok()?, fs::metadata(THIS).ok()?);
    ((named.dev(), named.ino()) == (runs.dev(), runs.ino())).then_some(path)
}

/// The build before this one.
pub(crate) struct Before {
    path: PathBuf,
    /// A thread that is as the process was started, and does nothing but go back: what other threads have changed of
    /// themselves the next program would inherit.
    goes: mpsc::Sender<mpsc::Sender<io::Error>>,
}

impl Before {
    /// The one that the process ran, if it ran one.
    pub(crate) fn find() -> Option<Before> {
        let path = PathBuf::from(env::var_os(BEFORE).filter(|path| !path.is_empty())?);
        let (goes, asked) = mpsc::channel::<mpsc::Sender<io::Error>>();
        let program = path.clone();
        let going = move || {
            for failed in asked {
                // Whoever waits for it ends otherwise.
                let _ = failed.send(go(&program));
            }
        };
        let thread = thread::Builder::new().name("aerostat-before".to_owned());
        thread.spawn(going).ok()?;
        Some(Before { path, goes })
    }

    /// Goes back, unless this build has served. Returns only where it stays.
    pub(crate) fn go_back(&self, why: &str) {
        if HAS_SERVED.load(Ordering::SeqCst) {
            return;
        }
        let path = self.path.display();
        eprintln!("aerostat: {why}\naerostat: this build does not serve; going back to {path}");
        let (failed, error) = mpsc::channel();
        let error = match self.goes.send(failed).ok().and_then(|()| error.recv().ok()) {
            Some(error) => error.to_string(),
            None => "its thread has died".to_owned(),
        };
        eprintln!("aerostat: cannot go back to {path}: {error}");
    }
}

/// Executes a program in this one's place, as what the process was started as, which has nothing to go back to. Returns
/// only where that fails.
pub(crate) fn go(program: &Path) -> io::Error {
    let mut arguments = env::args_os();
    let name = arguments
        .next()
        .unwrap_or_else(|| OsString::from(program.as_os_str()));
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env_remove(BEFORE);
    command.exec()
}
