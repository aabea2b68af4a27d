//! What is wrong with what was read, without a look at cycles.

use std::collections::{HashMap, HashSet};

use crate::history::{Operation, Outcome};
use crate::kind::Kind;
use crate::report::{Anomaly, Report};
use crate::versions::{List, Read, Versions, id};

/// How many values of a list a message shows, from its end.
const SHOWN_MAX: usize = 12;

/// Reports what is wrong of itself.
pub(crate) fn check(versions: &Versions<'_>, report: &mut Report) {
    for &(key, value, one, other) in &versions.not_unique {
        let text = || format!("{} and {} append {value} to {key}", id(one), id(other));
        add(report, Kind::NotUnique, &[one, other], text);
    }
    for at in 0..versions.committed.len() {
        if versions.committed[at] {
            check_itself(versions, at, report);
        }
    }
    for list in &versions.lists {
        check_orders(versions, list, report);
        check_ends(versions, list, report);
        check_torn(versions, list, report);
        check_dirty_updates(versions, list, report);
        check_lost_updates(versions, list, report);
    }
    check_last_reads(versions, report);
}

fn add(report: &mut Report, kind: Kind, transactions: &[usize], text: impl FnOnce() -> String) {
    report.add(kind, || Anomaly {
        kind,
        transactions: transactions.iter().map(|&at| id(at)).collect(),
        steps: Vec::new(),
        text: text(),
    });
}

/// A list for a message.
fn shown(list: &[u64]) -> String {
    let from = list.len().saturating_sub(SHOWN_MAX);
    match from {
        0 => format!("{list:?}"),
        _ => format!("[… {from} more …, {:?}", &list[from..]).replacen(", [", ", ", 1),
    }
}

/// A transaction reads what it has read and appended before.
fn check_itself(versions: &Versions<'_>, at: usize, report: &mut Report) {
    #[derive(Default)]
    struct Known<'a> {
        read: Option<&'a [u64]>,
        own: Vec<u64>,
    }
    let mut known: HashMap<u64, Known<'_>> = HashMap::new();
    let operations = &versions.transaction(at).operations;
    for (nth, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Append { key, value } => known.entry(*key).or_default().own.push(*value),
            Operation::Read { key, list } => {
                let known = known.entry(*key).or_default();
                let own = std::mem::take(&mut known.own);
                let before = known.read.replace(list);
                let later = operations[nth..].iter().find_map(|later| match later {
                    Operation::Append { key: to, value } => {
                        (to == key && list.contains(value)).then_some(*value)
                    }
                    Operation::Read { .. } => None,
                });
                if let Some(value) = later {
                    let text = || format!("{} read {value} in {key} and appended it later", id(at));
                    add(report, Kind::Internal, &[at], text);
                }
                if !list.ends_with(&own) {
                    let text = || {
                        format!(
                            "{} appended {own:?} to {key} and read {}",
                            id(at),
                            shown(list)
                        )
                    };
                    add(report, Kind::Internal, &[at], text);
                } else if before.is_some_and(|before| list[..list.len() - own.len()] != *before) {
                    let before = shown(before.unwrap_or_default());
                    let text = || {
                        format!(
                            "{} read {key} as {before}, appended {own:?} and read {}",
                            id(at),
                            shown(list)
                        )
                    };
                    add(report, Kind::NonRepeatable, &[at], text);
                }
            }
        }
    }
}

/// Reads of a list are beginnings of one another, of values that somebody appended, once each,
/// and did not take back.
fn check_orders(versions: &Versions<'_>, list: &List<'_>, report: &mut Report) {
    for (read, other) in &list.contradicting {
        let text = || {
            let longest = shown(list.order);
            format!(
                "{} read {} as {}, which goes with neither what {} read nor the longest read, {longest} by {}",
                id(read.transaction),
                list.key,
                shown(read.list),
                id(*other),
                id(list.order_reader),
            )
        };
        add(
            report,
            Kind::IncompatibleOrder,
            &[read.transaction, *other],
            text,
        );
    }
    let order = Read {
        transaction: list.order_reader,
        list: list.order,
        behind_own: false,
    };
    let contradicting = list.contradicting.iter().map(|(read, _)| *read);
    for read in contradicting.chain([order]) {
        check_values(versions, list, read, report);
    }
}

fn check_values(versions: &Versions<'_>, list: &List<'_>, read: Read<'_>, report: &mut Report) {
    let key = list.key;
    let mut seen = HashSet::new();
    for &value in read.list {
        // The first to have read it is the best witness.
        let reader = || {
            let mut reads = list.reads.iter();
            let first = reads.find(|read| read.list.contains(&value));
            first.map_or(read.transaction, |read| read.transaction)
        };
        if !seen.insert(value) {
            let at = read.transaction;
            let text = || format!("{} read {value} twice in {key}", id(at));
            add(report, Kind::Duplicate, &[at], text);
        }
        let Some(writer) = versions.writer(key, value) else {
            let at = reader();
            let text = || format!("{} read {value} in {key}: nobody appended it", id(at));
            add(report, Kind::UnknownValue, &[at], text);
            continue;
        };
        let writer = writer.transaction;
        if versions.transaction(writer).outcome == Outcome::Fail {
            let at = reader();
            let text = || {
                format!(
                    "{} read {value} in {key}, of {}",
                    id(at),
                    failed(writer, versions)
                )
            };
            add(report, Kind::G1a, &[at, writer], text);
        }
    }
}

fn failed(at: usize, versions: &Versions<'_>) -> String {
    match versions.transaction(at).note.as_str() {
        "" => format!("{}, which failed", id(at)),
        note => format!("{}, which failed ({note})", id(at)),
    }
}

/// Nobody reads a list that ends in the middle of what another transaction appended.
fn check_ends(versions: &Versions<'_>, list: &List<'_>, report: &mut Report) {
    for read in &list.reads {
        let Some(&value) = read.list.last() else {
            continue;
        };
        let Some(writer) = versions.writer(list.key, value) else {
            continue;
        };
        let (at, other) = (read.transaction, writer.transaction);
        if !writer.is_its_last && at != other {
            let text = || {
                let (at, other) = (id(at), id(other));
                let key = list.key;
                format!("{at} read {key} up to {value}, but {other} appended more to it")
            };
            add(report, Kind::G1b, &[at, other], text);
        }
    }
}

/// What a transaction appended to a list is together there, in its order. That the list ends in
/// the middle of it is said by [`check_ends`].
fn check_torn(versions: &Versions<'_>, list: &List<'_>, report: &mut Report) {
    let mut before: Option<u64> = None;
    for (place, &value) in list.order.iter().enumerate() {
        let behind = before.replace(value);
        let Some(by) = versions.committed_writer(list.key, value) else {
            continue;
        };
        let operations = versions.transaction(by).operations.iter();
        let own: Vec<u64> = operations
            .filter_map(|operation| match operation {
                Operation::Append { key, value } if *key == list.key => Some(*value),
                _ => None,
            })
            .collect();
        let nth = own.iter().position(|&own| own == value).unwrap_or_default();
        let begins_well = nth == 0 || behind == Some(own[nth - 1]);
        let next = list.order.get(place + 1);
        let goes_on_well = nth + 1 == own.len() || next.is_none_or(|&next| next == own[nth + 1]);
        if !begins_well || !goes_on_well {
            let from = place.saturating_sub(1);
            let part = &list.order[from..(place + 2).min(list.order.len())];
            let text = || {
                let (by, reader) = (id(by), id(list.order_reader));
                format!(
                    "{by} appended {own:?} to {}, {reader} read {part:?} there",
                    list.key
                )
            };
            add(report, Kind::Torn, &[by, list.order_reader], text);
        }
    }
}

/// Nobody who is committed appended behind a failed transaction.
fn check_dirty_updates(versions: &Versions<'_>, list: &List<'_>, report: &mut Report) {
    let mut dirty: Option<(u64, usize)> = None;
    for &value in list.order {
        let Some(writer) = versions.writer(list.key, value) else {
            continue;
        };
        let writer = writer.transaction;
        if versions.transaction(writer).outcome == Outcome::Fail {
            dirty = Some((value, writer));
        } else if let Some((before, failed_one)) = dirty.take() {
            let text = || {
                let failed = failed(failed_one, versions);
                let key = list.key;
                format!(
                    "{} appended {value} to {key} behind {before} of {failed}",
                    id(writer)
                )
            };
            add(report, Kind::DirtyUpdate, &[writer, failed_one], text);
        }
    }
}

/// Of those who read the same and appended to it, one is committed.
fn check_lost_updates(versions: &Versions<'_>, list: &List<'_>, report: &mut Report) {
    let writers: HashSet<usize> = list.appends.iter().map(|&(_, at)| at).collect();
    let mut by_read: HashMap<&[u64], usize> = HashMap::new();
    for read in &list.reads {
        let at = read.transaction;
        if read.behind_own || !writers.contains(&at) || !appends_behind(versions, at, list.key) {
            continue;
        }
        let other = *by_read.entry(read.list).or_insert(at);
        if other != at {
            let text = || {
                let list_read = shown(read.list);
                let key = list.key;
                format!(
                    "{} and {} both read {key} as {list_read} and appended to it",
                    id(other),
                    id(at)
                )
            };
            add(report, Kind::LostUpdate, &[other, at], text);
        }
    }
}

/// Whether the transaction reads the list and appends to it later.
fn appends_behind(versions: &Versions<'_>, at: usize, key: u64) -> bool {
    let operations = &versions.transaction(at).operations;
    let reads = operations.iter().position(
        |operation| matches!(operation, Operation::Read { key: read, .. } if *read == key),
    );
    let appends = operations.iter().rposition(
        |operation| matches!(operation, Operation::Append { key: to, .. } if *to == key),
    );
    reads < appends
}

/// Who reads when all is over finds everything that was acknowledged, and everything that
/// anybody had read by then.
fn check_last_reads(versions: &Versions<'_>, report: &mut Report) {
    for (at, transaction) in versions.history.transactions.iter().enumerate() {
        if !transaction.last || !versions.committed[at] {
            continue;
        }
        for operation in &transaction.operations {
            if let Operation::Read { key, list } = operation {
                check_last_read(versions, at, *key, list, report);
            }
        }
    }
}

fn check_last_read(
    versions: &Versions<'_>,
    at: usize,
    key: u64,
    read: &[u64],
    report: &mut Report,
) {
    let Some(list) = versions.list(key) else {
        return;
    };
    let invoked_ns = versions.transaction(at).invoked_ns;
    let before = |other: usize| versions.transaction(other).end_ns() < invoked_ns;
    let there: HashSet<u64> = read.iter().copied().collect();
    let mut lost: Vec<u64> = Vec::new();
    for &(value, writer) in &list.appends {
        let acknowledged = versions.transaction(writer).outcome == Outcome::Ok;
        if acknowledged && before(writer) && !there.contains(&value) {
            lost.push(value);
            let text = || {
                let (last, writer) = (id(at), id(writer));
                format!(
                    "{last}, the last to read {key}, finds no {value}, which {writer} was told is committed"
                )
            };
            add(report, Kind::LostAppend, &[at, writer], text);
        }
    }
    for &value in list.order {
        if there.contains(&value) || lost.contains(&value) {
            continue;
        }
        let mut earlier = list
            .reads
            .iter()
            .filter(|earlier| before(earlier.transaction));
        if let Some(earlier) = earlier.find(|earlier| earlier.list.contains(&value)) {
            let reader = earlier.transaction;
            let text = || {
                let (last, reader) = (id(at), id(reader));
                format!("{last}, the last to read {key}, finds no {value}, which {reader} had read")
            };
            add(report, Kind::LostAppend, &[at, reader], text);
        }
    }
}
