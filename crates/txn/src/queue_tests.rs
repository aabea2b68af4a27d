//! Which of the waiters for a row gets it next. No threads: waits are tasks that are polled.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use aerostat_types::TableId;

use crate::*;

const TABLE: TableId = TableId(7);

fn row(number: u32) -> RowTag {
    RowTag::new(TABLE, number)
}

fn held_by(holder: &Transaction, row: RowTag, mode: RowLock) -> Awaited {
    Awaited {
        holder: Some(holder.id()),
        row: Some((row, mode)),
    }
}

/// Begins to wait for a row that nobody may have before the holder has settled.
fn wait(txn: &Transaction, holder: &Transaction, number: u32) -> Waiting {
    let awaited = held_by(holder, row(number), RowLock::NoKeyUpdate);
    txn.waiting_for(awaited).unwrap().expect("it must wait")
}

fn poll(waiting: &mut Waiting) -> Poll<Result<(), WaitError>> {
    Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
}

fn has_woken(waiting: &mut Waiting) -> bool {
    match poll(waiting) {
        Poll::Ready(result) => {
            assert_eq!(result, Ok(()));
            true
        }
        Poll::Pending => false,
    }
}

#[test]
fn the_first_that_waits_has_the_row_first_and_wakes_alone() {
    let txns = TxnManager::new();
    let holder = txns.begin();
    let waiters: Vec<Transaction> = (0..4).map(|_| txns.begin()).collect();
    let mut waits: Vec<Waiting> = waiters.iter().map(|it| wait(it, &holder, 1)).collect();
    let newcomer = txns.begin();
    assert!(newcomer.may_be_kept());
    drop(holder);
    let mut others = waiters;
    while !others.is_empty() {
        let woken: Vec<bool> = waits.iter_mut().map(has_woken).collect();
        assert_eq!(woken.iter().filter(|woken| **woken).count(), 1);
        assert!(woken[0], "the first that came");
        // The row is free, and its own.
        let (first, mode) = (others.remove(0), RowLock::NoKeyUpdate);
        drop(waits.remove(0));
        assert!(!first.is_kept(row(1), mode));
        assert!(newcomer.is_kept(row(1), mode));
        assert!(!newcomer.is_kept(row(2), mode));
        // It has locked the row: the next waits for it, and no one else does.
        first.leave_row(row(1));
        if let Some(next) = waits.first_mut() {
            assert!(has_woken(next), "it is its turn");
            drop(waits.remove(0));
            waits.insert(0, wait(&others[0], &first, 1));
            assert!(!has_woken(&mut waits[0]));
        }
        drop(first);
    }
    assert_eq!(txns.waiting(), 0);
    assert!(!newcomer.may_be_kept(), "nobody is remembered");
}

#[test]
fn who_goes_together_with_those_before_it_waits_beside_them() {
    let txns = TxnManager::new();
    let holder = txns.begin();
    let share = |txn: &Transaction| {
        let awaited = held_by(&holder, row(1), RowLock::Share);
        txn.waiting_for(awaited).unwrap().unwrap()
    };
    let (one, two, three, four) = (txns.begin(), txns.begin(), txns.begin(), txns.begin());
    let mut waits = [
        share(&one),
        share(&two),
        wait(&three, &holder, 1),
        share(&four),
    ];
    let newcomer = txns.begin();
    assert!(newcomer.is_kept(row(1), RowLock::Share), "after the third");
    assert!(!newcomer.is_kept(row(1), RowLock::KeyShare));
    drop(holder);
    assert_eq!(
        waits.each_mut().map(has_woken),
        [true, true, false, false],
        "those that share wake together, and nobody passes who does not"
    );
}

#[test]
fn a_statement_that_runs_again_keeps_its_place() {
    let txns = TxnManager::new();
    let (holder, first, second) = (txns.begin(), txns.begin(), txns.begin());
    let first_wait = wait(&first, &holder, 1);
    let mut second_wait = wait(&second, &holder, 1);
    let place = first.place();
    drop((first_wait, holder));
    // The row has changed, and the statement is undone.
    drop(first);
    assert!(!has_woken(&mut second_wait));
    let again = txns.begin().with_place(&place);
    assert!(again.has_place() && !again.is_kept(row(1), RowLock::Update));
    assert!(!has_woken(&mut second_wait));
    // It waits for another row: this one is not kept for it any longer.
    let other = txns.begin();
    let other_wait = wait(&again, &other, 2);
    assert!(has_woken(&mut second_wait));
    drop((other_wait, again));
    assert!(second.is_kept(row(2), RowLock::Update), "the place stays");
    drop(place);
    assert!(!second.is_kept(row(2), RowLock::Update));
}

#[test]
fn who_gives_up_leaves_the_queue() {
    let txns = TxnManager::new();
    let (holder, one, two, three) = (txns.begin(), txns.begin(), txns.begin(), txns.begin());
    let first = wait(&one, &holder, 1);
    let second = wait(&two, &holder, 1);
    let mut third = wait(&three, &holder, 1);
    drop((second, two));
    drop((first, one));
    // It has the turn now and waits for the holder.
    assert!(has_woken(&mut third));
    drop(third);
    let mut third = wait(&three, &holder, 1);
    assert!(!has_woken(&mut third));
    drop(holder);
    assert!(has_woken(&mut third));
}

/// A waiter behind another waits for the row's holder as well: a circle through it is a deadlock.
#[test]
fn a_circle_through_the_holder_is_a_deadlock_wherever_the_waiter_stands() {
    let txns = TxnManager::new();
    let (holder, one, two) = (txns.begin(), txns.begin(), txns.begin());
    let _first = wait(&one, &holder, 1);
    let _second = wait(&two, &holder, 1);
    let circle = holder.waiting_for(held_by(&two, row(2), RowLock::Update));
    assert_eq!(circle.err(), Some(WaitError::Deadlock));
}

/// Letting others go first is no reason for an error: who is waited for passes.
#[test]
fn a_circle_by_order_alone_is_opened() {
    let txns = TxnManager::new();
    let (holder, first, second) = (txns.begin(), txns.begin(), txns.begin());
    let first_wait = wait(&first, &holder, 1);
    let mut second_wait = wait(&second, &holder, 1);
    drop((first_wait, holder));
    // The row is free, and the first's, which now needs something that the second has.
    let mut crossing = wait(&first, &second, 2);
    assert!(has_woken(&mut second_wait), "it passes");
    assert!(!has_woken(&mut crossing));
    assert!(!second.is_kept(row(1), RowLock::Update));
    drop((second_wait, second));
    assert!(has_woken(&mut crossing));
}
