//! The I/O threads of a node: one a core, each with its own connections. They accept, parse, run
//! short statements, encode, and serve HTTP.
//!
//! Others run queries (`aerostat_embedded`), because one that computes for a second would hold
//! up every connection that shares its thread. The caller's thread is the first of the I/O threads.
//!
//! Where both kinds want the same core, the system lets an I/O thread in first (`prefer_latency`): it has work
//! for some microseconds, and its client waits.

use std::future;
use std::thread;

use aerostat_embedded::release_heap_if_asked;
use aerostat_schedule::prefer_latency;
use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Stack of the threads that I/O threads give blocking work to: tokio's own default. Nothing
/// recursive runs there.
const IO_STACK_BYTES: usize = 2 << 20;

/// Runtimes that do not wait for their work when they are dropped.
pub(crate) struct Threads {
    caller: Runtime,
    /// All I/O threads, the caller's first.
    io: Vec<Handle>,
}

impl Threads {
    /// Starts as many.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let caller = io_runtime()?;
        be_let_in_first();
        let mut io = vec![caller.handle().clone()];
        for _ in 1..count {
            let runtime = io_runtime()?;
            io.push(runtime.handle().clone());
            thread::Builder::new()
                .name("aerostat-io".to_owned())
                .spawn(move || {
                    be_let_in_first();
                    runtime.block_on(future::pending::<()>())
                })
                .context("cannot start an I/O thread")?;
        }
        Ok(Self { caller, io })
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

/// One thread with what arrives for it: tasks that wander between threads cost a wake-up each.
/// Of this thread. One that is not serves as well, if later.
fn be_let_in_first() {
    if let Err(error) = prefer_latency() {
        tracing::warn!(%error, "an I/O thread waits for its core as those that run queries do");
    }
}

fn io_runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .thread_stack_size(IO_STACK_BYTES)
        .thread_name("aerostat-io-blocking")
        .on_thread_park(release_heap_if_asked)
        .enable_all()
        .build()
        .context("cannot start an I/O thread")
}
