//! Handing rows over at the pace at which they are processed.
//!
//! ```text
//!  a join compares each row with all of the other side
//!     ▲ 1,024 rows … 8,192 rows … 2,000 rows …     as many as take it 50 ms
//!  PacedExec ── yields when the join has worked for so long
//!     ▲ batches of 8,192 rows
//! ```
//!
//! Between one batch and the next request the task has either worked on the rows or stood still;
//! the two cannot be told apart. So a slow client makes batches small for nothing, which costs
//! little where each row is compared with many.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::{Result, tree_node::TreeNodeRecursion},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties},
};
use futures::{Stream, StreamExt};

/// How long a thread works before it yields: half of the time that a cancelled statement may take
/// to end.
const WORK_MAX: Duration = Duration::from_millis(50);

/// A nested loop join takes this many rows of a batch and one row of the other side at a time. If
/// there are fewer, it pairs them with many rows, which costs several times as much per pair. So
/// batches are smaller only where these take longer than [`WIDE_WORK_MAX`].
const WIDE_ROWS: usize = 1_024;

/// How long [`WIDE_ROWS`] rows may take.
const WIDE_WORK_MAX: Duration = Duration::from_millis(200);

/// The rows of a batch.
const ROWS_MAX: usize = 8_192;

/// Hands over what it reads, few rows at a time.
#[derive(Debug)]
pub(super) struct PacedExec {
    input: Arc<dyn ExecutionPlan>,
}

impl PacedExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for PacedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacedExec")
    }
}

impl ExecutionPlan for PacedExec {
    fn name(&self) -> &str {
        "PacedExec"
    }

    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.into_iter().next() {
            Some(input) => Arc::new(Self::new(input)),
            None => self,
        })
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
        Ok(Box::pin(Paced {
            input: self.input.execute(partition, context)?,
            rest: None,
            pace: Pace::default(),
            since: None,
        }))
    }
}

/// A running [`PacedExec`].
struct Paced {
    input: SendableRecordBatchStream,
    /// The rest of the last batch, which has not been handed over.
    rest: Option<RecordBatch>,
    pace: Pace,
    /// When rows were last handed over; `None` after the next request.
    since: Option<Instant>,
}

impl Stream for Paced {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(since) = self.since.take()
            && self.pace.gives_way_after(since.elapsed())
        {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match ready!(self.input.poll_next_unpin(context)) {
                Some(Ok(batch)) => batch,
                ended => return Poll::Ready(ended),
            },
        };
        let rows = self.pace.rows.min(batch.num_rows());
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        self.since = Some(Instant::now());
        Poll::Ready(Some(Ok(batch.slice(0, rows))))
    }
}

impl RecordBatchStream for Paced {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// How many rows to hand over at once, and when to yield.
struct Pace {
    rows: usize,
    /// The time worked since the last yield.
    worked: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rows: WIDE_ROWS,
            worked: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Notes how long the last rows took. Returns whether it is time to yield.
    fn gives_way_after(&mut self, took: Duration) -> bool {
        let fitting = self.rows as f64 * WORK_MAX.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let least = match took > WIDE_WORK_MAX {
            true => 1,
            false => WIDE_ROWS.min(self.rows),
        };
        let most = (self.rows * 2).min(ROWS_MAX);
        self.rows = (fitting as usize).clamp(least, most);
        self.worked += took;
        let is_due = self.worked >= WORK_MAX;
        if is_due {
            self.worked = Duration::ZERO;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use datafusion::{
        arrow::{
            array::{ArrayRef, AsArray, Int32Array},
            datatypes::Int32Type,
        },
        physical_plan::stream::RecordBatchStreamAdapter,
    };

    use super::*;

    /// How often a join yields and how many rows it gets at once, after this many batches of rows
    /// that take it this long each.
    fn settled(row: Duration, batches: usize) -> (usize, usize) {
        let mut pace = Pace::default();
        let yields = (0..batches).filter(|_| {
            let took = row * u32::try_from(pace.rows).unwrap();
            pace.gives_way_after(took)
        });
        (yields.count(), pace.rows)
    }

    #[test]
    fn batches_are_as_large_as_the_work_on_a_row_allows() {
        // Quick: whole batches, and few yields.
        assert_eq!(settled(Duration::from_nanos(100), 100), (1, ROWS_MAX));
        // 20 µs a row: 50 ms are 2,500 rows.
        let (yields, rows) = settled(Duration::from_micros(20), 100);
        assert!(
            yields > 40 && (2_400..2_600).contains(&rows),
            "{yields}, {rows}"
        );
        // 100 µs: too slow for the pace, but not for narrower batches.
        assert_eq!(settled(Duration::from_micros(100), 100), (100, WIDE_ROWS));
        // 1 ms: far too slow.
        let (_, rows) = settled(Duration::from_millis(1), 100);
        assert!((40..=205).contains(&rows), "{rows}");
        assert_eq!(settled(Duration::from_secs(10), 100), (100, 1));
    }

    #[test]
    fn all_rows_go_through_in_order_whatever_the_pace() {
        let values = |from: i32, to: i32| {
            let values: ArrayRef = Arc::new(Int32Array::from_iter_values(from..to));
            RecordBatch::try_from_iter([("v", values)]).unwrap()
        };
        let batches = [values(0, 5_000), values(0, 0), values(5_000, 13_000)];
        let schema = batches[0].schema();
        let input = futures::stream::iter(batches.map(Ok));
        let mut paced = Paced {
            input: Box::pin(RecordBatchStreamAdapter::new(schema, input)),
            rest: None,
            pace: Pace::default(),
            since: None,
        };
        let mut context = Context::from_waker(Waker::noop());
        let (mut seen, mut yields) = (Vec::new(), 0);
        loop {
            match paced.poll_next_unpin(&mut context) {
                Poll::Pending => yields += 1,
                Poll::Ready(None) => break,
                Poll::Ready(Some(batch)) => {
                    let batch = batch.unwrap();
                    assert!(batch.num_rows() <= ROWS_MAX);
                    seen.extend_from_slice(batch.column(0).as_primitive::<Int32Type>().values());
                    // As if the consumer had worked for so long.
                    paced.since = paced.since.map(|since| since - Duration::from_secs(1));
                }
            }
        }
        assert_eq!(seen, (0..13_000).collect::<Vec<_>>());
        assert!(yields > 10, "{yields} yields");
    }
}
