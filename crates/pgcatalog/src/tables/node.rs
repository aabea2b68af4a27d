//! Relations of the node: databases, roles, settings, sessions.

use aerostat_catalog::RoleRecord;
use aerostat_sql::names::PG_CATALOG;

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    view::{
        facts::SessionDescription,
        numbers::{PG_AUTHID, PG_DATABASE},
        settings::all_settings,
    },
};

pub(super) const BUILDERS: [(&str, &str, Builder); 15] = [
    (PG_CATALOG, "pg_database", databases),
    (PG_CATALOG, "pg_roles", roles),
    (PG_CATALOG, "pg_authid", authids),
    (PG_CATALOG, "pg_auth_members", memberships),
    (PG_CATALOG, "pg_user", users),
    (PG_CATALOG, "pg_shadow", shadows),
    (PG_CATALOG, "pg_group", groups),
    (PG_CATALOG, "pg_tablespace", tablespaces),
    (PG_CATALOG, "pg_shdescription", descriptions),
    (PG_CATALOG, "pg_settings", settings),
    (PG_CATALOG, "pg_stat_activity", activity),
    (PG_CATALOG, "pg_stat_ssl", encryption),
    (PG_CATALOG, "pg_prepared_statements", prepared),
    (PG_CATALOG, "pg_cursors", cursors),
    (PG_CATALOG, "pg_stat_database", database_statistics),
];

/// `pg_tablespace.oid`, as in PostgreSQL.
const PG_DEFAULT: u32 = 1663;
const PG_GLOBAL: u32 = 1664;

/// `pg_encoding` of UTF-8.
const UTF8: i32 = 6;

/// What a client sees of a password.
const HIDDEN_PASSWORD: &str = "********";

fn databases(view: &CatalogView, rows: &mut Rows) {
    for (name, database) in &view.node.databases {
        rows.push([
            ("oid", database.oid.into()),
            ("datname", name.into()),
            ("datdba", view.role_oid(&database.owner).into()),
            ("encoding", UTF8.into()),
            ("datlocprovider", "c".into()),
            ("datallowconn", true.into()),
            ("datconnlimit", database.connections_max().into()),
            ("dattablespace", PG_DEFAULT.into()),
            ("datcollate", "C".into()),
            ("datctype", "C.UTF-8".into()),
            ("datacl", view.database_acl(name).into()),
        ]);
    }
}

fn role_values(name: &str, role: &RoleRecord, password: Cell) -> [(&'static str, Cell); 12] {
    [
        ("oid", role.oid.into()),
        ("rolname", name.to_owned().into()),
        ("rolsuper", role.superuser.into()),
        ("rolinherit", true.into()),
        ("rolcreaterole", (role.create_role || role.superuser).into()),
        (
            "rolcreatedb",
            (role.create_database || role.superuser).into(),
        ),
        ("rolcanlogin", role.login.into()),
        ("rolreplication", false.into()),
        ("rolbypassrls", role.superuser.into()),
        ("rolconnlimit", role.connection_limit.into()),
        ("rolpassword", password),
        ("rolvaliduntil", Cell::Null),
    ]
}

fn roles(view: &CatalogView, rows: &mut Rows) {
    for role in view.predefined_roles() {
        rows.push(role_values(
            role.name(),
            &RoleRecord::of_predefined(role),
            HIDDEN_PASSWORD.into(),
        ));
    }
    for (name, role) in &view.node.roles {
        rows.push(role_values(name, role, HIDDEN_PASSWORD.into()));
    }
}

fn authids(view: &CatalogView, rows: &mut Rows) {
    for role in view.predefined_roles() {
        rows.push(role_values(
            role.name(),
            &RoleRecord::of_predefined(role),
            Cell::Null,
        ));
    }
    for (name, role) in &view.node.roles {
        rows.push(role_values(name, role, role.verifier.clone().into()));
    }
}

fn memberships(view: &CatalogView, rows: &mut Rows) {
    let grantor = view.role_oid(view.system_owner());
    for role in view.node.roles.values() {
        for predefined in &role.member_of {
            rows.push([
                ("roleid", predefined.oid().into()),
                ("member", role.oid.into()),
                ("grantor", grantor.into()),
                ("admin_option", false.into()),
            ]);
        }
    }
}

fn user_values(name: &str, role: &RoleRecord, password: Cell) -> [(&'static str, Cell); 6] {
    [
        ("usename", name.to_owned().into()),
        ("usesysid", role.oid.into()),
        (
            "usecreatedb",
            (role.create_database || role.superuser).into(),
        ),
        ("usesuper", role.superuser.into()),
        ("usebypassrls", role.superuser.into()),
        ("passwd", password),
    ]
}

fn users(view: &CatalogView, rows: &mut Rows) {
    for (name, role) in view.node.roles.iter().filter(|(_, role)| role.login) {
        rows.push(user_values(name, role, HIDDEN_PASSWORD.into()));
    }
}

fn shadows(view: &CatalogView, rows: &mut Rows) {
    for (name, role) in view.node.roles.iter().filter(|(_, role)| role.login) {
        rows.push(user_values(name, role, role.verifier.clone().into()));
    }
}

fn groups(view: &CatalogView, rows: &mut Rows) {
    for (name, role) in view.node.roles.iter().filter(|(_, role)| !role.login) {
        rows.push([
            ("groname", name.into()),
            ("grosysid", role.oid.into()),
            ("grolist", Cell::List(Vec::new())),
        ]);
    }
}

fn tablespaces(view: &CatalogView, rows: &mut Rows) {
    for (oid, name) in [(PG_DEFAULT, "pg_default"), (PG_GLOBAL, "pg_global")] {
        rows.push([
            ("oid", oid.into()),
            ("spcname", name.into()),
            ("spcowner", view.role_oid(view.system_owner()).into()),
        ]);
    }
}

fn descriptions(view: &CatalogView, rows: &mut Rows) {
    let databases = view
        .node
        .databases
        .values()
        .map(|database| (database.oid.0, PG_DATABASE, &database.comment));
    let roles = view
        .node
        .roles
        .values()
        .map(|role| (role.oid.0, PG_AUTHID, &role.comment));
    for (oid, class, comment) in databases.chain(roles) {
        if let Some(comment) = comment {
            rows.push([
                ("objoid", oid.into()),
                ("classoid", class.into()),
                ("description", comment.into()),
            ]);
        }
    }
}

fn settings(view: &CatalogView, rows: &mut Rows) {
    for setting in all_settings(view) {
        let source = if setting.value == setting.boot_value {
            "default"
        } else {
            "session"
        };
        rows.push([
            ("setting", (&setting.value).into()),
            ("unit", Cell::text(setting.unit)),
            ("category", setting.category.into()),
            ("short_desc", setting.description.into()),
            ("context", setting.context.into()),
            ("vartype", setting.kind.into()),
            ("source", source.into()),
            ("boot_val", (&setting.boot_value).into()),
            ("reset_val", (&setting.boot_value).into()),
            ("pending_restart", false.into()),
            ("name", setting.name.into()),
        ]);
    }
}

fn activity(view: &CatalogView, rows: &mut Rows) {
    for session in view.facts.sessions() {
        // What others do is for themselves to see, and for who may see all statistics.
        let open = session.role == view.role || view.may_read_all_statistics();
        let open_only = |cell: Cell| if open { cell } else { Cell::Null };
        let time = |at: Option<i64>| open_only(at.map_or(Cell::Null, Cell::Time));
        let SessionDescription { client, .. } = &session;
        let address = client.as_ref().and_then(|client| client.address.as_ref());
        let waits = session.waits_for_place.then_some("StatementQueue");
        let query = if open {
            session.query.clone()
        } else {
            "<insufficient privilege>".to_owned()
        };
        rows.push([
            (
                "datid",
                view.node
                    .databases
                    .get(&session.database)
                    .map(|database| database.oid)
                    .into(),
            ),
            ("datname", (&session.database).into()),
            ("pid", session.pid.into()),
            ("usesysid", view.role_oid(&session.role).into()),
            ("usename", (&session.role).into()),
            ("application_name", (&session.application).into()),
            (
                "client_addr",
                open_only(address.map(|(address, _)| address).into()),
            ),
            (
                "client_port",
                open_only(client.as_ref().map(|_| client_port(address)).into()),
            ),
            ("backend_start", time(Some(session.connected_at_us))),
            ("xact_start", time(session.transaction_at_us)),
            ("query_start", time(session.query_at_us)),
            ("state_change", time(session.state_at_us)),
            (
                "wait_event_type",
                open_only(waits.map(|_| "Extension").into()),
            ),
            ("wait_event", open_only(waits.into())),
            ("state", open_only(session.state.into())),
            ("query", query.into()),
            ("backend_type", "client backend".into()),
        ]);
    }
}

/// As PostgreSQL tells it: −1 for a client on a Unix-domain socket.
fn client_port(address: Option<&(String, u16)>) -> i32 {
    address.map_or(-1, |(_, port)| i32::from(*port))
}

fn encryption(view: &CatalogView, rows: &mut Rows) {
    for session in view.facts.sessions() {
        let open = view.superuser || session.role == view.role;
        let Some(client) = session.client.filter(|_| open) else {
            continue;
        };
        let tls = client.tls.as_ref();
        rows.push([
            ("pid", session.pid.into()),
            ("ssl", tls.is_some().into()),
            ("version", tls.map(|tls| tls.version).into()),
            ("cipher", tls.map(|tls| &tls.cipher).into()),
            ("bits", tls.map(|tls| i32::from(tls.bits)).into()),
        ]);
    }
}

fn cursors(view: &CatalogView, rows: &mut Rows) {
    for cursor in view.facts.cursors() {
        rows.push([
            ("name", cursor.name.into()),
            ("statement", cursor.statement.to_string().into()),
            ("is_holdable", cursor.is_holdable.into()),
            // DECLARE BINARY is refused.
            ("is_binary", false.into()),
            ("is_scrollable", cursor.is_scrollable.into()),
            ("creation_time", Cell::Time(cursor.created_at_us)),
        ]);
    }
}

fn prepared(view: &CatalogView, rows: &mut Rows) {
    for statement in view.facts.prepared_statements() {
        rows.push([
            ("name", statement.name.into()),
            ("statement", statement.statement.into()),
            ("prepare_time", Cell::Time(statement.prepared_at_us)),
            ("parameter_types", statement.parameters.into()),
            ("from_sql", statement.is_from_sql.into()),
            ("generic_plans", statement.generic_plans.into()),
            ("custom_plans", statement.custom_plans.into()),
        ]);
    }
}

fn database_statistics(view: &CatalogView, rows: &mut Rows) {
    let sessions = view.facts.sessions();
    for (name, database) in &view.node.databases {
        rows.push([
            ("datid", database.oid.into()),
            ("datname", name.into()),
            (
                "numbackends",
                sessions
                    .iter()
                    .filter(|session| session.database == *name)
                    .count()
                    .into(),
            ),
        ]);
    }
}
