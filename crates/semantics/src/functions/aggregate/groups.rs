//! Totals of many groups at once.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::NullState;

use super::kind::{SumKind, overflow};
use super::{Finish, state_type};

/// A sum and, for averages, a count for each group.
#[derive(Debug)]
pub(super) struct GroupTotals<K: SumKind> {
    finish: Finish,
    output: DataType,
    scale: i8,
    sums: Vec<<K::Acc as ArrowPrimitiveType>::Native>,
    counts: Vec<i64>,
    seen: NullState,
}

impl<K: SumKind> GroupTotals<K> {
    pub(super) fn new(finish: Finish, output: DataType, scale: i8) -> Self {
        Self {
            finish,
            output,
            scale,
            sums: vec![],
            counts: vec![],
            seen: NullState::new(),
        }
    }

    fn grow(&mut self, groups: usize) {
        assert!(
            groups >= self.sums.len(),
            "{groups} groups are fewer than the {} there are",
            self.sums.len()
        );
        self.sums.resize(groups, Default::default());
        if self.finish == Finish::Average {
            self.counts.resize(groups, 0);
        }
    }

    fn state_type(&self) -> DataType {
        match state_type(&<K::In as ArrowPrimitiveType>::DATA_TYPE) {
            DataType::Decimal128(precision, _) => DataType::Decimal128(precision, self.scale),
            other => other,
        }
    }

    fn check(&self, overflowed: bool) -> Result<()> {
        if overflowed {
            Err(overflow(&self.output))
        } else {
            Ok(())
        }
    }
}

impl<K: SumKind> GroupsAccumulator for GroupTotals<K> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<K::In>();
        self.grow(total_num_groups);
        let mut bad = false;
        let sums = self.sums.as_mut_slice();
        match self.finish {
            Finish::Sum => self.seen.accumulate(
                group_indices,
                values,
                opt_filter,
                total_num_groups,
                |group, value| {
                    bad |= K::add(&mut sums[group], K::widen(value));
                },
            ),
            Finish::Average => {
                let counts = self.counts.as_mut_slice();
                self.seen.accumulate(
                    group_indices,
                    values,
                    opt_filter,
                    total_num_groups,
                    |group, value| {
                        bad |= K::add(&mut sums[group], K::widen(value));
                        counts[group] += 1;
                    },
                );
            }
        }
        self.check(bad)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let partial = values[0].as_primitive::<K::Acc>();
        self.grow(total_num_groups);
        let mut bad = false;
        let sums = self.sums.as_mut_slice();
        self.seen.accumulate(
            group_indices,
            partial,
            None,
            total_num_groups,
            |group, value| {
                bad |= K::add(&mut sums[group], value);
            },
        );
        if self.finish == Finish::Average {
            let partial_counts = values[1].as_primitive::<Int64Type>();
            assert_eq!(
                partial_counts.len(),
                group_indices.len(),
                "each partial sum has its count"
            );
            for (&group, count) in group_indices.iter().zip(partial_counts.iter()) {
                self.counts[group] += count.unwrap_or(0);
            }
        }
        self.check(bad)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        match self.finish {
            Finish::Sum => K::sums(sums, nulls, &self.output),
            Finish::Average => {
                let counts = emit_to.take_needed(&mut self.counts);
                assert_eq!(sums.len(), counts.len(), "each sum has its count");
                K::averages(&sums, &counts, self.scale, &self.output)
            }
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let nulls = self.seen.build(emit_to);
        let sums =
            PrimitiveArray::<K::Acc>::new(sums.into(), nulls).with_data_type(self.state_type());
        let mut state: Vec<ArrayRef> = vec![Arc::new(sums)];
        if self.finish == Finish::Average {
            state.push(Arc::new(Int64Array::from(
                emit_to.take_needed(&mut self.counts),
            )));
        }
        Ok(state)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<K::In>();
        let passing = opt_filter.map(|filter| {
            let (bits, nulls) = filter.clone().into_parts();
            NullBuffer::new(nulls.map_or(bits.clone(), |nulls| nulls.inner() & &bits))
        });
        let nulls = NullBuffer::union(values.nulls(), passing.as_ref());
        let widened: Vec<_> = values
            .values()
            .iter()
            .map(|&value| K::widen(value))
            .collect();
        let sums = PrimitiveArray::<K::Acc>::new(widened.into(), nulls.clone())
            .with_data_type(self.state_type());
        let mut state: Vec<ArrayRef> = vec![Arc::new(sums)];
        if self.finish == Finish::Average {
            let counts: Vec<i64> = match &nulls {
                None => vec![1; values.len()],
                Some(nulls) => nulls.iter().map(i64::from).collect(),
            };
            state.push(Arc::new(Int64Array::from(counts)));
        }
        Ok(state)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<<K::Acc as ArrowPrimitiveType>::Native>()
            + self.counts.capacity() * size_of::<i64>()
            + self.seen.size()
    }
}
