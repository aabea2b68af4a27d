//! Nothing is found in what a right database did, and something in what a wrong one did.

use std::time::Instant;

use super::simulator::{Mutant, Size, simulate};
use crate::{Class, Isolation, Kind, Model, Outcome, check};

const SI: Model = Model::new(Isolation::SnapshotIsolation);

const SMALL: Size = Size {
    processes: 5,
    keys: 3,
    transactions: 120,
    values_max: 12,
};

const SEEDS: u64 = 3_000;

#[test]
fn snapshot_isolation_is_right() {
    let (mut skewed, mut outcomes) = (0, [0; 3]);
    for seed in 0..SEEDS {
        let history = simulate(seed, Mutant::None, SMALL);
        let report = check(&history, SI.strict());
        assert!(report.is_clean(), "seed {seed}: {report}");
        let report = check(&history.with_reads_of_failed(), SI.strict());
        assert!(report.is_clean(), "seed {seed}: {report}");
        let report = check(&history, Model::new(Isolation::Serializable).strict());
        let only_skew = |kind: &Kind| matches!(kind, Kind::Cycle(Class::G2Item, _));
        assert!(report.counts.keys().all(only_skew), "seed {seed}: {report}");
        skewed += u64::from(!report.is_clean());
        for transaction in &history.transactions {
            outcomes[transaction.outcome as usize] += 1;
        }
    }
    assert!(skewed > SEEDS / 2, "write skew in {skewed} of {SEEDS}");
    assert!(outcomes.iter().all(|&count| count > 1000), "{outcomes:?}");
}

/// How many of 300 histories show it.
fn caught(mutant: Mutant, model: Model, shows: impl Fn(&crate::Report) -> bool) -> usize {
    (0..300)
        .filter(|&seed| shows(&check(&simulate(seed, mutant, SMALL), model)))
        .count()
}

#[test]
fn every_mutant_is_caught() {
    let expected: &[(Mutant, &[Kind])] = &[
        (
            Mutant::DirtyReads,
            &[Kind::G1a, Kind::G1b, Kind::IncompatibleOrder],
        ),
        (
            Mutant::Overwrites,
            &[Kind::IncompatibleOrder, Kind::LostUpdate, Kind::LostAppend],
        ),
        (Mutant::NoConflicts, &[Kind::LostUpdate]),
        (Mutant::ReadSkew, &[Kind::NonRepeatable]),
        (Mutant::FracturedReads, &[]),
        (Mutant::LostCommits, &[Kind::LostAppend]),
        (Mutant::DoneTwice, &[Kind::Duplicate]),
        (Mutant::ForgetsOwn, &[Kind::Internal]),
        (Mutant::FailedAppends, &[Kind::G1a, Kind::DirtyUpdate]),
    ];
    for &(mutant, kinds) in expected {
        let all = caught(mutant, SI, |report| !report.is_clean());
        eprintln!("{mutant:?}: {all} of 300");
        assert!(all > 50, "{mutant:?}: {all} of 300");
        for &kind in kinds {
            let of_kind = caught(mutant, SI, |report| report.has(kind));
            eprintln!("    {kind}: {of_kind}");
            assert!(of_kind > 20, "{mutant:?}: {kind} in {of_kind} of 300");
        }
    }
}

#[test]
fn cycles_of_their_own_kind_are_caught() {
    for (mutant, class) in [
        (Mutant::ReadSkew, Class::GSingle),
        (Mutant::FracturedReads, Class::GSingle),
        (Mutant::NoConflicts, Class::GSingle),
        (Mutant::LongFork, Class::GNonadjacent),
    ] {
        let count = caught(mutant, SI, |report| report.has_cycle(class));
        eprintln!("{mutant:?}: {class} in {count} of 300");
        assert!(count > 50, "{mutant:?}: {class} in {count} of 300");
    }
    // Two sites are no more than that.
    let worse = caught(Mutant::LongFork, SI, |report| {
        report.has_cycle(Class::GSingle)
    });
    assert_eq!(worse, 0, "parallel snapshot isolation has no read skew");
}

#[test]
fn late_snapshots_are_caught_by_the_clock_alone() {
    let wrong = caught(Mutant::StaleSnapshots, SI, |report| !report.is_clean());
    assert_eq!(wrong, 0, "an old snapshot is a snapshot");
    let sessions = caught(Mutant::StaleSnapshots, SI.strong_session(), |report| {
        !report.is_clean()
    });
    let strict = caught(Mutant::StaleSnapshots, SI.strict(), |report| {
        !report.is_clean()
    });
    eprintln!("old snapshots: {sessions} of 300 by sessions, {strict} by real time");
    assert!(sessions > 200 && strict >= sessions);
    let lost = caught(Mutant::LostCommits, SI.strict(), |report| {
        report.has_cycle(Class::GSingle)
    });
    assert!(
        lost > 50,
        "who reads after a loss is behind real time: {lost}"
    );
}

#[test]
fn large_histories_take_seconds() {
    let size = Size {
        processes: 12,
        keys: 8,
        transactions: 100_000,
        values_max: 60,
    };
    for mutant in [Mutant::None, Mutant::ReadSkew, Mutant::LongFork] {
        let history = simulate(1, mutant, size);
        let started = Instant::now();
        let report = check(&history, SI.strict());
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "{mutant:?}: {} transactions in {seconds:.2} s",
            history.transactions.len()
        );
        assert_eq!(report.is_clean(), mutant == Mutant::None);
        let started = Instant::now();
        let _ = check(&history, Model::new(Isolation::Serializable).strict());
        eprintln!(
            "    serializable in {:.2} s",
            started.elapsed().as_secs_f64()
        );
        let ok = |transaction: &&crate::Transaction| transaction.outcome == Outcome::Ok;
        assert!(history.transactions.iter().filter(ok).count() > 20_000);
    }
}
