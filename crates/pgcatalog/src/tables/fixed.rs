//! Relations that are the same in every database: types, functions, operators, casts, access
//! methods, languages, collations.

use aerostat_catalog::{AEROSTAT_OID, PG_CATALOG_OID};
use aerostat_sql::names::PG_CATALOG;
use aerostat_types::KeywordCategory;

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    data, types,
    view::{
        facts::FunctionKind,
        numbers::{BTREE, HASH, HEAP},
    },
};

pub(super) const BUILDERS: [(&str, &str, Builder); 13] = [
    (PG_CATALOG, "pg_type", pg_types),
    (PG_CATALOG, "pg_proc", procedures),
    (PG_CATALOG, "pg_aggregate", aggregates),
    (PG_CATALOG, "pg_am", access_methods),
    (PG_CATALOG, "pg_language", languages),
    (PG_CATALOG, "pg_collation", collations),
    (PG_CATALOG, "pg_cast", casts),
    (PG_CATALOG, "pg_operator", operators),
    (PG_CATALOG, "pg_opclass", operator_classes),
    (PG_CATALOG, "pg_opfamily", operator_families),
    (PG_CATALOG, "pg_timezone_names", time_zones),
    (PG_CATALOG, "pg_get_keywords", keywords),
    ("aerostat", "integers", integers),
];

/// The number of the language of built-in functions.
const INTERNAL: u32 = 12;

/// One less than the most columns a relation has, and more than the longest array in the catalogue.
const INTEGERS: i64 = 1_664;

fn integer(value: Option<&str>) -> Cell {
    value.and_then(|text| text.parse::<i64>().ok()).into()
}

fn truth(value: Option<&str>) -> Cell {
    (value == Some("t")).into()
}

fn pg_types(view: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_TYPE);
    let owner = view.role_oid(view.system_owner());
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("typname", Cell::text(get("typname"))),
            ("typnamespace", PG_CATALOG_OID.into()),
            ("typowner", owner.into()),
            ("typlen", integer(get("typlen"))),
            ("typbyval", truth(get("typbyval"))),
            ("typtype", Cell::text(get("typtype"))),
            ("typcategory", Cell::text(get("typcategory"))),
            ("typispreferred", truth(get("typispreferred"))),
            ("typisdefined", true.into()),
            ("typdelim", Cell::text(get("typdelim"))),
            ("typsubscript", integer(get("typsubscript"))),
            ("typelem", integer(get("typelem"))),
            ("typarray", integer(get("typarray"))),
            ("typinput", integer(get("typinput"))),
            ("typoutput", integer(get("typoutput"))),
            ("typreceive", integer(get("typreceive"))),
            ("typsend", integer(get("typsend"))),
            ("typalign", Cell::text(get("typalign"))),
            ("typstorage", Cell::text(get("typstorage"))),
            ("typtypmod", (-1).into()),
            ("typcollation", integer(get("typcollation"))),
        ]);
    }
}

fn procedures(view: &CatalogView, rows: &mut Rows) {
    let owner = view.role_oid(view.system_owner());
    for (oid, function) in view.procedures() {
        let arguments: Vec<u32> = function
            .arguments
            .iter()
            .map(|ty| types::oid_of_sql_name(ty).unwrap_or(2276))
            .collect();
        let (schema, name) = match function.name.split_once('.') {
            Some((_, name)) => (AEROSTAT_OID, name),
            None => (PG_CATALOG_OID, function.name.as_str()),
        };
        rows.push([
            ("oid", (*oid).into()),
            ("pronamespace", schema.into()),
            ("proowner", owner.into()),
            ("prolang", INTERNAL.into()),
            ("procost", 1.0.into()),
            ("prokind", function.kind.prokind().into()),
            ("provolatile", "s".into()),
            ("proparallel", "s".into()),
            ("pronargs", arguments.len().into()),
            (
                "prorettype",
                types::oid_of_sql_name(&function.result)
                    .unwrap_or(2276)
                    .into(),
            ),
            ("proargtypes", arguments.into()),
            ("prosrc", name.to_owned().into()),
            ("proname", name.to_owned().into()),
        ]);
    }
}

fn aggregates(view: &CatalogView, rows: &mut Rows) {
    for (oid, _) in view
        .procedures()
        .iter()
        .filter(|(_, function)| function.kind == FunctionKind::Aggregate)
    {
        rows.push([
            ("aggfnoid", (*oid).into()),
            ("aggkind", "n".into()),
            ("aggfinalmodify", "r".into()),
            ("aggmfinalmodify", "r".into()),
        ]);
    }
}

fn access_methods(_: &CatalogView, rows: &mut Rows) {
    rows.push([
        ("oid", HEAP.into()),
        ("amname", "heap".into()),
        ("amtype", "t".into()),
    ]);
    rows.push([
        ("oid", BTREE.into()),
        ("amname", "btree".into()),
        ("amtype", "i".into()),
    ]);
    rows.push([
        ("oid", HASH.into()),
        ("amname", "hash".into()),
        ("amtype", "i".into()),
    ]);
}

fn languages(view: &CatalogView, rows: &mut Rows) {
    rows.push([
        ("oid", INTERNAL.into()),
        ("lanname", "internal".into()),
        ("lanowner", view.role_oid(view.system_owner()).into()),
    ]);
}

fn collations(view: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_COLLATION);
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("collname", Cell::text(get("collname"))),
            ("collnamespace", PG_CATALOG_OID.into()),
            ("collowner", view.role_oid(view.system_owner()).into()),
            ("collprovider", Cell::text(get("collprovider"))),
            ("collisdeterministic", truth(get("collisdeterministic"))),
            ("collencoding", integer(get("collencoding"))),
            ("collcollate", Cell::text(get("collcollate"))),
            ("collctype", Cell::text(get("collctype"))),
        ]);
    }
}

fn casts(_: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_CAST);
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("castsource", integer(get("castsource"))),
            ("casttarget", integer(get("casttarget"))),
            ("castfunc", integer(get("castfunc"))),
            ("castcontext", Cell::text(get("castcontext"))),
            ("castmethod", Cell::text(get("castmethod"))),
        ]);
    }
}

fn operators(view: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_OPERATOR);
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("oprname", Cell::text(get("oprname"))),
            ("oprnamespace", PG_CATALOG_OID.into()),
            ("oprowner", view.role_oid(view.system_owner()).into()),
            ("oprkind", Cell::text(get("oprkind"))),
            ("oprcanmerge", truth(get("oprcanmerge"))),
            ("oprcanhash", truth(get("oprcanhash"))),
            ("oprleft", integer(get("oprleft"))),
            ("oprright", integer(get("oprright"))),
            ("oprresult", integer(get("oprresult"))),
            ("oprcom", integer(get("oprcom"))),
            ("oprnegate", integer(get("oprnegate"))),
            ("oprcode", integer(get("oprcode"))),
        ]);
    }
}

fn operator_classes(view: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_OPCLASS);
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("opcmethod", integer(get("opcmethod"))),
            ("opcname", Cell::text(get("opcname"))),
            ("opcnamespace", PG_CATALOG_OID.into()),
            ("opcowner", view.role_oid(view.system_owner()).into()),
            ("opcfamily", integer(get("opcfamily"))),
            ("opcintype", integer(get("opcintype"))),
            ("opcdefault", truth(get("opcdefault"))),
            ("opckeytype", integer(get("opckeytype"))),
        ]);
    }
}

fn operator_families(view: &CatalogView, rows: &mut Rows) {
    let table = data::Table::read(data::PG_OPFAMILY);
    for row in &table.rows {
        let get = |column: &str| table.value(row, column);
        rows.push([
            ("oid", integer(get("oid"))),
            ("opfmethod", integer(get("opfmethod"))),
            ("opfname", Cell::text(get("opfname"))),
            ("opfnamespace", PG_CATALOG_OID.into()),
            ("opfowner", view.role_oid(view.system_owner()).into()),
        ]);
    }
}

fn time_zones(_: &CatalogView, rows: &mut Rows) {
    let now = chrono::Utc::now().timestamp_micros();
    for zone in aerostat_types::Zone::all() {
        let seconds = zone.offset_at(now);
        let sign = if seconds < 0 { "-" } else { "" };
        let (hours, minutes) = (seconds.abs() / 3_600, seconds.abs() / 60 % 60);
        rows.push([
            ("name", zone.name().to_owned().into()),
            ("abbrev", zone.abbreviation_at(now).into()),
            (
                "utc_offset",
                format!("{sign}{hours:02}:{minutes:02}:00").into(),
            ),
            ("is_dst", zone.is_summer_at(now).into()),
        ]);
    }
}

fn keywords(_: &CatalogView, rows: &mut Rows) {
    for keyword in aerostat_types::keywords() {
        let (code, description) = match keyword.category {
            KeywordCategory::Unreserved => ("U", "unreserved"),
            KeywordCategory::ColumnName => ("C", "unreserved (cannot be function or type name)"),
            KeywordCategory::TypeOrFunctionName => ("T", "reserved (can be function or type name)"),
            KeywordCategory::Reserved => ("R", "reserved"),
        };
        rows.push([
            ("word", keyword.word.into()),
            ("catcode", code.into()),
            ("barelabel", keyword.is_bare_label.into()),
            ("catdesc", description.into()),
            (
                "baredesc",
                if keyword.is_bare_label {
                    "can be bare label"
                } else {
                    "requires AS"
                }
                .into(),
            ),
        ]);
    }
}

fn integers(_: &CatalogView, rows: &mut Rows) {
    for n in 0..=INTEGERS {
        rows.push([("n", n.into())]);
    }
}
