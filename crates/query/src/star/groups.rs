//! Groups of joined rows and their aggregates, in one thread; and merging the groups of several
//! threads.
//!
//! ```text
//!  codes of sides     year 3, brand 17   ─► 3 · 40 + 17 = 137   a group's number, mixed radix
//!  other keys, if there are any                                 number and values, hashed
//!  group              0, 1, 2 … in the order of their first rows
//! ```
//!
//! Aggregates are DataFusion's accumulators, so that results, types and errors are those of
//! any other plan.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, BooleanArray, UInt64Array},
        compute::{filter, prep_null_mask_filter, take},
        datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, UInt64Type},
        record_batch::RecordBatch,
    },
    common::{DataFusionError, HashMap, Result},
    logical_expr::{EmitTo, GroupsAccumulator},
    physical_expr::{GroupsAccumulatorAdapter, PhysicalExpr, aggregate::AggregateFunctionExpr},
    physical_plan::aggregates::{
        group_values::{GroupValues, new_group_values},
        order::GroupOrdering,
    },
};

/// Groups with fewer possible numbers are found in an array, of 256 KiB at most.
const NUMBERS_DENSE: u64 = 1 << 16;

/// An aggregate over joined rows.
#[derive(Clone, Debug)]
pub(super) struct Aggregated {
    pub(super) function: Arc<AggregateFunctionExpr>,
    pub(super) filter: Option<Arc<dyn PhysicalExpr>>,
}

impl Aggregated {
    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        if self.function.groups_accumulator_supported() {
            return self.function.create_groups_accumulator();
        }
        let function = Arc::clone(&self.function);
        let make = move || function.create_accumulator();
        Ok(Box::new(GroupsAccumulatorAdapter::new(make)))
    }
}

/// The keys of the groups.
#[derive(Clone, Debug)]
pub(super) struct Grouping {
    /// The columns of joined rows.
    pub(super) schema: SchemaRef,
    /// All numbers are below this; 1 if no column of a side is grouped by.
    pub(super) numbers: u64,
    /// Other keys, which are computed over joined rows.
    pub(super) computed: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) computed_types: Vec<DataType>,
    /// Whether there is a GROUP BY. Without one there is a single group, even over no rows.
    pub(super) is_grouped: bool,
}

/// How groups are found.
enum Finder {
    /// All rows are one group. Whether there were any.
    One(bool),
    /// An array of groups by number, with [`NOBODY`] where there is none.
    Dense(Vec<u32>),
    /// A map of groups by number.
    Sparse(HashMap<u64, u32>),
    /// Groups by number and computed values.
    Values(Box<dyn GroupValues>),
}

const NOBODY: u32 = u32::MAX;

/// The groups of one thread.
pub(super) struct Groups {
    aggregates: Arc<[Aggregated]>,
    grouping: Grouping,
    finder: Finder,
    /// The number of each group, unless groups are found by values.
    numbers: Vec<u64>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// The group of each row of a batch.
    rows: Vec<usize>,
}

/// All groups as columns.
pub(super) struct Emitted {
    pub(super) numbers: Vec<u64>,
    pub(super) computed: Vec<ArrayRef>,
    pub(super) aggregates: Vec<ArrayRef>,
}

impl Groups {
    /// No groups.
    ///
    /// # Errors
    /// Types that cannot be grouped by.
    pub(super) fn new(grouping: &Grouping, aggregates: &Arc<[Aggregated]>) -> Result<Self> {
        let finder = if !grouping.computed.is_empty() {
            let number = Field::new("number", DataType::UInt64, false);
            let computed = grouping.computed_types.iter().enumerate();
            let computed =
                computed.map(|(nth, ty)| Field::new(format!("v{nth}"), ty.clone(), true));
            let fields: Vec<FieldRef> = std::iter::once(number)
                .filter(|_| grouping.numbers > 1)
                .chain(computed)
                .map(Arc::new)
                .collect();
            let schema = Arc::new(Schema::new(fields));
            Finder::Values(new_group_values(schema, &GroupOrdering::None)?)
        } else if !grouping.is_grouped {
            Finder::One(false)
        } else if grouping.numbers <= NUMBERS_DENSE {
            Finder::Dense(vec![NOBODY; grouping.numbers as usize])
        } else {
            Finder::Sparse(HashMap::new())
        };
        let accumulators = aggregates.iter().map(Aggregated::accumulator);
        Ok(Self {
            accumulators: accumulators.collect::<Result<_>>()?,
            aggregates: Arc::clone(aggregates),
            grouping: grouping.clone(),
            finder,
            numbers: Vec::new(),
            rows: Vec::new(),
        })
    }

    /// Aggregates joined rows, which belong to the groups with these numbers.
    ///
    /// # Errors
    /// The errors of expressions and aggregates.
    pub(super) fn add(&mut self, batch: &RecordBatch, numbers: &[u64]) -> Result<()> {
        assert_eq!(
            batch.num_rows(),
            numbers.len(),
            "each joined row has the number of its group"
        );
        let computed = self.grouping.computed.iter();
        let computed = computed.map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()));
        let computed: Vec<ArrayRef> = computed.collect::<Result<_>>()?;
        self.find(numbers, computed)?;
        let total = self.len();
        for (aggregate, accumulator) in self.aggregates.iter().zip(&mut self.accumulators) {
            let values = aggregate.function.expressions().into_iter();
            let values = values.map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows()));
            let values: Vec<ArrayRef> = values.collect::<Result<_>>()?;
            let passes = aggregate.filter.as_ref().map(|expr| mask_of(expr, batch));
            let passes = passes.transpose()?;
            accumulator.update_batch(&values, &self.rows, passes.as_ref(), total)?;
        }
        Ok(())
    }

    /// How many groups there are.
    pub(super) fn len(&self) -> usize {
        match &self.finder {
            Finder::One(_) => 1,
            Finder::Values(values) => values.len(),
            Finder::Dense(_) | Finder::Sparse(_) => self.numbers.len(),
        }
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        let finder = match &self.finder {
            Finder::One(_) => 0,
            Finder::Dense(groups) => groups.len() * size_of::<u32>(),
            Finder::Sparse(groups) => groups.capacity() * (size_of::<(u64, u32)>() + 1),
            Finder::Values(values) => values.size(),
        };
        let accumulators = self
            .accumulators
            .iter()
            .map(|own| own.size())
            .sum::<usize>();
        let scratch = self.rows.capacity() * size_of::<usize>();
        finder + accumulators + scratch + self.numbers.capacity() * size_of::<u64>()
    }

    /// Finds the groups of rows by their numbers and values, and writes them to `rows`.
    fn find(&mut self, numbers: &[u64], computed: Vec<ArrayRef>) -> Result<()> {
        self.rows.clear();
        match &mut self.finder {
            Finder::One(any) => {
                *any |= !numbers.is_empty();
                self.rows.resize(numbers.len(), 0);
            }
            Finder::Dense(groups) => {
                for &number in numbers {
                    let group = &mut groups[number as usize];
                    if *group == NOBODY {
                        *group = self.numbers.len() as u32;
                        self.numbers.push(number);
                    }
                    self.rows.push(*group as usize);
                }
            }
            Finder::Sparse(groups) => {
                for &number in numbers {
                    let next = self.numbers.len() as u32;
                    let group = *groups.entry(number).or_insert(next);
                    if group == next {
                        self.numbers.push(number);
                    }
                    self.rows.push(group as usize);
                }
                if self.numbers.len() >= NOBODY as usize {
                    let many = "more groups than can be numbered".to_owned();
                    return Err(DataFusionError::ResourcesExhausted(many));
                }
            }
            Finder::Values(values) => {
                let mut columns = computed;
                if self.grouping.numbers > 1 {
                    let numbers = UInt64Array::from_iter_values(numbers.iter().copied());
                    columns.insert(0, Arc::new(numbers));
                }
                values.intern(&columns, &mut self.rows)?;
            }
        }
        assert_eq!(self.rows.len(), numbers.len(), "each row has a group");
        Ok(())
    }

    /// Merges the groups of another thread into these.
    ///
    /// # Errors
    /// The errors of aggregates.
    pub(super) fn merge(&mut self, mut other: Groups) -> Result<()> {
        assert!(
            Arc::ptr_eq(&self.aggregates, &other.aggregates)
                && self.grouping.numbers == other.grouping.numbers,
            "the threads of a star have the same aggregates and numbers"
        );
        if other.len() == 0 || matches!(other.finder, Finder::One(false)) {
            return Ok(());
        }
        let (numbers, computed) = other.emit_groups()?;
        self.find(&numbers, computed)?;
        let total = self.len();
        for (own, other) in self.accumulators.iter_mut().zip(&mut other.accumulators) {
            let state = other.state(EmitTo::All)?;
            own.merge_batch(&state, &self.rows, total)?;
        }
        Ok(())
    }

    /// The numbers and values of all groups, in order.
    fn emit_groups(&mut self) -> Result<(Vec<u64>, Vec<ArrayRef>)> {
        Ok(match &mut self.finder {
            Finder::One(_) => (vec![0], Vec::new()),
            Finder::Dense(_) | Finder::Sparse(_) => (std::mem::take(&mut self.numbers), Vec::new()),
            Finder::Values(values) => {
                let mut columns = values.emit(EmitTo::All)?;
                let numbers = match self.grouping.numbers > 1 {
                    true => columns
                        .remove(0)
                        .as_primitive::<UInt64Type>()
                        .values()
                        .to_vec(),
                    false => vec![0; columns[0].len()],
                };
                (numbers, columns)
            }
        })
    }

    /// All groups and their results.
    ///
    /// # Errors
    /// The errors of aggregates.
    pub(super) fn emit(mut self) -> Result<Emitted> {
        let (numbers, computed) = self.emit_groups()?;
        let aggregates = match self.finder {
            Finder::One(false) => self.of_nothing(),
            _ => {
                let results = self.accumulators.iter_mut();
                results.map(|own| own.evaluate(EmitTo::All)).collect()
            }
        };
        Ok(Emitted {
            numbers,
            computed,
            aggregates: aggregates?,
        })
    }

    /// The aggregates over no rows. Accumulators of groups assume that each group has a row.
    fn of_nothing(&self) -> Result<Vec<ArrayRef>> {
        let result = |aggregate: &Aggregated| {
            let value = aggregate.function.create_accumulator()?.evaluate()?;
            value.to_array_of_size(1)
        };
        self.aggregates.iter().map(result).collect()
    }
}

/// The mask of the rows for which a condition is true.
///
/// # Errors
/// The errors of the condition.
pub(super) fn mask_of(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<BooleanArray> {
    let array = expr.evaluate(batch)?.into_array(batch.num_rows())?;
    let Some(mask) = array.as_boolean_opt() else {
        return Err(DataFusionError::Internal(format!("{expr} is no condition")));
    };
    Ok(match mask.null_count() {
        0 => mask.clone(),
        _ => prep_null_mask_filter(mask),
    })
}

/// The numbers whose row the mask keeps.
///
/// # Errors
/// The mask has another length.
pub(super) fn kept(numbers: Vec<u64>, mask: &BooleanArray) -> Result<Vec<u64>> {
    let numbers = filter(&UInt64Array::from(numbers), mask)?;
    Ok(numbers.as_primitive::<UInt64Type>().values().to_vec())
}

/// A side's values for the digits of numbers. A digit is `number / scale % radix`.
///
/// # Errors
/// A digit beyond the values, which cannot happen.
pub(super) fn digits(
    numbers: &[u64],
    scale: u64,
    radix: u64,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    let digits = numbers.iter().map(|number| number / scale % radix);
    Ok(take(values, &UInt64Array::from_iter_values(digits), None)?)
}
