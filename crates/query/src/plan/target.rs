//! The table that a DML statement changes, and how the statement names it.

use std::{ops::ControlFlow, sync::Arc};

use aerostat_catalog::{Relation, TableEntry};
use aerostat_sql::{
    grants::Privilege,
    names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG, folded},
    walk,
};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    common::TableReference,
    sql::sqlparser::ast::{
        Expr, FromTable, Ident, ObjectName, ObjectNamePart, SetExpr, Statement, TableAlias,
        TableFactor, TableObject, VisitorMut,
    },
};

use super::{StatementContext, TARGET_SCHEMA};

/// A DML target, resolved and permitted.
#[derive(Clone)]
pub struct Target {
    /// The table.
    pub entry: Arc<TableEntry>,
    /// The schema it is in.
    pub(crate) schema: String,
    /// What the statement calls it.
    pub(crate) alias: String,
}

impl Target {
    /// Resolves the target of a statement that needs this privilege.
    ///
    /// # Errors
    /// There is no such table, it is none that can be changed, or the role may not.
    pub fn resolve(
        context: &StatementContext,
        name: &ObjectName,
        alias: Option<&Ident>,
        privilege: Privilege,
    ) -> Result<Target, SqlError> {
        let (schema, relation) = named(context, name)?;
        if let Relation::Sequence(entry) = relation {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("cannot change sequence \"{}\"", entry.name),
            ));
        }
        let Relation::Table(entry) = relation else {
            return Err(SqlError::new(
                ErrorKind::ObjectNotInPrerequisiteState,
                format!("cannot change rows of view \"{}\"", relation.name()),
            )
            .with_hint("Change the rows of the table the view reads from."));
        };
        Target::admit(context, (schema, entry), alias, &[privilege])
    }

    /// Resolves the target of a MERGE that needs these privileges.
    pub(crate) fn resolve_for_merge(
        context: &StatementContext,
        name: &ObjectName,
        alias: Option<&Ident>,
        privileges: &[Privilege],
    ) -> Result<Target, SqlError> {
        let (schema, relation) = named(context, name)?;
        let kind = match relation {
            Relation::Table(entry) => {
                return Target::admit(context, (schema, entry), alias, privileges);
            }
            Relation::View(_) => "views",
            Relation::Sequence(_) => "sequences",
        };
        Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("cannot execute MERGE on relation \"{}\"", relation.name()),
        )
        .with_detail(format!("This operation is not supported for {kind}.")))
    }

    /// A table in a schema, if the statement may change it; locked.
    fn admit(
        context: &StatementContext,
        (schema, entry): (String, &Arc<TableEntry>),
        alias: Option<&Ident>,
        privileges: &[Privilege],
    ) -> Result<Target, SqlError> {
        let relation = Relation::Table(Arc::clone(entry));
        for privilege in privileges {
            context.actor.require(&relation, *privilege)?;
        }
        context.gate.require(entry.oid, LockMode::RowExclusive)?;
        Ok(Target {
            entry: Arc::clone(entry),
            schema,
            alias: alias.map_or_else(|| entry.name.clone(), folded),
        })
    }

    /// A table that is being made and that nobody else knows yet.
    pub fn unpublished(entry: &Arc<TableEntry>, schema: &str) -> Target {
        Target {
            entry: Arc::clone(entry),
            schema: schema.to_owned(),
            alias: entry.name.clone(),
        }
    }

    /// What the statement calls it, as the planner writes it. A plain text would be read as SQL,
    /// in lower case and cut at points.
    pub(crate) fn reference(&self) -> TableReference {
        TableReference::bare(self.alias.clone())
    }

    /// The table factor that scans the target with its row ids, under its alias, in the
    /// queries of this context.
    pub(crate) fn factor(&self, context: &StatementContext) -> TableFactor {
        let number = context.add_target(&self.entry);
        TableFactor::Table {
            name: ObjectName(vec![
                ObjectNamePart::Identifier(Ident::with_quote('"', TARGET_SCHEMA)),
                ObjectNamePart::Identifier(Ident::with_quote('"', number.to_string())),
            ]),
            alias: Some(TableAlias {
                explicit: true,
                name: Ident::with_quote('"', self.alias.clone()),
                columns: Vec::new(),
                at: None,
            }),
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions: Vec::new(),
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        }
    }

    /// The position of a column that the statement assigns or inserts into.
    pub(crate) fn column(&self, name: &str) -> Result<usize, SqlError> {
        self.entry.table.schema().position(name).ok_or_else(|| {
            SqlError::new(
                ErrorKind::UndefinedColumn,
                format!(
                    "column \"{name}\" of relation \"{}\" does not exist",
                    self.entry.name
                ),
            )
        })
    }
}

/// Calls the table that a statement changes by its name alone, where it stands with its schema:
/// `RETURNING public.t.a` as `RETURNING t.a`.
pub(super) fn unqualify_target(context: &StatementContext, statement: &mut Statement) {
    let changed = match statement {
        Statement::Query(query) => match &mut *query.body {
            SetExpr::Insert(changed) | SetExpr::Update(changed) | SetExpr::Delete(changed) => {
                changed
            }
            _ => return,
        },
        other => other,
    };
    let name = match &*changed {
        Statement::Insert(insert) if insert.table_alias.is_none() => match &insert.table {
            TableObject::TableName(name) => Some(name),
            _ => None,
        },
        Statement::Update(update) => bare_table(&update.table.relation),
        Statement::Delete(delete) => match &delete.from {
            FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => {
                from.first().and_then(|table| bare_table(&table.relation))
            }
        },
        _ => None,
    };
    let reference = name.and_then(|name| table_reference(name).ok());
    let Some((schema, relation)) = reference.and_then(|name| context.resolve(&name).ok()) else {
        return;
    };
    let mut unqualify = Unqualify {
        schema,
        table: relation.name().to_owned(),
    };
    // It never breaks.
    let _ = walk::change(changed, &mut unqualify);
}

fn bare_table(factor: &TableFactor) -> Option<&ObjectName> {
    match factor {
        TableFactor::Table {
            name,
            alias: None,
            args: None,
            ..
        } => Some(name),
        _ => None,
    }
}

struct Unqualify {
    schema: String,
    table: String,
}

impl VisitorMut for Unqualify {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(parts) = expression
            && let [schema, table, _] = &parts[..]
            && folded(schema) == self.schema
            && folded(table) == self.table
        {
            parts.remove(0);
        }
        ControlFlow::Continue(())
    }
}

/// The relation that a statement would change, with its schema; not one of the system's.
fn named<'c>(
    context: &'c StatementContext,
    name: &ObjectName,
) -> Result<(String, &'c Relation), SqlError> {
    let reference = table_reference(name)?;
    if let Some(schema @ (PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)) = reference.schema() {
        return Err(SqlError::new(
            ErrorKind::InsufficientPrivilege,
            format!(
                "permission denied: \"{schema}.{}\" is a system catalog",
                reference.table()
            ),
        ));
    }
    if reference.schema().is_none() && context.system_table(&reference).is_some() {
        let message = format!(
            "permission denied: \"{}\" is a system catalog",
            reference.table()
        );
        return Err(SqlError::new(ErrorKind::InsufficientPrivilege, message));
    }
    context.resolve(&reference)
}

/// The column names of an INSERT's or COPY's list.
///
/// # Errors
/// A name has several parts.
pub fn column_identifiers(names: &[ObjectName]) -> Result<Vec<String>, SqlError> {
    names
        .iter()
        .map(|name| match &name.0[..] {
            [ObjectNamePart::Identifier(ident)] => Ok(folded(ident)),
            _ => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("\"{name}\" is not the name of a column"),
            )),
        })
        .collect()
}

/// A possibly qualified name as a reference.
///
/// # Errors
/// It has more than three parts, or one is no identifier.
pub fn table_reference(name: &ObjectName) -> Result<TableReference, SqlError> {
    let parts: Option<Vec<String>> = name
        .0
        .iter()
        .map(|part| part.as_ident().map(folded))
        .collect();
    match parts.as_deref() {
        Some([table]) => Ok(TableReference::bare(table.clone())),
        Some([schema, table]) => Ok(TableReference::partial(schema.clone(), table.clone())),
        Some([catalog, schema, table]) => Ok(TableReference::full(
            catalog.clone(),
            schema.clone(),
            table.clone(),
        )),
        _ => Err(SqlError::new(
            ErrorKind::SyntaxError,
            format!("improper relation name (too many dotted names): {name}"),
        )),
    }
}
