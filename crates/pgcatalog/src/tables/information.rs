//! The standard's information schema. Each view is limited to what the role may use, as the
//! standard demands.

use aerostat_catalog::{PUBLIC, sequence::Definition};
use aerostat_sql::names::{INFORMATION_SCHEMA, PG_CATALOG};
use aerostat_types::SqlType;

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    types,
    view::{
        classes::{Class, ClassKind},
        definition,
        facts::FunctionKind,
        rights::PRIVILEGES,
    },
};

pub(super) const BUILDERS: [(&str, &str, Builder); 12] = [
    (
        INFORMATION_SCHEMA,
        "information_schema_catalog_name",
        catalog_name,
    ),
    (INFORMATION_SCHEMA, "schemata", schemata),
    (INFORMATION_SCHEMA, "tables", tables),
    (INFORMATION_SCHEMA, "columns", columns),
    (INFORMATION_SCHEMA, "views", views),
    (INFORMATION_SCHEMA, "routines", routines),
    (INFORMATION_SCHEMA, "parameters", parameters),
    (INFORMATION_SCHEMA, "character_sets", character_sets),
    (INFORMATION_SCHEMA, "collations", collations),
    (INFORMATION_SCHEMA, "enabled_roles", enabled_roles),
    (INFORMATION_SCHEMA, "table_privileges", table_privileges),
    (INFORMATION_SCHEMA, "role_table_grants", role_table_grants),
];

/// Bits of the type modifier of times: microseconds.
const DATETIME_PRECISION: i32 = 6;

/// What PostgreSQL gives as the octet length of texts without limit.
const OCTETS_MAX: i32 = 1 << 30;

pub(super) fn yes(value: bool) -> Cell {
    if value { "YES" } else { "NO" }.into()
}

pub(super) fn catalog(view: &CatalogView) -> Cell {
    (&view.database).into()
}

/// The tables and views that the role may use.
pub(super) fn usable(view: &CatalogView) -> impl Iterator<Item = &Class> {
    view.classes().iter().filter(|class| {
        !matches!(class.kind, ClassKind::Index(..) | ClassKind::Sequence(_))
            && view.may_anything(&view.role, class)
    })
}

fn catalog_name(view: &CatalogView, rows: &mut Rows) {
    rows.push([("catalog_name", catalog(view))]);
}

fn schemata(view: &CatalogView, rows: &mut Rows) {
    for (_, name, owner, _) in view.schemas() {
        rows.push([
            ("catalog_name", catalog(view)),
            ("schema_name", name.to_owned().into()),
            ("schema_owner", owner.to_owned().into()),
        ]);
    }
}

fn tables(view: &CatalogView, rows: &mut Rows) {
    for class in usable(view) {
        let kind = match class.relkind() {
            _ if class.is_temporary() => "LOCAL TEMPORARY",
            "v" => "VIEW",
            _ => "BASE TABLE",
        };
        rows.push([
            ("table_catalog", catalog(view)),
            ("table_schema", (&class.schema).into()),
            ("table_name", (&class.name).into()),
            ("table_type", kind.into()),
            ("is_insertable_into", yes(class.table().is_some())),
            ("is_typed", yes(false)),
        ]);
    }
}

/// What the standard says of a type beside its name.
struct TypeFacts {
    name: String,
    udt: String,
    length: Option<i32>,
    octets: Option<i32>,
    precision: Option<i32>,
    radix: Option<i32>,
    scale: Option<i32>,
    datetime: Option<i32>,
}

impl TypeFacts {
    fn of_column(ty: SqlType) -> Self {
        let mut facts = Self::of_typname(
            types::types()
                .iter()
                .find(|row| row.oid == ty.oid())
                .map_or("", |row| &row.name),
        );
        match ty {
            SqlType::Char(n) | SqlType::Varchar(Some(n)) => {
                let n = i32::try_from(n).unwrap_or(i32::MAX);
                (facts.length, facts.octets) = (Some(n), Some(n.saturating_mul(4)));
            }
            SqlType::Numeric { precision, scale } => {
                facts.precision = Some(precision.into());
                facts.scale = Some(scale.into());
            }
            _ => {}
        }
        facts
    }

    fn of_typname(typname: &str) -> Self {
        let oid = types::oid_of_typname(typname).unwrap_or(25);
        let name = match typname {
            "bpchar" => "character".to_owned(),
            _ if typname.starts_with('_') => "ARRAY".to_owned(),
            _ => types::format_type(oid, None),
        };
        let mut facts = Self {
            name,
            udt: typname.to_owned(),
            length: None,
            octets: None,
            precision: None,
            radix: None,
            scale: None,
            datetime: None,
        };
        let integer = |bits| (Some(bits), Some(2), Some(0));
        (facts.precision, facts.radix, facts.scale) = match typname {
            "int2" => integer(16),
            "int4" => integer(32),
            "int8" => integer(64),
            "float4" => (Some(24), Some(2), None),
            "float8" => (Some(53), Some(2), None),
            "numeric" => (None, Some(10), None),
            _ => (None, None, None),
        };
        match typname {
            "text" | "varchar" | "bpchar" => facts.octets = Some(OCTETS_MAX),
            "time" | "timestamp" | "timestamptz" | "interval" => {
                facts.datetime = Some(DATETIME_PRECISION)
            }
            "date" => facts.datetime = Some(0),
            _ => {}
        }
        facts
    }
}

fn columns(view: &CatalogView, rows: &mut Rows) {
    for class in usable(view) {
        let described: Vec<(&str, TypeFacts, bool, Option<&String>)> = match &class.kind {
            ClassKind::System(relation) => relation
                .columns
                .iter()
                .map(|column| {
                    (
                        column.name,
                        TypeFacts::of_typname(column.typname),
                        column.nullable,
                        None,
                    )
                })
                .collect(),
            _ => class
                .columns()
                .iter()
                .map(|column| {
                    (
                        column.name.as_str(),
                        TypeFacts::of_column(column.ty),
                        column.nullable,
                        column.default.as_ref(),
                    )
                })
                .collect(),
        };
        for (at, (name, facts, nullable, default)) in described.into_iter().enumerate() {
            let identity = class.table().and_then(|table| {
                let identity = table.identity(at)?;
                let (_, sequence) = view.state.sequence(identity.sequence)?;
                Some((identity, &sequence.definition))
            });
            let number = |of: fn(&Definition) -> i64| -> Cell {
                identity.map(|(_, numbers)| of(numbers).to_string()).into()
            };
            rows.push([
                ("table_catalog", catalog(view)),
                ("table_schema", (&class.schema).into()),
                ("table_name", (&class.name).into()),
                ("column_name", name.to_owned().into()),
                ("ordinal_position", (at + 1).into()),
                (
                    "column_default",
                    default.map(|default| view.shown_default(default)).into(),
                ),
                ("is_nullable", yes(nullable)),
                ("data_type", facts.name.into()),
                ("character_maximum_length", facts.length.into()),
                ("character_octet_length", facts.octets.into()),
                ("numeric_precision", facts.precision.into()),
                ("numeric_precision_radix", facts.radix.into()),
                ("numeric_scale", facts.scale.into()),
                ("datetime_precision", facts.datetime.into()),
                ("udt_catalog", catalog(view)),
                ("udt_schema", PG_CATALOG.into()),
                ("udt_name", facts.udt.into()),
                ("dtd_identifier", (at + 1).to_string().into()),
                ("is_self_referencing", yes(false)),
                ("is_identity", yes(identity.is_some())),
                (
                    "identity_generation",
                    identity
                        .map(|(identity, _)| match identity.is_always {
                            true => "ALWAYS",
                            false => "BY DEFAULT",
                        })
                        .map_or(Cell::Null, Cell::from),
                ),
                ("identity_start", number(|numbers| numbers.start)),
                ("identity_increment", number(|numbers| numbers.increment)),
                ("identity_maximum", number(|numbers| numbers.max)),
                ("identity_minimum", number(|numbers| numbers.min)),
                (
                    "identity_cycle",
                    yes(identity.is_some_and(|(_, numbers)| numbers.cycles)),
                ),
                ("is_generated", "NEVER".into()),
                ("is_updatable", yes(class.table().is_some())),
            ]);
        }
    }
}

fn views(view: &CatalogView, rows: &mut Rows) {
    for class in usable(view).filter(|class| class.relkind() == "v") {
        let text = match &class.kind {
            ClassKind::View(entry) if view.superuser || entry.owner == view.role => {
                Some(definition::of_view(entry))
            }
            _ => None,
        };
        rows.push([
            ("table_catalog", catalog(view)),
            ("table_schema", (&class.schema).into()),
            ("table_name", (&class.name).into()),
            ("view_definition", text.into()),
            ("check_option", "NONE".into()),
            ("is_updatable", yes(false)),
            ("is_insertable_into", yes(false)),
            ("is_trigger_updatable", yes(false)),
            ("is_trigger_deletable", yes(false)),
            ("is_trigger_insertable_into", yes(false)),
        ]);
    }
}

fn routines(view: &CatalogView, rows: &mut Rows) {
    for (oid, function) in view.procedures() {
        if function.kind != FunctionKind::Plain {
            continue;
        }
        rows.push([
            ("specific_catalog", catalog(view)),
            ("specific_schema", PG_CATALOG.into()),
            ("specific_name", format!("{}_{oid}", function.name).into()),
            ("routine_catalog", catalog(view)),
            ("routine_schema", PG_CATALOG.into()),
            ("routine_type", "FUNCTION".into()),
            ("data_type", (&function.result).into()),
            ("routine_body", "EXTERNAL".into()),
            ("external_language", "INTERNAL".into()),
            ("parameter_style", "GENERAL".into()),
            ("security_type", "INVOKER".into()),
            ("routine_name", (&function.name).into()),
        ]);
    }
}

fn parameters(view: &CatalogView, rows: &mut Rows) {
    for (oid, function) in view.procedures() {
        for (at, argument) in function.arguments.iter().enumerate() {
            rows.push([
                ("specific_catalog", catalog(view)),
                ("specific_schema", PG_CATALOG.into()),
                ("specific_name", format!("{}_{oid}", function.name).into()),
                ("ordinal_position", (at + 1).into()),
                ("parameter_mode", "IN".into()),
                ("is_result", yes(false)),
                ("as_locator", yes(false)),
                ("data_type", argument.into()),
                ("dtd_identifier", (at + 1).to_string().into()),
            ]);
        }
    }
}

fn character_sets(view: &CatalogView, rows: &mut Rows) {
    rows.push([
        ("character_set_name", "UTF8".into()),
        ("character_repertoire", "UCS".into()),
        ("form_of_use", "UTF8".into()),
        ("default_collate_catalog", catalog(view)),
        ("default_collate_schema", PG_CATALOG.into()),
        ("default_collate_name", "C".into()),
    ]);
}

fn collations(view: &CatalogView, rows: &mut Rows) {
    for name in ["default", "C", "POSIX"] {
        rows.push([
            ("collation_catalog", catalog(view)),
            ("collation_schema", PG_CATALOG.into()),
            ("collation_name", name.into()),
            ("pad_attribute", "NO PAD".into()),
        ]);
    }
}

fn enabled_roles(view: &CatalogView, rows: &mut Rows) {
    for name in view
        .node
        .roles
        .keys()
        .filter(|name| view.superuser || **name == view.role)
    {
        rows.push([("role_name", name.into())]);
    }
}

fn privileges(view: &CatalogView, rows: &mut Rows, for_everyone: bool) {
    for class in view.classes() {
        let Some(owner) = class
            .owner()
            .filter(|_| !matches!(class.kind, ClassKind::Index(..) | ClassKind::Sequence(_)))
        else {
            continue;
        };
        let granted = class
            .grants()
            .iter()
            .map(|grant| (grant.role.as_str(), grant.privilege, false));
        let own = PRIVILEGES
            .iter()
            .map(|&(privilege, ..)| (owner, privilege, true));
        for (grantee, privilege, grantable) in own.chain(granted) {
            let everyone = grantee == PUBLIC;
            if !(view.superuser || owner == view.role || grantee == view.role || everyone)
                || (everyone && !for_everyone)
            {
                continue;
            }
            let word = PRIVILEGES
                .iter()
                .find(|(p, ..)| *p == privilege)
                .map_or("", |&(.., word)| word);
            rows.push([
                ("grantor", owner.to_owned().into()),
                (
                    "grantee",
                    if everyone {
                        "PUBLIC".to_owned()
                    } else {
                        grantee.to_owned()
                    }
                    .into(),
                ),
                ("table_catalog", catalog(view)),
                ("table_schema", (&class.schema).into()),
                ("table_name", (&class.name).into()),
                ("privilege_type", word.into()),
                ("is_grantable", yes(grantable)),
                ("with_hierarchy", yes(word == "SELECT")),
            ]);
        }
    }
}

fn table_privileges(view: &CatalogView, rows: &mut Rows) {
    privileges(view, rows, true);
}

fn role_table_grants(view: &CatalogView, rows: &mut Rows) {
    privileges(view, rows, false);
}
