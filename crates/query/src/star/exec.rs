//! The star join as an operator.
//!
//! ```text
//!  sides, each read whole ─► lookup tables, groups        side
//!  fact, by all threads:  morsels ─► lookups on codes     aerostat-storage
//!                         numbers of groups, columns ─► aggregates    groups
//!  one thread:            merge ─► groups' values, results
//! ```
//!
//! No row is handed over before the end. So whatever goes wrong before (memory, a key that a side
//! has twice, an error of an expression), the original plan takes over, and its rows or its error
//! are the result.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use aerostat_catalog::{RecordedScan, Usage, failure::from_storage};
use aerostat_schedule::{give_way, turn_is_over};
use aerostat_storage::{Lookup, ScanSpec, ScannedRows, TableView};
use datafusion::{
    arrow::{
        array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array},
        compute::{filter_record_batch, take},
        datatypes::{FieldRef, SchemaRef},
    },
    common::{
        DataFusionError, ParamValues, Result, runtime::SpawnedTask, tree_node::TreeNodeRecursion,
    },
    execution::{
        SendableRecordBatchStream, SessionState, TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    logical_expr::LogicalPlan,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, execute_stream,
        execution_plan::{Boundedness, EmissionType},
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{TryStreamExt, stream};

use super::{
    groups::{Aggregated, Emitted, Grouping, Groups, digits, kept, mask_of},
    recognise::Group,
    side::{GatheredSide, gather, unfit},
};
use crate::{
    detach::attached,
    error::external,
    memory_pool::LOOKUPS,
    plan::StatementContext,
    scan::{
        TableScanProvider,
        conditions::{Compared, Conditions},
    },
};

/// What the operator does, fixed when it is planned.
#[derive(Clone)]
pub(super) struct StarParts {
    /// The conditions on the fact's rows, for storage.
    pub(super) of_fact: Conditions,
    pub(super) joins: Vec<SideJoin>,
    pub(super) columns: Vec<usize>,
    /// The conditions on joined rows.
    pub(super) conditions: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) groups: Vec<Group>,
    pub(super) grouping: Grouping,
    pub(super) aggregates: Arc<[Aggregated]>,
    /// The columns of the result: what is grouped by, then the aggregates.
    pub(super) schema: SchemaRef,
}

/// How the fact is joined with a side.
#[derive(Clone)]
pub(super) struct SideJoin {
    /// The position of the fact's column.
    pub(super) foreign_key: usize,
    /// How many of the side's columns are grouped by.
    pub(super) groups: usize,
    /// The join as EXPLAIN shows it.
    pub(super) shown: String,
}

/// The fact as the statement sees it.
#[derive(Clone)]
pub(super) struct Fact {
    pub(super) view: TableView,
    pub(super) usage: Arc<Usage>,
}

impl Fact {
    pub(super) fn of_provider(provider: &TableScanProvider) -> Self {
        Self {
            view: provider.view().clone(),
            usage: Arc::clone(provider.usage()),
        }
    }
}

/// The plan that takes over when the star join fails.
pub(super) enum Original {
    /// The original of a plan that was made for this statement.
    New {
        plan: LogicalPlan,
        state: Arc<SessionState>,
    },
    /// The original of a cached plan, which is attached to this statement's tables first.
    Kept {
        plan: Arc<LogicalPlan>,
        /// The values of its parameters.
        values: Option<ParamValues>,
        context: Arc<StatementContext>,
    },
}

impl Original {
    async fn physical(&self) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Original::New { plan, state } => {
                let planner = state.query_planner();
                planner.create_physical_plan(plan, &**state).await
            }
            Original::Kept {
                plan,
                values,
                context,
            } => {
                let mut plan = attached((**plan).clone(), context)?;
                if let Some(values) = values {
                    plan = plan.replace_params_with_values(values)?;
                }
                let planner = context.state.query_planner();
                planner.create_physical_plan(&plan, &*context.state).await
            }
        }
    }
}

/// See the module's header.
pub(crate) struct StarJoinExec {
    pub(super) parts: Arc<StarParts>,
    pub(super) fact: Fact,
    sides: Vec<Arc<dyn ExecutionPlan>>,
    pub(super) original: Arc<Original>,
    /// Why the original plan took over.
    given_up: Arc<OnceLock<String>>,
    pub(super) properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl StarJoinExec {
    pub(super) fn new(
        parts: Arc<StarParts>,
        fact: Fact,
        sides: Vec<Arc<dyn ExecutionPlan>>,
        original: Arc<Original>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&parts.schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self::with_properties(parts, fact, sides, original, Arc::new(properties))
    }

    /// A star join with known properties, which equal those that [`Self::new`] computes.
    pub(super) fn with_properties(
        parts: Arc<StarParts>,
        fact: Fact,
        sides: Vec<Arc<dyn ExecutionPlan>>,
        original: Arc<Original>,
        properties: Arc<PlanProperties>,
    ) -> Self {
        assert_eq!(
            sides.len(),
            parts.joins.len(),
            "each join of a star has its side"
        );
        Self {
            parts,
            fact,
            sides,
            original,
            given_up: Arc::default(),
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// Notes which columns of the fact parameters are compared with; `false` if a parameter is
    /// compared with columns of different types.
    pub(crate) fn note_compared(&self, compared: &mut Compared) -> bool {
        let table = self.fact.view.table().schema();
        self.parts.of_fact.note_compared(table, compared)
    }

    fn run(&self, context: Arc<TaskContext>) -> Run {
        Run {
            parts: Arc::clone(&self.parts),
            fact: self.fact.clone(),
            sides: self.sides.clone(),
            metrics: self.metrics.clone(),
            context,
        }
    }
}

impl fmt::Debug for StarJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StarJoinExec")
            .field("fact", &self.fact.view.table().schema().name)
            .field("sides", &self.sides)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for StarJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.parts;
        let joins: Vec<&str> = parts.joins.iter().map(|join| join.shown.as_str()).collect();
        let (groups, results) = parts.schema.fields().split_at(parts.groups.len());
        let names = |fields: &[FieldRef]| {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            names.join(", ")
        };
        let table = &self.fact.view.table().schema().name;
        write!(f, "StarJoinExec: fact={table}, on=[{}]", joins.join(", "))?;
        if !parts.conditions.is_empty() {
            let shown: Vec<String> = parts.conditions.iter().map(ToString::to_string).collect();
            write!(f, ", conditions=[{}]", shown.join(" AND "))?;
        }
        if !groups.is_empty() {
            write!(f, ", gby=[{}]", names(groups))?;
        }
        write!(f, ", aggr=[{}]", names(results))?;
        match self.given_up.get() {
            Some(why) => write!(f, ", original_plan_ran_for=[{why}]"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for StarJoinExec {
    fn name(&self) -> &str {
        "StarJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sides.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.sides.len()]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (parts, original) = (Arc::clone(&self.parts), Arc::clone(&self.original));
        let (fact, properties) = (self.fact.clone(), Arc::clone(&self.properties));
        let with_children = Self::with_properties(parts, fact, children, original, properties);
        Ok(Arc::new(with_children))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let run = self.run(Arc::clone(&context));
        let original = Arc::clone(&self.original);
        let given_up = Arc::clone(&self.given_up);
        let output = BaselineMetrics::new(&self.metrics, partition);
        let schema = Arc::clone(&self.parts.schema);
        let result = async move {
            match run.joined().await {
                Ok(batches) => {
                    let batches = batches.into_iter().map(Ok);
                    Ok(Box::pin(RecordBatchStreamAdapter::new(
                        Arc::clone(&schema),
                        stream::iter(batches),
                    )) as SendableRecordBatchStream)
                }
                Err(error) => {
                    tracing::debug!(%error, "the original plan takes over from a star join");
                    // Only the first reason is kept; another execution fails for the same one.
                    let _ = given_up.set(error.message().into_owned());
                    execute_stream(original.physical().await?, context)
                }
            }
        };
        let batches = stream::once(result).try_flatten().inspect_ok(move |batch| {
            output.record_output(batch.num_rows());
        });
        let schema = Arc::clone(&self.parts.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One execution.
struct Run {
    parts: Arc<StarParts>,
    fact: Fact,
    sides: Vec<Arc<dyn ExecutionPlan>>,
    metrics: ExecutionPlanMetricsSet,
    context: Arc<TaskContext>,
}

/// The state that all threads share while they read the fact.
struct Joining {
    parts: Arc<StarParts>,
    sides: Vec<GatheredSide>,
    /// For each side, by how much the number of its group is multiplied in a row's number.
    scales: Vec<u64>,
    scan: Arc<RecordedScan>,
}

impl Run {
    fn reservation(&self) -> MemoryReservation {
        MemoryConsumer::new(LOOKUPS).register(self.context.memory_pool())
    }

    /// The result.
    async fn joined(&self) -> Result<Vec<RecordBatch>> {
        let sides = self.gathered().await?;
        let mut numbers = 1u64;
        let scales = sides.iter().map(|side| {
            let scale = numbers;
            let product = numbers.checked_mul(side.radix);
            numbers = product.ok_or_else(|| unfit("more groups than can be numbered"))?;
            Ok(scale)
        });
        let scales = scales.collect::<Result<Vec<u64>>>()?;
        let grouping = Grouping {
            numbers,
            ..self.parts.grouping.clone()
        };
        let is_empty = sides.iter().any(|side| side.table.is_empty());
        let joining = Arc::new(Joining {
            scan: self.scan(&sides)?,
            parts: Arc::clone(&self.parts),
            sides,
            scales,
        });
        let memory = self.reservation();
        let mut groups = Groups::new(&grouping, &self.parts.aggregates)?;
        if !is_empty {
            let threads = self.context.session_config().target_partitions();
            let threads = threads.min(joining.scan.scan().morsels()).max(1);
            let tasks: Vec<_> = (0..threads)
                .map(|thread| {
                    let time = MetricBuilder::new(&self.metrics).subset_time("scan_time", thread);
                    let groups = Groups::new(&grouping, &self.parts.aggregates)?;
                    let joining = Arc::clone(&joining);
                    let memory = memory.new_empty();
                    Ok(SpawnedTask::spawn(async move {
                        let timer = time.timer();
                        let groups = joining.aggregated(groups, &memory).await;
                        timer.done();
                        groups.map(|groups| (groups, memory))
                    }))
                })
                .collect::<Result<_>>()?;
            let mut parts = Vec::new();
            for task in tasks {
                let part = task.join_unwind().await;
                parts.push(part.map_err(|error| DataFusionError::External(Box::new(error)))??);
            }
            self.tell(&joining);
            let timer = MetricBuilder::new(&self.metrics).subset_time("merge_time", 0);
            let _timer = timer.timer();
            let mut parts = parts.into_iter();
            let mut held = Vec::new();
            if let Some((first, memory)) = parts.next() {
                groups = first;
                held.push(memory);
            }
            for (part, other) in parts {
                memory.try_grow(part.size())?;
                groups.merge(part)?;
                held.push(other);
            }
            return self.result(&joining, groups.emit()?);
        }
        self.result(&joining, groups.emit()?)
    }

    /// Reads all sides.
    async fn gathered(&self) -> Result<Vec<GatheredSide>> {
        let tasks: Vec<_> = self
            .sides
            .iter()
            .zip(&self.parts.joins)
            .map(|(plan, join)| {
                let name = format!("side_time[{}]", join.shown);
                let time = MetricBuilder::new(&self.metrics).subset_time(name, 0);
                let (groups, memory) = (join.groups, self.reservation());
                let (plan, context) = (Arc::clone(plan), Arc::clone(&self.context));
                SpawnedTask::spawn(async move {
                    let timer = time.timer();
                    let side = gather(plan, groups, context, memory).await;
                    timer.done();
                    side
                })
            })
            .collect();
        let mut sides = Vec::new();
        for task in tasks {
            let side = task.join_unwind().await;
            sides.push(side.map_err(|error| DataFusionError::External(Box::new(error)))??);
        }
        Ok(sides)
    }

    fn scan(&self, sides: &[GatheredSide]) -> Result<Arc<RecordedScan>> {
        let parts = &self.parts;
        let lookups = parts.joins.iter().zip(sides).map(|(join, side)| Lookup {
            attribute: join.foreign_key,
            table: Arc::clone(&side.table),
        });
        let scan = self.fact.view.scan(ScanSpec {
            projection: parts.columns.clone(),
            predicates: parts.of_fact.closed()?.to_vec(),
            lookups: lookups.collect(),
            ..ScanSpec::default()
        });
        let scan = scan.map_err(|error| external(from_storage(error)))?;
        Ok(RecordedScan::new(scan, Arc::clone(&self.fact.usage)))
    }

    /// Records the scan's counts as metrics.
    fn tell(&self, joining: &Joining) {
        let counts = joining.scan.scan().counts();
        let count = |name: String, rows: u64| {
            let counter = MetricBuilder::new(&self.metrics).global_counter(name);
            counter.add(usize::try_from(rows).unwrap_or(usize::MAX));
        };
        count("fact_rows".to_owned(), counts.rows_scanned);
        if let Some(&rows) = counts.rows_left.last() {
            count("fact_rows_filtered".to_owned(), rows);
        }
        for (join, (asked, kept)) in self.parts.joins.iter().zip(counts.lookups) {
            count(format!("rows_asked[{}]", join.shown), asked);
            count(format!("rows_joined[{}]", join.shown), kept);
        }
    }

    /// The groups as batches.
    fn result(&self, joining: &Joining, emitted: Emitted) -> Result<Vec<RecordBatch>> {
        let rows = emitted.numbers.len();
        if rows == 0 {
            return Ok(Vec::new());
        }
        let parts = &self.parts;
        let mut columns = Vec::new();
        for group in &parts.groups {
            columns.push(match *group {
                Group::Computed(nth) => Arc::clone(&emitted.computed[nth]),
                Group::Side { side, nth } => {
                    let (scale, side) = (joining.scales[side], &joining.sides[side]);
                    digits(&emitted.numbers, scale, side.radix, &side.groups[nth])?
                }
            });
        }
        columns.extend(emitted.aggregates);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&parts.schema);
        let all = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let size = self.context.session_config().batch_size().max(1);
        let starts = (0..rows).step_by(size);
        Ok(starts
            .map(|start| all.slice(start, size.min(rows - start)))
            .collect())
    }
}

impl Joining {
    /// Aggregates rows of the fact until there are no more, and yields in between.
    async fn aggregated(&self, mut groups: Groups, memory: &MemoryReservation) -> Result<Groups> {
        // The buffer for rows' numbers is used again, so it stays in the cache.
        let mut numbers = Vec::new();
        let mut reader = self.scan.scan().reader();
        loop {
            {
                let next = reader.next_rows();
                let Some(parts) = next.map_err(|error| external(from_storage(error)))? else {
                    return Ok(groups);
                };
                for rows in parts {
                    self.add(&rows, &mut numbers, &mut groups)?;
                    memory.try_resize(groups.size())?;
                }
            }
            // A task that is not scheduled yields each time.
            if turn_is_over().unwrap_or(true) {
                give_way().await;
            }
        }
    }

    fn add(
        &self,
        rows: &ScannedRows<'_>,
        numbers: &mut Vec<u64>,
        groups: &mut Groups,
    ) -> Result<()> {
        let parts = &self.parts;
        numbers.clear();
        numbers.resize(rows.len(), 0);
        let mut columns: Vec<ArrayRef> = parts.columns.iter().map(|&at| rows.gather(at)).collect();
        for (at, (side, &scale)) in self.sides.iter().zip(&self.scales).enumerate() {
            if side.has_rows {
                let mut codes = vec![0u64; rows.len()];
                rows.add_codes(at, 1, &mut codes);
                if side.radix > 1 {
                    for (number, &row) in numbers.iter_mut().zip(&codes) {
                        *number += scale * u64::from(side.group_of_row[row as usize]);
                    }
                }
                let codes = UInt64Array::from(codes);
                for values in &side.values {
                    columns.push(take(values, &codes, None)?);
                }
            } else if side.radix > 1 {
                rows.add_codes(at, scale, numbers);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let schema = Arc::clone(&parts.grouping.schema);
        let mut batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        for condition in &parts.conditions {
            let mask = mask_of(condition, &batch)?;
            batch = filter_record_batch(&batch, &mask)?;
            *numbers = kept(std::mem::take(numbers), &mask)?;
        }
        match numbers.is_empty() {
            true => Ok(()),
            false => groups.add(&batch, numbers),
        }
    }
}
