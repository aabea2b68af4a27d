//! The time of the transaction or of the statement: one value wherever it stands.
//!
//! DataFusion's configuration carries the first as the start of the query; where the
//! two differ, inside a transaction block, the second is its option [`StatementTime`].

use std::any::Any;
use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::DataType;
use chrono::{DateTime, Utc};
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::now_micros;
use crate::functions::cast::{Coercion, Zone, convert};

/// When the statement began, if that is not when its transaction did.
#[derive(Clone, Debug, Default)]
pub struct StatementTime(Option<DateTime<Utc>>);

impl StatementTime {
    /// What the configuration says.
    pub fn of(options: &ConfigOptions) -> Option<DateTime<Utc>> {
        options.extensions.get::<Self>()?.0
    }

    /// Says it to the configuration.
    pub fn put(began: Option<DateTime<Utc>>, options: &mut ConfigOptions) {
        options.extensions.insert(Self(began));
    }
}

impl ConfigExtension for StatementTime {
    const PREFIX: &'static str = "aerostat_statement";
}

impl ExtensionOptions for StatementTime {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        plan_err!("{key} is told, not set")
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Whose beginning a function tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Transaction,
    Statement,
}

/// `now()` or one of its relatives of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Now {
    name: &'static str,
    aliases: Vec<String>,
    ty: SqlType,
    of: Of,
    signature: Signature,
}

impl Now {
    pub(super) fn new(name: &'static str, aliases: &[&str], ty: SqlType, of: Of) -> Self {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        Self {
            name,
            aliases,
            ty,
            of,
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
        let told = match self.of {
            Of::Transaction => None,
            Of::Statement => StatementTime::of(info.config_options()),
        };
        let Some(start) = told.or_else(|| info.query_execution_start_time()) else {
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
