//! Tests of who is let in: by hand, by a model that is played from seeds, and with tasks that give up.

use std::{collections::BTreeMap, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// A statement is known by its number.
type Bench = Places<u32>;

const NOBODY: [u32; 0] = [];

fn limits(running_max: impl Into<Option<u32>>, waiting_max: impl Into<Option<u32>>) -> Limits {
    Limits {
        running_max: running_max.into(),
        waiting_max: waiting_max.into(),
    }
}

fn tenant(places: &mut Bench, limits: Limits, weight: u32) -> EntranceNo {
    let no = places.open();
    assert_eq!(places.set_limits(no, limits, weight), NOBODY);
    no
}

/// Has a statement come that must wait.
fn waits(places: &mut Bench, no: EntranceNo, needs: Needs, number: u32) -> Ticket {
    match places.enter(no, needs, || number) {
        Ok(Entered::Waits(ticket)) => ticket,
        other => panic!("{number}: {other:?}"),
    }
}

fn runs(places: &mut Bench, no: EntranceNo, needs: Needs) {
    let entered = places.enter(no, needs, || panic!("it does not wait"));
    assert_eq!(entered, Ok(Entered::Now));
}

#[test]
fn those_beyond_the_limit_wait_and_come_in_by_their_order() {
    let mut places = Bench::new(None);
    let no = tenant(&mut places, limits(2, None), 1);
    runs(&mut places, no, Needs::Node);
    runs(&mut places, no, Needs::Tenant);
    waits(&mut places, no, Needs::Node, 1);
    waits(&mut places, no, Needs::Tenant, 2);
    waits(&mut places, no, Needs::Node, 3);
    assert_eq!(places.counts(no), (2, 3));
    assert_eq!(places.leave(no, Needs::Tenant), [1]);
    assert_eq!(places.leave(no, Needs::Node), [2]);
    assert_eq!(places.leave(no, Needs::Tenant), [3]);
    assert_eq!(places.leave(no, Needs::Node), NOBODY);
    assert_eq!(places.leave(no, Needs::Node), NOBODY);
    assert_eq!((places.counts(no), places.of_node()), ((0, 0), (None, 0)));
}

/// However many have gone ahead since they hold locks, an operator gets in.
#[test]
fn superusers_have_their_reserve_whoever_went_ahead() {
    let mut places = Bench::new(Some(8));
    let (crowd, other) = (tenant(&mut places, limits(None, None), 1), places.open());
    (0..10 * RESERVED_PLACES).for_each(|_| places.enter_ahead(crowd, Needs::Node));
    (0..RESERVED_PLACES).for_each(|_| runs(&mut places, other, Needs::Reserve));
    waits(&mut places, other, Needs::Reserve, 1);
    assert_eq!(places.leave(other, Needs::Reserve), [1]);
}

#[test]
fn a_full_queue_refuses_and_says_what_is_full() {
    let mut places = Bench::new(Some(OWN_PLACES));
    let no = tenant(&mut places, limits(1, 1), 1);
    runs(&mut places, no, Needs::Node);
    waits(&mut places, no, Needs::Node, 1);
    let full = |running, waiting, is_of_node| {
        Err(Full {
            running,
            waiting,
            is_of_node,
        })
    };
    let entered = places.enter(no, Needs::Tenant, || 2);
    assert_eq!(entered, full(1, 1, false));
    // A queue of none is no queue.
    let none = tenant(&mut places, limits(1, 0), 1);
    runs(&mut places, none, Needs::Tenant);
    assert_eq!(
        places.enter(none, Needs::Tenant, || 3),
        full(1, 0, false),
        "nobody may wait"
    );
    // The node's bound is another reason.
    let free = tenant(&mut places, limits(None, 0), 1);
    (0..OWN_PLACES).for_each(|_| runs(&mut places, free, Needs::Node));
    let entered = places.enter(free, Needs::Node, || 4);
    assert_eq!(entered, full(OWN_PLACES, 0, true));
}

#[test]
fn who_goes_ahead_is_counted_and_nobody_new_comes_until_the_bound_is_kept_again() {
    let mut places = Bench::new(None);
    let no = tenant(&mut places, limits(1, None), 1);
    runs(&mut places, no, Needs::Node);
    places.enter_ahead(no, Needs::Node);
    places.enter_ahead(no, Needs::Tenant);
    waits(&mut places, no, Needs::Node, 1);
    assert_eq!(places.counts(no), (3, 1));
    assert_eq!(places.leave(no, Needs::Node), NOBODY);
    assert_eq!(places.leave(no, Needs::Tenant), NOBODY);
    assert_eq!(places.leave(no, Needs::Node), [1]);
}

#[test]
fn who_gives_up_is_passed_over_and_one_that_was_let_in_is_told_so() {
    let mut places = Bench::new(None);
    let no = tenant(&mut places, limits(1, None), 1);
    runs(&mut places, no, Needs::Tenant);
    let first = waits(&mut places, no, Needs::Tenant, 1);
    let second = waits(&mut places, no, Needs::Tenant, 2);
    assert!(places.give_up(no, Needs::Tenant, first));
    assert_eq!(places.leave(no, Needs::Tenant), [2]);
    assert!(!places.give_up(no, Needs::Tenant, second));
    assert_eq!(places.counts(no), (1, 0));
}

#[test]
fn other_limits_let_in_who_waits_and_turn_nobody_out() {
    let mut places = Bench::new(None);
    let no = tenant(&mut places, limits(1, None), 1);
    runs(&mut places, no, Needs::Node);
    for number in 1..=4 {
        waits(&mut places, no, Needs::Node, number);
    }
    assert_eq!(places.set_limits(no, limits(3, None), 1), [1, 2]);
    // Fewer may run and wait than do: they do so, and nobody comes after them.
    assert_eq!(places.set_limits(no, limits(1, 1), 1), NOBODY);
    assert!(places.enter(no, Needs::Node, || 5).is_err());
    assert_eq!(places.leave(no, Needs::Node), NOBODY);
    assert_eq!(places.leave(no, Needs::Node), NOBODY);
    assert_eq!(places.leave(no, Needs::Node), [3]);
    assert_eq!(places.set_limits(no, limits(None, None), 1), [4]);
}

#[test]
fn the_nodes_places_go_to_whoever_has_the_fewest_for_its_weight() {
    let mut places = Bench::new(Some(40));
    let light = tenant(&mut places, limits(None, None), 100);
    let heavy = tenant(&mut places, limits(None, None), 300);
    (0..40).for_each(|_| runs(&mut places, light, Needs::Node));
    for number in 0..40 {
        waits(&mut places, light, Needs::Node, number);
    }
    // A tenant that runs hardly anything comes in in any case.
    (0..OWN_PLACES).for_each(|_| runs(&mut places, heavy, Needs::Node));
    for number in 100..140 {
        waits(&mut places, heavy, Needs::Node, number);
    }
    // All are as long, so that whoever runs more has more of them end; and both always have some waiting.
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..600 {
        let (of_light, of_heavy) = (places.counts(light).0, places.counts(heavy).0);
        let ended = match random.random_range(0..of_light + of_heavy) < of_light {
            true => light,
            false => heavy,
        };
        for next in places.leave(ended, Needs::Node) {
            let (no, number) = if next >= 100 {
                (heavy, 100)
            } else {
                (light, 0)
            };
            waits(&mut places, no, Needs::Node, number);
        }
    }
    let (of_light, of_heavy) = (places.counts(light).0, places.counts(heavy).0);
    assert_eq!((of_light, of_heavy), (10, 30));
}

#[test]
fn those_that_sleep_keep_no_other_tenant_out() {
    let mut places = Bench::new(Some(8));
    let hostile = tenant(&mut places, limits(None, None), 10_000);
    (0..8).for_each(|_| runs(&mut places, hostile, Needs::Node));
    for number in 0..1_000 {
        waits(&mut places, hostile, Needs::Node, number);
    }
    for other in 0..50 {
        let no = tenant(&mut places, limits(None, None), 1);
        (0..OWN_PLACES).for_each(|_| runs(&mut places, no, Needs::Node));
        waits(&mut places, no, Needs::Node, 2_000 + other);
    }
}

#[test]
fn what_needs_no_place_of_the_node_passes_those_that_wait_for_one() {
    let mut places = Bench::new(Some(OWN_PLACES));
    let no = tenant(&mut places, limits(OWN_PLACES + 1, None), 1);
    (0..OWN_PLACES).for_each(|_| runs(&mut places, no, Needs::Node));
    waits(&mut places, no, Needs::Node, 1);
    runs(&mut places, no, Needs::Tenant);
    waits(&mut places, no, Needs::Tenant, 2);
    // The tenant is full now, but of its own.
    assert_eq!(places.leave(no, Needs::Tenant), [2]);
    assert_eq!(places.leave(no, Needs::Node), [1]);
}

#[test]
fn superusers_have_a_reserve_beyond_the_nodes_bound_and_are_in_no_tenants() {
    let mut places = Bench::new(Some(8));
    let no = tenant(&mut places, limits(1, 0), 1);
    runs(&mut places, no, Needs::Node);
    // Full for others, and not for them.
    assert!(places.enter(no, Needs::Node, || 1).is_err());
    (0..RESERVED_PLACES + 7).for_each(|_| runs(&mut places, no, Needs::Reserve));
    assert_eq!(places.counts(no), (1, 0));
    assert_eq!(places.of_node(), (Some(8), RESERVED_PLACES + 8));
    waits(&mut places, no, Needs::Reserve, 2);
    let other = tenant(&mut places, limits(None, None), 1);
    waits(&mut places, other, Needs::Reserve, 3);
    (0..OWN_PLACES).for_each(|_| runs(&mut places, other, Needs::Node));
    assert_eq!(places.counts(no), (1, 1));
    for _ in 0..OWN_PLACES {
        assert_eq!(places.leave(other, Needs::Node), NOBODY);
    }
    assert_eq!(places.leave(no, Needs::Node), [2]);
    assert_eq!(places.leave(no, Needs::Reserve), [3]);
}

/// What the model knows of a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    no: EntranceNo,
    needs: Needs,
    ticket: Option<Ticket>,
}

/// Statements come, end and give up, limits change, and after each of it: nobody waits for whom there is room,
/// nobody was passed by one that needs the same, no bound was exceeded by who came in by it, and nobody was lost.
#[test]
fn whatever_happens_the_bounds_are_kept_and_nobody_is_forgotten() {
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = StdRng::seed_from_u64(seed);
        let node_max = random.random_bool(0.7).then(|| random.random_range(1..12));
        let mut places = Bench::new(node_max);
        let mut tenants: Vec<(EntranceNo, Limits)> = (0..random.random_range(1..5))
            .map(|_| (places.open(), Limits::default()))
            .collect();
        let (mut running, mut waiting) = (BTreeMap::new(), BTreeMap::<u32, Known>::new());
        let mut number = 0;
        for step in 0..400 {
            let at = random.random_range(0..tenants.len());
            let (no, of_tenant) = tenants[at];
            let needs = match random.random_range(0..5) {
                0 => Needs::Reserve,
                1 | 2 => Needs::Tenant,
                _ => Needs::Node,
            };
            number += 1;
            let known = Known {
                no,
                needs,
                ticket: None,
            };
            let mut admitted = Vec::new();
            match random.random_range(0..10) {
                0..=4 => {
                    let own = waiting.values();
                    let own = own.filter(|one| one.no == no && one.needs != Needs::Reserve);
                    let own = own.count() as u32;
                    match places.enter(no, needs, || number) {
                        Ok(Entered::Now) => drop(running.insert(number, known)),
                        Ok(Entered::Waits(ticket)) => {
                            let ticket = Some(ticket);
                            waiting.insert(number, Known { ticket, ..known });
                        }
                        Err(full) => {
                            assert_eq!(full.waiting, own, "seed {seed} step {step}");
                            assert!(of_tenant.waiting_max.is_some_and(|max| own >= max));
                            assert_ne!(needs, Needs::Reserve);
                        }
                    }
                }
                5 => {
                    places.enter_ahead(no, needs);
                    running.insert(number, known);
                }
                6 | 7 if !running.is_empty() => {
                    let at = random.random_range(0..running.len());
                    let (&which, &one) = running.iter().nth(at).unwrap();
                    running.remove(&which);
                    admitted = places.leave(one.no, one.needs);
                }
                8 if !waiting.is_empty() => {
                    let at = random.random_range(0..waiting.len());
                    let (&which, &one) = waiting.iter().nth(at).unwrap();
                    waiting.remove(&which);
                    assert!(places.give_up(one.no, one.needs, one.ticket.unwrap()));
                }
                _ => {
                    let some = |random: &mut StdRng, from: u32| {
                        let is_some = random.random_bool(0.8);
                        is_some.then(|| random.random_range(from..6))
                    };
                    let (most, queue) = (some(&mut random, 1), some(&mut random, 0));
                    tenants[at].1 = limits(most, queue);
                    let weight = random.random_range(1..=10_000);
                    admitted = places.set_limits(no, tenants[at].1, weight);
                }
            }
            for number in admitted {
                let one = waiting.remove(&number).expect("who is let in has waited");
                let first = waiting.values().filter(|other| {
                    (other.no, other.needs) == (one.no, one.needs) && other.ticket < one.ticket
                });
                assert_eq!(first.count(), 0, "seed {seed} step {step}: passed");
                running.insert(number, one);
            }
            check(&places, node_max, &tenants, &running, &waiting, seed, step);
        }
        // Everybody comes to the end.
        while let Some((&number, &one)) = running.iter().next() {
            running.remove(&number);
            for number in places.leave(one.no, one.needs) {
                running.insert(number, waiting.remove(&number).unwrap());
            }
        }
        assert!(waiting.is_empty(), "seed {seed}: {waiting:?}");
        tenants.into_iter().for_each(|(no, _)| places.close(no));
    }
}

fn check(
    places: &Bench,
    node_max: Option<u32>,
    tenants: &[(EntranceNo, Limits)],
    running: &BTreeMap<u32, Known>,
    waiting: &BTreeMap<u32, Known>,
    seed: u64,
    step: u32,
) {
    let count = |all: &BTreeMap<u32, Known>, no, needs: Option<Needs>| {
        let of = all
            .values()
            .filter(|one| Some(one.no) == no || no.is_none());
        of.filter(|one| needs.is_none_or(|needs| one.needs == needs))
            .count() as u32
    };
    let reserved = count(running, None, Some(Needs::Reserve));
    let on_node = count(running, None, Some(Needs::Node)) + reserved;
    let reserve_has_room = node_max.is_none_or(|max| on_node < max + RESERVED_PLACES);
    assert!(
        !reserve_has_room || count(waiting, None, Some(Needs::Reserve)) == 0,
        "seed {seed} step {step}: a superuser is forgotten"
    );
    assert_eq!(
        places.of_node(),
        (node_max, on_node),
        "seed {seed} step {step}"
    );
    for &(no, limits) in tenants {
        let of_superusers = count(running, Some(no), Some(Needs::Reserve));
        let counts = (
            count(running, Some(no), None) - of_superusers,
            count(waiting, Some(no), None),
        );
        assert_eq!(places.counts(no), counts, "seed {seed} step {step}");
        let has_room = limits.running_max.is_none_or(|max| counts.0 < max);
        let own = count(running, Some(no), Some(Needs::Node));
        let node_has_room = node_max.is_none_or(|max| on_node < max) || own < OWN_PLACES;
        let forgotten = waiting.values().any(|one| {
            let node_is_enough = one.needs == Needs::Node && node_has_room;
            one.no == no && has_room && (one.needs == Needs::Tenant || node_is_enough)
        });
        assert!(!forgotten, "seed {seed} step {step}: {counts:?} {limits:?}");
    }
}

/// Tasks come, wait, give up after a while or run: never more at once than may, and none is left.
#[test]
fn no_place_is_lost_between_threads() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .unwrap();
        let admission = Admission::new(Some(6));
        let entrances: Vec<_> = (0..3).map(|_| admission.entrance()).collect();
        for entrance in &entrances {
            entrance.set_limits(limits(3, None), 100);
            assert!(entrance.is_limited());
        }
        let peak = Arc::new(AtomicU64::new(0));
        let at_once: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let tasks: Vec<_> = (0..200u64)
            .map(|number| {
                let which = (number % 3) as usize;
                let (entrance, running) =
                    (Arc::clone(&entrances[which]), Arc::clone(&at_once[which]));
                let peak = Arc::clone(&peak);
                let mut random = StdRng::seed_from_u64(seed << 32 | number);
                runtime.spawn(async move {
                    let needs = match random.random_bool(0.5) {
                        true => Needs::Tenant,
                        false => Needs::Node,
                    };
                    let patience = Duration::from_micros(random.random_range(0..3_000));
                    let place = match entrance.enter(needs).unwrap() {
                        Entry::Admitted(place) => place,
                        Entry::Waits(waiting) => {
                            match tokio::time::timeout(patience, waiting).await {
                                Ok(place) => place,
                                Err(_) => return entrance.count_timeout(),
                            }
                        }
                    };
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    peak.fetch_max(now, Ordering::SeqCst);
                    for _ in 0..random.random_range(0..5) {
                        tokio::task::yield_now().await;
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(place);
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                tokio::time::timeout(Duration::from_secs(60), task)
                    .await
                    .expect("nobody waits for ever")
                    .unwrap();
            }
        });
        assert!(peak.load(Ordering::SeqCst) <= 3, "seed {seed}");
        for entrance in &entrances {
            let counts = entrance.counts();
            assert_eq!((counts.running, counts.waiting), (0, 0), "seed {seed}");
            assert_eq!(entrance.of_node(), (Some(6), 0));
        }
        drop(entrances);
        assert!(admission.places.lock().is_empty());
    }
}

#[test]
fn a_place_that_was_given_to_whoever_gives_up_goes_on_to_the_next() {
    let entrance = Admission::new(None).entrance();
    entrance.set_limits(limits(1, None), 100);
    let waiting = |entrance: &Arc<Entrance>| match entrance.enter(Needs::Tenant) {
        Ok(Entry::Waits(waiting)) => waiting,
        _ => panic!("it waits"),
    };
    let Ok(Entry::Admitted(place)) = entrance.enter(Needs::Tenant) else {
        panic!("it runs");
    };
    let (first, second) = (waiting(&entrance), waiting(&entrance));
    drop(place);
    assert_eq!(entrance.counts().running, 1);
    // It has the place, and was never polled again.
    drop(first);
    let mut second = std::pin::pin!(second);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(place) = second.as_mut().poll(&mut context) else {
        panic!("the place is lost");
    };
    assert_eq!(
        (entrance.counts().running, entrance.counts().waiting),
        (1, 0)
    );
    drop(place);
    assert_eq!(entrance.counts(), Counts::default());
}
