//! Which constructs are allowed in which clause, checked on the statement as it is written.
//!
//! Aggregates and window functions have their places:
//!
//! | | aggregate | window function |
//! |---|---|---|
//! | SELECT list, ORDER BY | yes | yes |
//! | HAVING | yes | no |
//! | WHERE, JOIN … ON, WHEN of MERGE, GROUP BY, VALUES, LIMIT, SET, RETURNING | no | no |
//! | argument of an aggregate | no | no |
//! | argument of a window function | yes | no |
//!
//! Functions that return sets are allowed in SELECT lists, ORDER BY and GROUP BY, and in the only
//! row of an INSERT's VALUES, but not in CASE, `coalesce`, aggregates and window functions.
//!
//! LIMIT and OFFSET have one value for all rows, so they may name no column. Names in one WITH
//! must differ. The clauses of a subquery are checked by themselves when the walk gets there.

use std::{collections::HashSet, ops::ControlFlow};

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::ast::{
    Assignment, Expr, Function, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator,
    LimitClause, MergeAction, MergeClause, NamedWindowExpr, OnConflictAction, OnInsert,
    OrderByKind, Query, Select, SelectItem, SetExpr, Statement, UnaryOperator, Value, Visit,
    Visitor, With,
};

use crate::{names::folded, set_returning, walk};

/// PostgreSQL's aggregate functions.
const AGGREGATES: [&str; 36] = [
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "every",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "max",
    "min",
    "mode",
    "percentile_cont",
    "percentile_disc",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var_pop",
    "variance",
];

/// Checks a statement, query or expression.
///
/// # Errors
/// `GroupingError`, `WindowingError`, `InvalidColumnReference`,
/// `InvalidTextRepresentation`, `DuplicateAlias`, `FeatureNotSupported`, as the module says.
pub fn check<N: Visit>(node: &N) -> Result<(), SqlError> {
    match walk::look(node, &mut Clauses) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn refuse(kind: ErrorKind, message: impl Into<String>) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::new(kind, message))
}

struct Clauses;

impl Visitor for Clauses {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<SqlError> {
        match statement {
            Statement::Update(update) => {
                check_set(&update.assignments)?;
                check_where(update.selection.as_ref())?;
                check_returning(update.returning.as_deref())
            }
            Statement::Delete(delete) => {
                check_where(delete.selection.as_ref())?;
                check_returning(delete.returning.as_deref())
            }
            Statement::Insert(insert) => {
                if let Some(OnInsert::OnConflict(on)) = &insert.on
                    && let OnConflictAction::DoUpdate(update) = &on.action
                {
                    check_set(&update.assignments)?;
                    check_where(update.selection.as_ref())?;
                }
                check_returning(insert.returning.as_deref())
            }
            Statement::Merge(merge) => merge.clauses.iter().try_for_each(check_when),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        for item in &select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                ClauseWalk::ANY.check(expr)?;
            }
        }
        for join in select.from.iter().flat_map(|table| &table.joins) {
            if let Some(condition) = condition_of(&join.join_operator) {
                ClauseWalk::without_either("JOIN conditions").check(condition)?;
            }
        }
        check_where(select.selection.as_ref())?;
        if let GroupByExpr::Expressions(keys, _) = &select.group_by {
            for key in keys {
                check_position("GROUP BY", key)?;
                let mut place = ClauseWalk::without_either("GROUP BY");
                place.takes_sets = true;
                place.check(key)?;
            }
        }
        if let Some(having) = &select.having {
            ClauseWalk::without_windows("HAVING").check(having)?;
        }
        for window in &select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = &window.1 {
                let mut place = ClauseWalk::without_windows("window definitions");
                place.takes_sets = true;
                place.check(spec)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if let Some(with) = &query.with {
            check_names(with)?;
        }
        if let SetExpr::Values(values) = &*query.body {
            for cell in values.rows.iter().flat_map(|row| row.iter()) {
                let mut place = ClauseWalk::without_either("VALUES");
                // One row may be an INSERT's; `series` refuses it elsewhere.
                place.takes_sets = values.rows.len() == 1;
                place.check(cell)?;
            }
        }
        if let Some(order_by) = &query.order_by
            && let OrderByKind::Expressions(keys) = &order_by.kind
        {
            for key in keys {
                check_position("ORDER BY", &key.expr)?;
                ClauseWalk::ANY.check(&key.expr)?;
            }
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
            if let Some(limit) = limit {
                check_count("LIMIT", limit)?;
            }
            if let Some(offset) = offset {
                check_count("OFFSET", &offset.value)?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// A WHEN clause of a MERGE.
fn check_when(clause: &MergeClause) -> ControlFlow<SqlError> {
    if let Some(condition) = &clause.predicate {
        ClauseWalk::without_either("MERGE WHEN conditions").check(condition)?;
    }
    match &clause.action {
        MergeAction::Update(update) => check_set(&update.assignments),
        MergeAction::Insert(insert) => ClauseWalk::without_either("VALUES").check(&insert.kind),
        MergeAction::Delete { .. } => ControlFlow::Continue(()),
    }
}

fn check_set(assignments: &[Assignment]) -> ControlFlow<SqlError> {
    for assignment in assignments {
        ClauseWalk::without_either("UPDATE").check(&assignment.value)?;
    }
    ControlFlow::Continue(())
}

/// A constant in GROUP BY and ORDER BY is the position of an output.
fn check_position(clause: &str, key: &Expr) -> ControlFlow<SqlError> {
    let is_wrong = match key {
        Expr::Nested(inner) => return check_position(clause, inner),
        Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
            let mut keys = sets.iter().flatten();
            return keys.try_for_each(|key| check_position(clause, key));
        }
        Expr::UnaryOp { op, expr } => {
            matches!(op, UnaryOperator::Minus)
                && matches!(&**expr, Expr::Value(value) if is_fraction(&value.value))
        }
        Expr::Value(value) => match &value.value {
            Value::Placeholder(_) => false,
            Value::Number(..) => is_fraction(&value.value),
            _ => true,
        },
        _ => false,
    };
    match is_wrong {
        true => {
            let message = format!("non-integer constant in {clause}");
            refuse(ErrorKind::SyntaxError, message)
        }
        false => ControlFlow::Continue(()),
    }
}

fn is_fraction(value: &Value) -> bool {
    matches!(value, Value::Number(digits, _) if !digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn check_where(condition: Option<&Expr>) -> ControlFlow<SqlError> {
    match condition {
        Some(condition) => ClauseWalk::without_either("WHERE").check(condition),
        None => ControlFlow::Continue(()),
    }
}

fn check_returning(items: Option<&[SelectItem]>) -> ControlFlow<SqlError> {
    for item in items.unwrap_or_default() {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            ClauseWalk::without_either("RETURNING").check(expr)?;
        }
    }
    ControlFlow::Continue(())
}

fn condition_of(join: &JoinOperator) -> Option<&Expr> {
    match join {
        JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))
        | JoinOperator::Right(JoinConstraint::On(condition))
        | JoinOperator::RightOuter(JoinConstraint::On(condition))
        | JoinOperator::FullOuter(JoinConstraint::On(condition)) => Some(condition),
        _ => None,
    }
}

/// Refuses what an expression that is kept in the catalogue may not have: subqueries,
/// aggregates, window functions, and functions that return sets.
///
/// # Errors
/// `FeatureNotSupported`, `GroupingError`, `WindowingError`.
pub fn check_stored(clause: &'static str, expression: &Expr) -> Result<(), SqlError> {
    let is_subquery = |part: &Expr| match part {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        Expr::Function(function) if matches!(function.args, FunctionArguments::Subquery(_)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    if walk::expressions(expression, is_subquery).is_break() {
        let single = clause.strip_suffix('s').unwrap_or(clause);
        let message = format!("cannot use subquery in {single}");
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    match ClauseWalk::without_either(clause).check(expression) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Refuses a WITH that has two queries of one name.
///
/// # Errors
/// `DuplicateAlias`.
pub fn check_with_names(with: &With) -> Result<(), SqlError> {
    match check_names(with) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn check_names(with: &With) -> ControlFlow<SqlError> {
    let mut names = HashSet::new();
    for table in &with.cte_tables {
        let name = folded(&table.alias.name);
        if names.contains(&name) {
            let message = format!("WITH query name \"{name}\" specified more than once");
            return refuse(ErrorKind::DuplicateAlias, message);
        }
        names.insert(name);
    }
    ControlFlow::Continue(())
}

/// The number of rows that LIMIT and OFFSET name.
fn check_count(clause: &'static str, count: &Expr) -> ControlFlow<SqlError> {
    if let Expr::Value(value) = count
        && let Value::SingleQuotedString(text) = &value.value
        && text.trim().parse::<i64>().is_err()
    {
        let message = format!("invalid input syntax for type bigint: \"{text}\"");
        return refuse(ErrorKind::InvalidTextRepresentation, message);
    }
    if let Expr::Value(value) = count
        && let Value::Number(digits, _) = &value.value
        && digits
            .parse::<f64>()
            .is_ok_and(|count| count >= i64::MAX as f64)
        && digits.parse::<i64>().is_err()
    {
        return refuse(ErrorKind::NumericValueOutOfRange, "bigint out of range");
    }
    let mut place = ClauseWalk::without_either(clause);
    place.names_no_column = true;
    place.check(count)
}

/// A walk over one clause of one query.
struct ClauseWalk {
    clause: &'static str,
    takes_aggregates: bool,
    takes_windows: bool,
    takes_sets: bool,
    names_no_column: bool,
    /// How many aggregates, window functions and conditional expressions the walk is in.
    aggregates: usize,
    windows: usize,
    choices: Vec<&'static str>,
}

impl ClauseWalk {
    const ANY: ClauseWalk = ClauseWalk {
        clause: "",
        takes_aggregates: true,
        takes_windows: true,
        takes_sets: true,
        names_no_column: false,
        aggregates: 0,
        windows: 0,
        choices: Vec::new(),
    };

    fn without_windows(clause: &'static str) -> ClauseWalk {
        ClauseWalk {
            clause,
            takes_windows: false,
            takes_sets: false,
            ..ClauseWalk::ANY
        }
    }

    fn without_either(clause: &'static str) -> ClauseWalk {
        ClauseWalk {
            takes_aggregates: false,
            ..ClauseWalk::without_windows(clause)
        }
    }

    fn check<N: Visit>(mut self, node: &N) -> ControlFlow<SqlError> {
        walk::look_own(node, &mut self)
    }

    fn enter_aggregate(&mut self) -> ControlFlow<SqlError> {
        if self.aggregates > 0 {
            let message = "aggregate function calls cannot be nested";
            return refuse(ErrorKind::GroupingError, message);
        }
        if !self.takes_aggregates {
            let message = format!("aggregate functions are not allowed in {}", self.clause);
            return refuse(ErrorKind::GroupingError, message);
        }
        self.aggregates += 1;
        ControlFlow::Continue(())
    }

    fn enter_window(&mut self) -> ControlFlow<SqlError> {
        if self.aggregates > 0 {
            let message = "aggregate function calls cannot contain window function calls";
            return refuse(ErrorKind::GroupingError, message);
        }
        if self.windows > 0 {
            let message = "window function calls cannot be nested";
            return refuse(ErrorKind::WindowingError, message);
        }
        if !self.takes_windows {
            let message = format!("window functions are not allowed in {}", self.clause);
            return refuse(ErrorKind::WindowingError, message);
        }
        self.windows += 1;
        ControlFlow::Continue(())
    }

    fn check_set(&self) -> ControlFlow<SqlError> {
        const HINT: &str =
            "You might be able to move the set-returning function into a LATERAL FROM item.";
        let nested = |what: &str| {
            let message =
                format!("{what} function calls cannot contain set-returning function calls");
            SqlError::new(ErrorKind::FeatureNotSupported, message)
        };
        ControlFlow::Break(if !self.takes_sets {
            set_returning::refused(self.clause)
        } else if self.aggregates > 0 {
            nested("aggregate").with_hint(HINT)
        } else if self.windows > 0 {
            nested("window").with_hint(HINT)
        } else if let Some(choice) = self.choices.last() {
            set_returning::refused(choice).with_hint(HINT)
        } else {
            return ControlFlow::Continue(());
        })
    }
}

/// The expressions that compute only some of their operands, as PostgreSQL calls them.
fn choice(expression: &Expr) -> Option<&'static str> {
    match expression {
        Expr::Case { .. } => Some("CASE"),
        Expr::Function(function) => {
            let [name] = &function.name.0[..] else {
                return None;
            };
            (folded(name.as_ident()?) == "coalesce").then_some("COALESCE")
        }
        _ => None,
    }
}

/// Whether a call is one of an aggregate function.
pub fn is_aggregate(function: &Function) -> bool {
    let name = match &function.name.0[..] {
        [name] => name.as_ident().map(folded),
        [_, name] => name.as_ident().map(folded),
        _ => None,
    };
    name.is_some_and(|name| AGGREGATES.contains(&name.as_str()) || name == "var_samp")
}

impl Visitor for ClauseWalk {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<SqlError> {
        self.choices.extend(choice(expression));
        match expression {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) if self.names_no_column => {
                let message = format!("argument of {} must not contain variables", self.clause);
                refuse(ErrorKind::InvalidColumnReference, message)
            }
            Expr::Function(function) if function.over.is_some() => self.enter_window(),
            Expr::Function(function) if is_aggregate(function) => self.enter_aggregate(),
            Expr::Function(function) if set_returning::returns_set(function) => self.check_set(),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expression: &Expr) -> ControlFlow<SqlError> {
        if choice(expression).is_some() {
            self.choices.pop();
        }
        match expression {
            Expr::Function(function) if function.over.is_some() => {
                self.windows -= 1;
            }
            Expr::Function(function) if is_aggregate(function) => {
                self.aggregates -= 1;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::{Statement as Text, StatementKind};

    fn checked(sql: &str) -> Result<(), SqlError> {
        let StatementKind::Sql(parsed) = Text::single(sql).unwrap().kind else {
            panic!("not SQL")
        };
        check(&*parsed)
    }

    #[test]
    fn functions_out_of_place_are_refused() {
        use ErrorKind::{
            DuplicateAlias, FeatureNotSupported, GroupingError, InvalidColumnReference,
            InvalidTextRepresentation, WindowingError,
        };
        for (sql, kind, message) in [
            (
                "SELECT 1 FROM t WHERE sum(a) > 1",
                GroupingError,
                "aggregate functions are not allowed in WHERE",
            ),
            (
                "SELECT 1 FROM t JOIN u ON sum(a) > 1",
                GroupingError,
                "aggregate functions are not allowed in JOIN conditions",
            ),
            (
                "SELECT 1 FROM t GROUP BY count(*)",
                GroupingError,
                "aggregate functions are not allowed in GROUP BY",
            ),
            (
                "SELECT max(count(*)) FROM t",
                GroupingError,
                "aggregate function calls cannot be nested",
            ),
            (
                "SELECT 1 FROM t ORDER BY sum(1 + sum(a))",
                GroupingError,
                "aggregate function calls cannot be nested",
            ),
            (
                "SELECT sum(rank() OVER ()) FROM t",
                GroupingError,
                "aggregate function calls cannot contain window function calls",
            ),
            (
                "SELECT sum(rank() OVER ()) OVER () FROM t",
                WindowingError,
                "window function calls cannot be nested",
            ),
            (
                "SELECT 1 FROM t HAVING rank() OVER () > 1",
                WindowingError,
                "window functions are not allowed in HAVING",
            ),
            (
                "SELECT 1 FROM t WHERE rank() OVER () > 1",
                WindowingError,
                "window functions are not allowed in WHERE",
            ),
            (
                "VALUES (sum(1))",
                GroupingError,
                "aggregate functions are not allowed in VALUES",
            ),
            (
                "UPDATE t SET a = sum(a)",
                GroupingError,
                "aggregate functions are not allowed in UPDATE",
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = sum(t.a)",
                GroupingError,
                "aggregate functions are not allowed in UPDATE",
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE rank() OVER () > 1",
                WindowingError,
                "window functions are not allowed in WHERE",
            ),
            (
                "MERGE INTO t USING u ON true WHEN MATCHED AND sum(t.a) > 1 THEN DELETE",
                GroupingError,
                "aggregate functions are not allowed in MERGE WHEN conditions",
            ),
            (
                "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT VALUES (rank() OVER ())",
                WindowingError,
                "window functions are not allowed in VALUES",
            ),
            (
                "DELETE FROM t RETURNING sum(a)",
                GroupingError,
                "aggregate functions are not allowed in RETURNING",
            ),
            (
                "SELECT 1 FROM t WHERE generate_series(1, a) > 1",
                FeatureNotSupported,
                "set-returning functions are not allowed in WHERE",
            ),
            (
                "SELECT a FROM t ORDER BY CASE WHEN true THEN unnest(b) END",
                FeatureNotSupported,
                "set-returning functions are not allowed in CASE",
            ),
            (
                "SELECT sum(generate_series(1, 3))",
                FeatureNotSupported,
                "aggregate function calls cannot contain set-returning function calls",
            ),
            (
                "VALUES (1), (generate_series(1, 3))",
                FeatureNotSupported,
                "set-returning functions are not allowed in VALUES",
            ),
            (
                "SELECT 1 FROM t LIMIT a",
                InvalidColumnReference,
                "argument of LIMIT must not contain variables",
            ),
            (
                "SELECT 1 FROM t OFFSET t.a",
                InvalidColumnReference,
                "argument of OFFSET must not contain variables",
            ),
            (
                "SELECT 1 FROM t LIMIT 'x'",
                InvalidTextRepresentation,
                "invalid input syntax for type bigint: \"x\"",
            ),
            (
                "WITH q AS (SELECT 1), Q AS (SELECT 2) SELECT 1",
                DuplicateAlias,
                "WITH query name \"q\" specified more than once",
            ),
        ] {
            let error = checked(sql).expect_err(sql);
            assert_eq!(
                (error.kind, error.message.as_str()),
                (kind, message),
                "{sql}"
            );
        }
    }

    #[test]
    fn functions_in_place_are_taken() {
        for sql in [
            "SELECT sum(a), sum(sum(a)) OVER (ORDER BY max(b)) FROM t HAVING count(*) > 1 ORDER BY avg(a)",
            "SELECT a FROM t WHERE a = (SELECT max(a) FROM t) GROUP BY a LIMIT (SELECT count(*) FROM t)",
            "SELECT sum((SELECT max(b) FROM u)) FROM t",
            "SELECT coalesce(a, (SELECT generate_series(1, 1))), generate_series(1, a) FROM t GROUP BY a, unnest(b)",
            "UPDATE t SET a = (SELECT sum(a) FROM u) WHERE b IN (SELECT max(b) FROM u)",
            "WITH q AS (SELECT 1), r AS (WITH q AS (SELECT 2) SELECT * FROM q) SELECT 1 LIMIT 2",
        ] {
            assert!(checked(sql).is_ok(), "{sql}");
        }
    }
}
