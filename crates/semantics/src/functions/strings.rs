//! Text functions that DataFusion lacks or implements differently.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType, quote_ident};
use arrow::array::{Array, ArrayRef, AsArray, BinaryViewBuilder, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};

use super::backslash::with_backslash;
use super::cast::{filled, output_text};
use super::overload::{Call, Overload, Returns, function};
use super::regexp::Patterns;
use super::texts::{Texts, extend};
use crate::growth::{Growth, bytes_of, for_each_row, worked};
use crate::raise;

const TEXT: Returns = Returns::Type(SqlType::Text);
const BYTEA: Returns = Returns::Type(SqlType::Bytea);
const INTEGER: Returns = Returns::Type(SqlType::Integer);

/// `substring`, also behind `substring(x from y for z)`.
pub(crate) fn substring_function() -> Arc<ScalarUDF> {
    function("substr", &["substring"], Volatility::Immutable, SUBSTRING)
}

/// PostgreSQL's `like_escape`: a LIKE pattern with the backslash for its escape.
pub(crate) fn like_escape() -> Arc<ScalarUDF> {
    function("like_escape", &[], Volatility::Immutable, LIKE_ESCAPE)
}

/// The text of a `char(n)` with the blanks that fill it up to the second argument.
pub(crate) fn with_blanks() -> Arc<ScalarUDF> {
    function("with_blanks", &[], Volatility::Immutable, WITH_BLANKS)
}

/// `starts_with`, also the operator `^@`.
pub(crate) fn starts_with() -> Arc<ScalarUDF> {
    function("starts_with", &[], Volatility::Immutable, STARTS_WITH)
}

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, aliases: &[&str], overloads| {
        function(name, aliases, Volatility::Immutable, overloads)
    };
    vec![
        substring_function(),
        starts_with(),
        immutable("length", &[], LENGTH),
        immutable("char_length", &["character_length"], CHAR_LENGTH),
        immutable("octet_length", &[], OCTET_LENGTH),
        immutable("bit_length", &[], BIT_LENGTH),
        immutable("chr", &[], CHR),
        immutable("split_part", &[], SPLIT_PART),
        like_escape(),
        immutable("quote_ident", &[], QUOTE_IDENT),
        immutable("quote_literal", &[], QUOTE_LITERAL),
        immutable("quote_nullable", &[], QUOTE_NULLABLE),
        Arc::new(ScalarUDF::new_from_impl(Variadic::new(
            "concat",
            StringFunction::Concat,
        ))),
        Arc::new(ScalarUDF::new_from_impl(Variadic::new(
            "concat_ws",
            StringFunction::ConcatWs,
        ))),
        Arc::new(ScalarUDF::new_from_impl(Variadic::new(
            "format",
            StringFunction::Format,
        ))),
    ]
}

/// Applies `f` to each row whose arguments are all there.
fn rows(call: &Call, mut f: impl FnMut(usize) -> Result<Option<String>>) -> Result<ArrayRef> {
    let mut texts = Texts::of(call.rows);
    let given = call.args.iter().filter_map(|arg| arg.as_string_view_opt());
    let given: Vec<_> = given.map(|texts| texts.views()).collect();
    for row in 0..call.rows {
        let is_null = call.args.iter().any(|arg| arg.is_null(row));
        // A view begins with its length.
        worked(given.iter().map(|views| views[row] as u32 as usize).sum())?;
        texts.push(if is_null { None } else { f(row)? })?;
    }
    texts.finish()
}

fn text<'a>(call: &'a Call, at: usize, row: usize) -> &'a str {
    call.args[at].as_string_view().value(row)
}

fn number(call: &Call, at: usize, row: usize) -> i64 {
    i64::from(call.args[at].as_primitive::<Int32Type>().value(row))
}

/// How many characters or bytes to skip and to take, for `length` of them from the 1-based
/// `start`, which may lie before the value.
fn part(start: i64, length: Option<i64>) -> Result<(usize, usize)> {
    let end = match length {
        Some(length) if length < 0 => {
            return Err(raise(
                ErrorKind::SubstringError,
                "negative substring length not allowed",
            ));
        }
        Some(length) => start + length,
        None => i64::MAX,
    };
    let from = start.max(1);
    let count = usize::try_from(end.saturating_sub(from)).unwrap_or(0);
    Ok(((from - 1) as usize, count))
}

/// The part of each text that starts at the second argument, of the length that the third says if
/// there is one.
fn texts_between(call: &Call) -> Result<ArrayRef> {
    let values = call.args[0].as_string_view();
    let starts = call.args[1].as_primitive::<Int32Type>();
    let lengths = call.args.get(2).map(|arg| arg.as_primitive::<Int32Type>());
    let nulls = NullBuffer::union(values.nulls(), starts.nulls());
    let nulls = NullBuffer::union(nulls.as_ref(), lengths.and_then(|lengths| lengths.nulls()));
    let mut texts = Texts::of(call.rows);
    for row in 0..call.rows {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            texts.push(None::<&str>)?;
            continue;
        }
        let length = lengths.map(|lengths| i64::from(lengths.value(row)));
        let (skipped, count) = part(i64::from(starts.value(row)), length)?;
        let text = values.value(row);
        if text.len() > LOOKED_AT_BYTES {
            worked(text.len())?;
        }
        texts.push(Some(substring(text, skipped, count)))?;
    }
    texts.finish()
}

/// A text that it takes a while to look through.
const LOOKED_AT_BYTES: usize = 1 << 10;

/// So many characters of a text, behind those that are skipped.
fn substring(text: &str, skipped: usize, count: usize) -> &str {
    let bytes = text.as_bytes();
    let end = skipped.saturating_add(count).min(bytes.len());
    if bytes[..end].is_ascii() {
        // A character is a byte, up to where the next one begins.
        return &text[skipped.min(end)..end];
    }
    let mut places = text.char_indices().map(|(at, _)| at);
    let from = places.nth(skipped).unwrap_or(text.len());
    let to = match count.checked_sub(1) {
        None => from,
        Some(after) => places.nth(after).unwrap_or(text.len()),
    };
    &text[from..to]
}

/// The part of each byte string that starts at the second argument, of the length that the
/// third says if there is one.
fn bytes_between(call: &Call) -> Result<ArrayRef> {
    let values = call.args[0].as_binary_view();
    let mut growth = Growth::new();
    growth.make(bytes_of(values))?;
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.args.iter().any(|arg| arg.is_null(row)) {
            builder.append_null();
            continue;
        }
        let length = (call.args.len() > 2).then(|| number(call, 2, row));
        let (skipped, count) = part(number(call, 1, row), length)?;
        let value = values.value(row);
        let from = skipped.min(value.len());
        let to = from.saturating_add(count).min(value.len());
        builder.append_value(&value[from..to]);
    }
    growth.keep(Arc::new(builder.finish()))
}

const SUBSTRING: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Bytea, SqlType::Integer],
        returns: BYTEA,
        body: bytes_between,
    },
    Overload {
        parameters: &[SqlType::Bytea, SqlType::Integer, SqlType::Integer],
        returns: BYTEA,
        body: bytes_between,
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Integer],
        returns: TEXT,
        body: texts_between,
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Integer, SqlType::Integer],
        returns: TEXT,
        body: texts_between,
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let mut patterns = Patterns::default();
            rows(call, |row| {
                let pattern = patterns.get(text(call, 1, row), "")?;
                let whole = text(call, 0, row);
                // With parentheses the first group, else the whole match.
                let found = match pattern.groups_len() {
                    0 => pattern.find(whole, 0)?,
                    _ => pattern
                        .groups(whole, 0, &mut Growth::new())?
                        .and_then(|groups| *groups.get(1)?),
                };
                Ok(found.map(|(from, to)| whole[from..to].to_owned()))
            })
        },
    },
];

const STARTS_WITH: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Text],
    returns: Returns::Type(SqlType::Boolean),
    body: |call| {
        let texts = call.args[0].as_string_view().iter();
        let pairs = texts.zip(call.args[1].as_string_view());
        let begins = pairs.map(|(text, start)| Some(text?.starts_with(start?)));
        Ok(Arc::new(begins.collect::<BooleanArray>()))
    },
}];

const SPLIT_PART: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Text, SqlType::Integer],
    returns: TEXT,
    body: |call| {
        rows(call, |row| {
            let (whole, delimiter, field) =
                (text(call, 0, row), text(call, 1, row), number(call, 2, row));
            if field == 0 {
                return Err(raise(
                    ErrorKind::InvalidParameterValue,
                    "field position must not be zero",
                ));
            }
            let at = (field.unsigned_abs() - 1) as usize;
            let part = match (delimiter.is_empty(), field > 0) {
                (true, _) => (at == 0).then_some(whole),
                (false, true) => whole.split(delimiter).nth(at),
                (false, false) => whole
                    .split(delimiter)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .nth(at),
            };
            Ok(Some(part.unwrap_or("").to_owned()))
        })
    },
}];

/// `length`: characters of a text, bytes of a bytea.
const LENGTH: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Text],
        returns: INTEGER,
        body: characters,
    },
    Overload {
        parameters: &[SqlType::Bytea],
        returns: INTEGER,
        body: |call| octets(call, 1),
    },
];

/// Overloads of a function of the bytes of a text or bytea, times a number.
macro_rules! of_octets {
    ($times:expr) => {
        &[
            Overload {
                parameters: &[SqlType::Text],
                returns: INTEGER,
                body: |call| octets(call, $times),
            },
            Overload {
                parameters: &[SqlType::Bytea],
                returns: INTEGER,
                body: |call| octets(call, $times),
            },
        ]
    };
}

const OCTET_LENGTH: &[Overload] = of_octets!(1);
const BIT_LENGTH: &[Overload] = of_octets!(8);

fn octets(call: &Call, times: usize) -> Result<ArrayRef> {
    let times = |bytes: &[u8]| bytes.len() * times;
    Ok(match call.args[0].data_type() {
        DataType::BinaryView => counts(call.args[0].as_binary_view().iter().map(|v| v.map(times))),
        _ => {
            let texts = call.args[0].as_string_view().iter();
            counts(texts.map(|text| text.map(|text| times(text.as_bytes()))))
        }
    })
}

const CHAR_LENGTH: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: INTEGER,
    body: characters,
}];

fn characters(call: &Call) -> Result<ArrayRef> {
    let texts = call.args[0].as_string_view().iter();
    Ok(counts(
        texts.map(|text| text.map(|text| text.chars().count())),
    ))
}

/// Lengths, which a value's limit keeps far below 2^31.
fn counts(lengths: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let counts = lengths.map(|length| length.map(|length| length as i32));
    Arc::new(counts.collect::<PrimitiveArray<Int32Type>>())
}

const CHR: &[Overload] = &[Overload {
    parameters: &[SqlType::Integer],
    returns: TEXT,
    body: |call| {
        rows(call, |row| {
            let refuse = |message: String| raise(ErrorKind::ProgramLimitExceeded, message);
            let code = number(call, 0, row);
            match u32::try_from(code) {
                Err(_) => Err(raise(
                    ErrorKind::InvalidParameterValue,
                    "character number must be positive",
                )),
                Ok(0) => Err(refuse("null character not permitted".to_owned())),
                Ok(code @ 0x11_0000..) => Err(refuse(format!(
                    "requested character too large for encoding: {code}"
                ))),
                Ok(code) => char::from_u32(code)
                    .map(|character| Some(character.to_string()))
                    .ok_or_else(|| {
                        refuse(format!(
                            "requested character not valid for encoding: {code}"
                        ))
                    }),
            }
        })
    },
}];

fn quote_literal(value: &str) -> Result<String> {
    let is_special = |byte: &u8| matches!(byte, b'\'' | b'\\');
    let doubled = value.bytes().filter(is_special).count();
    let bytes = value.len() + doubled + "E''".len();
    Growth::new().value(bytes)?;
    let mut quoted = String::with_capacity(bytes);
    quoted.push_str(if value.contains('\\') { "E'" } else { "'" });
    for letter in value.chars() {
        if matches!(letter, '\'' | '\\') {
            quoted.push(letter);
        }
        quoted.push(letter);
    }
    quoted.push('\'');
    Ok(quoted)
}

const LIKE_ESCAPE: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Text],
    returns: TEXT,
    body: |call| {
        rows(call, |row| {
            let mut escape = text(call, 1, row).chars();
            let first = escape.next();
            if escape.next().is_some() {
                return Err(raise(
                    ErrorKind::InvalidEscapeSequence,
                    "invalid escape string",
                ));
            }
            Ok(Some(with_backslash(text(call, 0, row), first)))
        })
    },
}];

const WITH_BLANKS: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Integer],
    returns: TEXT,
    body: |call| {
        rows(call, |row| {
            let length = u32::try_from(number(call, 1, row)).unwrap_or(0);
            Ok(Some(filled(text(call, 0, row), length)))
        })
    },
}];

const QUOTE_IDENT: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| rows(call, |row| Ok(Some(quote_ident(text(call, 0, row))))),
}];

const QUOTE_LITERAL: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| rows(call, |row| quote_literal(text(call, 0, row)).map(Some)),
}];

const QUOTE_NULLABLE: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| {
        let mut texts = Texts::of(call.rows);
        for row in 0..call.rows {
            let value = call.args[0]
                .is_valid(row)
                .then(|| quote_literal(text(call, 0, row)))
                .transpose()?;
            texts.push(Some(value.as_deref().unwrap_or("NULL")))?;
        }
        texts.finish()
    },
}];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StringFunction {
    Concat,
    ConcatWs,
    Format,
}

/// A function of any number of arguments of any type, which it sees as texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Variadic {
    name: &'static str,
    kind: StringFunction,
    signature: Signature,
}

impl Variadic {
    fn new(name: &'static str, kind: StringFunction) -> Self {
        let any = TypeSignature::VariadicAny;
        Self {
            name,
            kind,
            signature: Signature::new(any, Volatility::Stable),
        }
    }
}

impl ScalarUDFImpl for Variadic {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if all_constant { 1 } else { args.number_rows };
        let mut growth = Growth::new();
        let texts = args
            .args
            .iter()
            .zip(&args.arg_fields)
            .map(|(arg, field)| output_text(&for_each_row(arg, rows, &mut growth)?, field))
            .collect::<Result<Vec<_>>>()?;
        let value = |at: usize, row: usize| -> Option<&str> {
            let texts = texts.get(at)?.as_string_view();
            texts.is_valid(row).then(|| texts.value(row))
        };
        let mut made = Texts::of(rows);
        let mut out = String::new();
        for row in 0..rows {
            let cells = |from: usize| (from..texts.len()).map(move |at| value(at, row));
            let first = value(0, row);
            out.clear();
            match (self.kind, first) {
                (StringFunction::Concat, _) => {
                    join(cells(0).flatten(), "", &mut out, &mut made.growth)?
                }
                (_, None) => {}
                (StringFunction::ConcatWs, Some(separator)) => {
                    join(cells(1).flatten(), separator, &mut out, &mut made.growth)?;
                }
                (StringFunction::Format, Some(pattern)) => {
                    let args: Vec<_> = cells(1).collect();
                    format(pattern, &args, &mut out, &mut made.growth)?;
                }
            }
            let is_null = first.is_none() && self.kind != StringFunction::Concat;
            made.push((!is_null).then_some(&out))?;
        }
        let result = made.finish()?;
        if all_constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn join<'a>(
    parts: impl Iterator<Item = &'a str>,
    separator: &str,
    out: &mut String,
    growth: &mut Growth,
) -> Result<()> {
    for (nth, part) in parts.enumerate() {
        if nth > 0 {
            extend(out, separator, growth)?;
        }
        extend(out, part, growth)?;
    }
    Ok(())
}

/// Texts one behind the other: `||`.
pub(crate) fn concatenation() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Concatenation {
        inner: function(
            "aerostat_concatenate",
            &[],
            Volatility::Immutable,
            CONCATENATION,
        ),
    }))
}

/// The function that has the operator's name in a plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Concatenation {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Concatenation {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names = args.iter().map(|arg| arg.schema_name().to_string());
        Ok(names.collect::<Vec<_>>().join(" || "))
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

const CONCATENATION: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Text, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let (left, right) = (call.args[0].as_string_view(), call.args[1].as_string_view());
            let (mut texts, mut both) = (Texts::of(call.rows), String::new());
            for pair in left.iter().zip(right) {
                let (Some(left), Some(right)) = pair else {
                    texts.push(None::<&str>)?;
                    continue;
                };
                both.clear();
                extend(&mut both, left, &mut texts.growth)?;
                extend(&mut both, right, &mut texts.growth)?;
                texts.push(Some(&both))?;
            }
            texts.finish()
        },
    },
    Overload {
        parameters: &[SqlType::Bytea, SqlType::Bytea],
        returns: BYTEA,
        body: |call| {
            let (left, right) = (call.args[0].as_binary_view(), call.args[1].as_binary_view());
            let (mut growth, mut both) = (Growth::new(), Vec::new());
            let mut builder = BinaryViewBuilder::with_capacity(call.rows);
            for pair in left.iter().zip(right) {
                let (Some(left), Some(right)) = pair else {
                    builder.append_null();
                    continue;
                };
                growth.value(left.len() + right.len())?;
                both.clear();
                both.extend_from_slice(left);
                both.extend_from_slice(right);
                builder.append_value(&both);
            }
            growth.keep(Arc::new(builder.finish()))
        },
    },
];

fn bad_format(message: &str) -> DataFusionError {
    raise(ErrorKind::InvalidParameterValue, message)
}

/// PostgreSQL's `format`: `%s`, `%I`, `%L`, `%%`, with `n$` positions, `-` and a width.
fn format(
    pattern: &str,
    args: &[Option<&str>],
    out: &mut String,
    growth: &mut Growth,
) -> Result<()> {
    let mut next = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' || characters.next_if_eq(&'%').is_some() {
            extend(out, character.encode_utf8(&mut [0; 4]), growth)?;
            continue;
        }
        let mut digits = String::new();
        let mut left = false;
        let mut at = None;
        let conversion = loop {
            match characters.next() {
                None => return Err(bad_format("unterminated format() type specifier")),
                Some('$') => {
                    let position: usize = digits.parse().unwrap_or(0);
                    if position == 0 {
                        return Err(bad_format(
                            "format specifies argument 0, but arguments are numbered from 1",
                        ));
                    }
                    at = Some(position - 1);
                    digits.clear();
                }
                Some('-') => left = true,
                Some(digit @ '0'..='9') => digits.push(digit),
                Some(other) => break other,
            }
        };
        let at = at.unwrap_or(next);
        next = at + 1;
        let arg = *args
            .get(at)
            .ok_or_else(|| bad_format("too few arguments for format()"))?;
        let value = match conversion {
            's' => arg.unwrap_or("").to_owned(),
            'I' => quote_ident(arg.ok_or_else(|| {
                raise(
                    ErrorKind::InvalidParameterValue,
                    "null values cannot be formatted as an SQL identifier",
                )
            })?),
            'L' => arg.map_or_else(|| Ok("NULL".to_owned()), quote_literal)?,
            other => {
                return Err(bad_format(&format!(
                    "unrecognized format() type specifier \"{other}\""
                )));
            }
        };
        let width = digits
            .parse::<usize>()
            .unwrap_or(0)
            .min(aerostat_types::VALUE_BYTES_MAX);
        let padding = " ".repeat(width.saturating_sub(value.chars().count()));
        let parts = if left {
            [value, padding]
        } else {
            [padding, value]
        };
        for part in &parts {
            extend(out, part, growth)?;
        }
    }
    Ok(())
}
