//! The query threads. Each can be pinned to a core (ADR 31); otherwise the scheduler places them.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use aerostat_calibrate::cores;
use aerostat_engine::QUERY_STACK_BYTES;
use aerostat_memory::trim_heap_if_asked;
use tokio::runtime::{Builder, Runtime};

/// Whether the threads that run queries stay on a core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// They go where the scheduler puts them.
    Off,
    /// They do.
    On,
}

/// Threads that end transactions at once, at most. The small commits of a tenant's blocks need one; each planned statement
/// outside of a block has one, and may wait for copies on other nodes, so there are more than such statements
/// ([`aerostat_engine::NODE_STATEMENTS_MAX`]).
const ENDS_MAX: usize = 256;

/// Threads for what ends transactions and for nothing else; none as long as nobody needs one.
pub(crate) fn ends_runtime() -> io::Result<Runtime> {
    let cores = cores::allowed();
    Builder::new_current_thread()
        .max_blocking_threads(ENDS_MAX)
        .thread_stack_size(QUERY_STACK_BYTES)
        .thread_name("aerostat-end")
        // Some start when another thread asks for them, which may be pinned.
        .on_thread_start(move || {
            let _ = cores::pin(&cores);
        })
        .build()
}

/// As many threads as queries may have, and those for what blocks.
pub(crate) fn query_runtime(count: usize, pinning: Pinning) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(count)
        .thread_stack_size(QUERY_STACK_BYTES)
        .thread_name("aerostat-cpu")
        .on_thread_park(trim_heap_if_asked)
        .enable_all();
    let cores = cores::allowed();
    if pinning == Pinning::Off {
        // Some start when another thread asks for them, which may be pinned.
        builder.on_thread_start(move || {
            let _ = cores::pin(&cores);
        });
        return builder.build();
    }
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
