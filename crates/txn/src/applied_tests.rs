//! Commits of another node's log, seen by snapshots of this one.

use std::sync::{Arc, Mutex};

use aerostat_types::{CommitTs, TxnId};

use crate::*;

#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Outcome>>>);

impl Participant for Noted {
    fn finish(self: Box<Self>, outcome: Outcome) {
        self.0.lock().unwrap().push(outcome);
    }
}

#[test]
fn snapshots_pass_from_one_applied_commit_to_the_next() {
    let txns = TxnManager::new();
    let noted = Noted::default();
    let (one, two) = (txns.begin_applied(), txns.begin_applied());
    one.enlist(Box::new(noted.clone()));
    two.enlist(Box::new(noted.clone()));
    let ids = [one.id(), two.id()];
    assert!(ids.iter().all(|id| txns.is_active(*id)));
    let before = txns.snapshot();
    txns.commit_applied(CommitTs(5), vec![one, two]);
    assert_eq!(
        (before.at(), txns.snapshot().at()),
        (CommitTs(0), CommitTs(5))
    );
    assert!(ids.iter().all(|id| !txns.is_active(*id)));
    assert_eq!(
        *noted.0.lock().unwrap(),
        [Outcome::Committed(CommitTs(5)); 2]
    );
    // At the places through 9 there is nothing.
    txns.commit_applied(CommitTs(9), Vec::new());
    assert_eq!(txns.last_commit(), CommitTs(9));
    let three = txns.begin_applied();
    three.enlist(Box::new(noted.clone()));
    // What is open keeps no version.
    txns.commit_applied(CommitTs(10), Vec::new());
    drop(before);
    assert_eq!(txns.horizon(), CommitTs(10));
    drop(three);
    assert_eq!(noted.0.lock().unwrap().last(), Some(&Outcome::Aborted));
}

#[test]
fn ids_go_on_above_those_of_the_other_log() {
    let txns = TxnManager::new();
    txns.raise_ids(TxnId(1_000));
    assert_eq!(txns.begin_applied().id(), TxnId(1_001));
    txns.raise_ids(TxnId(7));
    assert_eq!(txns.begin_applied().id(), TxnId(1_002));
}

#[test]
#[should_panic(expected = "comes behind")]
fn a_commit_that_was_applied_is_not_applied_again() {
    let txns = TxnManager::new();
    txns.commit_applied(CommitTs(5), Vec::new());
    txns.commit_applied(CommitTs(5), Vec::new());
}

#[test]
#[should_panic(expected = "this node's own")]
fn what_is_this_nodes_own_has_no_place_of_another() {
    let txns = TxnManager::new();
    let own = txns.begin();
    txns.commit_applied(CommitTs(1), vec![own]);
}
