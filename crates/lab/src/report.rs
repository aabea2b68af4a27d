//! A run as one self-contained HTML file.

use std::fmt::Write;

use aerostat_calibrate::CalibrateError;

use crate::results::Results;
use crate::store::{Entry, Progress, State};
use crate::{Conclusion, Environment, Experiment, Table};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;font-size:14px}\
td,th{border-bottom:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}\
svg{width:100%;height:auto}.verdict{border-left:4px solid #0072b2;padding-left:.8rem}\
.open{border-left:4px solid #d55e00;padding-left:.8rem}dt{font-weight:600}dd{margin:0 0 .4rem}";

/// An experiment's part of a report.
pub(crate) struct Part<'a> {
    pub(crate) experiment: &'a dyn Experiment,
    pub(crate) entry: &'a Entry,
    pub(crate) results: Results,
    pub(crate) conclusion: Conclusion,
}

/// The report of a run, and each chart with the name of its file.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn report(
    state: &State,
    parts: &[Part<'_>],
) -> Result<(String, Vec<(String, String)>), CalibrateError> {
    let mut html = String::new();
    let mut files = Vec::new();
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width\"/>\
         <title>Aerostat lab</title><style>{STYLE}</style></head><body>\n<h1>Aerostat lab</h1>\n"
    );
    html += &standing(parts);
    html += &about_run(state);
    html += &overview(parts);
    for part in parts {
        let charts = section(&mut html, part)?;
        files.extend(charts);
    }
    html += "</body></html>\n";
    Ok((html, files))
}

/// Whether the run is over.
fn standing(parts: &[Part<'_>]) -> String {
    let is_over =
        |part: &&Part<'_>| !matches!(part.entry.progress, Progress::Waiting | Progress::Begun);
    let over = parts.iter().filter(is_over).count();
    if over == parts.len() {
        return "<p>The run is complete.</p>\n".to_owned();
    }
    format!(
        "<p class=\"open\"><strong>This run is not complete</strong>: {over} of {} experiments are \
         over. It is still going on, or was interrupted; <code>--resume</code> continues it.</p>\n",
        parts.len()
    )
}

fn about_run(state: &State) -> String {
    let settings = &state.settings;
    let machine = &settings.machine;
    let environments = settings.environments.iter();
    let environments: Vec<String> = environments
        .map(|one| format!("{}: {}", one.label(settings.limits), one.describe()))
        .collect();
    let build = if machine.is_release {
        "release"
    } else {
        "with debug assertions"
    };
    let facts = [
        ("Machine", machine.processor.clone()),
        ("Cores", machine.cores.to_string()),
        ("Kernel", machine.kernel.clone()),
        ("KVM", machine.hypervisor.clone()),
        (
            "Program",
            format!(
                "aerostat {} ({build}), commit {}",
                machine.version, machine.commit
            ),
        ),
        (
            "Begun",
            format!("{} s after 1970-01-01 UTC", state.started_at_s),
        ),
        (
            "Load then",
            format!("{} threads in the minute before", state.load),
        ),
        ("Seed", settings.seed.to_string()),
        (
            "Size",
            if settings.quick { "quick" } else { "full" }.to_owned(),
        ),
        ("Environments", environments.join("; ")),
        (
            "Intervals",
            "medians with 95% bootstrap intervals; ratios are told if theirs is under 10% wide"
                .to_owned(),
        ),
    ];
    let mut html = "<dl>\n".to_owned();
    for (name, value) in facts {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    html + "</dl>\n"
}

fn overview(parts: &[Part<'_>]) -> String {
    let row = |part: &Part<'_>| {
        let name = part.entry.name.clone();
        vec![name, standing_of(part), part.conclusion.verdict.clone()]
    };
    table(&Table {
        title: "Experiments".to_owned(),
        headings: ["experiment", "state", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows: parts.iter().map(row).collect(),
    })
}

/// An experiment's state in a few words.
pub(crate) fn standing_of(part: &Part<'_>) -> String {
    match part.entry.progress {
        Progress::Waiting => "not begun".to_owned(),
        Progress::Begun => "begun, not ended".to_owned(),
        Progress::Finished => part.conclusion.outcome.word().to_owned(),
        Progress::Skipped => "SKIPPED".to_owned(),
        Progress::Failed => "FAILED".to_owned(),
    }
}

fn section(html: &mut String, part: &Part<'_>) -> Result<Vec<(String, String)>, CalibrateError> {
    let about = part.experiment.about();
    let _ = writeln!(html, "<h2 id=\"{0}\">{0}</h2>", escape(about.name));
    let facts = [
        ("Question", about.question),
        ("Source", about.source),
        ("Parameters", about.parameters),
        ("Expected", about.expected),
    ];
    *html += "<dl>\n";
    for (name, text) in facts {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(text));
    }
    let present = |environment: &&Environment| {
        part.results
            .samples
            .iter()
            .any(|sample| sample.environment == **environment)
    };
    let ran: Vec<String> = Environment::ALL
        .iter()
        .filter(present)
        .map(|environment| part.results.label(*environment))
        .collect();
    let _ = writeln!(
        html,
        "<dt>Measured</dt><dd>{} samples in {:.0} s; {}</dd>\n</dl>",
        part.results.samples.len(),
        part.entry.took_s,
        if ran.is_empty() {
            "nowhere".to_owned()
        } else {
            ran.join(", ")
        }
    );
    let _ = writeln!(
        html,
        "<p class=\"verdict\"><strong>{}</strong>: {}</p>",
        standing_of(part),
        escape(&part.conclusion.verdict)
    );
    for skip in &part.entry.skips {
        let (what, reason) = (escape(&skip.what), escape(&skip.reason));
        let _ = writeln!(html, "<p class=\"open\">SKIPPED: {what}: {reason}</p>");
    }
    if let Some(error) = &part.entry.error {
        let _ = writeln!(html, "<p class=\"open\">FAILED: {}</p>", escape(error));
    }
    let mut files = Vec::new();
    for (name, chart) in &part.conclusion.charts {
        let svg = chart.svg()?;
        let _ = writeln!(html, "<figure>{svg}</figure>");
        files.push((format!("{}/{name}.svg", about.name), svg));
    }
    part.conclusion
        .tables
        .iter()
        .for_each(|one| *html += &table(one));
    Ok(files)
}

fn table(table: &Table) -> String {
    let cells = |tag: &str, texts: &[String]| -> String {
        let cell = |text: &String| format!("<{tag}>{}</{tag}>", escape(text));
        texts.iter().map(cell).collect()
    };
    let mut html = format!("<table><caption>{}</caption>\n", escape(&table.title));
    let _ = writeln!(html, "<tr>{}</tr>", cells("th", &table.headings));
    for row in &table.rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", row));
    }
    html + "</table>\n"
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        assert_eq!(escape("a <b> \"&\""), "a &lt;b&gt; &quot;&amp;&quot;");
    }
}
