//! `aerostat calibrate`: times this machine's memory, shows it, and keeps it for `serve`.

use std::fs;
use std::path::{Path, PathBuf};

use aerostat_calibrate::{Options, Report, Row, calibrate, plots};
use aerostat_embedded::CALIBRATION_FILE;
use anyhow::{Context, Result};
use clap::Args;

use super::table::table;

/// How to calibrate.
#[derive(Args)]
pub(crate) struct CalibrateArguments {
    /// Seconds to measure, nearly
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The core to measure on; by itself where the scheduler puts a busy thread
    #[arg(long, value_name = "NUMBER")]
    core: Option<usize>,
    /// Print everything as JSON, curves too, instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the curves as SVG files in this folder
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// The data folder of the node that is to use the result, as calibration.json
    #[arg(
        long,
        env = "AEROSTAT_DATA",
        default_value = "./aerostat-data",
        value_name = "FOLDER"
    )]
    data: PathBuf,
    /// Write the result to this file instead, for `aerostat serve --calibration FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Measures, prints, keeps.
///
/// # Errors
/// When the machine cannot be measured, or a file not be written.
pub(crate) fn run(arguments: &CalibrateArguments) -> Result<()> {
    let report = calibrate(&Options {
        seconds: arguments.seconds,
        core: arguments.core,
    })?;
    let json = report.to_json()?;
    let in_data = arguments.data.join(CALIBRATION_FILE);
    let out = arguments.out.as_deref().unwrap_or(&in_data);
    write(out, &json)?;
    if let Some(folder) = &arguments.plots {
        for (name, svg) in plots(&report)? {
            write(&folder.join(name), &svg)?;
        }
    }
    if arguments.json {
        return crate::print(&json);
    }
    crate::print(&render(&report, out))
}

/// Writes a file, and the folder it is in if that is missing. Whoever reads it meanwhile
/// reads the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let written = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        fs::write(&part, text)?;
        fs::rename(&part, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn render(report: &Report, out: &Path) -> String {
    let guest = if report.is_guest { ", a guest" } else { "" };
    let rows = report.rows().into_iter().map(|row| {
        let Row {
            what,
            measured,
            confidence,
            claimed,
            verdict,
        } = row;
        [what, measured, confidence, claimed, verdict.to_owned()]
    });
    let headings = ["", "measured", "sure", "claimed", "verdict"];
    format!(
        "{}, {} threads{guest}; core {}, {:.1} s\n\n{}\n\nwritten to {}",
        report.machine.processor,
        report.machine.threads,
        report.core,
        report.took_s,
        table(headings, rows),
        out.display(),
    )
}
