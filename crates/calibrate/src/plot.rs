//! The curves as SVG.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{Report, TlbLevel, bytes, short};
use crate::{CalibrateError, Curve};

/// Width and height in pixels.
const SIZE: (u32, u32) = (960, 540);

/// Colours that people who see few colours tell apart: Okabe and Ito, "Color Universal
/// Design", 2008.
const COLOURS: [RGBColor; 3] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];

/// The colour of knees.
const KNEE: RGBColor = RGBColor(90, 90, 90);

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
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = self.draw_on(&area).and_then(|()| Ok(area.present()?));
        drop(area);
        drawn.map_err(|error| CalibrateError::Plot {
            name: self.name,
            reason: error.to_string(),
        })?;
        Ok(text)
    }

    fn ranges(&self) -> (Range<f64>, Range<f64>) {
        let points = self.lines.iter().flat_map(|(_, curve)| curve.low());
        let (mut x, mut y) = (f64::MAX..0.0, f64::MAX..0.0_f64);
        for (size, ns) in points {
            x = x.start.min(size)..f64::max(x.end, size);
            y = y.start.min(ns)..y.end.max(ns);
        }
        (x, y.start * 0.7..y.end * 1.5)
    }

    fn draw_on(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let broken = |error: DrawingAreaErrorKind<_>| -> Box<dyn std::error::Error> {
            error.to_string().into()
        };
        area.fill(&WHITE).map_err(broken)?;
        let (x, y) = self.ranges();
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(x.log_scale().base(2.0), y.clone().log_scale())
            .map_err(broken)?;
        let size = if self.is_bytes { bytes } else { short };
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc("ns per load")
            .x_labels(16)
            .x_label_formatter(&|x| size(*x))
            .y_label_formatter(&|ns| short(*ns))
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(broken)?;
        for ((name, curve), colour) in self.lines.iter().zip(COLOURS) {
            let low = curve.low();
            chart
                .draw_series(LineSeries::new(low.iter().copied(), colour.stroke_width(2)))
                .map_err(broken)?
                .label(*name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 20, y)], colour.stroke_width(2))
                });
            let marks = low
                .iter()
                .map(|point| Circle::new(*point, 2, colour.filled()));
            chart.draw_series(marks).map_err(broken)?;
        }
        for (at, name) in &self.knees {
            let bar = PathElement::new(vec![(*at, y.start), (*at, y.end)], KNEE);
            chart.draw_series([bar]).map_err(broken)?;
            let style = ("sans-serif", 14).into_font().color(&KNEE);
            let text = Text::new(format!(" {name}"), (*at, y.end * 0.97), style);
            chart.draw_series([text]).map_err(broken)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(KNEE)
            .label_font(("sans-serif", 14))
            .draw()
            .map_err(broken)?;
        Ok(())
    }
}
