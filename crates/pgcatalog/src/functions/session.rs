//! Functions about the session and the node: user, address, settings.

use aerostat_types::{Encoding, ErrorKind, Named, SchemaId, SqlError, encoding_names};

use super::{Call, Definition, function};
use crate::{Setting, cell::Cell, view::settings::all_settings};

/// The channels that the session listens on, as an array that `pg_listening_channels` unfolds.
pub(crate) const LISTENING: &str = "\u{1}listening";

pub(super) fn definitions() -> Vec<Definition> {
    let optional = |definition: Definition| Definition {
        takes_null: true,
        ..definition
    };
    vec![
        function("version", &[], "text", |call| {
            Ok(call.view.facts.version().into())
        }),
        function("current_database", &[], "name", |call| {
            Ok((&call.view.database).into())
        }),
        function("current_catalog", &[], "name", |call| {
            Ok((&call.view.database).into())
        }),
        function("current_schema", &[], "name", |call| {
            let (path, implicit) = (call.view.effective_path(), call.view.implicit_temporary());
            // The catalogue counts where the path names it.
            let named = call.view.search_path.iter();
            let with_catalog = named.clone().any(|schema| schema == "pg_catalog");
            Ok(path
                .iter()
                .find(|schema| {
                    (with_catalog || **schema != "pg_catalog") && Some(**schema) != implicit
                })
                .map(|schema| (*schema).to_owned())
                .into())
        }),
        function("current_schemas", &["bool"], "_name", |call| {
            let with_implicit = call.truth(0)
                || call
                    .view
                    .search_path
                    .iter()
                    .any(|schema| schema == "pg_catalog");
            let (path, implicit) = (call.view.effective_path(), call.view.implicit_temporary());
            let shown = path.iter().filter(|schema| match Some(**schema) {
                temporary if temporary == implicit => call.truth(0),
                Some("pg_catalog") => with_implicit,
                _ => true,
            });
            Ok(shown
                .map(|schema| (*schema).to_owned())
                .collect::<Vec<_>>()
                .into())
        }),
        function("current_user", &[], "name", |call| {
            Ok((&call.view.role).into())
        }),
        function("user", &[], "name", |call| Ok((&call.view.role).into())),
        function("current_role", &[], "name", |call| {
            Ok((&call.view.role).into())
        }),
        function("session_user", &[], "name", |call| {
            Ok((&call.view.session_role).into())
        }),
        function("pg_backend_pid", &[], "int4", |call| {
            Ok(call.view.backend_pid.into())
        }),
        function("pg_postmaster_start_time", &[], "timestamptz", |call| {
            Ok(Cell::Time(call.view.facts.started_at_us()))
        }),
        function("pg_conf_load_time", &[], "timestamptz", |call| {
            Ok(Cell::Time(call.view.facts.started_at_us()))
        }),
        Definition {
            takes_null: true,
            acts: true,
            ..function("pg_notify", &["text", "text"], "shown:void", |call| {
                call.view.facts.notify(call.text(0), call.text(1))?;
                Ok("".into())
            })
        },
        function(LISTENING, &[], "_text", |call| {
            Ok(call.view.facts.listening().into())
        }),
        function("pg_is_wal_replay_paused", &[], "bool", |_| Ok(false.into())),
        function("pg_jit_available", &[], "bool", |_| Ok(false.into())),
        function("pg_my_temp_schema", &[], "oid", |call| {
            let schema = call.view.state.temporary();
            Ok(schema.map_or(SchemaId::NONE, |schema| schema.oid).into())
        }),
        function("pg_is_other_temp_schema", &["oid"], "bool", |_| {
            Ok(false.into())
        }),
        function("inet_server_addr", &[], "inet", |call| {
            Ok(call
                .view
                .facts
                .server_address()
                .map(|(address, _)| address)
                .into())
        }),
        function("inet_server_port", &[], "int4", |call| {
            Ok(call
                .view
                .facts
                .server_address()
                .map(|(_, port)| i32::from(port))
                .into())
        }),
        function("inet_client_addr", &[], "inet", |call| {
            Ok(call
                .view
                .facts
                .client_address()
                .map(|(address, _)| address)
                .into())
        }),
        function("inet_client_port", &[], "int4", |call| {
            Ok(call
                .view
                .facts
                .client_address()
                .map(|(_, port)| i32::from(port))
                .into())
        }),
        function("getdatabaseencoding", &[], "name", |_| Ok("UTF8".into())),
        function("pg_client_encoding", &[], "name", |call| {
            let mut settings = call.view.facts.settings().into_iter();
            let encoding = settings.find(|setting| setting.name == "client_encoding");
            Ok(encoding.map(|setting| setting.value).into())
        }),
        function("pg_encoding_to_char", &["int4"], "name", |call| {
            let mut all = encoding_names();
            let found = all.find(|(number, _)| Some(i64::from(*number)) == call.int(0));
            Ok(found.map_or("", |(_, name)| name).into())
        }),
        function("pg_char_to_encoding", &["name"], "int4", |call| {
            let name = match Encoding::named(call.text(0)) {
                Some(Named::Spoken(encoding)) => Some(encoding.name()),
                Some(Named::Unspoken(name)) => Some(name),
                None => None,
            };
            let found = encoding_names().find(|(_, known)| Some(*known) == name);
            Ok(found.map_or(-1, |(number, _)| i64::from(number)).into())
        }),
        optional(function(
            "current_setting",
            &["text", "bool?"],
            "text",
            current_setting,
        )),
        Definition {
            takes_null: true,
            acts: true,
            ..function("set_config", &["text", "text", "bool"], "text", |call| {
                set_config(call)
            })
        },
    ]
}

fn set_config(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (name, value) = (call.text(0), call.text(1));
    let is = |setting: &Setting| setting.name.eq_ignore_ascii_case(name);
    let view = call.view;
    if view.facts.settings().iter().any(is) {
        return view.facts.set(name, value, call.truth(2)).map(Into::into);
    }
    // A preset may be set to what it is: drivers turn off what is off already.
    match all_settings(view).into_iter().find(is) {
        Some(preset) if preset.value == value => Ok(preset.value.into()),
        Some(preset) => Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            format!("parameter \"{}\" cannot be changed", preset.name),
        )),
        None => view.facts.set(name, value, call.truth(2)).map(Into::into),
    }
}

fn current_setting(call: &Call<'_>) -> Result<Cell, SqlError> {
    let name = call.text(0);
    match all_settings(call.view)
        .into_iter()
        .find(|setting| setting.name.eq_ignore_ascii_case(name))
    {
        Some(setting) => Ok(setting.value.into()),
        None if call.truth(1) || *call.at(0) == Cell::Null => Ok(Cell::Null),
        None => Err(SqlError::new(
            ErrorKind::UndefinedObject,
            format!("unrecognized configuration parameter \"{name}\""),
        )),
    }
}
