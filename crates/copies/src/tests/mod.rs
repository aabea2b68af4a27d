//! Copies with real stores, played from a seed on one thread: processes that are killed, machines that lose what
//! is not on disk, packets that are late, lost, doubled and out of order, partitions, pauses, large
//! transactions, freezing and checkpoints of each node for itself.
//!
//! ```text
//!  World ── events by time ──► Node ── Driver ──► SimHost: packets, configurations, syncs, openings
//!    │                          └ TenantStore on a SimDisk
//!    └ Judge: what was acknowledged is there; at each place all nodes show the same rows
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a seed found is read by who plays it"
)]

mod applying;
mod befalls;
mod due;
mod hostile;
mod judge;
mod moves;
mod node;
mod pair;
mod seeding;
mod sharing;
mod world;

use self::world::World;

struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("COPIES_SEED={} COPIES_SEEDS=1", self.0);
        }
    }
}

/// The first, and how many.
fn seeds() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    (
        number("COPIES_SEED").unwrap_or(1),
        number("COPIES_SEEDS").unwrap_or(6),
    )
}

/// The same, while it is decided again and again which nodes have the database.
#[test]
fn copies_that_move_lose_nothing_and_come_to_rest() {
    let (first, seeds) = seeds();
    let (mut acknowledged, mut left, mut made) = (0, 0, 0);
    for seed in first..first + seeds {
        let _seed = Seed(seed);
        let played = World::new(seed).moving().play();
        acknowledged += played.acknowledged;
        left += played.left;
        made += played.seeds.0;
    }
    println!("{acknowledged} commits, {left} times given up, {made} copies made anew");
    assert!(acknowledged > 20 * seeds && left >= seeds / 2);
}

#[test]
fn copies_show_what_was_acknowledged_whatever_befalls_them() {
    let (first, seeds) = seeds();
    let (mut acknowledged, mut compared, mut epochs) = (0, 0, 0);
    let (mut made, mut begun, mut lacking) = (0, 0, 0);
    for seed in first..first + seeds {
        let _seed = Seed(seed);
        let played = World::new(seed).play();
        acknowledged += played.acknowledged;
        compared += played.compared;
        epochs += played.epochs;
        made += played.seeds.0;
        begun += played.seeds.1;
        lacking += played.lacking;
    }
    println!("{acknowledged} commits, {compared} comparisons, {epochs} epochs");
    println!("{made} copies made anew of {begun} begun, {lacking} that lacked the log");
    assert!(acknowledged > 50 * seeds && compared > 50 * seeds && epochs > 2 * seeds);
}
