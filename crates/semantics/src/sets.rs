//! UNION, INTERSECT and EXCEPT: the types of their columns, and how often a row occurs.
//!
//! The columns of both sides are converted to the type that PostgreSQL chooses for them
//! ([`compare::common_type`]), string literals included, so DataFusion, which would choose
//! another, has nothing left to choose except to widen numerics. With more than two inputs the
//! first two are resolved before they meet the third, as in PostgreSQL.
//!
//! DataFusion plans INTERSECT as a semi join and EXCEPT as an anti join, both over the left
//! side's distinct rows. With ALL a row counts as often as it occurs:
//!
//! ```text
//! A EXCEPT ALL B      A, each row numbered among its equals ─┐
//!                                                            ├─ anti join on columns and number
//!                     B, each row numbered among its equals ─┘
//! ```
//!
//! Of `a` equal rows on the left and `b` on the right, the numbers 1 to min(a, b) meet, which
//! INTERSECT ALL returns, and a − b are left over, which EXCEPT ALL returns.

use std::collections::HashSet;
use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::datatypes::DataType;
use datafusion::common::{Column, NullEquality, Result, ScalarValue, TableReference};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Projection,
    SubqueryAlias, Union,
};

use super::compare::{self, named_field};
use super::{equal, literal_as, raise};
use crate::functions::cast::{self, Zone};
use crate::functions::common_type;

/// The numbers of equal rows on the left and on the right of INTERSECT ALL and EXCEPT ALL.
const OCCURRENCES: [&str; 2] = ["\u{1}occurrence", "\u{1}occurrence there"];

/// A UNION with the columns of its inputs brought to their common types.
///
/// # Errors
/// `DatatypeMismatch` where there is none.
pub(super) fn union(union: Union, zone: &Zone) -> Result<Union> {
    let mut inputs = union.inputs;
    match_types("UNION", &mut inputs, zone)?;
    match_names(&mut inputs)?;
    // Its types are read anew also where nothing was changed here: an input that is a union itself
    // has others now.
    Union::try_new_with_loose_types(inputs)
}

/// Gives the columns of all inputs the names of the first's: DataFusion takes an input that is left
/// alone for the union, and looks for these.
fn match_names(inputs: &mut [Arc<LogicalPlan>]) -> Result<()> {
    let Some((first, others)) = inputs.split_first_mut() else {
        return Ok(());
    };
    let wanted = first.schema();
    for input in others {
        let schema = Arc::clone(input.schema());
        if schema.fields().len() != wanted.fields().len() {
            continue;
        }
        let pairs = schema.columns().into_iter().zip(wanted.fields());
        let mut outputs = Vec::with_capacity(schema.fields().len());
        let mut names = HashSet::new();
        let mut is_other = false;
        for (column, field) in pairs {
            is_other |= column.name != *field.name();
            names.insert(field.name());
            outputs.push(Expr::Column(column).alias(field.name()));
        }
        if is_other && names.len() == outputs.len() {
            *input = Arc::new(LogicalPlan::Projection(Projection::try_new(
                outputs,
                Arc::clone(input),
            )?));
        }
    }
    Ok(())
}

/// Whether a join stands for INTERSECT or EXCEPT, before any other join compares NULLs so.
pub(super) fn is_set_operation(join: &Join) -> bool {
    let counted = |(left, _): &(Expr, Expr)| matches!(left, Expr::Column(column) if column.name == OCCURRENCES[0]);
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && !join.on.iter().any(counted)
}

/// INTERSECT or EXCEPT with the columns of both sides of one type; with ALL, counted.
///
/// # Errors
/// `DatatypeMismatch` where columns have no common type.
pub(super) fn operation(join: Join, zone: &Zone) -> Result<LogicalPlan> {
    let join_type = join.join_type;
    let construct = match join_type {
        JoinType::LeftSemi => "INTERSECT",
        _ => "EXCEPT",
    };
    // Distinct rows need no count: each is there once, with ALL or without.
    let (left, is_counted) = match &*join.left {
        LogicalPlan::Distinct(Distinct::All(rows)) => (Arc::clone(rows), false),
        _ => (Arc::clone(&join.left), true),
    };
    let mut inputs = vec![left, Arc::clone(&join.right)];
    let names: Vec<_> = inputs.iter_mut().map(take_name).collect();
    match_types(construct, &mut inputs, zone)?;
    for (input, name) in inputs.iter_mut().zip(names) {
        if let Some(name) = name {
            let named = SubqueryAlias::try_new(Arc::clone(input), name)?;
            *input = Arc::new(LogicalPlan::SubqueryAlias(named));
        }
    }
    let mut sides = inputs.into_iter().map(Arc::unwrap_or_clone);
    let (Some(left), Some(right)) = (sides.next(), sides.next()) else {
        return Ok(LogicalPlan::Join(join));
    };
    if is_counted {
        return counted(left, right, join_type);
    }
    let left = LogicalPlanBuilder::from(left).distinct()?.build()?;
    join_rows(left, right, join_type)
}

/// Takes off the name that DataFusion has given a side whose columns are called as the other's:
/// below it stands what tells string literals and NULLs from columns.
fn take_name(input: &mut Arc<LogicalPlan>) -> Option<TableReference> {
    let LogicalPlan::SubqueryAlias(named) = &**input else {
        return None;
    };
    let (rows, name) = (Arc::clone(&named.input), named.alias.clone());
    *input = rows;
    Some(name)
}

fn join_rows(left: LogicalPlan, right: LogicalPlan, join_type: JoinType) -> Result<LogicalPlan> {
    let on = left.schema().columns().into_iter().map(Expr::Column);
    let on = on.zip(right.schema().columns().into_iter().map(Expr::Column));
    let on = on.map(|(l, r)| {
        Ok((
            equal::key(l, left.schema())?,
            equal::key(r, right.schema())?,
        ))
    });
    let on = on.collect::<Result<_>>()?;
    Ok(LogicalPlan::Join(Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join_type,
        datafusion::common::JoinConstraint::On,
        NullEquality::NullEqualsNull,
        false,
    )?))
}

fn counted(left: LogicalPlan, right: LogicalPlan, join_type: JoinType) -> Result<LogicalPlan> {
    let columns = left.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = columns.collect();
    let (left, right) = (
        numbered(left, OCCURRENCES[0])?,
        numbered(right, OCCURRENCES[1])?,
    );
    let joined = join_rows(left, right, join_type)?;
    Ok(LogicalPlan::Projection(Projection::try_new(
        columns,
        Arc::new(joined),
    )?))
}

/// The rows with a column more: which one each is among its equals.
fn numbered(rows: LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns = rows.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = columns.collect();
    let mut equals = columns.clone();
    equal::keys(&mut equals, rows.schema())?;
    let number = row_number().partition_by(equals).build()?;
    let number_column = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
    let outputs = columns.into_iter().chain([number_column.alias(name)]);
    LogicalPlanBuilder::from(rows)
        .window([number])?
        .project(outputs.collect::<Vec<_>>())?
        .build()
}

/// Brings each column of all inputs to one type.
fn match_types(construct: &str, inputs: &mut [Arc<LogicalPlan>], zone: &Zone) -> Result<()> {
    let columns = inputs
        .iter()
        .map(|input| input.schema().fields().len())
        .min();
    let columns = columns.unwrap_or(0);
    let mut wanted: Vec<Option<SqlType>> = Vec::new();
    for column in 0..columns {
        wanted.push(common_type(construct, inputs, column)?);
    }
    lists_of_literals(inputs, columns, zone)?;
    for input in inputs {
        let changes: Vec<(usize, SqlType)> = wanted
            .iter()
            .enumerate()
            .filter_map(|(column, ty)| ty.map(|ty| (column, ty)))
            .filter(|(column, ty)| differs(construct, input, *column, *ty))
            .collect();
        if !changes.is_empty() {
            *input = Arc::new(retyped(
                Arc::unwrap_or_clone(Arc::clone(input)),
                &changes,
                zone,
            )?);
        }
    }
    Ok(())
}

/// Makes lists of the string literals beside lists.
fn lists_of_literals(inputs: &mut [Arc<LogicalPlan>], columns: usize, zone: &Zone) -> Result<()> {
    for column in 0..columns {
        let mut types = inputs
            .iter()
            .map(|input| input.schema().field(column).data_type());
        let Some(list) = types.find(|ty| matches!(ty, DataType::List(_))).cloned() else {
            continue;
        };
        for input in inputs.iter_mut() {
            if !unknown_column(input, column) {
                continue;
            }
            if let LogicalPlan::Projection(projection) = &**input {
                let mut outputs = projection.expr.clone();
                let name = NamePreserver::new_for_projection().save(&outputs[column]);
                if let Some(typed) = compare::as_list(unaliased(&outputs[column]), &list, zone)? {
                    outputs[column] = name.restore(typed);
                    let typed = Projection::try_new(outputs, Arc::clone(&projection.input))?;
                    *input = Arc::new(LogicalPlan::Projection(typed));
                }
            }
        }
    }
    Ok(())
}

/// What is known of the type of an input's column.
enum Known {
    /// Nothing: it is a string literal or NULL, which is a text beside no other type.
    Untyped,
    /// It is a parameter, or a union of such, which gets its type elsewhere.
    Open,
    /// None of ours, as lists.
    Foreign,
    Type(SqlType),
}

fn known(input: &LogicalPlan, column: usize) -> Known {
    let field = input.schema().field(column);
    if unknown_column(input, column) {
        return Known::Untyped;
    }
    match nested_type(input, column) {
        Some(ty) => Known::Type(ty),
        None if !field.data_type().is_null() => {
            SqlType::of_field(field).map_or(Known::Foreign, Known::Type)
        }
        // Other NULLs of a union have been given types.
        None if is_union(input) || is_parameter(input, column) => Known::Open,
        None => Known::Untyped,
    }
}

/// The type that a column's inputs have in common; nothing where it is none of ours.
fn common_type(
    construct: &str,
    inputs: &[Arc<LogicalPlan>],
    column: usize,
) -> Result<Option<SqlType>> {
    let mut common: Option<SqlType> = None;
    let mut is_open = false;
    for input in inputs {
        let ty = match known(input, column) {
            Known::Untyped => continue,
            Known::Open => {
                is_open = true;
                continue;
            }
            Known::Foreign => return Ok(None),
            Known::Type(ty) => ty,
        };
        common = Some(match common {
            None => ty,
            Some(so_far) => common_type::common_type(so_far, ty).ok_or_else(|| {
                let (left, right) = (so_far.plain_name(), ty.plain_name());
                let message = format!("{construct} types {left} and {right} cannot be matched");
                raise(ErrorKind::DatatypeMismatch, message)
            })?,
        });
    }
    // PostgreSQL resolves two inputs at a time: a third meets texts.
    Ok(common.or((!is_open).then_some(SqlType::Text)))
}

/// Whether a column must be cast. DataFusion widens numerics among themselves, and in a UNION
/// integers to numerics; of INTERSECT and EXCEPT, which are joins, it compares what is wider.
fn differs(construct: &str, input: &LogicalPlan, column: usize, wanted: SqlType) -> bool {
    if unknown_column(input, column) {
        return wanted != SqlType::Text;
    }
    let own = match known(input, column) {
        Known::Untyped => return true,
        Known::Open | Known::Foreign => return false,
        Known::Type(own) => own,
    };
    match wanted {
        SqlType::Numeric { .. } => {
            let is_integer = matches!(own, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
            is_integer && construct != "UNION"
        }
        _ => own != wanted,
    }
}

/// The type of a column of a UNION within, whose inputs are not of one type yet.
fn nested_type(input: &LogicalPlan, column: usize) -> Option<SqlType> {
    let union = match input {
        LogicalPlan::Union(union) => union,
        LogicalPlan::Distinct(Distinct::All(inner)) => return nested_type(inner, column),
        _ => return None,
    };
    let types = union
        .inputs
        .iter()
        .filter_map(|input| match known(input, column) {
            Known::Untyped | Known::Open => None,
            Known::Foreign => Some(None),
            Known::Type(ty) => Some(Some(ty)),
        });
    types.reduce(|a, b| common_type::common_type(a?, b?))?
}

fn is_union(input: &LogicalPlan) -> bool {
    match input {
        LogicalPlan::Union(_) => true,
        LogicalPlan::Distinct(Distinct::All(inner)) => is_union(inner),
        _ => false,
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Whether a column is a string literal or a parameter that has no type yet.
fn unknown_column(input: &LogicalPlan, column: usize) -> bool {
    let LogicalPlan::Projection(projection) = input else {
        return false;
    };
    let expr = projection.expr.get(column).map(unaliased);
    matches!(
        expr,
        Some(
            Expr::Literal(ScalarValue::Utf8(_), _)
                | Expr::Placeholder(Placeholder { field: None, .. })
        )
    )
}

/// Whether a column is a parameter that nothing has given a type.
fn is_parameter(input: &LogicalPlan, column: usize) -> bool {
    let LogicalPlan::Projection(projection) = input else {
        return false;
    };
    let expr = projection.expr.get(column).map(unaliased);
    matches!(expr, Some(Expr::Placeholder(_)))
}

/// The rows with some columns of other types, under the names that they had.
pub(super) fn retyped(
    input: LogicalPlan,
    changes: &[(usize, SqlType)],
    zone: &Zone,
) -> Result<LogicalPlan> {
    let (literals, cast): (Vec<_>, Vec<_>) = changes
        .iter()
        .copied()
        .partition(|(column, _)| unknown_column(&input, *column));
    let input = typed_literals(input, &literals, zone)?;
    if cast.is_empty() {
        return Ok(input);
    }
    let names = NamePreserver::new_for_projection();
    let schema = Arc::clone(input.schema());
    let outputs = schema.columns().into_iter().enumerate();
    let outputs = outputs.map(|(at, column)| {
        let expr = Expr::Column(column);
        let Some((_, ty)) = cast.iter().find(|(column, _)| *column == at) else {
            return Ok(expr);
        };
        let name = names.save(&expr);
        let target = match schema.field(at).data_type() {
            // A NULL says no more of its type than the others do.
            DataType::Null => ty.field("", true),
            _ => named_field(*ty),
        };
        let target = Arc::new(target);
        Ok(name.restore(cast::resolve(expr, schema.field(at), &target, zone)?))
    });
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(
        outputs,
        Arc::new(input),
    )?))
}

fn typed_literals(
    input: LogicalPlan,
    literals: &[(usize, SqlType)],
    zone: &Zone,
) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(mut projection) = input else {
        return Ok(input);
    };
    if literals.is_empty() {
        return Ok(LogicalPlan::Projection(projection));
    }
    let names = NamePreserver::new_for_projection();
    for (column, ty) in literals {
        if let Some(expr) = projection.expr.get_mut(*column) {
            let name = names.save(expr);
            let typed = literal_as(unaliased(expr).clone(), compare::without_digits(*ty), zone)?;
            *expr = name.restore(compare::named(typed, *ty));
        }
    }
    let projection = Projection::try_new(projection.expr, projection.input)?;
    Ok(LogicalPlan::Projection(projection))
}
