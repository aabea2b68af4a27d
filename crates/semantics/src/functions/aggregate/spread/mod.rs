//! Variances, deviations, covariances and regressions, as PostgreSQL computes them.
//!
//! | arguments | method | result |
//! |---|---|---|
//! | real, double precision | Youngs and Cramer's updates (1971), which lose no digits to a large mean | double precision |
//! | integers, numeric | exact sums of values and squares | numeric, at least 16 digits after the point |
//!
//! A value that is not finite makes the result NaN; a sum of finite values that is not finite is
//! an error. Over sliding frames rows are never subtracted ([`super::sliding`]), except from
//! exact sums.

mod exact;
mod float;
mod pairs;
mod state;

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::FunctionRegistry;

/// What is told of the values of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spread {
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
}

impl Spread {
    fn is_sample(self) -> bool {
        matches!(self, Self::VarSamp | Self::StddevSamp)
    }

    fn is_root(self) -> bool {
        matches!(self, Self::StddevPop | Self::StddevSamp)
    }
}

/// Puts them over DataFusion's.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    let spreads = [
        ("var_pop", &[][..], Spread::VarPop),
        ("var_samp", &["variance"][..], Spread::VarSamp),
        ("stddev_pop", &[][..], Spread::StddevPop),
        ("stddev", &["stddev_samp"][..], Spread::StddevSamp),
    ];
    let spreads = spreads.map(|(name, aliases, kind)| float::function(name, aliases, kind));
    let functions = spreads.into_iter().chain(pairs::functions());
    for name in ["var", "var_pop", "stddev", "stddev_pop", "covar_samp"] {
        registry.deregister_udaf(name)?;
    }
    for function in functions {
        registry.deregister_udaf(function.name())?;
        registry.register_udaf(function)?;
    }
    Ok(())
}

/// PostgreSQL's error for arguments that there is no such aggregate for.
fn missing(name: &str, arguments: &[DataType]) -> DataFusionError {
    crate::functions::lists::missing(name, arguments)
}
