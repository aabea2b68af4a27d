//! Budgets, alone and beside each other.

use super::*;
use crate::Governor;

const HOT: MemoryClass = MemoryClass::Hot;

#[test]
fn a_byte_counts_for_the_tenant_and_for_the_node() {
    let governor = Governor::new(ByteSize(1000));
    let (a, b) = (
        governor.budget("a", Some(ByteSize(600))),
        governor.budget("b", None),
    );
    let mut first = a.reserve(HOT, 500).unwrap();
    let second = b.reserve(HOT, 400).unwrap();
    assert_eq!((a.used(), b.used(), governor.used()), (500, 400, 900));
    assert_eq!((a.available(), b.available()), (100, 100));

    let over_own = a.reserve(HOT, 101).unwrap_err();
    assert_eq!(
        (over_own.budget.as_str(), over_own.used, over_own.limit),
        ("a", 500, 600)
    );
    let over_node = b.reserve(HOT, 101).unwrap_err();
    assert_eq!(
        (over_node.budget.as_str(), over_node.used, over_node.limit),
        ("node", 900, 1000)
    );
    assert_eq!(
        (a.used(), b.used(), governor.used()),
        (500, 400, 900),
        "a refusal leaves no trace"
    );

    first.try_resize(200).unwrap();
    assert!(first.try_resize(601).is_err());
    assert_eq!(first.bytes(), 200);
    drop(second);
    drop(first);
    assert_eq!((a.used(), a.peak(), governor.used()), (0, 500, 0));
}

#[test]
fn a_lower_maximum_takes_nothing_away() {
    let governor = Governor::new(ByteSize(1000));
    let budget = governor.budget("a", None);
    let mut held = budget.reserve(HOT, 500).unwrap();
    budget.set_max(Some(ByteSize(100)));
    assert!(budget.reserve(HOT, 1).is_err());
    assert_eq!(budget.reserve(HOT, 0).unwrap().bytes(), 0);
    held.shrink(450);
    assert_eq!(budget.reserve(HOT, 50).unwrap().bytes(), 50);
    assert!(budget.reserve(HOT, u64::MAX).is_err(), "no overflow");
}

/// Has a reservation, and gives it back in pieces.
struct Hoard(Mutex<Reservation>);

impl Reclaim for Hoard {
    fn reclaim(&self, bytes: u64) -> u64 {
        let Ok(mut held) = self.0.try_lock() else {
            return 0;
        };
        let given = bytes.min(held.bytes());
        held.shrink(given);
        given
    }
}

fn hoard(budget: &Arc<Budget>, bytes: u64) -> Arc<dyn Reclaim> {
    let held = budget.reserve(MemoryClass::CachedPlans, bytes).unwrap();
    Arc::new(Hoard(Mutex::new(held)))
}

#[test]
fn what_can_be_had_again_goes_before_anything_is_refused() {
    let governor = Governor::new(ByteSize(1000));
    let budget = governor.budget("a", Some(ByteSize(600)));
    let hoarded = hoard(&budget, 300);
    budget.reclaim_from(0, Arc::downgrade(&hoarded));
    let held = budget.reserve(HOT, 400).unwrap();
    assert_eq!(budget.used_for(MemoryClass::CachedPlans), 200);
    assert!(
        budget.reserve(HOT, 201).is_err(),
        "there is not so much to give"
    );
    assert_eq!(
        (budget.used(), budget.used_for(MemoryClass::CachedPlans)),
        (400, 0)
    );
    drop((held, hoarded));
    assert_eq!((budget.used(), governor.used()), (0, 0));

    // The node's is asked where the node refuses, whoever wants to have.
    let other = governor.budget("b", None);
    let hoarded = hoard(&budget, 500);
    governor.root().reclaim_from(0, Arc::downgrade(&hoarded));
    let held = other.reserve(HOT, 900).unwrap();
    assert_eq!((budget.used(), other.used()), (100, 900));
    drop(hoarded);
    assert_eq!(budget.used(), 0);
    assert!(
        other.reserve(HOT, 101).is_err(),
        "nobody has anything any more"
    );
    drop(held);
}

#[test]
fn a_broker_grants_less_than_the_settings_and_never_more() {
    let governor = Governor::new(ByteSize(100_000));
    governor.set_cap(Some(ByteSize(60_000)));
    assert_eq!((governor.target(), governor.limit()), (60_000, 60_000));
    governor.set_target(ByteSize(50_000));
    assert_eq!((governor.target(), governor.limit()), (50_000, 50_000));
    governor.set_target(ByteSize(200_000));
    assert_eq!((governor.target(), governor.limit()), (60_000, 60_000));
    governor.set_cap(None);
    assert_eq!((governor.target(), governor.cap()), (200_000, None));
    assert_eq!(governor.limit(), 200_000);
}

#[test]
fn a_lower_target_is_approached() {
    let governor = Governor::new(ByteSize(64_000));
    let budget = governor.budget("a", None);
    let mut held = budget.reserve(HOT, 40_000).unwrap();
    let hoarded = hoard(&budget, 5_000);
    governor.root().reclaim_from(0, Arc::downgrade(&hoarded));
    governor.set_target(ByteSize(32_000));
    assert_eq!((governor.target(), governor.limit()), (32_000, 44_000));
    assert_eq!(budget.used(), 40_000, "the hoard went first");
    // A little more is given, and does not move the limit.
    let little = budget.reserve(HOT, 3_900).unwrap();
    assert!(!governor.approach());
    assert_eq!(governor.limit(), 44_000);
    assert!(budget.reserve(HOT, 101).is_err());
    held.shrink(5_000);
    assert!(!governor.approach());
    assert_eq!(governor.limit(), 42_900);
    // It is reached when no more is held, though nothing is free then.
    held.shrink(6_900);
    assert!(governor.approach());
    assert_eq!((budget.used(), governor.limit()), (32_000, 32_000));
    assert!(budget.reserve(HOT, 1).is_err());
    drop((held, little));
    // A large node spares no more than small changes take.
    let large = Governor::new(ByteSize(4 << 30));
    let _held = large.budget("a", None).reserve(HOT, 2 << 30).unwrap();
    large.set_target(ByteSize(1 << 30));
    assert_eq!(large.limit(), (2 << 30) + (16 << 20));
    // A higher one counts at once, and so does a lower one with room.
    governor.set_target(ByteSize(50_000));
    assert_eq!(governor.limit(), 50_000);
    governor.set_target(ByteSize(10_000));
    assert_eq!((governor.limit(), governor.approach()), (10_000, true));
}

#[test]
fn racing_reservations_beside_reclaims_leave_nothing_behind() {
    let governor = Governor::new(ByteSize(100));
    let budget = governor.budget("a", Some(ByteSize(60)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for bytes in (1..=40).cycle().take(2_000) {
                    let reservation = budget.reserve(HOT, bytes);
                    assert!(budget.used() <= 60 && governor.used() <= 100);
                    drop(reservation);
                }
            });
        }
        scope.spawn(|| {
            for limit in (20..=100).cycle().take(2_000) {
                governor.set_target(ByteSize(limit));
            }
            governor.set_target(ByteSize(100));
        });
    });
    assert_eq!(
        (budget.used(), governor.used(), governor.limit()),
        (0, 0, 100)
    );
}

#[test]
fn what_nobody_has_reserved_is_not_given_away() {
    let governor = Governor::new(ByteSize(1000));
    let budget = governor.budget("a", None);
    let _held = budget.reserve(HOT, 500).unwrap();
    governor.set_unreserved(300);
    assert_eq!((budget.available(), governor.used()), (200, 500));
    let refused = budget.reserve(HOT, 201).unwrap_err();
    assert_eq!((refused.used, refused.limit), (800, 1000));
    drop(budget.reserve(HOT, 200).unwrap());
    // More than there is room for takes nothing away.
    governor.set_unreserved(2000);
    assert!(budget.reserve(HOT, 1).is_err());
    assert_eq!(budget.reserve(HOT, 0).unwrap().bytes(), 0);
    governor.set_unreserved(0);
    drop(budget.reserve(HOT, 500).unwrap());
}

#[test]
fn racing_reservations_never_exceed_the_limit() {
    let governor = Governor::new(ByteSize(100));
    let budgets: Vec<_> = (0..4)
        .map(|n| governor.budget(&n.to_string(), Some(ByteSize(60))))
        .collect();
    std::thread::scope(|scope| {
        for budget in &budgets {
            scope.spawn(|| {
                for bytes in (1..=40).cycle().take(2000) {
                    let reservation = budget.reserve(HOT, bytes);
                    assert!(governor.used() <= 100 && budget.used() <= 60);
                    drop(reservation);
                }
            });
        }
    });
    assert_eq!(governor.used(), 0);
}

/// A tenant whose values can be had again.
fn tenant(governor: &Arc<Governor>, name: &str, bytes: u64) -> (Arc<Budget>, Arc<dyn Reclaim>) {
    let budget = governor.budget(name, None);
    let hoarded = hoard(&budget, bytes);
    budget.reclaim_from(1, Arc::downgrade(&hoarded));
    (budget, hoarded)
}

#[test]
fn a_minimum_is_kept_for_whoever_has_it() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, b) = (governor.budget("a", None), governor.budget("b", None));
    a.set_min(ByteSize(400));
    assert_eq!((governor.used(), governor.promised()), (0, 400));
    assert_eq!((a.available(), b.available()), (1_000, 600));
    let of_b = b.reserve(HOT, 600).unwrap();
    assert!(b.reserve(HOT, 1).is_err(), "the rest is a's");
    let mut of_a = a.reserve(HOT, 300).unwrap();
    assert_eq!((governor.used(), governor.promised()), (900, 100));
    assert!(a.reserve(HOT, 101).is_err());
    of_a.try_grow(100).unwrap();
    assert_eq!((governor.used(), governor.promised()), (1_000, 0));
    // What it gives back is kept, too.
    of_a.shrink(250);
    assert_eq!((governor.used(), governor.promised()), (750, 250));
    assert!(b.reserve(HOT, 1).is_err());
    a.set_min(ByteSize(200));
    assert_eq!(governor.promised(), 50);
    drop(b.reserve(HOT, 200).unwrap());
    drop((of_a, of_b));
    assert_eq!((governor.used(), governor.promised()), (0, 200));
    drop(a);
    assert_eq!(governor.promised(), 0, "it has gone, with its claim");
    drop(b.reserve(HOT, 1_000).unwrap());
}

#[test]
fn a_minimum_that_others_have_is_asked_back_and_kept_as_it_comes() {
    let governor = Governor::new(ByteSize(1_000));
    let (b, _values) = tenant(&governor, "b", 300);
    let mut held = b.reserve(HOT, 600).unwrap();
    let a = governor.budget("a", None);
    a.set_min(ByteSize(700));
    // The values went; what b holds stays.
    assert_eq!((b.used(), governor.promised()), (600, 400));
    held.shrink(200);
    governor.approach();
    assert_eq!((b.used(), governor.promised()), (400, 600));
    held.shrink(300);
    governor.approach();
    assert_eq!((b.available(), governor.promised()), (200, 700));
    // Not more than the maximum is kept.
    a.set_max(Some(ByteSize(500)));
    a.set_min(ByteSize(700));
    assert_eq!(governor.promised(), 500);
}

#[test]
fn the_node_asks_who_has_the_most_for_its_weight_and_nobody_below_its_minimum() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, _of_a) = tenant(&governor, "a", 400);
    let (b, _of_b) = tenant(&governor, "b", 300);
    let (c, _of_c) = tenant(&governor, "c", 300);
    let d = governor.budget("d", None);
    let used = || [a.used(), b.used(), c.used()];
    let held = d.reserve(HOT, 100).unwrap();
    assert_eq!(used(), [300, 300, 300]);
    c.set_weight(3 * WEIGHT_DEFAULT);
    let more = d.reserve(HOT, 200).unwrap();
    assert_eq!(used(), [200, 200, 300]);
    b.set_min(ByteSize(180));
    let most = d.reserve(HOT, 500).unwrap();
    assert_eq!(used(), [4, 184, 12]);
    assert!(d.reserve(HOT, 21).is_err(), "b's are kept");
    drop((held, more, most));
}

/// While it is asked, another asks.
struct Asked {
    held: Mutex<Reservation>,
    other: Arc<Budget>,
    is_second: AtomicBool,
}

impl Reclaim for Asked {
    fn reclaim(&self, bytes: u64) -> u64 {
        if !self.is_second.swap(true, Ordering::Relaxed) {
            let second = self.other.reserve(HOT, 200);
            assert!(second.is_err(), "there is nothing else beyond the minimum");
        }
        let mut held = self.held.lock().unwrap();
        let given = bytes.min(held.bytes());
        held.shrink(given);
        given
    }
}

#[test]
fn two_who_ask_at_a_time_leave_a_tenant_its_minimum() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, b) = (governor.budget("a", None), governor.budget("b", None));
    let held = b.reserve(MemoryClass::CachedPlans, 1_000).unwrap();
    b.set_min(ByteSize(800));
    let asked: Arc<dyn Reclaim> = Arc::new(Asked {
        held: Mutex::new(held),
        other: governor.budget("c", None),
        is_second: false.into(),
    });
    b.reclaim_from(1, Arc::downgrade(&asked));
    let first = a.reserve(HOT, 200).unwrap();
    assert_eq!((b.used(), governor.promised()), (800, 0));
    drop(first);
    let again = a.reserve(HOT, 200).unwrap();
    assert_eq!(b.used(), 800);
    drop(again);
}

#[test]
fn racing_tenants_with_minima_lose_no_byte_and_no_promise() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, b) = (governor.budget("a", None), governor.budget("b", None));
    a.set_min(ByteSize(300));
    std::thread::scope(|scope| {
        let load = |budget: &Arc<Budget>, most: u64, must: bool| {
            for bytes in (1..=most).cycle().take(4_000) {
                let one = budget.reserve(HOT, bytes);
                let two = budget.reserve(HOT, most - bytes);
                assert!(!must || (one.is_ok() && two.is_ok()), "within its minimum");
                assert!(governor.root().counted() <= 1_000);
                drop((one, two));
            }
        };
        scope.spawn(move || load(&a, 150, true));
        let other = &b;
        scope.spawn(move || load(other, 900, false));
        scope.spawn(move || load(other, 500, false));
        scope.spawn(|| {
            for _ in 0..4_000 {
                governor.approach();
            }
        });
    });
    assert_eq!((governor.root().counted(), governor.promised()), (0, 0));
}

#[test]
fn what_a_tenant_gives_below_its_minimum_is_its_own_again() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, _values) = tenant(&governor, "a", 300);
    let b = governor.budget("b", None);
    let _others = b.reserve(HOT, 700).unwrap();
    // A promise that cannot be made: the others have the memory.
    a.set_min(ByteSize(500));
    assert_eq!(governor.promised(), 0);
    let held = a.reserve(HOT, 200).unwrap();
    assert_eq!(
        (a.used(), a.used_for(HOT), governor.promised()),
        (300, 200, 0)
    );
    // It gives its last values, and has them promised.
    assert!(a.reserve(HOT, 101).is_err());
    assert_eq!((governor.used(), a.promised()), (900, 100));
    drop(a.reserve(HOT, 100).unwrap());
    drop(held);
    assert_eq!((a.used(), a.promised()), (0, 300));
}

/// A node that was given less than the minima of its databases: somebody must be able to change them.
#[test]
fn minima_of_all_memory_leave_some_for_others() {
    let governor = Governor::new(ByteSize(1_600));
    let (a, b) = (governor.budget("a", None), governor.budget("b", None));
    a.set_min(ByteSize(2_000));
    assert_eq!((a.promised(), b.available()), (1_500, 100));
    drop(a.reserve(HOT, 1_500).unwrap());
    assert_eq!((a.promised(), b.available()), (1_500, 100));
    drop(b.reserve(HOT, 100).unwrap());
}

#[test]
fn one_goes_beyond_the_limits_and_gives_back_more() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, b) = (
        governor.budget("a", Some(ByteSize(800))),
        governor.budget("b", None),
    );
    let mut rows = a.reserve(HOT, 800).unwrap();
    let others = b.reserve(HOT, 200).unwrap();
    let working = MemoryClass::Rewrites;
    assert!(
        a.overdraft(working, 401).is_err(),
        "too far beyond its own limit"
    );
    assert!(
        b.overdraft(working, 501).is_err(),
        "too far beyond the node's"
    );
    let mut overdraft = a.overdraft(working, 200).unwrap();
    assert_eq!((a.used(), governor.used()), (1_000, 1_200));
    assert!(b.overdraft(working, 1).is_err(), "one at a time");
    assert!(a.reserve(HOT, 1).is_err() && b.reserve(HOT, 1).is_err());
    let kept = overdraft.hand_over(MemoryClass::Frozen, 150).unwrap();
    assert_eq!(
        (a.used_for(working), a.used_for(MemoryClass::Frozen)),
        (50, 150)
    );
    assert_eq!(governor.root().used_for(MemoryClass::Frozen), 150);
    // More than there is left of it is to be had as ever.
    assert!(overdraft.hand_over(MemoryClass::Frozen, 51).is_err());
    rows.shrink(400);
    drop(overdraft);
    assert_eq!(
        (a.used(), a.used_for(working), governor.used()),
        (550, 0, 750)
    );
    // Where there is room, nobody is in another's way.
    let (one, two) = (
        a.overdraft(working, 100).unwrap(),
        b.overdraft(working, 100).unwrap(),
    );
    drop((one, two, kept, rows, others));
    assert_eq!((governor.used(), a.used(), b.used()), (0, 0, 0));
}

#[test]
fn racing_overdrafts_lose_no_byte_and_go_one_by_one() {
    let governor = Governor::new(ByteSize(1_000));
    let (a, b) = (governor.budget("a", None), governor.budget("b", None));
    a.set_min(ByteSize(300));
    std::thread::scope(|scope| {
        for budget in [&a, &b, &b] {
            scope.spawn(|| {
                for bytes in (1..=200).cycle().take(4_000) {
                    let rows = budget.reserve(HOT, 400);
                    if let Ok(mut overdraft) = budget.overdraft(MemoryClass::Rewrites, bytes) {
                        assert!(governor.root().counted() <= 1_500);
                        drop(overdraft.hand_over(MemoryClass::Frozen, bytes / 2).unwrap());
                    }
                    drop(rows);
                }
            });
        }
    });
    assert_eq!((governor.root().counted(), governor.promised()), (300, 300));
    let of_all = [HOT, MemoryClass::Rewrites, MemoryClass::Frozen];
    assert!(
        of_all
            .into_iter()
            .all(|class| governor.root().used_for(class) == 0)
    );
}
