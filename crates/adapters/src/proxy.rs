//! The participant that stands for a program.
//!
//! The task that talks to the program leaves a [`View`] here each time it has looked, and takes the
//! newest target from here. All amounts are as the kernel counts them.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aerostat_balloon::{
    message::{Demand, Hello},
    participant::{Connection, Participant},
};
use aerostat_broker::{core::Account, kernel, ledger::Owner};
use tokio::sync::Notify;

/// A demand that is older is not told: the program does not answer.
const DEMAND_AGE_MAX: Duration = Duration::from_secs(10);

/// A program as it was seen last. Amounts are bytes as the kernel counts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The bytes that it cannot work without.
    pub(crate) floor: u64,
    /// The most bytes that it can use.
    pub(crate) ceiling: u64,
    /// The bytes that it allows itself, all of its overhead included.
    pub(crate) limit: u64,
    /// How fast it gives memory back, if that is known.
    pub(crate) gives_bytes_per_s: Option<u64>,
    /// Whether it cannot give memory back.
    pub(crate) is_fixed: bool,
    /// The value of more or less memory; `used` is filled in when it is told.
    pub(crate) demand: Option<Demand>,
}

/// The kernel's count of an owner, or `None` where it has gone or cannot be read.
pub(crate) fn account(owner: &Owner) -> Option<u64> {
    match kernel::account(owner) {
        Account::Bytes(bytes) => Some(bytes),
        Account::Unknown | Account::Gone => None,
    }
}

/// The machine's memory, in bytes.
pub(crate) fn memory_of_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    // A machine that does not say is taken for one without a limit.
    kib.map_or(u64::MAX, |kib| kib * 1024)
}

/// Stands for a program.
pub(crate) struct Proxy {
    name: String,
    kind: &'static str,
    owner: Owner,
    state: Mutex<State>,
    used: AtomicU64,
    wake: Notify,
}

struct State {
    view: View,
    seen_at: Instant,
    /// The target that the broker told last.
    told: Option<u64>,
    /// How many targets were told.
    targets: u64,
    /// How many of them the program has followed as far as it can.
    followed: u64,
    /// The bytes that the program allows itself.
    allowed: u64,
}

impl Proxy {
    pub(crate) fn new(name: String, kind: &'static str, owner: Owner, view: View) -> Proxy {
        let state = State {
            allowed: view.limit,
            view,
            seen_at: Instant::now(),
            told: None,
            targets: 0,
            followed: 0,
        };
        Proxy {
            name,
            kind,
            owner,
            state: Mutex::new(state),
            used: AtomicU64::new(0),
            wake: Notify::new(),
        }
    }

    /// The kernel's count, or `None` where the program has gone.
    pub(crate) fn account(&self) -> Option<u64> {
        match kernel::account(&self.owner) {
            Account::Bytes(bytes) => {
                self.used.store(bytes, Ordering::Relaxed);
                Some(bytes)
            }
            Account::Unknown => Some(self.used.load(Ordering::Relaxed)),
            Account::Gone => None,
        }
    }

    /// Takes a new view of the program.
    pub(crate) fn see(&self, view: View) {
        let mut state = self.state();
        if state.told.is_none() {
            state.allowed = view.limit;
        }
        state.view = view;
        state.seen_at = Instant::now();
    }

    /// The program as it was seen last.
    pub(crate) fn view(&self) -> View {
        self.state().view.clone()
    }

    /// The number of the newest target, and the target.
    pub(crate) fn told(&self) -> Option<(u64, u64)> {
        let state = self.state();
        Some((state.targets, state.told?))
    }

    /// The newest target, as in [`Proxy::told`], if the program has yet to follow it.
    pub(crate) fn unfollowed(&self) -> Option<(u64, u64)> {
        let followed = self.state().followed;
        self.told().filter(|(number, _)| followed < *number)
    }

    /// Whether a target came after the one of this number.
    pub(crate) fn is_outdated(&self, number: u64) -> bool {
        self.state().targets > number
    }

    /// The program allows itself so much on its way to a target.
    pub(crate) fn allow(&self, bytes: u64) {
        self.state().allowed = bytes;
    }

    /// The program has followed the target of this number as far as it can.
    pub(crate) fn follow(&self, number: u64, allowed: u64) {
        let mut state = self.state();
        state.followed = state.followed.max(number);
        state.allowed = allowed;
    }

    /// Waits until a target is told.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete when it is made, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Participant for Proxy {
    fn hello(&self) -> Hello {
        let used = self.used();
        let state = self.state();
        let process = self.owner.process;
        Hello {
            version: 0,
            token: None,
            name: self.name.clone(),
            kind: self.kind.to_owned(),
            instance: process.map_or_else(
                || "unknown".to_owned(),
                |process| format!("{}-{}", process.pid, process.started),
            ),
            pid: process.map(|process| process.pid),
            cgroup: self.owner.cgroup.clone(),
            floor: state.view.floor.min(state.view.ceiling),
            ceiling: state.view.ceiling,
            used,
            target: state.allowed,
            gives_bytes_per_s: state.view.gives_bytes_per_s,
            is_fixed: state.view.is_fixed,
        }
    }

    fn used(&self) -> u64 {
        self.account().unwrap_or(0)
    }

    fn target(&self) -> u64 {
        self.state().allowed
    }

    fn set_target(&self, bytes: u64) {
        let mut state = self.state();
        state.told = Some(bytes);
        state.targets += 1;
        drop(state);
        self.wake.notify_one();
    }

    fn is_reached(&self) -> bool {
        let state = self.state();
        state.followed == state.targets
    }

    fn demand(&self) -> Option<Demand> {
        let used = self.used();
        let state = self.state();
        if state.seen_at.elapsed() > DEMAND_AGE_MAX {
            return None;
        }
        let demand = state.view.demand.clone()?;
        Some(Demand { used, ..demand })
    }

    fn connection(&self, connection: Connection<'_>) {
        let name = self.name.as_str();
        match connection {
            Connection::Welcomed(welcome) => {
                tracing::info!(name, bytes = welcome.bytes, "the broker welcomed a program");
            }
            Connection::Targeted { epoch } => tracing::debug!(name, epoch, "a target came"),
            Connection::Lost(error) => {
                let error = error as &dyn std::error::Error;
                tracing::warn!(name, error, "a program has no broker");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> Proxy {
        let owner = Owner {
            process: kernel::process(std::process::id()),
            cgroup: None,
        };
        let view = View {
            floor: 10,
            ceiling: 1000,
            limit: 500,
            demand: Some(Demand {
                used: 0,
                wanted: 700,
                is_stalled: false,
                costs: Vec::new(),
            }),
            ..View::default()
        };
        Proxy::new("shop".to_owned(), "test", owner, view)
    }

    #[test]
    fn it_tells_the_view() {
        let proxy = proxy();
        let hello = proxy.hello();
        assert_eq!(hello.check(), Ok(()));
        assert_eq!(hello.pid, Some(std::process::id()));
        assert_eq!((hello.floor, hello.ceiling, hello.target), (10, 1000, 500));
        let demand = proxy.demand().unwrap();
        assert_eq!(demand.wanted, 700);
        assert!(demand.used > 0 && hello.used > 0);
    }

    #[test]
    fn a_target_is_followed_once() {
        let proxy = proxy();
        assert!(proxy.is_reached());
        assert_eq!(proxy.unfollowed(), None);
        proxy.set_target(300);
        assert_eq!(proxy.unfollowed(), Some((1, 300)));
        assert!(!proxy.is_reached());
        proxy.set_target(200);
        assert!(proxy.is_outdated(1));
        proxy.follow(1, 300);
        assert!(!proxy.is_reached(), "a newer target is open");
        proxy.follow(2, 200);
        assert!(proxy.is_reached());
        assert_eq!((proxy.target(), proxy.unfollowed()), (200, None));
        // The estimate of the overhead moves, but the promise does not.
        proxy.see(View {
            limit: 210,
            ..proxy.view()
        });
        assert_eq!(proxy.target(), 200);
    }
}
