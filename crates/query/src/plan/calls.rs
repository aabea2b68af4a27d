//! Checks of function calls that need the registry of functions.
//!
//! DISTINCT, ORDER BY and FILTER belong to aggregates; OVER belongs to aggregates and window
//! functions. DataFusion ignores them at other functions. A WITH query that calls a volatile
//! function is computed in every place that reads it, so it may be read only once.

use std::ops::ControlFlow;

use aerostat_sql::{clauses::is_aggregate, names::folded, tree::modifying::reads, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    logical_expr::Volatility,
    sql::sqlparser::ast::{
        CaseWhen, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
        FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query,
        UnaryOperator, Value, Visit, VisitMut, Visitor, VisitorMut, With,
        helpers::attached_token::AttachedToken,
    },
};

use super::StatementContext;

/// PostgreSQL's window functions.
const WINDOWS: [&str; 11] = [
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// Checks the calls in a tree, and rewrites those of window functions that DataFusion understands
/// differently.
///
/// # Errors
/// `WrongObjectType`, `FeatureNotSupported`, `InvalidArgumentForNthValue`, as the module says.
pub(super) fn check<N: Visit + VisitMut>(
    context: &StatementContext,
    node: &mut N,
) -> Result<(), SqlError> {
    let flow = walk::look(node, &mut Calls { context });
    let flow = match flow {
        ControlFlow::Continue(()) => walk::change(node, &mut Offsets),
        stopped => stopped,
    };
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Calls<'a> {
    context: &'a StatementContext,
}

impl Visitor for Calls<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        match &query.with {
            Some(with) if !with.recursive => self.check_with(with, query),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        let Some(name) = called(&function.name) else {
            return ControlFlow::Continue(());
        };
        let distinct = is_distinct(function);
        if is_aggregate(function) {
            if distinct && function.over.is_some() {
                let message = "DISTINCT is not implemented for window functions";
                return refuse(ErrorKind::FeatureNotSupported, message);
            }
            return ControlFlow::Continue(());
        }
        if WINDOWS.contains(&name.as_str()) {
            if function.over.is_none() {
                let message = format!("window function {name} requires an OVER clause");
                return refuse(ErrorKind::WrongObjectType, message);
            }
            return ControlFlow::Continue(());
        }
        if !self.is_known(&name) {
            return ControlFlow::Continue(());
        }
        let wrong = if distinct {
            "DISTINCT"
        } else if is_ordered(function) {
            "ORDER BY"
        } else if function.filter.is_some() {
            "FILTER"
        } else if function.over.is_some() {
            let message = format!(
                "OVER specified, but {name} is not a window function nor an aggregate function"
            );
            return refuse(ErrorKind::WrongObjectType, message);
        } else {
            return ControlFlow::Continue(());
        };
        let message = format!("{wrong} specified, but {name} is not an aggregate function");
        refuse(ErrorKind::WrongObjectType, message)
    }
}

fn refuse(kind: ErrorKind, message: impl Into<String>) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::new(kind, message))
}

/// A call of an internal function, whose name users cannot write.
pub(super) fn call_of(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter().map(FunctionArgExpr::Expr);
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::with_quote('"', name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.map(FunctionArg::Unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The function's name in a call, without its schema.
fn called(name: &ObjectName) -> Option<String> {
    match &name.0[..] {
        [name] | [_, name] => name.as_ident().map(folded),
        _ => None,
    }
}

fn is_distinct(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else {
        return false;
    };
    list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
}

fn is_ordered(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else {
        return false;
    };
    let orders =
        |clause: &FunctionArgumentClause| matches!(clause, FunctionArgumentClause::OrderBy(_));
    list.clauses.iter().any(orders)
}

impl Calls<'_> {
    /// Whether this is a scalar function.
    fn is_known(&self, name: &str) -> bool {
        self.context.state.scalar_functions().contains_key(name)
            || self.context.function(name).is_some()
    }

    /// Refuses volatile WITH queries that would be computed several times.
    fn check_with(&self, with: &With, query: &Query) -> ControlFlow<SqlError> {
        let mut volatile: Vec<String> = Vec::new();
        for cte in &with.cte_tables {
            let reads_volatile = |name: &String| reads(&*cte.query, name) > 0;
            if is_volatile(self.context, &*cte.query) || volatile.iter().any(reads_volatile) {
                volatile.push(folded(&cte.alias.name));
            }
        }
        for name in &volatile {
            if reads(query, name) > 1 {
                let message = format!(
                    "WITH query \"{name}\" calls volatile functions and is read more than once"
                );
                let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
                let hint = "Keep its rows in a temporary table.";
                return ControlFlow::Break(error.with_hint(hint));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a tree calls volatile functions.
pub fn is_volatile<N: Visit>(context: &StatementContext, node: &N) -> bool {
    let is_volatile = |name: String| {
        let own = context.function(&name);
        let known = own
            .as_ref()
            .or_else(|| context.state.scalar_functions().get(&name));
        known.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
    };
    let calls = walk::expressions(node, |expression| match expression {
        Expr::Function(function) if called(&function.name).is_some_and(is_volatile) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    calls.is_break()
}

/// Rewrites `lag(v, NULL)`, which is NULL, and refuses `nth_value(v, 0)`.
struct Offsets;

impl VisitorMut for Offsets {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        if function.over.is_none() {
            return ControlFlow::Continue(());
        }
        let name = called(&function.name).unwrap_or_default();
        let FunctionArguments::List(list) = &mut function.args else {
            return ControlFlow::Continue(());
        };
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(offset))) = list.args.get_mut(1) else {
            return ControlFlow::Continue(());
        };
        match name.as_str() {
            "nth_value" if is_below_one(offset) => {
                let message = "argument of nth_value must be greater than zero";
                refuse(ErrorKind::InvalidArgumentForNthValue, message)
            }
            "lag" | "lead" if is_null(offset) => {
                *offset = Expr::value(Value::Number("1".to_owned(), false));
                let never = CaseWhen {
                    condition: Expr::value(Value::Boolean(false)),
                    result: expression.clone(),
                };
                *expression = Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: None,
                    conditions: vec![never],
                    else_result: None,
                };
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_null(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => value.value == Value::Null,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_null(expr),
        _ => false,
    }
}

fn is_below_one(expression: &Expr) -> bool {
    match expression {
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(digits, _) if digits.bytes().all(|b| b == b'0'))
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => matches!(&**expr, Expr::Value(_)),
        _ => false,
    }
}
