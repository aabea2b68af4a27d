//! `aerostat calibrate`, and a node that prices layouts by what it found. Nothing is
//! asserted of the values: they are the machine's.

use std::fs;

use crate::harness::{Aerostat, command, free_address};

fn calibrate(arguments: &[&str]) -> String {
    let output = command()
        .args(["calibrate", "--seconds", "1"])
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_node_reads_what_calibrate_wrote_to_its_data_folder() {
    let data = tempfile::tempdir().unwrap();
    let plots = data.path().join("plots");
    let shown = calibrate(&[
        "--data",
        data.path().to_str().unwrap(),
        "--plots",
        plots.to_str().unwrap(),
    ]);
    for what in [
        "L1",
        "memory latency",
        "bandwidth, in order, 1 thread",
        "claimed",
    ] {
        assert!(shown.contains(what), "no {what}:\n{shown}");
    }
    let written = data.path().join("calibration.json");
    assert!(shown.contains(written.to_str().unwrap()), "{shown}");
    let drawn = fs::read_to_string(plots.join("caches.svg")).unwrap();
    assert!(drawn.starts_with("<svg"), "{drawn}");
    let node = Aerostat::start_on(data, &[]);
    // Or, when the machine was too busy for a second's calibration, for a usual server.
    assert!(
        node.log().contains("layouts are priced for"),
        "{}",
        node.log()
    );
}

#[test]
fn json_is_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/in/machine.json");
    let printed = calibrate(&["--json", "--out", out.to_str().unwrap()]);
    assert_eq!(printed.trim_end(), fs::read_to_string(&out).unwrap());
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["format"], 1);
    assert!(report["took_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn mistakes_are_named() {
    let fails = |arguments: &[&str]| {
        let output = command().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = fails(&["calibrate", "--seconds", "0"]);
    assert!(errors.contains("not 0"), "{errors}");
    let errors = fails(&["calibrate", "--core", "1023"]);
    assert!(errors.contains("core 1023"), "{errors}");
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.json");
    let (sql, http) = (free_address().to_string(), free_address().to_string());
    let output = command()
        .args(["serve", "--listen", &sql, "--http", &http, "--data"])
        .arg(folder.path().join("data"))
        .arg("--calibration")
        .arg(&missing)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(missing.to_str().unwrap()), "{errors}");
}
