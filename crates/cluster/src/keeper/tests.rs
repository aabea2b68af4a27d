//! What changes while a copy is opened.

use std::sync::{Arc, Mutex};

use aerostat_catalog::{Order, admin::BOOTSTRAP};
use aerostat_types::Durability;

use crate::{
    Space,
    tests::{start, wait_until},
};

#[test]
fn what_commits_wait_for_is_told_to_a_copy_that_was_being_opened() {
    let (shared, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = start(&Space::of(shared.path()), folder.path(), "a");
    wait_until("the first leads", || a.leads(BOOTSTRAP));
    a.ok("create database shop");
    let before = a.node.record().databases["shop"].clone();
    let id = before.oid;
    let inner = &a.cluster.as_ref().unwrap().inner;
    let (state, held) = inner.begin(id);
    let running = inner.copies.lock().get_mut(&id).unwrap().running.take();
    drop(running);
    inner.home.close(id, &held);
    state.take_orders(None);

    // The keeper has read the record; then it changes; then the copy opens.
    a.ok("alter database shop set (durability = 'memory2+fsync')");
    let running = inner.opened(&before, before.copies.unwrap(), &state, &held);
    let running = running.map_err(|why| why.reason).unwrap();
    let told: Arc<Mutex<Vec<Order>>> = Arc::default();
    let taker = Arc::clone(&told);
    state.take_orders(Some(Box::new(move |order| {
        taker.lock().unwrap().push(order)
    })));
    let expected = Order::Durability(Durability::Memory2Fsync);
    assert_eq!(*told.lock().unwrap(), [expected]);
    inner.copies.lock().get_mut(&id).unwrap().running = Some(running);
}
