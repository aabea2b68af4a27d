//! Casts to arrays ([`ListCast`]), and the syntax of array literals.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::array_text::array_items;
use super::super::lists::{item_type, several_dimensions};
use super::output::item_texts;
use super::{
    CastClass, Coercion, Zone, arrow_agrees, cannot_cast, class, convert, literal as text_literal,
};
use crate::growth::Growth;
use crate::raise;
use crate::type_names::blank_padded;

/// A cast to an array: of a text, which is read, or of an array, item by item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListCast {
    to: FieldRef,
    /// Whether items become the texts that their output functions write.
    is_written: bool,
    signature: Signature,
}

impl ListCast {
    fn call(to: FieldRef, is_written: bool, argument: Expr) -> Expr {
        // Items may depend on the session's zone.
        let function = Self {
            to,
            is_written,
            signature: Signature::any(1, Volatility::Stable),
        };
        let function = Arc::new(ScalarUDF::new_from_impl(function));
        Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![argument]))
    }

    fn cast(&self, values: &ArrayRef, from: &Field, zone: &Zone) -> Result<ArrayRef> {
        let DataType::List(item) = self.to.data_type() else {
            return Err(raise(ErrorKind::Internal, "a cast to an array of nothing"));
        };
        let Some(from_item) = SqlType::item_of(from) else {
            return read(values, item, zone);
        };
        let of_items = SqlType::item_of(&self.to).and_then(|item| SqlType::of_field(&item));
        let lists = values.as_list::<i32>();
        let items = match (self.is_written, SqlType::of_field(&from_item)) {
            (true, _) => item_texts(lists.values(), &from_item, zone)?,
            (false, Some(of)) => {
                let to = of_items.unwrap_or(SqlType::Text);
                convert(lists.values(), of, to, Coercion::Explicit, zone)?
            }
            (false, None) => arrow::compute::cast(lists.values(), item.data_type())?,
        };
        Ok(Arc::new(ListArray::try_new(
            Arc::clone(item),
            lists.offsets().clone(),
            items,
            lists.nulls().cloned(),
        )?))
    }
}

/// Reads each text as an array of such items.
fn read(texts: &ArrayRef, item: &FieldRef, zone: &Zone) -> Result<ArrayRef> {
    let list = DataType::new_list(item.data_type().clone(), true);
    let mut growth = Growth::new();
    let lists = texts.as_string_view().iter().map(|text| match text {
        None => ScalarValue::try_new_null(&list),
        Some(text) => {
            growth.make(text.len())?;
            literal(text, &list, zone)
        }
    });
    let lists = lists.collect::<Result<Vec<_>>>()?;
    let lists = match lists.is_empty() {
        true => arrow::array::new_empty_array(&list),
        false => ScalarValue::iter_to_array(lists)?,
    };
    let (_, offsets, items, nulls) = lists.as_list::<i32>().clone().into_parts();
    Ok(Arc::new(ListArray::try_new(
        Arc::clone(item),
        offsets,
        items,
        nulls,
    )?))
}

impl ScalarUDFImpl for ListCast {
    fn name(&self) -> &str {
        "cast to array"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        // As of a cast to any other type.
        let name = args.first().map(|arg| arg.schema_name().to_string());
        Ok(name.unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let field = self.to.as_ref().clone().with_name(self.name());
        Ok(Arc::new(field.with_nullable(nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = Zone::of(&args.config_options);
        match &args.args[0] {
            ColumnarValue::Array(values) => {
                let cast = self.cast(values, &args.arg_fields[0], &zone)?;
                Ok(ColumnarValue::Array(cast))
            }
            ColumnarValue::Scalar(value) => {
                let cast = self.cast(&value.to_array()?, &args.arg_fields[0], &zone)?;
                ScalarValue::try_from_array(&cast, 0).map(ColumnarValue::Scalar)
            }
        }
    }
}

/// A cast of `expr`, whose field is `from`, to the array `target`, where Arrow's does not do.
///
/// # Errors
/// `CannotCoerce` where PostgreSQL has no such cast.
pub(super) fn resolve(expr: &Expr, from: &Field, target: &FieldRef) -> Result<Option<Expr>> {
    let DataType::List(item) = target.data_type() else {
        return Ok(None);
    };
    let Some(from_item) = SqlType::item_of(from) else {
        // A literal is read when it is planned, and NULL has no type yet.
        let is_text = *from.data_type() == DataType::Utf8View;
        return Ok(is_text.then(|| ListCast::call(Arc::clone(target), false, expr.clone())));
    };
    let (Some(of), Some(to)) = (SqlType::of_field(&from_item), SqlType::of_field(item)) else {
        return Ok(None);
    };
    // What a text is cut to, or shown with, is no matter of Arrow.
    let has_length = |ty| matches!(ty, SqlType::Char(_) | SqlType::Varchar(Some(_)));
    let is_other_text = of != to && (has_length(of) || has_length(to));
    if !is_other_text && (of.arrow() == to.arrow() || arrow_agrees(from_item.data_type(), to)) {
        return Ok(None);
    }
    if class(of, to) == CastClass::Missing {
        return Err(cannot_cast(of, to));
    }
    let target = match has_length(to) {
        // All lists of texts are of one Arrow type.
        true => {
            let list = DataType::new_list(to.arrow(), true);
            Arc::new(to.of_items(Field::new("", list, true)))
        }
        false => Arc::clone(target),
    };
    Ok(Some(ListCast::call(target, false, expr.clone())))
}

/// An array with its items as their output functions write them.
pub(crate) fn written(expr: Expr, from: &Field) -> Expr {
    let is_typed = |item: &Field| {
        let ty = SqlType::of_field(item);
        ty.is_some_and(|ty| !ty.is_text() || blank_padded(ty).is_some())
    };
    match SqlType::item_of(from) {
        Some(item) if is_typed(&item) => {
            let texts = DataType::new_list(SqlType::Text.arrow(), true);
            ListCast::call(Arc::new(Field::new("", texts, true)), true, expr)
        }
        _ => expr,
    }
}

/// A string literal where a list is wanted, as that list.
///
/// # Errors
/// `InvalidTextRepresentation` for what is no array of such items.
pub(crate) fn literal(text: &str, list: &DataType, zone: &Zone) -> Result<ScalarValue> {
    let malformed = || {
        raise(
            ErrorKind::InvalidTextRepresentation,
            format!("malformed array literal: \"{text}\""),
        )
    };
    let item = item_type(list).ok_or_else(malformed)?;
    let texts = match array_items(text) {
        Some(texts) => texts,
        None if is_nested(text) => return Err(several_dimensions()),
        None => return Err(malformed()),
    };
    let ty = SqlType::of_arrow(item).unwrap_or(SqlType::Text);
    let values = texts.into_iter().map(|text| match text {
        None => ScalarValue::try_new_null(item),
        Some(text) => text_literal(&text, ty, zone)?.cast_to(item),
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list(
        &values, item, true,
    )))
}

/// Whether a text looks like an array of arrays.
pub(crate) fn is_nested(text: &str) -> bool {
    let mut opening = text.chars().filter(|c| !c.is_whitespace());
    opening.next() == Some('{') && opening.next() == Some('{')
}
