//! Definitions and descriptions of catalogue entries.

use aerostat_catalog::{ForeignKey, TableEntry};
use aerostat_types::SqlError;

use super::{Call, Definition, Reg, function, names::function_of};
use crate::{
    CatalogView,
    cell::Cell,
    data, types,
    view::{
        classes::{Class, ClassKind},
        definition,
        numbers::{EXTENSION_COMMENT, EXTENSION_OID, PG_CLASS, derived_oid},
        parts::{constraint_oids, index_columns, index_comment},
    },
};

pub(super) fn definitions() -> Vec<Definition> {
    let mut all = vec![
        // Expressions are kept as SQL text; all there is to deparse is numbers of sequences.
        function(
            "pg_get_expr",
            &["pg_node_tree", "oid", "bool?"],
            "text",
            |call| Ok(call.view.shown_default(call.text(0)).into()),
        ),
        function(
            "pg_get_constraintdef",
            &["oid", "bool?"],
            "text",
            constraint,
        ),
        function("pg_get_indexdef", &["oid", "int4?", "bool?"], "text", index),
        function("pg_get_viewdef", &["oid", "bool?"], "text", view),
        function("pg_get_function_result", &["oid"], "text", |call| {
            Ok(of_function(call, |f| f.result.clone()))
        }),
        function("pg_get_function_arguments", &["oid"], "text", |call| {
            Ok(of_function(call, |f| f.arguments.join(", ")))
        }),
        function(
            "pg_get_function_identity_arguments",
            &["oid"],
            "text",
            |call| Ok(of_function(call, |f| f.arguments.join(", "))),
        ),
        function("pg_get_functiondef", &["oid"], "text", |call| {
            Ok(of_function(call, |f| {
                format!(
                    "CREATE OR REPLACE FUNCTION pg_catalog.{}({})\n RETURNS {}\n LANGUAGE internal\n STABLE\nAS $function${}$function$\n",
                    f.name,
                    f.arguments.join(", "),
                    f.result,
                    f.name,
                )
            }))
        }),
        Definition {
            takes_null: true,
            ..function("format_type", &["oid", "int4"], "text", |call| {
                let Some(oid) = call.int(0) else {
                    return Ok(Cell::Null);
                };
                let typmod = call.int(1).and_then(|typmod| i32::try_from(typmod).ok());
                Ok(types::format_type(u32::try_from(oid).unwrap_or(u32::MAX), typmod).into())
            })
        },
        function("obj_description", &["oid", "name?"], "text", describe),
        function("shobj_description", &["oid", "name"], "text", |call| {
            let node = &call.view.node;
            let is = |oid: i64| Some(oid) == call.int(0);
            let comment = match call.text(1) {
                "pg_database" => node
                    .databases
                    .values()
                    .find(|database| is(database.oid.into()))
                    .map(|found| &found.comment),
                "pg_authid" => node
                    .roles
                    .values()
                    .find(|role| is(role.oid.into()))
                    .map(|found| &found.comment),
                _ => None,
            };
            Ok(comment.cloned().flatten().into())
        }),
        function("col_description", &["oid", "int4"], "text", |call| {
            let class = call.view.class(call.oid(0, Reg::Class)?);
            let comment = class.and_then(|class| {
                let at = usize::try_from(call.int(1)?).ok()?.checked_sub(1)?;
                class.column_comment(&class.columns().get(at)?.name)
            });
            Ok(comment.map(str::to_owned).into())
        }),
        // Of PostgreSQL's rows, of which there are none without partitions, the NULL.
        function("pg_partition_ancestors", &["regclass"], "oid", |_| {
            Ok(Cell::Null)
        }),
        function("pg_relation_is_publishable", &["regclass"], "bool", |_| {
            Ok(false.into())
        }),
        function(
            "pg_relation_is_updatable",
            &["regclass", "bool"],
            "int4",
            |call| {
                // Bits 2 to 4: UPDATE, INSERT, DELETE.
                let class = call.view.class(call.oid(0, Reg::Class)?);
                Ok(class
                    .map_or(0, |class| if class.table().is_some() { 28 } else { 0 })
                    .into())
            },
        ),
        function(
            "pg_column_is_updatable",
            &["regclass", "int2", "bool"],
            "bool",
            |call| {
                Ok(call
                    .view
                    .class(call.oid(0, Reg::Class)?)
                    .is_some_and(|class| class.table().is_some())
                    .into())
            },
        ),
        function("pg_relation_filenode", &["regclass"], "oid", |call| {
            Ok(call
                .view
                .class(call.oid(0, Reg::Class)?)
                .map(|class| class.oid)
                .into())
        }),
        function(
            "pg_tablespace_location",
            &["oid"],
            "text",
            |_| Ok("".into()),
        ),
        function(
            "pg_index_column_has_property",
            &["regclass", "int4", "text"],
            "bool",
            index_column_property,
        ),
        function(
            "pg_index_has_property",
            &["regclass", "text"],
            "bool",
            |_| Ok(false.into()),
        ),
        function(
            "pg_indexam_has_property",
            &["oid", "text"],
            "bool",
            |call| {
                Ok((matches!(call.text(1), "can_unique" | "can_multi_col" | "can_order")).into())
            },
        ),
        function(
            "pg_describe_object",
            &["oid", "oid", "int4"],
            "text",
            |call| {
                let class = call.int(1).and_then(|oid| call.view.class(oid));
                Ok(class
                    .filter(|_| call.int(0) == Some(PG_CLASS.into()))
                    .map(|class| {
                        let kind = match class.relkind() {
                            "v" => "view",
                            "i" => "index",
                            "S" => "sequence",
                            _ => "table",
                        };
                        format!("{kind} {}", class.name)
                    })
                    .into())
            },
        ),
    ];
    // What Aerostat has none of has no definition either.
    all.extend(
        [
            "pg_get_ruledef",
            "pg_get_triggerdef",
            "pg_get_statisticsobjdef",
            "pg_get_statisticsobjdef_columns",
            "pg_get_partkeydef",
            "pg_get_partition_constraintdef",
            "pg_get_function_sqlbody",
        ]
        .map(|name| function(name, &["oid", "bool?"], "text", |_| Ok(Cell::Null))),
    );
    all.push(function(
        "pg_get_function_arg_default",
        &["oid", "int4"],
        "text",
        |_| Ok(Cell::Null),
    ));
    all
}

fn constraint(call: &Call<'_>) -> Result<Cell, SqlError> {
    let Some(oid) = call.int(0) else {
        return Ok(Cell::Null);
    };
    if let Some(class) = call.view.class(oid) {
        return Ok(match &class.kind {
            ClassKind::Index(table, index) if index.is_constraint => {
                definition::of_key(table, index).into()
            }
            _ => Cell::Null,
        });
    }
    for class in call.view.classes() {
        let Some(table) = class.table() else { continue };
        for (at, check) in table.table.schema().checks.iter().enumerate() {
            if i64::from(derived_oid(class.oid, at)) == oid {
                return Ok(definition::of_check(check, call.truth(1)).into());
            }
        }
        let keys = &table.foreign_keys;
        if let Some(key) = keys.iter().find(|key| i64::from(key.oid) == oid) {
            return Ok(foreign_key(call, table, key));
        }
    }
    Ok(Cell::Null)
}

fn foreign_key(call: &Call<'_>, table: &TableEntry, key: &ForeignKey) -> Cell {
    let Some(class) = call.view.class(key.referenced.into()) else {
        return Cell::Null;
    };
    let Some(referenced) = class.table() else {
        return Cell::Null;
    };
    let mut name = aerostat_types::quote_ident(&class.name).to_string();
    if !call.view.is_visible(class) {
        name = format!("{}.{name}", aerostat_types::quote_ident(&class.schema));
    }
    definition::of_foreign_key(table, key, &name, referenced).into()
}

fn index(call: &Call<'_>) -> Result<Cell, SqlError> {
    let class = call.view.class(call.oid(0, Reg::Class)?);
    let Some((class, ClassKind::Index(table, index))) = class.map(|class| (class, &class.kind))
    else {
        return Ok(Cell::Null);
    };
    Ok(match call.int(1) {
        None | Some(0) => {
            // The pretty form leaves out the schema of a table that its bare name means.
            let visible = call
                .view
                .class(table.oid.into())
                .is_some_and(|table| call.view.is_visible(table));
            definition::of_index(class, table, index, !(call.truth(2) && visible)).into()
        }
        Some(column) => usize::try_from(column - 1)
            .ok()
            .and_then(|at| index_columns(table, index).nth(at))
            .map(|column| aerostat_types::quote_ident(&column.name))
            .into(),
    })
}

fn view(call: &Call<'_>) -> Result<Cell, SqlError> {
    Ok(
        match call
            .view
            .class(call.oid(0, Reg::Class)?)
            .map(|class| &class.kind)
        {
            Some(ClassKind::View(view)) => definition::of_view(view).into(),
            _ => Cell::Null,
        },
    )
}

fn of_function(call: &Call<'_>, of: impl Fn(&super::FunctionDescription) -> String) -> Cell {
    call.int(0)
        .and_then(|oid| function_of(call.view, oid))
        .map(of)
        .into()
}

fn constraint_comment(view: &CatalogView, oid: i64) -> Option<String> {
    let tables = view.classes().iter().filter_map(Class::table);
    let mut all = tables.flat_map(|table| {
        let constraints = constraint_oids(table).into_iter();
        constraints.map(move |(number, name)| (table, number, name))
    });
    let (table, _, name) = all.find(|(_, number, _)| i64::from(*number) == oid)?;
    table.part_comments.constraints.get(name.as_ref()).cloned()
}

fn describe(call: &Call<'_>) -> Result<Cell, SqlError> {
    let Some(oid) = call.int(0).or_else(|| call.oid(0, Reg::Class).ok()) else {
        return Ok(Cell::Null);
    };
    let catalog = match call.at(1) {
        Cell::Null => None,
        _ => Some(call.text(1)),
    };
    let is = |name: &str| catalog.is_none_or(|catalog| catalog == name);
    if is("pg_class")
        && let Some(class) = call.view.class(oid)
    {
        return Ok(match &class.kind {
            ClassKind::Table(table) => table.comment.clone().into(),
            ClassKind::View(view) => view.comment.clone().into(),
            ClassKind::Sequence(sequence) => sequence.comment.clone().into(),
            ClassKind::Index(table, index) => index_comment(table, index).map(str::to_owned).into(),
            ClassKind::System(_) => Cell::Null,
        });
    }
    if catalog == Some("pg_constraint") {
        return Ok(constraint_comment(call.view, oid).into());
    }
    if catalog == Some("pg_extension") && oid == i64::from(EXTENSION_OID) {
        return Ok(EXTENSION_COMMENT.into());
    }
    if is("pg_namespace")
        && let Some((.., comment)) = call
            .view
            .schemas()
            .into_iter()
            .find(|(number, ..)| i64::from(*number) == oid)
    {
        return Ok(comment.map(str::to_owned).into());
    }
    if is("pg_type") {
        let table = data::Table::read(data::PG_TYPE);
        let number = oid.to_string();
        let row = table
            .rows
            .iter()
            .find(|row| table.value(row, "oid") == Some(number.as_str()));
        return Ok(Cell::text(
            row.and_then(|row| table.value(row, "description")),
        ));
    }
    Ok(Cell::Null)
}

fn index_column_property(call: &Call<'_>) -> Result<Cell, SqlError> {
    Ok(match call.text(2) {
        "asc" | "nulls_last" | "orderable" | "returnable" | "search_nulls" => Some(true),
        "desc" | "nulls_first" | "distance_orderable" | "search_array" => Some(false),
        _ => None,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use crate::{
        data,
        view::numbers::{PG_AUTHID, PG_CLASS, PG_DATABASE, PG_NAMESPACE, PG_TYPE},
    };

    #[test]
    fn catalogues_have_postgresqls_numbers() {
        for (name, oid) in [
            ("pg_class", PG_CLASS),
            ("pg_namespace", PG_NAMESPACE),
            ("pg_type", PG_TYPE),
            ("pg_database", PG_DATABASE),
            ("pg_authid", PG_AUTHID),
        ] {
            assert_eq!(data::relation("pg_catalog", name).unwrap().oid, oid);
        }
    }
}
