//! Aggregates, window functions and keys that DataFusion cannot tell apart by their names.
//!
//! DataFusion names an expression without its casts, a subquery by its column, a function by one of
//! its names, and `count(*)` as `count(1)`, and refuses two expressions with one name. So
//! `count(1)` is read as `count(*)`, which is the same; the second of `max(a)` and `max(a::int)`
//! becomes `max(a::int) FILTER (WHERE true)`; the second of `lag(a) OVER ()` and `lag(a::int) OVER
//! ()` becomes `lag("\1named"(a::int)) OVER ()`; and in `GROUP BY a, a::int` the second key,
//! wherever it stands, becomes `"\1named"(a::int)`.

use std::{collections::HashMap, ops::ControlFlow};

use aerostat_semantics::functions::named::NAMED;
use aerostat_sql::{
    clauses::is_aggregate,
    names::folded,
    walk::{self, unnested},
};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, ObjectName, OrderBy, Select, Value, VisitorMut, WindowType,
};

use super::{calls::call_of, positions::at_position};

/// Gives aggregates and window functions with one name in a SELECT, and in the ORDER BY of its
/// query, different names.
pub(super) fn tell_apart(select: &mut Select, order_by: &mut Option<OrderBy>) {
    let mut twins = Twins::default();
    // The visitors never break.
    let _ = walk::change_own(&mut select.projection, &mut twins);
    let _ = walk::change_own(&mut select.having, &mut twins);
    let _ = walk::change_own(order_by, &mut twins);
    super::grouping_sets::rewrite(select, order_by);
    let mut keys = Keys::of(select);
    if keys.are_named_anew() {
        keys.expand_positions(select);
        let _ = walk::change_own(&mut select.group_by, &mut keys);
        let _ = walk::change_own(&mut select.projection, &mut keys);
        let _ = walk::change_own(&mut select.having, &mut keys);
        let _ = walk::change_own(order_by, &mut keys);
    }
}

/// The keys of a GROUP BY that need another name.
struct Keys {
    /// All keys as they are written, each with how many times it is wrapped to change its name.
    times: HashMap<String, usize>,
    /// How many nodes of a key are around the visited node.
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
        // The keys as they are written, by DataFusion's names of them.
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
            within: 0,
        }
    }

    fn are_named_anew(&self) -> bool {
        self.times.values().any(|times| *times > 0)
    }

    /// Replaces keys that are positions by the outputs' expressions, if these get another name.
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

fn written(key: &Expr) -> String {
    unnested(key).to_string()
}

fn is_column(key: &Expr) -> bool {
    matches!(
        unnested(key),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_)
    )
}

/// A name that is the same for all keys to which DataFusion gives one name.
pub(super) fn name_of_key(key: &Expr) -> String {
    let mut bare = key.clone();
    // The visitor never breaks.
    let _ = walk::change(&mut bare, &mut Bare::default());
    match &bare {
        Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
        Expr::Identifier(name) => folded(name),
        other => other.to_string().to_lowercase(),
    }
}

impl VisitorMut for Keys {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if self.within > 0 {
            self.within += 1;
        } else if let Some(times) = self.times.get(&written(expression)) {
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
    /// The calls so far, by DataFusion's names of them.
    named: HashMap<String, Namesakes>,
}

/// Calls with one name.
#[derive(Default)]
struct Namesakes {
    /// The calls as they are written, each with how many times it is wrapped to change its name.
    calls: Vec<(String, usize)>,
    /// Whether a call has parts that its name does not show. If none has, calls that differ
    /// otherwise, such as `max(a.x)` and `max(b.x)`, have different names anyway.
    hides: bool,
}

impl Namesakes {
    /// How many times a call has to be wrapped.
    fn times(&mut self, written: String, hides: bool) -> usize {
        if let Some((_, times)) = self.calls.iter().find(|(other, _)| *other == written) {
            return *times;
        }
        self.hides |= hides;
        let most = self.calls.iter().map(|(_, times)| *times).max();
        let times = match most {
            Some(most) if self.hides => most + 1,
            _ => 0,
        };
        self.calls.push((written, times));
        times
    }
}

impl VisitorMut for Twins {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && (is_aggregate(function) || function.over.is_some())
        {
            count_rows(function);
            let (name, hides) = name_of_call(function);
            let namesakes = self.named.entry(name).or_default();
            let times = namesakes.times(function.to_string(), hides);
            let rename: fn(&mut Function) = match is_aggregate(function) {
                true => filter_by_nothing,
                false => name_anew,
            };
            (0..times).for_each(|_| rename(function));
        }
        ControlFlow::Continue(())
    }
}

/// Replaces `count(1)` by `count(*)`.
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

/// Removes the parts that do not show in a name: casts, and the contents of subqueries.
#[derive(Default)]
struct Bare {
    /// Whether columns lose their tables, and functions get the name that their synonyms share.
    is_loose: bool,
    /// Whether a part has been removed.
    found: bool,
}

impl VisitorMut for Bare {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        while let Expr::Nested(inner) = expression {
            *expression = (**inner).clone();
        }
        let bare = match expression {
            Expr::Cast { expr, .. } | Expr::InSubquery { expr, .. } => (**expr).clone(),
            Expr::Interval(interval) => (*interval.value).clone(),
            Expr::TypedString(typed) => Expr::Value(typed.value.clone()),
            Expr::Subquery(_) | Expr::Exists { .. } => Expr::value(Value::Null),
            _ => {
                if self.is_loose {
                    loosen(expression);
                }
                return ControlFlow::Continue(());
            }
        };
        self.found = true;
        *expression = bare;
        ControlFlow::Continue(())
    }
}

/// Removes a column's table, and gives a function the name that its synonyms share.
fn loosen(expression: &mut Expr) {
    match expression {
        Expr::Identifier(name) => *name = Ident::new(folded(name)),
        Expr::CompoundIdentifier(parts) => {
            if let Some(name) = parts.last().map(folded) {
                *expression = Expr::Identifier(Ident::new(name));
            }
        }
        Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident());
            if let Some(name) = name.map(folded) {
                let name = match name.as_str() {
                    "every" => "bool_and",
                    "variance" => "var_samp",
                    "stddev_samp" => "stddev",
                    "char_length" | "character_length" => "length",
                    "ceiling" => "ceil",
                    "pow" => "power",
                    own => own,
                };
                function.name = ObjectName::from(vec![Ident::new(name)]);
            }
        }
        _ => {}
    }
}

/// A name that is the same for all calls to which DataFusion gives one name, and whether this call
/// has parts that the name does not show.
fn name_of_call(function: &Function) -> (String, bool) {
    let mut call = Expr::Function(function.clone());
    let mut bare = Bare {
        is_loose: true,
        found: false,
    };
    // The visitor never breaks.
    let _ = walk::change(&mut call, &mut bare);
    (call.to_string().to_lowercase(), bare.found)
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

/// Changes the name of a window function's call, by its argument or by its window.
fn name_anew(function: &mut Function) {
    let argument = match &mut function.args {
        FunctionArguments::List(list) => match list.args.first_mut() {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) => Some(argument),
            _ => None,
        },
        _ => None,
    };
    let of_window = match &mut function.over {
        Some(WindowType::WindowSpec(window)) => {
            let keys = window.order_by.iter_mut().map(|key| &mut key.expr);
            keys.chain(&mut window.partition_by).next()
        }
        _ => None,
    };
    if let Some(named) = argument.or(of_window) {
        let value = std::mem::replace(named, Expr::value(Value::Null));
        *named = call_of(NAMED, vec![value]);
    }
}
