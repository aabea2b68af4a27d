//! Functions as tables of overloads.
//!
//! A call picks the overload that needs the least conversion, as in PostgreSQL: exact types
//! first, then wider numbers and times, string literals last.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::cast::Zone;
use crate::growth::{Growth, for_each_row};
use crate::{external, name_of_arrow};

/// A parameter of any numeric: the argument keeps its precision and scale.
pub(super) const NUMERIC: SqlType = aerostat_types::NUMERIC_DEFAULT;

/// What an overload returns.
#[derive(Clone, Copy)]
pub(crate) enum Returns {
    /// Always the same type.
    Type(SqlType),
    /// A type that follows from the arguments' types and constants.
    Computed(fn(&[DataType], &[Option<&ScalarValue>]) -> DataType),
}

/// What a body may look at besides its arguments.
pub(crate) struct Call<'a> {
    /// The arguments, all of one length.
    pub(crate) args: &'a [ArrayRef],
    /// The type to return.
    pub(super) returns: &'a DataType,
    /// The session's zone.
    pub(super) zone: Zone,
    /// Rows to return.
    pub(super) rows: usize,
}

/// One list of parameter types with its implementation.
#[derive(Clone, Copy)]
pub(crate) struct Overload {
    pub(crate) parameters: &'static [SqlType],
    pub(crate) returns: Returns,
    pub(crate) body: fn(&Call) -> Result<ArrayRef>,
}

/// Overloads that differ in what they are given, with one body, which looks at that.
pub(crate) const fn each<const N: usize>(
    parameters: [&'static [SqlType]; N],
    returns: Returns,
    body: fn(&Call) -> Result<ArrayRef>,
) -> [Overload; N] {
    let mut all = [Overload {
        parameters: &[],
        returns,
        body,
    }; N];
    let mut at = 0;
    while at < N {
        all[at].parameters = parameters[at];
        at += 1;
    }
    all
}

/// A function by name.
pub(super) struct Function {
    name: &'static str,
    aliases: Vec<String>,
    overloads: &'static [Overload],
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Makes the function `name` of `overloads`.
pub(crate) fn function(
    name: &'static str,
    aliases: &[&str],
    volatility: Volatility,
    overloads: &'static [Overload],
) -> Arc<ScalarUDF> {
    assert!(!overloads.is_empty(), "{name} can be called");
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    let takes_none = overloads
        .iter()
        .any(|overload| overload.parameters.is_empty());
    let signature = if takes_none && overloads.len() == 1 {
        Signature::nullary(volatility)
    } else if takes_none {
        Signature::one_of(
            vec![
                datafusion::logical_expr::TypeSignature::Nullary,
                datafusion::logical_expr::TypeSignature::UserDefined,
            ],
            volatility,
        )
    } else {
        Signature::user_defined(volatility)
    };
    Arc::new(ScalarUDF::new_from_impl(Function {
        name,
        aliases,
        overloads,
        signature,
    }))
}

/// Whether a function is one of overloads that are told here.
pub(crate) fn is_overloaded(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Function>().is_some()
}

/// The type an argument gets for a parameter, and what the conversion costs;
/// nothing if there is none.
fn accept(argument: &DataType, parameter: SqlType) -> Option<(DataType, u32)> {
    if let (DataType::Binary | DataType::LargeBinary, SqlType::Bytea) = (argument, parameter) {
        // What DataFusion's functions of digests give.
        return Some((parameter.arrow(), 0));
    }
    let target = match (argument, parameter) {
        (DataType::Decimal128(..), SqlType::Numeric { .. }) => argument.clone(),
        (
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64,
            SqlType::Numeric { .. },
        ) => DataType::Decimal128(19, 0),
        _ => parameter.arrow(),
    };
    let cost = match (argument, SqlType::of_arrow(argument)?) {
        (DataType::Null, _) => 1,
        (argument, _) if *argument == target => 0,
        (_, given) if given.is_text() && parameter.is_text() => 0,
        // A string literal is read as whatever is wanted.
        (DataType::Utf8, _) => 30,
        (_, given) => widening(given, parameter)?,
    };
    Some((target, cost))
}

fn widening(from: SqlType, to: SqlType) -> Option<u32> {
    let rank = |ty| {
        Some(match ty {
            SqlType::SmallInt => (0, 0),
            SqlType::Integer => (0, 1),
            SqlType::BigInt => (0, 2),
            // Where both are possible PostgreSQL prefers double.
            SqlType::Numeric { .. } => (0, 4),
            SqlType::Real => (0, 5),
            SqlType::Double => (0, 6),
            SqlType::Date => (1, 0),
            SqlType::Timestamp => (1, 1),
            SqlType::TimestampTz => (1, 2),
            _ => return None,
        })
    };
    let ((family, low), (other, high)) = (rank(from)?, rank(to)?);
    if family != other || low > high {
        return None;
    }
    // double precision and timestamptz are the preferred types of their kinds.
    Some(match to {
        SqlType::Double if low < 4 => 4,
        SqlType::TimestampTz if high > low => 1,
        _ => 2 * (high - low),
    })
}

const fn is_preferred(ty: SqlType) -> bool {
    matches!(
        ty,
        SqlType::Text
            | SqlType::Double
            | SqlType::TimestampTz
            | SqlType::Interval
            | SqlType::Boolean
    )
}

impl Function {
    fn pick(&self, args: &[DataType]) -> Result<(&'static Overload, Vec<DataType>)> {
        type Cost = (u32, usize);
        let mut best: Option<(Cost, &'static Overload, Vec<DataType>)> = None;
        for overload in self
            .overloads
            .iter()
            .filter(|overload| overload.parameters.len() == args.len())
        {
            let accepted: Option<Vec<_>> = args
                .iter()
                .zip(overload.parameters)
                .map(|(arg, parameter)| accept(arg, *parameter))
                .collect();
            let Some(accepted) = accepted else { continue };
            let cost = accepted.iter().map(|(_, cost)| cost).sum();
            // Of what takes a NULL alike PostgreSQL prefers the preferred type of its kind.
            let pairs = args.iter().zip(overload.parameters);
            let others = pairs.filter(|(arg, ty)| arg.is_null() && !is_preferred(**ty));
            let cost = (cost, others.count());
            if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((
                    cost,
                    overload,
                    accepted.into_iter().map(|(ty, _)| ty).collect(),
                ));
            }
        }
        best.map(|(_, overload, types)| (overload, types))
            .ok_or_else(|| self.missing(args))
    }

    fn missing(&self, args: &[DataType]) -> DataFusionError {
        let names: Vec<String> = args.iter().map(name_of_arrow).collect();
        let message = format!(
            "function {}({}) does not exist",
            self.name,
            names.join(", ")
        );
        external(SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ))
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would lose its kind on the way; the return type raises it again.
        Ok(self
            .pick(arg_types)
            .map_or_else(|_| arg_types.to_vec(), |(_, types)| types))
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let (overload, types) = self.pick(arg_types)?;
        Ok(match overload.returns {
            Returns::Type(ty) => ty.arrow(),
            Returns::Computed(compute) => compute(&types, &[]),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let (overload, types) = self.pick(&types)?;
        let data_type = match overload.returns {
            Returns::Type(ty) => ty.arrow(),
            Returns::Computed(compute) => compute(&types, args.scalar_arguments),
        };
        Ok(Arc::new(Field::new(self.name, data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let (overload, _) = self.pick(&types)?;
        let zone = Zone::of(&args.config_options);
        // A volatile function gives each row its own value.
        let all_constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)))
            && self.signature.volatility != Volatility::Volatile;
        let rows = if all_constant { 1 } else { args.number_rows };
        let mut growth = Growth::new();
        let arrays = args
            .args
            .iter()
            .map(|arg| for_each_row(arg, rows, &mut growth))
            .collect::<Result<Vec<_>>>()?;
        let call = Call {
            args: &arrays,
            returns: args.return_field.data_type(),
            zone,
            rows,
        };
        let result = (overload.body)(&call)?;
        assert_eq!(result.len(), rows, "{} gives each row a value", self.name);
        if all_constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}
