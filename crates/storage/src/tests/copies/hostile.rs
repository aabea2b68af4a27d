//! What comes from elsewhere may be anything, and a copy is nobody's to change.

use aerostat_types::TxnId;

use super::*;
use crate::files::log::record::{self, Head, Kind};

/// A leader with some commits, and what its log says.
fn shipped() -> (World, Vec<u8>) {
    let world = World::new();
    for key in 0..20 {
        load(&world.keyed, &[(key, 1, Some("text".to_owned()))]);
        load(&world.bag, &[(key % 3, 1, None)]);
    }
    let mut reader = world.store.log_reader(CommitTs(0), nobody()).unwrap();
    let bytes = reader.next(1 << 20).unwrap().unwrap();
    assert!(reader.next(1 << 20).unwrap().is_none());
    (world, bytes)
}

#[test]
fn damaged_records_are_refused_and_those_before_them_stay() {
    let (world, bytes) = shipped();
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..200 {
        let mut copy = CopyAt::of(&world.store);
        let mut damaged = bytes.clone();
        match random.random_range(0..4) {
            0 => damaged.truncate(random.random_range(1..bytes.len())),
            1 => {
                let at = random.random_range(0..bytes.len());
                damaged[at] ^= 1 << random.random_range(0..8);
            }
            2 => drop(damaged.drain(..random.random_range(1..bytes.len()))),
            // Some come twice.
            _ => damaged.extend_from_slice(&bytes),
        }
        let received = copy.store.receive(&damaged);
        let is_end = received.is_ok() && bytes.starts_with(&damaged);
        assert!(
            is_end || matches!(received, Err(ReceiveError::Bad(_))),
            "{received:?}"
        );
        // What was taken is the beginning of the leader's log, and goes on from there.
        copy.apply(world.store.txns().last_commit());
        let CopyAt {
            folder,
            store,
            applier,
            reader,
            hold,
            ..
        } = copy;
        drop((store, applier, reader));
        let mut copy = CopyAt::opened(folder, &world.store, hold, None);
        while copy.receive(&mut random) {}
        copy.apply(world.store.txns().last_commit());
        assert_eq!(
            rows_of_table(&copy.table(KEYED)),
            rows_of_table(&world.keyed)
        );
        assert_eq!(rows_of_table(&copy.table(BAG)), rows_of_table(&world.bag));
    }
}

#[test]
fn a_copy_takes_no_changes_of_its_own() {
    let (world, _) = shipped();
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(1);
    while copy.receive(&mut random) {}
    copy.apply(world.store.txns().last_commit());
    assert!(copy.store.is_copy() && !world.store.is_copy());
    let table = copy.table(KEYED);
    let before = rows_of_table(&table);
    let txn = copy.store.txns().begin();
    table
        .insert(&txn, &batch(&table, &[(77, 1, None)]))
        .unwrap();
    assert!(txn.commit().is_err());
    assert!(copy.store.commit_catalog(vec![1]).is_err());
    assert!(copy.store.drop_table(KEYED).is_err());
    let layout = Layout::parse("(k,s),(n)").unwrap();
    let made = copy.store.create_table(TableId(50), schema(true), &layout);
    assert!(made.is_err());
    assert!(table.set_layout(&layout).is_err());
    assert_eq!(rows_of_table(&table), before);
    // And goes on.
    load(&world.keyed, &[(500, 5, None)]);
    while copy.receive(&mut random) {}
    copy.apply(world.store.txns().last_commit());
    assert_eq!(
        rows_of_table(&copy.table(KEYED)),
        rows_of_table(&world.keyed)
    );
}

#[test]
fn a_copy_of_another_history_is_refused() {
    let (one, _) = shipped();
    let (other, bytes) = shipped();
    let copy = CopyAt::of(&other.store);
    copy.store.receive(&bytes).unwrap();
    let CopyAt {
        folder,
        store,
        applier,
        reader,
        ..
    } = copy;
    drop((store, applier, reader));
    let of = CopyOf {
        timeline: one.store.timeline().unwrap(),
        through: None,
    };
    let opened = try_open_copy(folder.path(), of);
    assert!(matches!(opened, Err(RecoverError::Diverged { .. })));
}

#[test]
fn readers_keep_files_but_not_for_ever() {
    let folder = memory_folder();
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let options = OpenOptions {
        log_file_bytes: Some(32 << 10),
        durability: Durability::None,
        ..options()
    };
    let opened = TenantStore::open(TenantId(1), budget, folder.path(), &options);
    let (store, _) = opened.unwrap();
    let table = create(&store, 10, true);
    let text = "x".repeat(1_000);
    let write = |from: i32| {
        for key in from..from + 50 {
            load(&table, &[(key, 1, Some(text.clone()))]);
        }
    };
    let files = || read_names(&folder.path().join("log")).len();
    write(0);
    let mut reader = store.log_reader(CommitTs(0), nobody()).unwrap();
    write(50);
    store.checkpoint().unwrap();
    assert!(files() > 3, "{} files", files());
    // What it has not read is there still, whatever checkpoints need.
    while reader.next(10_000).unwrap().is_some() {}
    assert_eq!(reader.read_through(), store.txns().last_commit());
    store.checkpoint().unwrap();
    assert!(files() <= 2, "{} files", files());
    // A reader that is too far behind finds that it is.
    for turn in 0..20 {
        write(100 + 50 * turn);
    }
    store.checkpoint().unwrap();
    assert!(files() <= 18, "{} files", files());
    let gone = reader.next(10_000);
    assert!(matches!(gone, Err(StreamError::Gone { .. })), "{gone:?}");
    // Nor can one begin where the log does not any more.
    let gone = store.log_reader(CommitTs(3), nobody());
    assert!(matches!(gone, Err(StreamError::Gone { .. })));
    drop(reader);
    store.checkpoint().unwrap();
    assert!(files() <= 2, "{} files", files());
}

#[test]
fn a_copy_opens_with_whatever_it_has_taken() {
    let (world, bytes) = shipped();
    let last = world.store.written_through().0;
    let copy = CopyAt::of(&world.store);
    copy.store.receive(&bytes).unwrap();
    let parts = |parts: &[TxnId]| {
        let mut payload = Vec::new();
        record::put_parts(parts, &mut payload);
        payload
    };
    // All with a good checksum.
    let odd: Vec<(Kind, u64, u64, Vec<u8>)> = vec![
        (Kind::Rows, 5, 900, b"rows".to_vec()),
        (Kind::Abort, 5, 900, Vec::new()),
        (Kind::Commit, 0, 900, Vec::new()),
        (Kind::Commit, last, 900, Vec::new()),
        (Kind::Commit, last + 2, 900, Vec::new()),
        (Kind::Commit, last + 1, 1 << 61, Vec::new()),
        (Kind::Block, last + 1, 900, parts(&[TxnId(901)])),
        (Kind::Block, last + 1, 900, vec![1]),
        (Kind::Defining, last + 1, 900, vec![9; 3]),
        (Kind::Table, last + 1, 0, b"{}".to_vec()),
        (Kind::Table, last + 1, 0, vec![0xFF; 9]),
        (Kind::DropTable, last + 1, 0, vec![1]),
        (Kind::Nothing, last + 1, 0, vec![1]),
        (
            Kind::Nothing,
            last + 4,
            0,
            record::nothing_from(CommitTs(last + 3)),
        ),
        (Kind::Epoch, last + 1, 0, vec![1]),
    ];
    for (kind, lsn, txn, payload) in odd {
        let head = Head {
            kind,
            lsn: CommitTs(lsn),
            txn: TxnId(txn),
            wall_micros: 5,
        };
        let mut bytes = Vec::new();
        record::put(&head, 0, &payload, &mut bytes);
        let received = copy.store.receive(&bytes);
        assert!(
            matches!(received, Err(ReceiveError::Bad(_))),
            "{kind:?} at {lsn}: {received:?}"
        );
    }
    let CopyAt {
        folder,
        store,
        applier,
        reader,
        hold,
        ..
    } = copy;
    drop((store, applier, reader));
    let mut copy = CopyAt::opened(folder, &world.store, hold, None);
    copy.apply(world.store.txns().last_commit());
    assert_eq!(
        rows_of_table(&copy.table(KEYED)),
        rows_of_table(&world.keyed)
    );
}

#[test]
fn the_log_is_read_behind_any_place_whatever_is_known_of_its_files() {
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = memory_folder();
        // A mark every half KiB, and every twelfth file begins inside of a transaction.
        let options = options().with_log_files_of(32 << 10);
        let open = || recovery::try_open(folder.path(), &options).unwrap().0;
        let store = open();
        let keyed = create(&store, 10, true);
        let mut begun = Vec::new();
        for key in (0..2_400).step_by(12) {
            let wide = "w".repeat(random.random_range(0..400));
            let rows =
                (key..key + random.random_range(1..12)).map(|key| (key, 1, Some(wide.clone())));
            let rows = batch(&keyed, &rows.collect::<Vec<_>>());
            let txn = store.txns().begin();
            keyed.insert(&txn, &rows).unwrap();
            match random.random_range(0..10) {
                0 => begun.push(txn),
                1 => drop(txn),
                _ => drop(txn.commit().unwrap()),
            }
            if random.random_bool(0.1)
                && let Some(txn) = begun.pop()
            {
                txn.commit().unwrap();
            }
        }
        drop(begun);
        let last = store.written_through();
        let read = |store: &Arc<TenantStore>, after: u64| {
            let mut reader = store.log_reader(CommitTs(after), nobody()).unwrap();
            let mut all = Vec::new();
            while let Some(part) = reader.next(5_000).unwrap() {
                all.extend(part);
            }
            all
        };
        let whole = read(&store, 0);
        let by_marks: Vec<Vec<u8>> = (0..=last.0).map(|after| read(&store, after)).collect();
        for (after, rest) in by_marks.iter().enumerate() {
            assert!(whole.ends_with(rest), "seed {seed}, behind {after}");
            let place = last_place(&whole[..whole.len() - rest.len()]);
            assert_eq!(
                place.unwrap_or_default(),
                CommitTs(after as u64),
                "seed {seed}"
            );
        }
        // A process that has written none of it.
        drop((keyed, store));
        let store = open();
        for (after, rest) in by_marks.iter().enumerate() {
            let read = read(&store, after as u64);
            assert!(read.starts_with(rest), "seed {seed}, behind {after}");
        }
    }
}
