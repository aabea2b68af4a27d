//! What statements hold that no operator has asked for: counted by the allocator, charged to the
//! database, and given back.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::{
    alloc::System,
    thread,
    time::{Duration, Instant},
};

use aerostat_memory::Counted;
use aerostat_types::ErrorKind;
use common::Fixture;

#[global_allocator]
static ALLOCATOR: Counted<System> = Counted(System);

const MEMORY_BYTES: u64 = 128 << 20;

/// The window operator holds all these rows, and asks nobody.
fn window(rows: u64) -> String {
    format!(
        "select max(t), max(c) from (
             select t, count(*) over () as c
             from (select repeat(md5(g::text), 30) as t from generate_series(1, {rows}) as g) as s
         ) as s"
    )
}

/// Waits until the node uses no more than it did.
fn wait_for(fixture: &Fixture, used: u64) {
    let started = Instant::now();
    while fixture.engine.governor().used() > used {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{} bytes are in use, {used} before",
            fixture.engine.governor().used()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_statement_that_holds_more_than_there_is_is_refused() {
    let fixture = Fixture::with_memory(MEMORY_BYTES);
    let mut session = fixture.session();
    assert_eq!(fixture.ok(&mut session, &window(1_000)).len(), 1);
    let used = fixture.engine.governor().used();
    // 200 MB.
    let error = fixture.error(&mut session, &window(200_000));
    assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error:?}");
    assert!(error.hint.is_some(), "{error:?}");
    wait_for(&fixture, used);
    assert_eq!(fixture.ok(&mut session, &window(1_000)).len(), 1);
}

#[test]
fn what_a_statement_holds_counts_for_its_database_alone() {
    let fixture = Fixture::with_memory(8 * MEMORY_BYTES);
    let mut admin = fixture.session();
    for database in ["small", "large"] {
        fixture.ok(&mut admin, &format!("create database {database}"));
    }
    fixture.ok(&mut admin, "alter database small set (memory_max = '64MB')");
    let connect = |database| fixture.engine.connect("aerostat", database, &[]).unwrap();
    let (mut small, mut large) = (connect("small"), connect("large"));
    let sql = window(100_000);
    assert_eq!(fixture.ok(&mut large, &sql).len(), 1);
    assert_eq!(fixture.kind(&mut small, &sql), ErrorKind::OutOfMemory);
    assert_eq!(fixture.ok(&mut large, &sql).len(), 1);
}

#[test]
fn rows_that_pass_through_are_nobodys() {
    let fixture = Fixture::with_memory(MEMORY_BYTES);
    let mut session = fixture.session();
    // Far more than there is, a batch at a time.
    let sql = "select repeat(md5(g::text), 30) from generate_series(1, 500000) as g";
    let mut rows = 0;
    fixture.runtime.block_on(async {
        let statement = session.split(sql).await.unwrap().remove(0);
        let outcome = session.execute(&statement).await.unwrap();
        let aerostat_api::Outcome::Rows { mut batches, .. } = outcome else {
            panic!("no rows");
        };
        while let Some(batch) = futures::StreamExt::next(&mut batches).await {
            rows += batch.unwrap().num_rows();
        }
    });
    assert_eq!(rows, 500_000);
}
