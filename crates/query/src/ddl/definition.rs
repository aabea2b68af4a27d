//! What a CREATE TABLE statement defines: its columns, key and checks, with
//! the names PostgreSQL gives to constraints that have none. Pure.

use std::{collections::BTreeSet, ops::ControlFlow};

use aerostat_semantics::walk;
use aerostat_storage::{COLUMNS_MAX, ROW_ID_COLUMN};
use aerostat_types::{
    CheckConstraint, Column, ErrorKind, SqlError, TableSchema, keyword_category, quote_ident,
};
use datafusion::sql::sqlparser::ast::{
    self, ColumnDef, ColumnOption, DataType, Expr, Ident, IndexColumn, ObjectName, OrderByOptions,
    TableConstraint,
};

use super::{
    names::{SYSTEM_COLUMNS, declared, fold, folded, make_object_name},
    sql_type,
};
use crate::api::Notice;

/// A table's definition while its clauses are read.
pub(super) struct Definition<'n> {
    table: String,
    columns: Vec<Column>,
    /// What was said of each column: `Some(false)` for NOT NULL.
    nullability: Vec<Option<bool>>,
    key: Option<(Option<String>, Vec<String>)>,
    /// Checks with their given names and the single column that names those without.
    checks: Vec<(Option<String>, Option<String>, String)>,
    notices: &'n mut Vec<Notice>,
}

impl<'n> Definition<'n> {
    pub(super) fn new(table: &str, notices: &'n mut Vec<Notice>) -> Self {
        Self {
            table: table.to_owned(),
            columns: Vec::new(),
            nullability: Vec::new(),
            key: None,
            checks: Vec::new(),
            notices,
        }
    }

    /// Takes a column that is defined already, as LIKE and AS do.
    pub(super) fn add_column(&mut self, column: Column) {
        self.nullability.push((!column.nullable).then_some(false));
        self.columns.push(column);
    }

    /// Reads a column's definition.
    pub(super) fn read_column(&mut self, definition: &ColumnDef) -> Result<(), SqlError> {
        let name = declared(&definition.name, self.notices)?;
        if definition.data_type == DataType::Unspecified {
            return Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("column \"{name}\" needs a type"),
            ));
        }
        let ty = sql_type(&definition.data_type)?;
        self.columns.push(Column {
            name: name.clone(),
            ty,
            nullable: true,
            default: None,
        });
        self.nullability.push(None);
        for option in &definition.options {
            self.read_option(&name, option.name.as_ref(), &option.option)?;
        }
        Ok(())
    }

    fn read_option(
        &mut self,
        column: &str,
        name: Option<&Ident>,
        option: &ColumnOption,
    ) -> Result<(), SqlError> {
        let at = self.columns.len() - 1;
        match option {
            ColumnOption::Null => self.set_nullable(at, true),
            ColumnOption::NotNull => self.set_nullable(at, false),
            ColumnOption::Default(expression) => {
                refuse_columns(expression)?;
                if self.columns[at]
                    .default
                    .replace(expression.to_string())
                    .is_some()
                {
                    return Err(SqlError::new(
                        ErrorKind::SyntaxError,
                        format!(
                            "multiple default values specified for column \"{column}\" of table \"{}\"",
                            self.table
                        ),
                    ));
                }
                Ok(())
            }
            ColumnOption::PrimaryKey(constraint) => {
                if constraint.characteristics.is_some() {
                    return Err(deferrable());
                }
                let name = name.or(constraint.name.as_ref());
                self.set_key(name, vec![column.to_owned()])
            }
            ColumnOption::Check(check) => self.add_check(name, check, Some(column)),
            ColumnOption::Collation(collation) => check_collation(collation),
            ColumnOption::Unique(_) => Err(unique()),
            ColumnOption::ForeignKey(_) => Err(foreign_key()),
            ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                Err(not_supported("generated and identity columns are")
                    .with_hint("Give the values, or use DEFAULT."))
            }
            other => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{other}\""),
            )),
        }
    }

    fn set_nullable(&mut self, at: usize, nullable: bool) -> Result<(), SqlError> {
        match self.nullability[at].replace(nullable) {
            Some(before) if before != nullable => Err(self.conflicting(at)),
            _ => Ok(()),
        }
    }

    fn conflicting(&self, at: usize) -> SqlError {
        let (column, table) = (&self.columns[at].name, &self.table);
        SqlError::new(
            ErrorKind::SyntaxError,
            format!(
                "conflicting NULL/NOT NULL declarations for column \"{column}\" of table \"{table}\""
            ),
        )
    }

    fn set_key(&mut self, name: Option<&Ident>, columns: Vec<String>) -> Result<(), SqlError> {
        let name = name.map(|name| declared(name, self.notices)).transpose()?;
        if self.key.replace((name, columns)).is_some() {
            return Err(SqlError::new(
                ErrorKind::InvalidTableDefinition,
                format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    self.table
                ),
            ));
        }
        Ok(())
    }

    fn add_check(
        &mut self,
        name: Option<&Ident>,
        check: &ast::CheckConstraint,
        column: Option<&str>,
    ) -> Result<(), SqlError> {
        if check.enforced == Some(false) {
            return Err(not_supported("CHECK constraints that are not enforced are"));
        }
        let name = name
            .or(check.name.as_ref())
            .map(|name| declared(name, self.notices))
            .transpose()?;
        let column = column.map(str::to_owned);
        self.checks.push((name, column, check.expr.to_string()));
        Ok(())
    }

    /// Reads a constraint of the table.
    pub(super) fn read_constraint(&mut self, constraint: &TableConstraint) -> Result<(), SqlError> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                if key.characteristics.is_some() {
                    return Err(deferrable());
                }
                if key.index_type.is_some() || !key.index_options.is_empty() {
                    return Err(not_supported("options of a primary key's index are"));
                }
                let columns = key
                    .columns
                    .iter()
                    .map(|column| self.key_column(column))
                    .collect::<Result<Vec<_>, _>>()?;
                self.set_key(key.name.as_ref().or(key.index_name.as_ref()), columns)
            }
            TableConstraint::Check(check) => {
                let names = self
                    .columns
                    .iter()
                    .map(|column| column.name.as_str())
                    .collect();
                let column = single_column(&check.expr, &names);
                self.add_check(None, check, column.as_deref())
            }
            TableConstraint::Unique(_) => Err(unique()),
            TableConstraint::ForeignKey(_) => Err(foreign_key()),
            other => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("this constraint is not supported: {other}"),
            )),
        }
    }

    fn key_column(&mut self, column: &IndexColumn) -> Result<String, SqlError> {
        match &column.column {
            ast::OrderByExpr {
                expr: Expr::Identifier(name),
                options,
                with_fill: None,
            } if *options == OrderByOptions::default() && column.operator_class.is_none() => {
                Ok(fold(name, self.notices))
            }
            _ => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{column}\""),
            )),
        }
    }

    /// The schema, once everything is read. `taken` says which names the
    /// schema's relations have, for the key's index to have another.
    ///
    /// # Errors
    /// The clauses contradict each other or name what is not there.
    pub(super) fn finish(mut self, taken: &dyn Fn(&str) -> bool) -> Result<TableSchema, SqlError> {
        check_columns(&self.columns)?;
        for (column, said) in self.columns.iter_mut().zip(&self.nullability) {
            column.nullable = *said != Some(false);
        }
        let (primary_key, primary_key_name) = self.finish_key(taken)?;
        let mut schema = TableSchema {
            name: self.table,
            columns: self.columns,
            primary_key,
            primary_key_name,
            checks: Vec::new(),
        };
        schema.checks = named_checks(&schema, self.checks)?;
        Ok(schema)
    }

    fn finish_key(
        &mut self,
        taken: &dyn Fn(&str) -> bool,
    ) -> Result<(Vec<usize>, String), SqlError> {
        let Some((name, key)) = self.key.take() else {
            return Ok((Vec::new(), String::new()));
        };
        let mut positions = Vec::with_capacity(key.len());
        for column in &key {
            let at = self
                .columns
                .iter()
                .position(|candidate| candidate.name == *column)
                .ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::UndefinedColumn,
                        format!("column \"{column}\" named in key does not exist"),
                    )
                })?;
            if positions.contains(&at) {
                return Err(SqlError::new(
                    ErrorKind::DuplicateColumn,
                    format!("column \"{column}\" appears twice in primary key constraint"),
                ));
            }
            if self.nullability[at] == Some(true) {
                return Err(self.conflicting(at));
            }
            self.columns[at].nullable = false;
            positions.push(at);
        }
        let name = match name {
            Some(name) if taken(&name) || name == self.table => {
                return Err(SqlError::new(
                    ErrorKind::DuplicateTable,
                    format!("relation \"{name}\" already exists"),
                ));
            }
            Some(name) => name,
            None => unused(&self.table, None, "pkey", taken),
        };
        Ok((positions, name))
    }
}

/// PostgreSQL's `ChooseConstraintName`: a number is appended until the name is free.
fn unused(table: &str, column: Option<&str>, label: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let plain = make_object_name(table, column, label);
    if !taken(&plain) {
        return plain;
    }
    (1..)
        .map(|number: u32| make_object_name(table, column, &format!("{label}{number}")))
        .find(|name| !taken(name))
        .unwrap_or(plain)
}

fn named_checks(
    schema: &TableSchema,
    checks: Vec<(Option<String>, Option<String>, String)>,
) -> Result<Vec<CheckConstraint>, SqlError> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    if !schema.primary_key.is_empty() {
        names.insert(schema.primary_key_name.clone());
    }
    for name in checks.iter().filter_map(|(name, ..)| name.as_ref()) {
        if !names.insert(name.clone()) {
            return Err(SqlError::new(
                ErrorKind::DuplicateObject,
                format!(
                    "constraint \"{name}\" for relation \"{}\" already exists",
                    schema.name
                ),
            ));
        }
    }
    let mut named = Vec::with_capacity(checks.len());
    for (name, column, expression) in checks {
        let name = name.unwrap_or_else(|| {
            let made = unused(&schema.name, column.as_deref(), "check", &|name| {
                names.contains(name)
            });
            names.insert(made.clone());
            made
        });
        named.push(CheckConstraint { name, expression });
    }
    Ok(named)
}

/// The only one of the table's columns that a condition names, which PostgreSQL calls the constraint after.
fn single_column(condition: &Expr, columns: &BTreeSet<&str>) -> Option<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let _: ControlFlow<()> = walk::expressions(condition, |expression| {
        let ident = match expression {
            Expr::Identifier(ident) => Some(ident),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        let name = ident.map(folded);
        found.extend(name.filter(|name| columns.contains(name.as_str())));
        ControlFlow::Continue(())
    });
    let only = found.pop_first()?;
    found.is_empty().then_some(only)
}

/// A default is computed before the row is there, so it names no column.
fn refuse_columns(default: &Expr) -> Result<(), SqlError> {
    let found = walk::expressions(default, |expression| match expression {
        // `current_user` and its like are words, not columns.
        Expr::Identifier(ident)
            if ident.quote_style.is_some() || keyword_category(&ident.value).is_none() =>
        {
            ControlFlow::Break(())
        }
        Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    if found.is_break() {
        let message = "cannot use column reference in DEFAULT expression";
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    Ok(())
}

/// Refuses too many columns, two of one name, and names that are kept.
pub(super) fn check_columns(columns: &[Column]) -> Result<(), SqlError> {
    if columns.len() > COLUMNS_MAX {
        return Err(SqlError::new(
            ErrorKind::TooManyColumns,
            format!("tables can have at most {COLUMNS_MAX} columns"),
        ));
    }
    let mut seen = BTreeSet::new();
    for column in columns {
        let name = column.name.as_str();
        if SYSTEM_COLUMNS.contains(&name) || name == ROW_ID_COLUMN {
            return Err(SqlError::new(
                ErrorKind::DuplicateColumn,
                format!("column name \"{name}\" conflicts with a system column name"),
            ));
        }
        if !seen.insert(name) {
            return Err(SqlError::new(
                ErrorKind::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            ));
        }
    }
    Ok(())
}

/// Texts compare by their bytes, so only collations that do are taken.
fn check_collation(name: &ObjectName) -> Result<(), SqlError> {
    let last = name
        .0
        .last()
        .and_then(|part| part.as_ident())
        .map_or_else(String::new, |ident| ident.value.clone());
    if matches!(last.as_str(), "C" | "POSIX" | "ucs_basic" | "default") {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("collation {} is not supported", quote_ident(&last)),
    )
    .with_hint("Texts are compared by their bytes, which is COLLATE \"C\"."))
}

fn not_supported(what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{what} not supported"),
    )
}

fn unique() -> SqlError {
    not_supported("UNIQUE constraints are")
        .with_hint("The primary key is the only unique constraint.")
}

fn foreign_key() -> SqlError {
    not_supported("foreign keys are").with_hint("Leave REFERENCES out; joins need no foreign key.")
}

fn deferrable() -> SqlError {
    not_supported("deferrable constraints are")
}
