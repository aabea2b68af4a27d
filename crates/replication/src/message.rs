//! What copies of a database say to each other.

use std::time::Duration;

use aerostat_types::CommitTs;
use serde::{Deserialize, Serialize};

use crate::{Config, Epoch, History, Member, Position};

/// A message. It may come late, twice, out of order, or never.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A leader's records, none at times, and that it is alive.
    Append {
        /// Under which it leads.
        config: Config,
        /// The record before those that are sent.
        after: Position,
        /// The last that is sent. The driver adds the records themselves.
        through: CommitTs,
        /// The epochs that begin among them.
        starts: Vec<(Epoch, CommitTs)>,
        /// Through where the leader's log is committed.
        committed: CommitTs,
        /// By the leader's clock.
        sent: Duration,
    },
    /// A copy has all of its leader's log through a place.
    Has {
        /// Of the message that it answers.
        epoch: Epoch,
        /// Through where.
        through: CommitTs,
        /// When the message was sent that it answers.
        sent: Duration,
    },
    /// The receiver's epoch is over: it is to look at the store.
    Over {
        /// A later one.
        epoch: Epoch,
    },
    /// The leader does not know the receiver's process: it is to join.
    Unknown,
    /// A copy lacks what comes before what it was sent, or has heard nothing: the leader is to go on from
    /// where their logs part.
    Join {
        /// Who it is.
        member: Member,
        /// What it has.
        history: History,
    },
    /// A member asks its leader for its place.
    HandOver,
    /// A process that has started, and what its node had on disk: for when all members have ended.
    Started {
        /// Who it is.
        member: Member,
        /// The end of its log, which is on disk.
        end: Position,
    },
}

impl Message {
    /// Whether it is one that a copy sends: what comes from elsewhere is asked this before it is told.
    ///
    /// # Errors
    /// What is odd about it.
    pub fn check(&self) -> Result<(), &'static str> {
        let Message::Append {
            config,
            after,
            through,
            starts,
            ..
        } = self
        else {
            return Ok(());
        };
        if !config.is_sound() {
            return Err("a configuration that nobody leads");
        }
        let mut before = *after;
        for &(epoch, lsn) in starts {
            if epoch <= before.epoch || lsn <= before.lsn {
                return Err("epochs that do not ascend");
            }
            before = Position { epoch, lsn };
        }
        match before.lsn <= *through && before.epoch <= config.epoch {
            true => Ok(()),
            false => Err("records that end before they begin"),
        }
    }
}
