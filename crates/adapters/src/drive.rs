//! The task that talks to a program.
//!
//! ```text
//!        ┌─ target told ─► approach ─► followed ─┐
//!  look ─┤                                       ├─► wait a second or for a target ─► look
//!        └─ drifted off the target ─► approach ──┘
//!  any failure ─► pause, twice as long ─► connect again, unless the process has gone
//! ```

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_balloon::participant::Participant;
use aerostat_broker::ledger::Owner;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    Ended, Running,
    error::AdapterError,
    options::Common,
    proxy::{Proxy, View},
};

/// How often a program is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The pauses between two attempts to reach a program.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How far a program may drift from its target before it is told again: a 32nd and 16 MiB. The
/// overhead of MariaDB was seen to waver by 10 MiB.
const DRIFT_SHARE: u64 = 32;
const DRIFT_BYTES: u64 = 16 << 20;

/// A program that can be asked and told.
pub(crate) trait Program: Send + 'static {
    /// The kind, for people.
    const KIND: &'static str;

    /// The least time between two attempts to bring it back to a target that it has drifted from.
    const CORRECT: Duration = Duration::from_secs(10);

    /// Whose memory it is.
    fn owner(&self) -> Owner;

    /// Connects again after a failure.
    fn connect(&mut self) -> impl Future<Output = Result<(), AdapterError>> + Send;

    /// Looks at its size and its wishes. `account` is the kernel's count of it.
    fn look(&mut self, account: u64) -> impl Future<Output = Result<View, AdapterError>> + Send;

    /// Brings it to a target as far as that is possible, and returns the bytes that it allows itself then.
    fn approach(&mut self, aim: Aim<'_>) -> impl Future<Output = Result<u64, AdapterError>> + Send;
}

/// A target that a program is brought to.
#[derive(Clone, Copy)]
pub(crate) struct Aim<'a> {
    /// Bytes as the kernel counts them.
    pub(crate) target: u64,
    number: u64,
    proxy: &'a Proxy,
    stopping: &'a CancellationToken,
}

impl Aim<'_> {
    /// The kernel's count now.
    pub(crate) fn account(&self) -> u64 {
        self.proxy.account().unwrap_or(0)
    }

    /// Whether this target is of no use any more: another one has come, the process has gone, or the
    /// adapter is told to stop.
    pub(crate) fn is_outdated(&self) -> bool {
        self.proxy.is_outdated(self.number)
            || self.proxy.account().is_none()
            || self.stopping.is_cancelled()
    }

    /// Tells the broker how much the program allows itself on its way.
    pub(crate) fn allow(&self, bytes: u64) {
        self.proxy.allow(bytes.max(self.target));
    }

    /// Waits until the kernel counts no more than the target, for a time at most; whether it does.
    pub(crate) async fn settled(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            if self.account() <= self.target {
                return true;
            }
            if Instant::now() >= until || self.is_outdated() {
                return false;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Begins to talk to a program that is connected.
pub(crate) async fn start<P: Program>(
    mut program: P,
    common: Common,
    stopping: CancellationToken,
) -> Result<Running, AdapterError> {
    let owner = program.owner();
    let proxy = Proxy::new(common.name, P::KIND, owner, View::default());
    let account = proxy.account().ok_or(AdapterError::NoProcess)?;
    proxy.see(program.look(account).await?);
    let proxy = Arc::new(proxy);
    let participant: Arc<dyn Participant> = Arc::clone(&proxy) as _;
    let ended = tokio::spawn(drive(program, proxy, stopping));
    Ok(Running { participant, ended })
}

async fn drive<P: Program>(
    mut program: P,
    proxy: Arc<Proxy>,
    stopping: CancellationToken,
) -> Ended {
    let mut pause = PAUSE_MIN;
    let mut corrected_at = Instant::now();
    let mut is_lost = false;
    loop {
        if proxy.account().is_none() {
            return Ended::Gone;
        }
        // No part of this is interrupted: a change of size that was begun is finished.
        let done = async {
            if is_lost {
                program.connect().await?;
            }
            step(&mut program, &proxy, &mut corrected_at, &stopping).await
        };
        let wait = match done.await {
            Ok(()) => {
                if is_lost {
                    tracing::info!(kind = P::KIND, "the program answers again");
                }
                (is_lost, pause) = (false, PAUSE_MIN);
                LOOK
            }
            Err(error) => {
                if !is_lost {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(kind = P::KIND, error, "the program does not follow");
                }
                let wait = pause;
                (is_lost, pause) = (true, (pause * 2).min(PAUSE_MAX));
                wait
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = proxy.woken(), if !is_lost => {}
            () = stopping.cancelled() => return Ended::Stopped,
        }
    }
}

/// Follows the newest target, or looks.
async fn step<P: Program>(
    program: &mut P,
    proxy: &Proxy,
    corrected_at: &mut Instant,
    stopping: &CancellationToken,
) -> Result<(), AdapterError> {
    while let Some((number, target)) = proxy.unfollowed() {
        let aim = Aim {
            target,
            number,
            proxy,
            stopping,
        };
        let allowed = approach(program, aim).await?;
        proxy.follow(number, allowed);
        *corrected_at = Instant::now();
    }
    // Only now, since the program has another size than before.
    let Some(account) = proxy.account() else {
        return Ok(());
    };
    let view = program.look(account).await?;
    let has_drifted = proxy
        .told()
        .is_some_and(|(_, told)| has_drifted(&view, account, told));
    proxy.see(view);
    if has_drifted && corrected_at.elapsed() >= P::CORRECT {
        *corrected_at = Instant::now();
        if let Some((number, target)) = proxy.told() {
            let aim = Aim {
                target,
                number,
                proxy,
                stopping,
            };
            let allowed = approach(program, aim).await?;
            proxy.allow(allowed);
        }
    }
    Ok(())
}

async fn approach<P: Program>(program: &mut P, aim: Aim<'_>) -> Result<u64, AdapterError> {
    let view = aim.proxy.view();
    if view.is_fixed {
        // No target changes its size.
        return Ok(view.limit);
    }
    program.approach(aim).await
}

/// Whether a program has more than it was told, or allows itself less than it might.
fn has_drifted(view: &View, account: u64, told: u64) -> bool {
    let slack = told / DRIFT_SHARE + DRIFT_BYTES;
    let may = told.min(view.ceiling);
    account > told.saturating_add(slack) || view.limit.saturating_add(slack) < may
}

#[cfg(test)]
mod tests {
    use aerostat_broker::{kernel, ledger::Process};

    use super::*;

    /// A program that fails as often as it is told to.
    struct Flaky {
        process: Process,
        failures: u32,
        connections: u32,
        size: u64,
    }

    impl Program for Flaky {
        const KIND: &'static str = "flaky";

        fn owner(&self) -> Owner {
            Owner {
                process: Some(self.process),
                cgroup: None,
            }
        }

        async fn connect(&mut self) -> Result<(), AdapterError> {
            self.connections += 1;
            Ok(())
        }

        async fn look(&mut self, _account: u64) -> Result<View, AdapterError> {
            Ok(View {
                ceiling: 1 << 40,
                limit: self.size,
                ..View::default()
            })
        }

        async fn approach(&mut self, aim: Aim<'_>) -> Result<u64, AdapterError> {
            if self.failures > 0 {
                self.failures -= 1;
                return Err(AdapterError::Silent);
            }
            assert!(self.connections > 0, "it was connected again first");
            self.size = aim.target;
            Ok(aim.target)
        }
    }

    #[tokio::test]
    async fn a_target_is_tried_again_until_the_program_has_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let program = Flaky {
            process: kernel::process(child.id()).unwrap(),
            failures: 3,
            connections: 0,
            size: 500 << 20,
        };
        let common = Common {
            name: "flaky".to_owned(),
            floor: None,
            ceiling: None,
        };
        let running = start(program, common, CancellationToken::new()).await;
        let Running { participant, ended } = running.unwrap();
        assert_eq!(participant.target(), 500 << 20);
        participant.set_target(300 << 20);
        while !participant.is_reached() {
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(participant.target(), 300 << 20);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ended.await.unwrap(), Ended::Gone);
    }

    #[test]
    fn small_differences_are_no_drift() {
        const MIB: u64 = 1 << 20;
        let view = |limit: u64| View {
            ceiling: 1000 * MIB,
            limit: limit * MIB,
            ..View::default()
        };
        assert!(!has_drifted(&view(320), 330 * MIB, 320 * MIB));
        assert!(has_drifted(&view(320), 350 * MIB, 320 * MIB));
        assert!(has_drifted(&view(280), 200 * MIB, 320 * MIB));
        assert!(!has_drifted(&view(300), 200 * MIB, 320 * MIB));
        assert!(!has_drifted(&view(1000), 200 * MIB, 2000 * MIB));
    }
}
