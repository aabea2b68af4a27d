//! Aggregates over distinct intervals: intervals of one length count as one, represented by the
//! first that came. DataFusion would distinguish `1 day` from `24 hours`.
//!
//! ```text
//!  array_agg(DISTINCT i ORDER BY i DESC)  ──▶  a function without DISTINCT and ORDER BY, which has
//!                                              a map of lengths, and hands its intervals to `array_agg`
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ReversedUDAF, Signature,
};

use crate::functions::temporal::order;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// In which order the intervals are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arranged {
    pub(crate) is_ascending: bool,
    pub(crate) are_nulls_first: bool,
}

/// `inner` over distinct intervals.
pub(crate) fn over(inner: &Arc<AggregateUDF>, arranged: Arranged) -> Arc<AggregateUDF> {
    let direction = match arranged.is_ascending {
        true => "ascending",
        false => "descending",
    };
    let nulls = match arranged.are_nulls_first {
        true => "first",
        false => "last",
    };
    // Two of one argument are told apart by their names.
    let name = format!(
        "{} of distinct intervals, {direction}, nulls {nulls}",
        inner.name()
    );
    Arc::new(AggregateUDF::new_from_impl(OfDistinct {
        inner: Arc::clone(inner),
        name,
        arranged,
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfDistinct {
    inner: Arc<AggregateUDF>,
    name: String,
    arranged: Arranged,
}

impl AggregateUDFImpl for OfDistinct {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(DistinctIntervals {
            inner: self.inner.accumulator(args)?,
            arranged: self.arranged,
            firsts: BTreeMap::new(),
            has_null: false,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let item = Field::new_list_field(INTERVAL, true);
        let name = format_state_name(args.name, "distinct");
        Ok(vec![Arc::new(Field::new_list(name, item, true))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// The intervals of one group.
#[derive(Debug)]
struct DistinctIntervals {
    inner: Box<dyn Accumulator>,
    arranged: Arranged,
    /// By length, the first of those that have it.
    firsts: BTreeMap<i128, IntervalMonthDayNano>,
    has_null: bool,
}

impl DistinctIntervals {
    fn add(&mut self, intervals: &ArrayRef) {
        self.has_null |= intervals.null_count() > 0;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        for interval in intervals.iter().flatten() {
            self.firsts.entry(order(interval)).or_insert(interval);
        }
    }

    /// The intervals in their order.
    fn intervals(&self) -> ArrayRef {
        let mut found: Vec<_> = self.firsts.values().copied().map(Some).collect();
        if !self.arranged.is_ascending {
            found.reverse();
        }
        match (self.has_null, self.arranged.are_nulls_first) {
            (true, true) => found.insert(0, None),
            (true, false) => found.push(None),
            (false, _) => {}
        }
        Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(found))
    }
}

impl Accumulator for DistinctIntervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0]);
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for intervals in states[0].as_list::<i32>().iter().flatten() {
            self.add(&intervals);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let intervals = self.intervals();
        let item = Arc::new(Field::new_list_field(INTERVAL, true));
        let offsets = OffsetBuffer::from_lengths([intervals.len()]);
        let list = ListArray::try_new(item, offsets, intervals, None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let intervals = self.intervals();
        if !intervals.is_empty() {
            self.inner.update_batch(&[intervals])?;
        }
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        // A node of the map is half full at least.
        let entry = 2 * size_of::<(i128, IntervalMonthDayNano)>();
        size_of_val(self) + self.inner.size() + self.firsts.len() * entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_one_length_stays() {
        let mut gathered = DistinctIntervals {
            inner: Box::new(super::super::longest::Longest::new(true)),
            arranged: Arranged {
                is_ascending: false,
                are_nulls_first: true,
            },
            firsts: BTreeMap::new(),
            has_null: false,
        };
        let day = IntervalMonthDayNano::new(0, 1, 0);
        let hours = IntervalMonthDayNano::new(0, 0, 86_400_000_000_000);
        let month = IntervalMonthDayNano::new(1, 0, 0);
        let given = vec![Some(hours), None, Some(day), Some(month), None];
        let given = PrimitiveArray::<IntervalMonthDayNanoType>::from(given);
        gathered.update_batch(&[Arc::new(given)]).unwrap();
        let found = gathered.intervals();
        let found: Vec<_> = found
            .as_primitive::<IntervalMonthDayNanoType>()
            .iter()
            .collect();
        assert_eq!(found, [None, Some(month), Some(hours)]);
    }
}
