//! CREATE, ALTER and DROP ROLE, USER and GROUP.

use aerostat_types::{ErrorKind, SqlError};

use super::tokens::Tokens;

/// A role as a statement names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// CURRENT_USER, CURRENT_ROLE or SESSION_USER, which are one here.
    Current,
    /// By its name.
    Named(String),
}

impl RoleName {
    pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<Self, SqlError> {
        match tokens.accept_one(&["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER"]) {
            Some(_) => Ok(RoleName::Current),
            None => tokens.name().map(RoleName::Named),
        }
    }

    /// The name, where `current` is the role that runs the statement.
    pub fn of<'a>(&'a self, current: &'a str) -> &'a str {
        match self {
            RoleName::Current => current,
            RoleName::Named(name) => name,
        }
    }
}

/// A command about roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleCommand {
    /// CREATE ROLE, USER or GROUP.
    Create {
        /// Its name.
        name: String,
        /// What it may do; CREATE USER has LOGIN unless it says otherwise.
        options: RoleOptions,
    },
    /// ALTER ROLE with options.
    Alter {
        /// Which.
        role: RoleName,
        /// What changes.
        options: RoleOptions,
    },
    /// ALTER ROLE … RENAME TO.
    Rename {
        /// Which.
        role: RoleName,
        /// Its name to come.
        to: String,
    },
    /// DROP ROLE.
    Drop {
        /// Which.
        roles: Vec<RoleName>,
        /// IF EXISTS.
        if_exists: bool,
    },
}

impl RoleCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            RoleCommand::Create { .. } => "CREATE ROLE",
            RoleCommand::Alter { .. } | RoleCommand::Rename { .. } => "ALTER ROLE",
            RoleCommand::Drop { .. } => "DROP ROLE",
        }
    }
}

/// What a role may do; `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// SUPERUSER.
    pub superuser: Option<bool>,
    /// LOGIN.
    pub login: Option<bool>,
    /// CREATEDB.
    pub create_database: Option<bool>,
    /// CREATEROLE.
    pub create_role: Option<bool>,
    /// CONNECTION LIMIT; −1 for none.
    pub connection_limit: Option<i32>,
    /// PASSWORD.
    pub password: Option<Password>,
}

/// What PASSWORD was given.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// NULL: none, so that no password lets it in.
    None,
    /// A password in clear, or a SCRAM-SHA-256 verifier.
    Text(String),
}

impl std::fmt::Debug for Password {
    /// Passwords stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Password::None => "None",
            Password::Text(_) => "Text(…)",
        })
    }
}

/// `None` for USER MAPPING, which is no role.
pub(super) fn parse(
    tokens: &mut Tokens<'_>,
    verb: &str,
    object: &str,
) -> Result<Option<RoleCommand>, SqlError> {
    if object == "USER" && tokens.peek_word() == "MAPPING" {
        return Ok(None);
    }
    match verb {
        "CREATE" => create(tokens, object),
        "ALTER" => alter(tokens, object),
        _ => {
            let if_exists = tokens.accept(&["IF", "EXISTS"]);
            Ok(RoleCommand::Drop {
                roles: tokens.list(RoleName::parse)?,
                if_exists,
            })
        }
    }
    .map(Some)
}

fn create(tokens: &mut Tokens<'_>, object: &str) -> Result<RoleCommand, SqlError> {
    let name = tokens.name()?;
    tokens.accept(&["WITH"]);
    let mut options = options(tokens)?;
    if object == "USER" {
        options.login.get_or_insert(true);
    }
    Ok(RoleCommand::Create { name, options })
}

fn alter(tokens: &mut Tokens<'_>, object: &str) -> Result<RoleCommand, SqlError> {
    if tokens.accept(&["ALL"]) {
        return Err(settings());
    }
    let role = RoleName::parse(tokens)?;
    if tokens.accept(&["RENAME"]) {
        tokens.expect(&["TO"])?;
        return Ok(RoleCommand::Rename {
            role,
            to: tokens.name()?,
        });
    }
    if matches!(tokens.peek_word().as_str(), "SET" | "RESET" | "IN") {
        return Err(settings());
    }
    if object == "GROUP" && matches!(tokens.peek_word().as_str(), "ADD" | "DROP") {
        return Err(membership());
    }
    tokens.accept(&["WITH"]);
    Ok(RoleCommand::Alter {
        role,
        options: options(tokens)?,
    })
}

fn options(tokens: &mut Tokens<'_>) -> Result<RoleOptions, SqlError> {
    let mut options = RoleOptions::default();
    while !tokens.at_end() {
        option(tokens, &mut options)?;
    }
    Ok(options)
}

fn option(tokens: &mut Tokens<'_>, options: &mut RoleOptions) -> Result<(), SqlError> {
    let word = tokens.peek_word();
    let (name, on) = match word.strip_prefix("NO") {
        Some(rest) => (rest, false),
        None => (word.as_str(), true),
    };
    let slot = match name {
        "SUPERUSER" => Some(&mut options.superuser),
        "LOGIN" => Some(&mut options.login),
        "CREATEDB" => Some(&mut options.create_database),
        "CREATEROLE" | "CREATEUSER" => Some(&mut options.create_role),
        _ => None,
    };
    if let Some(slot) = slot {
        tokens.skip();
        return set(tokens, slot, on);
    }
    match word.as_str() {
        // Without members there is nothing to inherit, so both are true already.
        "INHERIT" | "NOINHERIT" | "NOREPLICATION" | "NOBYPASSRLS" => {
            tokens.skip();
            Ok(())
        }
        "REPLICATION" | "BYPASSRLS" => Err(not_supported(format!(
            "role option {word} is not supported"
        ))),
        "ENCRYPTED" | "PASSWORD" => {
            tokens.accept(&["ENCRYPTED"]);
            tokens.expect(&["PASSWORD"])?;
            let password = if tokens.accept(&["NULL"]) {
                Password::None
            } else {
                Password::Text(tokens.string()?)
            };
            set(tokens, &mut options.password, password)
        }
        "UNENCRYPTED" => Err(not_supported("UNENCRYPTED PASSWORD is no longer supported")
            .with_hint("Remove UNENCRYPTED to store the password in encrypted form instead.")),
        "CONNECTION" => {
            tokens.skip();
            tokens.expect(&["LIMIT"])?;
            let limit = connection_limit(tokens)?;
            set(tokens, &mut options.connection_limit, limit)
        }
        "VALID" => Err(not_supported("VALID UNTIL is not supported")),
        "IN" | "ROLE" | "USER" | "ADMIN" | "GROUP" => Err(membership()),
        "SYSID" => {
            tokens.skip();
            tokens.integer().map(|_| ())
        }
        _ => Err(tokens.unexpected()),
    }
}

fn set<T>(tokens: &Tokens<'_>, slot: &mut Option<T>, value: T) -> Result<(), SqlError> {
    if slot.replace(value).is_some() {
        return Err(tokens.error_before(ErrorKind::SyntaxError, "conflicting or redundant options"));
    }
    Ok(())
}

fn membership() -> SqlError {
    not_supported("membership in roles is not supported")
        .with_hint("Grant privileges to each role.")
}

fn settings() -> SqlError {
    not_supported("settings for a role are not supported")
        .with_hint("Give settings when connecting, for example with PGOPTIONS, or use SET.")
}

fn not_supported(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}

/// A limit of connections, −1 for none.
pub(super) fn connection_limit(tokens: &mut Tokens<'_>) -> Result<i32, SqlError> {
    let limit = tokens.integer()?;
    if limit < -1 {
        let message = format!("invalid connection limit: {limit}");
        return Err(tokens.error_before(ErrorKind::InvalidParameterValue, message));
    }
    Ok(limit)
}
