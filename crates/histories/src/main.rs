//! Checks a history that was kept: `aerostat-histories FILE [read-committed|snapshot|serializable]
//! [alone|sessions|strict]`; snapshot and strict if not said otherwise.
//! What transactions had read that failed then is checked with the rest.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufReader, Write};
use std::process::ExitCode;

use aerostat_histories::{History, HistoryError, Isolation, Model, check};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(file) = arguments.next() else {
        return fail(
            "usage: aerostat-histories FILE [read-committed|snapshot|serializable] [alone|sessions|strict]",
        );
    };
    let mut model = Model::new(Isolation::SnapshotIsolation).strict();
    for argument in arguments {
        model = match argument.as_str() {
            "read-committed" => Model {
                isolation: Isolation::ReadCommitted,
                ..model
            },
            "snapshot" => Model {
                isolation: Isolation::SnapshotIsolation,
                ..model
            },
            "serializable" => Model {
                isolation: Isolation::Serializable,
                ..model
            },
            "alone" => Model::new(model.isolation),
            "sessions" => Model::new(model.isolation).strong_session(),
            "strict" => model.strict(),
            other => return fail(&format!("no model: {other}")),
        };
    }
    let history = File::open(&file).map_err(HistoryError::from);
    match history.and_then(|file| History::read(BufReader::new(file))) {
        Ok(history) => {
            let report = check(&history.with_reads_of_failed(), model);
            writeln!(std::io::stdout(), "{report}").ok();
            match report.is_clean() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            fail(&format!("{file}: {error}{}", cause.unwrap_or_default()))
        }
    }
}

fn fail(text: &str) -> ExitCode {
    writeln!(std::io::stderr(), "{text}").ok();
    ExitCode::from(2)
}
