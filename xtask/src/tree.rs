//! What clippy cannot see of the tree: module headers, file lengths, and paths of
//! the machine that the text was written on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file longer than this holds a second idea (STYLE.md, "Shape").
const LINES_MAX: usize = 800;

/// Folders that are not ours to check.
const SKIPPED: &[&str] = &[
    "target",
    ".git",
    ".demo",
    "node_modules",
    "__pycache__",
    ".venv",
    ".venv-analytics",
    ".venv-s3",
    ".suites",
    "bench-analytics",
];

/// Files whose text is checked for machine paths, by ending.
const TEXT: &[&str] = &["rs", "toml", "md", "py", "sh", "slt", "sql", "yml", "json"];

/// Checks every file below `root`.
///
/// # Errors
/// When a folder or file cannot be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let marks = machine_marks(root);
    let mut complaints = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue; // Bytes that are no text have no shape to check.
        };
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        if file.extension().is_some_and(|ending| ending == "rs") {
            complaints.extend(check_module(&name, &text));
        }
        complaints.extend(check_paths(&name, &text, &marks));
    }
    Ok(complaints)
}

fn check_module(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        complaints.push(format!("{name}: {lines} lines, more than {LINES_MAX}"));
    }
    if !text.starts_with("//!") {
        complaints.push(format!("{name}: does not open with `//!`"));
    }
    complaints
}

fn check_paths(name: &str, text: &str, marks: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(mark) = marks.iter().find(|mark| line.contains(mark.as_str())) {
            complaints.push(format!(
                "{name}:{}: names a path of this machine, {mark}",
                at + 1
            ));
        }
    }
    complaints
}

/// The folder the clone lies in and the home folder of whoever runs the check.
fn machine_marks(root: &Path) -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    [format!("{}/", root.display()), format!("{home}/.")]
        .into_iter()
        // A clone at `/` or an unset home would match everything.
        .filter(|mark| mark.trim_matches(['/', '.']).len() > 2)
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(&path, files)?;
            }
        } else if TEXT
            .iter()
            .any(|ending| name.ends_with(&format!(".{ending}")))
            || !name.contains('.')
        {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_need_a_header_and_a_bounded_length() {
        assert!(check_module("a.rs", "//! Owns a.\n").is_empty());
        assert_eq!(
            check_module("a.rs", "use b;\n"),
            ["a.rs: does not open with `//!`"]
        );
        let long = format!("//! Long.\n{}", "// x\n".repeat(LINES_MAX));
        assert_eq!(
            check_module("a.rs", &long),
            ["a.rs: 801 lines, more than 800"]
        );
    }

    #[test]
    fn paths_of_the_machine_are_found_with_their_line() {
        let marks = vec!["/somewhere/clone/".to_owned()];
        assert!(check_paths("a.md", "fine\n", &marks).is_empty());
        let complaints = check_paths("a.md", "fine\nsee /somewhere/clone/x\n", &marks);
        assert_eq!(
            complaints,
            ["a.md:2: names a path of this machine, /somewhere/clone/"]
        );
    }

    #[test]
    fn marks_that_match_everything_are_left_out() {
        let marks = machine_marks(Path::new("/"));
        assert!(!marks.contains(&"//".to_owned()), "{marks:?}");
    }
}
