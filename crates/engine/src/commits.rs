//! Waiting for commits without a thread for each.
//!
//! A commit has its place in the order and its record in the log's queue when it comes here.
//! Where the log need not wait for the disk it is finished at once. Where it is written and
//! waits for the word of other nodes alone, whoever hears that tells its task. Else it joins
//! those of its tenant that wait: one thread finishes them one after the other, as long as
//! there are any. The first has the log write and sync for all that have come by then, so that
//! a thousand commits need one thread and a few syncs.
//!
//! Whoever waits for nodes that are not heard of is told so after a while, and the commit waits on without him: it may
//! come to pass, or another node may lead, and have it or not.

use std::{io, pin::pin, sync::Arc, time::Duration};

use aerostat_catalog::CopyState;
use aerostat_txn::{CommitError, Committing, LogFailure};
use aerostat_types::CommitTs;
use futures::future::{Either, select};
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinError};

use crate::ends::Ends;

/// How often it is looked whether the nodes are heard of that a commit waits for.
const LOOK: Duration = Duration::from_millis(250);

/// Where the small commits of a tenant wait.
#[derive(Default)]
pub(crate) struct Commits {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a thread finishes them.
    is_served: bool,
}

struct Waiting {
    committing: Committing,
    done: oneshot::Sender<Result<CommitTs, CommitError>>,
}

impl Commits {
    /// Finishes a commit of a database that other nodes may have, too. It is finished also if nobody waits for this any
    /// more.
    ///
    /// # Errors
    /// Those of [`Committing::finish`]; `InDoubt`, too, where this node is cut off from the others.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        committing: Committing,
        ends: &Ends,
        copy: Option<&CopyState>,
    ) -> Result<CommitTs, CommitError> {
        unless_cut_off(copy, self.finish(committing, ends)).await?
    }

    async fn finish(
        self: &Arc<Self>,
        committing: Committing,
        ends: &Ends,
    ) -> Result<CommitTs, CommitError> {
        let committing = match self.told(committing, ends).await {
            Ok(done) => return done,
            Err(committing) => committing,
        };
        let (done, result) = oneshot::channel();
        let waiting = Waiting { committing, done };
        if waiting.committing.is_small() {
            self.join(waiting, ends);
        } else {
            // It has rows to stamp, for which the small ones need not wait.
            ends.run(move || waiting.finish());
        }
        match result.await {
            Ok(done) => done,
            // The thread died; dropping a commit has finished it, how nobody knows.
            Err(_) => Err(CommitError::Cancelled),
        }
    }

    /// Finishes a commit for which nobody has to do anything here; else gives it back.
    async fn told(
        self: &Arc<Self>,
        mut committing: Committing,
        ends: &Ends,
    ) -> Result<Result<CommitTs, CommitError>, Committing> {
        loop {
            committing = match committing.try_finish() {
                Ok(done) => return Ok(done),
                Err(committing) => committing,
            };
            let (said, heard) = oneshot::channel();
            let call = move || {
                // Whoever asked may be gone.
                let _ = said.send(());
            };
            if !committing.is_small() || committing.when_known(Box::new(call)).is_some() {
                return Err(committing);
            }
            let mut kept = Kept {
                committing: Some(committing),
                commits: self,
                ends,
            };
            // An error says that the log has gone, which is found out by looking.
            let _ = heard.await;
            committing = match kept.committing.take() {
                Some(committing) => committing,
                None => return Ok(Err(CommitError::Cancelled)),
            };
        }
    }

    fn join(self: &Arc<Self>, waiting: Waiting, ends: &Ends) {
        let mut queue = self.queue.lock();
        queue.waiting.push(waiting);
        if !std::mem::replace(&mut queue.is_served, true) {
            let commits = Arc::clone(self);
            ends.run(move || commits.serve());
        }
    }

    /// Finishes commits until there are none.
    fn serve(&self) {
        let server = Server(self);
        while let Some(waiting) = self.take() {
            waiting.into_iter().for_each(Waiting::finish);
        }
        std::mem::forget(server);
    }

    fn take(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            queue.is_served = false;
            return None;
        }
        Some(std::mem::take(&mut queue.waiting))
    }
}

/// What commits the statements of a session, wherever they run.
#[derive(Clone)]
pub(crate) struct Committer {
    pub(crate) ends: Ends,
    /// Of a database that other nodes may have, too.
    pub(crate) copy: Option<Arc<CopyState>>,
}

impl Committer {
    /// Has something that commits within it done by a thread, and waits for that: not for as long as the nodes are not
    /// heard of that have the database.
    ///
    /// # Errors
    /// `InDoubt` where this node is cut off from the others.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Result<T, JoinError>, CommitError> {
        unless_cut_off(self.copy.as_deref(), self.ends.run(work)).await
    }
}

impl Waiting {
    fn finish(self) {
        // Whoever asked may be gone.
        let _ = self.done.send(self.committing.finish());
    }
}

/// Waits for a commit as long as it may come to its end.
async fn unless_cut_off<T>(
    copy: Option<&CopyState>,
    commit: impl Future<Output = T>,
) -> Result<T, CommitError> {
    let Some(copy) = copy else {
        return Ok(commit.await);
    };
    // The commit is always polled first: what was not begun is waited for where it is dropped.
    match select(pin!(commit), pin!(cut_off(copy))).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right(_) => Err(CommitError::InDoubt(LogFailure {
            doing: "hear of the nodes that have copies".to_owned(),
            source: Arc::new(io::ErrorKind::TimedOut.into()),
        })),
    }
}

/// Waits until the others that have a database are not heard of.
async fn cut_off(copy: &CopyState) {
    loop {
        tokio::time::sleep(LOOK).await;
        if copy.is_cut_off() {
            return;
        }
    }
}

/// A commit whose task waits for others' word. Should the task end, a thread finishes it.
struct Kept<'a> {
    committing: Option<Committing>,
    commits: &'a Arc<Commits>,
    ends: &'a Ends,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(committing) = self.committing.take() {
            let (done, _) = oneshot::channel();
            self.commits.join(Waiting { committing, done }, self.ends);
        }
    }
}

/// Should the thread die, the next commit gets another.
struct Server<'a>(&'a Commits);

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().is_served = false;
    }
}
