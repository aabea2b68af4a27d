//! CREATE, ALTER and DROP DATABASE.

use std::{collections::BTreeSet, num::NonZeroU8};

use aerostat_types::{ByteSize, Durability, ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::{
    role::{RoleName, connection_limit},
    system,
    tokens::Tokens,
};

/// A command about databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseCommand {
    /// CREATE DATABASE.
    Create {
        /// Its name.
        name: String,
        /// OWNER; who makes it if not given.
        owner: Option<RoleName>,
        /// Its limits.
        options: DatabaseOptions,
    },
    /// ALTER DATABASE.
    Alter {
        /// Its name.
        name: String,
        /// How.
        change: DatabaseChange,
    },
    /// DROP DATABASE.
    Drop {
        /// Its name.
        name: String,
        /// IF EXISTS.
        if_exists: bool,
        /// WITH (FORCE).
        force: bool,
    },
}

impl DatabaseCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            DatabaseCommand::Create { .. } => "CREATE DATABASE",
            DatabaseCommand::Alter { .. } => "ALTER DATABASE",
            DatabaseCommand::Drop { .. } => "DROP DATABASE",
        }
    }
}

/// How ALTER DATABASE changes a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseChange {
    /// RENAME TO.
    Rename(String),
    /// OWNER TO.
    Owner(RoleName),
    /// Limits, those that were given.
    Options(DatabaseOptions),
    /// CLOSE: it leaves memory until somebody connects.
    Close {
        /// WITH (FORCE): its sessions are ended.
        force: bool,
    },
}

/// Limits of a database; the outer `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// Its memory ceiling; the inner `None` is the node's.
    pub memory_max: Option<Option<ByteSize>>,
    /// What is kept for it, whatever others want; the inner `None` is nothing.
    pub memory_min: Option<Option<ByteSize>>,
    /// Its weight among databases, from 1 to [`MEMORY_WEIGHT_MAX`], for memory beyond their minima.
    pub memory_weight: Option<u32>,
    /// At most this many connections; −1 for no limit.
    pub connection_limit: Option<i32>,
    /// At most this many statements run at once; −1 for no limit, the inner `None` for the node's default.
    pub statements_max: Option<Option<i32>>,
    /// At most this many wait for that; likewise.
    pub queue_max: Option<Option<i32>>,
    /// How long each waits at most, in milliseconds; 0 for no limit, the inner `None` for the node's default.
    pub queue_timeout_ms: Option<Option<u32>>,
    /// Its weight among databases, from 1 to [`CPU_WEIGHT_MAX`], for the time of the query threads.
    pub cpu_weight: Option<u32>,
    /// What a commit waits for.
    pub durability: Option<Durability>,
    /// The folder that its log is copied to; the inner `None` is no copying.
    pub log_archive: Option<Option<String>>,
    /// The nodes of a cluster that have copies of it, by name; the inner `None` is all of them.
    pub nodes: Option<Option<BTreeSet<String>>>,
    /// How many copies a cluster keeps of it, on nodes that it chooses; the inner `None` is what its nodes are started
    /// with.
    pub copies: Option<Option<NonZeroU8>>,
}

/// The smallest ceiling: an empty table of one small arena fits with its catalogue entry.
const MEMORY_MIN: ByteSize = ByteSize(1 << 20);

/// The weight of a database that was given none, as of a control group.
pub const MEMORY_WEIGHT_DEFAULT: u32 = 100;

/// The largest weight.
pub const MEMORY_WEIGHT_MAX: u32 = 10_000;

/// The weight of a database that was given none, and the largest, as those for memory.
pub const CPU_WEIGHT_DEFAULT: u32 = MEMORY_WEIGHT_DEFAULT;
/// See [`CPU_WEIGHT_DEFAULT`].
pub const CPU_WEIGHT_MAX: u32 = MEMORY_WEIGHT_MAX;

/// The parameters of ours, in the order of the documentation.
const PARAMETERS: [&str; 12] = [
    "memory_max",
    "memory_min",
    "memory_weight",
    "cpu_weight",
    "connection_limit",
    "statements_max",
    "queue_max",
    "queue_timeout",
    "durability",
    "log_archive",
    "nodes",
    "copies",
];

pub(super) fn parse_create(tokens: &mut Tokens<'_>) -> Result<DatabaseCommand, SqlError> {
    let name = tokens.name()?;
    let mut owner = None;
    let mut options = DatabaseOptions::default();
    while !tokens.at_end() {
        tokens.accept(&["WITH"]);
        if tokens.peek() == Some(&Token::LParen) {
            tokens.parenthesized(|tokens| parameter(tokens, &mut options))?;
        } else {
            option(tokens, &mut owner, &mut options)?;
        }
    }
    Ok(DatabaseCommand::Create {
        name,
        owner,
        options,
    })
}

/// One of PostgreSQL's options. What cannot differ here must be what Aerostat does.
fn option(
    tokens: &mut Tokens<'_>,
    owner: &mut Option<RoleName>,
    options: &mut DatabaseOptions,
) -> Result<(), SqlError> {
    if tokens.accept(&["CONNECTION", "LIMIT"]) {
        tokens.accept_token(&Token::Eq);
        options.connection_limit = Some(connection_limit(tokens)?);
        return Ok(());
    }
    let word = tokens.next_word();
    if word.is_empty() {
        return Err(tokens.unexpected());
    }
    tokens.accept_token(&Token::Eq);
    if word == "OWNER" {
        *owner = if tokens.accept(&["DEFAULT"]) {
            None
        } else {
            Some(RoleName::parse(tokens)?)
        };
        return Ok(());
    }
    let fixed: fn(&str) -> bool = match word.as_str() {
        "ENCODING" => is_utf8,
        "LOCALE" | "LC_COLLATE" | "LC_CTYPE" | "BUILTIN_LOCALE" => is_c_locale,
        "TEMPLATE" => |value| matches!(value, "template0" | "template1"),
        "TABLESPACE" => |value| value == "pg_default",
        "LOCALE_PROVIDER" => |value| matches!(value, "libc" | "builtin"),
        "ALLOW_CONNECTIONS" => |value| matches!(value, "true" | "on" | "1"),
        "IS_TEMPLATE" => |value| matches!(value, "false" | "off" | "0"),
        "STRATEGY" => |value| matches!(value, "wal_log" | "file_copy"),
        "ICU_LOCALE" | "ICU_RULES" | "COLLATION_VERSION" | "OID" => |_| false,
        _ => return Err(tokens.unexpected_before(&word)),
    };
    if tokens.accept(&["DEFAULT"]) {
        return Ok(());
    }
    let value = match tokens.accept_string().or_else(|| tokens.accept_number()) {
        Some(value) => value,
        None => tokens.label()?,
    };
    if fixed(&value) {
        return Ok(());
    }
    let message = format!("{word} \"{value}\" is not supported");
    Err(tokens
        .error_before(ErrorKind::InvalidParameterValue, message)
        .with_hint("Databases are in UTF8, compare texts by bytes (locale C), and begin empty."))
}

/// Whether it is a name of UTF-8.
fn is_utf8(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    // 6 is PostgreSQL's number for it.
    matches!(
        plain.to_ascii_lowercase().as_str(),
        "utf8" | "unicode" | "6"
    )
}

/// Whether a locale compares texts by bytes.
fn is_c_locale(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    matches!(
        lower.as_str(),
        "c" | "posix" | "c.utf8" | "c.utf-8" | "ucs_basic"
    )
}

/// One of our parameters in `(…)`: `memory_max = '2GB'`, `connection_limit = 5`,
/// `statements_max = 8`, `queue_timeout = '5s'`, `durability = 'none'`, `log_archive = '/backups/log'`,
/// `nodes = 'a, b'`, `copies = 2`.
fn parameter(tokens: &mut Tokens<'_>, options: &mut DatabaseOptions) -> Result<(), SqlError> {
    let name = tokens.label()?;
    if !is_parameter(&name) {
        return Err(unrecognized(tokens, &name));
    }
    tokens.expect_token(&Token::Eq)?;
    if tokens.accept(&["DEFAULT"]) {
        reset(&name, options);
        return Ok(());
    }
    match name.as_str() {
        "connection_limit" => options.connection_limit = Some(connection_limit(tokens)?),
        "durability" => options.durability = Some(durability(tokens)?),
        "log_archive" => options.log_archive = Some(Some(tokens.string()?)),
        "nodes" => options.nodes = Some(Some(nodes(tokens)?)),
        "copies" => options.copies = Some(Some(copies(tokens)?)),
        "memory_min" => options.memory_min = Some(Some(memory(tokens, &name)?)),
        "memory_weight" => options.memory_weight = Some(weight(tokens, &name)?),
        "cpu_weight" => options.cpu_weight = Some(weight(tokens, &name)?),
        // Of none at all nothing could ever run; where nobody may wait, who comes is refused.
        "statements_max" => options.statements_max = Some(Some(count(tokens, &name, 1)?)),
        "queue_max" => options.queue_max = Some(Some(count(tokens, &name, 0)?)),
        "queue_timeout" => options.queue_timeout_ms = Some(Some(time_ms(tokens, &name)?)),
        _ => options.memory_max = Some(Some(memory(tokens, &name)?)),
    }
    Ok(())
}

fn is_parameter(name: &str) -> bool {
    PARAMETERS.contains(&name)
}

/// Gives a parameter the value it has where nothing is said.
fn reset(name: &str, options: &mut DatabaseOptions) {
    match name {
        "connection_limit" => options.connection_limit = Some(-1),
        "durability" => options.durability = Some(Durability::default()),
        "log_archive" => options.log_archive = Some(None),
        "nodes" => options.nodes = Some(None),
        "copies" => options.copies = Some(None),
        "memory_min" => options.memory_min = Some(None),
        "memory_weight" => options.memory_weight = Some(MEMORY_WEIGHT_DEFAULT),
        "cpu_weight" => options.cpu_weight = Some(CPU_WEIGHT_DEFAULT),
        "statements_max" => options.statements_max = Some(None),
        "queue_max" => options.queue_max = Some(None),
        "queue_timeout" => options.queue_timeout_ms = Some(None),
        _ => options.memory_max = Some(None),
    }
}

fn unrecognized(tokens: &Tokens<'_>, name: &str) -> SqlError {
    let message = format!("unrecognized parameter \"{name}\"");
    tokens
        .error_before(ErrorKind::InvalidParameterValue, message)
        .with_hint(format!(
            "A database has the parameters {}.",
            PARAMETERS.join(", ")
        ))
}

fn durability(tokens: &mut Tokens<'_>) -> Result<Durability, SqlError> {
    let text = match tokens.accept_string() {
        Some(text) => text,
        None => tokens.label()?,
    };
    text.parse().map_err(|()| {
        let message = format!("invalid value for parameter \"durability\": \"{text}\"");
        let names = Durability::ALL.map(|(_, name)| name);
        tokens
            .error_before(ErrorKind::InvalidParameterValue, message)
            .with_hint(format!("Available values: {}.", names.join(", ")))
    })
}

/// Names with commas between them.
fn nodes(tokens: &mut Tokens<'_>) -> Result<BTreeSet<String>, SqlError> {
    let text = tokens.string()?;
    let names: BTreeSet<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        let message = format!("invalid value for parameter \"nodes\": \"{text}\"");
        let error = tokens.error_before(ErrorKind::InvalidParameterValue, message);
        return Err(error
            .with_hint("Name the nodes, with commas between them; RESET (nodes) is all of them."));
    }
    Ok(names)
}

fn copies(tokens: &mut Tokens<'_>) -> Result<NonZeroU8, SqlError> {
    let text = tokens.accept_string().or_else(|| tokens.accept_number());
    let count = text.as_deref().and_then(|text| text.parse().ok());
    count.ok_or_else(|| {
        let message = "copies must be a number from 1 to 255";
        tokens.error_before(ErrorKind::InvalidParameterValue, message)
    })
}

fn weight(tokens: &mut Tokens<'_>, name: &str) -> Result<u32, SqlError> {
    let text = tokens.accept_string().or_else(|| tokens.accept_number());
    let weight = text.as_deref().and_then(|text| text.parse().ok());
    let weight = weight.filter(|weight| (1..=MEMORY_WEIGHT_MAX).contains(weight));
    weight.ok_or_else(|| {
        let message = format!("{name} must be a number from 1 to {MEMORY_WEIGHT_MAX}");
        tokens.error_before(ErrorKind::InvalidParameterValue, message)
    })
}

/// A number from `least` on, or −1 for no limit.
fn count(tokens: &mut Tokens<'_>, name: &str, least: i32) -> Result<i32, SqlError> {
    let text = match tokens.accept_string() {
        Some(text) => text,
        None => {
            let number = tokens.integer();
            return number.and_then(|number| counted(tokens, name, least, Some(number)));
        }
    };
    counted(tokens, name, least, text.trim().parse().ok())
}

fn counted(
    tokens: &Tokens<'_>,
    name: &str,
    least: i32,
    number: Option<i32>,
) -> Result<i32, SqlError> {
    let number = number.filter(|number| *number >= least || *number == -1);
    number.ok_or_else(|| {
        let message = format!("{name} must be a number from {least} on, or -1 for no limit");
        tokens.error_before(ErrorKind::InvalidParameterValue, message)
    })
}

/// Milliseconds of a number, or of a text with a unit, as PostgreSQL reads times; at most as many as it takes.
fn time_ms(tokens: &mut Tokens<'_>, name: &str) -> Result<u32, SqlError> {
    let text = match tokens.accept_string() {
        Some(text) => text,
        None => tokens.accept_number().ok_or_else(|| tokens.unexpected())?,
    };
    read_time_ms(&text).ok_or_else(|| {
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        tokens
            .error_before(ErrorKind::InvalidParameterValue, message)
            .with_hint("Valid units are \"ms\", \"s\", \"min\", \"h\", and \"d\"; 0 is no limit.")
    })
}

/// The longest time that a setting of PostgreSQL takes, in milliseconds.
const TIME_MS_MAX: u64 = i32::MAX as u64;

/// Milliseconds of a whole number and a unit; `None` if it is no time.
pub fn read_time_ms(text: &str) -> Option<u32> {
    let text = text.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let factor = match unit.trim_start() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let ms = number.parse::<u64>().ok()?.checked_mul(factor)?;
    u32::try_from(ms).ok().filter(|_| ms <= TIME_MS_MAX)
}

fn memory(tokens: &mut Tokens<'_>, name: &str) -> Result<ByteSize, SqlError> {
    let size = system::memory(tokens, name)?;
    if size < MEMORY_MIN {
        let message = format!("{name} must be at least {MEMORY_MIN}");
        return Err(tokens.error_before(ErrorKind::InvalidParameterValue, message));
    }
    Ok(size)
}

pub(super) fn parse_alter(tokens: &mut Tokens<'_>) -> Result<DatabaseCommand, SqlError> {
    let name = tokens.name()?;
    let change = if tokens.accept(&["RENAME"]) {
        tokens.expect(&["TO"])?;
        DatabaseChange::Rename(tokens.name()?)
    } else if tokens.accept(&["OWNER"]) {
        tokens.expect(&["TO"])?;
        DatabaseChange::Owner(RoleName::parse(tokens)?)
    } else if tokens.accept(&["CLOSE"]) {
        DatabaseChange::Close {
            force: with_force(tokens)?,
        }
    } else {
        DatabaseChange::Options(changed_options(tokens)?)
    };
    Ok(DatabaseCommand::Alter { name, change })
}

fn changed_options(tokens: &mut Tokens<'_>) -> Result<DatabaseOptions, SqlError> {
    let mut options = DatabaseOptions::default();
    if tokens.accept_one(&["SET", "WITH"]).is_some() && tokens.peek() == Some(&Token::LParen) {
        tokens.parenthesized(|tokens| parameter(tokens, &mut options))?;
        return Ok(options);
    }
    if tokens.accept(&["RESET"]) && tokens.peek() == Some(&Token::LParen) {
        tokens.parenthesized(|tokens| {
            let name = tokens.label()?;
            if !is_parameter(&name) {
                return Err(unrecognized(tokens, &name));
            }
            reset(&name, &mut options);
            Ok(())
        })?;
        return Ok(options);
    }
    while tokens.accept(&["CONNECTION", "LIMIT"]) {
        tokens.accept_token(&Token::Eq);
        options.connection_limit = Some(connection_limit(tokens)?);
    }
    if options == DatabaseOptions::default() {
        return Err(match tokens.peek_word().as_str() {
            "" => tokens.unexpected(),
            "ALLOW_CONNECTIONS" | "IS_TEMPLATE" | "REFRESH" => {
                not_supported("this change of a database is not supported")
            }
            _ => not_supported("settings for a database are not supported")
                .with_hint("A database's limits are set with ALTER DATABASE … SET (memory_max = …, memory_min = …, memory_weight = …, cpu_weight = …, connection_limit = …, statements_max = …, queue_max = …, queue_timeout = …, durability = …, log_archive = …, nodes = …)."),
        });
    }
    Ok(options)
}

fn not_supported(message: &str) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}

pub(super) fn parse_drop(tokens: &mut Tokens<'_>) -> Result<DatabaseCommand, SqlError> {
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let name = tokens.name()?;
    Ok(DatabaseCommand::Drop {
        name,
        if_exists,
        force: with_force(tokens)?,
    })
}

/// `[ WITH ] ( FORCE )`, if it is there.
pub(super) fn with_force(tokens: &mut Tokens<'_>) -> Result<bool, SqlError> {
    let with = tokens.accept(&["WITH"]);
    let force = with || tokens.peek() == Some(&Token::LParen);
    if force {
        tokens.parenthesized(|tokens| tokens.expect(&["FORCE"]))?;
    }
    Ok(force)
}
