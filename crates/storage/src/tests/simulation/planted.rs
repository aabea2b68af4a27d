//! Faults that are built in on purpose: the simulation must find each of them.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{play_seed, set_witness, visit};
use crate::files::fault::PLANTED;

/// So many seeds are looked through for one that finds a fault.
const SEEDS_MAX: u64 = 60;

/// Takes the fault out again, and who looks in on the thread.
struct Planted;

impl Planted {
    fn new(fault: &'static str) -> Planted {
        PLANTED.set(Some(fault));
        Planted
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
        visit::set(None);
        set_witness(None);
    }
}

/// Plays seeds with a fault, from one on that is not far from one that finds it, until one ends
/// with a complaint that says this.
fn is_found(fault: &'static str, from: u64, complaint: &str) {
    let finds = |seed: &u64| {
        let _planted = Planted::new(fault);
        let played = catch_unwind(AssertUnwindSafe(|| play_seed(*seed)));
        played.is_err_and(|panic| said(&*panic).contains(complaint))
    };
    let seed = (from..from + SEEDS_MAX).find(finds);
    let seed =
        seed.unwrap_or_else(|| panic!("no seed of {SEEDS_MAX} from {from} on finds {fault}"));
    eprintln!("seed {seed} finds {fault}");
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default()
}

/// The log says that it is on disk, and is not.
#[test]
fn a_skipped_sync_is_found() {
    is_found("log.skipped_sync", 0, "is lost");
}

/// Rows are stamped, and shown, before the log has their commit.
#[test]
fn a_stamp_that_is_set_too_early_is_found() {
    is_found("log.early_stamp", 0, "is lost");
}

/// The manifest is written in its place, not beside it.
#[test]
fn a_torn_manifest_is_found() {
    is_found(
        "checkpoint.torn_manifest",
        80,
        // By its path, in the error of either way to open a tenant.
        "/tenant/checkpoint/manifest",
    );
}
