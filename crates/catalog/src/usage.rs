//! How statements use a table, and the layout that would cost them least.
//!
//! Every scan is recorded when it ends, every write when it is done; the adviser
//! (`aerostat-advice`) stores and weighs the records. `aerostat.layout_advice` shows what it
//! would change.

use std::{fmt, sync::Arc, time::Instant};

use aerostat_advice::{
    Access, Advice, AdviceError, Filter, Footprints, Machine, Part, Policy, TableShape, decide,
};
use aerostat_storage::{Scan, Table};
use aerostat_types::Physical;

/// Bytes of a variable-length value's slot in a group.
const VARIABLE_SLOT_BYTES: u32 = 8;

/// The footprints of one table's statements.
pub struct Usage {
    started: Instant,
    footprints: Footprints,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            footprints: Footprints::new(0.0),
        }
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Usage")
            .field("footprints", &self.footprints.status())
            .finish_non_exhaustive()
    }
}

impl Usage {
    /// Rows were appended; an update appends the new versions of its rows.
    pub fn record_insert(&self, rows: u64) {
        self.record(&Access::Insert { rows: rows as f64 });
    }

    /// So many writes appended this many rows each.
    pub fn record_inserts(&self, rows: u64, times: u32) {
        let access = Access::Insert { rows: rows as f64 };
        self.footprints.record_times(&access, times, self.now_s());
    }

    /// So often a row was looked up by its key, and these columns of it read.
    pub fn record_lookups(&self, columns: &[usize], times: u32) {
        let access = Access::Read {
            attributes: columns.to_vec(),
        };
        self.footprints.record_times(&access, times, self.now_s());
    }

    /// What a scan did, which has ended or was given up.
    fn record_scan(&self, scan: &Scan) {
        self.record(&access_of(scan));
    }

    fn record(&self, access: &Access) {
        self.footprints.record(access, self.now_s());
    }

    fn now_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// The layout that would cost the statements seen lately least on this machine, and what it
    /// saves.
    ///
    /// # Errors
    /// The footprints are of another table.
    pub fn advice(&self, table: &Table, machine: &Machine) -> Result<Advice, AdviceError> {
        decide(
            &table.layout(),
            &self.footprints.workload(self.now_s()),
            &shape_of(table),
            machine,
            &Policy::default(),
        )
    }
}

fn access_of(scan: &Scan) -> Access {
    let (counts, spec) = (scan.counts(), scan.spec());
    if counts.is_lookup {
        return Access::Read {
            attributes: spec.projection.clone(),
        };
    }
    let rows = scan.view().statistics().rows;
    let mut before = counts.rows_scanned;
    let predicates = spec.predicates.iter().zip(counts.rows_left);
    let predicates = predicates.map(|(predicate, left)| Filter {
        attribute: predicate.attribute(),
        selectivity: share(left, std::mem::replace(&mut before, left)),
    });
    // The more rows one was asked for, the earlier it was.
    let mut lookups: Vec<_> = spec.lookups.iter().zip(counts.lookups).collect();
    lookups.sort_by_key(|(_, (asked, _))| std::cmp::Reverse(*asked));
    let lookups = lookups.into_iter().map(|(lookup, (asked, kept))| Filter {
        attribute: lookup.attribute,
        selectivity: share(kept, asked),
    });
    Access::Scan(aerostat_advice::Scan {
        predicates: predicates.chain(lookups).collect(),
        share: share(counts.rows_scanned, rows),
        projection: spec.projection.clone(),
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64).min(1.0)
}

/// How wide a table's rows are. The bytes of frozen rows are known for all attributes
/// together, so each gets its part by its hot width.
fn shape_of(table: &Table) -> TableShape {
    let columns = &table.schema().columns;
    let widths: Vec<u32> = columns
        .iter()
        .map(|column| match column.ty.physical() {
            Physical::Variable => VARIABLE_SLOT_BYTES,
            fixed => u32::try_from(fixed.width()).unwrap_or(u32::MAX),
        })
        .collect();
    let statistics = table.statistics();
    let hot_bytes: u64 = widths.iter().map(|width| u64::from(*width)).sum();
    let frozen_bytes = statistics.bytes_frozen as f64 / statistics.rows_frozen.max(1) as f64;
    let scale = (frozen_bytes / hot_bytes.max(1) as f64).min(1.0);
    let frozen = widths
        .iter()
        .map(|width| (f64::from(*width) * scale).ceil() as u32);
    TableShape {
        names: columns.iter().map(|column| column.name.clone()).collect(),
        frozen: Part {
            rows: statistics.rows_frozen,
            slot_bytes: frozen.collect(),
        },
        hot: Part {
            rows: statistics.rows.saturating_sub(statistics.rows_frozen),
            slot_bytes: widths,
        },
    }
}

/// A scan that is recorded when its last user lets it go.
pub struct RecordedScan {
    scan: Arc<Scan>,
    usage: Arc<Usage>,
}

impl RecordedScan {
    /// Starts to use the scan.
    pub fn new(scan: Arc<Scan>, usage: Arc<Usage>) -> Arc<Self> {
        Arc::new(Self { scan, usage })
    }

    /// The scan.
    pub fn scan(&self) -> &Arc<Scan> {
        &self.scan
    }
}

impl Drop for RecordedScan {
    fn drop(&mut self) {
        self.usage.record_scan(&self.scan);
    }
}
