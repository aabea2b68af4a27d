//! `coalesce`, `greatest`, `least` and `nullif`: DataFusion's need a common type before a string
//! literal among the arguments has one. Arrays are compared by their sort keys, which have
//! PostgreSQL's order of items.
//!
//! DataFusion rewrites `coalesce(a, b)` as `CASE WHEN a IS NOT NULL THEN a ELSE b END`, which evaluates `a`
//! twice. A volatile `a` is evaluated once instead ([`first_given`]), together with the other arguments.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::array_order;
use crate::external;
use crate::growth::{Growth, for_each_row, size_of_argument};

/// Puts them over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for name in ["coalesce", "greatest", "least", "nullif"] {
        let inner = registry.udf(name)?;
        let signature = Signature::user_defined(Volatility::Immutable);
        let choice = Choice { inner, signature };
        registry.register_udf(Arc::new(ScalarUDF::from(choice)))?;
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Choice {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Choice {
    fn common_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            // It compares them. What has no common type is refused when it is resolved.
            [left, right] if self.name() == "nullif" => {
                Ok(match comparison_coercion(left, right) {
                    Some(common) => vec![common.clone(), common],
                    None => arguments.to_vec(),
                })
            }
            // A `bytea` is of views, or what a function of DataFusion's makes.
            _ if arguments.iter().all(is_bytes) => Ok(vec![DataType::BinaryView; arguments.len()]),
            _ => self.inner.coerce_types(arguments),
        }
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::Null
    )
}

/// Only string literals are `Utf8`.
fn is_untyped(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Null)
}

impl ScalarUDFImpl for Choice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let mut types = arguments.arg_fields.iter().map(|field| field.data_type());
        let typed = types.find(|data_type| !is_untyped(data_type));
        let result = self.inner.return_field_from_args(arguments)?;
        Ok(match typed {
            Some(data_type) if is_untyped(result.data_type()) => {
                let typed = result.as_ref().clone().with_data_type(data_type.clone());
                Arc::new(typed)
            }
            _ => result,
        })
    }

    /// Literals stay as they are until expressions are resolved, which types them by the others; so do
    /// parameters, whose type is that of NULL until then.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_literal = |data_type: &DataType| *data_type == DataType::Utf8;
        let Some(typed) = arguments.iter().find(|data_type| !is_untyped(data_type)) else {
            return self.common_types(arguments);
        };
        let as_if = |data_type: &DataType| match data_type {
            literal if is_literal(literal) => typed.clone(),
            // DataFusion knows of no type in common with a `uuid`.
            DataType::Null if matches!(typed, DataType::FixedSizeBinary(_)) => typed.clone(),
            other => other.clone(),
        };
        let mut coerced: Vec<DataType> = arguments.iter().map(as_if).collect();
        if coerced.iter().any(|data_type| data_type != typed) {
            coerced = self.common_types(&coerced)?;
        }
        let kept = arguments.iter().zip(coerced);
        Ok(kept
            .map(|(own, coerced)| {
                if is_literal(own) {
                    own.clone()
                } else {
                    coerced
                }
            })
            .collect())
    }

    fn simplify(
        &self,
        mut args: Vec<Expr>,
        context: &SimplifyContext,
    ) -> Result<ExprSimplifyResult> {
        let tested = &args[..args.len().saturating_sub(1)];
        let volatile = tested.iter().position(Expr::is_volatile);
        match volatile {
            Some(at) if self.name() == "coalesce" => {
                if args[at + 1..].iter().any(Expr::is_volatile) {
                    return Err(several_volatile());
                }
                if at == 0 {
                    return Ok(ExprSimplifyResult::Original(args));
                }
                let others = args.split_off(at);
                args.push(ScalarUDF::from(self.clone()).call(others));
                self.inner.simplify(args, context)
            }
            _ => self.inner.simplify(args, context),
        }
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_list = |argument: &ColumnarValue| argument.data_type().is_list();
        match self.name() {
            "greatest" | "least" if args.args.iter().any(is_list) => {
                extreme_list(&args, self.name() == "greatest")
            }
            "coalesce" => first_given(&args),
            _ => self.inner.invoke_with_args(args),
        }
    }
}

fn several_volatile() -> DataFusionError {
    external(
        SqlError::new(
            ErrorKind::FeatureNotSupported,
            "COALESCE of several volatile expressions is not supported",
        )
        .with_hint("Compute all but the last in a subquery in FROM."),
    )
}

/// The first value of each row that is not NULL, where the first argument is volatile.
fn first_given(args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
    let mut growth = Growth::new();
    let rows = args.number_rows;
    let columns = args.args.iter();
    let columns = columns.map(|argument| {
        let column = for_each_row(argument, rows, &mut growth)?;
        match column.data_type() == args.return_field.data_type() {
            true => Ok(column),
            false => Ok(arrow::compute::cast(
                &column,
                args.return_field.data_type(),
            )?),
        }
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    let picked = (0..rows).map(|row| {
        let given = columns.iter().position(|column| column.is_valid(row));
        (given.unwrap_or(0), row)
    });
    let picked: Vec<(usize, usize)> = picked.collect();
    let sources: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
    let given = sources.iter().map(|array| size_of_argument(*array));
    growth.make(given.sum::<usize>())?;
    growth.finish(interleave(&sources, &picked)?, false)
}

/// The greatest or the least array of each row; of several that are equal the first. NULLs do not
/// count.
fn extreme_list(args: &ScalarFunctionArgs, is_greatest: bool) -> Result<ColumnarValue> {
    let constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
    let all_constant = args.args.iter().all(constant);
    let rows = if all_constant { 1 } else { args.number_rows };
    let mut growth = Growth::new();
    let list = args.return_field.data_type();
    let mut lists: Vec<ArrayRef> = Vec::with_capacity(args.args.len());
    let mut keys = Vec::with_capacity(args.args.len());
    for argument in &args.args {
        let array = for_each_row(argument, rows, &mut growth)?;
        let array = match array.data_type() == list {
            true => array,
            false => arrow::compute::cast(&array, list)?,
        };
        keys.push(array_order::sort_keys(&array, &mut growth)?);
        lists.push(array);
    }
    let picked = (0..rows).map(|row| {
        let given = (0..keys.len()).filter(|at| keys[*at].is_valid(row));
        let found = given.reduce(|found, at| {
            let (before, key) = (keys[found].value(row), keys[at].value(row));
            let wins = match is_greatest {
                true => key > before,
                false => key < before,
            };
            if wins { at } else { found }
        });
        // Where there is none, the first is NULL as all others are.
        (found.unwrap_or(0), row)
    });
    let picked: Vec<(usize, usize)> = picked.collect();
    let sources: Vec<&dyn Array> = lists.iter().map(AsRef::as_ref).collect();
    let given = sources.iter().map(|array| size_of_argument(*array));
    growth.make(given.sum::<usize>())?;
    growth.finish(interleave(&sources, &picked)?, all_constant)
}
