//! Programs that a test starts and stops, and an adapter that is watched.

pub(crate) mod group;
pub(crate) mod guest;
pub(crate) mod java;
pub(crate) mod mariadb;
pub(crate) mod redis;

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_adapters::{Adapter, Ended, Running};
use aerostat_balloon::{message::Hello, participant::Participant};
use aerostat_broker::{core::Account, kernel, ledger::Owner};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const MIB: u64 = 1 << 20;

/// How long anything is waited for. A busy machine takes its time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Says that a test does not run, and why.
pub(crate) fn skip(what: &str, why: &str) {
    println!("skipped: {what} ({why})");
}

/// A program by its name, in the folders of servers, too.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A process that ends with the test.
pub(crate) struct Started(pub(crate) Child);

impl Started {
    pub(crate) fn new(command: &mut Command) -> Started {
        let command = command.stdin(Stdio::null());
        Started(command.spawn().expect("the program was found"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// What the kernel counts of it.
    pub(crate) fn counted(&self) -> u64 {
        let owner = Owner {
            process: kernel::process(self.pid()),
            cgroup: None,
        };
        match kernel::account(&owner) {
            Account::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Sends it a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(sent.unwrap().success(), "{name}");
    }

    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An adapter without a broker, whose place the test takes.
pub(crate) struct Watched {
    pub(crate) participant: Arc<dyn Participant>,
    ended: JoinHandle<Ended>,
    stopping: CancellationToken,
}

impl Watched {
    pub(crate) async fn start(kind: &str, options: &str) -> Watched {
        let stopping = CancellationToken::new();
        let adapter = Adapter::parse(kind, options).unwrap();
        let Running { participant, ended } = adapter.start(stopping.clone()).await.unwrap();
        Watched {
            participant,
            ended,
            stopping,
        }
    }

    /// What it says first, which a broker would believe.
    pub(crate) fn hello(&self) -> Hello {
        let hello = self.participant.hello();
        assert_eq!(hello.check(), Ok(()));
        hello
    }

    /// Tells a target and waits until the adapter says that it is reached; how long that took.
    pub(crate) async fn tell(&self, bytes: u64) -> Duration {
        let started = Instant::now();
        self.participant.set_target(bytes);
        until("the target is followed", || self.participant.is_reached()).await;
        started.elapsed()
    }

    /// Stops the adapter. The program stays.
    pub(crate) async fn stop(self) {
        self.stopping.cancel();
        assert_eq!(self.ended.await.unwrap(), Ended::Stopped);
    }

    /// Waits until the adapter sees that the program has gone.
    pub(crate) async fn sees_the_end(self) {
        let ended = tokio::time::timeout(PATIENCE, self.ended).await;
        assert_eq!(ended.expect("it ends in time").unwrap(), Ended::Gone);
    }
}

/// For people who read the test's output.
pub(crate) fn report(what: &str, before: u64, target: u64, after: u64, took: Duration) {
    println!(
        "{what}: the kernel counted {} MiB, the target is {} MiB, it counts {} MiB after {} ms",
        before / MIB,
        target / MIB,
        after / MIB,
        took.as_millis()
    );
}
