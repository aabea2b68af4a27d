//! Keys that stand in grouping sets more than once.
//!
//! PostgreSQL groups by outputs: a key is the output that it names, or the first output with its
//! expression. DataFusion groups by expressions. So outputs with one expression that are keys each
//! get an expression of their own, by a call of `"\1named"`; the first keeps the expression, which
//! stands for it everywhere else. The argument of GROUPING is replaced by the first key with its
//! expression. DataFusion's ROLLUP and CUBE accept neither a key twice nor several keys in
//! parentheses, but its GROUPING SETS do.
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT a AS x, a AS y … GROUP BY x, ROLLUP (y)` | `SELECT a AS x, "\1named"(a, 1) AS y … GROUP BY x, ROLLUP (y)` |
//! | `SELECT b, c … GROUP BY ROLLUP (1, 2)` | `… GROUP BY ROLLUP (b, c)` |
//! | `SELECT 7 … GROUP BY ROLLUP (1)` | `SELECT "\1named"(7, 0) … GROUP BY ROLLUP ("\1named"(7, 0))` |
//! | `ROLLUP (a, a)` | `GROUPING SETS ((a), (a), ())` |
//! | `ROLLUP ((a, b), c)` | `GROUPING SETS ((a, b, c), (a, b), ())` |
//! | `CUBE ((a, b), c)` | `GROUPING SETS ((a, b, c), (a, b), (c), ())` |

use std::ops::ControlFlow;

use aerostat_semantics::functions::named::NAMED;
use aerostat_sql::{
    names::folded,
    walk::{self, unnested},
};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident,
    ObjectNamePart, OrderBy, Select, SelectItem, Value, VisitMut, VisitorMut,
};

use super::{
    calls::call_of,
    names::output_name,
    positions::{at_position, output_at, position},
};

/// Rewrites the grouping sets of a SELECT, and the places that name their keys, also in the ORDER
/// BY of its query. A second call changes nothing.
pub(super) fn rewrite(select: &mut Select, order_by: &mut Option<OrderBy>) {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return;
    };
    if !keys.iter().any(is_sets) {
        return;
    }
    let keys: Vec<Key> = flat(keys).map(|key| Key::of(select, key)).collect();
    let twins = twins(select, &keys);
    for twin in &twins {
        if let SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. } =
            &mut select.projection[twin.at]
        {
            *output = twin.named();
        }
    }
    let mut arguments = Arguments {
        keys: &keys,
        twins: &twins,
    };
    if !twins.is_empty() {
        arguments.change(&mut select.projection);
        arguments.change(&mut select.having);
        arguments.change(order_by);
    }
    let GroupByExpr::Expressions(written, _) = &select.group_by else {
        return;
    };
    let written = written.iter().map(|key| expanded(select, key)).collect();
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        *keys = written;
    }
}

fn is_sets(key: &Expr) -> bool {
    matches!(key, Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_))
}

/// The keys of a GROUP BY in order, including those of its grouping sets.
fn flat(keys: &[Expr]) -> impl Iterator<Item = &Expr> {
    keys.iter().flat_map(parts)
}

fn parts(key: &Expr) -> Vec<&Expr> {
    match key {
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
            sets.iter().flatten().collect()
        }
        key => vec![key],
    }
}

/// A key of a GROUP BY.
struct Key {
    /// The output that it groups by, if there is one.
    output: Option<usize>,
    expression: Expr,
}

impl Key {
    fn of(select: &Select, key: &Expr) -> Key {
        let key = unnested(key);
        let named = position(key).or_else(|| output_called(select, key));
        let output = named.filter(|at| output_at(select, *at).is_some());
        let output = output.or_else(|| {
            let mut all = 0..select.projection.len();
            all.find(|at| output_at(select, *at).is_some_and(|output| is_same(output, key)))
        });
        let expression = output.and_then(|at| output_at(select, at)).unwrap_or(key);
        Key {
            output,
            expression: expression.clone(),
        }
    }

    fn is(&self, other: &Key) -> bool {
        match (self.output, other.output) {
            (Some(own), Some(others)) => own == others,
            (None, None) => is_same(&self.expression, &other.expression),
            _ => false,
        }
    }
}

/// The first output with the name that a key is; `None` if a column has that name, which comes
/// first.
fn output_called(select: &Select, key: &Expr) -> Option<usize> {
    let Expr::Identifier(name) = key else {
        return None;
    };
    let name = folded(name);
    // Names inside outputs are always columns.
    let is_column = walk::expressions(&select.projection, |part| match part {
        Expr::Identifier(column) if folded(column) == name => ControlFlow::Break(()),
        Expr::CompoundIdentifier(parts)
            if parts.last().is_some_and(|last| folded(last) == name) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    if is_column.is_break() {
        return None;
    }
    select.projection.iter().position(|item| match item {
        SelectItem::UnnamedExpr(output) => output_name(output) == name,
        SelectItem::ExprWithAlias { alias, .. } => folded(alias) == name,
        _ => false,
    })
}

/// An output that is a key and has the expression of an earlier output that is a key, too; or whose
/// expression is a number, which would be taken for a position.
struct Twin {
    at: usize,
    expression: Expr,
}

impl Twin {
    /// Its expression, made different from those of all other keys by its position.
    fn named(&self) -> Expr {
        let at = Expr::value(Value::Number(self.at.to_string(), false));
        call_of(NAMED, vec![self.expression.clone(), at])
    }
}

fn twins(select: &Select, keys: &[Key]) -> Vec<Twin> {
    let mut outputs: Vec<usize> = keys.iter().filter_map(|key| key.output).collect();
    outputs.sort_unstable();
    outputs.dedup();
    let outputs: Vec<(usize, &Expr)> = outputs
        .into_iter()
        .filter_map(|at| Some((at, output_at(select, at)?)))
        .collect();
    let mut twins = Vec::new();
    for (nth, (at, output)) in outputs.iter().enumerate() {
        let mut before = outputs[..nth].iter();
        if is_number(output) || before.any(|(_, other)| is_same(other, output)) {
            twins.push(Twin {
                at: *at,
                expression: (*output).clone(),
            });
        }
    }
    twins
}

fn is_number(output: &Expr) -> bool {
    matches!(unnested(output), Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// Replaces GROUPING's arguments by the first key with their expression.
struct Arguments<'a> {
    keys: &'a [Key],
    twins: &'a [Twin],
}

impl Arguments<'_> {
    fn change<N: VisitMut>(&mut self, node: &mut N) {
        // The visitor never breaks.
        let _ = walk::change_own(node, self);
    }
}

impl VisitorMut for Arguments<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && is_grouping(function)
            && let FunctionArguments::List(list) = &mut function.args
        {
            for argument in &mut list.args {
                if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument
                    && let Some(key) = self
                        .keys
                        .iter()
                        .find(|key| is_same(&key.expression, argument))
                    && let Some(twin) = self.twins.iter().find(|twin| Some(twin.at) == key.output)
                {
                    *argument = twin.named();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_grouping(function: &Function) -> bool {
    let name = function.name.0.last().and_then(|part| part.as_ident());
    name.map(folded).as_deref() == Some("grouping")
}

/// A key of a GROUP BY with outputs in the place of positions in its sets. The sets are written out
/// if DataFusion does not accept them as they are.
fn expanded(select: &Select, key: &Expr) -> Expr {
    let (Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets)) = key else {
        return key.clone();
    };
    let placed = |key: &Expr| at_position(select, unnested(key)).unwrap_or_else(|| key.clone());
    let sets: Vec<Vec<Expr>> = sets
        .iter()
        .map(|set| set.iter().map(placed).collect())
        .collect();
    let elements: Vec<Key> = sets
        .iter()
        .flatten()
        .map(|key| Key::of(select, key))
        .collect();
    let is_repeated = |at: usize| elements[..at].iter().any(|other| other.is(&elements[at]));
    // PostgreSQL does not accept an empty element either.
    let is_plain = sets.iter().any(Vec::is_empty)
        || sets.iter().all(|set| set.len() == 1) && !(0..elements.len()).any(is_repeated);
    let chosen: Vec<Vec<usize>> = match key {
        Expr::Rollup(_) if !is_plain => (0..=sets.len())
            .rev()
            .map(|length| (0..length).collect())
            .collect(),
        Expr::Cube(_) if !is_plain => (0..1_usize << sets.len())
            .rev()
            .map(|mask| (0..sets.len()).filter(|at| mask & (1 << at) != 0).collect())
            .collect(),
        Expr::Rollup(_) => return Expr::Rollup(sets),
        Expr::Cube(_) => return Expr::Cube(sets),
        _ => return Expr::GroupingSets(sets),
    };
    let united = |chosen: &Vec<usize>| -> Vec<Expr> {
        let mut set: Vec<(Key, Expr)> = Vec::new();
        for key in chosen.iter().flat_map(|at| &sets[*at]) {
            let own = Key::of(select, key);
            if !set.iter().any(|(other, _)| other.is(&own)) {
                set.push((own, key.clone()));
            }
        }
        set.into_iter().map(|(_, key)| key).collect()
    };
    Expr::GroupingSets(chosen.iter().map(united).collect())
}

/// Whether two expressions are the same, apart from the relations of columns that only one of them
/// gives.
pub(super) fn is_same(left: &Expr, right: &Expr) -> bool {
    let ((left, left_columns), (right, right_columns)) = (bare(left), bare(right));
    let mut columns = left_columns.iter().zip(&right_columns);
    let are_alike = |(left, right): (&Vec<String>, &Vec<String>)| {
        left.is_empty() || right.is_empty() || left == right
    };
    left == right && left_columns.len() == right_columns.len() && columns.all(are_alike)
}

/// An expression without the relations of its columns, and these relations.
fn bare(expression: &Expr) -> (Expr, Vec<Vec<String>>) {
    #[derive(Default)]
    struct Bare(Vec<Vec<String>>);
    impl VisitorMut for Bare {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            let mut parts: Vec<String> = match expression {
                Expr::Identifier(name) => vec![folded(name)],
                Expr::CompoundIdentifier(parts) => parts.iter().map(folded).collect(),
                Expr::Function(function) => {
                    for part in &mut function.name.0 {
                        if let ObjectNamePart::Identifier(name) = part {
                            *name = Ident::with_quote('"', folded(name));
                        }
                    }
                    return ControlFlow::Continue(());
                }
                _ => return ControlFlow::Continue(()),
            };
            if let Some(name) = parts.pop() {
                *expression = Expr::Identifier(Ident::with_quote('"', name));
            }
            self.0.push(parts);
            ControlFlow::Continue(())
        }
    }
    let mut expression = unnested(expression).clone();
    let mut relations = Bare::default();
    // The visitor never breaks.
    let _ = walk::change(&mut expression, &mut relations);
    (expression, relations.0)
}
