//! Placing subqueries: each correlated scalar subquery of a node becomes a column of a join below
//! the node.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, NullEquality, Result};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, Projection, Subquery, SubqueryAlias, lit,
};

use super::domain::{Domain, VALUE, substitute};
use super::push::{Pushed, Pusher, columns, filled, fresh, left_join, pairs};
use super::scope::{self, Reference, partition_conjuncts};
use super::single::{constant_of_row, single_row};
use super::{unsupported, unsupported_with_hint};

/// The rule's state over one statement.
#[derive(Default)]
pub(super) struct Unnester {
    names: usize,
    /// Subqueries around the plan in hand.
    depth: usize,
}

/// A node's input while subqueries are joined to it.
struct Attach {
    /// The input as the subqueries refer to it.
    input: LogicalPlan,
    /// The input with the subqueries joined so far.
    plan: LogicalPlan,
    /// Whether DataFusion takes the subqueries of this node that it can.
    leaves_plain: bool,
    /// Subqueries joined, with what stands for each.
    done: Vec<(Subquery, Expr)>,
}

impl Attach {
    fn new(input: &LogicalPlan, leaves_plain: bool) -> Attach {
        Attach {
            input: input.clone(),
            plan: input.clone(),
            leaves_plain,
            done: Vec::new(),
        }
    }

    /// Whether the rule takes a subquery: a scalar one with references, unless DataFusion does.
    fn takes(&self, expr: &Expr) -> Result<bool> {
        let Expr::ScalarSubquery(subquery) = expr else {
            return Ok(false);
        };
        let free = scope::free_references(&subquery.subquery)?;
        if free.is_empty() {
            return Ok(false);
        }
        let bound = free
            .iter()
            .all(|(_, column)| self.input.schema().has_column(column));
        Ok(!(self.leaves_plain && bound && scope::is_plain_aggregation(&subquery.subquery)?))
    }

    fn takes_any(&self, expr: &Expr) -> Result<bool> {
        expr.exists(|node| self.takes(node))
    }

    /// Whether a subquery refers to this input.
    fn binds(&self, subquery: &Subquery) -> Result<bool> {
        Ok(scope::free_references(&subquery.subquery)?
            .iter()
            .any(|(_, column)| self.input.schema().has_column(column)))
    }
}

impl Unnester {
    /// Unnests a plan from the inside out.
    pub(super) fn rewrite(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let below = usize::from(matches!(plan, LogicalPlan::Subquery(_)));
        self.depth += below;
        let plan = plan
            .map_children(|child| Ok(Transformed::yes(self.rewrite(child)?)))?
            .data;
        self.depth -= below;
        let names = NamePreserver::new(&plan);
        let plan = plan
            .map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|node| self.subquery(node))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })?
            .data;
        let plan = match plan {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Join(join) => {
                let joined = self.lateral(join)?;
                match joined {
                    LogicalPlan::Join(join) => self.condition(join),
                    other => Ok(other),
                }
            }
            other => self.expressions(other),
        }?;
        nullable_as_inputs(plan)
    }

    /// Unnests what is within a subquery.
    fn subquery(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let is_scalar = matches!(expr, Expr::ScalarSubquery(_));
        let (subquery, around): (Subquery, Box<dyn Fn(Subquery) -> Expr>) = match expr {
            Expr::ScalarSubquery(subquery) => (subquery, Box::new(Expr::ScalarSubquery)),
            Expr::Exists(Exists { subquery, negated }) => (
                subquery,
                Box::new(move |subquery| Expr::Exists(Exists::new(subquery, negated))),
            ),
            Expr::InSubquery(InSubquery {
                expr,
                subquery,
                negated,
            }) => (
                subquery,
                Box::new(move |subquery| {
                    Expr::InSubquery(InSubquery::new(expr.clone(), subquery, negated))
                }),
            ),
            other => return Ok(Transformed::no(other)),
        };
        self.depth += 1;
        let mut inner = self.rewrite(LogicalPlan::clone(&subquery.subquery))?;
        self.depth -= 1;
        if is_scalar && !inner.schema().field(0).is_nullable() && !scope::always_one_row(&inner) {
            inner = nullable(inner)?;
        }
        let rewritten = around(Subquery {
            outer_ref_columns: references(&inner)?,
            subquery: Arc::new(inner),
            spans: subquery.spans,
        });
        Ok(Transformed::yes(rewritten))
    }

    /// A filter's other conjuncts come first, as they make the domain smaller
    /// and as PostgreSQL too evaluates subqueries last.
    fn filter(&mut self, filter: Filter) -> Result<LogicalPlan> {
        let attach = Attach::new(&filter.input, true);
        let (ours, others) = partition_conjuncts(filter.predicate.clone(), |conjunct| {
            attach.takes_any(conjunct)
        })?;
        let Some(ours) = conjunction(ours) else {
            return Ok(LogicalPlan::Filter(filter));
        };
        let schema = Arc::clone(filter.input.schema());
        let input = match conjunction(others) {
            Some(others) => LogicalPlan::Filter(Filter::try_new(others, filter.input)?),
            None => LogicalPlan::clone(&filter.input),
        };
        let mut attach = Attach::new(&input, true);
        let predicate = self.replace(ours, &mut attach)?;
        let filtered = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(attach.plan))?);
        only(filtered, &schema.columns())
    }

    fn expressions(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let leaves_plain = matches!(plan, LogicalPlan::Projection(_));
        let inputs = plan.inputs();
        let [input] = inputs.as_slice() else {
            return Ok(plan);
        };
        let mut attach = Attach::new(input, leaves_plain);
        let mut takes = false;
        plan.apply_expressions(|expr| {
            takes |= attach.takes_any(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !takes {
            return Ok(plan);
        }
        if !matches!(
            plan,
            LogicalPlan::Projection(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Sort(_)
        ) {
            return Err(unsupported("a correlated subquery in this place"));
        }
        let names = NamePreserver::new(&plan);
        let mut exprs = Vec::new();
        for expr in plan.expressions() {
            let name = names.save(&expr);
            exprs.push(name.restore(self.replace(expr, &mut attach)?));
        }
        let columns = plan.schema().columns();
        let replaced = plan.with_new_exprs(exprs, vec![attach.plan])?;
        only(replaced, &columns)
    }

    /// The condition of an outer join: a subquery belongs to the side it refers to.
    fn condition(&mut self, join: Join) -> Result<LogicalPlan> {
        let mut left = Attach::new(&join.left, false);
        let mut right = Attach::new(&join.right, false);
        let Some(filter) = &join.filter else {
            return Ok(LogicalPlan::Join(join));
        };
        if !left.takes_any(filter)? {
            return Ok(LogicalPlan::Join(join));
        }
        let columns = join.schema.columns();
        let filter = filter
            .clone()
            .transform_down(|node| {
                let Expr::ScalarSubquery(subquery) = &node else {
                    return Ok(Transformed::no(node));
                };
                let side = match (left.binds(subquery)?, right.binds(subquery)?) {
                    (true, true) => {
                        return Err(unsupported(
                            "a subquery that refers to both sides of an outer join, in its ON",
                        ));
                    }
                    (false, true) => &mut right,
                    _ => &mut left,
                };
                Ok(Transformed::yes(self.replace(node, side)?))
            })?
            .data;
        let joined = LogicalPlan::Join(Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            join.on,
            Some(filter),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?);
        only(joined, &columns)
    }

    /// A LATERAL item: the dependent join itself.
    fn lateral(&mut self, join: Join) -> Result<LogicalPlan> {
        let Some(subquery) = scope::lateral(&join.right).cloned() else {
            return Ok(LogicalPlan::Join(join));
        };
        // The planner takes what a LATERAL within it refers to for the outer query's.
        if scope::free_references(&subquery.subquery)?.is_empty() {
            let right = Arc::new(bare(&join.right)?);
            return Ok(LogicalPlan::Join(Join { right, ..join }));
        }
        // DataFusion makes joins of subqueries first, and does not look for references in these.
        let plain = scope::is_plain(&subquery.subquery)?
            && !scope::has_scalar_subqueries(&subquery.subquery)?;
        if self.depth == 0 && join.join_type == JoinType::Inner && plain {
            return Ok(LogicalPlan::Join(join));
        }
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return Err(unsupported("a LATERAL reference in this kind of join"));
        }
        let bound = self.bound(&join.left, &subquery.subquery)?;
        let domain = self.domain(&join.left, &subquery.subquery, bound)?;
        let Pushed { plan, keys } = self.pusher(&domain).push(&join.right)?;
        let qualifier = fresh(&mut self.names, "lateral");
        let mut exprs: Vec<Expr> = columns(&join.right.schema().columns()).collect();
        let keys = named(&keys, &qualifier, &mut exprs);
        let right = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        let schema = join.schema.columns();
        if !join.on.is_empty() {
            return Err(unsupported("LATERAL with USING"));
        }
        let joined = LogicalPlan::Join(Join::try_new(
            join.left,
            Arc::new(right),
            pairs(domain.outer(), &keys),
            join.filter,
            join.join_type,
            join.join_constraint,
            NullEquality::NullEqualsNull,
            false,
        )?);
        only(joined, &schema)
    }

    /// Puts columns of joins for the subqueries of an expression that are ours.
    fn replace(&mut self, expr: Expr, attach: &mut Attach) -> Result<Expr> {
        expr.transform_down(|node| {
            if !attach.takes(&node)? {
                return Ok(Transformed::no(node));
            }
            let Expr::ScalarSubquery(subquery) = node else {
                return Ok(Transformed::no(node));
            };
            let value = self.attach(subquery, attach)?;
            Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
        })
        .map(|replaced| replaced.data)
    }

    /// Joins a subquery and gives the expression for its value.
    fn attach(&mut self, subquery: Subquery, attach: &mut Attach) -> Result<Expr> {
        if let Some((_, value)) = attach.done.iter().find(|(known, _)| *known == subquery) {
            return Ok(value.clone());
        }
        let plan = &subquery.subquery;
        let bound = self.bound(&attach.input, plan)?;
        let domain = self.domain(&attach.input, plan, bound)?;
        let qualifier = fresh(&mut self.names, "subquery");
        let value = match aggregation(plan, &domain)? {
            Some((value, node)) => {
                self.attach_aggregation(value, &node, &domain, &qualifier, attach)?
            }
            None => self.attach_rows(plan, &domain, &qualifier, attach)?,
        };
        attach.done.push((subquery, value.clone()));
        Ok(value)
    }

    /// A subquery that is expressions over an aggregation without groups: the
    /// outer join gives the rows that no group has, and the expressions stay
    /// above it, where a CASE may skip them.
    fn attach_aggregation(
        &mut self,
        value: Expr,
        node: &Aggregate,
        domain: &Domain,
        qualifier: &str,
        attach: &mut Attach,
    ) -> Result<Expr> {
        let plan = LogicalPlan::Aggregate(node.clone());
        let (grouped, keys) = self.pusher(domain).grouped(&plan, node)?;
        let mut exprs = Vec::new();
        let from = plan.schema().columns();
        let to = named_as(&from, qualifier, "v", &mut exprs);
        let keys = named(&keys, qualifier, &mut exprs);
        let right = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(grouped))?);
        self.join_to(attach, right, domain, &keys)?;
        let to: Vec<Expr> = columns(&to).collect();
        let filled = filled(node)?
            .into_iter()
            .map(|expr| substitute(expr, &plan, &to))
            .collect::<Result<Vec<_>>>()?;
        substitute(value, &plan, &filled)
    }

    /// Any other subquery: its rows by domain, of which there may be one.
    fn attach_rows(
        &mut self,
        plan: &LogicalPlan,
        domain: &Domain,
        qualifier: &str,
        attach: &mut Attach,
    ) -> Result<Expr> {
        let single = scope::at_most_one_row(plan);
        let output = Column::from(plan.schema().qualified_field(0));
        let Pushed { plan, keys } = self.pusher(domain).push(plan)?;
        let value = Column::new(Some(qualifier), "value");
        let rows = Column::new(Some(qualifier), "rows");
        let output = Expr::Column(output);
        if single {
            let mut exprs = vec![output.alias_qualified(Some(qualifier), &value.name)];
            let keys = named(&keys, qualifier, &mut exprs);
            let right = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
            self.join_to(attach, right, domain, &keys)?;
            return Ok(Expr::Column(value));
        }
        let grouped = LogicalPlan::Aggregate(Aggregate::try_new(
            Arc::new(plan),
            columns(&keys).collect(),
            vec![
                first_value(output, Vec::new()).alias(VALUE),
                count(lit(1_i64)).alias(format!("{VALUE}s")),
            ],
        )?);
        let given = |name: String| Expr::Column(Column::new_unqualified(name));
        let mut exprs = vec![
            given(VALUE.to_owned()).alias_qualified(Some(qualifier), &value.name),
            given(format!("{VALUE}s")).alias_qualified(Some(qualifier), &rows.name),
        ];
        let keys = named(&keys, qualifier, &mut exprs);
        let right = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(grouped))?);
        self.join_to(attach, right, domain, &keys)?;
        Ok(single_row(Expr::Column(value), Expr::Column(rows)))
    }

    fn join_to(
        &self,
        attach: &mut Attach,
        right: LogicalPlan,
        domain: &Domain,
        keys: &[Column],
    ) -> Result<()> {
        attach.plan = left_join(
            attach.plan.clone(),
            right,
            pairs(domain.outer(), keys),
            domain.is_nullable(),
        )?;
        Ok(())
    }

    fn pusher<'a>(&'a mut self, domain: &'a Domain) -> Pusher<'a> {
        Pusher {
            domain,
            names: &mut self.names,
        }
    }

    /// The references of a subquery that the rows bind; the others are for queries further out.
    fn bound(&self, rows: &LogicalPlan, subquery: &LogicalPlan) -> Result<Vec<Reference>> {
        let (bound, free): (Vec<_>, Vec<_>) = scope::free_references(subquery)?
            .into_iter()
            .partition(|(_, column)| rows.schema().has_column(column));
        if let Some((_, hidden)) = free
            .iter()
            .find(|(_, column)| scope::is_ungrouped(rows, column))
        {
            return Err(crate::raise(
                ErrorKind::GroupingError,
                format!(
                    "subquery uses ungrouped column \"{}\" from outer query",
                    hidden.flat_name()
                ),
            ));
        }
        Ok(bound)
    }

    fn domain(
        &self,
        rows: &LogicalPlan,
        subquery: &LogicalPlan,
        bound: Vec<Reference>,
    ) -> Result<Domain> {
        if scope::is_volatile(subquery)? {
            return Err(unsupported_with_hint(
                "a volatile function in a correlated subquery",
                "Call the function outside of the subquery.",
            ));
        }
        Domain::new(rows, bound)
    }
}

/// A scalar subquery that may give no row is NULL then, whatever its column is.
fn nullable(plan: LogicalPlan) -> Result<LogicalPlan> {
    if let LogicalPlan::Projection(rows) = &plan
        && let [value] = &rows.expr[..]
        && value.column_refs().is_empty()
        && let Some(row) = rows.input.schema().columns().into_iter().next()
    {
        let (qualifier, name) = value.qualified_name();
        let value = constant_of_row(value.clone().unalias(), Expr::Column(row));
        let value = value.alias_qualified(qualifier, name);
        let rows = Projection::try_new(vec![value], Arc::clone(&rows.input))?;
        return Ok(LogicalPlan::Projection(rows));
    }
    let (qualifier, field) = plan.schema().qualified_field(0);
    let (qualifier, name) = (qualifier.cloned(), field.name().clone());
    let value = Expr::Column(Column::new(qualifier.clone(), &name));
    let value = single_row(value, lit(1_i64)).alias_qualified(qualifier, name);
    let plan = Projection::try_new(vec![value], Arc::new(plan))?;
    Ok(LogicalPlan::Projection(plan))
}

/// The node with what its inputs now say of NULLs: an outer join below may
/// bring some to columns that had none.
fn nullable_as_inputs(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Union(mut union) = plan else {
        return plan.recompute_schema();
    };
    let fields = union
        .schema
        .iter()
        .enumerate()
        .map(|(at, (qualifier, field))| {
            let nullable = field.is_nullable()
                || union
                    .inputs
                    .iter()
                    .any(|input| input.schema().field(at).is_nullable());
            let field = field.as_ref().clone().with_nullable(nullable);
            (qualifier.cloned(), Arc::new(field))
        });
    let metadata = union.schema.metadata().clone();
    union.schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), metadata)?);
    Ok(LogicalPlan::Union(union))
}

/// The outer references of a plan as DataFusion lists them with a subquery.
pub(super) fn references(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    Ok(scope::free_references(plan)?
        .into_iter()
        .map(|(field, column)| Expr::OuterReferenceColumn(field, column))
        .collect())
}

/// A LATERAL item as any other.
fn bare(plan: &LogicalPlan) -> Result<LogicalPlan> {
    Ok(match plan {
        LogicalPlan::Subquery(subquery) => LogicalPlan::clone(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => {
            let below = Arc::new(bare(&alias.input)?);
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(below, alias.alias.clone())?)
        }
        other => other.clone(),
    })
}

/// Exactly these columns of a plan.
pub(super) fn only(plan: LogicalPlan, wanted: &[Column]) -> Result<LogicalPlan> {
    if plan.schema().fields().len() == wanted.len() {
        return Ok(plan);
    }
    let exprs = columns(wanted).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(
        exprs,
        Arc::new(plan),
    )?))
}

/// Names the keys under a qualifier; a join's other side may have the same domain.
fn named(keys: &[Column], qualifier: &str, exprs: &mut Vec<Expr>) -> Vec<Column> {
    named_as(keys, qualifier, "k", exprs)
}

fn named_as(from: &[Column], qualifier: &str, letter: &str, exprs: &mut Vec<Expr>) -> Vec<Column> {
    let mut to = Vec::with_capacity(from.len());
    for (at, column) in from.iter().enumerate() {
        let name = format!("{letter}{at}");
        exprs.push(Expr::Column(column.clone()).alias_qualified(Some(qualifier), &name));
        to.push(Column::new(Some(qualifier), name));
    }
    to
}

/// The aggregation without groups at a subquery's root, and the subquery's value over it.
fn aggregation(plan: &LogicalPlan, domain: &Domain) -> Result<Option<(Expr, Aggregate)>> {
    let mut plan = plan;
    let mut value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    loop {
        let (below, exprs): (_, Vec<Expr>) = match plan {
            LogicalPlan::Projection(node) => (
                &node.input,
                node.expr
                    .iter()
                    .map(|expr| expr.clone().unalias())
                    .collect(),
            ),
            LogicalPlan::SubqueryAlias(node) => (
                &node.input,
                node.input.schema().iter().map(Expr::from).collect(),
            ),
            LogicalPlan::Aggregate(node) if node.group_expr.is_empty() => {
                let value = value.transform(|node| match &node {
                    Expr::OuterReferenceColumn(_, column) => Ok(match domain.position(column) {
                        Some(at) => Transformed::yes(domain.outer()[at].clone()),
                        None => Transformed::no(node),
                    }),
                    _ => Ok(Transformed::no(node)),
                })?;
                return Ok(Some((value.data, node.clone())));
            }
            _ => return Ok(None),
        };
        value = substitute(value, plan, &exprs)?;
        if scope::contains_subquery(&value)? {
            return Ok(None);
        }
        plan = below;
    }
}
