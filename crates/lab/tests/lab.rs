//! The lab as a program: a quick run of the experiment with guests, its helpers, and mistakes.
//! Nothing is asserted of times: they are the machine's.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
        "--env",
        "native,kvm-micro",
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

/// Where the guest's kernel is kept between runs of the tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

#[test]
fn environments_compute_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let with_cache = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_aerostat-lab"))
            .args(arguments)
            .env("XDG_CACHE_HOME", cache())
            .output()
            .unwrap()
    };
    let has_qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if has_qemu.is_ok() && !cache().join("aerostat-lab/guest/kernel").exists() {
        let prepared = with_cache(&["prepare"]);
        if !prepared.status.success() {
            eprintln!("skipped: a guest's kernel: {}", text(&prepared.stderr));
        }
    }
    let out_text = out.to_str().unwrap();
    let limits = ["--cpus", "0.5", "--memory", "256", "--out", out_text];
    let ran = with_cache(&[&["run", "environments", "--quick"][..], &limits].concat());
    let (shown, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{shown}{errors}");
    assert!(!shown.contains("something else"), "{shown}{errors}");
    let summary = fs::read_to_string(out.join("environments/summary.json")).unwrap();
    let points: Vec<serde_json::Value> = serde_json::from_str(&summary).unwrap();
    let html = fs::read_to_string(out.join("report.html")).unwrap();
    for (name, label) in [
        ("kvm-micro", "kvm-micro"),
        ("cgroup", "cgroup (0.5 CPU, 256 MiB)"),
        ("container", "container (0.5 CPU, 256 MiB)"),
        ("kvm-linux", "kvm-linux"),
        ("tcg", "tcg (function only)"),
    ] {
        if let Some(skipped) = errors
            .split("SKIPPED: ")
            .find(|line| line.starts_with(name))
        {
            eprintln!("skipped: {}", skipped.lines().next().unwrap());
            assert!(shown.contains(&format!("SKIPPED: {name}: ")), "{shown}");
            continue;
        }
        let of_it: Vec<_> = points
            .iter()
            .filter(|one| one["environment"] == name)
            .collect();
        assert!(of_it.len() > 5, "{name}: {summary}");
        assert!(of_it.iter().all(|one| one["label"] == label), "{of_it:?}");
        assert!(
            html.contains(&format!("{label}: scan")),
            "{label} is in no figure"
        );
        if name == "tcg" {
            let overhead = of_it.iter().find(|one| one.get("overhead").is_some());
            assert_eq!(overhead, None, "an emulator's times are no overhead");
        }
    }
}

/// The control groups that runs of a process have left.
fn groups_of(process: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let of_groups = mounts.lines().filter(|line| line.contains(" cgroup"));
    let mut folders: Vec<PathBuf> = of_groups
        .filter_map(|line| line.split(' ').nth(1).map(PathBuf::from))
        .collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with(&format!("aerostat-lab-{process}-")) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_killed_run_leaves_no_cgroup() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_aerostat-lab"))
        .args([
            "run",
            "environments",
            "--env",
            "native,cgroup,container",
            "--out",
        ])
        .arg(folder.path().join("out"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    // Both are ready when the first cell begins.
    for line in errors.lines().map_while(Result::ok) {
        said += &line;
        if line.ends_with(": ready") {
            break;
        }
    }
    let before = groups_of(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    if said.contains("SKIPPED") {
        eprintln!("skipped: cgroups of a killed run: {said}");
    } else {
        assert!(before.len() >= 2, "{before:?}");
    }
    let started = Instant::now();
    while !groups_of(child.id()).is_empty() {
        assert!(
            started.elapsed().as_secs() < 10,
            "{:?}",
            groups_of(child.id())
        );
        std::thread::sleep(Duration::from_millis(10));
    }
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
    fails(&["run", "all", "--env", "vmware"], "kvm-micro");
    fails(&["run", "all", "--cpus", "0"], "--cpus");
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
