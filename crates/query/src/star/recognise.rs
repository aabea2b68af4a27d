//! Finding stars in plans: an aggregate over inner joins of one large table, the fact, with sides
//! whose keys are unique.
//!
//! ```text
//!  Aggregate                     fact      the table with the most rows
//!    └ Join                      sides     trees of relations, each found by a unique key
//!        ├ Join                            from the one before, the first from a column
//!        │   ├ fact                        of the fact
//!        │   └ customer ─ nation           (customer, nation), (date)
//!        └ date                  the rest  conditions between sides, or with the fact
//! ```
//!
//! Only structure and enforced keys decide whether an aggregate is over a star. A pair that the
//! trees do not need becomes a condition.

use std::{collections::HashMap, sync::Arc};

use datafusion::{
    arrow::datatypes::{DataType, FieldRef},
    catalog::TableProvider,
    common::{
        Column, DFSchema, Result, TableReference,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    datasource::source_as_provider,
    logical_expr::{
        Aggregate, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, TableScan,
    },
};

use super::{
    flatten::{Joined, column, place_of, relations_of, renamed},
    unique::{is_unique, stored_at},
};
use crate::scan::{TableScanProvider, conditions::Conditions};

/// An aggregate over a star.
#[derive(Clone, Debug)]
pub(super) struct Star {
    /// The fact's provider, with the statement's view of it.
    pub(super) fact: Arc<dyn TableProvider>,
    /// The conditions on the fact's rows, for storage.
    pub(super) of_fact: Conditions,
    pub(super) sides: Vec<Side>,
    /// For each expression that is grouped by, the place where it is computed.
    pub(super) groups: Vec<Group>,
    /// Columns of the fact that are read beside its foreign keys.
    pub(super) columns: Vec<usize>,
    /// The columns of joined rows: first the fact's, then those of the sides.
    pub(super) schema: DFSchema,
    /// The conditions on joined rows.
    pub(super) conditions: Vec<Expr>,
    /// Keys of groups that do not belong to one side, over joined rows.
    pub(super) computed: Vec<Expr>,
    /// The aggregates, over joined rows.
    pub(super) aggregates: Vec<Expr>,
}

/// A plan that the fact is joined with by one of its columns.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// Its columns are the key, the keys of groups, and the values needed for each row.
    pub(super) plan: LogicalPlan,
    /// How many of its columns are keys of groups.
    pub(super) groups: usize,
    /// The position of the fact's column.
    pub(super) foreign_key: usize,
    /// The join as EXPLAIN shows it.
    pub(super) shown: String,
}

impl Side {
    /// How many columns it has.
    pub(super) fn width(&self) -> usize {
        self.plan.schema().fields().len()
    }
}

/// The place where a key of groups is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Group {
    /// A side, at this position among its keys of groups.
    Side { side: usize, nth: usize },
    /// Joined rows, at this position among the computed keys.
    Computed(usize),
}

/// A tree of relations that becomes a side.
struct Tree {
    /// The first relation is joined with the fact; each other one by pairs with previous ones.
    members: Vec<(usize, Vec<(Expr, Expr)>)>,
    /// The column of the fact, as its scan gives it.
    foreign_key: usize,
    /// The column that it equals, by the positions of relation and column.
    key: (usize, usize),
    conditions: Vec<Expr>,
    groups: Vec<Expr>,
    /// The columns of members that joined rows need, by the positions of relation and column.
    values: Vec<(usize, usize)>,
}

impl Tree {
    fn has(&self, relation: usize) -> bool {
        self.members.iter().any(|(member, _)| *member == relation)
    }
}

/// The star that an aggregate is over, if there is one.
///
/// # Errors
/// The errors of building plans, none of which is known.
pub(super) fn recognised(aggregate: &Aggregate) -> Result<Option<Star>> {
    if !aggregate.aggr_expr.iter().all(is_known) {
        return Ok(None);
    }
    if is_volatile(&aggregate.input)? {
        return Ok(None);
    }
    let mut joined = Joined::default();
    let Some(columns) = joined.take(&aggregate.input)? else {
        return Ok(None);
    };
    if joined.relations.len() < 2 {
        return Ok(None);
    }
    let rename = |expr: &Expr| renamed(expr, &aggregate.input, &columns);
    let groups: Option<Vec<Expr>> = aggregate
        .group_expr
        .iter()
        .map(rename)
        .collect::<Result<_>>()?;
    let aggregates: Option<Vec<Expr>> = aggregate
        .aggr_expr
        .iter()
        .map(rename)
        .collect::<Result<_>>()?;
    let (Some(groups), Some(aggregates)) = (groups, aggregates) else {
        return Ok(None);
    };
    let Some((fact, provider)) = fact_of(&joined.relations) else {
        return Ok(None);
    };
    let LogicalPlan::TableScan(scan) = &joined.relations[fact] else {
        return Ok(None);
    };
    let Some(of_fact) = provider_of(&provider).and_then(|own| own.conditions(&scan.filters)) else {
        return Ok(None);
    };
    let pairs = std::mem::take(&mut joined.pairs);
    let Some((mut trees, rest)) = trees(&joined, fact, pairs) else {
        return Ok(None);
    };
    let mut conditions = Vec::new();
    for condition in std::mem::take(&mut joined.conditions)
        .into_iter()
        .chain(rest)
    {
        let of = relations_of(&condition);
        if is_implied(&condition, fact, &trees) {
            continue;
        }
        match trees
            .iter_mut()
            .find(|tree| !of.is_empty() && of.iter().all(|at| tree.has(*at)))
        {
            Some(tree) => tree.conditions.push(condition),
            None => conditions.push(condition),
        }
    }
    let mut computed = Vec::new();
    let mut placed = Vec::new();
    for group in groups {
        let of = relations_of(&group);
        let is_own = |tree: &Tree| !of.is_empty() && of.iter().all(|at| tree.has(*at));
        placed.push(match trees.iter().position(is_own) {
            Some(side) => {
                trees[side].groups.push(group);
                let nth = trees[side].groups.len() - 1;
                Group::Side { side, nth }
            }
            None => {
                computed.push(group);
                Group::Computed(computed.len() - 1)
            }
        });
    }
    let wanted = conditions.iter().chain(&computed).chain(&aggregates);
    let columns = wanted_of(wanted, fact, &mut trees);
    let own = columns.iter().map(|&nth| (fact, nth));
    let of_sides = trees.iter().flat_map(|tree| tree.values.iter().copied());
    let schema = schema_of(&joined, own.chain(of_sides))?;
    let stored = |&nth: &usize| stored_at(scan, nth);
    let Some(columns) = columns.iter().map(stored).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut sides = Vec::new();
    for tree in &trees {
        let Some(side) = side_of(&joined, scan, tree)? else {
            return Ok(None);
        };
        sides.push(side);
    }
    let of_sides = sides.iter().map(|side| side.width() - 1 - side.groups);
    assert_eq!(
        schema.fields().len(),
        columns.len() + of_sides.sum::<usize>(),
        "joined rows have the columns of the fact and the values of the sides"
    );
    Ok(Some(Star {
        fact: provider,
        of_fact,
        sides,
        groups: placed,
        columns,
        schema,
        conditions,
        computed,
        aggregates,
    }))
}

/// Whether a plan contains something that must not run a second time, in the original plan.
fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether an aggregate is known, and its result does not depend on the order of rows.
fn is_known(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_known(&alias.expr),
        Expr::AggregateFunction(function) => {
            // "sum_in_one_phase" is PostgreSQL's sum beside DISTINCT aggregates.
            const KNOWN: [&str; 6] = ["sum", "sum_in_one_phase", "count", "min", "max", "avg"];
            function.params.order_by.is_empty() && KNOWN.contains(&function.func.name())
        }
        _ => false,
    }
}

fn provider_of(provider: &Arc<dyn TableProvider>) -> Option<&TableScanProvider> {
    provider.downcast_ref::<TableScanProvider>()
}

/// The table with the most rows; `None` if a relation reads a larger table, because that one should
/// be scanned and not be a side.
fn fact_of(relations: &[LogicalPlan]) -> Option<(usize, Arc<dyn TableProvider>)> {
    let read: Vec<u64> = relations.iter().map(rows_read).collect();
    let table = |(at, relation): (usize, &LogicalPlan)| {
        let LogicalPlan::TableScan(scan) = relation else {
            return None;
        };
        let provider = source_as_provider(&scan.source).ok()?;
        let own = provider_of(&provider)?;
        let fits = scan.fetch.is_none() && !own.has_row_ids();
        fits.then_some((read[at], at, provider))
    };
    let tables = relations.iter().enumerate().filter_map(table);
    // Of equal tables the first is taken, with which the others are joined.
    let largest = tables.max_by_key(|(rows, at, _)| (*rows, std::cmp::Reverse(*at)));
    let (rows, at, provider) = largest?;
    read.iter()
        .all(|&most| most <= rows)
        .then_some((at, provider))
}

/// The rows of the largest table that a plan reads.
fn rows_read(plan: &LogicalPlan) -> u64 {
    let mut most = 0;
    let visited = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(own) = provider_of(&provider)
        {
            most = own.view().statistics().rows.max(most);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.map_or(0, |_| most)
}

/// Builds trees from the relations other than the fact. Returns them with the conditions that
/// the remaining pairs become.
fn trees(joined: &Joined, fact: usize, pairs: Vec<(Expr, Expr)>) -> Option<(Vec<Tree>, Vec<Expr>)> {
    let mut trees: Vec<Tree> = Vec::new();
    let mut rest = Vec::new();
    for (a, b) in pairs {
        let (fact_end, other) = match (
            relations_of(&a)[..] == [fact],
            relations_of(&b)[..] == [fact],
        ) {
            (true, false) => (&a, &b),
            (false, true) => (&b, &a),
            _ => {
                rest.push((a, b));
                continue;
            }
        };
        match root(joined, fact, fact_end, other) {
            Some(tree) if !trees.iter().any(|known| known.has(tree.members[0].0)) => {
                trees.push(tree);
            }
            _ => rest.push((a, b)),
        }
    }
    let mut left: Vec<usize> = (0..joined.relations.len())
        .filter(|&at| at != fact && !trees.iter().any(|tree| tree.has(at)))
        .collect();
    while !left.is_empty() {
        let found = left.iter().enumerate().find_map(|(nth, &relation)| {
            let into = trees
                .iter()
                .position(|tree| found_from(joined, tree, relation, &rest))?;
            Some((nth, into))
        });
        let (nth, into) = found?;
        let relation = left.remove(nth);
        let (own, others) = rest
            .into_iter()
            .partition(|pair| towards(&trees[into], relation, pair).is_some());
        rest = others;
        let own: Vec<(Expr, Expr)> = own;
        let own = own
            .iter()
            .filter_map(|pair| towards(&trees[into], relation, pair))
            .map(|(from, to)| (from.clone(), to.clone()))
            .collect();
        trees[into].members.push((relation, own));
    }
    let conditions: Option<Vec<Expr>> =
        rest.into_iter().map(|(a, b)| equal(joined, a, b)).collect();
    Some((trees, conditions?)).filter(|(trees, _)| !trees.is_empty())
}

/// A tree whose first relation a column of the fact is joined with.
fn root(joined: &Joined, fact: usize, fact_end: &Expr, other: &Expr) -> Option<Tree> {
    let (of_fact, foreign_key) = place_of(integer_column(fact_end)?)?;
    let (relation, key) = place_of(integer_column(other)?)?;
    let ty = |at: usize, nth: usize| joined.relations[at].schema().field(nth).data_type().clone();
    let is_date = |ty: &DataType| *ty == DataType::Date32;
    let (own, others) = (ty(fact, foreign_key), ty(relation, key));
    let fits = of_fact == fact
        && is_key_type(&own)
        && is_key_type(&others)
        && is_date(&own) == is_date(&others)
        && is_unique(&joined.relations[relation], &[key]);
    fits.then(|| Tree {
        members: vec![(relation, Vec::new())],
        foreign_key,
        key: (relation, key),
        conditions: Vec::new(),
        groups: Vec::new(),
        values: Vec::new(),
    })
}

fn is_key_type(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Date32
    )
}

/// The column that an expression is, apart from casts of integers to wider ones.
fn integer_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Int32 | DataType::Int64) => {
            integer_column(&cast.expr)
        }
        _ => None,
    }
}

/// A pair that joins a tree with a relation, in this order.
fn towards<'p>(
    tree: &Tree,
    relation: usize,
    (a, b): &'p (Expr, Expr),
) -> Option<(&'p Expr, &'p Expr)> {
    let is_own = |expr: &Expr| {
        let of = relations_of(expr);
        !of.is_empty() && of.iter().all(|at| tree.has(*at))
    };
    let is_other = |expr: &Expr| relations_of(expr)[..] == [relation];
    match () {
        () if is_own(a) && is_other(b) => Some((a, b)),
        () if is_own(b) && is_other(a) => Some((b, a)),
        () => None,
    }
}

/// Whether each row of a tree finds at most one row of a relation.
fn found_from(joined: &Joined, tree: &Tree, relation: usize, pairs: &[(Expr, Expr)]) -> bool {
    let columns: Vec<usize> = pairs
        .iter()
        .filter_map(|pair| towards(tree, relation, pair))
        .filter_map(|(_, end)| match end {
            Expr::Column(column) => Some(place_of(column)?.1),
            _ => None,
        })
        .collect();
    !columns.is_empty() && is_unique(&joined.relations[relation], &columns)
}

/// Whether a condition only says that a foreign key is not NULL, which the join implies.
fn is_implied(condition: &Expr, fact: usize, trees: &[Tree]) -> bool {
    let Expr::IsNotNull(value) = condition else {
        return false;
    };
    let of_fact = |nth| trees.iter().any(|tree| tree.foreign_key == nth);
    let place = integer_column(value).and_then(place_of);
    place.is_some_and(|(at, nth)| at == fact && of_fact(nth))
}

/// A pair as a condition; `None` for other types than integers, dates and texts. In joins NaN
/// equals NaN, in conditions it does not.
fn equal(joined: &Joined, a: Expr, b: Expr) -> Option<Expr> {
    let columns = a.column_refs().into_iter().chain(b.column_refs());
    let schema = schema_of(joined, columns.filter_map(place_of)).ok()?;
    let is_exact = |ty: &DataType| is_key_type(ty) || matches!(ty, DataType::Utf8View);
    let types = (a.get_type(&schema).ok()?, b.get_type(&schema).ok()?);
    (types.0 == types.1 && is_exact(&types.0)).then(|| a.eq(b))
}

/// Notes in the trees which columns of their rows joined rows need. Returns the needed columns of
/// the fact.
fn wanted_of<'e>(
    exprs: impl Iterator<Item = &'e Expr>,
    fact: usize,
    trees: &mut [Tree],
) -> Vec<usize> {
    let mut places: Vec<(usize, usize)> = exprs
        .flat_map(|expr| expr.column_refs())
        .filter_map(place_of)
        .collect();
    places.sort_unstable();
    places.dedup();
    let mut columns = Vec::new();
    for (at, nth) in places {
        if at == fact {
            columns.push(nth);
        } else if let Some(tree) = trees.iter_mut().find(|tree| tree.has(at)) {
            tree.values.push((at, nth));
        }
    }
    columns
}

/// The schema of columns, each once, under their new names. All are nullable in it, because nothing
/// follows from that.
fn schema_of(joined: &Joined, places: impl Iterator<Item = (usize, usize)>) -> Result<DFSchema> {
    let mut fields: Vec<(Option<TableReference>, FieldRef)> = Vec::new();
    for (at, nth) in places {
        let named = column(at, nth);
        let field = joined.relations[at].schema().field(nth).as_ref().clone();
        let field = field.with_name(named.name).with_nullable(true);
        let field = (named.relation, Arc::new(field));
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    DFSchema::new_with_metadata(fields, HashMap::new())
}

/// The side that a tree becomes: its key, keys of groups, and needed values.
fn side_of(joined: &Joined, fact: &TableScan, tree: &Tree) -> Result<Option<Side>> {
    let Some(foreign_key) = stored_at(fact, tree.foreign_key) else {
        return Ok(None);
    };
    let mut plan: Option<LogicalPlanBuilder> = None;
    for (relation, pairs) in &tree.members {
        let named = joined.named(*relation)?;
        plan = Some(match plan {
            None => named,
            Some(before) => {
                let (from, to): (Vec<Expr>, Vec<Expr>) = pairs.iter().cloned().unzip();
                before.join_with_expr_keys(named.build()?, JoinType::Inner, (from, to), None)?
            }
        });
    }
    let Some(mut plan) = plan else {
        return Ok(None);
    };
    for condition in &tree.conditions {
        plan = plan.filter(condition.clone())?;
    }
    let plain = |&(at, nth): &(usize, usize)| Expr::Column(column(at, nth));
    let columns = std::iter::once(plain(&tree.key))
        .chain(tree.groups.iter().cloned())
        .chain(tree.values.iter().map(plain));
    let columns = columns
        .enumerate()
        .map(|(nth, expr)| expr.alias(format!("k{nth}")));
    let plan = plan.project(columns.collect::<Vec<_>>())?.build()?;
    let shown_of = |relation: &LogicalPlan, nth: usize| {
        let name = relation.schema().field(nth).name().clone();
        match relation {
            LogicalPlan::TableScan(scan) => format!("{}.{name}", scan.table_name.table()),
            _ => name,
        }
    };
    let (root, key) = tree.key;
    let own = fact.projected_schema.field(tree.foreign_key).name();
    Ok(Some(Side {
        shown: format!("{own} = {}", shown_of(&joined.relations[root], key)),
        plan,
        groups: tree.groups.len(),
        foreign_key,
    }))
}

/// The types of expressions over joined rows.
///
/// # Errors
/// The errors of typing.
pub(super) fn types(exprs: &[Expr], schema: &DFSchema) -> Result<Vec<DataType>> {
    exprs.iter().map(|expr| expr.get_type(schema)).collect()
}
