//! The conditions on the rows of a scan, also in a plan that is made before its parameters have
//! values.
//!
//! A filter that compares columns with parameters is *open* if storage takes it for all values
//! except NULL. A cached plan keeps it open, and each execution closes it with its values. So these
//! reach indexes and zone maps as if they had been written in the statement.

use std::collections::BTreeMap;

use aerostat_segment::Predicate;
use aerostat_types::{SqlType, TableSchema};
use datafusion::{
    common::{
        DataFusionError, ParamValues, Result, ScalarValue,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, expr::Placeholder, utils::split_conjunction},
};

use super::predicate;

/// The conditions on a scan's rows.
#[derive(Clone, Debug)]
pub(crate) enum Conditions {
    /// Conditions in storage's form.
    Closed(Vec<Predicate>),
    /// Filters with parameters, each of which storage takes.
    Open(Vec<Expr>),
}

/// The column that each parameter, by its number, is compared with.
pub(crate) type Compared = BTreeMap<usize, SqlType>;

impl Conditions {
    /// The conditions of filters over a table; `None` if storage does not take one of them.
    pub(super) fn of(filters: &[Expr], table: &TableSchema, takes_open: bool) -> Option<Self> {
        if takes_open && filters.iter().any(has_parameters) {
            let takes = |filter: &Expr| is_open(filter, table);
            return filters
                .iter()
                .all(takes)
                .then(|| Self::Open(filters.to_vec()));
        }
        let taken = filters
            .iter()
            .map(|filter| predicate::from_expr(filter, table));
        let taken = taken.collect::<Option<Vec<_>>>()?.concat();
        Some(Self::Closed(taken))
    }

    /// The conditions in storage's form.
    ///
    /// # Errors
    /// They are open: a cached plan runs without its values.
    pub(crate) fn closed(&self) -> Result<&[Predicate]> {
        match self {
            Self::Closed(predicates) => Ok(predicates),
            Self::Open(_) => Err(DataFusionError::Internal(
                "a scan of a kept plan has not been given its values".to_owned(),
            )),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// The conditions with these values, and their text; `None` if storage does not take them, as
    /// with a NULL.
    pub(crate) fn close(
        &self,
        table: &TableSchema,
        values: Option<&ParamValues>,
    ) -> Option<(Self, String)> {
        let Self::Open(filters) = self else {
            return None;
        };
        let values = values?;
        let filters = filters.iter().map(|filter| filled(filter, values));
        let filters = filters.collect::<Option<Vec<_>>>()?;
        let closed = Self::of(&filters, table, false)?;
        Some((closed, shown(&filters)))
    }

    /// Notes which columns parameters are compared with; `false` if a parameter is compared with
    /// columns of different types.
    pub(crate) fn note_compared(&self, table: &TableSchema, compared: &mut Compared) -> bool {
        let Self::Open(filters) = self else {
            return true;
        };
        let mut is_clear = true;
        for term in filters.iter().flat_map(split_conjunction) {
            let columns = term.column_refs();
            let column = columns
                .iter()
                .next()
                .and_then(|column| table.position(&column.name));
            let Some(column) = column else { continue };
            let ty = table.columns[column].ty;
            each_parameter(term, |parameter| {
                let number = number_of(parameter);
                is_clear &=
                    number.is_some_and(|number| *compared.entry(number).or_insert(ty) == ty);
            });
        }
        is_clear
    }
}

/// Filters as EXPLAIN shows them.
pub(super) fn shown(filters: &[Expr]) -> String {
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    filters.join(" AND ")
}

/// Whether storage takes a filter for all values of its parameters except NULL.
pub(super) fn is_open(filter: &Expr, table: &TableSchema) -> bool {
    let mut is_typed = true;
    let stood_in = replaced(filter, &mut |parameter| {
        let field = parameter.field.as_ref();
        let stand_in = field.and_then(|field| ScalarValue::new_default(field.data_type()).ok());
        is_typed &= stand_in.is_some();
        stand_in
    });
    is_typed && stood_in.is_some_and(|filter| predicate::from_expr(&filter, table).is_some())
}

fn has_parameters(filter: &Expr) -> bool {
    let mut found = false;
    each_parameter(filter, |_| found = true);
    found
}

/// A filter with the values of its parameters.
fn filled(filter: &Expr, values: &ParamValues) -> Option<Expr> {
    replaced(filter, &mut |parameter| {
        let value = values.get_placeholders_with_values(&parameter.id);
        value.ok().map(|value| value.value)
    })
}

/// A filter whose parameters are replaced by values; `None` if a parameter has no value.
fn replaced(
    filter: &Expr,
    value: &mut impl FnMut(&Placeholder) -> Option<ScalarValue>,
) -> Option<Expr> {
    let mut is_whole = true;
    let replaced = filter.clone().transform(|part| match &part {
        Expr::Placeholder(parameter) => Ok(match value(parameter) {
            Some(value) => Transformed::yes(Expr::Literal(value, None)),
            None => {
                is_whole = false;
                Transformed::no(part)
            }
        }),
        _ => Ok(Transformed::no(part)),
    });
    replaced.ok().map(|filter| filter.data).filter(|_| is_whole)
}

fn each_parameter(filter: &Expr, mut each: impl FnMut(&Placeholder)) {
    let visited = filter.apply(|part| {
        if let Expr::Placeholder(parameter) = part {
            each(parameter);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visit has no errors of its own");
}

/// The `n` of `$n`.
fn number_of(parameter: &Placeholder) -> Option<usize> {
    parameter.id.strip_prefix('$')?.parse().ok()
}
