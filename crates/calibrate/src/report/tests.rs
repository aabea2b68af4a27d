//! Verdicts, a whole calibration of this machine, and recorded ones.

use super::*;
use crate::CacheClaim;
use crate::TlbClaim;
use crate::measure::Options;
use crate::{calibrate, plots};

/// What a calibration of this many seconds finds here. Nothing is asserted of its values:
/// they are the machine's.
fn measured() -> Report {
    let options = Options {
        seconds: 1.0,
        core: None,
    };
    calibrate(&options).unwrap()
}

#[test]
fn verdicts_compare_value_and_claim() {
    let detected = |value| Detected::sure(value, 0.9);
    let verdict = |value, claimed, is_shared| {
        Finding::beside(detected(value), claimed, 0.15, is_shared).verdict
    };
    assert_eq!(verdict(49.0, Some(48.0), false), Verdict::Agrees);
    assert_eq!(verdict(20.0, Some(48.0), false), Verdict::Differs);
    assert_eq!(verdict(20.0, Some(48.0), true), Verdict::Effective);
    // More than claimed is no share of it.
    assert_eq!(verdict(96.0, Some(48.0), true), Verdict::Differs);
    assert_eq!(verdict(48.0, None, false), Verdict::Unclaimed);
    let unsure = Detected::sure(48.0, 0.3);
    assert_eq!(unsure.value, None);
    assert_eq!(
        Finding::beside(unsure, Some(48.0), 0.15, false).verdict,
        Verdict::NotDetected
    );
}

#[test]
fn a_calibration_is_whole_and_comes_back_from_json() {
    let report = measured();
    assert_eq!(report.format, FORMAT);
    assert!(report.took_s > 0.0);
    assert!(report.machine.threads > 0);
    for name in ["caches", "line", "pages_4k", "pages_4k_control", "pages_2m"] {
        let curve = report.curve(name).unwrap();
        assert!(curve.points.len() > 3, "{name}");
        for point in &curve.points {
            assert!(!point.ns.is_empty(), "{name} at {}", point.x);
            assert!(
                point.ns.iter().all(|ns| ns.is_finite() && *ns >= 0.0),
                "{name}"
            );
        }
        assert!(curve.points.is_sorted_by(|a, b| a.x < b.x), "{name}");
    }
    let findings = report.caches.iter().flat_map(|cache| {
        [
            cache.size_bytes,
            cache.latency_ns,
            cache.miss_ns,
            cache.replace_ns,
        ]
    });
    for finding in findings.chain([report.memory_latency_ns]) {
        assert!((0.0..=1.0).contains(&finding.confidence), "{finding:?}");
        assert_eq!(
            finding.value.is_none(),
            finding.verdict == Verdict::NotDetected,
            "{finding:?}"
        );
    }
    assert_eq!(report.bandwidth[0].threads, 1);
    let again = Report::from_json(&report.to_json().unwrap()).unwrap();
    assert_eq!(again, report);
    let rows = report.rows();
    assert!(rows.iter().any(|row| row.what == "memory latency"));
    let drawn = plots(&report).unwrap();
    let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        names.contains(&"caches.svg") && names.contains(&"tlb-4k.svg"),
        "{names:?}"
    );
    for (name, svg) in drawn {
        assert!(
            svg.starts_with("<svg") && svg.contains("ns per load"),
            "{name}"
        );
        assert!(!svg.contains("NaN"), "{name}");
    }
}

#[test]
fn a_core_that_is_not_there_and_a_budget_out_of_range_are_errors() {
    let options = |seconds, core| Options { seconds, core };
    for core in [1023, usize::MAX] {
        let refused = calibrate(&options(1.0, Some(core)));
        assert!(
            matches!(refused, Err(CalibrateError::Core { .. })),
            "{core}"
        );
    }
    for seconds in [0.0, -1.0, f64::NAN, 1e9] {
        let refused = calibrate(&options(seconds, None));
        assert!(
            matches!(refused, Err(CalibrateError::Seconds { .. })),
            "{seconds}"
        );
    }
}

#[test]
fn what_is_no_calibration_is_refused() {
    assert!(matches!(
        Report::from_json("{}"),
        Err(CalibrateError::NoReport(_))
    ));
    assert!(matches!(
        Report::from_json(r#"{"format": 99}"#),
        Err(CalibrateError::Format { found: 99 })
    ));
    let damaged = Report::from_json(r#"{"format": 1, "machine": 7}"#);
    assert!(matches!(damaged, Err(CalibrateError::NoReport(_))));
}

#[test]
fn processors_are_told_apart() {
    let cpuinfo = "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
    assert_eq!(processor(cpuinfo), "AMD EPYC, cpu family 26, model 2");
    assert_eq!(
        processor("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n"),
        "CPU implementer 0x41, CPU part 0xd40"
    );
    assert_eq!(processor(""), "");
}

/// What was recorded on a machine, and what is true of it.
struct Recorded {
    name: &'static str,
    json: &'static str,
    caches: &'static [f64],
    tlb: [f64; 2],
}

/// An AMD EPYC (Zen 5) seen by a guest with two threads, with little and with much beside it.
const RECORDED: [Recorded; 2] = [
    Recorded {
        name: "zen5-guest-quiet",
        json: include_str!("../../tests/recorded/zen5-guest-quiet.json"),
        caches: &[49_152.0, 1_048_576.0],
        tlb: [96.0, 4096.0],
    },
    Recorded {
        name: "zen5-guest-busy",
        json: include_str!("../../tests/recorded/zen5-guest-busy.json"),
        caches: &[49_152.0, 1_048_576.0],
        tlb: [96.0, 4096.0],
    },
];

#[test]
fn recorded_curves_give_what_is_true_of_their_machine() {
    for Recorded {
        name,
        json,
        caches,
        tlb,
    } in RECORDED
    {
        let report = Report::from_json(json).unwrap();
        let found = caches_of(report.curve("caches").unwrap());
        for (at, ((_, size), is)) in found.iter().zip(caches).enumerate() {
            let near = if at == 0 { 0.05 } else { 0.15 };
            let size = size.value.unwrap();
            assert!(
                (size / is - 1.0).abs() < near,
                "{name}, L{}: {size}",
                at + 1
            );
        }
        assert!(found.len() >= caches.len(), "{name}: {found:?}");
        let curve = |of: &str| report.curve(of).unwrap();
        let found = tlbs_of(curve("pages_4k"), curve("pages_4k_control"));
        for ((_, entries), is) in found.iter().zip(tlb) {
            let entries = entries.value.unwrap();
            assert!(
                (entries / is - 1.0).abs() < 0.15,
                "{name}: {entries} for {is}"
            );
        }
        assert_eq!(found.len(), 2, "{name}: {found:?}");
        let line = crate::line_of(curve("line"));
        assert_eq!(line.value, Some(64.0), "{name}: {line:?}");
    }
}

#[test]
fn claims_are_found_by_level_and_page() {
    let tlb = |level, page_bytes, entries| TlbClaim {
        level,
        page_bytes,
        entries,
    };
    let claims = Claims {
        caches: vec![CacheClaim {
            level: 2,
            size_bytes: 1 << 20,
            line_bytes: 64,
            shared_by: 1,
        }],
        tlbs: vec![tlb(1, SMALL_PAGE, 96), tlb(1, HUGE_PAGE, 32)],
        ..Claims::default()
    };
    assert_eq!(claims.cache(2).map(|cache| cache.size_bytes), Some(1 << 20));
    assert_eq!(claims.cache(1), None);
    assert_eq!(claims.tlb(1, HUGE_PAGE).map(|tlb| tlb.entries), Some(32));
    assert_eq!(claims.tlb(2, SMALL_PAGE), None);
}
