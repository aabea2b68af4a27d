//! What is imported, and whether it can be: decided before anything is changed on either side.

use std::collections::HashSet;

use tokio_postgres::types::{Oid, Type};

use crate::{
    catalog::{self, Sequence, Table},
    connect::Connection,
    error::{Complaint, ImportError},
    record::RecordedTable,
    types::ColumnType,
};

/// Which tables are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) schemas: Vec<String>,
    pub(crate) tables: Vec<String>,
    pub(crate) exclude: Vec<String>,
    /// The tables of a publication that is given, with their schemas.
    pub(crate) published: Option<HashSet<(String, String)>>,
}

impl Filter {
    /// Whether a table is asked for, and published if a publication is given.
    pub(crate) fn wants(&self, schema: &str, name: &str) -> bool {
        let published = match &self.published {
            Some(published) => published.contains(&(schema.to_owned(), name.to_owned())),
            None => true,
        };
        published && self.wants_name(schema, name)
    }

    /// Whether a table is asked for, published or not.
    pub(crate) fn wants_name(&self, schema: &str, name: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|text| split(text) == (schema, name));
        let schema_wanted = match (self.schemas.is_empty(), self.tables.is_empty()) {
            (true, true) => true,
            _ => self.schemas.iter().any(|each| each == schema) || named(&self.tables),
        };
        // The importer's own tables, where the source is a target of another import.
        schema != crate::record::SCHEMA && schema_wanted && !named(&self.exclude)
    }

    /// Whether a sequence that belongs to no table is asked for.
    fn wants_sequence(&self, schema: &str, name: &str) -> bool {
        let unnamed = self.tables.is_empty() && self.published.is_none();
        unnamed && self.wants(schema, name)
    }
}

/// `schema.table`, or a table of `public`.
fn split(text: &str) -> (&str, &str) {
    text.split_once('.').unwrap_or(("public", text))
}

/// What is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    pub(crate) sequences: Vec<Sequence>,
}

impl Plan {
    /// Reads what the source has of what is asked for.
    ///
    /// # Errors
    /// [`ImportError::Source`].
    pub(crate) async fn read(source: &Connection, filter: &Filter) -> Result<Plan, ImportError> {
        let tables = catalog::tables(source, |schema, name| filter.wants(schema, name)).await?;
        let oids: Vec<Oid> = tables.iter().map(|table| table.oid).collect();
        let sequences = catalog::sequences(source, &oids, |schema, name| {
            filter.wants_sequence(schema, name)
        })
        .await?;
        Ok(Plan { tables, sequences })
    }

    /// Reads what the source has of an import that has begun.
    ///
    /// # Errors
    /// [`ImportError::Source`].
    pub(crate) async fn of_import(
        source: &Connection,
        recorded: &[RecordedTable],
        filter: &Filter,
    ) -> Result<Plan, ImportError> {
        let mut tables = catalog::tables(source, |_, _| true).await?;
        tables.retain(|table| recorded.iter().any(|each| each.oid == table.oid));
        let oids: Vec<Oid> = tables.iter().map(|table| table.oid).collect();
        let sequences = catalog::sequences(source, &oids, |schema, name| {
            filter.wants_sequence(schema, name)
        })
        .await?;
        Ok(Plan { tables, sequences })
    }

    /// Why it cannot be imported. `follow` is whether changes are followed.
    pub(crate) fn complaints(
        &self,
        filter: &Filter,
        follow: bool,
        as_text: bool,
    ) -> Vec<Complaint> {
        let mut complaints = Vec::new();
        for text in &filter.tables {
            let (schema, name) = split(text);
            if !self
                .tables
                .iter()
                .any(|table| table.schema == schema && table.name == name)
            {
                complaints.push(complaint(
                    text,
                    "there is no such table",
                    "name it as schema.table",
                ));
            }
        }
        if self.tables.is_empty() && complaints.is_empty() {
            complaints.push(complaint(
                "the source",
                "none of its tables is asked for",
                "",
            ));
        }
        for table in &self.tables {
            complain_of(table, follow, as_text, &mut complaints);
        }
        complaints
    }

    /// What will be otherwise at the target, though every value is there.
    pub(crate) fn notes(&self, as_text: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for table in &self.tables {
            for column in &table.columns {
                let label = format!("{}.{}", table.label(), column.name);
                let exact = ColumnType::from_source(column.type_oid, column.typmod, false);
                match exact
                    .or_else(|| ColumnType::from_source(column.type_oid, column.typmod, as_text))
                {
                    Some(there) if there.any_precision => {
                        notes.push(format!(
                            "{label} is {}: digits beyond it are an error",
                            there.sql()
                        ));
                    }
                    Some(there)
                        if there.base
                            != Type::from_oid(column.type_oid).unwrap_or(Type::UNKNOWN) =>
                    {
                        notes.push(format!(
                            "{label} is {} instead of {}",
                            there.sql(),
                            column.type_name
                        ));
                    }
                    Some(there) if there.typmod != column.typmod => {
                        notes.push(format!(
                            "{label} is {} instead of {}: values are the same, and new ones \
                            are not rounded",
                            there.sql(),
                            column.type_name
                        ));
                    }
                    _ => {}
                }
            }
        }
        notes
    }
}

fn complain_of(table: &Table, follow: bool, as_text: bool, complaints: &mut Vec<Complaint>) {
    let label = table.label();
    if table.columns.is_empty() {
        complaints.push(complaint(
            &label,
            "it has no columns",
            "leave the table out",
        ));
    }
    for column in &table.columns {
        let subject = format!("{label}.{}", column.name);
        if column.generated {
            complaints.push(complaint(
                &subject,
                "generated columns that are stored are not supported",
                "leave the table out, or make it a plain column: ALTER TABLE … ALTER COLUMN … DROP EXPRESSION",
            ));
        }
        if ColumnType::from_source(column.type_oid, column.typmod, as_text).is_none() {
            complaints.push(complaint(
                &subject,
                &format!("the type {} is not supported", column.type_name),
                "take such columns as texts (--as-text), or leave the table out (--exclude)",
            ));
        }
    }
    if !follow {
        return;
    }
    if table.unlogged {
        complaints.push(complaint(
            &label,
            "it is unlogged, so its changes are in no log",
            "leave the table out, or: ALTER TABLE … SET LOGGED",
        ));
    }
    let by_key = table.identity == "d" && table.primary_key;
    let recognised =
        by_key || (!table.partitioned && (table.identity == "f" || table.identity == "i"));
    if !recognised {
        // Published like this, the source itself would refuse UPDATE and DELETE.
        let hint = if table.partitioned {
            "give it a primary key, or leave the table out".to_owned()
        } else {
            format!(
                "give it a primary key, or at the source: ALTER TABLE {} REPLICA IDENTITY FULL",
                table.sql()
            )
        };
        complaints.push(complaint(
            &label,
            "its rows have no identity for UPDATE and DELETE",
            &hint,
        ));
    }
}

pub(crate) fn complaint(subject: &str, problem: &str, hint: &str) -> Complaint {
    Complaint {
        subject: subject.to_owned(),
        problem: problem.to_owned(),
        hint: hint.to_owned(),
    }
}

/// Why the source's server or role does not do.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn server_complaints(
    source: &Connection,
    plan: &Plan,
    follow: bool,
    own_publication: bool,
) -> Result<Vec<Complaint>, ImportError> {
    let mut complaints = Vec::new();
    let row = source
        .query_one(
            "SELECT current_setting('server_version_num')::int4, current_setting('wal_level'),
                    (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user), current_user::text,
                    pg_is_in_recovery(), has_database_privilege(current_database(), 'CREATE')",
            &[],
        )
        .await
        .map_err(ImportError::source("reading its settings"))?;
    let (version, level, replicates, user, standby): (i32, String, bool, String, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4));
    let publishes: bool = row.get(5);
    if version < 130_000 {
        complaints.push(complaint(
            "the source",
            "it is older than PostgreSQL 13",
            "",
        ));
    }
    if follow && level != "logical" {
        let hint = "ALTER SYSTEM SET wal_level = logical, and a restart; or only copy (--once)";
        complaints.push(complaint(
            "the source",
            &format!("its wal_level is {level}, not logical"),
            hint,
        ));
    }
    if follow && standby {
        complaints.push(complaint(
            "the source",
            "it is a standby",
            "import from its primary",
        ));
    }
    if follow && !replicates {
        complaints.push(complaint(
            &format!("role {user}"),
            "it may not replicate",
            &format!("ALTER ROLE {} REPLICATION", crate::sql::identifier(&user)),
        ));
    }
    if follow && own_publication && !publishes {
        complaints.push(complaint(
            &format!("role {user}"),
            "it may not make a publication in this database",
            "GRANT CREATE ON DATABASE, or name one that is there (--publication)",
        ));
    }
    let oids: Vec<Oid> = plan.tables.iter().map(|table| table.oid).collect();
    let rights = source
        .query(
            "SELECT n.nspname || '.' || c.relname,
                    has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'),
                    pg_has_role(c.relowner, 'USAGE')
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY ($1) ORDER BY 1",
            &[&oids],
        )
        .await
        .map_err(ImportError::source("reading privileges"))?;
    for row in rights {
        let table: String = row.get(0);
        if !row.get::<_, bool>(1) {
            complaints.push(complaint(
                &table,
                &format!("the role {user} may not read it"),
                "GRANT SELECT",
            ));
        } else if follow && own_publication && !row.get::<_, bool>(2) {
            complaints.push(complaint(
                &table,
                &format!("the role {user} may not publish it, for it is not its owner"),
                "have its owner make a publication, and name it (--publication)",
            ));
        }
    }
    Ok(complaints)
}

/// Why a publication that is given does not do.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn publication_complaints(
    source: &Connection,
    name: &str,
    filter: &Filter,
    plan: &Plan,
) -> Result<Vec<Complaint>, ImportError> {
    let failed = || ImportError::source("reading its publications");
    let subject = format!("publication {name}");
    let query = "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = $1::text";
    let Some(row) = source.query_opt(query, &[&name]).await.map_err(failed())? else {
        return Ok(vec![complaint(
            &subject,
            "there is no such publication",
            "",
        )]);
    };
    let mut complaints = Vec::new();
    if !row.get::<_, bool>(0) {
        let hint = "ALTER PUBLICATION … SET (publish = 'insert, update, delete, truncate')";
        complaints.push(complaint(&subject, "it does not publish all changes", hint));
    }
    for (schema, table) in filter
        .published
        .iter()
        .flatten()
        .filter(|(schema, table)| filter.wants(schema, table))
    {
        if !plan
            .tables
            .iter()
            .any(|known| known.schema == *schema && known.name == *table)
        {
            complaints.push(complaint(
                &format!("{schema}.{table}"),
                &format!("the publication {name} has it, and it is no table of its own"),
                "publish partitions as their table (publish_via_partition_root = true), or leave it out",
            ));
        }
    }
    // Since PostgreSQL 15 a publication may leave out rows and columns; older ones have no such columns to read.
    let query = "SELECT n.nspname || '.' || c.relname FROM pg_publication_rel r
                 JOIN pg_publication p ON p.oid = r.prpubid
                 JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE p.pubname = $1::text AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL)";
    for row in source.query(query, &[&name]).await.map_err(failed())? {
        let table: String = row.get(0);
        complaints.push(complaint(
            &table,
            &format!("the publication {name} leaves out rows or columns of it"),
            "",
        ));
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(schemas: &[&str], tables: &[&str], exclude: &[&str]) -> Filter {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Filter {
            schemas: owned(schemas),
            tables: owned(tables),
            exclude: owned(exclude),
            published: None,
        }
    }

    #[test]
    fn tables_are_chosen_by_schema_and_name() {
        assert!(filter(&[], &[], &[]).wants("a", "t"));
        assert!(!filter(&[], &[], &[]).wants("aerostat_import", "progress"));
        assert!(!filter(&[], &[], &["a.t"]).wants("a", "t"));
        assert!(filter(&[], &["t"], &[]).wants("public", "t"));
        assert!(!filter(&[], &["t"], &[]).wants("a", "t"));
        assert!(filter(&["a"], &["t"], &[]).wants("a", "x"));
        assert!(filter(&["a"], &["t"], &[]).wants("public", "t"));
        assert!(!filter(&["a"], &[], &[]).wants("public", "t"));
    }
}
