//! What a statement costs on an attribute group.
//!
//! The cost of a layout is the sum over its groups of what every statement does
//! to that group. Nothing a statement does to one group depends on another, so a
//! search need only look at the groups that change.
//!
//! ```text
//! WHERE a < 1 AND b = 2 → a, c       group (a, b, c), one vector
//!   stage 0, every row           a   lines from memory
//!   stage 1, rows with a < 1     b   the same lines, from L1 or L2
//!   stage 2, rows with both   a, c   the same lines again, twice
//! ```

use aerostat_types::Layout;

use crate::{
    Access, AdviceError, Footprint, Machine, PREDICATES_MAX, Part, Scan, TableShape, Workload,
    lines::{Grid, Span},
};

/// Rows whose passes follow each other: a segment's vector.
const VECTOR_ROWS: f64 = 8192.0;

/// A written line is read, and written back some time.
const WRITE_FACTOR: f64 = 2.0;

/// Work of a statement on a group besides its attributes, in units of one attribute
/// looked at: by the bench, some 300 ns (lines of a few stages) to 5 ns.
pub(crate) const CALL_WORK: u64 = 64;

/// What `layout` costs for one execution mix: ns per execution, averaged by weight.
///
/// # Errors
/// [`AdviceError`] when the layout does not fit the table, or a number is unusable.
pub fn estimate_ns(
    layout: &Layout,
    workload: &Workload,
    shape: &TableShape,
    machine: &Machine,
) -> Result<f64, AdviceError> {
    let model = Model::new(workload, shape, machine)?;
    let groups = layout.resolve(&shape.names)?;
    Ok(model.layout_ns(&groups) / workload.weight().max(f64::MIN_POSITIVE))
}

/// Shape, machine and workload, made ready to price groups.
pub(crate) struct Model<'a> {
    pub(crate) shape: &'a TableShape,
    pub(crate) machine: &'a Machine,
    pub(crate) statements: Vec<Statement>,
    /// For each attribute, a bit for each statement that uses it.
    users: Vec<Vec<u64>>,
    /// What each attribute costs in a group of its own; empty until it is known.
    alone_ns: Vec<f64>,
}

/// A footprint whose attributes are known by position.
pub(crate) struct Statement {
    pub(crate) weight: f64,
    kind: StageKind,
    /// For each attribute, a bit for each stage that passes over it.
    pub(crate) stages: Vec<u16>,
}

enum StageKind {
    /// Share of the rows scanned, and the density of each stage, never rising.
    Scan {
        share: f64,
        densities: Vec<f64>,
    },
    Read,
    Update,
    Insert {
        rows: f64,
    },
}

impl Statement {
    fn new(footprint: &Footprint, attributes: usize) -> Statement {
        let mut stages = vec![0; attributes];
        let mut mark = |attributes: &[usize], stage: usize| {
            attributes.iter().for_each(|&at| stages[at] |= 1 << stage);
        };
        let kind = match &footprint.access {
            Access::Scan(scan) => {
                let last = scan.predicates.len().min(PREDICATES_MAX);
                for (nth, filter) in scan.predicates.iter().enumerate() {
                    mark(&[filter.attribute], nth.min(PREDICATES_MAX - 1));
                }
                mark(&scan.projection, last);
                StageKind::Scan {
                    share: scan.share,
                    densities: densities(scan),
                }
            }
            Access::Read { attributes } => {
                mark(attributes, 0);
                StageKind::Read
            }
            Access::Update { attributes } => {
                mark(attributes, 0);
                StageKind::Update
            }
            Access::Insert { rows } => {
                stages.fill(1);
                StageKind::Insert { rows: *rows }
            }
        };
        Statement {
            weight: footprint.weight,
            kind,
            stages,
        }
    }
}

/// The share of rows left before each predicate that has a stage, and after all.
fn densities(scan: &Scan) -> Vec<f64> {
    let mut left = 1.0;
    let mut densities = Vec::with_capacity(PREDICATES_MAX + 1);
    for filter in &scan.predicates {
        if densities.len() < PREDICATES_MAX {
            densities.push(left);
        }
        left *= filter.selectivity;
    }
    densities.push(left);
    densities
}

/// An attribute in its group's tuple, and the stages that pass over it.
#[derive(Clone, Copy)]
struct AttributePosition {
    span: Span,
    stages: u16,
}

impl<'a> Model<'a> {
    /// # Errors
    /// [`AdviceError`] when a number is unusable or an attribute unknown.
    pub(crate) fn new(
        workload: &Workload,
        shape: &'a TableShape,
        machine: &'a Machine,
    ) -> Result<Model<'a>, AdviceError> {
        shape.check()?;
        machine.check()?;
        let attributes = shape.names.len();
        workload.check(attributes)?;
        let statements: Vec<Statement> = workload
            .footprints
            .iter()
            .filter(|footprint| footprint.weight > 0.0)
            .map(|footprint| Statement::new(footprint, attributes))
            .collect();
        let mut users = vec![vec![0; statements.len().div_ceil(64)]; attributes];
        for (nth, statement) in statements.iter().enumerate() {
            for (users, stages) in users.iter_mut().zip(&statement.stages) {
                users[nth / 64] |= u64::from(*stages != 0) << (nth % 64);
            }
        }
        Ok(Model {
            shape,
            machine,
            statements,
            users,
            alone_ns: Vec::new(),
        })
    }

    /// Prices every attribute in a group of its own, those of an atom that are equally
    /// wide by one calculation: a wide table has many attributes of few kinds.
    pub(crate) fn price_alone(&mut self, atoms: &[Vec<usize>]) {
        let mut alone_ns = vec![0.0; self.shape.names.len()];
        let widths = |at: &usize| self.shape.widths(*at);
        for alike in atoms
            .iter()
            .flat_map(|atom| atom.chunk_by(|a, b| widths(a) == widths(b)))
        {
            let ns = self.group_ns(&alike[..1], &mut 0);
            alike.iter().for_each(|&at| alone_ns[at] = ns);
        }
        self.alone_ns = alone_ns;
    }

    /// Bytes of HOT slots that all executions of a statement pass over; whole numbers
    /// are added, so their order does not matter.
    pub(crate) fn bytes_passed(&self, statement: &Statement) -> f64 {
        let bytes_of = |stage: usize| -> f64 {
            let slots = statement.stages.iter().zip(&self.shape.hot.slot_bytes);
            let used = slots.filter(|(stages, _)| *stages >> stage & 1 != 0);
            used.map(|(_, bytes)| u64::from(*bytes)).sum::<u64>() as f64
        };
        let once = match &statement.kind {
            StageKind::Scan { share, densities } => {
                let stages = densities.iter().enumerate();
                let bytes: f64 = stages
                    .map(|(stage, density)| density * bytes_of(stage))
                    .sum();
                self.shape.rows() as f64 * share * bytes
            }
            StageKind::Read | StageKind::Update => bytes_of(0),
            StageKind::Insert { rows } => rows * bytes_of(0),
        };
        statement.weight * once
    }

    /// ns of all executions of all statements on a layout.
    pub(crate) fn layout_ns(&self, groups: &[Vec<usize>]) -> f64 {
        groups
            .iter()
            .map(|group| self.group_ns(group, &mut 0))
            .sum()
    }

    /// ns of all executions of all statements on a group of these attributes in this
    /// order. Adds what it took to `work`.
    pub(crate) fn group_ns(&self, group: &[usize], work: &mut u64) -> f64 {
        if let ([alone], false) = (group, self.alone_ns.is_empty()) {
            return self.alone_ns[*alone];
        }
        let used = self.used_by(group);
        *work += (CALL_WORK + group.len() as u64) * used.len() as u64;
        used.iter()
            .map(|&nth| self.statement_ns(&self.statements[nth], group))
            .sum()
    }

    /// The statements that use an attribute of the group.
    pub(crate) fn used_by(&self, group: &[usize]) -> Vec<usize> {
        (0..self.statements.len().div_ceil(64))
            .flat_map(|word| {
                let mut bits = group.iter().fold(0, |all, &at| all | self.users[at][word]);
                std::iter::from_fn(move || {
                    let bit = bits.trailing_zeros();
                    (bits != 0).then(|| {
                        bits &= bits - 1;
                        word * 64 + bit as usize
                    })
                })
            })
            .collect()
    }

    /// ns of all executions of a statement on a group.
    pub(crate) fn statement_ns(&self, statement: &Statement, group: &[usize]) -> f64 {
        let Part { rows, .. } = self.shape.hot;
        let hot = OnPart::new(self.machine, &self.shape.hot, statement, group);
        let once = match &statement.kind {
            StageKind::Insert { rows } => hot.insert_ns(*rows),
            StageKind::Update => WRITE_FACTOR * hot.read_ns(),
            kind if self.shape.frozen.rows == 0 => hot.reading_ns(kind, 1.0),
            kind => {
                let frozen = OnPart::new(self.machine, &self.shape.frozen, statement, group);
                let share = rows as f64 / self.shape.rows() as f64;
                hot.reading_ns(kind, share) + frozen.reading_ns(kind, 1.0 - share)
            }
        };
        statement.weight * once
    }
}

/// A statement on a group of one part.
struct OnPart<'a> {
    machine: &'a Machine,
    rows: f64,
    stride: u64,
    /// Whether the group has one attribute, so that its values lie side by side.
    alone: bool,
    /// The attributes used, in the group's order.
    places: Vec<AttributePosition>,
}

impl<'a> OnPart<'a> {
    fn new(
        machine: &'a Machine,
        part: &Part,
        statement: &Statement,
        group: &[usize],
    ) -> OnPart<'a> {
        let mut stride = 0;
        let mut places = Vec::new();
        for &at in group {
            let bytes = u64::from(part.slot_bytes[at]);
            let stages = statement.stages[at];
            if stages != 0 {
                let span = Span {
                    from: stride,
                    bytes,
                };
                places.push(AttributePosition { span, stages });
            }
            stride += bytes;
        }
        OnPart {
            machine,
            rows: part.rows as f64,
            stride,
            alone: group.len() == 1,
            places,
        }
    }

    /// A scan, or the `share` of reads that find their row in this part.
    fn reading_ns(&self, kind: &StageKind, share: f64) -> f64 {
        match kind {
            StageKind::Scan {
                share: scanned,
                densities,
            } => self.scan_ns(self.rows * scanned, densities),
            _ => share * self.read_ns(),
        }
    }

    fn scan_ns(&self, rows: f64, densities: &[f64]) -> f64 {
        let mut ns = 0.0;
        for (stage, &density) in densities.iter().enumerate() {
            let values: u32 = self
                .places
                .iter()
                .map(|p| u32::from(p.stages >> stage & 1))
                .sum();
            ns += f64::from(values) * rows * self.value_ns(density);
        }
        let mut counts = Vec::new();
        let mut line_bytes = 0;
        for level in &self.machine.levels {
            if level.line_bytes != line_bytes {
                line_bytes = level.line_bytes;
                counts = self.passes(line_bytes, densities);
            }
            // What one vector has touched when a line is wanted again.
            let mut touched_bytes = 0.0;
            for passes in &counts {
                touched_bytes += passes.new.lines * rows.min(VECTOR_ROWS) * line_bytes as f64;
                ns += rows * passes.new.ns(level, self.machine.overlap);
                if touched_bytes > level.capacity_bytes as f64 {
                    ns += rows * passes.again.ns(level, self.machine.overlap);
                }
            }
        }
        ns
    }

    /// Time per row for one value, when `density` of the rows are selected.
    fn value_ns(&self, density: f64) -> f64 {
        let times = &self.machine.value_ns;
        match (density < 1.0, self.alone) {
            (true, _) => density * times.gathered,
            (false, true) => times.in_place,
            (false, false) => times.strided,
        }
    }

    /// The lines that the passes of each stage touch.
    fn passes(&self, line_bytes: u64, densities: &[f64]) -> Vec<Passes> {
        let grid = Grid::new(self.stride, line_bytes);
        let stages = densities.iter().enumerate();
        stages
            .filter(|(stage, _)| {
                self.places
                    .iter()
                    .any(|place| place.stages >> stage & 1 != 0)
            })
            .map(|(stage, &density)| {
                let dense = self.lines(&grid, stage, 1.0);
                let lines = if density < 1.0 {
                    self.lines(&grid, stage, density)
                } else {
                    dense
                };
                Passes {
                    new: Touched {
                        lines: lines.0,
                        lines_dense: dense.0,
                    },
                    again: Touched {
                        lines: lines.1,
                        lines_dense: dense.1,
                    },
                }
            })
            .collect()
    }

    /// Lines per row that the passes of a stage are the first to touch, and lines they
    /// touch again. Earlier stages selected every row that this one does, so what
    /// they touched is at least what they would touch for these rows.
    fn lines(&self, grid: &Grid, stage: usize, density: f64) -> (f64, f64) {
        let of = |mask: u32| {
            let wanted = move |place: &&AttributePosition| u32::from(place.stages) & mask != 0;
            self.places.iter().filter(wanted).map(|place| place.span)
        };
        let (this, earlier) = (1_u32 << stage, (1_u32 << stage) - 1);
        let all: f64 = of(this)
            .map(|span| grid.lines_per_tuple(span, density))
            .sum();
        let before = if of(earlier).next().is_some() {
            grid.union_per_tuple(of(earlier), density)
        } else {
            0.0
        };
        let after = grid.union_per_tuple(of(earlier | this), density);
        let new = (after - before).clamp(0.0, all);
        (new, all - new)
    }

    /// One row, found by its position: the first line of each cluster comes unforeseen,
    /// the others adjoin it.
    fn read_ns(&self) -> f64 {
        let grid = Grid::new(self.stride, self.machine.memory_line_bytes());
        let spans = self.places.iter().map(|place| place.span);
        let lines: f64 = grid
            .clusters(spans)
            .map(|cluster| {
                let adjoining = grid.lines_of_one(cluster) - 1.0;
                self.machine.memory_random_ns() + adjoining * self.machine.memory_sequential_ns()
            })
            .sum();
        lines + self.places.len() as f64 * self.machine.value_ns.gathered
    }

    /// Rows appended side by side. The line at the end of the group was written lately,
    /// so it is found in the last level; new lines follow it in order.
    fn insert_ns(&self, rows: f64) -> f64 {
        if self.stride == 0 {
            return 0.0;
        }
        let bytes = rows * self.stride as f64;
        let lines = bytes / self.machine.memory_line_bytes() as f64;
        let misses = self.machine.cached_random_ns() + lines * self.machine.memory_sequential_ns();
        WRITE_FACTOR * misses + rows * self.places.len() as f64 * self.machine.value_ns.strided
    }
}

/// Lines per row of the passes of one stage.
struct Passes {
    new: Touched,
    again: Touched,
}

/// Lines per row that passes touch, and those they would touch for every row.
struct Touched {
    lines: f64,
    lines_dense: f64,
}

impl Touched {
    /// Misses of one level. Selected rows so dense that gathering costs more than
    /// streaming past all of them are streamed past: the prefetcher sees to that.
    fn ns(&self, level: &crate::Level, overlap: f64) -> f64 {
        let gathered = self.lines * level.random_ns / overlap;
        if self.lines < self.lines_dense {
            gathered.min(self.lines_dense * level.sequential_ns)
        } else {
            self.lines * level.sequential_ns
        }
    }
}

#[cfg(test)]
mod tests;
