//! Names and numbers of catalogue entries: `regclass` and similar types, visibility.

use aerostat_catalog::{undefined_relation, undefined_schema};
use aerostat_sql::names::{PG_CATALOG, split_name};
use aerostat_types::{ErrorKind, RoleId, SqlError, quote_ident};

use super::{Call, Definition, function};
use crate::{CatalogView, cell::Cell, types};

/// The types whose values are numbers of catalogue entries and are shown as names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    Class,
    Type,
    Proc,
    Procedure,
    Namespace,
    Role,
    Operator,
    Collation,
}

impl Reg {
    /// The kind for a type's `typname`.
    pub(crate) fn of_typname(name: &str) -> Option<Self> {
        Some(match name {
            "regclass" => Reg::Class,
            "regtype" => Reg::Type,
            "regproc" => Reg::Proc,
            "regprocedure" => Reg::Procedure,
            "regnamespace" => Reg::Namespace,
            "regrole" => Reg::Role,
            "regoper" | "regoperator" => Reg::Operator,
            "regcollation" => Reg::Collation,
            _ => return None,
        })
    }

    /// The kind that a function such as `to_regclass` finds.
    pub(crate) fn of_finder(name: &str) -> Option<Self> {
        Self::of_typname(name.strip_prefix("to_")?)
    }

    /// The kind that one of [`SHOWN`] shows.
    pub(crate) fn of_shower(name: &str) -> Option<Self> {
        let at = SHOWN.iter().position(|shown| *shown == name)?;
        Some(KINDS[at])
    }
}

/// All kinds, in their order.
const KINDS: [Reg; 8] = [
    Reg::Class,
    Reg::Type,
    Reg::Proc,
    Reg::Procedure,
    Reg::Namespace,
    Reg::Role,
    Reg::Operator,
    Reg::Collation,
];

/// The names of the functions that show a number as a name, by [`Reg`].
pub(crate) const SHOWN: [&str; 8] = [
    "\u{1}show_class",
    "\u{1}show_type",
    "\u{1}show_proc",
    "\u{1}show_procedure",
    "\u{1}show_namespace",
    "\u{1}show_role",
    "\u{1}show_operator",
    "\u{1}show_collation",
];

/// The names of the functions that read a name or number as a number, by [`Reg`].
pub(crate) const READ: [&str; 8] = [
    "\u{1}read_class",
    "\u{1}read_type",
    "\u{1}read_proc",
    "\u{1}read_procedure",
    "\u{1}read_namespace",
    "\u{1}read_role",
    "\u{1}read_operator",
    "\u{1}read_collation",
];

/// The names of the functions that find a name's number, NULL if there is none, by [`Reg`].
pub(crate) const FOUND: [&str; 8] = [
    "\u{1}find_class",
    "\u{1}find_type",
    "\u{1}find_proc",
    "\u{1}find_procedure",
    "\u{1}find_namespace",
    "\u{1}find_role",
    "\u{1}find_operator",
    "\u{1}find_collation",
];

pub(super) fn definitions() -> Vec<Definition> {
    let mut all = vec![
        function("pg_get_userbyid", &["oid"], "name", |call| {
            let oid = call.int(0).unwrap_or(0);
            Ok(call
                .view
                .role_name(oid)
                .map_or_else(|| format!("unknown (OID={oid})"), str::to_owned)
                .into())
        }),
        function("pg_table_is_visible", &["oid"], "bool", |call| {
            Ok(call
                .int(0)
                .and_then(|oid| call.view.class(oid))
                .map(|class| call.view.is_visible(class))
                .into())
        }),
        function("pg_type_is_visible", &["oid"], "bool", |call| {
            let known = types::types()
                .iter()
                .any(|ty| Some(i64::from(ty.oid)) == call.int(0));
            Ok(known.then_some(true).into())
        }),
    ];
    all.extend(kind::<0>("to_regclass", "shown:regclass"));
    all.extend(kind::<1>("to_regtype", "shown:regtype"));
    all.extend(kind::<2>("to_regproc", "shown:regproc"));
    all.extend(kind::<3>("to_regprocedure", "shown:regprocedure"));
    all.extend(kind::<4>("to_regnamespace", "shown:regnamespace"));
    all.extend(kind::<5>("to_regrole", "shown:regrole"));
    all.extend(kind::<6>("to_regoper", "shown:regoper"));
    all.extend(kind::<7>("to_regcollation", "text"));
    // Everything of these kinds lives in pg_catalog, which is always searched.
    all.extend(
        [
            "pg_operator_is_visible",
            "pg_opclass_is_visible",
            "pg_opfamily_is_visible",
            "pg_collation_is_visible",
            "pg_conversion_is_visible",
            "pg_statistics_obj_is_visible",
            "pg_ts_config_is_visible",
            "pg_ts_dict_is_visible",
            "pg_ts_parser_is_visible",
            "pg_ts_template_is_visible",
        ]
        .map(|name| function(name, &["oid"], "bool", |_| Ok(true.into()))),
    );
    all.push(function(
        "pg_function_is_visible",
        &["oid"],
        "bool",
        |call| {
            let oid = call.int(0);
            let mut procedures = call.view.procedures().iter();
            // Those of the schema aerostat are not on the search path.
            let is_qualified = |(number, function): &(u32, super::FunctionDescription)| {
                Some(i64::from(*number)) == oid && function.name.contains('.')
            };
            Ok((!procedures.any(is_qualified)).into())
        },
    ));
    all
}

/// The functions of one of [`KINDS`].
fn kind<const K: usize>(finder: &'static str, shown: &'static str) -> [Definition; 4] {
    [
        function(finder, &["text"], shown, |call| {
            Ok(show(call.view, KINDS[K], &found(call, KINDS[K])))
        }),
        function(FOUND[K], &["text"], "oid", |call| Ok(found(call, KINDS[K]))),
        function(SHOWN[K], &["oid"], shown, |call| {
            Ok(show(call.view, KINDS[K], call.at(0)))
        }),
        function(READ[K], &["any"], "oid", |call| {
            call.oid(0, KINDS[K]).map(Cell::Int)
        }),
    ]
}

/// The number of a name, NULL for one that is not there. A number is no name.
fn found(call: &Call<'_>, kind: Reg) -> Cell {
    let name = call.text(0);
    if name.trim().parse::<u32>().is_ok() {
        return Cell::Null;
    }
    resolve(call.view, kind, name).map_or(Cell::Null, Cell::Int)
}

/// The number that a number, the text of one, or a name means.
pub(super) fn oid_of(view: &CatalogView, kind: Reg, cell: &Cell) -> Result<i64, SqlError> {
    match cell {
        Cell::Text(text) => resolve(view, kind, text),
        other => Ok(other.int().unwrap_or(0)),
    }
}

/// Reads a text as PostgreSQL reads a value of the type.
pub(crate) fn resolve(view: &CatalogView, kind: Reg, text: &str) -> Result<i64, SqlError> {
    let trimmed = text.trim();
    if let Ok(oid) = trimmed.parse::<u32>() {
        return Ok(oid.into());
    }
    if trimmed == "-" {
        return Ok(0);
    }
    let missing = |what: &str| {
        SqlError::new(
            ErrorKind::UndefinedObject,
            format!("{what} \"{trimmed}\" does not exist"),
        )
    };
    let invalid = || SqlError::new(ErrorKind::InvalidName, "invalid name syntax");
    let name_parts = || split_name(trimmed).ok_or_else(invalid);
    match kind {
        Reg::Class => {
            let parts = name_parts()?;
            let found = match &parts[..] {
                [name] => view.class_named(None, name),
                [schema, name] => view.class_named(Some(schema), name),
                [database, schema, name] if *database == view.database => {
                    view.class_named(Some(schema), name)
                }
                _ => None,
            };
            found
                .map(|class| class.oid.into())
                .ok_or_else(|| undefined_relation(trimmed))
        }
        Reg::Type => types::oid_of_sql_name(trimmed)
            .or_else(|| match &split_name(trimmed)?[..] {
                [schema, name] if schema == PG_CATALOG => types::oid_of_typname(name),
                _ => None,
            })
            .map(Into::into)
            .ok_or_else(|| missing("type")),
        Reg::Proc | Reg::Procedure => {
            let bare = trimmed.split('(').next().unwrap_or(trimmed);
            let parts = split_name(bare).ok_or_else(invalid)?;
            let name = match &parts[..] {
                [name] => name,
                [schema, name] if schema == PG_CATALOG => name,
                _ => return Err(missing("function")),
            };
            view.procedures()
                .iter()
                .find(|(_, function)| function.name == *name)
                .map(|(oid, _)| i64::from(*oid))
                .ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::UndefinedFunction,
                        format!("function \"{trimmed}\" does not exist"),
                    )
                })
        }
        Reg::Namespace => {
            let parts = name_parts()?;
            let found = view
                .schemas()
                .into_iter()
                .find(|(_, name, ..)| parts.len() == 1 && *name == parts[0]);
            found
                .map(|(oid, ..)| oid.into())
                .ok_or_else(|| undefined_schema(trimmed))
        }
        Reg::Role => {
            let parts = name_parts()?;
            match view.role_oid(&parts[0]) {
                RoleId::NONE => Err(missing("role")),
                oid => Ok(oid.into()),
            }
        }
        Reg::Operator => Err(SqlError::new(
            ErrorKind::UndefinedFunction,
            format!("operator does not exist: {trimmed}"),
        )),
        Reg::Collation => match split_name(trimmed)
            .unwrap_or_default()
            .last()
            .map(String::as_str)
        {
            Some("default") => Ok(100),
            Some("C") => Ok(950),
            Some("POSIX") => Ok(951),
            _ => Err(missing("collation")),
        },
    }
}

/// A number as PostgreSQL shows a value of the type.
fn show(view: &CatalogView, kind: Reg, cell: &Cell) -> Cell {
    let Some(oid) = cell.int() else {
        // A name read and shown again.
        return match cell {
            Cell::Text(text) => resolve(view, kind, text)
                .map_or(Cell::Null, |oid| show(view, kind, &Cell::Int(oid))),
            _ => Cell::Null,
        };
    };
    if oid == 0 {
        return "-".into();
    }
    let name = match kind {
        Reg::Class => view.class(oid).map(|class| {
            let name = quote_ident(&class.name);
            if view.is_visible(class) {
                name
            } else {
                format!("{}.{name}", quote_ident(&class.schema))
            }
        }),
        Reg::Type => types::types()
            .iter()
            .find(|ty| i64::from(ty.oid) == oid)
            .map(|ty| types::format_type(ty.oid, None)),
        Reg::Proc => function_of(view, oid).map(|function| quote_ident(&function.name)),
        Reg::Procedure => function_of(view, oid).map(|function| {
            format!(
                "{}({})",
                quote_ident(&function.name),
                function.arguments.join(",")
            )
        }),
        Reg::Namespace => view
            .schemas()
            .iter()
            .find(|(number, ..)| i64::from(*number) == oid)
            .map(|(_, name, ..)| quote_ident(name)),
        Reg::Role => view.role_name(oid).map(quote_ident),
        Reg::Operator => None,
        Reg::Collation => match oid {
            100 => Some("\"default\"".to_owned()),
            950 => Some("\"C\"".to_owned()),
            951 => Some("\"POSIX\"".to_owned()),
            _ => None,
        },
    };
    name.unwrap_or_else(|| oid.to_string()).into()
}

/// The function with this number.
pub(super) fn function_of(view: &CatalogView, oid: i64) -> Option<&super::FunctionDescription> {
    view.procedures()
        .iter()
        .find(|(number, _)| i64::from(*number) == oid)
        .map(|(_, function)| function)
}

impl Reg {
    pub(crate) fn shower(self) -> &'static str {
        SHOWN[self as usize]
    }

    pub(crate) fn reader(self) -> &'static str {
        READ[self as usize]
    }

    pub(crate) fn finder(self) -> &'static str {
        FOUND[self as usize]
    }
}
