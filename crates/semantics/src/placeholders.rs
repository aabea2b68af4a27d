//! Parameters as arguments of functions: a parameter without a declared type gets that of the
//! overload that fits the other arguments, as PostgreSQL finds it by the function's signatures.
//!
//! | written | `$1` |
//! |---|---|
//! | `left(name, $1)` | `integer` |
//! | `round(n, $1)` of a numeric | `integer` |
//! | `abs($1)` | `double precision`, the preferred of the numbers |
//! | `lag(v, $1, $2)` | `integer`, and `$2` has the type of `v` |

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Placeholder, WindowFunction};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};

use crate::functions::cast::Zone;
use crate::functions::overload::is_overloaded;
use crate::{Operand, literal_as, operand};

/// Types the parameters of an aggregate that has other arguments than what it gathers.
pub(super) fn type_fractions(call: &mut AggregateFunction, zone: &Zone) -> Result<()> {
    match call.func.name() {
        "percentile_cont" | "percentile_disc" => type_each(
            &mut call.params.args,
            |at| (at == 0).then_some(SqlType::Double),
            zone,
        ),
        _ => Ok(()),
    }
}

/// Types the parameters of a window function: how many rows are between, and what stands for none.
pub(super) fn type_offsets(
    call: &mut WindowFunction,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<()> {
    let counts = match call.fun.name() {
        "ntile" => 0,
        "lag" | "lead" | "nth_value" => 1,
        _ => return Ok(()),
    };
    let args = &mut call.params.args;
    let value = match args
        .first()
        .map(|value| operand(value, schema))
        .transpose()?
    {
        Some(Operand::Typed(ty)) => Some(ty),
        _ => None,
    };
    let type_of = |at| match at == counts {
        true => Some(SqlType::Integer),
        false => value,
    };
    type_each(args, type_of, zone)
}

fn is_open(argument: &Expr) -> bool {
    matches!(argument, Expr::Placeholder(Placeholder { field: None, .. }))
}

fn type_each(
    args: &mut [Expr],
    type_of: impl Fn(usize) -> Option<SqlType>,
    zone: &Zone,
) -> Result<()> {
    for (at, argument) in args.iter_mut().enumerate() {
        if is_open(argument)
            && let Some(ty) = type_of(at)
        {
            *argument = literal_as(std::mem::take(argument), ty, zone)?;
        }
    }
    Ok(())
}

/// Types the parameters among the arguments of a function of values.
pub(super) fn type_arguments(
    func: &ScalarUDF,
    args: &mut [Expr],
    schema: &DFSchema,
    zone: &Zone,
) -> Result<()> {
    if !args.iter().any(is_open) {
        return Ok(());
    }
    let field = |argument: &Expr| -> Result<FieldRef> {
        match is_open(argument) {
            true => Ok(Arc::new(Field::new("", DataType::Null, true))),
            false => argument.to_field(schema).map(|(_, field)| field),
        }
    };
    let fields = args.iter().map(field).collect::<Result<Vec<_>>>()?;
    // A function that takes no such arguments says so later.
    let Ok(wanted) = fields_with_udf(&fields, func) else {
        return Ok(());
    };
    let type_of = |at: usize| {
        let wanted: Option<&FieldRef> = wanted.get(at);
        match wanted.map(|field| field.data_type()) {
            None | Some(DataType::Null) => None,
            // DataFusion's own count with bigint, PostgreSQL's with integer.
            Some(DataType::Int64) if !is_overloaded(func) => Some(SqlType::Integer),
            Some(ty) => SqlType::of_arrow(ty),
        }
    };
    type_each(args, type_of, zone)
}
