//! The dependent join D ⋈ S, pushed down S.
//!
//! A plan becomes one that returns, for each k of D, the rows that the plan returns when its
//! outer references are k, with k beside each row. Columns keep their names; the columns of k get
//! new names wherever D comes in, and any of the copies serves those above.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, DFSchemaRef, JoinType, NullEquality, Result, ScalarValue,
};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Case, Cast, Distinct, DistinctOn, Expr, ExprFunctionExt, Filter, Join,
    Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, Union, Unnest, Values,
    Window, lit,
};

use super::domain::Domain;
use super::{scope, unsupported};
use crate::expanded;

/// A plan with the domain inside, and where the domain's values stand in it.
pub(super) struct Pushed {
    pub(super) plan: LogicalPlan,
    pub(super) keys: Vec<Column>,
}

/// Pushes one domain into plans.
pub(super) struct Pusher<'a> {
    pub(super) domain: &'a Domain,
    /// Numbers the qualifiers of one statement.
    pub(super) names: &'a mut usize,
}

impl Pusher<'_> {
    pub(super) fn push(&mut self, plan: &LogicalPlan) -> Result<Pushed> {
        if self.domain.is_empty() {
            return Ok(Pushed {
                plan: plan.clone(),
                keys: Vec::new(),
            });
        }
        if !self.reaches(plan)? {
            return self.cross(plan);
        }
        match plan {
            LogicalPlan::Projection(node) => self.projection(plan, node),
            LogicalPlan::Filter(node) => self.filter(node),
            LogicalPlan::SubqueryAlias(node) => {
                let pushed = self.push(&node.input)?;
                let columns = node.input.schema().columns();
                self.renamed(pushed, columns, plan.schema())
            }
            LogicalPlan::Subquery(node) => self.push(&node.subquery),
            LogicalPlan::Aggregate(node) => self.aggregate(plan, node),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Sort(node) if node.fetch.is_none() => self.sort(node),
            LogicalPlan::Limit(node) => self.limit(node),
            LogicalPlan::Window(node) => self.window(plan, node),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let pushed = self.push(input)?;
                let Pushed { plan, keys } = self.exact(pushed, input.schema())?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
                Ok(Pushed { plan, keys })
            }
            LogicalPlan::Distinct(Distinct::On(node)) => self.distinct_on(plan, node),
            LogicalPlan::Union(node) => self.union(node),
            LogicalPlan::Values(node) => self.values(node),
            LogicalPlan::Unnest(node) => {
                let Pushed { plan, keys } = self.push(&node.input)?;
                let plan = LogicalPlan::Unnest(Unnest::try_new(
                    Arc::new(plan),
                    node.exec_columns.clone(),
                    node.options.clone(),
                )?);
                Ok(Pushed { plan, keys })
            }
            other => Err(unsupported(format!(
                "a reference to an outer query in {}",
                other
                    .display()
                    .to_string()
                    .split(':')
                    .next()
                    .unwrap_or_default()
            ))),
        }
    }

    /// Whether the plan refers to the domain anywhere.
    fn reaches(&self, plan: &LogicalPlan) -> Result<bool> {
        Ok(scope::free_references(plan)?
            .iter()
            .any(|(_, column)| self.domain.position(column).is_some()))
    }

    fn instance(&mut self) -> Result<Pushed> {
        let (plan, keys) = self.domain.instance(&fresh(self.names, "outer"))?;
        Ok(Pushed { plan, keys })
    }

    fn cross(&mut self, plan: &LogicalPlan) -> Result<Pushed> {
        let Pushed { plan: domain, keys } = self.instance()?;
        if let LogicalPlan::EmptyRelation(empty) = plan
            && empty.produce_one_row
            && empty.schema.fields().is_empty()
        {
            return Ok(Pushed { plan: domain, keys });
        }
        let plan = LogicalPlanBuilder::from(plan.clone())
            .cross_join(domain)?
            .build()?;
        Ok(Pushed { plan, keys })
    }

    /// The expression with the domain's columns for the outer references.
    fn bind(&self, expr: Expr, keys: &[Column]) -> Result<Expr> {
        expr.transform(|node| {
            if let Expr::OuterReferenceColumn(_, column) = &node
                && let Some(at) = self.domain.position(column)
            {
                return Ok(Transformed::yes(Expr::Column(keys[at].clone())));
            }
            Ok(Transformed::no(node))
        })
        .map(|bound| bound.data)
    }

    fn bind_all(&self, exprs: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        exprs
            .iter()
            .map(|expr| self.bind(expr.clone(), keys))
            .collect()
    }

    /// [`Self::bind`] for expressions whose names the plan's schema bears.
    fn bind_named(&self, plan: &LogicalPlan, exprs: &[Expr], keys: &[Column]) -> Result<Vec<Expr>> {
        let names = NamePreserver::new(plan);
        exprs
            .iter()
            .map(|expr| {
                let name = names.save(expr);
                Ok(name.restore(self.bind(expr.clone(), keys)?))
            })
            .collect()
    }

    fn bind_sort(&self, sorts: &[SortExpr], keys: &[Column]) -> Result<Vec<SortExpr>> {
        sorts
            .iter()
            .map(|sort| Ok(sort.with_expr(self.bind(sort.expr.clone(), keys)?)))
            .collect()
    }

    fn projection(&mut self, plan: &LogicalPlan, node: &Projection) -> Result<Pushed> {
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let mut exprs = self.bind_named(plan, &node.expr, &keys)?;
        exprs.extend(columns(&keys));
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?);
        Ok(Pushed { plan, keys })
    }

    fn filter(&mut self, node: &Filter) -> Result<Pushed> {
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let predicate = self.bind(node.predicate.clone(), &keys)?;
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
        Ok(Pushed { plan, keys })
    }

    fn sort(&mut self, node: &Sort) -> Result<Pushed> {
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let plan = LogicalPlan::Sort(Sort {
            expr: self.bind_sort(&node.expr, &keys)?,
            input: Arc::new(input),
            fetch: None,
        });
        Ok(Pushed { plan, keys })
    }

    /// Groups by the domain too. Without groups of its own the aggregation has
    /// a row for each k, also for those that no input row has.
    fn aggregate(&mut self, plan: &LogicalPlan, node: &Aggregate) -> Result<Pushed> {
        let (grouped, keys) = self.grouped(plan, node)?;
        if !node.group_expr.is_empty() {
            return Ok(Pushed {
                plan: grouped,
                keys,
            });
        }
        let domain = self.instance()?;
        let pairs = pairs(&columns_of(&domain.keys), &keys);
        let joined = left_join(domain.plan, grouped, pairs, self.domain.is_nullable())?;
        let values = filled(node)?;
        let mut exprs: Vec<Expr> = plan
            .schema()
            .iter()
            .zip(values)
            .map(|((qualifier, field), value)| {
                value.alias_qualified(qualifier.cloned(), field.name())
            })
            .collect();
        exprs.extend(columns(&domain.keys));
        let plan = LogicalPlanBuilder::from(joined).project(exprs)?.build()?;
        Ok(Pushed {
            plan,
            keys: domain.keys,
        })
    }

    /// The aggregation by groups and domain, without the groups that no row is in.
    pub(super) fn grouped(
        &mut self,
        plan: &LogicalPlan,
        node: &Aggregate,
    ) -> Result<(LogicalPlan, Vec<Column>)> {
        if matches!(node.group_expr.as_slice(), [Expr::GroupingSet(_)]) {
            return Err(unsupported(
                "a reference to an outer query under GROUPING SETS",
            ));
        }
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let mut input = Arc::new(input);
        if !node.group_expr.is_empty() && !keys.is_empty() {
            input = Arc::new(expanded::without_keys(&input, |column| {
                keys.contains(column)
            })?);
        }
        let mut groups = self.bind_named(plan, &node.group_expr, &keys)?;
        groups.extend(columns(&keys));
        let values = self.bind_named(plan, &node.aggr_expr, &keys)?;
        let grouped = Aggregate::try_new(input, groups, values)?;
        Ok((LogicalPlan::Aggregate(grouped), keys))
    }

    fn join(&mut self, node: &Join) -> Result<Pushed> {
        let conditions = node
            .on
            .iter()
            .flat_map(|(left, right)| [left, right])
            .chain(&node.filter);
        let on_refers = conditions.into_iter().any(Expr::contains_outer);
        let (mut left, mut right) = (self.reaches(&node.left)?, self.reaches(&node.right)?);
        // The side whose rows all come out must know k.
        match node.join_type {
            JoinType::Inner => left |= !right && on_refers,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => left = true,
            JoinType::Right => right = true,
            JoinType::Full => (left, right) = (true, true),
            other => {
                return Err(unsupported(format!(
                    "a reference to an outer query in a {other} join"
                )));
            }
        }
        let unchanged = |side: &Arc<LogicalPlan>| Pushed {
            plan: LogicalPlan::clone(side),
            keys: Vec::new(),
        };
        let l = if left {
            self.push(&node.left)?
        } else {
            unchanged(&node.left)
        };
        let r = if right {
            self.push(&node.right)?
        } else {
            unchanged(&node.right)
        };
        let keys = if left { &l.keys } else { &r.keys };
        let mut on = node
            .on
            .iter()
            .map(|(a, b)| Ok((self.bind(a.clone(), keys)?, self.bind(b.clone(), keys)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut filters = self.bind_all(node.filter.as_slice(), keys)?;
        let mut null_equality = node.null_equality;
        if left && right {
            let same = pairs(&columns_of(&l.keys), &r.keys);
            if on.is_empty() {
                null_equality = NullEquality::NullEqualsNull;
            }
            if on.is_empty() || null_equality == NullEquality::NullEqualsNull {
                on.extend(same);
            } else {
                filters.extend(same.into_iter().map(|(a, b)| is_not_distinct(a, b)));
            }
        }
        let (left_keys, right_keys) = (l.keys, r.keys);
        let keys = keys_of(node.join_type, left, &left_keys, &right_keys);
        let plan = LogicalPlan::Join(Join::try_new(
            Arc::new(l.plan),
            Arc::new(r.plan),
            on,
            conjunction(filters),
            node.join_type,
            node.join_constraint,
            null_equality,
            node.null_aware,
        )?);
        if node.join_type != JoinType::Full {
            return Ok(Pushed { plan, keys });
        }
        self.coalesced(plan, &node.schema, &left_keys, &right_keys)
    }

    /// After a full join, k comes from the side that has it.
    fn coalesced(
        &mut self,
        plan: LogicalPlan,
        schema: &DFSchemaRef,
        left: &[Column],
        right: &[Column],
    ) -> Result<Pushed> {
        let qualifier = fresh(self.names, "outer");
        let mut exprs: Vec<Expr> = columns(&schema.columns()).collect();
        let mut keys = Vec::with_capacity(left.len());
        for (l, r) in left.iter().zip(right) {
            let key = if_null(Expr::Column(l.clone()), Expr::Column(r.clone()));
            exprs.push(key.alias_qualified(Some(qualifier.as_str()), &l.name));
            keys.push(Column::new(Some(qualifier.as_str()), &l.name));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(Pushed { plan, keys })
    }

    fn window(&mut self, plan: &LogicalPlan, node: &Window) -> Result<Pushed> {
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let partitioned = |expr: Expr| {
            expr.transform(|node| {
                let Expr::WindowFunction(mut call) = node else {
                    return Ok(Transformed::no(node));
                };
                call.params.partition_by.extend(columns(&keys));
                Ok(Transformed::yes(Expr::WindowFunction(call)))
            })
        };
        let names = NamePreserver::new(plan);
        let mut exprs = Vec::with_capacity(node.window_expr.len());
        for expr in &node.window_expr {
            let name = names.save(expr);
            let bound = self.bind(expr.clone(), &keys)?;
            exprs.push(name.restore(partitioned(bound)?.data));
        }
        let plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input))?);
        Ok(Pushed { plan, keys })
    }

    /// Counts the rows of each k, in order, and keeps those within the bounds.
    fn limit(&mut self, node: &Limit) -> Result<Pushed> {
        if let LogicalPlan::Projection(over) = &*node.input {
            let below = LogicalPlan::Limit(Limit {
                input: Arc::clone(&over.input),
                ..node.clone()
            });
            let plan = Projection::try_new_with_schema(
                over.expr.clone(),
                Arc::new(below),
                Arc::clone(&over.schema),
            )?;
            return self.push(&LogicalPlan::Projection(plan));
        }
        let (base, sorts) = match &*node.input {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (&sort.input, sort.expr.as_slice()),
            _ => (&node.input, [].as_slice()),
        };
        let skip = bound_of(node.skip.as_deref())?.unwrap_or(0);
        let fetch = bound_of(node.fetch.as_deref())?;
        let Pushed { plan: input, keys } = self.push(base)?;
        let name = fresh(self.names, "row");
        let number =
            Expr::WindowFunction(Box::new(WindowFunction::new(row_number_udwf(), Vec::new())))
                .partition_by(columns(&keys).collect())
                .order_by(self.bind_sort(sorts, &keys)?)
                .build()?
                .alias(name.as_str());
        let at = || Expr::Column(Column::new_unqualified(name.as_str()));
        let mut within = Vec::new();
        if skip > 0 {
            within.push(at().gt(lit(skip)));
        }
        if let Some(fetch) = fetch {
            within.push(at().lt_eq(lit(skip.saturating_add(fetch))));
        }
        let numbered = LogicalPlan::Window(Window::try_new(vec![number], Arc::new(input))?);
        let plan = match conjunction(within) {
            Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(numbered))?),
            None => numbered,
        };
        Ok(Pushed { plan, keys })
    }

    fn distinct_on(&mut self, plan: &LogicalPlan, node: &DistinctOn) -> Result<Pushed> {
        let Pushed { plan: input, keys } = self.push(&node.input)?;
        let mut on: Vec<Expr> = columns(&keys).collect();
        on.extend(self.bind_all(&node.on_expr, &keys)?);
        let mut select = self.bind_named(plan, &node.select_expr, &keys)?;
        select.extend(columns(&keys));
        let sort = match &node.sort_expr {
            Some(sorts) => {
                let mut by: Vec<SortExpr> =
                    columns(&keys).map(|key| key.sort(true, false)).collect();
                by.extend(self.bind_sort(sorts, &keys)?);
                Some(by)
            }
            None => None,
        };
        let plan = LogicalPlan::Distinct(Distinct::On(DistinctOn::try_new(
            on,
            select,
            sort,
            Arc::new(input),
        )?));
        // The outputs of DISTINCT ON are named anew, without qualifiers of their own.
        let keys = keys
            .iter()
            .map(|key| Column::from(plan.schema().qualified_field(index_of(&plan, key))))
            .collect();
        Ok(Pushed { plan, keys })
    }

    fn union(&mut self, node: &Union) -> Result<Pushed> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let pushed = self.push(input)?;
            inputs.push(self.exact(pushed, input.schema())?);
        }
        self.united(inputs, &node.schema)
    }

    /// VALUES whose cells refer to the outer row are a union of their rows.
    fn values(&mut self, node: &Values) -> Result<Pushed> {
        let mut inputs = Vec::with_capacity(node.values.len());
        for row in &node.values {
            let Pushed { plan: domain, keys } = self.instance()?;
            let mut exprs = Vec::with_capacity(row.len() + keys.len());
            for (cell, (qualifier, field)) in row.iter().zip(node.schema.iter()) {
                let cell = self.bind(cell.clone(), &keys)?;
                let cell = Expr::Cast(Cast::new(Box::new(cell), field.data_type().clone()));
                exprs.push(cell.alias_qualified(qualifier.cloned(), field.name()));
            }
            exprs.extend(columns(&keys));
            let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(domain))?);
            inputs.push(Pushed { plan, keys });
        }
        self.united(inputs, &node.schema)
    }

    /// Unites plans of `schema` with keys behind.
    fn united(&mut self, inputs: Vec<Pushed>, schema: &DFSchema) -> Result<Pushed> {
        let qualifier = fresh(self.names, "outer");
        let width = schema.fields().len();
        let mut fields: Vec<_> = schema
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        let mut keys = Vec::new();
        if let Some(first) = inputs.first() {
            for at in 0..first.keys.len() {
                let field = first.plan.schema().field(width + at);
                // A union that DataFusion builds anew forgets qualifiers.
                let name = format!("{qualifier}_k{at}");
                let field = Field::new(&name, field.data_type().clone(), true)
                    .with_metadata(field.metadata().clone());
                keys.push(Column::new_unqualified(name));
                fields.push((None, Arc::new(field)));
            }
        }
        let mut named = Vec::with_capacity(inputs.len());
        for input in inputs {
            let schema = Arc::clone(input.plan.schema());
            let exprs = schema.iter().enumerate().map(|(at, pair)| {
                let expr = Expr::from(pair);
                match at.checked_sub(width).and_then(|at| keys.get(at)) {
                    Some(key) => expr.alias(&key.name),
                    None => expr,
                }
            });
            let plan = Projection::try_new(exprs.collect(), Arc::new(input.plan))?;
            named.push(Arc::new(LogicalPlan::Projection(plan)));
        }
        let schema = DFSchema::new_with_metadata(fields, schema.metadata().clone())?;
        let plan = match named.len() {
            1 => LogicalPlan::clone(&named[0]),
            _ => LogicalPlan::Union(Union {
                inputs: named,
                schema: Arc::new(schema),
            }),
        };
        Ok(Pushed { plan, keys })
    }

    /// Nothing but the columns of `schema`, in order, and the keys.
    fn exact(&mut self, pushed: Pushed, schema: &DFSchema) -> Result<Pushed> {
        self.renamed(pushed, schema.columns(), schema)
    }

    /// The columns `from` under the names of `schema`, and the keys.
    fn renamed(&mut self, pushed: Pushed, from: Vec<Column>, schema: &DFSchema) -> Result<Pushed> {
        let Pushed { plan, keys } = pushed;
        let mut exprs: Vec<Expr> = from
            .into_iter()
            .zip(schema.iter())
            .map(|(column, (qualifier, field))| {
                if column.relation.as_ref() == qualifier && column.name == *field.name() {
                    return Expr::Column(column);
                }
                Expr::Column(column).alias_qualified(qualifier.cloned(), field.name())
            })
            .collect();
        exprs.extend(columns(&keys));
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(Pushed { plan, keys })
    }
}

/// A qualifier or name that nothing else in the statement has.
pub(super) fn fresh(names: &mut usize, what: &str) -> String {
    *names += 1;
    format!("__{what}_{names}")
}

pub(super) fn columns(columns: &[Column]) -> impl Iterator<Item = Expr> {
    columns.iter().cloned().map(Expr::Column)
}

fn columns_of(keys: &[Column]) -> Vec<Expr> {
    columns(keys).collect()
}

fn index_of(plan: &LogicalPlan, column: &Column) -> usize {
    let schema = plan.schema();
    schema
        .maybe_index_of_column(column)
        .or_else(|| schema.index_of_column_by_name(None, &column.name))
        .unwrap_or(0)
}

/// Which copy of the keys a join gives to those above.
fn keys_of(join_type: JoinType, left_has: bool, left: &[Column], right: &[Column]) -> Vec<Column> {
    if left_has && join_type != JoinType::Right {
        left.to_vec()
    } else {
        right.to_vec()
    }
}

pub(super) fn pairs(left: &[Expr], right: &[Column]) -> Vec<(Expr, Expr)> {
    left.iter().cloned().zip(columns(right)).collect()
}

fn is_not_distinct(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(
        Box::new(left),
        Operator::IsNotDistinctFrom,
        Box::new(right),
    ))
}

fn if_null(value: Expr, otherwise: Expr) -> Expr {
    let missing = Expr::IsNull(Box::new(value.clone()));
    Expr::Case(Case::new(
        None,
        vec![(Box::new(missing), Box::new(otherwise))],
        Some(Box::new(value)),
    ))
}

/// All rows of `left`, each with the rows of `right` that agree on the pairs, NULLs included.
pub(super) fn left_join(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    nullable: bool,
) -> Result<LogicalPlan> {
    if on.is_empty() {
        return LogicalPlanBuilder::from(left)
            .join_on(right, JoinType::Left, [lit(true)])?
            .build();
    }
    let null_equality = if nullable {
        NullEquality::NullEqualsNull
    } else {
        NullEquality::NullEqualsNothing
    };
    Ok(LogicalPlan::Join(Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        JoinType::Left,
        datafusion::common::JoinConstraint::On,
        null_equality,
        false,
    )?))
}

/// The values of an aggregation after an outer join: where no row was, what
/// the aggregate says of no rows, which for count is 0.
pub(super) fn filled(node: &Aggregate) -> Result<Vec<Expr>> {
    let groups = node.schema.fields().len() - node.aggr_expr.len();
    let mut values = Vec::with_capacity(node.aggr_expr.len());
    for (at, expr) in node.aggr_expr.iter().enumerate() {
        let (qualifier, field) = node.schema.qualified_field(groups + at);
        let value = Expr::Column(Column::from((qualifier, field)));
        let default = match expr.clone().unalias_nested().data {
            Expr::AggregateFunction(call) => call.func.default_value(field.data_type())?,
            _ => ScalarValue::Null,
        };
        values.push(if default.is_null() {
            value
        } else {
            if_null(value, Expr::Literal(default, None))
        });
    }
    Ok(values)
}

/// LIMIT and OFFSET as a number; nothing for NULL, which is no bound.
fn bound_of(expr: Option<&Expr>) -> Result<Option<u64>> {
    match expr {
        None => Ok(None),
        Some(expr) if is_null(expr) => Ok(None),
        Some(expr) => match scope::literal_count(expr) {
            Some(count) => Ok(Some(count)),
            None => Err(unsupported(
                "LIMIT or OFFSET that is no constant in a correlated subquery",
            )),
        },
    }
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::Literal(value, _) => value.is_null(),
        _ => false,
    }
}
