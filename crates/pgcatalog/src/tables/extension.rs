//! The built-in objects of every database, as PostgreSQL's tools see them: an extension with the
//! schema `aerostat`, its views and functions, and the initial privileges of the system's schemas.
//!
//! `pg_dump` writes everything in a schema whose name it does not know. It leaves out members of
//! a built-in extension, and privileges that are still the initial ones.

use aerostat_catalog::{AEROSTAT_OID, INFORMATION_SCHEMA_OID, PG_CATALOG_OID};
use aerostat_sql::names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG};

use super::Builder;
use crate::{
    CatalogView,
    cell::Rows,
    view::numbers::{EXTENSION_OID, PG_CLASS, PG_NAMESPACE, PG_PROC},
};

pub(super) const BUILDERS: [(&str, &str, Builder); 2] = [
    (PG_CATALOG, "pg_extension", extensions),
    (PG_CATALOG, "pg_init_privs", first_rights),
];

fn extensions(view: &CatalogView, rows: &mut Rows) {
    rows.push([
        ("oid", EXTENSION_OID.into()),
        ("extname", AEROSTAT.into()),
        ("extowner", view.role_oid(view.system_owner()).into()),
        ("extnamespace", AEROSTAT_OID.into()),
        ("extrelocatable", false.into()),
        ("extversion", env!("CARGO_PKG_VERSION").into()),
    ]);
}

fn first_rights(view: &CatalogView, rows: &mut Rows) {
    for (oid, name) in [
        (PG_CATALOG_OID, PG_CATALOG),
        (INFORMATION_SCHEMA_OID, INFORMATION_SCHEMA),
        (AEROSTAT_OID, AEROSTAT),
    ] {
        rows.push([
            ("objoid", oid.into()),
            ("classoid", PG_NAMESPACE.into()),
            ("objsubid", 0.into()),
            ("privtype", "i".into()),
            ("initprivs", view.schema_acl(name).into()),
        ]);
    }
}

/// What is a part of the extension: catalogues and numbers.
pub(super) fn members(view: &CatalogView) -> impl Iterator<Item = (u32, u32)> {
    let classes = view.classes().iter();
    let own = classes.filter(|class| class.schema_oid == AEROSTAT_OID);
    let functions = view.procedures().iter();
    let own_functions = functions.filter(|(_, function)| function.name.contains('.'));
    [(PG_NAMESPACE, AEROSTAT_OID.0)]
        .into_iter()
        .chain(own.map(|class| (PG_CLASS, class.oid)))
        .chain(own_functions.map(|(oid, _)| (PG_PROC, *oid)))
}
