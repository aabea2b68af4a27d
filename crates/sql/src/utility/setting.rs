//! SET, RESET, SHOW and DISCARD.
//!
//! Every spelling becomes a setting's name and values: `SET TIME ZONE`, `SET NAMES`, `SET ROLE`,
//! `SET SESSION AUTHORIZATION`, `SET SCHEMA` and `SET SEED` are `timezone`, `client_encoding`,
//! `role`, `session_authorization`, `search_path` and `seed`.

use aerostat_types::{
    ErrorKind, SqlError, Zone,
    text::{IntervalField, IntervalType, parse_interval_as},
};
use sqlparser::tokenizer::Token;

use super::{
    Utility,
    setting_value::SettingValue,
    tokens::Tokens,
    transaction::{self, TransactionCommand},
};

/// A command about settings. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingCommand {
    /// SET name TO value.
    Set {
        /// How long it holds.
        scope: SettingScope,
        /// The setting.
        name: String,
        /// Its value.
        value: SettingValue,
    },
    /// RESET name.
    Reset(String),
    /// RESET ALL.
    ResetAll,
    /// SHOW name.
    Show(String),
    /// SHOW ALL.
    ShowAll,
    /// DISCARD.
    Discard(DiscardTarget),
}

impl SettingCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            SettingCommand::Set { .. } => "SET",
            SettingCommand::Reset(_) | SettingCommand::ResetAll => "RESET",
            SettingCommand::Show(_) | SettingCommand::ShowAll => "SHOW",
            SettingCommand::Discard(target) => match target {
                DiscardTarget::All => "DISCARD ALL",
                DiscardTarget::Plans => "DISCARD PLANS",
                DiscardTarget::Sequences => "DISCARD SEQUENCES",
                DiscardTarget::Temporary => "DISCARD TEMP",
            },
        }
    }
}

/// How long a setting holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingScope {
    /// Until the session ends.
    Session,
    /// Until the transaction ends.
    Local,
}

/// What DISCARD forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardTarget {
    /// Everything the session holds.
    All,
    /// Cached plans.
    Plans,
    /// State of sequences; there is none.
    Sequences,
    /// Temporary relations.
    Temporary,
}

pub(super) fn parse_set(tokens: &mut Tokens<'_>) -> Result<Utility, SqlError> {
    let is_assigned = tokens.is_second(&Token::Eq) || tokens.peek_second_word() == "TO";
    if !is_assigned && tokens.accept(&["CONSTRAINTS"]) {
        return Ok(Utility::Transaction(transaction::constraints(tokens)?));
    }
    if tokens.accept(&["SESSION", "CHARACTERISTICS"]) {
        tokens.expect(&["AS", "TRANSACTION"])?;
        return Ok(Utility::Transaction(TransactionCommand::SetDefaults(
            transaction::modes(tokens, true)?,
        )));
    }
    let session_word =
        tokens.peek_word() == "SESSION" && tokens.peek_second_word() != "AUTHORIZATION";
    let scope = if tokens.accept(&["LOCAL"]) {
        SettingScope::Local
    } else {
        if session_word {
            tokens.skip();
        }
        SettingScope::Session
    };
    if tokens.peek_word() == "TRANSACTION" {
        tokens.skip();
        if tokens.accept(&["SNAPSHOT"]) {
            return Err(not_supported("SET TRANSACTION SNAPSHOT is not supported"));
        }
        return Ok(Utility::Transaction(TransactionCommand::SetModes(
            transaction::modes(tokens, true)?,
        )));
    }
    let (name, value) = assignment(tokens)?;
    Ok(Utility::Setting(SettingCommand::Set { scope, name, value }))
}

fn assignment(tokens: &mut Tokens<'_>) -> Result<(String, SettingValue), SqlError> {
    let assigned = matches!(tokens.peek_second_word().as_str(), "TO");
    if !assigned {
        if tokens.accept(&["TIME", "ZONE"]) {
            return Ok(("timezone".to_owned(), time_zone(tokens)?));
        }
        if tokens.accept(&["SESSION", "AUTHORIZATION"]) {
            return Ok((
                "session_authorization".to_owned(),
                one_of(tokens, "DEFAULT")?,
            ));
        }
        if tokens.accept(&["NAMES"]) {
            let value = if tokens.at_end() {
                SettingValue::Default
            } else {
                one_of(tokens, "DEFAULT")?
            };
            return Ok(("client_encoding".to_owned(), value));
        }
        if tokens.accept(&["XML", "OPTION"]) {
            return Ok(("xmloption".to_owned(), one_of(tokens, "DEFAULT")?));
        }
        for (word, name, default) in [
            ("ROLE", "role", "NONE"),
            ("SCHEMA", "search_path", "DEFAULT"),
            ("SEED", "seed", "DEFAULT"),
        ] {
            let equals = tokens.peek_word() == word && !tokens.is_second(&Token::Eq);
            if equals {
                tokens.skip();
                return Ok((name.to_owned(), one_of(tokens, default)?));
            }
        }
    }
    let name = setting_name(tokens)?;
    if tokens.accept(&["FROM", "CURRENT"]) {
        return Err(not_supported("SET … FROM CURRENT is not supported"));
    }
    if !tokens.accept(&["TO"]) {
        tokens.expect_token(&Token::Eq)?;
    }
    if tokens.accept(&["DEFAULT"]) {
        return Ok((name, SettingValue::Default));
    }
    let values = tokens.list(value)?;
    Ok((name, SettingValue::Values(values)))
}

/// A value, or the word that means the default.
fn one_of(tokens: &mut Tokens<'_>, default: &str) -> Result<SettingValue, SqlError> {
    if tokens.accept(&[default]) {
        return Ok(SettingValue::Default);
    }
    Ok(SettingValue::Values(vec![value(tokens)?]))
}

fn time_zone(tokens: &mut Tokens<'_>) -> Result<SettingValue, SqlError> {
    if tokens.accept_one(&["DEFAULT", "LOCAL"]).is_some() {
        return Ok(SettingValue::Default);
    }
    if tokens.accept(&["INTERVAL"]) {
        return Ok(SettingValue::Values(vec![interval_zone(tokens)?]));
    }
    Ok(SettingValue::Values(vec![value(tokens)?]))
}

/// `'…' [HOUR [TO MINUTE]]`, how far the zone is east, by the name of the zone that it is.
fn interval_zone(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    let text = tokens.string()?;
    let last = if tokens.accept(&["HOUR", "TO", "MINUTE"]) {
        IntervalField::Minute
    } else if tokens.accept(&["HOUR"]) {
        IntervalField::Hour
    } else if tokens.at_end() {
        IntervalField::Second
    } else {
        let message = "time zone interval must be HOUR or HOUR TO MINUTE";
        return Err(SqlError::new(ErrorKind::SyntaxError, message));
    };
    let digits = None;
    let interval = parse_interval_as(&text, IntervalType { last, digits })?;
    let refused = |what: &str| SqlError::new(ErrorKind::InvalidParameterValue, what);
    if interval.months != 0 {
        return Err(refused("cannot specify months in time zone interval"));
    }
    if interval.days != 0 {
        return Err(refused("cannot specify days in time zone interval"));
    }
    i32::try_from(interval.micros / 1_000_000)
        .ok()
        .and_then(Zone::fixed)
        .map(|zone| zone.name().to_owned())
        .ok_or_else(|| {
            refused(&format!(
                "invalid value for parameter \"TimeZone\": \"{text}\""
            ))
        })
}

fn value(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    if let Some(text) = tokens.accept_string() {
        return Ok(text);
    }
    if let Some(number) = tokens.accept_number() {
        return Ok(number);
    }
    match tokens.accept_one(&["TRUE", "FALSE", "ON"]) {
        Some(word) => Ok(word.to_ascii_lowercase()),
        None => tokens.name(),
    }
}

fn setting_name(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    let mut name = tokens.name()?;
    while tokens.accept_token(&Token::Period) {
        name.push('.');
        name.push_str(&tokens.label()?);
    }
    Ok(name.to_ascii_lowercase())
}

/// A setting's name in SHOW and RESET, which have spellings of their own for some.
fn shown_name(tokens: &mut Tokens<'_>) -> Result<String, SqlError> {
    Ok(if tokens.accept(&["TIME", "ZONE"]) {
        "timezone".to_owned()
    } else if tokens.accept(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        "transaction_isolation".to_owned()
    } else if tokens.accept(&["SESSION", "AUTHORIZATION"]) {
        "session_authorization".to_owned()
    } else {
        setting_name(tokens)?
    })
}

pub(super) fn parse_show(tokens: &mut Tokens<'_>) -> Result<SettingCommand, SqlError> {
    if tokens.accept(&["ALL"]) {
        return Ok(SettingCommand::ShowAll);
    }
    Ok(SettingCommand::Show(shown_name(tokens)?))
}

pub(super) fn parse_reset(tokens: &mut Tokens<'_>) -> Result<SettingCommand, SqlError> {
    if tokens.accept(&["ALL"]) {
        return Ok(SettingCommand::ResetAll);
    }
    Ok(SettingCommand::Reset(shown_name(tokens)?))
}

pub(super) fn parse_discard(tokens: &mut Tokens<'_>) -> Result<SettingCommand, SqlError> {
    let target = tokens
        .accept_one(&["ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"])
        .ok_or_else(|| tokens.unexpected())?;
    Ok(SettingCommand::Discard(match target {
        "ALL" => DiscardTarget::All,
        "PLANS" => DiscardTarget::Plans,
        "SEQUENCES" => DiscardTarget::Sequences,
        _ => DiscardTarget::Temporary,
    }))
}

fn not_supported(message: &str) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}
