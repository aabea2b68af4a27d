//! Bytes that functions make: reserved before they are made, and counted as long as they exist.
//!
//! A function may make far more bytes than it is given: `replace`, a join of texts, an array.
//! Nothing in Arrow or DataFusion counts a function's result, so ours count it themselves:
//!
//! ```text
//!  Running ── the statement's budget, and whether it must stop ── of the thread ([`within`])
//!     ▲ a mebibyte at a time, before the bytes are made
//!  Growth ── one call of a function for a batch: make(bytes), value(bytes), work(bytes)
//!     │ keep(result)
//!  buffers ── each holds its part of the charge, which ends with the last that refers to it
//! ```
//!
//! So a result is counted wherever it goes: to the next operator, into a hash table, to the
//! client. An operator that counts what it gathers counts it a second time, which errs on the
//! safe side. The first [`FREE_BYTES`] of a call are not counted at all, and cost no more than a
//! subtraction.
//!
//! Two things limit what a call may make. Constants that the optimizer folds stay in the plan, so
//! all constants of a plan together have `FOLDED_BYTES_MAX` ([`planning`]); a larger one is
//! computed when the plan runs. A projection that can be evaluated for fewer rows at once gets
//! `PIECE_BYTES_MAX` ([`in_pieces`]), and halves its rows until they fit.
//!
//! A window gathers the values of a batch's rows one by one, then makes an array of them, all in
//! one poll. Its functions reserve both with each value (`gathered`), and hold the reservation
//! until the poll ends.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use aerostat_types::{ErrorKind, OutOfMemory, SqlError, VALUE_BYTES_MAX};
use arrow::{
    array::{Array, ArrayData, ArrayRef, AsArray, make_array},
    buffer::Buffer,
    datatypes::DataType,
};
use bytes::Bytes;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use crate::external;

/// Bytes that a call makes without asking: 128 for each row of a batch. Of such results an
/// operator has one or two for each of its partitions.
pub const FREE_BYTES: usize = 1 << 20;

/// Bytes that a call asks for at once, and works between two looks at whether it must stop. It
/// makes them in about a millisecond.
const STEP_BYTES: usize = 1 << 20;

/// Bytes that all constants that are folded in a plan may make together.
const FOLDED_BYTES_MAX: usize = 4 << 20;

/// Bytes that a call may make of rows that can also come in smaller pieces.
const PIECE_BYTES_MAX: usize = 16 << 20;

/// Buffers below this are not worth a charge of their own.
const CHARGED_BYTES_MIN: usize = 4 << 10;

// What is free is less than what may be made of a piece, and no value is too large for its call.
const _: () = assert!(STEP_BYTES <= FREE_BYTES && FREE_BYTES < PIECE_BYTES_MAX);
const _: () = assert!(FREE_BYTES < FOLDED_BYTES_MAX && VALUE_BYTES_MAX < ALONE_BYTES_MAX);

/// A statement as its functions know it.
pub trait Running: Send + Sync {
    /// Takes bytes of its memory budget.
    ///
    /// # Errors
    /// There are not that many left.
    fn try_grow(&self, bytes: u64) -> Result<(), OutOfMemory>;

    /// Gives bytes back that were taken.
    fn shrink(&self, bytes: u64);

    /// Why it must stop, as soon as it must.
    fn stopped(&self) -> Option<SqlError>;
}

thread_local! {
    static RUNNING: RefCell<Option<Arc<dyn Running>>> = const { RefCell::new(None) };
    /// What constants may still make in the plan that this thread optimizes.
    static FOLDABLE: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether the rows that are evaluated may come in smaller pieces.
    static IN_PIECES: Cell<bool> = const { Cell::new(false) };
    static POLL: Cell<Polled> = const { Cell::new(Polled::BEGUN) };
}

/// What a statement's poll has done without a call that is its own.
#[derive(Clone, Copy)]
struct Polled {
    /// Bytes that it has of the statement's budget until it ends.
    charged: u64,
    /// Bytes that it will need, and has not asked for yet.
    unasked: usize,
    /// Worked since somebody was asked whether to stop.
    worked: usize,
}

impl Polled {
    const BEGUN: Polled = Polled {
        charged: 0,
        unasked: 0,
        worked: 0,
    };
}

/// The statement whose work this thread does.
pub fn running() -> Option<Arc<dyn Running>> {
    RUNNING.with_borrow(Clone::clone)
}

/// Work of a statement: its functions know the statement whenever it is polled.
pub fn within<F: Future>(running: Arc<dyn Running>, work: F) -> Within<F> {
    Within {
        running,
        work: Box::pin(work),
    }
}

/// See [`within`].
pub struct Within<F> {
    running: Arc<dyn Running>,
    work: Pin<Box<F>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        /// Puts back what the thread worked for before, also when the work panics.
        struct Before(Option<Arc<dyn Running>>, Polled);
        impl Drop for Before {
            fn drop(&mut self) {
                let running = RUNNING.replace(self.0.take());
                let charged = POLL.replace(self.1).charged;
                if charged > 0
                    && let Some(running) = running
                {
                    running.shrink(charged);
                }
            }
        }
        let running = RUNNING.replace(Some(Arc::clone(&self.running)));
        let _before = Before(running, POLL.replace(Polled::BEGUN));
        self.work.as_mut().poll(context)
    }
}

/// Sets a thread's variable until it is dropped.
struct Set<T: Copy + 'static>(&'static std::thread::LocalKey<Cell<T>>, T);

impl<T: Copy + 'static> Set<T> {
    fn new(variable: &'static std::thread::LocalKey<Cell<T>>, value: T) -> Self {
        Self(variable, variable.replace(value))
    }
}

impl<T: Copy + 'static> Drop for Set<T> {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Optimizes a plan. A constant that would make too much is left to the execution.
pub fn planning<T>(optimize: impl FnOnce() -> T) -> T {
    let _set = Set::new(&FOLDABLE, Some(FOLDED_BYTES_MAX));
    optimize()
}

/// Evaluates rows that are evaluated in smaller pieces if [`is_too_much`] says so of the error.
pub fn in_pieces<T>(evaluate: impl FnOnce() -> T) -> T {
    let _set = Set::new(&IN_PIECES, true);
    evaluate()
}

/// Whether an error says that there is not enough memory for what was asked for at once.
pub fn is_too_much(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::ResourcesExhausted(_) => true,
        DataFusionError::Context(_, inner) => is_too_much(inner),
        DataFusionError::Shared(inner) => is_too_much(inner),
        _ => false,
    }
}

/// Bytes of a statement's budget; dropped, they are given back.
struct Charge {
    running: Option<Arc<dyn Running>>,
    bytes: usize,
}

impl Charge {
    fn try_grow(&mut self, bytes: usize) -> Result<()> {
        if let Some(running) = &self.running {
            let grown = running.try_grow(bytes as u64);
            grown.map_err(|error| DataFusionError::ResourcesExhausted(error.to_string()))?;
        }
        self.bytes += bytes;
        Ok(())
    }

    fn shrink(&mut self, bytes: usize) {
        assert!(
            bytes <= self.bytes,
            "{bytes} bytes are given back, of {} that were taken",
            self.bytes
        );
        if let Some(running) = &self.running {
            running.shrink(bytes as u64);
        }
        self.bytes -= bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// What one call makes.
pub struct Growth {
    charge: Charge,
    /// What it has asked for, and has.
    asked: usize,
    /// What it makes without asking.
    free: usize,
    /// Reserved or free, and not yet made.
    left: usize,
    /// Worked since somebody was asked whether to stop.
    worked: usize,
}

impl Growth {
    /// A call begins.
    pub fn new() -> Self {
        let free = FOLDABLE.get().unwrap_or(FREE_BYTES).min(FREE_BYTES);
        Self {
            charge: Charge {
                running: None,
                bytes: 0,
            },
            asked: 0,
            free,
            left: free,
            worked: 0,
        }
    }

    /// So many bytes are about to be made.
    ///
    /// # Errors
    /// There is no memory for them, or the statement must stop.
    #[inline]
    pub fn make(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.ask(bytes),
        }
    }

    /// A value of so many bytes is about to be made.
    ///
    /// # Errors
    /// No value has so many; and as [`Self::make`].
    #[inline]
    pub fn value(&mut self, bytes: usize) -> Result<()> {
        self.check_value(bytes)?;
        self.make(bytes)
    }

    /// Whether a value may have so many bytes.
    ///
    /// # Errors
    /// None has so many.
    #[inline]
    pub fn check_value(&self, bytes: usize) -> Result<()> {
        match bytes > VALUE_BYTES_MAX {
            true => Err(too_long()),
            false => Ok(()),
        }
    }

    /// So many bytes are about to be looked at.
    ///
    /// # Errors
    /// The statement must stop.
    #[inline]
    pub fn work(&mut self, bytes: usize) -> Result<()> {
        self.worked = self.worked.saturating_add(bytes);
        match self.worked < STEP_BYTES {
            true => Ok(()),
            false => {
                self.worked = 0;
                go_on()
            }
        }
    }

    #[cold]
    fn ask(&mut self, bytes: usize) -> Result<()> {
        go_on()?;
        if FOLDABLE.get().is_some() {
            return Err(too_much("a constant of a plan would have", bytes));
        }
        let more = (bytes - self.left)
            .checked_next_multiple_of(STEP_BYTES)
            .ok_or_else(too_long)?;
        let mut charged = more;
        if self.charge.bytes == 0 {
            self.charge.running = running();
            // What was free is counted with the rest.
            charged = charged.saturating_add(FREE_BYTES);
        }
        self.charge_more(charged)?;
        self.left = self.left + more - bytes;
        Ok(())
    }

    fn charge_more(&mut self, more: usize) -> Result<()> {
        let all = self.asked.saturating_add(more);
        if IN_PIECES.get() && all > PIECE_BYTES_MAX + FREE_BYTES {
            return Err(too_much("rows that come together would have", all));
        }
        if self.charge.running.is_none() && all > ALONE_BYTES_MAX {
            return Err(too_much("a function outside of statements would make", all));
        }
        let charged = with_copies(all).saturating_sub(self.charge.bytes);
        self.charge.try_grow(charged)?;
        self.asked = all;
        Ok(())
    }

    /// The result, which is counted from now on as long as it is there.
    ///
    /// # Errors
    /// It is larger than was said, and there is no memory for it.
    pub fn keep(mut self, array: ArrayRef) -> Result<ArrayRef> {
        if self.charge.bytes == 0 && array.get_buffer_memory_size() <= FREE_BYTES {
            return Ok(array);
        }
        let bytes = bytes_of(array.as_ref());
        if self.charge.bytes == 0 {
            if bytes <= FREE_BYTES {
                return Ok(array);
            }
            // It was made already, so that it must be counted, or given up.
            self.left = 0;
            self.make(bytes)?;
        }
        let mut charge = std::mem::replace(
            &mut self.charge,
            Charge {
                running: None,
                bytes: 0,
            },
        );
        let due = with_copies(bytes);
        match charge.bytes.checked_sub(due) {
            Some(spare) => charge.shrink(spare),
            None => charge.try_grow(due - charge.bytes)?,
        }
        let kept = make_array(charged(array.to_data(), &Arc::new(charge))?);
        assert_eq!(
            kept.len(),
            array.len(),
            "a result that is counted has its rows"
        );
        Ok(kept)
    }

    /// The result of a call whose arguments were all constant, or not.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub fn finish(self, result: ArrayRef, is_constant: bool) -> Result<ColumnarValue> {
        if is_constant {
            assert_eq!(result.len(), 1, "a call of constants has one value");
            check_constant(result.as_ref())?;
            let value = ScalarValue::try_from_array(&result, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        self.keep(result).map(ColumnarValue::Array)
    }
}

/// What a result of so many bytes is charged. An operator that gathers rows copies them before it counts
/// them, all of a batch at once, and once more where it writes what it has gathered to a file: where a
/// batch is large, its copies have been asked for with it.
fn with_copies(bytes: usize) -> usize {
    let large = bytes.saturating_sub(PIECE_BYTES_MAX);
    bytes.saturating_add(large.saturating_mul(COPIES))
}

/// How often what a function makes may be copied before anybody asks for it.
const COPIES: usize = 2;

/// Bytes that a call outside of statements may make. Those are the tests' and the node's own.
const ALONE_BYTES_MAX: usize = 256 << 20;

impl Default for Growth {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        if let Some(foldable) = FOLDABLE.get() {
            let made = self.free.saturating_sub(self.left);
            FOLDABLE.set(Some(foldable.saturating_sub(made)));
        }
    }
}

/// An argument's value for each row. Of texts rows share one; an array is copied for each.
///
/// # Errors
/// There is no memory for that.
pub fn for_each_row(
    argument: &ColumnarValue,
    rows: usize,
    growth: &mut Growth,
) -> Result<ArrayRef> {
    if let ColumnarValue::Scalar(value) = argument {
        let ty = value.data_type();
        let is_copied = ty.is_nested() || matches!(ty, DataType::Utf8 | DataType::LargeUtf8);
        let bytes = value.size().saturating_sub(size_of::<ScalarValue>());
        growth.make(if is_copied {
            bytes.saturating_mul(rows)
        } else {
            0
        })?;
    }
    let array = argument.to_array(rows)?;
    assert_eq!(array.len(), rows, "an argument has a value for each row");
    Ok(array)
}

/// Whether the statement may go on.
///
/// # Errors
/// Why not.
pub fn go_on() -> Result<()> {
    let stopped = RUNNING.with_borrow(|running| running.as_ref()?.stopped());
    match stopped {
        Some(error) => Err(external(error)),
        None => Ok(()),
    }
}

/// How often a value's bytes are there while an array is made of many: gathered, and in a buffer that
/// doubles.
const GATHERED_TIMES: usize = 3;

/// A value of so many bytes has been made, and will be copied before the poll ends.
///
/// # Errors
/// There is no memory for that, or the statement must stop.
pub(crate) fn gathered(bytes: usize) -> Result<()> {
    let mut poll = POLL.get();
    poll.unasked = poll.unasked.saturating_add(bytes);
    if poll.unasked < STEP_BYTES {
        POLL.set(poll);
        return worked(bytes);
    }
    let due = std::mem::take(&mut poll.unasked).saturating_mul(GATHERED_TIMES) as u64;
    go_on()?;
    if let Some(running) = running() {
        let grown = running.try_grow(due);
        grown.map_err(|error| DataFusionError::ResourcesExhausted(error.to_string()))?;
        poll.charged += due;
    }
    POLL.set(poll);
    Ok(())
}

/// So many bytes have been looked at, by what has no [`Growth`] of its own.
///
/// # Errors
/// The statement must stop.
pub(crate) fn worked(bytes: usize) -> Result<()> {
    let mut poll = POLL.get();
    poll.worked = poll.worked.saturating_add(bytes);
    let is_due = poll.worked >= STEP_BYTES;
    if is_due {
        poll.worked = 0;
    }
    POLL.set(poll);
    match is_due {
        true => go_on(),
        false => Ok(()),
    }
}

fn too_much(what: &str, bytes: usize) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("{what} {bytes} bytes"))
}

/// PostgreSQL's error for a text that no value can hold.
pub(crate) fn too_long() -> DataFusionError {
    let error = SqlError::new(
        ErrorKind::ProgramLimitExceeded,
        "requested length too large",
    );
    external(error.with_detail(format!("A value has at most {VALUE_BYTES_MAX} bytes.")))
}

/// Whether a value may be a constant of a plan, where it is computed for one. Expressions have names that
/// write their constants out, with each item of a list, so that a text that its items share counts as often
/// as they are.
///
/// # Errors
/// It is left to the execution.
pub(crate) fn check_constant(value: &dyn Array) -> Result<()> {
    if FOLDABLE.get().is_none() {
        return Ok(());
    }
    match bytes_of(value) {
        bytes if bytes > FOLDED_BYTES_MAX => {
            Err(too_much("a constant of a plan would be written in", bytes))
        }
        _ => Ok(()),
    }
}

/// Bytes of an array's own rows. Buffers may be shared with other arrays, or be larger.
pub fn bytes_of(array: &dyn Array) -> usize {
    let views = |views: &[u128]| {
        // A view begins with its length.
        let lengths = views.iter().map(|view| *view as u32 as usize);
        lengths.sum::<usize>() + size_of_val(views)
    };
    match array.data_type() {
        DataType::Utf8View => views(array.as_string_view().views()),
        DataType::BinaryView => views(array.as_binary_view().views()),
        DataType::Utf8 => {
            let offsets = array.as_string::<i32>().value_offsets();
            span(offsets) + size_of_val(offsets)
        }
        DataType::Binary => {
            let offsets = array.as_binary::<i32>().value_offsets();
            span(offsets) + size_of_val(offsets)
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            let first = offsets.first().map_or(0, |first| *first as usize);
            let items = lists.values().slice(first, span(offsets));
            bytes_of(items.as_ref()) + size_of_val(offsets)
        }
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.map(|column| bytes_of(column.as_ref())).sum()
        }
        other => match other.primitive_width() {
            Some(width) => width * array.len(),
            None => array.get_buffer_memory_size(),
        },
    }
}

fn span(offsets: &[i32]) -> usize {
    match offsets {
        [first, .., last] => (last - first) as usize,
        _ => 0,
    }
}

/// Bytes that an array's buffers have, or fewer if they are shared: quick for small ones, exact
/// for others.
pub(crate) fn size_of_argument(array: &dyn Array) -> usize {
    match array.get_buffer_memory_size() {
        small if small <= FREE_BYTES / 8 => small,
        _ => bytes_of(array),
    }
}

/// A buffer, and what it is charged.
struct Charged {
    buffer: Buffer,
    _charge: Arc<Charge>,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

fn charged(data: ArrayData, charge: &Arc<Charge>) -> Result<ArrayData> {
    let buffers = data.buffers().iter().map(|buffer| {
        if buffer.len() < CHARGED_BYTES_MIN {
            return buffer.clone();
        }
        Buffer::from(Bytes::from_owner(Charged {
            buffer: buffer.clone(),
            _charge: Arc::clone(charge),
        }))
    });
    let buffers = buffers.collect();
    let children = data.child_data().iter();
    let children = children.map(|child| charged(child.clone(), charge));
    let children = children.collect::<Result<Vec<_>>>()?;
    let builder = data.into_builder().buffers(buffers).child_data(children);
    Ok(builder.build()?)
}

/// Counts what was not made by a function of ours, as long as it is there.
///
/// # Errors
/// There is no memory for it.
pub fn counted(array: ArrayRef) -> Result<ArrayRef> {
    Growth::new().keep(array)
}

#[cfg(test)]
mod tests;
