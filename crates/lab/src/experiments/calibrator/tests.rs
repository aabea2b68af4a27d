//! Conclusions from samples of known machines.

use super::*;
use crate::Sample;

fn put(results: &mut Results, environment: Environment, series: &str, x: f64, value: f64) {
    results.samples.push(Sample {
        cell: "c".to_owned(),
        environment,
        series: series.to_owned(),
        x,
        value,
    });
}

/// A machine with caches of 32 KiB and 1 MiB, whose guest takes so many times as long in
/// memory.
fn results(memory: f64, noise: f64) -> Results {
    let mut results = Results::default();
    for round in 0..8 {
        for (nth, bytes) in sizes().into_iter().enumerate() {
            let wobble = 1.0 + noise * ((round * 7 + nth * 3) % 8) as f64;
            let ns = match bytes {
                0..=32768 => 1.2,
                32769..=0x10_0000 => 4.0,
                _ => 90.0,
            };
            let x = bytes as f64;
            let guest = if ns > 50.0 { ns * memory } else { ns };
            put(&mut results, Environment::Native, CACHES, x, ns);
            put(
                &mut results,
                Environment::KvmMicro,
                CACHES,
                x,
                guest * wobble,
            );
        }
        for (environment, walk) in [(Environment::Native, 11.0), (Environment::KvmMicro, 17.0)] {
            put(&mut results, environment, SMALL_PAGES, 8192.0, walk + 3.0);
            put(&mut results, environment, SMALL_CONTROL, 8192.0, 3.0);
        }
    }
    results
}

#[test]
fn the_same_plateaus_are_as_expected() {
    let conclusion = conclude(&results(1.02, 0.001));
    assert_eq!(conclusion.outcome, Outcome::AsExpected, "{conclusion:?}");
    for text in [
        "L1 +0.3%",
        "L2 +0.3%",
        "memory +2.4%",
        "11.00 ns",
        "17.00 ns",
    ] {
        assert!(
            conclusion.verdict.contains(text),
            "{text}: {}",
            conclusion.verdict
        );
    }
    assert_eq!(conclusion.charts.len(), 2);
}

#[test]
fn a_slower_plateau_is_named() {
    let conclusion = conclude(&results(1.3, 0.001));
    assert_eq!(conclusion.outcome, Outcome::Differs);
    assert!(
        conclusion.verdict.contains("Not within 5%: memory"),
        "{}",
        conclusion.verdict
    );
}

#[test]
fn ratios_of_noise_are_not_told() {
    let conclusion = conclude(&results(1.0, 0.3));
    assert_eq!(
        conclusion.outcome,
        Outcome::Unclear,
        "{}",
        conclusion.verdict
    );
    let told = |row: &Vec<String>| row[3].contains("not told");
    assert!(conclusion.tables[0].rows.iter().any(told), "{conclusion:?}");
}

#[test]
fn sizes_are_whole_lines_and_rise() {
    let sizes = sizes();
    assert_eq!((sizes[0], sizes.last()), (8192, Some(&MEMORY_BYTES)));
    assert!(sizes.iter().all(|bytes| bytes % STEP_BYTES == 0));
    assert!(sizes.is_sorted());
}
