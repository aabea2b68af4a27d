//! What statements do to a table, aggregated: footprints and their weights.

use crate::AdviceError;

/// How many predicates of a scan count as passes of their own; later ones run on the
/// few rows that are left, and count at the density of the last.
pub const PREDICATES_MAX: usize = 15;

/// A predicate on one attribute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Position of the attribute.
    pub attribute: usize,
    /// Share of the rows tested that pass, 0 to 1.
    pub selectivity: f64,
}

/// A scan: predicates in the order they run, then a projection of what is left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// Share of the table's rows in vectors that zone maps did not rule out, 0 to 1.
    pub share: f64,
    /// The predicates in order.
    pub predicates: Vec<Filter>,
    /// Positions of the attributes handed out.
    pub projection: Vec<usize>,
}

/// What one execution does.
#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// Reads many rows.
    Scan(Scan),
    /// Reads these attributes of one row that the key index found.
    Read {
        /// Positions of the attributes.
        attributes: Vec<usize>,
    },
    /// Appends whole rows. While an update appends a new version of its row, it is
    /// this as well.
    Insert {
        /// Rows appended by one execution, side by side.
        rows: f64,
    },
    /// Overwrites these attributes of one row in place.
    Update {
        /// Positions of the attributes.
        attributes: Vec<usize>,
    },
}

/// An access and how much it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    /// What it does.
    pub access: Access,
    /// Executions, those long ago counting less.
    pub weight: f64,
}

/// What a table's statements did lately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The footprints.
    pub footprints: Vec<Footprint>,
    /// The seconds in which the weights would come about at today's rate, so that
    /// weight / window is executions per second.
    pub window_s: f64,
}

impl Workload {
    /// All executions, decayed.
    pub fn weight(&self) -> f64 {
        self.footprints
            .iter()
            .map(|footprint| footprint.weight)
            .sum()
    }

    pub(crate) fn check(&self, attributes: usize) -> Result<(), AdviceError> {
        let positive = |number: f64| number.is_finite() && number >= 0.0;
        if !positive(self.window_s) {
            return Err(AdviceError::Number("window"));
        }
        for footprint in &self.footprints {
            if !positive(footprint.weight) {
                return Err(AdviceError::Number("weight"));
            }
            footprint.access.check()?;
            let mut named = footprint.access.attributes();
            if let Some(unknown) = named.find(|&at| at >= attributes) {
                return Err(AdviceError::UnknownAttribute(unknown));
            }
        }
        Ok(())
    }
}

impl Access {
    /// The attributes named, some perhaps twice; none for an insert, which writes all.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = usize> {
        let (predicates, rest): (&[Filter], &[usize]) = match self {
            Access::Scan(scan) => (&scan.predicates, &scan.projection),
            Access::Read { attributes } | Access::Update { attributes } => (&[], attributes),
            Access::Insert { .. } => (&[], &[]),
        };
        let predicates = predicates.iter().map(|filter| filter.attribute);
        predicates.chain(rest.iter().copied())
    }

    fn check(&self) -> Result<(), AdviceError> {
        let share = |number: f64| (0.0..=1.0).contains(&number);
        match self {
            Access::Scan(scan) if !share(scan.share) => Err(AdviceError::Number("share")),
            Access::Scan(scan) if !scan.predicates.iter().all(|p| share(p.selectivity)) => {
                Err(AdviceError::Number("selectivity"))
            }
            Access::Insert { rows } if !(rows.is_finite() && *rows >= 0.0) => {
                Err(AdviceError::Number("row count"))
            }
            _ => Ok(()),
        }
    }
}
