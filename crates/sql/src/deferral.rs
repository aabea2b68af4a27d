//! When constraints are checked.

use aerostat_types::{ErrorKind, SqlError};
use serde::{Deserialize, Serialize};
use sqlparser::ast::{ConstraintCharacteristics, DeferrableInitial};

/// When a constraint is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deferral {
    /// At the end of each statement, always.
    #[default]
    Never,
    /// At the end of each statement, unless the transaction says later.
    Immediate,
    /// When the transaction commits, unless it says at once.
    Deferred,
}

impl Deferral {
    /// What `pg_get_constraintdef` writes of it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Never => "",
            Self::Immediate => " DEFERRABLE",
            Self::Deferred => " DEFERRABLE INITIALLY DEFERRED",
        }
    }

    /// Whether a transaction may put the check off.
    pub fn is_deferrable(self) -> bool {
        self != Self::Never
    }
}

/// When a constraint is checked, as it says.
///
/// # Errors
/// `SyntaxError` for what contradicts itself.
pub fn deferral_of(
    characteristics: Option<&ConstraintCharacteristics>,
) -> Result<Deferral, SqlError> {
    let Some(said) = characteristics else {
        return Ok(Deferral::Never);
    };
    let is_deferred = said.initially == Some(DeferrableInitial::Deferred);
    deferral(said.deferrable, is_deferred)
}

/// When a constraint is checked that is said to be DEFERRABLE or NOT DEFERRABLE, or neither,
/// and INITIALLY DEFERRED or not.
///
/// # Errors
/// `SyntaxError` for NOT DEFERRABLE INITIALLY DEFERRED.
pub fn deferral(is_deferrable: Option<bool>, is_deferred: bool) -> Result<Deferral, SqlError> {
    match (is_deferrable, is_deferred) {
        (Some(false), true) => Err(SqlError::new(
            ErrorKind::SyntaxError,
            "constraint declared INITIALLY DEFERRED must be DEFERRABLE",
        )),
        (_, true) => Ok(Deferral::Deferred),
        (Some(true), false) => Ok(Deferral::Immediate),
        (None | Some(false), false) => Ok(Deferral::Never),
    }
}
