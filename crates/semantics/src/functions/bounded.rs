//! DataFusion's functions that can make more bytes than they are given, or that can work for
//! minutes: a law computes from the lengths of the arguments what a call will make, and that is
//! reserved before DataFusion makes it.
//!
//! Every function of DataFusion's is in [`LAWS`], among those that make no texts and arrays
//! ([`SMALL`]), or not available at all ([`REMOVED`]); a test walks the registry.

use std::sync::Arc;

use aerostat_types::{ErrorKind, VALUE_BYTES_MAX};
use arrow::{
    array::{Array, ArrayRef, AsArray, StringViewArray},
    compute::cast,
    datatypes::{DataType, Field},
};
use datafusion::{
    common::{Result, ScalarValue},
    execution::FunctionRegistry,
    logical_expr::{
        ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
};

use super::lists::item_type;
use crate::growth::{self, Growth, bytes_of};
use crate::raise;

/// How many bytes a call makes.
#[derive(Clone, Copy)]
enum Law {
    /// So many times those that it is given, working memory included, and some for each row.
    Times(usize),
    /// Those of each row's value, at most, by the row.
    Value(fn(&Arguments, usize) -> Option<usize>),
    /// A list of each row: bytes of its items, by the row.
    List(fn(&Arguments, usize) -> Option<usize>),
    /// None, but work on arguments that may have so many bytes at most.
    Work(usize),
    /// None, but constant arrays that are repeated for each row.
    Repeats,
}

/// Bytes that a row takes beside its value.
const ROW_BYTES: usize = 32;

/// PostgreSQL's limit for `levenshtein`, whose work is the product of the lengths.
const COMPARED_BYTES_MAX: usize = 255;

const LAWS: &[(&str, Law)] = &[
    ("initcap", Law::Times(3)),
    ("btrim", Law::Times(1)),
    ("ltrim", Law::Times(1)),
    ("rtrim", Law::Times(1)),
    ("left", Law::Times(1)),
    ("right", Law::Times(1)),
    ("substr_index", Law::Times(1)),
    ("overlay", Law::Times(2)),
    ("decode", Law::Times(2)),
    ("levenshtein", Law::Work(COMPARED_BYTES_MAX)),
    ("array_any_value", Law::Repeats),
    ("array_avg", Law::Repeats),
    ("array_distance", Law::Repeats),
    ("array_element", Law::Repeats),
    ("array_has", Law::Repeats),
    ("array_has_all", Law::Repeats),
    ("array_has_any", Law::Repeats),
    ("array_length", Law::Repeats),
    ("array_max", Law::Repeats),
    ("array_min", Law::Repeats),
    ("array_product", Law::Repeats),
    ("array_sum", Law::Repeats),
    ("cosine_distance", Law::Repeats),
    ("empty", Law::Repeats),
    ("inner_product", Law::Repeats),
    ("array_to_string", Law::Value(joined)),
    ("string_to_array", Law::List(parts)),
    // Growing by doubling.
    ("array_append", Law::Times(3)),
    ("array_prepend", Law::Times(3)),
    ("array_concat", Law::Times(3)),
    ("array_slice", Law::Times(3)),
    ("array_pop_back", Law::Times(3)),
    ("array_pop_front", Law::Times(3)),
    ("array_remove_n", Law::Times(3)),
    ("array_remove_all", Law::Times(3)),
    ("array_replace_n", Law::Times(4)),
    ("array_replace_all", Law::Times(4)),
    ("array_reverse", Law::Times(3)),
    ("array_compact", Law::Times(3)),
    ("arrays_zip", Law::Times(4)),
    ("flatten", Law::Times(3)),
    ("make_array", Law::Times(3)),
    ("array_add", Law::Times(4)),
    ("array_subtract", Law::Times(4)),
    ("array_scale", Law::Times(4)),
    ("array_normalize", Law::Times(4)),
    // With the rows that items are compared by.
    ("array_sort", Law::Times(5)),
    ("array_distinct", Law::Times(6)),
    ("array_except", Law::Times(6)),
    ("array_intersect", Law::Times(6)),
    ("array_union", Law::Times(6)),
    ("map", Law::Times(4)),
    ("map_entries", Law::Times(2)),
    ("map_extract", Law::Times(2)),
    ("map_keys", Law::Times(2)),
    ("map_values", Law::Times(2)),
    ("named_struct", Law::Times(2)),
    ("struct", Law::Times(2)),
];

/// Functions that PostgreSQL does not have, whose results have no bound, or a type that no
/// client can be told.
const REMOVED: &[&str] = &[
    "array_repeat",
    "array_resize",
    "arrow_cast",
    "arrow_try_cast",
    "cast_to_type",
    "range",
    "try_cast_to_type",
    "with_metadata",
];

/// Functions of numbers, times and truths, and texts and arrays that are no longer than what they
/// are given.
#[cfg(test)]
const SMALL: &[&str] = &[
    "abs",
    "arrow_field",
    "arrow_metadata",
    "arrow_typeof",
    "ascii",
    "asinh",
    "atan",
    "atan2",
    "bit_length",
    "cbrt",
    "ceil",
    "contains",
    "cos",
    "cosh",
    "cot",
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "degrees",
    "digest",
    "ends_with",
    "exp",
    "factorial",
    "file_row_index",
    "find_in_set",
    "floor",
    "from_unixtime",
    "get_field",
    "input_file_name",
    "isnan",
    "iszero",
    "ln",
    "log",
    "log10",
    "log2",
    "make_date",
    "make_time",
    "md5",
    "nanvl",
    "now",
    "nullif",
    "nvl",
    "nvl2",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "strpos",
    "tan",
    "tanh",
    "to_local_time",
    "to_time",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
    "trunc",
    "union_extract",
    "union_tag",
    "uuid",
    "version",
];

/// Puts the laws before DataFusion's functions.
///
/// # Errors
/// The registry takes no functions.
pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in REMOVED {
        registry.deregister_udf(name)?;
    }
    for (name, _) in LAWS {
        let bounded = bounded(registry.udf(name)?);
        registry.register_udf(bounded)?;
    }
    Ok(())
}

/// A function of DataFusion's with its law.
pub(crate) fn bounded(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Bounded { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments).map(as_views)
    }

    fn return_field_from_args(
        &self,
        arguments: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let field = self.inner.return_field_from_args(arguments)?;
        let ty = as_views(field.data_type().clone());
        Ok(match ty == *field.data_type() {
            true => field,
            false => Arc::new(Field::clone(&field).with_data_type(ty)),
        })
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, context)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut growth = Growth::new();
        let law = LAWS.iter().find(|(name, _)| *name == self.name());
        if let Some((_, law)) = law {
            if let Some(texts) = self.in_pieces(*law, &arguments, &mut growth)? {
                return growth.keep(texts).map(ColumnarValue::Array);
            }
            reserve(*law, &arguments, &mut growth)?;
        }
        match self.made(arguments)? {
            ColumnarValue::Array(array) => {
                check_lengths(&array)?;
                growth.keep(array).map(ColumnarValue::Array)
            }
            ColumnarValue::Scalar(value) => {
                let array = value.to_array()?;
                check_lengths(&array)?;
                growth::check_constant(array.as_ref())?;
                Ok(ColumnarValue::Scalar(value))
            }
        }
    }
}

/// Bytes of texts that are worked on between two looks at whether to stop.
const PIECE_BYTES: usize = 4 << 20;

/// The type of texts everywhere but of literals, which have none yet: of these some functions would make
/// others.
fn as_views(ty: DataType) -> DataType {
    match ty {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        other => other,
    }
}

impl Bounded {
    /// What the function makes, in the form that it has here.
    fn made(&self, mut call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let wanted = call.return_field.data_type().clone();
        if wanted != DataType::Utf8View {
            return self.inner.invoke_with_args(call);
        }
        let given: Vec<DataType> = call.args.iter().map(ColumnarValue::data_type).collect();
        let own = self.inner.return_type(&given).unwrap_or(wanted);
        if own != DataType::Utf8View && as_views(own.clone()) == DataType::Utf8View {
            call.return_field = Arc::new(Field::clone(&call.return_field).with_data_type(own));
        }
        let made = self.inner.invoke_with_args(call)?;
        match as_views(made.data_type()) == made.data_type() {
            true => Ok(made),
            false => made.cast_to(&DataType::Utf8View, None),
        }
    }

    /// The texts that it makes of long ones, a few rows at once; nothing where all can be had at once.
    fn in_pieces(
        &self,
        law: Law,
        call: &ScalarFunctionArgs,
        growth: &mut Growth,
    ) -> Result<Option<ArrayRef>> {
        if *call.return_field.data_type() != DataType::Utf8View || !matches!(law, Law::Times(_)) {
            return Ok(None);
        }
        let arrays = call.args.iter().filter_map(|argument| match argument {
            ColumnarValue::Array(array) => Some(bytes_of(array.as_ref())),
            ColumnarValue::Scalar(_) => None,
        });
        let given = arrays.fold(0, usize::saturating_add);
        let rows = call.number_rows;
        if given <= PIECE_BYTES || rows < 2 {
            return Ok(None);
        }
        let many = (given / PIECE_BYTES).clamp(2, rows);
        let each = rows.div_ceil(many);
        let mut pieces = Vec::with_capacity(many);
        for from in (0..rows).step_by(each) {
            growth::go_on()?;
            let piece = slice(call, from, each.min(rows - from));
            reserve(law, &piece, growth)?;
            let (made, rows) = (piece.number_rows, self.inner.invoke_with_args(piece)?);
            pieces.push(rows.into_array(made)?);
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        let texts = arrow::compute::concat(&pieces)?;
        assert_eq!(texts.len(), rows, "the pieces have all rows between them");
        check_lengths(&texts)?;
        Ok(Some(texts))
    }
}

fn slice(call: &ScalarFunctionArgs, from: usize, rows: usize) -> ScalarFunctionArgs {
    let args = call.args.iter().map(|argument| match argument {
        ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
        constant => constant.clone(),
    });
    ScalarFunctionArgs {
        args: args.collect(),
        arg_fields: call.arg_fields.clone(),
        number_rows: rows,
        return_field: Arc::clone(&call.return_field),
        config_options: Arc::clone(&call.config_options),
    }
}

/// Refuses texts that no value can hold, where their lengths are not known before.
fn check_lengths(array: &ArrayRef) -> Result<()> {
    let Some(texts) = array.as_string_view_opt() else {
        return Ok(());
    };
    match texts
        .views()
        .iter()
        .any(|view| *view as u32 as usize > VALUE_BYTES_MAX)
    {
        true => Err(growth::too_long()),
        false => Ok(()),
    }
}

fn reserve(law: Law, call: &ScalarFunctionArgs, growth: &mut Growth) -> Result<()> {
    let constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
    let rows = match call.args.iter().all(constant) {
        true => 1,
        false => call.number_rows,
    };
    match law {
        Law::Times(times) => {
            let mut given = 0usize;
            for argument in &call.args {
                given = given.saturating_add(match argument {
                    ColumnarValue::Array(array) => growth::size_of_argument(array.as_ref()),
                    ColumnarValue::Scalar(value) => repeated(value, rows)?,
                });
            }
            growth.make(given.saturating_mul(times).saturating_add(rows * ROW_BYTES))
        }
        Law::Repeats => {
            for argument in &call.args {
                if let ColumnarValue::Scalar(value) = argument {
                    growth.make(repeated(value, rows)?)?;
                }
            }
            growth::go_on()
        }
        Law::Value(bytes) | Law::List(bytes) => {
            let arguments = Arguments::of(call)?;
            for row in 0..rows {
                let bytes = bytes(&arguments, row).unwrap_or(0);
                match law {
                    Law::Value(_) => growth.value(bytes)?,
                    _ => growth.make(bytes)?,
                }
            }
            growth.make(rows * ROW_BYTES)
        }
        Law::Work(most) => {
            let arguments = Arguments::of(call)?;
            let is_too_long = |at: usize, row: usize| {
                arguments
                    .text(at, row)
                    .is_some_and(|text| text.len() > most)
            };
            if (0..rows).any(|row| is_too_long(0, row) || is_too_long(1, row)) {
                let message = format!("argument exceeds maximum length of {most} characters");
                return Err(raise(ErrorKind::InvalidParameterValue, message));
            }
            growth::go_on()
        }
    }
}

/// Bytes of a constant that DataFusion may make a column of so many rows of.
fn repeated(value: &ScalarValue, rows: usize) -> Result<usize> {
    let bytes = bytes_of(value.to_array()?.as_ref());
    Ok(match value.data_type() {
        DataType::List(_) => bytes.saturating_mul(rows),
        _ => bytes + 16 * rows,
    })
}

/// The arguments of a call by row: a constant has one.
struct Arguments(Vec<(ArrayRef, bool)>);

impl Arguments {
    fn of(call: &ScalarFunctionArgs) -> Result<Self> {
        let arguments = call.args.iter().map(|argument| {
            let (array, is_constant) = match argument {
                ColumnarValue::Array(array) => (Arc::clone(array), false),
                ColumnarValue::Scalar(value) => (value.to_array()?, true),
            };
            let plain = match array.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 => cast(&array, &DataType::Utf8View)?,
                _ => array,
            };
            Ok((plain, is_constant))
        });
        Ok(Self(arguments.collect::<Result<_>>()?))
    }

    fn at(&self, at: usize, row: usize) -> Option<(&ArrayRef, usize)> {
        let (array, is_constant) = self.0.get(at)?;
        let row = if *is_constant { 0 } else { row };
        array.is_valid(row).then_some((array, row))
    }

    fn text(&self, at: usize, row: usize) -> Option<&str> {
        let (array, row) = self.at(at, row)?;
        Some(array.as_string_view_opt()?.value(row))
    }
}

/// Bytes of a number or time as a text, at most.
const SHORT_TEXT_BYTES: usize = 48;

fn joined(args: &Arguments, row: usize) -> Option<usize> {
    let (lists, row_of_list) = args.at(0, row)?;
    let items = lists.as_list_opt::<i32>()?.value(row_of_list);
    let separator = args.text(1, row)?.len();
    let absent = args.text(2, row).map_or(0, str::len);
    let texts = match item_type(lists.data_type())? {
        DataType::Utf8View => texts_of(items.as_string_view()),
        DataType::Utf8 => bytes_of(items.as_ref()),
        _ => items.len().saturating_mul(SHORT_TEXT_BYTES),
    };
    let separators = separator.saturating_mul(items.len().saturating_sub(1));
    let absent = absent.saturating_mul(items.null_count());
    Some(texts.saturating_add(separators).saturating_add(absent))
}

fn texts_of(texts: &StringViewArray) -> usize {
    texts.views().iter().map(|view| *view as u32 as usize).sum()
}

/// Bytes that an item of a list of texts takes beside its text.
const ITEM_BYTES: usize = 20;

fn parts(args: &Arguments, row: usize) -> Option<usize> {
    let text = args.text(0, row)?;
    let items = match args.text(1, row) {
        None => text.len(),
        Some("") => 1,
        Some(delimiter) => text.matches(delimiter).count() + 1,
    };
    // The builder doubles, and its texts become views.
    Some(
        items
            .saturating_mul(2 * ITEM_BYTES)
            .saturating_add(2 * text.len()),
    )
}

#[cfg(test)]
mod tests {
    use datafusion::execution::session_state::SessionStateBuilder;

    use super::{LAWS, REMOVED, SMALL};

    #[test]
    fn every_function_of_datafusions_has_a_law() {
        let own = SessionStateBuilder::new_with_default_features().build();
        let mut state = own.clone();
        crate::register(&mut state);
        for (name, function) in own.scalar_functions() {
            let Some(now) = state.scalar_functions().get(name) else {
                // Its other names go with it where ours has its place.
                let is_alias = name != function.name();
                let is_replaced =
                    is_alias && state.scalar_functions().contains_key(function.name());
                let is_meant = is_replaced || REMOVED.contains(&function.name());
                assert!(is_meant, "{name} is not there");
                continue;
            };
            // Ours, or another name of it.
            let is_own = now == function;
            let is_listed = LAWS.iter().any(|(listed, _)| *listed == now.name());
            assert!(!(is_own && is_listed), "{name} is there without its law");
            assert!(
                !is_own || SMALL.contains(&now.name()),
                "{name} may make anything: give it a law"
            );
        }
        for (name, _) in LAWS {
            assert!(
                own.scalar_functions().contains_key(*name),
                "{name} is not there"
            );
        }
    }
}
