//! Run-time filters: what joins and top-n queries above a scan learn while they run, as conditions
//! that storage tests.
//!
//! An operator keeps its filter in a `DynamicFilterPhysicalExpr` and replaces it as it learns more.
//! Before each batch the scan looks for a newer filter, and takes the parts that storage can test.
//! Rows that fail the filter may still be returned: the operators test all rows themselves, so the
//! result is correct whichever parts storage tests.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_segment::{CompareOp, LookupTable, Predicate};
use aerostat_storage::{Bound, Lookup, Narrowing, Scan, TableView};
use datafusion::{
    execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation},
    physical_expr::{PhysicalExpr, expressions::DynamicFilterPhysicalExpr},
    physical_plan::metrics::{ExecutionPlanMetricsSet, Gauge, MetricBuilder},
};
use parking_lot::Mutex;

use super::domain::{Attribute, Domain, End, Rows};

/// Longer lists of integers or dates become a lookup table.
const LIST_MAX: usize = 8;

/// Longer lists of other values are tested by their bounds alone.
const OTHER_LIST_MAX: usize = 64;

/// A filter that an operator above keeps up to date.
#[derive(Clone)]
pub(crate) struct RunTimeFilter {
    pub(crate) filter: Arc<DynamicFilterPhysicalExpr>,
    /// Pairs of columns: the position of a column in the filter, and its position in the plan that
    /// the filter has been handed down to.
    pub(crate) columns: Vec<(usize, usize)>,
}

impl RunTimeFilter {
    /// The filter in terms of an input's columns, to which `column` maps those of the plan; `None`
    /// if it maps none of the filter's columns.
    pub(crate) fn through(&self, column: impl Fn(usize) -> Option<usize>) -> Option<RunTimeFilter> {
        let columns = self.columns.iter();
        let columns: Vec<_> = columns
            .filter_map(|(own, at)| Some((*own, column(*at)?)))
            .collect();
        (!columns.is_empty()).then(|| RunTimeFilter {
            filter: Arc::clone(&self.filter),
            columns,
        })
    }
}

impl fmt::Debug for RunTimeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunTimeFilter")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// The filters of one running scan.
pub(super) struct Narrower {
    filters: Vec<(RunTimeFilter, Vec<(usize, Attribute)>)>,
    /// The sum of the filters' generations when they were last taken. Each generation only grows.
    generations: AtomicU64,
    taken: Mutex<Vec<Taken>>,
    morsels: Gauge,
    rows: Gauge,
}

/// The parts that were taken from a filter.
#[derive(Default)]
struct Taken {
    generation: u64,
    narrowing: Narrowing,
    /// The memory of the lookup tables.
    _memory: Option<MemoryReservation>,
}

impl Narrower {
    /// `attribute` maps an output column of the scan to the column of the table.
    pub(super) fn new(
        filters: &[RunTimeFilter],
        attribute: impl Fn(usize) -> Option<Attribute>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Option<Narrower> {
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| {
                let columns = filter.columns.iter();
                let columns = columns.filter_map(|(own, at)| Some((*own, attribute(*at)?)));
                (filter.clone(), columns.collect())
            })
            .collect();
        let gauge = |name| MetricBuilder::new(metrics).global_gauge(name);
        (!filters.is_empty()).then(|| Narrower {
            taken: Mutex::new(filters.iter().map(|_| Taken::default()).collect()),
            filters,
            generations: AtomicU64::new(0),
            morsels: gauge("morsels_by_run_time_filter"),
            rows: gauge("rows_by_run_time_filter"),
        })
    }

    /// Narrows the scan by the current filters.
    pub(super) fn narrow(&self, scan: &Scan, pool: &Arc<dyn MemoryPool>) {
        let generation = |filter: &RunTimeFilter| filter.filter.snapshot_generation();
        let filters = || self.filters.iter().map(|(filter, _)| filter);
        let generations = || filters().map(generation).sum::<u64>();
        if self.generations.load(Ordering::Acquire) == generations() {
            return;
        }
        // A thread that comes while another takes the filters waits: without them it might read
        // all rows in the meantime.
        let mut taken = self.taken.lock();
        let generations = generations();
        let before = self.generations.load(Ordering::Acquire);
        assert!(
            before <= generations,
            "filters of generations {before} have become {generations}, and each only grows"
        );
        if before == generations {
            return;
        }
        for ((filter, columns), taken) in self.filters.iter().zip(taken.iter_mut()) {
            // The generation is read before the filter, so that a newer filter is taken next time.
            let generation = generation(filter);
            if taken.generation != generation {
                let (narrowing, memory) = taken_of(filter, columns, scan.view(), pool);
                *taken = Taken {
                    generation,
                    narrowing,
                    _memory: memory,
                };
            }
        }
        let mut all = Narrowing::default();
        for taken in taken.iter() {
            let narrowing = &taken.narrowing;
            all.predicates.extend_from_slice(&narrowing.predicates);
            all.lookups.extend_from_slice(&narrowing.lookups);
        }
        scan.narrow(all);
        self.generations.store(generations, Ordering::Release);
    }

    /// Records how much the scan has left out.
    pub(super) fn record(&self, scan: &Scan) {
        let counts = scan.counts().narrowed;
        self.morsels
            .set(usize::try_from(counts.morsels).unwrap_or(usize::MAX));
        self.rows
            .set(usize::try_from(counts.rows).unwrap_or(usize::MAX));
    }
}

/// The parts of a filter's current state that storage can test.
fn taken_of(
    filter: &RunTimeFilter,
    columns: &[(usize, Attribute)],
    view: &TableView,
    pool: &Arc<dyn MemoryPool>,
) -> (Narrowing, Option<MemoryReservation>) {
    let attribute = |at: usize| {
        let column = columns.iter().find(|(own, _)| *own == at);
        column.map(|(_, attribute)| *attribute)
    };
    let rows = match filter.filter.current() {
        Ok(current) => Rows::of(current.as_ref(), &attribute),
        Err(error) => {
            tracing::debug!(%error, "a run-time filter is not taken");
            Rows::ALL
        }
    };
    let mut narrowing = Narrowing::default();
    let memory = MemoryConsumer::new("run-time filter").register(pool);
    match rows {
        Rows::None => narrowing.predicates = never(),
        Rows::Within(domains) => {
            for (attribute, domain) in domains.into_values() {
                add(&mut narrowing, attribute, &domain, &memory);
            }
        }
    }
    narrowing
        .predicates
        .retain(|bound| view.accepts(&bound.predicate));
    let memory = (memory.size() > 0).then_some(memory);
    (narrowing, memory)
}

/// A condition that no row satisfies.
fn never() -> Vec<Bound> {
    let attribute = 0;
    let tests = [
        Predicate::IsNull { attribute },
        Predicate::IsNotNull { attribute },
    ];
    let bounds = tests.map(|predicate| Bound {
        predicate,
        or_null: false,
    });
    bounds.into()
}

fn add(
    narrowing: &mut Narrowing,
    attribute: Attribute,
    domain: &Domain,
    memory: &MemoryReservation,
) {
    let Attribute {
        position,
        ty,
        is_nullable,
    } = attribute;
    let mut test = |predicate| {
        narrowing.predicates.push(Bound {
            predicate,
            or_null: domain.nulls,
        });
    };
    let compare = |op, end: &End| Predicate::Compare {
        attribute: position,
        op,
        value: end.value.literal(ty),
    };
    if domain.has_no_value() {
        return test(Predicate::IsNull {
            attribute: position,
        });
    }
    if let Some(list) = domain.list.as_ref().filter(|list| list.len() > 1) {
        if list.len() > LIST_MAX
            && !domain.nulls
            && let Some(table) = domain.integers(ty).and_then(|keys| table(&keys, memory))
        {
            narrowing.lookups.push(Lookup {
                attribute: position,
                table: Arc::new(table),
            });
            return;
        }
        if list.len() <= OTHER_LIST_MAX {
            return test(Predicate::InList {
                attribute: position,
                values: list.iter().map(|value| value.literal(ty)).collect(),
                negated: false,
            });
        }
    }
    match (&domain.low, &domain.high) {
        (Some(low), Some(high)) if low == high => test(compare(CompareOp::Eq, low)),
        (None, None) if is_nullable && !domain.nulls => {
            test(Predicate::IsNotNull {
                attribute: position,
            });
        }
        (low, high) => {
            if let Some(low) = low {
                test(compare(
                    if low.is_in {
                        CompareOp::Ge
                    } else {
                        CompareOp::Gt
                    },
                    low,
                ));
            }
            if let Some(high) = high {
                test(compare(
                    if high.is_in {
                        CompareOp::Le
                    } else {
                        CompareOp::Lt
                    },
                    high,
                ));
            }
        }
    }
}

/// A lookup table of the keys, if there is memory for it.
fn table(keys: &[i64], memory: &MemoryReservation) -> Option<LookupTable> {
    memory.try_grow(LookupTable::bytes_for(keys, false)).ok()?;
    LookupTable::new(keys, None).ok()
}
