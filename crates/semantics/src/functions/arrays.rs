//! Functions of arrays of one dimension. Functions that look for items compare them with
//! PostgreSQL's `IS NOT DISTINCT FROM`, so NULL is found like any other item.

pub(crate) mod quantified;
pub(super) mod rows;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Array, Int32Builder, ListArray, ListBuilder,
    StringViewBuilder, UInt32Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
};

use super::common_type::common_type;
use super::lists::{item_type, list_of, missing, several_dimensions};
use crate::growth::{Growth, for_each_row, size_of_argument};
use crate::raise;
use rows::Items;

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions: Vec<_> = Kind::ALL.iter().map(|kind| of(*kind)).collect();
    functions.push(quantified::function());
    functions
}

fn of(kind: Kind) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Function {
        kind,
        aliases: kind
            .aliases()
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// A call of the function, as an operator means it.
pub(crate) fn call(kind: Kind, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(of(kind), args))
}

/// One function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// `a[n]`
    At,
    /// `a @> b`
    Contains,
    /// `a && b`
    Overlaps,
    /// Whether `a < b`: less than 0, 0 or more.
    Order,
    Remove,
    Replace,
    Position,
    Positions,
    Cardinality,
    Dimensions,
    Bounds,
    Subscripts,
    Trim,
    Fill,
}

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq)]
enum Parameter {
    /// An array; all of them have one type of items.
    Array,
    /// An item of it.
    Item,
    Integer,
    Integers,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::At,
        Kind::Contains,
        Kind::Overlaps,
        Kind::Order,
        Kind::Remove,
        Kind::Replace,
        Kind::Position,
        Kind::Positions,
        Kind::Cardinality,
        Kind::Dimensions,
        Kind::Bounds,
        Kind::Subscripts,
        Kind::Trim,
        Kind::Fill,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::At => "array_subscript",
            Kind::Contains => "arraycontains",
            Kind::Overlaps => "arrayoverlap",
            Kind::Order => "btarraycmp",
            Kind::Remove => "array_remove",
            Kind::Replace => "array_replace",
            Kind::Position => "array_position",
            Kind::Positions => "array_positions",
            Kind::Cardinality => "cardinality",
            Kind::Dimensions => "array_ndims",
            Kind::Bounds => "array_dims",
            Kind::Subscripts => "array_subscripts",
            Kind::Trim => "trim_array",
            Kind::Fill => "array_fill",
        }
    }

    /// DataFusion's other names of what a function stands in the place of.
    fn aliases(self) -> &'static [&'static str] {
        match self {
            Kind::Remove => &["list_remove"],
            Kind::Replace => &["list_replace"],
            Kind::Position => &["list_position", "array_indexof", "list_indexof"],
            Kind::Positions => &["list_positions"],
            Kind::Dimensions => &["list_ndims"],
            Kind::Bounds => &["list_dims"],
            _ => &[],
        }
    }

    /// The parameters, and how many of the last ones may be left out.
    fn parameters(self) -> (&'static [Parameter], usize) {
        use Parameter::{Array, Integer, Integers, Item};
        match self {
            Kind::At | Kind::Trim | Kind::Subscripts => (&[Array, Integer], 0),
            Kind::Contains | Kind::Overlaps | Kind::Order => (&[Array, Array], 0),
            Kind::Remove | Kind::Positions => (&[Array, Item], 0),
            Kind::Replace => (&[Array, Item, Item], 0),
            Kind::Position => (&[Array, Item, Integer], 1),
            Kind::Cardinality | Kind::Dimensions | Kind::Bounds => (&[Array], 0),
            Kind::Fill => (&[Item, Integers], 0),
        }
    }

    fn returns(self, item: &DataType) -> DataType {
        match self {
            Kind::At => item.clone(),
            Kind::Contains | Kind::Overlaps => DataType::Boolean,
            Kind::Remove | Kind::Replace | Kind::Trim | Kind::Fill => list_of(item.clone()),
            Kind::Order | Kind::Position | Kind::Cardinality | Kind::Dimensions => DataType::Int32,
            Kind::Positions | Kind::Subscripts => list_of(DataType::Int32),
            Kind::Bounds => DataType::Utf8View,
        }
    }
}

/// The type in which items of two types meet: a string literal takes the other's.
pub(super) fn common_item(a: DataType, b: &DataType) -> Option<DataType> {
    let is_literal = |ty: &DataType| matches!(ty, DataType::Utf8 | DataType::Null);
    if a == *b || is_literal(b) {
        return Some(a);
    }
    if is_literal(&a) {
        return Some(b.clone());
    }
    match (SqlType::of_arrow(&a), SqlType::of_arrow(b)) {
        (Some(x), Some(y)) if x.is_text() && y.is_text() => Some(DataType::Utf8View),
        (Some(SqlType::Numeric { .. }), Some(SqlType::Numeric { .. })) => wider(&a, b),
        (Some(x), Some(y @ SqlType::Numeric { .. }))
        | (Some(y @ SqlType::Numeric { .. }), Some(x))
            if matches!(x, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) =>
        {
            wider(&y.arrow(), &DataType::Decimal128(19, 0))
        }
        (Some(x), Some(y)) => common_type(x, y).map(|common| common.arrow()),
        _ => None,
    }
}

/// A numeric with the digits of both, as far as there is room.
fn wider(a: &DataType, b: &DataType) -> Option<DataType> {
    let (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) = (a, b) else {
        return None;
    };
    let scale = *s.max(t);
    let before = (i16::from(*p) - i16::from(*s)).max(i16::from(*q) - i16::from(*t));
    let precision = (before + i16::from(scale)).clamp(1, 38);
    Some(DataType::Decimal128(precision as u8, scale))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Function {
    kind: Kind,
    aliases: Vec<String>,
    signature: Signature,
}

impl Function {
    /// The arguments' types as the function takes them, and the type of the items.
    fn accepted(&self, arguments: &[DataType]) -> Option<(Vec<DataType>, DataType)> {
        let (parameters, optional) = self.kind.parameters();
        if arguments.len() > parameters.len() || arguments.len() + optional < parameters.len() {
            return None;
        }
        let mut item: Option<DataType> = None;
        for (argument, parameter) in arguments.iter().zip(parameters) {
            let own = match parameter {
                Parameter::Array => match item_type(argument) {
                    Some(own) => own,
                    None if matches!(argument, DataType::Utf8 | DataType::Null) => continue,
                    None => return None,
                },
                Parameter::Item => argument,
                Parameter::Integer | Parameter::Integers => continue,
            };
            item = Some(match item {
                None => own.clone(),
                Some(item) => common_item(item, own)?,
            });
        }
        let item = match item {
            None | Some(DataType::Utf8 | DataType::LargeUtf8) => DataType::Utf8View,
            // There are no arrays of arrays.
            Some(item) if item.is_nested() && self.kind == Kind::Fill => return None,
            Some(item) => item,
        };
        let types = parameters.iter().take(arguments.len());
        let types = types.map(|parameter| match parameter {
            Parameter::Array => list_of(item.clone()),
            Parameter::Item => item.clone(),
            Parameter::Integer => DataType::Int32,
            Parameter::Integers => list_of(DataType::Int32),
        });
        Some((types.collect(), item))
    }
}

/// Refuses arrays as items of an array.
pub(crate) fn refuse_nested(items: &[Expr], schema: &DFSchema) -> Result<()> {
    for item in items {
        if item_type(item.to_field(schema)?.1.data_type()).is_some() {
            return Err(several_dimensions());
        }
    }
    Ok(())
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        // The return type raises the error: here it would lose its kind.
        let accepted = self.accepted(arguments);
        Ok(accepted.map_or_else(|| arguments.to_vec(), |(types, _)| types))
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let (_, item) = self
            .accepted(arguments)
            .ok_or_else(|| missing(self.name(), arguments))?;
        if item_type(&item).is_some() {
            return Err(several_dimensions());
        }
        Ok(self.kind.returns(&item))
    }

    /// What is taken of an array of `char(n)` is one, or an array of them.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|field| field.data_type());
        let result = self.return_type(&types.cloned().collect::<Vec<_>>())?;
        let plain = Field::new(self.name(), result, true);
        let item = args.arg_fields.first().and_then(|of| SqlType::item_of(of));
        Ok(Arc::new(
            match item.and_then(|item| SqlType::of_field(&item)) {
                Some(ty @ SqlType::Char(_)) => match self.kind {
                    Kind::At if ty.arrow() == *plain.data_type() => ty.field(self.name(), true),
                    Kind::Remove | Kind::Trim => ty.of_items(plain),
                    _ => plain,
                },
                _ => plain,
            },
        ))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let all_constant = args.args.iter().all(constant);
        let rows = if all_constant { 1 } else { args.number_rows };
        let mut growth = Growth::new();
        let arrays = args
            .args
            .iter()
            .map(|argument| for_each_row(argument, rows, &mut growth))
            .collect::<Result<Vec<_>>>()?;
        // What items are compared by, and the places of those that are taken.
        let given = arrays.iter().map(|array| size_of_argument(array.as_ref()));
        growth.make(given.sum::<usize>().saturating_mul(WORKING_BYTES))?;
        let result = evaluate(self.kind, &arrays, rows, &mut growth)?;
        assert_eq!(result.len(), rows, "{:?} gives each row a value", self.kind);
        growth.finish(result, all_constant)
    }
}

/// Bytes that a call works with, for each that it is given: the least items have four bytes, and
/// the pair that says which is taken has sixteen.
const WORKING_BYTES: usize = 6;

fn evaluate(kind: Kind, args: &[ArrayRef], rows: usize, growth: &mut Growth) -> Result<ArrayRef> {
    let lists = || args[0].as_list::<i32>();
    let integers = |at: usize| args[at].as_primitive::<Int32Type>();
    Ok(match kind {
        Kind::At => subscript(lists(), integers(1))?,
        Kind::Contains | Kind::Overlaps => meets(lists(), args[1].as_list(), kind, growth)?,
        Kind::Order => order(lists(), args[1].as_list(), growth)?,
        Kind::Remove | Kind::Replace => changed(lists(), &args[1], args.get(2))?,
        Kind::Position => position(lists(), &args[1], args.get(2))?,
        Kind::Positions => positions(lists(), &args[1])?,
        Kind::Cardinality => lengths(lists(), Some),
        Kind::Dimensions => lengths(lists(), |length| (length > 0).then_some(1)),
        Kind::Bounds => bounds(lists()),
        Kind::Subscripts => subscripts(lists(), integers(1)),
        Kind::Trim => trimmed(lists(), integers(1), rows)?,
        Kind::Fill => fill(&args[0], args[1].as_list::<i32>(), growth)?,
    })
}

/// Where a row's items are among all.
fn range(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let offsets = lists.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

fn subscript(lists: &ListArray, at: &Int32Array) -> Result<ArrayRef> {
    let picked = (0..lists.len()).map(|row| {
        let items = range(lists, row);
        let nth = at
            .is_valid(row)
            .then(|| at.value(row))
            .filter(|nth| *nth > 0)?;
        let index = items.start + nth as usize - 1;
        (lists.is_valid(row) && index < items.end).then_some(index as u32)
    });
    let picked: UInt32Array = picked.collect();
    Ok(arrow::compute::take(lists.values(), &picked, None)?)
}

/// Item by item, then the shorter first.
fn order(left: &ListArray, right: &ListArray, growth: &mut Growth) -> Result<ArrayRef> {
    let items = Items::of(&[left.values(), right.values()])?;
    let mut orders = Int32Builder::with_capacity(left.len());
    for row in 0..left.len() {
        if left.is_null(row) || right.is_null(row) {
            orders.append_null();
            continue;
        }
        let (ours, theirs) = (range(left, row), range(right, row));
        growth.work(ours.len().min(theirs.len()))?;
        let mut pairs = ours.clone().zip(theirs.clone());
        let order = pairs
            .find_map(|(a, b)| Some(items.compare((0, a), (1, b))).filter(|order| order.is_ne()))
            .unwrap_or_else(|| ours.len().cmp(&theirs.len()));
        orders.append_value(order as i32);
    }
    Ok(Arc::new(orders.finish()))
}

/// `@>` and `&&`, for which NULLs are not equal.
fn meets(left: &ListArray, right: &ListArray, kind: Kind, growth: &mut Growth) -> Result<ArrayRef> {
    let items = Items::of(&[left.values(), right.values()])?;
    let is_in = |row: usize, at: usize| {
        items.is_valid(1, at)
            && range(left, row)
                .any(|other| items.is_valid(0, other) && items.same((0, other), (1, at)))
    };
    let mut met = BooleanBuilder::with_capacity(left.len());
    for row in 0..left.len() {
        if left.is_null(row) || right.is_null(row) {
            met.append_null();
            continue;
        }
        let overlaps = kind == Kind::Overlaps;
        let mut is_met = !overlaps;
        for at in range(right, row) {
            growth.work(range(left, row).len().saturating_mul(COMPARED_WORK))?;
            if is_in(row, at) == overlaps {
                is_met = overlaps;
                break;
            }
        }
        met.append_value(is_met);
    }
    Ok(Arc::new(met.finish()))
}

/// What a comparison costs, in bytes that are written in the time.
const COMPARED_WORK: usize = 8;

/// The lists without an item, or with another in its place.
fn changed(lists: &ListArray, from: &ArrayRef, to: Option<&ArrayRef>) -> Result<ArrayRef> {
    let items = Items::of(&[lists.values(), from])?;
    let sources: Vec<&dyn Array> = std::iter::once(lists.values())
        .chain(to)
        .map(AsRef::as_ref)
        .collect();
    let (mut picked, mut counts) = (Vec::new(), Vec::with_capacity(lists.len()));
    for row in 0..lists.len() {
        let before = picked.len();
        for at in range(lists, row) {
            match items.same((0, at), (1, row)) {
                false => picked.push((0, at)),
                true if to.is_some() => picked.push((1, row)),
                true => {}
            }
        }
        counts.push(picked.len() - before);
    }
    let values = arrow::compute::interleave(&sources, &picked)?;
    list(lists.value_type(), values, counts, lists.nulls().cloned())
}

fn list(
    item: DataType,
    values: ArrayRef,
    counts: Vec<usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(Arc::new(ListArray::try_new(
        Arc::new(Field::new_list_field(item, true)),
        OffsetBuffer::from_lengths(counts),
        values,
        nulls,
    )?))
}

fn position(lists: &ListArray, sought: &ArrayRef, from: Option<&ArrayRef>) -> Result<ArrayRef> {
    let items = Items::of(&[lists.values(), sought])?;
    let mut found = Int32Builder::with_capacity(lists.len());
    for row in 0..lists.len() {
        let first = match from.map(|from| from.as_primitive::<Int32Type>()) {
            Some(from) if from.is_null(row) => {
                let message = "initial position must not be null";
                return Err(raise(ErrorKind::NullValueNotAllowed, message));
            }
            Some(from) => from.value(row),
            None => 1,
        };
        let own = range(lists, row);
        let skipped = usize::try_from(first - 1).unwrap_or(0);
        let at = own
            .clone()
            .skip(skipped)
            .find(|at| items.same((0, *at), (1, row)));
        let at = at.filter(|_| lists.is_valid(row));
        found.append_option(at.map(|at| (at - own.start + 1) as i32));
    }
    Ok(Arc::new(found.finish()))
}

fn positions(lists: &ListArray, sought: &ArrayRef) -> Result<ArrayRef> {
    let items = Items::of(&[lists.values(), sought])?;
    let mut found = ListBuilder::new(Int32Builder::new());
    for row in 0..lists.len() {
        for (nth, at) in range(lists, row).enumerate() {
            if items.same((0, at), (1, row)) {
                found.values().append_value(nth as i32 + 1);
            }
        }
        found.append(lists.is_valid(row));
    }
    Ok(Arc::new(found.finish()))
}

fn lengths(lists: &ListArray, of: impl Fn(i32) -> Option<i32>) -> ArrayRef {
    let lengths = (0..lists.len()).map(|row| match lists.is_valid(row) {
        true => of(lists.value_length(row)),
        false => None,
    });
    Arc::new(lengths.collect::<Int32Array>())
}

fn bounds(lists: &ListArray) -> ArrayRef {
    let mut texts = StringViewBuilder::with_capacity(lists.len());
    for row in 0..lists.len() {
        let length = lists.value_length(row);
        let text = (lists.is_valid(row) && length > 0).then(|| format!("[1:{length}]"));
        texts.append_option(text);
    }
    Arc::new(texts.finish())
}

fn subscripts(lists: &ListArray, dimensions: &Int32Array) -> ArrayRef {
    let mut found = ListBuilder::new(Int32Builder::new());
    for row in 0..lists.len() {
        let is_valid = lists.is_valid(row) && dimensions.is_valid(row);
        if is_valid && dimensions.value(row) == 1 {
            for nth in 1..=lists.value_length(row) {
                found.values().append_value(nth);
            }
        }
        found.append(is_valid);
    }
    Arc::new(found.finish())
}

fn trimmed(lists: &ListArray, cut: &Int32Array, rows: usize) -> Result<ArrayRef> {
    let (mut picked, mut counts, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        let is_valid = lists.is_valid(row) && cut.is_valid(row);
        valid.push(is_valid);
        let before = picked.len();
        if is_valid {
            let (own, cut) = (range(lists, row), cut.value(row));
            let kept = usize::try_from(cut)
                .ok()
                .and_then(|cut| own.len().checked_sub(cut));
            let Some(kept) = kept else {
                let message = format!(
                    "number of elements to trim must be between 0 and {}",
                    own.len()
                );
                return Err(raise(ErrorKind::ArraySubscriptError, message));
            };
            picked.extend(own.take(kept).map(|at| at as u32));
        }
        counts.push(picked.len() - before);
    }
    let values = arrow::compute::take(lists.values(), &UInt32Array::from(picked), None)?;
    list(lists.value_type(), values, counts, Some(valid.into()))
}

/// Bytes of a text in a list that it is repeated in.
const VIEW_BYTES: usize = 16;

/// Items of one call that `array_fill` makes at most.
const FILLED_MAX: usize = 1 << 24;

fn fill(items: &ArrayRef, dimensions: &ListArray, growth: &mut Growth) -> Result<ArrayRef> {
    let width = items.data_type().primitive_width().unwrap_or(VIEW_BYTES);
    let (mut picked, mut counts, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..items.len() {
        let lengths = dimensions.value(row);
        let lengths = lengths.as_primitive::<Int32Type>();
        let is_valid = dimensions.is_valid(row);
        let count = match (is_valid, lengths.len()) {
            (false, _) | (_, 0) => 0,
            (_, 1) if lengths.is_valid(0) => usize::try_from(lengths.value(0)).unwrap_or(0),
            (_, 1) => {
                let message = "dimension values cannot be null";
                return Err(raise(ErrorKind::NullValueNotAllowed, message));
            }
            _ => {
                return Err(several_dimensions());
            }
        };
        if picked.len() + count > FILLED_MAX {
            let message = "array size exceeds the maximum allowed";
            return Err(raise(ErrorKind::ProgramLimitExceeded, message));
        }
        // The place, in a list that doubles, and the item.
        growth.make(count.saturating_mul(2 * size_of::<u32>() + width))?;
        picked.extend(std::iter::repeat_n(row as u32, count));
        counts.push(count);
        valid.push(is_valid);
    }
    let values = arrow::compute::take(items, &UInt32Array::from(picked), None)?;
    list(
        items.data_type().clone(),
        values,
        counts,
        Some(valid.into()),
    )
}
