//! What a leader sends to one copy: the log behind a point, in parts, under the newest word of the machine.
//!
//! Commits that come while a packet is on its way wait until it is answered, and go together: each packet costs both
//! nodes as much as a commit does. A single client never waits for that.

use std::{sync::Arc, time::Duration};

use aerostat_replication::{Config, Epoch, Member, Message, NodeId, Replica};
use aerostat_storage::{LogHold, LogReader, StreamError, TenantStore};
use aerostat_types::CommitTs;

use crate::{
    Host, PART_BYTES, Packet, Records,
    pacing::{Pace, Pacing},
};

/// What is sent in one turn of the driver's, about: commits wait for their word meanwhile.
const TURN_BYTES: usize = 1 << 20;

/// So many commits wait for nothing: the network may be a long one.
const HELD_MAX: u64 = 64;

/// The newest [`Message::Append`] that the machine wants sent.
struct Wanted {
    config: Config,
    through: CommitTs,
    sent: Duration,
}

/// What goes with each packet.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    pub(crate) tenure: Epoch,
    pub(crate) durable: CommitTs,
    pub(crate) settled: CommitTs,
}

/// Log files that are kept until disks have them.
pub(crate) struct Kept {
    hold: LogHold,
    through: CommitTs,
}

impl Kept {
    /// All that there is.
    pub(crate) fn of(store: &TenantStore) -> Kept {
        Kept {
            hold: store.hold_log(),
            through: CommitTs(0),
        }
    }

    /// The disks have the log through this.
    pub(crate) fn release(&mut self, through: CommitTs) {
        if through <= self.through {
            return;
        }
        self.through = through;
        if let Err(error) = self.hold.release_through(through) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "log files are kept for copies"
            );
        }
    }

    /// What was said of that.
    pub(crate) fn through(&self) -> CommitTs {
        self.through
    }
}

/// What is on its way to a copy.
pub(crate) struct Outbox {
    /// `None` where the log does not have what comes next.
    reader: Option<LogReader>,
    /// What the copy's disk lacks.
    kept: Kept,
    wanted: Option<Wanted>,
    /// Through where the last packet with commits goes, while it is not answered.
    on_its_way: Option<CommitTs>,
    /// Commits wait for the copy.
    is_required: bool,
    /// Of what it lacks, while they do not.
    pace: Option<Pace>,
}

impl Outbox {
    pub(crate) fn of(store: &TenantStore) -> Outbox {
        Outbox {
            reader: None,
            kept: Kept::of(store),
            wanted: None,
            on_its_way: None,
            is_required: false,
            pace: None,
        }
    }

    /// How fast it is sent what it lacks, if it is just now.
    pub(crate) fn pace(&mut self) -> &mut Option<Pace> {
        &mut self.pace
    }

    /// Whether time has to be told while it waits: for an answer, its pace, or the log.
    pub(crate) fn is_busy(&self) -> bool {
        self.on_its_way.is_some() || self.pace.is_some() || self.wanted.is_some()
    }

    /// The copy has the log through this, and commits wait for it, or do not.
    pub(crate) fn answered(&mut self, has: CommitTs, is_required: bool) {
        self.is_required = is_required;
        self.on_its_way = self.on_its_way.filter(|through| *through > has);
    }

    /// Nothing waits for what is on its way, which may be lost.
    pub(crate) fn hurry(&mut self) {
        self.on_its_way = None;
    }

    /// The copy's disk has the log through this.
    pub(crate) fn is_durable(&mut self, through: CommitTs) {
        self.kept.release(through);
    }

    /// What comes next cannot be read: the copy joins again, or has to be made anew.
    /// Says whether the latter.
    pub(crate) fn fails(&mut self, node: NodeId, error: &StreamError, host: &mut dyn Host) -> bool {
        self.restart();
        let is_gone = matches!(error, StreamError::Gone { .. });
        match is_gone {
            true => host.lacks_log(node),
            false => tracing::error!(
                error = error as &dyn std::error::Error,
                "the log cannot be read for a copy"
            ),
        }
        is_gone
    }

    /// What was sent of it.
    pub(crate) fn sent(&self) -> CommitTs {
        let reader = self.reader.as_ref();
        reader.map_or(CommitTs(0), |reader| reader.point().after)
    }

    /// What it said of that.
    pub(crate) fn durable(&self) -> CommitTs {
        self.kept.through()
    }

    /// The copy says where its log ends: what was sent before may not have come.
    pub(crate) fn restart(&mut self) {
        (self.reader, self.wanted) = (None, None);
        self.on_its_way = None;
    }

    /// Sends what the machine wants sent. `after` is where it goes on from.
    pub(crate) fn append(
        &mut self,
        store: &Arc<TenantStore>,
        config: Config,
        after: CommitTs,
        through: CommitTs,
        sent: Duration,
    ) -> Result<(), StreamError> {
        let goes_on = match (&self.reader, &self.wanted) {
            (Some(_), Some(wanted)) => wanted.through == after,
            (Some(reader), None) => reader.point().after == after,
            (None, _) => false,
        };
        if !goes_on {
            self.restart();
            self.reader = Some(store.log_reader(after, Arc::new(|| {}))?);
        }
        self.wanted = Some(Wanted {
            config,
            through,
            sent,
        });
        Ok(())
    }

    /// Sends as much as there is, and room for, but no more than a turn takes, and the pace allows of what a copy
    /// lacks that commits do not wait for. Whether there may be more.
    pub(crate) fn pump(
        &mut self,
        (me, to): (Member, Member),
        replica: &Replica,
        known: Told,
        (now, pacing): (Duration, &Pacing),
        host: &mut dyn Host,
    ) -> Result<bool, StreamError> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        let mut sent = 0;
        let history = replica.history();
        let epoch = replica.config().map_or(Epoch(0), |config| config.epoch);
        let packet = |message, records| Packet {
            from: me,
            epoch,
            tenure: known.tenure,
            durable: known.durable,
            settled: known.settled,
            lacking: None,
            message,
            records,
        };
        while sent < TURN_BYTES {
            let from = reader.point();
            let through = self.wanted.as_ref().map(|wanted| wanted.through);
            let is_behind = through.is_some_and(|through| from.after < through);
            let is_little = through.is_some_and(|through| through.0 < from.after.0 + HELD_MAX);
            if is_behind && is_little && self.on_its_way.is_some() {
                return Ok(false);
            }
            let is_paced = !self.is_required && is_behind;
            if is_paced && !self.pace.as_ref().is_none_or(|pace| pace.may_send(now)) {
                return Ok(false);
            }
            if is_paced && host.is_short() {
                // It may have to be read from the disk.
                return Ok(true);
            }
            let room = host.room(to.node);
            if room == 0 && (is_behind || self.wanted.is_none()) {
                return Ok(false);
            }
            // What has no place goes ahead, but nothing that the machine does not know.
            let limit = history
                .last()
                .min(through.unwrap_or(from.after).max(from.after));
            let bytes = match room {
                0 => None,
                room => reader.next_through(room.min(PART_BYTES), limit)?,
            };
            if bytes.is_none() && is_behind {
                // It is written, and will be shown.
                return Ok(false);
            }
            let is_empty = bytes.is_none();
            if is_empty && self.wanted.is_some() {
                // A heartbeat: there may be nothing for long.
                reader.rest();
            }
            let part = bytes.as_ref().map_or(0, Vec::len);
            sent += part;
            if is_paced {
                let pace = self.pace.get_or_insert_with(|| pacing.begin(now));
                pace.sent(now, part);
            }
            let records = Records {
                from,
                bytes: bytes.unwrap_or_default(),
            };
            let read = reader.point().after;
            let Some(wanted) = &self.wanted else {
                if is_empty {
                    return Ok(false);
                }
                host.send(to.node, packet(None, records));
                continue;
            };
            let append = Message::Append {
                config: wanted.config.clone(),
                after: history.at(from.after),
                through: read,
                starts: history.starts_between(from.after, read),
                committed: replica.committed(),
                sent: wanted.sent,
            };
            if read > from.after {
                self.on_its_way = Some(read);
            }
            if read == wanted.through {
                self.wanted = None;
            }
            host.send(to.node, packet(Some(append), records));
        }
        Ok(true)
    }
}
