//! Charts as SVG: lines over sizes or counts, with their intervals and marks.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::CalibrateError;
use crate::report::{bytes, short};

/// Width and height in pixels; the height of charts with few lines.
const SIZE: (u32, u32) = (960, 540);

/// Lines that a legend has room for beside what is drawn, and the height of each.
const LEGEND_LINES: usize = 4;
const LEGEND_PIXELS: usize = 18;

/// Pixels above and below what is drawn: title, axis and margins.
const FRAME_PIXELS: u32 = 112;

/// Colours that people who see few colours tell apart: Okabe and Ito, "Color Universal
/// Design", 2008.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// The colour of marks.
const MARK: RGBColor = RGBColor(90, 90, 90);

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal factors are equally far apart; what is not above zero is left out.
    Log,
    /// Equal differences are, from zero on.
    Linear,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// How it is divided.
    pub scale: Scale,
    /// Its numbers are bytes.
    pub is_bytes: bool,
}

impl Axis {
    /// An axis of plain numbers.
    pub fn new(label: &str, scale: Scale) -> Axis {
        Axis {
            label: label.to_owned(),
            scale,
            is_bytes: false,
        }
    }

    /// An axis of bytes, by factors.
    pub fn bytes(label: &str) -> Axis {
        Axis {
            is_bytes: true,
            ..Axis::new(label, Scale::Log)
        }
    }

    fn text(&self, value: f64) -> String {
        match value {
            _ if self.is_bytes => bytes(value),
            value if value != 0.0 && value.abs() < 0.001 => format!("{value:.1e}"),
            value if value != 0.0 && value.abs() < 0.1 => format!("{value:.3}"),
            value if value != 0.0 && value.abs() < 1.0 => format!("{value:.2}"),
            value => short(value),
        }
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }
}

/// A value over another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartPoint {
    /// Where.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The interval in which it is, if that is known.
    pub interval: Option<(f64, f64)>,
}

/// Points that are joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// By rising x.
    pub points: Vec<ChartPoint>,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// Vertical marks: where something ends, and what.
    pub marks: Vec<(f64, String)>,
    /// Horizontal marks: values to compare with, and what they are.
    pub levels: Vec<(f64, String)>,
}

impl Chart {
    /// The chart as SVG.
    ///
    /// # Errors
    /// [`CalibrateError::Plot`] when there is nothing to draw, or the library cannot.
    pub fn svg(&self) -> Result<String, CalibrateError> {
        let mut text = String::new();
        let size = (SIZE.0, self.height());
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = self.draw_on(&area).and_then(|()| Ok(area.present()?));
        drop(area);
        drawn.map_err(|error| CalibrateError::Plot {
            name: self.title.clone(),
            reason: error.to_string(),
        })?;
        Ok(text)
    }

    fn points<'a>(&self, line: &'a Line) -> impl Iterator<Item = &'a ChartPoint> {
        let shown = |point: &&ChartPoint| self.x.shows(point.x) && self.y.shows(point.y);
        line.points.iter().filter(shown)
    }

    /// From the least to the greatest of what is shown.
    fn ranges(&self) -> Option<(Range<f64>, Range<f64>)> {
        let (mut x, mut y) = (f64::MAX..f64::MIN, f64::MAX..f64::MIN);
        let mut widen_y = |value: f64| {
            if self.y.shows(value) {
                y = y.start.min(value)..y.end.max(value);
            }
        };
        for point in self.lines.iter().flat_map(|line| self.points(line)) {
            x = x.start.min(point.x)..x.end.max(point.x);
            widen_y(point.y);
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            widen_y(low);
            widen_y(high);
        }
        self.levels.iter().for_each(|(level, _)| widen_y(*level));
        if x.is_empty() && x.start != x.end {
            return None;
        }
        if x.start == x.end {
            x = x.start * 0.5..x.end.max(0.5) * 1.5;
        }
        let y = match self.y.scale {
            // Room above for the legend.
            Scale::Log => {
                let bottom = y.start * 0.7;
                let factor = (y.end / bottom).powf(self.with_legend());
                bottom..bottom * factor.max(y.end / bottom * 1.5)
            }
            Scale::Linear => {
                let bottom = y.start.min(0.0);
                let above = y.end.max(f64::MIN_POSITIVE) - bottom;
                bottom..bottom + above * self.with_legend()
            }
        };
        Some((x, y))
    }

    /// Higher the more lines there are.
    fn height(&self) -> u32 {
        let more = self.lines.len().saturating_sub(LEGEND_LINES);
        SIZE.1 + (more * LEGEND_PIXELS) as u32
    }

    /// The height with the legend as a multiple of what is drawn.
    fn with_legend(&self) -> f64 {
        let drawn = f64::from(self.height() - FRAME_PIXELS);
        let legend = ((self.lines.len() + 1) * LEGEND_PIXELS) as f64;
        1.0 / (1.0 - (legend / drawn).clamp(0.2, 0.8))
    }

    /// How many numbers an axis has at most: none between two whole ones if all that is shown is
    /// at whole ones, such as counts.
    fn x_labels(&self, x: &Range<f64>) -> usize {
        const LABELS_MAX: usize = 16;
        let mut points = self.lines.iter().flat_map(|line| self.points(line));
        let is_whole = self.x.scale == Scale::Linear && points.all(|point| point.x.fract() == 0.0);
        match is_whole {
            true => (x.end - x.start) as usize + 1,
            false => LABELS_MAX,
        }
        .min(LABELS_MAX)
    }

    /// A little above the horizontal axis, for texts.
    fn above_floor(&self, y: &Range<f64>) -> f64 {
        match self.y.scale {
            Scale::Log => y.start * (y.end / y.start).powf(0.06),
            Scale::Linear => y.start + (y.end - y.start) * 0.06,
        }
    }

    /// In the middle, where no legend is.
    fn right_of_legend(&self, x: &Range<f64>) -> f64 {
        match self.x.scale {
            Scale::Log => (x.start * x.end).sqrt(),
            Scale::Linear => f64::midpoint(x.start, x.end),
        }
    }

    fn draw_on(&self, area: &Area<'_>) -> Result<(), Broken> {
        area.fill(&WHITE).map_err(broken)?;
        let (x, y) = self.ranges().ok_or("no values")?;
        let mut builder = ChartBuilder::on(area);
        builder
            .caption(&self.title, ("sans-serif", 22))
            .margin(16)
            .margin_right(40)
            .x_label_area_size(48)
            .y_label_area_size(72);
        let (x_log, y_log) = (|| x.clone().log_scale().base(2.0), || y.clone().log_scale());
        match (self.x.scale, self.y.scale) {
            (Scale::Log, Scale::Log) => self.draw(
                builder
                    .build_cartesian_2d(x_log(), y_log())
                    .map_err(broken)?,
                &x,
                &y,
            ),
            (Scale::Log, Scale::Linear) => self.draw(
                builder
                    .build_cartesian_2d(x_log(), y.clone())
                    .map_err(broken)?,
                &x,
                &y,
            ),
            (Scale::Linear, Scale::Log) => self.draw(
                builder
                    .build_cartesian_2d(x.clone(), y_log())
                    .map_err(broken)?,
                &x,
                &y,
            ),
            (Scale::Linear, Scale::Linear) => self.draw(
                builder
                    .build_cartesian_2d(x.clone(), y.clone())
                    .map_err(broken)?,
                &x,
                &y,
            ),
        }
    }

    fn draw<'a, 'b: 'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
        x: &Range<f64>,
        y: &Range<f64>,
    ) -> Result<(), Broken>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .x_labels(self.x_labels(x))
            .x_label_formatter(&|value| self.x.text(*value))
            .y_label_formatter(&|value| self.y.text(*value))
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()
            .map_err(broken)?;
        let style = || ("sans-serif", 14).into_font().color(&MARK);
        for (at, name) in &self.marks {
            let bar = PathElement::new(vec![(*at, y.start), (*at, y.end)], MARK);
            chart.draw_series([bar]).map_err(broken)?;
            let text = Text::new(format!(" {name}"), (*at, self.above_floor(y)), style());
            chart.draw_series([text]).map_err(broken)?;
        }
        for (at, name) in &self.levels {
            let bar = PathElement::new(vec![(x.start, *at), (x.end, *at)], MARK);
            chart.draw_series([bar]).map_err(broken)?;
            let text = Text::new(name.clone(), (self.right_of_legend(x), *at), style());
            chart.draw_series([text]).map_err(broken)?;
        }
        // Lines that cover each other are seen both.
        let styles = COLOURS.into_iter().cycle().zip([5, 2].into_iter().cycle());
        for (nth, (line, (colour, width))) in self.lines.iter().zip(styles).enumerate() {
            let points: Vec<&ChartPoint> = self.points(line).collect();
            let places = points.iter().map(|point| (point.x, point.y));
            // Where there are more lines than colours, those that share one are dashed.
            let [dash, gap] = if nth < COLOURS.len() { [20, 0] } else { [6, 4] };
            let style = colour.stroke_width(width);
            let drawn = if gap == 0 {
                chart.draw_series(LineSeries::new(places.clone(), style))
            } else {
                chart.draw_series(DashedLineSeries::new(places.clone(), dash, gap, style))
            };
            drawn
                .map_err(broken)?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + dash, y)], style));
            let dots = places.map(|place| Circle::new(place, 2, colour.filled()));
            chart.draw_series(dots).map_err(broken)?;
            let bars = points.iter().filter_map(|point| {
                let (low, high) = point.interval?;
                let both = self.y.shows(low) && self.y.shows(high);
                both.then(|| ErrorBar::new_vertical(point.x, low, point.y, high, colour, 8))
            });
            chart.draw_series(bars).map_err(broken)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(MARK)
            .label_font(("sans-serif", 14))
            .draw()
            .map_err(broken)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type Broken = Box<dyn std::error::Error>;

fn broken<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Broken {
    error.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Scale, y: Scale, points: &[(f64, f64)]) -> Chart {
        let point = |(x, y): &(f64, f64)| ChartPoint {
            x: *x,
            y: *y,
            interval: Some((y * 0.9, y * 1.1)),
        };
        Chart {
            title: "a <b> & c".to_owned(),
            x: Axis::new("users", x),
            y: Axis::new("ns", y),
            lines: vec![Line {
                name: "native".to_owned(),
                points: points.iter().map(point).collect(),
            }],
            marks: vec![(2.0, "L1".to_owned())],
            levels: vec![(3.0, "the source".to_owned())],
        }
    }

    /// The texts of a picture, but for title and labels.
    fn numbers(svg: &str) -> Vec<f64> {
        let mut lines = svg.lines().map(str::trim);
        std::iter::from_fn(|| lines.find_map(|line| line.parse().ok())).collect()
    }

    #[test]
    fn what_is_drawn_is_below_the_legend() {
        for scale in [Scale::Log, Scale::Linear] {
            let mut chart = chart(Scale::Linear, scale, &[(1.0, 2.0), (9.0, 5.0)]);
            chart.lines = vec![chart.lines[0].clone(); 12];
            let (_, y) = chart.ranges().unwrap();
            // 5 with its interval is the highest.
            let share = match scale {
                Scale::Log => (5.5 / y.start).ln() / (y.end / y.start).ln(),
                Scale::Linear => (5.5 - y.start) / (y.end - y.start),
            };
            let above = (1.0 - share) * f64::from(chart.height() - FRAME_PIXELS);
            assert!(above >= 12.0 * LEGEND_PIXELS as f64, "{scale:?}: {above}");
        }
    }

    #[test]
    fn counts_have_no_numbers_between_them() {
        let points = [(1.0, 2e3), (2.0, 3e3), (3.0, 4e3), (4.0, 5e3)];
        let numbers = numbers(&chart(Scale::Linear, Scale::Linear, &points).svg().unwrap());
        let on_x: Vec<f64> = numbers
            .iter()
            .copied()
            .filter(|number| *number < 10.0)
            .collect();
        assert!(
            [1.0, 2.0, 3.0, 4.0]
                .iter()
                .all(|count| on_x.contains(count)),
            "{numbers:?}"
        );
        assert!(
            on_x.iter().all(|number| number.fract() == 0.0),
            "{numbers:?}"
        );
    }

    #[test]
    fn lines_beyond_the_colours_are_dashed() {
        let mut chart = chart(Scale::Linear, Scale::Linear, &[(1.0, 2.0), (9.0, 5.0)]);
        let paths = |chart: &Chart| chart.svg().unwrap().matches("<polyline").count();
        chart.lines = vec![chart.lines[0].clone(); COLOURS.len()];
        let plain = paths(&chart);
        chart.lines.push(chart.lines[0].clone());
        assert!(paths(&chart) > plain + 20, "{plain} and {}", paths(&chart));
    }

    #[test]
    fn every_scale_draws_what_is_given() {
        for x in [Scale::Log, Scale::Linear] {
            for y in [Scale::Log, Scale::Linear] {
                let svg = chart(x, y, &[(1.0, 2.0), (2.0, 3.0), (4.0, 9.0)])
                    .svg()
                    .unwrap();
                for text in [
                    "users",
                    "ns",
                    "native",
                    "L1",
                    "the source",
                    "a &lt;b&gt; &amp; c",
                ] {
                    assert!(svg.contains(text), "{x:?} {y:?}: no {text}: {svg}");
                }
            }
        }
    }

    #[test]
    fn what_is_below_zero_is_on_the_chart() {
        for x in [Scale::Log, Scale::Linear] {
            let below = chart(x, Scale::Linear, &[(0.001, -5.0), (1.0, 2.0)]);
            let svg = below.svg().unwrap();
            assert!(svg.contains("-4"), "{svg}");
            let (_, y) = below.ranges().unwrap();
            assert_eq!(y.start, -5.5);
        }
        let axis = Axis::new("share", Scale::Log);
        assert_eq!(
            [0.002, 0.25, 1.0, 12.0].map(|x| axis.text(x)),
            ["0.002", "0.25", "1", "12"]
        );
    }

    #[test]
    fn one_point_is_drawn_and_none_is_an_error() {
        assert!(
            chart(Scale::Linear, Scale::Log, &[(3.0, 2.0)])
                .svg()
                .is_ok()
        );
        assert!(chart(Scale::Log, Scale::Log, &[(0.0, 2.0)]).svg().is_err());
        assert!(chart(Scale::Linear, Scale::Linear, &[]).svg().is_err());
    }
}
