//! The result of `aerostat calibrate` as the layout adviser's machine.

use std::{error::Error, io::ErrorKind, path::Path};

use aerostat_advice::{Level, Machine};
use aerostat_calibrate::{CacheLevel, Identity, Report};

use crate::OpenError;

/// The calibration in a data folder.
pub const FILE: &str = "calibration.json";

/// More misses than this are not under way at once on any core.
const OVERLAP_MAX: f64 = 64.0;

/// The machine by which layouts are priced: from the file that is named, else from the data
/// folder's, else the model's own.
///
/// # Errors
/// When the file that is named cannot be read or is no calibration. The data folder's is
/// only warned of: it may be an older one, or another machine's.
pub(crate) fn machine(named: Option<&Path>, data: &Path) -> Result<Machine, OpenError> {
    let in_data = data.join(FILE);
    let path = named.unwrap_or(&in_data);
    let usual = |error: &dyn Error| {
        let why = error.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!("{error}: {why}; layouts are priced for a usual server");
        Ok(Machine::default())
    };
    match read(path) {
        Ok(report) => Ok(usable(&report, path)),
        Err(OpenError::Unreadable { source, .. })
            if source.kind() == ErrorKind::NotFound && named.is_none() =>
        {
            tracing::debug!("not calibrated: layouts are priced for a usual server");
            Ok(Machine::default())
        }
        Err(error) if named.is_none() => usual(&error),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<Report, OpenError> {
    let text = std::fs::read_to_string(path).map_err(|source| OpenError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Report::from_json(&text).map_err(|source| OpenError::Calibration {
        path: path.to_owned(),
        source,
    })
}

/// The report's machine, if it is this one and all that matters was found.
fn usable(report: &Report, path: &Path) -> Machine {
    let path = path.display();
    if report.machine != Identity::here() {
        tracing::warn!(
            %path, calibrated = report.machine.processor,
            "the calibration is another machine's; layouts are priced for a usual server"
        );
        return Machine::default();
    }
    let Some(machine) = priced(report) else {
        tracing::warn!(
            %path,
            "the calibration lacks a level; layouts are priced for a usual server. \
             Run `aerostat calibrate` again when the machine is less busy"
        );
        return Machine::default();
    };
    tracing::info!(%path, levels = machine.levels.len(), "layouts are priced for this machine");
    machine
}

/// The levels with what a miss costs in each; `None` when a time is not known.
fn priced(report: &Report) -> Option<Machine> {
    let line_bytes = report.caches.first()?.line_bytes.value? as u64;
    let mut streamed_before_ns = 0.0;
    let mut level = |cache: &CacheLevel| {
        let streamed_ns = cache.streamed_ns.value?;
        let level = Level {
            line_bytes,
            // A share that changes is not told; all of it is the best guess there is.
            capacity_bytes: cache.size_bytes.value.or(cache.size_bytes.claimed)? as u64,
            // A line that comes from further away costs that much more.
            sequential_ns: f64::max(streamed_ns - streamed_before_ns, 0.0),
            random_ns: cache.miss_ns.value?,
        };
        streamed_before_ns = streamed_ns;
        Some(level)
    };
    let levels: Vec<Level> = report
        .caches
        .iter()
        .map(&mut level)
        .collect::<Option<_>>()?;
    let last = report.caches.last()?;
    let random_ns: f64 = levels.iter().map(|level| level.random_ns).sum();
    let overlap = random_ns / last.replace_ns.value?;
    if !overlap.is_finite() {
        return None;
    }
    Some(Machine {
        levels,
        overlap: overlap.clamp(1.0, OVERLAP_MAX),
        ..Machine::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aerostat_calibrate::{FORMAT, Finding};

    fn finding(value: f64) -> Finding {
        Finding {
            value: Some(value),
            confidence: 1.0,
            ..Finding::default()
        }
    }

    fn report() -> Report {
        let cache = |level, size, miss, replace, streamed| CacheLevel {
            level,
            size_bytes: finding(size),
            line_bytes: finding(64.0),
            miss_ns: finding(miss),
            replace_ns: finding(replace),
            streamed_ns: finding(streamed),
            ..CacheLevel::default()
        };
        Report {
            machine: Identity::here(),
            caches: vec![
                cache(1, 48e3, 2.5, 0.4, 0.5),
                cache(2, 1e6, 7.0, 0.6, 0.65),
                cache(3, 8e6, 90.0, 5.0, 1.7),
            ],
            ..empty()
        }
    }

    fn empty() -> Report {
        let json = format!(
            r#"{{"format":{FORMAT},"machine":{{"processor":"","threads":0}},"is_guest":false,
            "measured_at_s":0,"took_s":0,"core":0,"huge_share":null,"caches":[],"tlbs":[],
            "huge_reach_pieces":{f},"memory_latency_ns":{f},"bandwidth":[],"numa_nodes":1,
            "numa":[],"curves":[]}}"#,
            f = r#"{"value":null,"confidence":0,"claimed":null,"verdict":"not_detected"}"#
        );
        Report::from_json(&json).unwrap()
    }

    #[test]
    fn levels_cost_what_was_measured() {
        let machine = priced(&report()).unwrap();
        let random: Vec<f64> = machine.levels.iter().map(|level| level.random_ns).collect();
        assert_eq!(random, [2.5, 7.0, 90.0]);
        let streamed: f64 = machine.levels.iter().map(|level| level.sequential_ns).sum();
        assert!((streamed - 1.7).abs() < 1e-9, "{streamed}");
        assert!((machine.overlap - 99.5 / 5.0).abs() < 1e-9);
        assert_eq!(machine.levels[1].capacity_bytes, 1_000_000);
    }

    #[test]
    fn half_a_calibration_is_none() {
        let mut report = report();
        report.caches[1].size_bytes = Finding::default();
        assert_eq!(priced(&report), None);
        assert_eq!(priced(&empty()), None);
    }

    #[test]
    fn another_machines_calibration_is_not_used() {
        let mut report = report();
        assert_ne!(usable(&report, Path::new("x")), Machine::default());
        report.machine.processor = "another".to_owned();
        assert_eq!(usable(&report, Path::new("x")), Machine::default());
    }

    #[test]
    fn a_file_that_is_named_must_be_there_and_be_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(machine(None, folder.path()).unwrap(), Machine::default());
        let named = folder.path().join("named.json");
        let error = machine(Some(&named), folder.path()).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        std::fs::write(&named, "{}").unwrap();
        let error = machine(Some(&named), folder.path()).unwrap_err();
        let reason = error.source().unwrap().to_string();
        assert!(reason.contains("no calibration"), "{reason}");
        // In the data folder it is only warned of.
        std::fs::write(folder.path().join(FILE), "{}").unwrap();
        assert_eq!(machine(None, folder.path()).unwrap(), Machine::default());
        std::fs::write(folder.path().join(FILE), report().to_json().unwrap()).unwrap();
        let found = machine(None, folder.path()).unwrap();
        assert_eq!(found.levels.len(), 3);
        assert_ne!(found, Machine::default());
    }
}
