//! Which transaction comes before which, and why.
//!
//! Edges lie in one array, sorted by where they begin. Only transactions that are known to have
//! been committed have edges. Of data, an edge leads to the next version alone: the others
//! follow. Of real time, an edge leads from the last that had completed before a transaction
//! was invoked, by as many as ran at once: the others follow, too.

use std::collections::HashSet;

use crate::history::Outcome;
use crate::kind::EdgeKind;
use crate::model::Model;
use crate::report::Step;
use crate::versions::{List, Versions, id};

/// How many acknowledged appends that nobody has read are put behind the longest read of a
/// list. Each has an edge from each reader of that, and one would do to find a cycle: they are
/// those that had completed first.
const UNREAD_MAX: usize = 16;

/// An edge, without where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// To which transaction.
    pub(crate) to: u32,
    /// Of which kind.
    pub(crate) kind: EdgeKind,
    /// The list that it is about.
    key: u64,
    /// Which value was there before, if any was.
    before: Option<u64>,
    /// Which value came.
    value: u64,
}

/// Transactions and edges.
pub(crate) struct Graph {
    /// Where the edges of each transaction begin.
    starts: Vec<usize>,
    edges: Vec<Edge>,
}

impl Graph {
    /// Everything that follows from the reads, and from the orders that the model counts.
    pub(crate) fn of(versions: &Versions<'_>, model: Model) -> Self {
        let mut made = Made::default();
        for list in &versions.lists {
            // Where reads contradict each other there is no order.
            if list.contradicting.is_empty() {
                made.list(versions, list);
            }
        }
        if model.sessions {
            made.processes(versions);
        }
        if model.real_time {
            made.real_time(versions);
        }
        Self::sorted(versions.committed.len(), made.edges)
    }

    fn sorted(transactions: usize, mut edges: Vec<(u32, Edge)>) -> Self {
        edges.sort_by_key(|(from, edge)| (*from, edge.kind, edge.to));
        edges.dedup_by_key(|(from, edge)| (*from, edge.kind, edge.to));
        let mut starts = vec![0; transactions + 1];
        for (from, _) in &edges {
            starts[*from as usize + 1] += 1;
        }
        for at in 0..transactions {
            starts[at + 1] += starts[at];
        }
        Self {
            starts,
            edges: edges.into_iter().map(|(_, edge)| edge).collect(),
        }
    }

    /// How many transactions there are.
    pub(crate) fn transactions(&self) -> usize {
        self.starts.len() - 1
    }

    /// The edges from a transaction.
    pub(crate) fn from(&self, transaction: u32) -> &[Edge] {
        let at = transaction as usize;
        &self.edges[self.starts[at]..self.starts[at + 1]]
    }
}

/// Edges that are being made.
#[derive(Default)]
struct Made {
    edges: Vec<(u32, Edge)>,
}

impl Made {
    fn add(&mut self, from: usize, to: usize, kind: EdgeKind, about: (u64, Option<u64>, u64)) {
        if from == to {
            return;
        }
        let number = |at: usize| u32::try_from(at).expect("a history has fewer transactions");
        let (key, before, value) = about;
        let edge = Edge {
            to: number(to),
            kind,
            key,
            before,
            value,
        };
        self.edges.push((number(from), edge));
    }

    fn list(&mut self, versions: &Versions<'_>, list: &List<'_>) {
        let key = list.key;
        let writer = |value: u64| versions.committed_writer(key, value);
        // Behind each place of the order, the next value of a committed transaction.
        let mut next: Vec<Option<(u64, usize)>> = vec![None; list.order.len() + 1];
        for (at, &value) in list.order.iter().enumerate().rev() {
            next[at] = writer(value).map(|by| (value, by)).or(next[at + 1]);
        }
        let unread = unread(versions, list);
        let mut last: Option<(u64, usize)> = None;
        for &value in list.order {
            let Some(by) = writer(value) else { continue };
            if let Some((before, before_by)) = last {
                self.add(before_by, by, EdgeKind::Ww, (key, Some(before), value));
            }
            last = Some((value, by));
        }
        for &(value, by) in &unread {
            if let Some((before, before_by)) = last {
                self.add(before_by, by, EdgeKind::Ww, (key, Some(before), value));
            }
        }
        for read in list.reads.iter().filter(|read| !read.behind_own) {
            let (at, before) = (read.transaction, read.list.last().copied());
            let written = read.list.iter().rev();
            let newest = written
                .filter_map(|&value| Some((value, writer(value)?)))
                .next();
            if let Some((value, by)) = newest {
                self.add(by, at, EdgeKind::Wr, (key, None, value));
            }
            match next[read.list.len()] {
                Some((value, by)) => self.add(at, by, EdgeKind::Rw, (key, before, value)),
                None => {
                    for &(value, by) in &unread {
                        self.add(at, by, EdgeKind::Rw, (key, before, value));
                    }
                }
            }
        }
    }

    /// From each transaction to the next of its process. One whose outcome is unknown may come to
    /// be later than what its process does next.
    fn processes(&mut self, versions: &Versions<'_>) {
        let mut order: Vec<usize> = (0..versions.committed.len())
            .filter(|&at| versions.committed[at])
            .collect();
        let key = |&at: &usize| {
            let transaction = versions.transaction(at);
            (transaction.process, transaction.invoked_ns, at)
        };
        order.sort_by_key(key);
        let mut previous: Option<usize> = None;
        for at in order {
            let process = versions.transaction(at).process;
            if let Some(before) = previous
                && versions.transaction(before).process == process
            {
                self.add(before, at, EdgeKind::Process, (0, None, 0));
            }
            if versions.transaction(at).outcome == Outcome::Ok {
                previous = Some(at);
            }
        }
    }

    /// From each transaction to those that were invoked later than it had completed.
    fn real_time(&mut self, versions: &Versions<'_>) {
        let counts = |&at: &usize| versions.committed[at] && !versions.transaction(at).copy;
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for at in (0..versions.committed.len()).filter(counts) {
            let transaction = versions.transaction(at);
            events.push((transaction.invoked_ns, false, at));
            if transaction.outcome == Outcome::Ok {
                events.push((transaction.end_ns(), true, at));
            }
        }
        // Of one moment, invocations come first: what is not strictly later is at once.
        events.sort_unstable();
        // Completed, and before no other of these.
        let mut newest: Vec<(u64, usize)> = Vec::new();
        for (time, completes, at) in events {
            if completes {
                let invoked_ns = versions.transaction(at).invoked_ns;
                newest.retain(|&(completed_ns, _)| completed_ns >= invoked_ns);
                newest.push((time, at));
            } else {
                for &(completed_ns, before) in &newest {
                    debug_assert!(completed_ns < time, "completions come in their order");
                    self.add(
                        before,
                        at,
                        EdgeKind::RealTime,
                        (0, Some(completed_ns), time),
                    );
                }
            }
        }
    }
}

/// Acknowledged appends that are not in the longest read, so that they come behind it.
fn unread(versions: &Versions<'_>, list: &List<'_>) -> Vec<(u64, usize)> {
    let order: HashSet<u64> = list.order.iter().copied().collect();
    let mut unread = list.appends.clone();
    unread.retain(|(value, by)| {
        versions.transaction(*by).outcome == Outcome::Ok && !order.contains(value)
    });
    unread.sort_by_key(|&(_, by)| versions.transaction(by).end_ns());
    unread.truncate(UNREAD_MAX);
    unread
}

/// An edge in words.
pub(crate) fn step(versions: &Versions<'_>, from: u32, edge: Edge) -> Step {
    let (one, other) = (from as usize, edge.to as usize);
    let (from, to) = (id(one), id(other));
    let Edge {
        key, value, before, ..
    } = edge;
    let place = match before {
        Some(before) => format!("up to {before}"),
        None => "as empty".to_owned(),
    };
    let reason = match edge.kind {
        EdgeKind::Ww => {
            let before = before.unwrap_or_default();
            format!("{from} appended {before} to {key}, {to} appended {value} behind it")
        }
        EdgeKind::Wr => format!("{from} appended {value} to {key}, {to} read it"),
        EdgeKind::Rw => {
            format!("{from} read {key} {place}, without {value}, which {to} appended next")
        }
        EdgeKind::Process => {
            let process = versions.transaction(one).process;
            format!("in process {process}, {from} came before {to}")
        }
        EdgeKind::RealTime => {
            let lag_ns = value.saturating_sub(before.unwrap_or_default());
            format!(
                "{from} had completed {:.3} ms before {to} was invoked",
                lag_ns as f64 / 1e6
            )
        }
    };
    Step {
        from,
        to,
        kind: edge.kind,
        reason,
    }
}
