//! From a shape to a program: names to columns, types settled, keys found.
//!
//! `None` anywhere means that the planner must be asked, whether for a missing name or for a type
//! that is not converted here.

use std::sync::Arc;

use aerostat_storage::Table;
use aerostat_types::{
    CheckConstraint, Column, IndexKind, RelationId, SqlType, TableIndex, TableSchema,
};
use arrow_schema::{Field, Schema};

use crate::{
    Literal, Output, Program,
    expression::{Condition, Expr},
    find::{By, Find},
    fit::{Type, comparable, fitted, has_least, integer_of, is_ordered, width_of},
    parse,
    program::Action,
    select::{Aggregate, List, RowList, Selection},
    shape::{self, ColumnName, Comparison, Item, LiteralType, Operator, Scalar, Shape},
    target::Target,
    write::{
        Change, Write,
        load::{self, Load, OnConflict, Source},
    },
};

/// Binds a shape to the table it names. `types` are those of its parameters, `default` the
/// texts of what columns take that are given nothing.
pub fn bind(
    shape: &Shape,
    table: &Arc<Table>,
    types: &[SqlType],
    default: &dyn Fn(usize) -> Option<String>,
) -> Option<Program> {
    let called = match &shape.target.alias {
        Some(alias) => alias,
        None => &shape.target.name.name,
    };
    let binder = Binder {
        table,
        schema: table.schema(),
        called,
        types,
        default,
        constants: None,
        has_excluded: false,
    };
    let (action, outputs) = match &shape.action {
        shape::Action::Select(select) => {
            let (selection, outputs) = binder.select(select, shape.items.as_deref()?)?;
            (Action::Select(selection), outputs)
        }
        shape::Action::Insert(insert) => {
            let change = Change::Insert(binder.insert(insert)?);
            binder.write(change, shape.items.as_deref())?
        }
        shape::Action::Load(load) => {
            let change = Change::Load(binder.load(load)?);
            binder.write(change, shape.items.as_deref())?
        }
        shape::Action::Update(update) => {
            let change = binder.update(update)?;
            binder.write(change, shape.items.as_deref())?
        }
        shape::Action::Delete(conditions) => {
            let change = Change::Delete(binder.find(conditions)?);
            binder.write(change, shape.items.as_deref())?
        }
    };
    Some(Program {
        target: Target::new(Arc::clone(table), outputs),
        read: columns_read(&action, table.schema()),
        sequences: sequences_of(&action),
        action,
    })
}

/// The functions that give the next number of a sequence, as defaults call them: by number.
const NEXT: [&str; 2] = ["nextval", "\"\u{1}next\""];

struct Binder<'a> {
    table: &'a Arc<Table>,
    schema: &'a TableSchema,
    /// What the statement calls the table.
    called: &'a str,
    types: &'a [SqlType],
    default: &'a dyn Fn(usize) -> Option<String>,
    /// The literals of a text of the catalogue, which is then what is bound.
    constants: Option<&'a [Literal]>,
    /// Whether the columns of the row that was to be inserted stand behind the table's own.
    has_excluded: bool,
}

impl Binder<'_> {
    fn column(&self, name: &ColumnName) -> Option<usize> {
        if self.has_excluded {
            // A name by itself could be either's.
            let at = self.schema.position(&name.name)?;
            return match name.qualifier.as_deref()? {
                qualifier if qualifier == self.called => Some(at),
                "excluded" => Some(self.schema.columns.len() + at),
                _ => None,
            };
        }
        match &name.qualifier {
            Some(qualifier) if qualifier != self.called => None,
            _ => self.schema.position(&name.name),
        }
    }

    fn scalar(&self, scalar: &Scalar) -> Option<(Expr, Type)> {
        Some(match scalar {
            Scalar::Column(name) => {
                let at = self.column(name)?;
                let columns = &self.schema.columns;
                let ty = columns[at % columns.len()].ty;
                (Expr::Column(at), Type::Sql(ty))
            }
            Scalar::Parameter(number) => {
                let ty = self.types.get(*number)?;
                (Expr::Input(*number), Type::Sql(*ty))
            }
            Scalar::Literal(at, ty) => {
                let ty = match ty {
                    LiteralType::Integer => Type::Sql(SqlType::Integer),
                    LiteralType::BigInt => Type::Sql(SqlType::BigInt),
                    LiteralType::Numeric(scale) => Type::Decimal(*scale),
                    LiteralType::Unknown => Type::Unknown,
                };
                let expr = match self.constants {
                    Some(constants) => Expr::Constant(constants.get(*at)?.clone()),
                    None => Expr::Input(self.types.len() + at),
                };
                (expr, ty)
            }
            Scalar::Null => (Expr::Null, Type::Null),
            Scalar::Default => return None,
            Scalar::Now(_) => (Expr::Now, Type::Sql(SqlType::TimestampTz)),
            Scalar::Arithmetic(operator, left, right) => {
                let (left, left_type) = self.scalar(left)?;
                let (right, right_type) = self.scalar(right)?;
                let width = width_of(left_type)?.max(width_of(right_type)?);
                let expr = Expr::Arithmetic(*operator, Box::new(left), Box::new(right), width);
                (expr, Type::Sql(integer_of(width)))
            }
        })
    }

    /// A condition, and the types of its sides.
    fn comparison(&self, comparison: &Comparison) -> Option<Condition> {
        let (left, left_type) = self.scalar(&comparison.left)?;
        let (right, right_type) = self.scalar(&comparison.right)?;
        let (left, right) = comparable((left, left_type), (right, right_type))?;
        Some(Condition {
            left,
            operator: comparison.operator,
            right,
        })
    }

    /// How the rows are found that meet all conditions: these must fix the primary key, or
    /// bound it on both sides if it is one integer, or fix what a secondary index asks for.
    fn find(&self, conditions: &[Comparison]) -> Option<Find> {
        let conditions = conditions
            .iter()
            .map(|comparison| self.comparison(comparison))
            .collect::<Option<Vec<_>>>()?;
        self.find_by_key(conditions.clone())
            .or_else(|| self.find_by_index(conditions))
    }

    fn find_by_index(&self, conditions: Vec<Condition>) -> Option<Find> {
        let columns = 0..self.schema.columns.len();
        let fixed: Vec<_> = columns
            .filter_map(|column| {
                let mut bounds = conditions
                    .iter()
                    .filter_map(|condition| bound_on(condition, column));
                let (_, value) = bounds.find(|(operator, _)| *operator == Operator::Equal)?;
                Some((column, self.schema.columns[column].ty.physical(), value))
            })
            .collect();
        let is_fixed = |column: &usize| fixed.iter().any(|(fixed, ..)| fixed == column);
        let indexes = self.table.indexes();
        let is_of_use = |index: &TableIndex| match index.kind {
            IndexKind::Hash => index.columns.iter().all(is_fixed),
            IndexKind::Ordered => index.columns.first().is_some_and(is_fixed),
        };
        indexes.iter().any(is_of_use).then_some(Find {
            by: By::Index(fixed),
            conditions,
        })
    }

    fn find_by_key(&self, mut rest: Vec<Condition>) -> Option<Find> {
        let key = &self.schema.primary_key;
        if key.is_empty() {
            return None;
        }
        let mut point = Vec::with_capacity(key.len());
        for &column in key {
            let found = rest.iter().position(|condition| {
                bound_on(condition, column).is_some_and(|(operator, _)| operator == Operator::Equal)
            });
            let Some(found) = found else { break };
            let (_, value) = bound_on(&rest.remove(found), column)?;
            point.push((self.schema.columns[column].ty.physical(), value));
        }
        if point.len() == key.len() {
            return Some(Find {
                by: By::Point(point),
                conditions: rest,
            });
        }
        let &[column] = &key[..] else { return None };
        let ty = self.schema.columns[column].ty;
        width_of(Type::Sql(ty))?;
        let (of_key, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|condition| {
            bound_on(condition, column).is_some_and(|(operator, _)| operator != Operator::Unequal)
        });
        let bounds: Vec<_> = of_key
            .iter()
            .filter_map(|condition| bound_on(condition, column))
            .collect();
        let is_bounded = |one: Operator, other: Operator| {
            bounds
                .iter()
                .any(|(operator, _)| *operator == one || *operator == other)
        };
        let both = is_bounded(Operator::Less, Operator::LessEqual)
            && is_bounded(Operator::Greater, Operator::GreaterEqual);
        both.then_some(Find {
            by: By::Range {
                physical: ty.physical(),
                bounds,
            },
            conditions: others,
        })
    }

    fn select(&self, select: &shape::Select, items: &[Item]) -> Option<(Selection, Vec<Output>)> {
        let find = self.find(&select.conditions)?;
        if items.iter().any(|item| matches!(item, Item::Aggregate(..))) {
            if select.distinct || !select.order.is_empty() || select.limit.is_some() {
                return None;
            }
            let (aggregates, outputs) = items
                .iter()
                .map(|item| self.aggregate(item))
                .collect::<Option<_>>()?;
            let list = List::Aggregates(aggregates);
            return Some((Selection { find, list }, outputs));
        }
        let (exprs, outputs) = self.items(items)?;
        let mut order = Vec::new();
        for key in &select.order {
            order.push((
                self.order_key(key, select.distinct, &exprs, &outputs)?,
                key.descending,
            ));
        }
        if select.distinct && !outputs.iter().all(|output| is_ordered(output.ty)) {
            return None;
        }
        let limit = match &select.limit {
            None => None,
            Some(limit) => {
                let (limit, ty) = self.scalar(limit)?;
                (width_of(ty).is_some() && limit.is_constant()).then_some(Some(limit))?
            }
        };
        // They come by ascending key, and a single one needs no order.
        let by_key = match (&order[..], &self.schema.primary_key[..]) {
            ([(Expr::Column(first), false)], [key]) => first == key,
            _ => false,
        };
        let is_point = matches!(find.by, By::Point(_));
        let ascends = by_key && matches!(find.by, By::Range { .. });
        if is_point || (ascends && !select.distinct) {
            order.clear();
        }
        let list = List::Rows(RowList {
            outputs: exprs,
            distinct: select.distinct && !is_point,
            order,
            limit,
        });
        Some((Selection { find, list }, outputs))
    }

    /// A name in ORDER BY is an output's before it is a column's.
    fn order_key(
        &self,
        key: &shape::Order,
        distinct: bool,
        exprs: &[Expr],
        outputs: &[Output],
    ) -> Option<Expr> {
        let named = |output: &&Output| output.name == key.column.name;
        let mut same = outputs.iter().filter(named);
        let (expr, ty) = match (&key.column.qualifier, same.next(), same.next()) {
            (None, Some(output), None) => {
                let at = outputs
                    .iter()
                    .position(|other| std::ptr::eq(other, output))?;
                (exprs[at].clone(), output.ty)
            }
            // Not among the outputs, which DISTINCT asks for; or ambiguous.
            _ if distinct => return None,
            (None, Some(_), Some(_)) => return None,
            _ => {
                let at = self.column(&key.column)?;
                (Expr::Column(at), self.schema.columns[at].ty)
            }
        };
        is_ordered(ty).then_some(expr)
    }

    fn items(&self, items: &[Item]) -> Option<(Vec<Expr>, Vec<Output>)> {
        let (mut exprs, mut outputs) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::All => {
                    for (at, column) in self.schema.columns.iter().enumerate() {
                        exprs.push(Expr::Column(at));
                        outputs.push(Output {
                            name: column.name.clone(),
                            ty: column.ty,
                            column: Some(at),
                        });
                    }
                }
                Item::Scalar(scalar, alias) => {
                    let (expr, ty) = self.scalar(scalar)?;
                    let Type::Sql(ty) = ty else { return None };
                    let name = match (alias, scalar) {
                        (Some(alias), _) => alias.clone(),
                        (None, Scalar::Column(column)) => column.name.clone(),
                        (None, Scalar::Now(name)) => (*name).to_owned(),
                        (None, _) => "?column?".to_owned(),
                    };
                    let column = match expr {
                        Expr::Column(at) => Some(at),
                        _ => None,
                    };
                    exprs.push(expr);
                    outputs.push(Output { name, ty, column });
                }
                Item::Aggregate(..) => return None,
            }
        }
        Some((exprs, outputs))
    }

    fn aggregate(&self, item: &Item) -> Option<(Aggregate, Output)> {
        let Item::Aggregate(aggregate, alias) = item else {
            return None;
        };
        let of = |name: &ColumnName| {
            let at = self.column(name)?;
            Some((at, self.schema.columns[at].ty))
        };
        let (bound, ty) = match aggregate {
            shape::Aggregate::CountRows => (Aggregate::CountRows, SqlType::BigInt),
            shape::Aggregate::Count(name) => (Aggregate::Count(of(name)?.0), SqlType::BigInt),
            shape::Aggregate::Sum(name) => match of(name)? {
                (at, SqlType::SmallInt | SqlType::Integer) => (Aggregate::Sum(at), SqlType::BigInt),
                _ => return None,
            },
            shape::Aggregate::Min(name) => {
                let (at, ty) = of(name)?;
                (Aggregate::Min(at), ty)
            }
            shape::Aggregate::Max(name) => {
                let (at, ty) = of(name)?;
                (Aggregate::Max(at), ty)
            }
        };
        let is_least_or_greatest = matches!(bound, Aggregate::Min(_) | Aggregate::Max(_));
        if is_least_or_greatest && !has_least(ty) {
            return None;
        }
        let name = alias.clone();
        let name = name.unwrap_or_else(|| aggregate.name().to_owned());
        let column = None;
        Some((bound, Output { name, ty, column }))
    }

    /// The positions of the columns that an INSERT names; all for none.
    fn listed(&self, names: &[String]) -> Option<Vec<usize>> {
        if names.is_empty() {
            return Some((0..self.schema.columns.len()).collect());
        }
        let positions = names.iter().map(|name| self.schema.position(name));
        let listed: Vec<usize> = positions.collect::<Option<_>>()?;
        let is_twice = |at: usize| listed[..at].contains(&listed[at]);
        (!(0..listed.len()).any(is_twice)).then_some(listed)
    }

    fn load(&self, load: &shape::Load) -> Option<Load> {
        let mut listed = self.listed(&load.columns)?;
        if load.width > listed.len() || !load.columns.is_empty() && load.width < listed.len() {
            return None;
        }
        listed.truncate(load.width);
        let columns = &self.schema.columns;
        let sources = (0..columns.len()).map(|at| {
            let cell = listed.iter().position(|&listed| listed == at);
            let default = self.default_of(at);
            (cell.is_some() || default.is_some()).then_some(Source { cell, default })
        });
        Some(Load {
            types: listed.iter().map(|&at| columns[at].ty).collect(),
            arrays: load.arrays.clone(),
            sources: sources.collect::<Option<_>>()?,
            on_conflict: match &load.on_conflict {
                Some(on_conflict) => Some(self.on_conflict(on_conflict)?),
                None => None,
            },
        })
    }

    fn on_conflict(&self, on_conflict: &shape::OnConflict) -> Option<OnConflict> {
        let mut target = self.listed(&on_conflict.target)?;
        target.sort_unstable();
        let is_meant = |columns: &[usize]| {
            let mut columns = columns.to_vec();
            columns.sort_unstable();
            on_conflict.target.is_empty() || columns == target
        };
        let (key, indexes) = (&self.schema.primary_key, self.table.indexes());
        let key = (!key.is_empty() && is_meant(key)).then_some(&self.schema.primary_key_name);
        let unique = indexes
            .iter()
            .filter(|index| index.unique && is_meant(&index.columns));
        let constraints = key.into_iter().chain(unique.map(|index| &index.name));
        let constraints: Vec<String> = constraints.cloned().collect();
        // No constraint is an error, and DO UPDATE has to say which.
        let is_open = on_conflict.target.is_empty();
        if constraints.is_empty() && !is_open || on_conflict.update.is_some() && is_open {
            return None;
        }
        let update = match &on_conflict.update {
            Some(update) => Some(self.update_on_conflict(update)?),
            None => None,
        };
        Some(OnConflict {
            constraints,
            update,
        })
    }

    fn update_on_conflict(&self, update: &shape::Update) -> Option<load::Update> {
        // The two rows are told apart by these names.
        if self.called == "excluded" {
            return None;
        }
        let binder = Binder {
            has_excluded: true,
            ..*self
        };
        let conditions = update.conditions.iter();
        Some(load::Update {
            columns: binder.assignments(&update.assignments)?,
            conditions: conditions
                .map(|comparison| binder.comparison(comparison))
                .collect::<Option<_>>()?,
        })
    }

    fn insert(&self, insert: &shape::Insert) -> Option<Vec<Vec<Expr>>> {
        let columns = &self.schema.columns;
        let listed = self.listed(&insert.columns)?;
        let mut rows = Vec::with_capacity(insert.rows.len());
        for given in &insert.rows {
            let fits = if insert.columns.is_empty() {
                given.len() <= listed.len()
            } else {
                given.len() == listed.len()
            };
            // All rows of VALUES have as many.
            if !fits || given.len() != insert.rows[0].len() {
                return None;
            }
            let mut row: Vec<Option<Expr>> = vec![None; columns.len()];
            for (scalar, &at) in given.iter().zip(&listed) {
                row[at] = Some(self.assigned(scalar, at)?);
            }
            let row = row.into_iter().enumerate();
            let row = row.map(|(at, given)| match given {
                Some(given) if given.is_constant() => Some(given),
                Some(_) => None,
                None => self.default_of(at),
            });
            rows.push(row.collect::<Option<Vec<Expr>>>()?);
        }
        Some(rows)
    }

    fn update(&self, update: &shape::Update) -> Option<Change> {
        let find = self.find(&update.conditions)?;
        Some(Change::Update(find, self.assignments(&update.assignments)?))
    }

    /// The new values of all columns.
    fn assignments(&self, assignments: &[(String, Scalar)]) -> Option<Vec<Expr>> {
        let mut values: Vec<Expr> = (0..self.schema.columns.len()).map(Expr::Column).collect();
        let mut assigned = Vec::new();
        for (name, scalar) in assignments {
            let at = self.schema.position(name)?;
            if assigned.contains(&at) {
                return None;
            }
            assigned.push(at);
            values[at] = self.assigned(scalar, at)?;
        }
        Some(values)
    }

    fn write(&self, change: Change, items: Option<&[Item]>) -> Option<(Action, Vec<Output>)> {
        // A new part of a table's description must be thought about here.
        let TableSchema {
            name: _,
            columns,
            primary_key: _,
            primary_key_name: _,
            checks,
        } = self.schema;
        let (returning, outputs) = match items {
            None => (None, Vec::new()),
            Some(items) => {
                let (exprs, outputs) = self.items(items)?;
                // The planner's way forgets the n of char(n) and varchar(n) here.
                let has_length = |output: &Output| {
                    matches!(output.ty, SqlType::Char(_) | SqlType::Varchar(Some(_)))
                };
                if outputs.iter().any(has_length) {
                    return None;
                }
                (Some(exprs), outputs)
            }
        };
        let checks = match &change {
            Change::Delete(_) => Vec::new(),
            Change::Insert(_) | Change::Load(_) | Change::Update(..) => self.checks(checks)?,
        };
        let fields: Vec<Field> = columns
            .iter()
            .map(|column| column.ty.field(&column.name, true))
            .collect();
        let write = Write {
            change,
            returning,
            checks,
            schema: Arc::new(Schema::new(fields)),
        };
        Some((Action::Write(write), outputs))
    }

    fn checks(&self, checks: &[CheckConstraint]) -> Option<Vec<Condition>> {
        let mut bound = Vec::new();
        for check in checks {
            let (conditions, constants) = parse::conditions(&check.expression)?;
            let binder = self.over_constants(&constants);
            for condition in &conditions {
                bound.push(binder.comparison(condition)?);
            }
        }
        Some(bound)
    }

    /// What a column becomes that is assigned a scalar.
    fn assigned(&self, scalar: &Scalar, at: usize) -> Option<Expr> {
        if *scalar == Scalar::Default {
            return self.default_of(at);
        }
        let (expr, ty) = self.scalar(scalar)?;
        fitted(expr, ty, self.schema.columns[at].ty)
    }

    fn default_of(&self, at: usize) -> Option<Expr> {
        // A new part of a column's description must be thought about here. `default` is the
        // caller's to tell.
        let Column {
            name: _,
            ty,
            nullable: _,
            default: _,
        } = &self.schema.columns[at];
        let Some(default) = (self.default)(at) else {
            return Some(Expr::Null);
        };
        if let Some(sequence) = next_of(&default) {
            let next = Expr::Next(sequence);
            return fitted(next, Type::Sql(SqlType::BigInt), *ty);
        }
        let (scalar, constants) = parse::scalar(&default)?;
        let (expr, from) = self.over_constants(&constants).scalar(&scalar)?;
        expr.is_constant().then(|| fitted(expr, from, *ty))?
    }

    /// A binder of a text of the catalogue with these literals, which has no parameters.
    fn over_constants<'b>(&'b self, constants: &'b [Literal]) -> Binder<'b> {
        Binder {
            table: self.table,
            schema: self.schema,
            called: &self.schema.name,
            types: &[],
            default: self.default,
            constants: Some(constants),
            has_excluded: false,
        }
    }
}

/// The sequence whose next number a text is, and nothing else.
fn next_of(text: &str) -> Option<RelationId> {
    let mut called = NEXT.iter();
    let rest = called.find_map(|name| text.strip_prefix(name))?;
    let number = rest.strip_prefix('(')?.strip_suffix(')')?;
    number.parse().ok().map(RelationId)
}

/// The sequences that a program takes numbers of.
fn sequences_of(action: &Action) -> Vec<RelationId> {
    fn add(expr: &Expr, sequences: &mut Vec<RelationId>) {
        match expr {
            Expr::Next(sequence) if sequences.contains(sequence) => {}
            Expr::Next(sequence) => sequences.push(*sequence),
            Expr::Fitted(inner, _) => add(inner, sequences),
            Expr::Arithmetic(_, left, right, _) => {
                add(left, sequences);
                add(right, sequences);
            }
            Expr::Column(_)
            | Expr::Input(_)
            | Expr::Constant(_)
            | Expr::Null
            | Expr::Now
            | Expr::LocalNow => {}
        }
    }
    let mut sequences = Vec::new();
    let mut add_all = |exprs: &[Expr]| exprs.iter().for_each(|expr| add(expr, &mut sequences));
    if let Action::Write(write) = action {
        match &write.change {
            Change::Insert(rows) => rows.iter().for_each(|row| add_all(row)),
            Change::Load(load) => {
                load.sources
                    .iter()
                    .for_each(|source| add_all(source.default.as_slice()));
            }
            Change::Update(_, columns) => add_all(columns),
            Change::Delete(_) => {}
        }
    }
    sequences
}

/// The columns that are read of rows found by key.
fn columns_read(action: &Action, schema: &TableSchema) -> Vec<usize> {
    let mut read = schema.primary_key.clone();
    let mut add = |expr: &Expr| add_columns(expr, &mut read);
    match action {
        Action::Select(selection) => {
            for condition in &selection.find.conditions {
                add(&condition.left);
                add(&condition.right);
            }
            match &selection.list {
                List::Rows(list) => {
                    list.outputs.iter().for_each(&mut add);
                    list.order.iter().for_each(|(key, _)| add(key));
                }
                List::Aggregates(aggregates) => {
                    for aggregate in aggregates {
                        match aggregate {
                            Aggregate::CountRows => {}
                            Aggregate::Count(at)
                            | Aggregate::Sum(at)
                            | Aggregate::Min(at)
                            | Aggregate::Max(at) => add(&Expr::Column(*at)),
                        }
                    }
                }
            }
        }
        // A new version is made of the whole old one.
        Action::Write(Write {
            change: Change::Update(..),
            ..
        }) => return (0..schema.columns.len()).collect(),
        Action::Write(Write {
            change: Change::Insert(_) | Change::Load(_),
            ..
        }) => return Vec::new(),
        Action::Write(Write {
            change: Change::Delete(find),
            returning,
            ..
        }) => {
            for condition in &find.conditions {
                add(&condition.left);
                add(&condition.right);
            }
            returning.iter().flatten().for_each(&mut add);
        }
    }
    read
}

fn add_columns(expr: &Expr, read: &mut Vec<usize>) {
    match expr {
        Expr::Column(at) if read.contains(at) => {}
        Expr::Column(at) => read.push(*at),
        Expr::Input(_)
        | Expr::Constant(_)
        | Expr::Null
        | Expr::Now
        | Expr::LocalNow
        | Expr::Next(_) => {}
        Expr::Arithmetic(_, left, right, _) => {
            add_columns(left, read);
            add_columns(right, read);
        }
        Expr::Fitted(inner, _) => add_columns(inner, read),
    }
}

/// What a condition bounds the column by, if that is all it says.
fn bound_on(condition: &Condition, column: usize) -> Option<(Operator, Expr)> {
    let Condition {
        left,
        operator,
        right,
    } = condition;
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(at) if *at == column);
    if is_column(left) && right.is_constant() {
        Some((*operator, right.clone()))
    } else if is_column(right) && left.is_constant() {
        Some((operator.mirrored(), left.clone()))
    } else {
        None
    }
}
