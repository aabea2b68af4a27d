//! The column into which USING and NATURAL merge two columns whose types differ, or are not known
//! when the query is rewritten: it has the common type of both, as in PostgreSQL.
//!
//! | join | `merged(a, b, is_either)` becomes |
//! |---|---|
//! | of two columns of one type | `a` |
//! | LEFT, `a` of the common type | `a` |
//! | inner, only `b` of the common type | `b`, as nobody has to be cast |
//! | otherwise | `a::common` |
//!
//! A call disappears once types are resolved (`resolve`).

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::cast::{self, Zone};
use super::common_type::common_type;
use crate::{Operand, operand, raise};

/// Its name, which nobody writes. Its arguments are the two columns, and whether either has the
/// value.
pub const MERGED: &str = "\u{1}merged";

/// The function.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Merged {
        signature: Signature::any(3, Volatility::Immutable),
    }))
}

/// What stands for the merged column.
enum Taken {
    First,
    Second,
    FirstAs(SqlType),
}

fn taken(first: SqlType, second: SqlType, is_either: bool) -> Taken {
    if first.oid() == second.oid() || first.is_text() && second.is_text() {
        return Taken::First;
    }
    match common_type(first, second) {
        // What has none is refused by the join.
        None => Taken::First,
        Some(common) if common.oid() == first.oid() => Taken::First,
        Some(common) if is_either && common == second && second.typmod() == -1 => Taken::Second,
        // An integer has no digits behind the point that it could show.
        Some(SqlType::Numeric { .. }) => Taken::FirstAs(SqlType::Numeric {
            precision: 19,
            scale: 0,
        }),
        Some(common) => Taken::FirstAs(common),
    }
}

fn is_true(value: &ScalarValue) -> bool {
    *value == ScalarValue::Boolean(Some(true))
}

/// What a call means, whose arguments have their types.
///
/// # Errors
/// Those of types that have no cast.
pub(crate) fn resolve(args: Vec<Expr>, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    let Ok([first, second, is_either]) = <[Expr; 3]>::try_from(args) else {
        return Err(raise(ErrorKind::Internal, "a column is merged of two"));
    };
    let types = (operand(&first, schema)?, operand(&second, schema)?);
    let (Operand::Typed(of_first), Operand::Typed(of_second)) = types else {
        return Ok(first);
    };
    let is_either = matches!(&is_either, Expr::Literal(value, _) if is_true(value));
    match taken(of_first, of_second, is_either) {
        Taken::First => Ok(first),
        Taken::Second => Ok(second),
        Taken::FirstAs(common) => {
            let (_, from) = first.to_field(schema)?;
            cast::resolve(first, &from, &Arc::new(common.field("", true)), zone)
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Merged {
    signature: Signature,
}

impl ScalarUDFImpl for Merged {
    fn name(&self) -> &str {
        MERGED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [first, ..] => Ok(first.clone()),
            [] => internal_err!("a column is merged of two"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [first, second, ..] = args.arg_fields else {
            return internal_err!("a column is merged of two");
        };
        let is_either = args.scalar_arguments.get(2).copied().flatten();
        let is_either = is_either.is_some_and(is_true);
        let types = (SqlType::of_field(first), SqlType::of_field(second));
        let (Some(of_first), Some(of_second)) = types else {
            return Ok(Arc::clone(first));
        };
        Ok(match taken(of_first, of_second, is_either) {
            Taken::First => Arc::clone(first),
            Taken::Second => Arc::clone(second),
            Taken::FirstAs(common) => Arc::new(common.field(MERGED, first.is_nullable())),
        })
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("a merged column was not resolved")
    }
}
