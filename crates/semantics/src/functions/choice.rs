//! `coalesce`, `greatest`, `least` and `nullif`: DataFusion's, which wants to know a common type
//! before a string literal among the arguments has one.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

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

#[derive(Debug, PartialEq, Eq, Hash)]
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

    /// Literals stay as they are until expressions are resolved, which types them by the others.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_literal = |data_type: &DataType| *data_type == DataType::Utf8;
        let Some(typed) = arguments.iter().find(|data_type| !is_untyped(data_type)) else {
            return self.common_types(arguments);
        };
        let as_if = |data_type: &DataType| match data_type {
            literal if is_literal(literal) => typed.clone(),
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

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, context)
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
        self.inner.invoke_with_args(args)
    }
}
