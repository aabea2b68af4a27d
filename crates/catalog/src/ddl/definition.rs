//! What a CREATE TABLE statement defines: its columns, key and checks, with PostgreSQL's names
//! for unnamed constraints. Pure.

use std::{collections::BTreeSet, ops::ControlFlow};

use aerostat_api::Notice;
use aerostat_sql::{
    clauses::check_stored,
    deferral::{Deferral, deferral_of},
    names::{declared, fold, folded},
    sequence_options::Options,
    sql_type::sql_type,
    walk,
};
use aerostat_storage::COLUMNS_MAX;
use aerostat_types::{
    CheckConstraint, Column, ErrorKind, SqlError, SqlType, TableSchema, keyword_category,
    quote_ident,
};
use sqlparser::ast::{
    self, ColumnDef, ColumnOption, DataType, Expr, GeneratedAs, Ident, IndexColumn,
    NullsDistinctOption, ObjectName, OrderByOptions, TableConstraint,
};

use super::{
    foreign_key::WrittenForeignKey,
    key::{self, WrittenKey, duplicate_constraint, multiple_primary_keys, unused},
    search_path::SYSTEM_COLUMNS,
    sequence::Wanted,
};
use crate::state::IndexEntry;

/// What a statement defines.
pub(super) struct Defined {
    pub(super) schema: TableSchema,
    /// The indexes of UNIQUE constraints, and of a deferrable primary key, without numbers.
    pub(super) unique: Vec<IndexEntry>,
    /// What they refer to is not known yet.
    pub(super) foreign_keys: Vec<WrittenForeignKey>,
    /// The sequences of serial and identity columns.
    pub(super) sequences: Vec<Wanted>,
}

/// A table's definition while its clauses are read.
pub(super) struct Definition<'n> {
    table: String,
    columns: Vec<Column>,
    /// What was said of each column: `Some(false)` for NOT NULL.
    nullability: Vec<Option<bool>>,
    keys: Vec<WrittenKey>,
    foreign_keys: Vec<WrittenForeignKey>,
    sequences: Vec<Wanted>,
    /// The primary key that the table has: positions of its columns, and its name.
    key_there: Option<(Vec<usize>, String)>,
    /// It has one that is deferrable.
    has_deferrable_key: bool,
    /// Names of its constraints but CHECKs.
    names_there: BTreeSet<String>,
    checks: Vec<WrittenCheck>,
    notices: &'n mut Vec<Notice>,
}

/// What a PRIMARY KEY or UNIQUE says beside its columns.
struct Key {
    is_primary: bool,
    nulls_not_distinct: bool,
    deferral: Deferral,
}

impl Key {
    fn primary(deferral: Deferral) -> Self {
        Self {
            is_primary: true,
            nulls_not_distinct: false,
            deferral,
        }
    }

    fn unique(nulls_not_distinct: bool, deferral: Deferral) -> Self {
        Self {
            is_primary: false,
            nulls_not_distinct,
            deferral,
        }
    }
}

/// CHECK as it was written.
struct WrittenCheck {
    name: Option<String>,
    expression: String,
    /// The expression, of which a name is made if it has none; `None` for one that is there.
    condition: Option<Expr>,
}

impl<'n> Definition<'n> {
    pub(super) fn new(table: &str, notices: &'n mut Vec<Notice>) -> Self {
        Self {
            table: table.to_owned(),
            columns: Vec::new(),
            nullability: Vec::new(),
            keys: Vec::new(),
            foreign_keys: Vec::new(),
            sequences: Vec::new(),
            key_there: None,
            has_deferrable_key: false,
            names_there: BTreeSet::new(),
            checks: Vec::new(),
            notices,
        }
    }

    /// The definition of a table that is there, to which more is added. `constraints` are the
    /// names of its constraints but CHECKs; `has_deferrable_key` says that one of them is a
    /// deferrable primary key.
    pub(super) fn of(
        schema: &TableSchema,
        constraints: BTreeSet<String>,
        has_deferrable_key: bool,
        notices: &'n mut Vec<Notice>,
    ) -> Self {
        let mut definition = Self::new(&schema.name, notices);
        for column in &schema.columns {
            definition.add_column(column.clone());
        }
        if !schema.primary_key.is_empty() {
            let key = (schema.primary_key.clone(), schema.primary_key_name.clone());
            definition.key_there = Some(key);
        }
        definition.has_deferrable_key = has_deferrable_key;
        definition.names_there = constraints;
        let checks = schema.checks.iter();
        let written = checks.map(|check| WrittenCheck {
            name: Some(check.name.clone()),
            expression: check.expression.clone(),
            condition: None,
        });
        definition.checks = written.collect();
        definition
    }

    /// Whether a column of this name is defined.
    pub(super) fn has_column(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }

    /// How many CHECK constraints are defined, which is the position of the next.
    pub(super) fn checks_read(&self) -> usize {
        self.checks.len()
    }

    /// How many foreign keys are defined, which is the position of the next.
    pub(super) fn foreign_keys_read(&self) -> usize {
        self.foreign_keys.len()
    }

    /// Tells the user something.
    pub(super) fn note(&mut self, notice: Notice) {
        self.notices.push(notice);
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
        let serial = serial_type(&definition.data_type);
        let ty = match serial {
            Some(ty) => ty,
            None => sql_type(&definition.data_type)?,
        };
        self.columns.push(Column {
            name: name.clone(),
            ty,
            nullable: true,
            default: None,
        });
        self.nullability.push(serial.map(|_| false));
        if serial.is_some() {
            self.sequences.push(Wanted {
                column: name.clone(),
                ty,
                is_always: None,
                name: None,
                options: Options::default(),
            });
        }
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
                if self.identity_of(column).is_some() {
                    return Err(self.specified("both default and identity specified", column));
                }
                let before = self.columns[at].default.replace(expression.to_string());
                if before.is_some() || self.sequence_of(column).is_some() {
                    return Err(self.specified("multiple default values specified", column));
                }
                Ok(())
            }
            ColumnOption::PrimaryKey(constraint) => {
                let deferral = deferral_of(constraint.characteristics.as_ref())?;
                let name = name.or(constraint.name.as_ref());
                self.add_key(name, vec![column.to_owned()], Key::primary(deferral))
            }
            ColumnOption::Unique(constraint) => {
                let deferral = deferral_of(constraint.characteristics.as_ref())?;
                let name = name.or(constraint.name.as_ref());
                // How NULLS NOT DISTINCT is spelled for the parser.
                let said = constraint.characteristics.as_ref();
                let nulls_not_distinct = said.is_some_and(|said| said.enforced == Some(false));
                let key = Key::unique(nulls_not_distinct, deferral);
                self.add_key(name, vec![column.to_owned()], key)
            }
            ColumnOption::Check(check) => self.add_check(name, check),
            ColumnOption::Collation(collation) => check_collation(collation),
            ColumnOption::ForeignKey(key) => self.add_foreign_key(name, key, Some(column)),
            ColumnOption::Generated {
                generated_as,
                sequence_options: Some(options),
                generation_expr: None,
                ..
            } => self.add_identity(column, *generated_as == GeneratedAs::Always, options),
            ColumnOption::Generated { .. } | ColumnOption::Identity(_) => {
                Err(not_supported("generated columns are")
                    .with_hint("Give the values, or use DEFAULT."))
            }
            other => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{other}\""),
            )),
        }
    }

    fn add_identity(
        &mut self,
        column: &str,
        is_always: bool,
        options: &[ast::SequenceOptions],
    ) -> Result<(), SqlError> {
        let at = self.columns.len() - 1;
        let ty = self.columns[at].ty;
        if self.identity_of(column).is_some() {
            return Err(self.specified("multiple identity specifications", column));
        }
        if self.columns[at].default.is_some() || self.sequence_of(column).is_some() {
            return Err(self.specified("both default and identity specified", column));
        }
        require_integer(ty)?;
        self.set_nullable(at, false)?;
        self.sequences.push(Wanted {
            column: column.to_owned(),
            ty,
            is_always: Some(is_always),
            name: None,
            options: read_options(options)?,
        });
        Ok(())
    }

    fn sequence_of(&self, column: &str) -> Option<&Wanted> {
        self.sequences.iter().find(|wanted| wanted.column == column)
    }

    fn identity_of(&self, column: &str) -> Option<&Wanted> {
        let wanted = self.sequence_of(column)?;
        wanted.is_always.is_some().then_some(wanted)
    }

    /// The error for what a column has one of at most.
    fn specified(&self, what: &str, column: &str) -> SqlError {
        SqlError::new(
            ErrorKind::SyntaxError,
            format!("{what} for column \"{column}\" of table \"{}\"", self.table),
        )
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

    fn add_key(
        &mut self,
        name: Option<&Ident>,
        columns: Vec<String>,
        key: Key,
    ) -> Result<(), SqlError> {
        let Key {
            is_primary,
            nulls_not_distinct,
            deferral,
        } = key;
        let name = name.map(|name| declared(name, self.notices)).transpose()?;
        let has_primary = self.key_there.is_some()
            || self.has_deferrable_key
            || self.keys.iter().any(|key| key.is_primary);
        if is_primary && has_primary {
            return Err(multiple_primary_keys(&self.table));
        }
        self.keys.push(WrittenKey {
            name,
            columns,
            is_primary,
            nulls_not_distinct,
            deferral,
        });
        Ok(())
    }

    fn add_foreign_key(
        &mut self,
        name: Option<&Ident>,
        written: &ast::ForeignKeyConstraint,
        column: Option<&str>,
    ) -> Result<(), SqlError> {
        let key = WrittenForeignKey::read(name, written, column, self.notices)?;
        self.foreign_keys.push(key);
        Ok(())
    }

    fn add_check(
        &mut self,
        name: Option<&Ident>,
        check: &ast::CheckConstraint,
    ) -> Result<(), SqlError> {
        if check.enforced == Some(false) {
            return Err(not_supported("CHECK constraints that are not enforced are"));
        }
        check_stored("check constraints", &check.expr)?;
        let name = name
            .or(check.name.as_ref())
            .map(|name| declared(name, self.notices))
            .transpose()?;
        self.checks.push(WrittenCheck {
            name,
            expression: check.expr.to_string(),
            condition: Some(Expr::clone(&check.expr)),
        });
        Ok(())
    }

    /// Reads a constraint of the table.
    pub(super) fn read_constraint(&mut self, constraint: &TableConstraint) -> Result<(), SqlError> {
        match constraint {
            TableConstraint::PrimaryKey(key) => {
                let deferral = deferral_of(key.characteristics.as_ref())?;
                if key.index_type.is_some() || !key.index_options.is_empty() {
                    return Err(not_supported("options of a primary key's index are"));
                }
                let columns = self.key_columns(&key.columns)?;
                let name = key.name.as_ref().or(key.index_name.as_ref());
                self.add_key(name, columns, Key::primary(deferral))
            }
            TableConstraint::Unique(unique) => {
                let deferral = deferral_of(unique.characteristics.as_ref())?;
                if unique.index_type.is_some() || !unique.index_options.is_empty() {
                    return Err(not_supported("options of a unique constraint's index are"));
                }
                let columns = self.key_columns(&unique.columns)?;
                let name = unique.name.as_ref().or(unique.index_name.as_ref());
                let nulls_not_distinct = unique.nulls_distinct == NullsDistinctOption::NotDistinct;
                self.add_key(name, columns, Key::unique(nulls_not_distinct, deferral))
            }
            TableConstraint::Check(check) => self.add_check(None, check),
            TableConstraint::ForeignKey(key) => self.add_foreign_key(None, key, None),
            other => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("this constraint is not supported: {other}"),
            )),
        }
    }

    fn key_columns(&mut self, columns: &[IndexColumn]) -> Result<Vec<String>, SqlError> {
        columns
            .iter()
            .map(|column| self.key_column(column))
            .collect()
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

    /// What the statement defines, once everything is read. `taken` says which names the schema's relations have, for indexes to have others.
    ///
    /// # Errors
    /// The clauses contradict each other or name what is not there.
    pub(super) fn finish(mut self, taken: &dyn Fn(&str) -> bool) -> Result<Defined, SqlError> {
        check_columns(&self.columns)?;
        for (column, said) in self.columns.iter_mut().zip(&self.nullability) {
            column.nullable = *said != Some(false);
        }
        let given = self.checks.iter().filter_map(|check| check.name.clone());
        let given: BTreeSet<String> = given.chain(self.names_there.iter().cloned()).collect();
        let keys = std::mem::take(&mut self.keys);
        let mut indexes = key::indexes_of(&self.table, &self.columns, keys, taken, &given)?;
        let primary = indexes.iter().filter(|index| index.is_primary);
        for &at in primary.flat_map(|primary| &primary.index.columns) {
            if self.nullability[at] == Some(true) {
                return Err(self.conflicting(at));
            }
            self.columns[at].nullable = false;
        }
        let mut names = self.names_there;
        names.extend(indexes.iter().map(|index| index.index.name.clone()));
        // Rows cannot lie by a key that two may have for a while.
        let orders = |index: &IndexEntry| index.is_primary && !index.deferral.is_deferrable();
        let primary = indexes.iter().position(orders);
        let primary = primary.map(|at| indexes.remove(at).index);
        let checks = named_checks(&self.table, &self.columns, self.checks, names)?;
        let (primary_key, primary_key_name) = match primary {
            Some(primary) => (primary.columns, primary.name),
            None => self.key_there.unwrap_or_default(),
        };
        let schema = TableSchema {
            name: self.table,
            columns: self.columns,
            primary_key,
            primary_key_name,
            checks,
        };
        Ok(Defined {
            schema,
            unique: indexes,
            foreign_keys: self.foreign_keys,
            sequences: self.sequences,
        })
    }
}

/// The type of a column that is called `serial` or like it.
fn serial_type(data_type: &DataType) -> Option<SqlType> {
    let DataType::Custom(name, modifiers) = data_type else {
        return None;
    };
    let ([part], []) = (&name.0[..], &modifiers[..]) else {
        return None;
    };
    match folded(part.as_ident()?).as_str() {
        "smallserial" | "serial2" => Some(SqlType::SmallInt),
        "serial" | "serial4" => Some(SqlType::Integer),
        "bigserial" | "serial8" => Some(SqlType::BigInt),
        _ => None,
    }
}

/// # Errors
/// A column of the type cannot be an identity column.
pub(super) fn require_integer(ty: SqlType) -> Result<(), SqlError> {
    match ty {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Ok(()),
        _ => Err(SqlError::new(
            ErrorKind::InvalidParameterValue,
            "identity column type must be smallint, integer, or bigint",
        )),
    }
}

/// The options of an identity column, as `sqlparser` has them.
fn read_options(written: &[ast::SequenceOptions]) -> Result<Options, SqlError> {
    let mut options = Options::default();
    for option in written {
        match option {
            ast::SequenceOptions::IncrementBy(by, _) => options.increment = Some(number(by)?),
            ast::SequenceOptions::MinValue(min) => {
                options.min = Some(min.as_ref().map(number).transpose()?);
            }
            ast::SequenceOptions::MaxValue(max) => {
                options.max = Some(max.as_ref().map(number).transpose()?);
            }
            ast::SequenceOptions::StartWith(start, _) => options.start = Some(number(start)?),
            ast::SequenceOptions::Cache(cache) => options.cache = Some(number(cache)?),
            // `sqlparser` notes the NO.
            ast::SequenceOptions::Cycle(no) => options.cycles = Some(!no),
        }
    }
    Ok(options)
}

fn number(written: &Expr) -> Result<i64, SqlError> {
    let text = written.to_string();
    text.parse().map_err(|_| {
        SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            format!("value \"{text}\" is out of range for type bigint"),
        )
    })
}

/// Gives the checks without a name one; `names` are those of the table's other constraints.
fn named_checks(
    table: &str,
    columns: &[Column],
    checks: Vec<WrittenCheck>,
    mut names: BTreeSet<String>,
) -> Result<Vec<CheckConstraint>, SqlError> {
    let columns: BTreeSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    for name in checks.iter().filter_map(|check| check.name.as_ref()) {
        if !names.insert(name.clone()) {
            return Err(duplicate_constraint(name, table));
        }
    }
    let mut named = Vec::with_capacity(checks.len());
    for check in checks {
        let WrittenCheck {
            name,
            expression,
            condition,
        } = check;
        let name = name.unwrap_or_else(|| {
            let column = condition.and_then(|condition| single_column(&condition, &columns));
            let made = unused(table, column.as_deref(), "check", &|name| {
                names.contains(name)
            });
            names.insert(made.clone());
            made
        });
        named.push(CheckConstraint {
            name,
            expression,
            not_valid: false,
        });
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
pub(super) fn refuse_columns(default: &Expr) -> Result<(), SqlError> {
    check_stored("DEFAULT expressions", default)?;
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
        check_column_name(name)?;
        if !seen.insert(name) {
            return Err(SqlError::new(
                ErrorKind::DuplicateColumn,
                format!("column \"{name}\" specified more than once"),
            ));
        }
    }
    Ok(())
}

/// Refuses names that are kept.
pub(super) fn check_column_name(name: &str) -> Result<(), SqlError> {
    if SYSTEM_COLUMNS.contains(&name) {
        return Err(SqlError::new(
            ErrorKind::DuplicateColumn,
            format!("column name \"{name}\" conflicts with a system column name"),
        ));
    }
    Ok(())
}

/// Texts compare by their bytes, so only collations that do are taken.
pub(super) fn check_collation(name: &ObjectName) -> Result<(), SqlError> {
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
