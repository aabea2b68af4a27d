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
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aerostat_storage::{Applier, Progress, Wake};
use aerostat_types::CommitTs;

use crate::{CopyError, Host, PART_BYTES};

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

struct Shared {
    work: Mutex<Work>,
    /// The applier has come forward, or is at rest.
    changed: Condvar,
}

/// Where an applier is.
enum Place {
    Rests(Box<Applier>),
    /// A job has it.
    Works,
    /// Somebody goes on with it, or it was lost.
    Gone,
}

struct Work {
    place: Place,
    committed: CommitTs,
    /// There is more to do, or may be.
    has_word: bool,
    /// There is a job that has not begun.
    is_asked: bool,
    /// It is to rest as soon as it can.
    stops: bool,
    /// A catalogue that came with a commit, which the driver's host follows before anything else is done.
    defined: Option<Arc<[u8]>>,
    failed: Option<CopyError>,
    /// Bytes of the log that are done.
    done: u64,
}

/// Something to do for an applier. One that is not done is asked for again.
pub struct Job {
    shared: Arc<Shared>,
    /// Has the driver look.
    wake: Wake,
    has_begun: bool,
}

/// A job that has an applier.
struct Working {
    shared: Arc<Shared>,
    wake: Wake,
    /// `None` while it does something, and once it is at rest.
    applier: Option<Box<Applier>>,
    is_at_rest: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        // What was half done where somebody panicked ends with its driver.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the applier as soon as no job has it; `None` if it has gone.
    fn take(&self) -> (MutexGuard<'_, Work>, Option<Box<Applier>>) {
        let mut work = self.lock();
        work.stops = true;
        while matches!(work.place, Place::Works) {
            work = self
                .changed
                .wait(work)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::replace(&mut work.place, Place::Gone) {
            Place::Rests(applier) => (work, Some(applier)),
            Place::Works | Place::Gone => (work, None),
        }
    }
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
        work.follow(host);
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
        let job = Job {
            shared: Arc::clone(&self.shared),
            wake: host.wake(),
            has_begun: false,
        };
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

impl Work {
    /// Has the host follow a catalogue, if there is one.
    fn follow(&mut self, host: &mut dyn Host) {
        if let (Some(catalog), Place::Rests(applier)) = (&self.defined, &mut self.place) {
            follow(applier, catalog, host);
            self.defined = None;
        }
    }
}

impl Job {
    /// Does everything there is. The driver is woken if it has to do something for it.
    pub fn run(mut self) {
        let Some(mut working) = self.begin() else {
            return;
        };
        let mut has_more = false;
        while let Some((committed, mut applier)) = working.next(has_more) {
            let done = applier.apply(committed);
            working.applier = Some(applier);
            match done {
                Ok(Progress::CaughtUp) => has_more = false,
                Ok(Progress::More) => has_more = true,
                Ok(Progress::Defined(catalog)) => {
                    return working.end(|work| work.defined = Some(catalog));
                }
                Err(error) => return working.end(|work| work.failed = Some(error.into())),
            }
        }
    }

    /// Ends as one that panics in the middle.
    #[cfg(test)]
    pub(crate) fn panic(mut self) {
        let mut working = self.begin().unwrap();
        let _ = working.next(false).unwrap();
    }

    /// Takes the applier, if it is there and waits for nobody.
    fn begin(&mut self) -> Option<Working> {
        let mut work = self.shared.lock();
        self.has_begun = true;
        work.is_asked = false;
        if work.stops || work.defined.is_some() || work.failed.is_some() {
            return None;
        }
        match std::mem::replace(&mut work.place, Place::Works) {
            Place::Rests(applier) => Some(Working {
                shared: Arc::clone(&self.shared),
                wake: Arc::clone(&self.wake),
                applier: Some(applier),
                is_at_rest: false,
            }),
            elsewhere => {
                work.place = elsewhere;
                None
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.has_begun {
            self.shared.lock().is_asked = false;
        }
    }
}

impl Working {
    /// What is to be done now, and by whom; nothing if it has come to rest.
    fn next(&mut self, has_more: bool) -> Option<(CommitTs, Box<Applier>)> {
        let applier = self.applier.take()?;
        let mut work = self.shared.lock();
        work.done = applier.bytes_done();
        self.shared.changed.notify_all();
        if (work.has_word || has_more) && !work.stops {
            work.has_word = false;
            return Some((work.committed, applier));
        }
        work.has_word |= has_more;
        work.place = Place::Rests(applier);
        self.is_at_rest = true;
        None
    }

    /// Comes to rest with a word for the driver.
    fn end(&mut self, word: impl FnOnce(&mut Work)) {
        let mut work = self.shared.lock();
        work.place = match self.applier.take() {
            Some(applier) => {
                work.done = applier.bytes_done();
                Place::Rests(applier)
            }
            None => Place::Gone,
        };
        // There may be more behind it.
        work.has_word = true;
        word(&mut work);
        self.is_at_rest = true;
        drop(work);
        self.shared.changed.notify_all();
        (self.wake)();
    }
}

impl Drop for Working {
    /// One that has not come to rest has panicked: what it has left is not known.
    fn drop(&mut self) {
        if !self.is_at_rest {
            drop(self.applier.take());
            self.end(|work| work.failed = Some(CopyError::Panicked));
        }
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
