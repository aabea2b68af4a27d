//! INSERT, UPDATE, DELETE, MERGE and COPY FROM.
//!
//! Each statement is bound to a query and a sink. The query computes, for every row that the
//! statement concerns, its row id, its new values, the RETURNING expressions and the truth of each
//! CHECK; the [`sink`] writes. DataFusion plans and runs the query like any other and never sees
//! that rows change: its own `delete_from` and `update` hooks lose predicates (docs/adr/0004).
//!
//! ```text
//!  outputs of the query   [row id][columns of the table …][RETURNING …][CHECK …][clause]
//!  INSERT                            yes                    yes          yes
//!  UPDATE                   yes      yes                    yes          yes
//!  DELETE                   yes      yes (pruned if unused) yes
//!  MERGE                    yes      yes                                 yes     yes
//! ```

pub mod altered;
mod assign;
mod bind;
mod copy;
mod insert;
mod merge;
mod merging;
mod on_conflict;
mod pieces;
mod referential;
mod rights;
mod rows;
pub mod sink;
mod upsert;
mod values;

use std::{ops::Range, sync::Arc};

use aerostat_api::ColumnDescription;
use datafusion::{
    arrow::datatypes::{FieldRef, Schema},
    common::Result,
    logical_expr::LogicalPlan,
};

pub use bind::{bind_delete, bind_update};
pub use copy::{CopyStream, CopyTask};
pub use insert::{bind_copy, bind_create_table_as, bind_insert, bind_rewrite, listed_columns};
pub use merge::bind_merge;
pub(crate) use on_conflict::OnConflict;
pub use referential::{check_put_off, lock_concerned, lock_concerned_by_insert, lock_put_off};
pub use rights::without_values;
pub use rows::plan_source;
pub use values::parse_expression;

use crate::{
    pairs::Pairs,
    plan::{Origin, Origins, Target, describe_columns},
};

/// What happens to the rows of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmlKind {
    /// INSERT, and COPY FROM.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// MERGE, whose clauses are of the other kinds.
    Merge,
}

/// A DML statement, bound to its target.
#[derive(Clone)]
pub struct BoundDml<T = Target> {
    /// What the statement does.
    pub kind: DmlKind,
    /// The table whose rows change.
    pub target: T,
    /// The columns that an UPDATE assigns, or the UPDATEs of a MERGE, in ascending order.
    pub(crate) assigned: Vec<usize>,
    /// The query, whose outputs the module's header draws.
    pub source: LogicalPlan,
    /// The positions of the table's columns in the outputs.
    pub(crate) columns: Range<usize>,
    /// The positions of the RETURNING expressions; `None` without RETURNING.
    pub returning: Option<Range<usize>>,
    /// The origins of the RETURNING expressions.
    pub origins: Origins,
    /// The columns of RETURNING, noted when its queries have been analysed: an optimised query may
    /// have lost the metadata that name the SQL types of its values.
    pub told: Option<Arc<[ColumnDescription]>>,
    /// The positions of the truths of the CHECK constraints, in the table's order.
    pub(crate) checks: Range<usize>,
    /// The ON CONFLICT clause of an INSERT.
    pub(crate) conflict: Option<OnConflict<T>>,
    /// What the WHEN clauses of a MERGE do, in their order; `None` for DO NOTHING.
    pub(crate) clauses: Vec<Option<DmlKind>>,
}

impl BoundDml {
    /// Notes the columns of RETURNING. The caller has analysed the source.
    pub fn note_returned(&mut self) {
        self.told = self.returned(&self.source);
    }

    /// The description of RETURNING's columns for the client, if there is a RETURNING; `plan` is
    /// the analysed source. A column of the target has the type that the table says, whatever the
    /// type of the assigned value is.
    pub fn returned(&self, plan: &LogicalPlan) -> Option<Arc<[ColumnDescription]>> {
        let outputs = &plan.schema().fields()[self.returning.clone()?];
        assert_eq!(
            outputs.len(),
            self.origins.len(),
            "each column of RETURNING has an origin or none"
        );
        let columns = &self.target.entry.table.schema().columns;
        let described = |(field, origin): (&FieldRef, &Origin)| match *origin {
            Some((oid, attnum)) if oid == self.target.entry.oid => {
                let column = &columns[usize::try_from(attnum).ok()?.checked_sub(1)?];
                Some(column.ty.field(field.name(), field.is_nullable()).into())
            }
            _ => Some(Arc::clone(field)),
        };
        let fields: Option<Vec<FieldRef>> =
            outputs.iter().zip(&self.origins).map(described).collect();
        Some(describe_columns(&self.origins, &Schema::new(fields?)))
    }
}

impl<T> BoundDml<T> {
    /// Whether this may happen to some rows.
    pub(crate) fn does(&self, kind: DmlKind) -> bool {
        self.kind == kind || self.clauses.contains(&Some(kind))
    }

    /// The query of DO UPDATE.
    pub fn update_on_conflict(&self) -> Option<&BoundDml<T>> {
        Some(&self.on_conflict()?.bound)
    }

    /// The stored names of the unique constraints in which an INSERT looks for conflicts; `None`
    /// without ON CONFLICT.
    pub fn arbiters(&self) -> Option<&[String]> {
        Some(&self.conflict.as_ref()?.constraints)
    }

    /// The pairs that the query of DO UPDATE reads.
    pub(crate) fn pairs(&self) -> Option<Arc<Pairs>> {
        Some(Arc::clone(&self.on_conflict()?.pairs))
    }

    fn on_conflict(&self) -> Option<&on_conflict::ConflictUpdate<T>> {
        self.conflict.as_ref()?.update.as_ref()
    }

    /// The queries of the statement.
    pub fn plans(&self) -> impl Iterator<Item = &LogicalPlan> {
        let update = self.update_on_conflict().map(|update| &update.source);
        std::iter::once(&self.source).chain(update)
    }

    /// The statement with `map` applied to its plans.
    ///
    /// # Errors
    /// The errors of `map`.
    pub fn map_plans(
        mut self,
        mut map: impl FnMut(LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<Self> {
        self.source = map(self.source)?;
        let update = self.conflict.as_mut().and_then(|on| on.update.as_mut());
        if let Some(update) = update {
            let source = &mut update.bound.source;
            *source = map(std::mem::take(source))?;
        }
        Ok(self)
    }

    /// The statement with a target made from its own, and with pairs that no other copy fills.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(crate) fn with_target<U>(self, make: &impl Fn(T) -> Result<U>) -> Result<BoundDml<U>> {
        let conflict = match self.conflict {
            Some(conflict) => Some(conflict.with_target(make)?),
            None => None,
        };
        Ok(BoundDml {
            kind: self.kind,
            target: make(self.target)?,
            assigned: self.assigned,
            source: self.source,
            columns: self.columns,
            returning: self.returning,
            origins: self.origins,
            told: self.told,
            checks: self.checks,
            conflict,
            clauses: self.clauses,
        })
    }
}
