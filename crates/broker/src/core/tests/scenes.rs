//! What happens in one known situation each.

use super::*;

fn settings() -> Settings {
    Settings {
        reserve: 96 * MIB,
        ..Settings::of_budget(BUDGET)
    }
}

/// Two honest programs that have divided 4,000 MiB.
fn divided() -> (Scene, usize, usize) {
    let mut scene = Scene::new(1, settings());
    let a = scene.program("a", Nature::Honest, 100, 100, 3_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 1_000);
    scene.run(3);
    assert_eq!((scene.granted(a), scene.granted(b)), (3_000, 1_000));
    (scene, a, b)
}

#[test]
fn what_is_free_is_granted_to_whoever_wants_it() {
    let (scene, a, b) = divided();
    assert_eq!(scene.programs[a].memory, 3_000 * MIB);
    assert_eq!(scene.programs[b].memory, 1_000 * MIB);
    assert_eq!(scene.core.status().free, 0);
}

#[test]
fn memory_goes_to_whoever_has_work_for_it() {
    let (mut scene, a, b) = divided();
    (scene.programs[a].wanted, scene.programs[b].wanted) = (1_000 * MIB, 3_000 * MIB);
    let mut noticed = None;
    for step in 0..40 {
        scene.step();
        if scene.granted(b) >= 2_900 {
            noticed = noticed.or(Some(step * TICK_MS));
        }
    }
    assert!(
        noticed.is_some_and(|ms| ms <= 3_000),
        "{noticed:?}, {:?}",
        scene.audited()
    );
    assert!(scene.programs[b].memory >= 2_900 * MIB);
}

#[test]
fn a_square_wave_moves_memory_once_in_a_dwell() {
    let (mut scene, a, b) = divided();
    let before = scene.audited().len();
    for second in 0..300 {
        let (high, low) = if second / 5 % 2 == 0 { (a, b) } else { (b, a) };
        scene.programs[high].wanted = 3_900 * MIB;
        scene.programs[low].wanted = 100 * MIB;
        scene.run(1);
    }
    let audited = scene.audited();
    let asked = audited[before..]
        .iter()
        .filter(|line| line.starts_with("asked"));
    let asked = asked.count();
    assert!((1..=11).contains(&asked), "{asked}: {audited:?}");
}

#[test]
fn a_liar_is_found_out_by_the_kernel() {
    let mut scene = Scene::new(1, settings());
    let liar = scene.program("liar", Nature::Liar, 100, 100, 3_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 1_000);
    scene.run(3);
    scene.programs[b].wanted = 3_500 * MIB;
    scene.programs[liar].wanted = 500 * MIB;
    scene.run(10);
    assert_eq!((scene.granted(liar), scene.granted(b)), (3_000, 1_000));
    let audited = scene.audited();
    let kept = audited.iter().find(|line| line.starts_with("kept liar"));
    assert!(
        kept.is_some_and(|line| line.contains("the kernel counts")),
        "{audited:?}"
    );
    // It is left alone for a while, and keeps what it has.
    assert_eq!(scene.programs[liar].target, 3_000 * MIB);
}

#[test]
fn what_nobody_counts_costs_others_little_whatever_is_said() {
    let mut scene = Scene::new(1, settings());
    let remote = scene.program("remote", Nature::Stubborn, 100, 100, 1_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 3_000);
    scene.machine.0.borrow_mut().remote = scene.programs[remote].process.map(|one| one.pid);
    scene.run(3);
    assert_eq!((scene.granted(remote), scene.granted(b)), (1_000, 3_000));
    scene.programs[remote].memory = 1_000_000 * MIB;
    scene.run(300);
    assert!(scene.granted(b) >= 2_930, "{}", scene.granted(b));
    assert_eq!(scene.granted(remote), 1_000, "it gets no more for it");
    // The same while it is asked to give, and has not.
    scene.programs[remote].wanted = 100 * MIB;
    scene.programs[b].wanted = 3_900 * MIB;
    scene.run(300);
    assert!(scene.granted(b) >= 2_930, "{}", scene.granted(b));
}

#[test]
fn what_a_slow_program_gives_is_granted_as_it_comes() {
    let mut scene = Scene::new(1, settings());
    let slow = scene.program("slow", Nature::Slow, 100, 100, 3_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 1_000);
    scene.run(3);
    (scene.programs[slow].wanted, scene.programs[b].wanted) = (100 * MIB, 3_800 * MIB);
    scene.run(10);
    let so_far = scene.granted(b);
    assert!(so_far > 1_100 && so_far < 3_000, "{so_far}");
    // Its deadline is 30 seconds; the rest stays with it, until it is asked again.
    scene.run(300);
    assert!(scene.granted(b) > 3_600, "{:?}", scene.audited());
}

#[test]
fn a_silent_program_keeps_its_share_until_its_process_has_gone() {
    let (mut scene, a, b) = divided();
    scene.programs[a].is_stopped = true;
    scene.programs[b].wanted = 3_900 * MIB;
    scene.run(120);
    assert_eq!((scene.granted(a), scene.granted(b)), (3_000, 1_000));
    let lost = scene.core.status().participants[0].state.clone();
    assert_eq!(lost, "lost");
    scene.kill(a);
    scene.run(1);
    assert_eq!((scene.granted(a), scene.granted(b)), (0, 3_900));
}

#[test]
fn a_broker_that_died_goes_on_with_its_ledger() {
    let (mut scene, a, b) = divided();
    scene.crash();
    scene.run(3);
    assert_eq!((scene.granted(a), scene.granted(b)), (3_000, 1_000));
    // In the middle of a move, too.
    scene.programs[a].nature = Nature::Slow;
    (scene.programs[a].wanted, scene.programs[b].wanted) = (1_000 * MIB, 3_000 * MIB);
    scene.run(2);
    assert!(scene.core.ledger().shares["a"].target < 3_000 * MIB);
    scene.crash();
    scene.programs[a].nature = Nature::Honest;
    scene.run(60);
    assert!(scene.granted(b) >= 2_900, "{:?}", scene.audited());
}

#[test]
fn a_disk_that_refuses_grants_nothing_and_forgets_nothing() {
    let (mut scene, a, b) = divided();
    (scene.programs[a].wanted, scene.programs[b].wanted) = (1_000 * MIB, 3_000 * MIB);
    scene.machine.0.borrow_mut().refuses = true;
    scene.run(30);
    assert_eq!((scene.granted(a), scene.granted(b)), (3_000, 1_000));
    assert_eq!(scene.programs[a].target, 3_000 * MIB);
    scene.machine.0.borrow_mut().refuses = false;
    scene.run(60);
    assert!(scene.granted(b) >= 2_900, "{:?}", scene.audited());
}

#[test]
fn room_is_made_for_whoever_comes_later() {
    let (mut scene, ..) = divided();
    let c = scene.program("c", Nature::Honest, 500, 0, 500);
    scene.step();
    assert_eq!(scene.granted(c), 0);
    assert_eq!(scene.core.status().waiting, ["c"]);
    scene.run(10);
    assert_eq!(scene.granted(c), 500, "{:?}", scene.audited());
}

#[test]
fn memory_beyond_a_grant_is_taken_from_nobody() {
    let mut scene = Scene::new(1, settings());
    let a = scene.program("a", Nature::Honest, 100, 100, 1_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 1_000);
    scene.run(3);
    // It has more than it was granted, and cannot help it.
    scene.programs[a].nature = Nature::Stubborn;
    scene.programs[a].memory = 2_500 * MIB;
    scene.programs[b].wanted = 3_900 * MIB;
    scene.run(10);
    assert_eq!(scene.granted(b), 1_500, "{:?}", scene.audited());
}

#[test]
fn pressure_brings_memory_back_before_anybody_pages() {
    let (mut scene, ..) = divided();
    scene.machine.0.borrow_mut().pressure = 40.0;
    scene.run(3);
    let step = BUDGET / 32 / MIB;
    let total: u64 = scene
        .core
        .ledger()
        .shares
        .values()
        .map(|share| share.granted / MIB)
        .sum();
    assert_eq!(total, 4_000 - step, "{:?}", scene.audited());
    scene.machine.0.borrow_mut().pressure = 0.0;
    scene.run(90);
    let total: u64 = scene
        .core
        .ledger()
        .shares
        .values()
        .map(|share| share.granted / MIB)
        .sum();
    assert_eq!(total, 4_000);
}

#[test]
fn a_lower_budget_is_reached() {
    let (mut scene, ..) = divided();
    scene.settings.budget = 2_096 * MIB;
    scene.crash();
    scene.run(60);
    assert_eq!(scene.core.ledger().free(), 0);
    assert!(
        scene.core.ledger().taken() <= 2_000 * MIB,
        "{:?}",
        scene.audited()
    );
}

#[test]
fn an_administrator_comes_before_the_policy() {
    let (mut scene, a, b) = divided();
    scene.core.pin("a", Some(500 * MIB)).unwrap();
    scene.programs[b].wanted = 3_900 * MIB;
    scene.run(10);
    assert_eq!((scene.granted(a), scene.granted(b)), (500, 3_500));
    scene.core.pin("a", None).unwrap();
    scene.programs[b].wanted = 1_000 * MIB;
    scene.run(60);
    assert!(scene.granted(a) >= 2_900, "{:?}", scene.audited());
    assert_eq!(
        scene.core.pin("nobody", None),
        Err(AdminError::Unknown("nobody".to_owned()))
    );
    assert_eq!(
        scene.core.forget("a"),
        Err(AdminError::Connected("a".to_owned()))
    );
    scene.programs[a].is_stopped = true;
    scene.run(10);
    scene.core.forget("a").unwrap();
    assert!(!scene.core.ledger().shares.contains_key("a"));
}

#[test]
fn a_dry_run_moves_nothing() {
    let mut scene = Scene::new(
        1,
        Settings {
            is_dry_run: true,
            ..settings()
        },
    );
    let a = scene.program("a", Nature::Honest, 100, 2_000, 500);
    let b = scene.program("b", Nature::Honest, 100, 1_000, 3_000);
    scene.run(10);
    assert_eq!((scene.granted(a), scene.granted(b)), (2_000, 1_000));
    assert!(
        scene
            .audited()
            .iter()
            .any(|line| line.starts_with("would move b"))
    );
}

#[test]
fn a_name_belongs_to_one_process() {
    let (mut scene, a, _) = divided();
    let twin = scene.program("a", Nature::Honest, 100, 50, 50);
    scene.step();
    assert_eq!(scene.programs[twin].session, None);
    let refused = scene.programs[twin].inbox.iter().any(|message| {
        matches!(message, FromBroker::Refused(refused) if refused.code == RefusedCode::NameInUse)
    });
    assert!(refused, "{:?}", scene.programs[twin].inbox);
    // The other one has gone: the name and its memory are free.
    scene.kill(a);
    scene.run(2);
    assert!(scene.programs[twin].session.is_some());
}

#[test]
fn costs_decide_between_two_that_want_the_same() {
    let mut scene = Scene::new(1, settings());
    let a = scene.program("a", Nature::Honest, 100, 100, 2_000);
    let b = scene.program("b", Nature::Honest, 100, 100, 2_000);
    scene.run(3);
    scene.programs[a].wanted = 4_000 * MIB;
    scene.programs[b].wanted = 4_000 * MIB;
    for (at, steep) in [(a, 4_000.0), (b, 10.0)] {
        let cost = |mib: u64, ms_per_s| Cost {
            bytes: mib * MIB,
            ms_per_s,
        };
        scene.programs[at].costs = vec![cost(0, steep), cost(4_000, 0.0)];
    }
    scene.run(10);
    assert!(scene.granted(a) > 3_500, "{:?}", scene.audited());
    assert!(scene.granted(b) >= 100);
}

#[test]
fn messages_out_of_place_end_the_connection_alone() {
    let (mut scene, a, _) = divided();
    scene.core.connected(900, Some(1), scene.now);
    scene.core.message(900, FromParticipant::Bye, scene.now);
    scene.core.message(900, FromParticipant::Bye, scene.now);
    let wrong = Demand {
        used: 0,
        wanted: 0,
        is_stalled: false,
        costs: vec![Cost {
            bytes: 0,
            ms_per_s: -1.0,
        }],
    };
    scene.say(a, FromParticipant::Demand(wrong));
    assert_eq!(scene.programs[a].session, None);
    scene.run(3);
    assert!(scene.programs[a].session.is_some());
    assert_eq!(scene.granted(a), 3_000);
}

#[test]
fn a_floor_that_rises_is_granted_under_every_policy() {
    for policy in [Policy::Static, Policy::Proportional, Policy::Benefit] {
        let settings = Settings {
            policy,
            ..settings()
        };
        let mut scene = Scene::new(1, settings);
        let a = scene.program("a", Nature::Honest, 100, 3_000, 3_000);
        let b = scene.program("b", Nature::Honest, 100, 1_000, 1_000);
        scene.run(3);
        assert_eq!((scene.granted(a), scene.granted(b)), (3_000, 1_000));
        let limits = |floor: u64, is_fixed| {
            FromParticipant::Limits(Limits {
                floor: floor * MIB,
                ceiling: u64::MAX,
                is_fixed,
            })
        };
        scene.programs[b].floor = 1_800 * MIB;
        scene.say(b, limits(1_800, false));
        scene.run(5);
        assert!(scene.granted(b) >= 1_800, "{policy}: {:?}", scene.audited());
        assert_eq!(scene.core.ledger().shares["b"].floor, 1_800 * MIB);
        // What cannot be is no reason to ask anybody, and breaks no sum.
        let before = (scene.granted(a), scene.granted(b));
        scene.say(b, limits(u64::MAX / MIB, false));
        scene.run(40);
        assert_eq!(scene.core.ledger().shares["b"].floor, BUDGET);
        assert_eq!((scene.granted(a), scene.granted(b)), before, "{policy}");
        // Whoever cannot give any more is asked for nothing.
        scene.say(b, limits(100, true));
        scene.programs[b].wanted = 100 * MIB;
        scene.programs[a].wanted = 3_900 * MIB;
        scene.run(40);
        assert!(scene.granted(b) >= 1_800, "{policy}: {:?}", scene.audited());
        scene.say(
            b,
            FromParticipant::Limits(Limits {
                floor: 2,
                ceiling: 1,
                is_fixed: false,
            }),
        );
        scene.step();
        assert!(
            scene
                .audited()
                .iter()
                .any(|line| line.starts_with("disconnected b"))
        );
    }
}

/// A floor that can never be met takes nothing from anybody, however often it is asked for.
#[test]
fn a_floor_beyond_all_that_could_be_given_drains_nobody() {
    let (mut scene, a, b) = divided();
    for (name, floor) in [("c", 3_950), ("d", u64::MAX / MIB), ("e", u64::MAX / MIB)] {
        let at = scene.program(name, Nature::Honest, floor, 0, floor);
        scene.run(10);
        assert_eq!(scene.granted(at), 0);
        let shares = (scene.granted(a), scene.granted(b));
        assert_eq!(shares, (3_000, 1_000), "{name}: {:?}", scene.audited());
    }
    // One that can be met is.
    let f = scene.program("f", Nature::Honest, 3_700, 0, 3_700);
    scene.run(60);
    assert_eq!(scene.granted(f), 3_700, "{:?}", scene.audited());
}
