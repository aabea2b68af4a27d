//! The open loop: arrivals at a rate, a bounded queue, and connections that serve
//! it. The task that makes arrivals never waits for a query.
//!
//! Tokio's timer has a grain of one millisecond, so an arrival can be sent up to
//! that much late. The lateness counts: open-loop latencies err on the long side,
//! by half a millisecond in the mean.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::options::{Gaps, Mode, Picker, QUEUE_ARRIVALS_MAX};
use super::{Client, Outcome, Run};

/// A request that is due.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    due: Instant,
    query: usize,
}

/// Starts one tenant's arrivals and its connections.
pub(super) fn spawn<C: Client>(
    tasks: &mut JoinSet<()>,
    run: &Arc<Run>,
    tenant: usize,
    clients: Vec<C>,
) {
    let (sender, receiver) = mpsc::channel(QUEUE_ARRIVALS_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    for client in clients {
        tasks.spawn(serve(
            Arc::clone(run),
            tenant,
            client,
            Arc::clone(&receiver),
        ));
    }
    tasks.spawn(arrive(Arc::clone(run), tenant, sender));
}

/// Puts arrivals into the queue when they are due.
async fn arrive(run: Arc<Run>, tenant: usize, queue: mpsc::Sender<Arrival>) {
    let Mode::Open { rate, arrivals, .. } = run.options.mode else {
        return;
    };
    let mut gaps = Gaps::new(arrivals, rate, run.options.seed, tenant);
    let mut picker = Picker::new(&run.options, run.queries, tenant);
    // Seconds from the start as one sum, so that rounding does not add up in the
    // clock's nanoseconds.
    let mut offset_s = 0.0;
    loop {
        offset_s += gaps.next_s();
        // A rate so low that the next arrival is beyond any clock is no arrival.
        let due = Duration::try_from_secs_f64(offset_s)
            .ok()
            .and_then(|offset| run.window.start.checked_add(offset))
            .filter(|due| *due < run.window.end);
        let Some(due) = due else {
            return;
        };
        // Late wake-ups do not move the due time: the delay counts as latency.
        sleep_until(due).await;
        let query = picker.pick();
        if queue.try_send(Arrival { due, query }).is_err() {
            run.record(tenant, query, due, Outcome::Refused);
        }
        let backlog = queue.max_capacity() - queue.capacity();
        if due >= run.window.measured_from {
            run.recorder.backlog(tenant, backlog as u64);
        }
    }
}

/// Serves the queue until it is closed and empty.
async fn serve<C: Client>(
    run: Arc<Run>,
    tenant: usize,
    mut client: C,
    queue: Arc<Mutex<mpsc::Receiver<Arrival>>>,
) {
    loop {
        // The lock is held while waiting; the other connections wait for it, and
        // whoever has it takes the next arrival.
        let arrival = queue.lock().await.recv().await;
        let Some(Arrival { due, query }) = arrival else {
            return;
        };
        run.request(&mut client, tenant, query, due).await;
    }
}
