//! A copy does what its leader has committed beside its driver: in a job on somebody else's thread, as long as there
//! is something to do.
//!
//! ```text
//!  driver ── there is more ──► applier at rest ──► job: parts of the log, until nothing is left ──► at rest
//!         ◄── a catalogue to follow, or an error ──────────────┘
//! ```
//!
//! So a load's statement, or an index that is built, keeps nobody from an answer; small commits are done in the
//! driver's turn. A copy that is far behind takes large parts of the log later, and so slows its leader down: what it
//! has received and not done it has to do before it can lead.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use aerostat_storage::{Applier, Progress};
use aerostat_types::CommitTs;

use crate::{
    CopyError, Host, PART_BYTES,
    job::{Job, Place, Shared, Work},
};

/// So much is done at once in the driver's turn, if it is as soon done as it looks: a thread would take longer to
/// come to it.
const BRIEF_BYTES_MAX: u64 = 16 << 10;

/// A copy that has received and not done more than this is far behind.
const BEHIND_BYTES_MAX: u64 = 64 << 20;

/// How long one that is waits before it takes another part of the log.
const BEHIND_WAIT: Duration = Duration::from_millis(10);

/// A copy's applier.
pub(crate) struct Applying {
    shared: Arc<Shared>,
    /// Bytes of the log that were received.
    received: u64,
}

impl Applying {
    pub(crate) fn new(applier: Applier) -> Applying {
        let work = Work {
            done: applier.bytes_done(),
            place: Place::Rests(Box::new(applier)),
            committed: CommitTs(0),
            has_word: true,
            is_asked: false,
            stops: false,
            defined: None,
            failed: None,
        };
        Applying {
            received: work.done,
            shared: Arc::new(Shared {
                work: Mutex::new(work),
                changed: Condvar::new(),
            }),
        }
    }

    /// So much more of the log is here.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.received += bytes as u64;
        self.shared.lock().has_word = true;
    }

    /// Looks at the applier, if no job has it.
    #[cfg(test)]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Applier) -> T) -> Option<T> {
        match &self.shared.lock().place {
            Place::Rests(applier) => Some(look(applier)),
            Place::Works | Place::Gone => None,
        }
    }

    /// Does what is here and committed, or has it done. Whether there may be more to do in a turn of the driver's.
    ///
    /// # Errors
    /// What has kept it from doing it.
    pub(crate) fn go_on(
        &mut self,
        committed: CommitTs,
        host: &mut dyn Host,
    ) -> Result<bool, CopyError> {
        let mut work = self.shared.lock();
        if let Some(failed) = work.failed.take() {
            return Err(failed);
        }
        work.has_word |= committed > work.committed;
        work.committed = committed.max(work.committed);
        follow_defined(&mut work, host);
        let asks = work.has_word && !work.is_asked;
        match &mut work.place {
            Place::Rests(applier) if asks => {
                if self.received.saturating_sub(applier.bytes_done()) <= BRIEF_BYTES_MAX
                    && apply_brief(applier, committed)?
                {
                    work.has_word = false;
                    return Ok(false);
                }
                work.is_asked = true;
            }
            Place::Rests(_) | Place::Works | Place::Gone => return Ok(false),
        }
        drop(work);
        let job = Job::new(&self.shared, host.wake());
        match host.apply(job) {
            None => Ok(false),
            Some(_) => self.part(committed, host),
        }
    }

    /// Does a part of it in the driver's turn; whether there may be more.
    fn part(&self, committed: CommitTs, host: &mut dyn Host) -> Result<bool, CopyError> {
        let mut work = self.shared.lock();
        let Place::Rests(applier) = &mut work.place else {
            return Ok(false);
        };
        let has_more = apply(applier, committed, host)?;
        work.has_word = has_more;
        Ok(has_more)
    }

    /// Whether something is done, or is to be.
    pub(crate) fn is_busy(&self) -> bool {
        let work = self.shared.lock();
        work.has_word || work.is_asked || !matches!(work.place, Place::Rests(_))
    }

    /// Whether it is to do some of what it has before it takes more, while a job does that.
    pub(crate) fn is_far_behind(&self) -> bool {
        self.is_behind(&self.shared.lock())
    }

    fn is_behind(&self, work: &Work) -> bool {
        matches!(work.place, Place::Works)
            && self.received.saturating_sub(work.done) > BEHIND_BYTES_MAX
    }

    /// Waits a little while it is far behind, as long as so many bytes are worth.
    pub(crate) fn wait(&self, bytes: usize) {
        let parts = bytes as f64 / PART_BYTES as f64;
        let at_most = BEHIND_WAIT.mul_f64(parts.min(1.0));
        let work = self.shared.lock();
        let is_behind = |work: &mut Work| self.is_behind(work);
        // Whoever has waited for nothing looks again before it takes more.
        drop(
            self.shared
                .changed
                .wait_timeout_while(work, at_most, is_behind),
        );
    }

    /// Gives the applier, at rest, to whoever goes on with it.
    ///
    /// # Errors
    /// What has kept it from doing what it was to do.
    pub(crate) fn rest(self, host: &mut dyn Host) -> Result<Box<Applier>, CopyError> {
        let (mut work, applier) = self.shared.take();
        if let Some(failed) = work.failed.take() {
            return Err(failed);
        }
        let mut applier = applier.ok_or(CopyError::Panicked)?;
        if let Some(catalog) = work.defined.take() {
            follow(&mut applier, &catalog, host);
        }
        Ok(applier)
    }
}

impl Drop for Applying {
    /// Nobody has the tenant for the applier's sake when this returns.
    fn drop(&mut self) {
        let (work, applier) = self.shared.take();
        drop(work);
        drop(applier);
    }
}

/// Has the host follow a catalogue, if there is one.
fn follow_defined(work: &mut Work, host: &mut dyn Host) {
    if let (Some(catalog), Place::Rests(applier)) = (&work.defined, &mut work.place) {
        follow(applier, catalog, host);
        work.defined = None;
    }
}

fn follow(applier: &mut Applier, catalog: &Arc<[u8]>, host: &mut dyn Host) {
    host.defined(catalog, applier.tables());
    applier.defined();
}

/// Does what takes no longer than it looks; whether that is all there is.
fn apply_brief(applier: &mut Applier, committed: CommitTs) -> Result<bool, CopyError> {
    loop {
        let before = applier.bytes_done();
        match applier.apply_brief(committed)? {
            Progress::CaughtUp => return Ok(true),
            Progress::More if applier.bytes_done() > before => {}
            Progress::More | Progress::Defined(_) => return Ok(false),
        }
    }
}

/// Does a part of what is committed; whether there may be more.
pub(crate) fn apply(
    applier: &mut Applier,
    committed: CommitTs,
    host: &mut dyn Host,
) -> Result<bool, CopyError> {
    loop {
        match applier.apply(committed)? {
            Progress::CaughtUp => return Ok(false),
            Progress::More => return Ok(true),
            Progress::Defined(catalog) => follow(applier, &catalog, host),
        }
    }
}
