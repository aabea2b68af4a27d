//! The time of the statement: one value wherever it stands.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::now_micros;
use crate::functions::cast::{Coercion, Zone, convert};

/// `now()` or one of its relatives of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Now {
    name: &'static str,
    aliases: Vec<String>,
    ty: SqlType,
    signature: Signature,
}

impl Now {
    pub(super) fn new(name: &'static str, aliases: &[&str], ty: SqlType) -> Self {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        Self {
            name,
            aliases,
            ty,
            signature: Signature::nullary(Volatility::Stable),
        }
    }

    fn at(&self, micros: i64, zone: &Zone) -> Result<ScalarValue> {
        let instant: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"));
        let converted = convert(
            &instant,
            SqlType::TimestampTz,
            self.ty,
            Coercion::Explicit,
            zone,
        )?;
        ScalarValue::try_from_array(&converted, 0)
    }
}

impl ScalarUDFImpl for Now {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.ty.arrow())
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(start) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let zone = Zone::of(info.config_options());
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(
            self.at(start.timestamp_micros(), &zone)?,
            None,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(
            self.at(now_micros(), &Zone::of(&args.config_options))?,
        ))
    }
}
