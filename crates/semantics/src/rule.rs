//! The analyzer rules.
//!
//! [`PostgresSemantics`] runs before `TypeCoercion` and gives every expression PostgreSQL's
//! meaning; [`PostgresCasts`] runs after it and turns the casts that coercion put between texts
//! and other types into PostgreSQL's.

use std::collections::HashMap;
use std::sync::Arc;

use aerostat_types::{ErrorKind, SQL_TYPE_KEY, SqlError, SqlType};
use arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRewriter};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction, AggregateFunctionParams, Between, Case, InList, InSubquery, Like,
    ScalarFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, Projection, ScalarUDF, Subquery,
    TryCast, not, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::{
    Operand, compare, equal, frames, lists, operand, operator, pattern, placeholders, raise,
    recursive, sets,
};
use crate::functions::cast::{self, Zone};
use crate::functions::{aggregate, any, arithmetic, arrays, datetime, named, temporal};

/// Resolves literals, operators and casts as PostgreSQL does.
#[derive(Debug)]
pub(super) struct PostgresSemantics;

impl AnalyzerRule for PostgresSemantics {
    fn name(&self) -> &str {
        "postgres_semantics"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = Zone::of(config);
        Ok(plan
            .transform_up_with_subqueries(|plan| rewrite_plan(plan, &zone, Stage::Resolve))?
            .data)
    }
}

/// Replaces casts that `TypeCoercion` added.
#[derive(Debug)]
pub(super) struct PostgresCasts;

impl AnalyzerRule for PostgresCasts {
    fn name(&self) -> &str {
        "postgres_casts"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = Zone::of(config);
        Ok(plan
            .transform_up_with_subqueries(|plan| rewrite_plan(plan, &zone, Stage::Casts))?
            .data)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Resolve,
    Casts,
}

fn rewrite_plan(plan: LogicalPlan, zone: &Zone, stage: Stage) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let source =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    let names = NamePreserver::new(&plan);
    let two_phase = stage == Stage::Resolve
        && matches!(&plan, LogicalPlan::Aggregate(node) if node.aggr_expr.iter().any(is_distinct));
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let rewritten = match stage {
            Stage::Resolve => expr.rewrite(&mut Resolver {
                schema: &schema,
                zone,
                two_phase,
            })?,
            Stage::Casts => expr.rewrite(&mut Casts {
                schema: &schema,
                zone,
            })?,
        };
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?;
    if let (Stage::Resolve, LogicalPlan::Join(join)) = (stage, &rewritten.data)
        && let Some(condition) = &join.filter
        && let Operand::Typed(ty) = operand(condition, &schema)?
        && ty != SqlType::Boolean
    {
        let ty = ty.plain_name();
        let message = format!("argument of JOIN/ON must be type boolean, not type {ty}");
        return Err(raise(ErrorKind::DatatypeMismatch, message));
    }
    let rewritten = match (stage, rewritten.data) {
        (Stage::Resolve, LogicalPlan::Union(union)) => {
            Transformed::yes(LogicalPlan::Union(sets::union(union, zone)?))
        }
        (Stage::Resolve, LogicalPlan::RecursiveQuery(query)) => {
            let query = recursive::of_one_type(query, zone)?;
            Transformed::yes(LogicalPlan::RecursiveQuery(query))
        }
        (Stage::Resolve, LogicalPlan::Join(join)) if sets::is_set_operation(&join) => {
            Transformed::yes(sets::operation(join, zone)?)
        }
        (Stage::Resolve, LogicalPlan::Sort(mut sort)) => {
            let by = Arc::clone(sort.input.schema());
            equal::order_by(&mut sort.expr, &by)?;
            Transformed::yes(LogicalPlan::Sort(sort))
        }
        (Stage::Resolve, LogicalPlan::Join(mut join)) if !join.on.is_empty() => {
            for (left, right) in &mut join.on {
                let (l, r) = (left.clone(), right.clone());
                (*left, *right) = compare::pair(Operator::Eq, l, r, &schema, zone)?;
            }
            Transformed::yes(LogicalPlan::Join(join))
        }
        (_, data) => Transformed { data, ..rewritten },
    };
    let is_values = matches!(rewritten.data, LogicalPlan::Values(_));
    if !rewritten.transformed && !is_values {
        return rewritten.map_data(LogicalPlan::recompute_schema);
    }
    rewritten
        .map_data(values_schema)?
        .map_data(LogicalPlan::recompute_schema)
}

/// The longest of intervals, or the shortest: Arrow would compare them field by field.
fn extreme_interval(name: &str, args: Vec<Expr>) -> Expr {
    let function = match name {
        "greatest" => datetime::interval_larger(),
        _ => datetime::interval_smaller(),
    };
    let call =
        |a, b| Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function), vec![a, b]));
    args.into_iter()
        .reduce(call)
        .unwrap_or(Expr::Literal(ScalarValue::Null, None))
}

fn is_distinct(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_distinct(&alias.expr),
        Expr::AggregateFunction(call) => call.params.distinct,
        _ => false,
    }
}

/// VALUES keeps the schema it was built with, so it is built anew.
fn values_schema(plan: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Values(mut values) = plan else {
        return Ok(plan);
    };
    let empty = DFSchema::empty();
    let mut fields = Vec::with_capacity(values.schema.fields().len());
    for (column, (qualifier, field)) in values.schema.iter().enumerate() {
        let mut data_type = field.data_type().clone();
        let mut types = values.values.iter().map(|row| row[column].get_type(&empty));
        let first = types
            .find(|ty| !matches!(ty, Ok(DataType::Null)))
            .transpose()?;
        if let Some(first) = first
            && types.all(|ty| ty.is_ok_and(|ty| ty == first || ty.is_null()))
        {
            data_type = first;
        }
        // Beside no other type a literal is a text.
        if data_type == DataType::Utf8 {
            data_type = SqlType::Text.arrow();
        }
        let typed = Field::new(field.name(), data_type, field.is_nullable());
        let typed = typed.with_metadata(common_metadata(&values.values, column)?);
        fields.push((qualifier.cloned(), Arc::new(typed)));
    }
    for row in &mut values.values {
        for (expr, (_, field)) in row.iter_mut().zip(&fields) {
            if expr.get_type(&empty)? != *field.data_type() {
                *expr = Expr::Cast(Cast::new(Box::new(expr.clone()), field.data_type().clone()));
            }
        }
    }
    values.schema = Arc::new(DFSchema::new_with_metadata(
        fields,
        values.schema.metadata().clone(),
    )?);
    Ok(LogicalPlan::Values(values))
}

/// What all cells of a column that are not NULL say of their type.
fn common_metadata(rows: &[Vec<Expr>], column: usize) -> Result<HashMap<String, String>> {
    let mut common: Option<HashMap<String, String>> = None;
    for row in rows {
        let (_, field) = row[column].to_field(&DFSchema::empty())?;
        let is_null = matches!(&row[column], Expr::Literal(value, _) if value.is_null());
        match &common {
            _ if is_null || field.data_type().is_null() => {}
            None => common = Some(field.metadata().clone()),
            Some(so_far) if so_far == field.metadata() => {}
            Some(_) => return Ok(HashMap::new()),
        }
    }
    // Only texts of one type say more than their Arrow type does.
    let mut common = common.unwrap_or_default();
    common.retain(|key, name| key == SQL_TYPE_KEY && name.parse().is_ok_and(SqlType::is_text));
    Ok(common)
}

/// Stands for the values of a subquery while they are compared.
const SOUGHT: &str = "\u{1}sought";

struct Resolver<'a> {
    schema: &'a DFSchema,
    zone: &'a Zone,
    /// Whether this is an aggregation that DataFusion may split in two for a DISTINCT.
    two_phase: bool,
}

impl TreeNodeRewriter for Resolver<'_> {
    type Node = Expr;

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr, field }) => Ok(Transformed::yes(self.cast(*expr, &field)?)),
            Expr::TryCast(TryCast { expr, field }) => {
                Ok(Transformed::no(Expr::TryCast(TryCast { expr, field })))
            }
            Expr::Not(inner) => Ok(Transformed::yes(Expr::Not(Box::new(
                self.condition(*inner, "NOT")?,
            )))),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => Ok(Transformed::yes(
                operator::resolve(op, *left, *right, self.schema, self.zone)?,
            )),
            Expr::Between(between) => Ok(Transformed::yes(self.between(between)?)),
            Expr::InList(list) => Ok(Transformed::yes(self.in_list(list)?)),
            Expr::InSubquery(test) => Ok(Transformed::yes(self.in_subquery(test)?)),
            Expr::Like(like) => Ok(Transformed::yes(self.like(like)?)),
            Expr::SimilarTo(mut like) => {
                *like.expr = operator::matched(*like.expr, "~", self.schema, self.zone)?;
                Ok(Transformed::yes(pattern::similar_to(like)?))
            }
            Expr::Case(case) => Ok(Transformed::yes(self.case(case)?)),
            Expr::ScalarFunction(call) => Ok(Transformed::yes(self.function(call)?)),
            Expr::AggregateFunction(call) => Ok(Transformed::yes(self.aggregate(call)?)),
            Expr::WindowFunction(mut call) => {
                placeholders::type_offsets(&mut call, self.schema, self.zone)?;
                let call = frames::resolve(*call, self.schema, self.zone)?;
                Ok(Transformed::yes(Expr::WindowFunction(Box::new(call))))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

impl Resolver<'_> {
    fn cast(&self, expr: Expr, target: &Arc<Field>) -> Result<Expr> {
        if let Expr::Placeholder(placeholder) = &expr
            && placeholder.field.is_none()
            && let Some(ty) = SqlType::of_field(target)
        {
            return super::literal_as(expr, ty, self.zone);
        }
        if cast::is_catalogue_type(target) {
            return Ok(Expr::Cast(Cast::new_from_field(
                Box::new(expr),
                Arc::clone(target),
            )));
        }
        let (_, from) = expr.to_field(self.schema)?;
        cast::resolve(expr, &from, target, self.zone)
    }

    fn condition(&self, expr: Expr, construct: &str) -> Result<Expr> {
        match operand(&expr, self.schema)? {
            Operand::Unknown => super::literal_as(expr, SqlType::Boolean, self.zone),
            Operand::Typed(ty) if ty != SqlType::Boolean => {
                let message = format!(
                    "argument of {construct} must be type boolean, not type {}",
                    ty.plain_name()
                );
                Err(raise(ErrorKind::DatatypeMismatch, message))
            }
            _ => Ok(expr),
        }
    }

    fn pair(&self, op: Operator, left: Expr, right: Expr) -> Result<(Expr, Expr)> {
        compare::pair(op, left, right, self.schema, self.zone)
    }

    fn between(&self, between: Between) -> Result<Expr> {
        let Between {
            expr,
            negated,
            low,
            high,
        } = between;
        let is_list = |one: &Expr| one.get_type(self.schema).is_ok_and(|ty| ty.is_list());
        if is_list(&expr) || is_list(&low) || is_list(&high) {
            let compared =
                |op, bound| operator::resolve(op, (*expr).clone(), bound, self.schema, self.zone);
            let both = compared(Operator::GtEq, *low)?.and(compared(Operator::LtEq, *high)?);
            return Ok(if negated { not(both) } else { both });
        }
        let (for_low, low) = self.pair(Operator::GtEq, (*expr).clone(), *low)?;
        let (for_high, high) = self.pair(Operator::LtEq, (*expr).clone(), *high)?;
        if for_low == for_high {
            return Ok(Expr::Between(Between::new(
                Box::new(for_low),
                negated,
                Box::new(low),
                Box::new(high),
            )));
        }
        let both = for_low.gt_eq(low).and(for_high.lt_eq(high));
        Ok(if negated { not(both) } else { both })
    }

    fn in_list(&self, list: InList) -> Result<Expr> {
        let InList {
            expr,
            list,
            negated,
        } = list;
        let (expr, is_any) = named::behind_each(*expr);
        let list = match is_any {
            true => list,
            false => compare::listed(&expr, list, self.schema, self.zone)?,
        };
        let mut pairs = Vec::with_capacity(list.len());
        for item in list {
            let (value, item) = self.pair(Operator::Eq, expr.clone(), item)?;
            // A constant is looked for among constants bit by bit.
            pairs.push(match value {
                Expr::Literal(..) => (
                    equal::key(value, self.schema)?,
                    equal::key(item, self.schema)?,
                ),
                value => (value, item),
            });
        }
        Ok(lists::membership(pairs, negated))
    }

    /// What is looked for and the subquery's values are brought to what `=` compares.
    fn in_subquery(&self, test: InSubquery) -> Result<Expr> {
        let plan = &test.subquery.subquery;
        let [field] = &plan.schema().fields()[..] else {
            return Ok(Expr::InSubquery(test));
        };
        // The subquery's column under a name that the rows around it do not have.
        let stand_in = Column::new_unqualified(SOUGHT);
        let field_of_it = field.as_ref().clone().with_name(SOUGHT);
        let mut schema = self.schema.clone();
        schema.merge(&DFSchema::from_unqualified_fields(
            vec![field_of_it].into(),
            HashMap::new(),
        )?);
        let (sought, value) = compare::pair(
            Operator::Eq,
            (*test.expr).clone(),
            Expr::Column(stand_in.clone()),
            &schema,
            self.zone,
        )?;
        if sought == *test.expr && matches!(value, Expr::Column(_)) {
            return Ok(Expr::InSubquery(apart_from_conditions(test)?));
        }
        let column = Expr::from(plan.schema().qualified_field(0));
        let value = value.transform_up(|expr| {
            Ok(match expr {
                Expr::Column(found) if found == stand_in => Transformed::yes(column.clone()),
                other => Transformed::no(other),
            })
        })?;
        let values = Projection::try_new(vec![value.data.alias(SOUGHT)], Arc::clone(plan))?;
        let subquery = Subquery {
            subquery: Arc::new(LogicalPlan::Projection(values)),
            ..test.subquery
        };
        Ok(Expr::InSubquery(InSubquery::new(
            Box::new(sought),
            subquery,
            test.negated,
        )))
    }

    fn like(&self, like: Like) -> Result<Expr> {
        let Like {
            negated,
            expr,
            pattern,
            escape_char,
            case_insensitive,
        } = like;
        let name = match (negated, case_insensitive) {
            (false, false) => "~~",
            (true, false) => "!~~",
            (false, true) => "~~*",
            (true, true) => "!~~*",
        };
        let expr = if escape_char.is_none() && pattern::is_blind_to_blanks(&pattern) {
            operator::text(*expr, name, self.schema, self.zone)?
        } else {
            operator::matched(*expr, name, self.schema, self.zone)?
        };
        let pattern = operator::text(*pattern, name, self.schema, self.zone)?;
        pattern::like(Like::new(
            negated,
            Box::new(expr),
            Box::new(pattern),
            escape_char,
            case_insensitive,
        ))
    }

    fn case(&self, case: Case) -> Result<Expr> {
        let Case {
            expr,
            when_then_expr,
            else_expr,
        } = case;
        let (mut whens, thens): (Vec<Expr>, Vec<Expr>) = when_then_expr
            .into_iter()
            .map(|(when, then)| (*when, *then))
            .unzip();
        let mut alternatives = thens;
        let has_else = else_expr.is_some();
        alternatives.extend(else_expr.map(|expr| *expr));
        let unified = compare::unify("CASE", alternatives, self.schema, self.zone)?;
        let (mut alternatives, text) = (unified.alternatives, unified.text);
        let else_expr = if has_else {
            alternatives.pop().map(Box::new)
        } else {
            None
        };
        let mut subject = expr;
        if subject.is_none() {
            whens = whens
                .into_iter()
                .map(|when| self.condition(when, "CASE/WHEN"))
                .collect::<Result<_>>()?;
        }
        if let Some(operand) = &subject {
            let pairs = whens
                .iter()
                .map(|when| self.pair(Operator::Eq, (**operand).clone(), when.clone()))
                .collect::<Result<Vec<_>>>()?;
            let bare = pairs.iter().all(|(left, _)| left == &**operand);
            whens = pairs
                .into_iter()
                .map(|(left, when)| if bare { when } else { left.eq(when) })
                .collect();
            // DataFusion finds the branch by the bits of the subject.
            subject = match bare {
                true => Some(Box::new(equal::key((**operand).clone(), self.schema)?)),
                false => None,
            };
            equal::keys(&mut whens, self.schema)?;
        }
        let branches = whens
            .into_iter()
            .zip(alternatives)
            .map(|(w, t)| (Box::new(w), Box::new(t)))
            .collect();
        let case = Expr::Case(Case::new(subject, branches, else_expr));
        Ok(compare::as_text(case, text))
    }

    fn function(&self, call: ScalarFunction) -> Result<Expr> {
        let ScalarFunction { func, mut args } = call;
        if func.name() == crate::functions::merged::MERGED {
            return crate::functions::merged::resolve(args, self.schema, self.zone);
        }
        placeholders::type_arguments(&func, &mut args, self.schema, self.zone)?;
        if let ("nullif", [left, right]) = (func.name(), &args[..]) {
            return self.null_if(Arc::clone(&func), left.clone(), right.clone());
        }
        let (mut text, mut item) = (None, None);
        let mut unify = |construct, args| -> Result<Vec<Expr>> {
            let unified = compare::unify(construct, args, self.schema, self.zone)?;
            text = unified.text;
            Ok(unified.alternatives)
        };
        let args = match func.name() {
            "coalesce" => unify("COALESCE", args)?,
            "greatest" => unify("GREATEST", args)?,
            "least" => unify("LEAST", args)?,
            "make_array" => {
                let unified = compare::unify("ARRAY", args, self.schema, self.zone)?;
                item = unified.text;
                unified.alternatives
            }
            "octet_length" => self.with_blanks(args)?,
            "format" => self.shown_each(self.with_blanks(args)?, false)?,
            "concat" | "concat_ws" => self.shown_each(args, false)?,
            "quote_literal" | "quote_nullable" => self.shown_each(args, true)?,
            "array_to_string" => self.written(args)?,
            _ => args,
        };
        if arithmetic::is_negation(&func)
            && let [_] = args[..]
        {
            let mut args = args;
            return operator::negate(args.remove(0), self.schema, self.zone);
        }
        if let name @ ("greatest" | "least") = func.name()
            && args.iter().any(|arg| {
                let found = operand(arg, self.schema);
                matches!(found, Ok(Operand::Typed(SqlType::Interval)))
            })
        {
            return Ok(extreme_interval(name, args));
        }
        let call = ScalarFunction::new_udf(func, args);
        if let Some(operator) = temporal::operator_of(&call.func)
            && let Some(constant) = operator::fold(operator, &call.args, self.zone)
        {
            return Ok(constant);
        }
        if let (Some(target), [argument @ Expr::Literal(..)]) =
            (cast::target_of(&call.func), call.args.as_slice())
        {
            let (_, from) = argument.to_field(self.schema)?;
            return cast::resolve(
                argument.clone(),
                &from,
                &Arc::new(target.field("", true)),
                self.zone,
            );
        }
        let is_plain = call.func.name() == "overlay";
        let call = Expr::ScalarFunction(call);
        if let Some(ty @ SqlType::Char(_)) = item {
            let (_, list) = call.to_field(self.schema)?;
            let list = Arc::new(ty.of_items(Field::clone(&list)));
            return Ok(Expr::Cast(Cast::new_from_field(Box::new(call), list)));
        }
        let call = compare::as_text(call, text);
        Ok(match is_plain {
            // The only function of texts that gives no views, as a string literal is none.
            true => Expr::Cast(Cast::new(Box::new(call), DataType::Utf8View)),
            false => call,
        })
    }

    fn with_blanks(&self, args: Vec<Expr>) -> Result<Vec<Expr>> {
        let args = args.into_iter();
        args.map(|argument| operator::filled(argument, self.schema))
            .collect()
    }

    /// Arguments as texts. Those of functions of any types are what output functions write, which is
    /// a letter for a boolean, where a cast gives a word.
    fn shown_each(&self, args: Vec<Expr>, are_cast: bool) -> Result<Vec<Expr>> {
        let text = Arc::new(SqlType::Text.field("", true));
        let shown = args.into_iter().map(|argument| {
            let (_, from) = argument.to_field(self.schema)?;
            match SqlType::of_field(&from) {
                Some(SqlType::Boolean) if !are_cast => Ok(argument),
                Some(ty) if !ty.is_text() && !cast::is_catalogue_type(&from) => {
                    cast::resolve(argument, &from, &text, self.zone)
                }
                None if matches!(from.data_type(), DataType::List(_)) => {
                    cast::resolve(argument, &from, &text, self.zone)
                }
                _ => Ok(argument),
            }
        });
        shown.collect()
    }

    /// The items of an array as they are written, before they are joined. What has a name of its own
    /// stands for the values of `string_agg`, which are texts.
    fn written(&self, mut args: Vec<Expr>) -> Result<Vec<Expr>> {
        let named = named::NAMED;
        let are_texts =
            matches!(args.first(), Some(Expr::ScalarFunction(of)) if of.func.name() == named);
        if !are_texts && let Some(array) = args.first_mut() {
            let (_, from) = array.to_field(self.schema)?;
            *array = cast::written(std::mem::take(array), &from);
        }
        Ok(args)
    }

    /// `nullif`, which gives its first argument as it is, unless `=` takes it for a number of
    /// another kind. What `=` compares may be something else that is made of it.
    fn null_if(&self, func: Arc<ScalarUDF>, left: Expr, right: Expr) -> Result<Expr> {
        let types = (operand(&left, self.schema)?, operand(&right, self.schema)?);
        let left = match types {
            (Operand::Typed(l), Operand::Typed(r)) => match compare::compared_number(l, r) {
                Some(result) => {
                    let (_, from) = left.to_field(self.schema)?;
                    cast::resolve(left, &from, &Arc::new(result.field("", true)), self.zone)?
                }
                None => left,
            },
            (Operand::Unknown, Operand::Typed(r)) => {
                compare::literal_beside(left, compare::without_digits(r), self.zone)?
            }
            (Operand::Unknown, Operand::Unknown) => {
                super::literal_as(left, SqlType::Text, self.zone)?
            }
            _ => left,
        };
        let (l, r) = self.pair(Operator::Eq, left.clone(), right)?;
        let Operand::Typed(ty) = operand(&left, self.schema)? else {
            return Ok(Expr::ScalarFunction(ScalarFunction::new_udf(
                func,
                vec![l, r],
            )));
        };
        if left.is_volatile() && ty == SqlType::Interval {
            let message = "nullif of an interval that a volatile function gives is not supported";
            return Err(raise(ErrorKind::FeatureNotSupported, message));
        }
        let is_float = matches!(ty, SqlType::Real | SqlType::Double);
        let (l, r) = match is_float && left.is_volatile() {
            true => (equal::key(l, self.schema)?, equal::key(r, self.schema)?),
            false => (l, r),
        };
        let compared = operand(&r, self.schema)?;
        let is_kept = l == left && !is_wider(ty, &compared);
        if is_kept && !is_float && !matches!(ty, SqlType::Char(_)) || left.is_volatile() {
            return Ok(Expr::ScalarFunction(ScalarFunction::new_udf(
                func,
                vec![l, r],
            )));
        }
        let null = Expr::Literal(ScalarValue::Null, None);
        let choice = when(l.eq(r), null).otherwise(left)?;
        Ok(compare::as_text(
            choice,
            matches!(ty, SqlType::Char(_)).then_some(ty),
        ))
    }

    fn aggregate(&self, mut call: AggregateFunction) -> Result<Expr> {
        placeholders::type_fractions(&mut call, self.zone)?;
        let name = call.func.name();
        if let ("min" | "max", [argument]) = (name, &call.params.args[..])
            && let Operand::Typed(ty @ (SqlType::Boolean | SqlType::Bytea | SqlType::Uuid)) =
                operand(argument, self.schema)?
        {
            let message = format!("function {name}({}) does not exist", ty.plain_name());
            let error = SqlError::new(ErrorKind::UndefinedFunction, message);
            return Err(super::external(error.with_hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            )));
        }
        if name == "array_agg" {
            arrays::refuse_nested(&call.params.args, self.schema)?;
            sort_distinct(&mut call.params);
        }
        // What is distinct is ordered by what it is.
        match call.params.distinct {
            true => equal::distinct(&mut call, self.schema)?,
            false => equal::order_by(&mut call.params.order_by, self.schema)?,
        }
        if self.two_phase && !call.params.distinct && call.func.name() == aggregate::SUM {
            call.func = aggregate::sum_in_one_phase();
        }
        Ok(Expr::AggregateFunction(call))
    }
}

/// The same with the subquery's column under a name of its own: DataFusion adds the columns of
/// conditions that refer to the outer query, of which it may be one.
fn apart_from_conditions(mut test: InSubquery) -> Result<InSubquery> {
    if test.subquery.outer_ref_columns.is_empty() {
        return Ok(test);
    }
    if let LogicalPlan::Projection(rows) = &*test.subquery.subquery
        && let [value @ Expr::Column(_)] = &rows.expr[..]
    {
        let value = value.clone().alias(SOUGHT);
        let rows = Projection::try_new(vec![value], Arc::clone(&rows.input))?;
        test.subquery.subquery = Arc::new(LogicalPlan::Projection(rows));
    }
    Ok(test)
}

/// Whether a comparison would widen an integer or float to the type of the other side.
fn is_wider(ty: SqlType, other: &Operand) -> bool {
    use SqlType::{BigInt, Double, Integer, Numeric, Real, SmallInt};
    let are_numerics = matches!(
        (ty, other),
        (Numeric { .. }, Operand::Typed(Numeric { .. }))
    );
    let of_one_kind =
        |kind: &[SqlType], other: &SqlType| kind.contains(&ty) && kind.contains(other);
    matches!(other, Operand::Typed(other) if *other != ty
        && (are_numerics || of_one_kind(&[SmallInt, Integer, BigInt], other) || of_one_kind(&[Real, Double], other)))
}

/// The values of `array_agg(DISTINCT x)` come in their order, as PostgreSQL finds them.
fn sort_distinct(params: &mut AggregateFunctionParams) {
    if let (true, true, [value]) = (
        params.distinct,
        params.order_by.is_empty(),
        &params.args[..],
    ) {
        params.order_by = vec![value.clone().sort(true, false)];
    }
}

/// An expression over no columns, with the meaning that PostgreSQL gives it: types as far as they
/// are known, then `coerce`, then casts.
///
/// # Errors
/// As planning.
pub fn resolve_constant(
    expr: Expr,
    config: &ConfigOptions,
    coerce: impl Fn(Expr) -> Result<Expr>,
) -> Result<Expr> {
    let (schema, zone) = (DFSchema::empty(), Zone::of(config));
    let resolved = expr.rewrite(&mut Resolver {
        schema: &schema,
        zone: &zone,
        two_phase: false,
    })?;
    let coerced = coerce(resolved.data)?;
    let cast = coerced.rewrite(&mut Casts {
        schema: &schema,
        zone: &zone,
    })?;
    Ok(cast.data)
}

struct Casts<'a> {
    schema: &'a DFSchema,
    zone: &'a Zone,
}

impl TreeNodeRewriter for Casts<'_> {
    type Node = Expr;

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        // A type is known once what it is of has been coerced.
        if let Expr::ScalarFunction(call) = &expr
            && let [argument] = &call.args[..]
            && let Some(name) =
                any::type_literal(&call.func, argument, &argument.to_field(self.schema)?.1)
        {
            return Ok(Transformed::yes(name));
        }
        let Expr::Cast(Cast { expr, field }) = expr else {
            return Ok(Transformed::no(expr));
        };
        let (_, from) = expr.to_field(self.schema)?;
        let crosses = match (
            SqlType::of_arrow(from.data_type()),
            SqlType::of_arrow(field.data_type()),
        ) {
            (Some(from), Some(to)) => {
                (from.is_text() != to.is_text() || cast::depends_on_zone(from, to))
                    && cast::class(from, to) != cast::CastClass::Missing
            }
            // Arrow writes lists in a form of its own, of any length.
            (None, Some(to)) => matches!(from.data_type(), DataType::List(_)) && to.is_text(),
            _ => false,
        };
        if !crosses || from.data_type().is_null() || cast::is_catalogue_type(&field) {
            return Ok(Transformed::no(Expr::Cast(Cast::new_from_field(
                expr, field,
            ))));
        }
        let ty = SqlType::of_arrow(field.data_type()).ok_or_else(|| {
            raise(
                ErrorKind::Internal,
                "a type lost its name between two lines",
            )
        })?;
        let cast = cast::resolve(*expr, &from, &Arc::new(ty.field("", true)), self.zone)?;
        // Functions of DataFusion may want another Arrow form of the same type.
        let cast = if ty.arrow() == *field.data_type() {
            cast
        } else {
            Expr::Cast(Cast::new(Box::new(cast), field.data_type().clone()))
        };
        Ok(Transformed::yes(cast))
    }
}
