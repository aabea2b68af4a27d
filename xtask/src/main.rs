//! Checks that cargo itself does not do. `make test` runs all.
//!
//! ```text
//! cargo run -p xtask -- arrows      which crate may know which (the table in `arrows`)
//! cargo run -p xtask -- circles     whether more modules use one another in circles
//! cargo run -p xtask -- features    whether every selection of packages shares one build
//! cargo run -p xtask -- lint-tree   what clippy cannot see of the tree's shape
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod arrows;
mod circles;
mod features;
mod tree;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root()?;
    let (subject, complaints) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["arrows"] => ("arrows", check_arrows(&root)?),
        ["circles"] => ("circles", circles::check(&root)?),
        ["features"] => ("features", features::check(&root)?),
        ["lint-tree"] => ("tree", tree::check(&root)?),
        _ => bail!("usage: xtask arrows | circles | features | lint-tree"),
    };
    for complaint in &complaints {
        eprintln!("{subject}: {complaint}");
    }
    if complaints.is_empty() {
        writeln!(std::io::stdout(), "{subject}: in order")?;
        return Ok(());
    }
    bail!("{} complaint(s) about the {subject}", complaints.len())
}

/// The folder that holds the workspace's `Cargo.toml`.
fn workspace_root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask lies in the workspace")?;
    Ok(root.to_owned())
}

/// What cargo prints when it is called so in the workspace.
///
/// # Errors
/// When it cannot be called, or fails: with what it says.
fn cargo(root: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let command = arguments.first().copied().unwrap_or_default();
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run cargo {command}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("cargo {command} failed: {said}");
    }
    Ok(output.stdout)
}

fn check_arrows(root: &Path) -> Result<Vec<String>> {
    let printed = cargo(
        root,
        &[
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ],
    )?;
    let metadata = serde_json::from_slice(&printed).context("cargo metadata is no JSON")?;
    let mut complaints = arrows::check(&metadata)?;
    complaints.extend(arrows::check_unsafe(&metadata)?);
    Ok(complaints)
}
