//! Runs of known experiments, and the reports they leave.

use std::cell::Cell as Counter;
use std::fs;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::{About, Conclusion, Environment, Outcome, Table};

/// An experiment of three cells that fails in its third while told to.
struct Known {
    fails: bool,
    environments: &'static [Environment],
}

std::thread_local! {
    static TAKEN: Counter<usize> = const { Counter::new(0) };
}

impl Experiment for Known {
    fn about(&self) -> About {
        About {
            name: "known",
            question: "Is 1 < 2 & \"so on\"?",
            source: "none",
            parameters: "none",
            expected: "it is",
            environments: self.environments,
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let environments = run.environments().to_vec();
        for x in 0..3 {
            run.cell(&format!("cell {x}"), |cell| {
                anyhow::ensure!(x < 2 || !self.fails, "the <third> cell");
                TAKEN.set(TAKEN.get() + 1);
                for &environment in &environments {
                    cell.put(environment, "s", f64::from(x), 2.0);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        Conclusion {
            outcome: Outcome::AsExpected,
            verdict: format!("{} samples", results.samples.len()),
            tables: vec![Table {
                title: "a & b".to_owned(),
                headings: vec!["<x>".to_owned()],
                rows: vec![vec!["1".to_owned()]],
            }],
            charts: Vec::new(),
        }
    }
}

const IN_PROCESS: [Environment; 2] = [Environment::Native, Environment::KvmMicro];

fn options() -> Options {
    Options {
        quick: true,
        environments: IN_PROCESS.to_vec(),
        limits: Default::default(),
        seed: 1,
        helper: Default::default(),
        node: None,
        data: None,
    }
}

/// A run on a machine that has all environments of this process.
fn run(
    experiments: &[&dyn Experiment],
    options: &Options,
    folder: &Path,
    resume: bool,
) -> Result<Summary> {
    let mut hosts = Hosts::new(&options.helper, options.limits);
    IN_PROCESS.iter().for_each(|one| hosts.assume(*one));
    run_on(&mut hosts, experiments, options, folder, resume)
}

/// Reads a report as XML, which is stricter than HTML.
fn is_well_formed(html: &str) {
    let mut reader = Reader::from_str(html);
    let mut depth = 0;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(Event::Start(_)) => depth += 1,
            Ok(Event::End(_)) => depth -= 1,
            Ok(_) => {}
            Err(error) => panic!("at {}: {error}", reader.buffer_position()),
        }
    }
    assert_eq!(depth, 0);
}

#[test]
fn a_run_goes_on_where_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    let known = |fails| Known {
        fails,
        environments: &IN_PROCESS,
    };
    let report = || fs::read_to_string(folder.path().join("report.html")).unwrap();
    TAKEN.set(0);
    let summary = run(&[&known(true)], &options(), folder.path(), false).unwrap();
    assert_eq!((summary.failed, TAKEN.get()), (1, 2));
    assert!(report().contains("FAILED: the &lt;third&gt; cell"));
    is_well_formed(&report());
    let summary = run(&[&known(false)], &options(), folder.path(), true).unwrap();
    assert_eq!((summary.failed, summary.skipped, TAKEN.get()), (0, 0, 3));
    assert!(
        summary.lines[0].contains("6 samples"),
        "{:?}",
        summary.lines
    );
    assert!(report().contains("The run is complete") && !report().contains("FAILED"));
    // What is finished is not run again.
    run(&[&known(true)], &options(), folder.path(), true).unwrap();
    assert_eq!(TAKEN.get(), 3);
}

#[test]
fn what_cannot_run_here_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let only_guests = Known {
        fails: false,
        environments: &[Environment::KvmMicro],
    };
    let both = Known {
        fails: false,
        environments: &IN_PROCESS,
    };
    let options = options();
    for (known, samples, state) in [(&both, 3, "as expected"), (&only_guests, 0, "SKIPPED")] {
        let out = folder.path().join(samples.to_string());
        let mut hosts = Hosts::new(&options.helper, options.limits);
        hosts.refuse(Environment::KvmMicro, "no <kvm>");
        let summary = run_on(&mut hosts, &[known], &options, &out, false).unwrap();
        assert_eq!((summary.failed, summary.skipped), (0, 1));
        let line = &summary.lines[0];
        assert!(
            line.contains(state) && line.contains(&format!("{samples} samples")),
            "{line}"
        );
        assert!(line.contains("SKIPPED: kvm-micro: no <kvm>"), "{line}");
        let html = fs::read_to_string(out.join("report.html")).unwrap();
        assert!(html.contains("SKIPPED: kvm-micro: no &lt;kvm&gt;"));
        is_well_formed(&html);
    }
}

#[test]
fn an_interrupted_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let known = Known {
        fails: false,
        environments: &IN_PROCESS,
    };
    run(&[&known], &options(), folder.path(), false).unwrap();
    // As the state is while the experiment runs.
    let path = folder.path().join("lab.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"finished\"", "\"begun\"")).unwrap();
    let settings: crate::store::State =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let store = Store::open(folder.path(), settings.settings, true, 0).unwrap();
    write_report(&[&known], &options(), &store).unwrap();
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(
        html.contains("This run is not complete") && html.contains("0 of 1"),
        "{html}"
    );
    is_well_formed(&html);
}
