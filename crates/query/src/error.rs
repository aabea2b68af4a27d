//! Converting DataFusion's and Arrow's errors to those that a user sees.
//!
//! Our own code raises [`SqlError`]s, which travel through DataFusion as external errors and come
//! out here unchanged. DataFusion's own errors are recognised by variant where there is one, and
//! otherwise by wording; the tests below pin the wordings.

use std::{error::Error, iter::successors};

use aerostat_catalog::failure::{self, is_full, out_of_memory};
pub(crate) use aerostat_semantics::external;
use aerostat_semantics::name_of_arrow;
use aerostat_sql::{
    names::{OUTER_SCHEMA, visible_name},
    statement::Source,
};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{datatypes::DataType, error::ArrowError},
    common::{DataFusionError, SchemaError, TableReference},
};

/// The user's error for one of DataFusion's, with a position in the statement where one is known.
pub fn from_datafusion(error: DataFusionError, source: &Source) -> SqlError {
    let mut sql_error = convert(&error);
    if sql_error.position.is_none() {
        sql_error.position = diagnosed(&error, source).or_else(|| mentioned(&sql_error, source));
    }
    sql_error
}

/// The error of our own that another error wraps.
pub(crate) fn ours(error: &DataFusionError) -> Option<&SqlError> {
    find(error)
}

fn convert(error: &DataFusionError) -> SqlError {
    if let Some(ours) = ours(error) {
        return ours.clone();
    }
    // The only files are those that queries spill to.
    if chain(error).any(is_full) {
        let message = "no disk is left for temporary files";
        return SqlError::new(ErrorKind::DiskFull, message)
            .with_hint("Free space on the disk of the data folder, or ask for less at once.");
    }
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            convert(inner)
        }
        DataFusionError::Shared(inner) => convert(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => convert(first),
            None => SqlError::new(ErrorKind::Internal, error.to_string()),
        },
        DataFusionError::ArrowError(inner, _) => from_arrow(inner),
        DataFusionError::ResourcesExhausted(detail) => out_of_memory(first_line(detail)),
        DataFusionError::NotImplemented(message) => {
            SqlError::new(ErrorKind::FeatureNotSupported, first_line(message))
        }
        DataFusionError::SchemaError(inner, _) => from_schema(inner),
        DataFusionError::SQL(inner, _) => {
            SqlError::new(ErrorKind::SyntaxError, first_line(&inner.to_string()))
        }
        DataFusionError::Plan(message) => from_plan(message),
        DataFusionError::Execution(message) => from_execution(message),
        DataFusionError::External(inner) => match inner.downcast_ref::<ArrowError>() {
            Some(arrow) => from_arrow(arrow),
            None => from_execution(&inner.to_string()),
        },
        DataFusionError::IoError(inner) => SqlError::new(ErrorKind::IoError, inner.to_string()),
        DataFusionError::ExecutionJoin(_) => {
            SqlError::new(ErrorKind::Internal, first_line(&error.to_string()))
        }
        other => SqlError::new(ErrorKind::Internal, first_line(&other.to_string())),
    }
}

/// The error of this type in a chain of sources.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// An error and its causes, from the nearest to the farthest.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |error| cause(*error))
}

/// The cause of an error. Shared errors hide behind an Arc, external ones behind a Box.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<DataFusionError>() {
        Some(DataFusionError::Shared(inner)) => return Some(&**inner),
        Some(DataFusionError::External(inner)) => return Some(&**inner),
        Some(DataFusionError::ArrowError(inner, _)) => return Some(&**inner),
        Some(DataFusionError::IoError(inner)) => return Some(inner),
        Some(DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner)) => {
            return Some(&**inner);
        }
        _ => {}
    }
    match error.downcast_ref::<ArrowError>() {
        Some(ArrowError::ExternalError(inner)) => return Some(&**inner),
        Some(ArrowError::IoError(_, inner)) => return Some(inner),
        _ => {}
    }
    failure::cause(error)
}

fn from_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(ErrorKind::DivisionByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(message) => SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            format!("value out of range: {message}"),
        ),
        ArrowError::CastError(message)
        | ArrowError::ParseError(message)
        | ArrowError::ComputeError(message)
        | ArrowError::InvalidArgumentError(message) => from_execution(message),
        ArrowError::ExternalError(inner) => from_execution(&inner.to_string()),
        ArrowError::NotYetImplemented(message) => {
            SqlError::new(ErrorKind::FeatureNotSupported, first_line(message))
        }
        ArrowError::MemoryError(message) => {
            SqlError::new(ErrorKind::OutOfMemory, first_line(message))
        }
        ArrowError::IoError(message, _) => SqlError::new(ErrorKind::IoError, first_line(message)),
        other => SqlError::new(ErrorKind::DataException, first_line(&other.to_string())),
    }
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let known = |relation: &TableReference| {
                let qualifiers = valid_fields
                    .iter()
                    .filter_map(|field| field.relation.as_ref());
                let mut same = qualifiers.filter(|qualifier| qualifier.resolved_eq(relation));
                // A relation with the schema of outer queries exists.
                relation.schema() == Some(OUTER_SCHEMA) || same.next().is_some()
            };
            let is_meant = |other: &datafusion::prelude::Column| {
                other.name.contains(aerostat_sql::tree::RESERVED)
                    && visible_name(&other.name) == field.name
                    && (field.relation.is_none() || other.relation == field.relation)
            };
            if valid_fields.iter().any(is_meant) {
                let message = format!("column reference \"{}\" is ambiguous", field.name);
                return SqlError::new(ErrorKind::AmbiguousColumn, message);
            }
            if let Some(relation) = &field.relation
                && !known(relation)
            {
                let name = relation.table();
                let message = format!("missing FROM-clause entry for table \"{name}\"");
                return SqlError::new(ErrorKind::UndefinedTable, message);
            }
            let name = match &field.relation {
                Some(relation) => format!("{}.{}", relation.table(), field.name),
                None => format!("\"{}\"", field.name),
            };
            SqlError::new(
                ErrorKind::UndefinedColumn,
                format!("column {name} does not exist"),
            )
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            ErrorKind::AmbiguousColumn,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(
            ErrorKind::DuplicateAlias,
            format!("column \"{name}\" specified more than once"),
        ),
    }
}

/// The error for a message of DataFusion's planner, most of which differ by wording alone.
fn from_plan(message: &str) -> SqlError {
    let line = first_line(message);
    if let Some(error) = reworded(&line) {
        return error;
    }
    let rules: [(&str, ErrorKind); 20] = [
        ("non-boolean predicate", ErrorKind::DatatypeMismatch),
        (
            "Inconsistent data type across values list",
            ErrorKind::DatatypeMismatch,
        ),
        ("Invalid function", ErrorKind::UndefinedFunction),
        ("Failed to coerce arguments", ErrorKind::UndefinedFunction),
        ("does not support", ErrorKind::UndefinedFunction),
        ("No function matches", ErrorKind::UndefinedFunction),
        (
            "Error during planning: Failed to coerce",
            ErrorKind::UndefinedFunction,
        ),
        (
            "must appear in the GROUP BY clause",
            ErrorKind::GroupingError,
        ),
        (
            "could not be resolved from available columns",
            ErrorKind::GroupingError,
        ),
        ("must be an aggregate", ErrorKind::GroupingError),
        ("table alias", ErrorKind::DuplicateAlias),
        (
            "Projections require unique expression names",
            ErrorKind::DuplicateAlias,
        ),
        ("Cannot coerce", ErrorKind::DatatypeMismatch),
        (
            "Cannot infer common argument type",
            ErrorKind::UndefinedFunction,
        ),
        ("Unsupported CAST", ErrorKind::CannotCoerce),
        ("Unsupported SQL type", ErrorKind::UndefinedObject),
        (
            "must return the same number of columns",
            ErrorKind::SyntaxError,
        ),
        ("have different number of columns", ErrorKind::SyntaxError),
        ("should only return one column", ErrorKind::SyntaxError),
        ("Window function", ErrorKind::WindowingError),
    ];
    let kind = rules
        .iter()
        .find(|(pattern, _)| line.contains(pattern))
        .map_or(ErrorKind::SyntaxError, |&(_, kind)| kind);
    if kind == ErrorKind::UndefinedFunction
        && let Some((_, rest)) = line.split_once("Invalid function '")
        && let Some((name, _)) = rest.split_once('\'')
    {
        return SqlError::new(kind, format!("function {name} does not exist"))
            .with_hint("No function of this name is known.");
    }
    SqlError::new(kind, line)
}

/// The error for a message of the planner for which PostgreSQL has words of its own.
fn reworded(line: &str) -> Option<SqlError> {
    let after = |pattern: &str| line.split_once(pattern).map(|(_, rest)| rest);
    let number = |rest: &str| -> String { rest.chars().take_while(char::is_ascii_digit).collect() };
    let unlisted = |clause: &str, position: String| {
        let message = format!("{clause} position {position} is not in select list");
        Some(SqlError::new(ErrorKind::InvalidColumnReference, message))
    };
    if let Some(name) = after("Invalid qualifier ") {
        let message = format!("missing FROM-clause entry for table \"{name}\"");
        return Some(SqlError::new(ErrorKind::UndefinedTable, message));
    }
    if line.contains("failed to match any signature")
        && let Some((name, _)) = after("Function '").and_then(|rest| rest.split_once('\''))
    {
        let message = format!("function {name} does not exist");
        let hint = "No function matches the given name and argument types. You might need to add explicit type casts.";
        return Some(SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(hint));
    }
    if line.contains("LIMIT must be") {
        let message = "LIMIT must not be negative";
        return Some(SqlError::new(ErrorKind::InvalidRowCountInLimit, message));
    }
    if line.contains("OFFSET must be") {
        let message = "OFFSET must not be negative";
        return Some(SqlError::new(ErrorKind::InvalidRowCountInOffset, message));
    }
    if let Some(rest) = after("Order by column out of bounds, specified: ") {
        return unlisted("ORDER BY", number(rest));
    }
    if line.contains("Order by index starts at 1") {
        return unlisted("ORDER BY", "0".to_owned());
    }
    if let Some(rest) = after("Cannot find column with position ") {
        return unlisted("GROUP BY", number(rest));
    }
    if line.contains("For SELECT DISTINCT, ORDER BY expressions") {
        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return Some(SqlError::new(ErrorKind::InvalidColumnReference, message));
    }
    let operand = after("Unary operator 'NOT' requires a boolean expression, got ")?;
    let name = operand
        .parse::<DataType>()
        .map_or_else(|_| operand.to_owned(), |ty| name_of_arrow(&ty));
    let message = format!("argument of NOT must be type boolean, not type {name}");
    Some(SqlError::new(ErrorKind::DatatypeMismatch, message))
}

fn from_execution(message: &str) -> SqlError {
    let line = first_line(message);
    let lower = line.to_ascii_lowercase();
    let has = |pattern: &str| lower.contains(pattern);
    let kind = if has("divide by zero") || has("division by zero") {
        return SqlError::new(ErrorKind::DivisionByZero, "division by zero");
    } else if has("overflow")
        || has("out of range")
        || has("can't cast value")
        || has("too large to store")
        || has("is too large")
    {
        ErrorKind::NumericValueOutOfRange
    } else if has("cannot cast string") || has("cannot cast value") {
        ErrorKind::InvalidTextRepresentation
    } else if has("error parsing timestamp")
        || has("error parsing date")
        || has("error parsing interval")
    {
        ErrorKind::InvalidDatetimeFormat
    } else if has("regular expression") || has("regex") {
        ErrorKind::InvalidRegularExpression
    } else if has("scalar subquery") || has("more than one row") {
        return SqlError::new(
            ErrorKind::CardinalityViolation,
            "more than one row returned by a subquery used as an expression",
        );
    } else if has("failed to allocate") || has("resources exhausted") {
        ErrorKind::OutOfMemory
    } else {
        ErrorKind::DataException
    };
    SqlError::new(kind, line)
}

/// The first line of a message: DataFusion appends backtraces and contexts on further lines.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim();
    let mut line = line;
    for prefix in [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Schema error: ",
        "External error: ",
    ] {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    line.trim_end_matches('.').to_owned()
}

/// The position in the statement that DataFusion's diagnostics name.
fn diagnosed(error: &DataFusionError, source: &Source) -> Option<u32> {
    let start = error.diagnostic()?.span?.start;
    let line = usize::try_from(start.line.checked_sub(1)?).ok()?;
    // The parser counted lines and columns over the client's whole message, so they are
    // positions in this text only for a statement on the message's first line.
    let before: usize = source
        .text
        .split('\n')
        .take(line)
        .map(|line| line.chars().count() + 1)
        .sum();
    let column = usize::try_from(start.column.checked_sub(1)?).ok()?;
    let at = before + column;
    (source.offset == 0 && at < source.text.chars().count())
        .then(|| u32::try_from(at + 1).ok())
        .flatten()
}

/// The first position in the statement of the name that the message quotes.
fn mentioned(error: &SqlError, source: &Source) -> Option<u32> {
    if !matches!(
        error.kind,
        ErrorKind::UndefinedTable
            | ErrorKind::UndefinedColumn
            | ErrorKind::UndefinedFunction
            | ErrorKind::UndefinedObject
            | ErrorKind::AmbiguousColumn
            | ErrorKind::InvalidSchemaName
            | ErrorKind::InvalidTextRepresentation
            | ErrorKind::InvalidDatetimeFormat
            | ErrorKind::DatetimeFieldOverflow
            | ErrorKind::GroupingError
    ) {
        return None;
    }
    let quoted = error.message.split('"').nth(1);
    let name = match (quoted, error.message.split_whitespace().nth(1)) {
        (Some(quoted), _) => quoted,
        (None, Some(word)) => word.split('(').next().unwrap_or(word),
        _ => return None,
    };
    if name.is_empty() {
        return None;
    }
    let haystack = source.text.to_ascii_lowercase();
    let needle = name.to_ascii_lowercase();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let at = haystack
        .match_indices(&needle)
        .map(|(at, _)| at)
        .find(|&at| {
            !is_word(haystack[..at].chars().next_back())
                && !is_word(haystack[at + needle.len()..].chars().next())
        })?;
    // The position of a literal is that of its opening quote.
    let at = if source.text[..at].ends_with('\'') {
        at - 1
    } else {
        at
    };
    u32::try_from(source.text[..at].chars().count())
        .ok()
        .map(|at| at + 1 + source.offset)
}
