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

/// The target of a DML statement, resolved and with the needed rights.
#[derive(Clone)]
pub struct Target {
    /// The table.
    pub entry: Arc<TableEntry>,
    /// The name of its schema.
    pub(crate) schema: String,
    /// The name of the target in the statement.
    pub(crate) alias: String,
}

impl Target {
    /// Resolves the target of a statement that needs this privilege.
    ///
    /// # Errors
    /// There is no such table, the relation cannot be changed, or the role has no right to.
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

    /// The target for a table in a schema, if the role has the privileges; locked.
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

    /// A target for a table that is being created and that nobody else knows yet.
    pub fn unpublished(entry: &Arc<TableEntry>, schema: &str) -> Target {
        Target {
            entry: Arc::clone(entry),
            schema: schema.to_owned(),
            alias: entry.name.clone(),
        }
    }

    /// Its name in the statement, as a reference for the planner. A plain text would be parsed as
    /// SQL, folded to lower case and split at dots.
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

/// Names the table that a statement changes without its schema: `RETURNING public.t.a` becomes
/// `RETURNING t.a`.
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
    // The visitor never breaks.
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

/// The relation that a statement changes, with its schema. System relations are refused.
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
/// The name has more than three parts, or a part is not an identifier.
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
