//! `aerostat lab`: the lab is part of the binary, and its helpers and nodes are the binary.

use std::fs;

use crate::harness::command;

#[test]
fn experiments_are_listed_and_mistakes_named() {
    let listed = command().args(["lab", "list"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.status.success() && text.contains("calibrator\n"),
        "{text}"
    );
    let refused = command().args(["lab", "run", "nonsense"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("\"nonsense\""), "{errors}");
}

#[test]
fn helpers_and_nodes_are_this_binary() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("lab");
    let ran = command()
        .args(["lab", "run", "allocators", "users", "--quick", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let errors = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success(), "{errors}");
    let samples = fs::read_to_string(out.join("allocators/samples.csv")).unwrap();
    assert!(samples.contains("system malloc"), "{samples}");
    assert!(
        fs::read_to_string(out.join("report.html"))
            .unwrap()
            .contains("The run is complete")
    );
}
