//! Aggregates and keys that DataFusion cannot tell apart by their names.
//!
//! It names an expression without the casts in it, a subquery by its column, and `count(*)` as
//! `count(1)`, and refuses two of one name. So `count(1)` is read as `count(*)`, which is the same;
//! of `max(a)` and `max(a::int)` the second becomes `max(a::int) FILTER (WHERE true)`; and in `GROUP
//! BY a, a::int` the second key, wherever it stands, becomes `"\1named"(a::int)`.

use std::{collections::HashMap, ops::ControlFlow};

use aerostat_semantics::{functions::named::NAMED, walk};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    OrderBy, Query, Select, SelectItem, Value, VisitorMut,
};

use super::{calls::call_of, clauses::is_aggregate};
use crate::ddl::names::folded;

/// Tells the aggregates of a SELECT, and of the ORDER BY of its query, apart.
pub(super) fn tell_apart(select: &mut Select, order_by: &mut Option<OrderBy>) {
    let mut twins = Twins::default();
    // They never break.
    let _ = walk::change(&mut select.projection, &mut twins);
    let _ = walk::change(&mut select.having, &mut twins);
    let _ = walk::change(order_by, &mut twins);
    let mut keys = Keys::of(select);
    if keys.are_named_anew() {
        keys.expand_positions(select);
        let _ = walk::change(&mut select.group_by, &mut keys);
        let _ = walk::change(&mut select.projection, &mut keys);
        let _ = walk::change(&mut select.having, &mut keys);
        let _ = walk::change(order_by, &mut keys);
    }
}

/// The keys of a GROUP BY that need a name of their own.
struct Keys {
    /// All keys as they are written, and how often each is named anew.
    times: HashMap<String, usize>,
    /// How deep within subqueries.
    subqueries: usize,
    /// How deep within a key.
    within: usize,
}

impl Keys {
    fn of(select: &Select) -> Self {
        let mut keys: Vec<Expr> = Vec::new();
        let GroupByExpr::Expressions(given, _) = &select.group_by else {
            return Self::new();
        };
        for key in given {
            match key {
                Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
                    keys.extend(sets.iter().flatten().cloned());
                }
                key => keys.push(at_position(select, key).unwrap_or_else(|| key.clone())),
            }
        }
        let mut found = Self::new();
        if keys.len() < 2 {
            return found;
        }
        // By the name that DataFusion gives them, the keys as they are written.
        let mut named: HashMap<String, Vec<String>> = HashMap::new();
        keys.sort_by_key(|key| !is_column(key));
        for key in &keys {
            let written = written(key);
            let of_name = named.entry(name_of_key(key)).or_default();
            if of_name.contains(&written) {
                continue;
            }
            let before = of_name.len();
            of_name.push(written.clone());
            let is_subquery = matches!(unnested(key), Expr::Subquery(_));
            let times = match is_column(key) {
                true => 0,
                false => before + usize::from(is_subquery),
            };
            found.times.insert(written, times);
        }
        found
    }

    fn new() -> Self {
        Self {
            times: HashMap::new(),
            subqueries: 0,
            within: 0,
        }
    }

    fn are_named_anew(&self) -> bool {
        self.times.values().any(|times| *times > 0)
    }

    /// Writes a key that is given as a position of the outputs in full, if it is named anew.
    fn expand_positions(&self, select: &mut Select) {
        let GroupByExpr::Expressions(keys, _) = &select.group_by else {
            return;
        };
        let whole = |key: &Expr| {
            let output = at_position(select, key)?;
            let times = self.times.get(&written(&output))?;
            (*times > 0).then_some(output)
        };
        let keys: Vec<Expr> = keys
            .iter()
            .map(|key| whole(key).unwrap_or_else(|| key.clone()))
            .collect();
        if let GroupByExpr::Expressions(own, _) = &mut select.group_by {
            *own = keys;
        }
    }
}

pub(super) fn unnested(mut key: &Expr) -> &Expr {
    while let Expr::Nested(inner) = key {
        key = inner;
    }
    key
}

fn written(key: &Expr) -> String {
    unnested(key).to_string()
}

fn is_column(key: &Expr) -> bool {
    matches!(
        unnested(key),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

/// The output that a key in GROUP BY names by its position.
pub(super) fn at_position(select: &Select, key: &Expr) -> Option<Expr> {
    let Expr::Value(value) = key else { return None };
    let Value::Number(digits, _) = &value.value else {
        return None;
    };
    let at: usize = digits.parse().ok()?;
    // How many outputs a wildcard stands for is not known here.
    let mut outputs = select.projection.iter().map_while(|item| match item {
        SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. } => {
            Some(output)
        }
        _ => None,
    });
    outputs.nth(at.checked_sub(1)?).cloned()
}

/// A name that keys have in common which DataFusion calls alike.
pub(super) fn name_of_key(key: &Expr) -> String {
    let mut bare = key.clone();
    // It never breaks.
    let _ = walk::change(&mut bare, &mut Bare);
    match &bare {
        Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
        Expr::Identifier(name) => folded(name),
        other => other.to_string().to_lowercase(),
    }
}

impl VisitorMut for Keys {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.within > 0 {
            self.within += 1;
        } else if self.subqueries == 0
            && let Some(times) = self.times.get(&written(expression))
        {
            for _ in 0..*times {
                let value = std::mem::replace(expression, Expr::value(Value::Null));
                *expression = call_of(NAMED, vec![value]);
            }
            self.within = 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<()> {
        self.within = self.within.saturating_sub(1);
        ControlFlow::Continue(())
    }
}

#[derive(Default)]
struct Twins {
    /// By the name that DataFusion gives them, the aggregates as they are written.
    named: HashMap<String, Vec<String>>,
    subqueries: usize,
}

impl VisitorMut for Twins {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && self.subqueries == 0
            && is_aggregate(function)
        {
            count_rows(function);
            let written = function.to_string();
            let name = without_casts(function);
            let known = self.named.entry(name).or_default();
            let at = known.iter().position(|other| *other == written);
            let at = at.unwrap_or_else(|| {
                known.push(written);
                known.len() - 1
            });
            (0..at).for_each(|_| filter_by_nothing(function));
        }
        ControlFlow::Continue(())
    }
}

/// `count(1)` as `count(*)`.
fn count_rows(function: &mut Function) {
    let is_count = function.name.0.last().and_then(|part| part.as_ident());
    if is_count.map(folded).as_deref() != Some("count") {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && list.duplicate_treatment.is_none()
        && let [FunctionArg::Unnamed(argument)] = &mut list.args[..]
        && let FunctionArgExpr::Expr(counted) = &*argument
        && let Expr::Value(value) = without_cast(counted)
        && matches!(
            value.value,
            Value::Number(..) | Value::Boolean(_) | Value::SingleQuotedString(_)
        )
    {
        *argument = FunctionArgExpr::Wildcard;
    }
}

fn without_cast(mut expression: &Expr) -> &Expr {
    while let Expr::Cast { expr, .. } | Expr::Nested(expr) = expression {
        expression = expr;
    }
    expression
}

/// Leaves out casts.
struct Bare;

impl VisitorMut for Bare {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        while let Expr::Cast { expr, .. } | Expr::Nested(expr) = expression {
            *expression = (**expr).clone();
        }
        ControlFlow::Continue(())
    }
}

fn without_casts(function: &Function) -> String {
    let mut bare = Expr::Function(function.clone());
    // It never breaks.
    let _ = walk::change(&mut bare, &mut Bare);
    bare.to_string().to_lowercase()
}

fn filter_by_nothing(function: &mut Function) {
    let always = Expr::value(Value::Boolean(true));
    function.filter = Some(Box::new(match function.filter.take() {
        None => always,
        Some(filter) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(filter)),
            op: BinaryOperator::And,
            right: Box::new(always),
        },
    }));
}
