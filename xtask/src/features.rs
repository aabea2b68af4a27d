//! One build of each dependency. Cargo turns on the features that the selected packages ask
//! for, so a command that selects other packages can compile DataFusion once more. Here the
//! selections that the commands of this repository make are compared with the whole
//! workspace; what one of them lacks belongs into `aerostat-features`.

use std::{collections::BTreeSet, path::Path};

use anyhow::Result;

/// What `cargo tree` selects: all that is linted, and what must not differ from it.
const ALL: &[&str] = &[
    "--workspace",
    "--exclude=aerostat-workload",
    "--edges=normal,build,dev",
];
const PARTS: &[(&str, &[&str])] = &[
    (
        "the server",
        &["--package=aerostat-server", "--edges=normal,build"],
    ),
    (
        "its tests",
        &["--package=aerostat-server", "--edges=normal,build,dev"],
    ),
    (
        "tests of engine",
        &["--package=aerostat-engine", "--edges=normal,build,dev"],
    ),
];

/// Says which dependencies have fewer features in a part than in the whole.
///
/// # Errors
/// When cargo cannot tell.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let all = tree(root, ALL)?;
    let mut complaints = Vec::new();
    for (name, selection) in PARTS {
        complaints.extend(lacking(name, &tree(root, selection)?, &all));
    }
    Ok(complaints)
}

fn lacking(name: &str, part: &BTreeSet<String>, all: &BTreeSet<String>) -> Vec<String> {
    part.difference(all)
        .map(|package| {
            format!("{name}: `{package}` has other features in the whole workspace; add them to aerostat-features")
        })
        .collect()
}

/// Each package with its features, one in a line.
fn tree(root: &Path, selection: &[&str]) -> Result<BTreeSet<String>> {
    let mut arguments = vec!["tree", "--locked", "--prefix=none", "--format={p} {f}"];
    arguments.extend(selection);
    let printed = crate::cargo(root, &arguments)?;
    Ok(packages(&String::from_utf8_lossy(&printed)))
}

/// The lines without the mark of those that came before. Our own crates are built by each command for itself
/// (`scripts/lint-crate`), and tests may ask more of them.
fn packages(listing: &str) -> BTreeSet<String> {
    listing
        .lines()
        .map(|line| line.trim_end_matches(" (*)").trim_end().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with("aerostat-"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_fewer_features_is_named() {
        let all = packages("tokio v1.0.0 net,rt\nserde v1.0.0 std\nserde v1.0.0 std (*)\n");
        let part = packages("tokio v1.0.0 rt\nserde v1.0.0 std\naerostat-storage v0.1.0 tests\n");
        let complaints = lacking("the server", &part, &all);
        assert_eq!(complaints.len(), 1);
        assert!(
            complaints[0].contains("`tokio v1.0.0 rt`"),
            "{complaints:?}"
        );
        assert_eq!(lacking("the server", &all, &all), Vec::<String>::new());
    }
}
