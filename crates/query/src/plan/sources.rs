//! Functions in FROM.
//!
//! | written | becomes |
//! |---|---|
//! | `generate_series(1, 3) AS g` | `… AS g (g)`: a function's only column has its alias as its name |
//! | `unnest(a)` | `unnest(a) AS unnest (unnest)` |
//! | `unnest(a, b)` | `unnest(a, b) AS unnest (unnest, unnest)`, with suffixes that tell the two apart |
//! | `f(…) WITH ORDINALITY AS t (u, o)` | `unnest(f(…), ordinals(f(…))) AS t (u, o)`, in lockstep |
//! | `generate_series(1, t.n)`, of a table left of it | `unnest(generate_series(1, t.n))` |
//! | `generate_subscripts(a, 1)` | `unnest(array_subscripts(a, 1))` |
//! | `regexp_split_to_table(t, p)` | `unnest(regexp_split_to_array(t, p))` |
//! | `string_to_table(t, d)` | `unnest(string_to_array(t, d))` |
//! | `upper(x) AS u`, and other functions of one value | `LATERAL (SELECT upper(x) AS u) AS u` |

use std::ops::ControlFlow;

use aerostat_sql::{
    names::{SUFFIX, folded},
    walk,
};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, TableAlias, TableAliasColumnDef, TableFactor, Value,
    VisitMut, VisitorMut,
};
use datafusion::{
    execution::SessionState,
    sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser},
};

use super::{forms::SERIES, twins::name_of_key};

/// Functions that return rows, each with the function that returns the same rows as a list.
const LISTS: [(&str, &str); 3] = [
    ("generate_subscripts", "array_subscripts"),
    ("regexp_split_to_table", "regexp_split_to_array"),
    ("string_to_table", "string_to_array"),
];

/// Rewrites a relation in FROM as the module says.
pub(super) fn rewrite(factor: &mut TableFactor) {
    if let Some(unnest) = as_unnest(factor) {
        *factor = unnest;
    }
    match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(_),
            ..
        }
        | TableFactor::Function { name, alias, .. } => {
            let function = name.0.last().and_then(|part| part.as_ident()).map(folded);
            if let Some(function) = function.filter(|name| SERIES.contains(&name.as_str())) {
                name_columns(alias, &function, false);
            }
        }
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_ordinality,
            ..
        } if array_exprs.len() == 1 => {
            let ordinals = with_ordinality.then(|| ordinals(&array_exprs[0]));
            *with_ordinality = false;
            name_columns(alias, "unnest", ordinals.is_some());
            array_exprs.extend(ordinals);
        }
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_ordinality: false,
            ..
        } => {
            name_several(alias, array_exprs.len());
            tell_apart(array_exprs);
        }
        _ => {}
    }
}

/// Rewrites functions of one value in FROM, if they are registered.
pub(super) fn rewrite_values<N: VisitMut>(state: &SessionState, node: &mut N) {
    struct Values<'a>(&'a SessionState);
    impl VisitorMut for Values<'_> {
        type Break = ();

        fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let Some(row) = as_row(self.0, factor) {
                *factor = row;
            }
            ControlFlow::Continue(())
        }
    }
    // The visitor never breaks.
    let _ = walk::change(node, &mut Values(state));
}

fn as_row(state: &SessionState, factor: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(given),
            with_ordinality: false,
            ..
        } => (name, &given.args, alias),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality: false,
            ..
        } => (name, args, alias),
        _ => return None,
    };
    let [only] = &name.0[..] else { return None };
    let function = only.as_ident().map(folded)?;
    if !state.scalar_functions().contains_key(&function)
        || state.table_functions().contains_key(&function)
    {
        return None;
    }
    let mut alias = alias.clone();
    name_columns(&mut alias, &function, false);
    let value = call(&function, args.clone());
    let column = alias.as_ref()?.columns.first()?.name.clone();
    let text = format!("SELECT {value} AS {column}");
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let subquery = parser.and_then(|mut parser| parser.parse_query()).ok()?;
    Some(TableFactor::Derived {
        lateral: names_columns(args),
        subquery,
        alias,
        sample: None,
    })
}

/// A function that has to be a list to be unnested, as such.
fn as_unnest(factor: &TableFactor) -> Option<TableFactor> {
    let (name, args, alias, with_ordinality) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(given),
            with_ordinality,
            ..
        } => (name, &given.args, alias, *with_ordinality),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            ..
        } => (name, args, alias, *with_ordinality),
        _ => return None,
    };
    let function = name.0.last()?.as_ident().map(folded)?;
    if function == "unnest" {
        let array = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(array)) => Some(array.clone()),
            _ => None,
        };
        return Some(TableFactor::UNNEST {
            alias: alias.clone(),
            array_exprs: args.iter().map(array).collect::<Option<_>>()?,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        });
    }
    let list = LISTS.iter().find(|(rows, _)| *rows == function);
    let list = match (list, function.as_str()) {
        (Some((_, list)), _) => list,
        (None, "generate_series") if with_ordinality || names_columns(args) => "generate_series",
        _ => return None,
    };
    let mut alias = alias.clone();
    name_columns(&mut alias, &function, with_ordinality);
    Some(TableFactor::UNNEST {
        alias,
        array_exprs: vec![call(list, args.clone())],
        with_offset: false,
        with_offset_alias: None,
        with_ordinality,
    })
}

fn names_columns(args: &[FunctionArg]) -> bool {
    let is_column = |expression: &Expr| match expression {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let names = |argument: &FunctionArg| walk::expressions(argument, is_column).is_break();
    args.iter().any(names)
}

fn call(name: &str, args: Vec<FunctionArg>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The numbers of a list's items, as an expression of type bigint.
fn ordinals(list: &Expr) -> Expr {
    let argument = |expr: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    let first = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::value(Value::Number("1".to_owned(), false))),
        data_type: DataType::BigInt(None),
        array: false,
        format: None,
    };
    let count = call("cardinality", vec![argument(list.clone())]);
    call("generate_series", vec![argument(first), argument(count)])
}

/// Gives arrays different names. The planner names a column after its array, without the casts in
/// it, and refuses two columns with one name, so the second array becomes `coalesce(a)`, which is
/// the same.
fn tell_apart(arrays: &mut [Expr]) {
    for at in 1..arrays.len() {
        let (before, rest) = arrays.split_at_mut(at);
        let argument = |expr: &Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr.clone()));
        let names: Vec<String> = before.iter().map(name_of_key).collect();
        while names.contains(&name_of_key(&rest[0])) {
            rest[0] = call("coalesce", vec![argument(&rest[0])]);
        }
    }
}

/// Names the columns of several arrays after their function.
fn name_several(alias: &mut Option<TableAlias>, count: usize) {
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new("unnest"),
        columns: Vec::new(),
        at: None,
    });
    for at in alias.columns.len()..count {
        alias.columns.push(TableAliasColumnDef {
            name: Ident::with_quote('"', format!("unnest{SUFFIX}{at}")),
            data_type: None,
        });
    }
}

/// Names the columns after the alias, or after the function, unless the alias names them.
fn name_columns(alias: &mut Option<TableAlias>, function: &str, with_ordinality: bool) {
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(function),
        columns: Vec::new(),
        at: None,
    });
    let column = |name: Ident| TableAliasColumnDef {
        name,
        data_type: None,
    };
    if alias.columns.is_empty() {
        alias.columns.push(column(alias.name.clone()));
    }
    if with_ordinality && alias.columns.len() == 1 {
        alias.columns.push(column(Ident::new("ordinality")));
    }
}
