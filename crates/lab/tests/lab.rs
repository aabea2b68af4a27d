//! The lab as a program: a quick run of the experiment with guests, its helpers, and mistakes.
//! Nothing is asserted of times: they are the machine's.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use quick_xml::Reader;
use quick_xml::events::Event;

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_aerostat-lab"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What HTML and SVG are here: also XML, with everything in it.
fn elements(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut reader = Reader::from_str(&text);
    let mut names = Vec::new();
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => return names,
            Ok(Event::Start(start) | Event::Empty(start)) => {
                names.push(String::from_utf8_lossy(start.name().as_ref()).into_owned());
            }
            Ok(_) => {}
            Err(error) => panic!(
                "{} at {}: {error}",
                path.display(),
                reader.buffer_position()
            ),
        }
    }
}

#[test]
fn a_quick_run_leaves_a_report_that_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/in");
    let arguments = [
        "run",
        "calibrator",
        "--quick",
        "--out",
        out.to_str().unwrap(),
    ];
    let ran = lab(&arguments);
    let (shown, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{shown}{errors}");
    let samples = fs::read_to_string(out.join("calibrator/samples.csv")).unwrap();
    assert!(samples.starts_with("cell,environment,series,x,value\n"));
    assert!(
        samples
            .lines()
            .filter(|line| line.contains(",native,"))
            .count()
            > 100
    );
    if errors.contains("SKIPPED: kvm-micro") {
        eprintln!("skipped: calibrator in kvm-micro: {errors}");
        assert!(shown.contains("SKIPPED: kvm-micro: "), "{shown}");
        assert!(
            !lab(&[&arguments[..], &["--resume", "--require"]].concat())
                .status
                .success()
        );
    } else {
        assert!(
            samples
                .lines()
                .filter(|line| line.contains(",kvm-micro,"))
                .count()
                > 100
        );
    }
    let report = out.join("report.html");
    assert!(elements(&report).iter().any(|name| name == "svg"));
    let html = fs::read_to_string(&report).unwrap();
    for what in ["The run is complete", "Seed", "commit", "calibrator", "95%"] {
        assert!(html.contains(what), "no {what}");
    }
    for elsewhere in ["src=", "href=\"http", "@import", "url("] {
        assert!(!html.contains(elsewhere), "the report needs {elsewhere}");
    }
    assert!(elements(&out.join("calibrator/caches.svg")).contains(&"polyline".to_owned()));
    // A run that is there is not run over, and one that is finished not run again.
    let again = lab(&arguments);
    assert!(text(&again.stderr).contains("--resume"), "{again:?}");
    let resumed = lab(&[&arguments[..], &["--resume"]].concat());
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(
        samples,
        fs::read_to_string(out.join("calibrator/samples.csv")).unwrap()
    );
}

/// A helper's answer after a line on its standard input.
fn helper(arguments: &[&str], line: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_aerostat-lab"))
        .arg("helper")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that refuses may have ended already.
    let _ = child.stdin.take().unwrap().write_all(line.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn helpers_get_ready_work_and_end_with_their_input() {
    let project = ["project", "--threads", "2", "--rows", "800"];
    let output = helper(&project, "go\n");
    let shown = text(&output.stdout);
    let (ready, answer) = shown.split_once('\n').unwrap();
    assert_eq!(ready, "ready");
    assert!(answer.starts_with("{\"ns\":["), "{answer}");
    // The input ends, so it does.
    assert!(helper(&["burn", "--core", "0"], "").status.success());
    let output = helper(&project, "");
    assert!(!output.status.success());
    let preloaded = [&project[..], &["--preloaded", "libnone.so.7"]].concat();
    let output = helper(&preloaded, "go\n");
    assert!(
        text(&output.stderr).contains("libnone.so.7 was not loaded"),
        "{output:?}"
    );
}

#[test]
fn mistakes_are_named() {
    let fails = |arguments: &[&str], with: &str| {
        let output = lab(arguments);
        let errors = text(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(with),
            "{errors}"
        );
    };
    fails(&["run", "nonsense"], "there is no experiment \"nonsense\"");
    fails(&["run", "all", "--env", "tcg"], "kvm-micro");
    fails(&["run"], "NAME");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap();
    fails(
        &["run", "calibrator", "--out", path],
        "cannot make the folder",
    );
}

#[test]
fn without_a_node_experiments_with_one_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = lab(&["run", "users", "--quick", "--out", out.to_str().unwrap()]);
    let shown = text(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert!(
        shown.contains("users: SKIPPED") && shown.contains("use `aerostat lab`"),
        "{shown}"
    );
}

#[test]
fn the_list_names_every_experiment() {
    let shown = text(&lab(&["list"]).stdout);
    for name in [
        "calibrator",
        "projectivity",
        "selectivity",
        "allocators",
        "bandwidth",
    ] {
        assert!(shown.contains(&format!("{name}\n")), "{shown}");
    }
}
