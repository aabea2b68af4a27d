//! What calls reserve, when they are refused, and when the reservation is given back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::{Int64Array, ListBuilder, StringViewArray, StringViewBuilder};
use proptest::prelude::*;

use super::*;

/// A budget of its own, which can be stopped.
#[derive(Default)]
struct Budget {
    max: u64,
    used: AtomicU64,
    stopped: AtomicBool,
}

impl Budget {
    fn of(max: u64) -> Arc<Self> {
        Arc::new(Self {
            max,
            ..Self::default()
        })
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Running for Budget {
    fn try_grow(&self, bytes: u64) -> Result<(), OutOfMemory> {
        let used = self.used();
        if used + bytes > self.max {
            return Err(OutOfMemory {
                budget: "test".to_owned(),
                requested: bytes,
                used,
                limit: self.max,
            });
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes);
    }

    fn stopped(&self) -> Option<SqlError> {
        let stopped = self.stopped.load(Ordering::Relaxed);
        stopped.then(|| SqlError::new(ErrorKind::QueryCanceled, "stopped"))
    }
}

fn with<T>(budget: &Arc<Budget>, work: impl FnOnce() -> T) -> T {
    let budget: Arc<dyn Running> = Arc::clone(budget) as _;
    let mut work = Box::pin(within(budget, async { work() }));
    let mut context = Context::from_waker(std::task::Waker::noop());
    match work.as_mut().poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it does not wait"),
    }
}

fn texts(rows: usize, bytes: usize) -> ArrayRef {
    let mut builder = StringViewBuilder::new();
    (0..rows).for_each(|_| builder.append_value("x".repeat(bytes)));
    Arc::new(builder.finish())
}

#[test]
fn a_result_is_counted_until_its_last_slice_is_gone() {
    let budget = Budget::of(64 << 20);
    let kept = with(&budget, || {
        let mut growth = Growth::new();
        growth.make(8 << 20).unwrap();
        growth.keep(texts(8, 1 << 20)).unwrap()
    });
    let used = budget.used();
    assert!((8 << 20..9 << 20).contains(&used), "{used}");
    let slice = kept.slice(3, 2);
    drop(kept);
    assert_eq!(budget.used(), used);
    assert_eq!(slice.as_string_view().value(1).len(), 1 << 20);
    drop(slice);
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_is_refused_is_given_back() {
    let budget = Budget::of(4 << 20);
    with(&budget, || {
        let mut growth = Growth::new();
        growth.make(2 << 20).unwrap();
        let refused = growth.make(8 << 20).unwrap_err();
        assert!(is_too_much(&refused), "{refused}");
        assert!(budget.used() >= 2 << 20);
    });
    assert_eq!(budget.used(), 0);
    with(&budget, || {
        // Nobody said how much it would be.
        assert!(counted(texts(8, 1 << 20)).is_err());
    });
    assert_eq!(budget.used(), 0);
}

#[test]
fn small_results_cost_nothing() {
    let budget = Budget::of(0);
    let kept = with(&budget, || {
        let mut growth = Growth::new();
        growth.make(FREE_BYTES).unwrap();
        growth.keep(texts(100, 100)).unwrap()
    });
    assert_eq!((kept.len(), budget.used()), (100, 0));
}

#[test]
fn a_call_ends_when_its_statement_is_stopped() {
    let budget = Budget::of(u64::MAX / 2);
    budget.stopped.store(true, Ordering::Relaxed);
    with(&budget, || {
        let mut growth = Growth::new();
        let mut steps = 0..10_000;
        // A look at each of ten thousand times a kilobyte.
        assert!(steps.any(|_| growth.work(1 << 10).is_err()));
        assert!(steps.start <= (2 * STEP_BYTES) >> 10, "{steps:?}");
        assert!(growth.make(FREE_BYTES + 1).is_err());
    });
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_plan_folds_only_so_much() {
    let budget = Budget::of(1 << 30);
    let folded = |bytes: usize, times: usize| {
        with(&budget, || {
            planning(|| (0..times).all(|_| Growth::new().make(bytes).is_ok()))
        })
    };
    assert!(folded(1 << 10, 1_000));
    assert!(!folded(1 << 10, 10_000));
    assert!(!folded(2 << 20, 1));
    assert!(with(&budget, || Growth::new().make(2 << 20).is_ok()));
}

#[test]
fn rows_in_pieces_have_less() {
    let budget = Budget::of(1 << 30);
    let made = |bytes: usize| Growth::new().make(bytes).is_ok();
    with(&budget, || {
        assert!(in_pieces(|| made(15 << 20)));
        assert!(!in_pieces(|| made(32 << 20)));
        assert!(made(32 << 20));
    });
}

#[test]
fn values_have_their_limit_before_they_are_made() {
    let mut growth = Growth::new();
    assert!(growth.value(VALUE_BYTES_MAX).is_ok());
    let refused = growth.value(VALUE_BYTES_MAX + 1).unwrap_err();
    assert!(!is_too_much(&refused), "{refused}");
}

proptest! {
    /// Whatever is said and however much comes, nothing is left over, and what is there is
    /// counted.
    #[test]
    fn the_count_is_what_is_there(
        said in proptest::collection::vec(0usize..3 << 20, 0..8),
        rows in 0usize..64,
        bytes in 0usize..100_000,
        is_list in any::<bool>(),
    ) {
        let budget = Budget::of(16 << 20);
        let kept = with(&budget, || {
            let mut growth = Growth::new();
            for said in said {
                growth.make(said)?;
            }
            let array: ArrayRef = match is_list {
                false => texts(rows, bytes),
                true => {
                    let mut lists = ListBuilder::new(StringViewBuilder::new());
                    for _ in 0..rows {
                        lists.values().append_value("y".repeat(bytes));
                        lists.append(true);
                    }
                    Arc::new(lists.finish())
                }
            };
            growth.keep(array)
        });
        if let Ok(kept) = &kept {
            let there = bytes_of(kept.as_ref()) as u64;
            let used = budget.used();
            prop_assert!(used == there || used == 0, "{used} of {there}");
            prop_assert!(used > 0 || there <= FREE_BYTES as u64 || rows == 0);
        }
        drop(kept);
        prop_assert_eq!(budget.used(), 0);
    }

    #[test]
    fn sizes_are_those_of_the_rows(texts in proptest::collection::vec(".{0,40}", 0..50), from in 0usize..50) {
        let array = StringViewArray::from_iter_values(&texts);
        let from = from.min(array.len());
        let slice = array.slice(from, array.len() - from);
        let lengths: usize = texts[from..].iter().map(|text| text.len() + 16).sum();
        prop_assert_eq!(bytes_of(&slice), lengths);
        prop_assert_eq!(bytes_of(&Int64Array::from(vec![1; from])), 8 * from);
    }
}

#[tokio::test]
async fn a_constant_counts_as_often_as_it_is_written() {
    let context = crate::tests::context();
    for sql in [
        // 1.6 MB of references to one text, written in 600 MB.
        "SELECT cardinality(array_fill(repeat('b', 6000), ARRAY[100000])) + i FROM t",
        "SELECT array_fill(repeat('b', 6000), ARRAY[100000]) || s FROM t",
    ] {
        let planned = crate::tests::plan(&context, sql).await.unwrap();
        let optimized = planning(|| context.state().optimize(&planned)).unwrap();
        let written = optimized.display_indent().to_string();
        assert!(written.len() < 10_000, "{} bytes", written.len());
    }
}
