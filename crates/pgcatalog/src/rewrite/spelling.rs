//! PostgreSQL's own spellings of names, types and operators.

use aerostat_semantics::array_items;
use aerostat_sql::{names::folded, walk::unnested};
use aerostat_types::SqlError;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, ObjectName,
    OneOrManyWithParens, OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor,
    TimezoneInfo,
};
use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

use super::{
    build::{arguments, bare_name, call, literal_text, null, number, truth},
    parts::aggregates,
    scope,
};
use crate::{
    CatalogView,
    functions::{self, EMPTY, EXPAND, JSON, LISTENING, OR_EMPTY, Reg, SUBSCRIPTS},
};

/// The schemas that qualify the names of built-in functions and types.
const SCHEMAS: [&str; 2] = ["pg_catalog", "information_schema"];

/// What must be done while the context of an operand is still known: a name cast to
/// `regclass` is a number where it is compared, and a name again where it is shown.
pub(super) fn before_children(expression: &mut Expr, view: &CatalogView) -> Result<(), SqlError> {
    if let Some(replacement) = field_access(expression) {
        *expression = replacement;
    }
    if let Expr::BinaryOp { op, .. } = expression {
        custom_operator(op);
    }
    number_operands(expression, &mut |operand| read_as_number(operand, view))
}

/// Calls `each` for the operands whose numbers count, not their names: of comparisons, casts to
/// numbers, and the catalogue's functions.
pub(super) fn number_operands(
    expression: &mut Expr,
    each: &mut dyn FnMut(&mut Expr) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    match expression {
        Expr::BinaryOp { left, op, right } if is_comparison(op) => {
            each(left)?;
            each(right)?;
        }
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
            each(left)?;
            each(right)?;
        }
        Expr::InList { expr, list, .. } => {
            each(expr)?;
            list.iter_mut().try_for_each(each)?;
        }
        Expr::InSubquery { expr, subquery, .. } => {
            each(expr)?;
            outputs(&mut subquery.body, each)?;
        }
        Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => {
            each(left)?;
            match &mut **right {
                Expr::Array(array) => array.elem.iter_mut().try_for_each(each)?,
                other => each(other)?,
            }
        }
        Expr::Cast {
            expr, data_type, ..
        } if is_number(data_type) => each(expr)?,
        Expr::Function(function) => {
            let takes_numbers = bare_name(&function.name).is_some_and(|name| {
                functions::is_function(&name)
                    && !["format", "quote_ident", "quote_literal", "quote_nullable"]
                        .contains(&name.as_str())
            });
            if let FunctionArguments::List(list) = &mut function.args
                && takes_numbers
            {
                for argument in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
                        each(argument)?;
                    }
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// A name cast to `regclass` in one part of a UNION is a number where the other part has one.
pub(super) fn set_operation(body: &mut SetExpr, view: &CatalogView) -> Result<(), SqlError> {
    if !matches!(body, SetExpr::SetOperation { .. }) {
        return Ok(());
    }
    let (mut shown, mut parts) = (Vec::<usize>::new(), 0);
    let mut count = |at: usize, output: &Expr| {
        if shown.len() <= at {
            shown.resize(at + 1, 0);
        }
        shown[at] += usize::from(is_reg_cast(output));
    };
    each_part(body, &mut |select| {
        parts += 1;
        for (at, item) in select.projection.iter().enumerate() {
            if let SelectItem::UnnamedExpr(output)
            | SelectItem::ExprWithAlias { expr: output, .. } = item
            {
                count(at, output);
            }
        }
        Ok(())
    })?;
    each_part(body, &mut |select| {
        for (at, item) in select.projection.iter_mut().enumerate() {
            if let SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. } =
                item
                && shown.get(at).is_some_and(|shown| *shown < parts)
            {
                read_as_number(output, view)?;
            }
        }
        Ok(())
    })
}

/// Calls `each` for the SELECTs that a UNION or its like puts together.
fn each_part(
    body: &mut SetExpr,
    each: &mut dyn FnMut(&mut Select) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    match body {
        SetExpr::Select(select) => each(select),
        SetExpr::SetOperation { left, right, .. } => {
            each_part(left, each)?;
            each_part(right, each)
        }
        SetExpr::Query(query) => each_part(&mut query.body, each),
        _ => Ok(()),
    }
}

fn is_reg_cast(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_reg_cast(inner),
        Expr::Cast { data_type, .. } => reg_type(data_type).is_some(),
        _ => false,
    }
}

/// Calls `each` for the outputs of a query.
fn outputs(
    body: &mut SetExpr,
    each: &mut dyn FnMut(&mut Expr) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    match body {
        SetExpr::Select(select) => select
            .projection
            .iter_mut()
            .try_for_each(|item| match item {
                SelectItem::UnnamedExpr(output)
                | SelectItem::ExprWithAlias { expr: output, .. } => each(output),
                _ => Ok(()),
            }),
        SetExpr::Values(values) => {
            let mut cells = values
                .rows
                .iter_mut()
                .flat_map(|row| row.content.iter_mut());
            cells.try_for_each(each)
        }
        SetExpr::SetOperation { left, right, .. } => {
            outputs(left, each)?;
            outputs(right, each)
        }
        SetExpr::Query(query) => outputs(&mut query.body, each),
        _ => Ok(()),
    }
}

/// Everything that needs no context.
pub(super) fn after_children(expression: &mut Expr, view: &CatalogView) -> Result<(), SqlError> {
    match expression {
        Expr::Function(function) => {
            unqualify(&mut function.name);
            if let FunctionArguments::Subquery(query) = &mut function.args
                && bare_name(&function.name).as_deref() == Some("array")
            {
                *expression = array_of_query(query);
            } else if let Some(replacement) = special_function(function) {
                *expression = replacement;
            }
        }
        Expr::Collate { expr, collation } => {
            let name = collation
                .0
                .last()
                .and_then(|part| part.as_ident())
                .map(folded)
                .unwrap_or_default();
            // Texts compare by bytes under all of these.
            if matches!(
                name.to_ascii_lowercase().as_str(),
                "default" | "c" | "posix" | "ucs_basic"
            ) {
                *expression = (**expr).clone();
            }
        }
        Expr::Cast {
            expr, data_type, ..
        } => {
            if let Some(array) = written_array(data_type) {
                *data_type = array;
            }
            if let Some(kind) = reg_type(data_type) {
                let read = literal_number(expr, kind, view)?.unwrap_or_else(|| (**expr).clone());
                *expression = call(kind.shower(), vec![read]);
            } else if let Some(array) = literal_array(expr, data_type) {
                **expr = array;
                plain_type(data_type);
            } else if is_vector(data_type) {
                *expression = (**expr).clone();
            } else {
                plain_type(data_type);
            }
        }
        Expr::Subquery(query) if gives_json(query) => {
            *expression = call(JSON, vec![expression.clone()]);
        }
        // A CASE does not tell what its texts are.
        Expr::Case { conditions, .. } if conditions.iter().any(|when| is_json(&when.result)) => {
            *expression = call(JSON, vec![expression.clone()]);
        }
        Expr::Exists { subquery, negated } if scope::is_empty_query(subquery) => {
            *expression = truth(*negated)
        }
        _ => {}
    }
    Ok(())
}

/// Whether a subquery's value is an object of `json`.
fn gives_json(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else {
        return false;
    };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &select.projection[..]
    else {
        return false;
    };
    matches!(item, Expr::Function(function)
        if bare_name(&function.name).as_deref() == Some("json_build_object"))
}

/// Whether a value was found to be `json` before.
fn is_json(value: &Expr) -> bool {
    matches!(value, Expr::Function(function)
        if bare_name(&function.name).as_deref() == Some(JSON))
}

/// The kind of catalogue entry that values of the type are.
pub(super) fn reg_type(data_type: &DataType) -> Option<Reg> {
    match data_type {
        DataType::Regclass => Some(Reg::Class),
        DataType::Custom(name, _) => Reg::of_typname(&type_name(name)?),
        _ => None,
    }
}

fn type_name(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(folded))
        .collect::<Option<_>>()?;
    match &parts[..] {
        [name] => Some(name.clone()),
        [schema, name] if SCHEMAS.contains(&schema.as_str()) => Some(name.clone()),
        _ => None,
    }
}

/// Turns `x::regclass`, `to_regclass(x)` and `'{x,y}'::regclass[]` into the numbers they stand for.
fn read_as_number(expression: &mut Expr, view: &CatalogView) -> Result<(), SqlError> {
    let mut operand = &mut *expression;
    while let Expr::Nested(inner) = operand {
        operand = inner;
    }
    let read = match operand {
        Expr::Cast {
            expr, data_type, ..
        } => match (reg_type(data_type), data_type) {
            (Some(kind), _) => match literal_number(expr, kind, view)? {
                Some(number) => number,
                None => call(kind.reader(), vec![(**expr).clone()]),
            },
            (None, DataType::Array(ArrayElemTypeDef::SquareBracket(item, _))) => {
                match (reg_type(item), literal_text(expr)) {
                    (Some(kind), Some(text)) => number_array(kind, text, view)?,
                    _ => return Ok(()),
                }
            }
            _ => return Ok(()),
        },
        Expr::Function(function) => {
            let kind = bare_name(&function.name).and_then(|name| Reg::of_finder(&name));
            match (kind, arguments(function).as_deref()) {
                (Some(kind), Some([name])) => call(kind.finder(), vec![(*name).clone()]),
                _ => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    *expression = read;
    Ok(())
}

/// `'{x,y}'::regclass[]` as numbers.
fn number_array(kind: Reg, text: &str, view: &CatalogView) -> Result<Expr, SqlError> {
    let elem = functions::parse_array(text)
        .iter()
        .map(|item| match item.str() {
            Some(name) => functions::resolve(view, kind, name).map(number),
            None => Ok(null()),
        })
        .collect::<Result<_, _>>()?;
    Ok(Expr::Array(Array { elem, named: true }))
}

fn literal_number(
    expression: &Expr,
    kind: Reg,
    view: &CatalogView,
) -> Result<Option<Expr>, SqlError> {
    literal_text(expression)
        .map(|text| functions::resolve(view, kind, text).map(number))
        .transpose()
}

fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

fn custom_operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(parts) = &*op else {
        return;
    };
    let symbol = match &parts[..] {
        [symbol] => symbol,
        [schema, symbol] if schema.eq_ignore_ascii_case("pg_catalog") => symbol,
        _ => return,
    };
    *op = match symbol.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        _ => return,
    };
}

/// Drops `pg_catalog.` from a function's name.
pub(super) fn unqualify(name: &mut ObjectName) {
    let schema = name.0.first().and_then(|part| part.as_ident()).map(folded);
    if name.0.len() == 2 && schema.is_some_and(|schema| SCHEMAS.contains(&schema.as_str())) {
        name.0.remove(0);
    }
}

/// `(_pg_expandarray(a)).n`, `(_pg_expandarray(a)).x`, and `(row).field` of what is not a table.
fn field_access(expression: &Expr) -> Option<Expr> {
    let Expr::CompoundFieldAccess { root, access_chain } = expression else {
        return None;
    };
    let ([AccessExpr::Dot(Expr::Identifier(field))], Expr::Nested(row)) =
        (&access_chain[..], &**root)
    else {
        return None;
    };
    let field = folded(field);
    if let Expr::Function(function) = &**row {
        let given = arguments(function)?;
        let [array] = given[..] else { return None };
        return match (bare_name(&function.name)?.as_str(), field.as_str()) {
            ("_pg_expandarray", "n") => {
                Some(call("unnest", vec![call(SUBSCRIPTS, vec![array.clone()])]))
            }
            ("_pg_expandarray", "x") => Some(call("unnest", vec![array.clone()])),
            _ => None,
        };
    }
    matches!(**row, Expr::Identifier(_) | Expr::CompoundIdentifier(_)).then(|| {
        call(
            "get_field",
            vec![(**row).clone(), super::build::text(&field)],
        )
    })
}

fn special_function(function: &Function) -> Option<Expr> {
    if function.name.0.len() != 1 || function.over.is_some() {
        return None;
    }
    let given = arguments(function)?;
    match (bare_name(&function.name)?.as_str(), &given[..]) {
        ("generate_subscripts", [array, ..]) => Some(call(
            "unnest",
            vec![call(SUBSCRIPTS, vec![(*array).clone()])],
        )),
        ("_pg_expandarray", [array]) => {
            Some(call("unnest", vec![call(EXPAND, vec![(*array).clone()])]))
        }
        ("pg_listening_channels", []) => Some(call("unnest", vec![call(LISTENING, Vec::new())])),
        // A name without parentheses is called with none.
        (
            "current_user" | "session_user" | "user" | "current_catalog" | "current_role"
            | "current_schema",
            [],
        ) if matches!(function.args, FunctionArguments::None) => {
            Some(call(&bare_name(&function.name)?, Vec::new()))
        }
        _ => None,
    }
}

/// Whether the type is one of numbers, as those of catalogue entries are.
fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Custom(name, _) => {
            matches!(
                type_name(name).as_deref(),
                Some("oid" | "int4" | "int8" | "xid")
            )
        }
        DataType::Int(_)
        | DataType::Integer(_)
        | DataType::BigInt(_)
        | DataType::Int4(_)
        | DataType::Int8(_) => true,
        _ => false,
    }
}

fn is_vector(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Custom(name, _) if matches!(type_name(name).as_deref(), Some("int2vector" | "oidvector")))
}

/// The type of arrays that PostgreSQL calls `_int4`.
fn written_array(data_type: &DataType) -> Option<DataType> {
    let DataType::Custom(name, modifiers) = data_type else {
        return None;
    };
    let name = type_name(name).filter(|_| modifiers.is_empty())?;
    let item = name.strip_prefix('_')?;
    let parts = vec![Ident::new("pg_catalog"), Ident::new(item)];
    let mut item = DataType::Custom(ObjectName::from(parts), Vec::new());
    plain_type(&mut item);
    let is_known = !matches!(item, DataType::Custom(..));
    is_known.then(|| DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(item), None)))
}

/// Replaces PostgreSQL's names for types by what the planner knows.
fn plain_type(data_type: &mut DataType) {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        plain_type(element);
        return;
    }
    let DataType::Custom(name, modifiers) = &*data_type else {
        return;
    };
    let qualified = name.0.len() > 1;
    let Some(name) = type_name(name) else { return };
    let length = || modifiers.first().and_then(|text| text.parse().ok());
    *data_type = match name.as_str() {
        "text" | "name" | "char" | "cstring" | "unknown" | "aclitem" | "pg_node_tree"
        | "sql_identifier" | "character_data" | "yes_or_no" => DataType::Text,
        "oid" | "xid" | "cid" | "xid8" => DataType::BigInt(None),
        "cardinal_number" => DataType::Integer(None),
        _ if !qualified => return,
        "varchar" => DataType::Varchar(length().map(|length| {
            datafusion::sql::sqlparser::ast::CharacterLength::IntegerLength { length, unit: None }
        })),
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Integer(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "bool" => DataType::Boolean,
        "numeric" => DataType::Numeric(ExactNumberInfo::None),
        "bytea" => DataType::Bytea,
        "uuid" => DataType::Uuid,
        "date" => DataType::Date,
        "time" => DataType::Time(None, TimezoneInfo::None),
        "timestamp" | "time_stamp" => DataType::Timestamp(None, TimezoneInfo::None),
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::Tz),
        "interval" => DataType::Interval {
            fields: None,
            precision: None,
        },
        _ => return,
    };
}

/// `'{a,b}'::text[]` as an array.
fn literal_array(expression: &Expr, data_type: &DataType) -> Option<Expr> {
    let DataType::Array(ArrayElemTypeDef::SquareBracket(..)) = data_type else {
        return None;
    };
    // What is none, or an array of arrays, is left to the cast.
    let items = array_items(literal_text(expression)?)?;
    if items.is_empty() {
        return Some(call(EMPTY, Vec::new()));
    }
    let elem = items
        .iter()
        .map(|item| item.as_deref().map_or_else(null, super::build::text))
        .collect();
    Some(Expr::Array(Array { elem, named: true }))
}

/// Whether the rows of a query can be gathered by an aggregate in their place: each row of its
/// relations is one of its own, in an order of their columns.
fn is_plain(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else {
        return false;
    };
    let is_ungrouped = matches!(
        &select.group_by,
        GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty()
    );
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &select.projection[..]
    else {
        return false;
    };
    let is_call = |part: &Expr| match part {
        Expr::Function(function) => {
            function.over.is_some()
                || bare_name(&function.name).is_some_and(|name| SETS.contains(&name.as_str()))
        }
        _ => false,
    };
    // ORDER BY may name the output, which the aggregate's does not know.
    let names_output = |part: &Expr| match (part, &select.projection[0]) {
        (Expr::Identifier(ident), SelectItem::ExprWithAlias { alias, .. }) => {
            folded(ident) == folded(alias)
        }
        _ => false,
    };
    let orders_by_output = query.order_by.as_ref().is_some_and(|order_by| {
        let OrderByKind::Expressions(keys) = &order_by.kind else {
            return true;
        };
        keys.iter()
            .any(|key| super::expr_has(&key.expr, names_output))
    });
    is_ungrouped
        && select.distinct.is_none()
        && select.having.is_none()
        && query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && !aggregates(select)
        && !super::expr_has(item, is_call)
        && !orders_by_output
}

/// Functions that make several rows of one.
const SETS: [&str; 3] = ["generate_series", "generate_subscripts", "unnest"];

/// The rows of any query, in its order, which the aggregate follows.
fn array_of_rows(query: &Query) -> Expr {
    let text = "SELECT array_agg(\"\u{1}item\") FROM x AS \"\u{1}array\" (\"\u{1}item\")";
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
    let parsed = parser.and_then(|mut parser| parser.parse_query());
    let Ok(mut gathered) = parsed else {
        return Expr::Subquery(Box::new(query.clone()));
    };
    if let SetExpr::Select(select) = &mut *gathered.body
        && let Some(table) = select.from.first_mut()
        && let TableFactor::Table { alias, .. } = &mut table.relation
    {
        table.relation = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(query.clone()),
            alias: alias.take(),
            sample: None,
        };
    }
    call(OR_EMPTY, vec![Expr::Subquery(gathered)])
}

/// `ARRAY(SELECT …)`.
fn array_of_query(query: &mut Query) -> Expr {
    if scope::is_empty_query(query) {
        return call(EMPTY, Vec::new());
    }
    if !is_plain(query) {
        return array_of_rows(query);
    }
    let order_by = query.order_by.take();
    let SetExpr::Select(select) = &mut *query.body else {
        query.order_by = order_by;
        return Expr::Subquery(Box::new(query.clone()));
    };
    if order_by.is_none()
        && let Some(mapped) = mapped_array(select)
    {
        return mapped;
    }
    let Some((SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }, [])) =
        select.projection.split_first_mut()
    else {
        query.order_by = order_by;
        return Expr::Subquery(Box::new(query.clone()));
    };
    let mut clauses = Vec::new();
    if let Some(order_by) = order_by
        && let OrderByKind::Expressions(mut keys) = order_by.kind
    {
        for key in &mut keys {
            // A position means the only column.
            if matches!(key.expr, Expr::Value(_)) {
                key.expr = item.clone();
            }
        }
        clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    let Expr::Function(mut aggregate) = call("array_agg", vec![item.clone()]) else {
        return item.clone();
    };
    if let FunctionArguments::List(FunctionArgumentList { clauses: own, .. }) = &mut aggregate.args
    {
        *own = clauses;
    }
    *item = Expr::Function(aggregate);
    call(OR_EMPTY, vec![Expr::Subquery(Box::new(query.clone()))])
}

/// `ARRAY(SELECT f(x) FROM unnest(a) AS x)` as a map over the array.
fn mapped_array(select: &Select) -> Option<Expr> {
    let [table] = &select.from[..] else {
        return None;
    };
    if !table.joins.is_empty()
        || select.selection.is_some()
        || select.distinct.is_some()
        || aggregates(select)
    {
        return None;
    }
    let (array, alias) = match &table.relation {
        TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs,
            with_ordinality: false,
            with_offset: false,
            ..
        } => {
            let [array] = &array_exprs[..] else {
                return None;
            };
            (array, alias)
        }
        TableFactor::Table {
            name,
            alias: Some(alias),
            args: Some(given),
            with_ordinality: false,
            ..
        } => {
            let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = &given.args[..] else {
                return None;
            };
            if bare_name(name).as_deref() != Some("unnest") {
                return None;
            }
            (array, alias)
        }
        _ => return None,
    };
    let [SelectItem::UnnamedExpr(body) | SelectItem::ExprWithAlias { expr: body, .. }] =
        &select.projection[..]
    else {
        return None;
    };
    let item = alias
        .columns
        .first()
        .map_or(&alias.name, |column| &column.name);
    if matches!(unnested(body), Expr::Identifier(ident) if folded(ident) == folded(item)) {
        return Some(call(OR_EMPTY, vec![array.clone()]));
    }
    let lambda = Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::One(LambdaFunctionParameter {
            name: Ident::new(folded(item)),
            data_type: None,
        }),
        body: Box::new(body.clone()),
        syntax: LambdaSyntax::Arrow,
    });
    let mapped = call("array_transform", vec![array.clone(), lambda]);
    Some(call(OR_EMPTY, vec![mapped]))
}
