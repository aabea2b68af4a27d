//! How many cache lines a pass over one attribute of a group touches.
//!
//! Tuples of `stride` bytes are adjacent; a pass reads the bytes `from..from + bytes` of each
//! selected tuple.
//!
//! ```text
//! stride 24, bytes 8..16        line 0                          line 1
//! |........########........|........########........|........####|####........|
//!  tuple 0                  tuple 1                  tuple 2 ─────┘ two lines
//! ```
//!
//! HYRISE (§4.1) averages over the tuples of one period, lcm(stride, line) bytes. Both averages
//! that are needed have closed forms, so a pass costs a few instructions, however wide the group:
//!
//! - Tuples start at multiples of g = gcd(stride, line) within a line, each equally often. By
//!   Hermite's identity for sums of floors, a tuple's bytes touch on average `A = 1 + (⌊(from +
//!   bytes − 1) / g⌋ − ⌊from / g⌋) · g / line` lines.
//! - A line is touched by the tuples that start in an interval of `line + bytes − 1` places, of
//!   which every `stride`-th counts: k₀ = ⌊(line + bytes − 1) / stride⌋ or k₀ + 1 tuples, on
//!   average `A · line / stride`. If each tuple is selected with probability s, a line with k
//!   tuples is touched with probability 1 − (1 − s)ᵏ.
//!
//! For s = 1 these are HYRISE's cases: all lines if the bytes skipped between two tuples are
//! fewer than a line, else A lines for each tuple.

/// Tuples of one group on lines of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    stride: u64,
    line: u64,
    gcd: u64,
}

/// Bytes of a tuple that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

impl Grid {
    /// `line` is not 0; a stride of 0 (every value is constant) touches nothing.
    pub(crate) fn new(stride: u64, line: u64) -> Grid {
        debug_assert!(line > 0, "Machine::check refuses empty lines");
        Grid {
            stride,
            line,
            gcd: gcd(stride, line),
        }
    }

    /// Lines that the span of one tuple touches, averaged over all tuples.
    pub(crate) fn lines_of_one(&self, span: Span) -> f64 {
        if span.bytes == 0 || self.stride == 0 {
            return 0.0;
        }
        let steps = (span.from + span.bytes - 1) / self.gcd - span.from / self.gcd;
        1.0 + (steps * self.gcd) as f64 / self.line as f64
    }

    /// Lines that a pass over the span touches, per tuple of the group, when a
    /// share `density` of the tuples is selected, independently of one another.
    pub(crate) fn lines_per_tuple(&self, span: Span, density: f64) -> f64 {
        if span.bytes == 0 || self.stride == 0 {
            return 0.0;
        }
        let lines_per_tuple = self.stride as f64 / self.line as f64;
        let fewer = (self.line + span.bytes - 1) / self.stride;
        let mean = self.lines_of_one(span) / lines_per_tuple;
        let share_of_more = (mean - fewer as f64).clamp(0.0, 1.0);
        if density >= 1.0 {
            let some = if fewer > 0 { 1.0 } else { share_of_more };
            return lines_per_tuple * some;
        }
        // A line has at most as many tuples as bytes, and the span's: far below 2^31.
        let none_of_fewer = (1.0 - density).powi(i32::try_from(fewer).unwrap_or(i32::MAX));
        let none_of_more = none_of_fewer * (1.0 - density);
        let touched_of_fewer = 1.0 - none_of_fewer;
        let touched_of_more = 1.0 - none_of_more;
        lines_per_tuple
            * ((1.0 - share_of_more) * touched_of_fewer + share_of_more * touched_of_more)
    }

    /// Distinct lines that passes over all of `spans` (in order, disjoint) touch, per
    /// tuple, for the same selected tuples.
    ///
    /// Spans with less than a line between them share or adjoin lines, and every line
    /// between them is touched: they count as one. Spans further apart share none in
    /// one tuple; where neighbouring tuples' spans share a line it counts twice, but
    /// never do the spans count more than the whole tuple.
    pub(crate) fn union_per_tuple(&self, spans: impl Iterator<Item = Span>, density: f64) -> f64 {
        let whole = Span {
            from: 0,
            bytes: self.stride,
        };
        self.clusters(spans)
            .map(|cluster| self.lines_per_tuple(cluster, density))
            .sum::<f64>()
            .min(self.lines_per_tuple(whole, density))
    }

    /// Joins spans that lie less than a line apart.
    pub(crate) fn clusters(&self, spans: impl Iterator<Item = Span>) -> impl Iterator<Item = Span> {
        let line = self.line;
        let mut spans = spans.filter(|span| span.bytes > 0).peekable();
        std::iter::from_fn(move || {
            let mut cluster = spans.next()?;
            while let Some(next) =
                spans.next_if(|next| next.from < cluster.from + cluster.bytes + line)
            {
                cluster.bytes = next.from + next.bytes - cluster.from;
            }
            Some(cluster)
        })
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(from: u64, bytes: u64) -> Span {
        Span { from, bytes }
    }

    fn close(actual: f64, expected: f64) {
        assert!(
            (actual - expected).abs() < 1e-9,
            "{actual} is not {expected}"
        );
    }

    /// Full projections read every byte: rows · stride / line.
    #[test]
    fn whole_tuples_touch_every_line_once() {
        // 4 bytes: 16 tuples on a line. 24 bytes: 3 lines for 8 tuples. 100: 25 for 16.
        close(
            Grid::new(4, 64).lines_per_tuple(span(0, 4), 1.0),
            1.0 / 16.0,
        );
        close(
            Grid::new(24, 64).lines_per_tuple(span(0, 24), 1.0),
            3.0 / 8.0,
        );
        close(
            Grid::new(100, 64).lines_per_tuple(span(0, 100), 1.0),
            25.0 / 16.0,
        );
    }

    /// Less than a line between two reads: no line is skipped.
    #[test]
    fn a_narrow_gap_skips_no_line() {
        // 64-byte tuples, 4 bytes read: one line each, 60 bytes are brought along.
        close(Grid::new(64, 64).lines_per_tuple(span(20, 4), 1.0), 1.0);
        // 100-byte tuples, 40 bytes read, gap 60: all 25 lines of 16 tuples.
        close(
            Grid::new(100, 64).lines_per_tuple(span(10, 40), 1.0),
            25.0 / 16.0,
        );
    }

    /// A line or more between two reads: lines of each tuple, averaged over the period.
    #[test]
    fn a_wide_gap_counts_the_lines_of_each_tuple() {
        // 128-byte tuples always start on a line: 4 bytes at 60 lie in one line,
        // 8 bytes at 60 (60..68) in two.
        let grid = Grid::new(128, 64);
        close(grid.lines_per_tuple(span(60, 4), 1.0), 1.0);
        close(grid.lines_per_tuple(span(60, 8), 1.0), 2.0);
        // 400-byte tuples start at 0, 16, 32, 48 within a line (gcd 16): 8 bytes at 12
        // lie at 12..20, 28..36, 44..52, 60..68; only the last crosses: 5 / 4 lines.
        let grid = Grid::new(400, 64);
        close(grid.lines_per_tuple(span(12, 8), 1.0), 1.25);
        // 72 bytes at 0 end at 71, 87, 103, 119: always 2 lines.
        close(grid.lines_of_one(span(0, 72)), 2.0);
        // 84 bytes: 83, 99, 115 are in line 1, 131 in line 2: (2+2+2+3)/4.
        close(grid.lines_of_one(span(0, 84)), 2.25);
    }

    /// Selections: 1 − (1 − s)^k for the k tuples of a line.
    #[test]
    fn sparse_selections_touch_the_lines_that_hold_a_selected_tuple() {
        // 16 integers on a line, 10 % selected: 1 − 0.9^16 = 0.81470 of the lines.
        let column = Grid::new(4, 64).lines_per_tuple(span(0, 4), 0.1);
        close(column, (1.0 - 0.9_f64.powi(16)) / 16.0);
        // One tuple on a line: as many lines as selected tuples.
        close(Grid::new(64, 64).lines_per_tuple(span(0, 4), 0.1), 0.1);
        close(Grid::new(64, 64).lines_per_tuple(span(0, 4), 0.0), 0.0);
        // 48-byte tuples, 4 bytes at 0: 67 start places per line, so 1 or 2 tuples per
        // line; 4 tuples in 3 lines: starts 0, 48, 96, 144 touch lines 0, 0, 1, 2.
        let lines = 1.0 - 0.5_f64.powi(2) + 0.5 + 0.5;
        close(
            Grid::new(48, 64).lines_per_tuple(span(0, 4), 0.5),
            lines / 4.0,
        );
    }

    #[test]
    fn spans_less_than_a_line_apart_are_one() {
        let grid = Grid::new(400, 64);
        let spans = [span(0, 4), span(67, 4), span(135, 4)];
        let clusters: Vec<Span> = grid.clusters(spans.into_iter()).collect();
        // 63 bytes between the first two, 64 between the others.
        assert_eq!(clusters, [span(0, 71), span(135, 4)]);
        // All 400 bytes, in 100 reads of 4, are the 400-byte tuple.
        let all = (0..100).map(|at| span(at * 4, 4));
        close(grid.union_per_tuple(all, 1.0), 6.25);
    }

    #[test]
    fn constants_touch_nothing() {
        close(Grid::new(0, 64).lines_per_tuple(span(0, 0), 1.0), 0.0);
        close(Grid::new(8, 64).lines_per_tuple(span(8, 0), 1.0), 0.0);
    }

    /// Counts lines one by one over a whole period.
    fn counted(stride: u64, span: Span, density: f64) -> f64 {
        let line = 64;
        let tuples = line / gcd(stride, line) * 4;
        let lines = tuples * stride / line;
        let mut readers = vec![0; lines as usize];
        for tuple in 0..tuples {
            let first = tuple * stride + span.from;
            for at in first / line..=(first + span.bytes - 1) / line {
                readers[(at % lines) as usize] += 1;
            }
        }
        let touched = |k: &i32| 1.0 - (1.0 - density).powi(*k);
        readers.iter().map(touched).sum::<f64>() / tuples as f64
    }

    proptest! {
        /// The closed form is the count, for every stride, span and selectivity.
        #[test]
        fn closed_form_is_the_count(
            (stride, from, bytes) in (1_u64..300).prop_flat_map(|stride| {
                (Just(stride), 0..stride).prop_flat_map(|(stride, from)| {
                    (Just(stride), Just(from), 1..=stride - from)
                })
            }),
            density in 0.0..=1.0,
        ) {
            let span = Span { from, bytes };
            let closed = Grid::new(stride, 64).lines_per_tuple(span, density);
            let expected = counted(stride, span, density);
            prop_assert!((closed - expected).abs() < 1e-9, "{closed} {expected}");
        }
    }
}
