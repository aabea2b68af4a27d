//! The I/O threads of a node: one per core, each with its own connections. They accept, parse,
//! run short statements, encode, and serve HTTP.
//!
//! Queries run on other threads (`aerostat_embedded`), because one that computes for a second
//! would hold up every connection that shares its thread. The caller's thread is the first of the
//! I/O threads.
//!
//! If both kinds want the same core, the operating system runs an I/O thread first
//! (`prefer_latency`): it has work for some microseconds, and its client waits. With
//! `io-precedence` I/O threads also get a greater share, and are pinned to a core each: otherwise
//! the system may have two of them wait for each other beside a core that computes.

use std::future;
use std::thread;

use aerostat_calibrate::cores;
use aerostat_embedded::release_heap_if_asked;
use aerostat_schedule::{prefer_latency, take_precedence};
use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Stack of the threads that I/O threads give blocking work to: tokio's own default. Nothing
/// recursive runs there.
const IO_STACK_BYTES: usize = 2 << 20;

/// Runtimes that do not wait for their work when they are dropped.
pub(crate) struct Threads {
    caller: Runtime,
    /// The core that the caller's thread is to keep to.
    callers_core: Option<usize>,
    /// All I/O threads, the caller's first.
    io: Vec<Handle>,
}

impl Threads {
    /// Starts as many, which go before other threads or are as others.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(count: usize, precedence: bool) -> Result<Self> {
        let cores = cores::allowed();
        let core_of = |place: usize| cores[place % cores.len()];
        let caller = io_runtime(&cores)?;
        let callers_core = be_let_in_first(precedence).then(|| core_of(0));
        let mut io = vec![caller.handle().clone()];
        for place in 1..count {
            let runtime = io_runtime(&cores)?;
            io.push(runtime.handle().clone());
            let core = core_of(place);
            thread::Builder::new()
                .name("aerostat-io".to_owned())
                .spawn(move || {
                    if be_let_in_first(precedence) {
                        keep_to(core);
                    }
                    runtime.block_on(future::pending::<()>())
                })
                .context("cannot start an I/O thread")?;
        }
        Ok(Self {
            caller,
            callers_core,
            io,
        })
    }

    /// From now on the caller's thread serves, and starts no threads that do other work.
    pub(crate) fn caller_serves(&self) {
        if let Some(core) = self.callers_core {
            keep_to(core);
        }
    }

    /// Runs the node on the caller's thread.
    pub(crate) fn block_on<T>(&self, node: impl Future<Output = T>) -> T {
        self.caller.block_on(node)
    }

    /// Where connections are served.
    pub(crate) fn io(&self) -> &[Handle] {
        &self.io
    }

    /// Ends without waiting: work that ignores its cancellation must not hold the process.
    /// What the other I/O threads have ends with it.
    pub(crate) fn shut_down(self) {
        self.caller.shutdown_background();
    }
}

/// Has the system let this thread in before those that run queries. One that is not serves as well, if later.
/// Tells whether it has the precedence: without, it would wait on its core for whom else the system puts there.
fn be_let_in_first(precedence: bool) -> bool {
    if precedence {
        match take_precedence() {
            Ok(()) => return true,
            Err(error) => tracing::warn!(
                %error,
                "io-precedence: the process may not; it needs CAP_SYS_NICE or LimitNICE=-10"
            ),
        }
    }
    if let Err(error) = prefer_latency() {
        tracing::warn!(%error, "an I/O thread waits for its core as those that run queries do");
    }
    false
}

fn keep_to(core: usize) {
    if let Err(error) = cores::pin(&[core]) {
        tracing::warn!(%error, core, "an I/O thread cannot be pinned");
    }
}

/// One thread with what arrives for it: tasks that wander between threads cost a wake-up each. Threads for what
/// blocks may run on all cores.
fn io_runtime(cores: &[usize]) -> Result<Runtime> {
    let cores = cores.to_vec();
    Builder::new_current_thread()
        .thread_stack_size(IO_STACK_BYTES)
        .thread_name("aerostat-io-blocking")
        .on_thread_start(move || {
            let _ = cores::pin(&cores);
        })
        .on_thread_park(release_heap_if_asked)
        .enable_all()
        .build()
        .context("cannot start an I/O thread")
}
