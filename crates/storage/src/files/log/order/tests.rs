//! The order by example; `model` has it against what each commit needs.

mod model;

use std::{io, sync::Arc};

use super::*;

fn order(rule: Rule) -> Order {
    Order::after(CommitTs(0), 1, 0, rule)
}

fn failure() -> LogFailure {
    LogFailure {
        doing: "write".to_owned(),
        source: Arc::new(io::ErrorKind::StorageFull.into()),
    }
}

fn entry(kind: Kind, lsn: u64, txn: u64, payload: &[u8], wall_micros: u64) -> Entry {
    let head = Head {
        kind,
        lsn: CommitTs(lsn),
        txn: TxnId(txn),
        wall_micros,
    };
    Entry {
        head,
        payload: payload.to_vec(),
    }
}

/// A commit with rows.
fn commit(order: &mut Order, lsn: u64) {
    let entry = entry(Kind::Commit, lsn, 100 + lsn, b"rows", 0);
    order.enqueue(entry, &[]).unwrap();
}

/// A commit of temporary relations alone.
fn passing(order: &mut Order, lsn: u64) {
    let entry = entry(Kind::Commit, lsn, 100 + lsn, b"", 0);
    order.enqueue(entry, &[]).unwrap();
}

fn written(order: &mut Order) -> Group {
    let group = order.next_group(false, false);
    order.written(group.through, group.file_number);
    group
}

#[test]
fn each_rule_asks_for_its_own() {
    let copies = |and_fsync| Rule::Copies { and_fsync };
    // After the group was written, was synced, and was said to be committed; and with that before the sync.
    let cases = [
        (Rule::Written, [1, 1, 1], 1),
        (Rule::Fsync, [0, 1, 1], 0),
        (copies(false), [0, 0, 1], 1),
        (copies(true), [0, 0, 1], 0),
    ];
    for (rule, expected, before) in cases {
        let mut one = order(rule);
        commit(&mut one, 1);
        let group = written(&mut one);
        let mut found = vec![one.acknowledged().0];
        one.synced(group.through);
        found.push(one.acknowledged().0);
        one.committed(group.through);
        found.push(one.acknowledged().0);
        assert_eq!(found, expected, "{rule:?}");
        let mut other = order(rule);
        commit(&mut other, 1);
        let group = written(&mut other);
        other.committed(group.through);
        assert_eq!(other.acknowledged().0, before, "{rule:?}");
    }
}

#[test]
fn who_is_ahead_of_this_nodes_disk_acknowledges_nothing_for_it() {
    let mut order = order(Rule::Copies { and_fsync: true });
    commit(&mut order, 1);
    let group = written(&mut order);
    order.committed(group.through);
    assert_eq!(order.acknowledged(), CommitTs(0));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // What is said late says nothing less.
    order.committed(CommitTs(0));
    assert_eq!(order.fate(CommitTs(1)), Some(Ok(CommitTs(1))));
}

#[test]
fn who_is_deposed_tells_nobody_that_a_commit_is_there() {
    let mut order = order(Rule::Copies { and_fsync: false });
    for lsn in 1..=3 {
        commit(&mut order, lsn);
    }
    written(&mut order);
    order.committed(CommitTs(1));
    commit(&mut order, 4);
    order.depose();
    assert_eq!(order.fate(CommitTs(1)), Some(Ok(CommitTs(1))));
    for lsn in 2..=4 {
        assert!(matches!(order.fate(CommitTs(lsn)), Some(Err(_))), "{lsn}");
    }
    assert!(order.doubt().is_none(), "it is not this node's to mend");
    let more = entry(Kind::Commit, 5, 8, b"", 0);
    order.enqueue(more, &[]).unwrap_err();
}

#[test]
fn what_is_received_is_another_nodes_until_this_one_leads() {
    let mut order = order(Rule::Written);
    order.follow(std::iter::empty());
    order
        .enqueue(entry(Kind::Commit, 1, 8, b"rows", 0), &[])
        .unwrap_err();
    let mut receive = |kind, lsn, txn, parts: &[TxnId]| {
        order
            .receive(entry(kind, lsn, txn, b"rows", 0), parts)
            .unwrap();
    };
    receive(Kind::Rows, 0, 64, &[]);
    receive(Kind::Rows, 0, 65, &[]);
    receive(Kind::Rows, 0, 66, &[]);
    receive(Kind::Block, 1, 90, &[TxnId(64)]);
    receive(Kind::Abort, 0, 66, &[]);
    // One that speaks of others before it.
    receive(Kind::Nothing, 5, 0, &[]);
    let group = written(&mut order);
    assert!(!group.ends_inside && group.entries.len() == 6);
    assert_eq!(order.acknowledged(), CommitTs(5));
    assert_eq!(order.cut().keep_from, 1, "a transaction has a chunk in it");
    order.lead();
    commit(&mut order, 6);
    let kinds = written(&mut order).entries;
    let kinds: Vec<_> = kinds
        .iter()
        .map(|entry| (entry.head.kind, entry.head.txn.0))
        .collect();
    assert_eq!(kinds, [(Kind::Abort, 65), (Kind::Commit, 106)]);
    assert_eq!(order.cut().keep_from, 2);
}

#[test]
fn commits_of_temporary_relations_alone_owe_no_sync() {
    let mut order = order(Rule::Fsync);
    passing(&mut order, 1);
    assert!(!order.syncs() && !written(&mut order).syncs);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // With one that owes a sync they wait for it.
    passing(&mut order, 2);
    commit(&mut order, 3);
    passing(&mut order, 4);
    let group = written(&mut order);
    assert!(group.syncs);
    assert_eq!(order.acknowledged(), CommitTs(1));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(4));
    // A chunk before a commit of nothing else is what the commit owes a sync for.
    let chunk = entry(Kind::Rows, 0, 9, b"rows", 0);
    order.enqueue(chunk, &[]).unwrap();
    assert!(!order.syncs());
    let last = entry(Kind::Commit, 5, 9, b"", 0);
    order.enqueue(last, &[]).unwrap();
    assert!(order.syncs());
}

#[test]
fn a_rule_counts_from_the_next_group_on() {
    let mut order = order(Rule::Written);
    commit(&mut order, 1);
    written(&mut order);
    order.set_rule(Rule::Fsync);
    assert_eq!(order.acknowledged(), CommitTs(1));
    // What was acknowledged without a sync owes none.
    passing(&mut order, 2);
    written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(2));
    commit(&mut order, 3);
    let group = written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(2));
    order.synced(group.through);
    assert_eq!(order.acknowledged(), CommitTs(3));
}

#[test]
fn a_failure_takes_what_is_not_secured_and_leaves_the_rest_to_the_members() {
    let mut order = order(Rule::Copies { and_fsync: false });
    commit(&mut order, 1);
    written(&mut order);
    commit(&mut order, 2);
    let group = order.next_group(false, false);
    commit(&mut order, 3);
    let failure = failure();
    order.failed(group.file_number, failure.clone());
    // The first is in this node's log: what becomes of it is for the member to say.
    assert_eq!(order.fate(CommitTs(1)), None);
    let taken = Some(Err(failure.clone()));
    assert_eq!(
        [2, 3].map(|ts| order.fate(CommitTs(ts))),
        [taken.clone(), taken.clone()]
    );
    let more = entry(Kind::Commit, 4, 8, b"", 0);
    assert!(order.enqueue(more, &[]) == Err(failure));
    let doubt = order.doubt().unwrap();
    assert_eq!((doubt.after, doubt.through), (CommitTs(1), CommitTs(3)));
    order.mended(doubt);
    order.committed(CommitTs(3));
    assert_eq!(order.fate(CommitTs(1)), Some(Ok(CommitTs(3))));
    assert_eq!(
        [2, 3].map(|ts| order.fate(CommitTs(ts))),
        [taken.clone(), taken]
    );
    commit(&mut order, 4);
    written(&mut order);
    order.committed(CommitTs(4));
    assert_eq!(order.fate(CommitTs(4)), Some(Ok(CommitTs(4))));
}

#[test]
fn who_had_chunks_when_the_log_failed_is_refused_until_forgotten() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap();
    order.enqueue(chunk(8), &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    assert_eq!(order.doomed(), 2);
    let block = |lsn| entry(Kind::Block, lsn, 20, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap_err();
    order.enqueue(block(1), &[TxnId(8)]).unwrap_err();
    order.forget(TxnId(8));
    order.enqueue(block(1), &[TxnId(9)]).unwrap();
}

#[test]
#[should_panic(expected = "LSNs have no gaps")]
fn a_gap_is_a_bug() {
    let mut order = order(Rule::Written);
    commit(&mut order, 2);
}

#[test]
#[should_panic(expected = "which an earlier one has removed")]
fn a_file_that_went_is_not_asked_for() {
    let mut order = order(Rule::Written);
    let chunk = entry(Kind::Rows, 0, 7, b"rows", 0);
    order.enqueue(chunk, &[]).unwrap();
    order.next_group(true, false);
    order.release_before(2);
    order.cut();
}

/// The kinds and places of what is taken, and the first place of which a record speaks.
fn taken(order: &mut Order) -> Vec<(Kind, u64, u64)> {
    let entries = written(order).entries.into_iter();
    let taken = entries.map(|Entry { head, payload }| {
        let first = match head.kind {
            Kind::Nothing => u64::from_le_bytes(payload.try_into().unwrap()),
            _ => head.lsn.0,
        };
        (head.kind, head.lsn.0, first)
    });
    taken.collect()
}

#[test]
fn commits_of_nothing_take_no_place_in_the_log() {
    let mut order = order(Rule::Written);
    passing(&mut order, 1);
    passing(&mut order, 2);
    assert_eq!(taken(&mut order), []);
    assert_eq!(order.acknowledged(), CommitTs(2));
    passing(&mut order, 3);
    commit(&mut order, 4);
    passing(&mut order, 5);
    commit(&mut order, 6);
    passing(&mut order, 7);
    // The last one too, for the file may end behind them.
    let expected = [
        (Kind::Nothing, 3, 1),
        (Kind::Commit, 4, 4),
        (Kind::Nothing, 5, 5),
        (Kind::Commit, 6, 6),
        (Kind::Nothing, 7, 7),
    ];
    assert_eq!(taken(&mut order), expected);
    passing(&mut order, 8);
    let group = order.next_group(true, false);
    order.written(group.through, group.file_number + 1);
    assert_eq!(group.entries.len(), 1, "a file that ends speaks of all");
    // So is one that the disk is to have for good.
    passing(&mut order, 9);
    let group = order.next_group(false, true);
    order.written(group.through, group.file_number);
    assert!(group.syncs && group.entries.len() == 1);
}

#[test]
fn members_need_not_hear_of_places_of_nothing() {
    let mut order = order(Rule::Copies { and_fsync: false });
    commit(&mut order, 1);
    written(&mut order);
    passing(&mut order, 2);
    written(&mut order);
    assert_eq!(order.acknowledged(), CommitTs(0));
    order.committed(CommitTs(1));
    assert_eq!(order.acknowledged(), CommitTs(2));
    passing(&mut order, 3);
    written(&mut order);
    assert_eq!(order.fate(CommitTs(3)), Some(Ok(CommitTs(3))));
}

#[test]
fn who_lost_a_chunk_to_a_failure_does_not_commit_without_it() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    commit(&mut order, 1);
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    order.enqueue(chunk(7), &[]).unwrap_err();
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    let block = |lsn| entry(Kind::Block, lsn, 20, b"rows", 0);
    order.enqueue(block(2), &[TxnId(7)]).unwrap_err();
    order.forget(TxnId(7));
    order.enqueue(block(2), &[TxnId(8)]).unwrap();
}

#[test]
fn aborts_that_a_failure_kept_back_are_said_when_it_is_mended() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    for txn in [7, 8] {
        order.enqueue(chunk(txn), &[]).unwrap();
    }
    let group = written(&mut order);
    order.synced(group.through);
    // One is about to commit, the other is rolled back while the log has failed.
    let last = entry(Kind::Commit, 1, 7, b"", 0);
    order.enqueue(last, &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    order.forget(TxnId(8));
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    let entries = written(&mut order).entries.into_iter();
    let mut said: Vec<(Kind, u64)> = entries
        .map(|entry| (entry.head.kind, entry.head.txn.0))
        .collect();
    said.sort_by_key(|(_, txn)| *txn);
    assert_eq!(said, [(Kind::Abort, 7), (Kind::Abort, 8)]);
}

#[test]
fn what_the_log_spoke_of_is_known_when_it_is_mended() {
    let mut order = order(Rule::Fsync);
    commit(&mut order, 1);
    let group = written(&mut order);
    order.synced(group.through);
    passing(&mut order, 2);
    passing(&mut order, 3);
    written(&mut order);
    passing(&mut order, 4);
    commit(&mut order, 5);
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    let found = [doubt.said, doubt.after, doubt.through].map(|ts| ts.0);
    assert_eq!(found, [1, 3, 5]);
    order.mended(doubt);
    commit(&mut order, 6);
    let group = written(&mut order);
    assert_eq!(group.entries.len(), 1);
    order.synced(group.through);
    assert_eq!(order.fate(CommitTs(3)).map(|fate| fate.is_ok()), Some(true));
    assert_eq!(order.fate(CommitTs(6)).map(|fate| fate.is_ok()), Some(true));
}

#[test]
fn transactions_with_chunks_that_do_not_commit_are_told_of() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    order.enqueue(chunk(7), &[]).unwrap();
    order.enqueue(chunk(8), &[]).unwrap();
    order.forget(TxnId(7));
    // Who had none is not spoken of, nor who has committed.
    order.forget(TxnId(9));
    order
        .enqueue(entry(Kind::Commit, 1, 8, b"", 0), &[])
        .unwrap();
    order.forget(TxnId(8));
    let entries = written(&mut order).entries.into_iter();
    let kinds: Vec<(Kind, u64)> = entries
        .map(|entry| (entry.head.kind, entry.head.txn.0))
        .collect();
    assert_eq!(
        kinds,
        [
            (Kind::Rows, 7),
            (Kind::Rows, 8),
            (Kind::Abort, 7),
            (Kind::Commit, 8)
        ]
    );
    order.synced(CommitTs(1));
    // Of one that a failure has doomed a chunk may have stayed.
    order.enqueue(chunk(10), &[]).unwrap();
    let group = order.next_group(false, false);
    order.failed(group.file_number, failure());
    let doubt = order.doubt().unwrap();
    order.mended(doubt);
    order.forget(TxnId(10));
    assert_eq!(taken(&mut order), [(Kind::Abort, 0, 0)]);
}

#[test]
#[should_panic(expected = "file 1 is being written, and those before 2 are to go")]
fn a_file_that_is_written_does_not_go() {
    order(Rule::Written).release_before(2);
}

/// A copy's log is cut back to the last record with a place: until there is another, all chunks are kept of who
/// was said to be aborted behind it, or what is done again would be a part of them.
#[test]
fn chunks_of_who_was_aborted_last_are_kept_until_the_next_place() {
    let mut order = order(Rule::Fsync);
    let chunk = |txn| entry(Kind::Rows, 0, txn, b"rows", 0);
    let rotated = |order: &mut Order| {
        let cut = order.cut();
        let group = order.next_group(true, false);
        order.written(group.through, group.file_number + 1);
        order.synced(group.through);
        cut.keep_from
    };
    order.enqueue(chunk(7), &[]).unwrap();
    commit(&mut order, 1);
    assert_eq!(rotated(&mut order), 1, "one has not ended");
    order.enqueue(chunk(7), &[]).unwrap();
    order.enqueue(chunk(8), &[]).unwrap();
    commit(&mut order, 2);
    order.forget(TxnId(7));
    assert_eq!(rotated(&mut order), 1, "whose end may be cut off");
    commit(&mut order, 3);
    assert_eq!(rotated(&mut order), 2, "the other has not ended");
    order.forget(TxnId(8));
    // An end of its own that needs no record is said when something is written.
    order
        .enqueue(entry(Kind::Commit, 4, 9, b"", 0), &[])
        .unwrap();
    assert_eq!(rotated(&mut order), 2);
    let next = order.cut().next;
    assert_eq!(rotated(&mut order), next);
}
