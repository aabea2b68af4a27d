//! The layout of a table: its syntax in CREATE TABLE and ALTER TABLE, and changing it.
//!
//! A layout is given, or left to the adviser (`auto`): then it begins as a column store, and
//! upkeep changes it as the statements suggest. ALTER TABLE changes it at once, and back if its
//! transaction does not commit; the table's segments follow one by one while statements go on.

use std::{fmt, str::FromStr, sync::Arc};

use aerostat_api::Notice;
use aerostat_sql::{
    names::{QualifiedName, ResolvedName, folded},
    storage_parameters::{self, Owner},
    utility::TableParameters,
};
use aerostat_txn::{CancelToken, LockMode};
use aerostat_types::{Column, ErrorKind, Layout, LayoutError, SqlError, TableSchema};
use sqlparser::ast::{self, CreateTableOptions, Expr, SqlOption, Value};

use super::{Found, privilege::relation_mut};
use crate::{
    actor::Actor,
    failure::from_storage,
    state::{CatalogState, Database, Draft, Effect, Relation, TableEntry, relation_tag},
};

/// The layout of tables that say none; the setting `aerostat.default_layout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultLayout {
    /// All columns together.
    Row,
    /// Each column by itself.
    #[default]
    Column,
    /// Columns two by two, in their order: a hybrid for any table, which tests run on.
    Pairs,
    /// What the adviser finds, from [`Layout::Column`] on.
    Auto,
}

impl DefaultLayout {
    /// From a setting's value that [`DefaultLayout::from_str`] has accepted; the default for any other.
    pub fn from_setting(text: &str) -> Self {
        text.parse().unwrap_or_default()
    }

    fn of(self, columns: &[Column]) -> Layout {
        match self {
            DefaultLayout::Row => Layout::Row,
            DefaultLayout::Column | DefaultLayout::Auto => Layout::Column,
            DefaultLayout::Pairs => Layout::Groups(
                columns
                    .chunks(2)
                    .map(|pair| pair.iter().map(|column| column.name.clone()).collect())
                    .collect(),
            ),
        }
    }
}

impl fmt::Display for DefaultLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DefaultLayout::Row => "row",
            DefaultLayout::Column => "column",
            DefaultLayout::Pairs => "pairs",
            DefaultLayout::Auto => "auto",
        })
    }
}

impl FromStr for DefaultLayout {
    type Err = SqlError;

    fn from_str(text: &str) -> Result<Self, SqlError> {
        match text.to_ascii_lowercase().as_str() {
            "row" => Ok(DefaultLayout::Row),
            "column" => Ok(DefaultLayout::Column),
            "pairs" => Ok(DefaultLayout::Pairs),
            "auto" => Ok(DefaultLayout::Auto),
            _ => Err(SqlError::new(
                ErrorKind::InvalidParameterValue,
                format!("invalid value for parameter \"aerostat.default_layout\": \"{text}\""),
            )
            .with_hint("Available values: row, column, pairs, auto.")),
        }
    }
}

/// The layout that a table is to have.
pub(super) struct WantedLayout {
    /// That of its first segments.
    pub(super) start: Layout,
    /// Whether the adviser may change it.
    pub(super) auto: bool,
}

/// What a text asks for: `auto`, or a layout.
fn parse(text: &str) -> Result<Option<Layout>, SqlError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    Layout::parse(text)
        .map(Some)
        .map_err(|error| invalid(&error))
}

/// The layout that CREATE TABLE names, or the default.
pub(super) fn of_create(
    statement: &ast::CreateTable,
    schema: &TableSchema,
    default: DefaultLayout,
    notices: &mut Vec<Notice>,
) -> Result<WantedLayout, SqlError> {
    let none = WantedLayout {
        start: default.of(&schema.columns),
        auto: default == DefaultLayout::Auto,
    };
    let options = match &statement.table_options {
        CreateTableOptions::None => return Ok(none),
        CreateTableOptions::With(options) => options,
        _ => {
            return Err(SqlError::new(
                ErrorKind::SyntaxError,
                "syntax error in the options of CREATE TABLE",
            ));
        }
    };
    let (mut given, mut others) = (None, Vec::new());
    for option in options {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("syntax error at or near \"{option}\""),
            ));
        };
        match key.value.to_ascii_lowercase().as_str() {
            "layout" if given.is_some() => {
                return Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    "parameter \"layout\" specified more than once",
                ));
            }
            "layout" => {
                let text = option_text(value)
                    .ok_or_else(|| invalid(&LayoutError::Syntax(value.to_string())))?;
                given = Some(parse(&text)?);
            }
            other => {
                let value = option_text(value).unwrap_or_else(|| value.to_string());
                others.push((other.to_owned(), Some(value)));
            }
        }
    }
    notices.extend(storage_parameters::check(Owner::Table, &others)?);
    let wanted = match given {
        None => none,
        Some(None) => WantedLayout {
            start: DefaultLayout::Auto.of(&schema.columns),
            auto: true,
        },
        Some(Some(layout)) => WantedLayout {
            start: layout,
            auto: false,
        },
    };
    check(&wanted.start, &schema.columns)?;
    Ok(wanted)
}

fn check(layout: &Layout, columns: &[Column]) -> Result<(), SqlError> {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    layout
        .resolve(&names)
        .map(drop)
        .map_err(|error| invalid(&error))
}

/// ALTER TABLE … SET or RESET. The table's segments follow while others use them.
pub(super) fn alter(
    draft: &Draft,
    actor: &Actor,
    name: &QualifiedName,
    parameters: &TableParameters,
    cancel: &CancelToken,
) -> Result<Vec<Notice>, SqlError> {
    draft.lock_owned(actor, [name], LockMode::ShareUpdateExclusive)?;
    let mut change = draft.change()?;
    let (place, entry) = table(&change.state, actor, name)?;
    let notices = match parameters.reset {
        true => storage_parameters::check_names(Owner::Table, &parameters.others)?,
        false => storage_parameters::check(Owner::Table, &parameters.others)?,
    };
    let Some(text) = &parameters.layout else {
        return Ok(notices);
    };
    let columns = &entry.table.schema().columns;
    let wanted = match text {
        // RESET: what a table made now would have.
        None => Some(DefaultLayout::default().of(columns)),
        Some(text) => parse(text)?,
    };
    if let Some(layout) = &wanted {
        check(layout, columns)?;
        let before = entry.table.layout();
        entry.table.set_layout(layout).map_err(from_storage)?;
        draft.note(Effect::Laid(Arc::clone(&entry.table), before));
    }
    set_auto(&mut change.state, &place, wanted.is_none())?;
    change.publish()?;
    entry.table.reshape(cancel).map_err(from_storage)?;
    Ok(notices)
}

/// Gives a table whose layout is left to the adviser another one. `false` when the table
/// is not there any more, its layout is no longer to be changed, or somebody is at it.
///
/// # Errors
/// The layout does not fit; it is what it was.
pub fn follow_advice(
    database: &Database,
    entry: &TableEntry,
    layout: &Layout,
) -> Result<bool, SqlError> {
    let locks = database.store.txns().relation_locks();
    if !locks.try_acquire(relation_tag(entry.oid), LockMode::ShareUpdateExclusive) {
        return Ok(false);
    }
    let state = database.catalog.load();
    let is_it = |relation: &Relation| match relation {
        Relation::Table(now) => now.table.id() == entry.table.id() && now.auto_layout,
        Relation::View(_) | Relation::Sequence(_) => false,
    };
    let found = state.relations().any(|(_, relation, _)| is_it(relation));
    if found {
        entry.table.adopt_layout(layout).map_err(from_storage)?;
    }
    Ok(found)
}

fn table(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(ResolvedName, Arc<TableEntry>), SqlError> {
    let Found { place, relation } = actor.resolve(state, name)?;
    let Relation::Table(entry) = relation else {
        return Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("\"{}\" is not a table", name.name),
        ));
    };
    actor.require_ownership(relation)?;
    Ok((place, Arc::clone(entry)))
}

fn set_auto(state: &mut CatalogState, place: &ResolvedName, auto: bool) -> Result<(), SqlError> {
    if let Relation::Table(entry) = relation_mut(state, place)? {
        Arc::make_mut(entry).auto_layout = auto;
    }
    Ok(())
}

fn option_text(value: &Expr) -> Option<String> {
    match value {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                Some(text.clone())
            }
            _ => None,
        },
        _ => None,
    }
}

fn invalid(error: &LayoutError) -> SqlError {
    let kind = match error {
        LayoutError::Syntax(_) => ErrorKind::InvalidParameterValue,
        LayoutError::UnknownColumn(_) => ErrorKind::UndefinedColumn,
        LayoutError::RepeatedColumn(_) => ErrorKind::DuplicateColumn,
    };
    SqlError::new(kind, error.to_string())
        .with_hint("A layout is 'row', 'column', 'auto', or groups of columns such as '(a,b),(c)'.")
}
