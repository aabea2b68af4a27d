//! The time of the transaction or of the statement: one value wherever it is used.
//!
//! Both reach the functions through DataFusion's configuration, as its option [`Times`]:
//! DataFusion's own time of the query's start is not available where constants are folded.

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

/// When the transaction and the statement began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// What `now()` tells.
    pub transaction: DateTime<Utc>,
    /// What `statement_timestamp()` tells.
    pub statement: DateTime<Utc>,
}

impl Times {
    /// Says them to the configuration.
    pub fn put(self, options: &mut ConfigOptions) {
        options.extensions.insert(self);
    }
}

impl ConfigExtension for Times {
    const PREFIX: &'static str = "aerostat_times";
}

impl ExtensionOptions for Times {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(*self)
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

    /// The time that the configuration says, in microseconds since 1970.
    fn told(&self, options: &ConfigOptions) -> Option<i64> {
        let times = options.extensions.get::<Times>()?;
        let time = match self.of {
            Of::Transaction => times.transaction,
            Of::Statement => times.statement,
        };
        Some(time.timestamp_micros())
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
        let options = info.config_options();
        let Some(micros) = self.told(options) else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(
            self.at(micros, &Zone::of(options))?,
            None,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let options = &args.config_options;
        let micros = self.told(options).unwrap_or_else(now_micros);
        Ok(ColumnarValue::Scalar(self.at(micros, &Zone::of(options))?))
    }
}
