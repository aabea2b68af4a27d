//! The state machine of the log's order: what is queued, written, durable and acknowledged. It is
//! pure: it has no files, no threads and no clock, and [`super::Log`] tells it what happened to
//! them.
//!
//! ```text
//!  enqueue ─► queue ─next_group─► Group ─┬─ written ─┬─ synced          in the order of LSNs,
//!                                        └─ failed   └─ failed          one group at a time
//!
//!  LSN    1 ············ 7 ············ 9 ············ 12 ············ 15
//!                  acknowledged     secured         written        enqueued
//!                                      └──────── in doubt ────────────┘    once the log failed
//! ```
//!
//! * **Written** is what the operating system has, **durable** what the disk has confirmed.
//! * **Secured** is how far this node's log meets what the [`Rule`] asks of this node. A failure
//!   puts everything behind that point in doubt, and nothing before it.
//! * **Acknowledged** is what committers are told of: what is secured and, if the rule asks for
//!   other members, acknowledged by them. It never goes back, even if the rule changes: a
//!   stricter rule applies to the groups that are taken from then on, a laxer one at once.
//! * **Nothing.** A commit of temporary relations alone takes a place in the order, for snapshots are told
//!   apart by it, and none in the log. The next record is preceded by one that says at which places there
//!   is nothing; a file has all of them that come before the next file. Nothing is lost with such a commit:
//!   a group of them is secured as soon as it is its turn, under every rule.
//! * **Aborts.** Of a transaction with chunks that will not commit the log says so. Nobody waits for that.

mod following;

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
};

use aerostat_txn::LogFailure;
use aerostat_types::{CommitTs, Durability, TxnId};

use super::record::{self, Head, Kind};

/// How often a log is mended before the tenant must be opened again: each time is remembered
/// as long as the tenant is open.
const MENDS_MAX: usize = 1_000;

/// A record that is to be written.
pub(super) struct Entry {
    pub(super) head: Head,
    pub(super) payload: Vec<u8>,
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The operating system has it.
    Written,
    /// The disk has it.
    Fsync,
    /// Whoever counts the members that have it says that it is committed, and this node's disk has it
    /// (`and_fsync`) or its operating system.
    Copies { and_fsync: bool },
}

impl Rule {
    /// The rule of a node that is alone.
    pub(super) fn of(durability: Durability) -> Rule {
        match durability.syncs_alone() {
            true => Rule::Fsync,
            false => Rule::Written,
        }
    }

    /// What commits survive on this node.
    pub(super) fn durability(self) -> Durability {
        match self.syncs() {
            true => Durability::Fsync,
            false => Durability::None,
        }
    }

    /// Whether this node's disk is asked.
    fn syncs(self) -> bool {
        match self {
            Rule::Written => false,
            Rule::Fsync => true,
            Rule::Copies { and_fsync } => and_fsync,
        }
    }

    /// Through where this node has what the rule asks of it, if nothing behind `owed` that was
    /// written owes a sync.
    fn secured(self, written: CommitTs, durable: CommitTs, owed: CommitTs) -> CommitTs {
        if self.syncs() && owed > durable {
            durable
        } else {
            written
        }
    }

    /// Through where a commit is acknowledged, where this node's log is secured through `secured`, and
    /// speaks of the places through `said` with that; members have what is `committed`.
    fn acknowledged(self, (secured, said): (CommitTs, CommitTs), committed: CommitTs) -> CommitTs {
        match self {
            // Of what the log does not speak no member hears.
            Rule::Copies { .. } if committed < said => secured.min(committed),
            _ => secured,
        }
    }
}

/// What is written at once.
pub(super) struct Group {
    pub(super) entries: Vec<Entry>,
    /// The newest LSN once it is written.
    pub(super) through: CommitTs,
    /// The newest place of which the log speaks then.
    pub(super) said: CommitTs,
    /// The file that it goes to.
    pub(super) file_number: u64,
    /// Whether it is acknowledged only when it is durable.
    pub(super) syncs: bool,
    /// Whether the file is complete with it.
    pub(super) ends_file: bool,
    /// Whether its last record, or the last before it, has no place.
    pub(super) ends_inside: bool,
}

/// Where a log was cut: see [`super::Log::rotate`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Everything through this is in files before `next`.
    pub(crate) through: CommitTs,
    /// The first file that has commits after `through` or chunks of transactions that
    /// had not committed.
    pub(crate) keep_from: u64,
    /// The file that was begun.
    pub(crate) next: u64,
}

/// The places that a failure left in doubt: those after `after` through `through`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// The file that has what is before them.
    pub(super) file_number: u64,
    /// The newest place before them of which the log speaks.
    pub(super) said: CommitTs,
    pub(super) after: CommitTs,
    pub(super) through: CommitTs,
    pub(super) wall_micros: u64,
}

/// Places that were in doubt when the log was mended, and the failure that took their commits.
struct Lost {
    after: CommitTs,
    through: CommitTs,
    failure: LogFailure,
}

/// The order of a tenant's log.
pub(super) struct Order {
    rule: Rule,
    /// Whether its records are another node's: see [`following`].
    follows: bool,
    /// Records without a place that were received since the last with one.
    since: u64,
    entries: Vec<Entry>,
    bytes: usize,
    /// Whether a commit is queued that a power failure must not take.
    owes_sync: bool,
    /// The newest LSN of each kind: see the module.
    enqueued: CommitTs,
    written: CommitTs,
    durable: CommitTs,
    secured: CommitTs,
    acknowledged: CommitTs,
    /// Of what was taken to be written, nothing behind this owes a sync.
    owed: CommitTs,
    /// The newest place of which something speaks that is queued or written.
    said: CommitTs,
    /// Where groups end, from the newest that is secured to the newest that was taken, and of what the log
    /// speaks with them.
    ends: VecDeque<(CommitTs, CommitTs)>,
    /// Who had chunks and commits, or its block does, behind `secured`.
    ending: VecDeque<(CommitTs, TxnId, u64)>,
    /// Whose chunks may be in the log, and who will not commit: to be said once the log is mended.
    aborts_owed: Vec<(TxnId, u64)>,
    /// Through where the members have it that must.
    committed: CommitTs,
    /// Whether another node leads: what is not acknowledged never will be here.
    is_deposed: bool,
    failure: Option<LogFailure>,
    /// Ascending.
    lost: Vec<Lost>,
    /// Unfinished transactions, or statements of blocks, of which a failure may have taken
    /// chunks: they cannot commit. With the first file that may have one.
    doomed: HashMap<TxnId, (LogFailure, u64)>,
    /// Where what is queued from now on goes: to this file, or to the next if this one turns
    /// out to be full. It is never behind the file that a [`Cut`] began, whether or not that
    /// is there yet, for checkpoints remove what is before.
    file_number: u64,
    /// The files before this one may have been removed.
    kept_from: u64,
    /// Unfinished transactions, or statements of blocks, with chunks, and the first file
    /// that may have one.
    chunked: HashMap<TxnId, u64>,
    /// The first file that may have a chunk of those that were said to be aborted behind the last record with
    /// a place. A copy's log may be cut back to that, and then nobody has said so.
    aborted_from: Option<u64>,
    /// Whether the last record that was queued has no place, as far as is known.
    is_inside: bool,
    /// Microseconds since 1970 of the newest record.
    wall_micros: u64,
}

impl Order {
    /// Goes on behind what is durable through `last`, in a file.
    pub(super) fn after(last: CommitTs, file_number: u64, wall_micros: u64, rule: Rule) -> Order {
        Order {
            rule,
            follows: false,
            since: 0,
            entries: Vec::new(),
            bytes: 0,
            owes_sync: false,
            enqueued: last,
            written: last,
            durable: last,
            secured: last,
            acknowledged: last,
            owed: last,
            said: last,
            ends: VecDeque::from([(last, last)]),
            ending: VecDeque::new(),
            aborts_owed: Vec::new(),
            committed: CommitTs(0),
            is_deposed: false,
            failure: None,
            lost: Vec::new(),
            doomed: HashMap::new(),
            file_number,
            kept_from: 0,
            chunked: HashMap::new(),
            aborted_from: None,
            is_inside: true,
            wall_micros,
        }
    }

    pub(super) fn rule(&self) -> Rule {
        self.rule
    }

    /// Acknowledges by this rule, as far as it asks for more from the next group on.
    pub(super) fn set_rule(&mut self, rule: Rule) {
        if self.is_deposed {
            return;
        }
        self.rule = rule;
        self.settle();
    }

    /// Bytes of payloads that are queued.
    pub(super) fn queued_bytes(&self) -> usize {
        self.bytes
    }

    /// Why nothing is taken, if so.
    pub(super) fn failure(&self) -> Option<&LogFailure> {
        self.failure.as_ref()
    }

    /// Whether what is queued is to be synced when it is written.
    pub(super) fn syncs(&self) -> bool {
        self.owes_sync && self.rule.syncs()
    }

    /// Everything through this is acknowledged, or lost.
    pub(super) fn acknowledged(&self) -> CommitTs {
        self.acknowledged
    }

    /// Whether all that a commit waits for is other members' to say.
    pub(super) fn is_secured(&self, ts: CommitTs) -> bool {
        ts <= self.secured
    }

    /// The clock may go back; the log's order does not.
    pub(super) fn at_clock(&mut self, now_micros: u64) -> u64 {
        self.wall_micros = self.wall_micros.max(now_micros);
        self.wall_micros
    }

    /// Queues a record; of a block's commit, `parts` are the statements of which there are chunks.
    ///
    /// # Errors
    /// The failure because of which the log takes nothing, or nothing of this transaction.
    pub(super) fn enqueue(&mut self, mut entry: Entry, parts: &[TxnId]) -> Result<(), LogFailure> {
        let Head { kind, lsn, txn, .. } = entry.head;
        assert!(
            parts.is_empty() || matches!(kind, Kind::Block | Kind::Defining),
            "only a block's commit names statements, and this is a {kind:?}"
        );
        if let Err(failure) = self.refusal(txn, parts) {
            if kind == Kind::Rows && !self.follows {
                // It would commit without these, once the log is mended.
                let doom = || (failure.clone(), self.file_number);
                self.doomed.entry(txn).or_insert_with(doom);
            }
            return Err(failure);
        }
        entry.head.wall_micros = self.at_clock(entry.head.wall_micros);
        if kind == Kind::Rows {
            assert_eq!(lsn.0, 0, "redo before its commit has no place in the order");
            self.chunked.entry(txn).or_insert(self.file_number);
        } else {
            assert_eq!(lsn.0, self.enqueued.0 + 1, "LSNs have no gaps");
            let has_chunks = !self.chunked.is_empty() && self.chunked.contains_key(&txn);
            if kind == Kind::Commit && !has_chunks && entry.payload.is_empty() {
                self.enqueued = lsn;
                return Ok(());
            }
            self.say_nothing();
            self.take_place(lsn, txn, parts);
        }
        self.push(entry);
        Ok(())
    }

    /// The next record has this place, and with it end a transaction and these statements.
    fn take_place(&mut self, lsn: CommitTs, txn: TxnId, parts: &[TxnId]) {
        (self.enqueued, self.said) = (lsn, lsn);
        self.aborted_from = None;
        self.owes_sync = true;
        for part in [&txn].into_iter().chain(parts) {
            if !self.chunked.is_empty()
                && let Some(from) = self.chunked.remove(part)
            {
                self.ending.push_back((lsn, *part, from));
            }
        }
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += entry.payload.len();
        self.is_inside = !entry.head.kind.has_place();
        self.entries.push(entry);
    }

    /// Queues a word of the log's own.
    fn say(&mut self, kind: Kind, lsn: CommitTs, txn: TxnId, payload: Vec<u8>) {
        let head = Head {
            kind,
            lsn,
            txn,
            wall_micros: self.wall_micros,
        };
        self.push(Entry { head, payload });
    }

    /// Says of the newest places that there is nothing at them, if they are such.
    fn say_nothing(&mut self) {
        if self.said < self.enqueued {
            let payload = record::nothing_from(CommitTs(self.said.0 + 1));
            self.say(Kind::Nothing, self.enqueued, TxnId(0), payload);
            self.said = self.enqueued;
            self.aborted_from = None;
        }
    }

    /// Says that a transaction will not commit, of which a file may have the first chunk.
    fn say_abort(&mut self, txn: TxnId, file_number: u64) {
        self.has_aborted(file_number);
        self.say(Kind::Abort, CommitTs(0), txn, Vec::new());
    }

    pub(crate) fn has_aborted(&mut self, file_number: u64) {
        let from = self
            .aborted_from
            .map_or(file_number, |from| from.min(file_number));
        self.aborted_from = Some(from);
    }

    /// Why nothing of this transaction, or of a block with these parts, is taken.
    fn refusal(&self, txn: TxnId, parts: &[TxnId]) -> Result<(), LogFailure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.follows {
            return Err(following::refused());
        }
        if self.doomed.is_empty() {
            return Ok(());
        }
        let mut concerned = parts.iter().chain([&txn]);
        match concerned.find_map(|id| self.doomed.get(id)) {
            Some((failure, _)) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// The transaction will not commit.
    pub(super) fn forget(&mut self, txn: TxnId) {
        if self.follows {
            // Nothing of this node's is here, and the number may be another's.
            return;
        }
        let chunked = match self.chunked.is_empty() {
            true => None,
            false => self.chunked.remove(&txn),
        };
        // What a failure has left of them is in the file that was mended, or before.
        let doomed = match self.doomed.is_empty() {
            true => None,
            false => self.doomed.remove(&txn).map(|(_, from)| from),
        };
        if let Some(from) = chunked.into_iter().chain(doomed).min() {
            match self.failure {
                None => self.say_abort(txn, from),
                Some(_) => self.aborts_owed.push((txn, from)),
            }
        }
    }

    /// Takes what is queued, to be written before anything else is taken. With `ends_file` what
    /// comes later goes to the next file; with `for_good` the disk is to have it, whatever the rule says.
    pub(super) fn next_group(&mut self, ends_file: bool, for_good: bool) -> Group {
        assert!(self.failure.is_none(), "a log that failed writes no group");
        debug_assert_eq!(
            self.bytes,
            self.entries
                .iter()
                .map(|entry| entry.payload.len())
                .sum::<usize>(),
            "the bytes that are counted are those that are queued"
        );
        if self.syncs() {
            self.owed = self.enqueued;
        }
        if ends_file || for_good || !self.entries.is_empty() {
            // The file may be full with them.
            self.say_nothing();
        }
        self.ends.push_back((self.enqueued, self.said));
        let group = Group {
            entries: std::mem::take(&mut self.entries),
            through: self.enqueued,
            said: self.said,
            file_number: self.file_number,
            syncs: ends_file || for_good || self.syncs(),
            ends_file,
            ends_inside: self.is_inside,
        };
        (self.bytes, self.owes_sync) = (0, false);
        self.file_number += u64::from(ends_file);
        group
    }

    /// The operating system has everything through this, and what comes next goes to this file.
    pub(super) fn written(&mut self, through: CommitTs, file_number: u64) {
        assert!(
            (self.written..=self.enqueued).contains(&through),
            "what is written was queued, behind what had been written"
        );
        assert!(
            file_number >= self.file_number,
            "the log goes back from file {} to file {file_number}",
            self.file_number
        );
        self.written = through;
        self.file_number = file_number;
        self.settle();
    }

    /// The disk has everything through this.
    pub(super) fn synced(&mut self, through: CommitTs) {
        assert!(
            (self.durable..=self.written).contains(&through),
            "what is durable was written, behind what had been durable"
        );
        self.durable = through;
        self.settle();
    }

    /// The members that must have everything through this.
    pub(super) fn committed(&mut self, through: CommitTs) {
        if self.is_deposed {
            // Whoever waited was told that it cannot be known.
            return;
        }
        self.committed = self.committed.max(through);
        self.settle();
    }

    /// Whether the members have everything through this that must.
    pub(super) fn is_committed(&self, through: CommitTs) -> bool {
        through <= self.committed
    }

    /// Whether a checkpoint may have everything through this: it is acknowledged, and if others must have it,
    /// they know of places at which there is nothing, too.
    pub(super) fn is_for_good(&self, through: CommitTs) -> bool {
        let is_copied = matches!(self.rule, Rule::Copies { .. });
        self.acknowledged >= through && (!is_copied || self.is_committed(through))
    }

    /// Applies the rule.
    fn settle(&mut self) {
        // Committers were told of the doubt: no rule takes that back.
        if self.failure.is_none() {
            let durable = self.durable.max(self.secured);
            self.secured = self.rule.secured(self.written, durable, self.owed);
        }
        while self.ends.get(1).is_some_and(|end| end.0 <= self.secured) {
            self.ends.pop_front();
        }
        while self
            .ending
            .front()
            .is_some_and(|(lsn, ..)| *lsn <= self.secured)
        {
            self.ending.pop_front();
        }
        let end = self.ends[0];
        let acknowledged = self.rule.acknowledged(end, self.committed);
        self.acknowledged = self.acknowledged.max(acknowledged);
        self.assert_in_order();
    }

    /// Nobody is told of a commit that the log does not have, and the log has nothing that was
    /// not given to it.
    fn assert_in_order(&self) {
        assert!(
            self.acknowledged <= self.secured && self.secured <= self.written,
            "acknowledged through {}, secured through {}, written through {}",
            self.acknowledged,
            self.secured,
            self.written
        );
        assert!(
            self.durable <= self.written && self.written <= self.enqueued,
            "durable through {}, written through {}, queued through {}",
            self.durable,
            self.written,
            self.enqueued
        );
        assert_eq!(
            self.ends.front().map(|end| end.0),
            Some(self.secured),
            "what is secured ends with a group"
        );
        assert!(
            self.owed <= self.enqueued,
            "a sync is owed for places that nobody has"
        );
    }

    /// A group could not be written or synced: nothing is taken any more.
    pub(super) fn failed(&mut self, file_number: u64, failure: LogFailure) {
        assert!(
            (file_number..=file_number + 1).contains(&self.file_number),
            "file {file_number} failed, and the log is in file {}",
            self.file_number
        );
        self.entries = Vec::new();
        // What there was before them is not known.
        self.is_inside = true;
        // Mending goes on in the file that failed; no chunk of the next one is left.
        self.file_number = file_number;
        let unfinished = self.chunked.drain();
        self.doomed
            .extend(unfinished.map(|(txn, from)| (txn, (failure.clone(), from))));
        // Nobody commits whose place is in doubt.
        let ending = self.ending.drain(..).map(|(_, txn, from)| (txn, from));
        self.aborts_owed.extend(ending);
        self.failure = Some(failure);
    }

    /// What became of a commit, if that is known.
    pub(super) fn fate(&self, ts: CommitTs) -> Option<Result<CommitTs, LogFailure>> {
        if ts > self.secured || self.is_deposed && ts > self.acknowledged {
            return self.failure.clone().map(Err);
        }
        let at = self.lost.partition_point(|lost| lost.through < ts);
        match self.lost.get(at) {
            Some(lost) if lost.after < ts => Some(Err(lost.failure.clone())),
            _ => (ts <= self.acknowledged).then_some(Ok(self.acknowledged)),
        }
    }

    /// What a failure left in doubt, if the log can be mended of it.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        // What another node committed is not to be given up here.
        let is_own = !self.follows && !self.is_deposed;
        let is_mendable = is_own && self.failure.is_some() && self.lost.len() < MENDS_MAX;
        is_mendable.then_some(Doubt {
            file_number: self.file_number,
            said: self.ends[0].1,
            after: self.secured,
            through: self.enqueued,
            wall_micros: self.wall_micros,
        })
    }

    /// Takes changes again: the disk has commits of nothing in all places that were in doubt.
    pub(super) fn mended(&mut self, doubt: Doubt) {
        let Some(failure) = self.failure.take() else {
            return;
        };
        let Doubt { after, through, .. } = doubt;
        assert!(
            (after, through) == (self.secured, self.enqueued),
            "nothing is queued or secured while the log is mended"
        );
        if after < through {
            self.lost.push(Lost {
                after,
                through,
                failure,
            });
        }
        (self.written, self.durable) = (through, through);
        (self.bytes, self.owes_sync) = (0, false);
        self.said = through;
        self.ends.push_back((through, through));
        for (txn, from) in std::mem::take(&mut self.aborts_owed) {
            self.say_abort(txn, from);
        }
        self.settle();
    }

    /// Where the log is cut if the next group ends its file. What is queued goes to that file;
    /// who has chunks and no commit in the queue yet commits in the next one.
    pub(super) fn cut(&self) -> Cut {
        let next = self.file_number + 1;
        let chunked = self.chunked.values().copied();
        let doomed = self.doomed.values().map(|(_, from)| *from);
        let owed = self.aborts_owed.iter().map(|(_, from)| *from);
        let all = chunked.chain(doomed).chain(owed).chain(self.aborted_from);
        let keep_from = all.fold(next, u64::min);
        assert!(
            keep_from >= self.kept_from,
            "a checkpoint needs file {keep_from}, which an earlier one has removed"
        );
        Cut {
            through: self.enqueued,
            keep_from,
            next,
        }
    }

    /// The files before this one may go.
    pub(super) fn release_before(&mut self, file_number: u64) {
        assert!(
            file_number <= self.file_number,
            "file {} is being written, and those before {file_number} are to go",
            self.file_number
        );
        self.kept_from = self.kept_from.max(file_number);
    }

    /// How many transactions that have not ended cannot commit.
    #[cfg(test)]
    pub(super) fn doomed(&self) -> usize {
        self.doomed.len()
    }
}

#[cfg(test)]
mod tests;
