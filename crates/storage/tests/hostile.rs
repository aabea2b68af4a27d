//! Damaged files behind forged checksums: the bodies of the fuzz targets, driven by seeds,
//! so that every run of the tests tries hundreds of the same damages.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    reason = "these are tests"
)]

#[path = "../../segment/tests/model/mod.rs"]
mod model;
mod targets;

use model::Random;

/// Names the seed when its round panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

/// Runs a target on the input that a seed makes.
fn seeded(seed: u64, target: fn(&[u8]) -> bool) -> bool {
    let _named = Seed(seed);
    let mut random = Random(seed);
    let len = 2 + random.pick(&[6, 8, 12, 20, 40]) + random.below(6);
    let input: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    target(&input)
}

/// Runs a target on inputs made from seeds, from `AEROSTAT_HOSTILE_SEED` on or from 0. Says
/// of how many it gave true.
fn rounds(count: u64, target: fn(&[u8]) -> bool) -> u64 {
    let first = std::env::var("AEROSTAT_HOSTILE_SEED");
    let first = first.map_or(0, |text| text.parse().unwrap());
    let seeds = first..first + count;
    seeds.filter(|&seed| seeded(seed, target)).count() as u64
}

#[test]
fn damaged_logs_are_refused_or_harmless() {
    let opened = rounds(200, targets::log_decode);
    // Else nothing is tested but the refusals.
    assert!((20..180).contains(&opened), "{opened} of 200");
}

#[test]
fn damaged_checkpoints_are_refused_or_harmless() {
    let opened = rounds(200, targets::checkpoint_decode);
    assert!((20..180).contains(&opened), "{opened} of 200");
}

#[test]
fn damaged_backups_are_refused_or_harmless() {
    let opened = rounds(120, targets::backup_decode);
    assert!((4..110).contains(&opened), "{opened} of 120");
}

/// What fuzzing has found.
#[test]
fn what_was_found_stays_mended() {
    // A frozen segment whose rows bear the stamp of a transaction.
    seeded(417, targets::checkpoint_decode);
    // A transaction whose number leaves none for the next.
    seeded(50, targets::log_decode);
}

#[test]
fn undamaged_files_are_opened() {
    for case in 0..8 {
        let (opened, restored) = targets::undamaged(case);
        assert_eq!(opened, restored, "case {case}");
    }
}
