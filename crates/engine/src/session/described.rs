//! The result that a client was told of when it prepared a statement, which its rows keep to.
//!
//! A definition between preparing and running may give the same text other columns. Nobody reads
//! rows by another description than they have: the statement fails before anything has happened,
//! as in PostgreSQL, and drivers prepare it again.

use std::sync::Arc;

use aerostat_api::{ColumnDescription, RESULT_CHANGED};
use aerostat_semantics::external;
use aerostat_types::{ErrorKind, RelationId, SqlError, SqlType};

/// The columns that a client reads rows by; `None` if it was told of none.
#[derive(Clone, Debug, Default)]
pub(super) struct Described {
    columns: Option<Arc<[ColumnDescription]>>,
    /// Whether values are written into the statement, which may give a column another name.
    is_written: bool,
}

impl Described {
    pub(super) fn new(columns: Option<Arc<[ColumnDescription]>>, is_written: bool) -> Self {
        Self {
            columns,
            is_written,
        }
    }

    fn is_shape_of(&self, described: &[ColumnDescription], columns: &[ColumnDescription]) -> bool {
        let is_same = |(one, other): (&ColumnDescription, &ColumnDescription)| match self.is_written
        {
            // Written values have digits of their own, and an array without values is written without
            // the type of what it has none of.
            true => one.oid == other.oid || one.ty.is_none() || are_texts(one, other),
            // So have those of an expression: the digits of a numeric are known better with a value.
            false => {
                let is_same_modifier =
                    one.typmod == other.typmod || one.table_oid == RelationId::NONE;
                one.name == other.name
                    && (one.oid == other.oid && is_same_modifier || are_texts(one, other))
            }
        };
        described.len() == columns.len() && described.iter().zip(columns).all(is_same)
    }

    /// Requires that rows of these columns are what the client was told of, if it was.
    pub(super) fn require(&self, columns: &[ColumnDescription]) -> Result<(), SqlError> {
        match &self.columns {
            Some(described) if !self.is_shape_of(described, columns) => Err(changed()),
            _ => Ok(()),
        }
    }

    /// The columns of rows as the client is told of them: as it was.
    pub(super) fn told(&self, columns: Arc<[ColumnDescription]>) -> Arc<[ColumnDescription]> {
        match &self.columns {
            Some(described) => Arc::clone(described),
            None => columns,
        }
    }

    /// As [`Self::require`], where an error is a plan's.
    pub(super) fn require_planned(
        &self,
        columns: &[ColumnDescription],
    ) -> datafusion::common::Result<()> {
        self.require(columns).map_err(external)
    }
}

/// Whether both are of kinds of text, which a client reads alike. A plan may call one by the other's
/// name: a value of a `varchar` that has been through an outer join is a text.
fn are_texts(one: &ColumnDescription, other: &ColumnDescription) -> bool {
    [one, other].map(|column| column.ty.is_some_and(SqlType::is_text)) == [true, true]
}

fn changed() -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, RESULT_CHANGED)
}
