//! Changes are read from the slot and made at the target, transaction by transaction.
//!
//! ```text
//! source   Begin … Commit  Begin … Commit  Begin … Commit        keepalive
//! target   └───────────── one transaction, as of its end ───┘    └ as of here, every ten seconds ┘
//! source   ◄ confirmed: what the target has committed
//! ```
//!
//! A transaction that the source sends again begins its commit before the target's position, and is passed over.

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::types::Oid;

use crate::{
    Event, Progress,
    apply::Applier,
    compared::{self, Compared},
    counters::Counters,
    error::ImportError,
    following::Following,
    lsn::Lsn,
    pgoutput::Message,
    slot, watch,
    wire::{self, Stream},
};

/// How much of the source one transaction of the target takes, if there is more to read at once.
const BATCH_CHANGES_MAX: u64 = 5_000;
const BATCH_TIME_MAX: Duration = Duration::from_millis(500);

/// How often the target writes down that nothing came, so that the source can forget its log.
const IDLE_EVERY: Duration = Duration::from_secs(10);

/// How often the source is asked for tables that are new.
const WATCH_EVERY: Duration = Duration::from_secs(60);

/// How often progress is told.
const TICK_EVERY: Duration = Duration::from_secs(1);

/// While a run that ends has caught up but for a keepalive.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Source transactions within the target's transaction.
struct Batch {
    since: Instant,
    transactions: u64,
    end: Lsn,
    time_us: i64,
}

struct Follower<'a> {
    of: &'a mut Following<'a>,
    stream: Stream,
    applier: Applier<'a>,
    progress: &'a mut dyn Progress,
    counters: &'a mut Counters,
    /// Where the target is.
    lsn: Lsn,
    /// Everything before here was received, and is in `lsn` or the batch.
    received: Lsn,
    /// Within a transaction of the source; `false` if it is passed over.
    within: Option<bool>,
    batch: Option<Batch>,
    ignored: HashSet<Oid>,
    told: HashSet<String>,
    /// When the source's clock was so that the target had everything.
    fresh_us: i64,
    idle_written: Instant,
    watched: Instant,
}

/// Follows until `until`, or until an error.
///
/// # Errors
/// What the source, the target or a change gives; the target is as of the end of a transaction.
pub(crate) async fn follow<'a>(
    following: &'a mut Following<'a>,
    stream: Stream,
    progress: &'a mut dyn Progress,
    counters: &'a mut Counters,
) -> Result<(), ImportError> {
    let (record, target) = (following.record, following.target);
    let mut follower = Follower {
        applier: Applier::new(target, record),
        stream,
        progress,
        counters,
        lsn: record.lsn,
        received: record.lsn,
        within: None,
        batch: None,
        ignored: HashSet::new(),
        told: HashSet::new(),
        fresh_us: 0,
        idle_written: Instant::now(),
        watched: Instant::now(),
        of: following,
    };
    follower.stream.confirm(record.lsn);
    follower.watch().await?;
    let result = follower.run().await;
    if result.is_err() {
        let others = follower
            .batch
            .as_ref()
            .map_or(0, |batch| batch.transactions);
        follower.counters.batch_failed = others;
    }
    result
}

impl Follower<'_> {
    async fn run(&mut self) -> Result<(), ImportError> {
        let every = if self.of.until.is_some() {
            ASK_EVERY
        } else {
            TICK_EVERY
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let boundary = self.within.is_none();
            let event = if boundary && self.batch.is_some() {
                if self.batch_is_full() {
                    self.commit_batch().await?;
                    continue;
                }
                match ready(self.stream.next()).await {
                    Poll::Ready(event) => Some(event?),
                    // The target waits for nobody.
                    Poll::Pending => {
                        self.commit_batch().await?;
                        continue;
                    }
                }
            } else {
                tokio::select! {
                    event = self.stream.next() => Some(event?),
                    _ = ticks.tick() => None,
                }
            };
            match event {
                Some(wire::Event::Change(bytes)) => self.change(Message::decode(bytes)?).await?,
                Some(wire::Event::Keepalive { end, reply }) => {
                    if boundary {
                        self.received = self.received.max(end);
                    }
                    if reply {
                        self.stream.nudge(false);
                    }
                }
                None => self.tick().await?,
            }
            if self.reached() {
                return self.write_idle().await;
            }
        }
    }

    fn batch_is_full(&self) -> bool {
        let Some(batch) = &self.batch else {
            return false;
        };
        self.counters.singly > 0
            || self.applier.changes >= BATCH_CHANGES_MAX
            || batch.since.elapsed() >= BATCH_TIME_MAX
    }

    /// Whether all up to the end is at the target.
    fn reached(&self) -> bool {
        let at_rest = self.within.is_none() && self.batch.is_none();
        at_rest && self.of.until.is_some_and(|until| self.received >= until)
    }

    async fn change(&mut self, message: Message) -> Result<(), ImportError> {
        match message {
            Message::Begin { commit, .. } => {
                if self.within.is_some() {
                    return Err(ImportError::Protocol(
                        "a transaction begins within another".to_owned(),
                    ));
                }
                self.within = Some(commit >= self.of.record.lsn);
                Ok(())
            }
            Message::Commit { end, time_us, .. } => self.commit(end, time_us),
            Message::Relation(relation) => self.applier.describe(relation).await,
            Message::Origin | Message::Type | Message::Logical => Ok(()),
            change => match self.within {
                Some(true) => self.apply(change).await,
                Some(false) => Ok(()),
                None => Err(ImportError::Protocol(
                    "a change outside of a transaction".to_owned(),
                )),
            },
        }
    }

    fn commit(&mut self, end: Lsn, time_us: i64) -> Result<(), ImportError> {
        let applied = self
            .within
            .take()
            .ok_or_else(|| ImportError::Protocol("an end without a transaction".to_owned()))?;
        self.received = self.received.max(end);
        // A transaction of other tables leaves nothing to commit.
        if !applied || (self.batch.is_none() && self.applier.changes == 0) {
            return Ok(());
        }
        let batch = self.batch.get_or_insert_with(|| Batch {
            since: Instant::now(),
            transactions: 0,
            end,
            time_us,
        });
        batch.transactions += 1;
        (batch.end, batch.time_us) = (end, time_us);
        Ok(())
    }

    async fn apply(&mut self, change: Message) -> Result<(), ImportError> {
        match change {
            Message::Insert { relation, new } if self.compare(relation).await? => {
                self.applier.insert(relation, new).await
            }
            Message::Update { relation, old, new } if self.compare(relation).await? => {
                self.applier.update(relation, old, new).await
            }
            Message::Delete { relation, old } if self.compare(relation).await? => {
                self.applier.delete(relation, old).await
            }
            Message::Truncate {
                relations, restart, ..
            } => {
                let mut ours = Vec::new();
                for relation in relations {
                    if self.compare(relation).await? {
                        ours.push(relation);
                    }
                }
                self.applier.truncate(&ours, restart).await
            }
            _ => Ok(()),
        }
    }

    /// Whether a table's changes are made; an error if they cannot be.
    async fn compare(&mut self, oid: Oid) -> Result<bool, ImportError> {
        if self.applier.knows(oid) {
            return Ok(true);
        }
        if self.ignored.contains(&oid) {
            return Ok(false);
        }
        let relation = self.applier.relation(oid)?;
        match compared::compare(self.of, relation).await? {
            Compared::Alike(table) => {
                self.applier.know(oid, table);
                Ok(true)
            }
            Compared::Ignored => {
                self.ignored.insert(oid);
                Ok(false)
            }
        }
    }

    async fn commit_batch(&mut self) -> Result<(), ImportError> {
        let Some(batch) = &self.batch else {
            return Ok(());
        };
        let (end, transactions, changes) = (batch.end, batch.transactions, self.applier.changes);
        self.applier.commit(end).await?;
        self.fresh_us = batch.time_us;
        self.batch = None;
        self.lsn = end;
        self.stream.confirm(end);
        self.counters.applied(end, transactions, changes);
        Ok(())
    }

    /// Moves the target to what was received, though nothing of it was for the target.
    async fn write_idle(&mut self) -> Result<(), ImportError> {
        self.idle_written = Instant::now();
        if self.within.is_some() || self.batch.is_some() || self.received <= self.lsn {
            return Ok(());
        }
        self.applier.commit(self.received).await?;
        self.lsn = self.received;
        self.stream.confirm(self.lsn);
        self.counters.applied(self.lsn, 0, 0);
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), ImportError> {
        if self.of.until.is_some() {
            self.stream.nudge(true);
        }
        if self.idle_written.elapsed() >= IDLE_EVERY {
            self.write_idle().await?;
        }
        if self.watched.elapsed() >= WATCH_EVERY {
            self.watch().await?;
        }
        let (end, now_us) = slot::flushed(self.of.source).await?;
        let here = if self.within.is_none() && self.batch.is_none() {
            self.received
        } else {
            self.lsn
        };
        let bytes = end.bytes_since(here);
        if bytes == 0 || self.fresh_us == 0 {
            self.fresh_us = now_us;
        }
        let behind = u64::try_from(now_us - self.fresh_us).unwrap_or_default();
        self.progress.tell(&Event::Following {
            lsn: here,
            lag_bytes: bytes,
            lag: Duration::from_micros(behind),
            transactions: self.counters.transactions,
            changes: self.counters.changes,
        });
        Ok(())
    }

    /// Tells of tables that came and went, each once.
    async fn watch(&mut self) -> Result<(), ImportError> {
        self.watched = Instant::now();
        for note in watch::notes(self.of).await? {
            if self.told.insert(note.clone()) {
                self.progress.tell(&Event::Note(note));
            }
        }
        Ok(())
    }
}

/// What a future gives if it is polled once.
async fn ready<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
