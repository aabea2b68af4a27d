//! The threads of a node.
//!
//! ```text
//!   I/O threads, one a core, each with its own connections     CPU runtime
//!   accept, parse, short statements, encode, HTTP              plan and run queries
//! ```
//!
//! Two kinds, because a query that computes for a second would hold up every connection that
//! shares its thread. The caller's thread is the first of the I/O threads.
//!
//! The threads that run queries can be given a core each (ADR 31); else all go where the
//! scheduler puts them.

use std::future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use aerostat_calibrate::cores;
use aerostat_query::QUERY_STACK_BYTES;
use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Stack of the threads that I/O threads give blocking work to: tokio's own default. Nothing
/// recursive runs there.
const IO_STACK_BYTES: usize = 2 << 20;

/// Whether the threads that run queries stay on a core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinning {
    Off,
    On,
}

/// Runtimes that do not wait for their work when they are dropped.
pub(crate) struct Threads {
    caller: Runtime,
    /// All I/O threads, the caller's first.
    io: Vec<Handle>,
    cpu: Runtime,
}

impl Threads {
    /// Starts as many of each kind.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn start(count: usize, pinning: Pinning) -> Result<Self> {
        let cpu = query_runtime(count, pinning).context("cannot start the threads of queries")?;
        let caller = io_runtime()?;
        let mut io = vec![caller.handle().clone()];
        for _ in 1..count {
            let runtime = io_runtime()?;
            io.push(runtime.handle().clone());
            thread::Builder::new()
                .name("aerostat-io".to_owned())
                .spawn(move || runtime.block_on(future::pending::<()>()))
                .context("cannot start an I/O thread")?;
        }
        Ok(Self { caller, io, cpu })
    }

    /// Runs the node on the caller's thread.
    pub(crate) fn block_on<T>(&self, node: impl Future<Output = T>) -> T {
        self.caller.block_on(node)
    }

    /// Where connections are served.
    pub(crate) fn io(&self) -> &[Handle] {
        &self.io
    }

    /// Where queries run.
    pub(crate) fn cpu(&self) -> &Handle {
        self.cpu.handle()
    }

    /// Ends without waiting: queries that ignore their cancellation must not hold the process.
    /// What the other I/O threads have ends with it.
    pub(crate) fn shut_down(self) {
        self.cpu.shutdown_background();
        self.caller.shutdown_background();
    }
}

/// As many threads as queries may have, and those for what blocks.
fn query_runtime(count: usize, pinning: Pinning) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(count)
        .thread_stack_size(QUERY_STACK_BYTES)
        .thread_name("aerostat-cpu")
        .enable_all();
    if pinning == Pinning::Off {
        return builder.build();
    }
    let cores = cores::allowed();
    // The workers are the first to start. What blocks gets its threads later, some from a
    // worker, whose one core they would inherit.
    let place = AtomicUsize::new(0);
    let (placed, all_placed) = mpsc::channel();
    builder.on_thread_start(move || {
        let place = place.fetch_add(1, Ordering::Relaxed);
        let result = if place < count {
            cores::pin(&[cores[place % cores.len()]])
        } else {
            cores::pin(&cores)
        };
        if let Err(error) = result {
            tracing::warn!(%error, "a thread of queries cannot be pinned");
        }
        if place < count {
            let _ = placed.send(());
        }
    });
    let runtime = builder.build()?;
    all_placed.iter().take(count).for_each(drop);
    Ok(runtime)
}

/// One thread with what arrives for it: tasks that wander between threads cost a wake-up each.
fn io_runtime() -> Result<Runtime> {
    Builder::new_current_thread()
        .thread_stack_size(IO_STACK_BYTES)
        .thread_name("aerostat-io-blocking")
        .enable_all()
        .build()
        .context("cannot start an I/O thread")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Barrier};

    use super::*;

    /// The cores of each thread, while all of them are busy, and those of a thread for what blocks that one of
    /// them has asked for.
    fn cores_of(count: usize, pinning: Pinning) -> (BTreeSet<Vec<usize>>, Vec<usize>) {
        let runtime = query_runtime(count, pinning).unwrap();
        let together = Arc::new(Barrier::new(count));
        let workers: Vec<_> = (0..count)
            .map(|_| {
                let together = Arc::clone(&together);
                runtime.spawn(async move {
                    together.wait();
                    cores::allowed()
                })
            })
            .collect();
        runtime.block_on(async {
            let mut found = BTreeSet::new();
            for worker in workers {
                found.insert(worker.await.unwrap());
            }
            let from_worker =
                tokio::spawn(async { tokio::task::spawn_blocking(cores::allowed).await.unwrap() });
            (found, from_worker.await.unwrap())
        })
    }

    #[test]
    fn pinned_threads_have_a_core_each() {
        let cores = cores::allowed();
        let each: BTreeSet<Vec<usize>> = cores.iter().map(|core| vec![*core]).collect();
        for count in [cores.len(), cores.len() + 1] {
            let (workers, blocking) = cores_of(count, Pinning::On);
            assert_eq!(workers, each, "{count} threads");
            assert_eq!(blocking, cores, "what blocks may use all of them");
        }
    }

    #[test]
    fn others_are_the_schedulers() {
        let cores = cores::allowed();
        let (workers, blocking) = cores_of(cores.len(), Pinning::Off);
        assert_eq!(workers, BTreeSet::from([cores.clone()]));
        assert_eq!(blocking, cores);
    }
}
