//! The curves as SVG.

use crate::chart::{Axis, Chart, ChartPoint, Line, Scale};
use crate::report::{Report, TlbLevel, bytes};
use crate::{CalibrateError, Curve};

struct Plot<'a> {
    name: &'static str,
    title: &'static str,
    x: &'static str,
    is_bytes: bool,
    lines: Vec<(&'static str, &'a Curve)>,
    /// Where something ends, and what.
    knees: Vec<(f64, String)>,
}

/// The plots of a report: file names and SVG texts.
///
/// # Errors
/// [`CalibrateError::Plot`] when the library cannot draw one.
pub fn plots(report: &Report) -> Result<Vec<(String, String)>, CalibrateError> {
    let knees = |page_bytes: u64| -> Vec<(f64, String)> {
        let of_pages = |tlb: &&TlbLevel| tlb.page_bytes == page_bytes;
        let tlbs = report.tlbs.iter().filter(of_pages);
        let knee = |tlb: &TlbLevel| {
            let entries = tlb.entries.value?;
            Some((entries, format!("TLB {}: {entries:.0}", tlb.level)))
        };
        tlbs.filter_map(knee).collect()
    };
    let caches = report.caches.iter().filter_map(|cache| {
        let size = cache.size_bytes.value?;
        Some((size, format!("L{}: {}", cache.level, bytes(size))))
    });
    let walks = |name, control| {
        [
            ("one line of each page", report.curve(name)),
            ("as many lines side by side", report.curve(control)),
        ]
    };
    let drawings = [
        (
            Plot {
                name: "caches",
                title: "Caches: time of a load by the memory walked through",
                x: "memory walked through",
                is_bytes: true,
                lines: Vec::new(),
                knees: caches.collect(),
            },
            vec![(
                "lines at random, in groups of pages",
                report.curve("caches"),
            )],
        ),
        (
            Plot {
                name: "tlb-4k",
                title: "TLBs: time of a load by 4 KiB pages in use",
                x: "pages",
                is_bytes: false,
                lines: Vec::new(),
                knees: knees(4 << 10),
            },
            walks("pages_4k", "pages_4k_control").to_vec(),
        ),
        (
            Plot {
                name: "tlb-2m",
                title: "TLBs: time of a load by 2 MiB pages in use",
                x: "pages",
                is_bytes: false,
                lines: Vec::new(),
                knees: knees(2 << 20),
            },
            walks("pages_2m", "pages_2m_control").to_vec(),
        ),
        (
            Plot {
                name: "tlb-reach",
                title: "TLB reach: time of a load by 4 KiB pieces of 2 MiB pages in use",
                x: "pieces, 36 KiB apart",
                is_bytes: false,
                lines: Vec::new(),
                knees: report
                    .huge_reach_pieces
                    .value
                    .map(|pieces| (pieces, format!("reach: {pieces:.0}")))
                    .into_iter()
                    .collect(),
            },
            walks("pieces_of_2m", "pieces_of_2m_control").to_vec(),
        ),
        (
            Plot {
                name: "line",
                title: "Line: time of a load in pairs by their distance",
                x: "distance",
                is_bytes: true,
                lines: Vec::new(),
                knees: report
                    .caches
                    .first()
                    .and_then(|first| first.line_bytes.value)
                    .map(|line| (line, format!("line: {}", bytes(line))))
                    .into_iter()
                    .collect(),
            },
            vec![("pairs of loads", report.curve("line"))],
        ),
    ];
    let mut files = Vec::new();
    for (mut plot, lines) in drawings {
        let known = |(name, curve): (_, Option<_>)| Some((name, curve?));
        plot.lines = lines.into_iter().filter_map(known).collect();
        if plot.lines.iter().any(|(_, curve)| curve.low().len() > 1) {
            files.push((format!("{}.svg", plot.name), plot.draw()?));
        }
    }
    Ok(files)
}

impl Plot<'_> {
    fn draw(&self) -> Result<String, CalibrateError> {
        let line = |(name, curve): &(&str, &Curve)| Line {
            name: (*name).to_owned(),
            points: curve.low().into_iter().map(alone).collect(),
        };
        let chart = Chart {
            title: self.title.to_owned(),
            x: Axis {
                is_bytes: self.is_bytes,
                ..Axis::new(self.x, Scale::Log)
            },
            y: Axis::new("ns per load", Scale::Log),
            lines: self.lines.iter().map(line).collect(),
            marks: self.knees.clone(),
            levels: Vec::new(),
        };
        chart.svg()
    }
}

/// A point of which nothing but its value is known.
fn alone((x, y): (f64, f64)) -> ChartPoint {
    ChartPoint {
        x,
        y,
        interval: None,
    }
}
