//! Damaged bytes behind a forged checksum: the bodies of the fuzz targets, driven by
//! seeds, so that every run of the tests tries thousands of the same damages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

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

/// Runs a target on inputs made from seeds. Says of how many it gave true.
fn rounds(count: u64, target: fn(&[u8]) -> bool) -> u64 {
    let count = if cfg!(miri) { 6 } else { count };
    let round = |seed: &u64| {
        let _named = Seed(*seed);
        let mut random = Random(*seed);
        // Few edits are mostly got past the checks, many seldom.
        let len = 2 + random.pick(&[5, 6, 12, 24, 60]) + random.below(6);
        let input: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        target(&input)
    };
    (0..count).filter(round).count() as u64
}

#[test]
fn damaged_hot_segments_are_refused_or_harmless() {
    let attached = rounds(1200, targets::segment_decode);
    // Else nothing is tested but the refusals.
    assert!(
        cfg!(miri) || (120..1080).contains(&attached),
        "{attached} of 1,200"
    );
}

#[test]
fn damaged_frozen_segments_are_refused_or_harmless() {
    let attached = rounds(1800, targets::frozen_decode);
    assert!(
        cfg!(miri) || (180..1620).contains(&attached),
        "{attached} of 1,800"
    );
}

#[test]
fn whatever_is_encoded_is_read() {
    assert!(rounds(40, targets::encodings) > 0);
}

#[test]
fn undamaged_segments_are_attached() {
    for case in 0..if cfg!(miri) { 3 } else { 24 } {
        assert!(targets::segment_decode(&[case, 1]) && targets::frozen_decode(&[case, 2]));
    }
}
