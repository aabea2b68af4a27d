//! The machine's memory hierarchy, found by timing alone: caches, translation look-aside buffers
//! (TLBs), latencies, bandwidths, NUMA.
//!
//! The approach is that of Manegold's Calibrator (Manegold, Boncz, Kersten: "Generic Database
//! Cost Models for Hierarchical Memory Systems", VLDB 2002; source 000 §3.2): walk through ever
//! larger memory with loads that wait for each other, and see where the time per load rises. It
//! is made for machines that are shared, virtual and noisy:
//!
//! ```text
//! measure   walks, streams: seconds of processor time, pinned to one core
//!    │ Curve: sizes ─► ns per load, one value per round, each the low quantile of windows
//! steps     lowest rounds ─► suffix minimum ─► plateaus and rises ─► knees
//!    │         again on resampled rounds: how many find the same knee is its confidence
//! levels    steps become cache and TLB levels; what is not sure is not told
//!    │
//! report    beside each value what the system claims (sysfs, CPUID), and a verdict
//! plot      the curves as SVG, by `chart`
//! ```
//!
//! Only `measure` touches the machine; everything after it is pure, and tested on synthetic and
//! recorded curves.
//!
//! **Words.** A level's *latency* is the time of a load that finds its line there; its *miss
//! latency* is how much longer the next level takes; its *replace time* is the time per line when
//! lines from the next level replace each other as fast as the core can ask for them, in random
//! order; *streamed*, in order. All in ns.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod chart;
mod claims;
mod curve;
mod levels;
mod measure;
mod plot;
mod report;
mod steps;

use std::io;

pub use chart::{Axis, Chart, ChartPoint, Line, Scale};
pub use claims::{CacheClaim, Claims, TlbClaim};
pub use curve::{Curve, Point, low_quantile};
pub use levels::{CONFIDENCE_MIN, Detected, caches_of, line_of, tlbs_of};
pub use measure::{
    APART_PAGES, Buffer, Chain, Options, PAGE_BYTES, Pages, SECONDS_MAX, SECONDS_MIN, STEP_BYTES,
    calibrate, cores,
};
pub use plot::plots;
pub use report::{
    Bandwidth, CacheLevel, FORMAT, Finding, Identity, NumaPair, Report, Row, TlbLevel, Verdict,
};
pub use steps::{Rules, Step, find_steps};

/// Why a machine cannot be calibrated, or a calibration not be read.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// No memory to walk through.
    #[error("the operating system gives no {bytes} bytes of memory")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// The core asked for cannot be used.
    #[error("cannot run on core {core}")]
    Core {
        /// Its number.
        core: usize,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// A budget of time that cannot be kept.
    #[error("calibration takes {SECONDS_MIN} to {SECONDS_MAX} seconds, not {seconds}")]
    Seconds {
        /// What was asked for.
        seconds: f64,
    },
    /// A file that is no calibration.
    #[error("this is no calibration")]
    NoReport(#[source] serde_json::Error),
    /// A calibration of another format.
    #[error(
        "the calibration has format {found}; this program reads format {FORMAT}: run `aerostat calibrate` again"
    )]
    Format {
        /// The format in the file.
        found: u32,
    },
    /// A plot that cannot be drawn.
    #[error("cannot draw the plot {name}: {reason}")]
    Plot {
        /// Its title.
        name: String,
        /// The library's reason.
        reason: String,
    },
}
