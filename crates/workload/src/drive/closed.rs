//! The closed loop: users who wait for their answers.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::options::{Mode, Picker};
use super::{Client, ERROR_PAUSE, Run};

/// Starts one tenant's users, one per client.
pub(super) fn spawn<C: Client>(
    tasks: &mut JoinSet<()>,
    run: &Arc<Run>,
    tenant: usize,
    clients: Vec<C>,
) {
    let users = clients.len();
    for (user, client) in clients.into_iter().enumerate() {
        let picker = Picker::new(&run.options, run.queries, tenant * users + user);
        tasks.spawn(user_loop(Arc::clone(run), tenant, client, picker));
    }
}

async fn user_loop<C: Client>(run: Arc<Run>, tenant: usize, mut client: C, mut picker: Picker) {
    let Mode::Closed { think_time, .. } = run.options.mode else {
        return;
    };
    loop {
        let now = Instant::now();
        if now >= run.window.end {
            return;
        }
        let failed = run
            .request(&mut client, tenant, picker.pick(), now)
            .await
            .is_failure();
        let pause = if failed {
            think_time.max(ERROR_PAUSE)
        } else {
            think_time
        };
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}
