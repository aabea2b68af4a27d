//! Taking a tree of inner joins apart: into relations, the pairs by which they are joined, and
//! other conditions.
//!
//! The columns of the relations are renamed, such as `s3.c1` for the second column of the fourth
//! relation, so that a table that is joined with itself is two relations.

use std::collections::HashSet;

use datafusion::{
    common::{
        Column, JoinType, NullEquality, Result, TableReference,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Expr, Join, LogicalPlan, LogicalPlanBuilder, expr::Alias, utils::split_conjunction,
    },
};

use super::unique::is_unique;

/// A tree with more relations is joined as it is.
const RELATIONS_MAX: usize = 24;

/// The parts of a tree of inner joins.
#[derive(Default)]
pub(super) struct Joined {
    /// The joined relations, as they are in the plan.
    pub(super) relations: Vec<LogicalPlan>,
    /// Pairs that must be equal.
    pub(super) pairs: Vec<(Expr, Expr)>,
    /// The other conditions.
    pub(super) conditions: Vec<Expr>,
}

impl Joined {
    /// Takes a plan apart. Returns each of its columns in terms of the relations' columns; `None`
    /// if the plan contains something unknown.
    ///
    /// # Errors
    /// A column that is not in its input, which cannot happen.
    pub(super) fn take(&mut self, plan: &LogicalPlan) -> Result<Option<Vec<Expr>>> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let Some(input) = self.take(&projection.input)? else {
                    return Ok(None);
                };
                let renamed = |expr: &Expr| renamed(expr, &projection.input, &input);
                all(projection.expr.iter().map(renamed))
            }
            LogicalPlan::SubqueryAlias(alias) => self.take(&alias.input),
            LogicalPlan::Filter(filter) => {
                let Some(input) = self.take(&filter.input)? else {
                    return Ok(None);
                };
                for condition in split_conjunction(&filter.predicate) {
                    let Some(condition) = renamed(condition, &filter.input, &input)? else {
                        return Ok(None);
                    };
                    self.conditions.push(condition);
                }
                Ok(Some(input))
            }
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNothing =>
            {
                let Some(left) = self.take(&join.left)? else {
                    return Ok(None);
                };
                let Some(right) = self.take(&join.right)? else {
                    return Ok(None);
                };
                for (a, b) in &join.on {
                    let a = renamed(a, &join.left, &left)?;
                    let Some(pair) = a.zip(renamed(b, &join.right, &right)?) else {
                        return Ok(None);
                    };
                    self.pairs.push(pair);
                }
                let both: Vec<Expr> = left.into_iter().chain(right).collect();
                for condition in join.filter.iter().flat_map(split_conjunction) {
                    let Some(condition) = renamed(condition, plan, &both)? else {
                        return Ok(None);
                    };
                    self.conditions.push(condition);
                }
                Ok(Some(both))
            }
            LogicalPlan::Join(join)
                if join.join_type == JoinType::LeftSemi
                    && !join.on.is_empty()
                    && join.null_equality == NullEquality::NullEqualsNothing
                    && join.filter.is_none() =>
            {
                self.take_semi(join)
            }
            other => Ok(self.push(other.clone())),
        }
    }

    /// A relation's columns.
    fn push(&mut self, relation: LogicalPlan) -> Option<Vec<Expr>> {
        let at = self.relations.len();
        let columns = relation.schema().fields().len();
        self.relations.push(relation);
        let is_few = at < RELATIONS_MAX;
        is_few.then(|| {
            let columns = 0..columns;
            columns.map(|nth| Expr::Column(column(at, nth))).collect()
        })
    }

    /// Takes a semi join apart: it joins the left side with the right side's keys, each once.
    fn take_semi(&mut self, join: &Join) -> Result<Option<Vec<Expr>>> {
        let Some(left) = self.take(&join.left)? else {
            return Ok(None);
        };
        let keys = keys_apart(join.on.iter().map(|(_, key)| key));
        let keys = LogicalPlanBuilder::from(join.right.as_ref().clone()).project(keys)?;
        let mut keys = keys.build()?;
        if !is_unique(&keys, &(0..join.on.len()).collect::<Vec<_>>()) {
            let columns = keys.schema().columns().into_iter().map(Expr::Column);
            let columns: Vec<Expr> = columns.collect();
            let none: Vec<Expr> = Vec::new();
            keys = LogicalPlanBuilder::from(keys)
                .aggregate(columns, none)?
                .build()?;
        }
        let Some(keys) = self.push(keys) else {
            return Ok(None);
        };
        for ((own, _), key) in join.on.iter().zip(keys) {
            let Some(own) = renamed(own, &join.left, &left)? else {
                return Ok(None);
            };
            self.pairs.push((own, key));
        }
        Ok(Some(left))
    }

    /// A relation whose columns have their new names.
    ///
    /// # Errors
    /// No error is known.
    pub(super) fn named(&self, at: usize) -> Result<LogicalPlanBuilder> {
        let relation = &self.relations[at];
        let columns = relation.schema().columns().into_iter().enumerate();
        let columns = columns.map(|(nth, column)| Expr::Column(column).alias(name(nth)));
        LogicalPlanBuilder::from(relation.clone())
            .project(columns.collect::<Vec<_>>())?
            .alias(relation_name(at))
    }
}

/// The keys, with different names: a column and its cast have one name, and one column may be the
/// key of several others.
fn keys_apart<'k>(keys: impl Iterator<Item = &'k Expr>) -> Vec<Expr> {
    let mut names = HashSet::new();
    let keys = keys.enumerate().map(|(nth, key)| {
        let is_new = names.insert(key.schema_name().to_string());
        match is_new {
            true => key.clone(),
            false => key.clone().alias(format!("\u{1}key {nth}")),
        }
    });
    keys.collect()
}

/// An expression over the columns of a plan, in terms of `columns`, which these stand for; `None`
/// if it has other values where it is computed again, or contains a query.
///
/// # Errors
/// A column that the plan does not have.
pub(super) fn renamed(expr: &Expr, plan: &LogicalPlan, columns: &[Expr]) -> Result<Option<Expr>> {
    if expr.is_volatile() || expr.exists(|part| Ok(is_beyond(part)))? {
        return Ok(None);
    }
    let schema = plan.schema();
    assert_eq!(
        schema.fields().len(),
        columns.len(),
        "each column of a plan is known in terms of the relations"
    );
    let expr = expr.clone().transform_up(|part| match part {
        Expr::Column(column) => {
            let at = schema.index_of_column(&column)?;
            Ok(Transformed::yes(columns[at].clone()))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(Some(without_alias(expr?.data)))
}

fn is_beyond(part: &Expr) -> bool {
    matches!(
        part,
        Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Placeholder(_)
            | Expr::WindowFunction(_)
            | Expr::Unnest(_)
            | Expr::GroupingSet(_)
    )
}

fn without_alias(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(Alias { expr, .. }) => without_alias(*expr),
        other => other,
    }
}

fn all(items: impl Iterator<Item = Result<Option<Expr>>>) -> Result<Option<Vec<Expr>>> {
    items.collect()
}

fn relation_name(at: usize) -> String {
    format!("s{at}")
}

fn name(nth: usize) -> String {
    format!("c{nth}")
}

/// The column at these positions: of the relation, and of the column in it.
pub(super) fn column(at: usize, nth: usize) -> Column {
    let relation = TableReference::bare(relation_name(at));
    Column::new(Some(relation), name(nth))
}

/// The positions of a column's relation, and of the column in it.
pub(super) fn place_of(column: &Column) -> Option<(usize, usize)> {
    let relation = column.relation.as_ref()?.table();
    let at = relation.strip_prefix('s')?.parse().ok()?;
    Some((at, column.name.strip_prefix('c')?.parse().ok()?))
}

/// The relations whose columns an expression contains, in ascending order.
pub(super) fn relations_of(expr: &Expr) -> Vec<usize> {
    let columns = expr.column_refs();
    let mut found: Vec<usize> = columns
        .into_iter()
        .filter_map(|column| Some(place_of(column)?.0))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
