//! Binding MERGE.
//!
//! The query of a MERGE joins the data source with the target and numbers each row with the first
//! WHEN clause that applies. Each column is a CASE over that number, so that the expressions of a
//! clause are evaluated for its own rows alone. CHECKs are evaluated in the same way, for the
//! rows that are written.
//!
//! ```text
//!  source LEFT JOIN target ON …     an inner join if no clause is about rows not matched
//!    ──► clause   CASE WHEN row id IS NOT NULL THEN CASE WHEN … THEN 0 … END ELSE … END
//!    ──► columns  CASE clause WHEN 0 THEN … WHEN 2 THEN … END
//! ```
//!
//! Rows to which no clause applies, or DO NOTHING, have no number, but still reach the sink. A
//! filter would be pushed below the join, and evaluate its conditions for rows that no clause is
//! about.

use std::ops::ControlFlow;

use aerostat_semantics::name_of_arrow;
use aerostat_sql::{
    grants::Privilege,
    names::folded,
    tree::merge::{Action, action},
    walk,
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, DataFusionError, Result},
    logical_expr::{Case, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit},
    prelude::Column,
    scalar::ScalarValue,
    sql::{
        planner::PlannerContext,
        sqlparser::ast::{
            self, Ident, Join, JoinConstraint, JoinOperator, MergeClauseKind, TableFactor,
            TableWithJoins,
        },
    },
};

use super::{
    BoundDml, DmlKind,
    assign::assigned_values,
    bind::{check_name, check_truths, plan_from},
    insert::row_values,
    rights,
    values::{qualified, unsupported},
};
use crate::{
    error::external,
    plan::{ROW_ID_COLUMN, StatementContext, Target},
};

/// The column with the number of a row's clause. Users cannot write such a name.
const CLAUSE_COLUMN: &str = "\u{1}clause";

/// Binds `MERGE INTO t USING … ON … WHEN [NOT] MATCHED [AND …] THEN …`.
///
/// # Errors
/// A mistake in the statement: names, types, the role's rights.
pub fn bind_merge(
    context: &StatementContext,
    merge: &ast::Merge,
    with: Option<ast::With>,
    parameters: &mut PlannerContext,
) -> Result<BoundDml> {
    if with.as_ref().is_some_and(|with| with.recursive) {
        let message = "WITH RECURSIVE is not supported for MERGE statement";
        return Err(refused(ErrorKind::SyntaxError, message));
    }
    if merge.output.is_some() {
        let message = "syntax error at or near \"OUTPUT\"";
        return Err(refused(ErrorKind::SyntaxError, message));
    }
    let clauses = clauses_of(merge)?;
    let target = resolve(context, merge, &clauses)?;
    let found = plan_joined(context, merge, &target, &clauses, with, parameters)?;
    let scope = Scope {
        context,
        target: &target,
        source: without_target(&target, found.schema())?,
        both: found.schema(),
    };
    let planned = clauses.iter().map(|clause| scope.plan(clause, parameters));
    let planned = planned.collect::<Result<Vec<_>>>()?;
    rights::admit(context, &target, || {
        rights::found_by(&target, &found)
            || planned.iter().any(|clause| clause.reads(&target))
            // As in PostgreSQL, a MERGE that does nothing needs the right, too.
            || clauses.iter().all(|clause| clause.kind().is_none())
    })?;
    let numbers = numbers(&target, &clauses, &planned);
    let assigned = assigned_columns(&clauses, &planned);
    let mut outputs: Vec<Expr> = found.schema().iter().map(Expr::from).collect();
    outputs.push(numbers.alias(CLAUSE_COLUMN));
    let numbered = LogicalPlanBuilder::from(found).project(outputs)?.build()?;
    let mut outputs = vec![row_id(&target).alias(ROW_ID_COLUMN)];
    outputs.extend(columns(&target, planned)?);
    outputs.push(number());
    let plan = LogicalPlanBuilder::from(numbered)
        .project(outputs)?
        .build()?;
    let columns = 1..1 + target.entry.table.schema().columns.len();
    let mut outputs: Vec<Expr> = plan.schema().iter().map(Expr::from).collect();
    outputs.truncate(columns.end);
    outputs.extend(checks(context, &target, &clauses, &plan, parameters)?);
    let checks = columns.end..outputs.len();
    outputs.push(number());
    let source = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
    Ok(BoundDml {
        kind: DmlKind::Merge,
        target,
        assigned,
        source,
        columns,
        returning: None,
        origins: Vec::new(),
        told: None,
        checks,
        conflict: None,
        clauses: clauses.iter().map(Clause::kind).collect(),
    })
}

/// A WHEN clause.
struct Clause<'a> {
    is_matched: bool,
    condition: Option<&'a ast::Expr>,
    action: Action<'a>,
}

impl Clause<'_> {
    /// What it does to a row; `None` for DO NOTHING.
    fn kind(&self) -> Option<DmlKind> {
        match self.action {
            Action::Nothing => None,
            Action::Insert(_) => Some(DmlKind::Insert),
            Action::Update(_) => Some(DmlKind::Update),
            Action::Delete => Some(DmlKind::Delete),
        }
    }
}

/// The clauses. A clause that no row can reach is an error.
fn clauses_of(merge: &ast::Merge) -> Result<Vec<Clause<'_>>> {
    let mut clauses: Vec<Clause<'_>> = Vec::with_capacity(merge.clauses.len());
    for clause in &merge.clauses {
        let action = action(&clause.action).ok_or_else(|| unsupported("this form of MERGE"))?;
        let is_matched = clause.clause_kind == MergeClauseKind::Matched;
        let is_reached =
            |before: &Clause<'_>| before.is_matched != is_matched || before.condition.is_some();
        if !clauses.iter().all(is_reached) {
            let message = "unreachable WHEN clause specified after unconditional WHEN clause";
            return Err(refused(ErrorKind::SyntaxError, message));
        }
        clauses.push(Clause {
            is_matched,
            condition: clause.predicate.as_ref(),
            action,
        });
    }
    Ok(clauses)
}

fn resolve(
    context: &StatementContext,
    merge: &ast::Merge,
    clauses: &[Clause<'_>],
) -> Result<Target> {
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = &merge.table
    else {
        return Err(unsupported("this target of MERGE"));
    };
    let alias = alias.as_ref().map(|alias| &alias.name);
    let privileges = clauses.iter().filter_map(|clause| match clause.kind()? {
        DmlKind::Insert => Some(Privilege::Insert),
        DmlKind::Update => Some(Privilege::Update),
        DmlKind::Delete => Some(Privilege::Delete),
        DmlKind::Merge => None,
    });
    let privileges: Vec<Privilege> = privileges.collect();
    let resolved = Target::resolve_for_merge(context, name, alias, &privileges);
    let target = resolved.map_err(external)?;
    let source = source_name(&merge.source).map(folded);
    if source.as_ref() == Some(&target.alias) {
        let message = format!("name \"{}\" specified more than once", target.alias);
        let detail = "The name is used both as MERGE target table and data source.";
        let error = SqlError::new(ErrorKind::DuplicateAlias, message).with_detail(detail);
        return Err(external(error));
    }
    Ok(target)
}

/// The name of the data source in the statement.
fn source_name(source: &TableFactor) -> Option<&Ident> {
    match source {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(&alias.name),
            None => name.0.last()?.as_ident(),
        },
        TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => Some(&alias.as_ref()?.name),
        _ => None,
    }
}

/// The rows of the data source, each joined with the rows of the target that match it.
fn plan_joined(
    context: &StatementContext,
    merge: &ast::Merge,
    target: &Target,
    clauses: &[Clause<'_>],
    with: Option<ast::With>,
    parameters: &mut PlannerContext,
) -> Result<LogicalPlan> {
    let on = JoinConstraint::On((*merge.on).clone());
    let from = TableWithJoins {
        relation: merge.source.clone(),
        joins: vec![Join {
            relation: target.factor(context),
            global: false,
            join_operator: match clauses.iter().all(|clause| clause.is_matched) {
                true => JoinOperator::Inner(on),
                false => JoinOperator::LeftOuter(on),
            },
        }],
    };
    plan_from(context, with, vec![from], None, parameters)
}

fn without_target(target: &Target, both: &DFSchema) -> Result<DFSchema> {
    let fields = both
        .iter()
        .filter(|(qualifier, _)| qualifier.is_none_or(|q| q.table() != target.alias))
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    DFSchema::new_with_metadata(fields, Default::default())
}

/// The schemas that clauses are planned over.
struct Scope<'a> {
    context: &'a StatementContext,
    target: &'a Target,
    /// The columns that WHEN NOT MATCHED may name.
    source: DFSchema,
    /// The columns that WHEN MATCHED may name.
    both: &'a DFSchema,
}

/// A planned clause.
struct Planned {
    condition: Expr,
    /// The new value of each column; `None` for a column that stays as it is, and for all columns
    /// if there is no new row.
    values: Vec<Option<Expr>>,
    /// Whether rows are updated, so that other columns stay as they are.
    is_update: bool,
}

impl Planned {
    /// Whether the clause reads columns of the target.
    fn reads(&self, target: &Target) -> bool {
        let given = self.values.iter().flatten();
        rights::any_names(given.chain([&self.condition]), &target.alias)
    }
}

impl Scope<'_> {
    fn plan(&self, clause: &Clause<'_>, parameters: &mut PlannerContext) -> Result<Planned> {
        let Scope {
            context, target, ..
        } = *self;
        let schema = if clause.is_matched {
            self.both
        } else {
            &self.source
        };
        let condition = match clause.condition {
            None => lit(true),
            Some(condition) => {
                if !clause.is_matched {
                    refuse_target(condition, target).map_err(external)?;
                }
                let planner = context.planner();
                let planned = planner.sql_to_expr(condition.clone(), schema, parameters)?;
                require_boolean(&planned, schema)?;
                planned
            }
        };
        let values = match &clause.action {
            Action::Nothing | Action::Delete => {
                vec![None; target.entry.table.schema().columns.len()]
            }
            Action::Update(set) => assigned_values(context, target, set, schema, parameters)?,
            Action::Insert(row) => {
                for cell in row.values.unwrap_or_default() {
                    refuse_target(cell, target).map_err(external)?;
                }
                let values = row_values(context, target, row, schema, parameters)?;
                values.into_iter().map(Some).collect()
            }
        };
        Ok(Planned {
            condition,
            values,
            is_update: matches!(clause.action, Action::Update(_)),
        })
    }
}

/// Refuses an expression that names the target in a clause for rows without a match.
fn refuse_target(expression: &ast::Expr, target: &Target) -> Result<(), SqlError> {
    let alias = target.alias.as_str();
    let found = walk::own_expressions(expression, |expression| match expression {
        ast::Expr::CompoundIdentifier(parts) if folded(&parts[0]) == alias => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    if found.is_continue() {
        return Ok(());
    }
    let message = format!("invalid reference to FROM-clause entry for table \"{alias}\"");
    Err(
        SqlError::new(ErrorKind::UndefinedTable, message).with_hint(format!(
            "There is an entry for table \"{alias}\", but it cannot be referenced from this part of the query."
        )),
    )
}

fn require_boolean(condition: &Expr, schema: &DFSchema) -> Result<()> {
    if matches!(
        condition,
        Expr::Literal(ScalarValue::Utf8(_), _) | Expr::Placeholder(_)
    ) {
        return Ok(());
    }
    // An expression without a type before its analysis gets its error in the analysis.
    let Ok((_, field)) = condition.to_field(schema) else {
        return Ok(());
    };
    match field.data_type() {
        DataType::Boolean | DataType::Null => Ok(()),
        other => {
            let name = name_of_arrow(other);
            let message = format!("argument of WHEN must be type boolean, not type {name}");
            Err(refused(ErrorKind::DatatypeMismatch, message))
        }
    }
}

fn row_id(target: &Target) -> Expr {
    Expr::Column(Column::new(Some(target.reference()), ROW_ID_COLUMN))
}

/// The number of a row's clause, once it is a column.
fn number() -> Expr {
    Expr::Column(Column::from_name(CLAUSE_COLUMN))
}

/// The number of the first clause that applies to a row; NULL if none does, or DO NOTHING.
fn numbers(target: &Target, clauses: &[Clause<'_>], planned: &[Planned]) -> Expr {
    let first_of = |is_matched: bool| {
        let all = (0i32..).zip(clauses.iter().zip(planned));
        let branches = all.filter(|(_, (clause, _))| clause.is_matched == is_matched);
        let branches = branches.map(|(number, (clause, planned))| {
            let number = ScalarValue::Int32(clause.kind().map(|_| number));
            (planned.condition.clone(), lit(number))
        });
        case(None, branches.collect(), lit(ScalarValue::Int32(None)))
    };
    if clauses.iter().all(|clause| clause.is_matched) {
        return first_of(true);
    }
    let is_matched = Expr::IsNotNull(Box::new(row_id(target)));
    case(None, vec![(is_matched, first_of(true))], first_of(false))
}

/// A CASE; without branches, only its ELSE.
fn case(subject: Option<Expr>, branches: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    if branches.is_empty() {
        return otherwise;
    }
    let branches = branches.into_iter();
    let branches = branches.map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case::new(
        subject.map(Box::new),
        branches.collect(),
        Some(Box::new(otherwise)),
    ))
}

/// The columns of the new rows.
fn columns(target: &Target, mut planned: Vec<Planned>) -> Result<Vec<Expr>> {
    let columns = target.entry.table.schema().columns.iter().enumerate();
    columns
        .map(|(at, column)| {
            let unchanged =
                || Expr::Column(Column::new(Some(target.reference()), column.name.as_str()));
            let given = (0i32..).zip(&mut planned).filter_map(|(number, clause)| {
                let stays = clause.is_update.then(unchanged);
                Some((lit(number), clause.values[at].take().or(stays)?))
            });
            let null = ScalarValue::try_new_null(&column.ty.arrow())?;
            let value = case(Some(number()), given.collect(), lit(null));
            Ok(qualified(target, at, value))
        })
        .collect()
}

/// The columns that the clauses assign.
fn assigned_columns(clauses: &[Clause<'_>], planned: &[Planned]) -> Vec<usize> {
    let updates = clauses.iter().zip(planned);
    let updates = updates.filter(|(clause, _)| clause.kind() == Some(DmlKind::Update));
    let mut assigned: Vec<usize> = updates
        .flat_map(|(_, planned)| {
            let values = planned.values.iter().enumerate();
            values.filter_map(|(at, value)| value.as_ref().map(|_| at))
        })
        .collect();
    assigned.sort_unstable();
    assigned.dedup();
    assigned
}

/// The truth of each CHECK, for rows that are written.
fn checks(
    context: &StatementContext,
    target: &Target,
    clauses: &[Clause<'_>],
    plan: &LogicalPlan,
    parameters: &mut PlannerContext,
) -> Result<Vec<Expr>> {
    let writes =
        |clause: &Clause<'_>| matches!(clause.kind(), Some(DmlKind::Insert | DmlKind::Update));
    let writing = (0i32..).zip(clauses).filter(|(_, clause)| writes(clause));
    let writing: Vec<Expr> = writing.map(|(number, _)| lit(number)).collect();
    if writing.is_empty() {
        return Ok(Vec::new());
    }
    let is_written = number().in_list(writing, false);
    let truths = check_truths(context, target, plan, parameters)?;
    let guarded = truths.into_iter().enumerate().map(|(at, truth)| {
        let otherwise = lit(ScalarValue::Boolean(None));
        let truth = case(None, vec![(is_written.clone(), truth)], otherwise);
        truth.alias(check_name(at))
    });
    Ok(guarded.collect())
}

fn refused(kind: ErrorKind, message: impl Into<String>) -> DataFusionError {
    external(SqlError::new(kind, message))
}
