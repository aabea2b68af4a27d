//! Copies that are made of a seed, while their leader goes on; seeds that break off, are damaged, or that a
//! power failure befalls.
#![allow(
    clippy::print_stdout,
    reason = "what was played is read by who plays it"
)]

use std::sync::Arc;

use super::*;
use crate::{
    files::{fault::visit, manifest::Manifest},
    seed::{Seed as Source, SeedError, SeedFolder, SeedOf, Taken, WantedImage},
    simulated::{Handle, SimDisk},
};

fn of(leader: &TenantStore) -> SeedOf {
    SeedOf {
        tenant: TenantId(1),
        timeline: leader.timeline(),
        epoch: Epoch(0),
    }
}

fn begin(disk: &Arc<dyn Disk>, folder: &Path, leader: &TenantStore) -> SeedFolder {
    SeedFolder::begin(Arc::clone(disk), folder, of(leader)).unwrap()
}

pub(super) fn system() -> Arc<dyn Disk> {
    Arc::new(SystemDisk)
}

/// Sends images, and the log up to where it is written by then. `before_part` is asked before each part: it may
/// end the transfer.
fn send(
    seed: &Source,
    taker: &mut SeedFolder,
    wanted: &[WantedImage],
    part_bytes: usize,
    before_part: &mut dyn FnMut() -> bool,
) -> Result<(), SeedError> {
    for image in wanted {
        match send_image(seed, taker, image, part_bytes, before_part) {
            // What a power failure has left of a part may be anything.
            Err(SeedError::Damaged { .. }) if image.from > 0 => {
                let image = WantedImage {
                    from: 0,
                    ..image.clone()
                };
                send_image(seed, taker, &image, part_bytes, before_part)?;
            }
            sent => sent?,
        }
    }
    send_log(seed, taker, part_bytes, before_part)
}

fn send_image(
    seed: &Source,
    taker: &mut SeedFolder,
    image: &WantedImage,
    part_bytes: usize,
    before_part: &mut dyn FnMut() -> bool,
) -> Result<(), SeedError> {
    let mut taking = taker.image(image)?;
    assert_eq!(taking.at(), image.from);
    while !taking.is_whole() {
        if !before_part() {
            return Err(SeedError::Gone);
        }
        taking.take(&seed.read_image(&image.name, taking.at(), part_bytes)?)?;
    }
    taking.finish()
}

fn send_log(
    seed: &Source,
    taker: &mut SeedFolder,
    part_bytes: usize,
    before_part: &mut dyn FnMut() -> bool,
) -> Result<(), SeedError> {
    loop {
        if !before_part() {
            return Err(SeedError::Gone);
        }
        let (file, offset) = taker.log_position()?;
        let part = seed.read_log(file, offset, part_bytes)?;
        taker.take_log(&part)?;
        if !part.is_complete && offset + part.bytes.len() as u64 == part.file_bytes {
            return Ok(());
        }
    }
}

/// A whole transfer.
pub(super) fn make(leader: &Arc<TenantStore>, disk: &Arc<dyn Disk>, folder: &Path) -> Taken {
    let seed = leader.seed().unwrap();
    let mut taker = begin(disk, folder, leader);
    let wanted = taker.plan(seed.manifest()).unwrap();
    send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
    taker.finish().unwrap()
}

/// Plays a seed, and says how often a copy was compared.
fn play_seeding(seed: u64) -> usize {
    let _seed = Seed(seed);
    let mut random = StdRng::seed_from_u64(seed);
    let mut leader = Leader::new();
    leader.show();
    let folder = memory_folder();
    let disk = system();
    let mut compared = 0;
    for _ in 0..random.random_range(1..3) {
        for _ in 0..random.random_range(10..40) {
            leader.step(&mut random);
        }
        leader.store().evict(random.random_range(0..2) * u64::MAX);
        let source = leader.store().seed().unwrap();
        let mut taker = begin(&disk, folder.path(), leader.store());
        let wanted = taker.plan(source.manifest()).unwrap();
        let part_bytes = random.random_range(100..40_000);
        // Few steps, however many parts there are.
        let mut steps = 60;
        send(&source, &mut taker, &wanted, part_bytes, &mut || {
            if steps > 0 && random.random_bool(0.5) {
                leader.step(&mut random);
                steps -= 1;
            }
            true
        })
        .unwrap();
        let taken = taker.finish().unwrap();
        assert!(taken.at <= taken.through && taken.through <= leader.last());
        for _ in 0..random.random_range(0..10) {
            leader.step(&mut random);
        }
        // Whoever follows from there on has all that the leader has.
        let hold = leader.store().hold_log();
        let home = memory_folder();
        recovery::copy(folder.path(), home.path());
        let mut copy = CopyAt::opened(home, leader.store(), hold, None);
        assert_eq!(copy.applier.applied(), taken.through);
        assert_eq!(copy.store.timeline(), leader.store().timeline());
        compared += usize::from(compare(&copy, &leader.shown));
        drop(source);
        for _ in 0..random.random_range(0..20) {
            leader.step(&mut random);
            copy.receive(&mut random);
            copy.apply(copy.reader.read_through());
            compared += usize::from(compare(&copy, &leader.shown));
            if random.random_bool(0.1) {
                copy = copy.reopened(leader.store(), &mut random);
            }
        }
        while copy.receive(&mut random) {}
        copy.apply(leader.last());
        assert!(compare(&copy, &leader.shown), "the copy has caught up");
        compared += 1;
    }
    compared
}

#[test]
fn a_copy_that_was_made_of_a_seed_shows_what_its_leader_does() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first: u64 = number("COPIES_SEED").unwrap_or(1);
    let rounds: u64 = number("COPIES_ROUNDS").unwrap_or(8);
    let compared: usize = (first..first + rounds).map(play_seeding).sum();
    println!("{compared} comparisons in {rounds} rounds");
    assert!(compared as u64 >= 2 * rounds);
}

/// A leader of several segments in both forms, and of a transaction that is open.
fn filled() -> Leader {
    let mut random = StdRng::seed_from_u64(7);
    let mut leader = Leader::new();
    for _ in 0..30 {
        leader.step(&mut random);
    }
    let rows = leader.wide_rows();
    load(&leader.world.keyed, &rows);
    leader.world.keyed.freeze().unwrap();
    let rows = leader.wide_rows();
    load(&leader.world.keyed, &rows);
    leader
        .store()
        .commit_catalog(b"of the leader".to_vec())
        .unwrap();
    leader.catalog = Some(b"of the leader".to_vec());
    leader.show();
    leader
}

#[test]
fn each_byte_is_sent_once_wherever_a_transfer_breaks_off() {
    let leader = filled();
    let whole: u64 = {
        let folder = memory_folder();
        let seed = leader.store().seed().unwrap();
        let mut taker = begin(&system(), folder.path(), leader.store());
        let wanted = taker.plan(seed.manifest()).unwrap();
        assert!(wanted.len() > 5, "several images");
        wanted.iter().map(|image| image.bytes).sum()
    };
    for part_bytes in [3_000, 1 << 20] {
        let folder = memory_folder();
        let (mut attempts, mut done, mut seen) = (0, None, 0);
        while done.is_none() {
            attempts += 1;
            let seed = leader.store().seed().unwrap();
            let mut taker = begin(&system(), folder.path(), leader.store());
            let wanted = taker.plan(seed.manifest()).unwrap();
            let missing: u64 = wanted.iter().map(|image| image.bytes - image.from).sum();
            assert_eq!(missing, whole - seen, "attempt {attempts}");
            // Breaks off behind each part in turn.
            let mut may_go = true;
            let mut once = || std::mem::replace(&mut may_go, missing == 0);
            match send(&seed, &mut taker, &wanted, part_bytes, &mut once) {
                Ok(_) => done = Some(taker.finish().unwrap()),
                Err(SeedError::Gone) => {}
                Err(error) => panic!("{error:?}"),
            }
            let first = wanted.first().map_or(0, |image| image.bytes - image.from);
            seen += first.min(part_bytes as u64);
        }
        assert!(attempts > 5);
        let mut copy = CopyAt::opened(folder, leader.store(), leader.store().hold_log(), None);
        copy.catalog = Some(b"of the leader".to_vec());
        copy.apply(leader.last());
        assert!(compare(&copy, &leader.shown));
    }
}

#[test]
fn a_copy_that_is_made_anew_keeps_the_images_that_it_has() {
    let leader = filled();
    let folder = memory_folder();
    make(leader.store(), &system(), folder.path());
    // Little has changed since, and the copy has made checkpoints of its own.
    {
        let copy = CopyAt::opened(folder, leader.store(), leader.store().hold_log(), None);
        copy.store.checkpoint().unwrap().unwrap();
        let CopyAt { folder: kept, .. } = copy;
        load(&leader.world.bag, &[(-5, 1, None)]);
        let seed = leader.store().seed().unwrap();
        let mut taker = begin(&system(), kept.path(), leader.store());
        let wanted = taker.plan(seed.manifest()).unwrap();
        let all = Manifest::parse(seed.manifest()).unwrap();
        let bytes = all.files().map(|file| file.bytes).sum::<u64>();
        let missing: u64 = wanted.iter().map(|image| image.bytes).sum();
        assert!(missing < bytes / 2, "{missing} of {bytes} are to come");
    }
}

#[test]
fn what_is_damaged_on_its_way_or_on_disk_is_noticed_and_asked_for_again() {
    let leader = filled();
    let folder = memory_folder();
    // There is a copy, which stays what it is.
    make(leader.store(), &system(), folder.path());
    let before = {
        let (store, _, _) = try_open_copy(folder.path(), copy_of(leader.store())).unwrap();
        store.txns().last_commit()
    };
    load(&leader.world.keyed, &[(-5, 1, None)]);
    let seed = leader.store().seed().unwrap();
    let mut taker = begin(&system(), folder.path(), leader.store());
    let wanted = taker.plan(seed.manifest()).unwrap();
    let image = wanted.iter().max_by_key(|image| image.bytes).unwrap();
    let mut bytes = seed.read_image(&image.name, 0, usize::MAX >> 1).unwrap();
    bytes[17] ^= 4;
    let mut taking = taker.image(image).unwrap();
    taking.take(&bytes).unwrap();
    assert!(matches!(taking.finish(), Err(SeedError::Damaged { .. })));
    // More than there is.
    let mut taking = taker.image(image).unwrap();
    bytes.push(0);
    assert!(matches!(
        taking.take(&bytes),
        Err(SeedError::Damaged { .. })
    ));
    drop(taking);
    assert!(taker.plan(seed.manifest()).unwrap().contains(image));
    // On the copy's disk.
    send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
    drop(taker);
    let growing = PathBuf::from(format!("{}.seed", folder.path().display()));
    let path = growing.join("checkpoint").join(&image.name);
    let mut there = std::fs::read(&path).unwrap();
    let middle = there.len() / 2;
    there[middle] ^= 1;
    std::fs::write(&path, there).unwrap();
    let mut taker = begin(&system(), folder.path(), leader.store());
    let wanted_again = taker.plan(seed.manifest()).unwrap();
    assert_eq!(wanted_again, std::slice::from_ref(image));
    // Of the log.
    load(&leader.world.keyed, &[(-6, 1, None)]);
    for damage in 0..3 {
        let wanted = taker.plan(seed.manifest()).unwrap();
        send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
        let log = read_names(&growing.join("log")).pop().unwrap();
        let mut there = std::fs::read(&log).unwrap();
        let middle = there.len() / 2;
        match damage {
            0 => there[middle] ^= 1,
            1 => there.truncate(there.len() - 3),
            _ => std::fs::remove_file(&log).unwrap(),
        }
        if damage < 2 {
            std::fs::write(&log, there).unwrap();
        }
        let refused = taker.finish();
        assert!(
            matches!(
                refused,
                Err(SeedError::Recover(RecoverError::Damaged { .. }))
            ),
            "{damage}: {refused:?}"
        );
        taker = begin(&system(), folder.path(), leader.store());
    }
    // A manifest that is another's, or none.
    let mut odd = seed.manifest().to_vec();
    odd[40] ^= 1;
    assert!(matches!(taker.plan(&odd), Err(SeedError::Damaged { .. })));
    assert!(matches!(taker.finish(), Err(SeedError::Incomplete { .. })));
    let (store, _, _) = try_open_copy(folder.path(), copy_of(leader.store())).unwrap();
    assert_eq!(store.txns().last_commit(), before);
    drop(store);
    let taken = make(leader.store(), &system(), folder.path());
    let (store, _, _) = try_open_copy(folder.path(), copy_of(leader.store())).unwrap();
    assert!(store.txns().last_commit() == taken.through && taken.through > before);
}

fn copy_of(leader: &TenantStore) -> CopyOf {
    CopyOf {
        timeline: leader.timeline().unwrap(),
        through: None,
    }
}

#[test]
fn a_seed_is_of_one_history_and_of_whoever_leads() {
    let leader = filled();
    leader.store().begin_epoch(Epoch(4)).unwrap();
    let seed = leader.store().seed().unwrap();
    let folder = memory_folder();
    let other = SeedOf {
        timeline: Leader::new().store().timeline(),
        ..of(leader.store())
    };
    let mut taker = SeedFolder::begin(system(), folder.path(), other).unwrap();
    assert!(matches!(
        taker.plan(seed.manifest()),
        Err(SeedError::OfAnother)
    ));
    drop(taker);
    for (epoch, is_taken) in [(5, false), (4, true)] {
        let known = SeedOf {
            epoch: Epoch(epoch),
            timeline: None,
            ..of(leader.store())
        };
        let mut taker = SeedFolder::begin(system(), folder.path(), known).unwrap();
        // Another attempt waits.
        let second = SeedFolder::begin(system(), folder.path(), known);
        assert!(matches!(second, Err(SeedError::Locked { .. })));
        let wanted = taker.plan(seed.manifest()).unwrap();
        send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
        match taker.finish() {
            Ok(taken) => assert!(is_taken && taken.epochs.last().unwrap().0 == Epoch(4)),
            Err(SeedError::Over { found, known }) => {
                assert!(!is_taken && found == Epoch(4) && known == Epoch(5));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    let (store, _, _) = try_open_copy(folder.path(), copy_of(leader.store())).unwrap();
    assert_eq!(store.epochs(), leader.store().epochs());
    // Names that nobody gave.
    for name in ["manifest", "../log/0000000000000001.log", "", "/etc/passwd"] {
        assert!(matches!(
            seed.read_image(name, 0, 10),
            Err(SeedError::Unknown)
        ));
    }
    assert!(matches!(
        seed.read_log(u64::MAX, 0, 10),
        Err(SeedError::Unknown)
    ));
}

#[test]
fn a_copy_that_is_open_is_not_replaced_and_its_seed_is_gone_on_with() {
    let leader = filled();
    let folder = memory_folder();
    make(leader.store(), &system(), folder.path());
    let opened = try_open_copy(folder.path(), copy_of(leader.store())).unwrap();
    load(&leader.world.keyed, &[(-5, 1, None)]);
    let seed = leader.store().seed().unwrap();
    let mut taker = begin(&system(), folder.path(), leader.store());
    let wanted = taker.plan(seed.manifest()).unwrap();
    send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
    assert!(matches!(taker.finish(), Err(SeedError::Locked { .. })));
    drop(opened);
    let mut taker = begin(&system(), folder.path(), leader.store());
    assert!(taker.plan(seed.manifest()).unwrap().is_empty());
    send(&seed, &mut taker, &[], 64 << 10, &mut || true).unwrap();
    let taken = taker.finish().unwrap();
    assert_eq!(taken.through, leader.last());
}

#[test]
fn a_copy_gives_seeds_as_its_leader_does() {
    let mut leader = filled();
    let first = memory_folder();
    make(leader.store(), &system(), first.path());
    let mut copy = CopyAt::opened(first, leader.store(), leader.store().hold_log(), None);
    let mut random = StdRng::seed_from_u64(8);
    for _ in 0..20 {
        leader.step(&mut random);
    }
    while copy.receive(&mut random) {}
    copy.apply(leader.last());
    let second = memory_folder();
    let taken = make(&copy.store, &system(), second.path());
    assert_eq!(taken.through, leader.last());
    // It follows the leader's log as any does.
    let mut next = CopyAt::opened(second, leader.store(), leader.store().hold_log(), None);
    for _ in 0..20 {
        leader.step(&mut random);
    }
    while next.receive(&mut random) {}
    next.apply(leader.last());
    assert!(compare(&next, &leader.shown));
}

#[test]
fn checkpoints_go_on_while_a_seed_is_sent_and_take_its_files_away_afterwards() {
    let mut leader = filled();
    let images = |leader: &Leader| -> usize {
        let names = read_names(&leader.world.folder.path().join("checkpoint"));
        names.len() - 1
    };
    let seed = leader.store().seed().unwrap();
    let pinned = Manifest::parse(seed.manifest()).unwrap().files().count();
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..20 {
        leader.step(&mut random);
        leader.store().checkpoint().unwrap().unwrap();
    }
    leader.world.keyed.freeze().unwrap();
    let rows = leader.wide_rows();
    load(&leader.world.keyed, &rows);
    leader.store().checkpoint().unwrap().unwrap();
    let newest = Manifest::read(
        &SystemDisk,
        &leader.world.folder.path().join("checkpoint"),
        TenantId(1),
    );
    let named = newest.unwrap().unwrap().files().count();
    assert!(images(&leader) > named, "images of the seed stay");
    let folder = memory_folder();
    let mut taker = begin(&system(), folder.path(), leader.store());
    let wanted = taker.plan(seed.manifest()).unwrap();
    assert_eq!(wanted.len(), pinned);
    send(&seed, &mut taker, &wanted, 64 << 10, &mut || true).unwrap();
    taker.finish().unwrap();
    drop(seed);
    load(&leader.world.keyed, &[(-7, 1, None)]);
    leader.store().checkpoint().unwrap().unwrap();
    leader.store().checkpoint().unwrap().unwrap();
    let newest = Manifest::read(
        &SystemDisk,
        &leader.world.folder.path().join("checkpoint"),
        TenantId(1),
    );
    assert_eq!(images(&leader), newest.unwrap().unwrap().files().count());
}

#[test]
fn a_seed_keeps_nobody_from_closing_its_tenant() {
    let leader = filled();
    let seed = leader.store().seed().unwrap();
    let watch = leader.store().watch_commits();
    let ended = leader.store().ended().unwrap();
    drop(leader);
    assert!(ended.is_over());
    let name = Manifest::parse(seed.manifest()).unwrap();
    let name = name.files().next().unwrap().name.to_owned();
    assert!(matches!(
        seed.read_image(&name, 0, 10),
        Err(SeedError::Gone)
    ));
    assert!(matches!(seed.read_log(1, 0, 10), Err(SeedError::Gone)));
    assert_eq!(watch.take(), CommitTimes::default());
}

#[test]
fn a_leader_keeps_its_log_for_a_seed_but_not_all_of_it() {
    let leader = Leader::new();
    let seed = leader.store().seed().unwrap();
    let (mut file, mut offset) = (0, 0);
    let first = Manifest::parse(seed.manifest()).unwrap().log_from;
    for round in 0..15 {
        load(&leader.world.keyed, &[(round, 1, None)]);
        leader.store().checkpoint().unwrap();
    }
    // Whatever checkpoints said, it is there.
    loop {
        file = file.max(first);
        let part = seed.read_log(file, offset, 1 << 20).unwrap();
        offset += part.bytes.len() as u64;
        match (part.is_complete, offset == part.file_bytes) {
            (true, true) => (file, offset) = (file + 1, 0),
            (false, true) => break,
            _ => {}
        }
    }
    assert_eq!(file, first + 15);
    // What was read goes.
    leader.store().checkpoint().unwrap();
    assert!(matches!(seed.read_log(first, 0, 10), Err(SeedError::Gone)));
    for round in 100..130 {
        load(&leader.world.keyed, &[(round, 1, None)]);
        leader.store().checkpoint().unwrap();
    }
    assert!(matches!(
        seed.read_log(file, offset, 10),
        Err(SeedError::Gone)
    ));
}

#[test]
fn commits_are_timed_while_somebody_watches() {
    let leader = Leader::new();
    let watch = leader.store().watch_commits();
    load(&leader.world.keyed, &[(1, 1, None)]);
    load(&leader.world.keyed, &[(2, 1, None)]);
    let times = watch.take();
    assert!(
        times.done.len() == 2 && times.waiting.is_none(),
        "{times:?}"
    );
    // One that waits for copies.
    leader.store().await_copies(false);
    let txn = leader.store().txns().begin();
    let table = &leader.world.keyed;
    table.insert(&txn, &batch(table, &[(3, 1, None)])).unwrap();
    let committing = txn.enqueue().unwrap();
    let place = committing.place();
    assert!(watch.take().waiting.is_some());
    let other = leader.store().watch_commits();
    leader.store().sync_log().unwrap();
    leader.store().committed(place);
    committing.finish().unwrap();
    let times = watch.take();
    assert!(
        times.done.len() == 1 && times.waiting.is_none(),
        "{times:?}"
    );
    // Whoever watches is told of all since it began to, whatever others were told.
    assert_eq!(other.take(), times);
    assert_eq!(other.take(), CommitTimes::default());
    drop((watch, other));
    let watch = leader.store().watch_commits();
    assert_eq!(watch.take(), CommitTimes::default());
}

const FOLDER: &str = "/node/tenant";

fn open_on(
    disk: &Arc<SimDisk>,
    leader: &TenantStore,
) -> Result<(Arc<TenantStore>, Recovered, Applier), RecoverError> {
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let options = OpenOptions {
        durability: Durability::None,
        disk: Arc::new(Handle(Arc::clone(disk))),
        ..options()
    };
    TenantStore::open_copy(
        TenantId(1),
        budget,
        Path::new(FOLDER),
        &options,
        copy_of(leader),
    )
}

fn sends_on(disk: &Arc<SimDisk>, leader: &Arc<TenantStore>) -> Result<Taken, SeedError> {
    let handle: Arc<dyn Disk> = Arc::new(Handle(Arc::clone(disk)));
    let seed = leader.seed()?;
    let mut taker = SeedFolder::begin(handle, Path::new(FOLDER), of(leader))?;
    let wanted = taker.plan(seed.manifest())?;
    send(&seed, &mut taker, &wanted, 20_000, &mut || true)?;
    taker.finish()
}

/// What a power failure leaves is the old copy, or the new one, whoever opens it; and a seed can be made of it.
fn examine(left: &Arc<SimDisk>, leader: &Leader, old: Option<CommitTs>, new: CommitTs) -> bool {
    let again = left.crash_now();
    let (store, _, applier) = open_on(left, leader.store()).unwrap();
    let found = applier.applied();
    assert!(
        Some(found) == old || found == new || old.is_none() && found == CommitTs(0),
        "{found}, not {old:?} or {new}"
    );
    drop((store, applier));
    // Nobody opens it in between.
    let taken = sends_on(&again, leader.store()).unwrap();
    let (store, recovered, applier) = open_on(&again, leader.store()).unwrap();
    assert_eq!(applier.applied(), taken.through);
    assert_eq!(recovered.catalog.as_deref(), Some(&b"of the leader"[..]));
    for (id, table) in [(KEYED, &leader.world.keyed), (BAG, &leader.world.bag)] {
        assert_eq!(rows_of_table(&applier.tables()[&id]), rows_of_table(table));
    }
    let handle = Handle(Arc::clone(&again));
    let beside = handle.list(Path::new("/node")).unwrap();
    assert_eq!(beside.len(), 1, "{beside:?}");
    drop((store, applier));
    found == new
}

#[test]
fn a_power_failure_leaves_the_old_copy_or_the_new_one_at_each_step() {
    let leader = filled();
    let mut key = 0;
    // What a crash leaves of names that are not durable is a matter of chance.
    for (has_old, chance) in [
        (false, 0),
        (true, 0),
        (true, 1_000),
        (true, 2_000),
        (true, 3_000),
    ] {
        let (mut at, mut olds, mut news) = (0, 0, 0);
        loop {
            let disk = SimDisk::new(at + chance);
            let old = has_old.then(|| sends_on(&disk, leader.store()).unwrap().through);
            key -= 1;
            load(&leader.world.keyed, &[(key, 1, None)]);
            // The power fails when the step is passed for the first time.
            let mut passages = 0;
            let (left, own) = (
                std::rc::Rc::new(std::cell::RefCell::new(None)),
                Arc::clone(&disk),
            );
            let picture = std::rc::Rc::clone(&left);
            visit::set(Some(Box::new(move |place| {
                if place.starts_with("seed.") {
                    if passages == at {
                        *picture.borrow_mut() = Some((place.to_owned(), own.crash_now()));
                    }
                    passages += 1;
                }
            })));
            let taken = sends_on(&disk, leader.store());
            visit::set(None);
            let new = taken.unwrap().through;
            let Some((place, left)) = left.borrow_mut().take() else {
                break;
            };
            let is_new = examine(&left, &leader, old, new);
            match is_new {
                true => news += 1,
                false => olds += 1,
            }
            let is_before = ["seed.part", "seed.image", "seed.log"].contains(&&*place);
            assert!(!(is_before && is_new), "at {place}");
            at += 1;
        }
        println!("{at} steps: {olds} left the old copy, {news} the new one");
        assert!(olds > 2 && news > 1);
    }
}

#[test]
fn a_power_failure_within_any_call_of_the_disk_leaves_what_can_be_opened() {
    let leader = filled();
    let (mut crashes, mut news) = (0, 0);
    for calls in (0..).step_by(3) {
        let disk = SimDisk::new(calls);
        let first = sends_on(&disk, leader.store());
        let old = first.unwrap().through;
        load(&leader.world.keyed, &[(-6 - calls as i32, 1, None)]);
        let new = leader.last();
        disk.crash_in(Some(calls));
        let done = sends_on(&disk, leader.store());
        let Some(left) = disk.crashed() else {
            done.unwrap();
            break;
        };
        crashes += 1;
        news += usize::from(examine(&left, &leader, Some(old), new));
    }
    println!("{crashes} crashes, {news} left the new copy");
    assert!(crashes > 20 && news > 1 && news < crashes);
}

#[test]
fn a_disk_that_fails_at_times_costs_attempts_and_nothing_else() {
    let leader = filled();
    for round in 0..20 {
        let disk = SimDisk::new(round);
        disk.fail_at(0.02);
        let mut attempts = 0;
        let taken = loop {
            attempts += 1;
            assert!(attempts < 2_000);
            if attempts == 500 {
                disk.forgive();
                disk.fail_at(0.0);
            }
            if let Ok(taken) = sends_on(&disk, leader.store()) {
                break taken;
            }
        };
        disk.fail_at(0.0);
        let (_, _, applier) = open_on(&disk, leader.store()).unwrap();
        assert_eq!(applier.applied(), taken.through);
    }
}
