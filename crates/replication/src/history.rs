//! Which epochs a log has: enough to find where two logs part.
//!
//! A leader's first record in an epoch says so. A record is told by its epoch and its LSN, and whoever
//! has it has all before it: so two logs are the same up to the last LSN at which they have the same epoch.

use aerostat_types::CommitTs;
use serde::{Deserialize, Serialize};

use crate::Epoch;

/// A record of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// In which it was made.
    pub epoch: Epoch,
    /// Its place; 0 before the first.
    pub lsn: CommitTs,
}

/// The epochs of a log, by where they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct History {
    /// Ascending in both. Before the first is epoch 0.
    starts: Vec<(Epoch, CommitTs)>,
    last: CommitTs,
}

/// As it comes from elsewhere.
#[derive(Deserialize)]
struct Unchecked {
    starts: Vec<(Epoch, CommitTs)>,
    last: CommitTs,
}

impl TryFrom<Unchecked> for History {
    type Error = &'static str;

    fn try_from(told: Unchecked) -> Result<History, Self::Error> {
        History::checked(told.starts, told.last).ok_or("epochs that do not ascend")
    }
}

impl History {
    /// Of a log that ends with this place and whose epochs begin at these.
    ///
    /// # Panics
    /// When they do not ascend, or one begins behind the end.
    pub fn new(starts: Vec<(Epoch, CommitTs)>, last: CommitTs) -> History {
        assert!(
            are_sound(&starts, last),
            "epochs of a log ascend: {starts:?}, through {last}"
        );
        History { starts, last }
    }

    /// The epochs of a log, by where they begin.
    pub fn starts(&self) -> &[(Epoch, CommitTs)] {
        &self.starts
    }

    /// As [`Self::new`], of what came from elsewhere; `None` where that would panic.
    pub fn checked(starts: Vec<(Epoch, CommitTs)>, last: CommitTs) -> Option<History> {
        are_sound(&starts, last).then_some(History { starts, last })
    }

    /// The last place.
    pub fn last(&self) -> CommitTs {
        self.last
    }

    /// The last record.
    pub fn end(&self) -> Position {
        self.at(self.last)
    }

    /// The record at a place that it has.
    pub fn at(&self, lsn: CommitTs) -> Position {
        assert!(lsn <= self.last, "a log through {} has no {lsn}", self.last);
        let epoch = self.starts.iter().rev().find(|start| start.1 <= lsn);
        Position {
            epoch: epoch.map_or(Epoch(0), |start| start.0),
            lsn,
        }
    }

    /// Whether it has this record.
    pub fn has(&self, position: Position) -> bool {
        position.lsn <= self.last && self.at(position.lsn) == position
    }

    /// The epochs that begin behind a place.
    pub(crate) fn starts_behind(&self, lsn: CommitTs) -> Vec<(Epoch, CommitTs)> {
        let behind = self.starts.iter().filter(|start| start.1 > lsn);
        behind.copied().collect()
    }

    /// The epochs that begin behind a place, and not behind another.
    pub fn starts_between(&self, after: CommitTs, through: CommitTs) -> Vec<(Epoch, CommitTs)> {
        let mut starts = self.starts_behind(after);
        starts.retain(|start| start.1 <= through);
        starts
    }

    /// More records, up to this place, of the last epoch.
    pub(crate) fn extend(&mut self, through: CommitTs) {
        assert!(through >= self.last, "a log grows at its end");
        self.last = through;
    }

    /// A record with which an epoch begins.
    pub(crate) fn begin(&mut self, epoch: Epoch, at: CommitTs) {
        assert!(
            at.0 == self.last.0 + 1 && epoch > self.end().epoch,
            "epoch {epoch} begins at {at}, behind {:?}",
            self.end()
        );
        self.starts.push((epoch, at));
        self.last = at;
    }

    /// Ends with this place.
    pub(crate) fn cut(&mut self, to: CommitTs) {
        assert!(to <= self.last, "what is cut off was there");
        self.starts.retain(|start| start.1 <= to);
        self.last = to;
    }

    /// The same through `after`, then these epochs, and so through another place.
    pub(crate) fn followed_by(
        &self,
        after: CommitTs,
        starts: &[(Epoch, CommitTs)],
        through: CommitTs,
    ) -> History {
        let mut followed = self.clone();
        followed.cut(after);
        followed.starts.extend_from_slice(starts);
        History::new(followed.starts, through)
    }

    /// The last place at which both are the same.
    pub fn common(&self, other: &History) -> CommitTs {
        let mut lsn = self.last.min(other.last);
        loop {
            let (own, others) = (self.at(lsn).epoch, other.at(lsn).epoch);
            if own == others {
                return lsn;
            }
            // The later epoch begins behind where they part.
            let (later, epoch) = match own > others {
                true => (self, own),
                false => (other, others),
            };
            let start = later.starts.iter().find(|start| start.0 == epoch);
            lsn = CommitTs(start.map_or(0, |start| start.1.0 - 1));
        }
    }
}

/// Whether epochs of a log that ends with this place begin at these.
fn are_sound(starts: &[(Epoch, CommitTs)], last: CommitTs) -> bool {
    let ascends = |two: &[(Epoch, CommitTs)]| two[0].0 < two[1].0 && two[0].1 < two[1].1;
    let is_within = |start: &(Epoch, CommitTs)| start.1 > CommitTs(0) && start.1 <= last;
    starts.windows(2).all(ascends) && starts.iter().all(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(starts: &[(u64, u64)], last: u64) -> History {
        let starts = starts
            .iter()
            .map(|&(epoch, at)| (Epoch(epoch), CommitTs(at)));
        History::new(starts.collect(), CommitTs(last))
    }

    #[test]
    fn logs_part_where_their_epochs_do() {
        let cases = [
            (history(&[], 0), history(&[(1, 1)], 5), 0),
            (history(&[(1, 1)], 5), history(&[(1, 1)], 9), 5),
            // The first went on for a while after the second had taken its place.
            (history(&[(1, 1)], 9), history(&[(1, 1), (2, 6)], 7), 5),
            (
                history(&[(1, 1), (3, 8)], 9),
                history(&[(1, 1), (2, 6)], 7),
                5,
            ),
            (
                history(&[(1, 1), (2, 6), (4, 9)], 9),
                history(&[(1, 1), (2, 6)], 12),
                8,
            ),
        ];
        for (one, other, common) in cases {
            assert_eq!(one.common(&other), CommitTs(common), "{one:?} {other:?}");
            assert_eq!(other.common(&one), CommitTs(common), "{other:?} {one:?}");
        }
    }

    #[test]
    fn a_history_is_cut_and_goes_on() {
        let mut log = history(&[(1, 1), (2, 6)], 7);
        log.cut(CommitTs(5));
        assert_eq!(log, history(&[(1, 1)], 5));
        log.begin(Epoch(4), CommitTs(6));
        log.extend(CommitTs(9));
        assert_eq!(log.end().epoch, Epoch(4));
        assert_eq!(log.at(CommitTs(5)).epoch, Epoch(1));
        let followed = log.followed_by(CommitTs(7), &[(Epoch(5), CommitTs(9))], CommitTs(10));
        assert_eq!(followed, history(&[(1, 1), (4, 6), (5, 9)], 10));
    }
}
