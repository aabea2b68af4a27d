//! ALTER SYSTEM: settings of the node that are kept in its catalogue.

use aerostat_types::{ByteSize, ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;

/// A change of the node's settings. There is one that can be changed while the node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemCommand {
    /// SET memory: what data and queries of all databases may take together.
    SetMemory(ByteSize),
    /// RESET memory, RESET ALL, SET memory = DEFAULT: what the node was started with.
    ResetMemory,
}

/// Bytes for `parameter`, a number or a text with a unit.
pub(super) fn memory(tokens: &mut Tokens<'_>, parameter: &str) -> Result<ByteSize, SqlError> {
    let text = match tokens.accept_string() {
        Some(text) => text,
        None => tokens.accept_number().ok_or_else(|| tokens.unexpected())?,
    };
    text.parse().map_err(|_| {
        let message = format!("invalid value for parameter \"{parameter}\": \"{text}\"");
        tokens
            .error_before(ErrorKind::InvalidParameterValue, message)
            .with_hint("Valid units are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".")
    })
}

/// Behind ALTER SYSTEM.
pub(super) fn parse_alter(tokens: &mut Tokens<'_>) -> Result<SystemCommand, SqlError> {
    let resets = match tokens.accept_one(&["SET", "RESET"]) {
        Some("SET") => false,
        Some(_) => true,
        None => return Err(tokens.unexpected()),
    };
    if resets && tokens.accept(&["ALL"]) {
        return Ok(SystemCommand::ResetMemory);
    }
    let name = tokens.label()?;
    if name != "memory" {
        let message = format!("parameter \"{name}\" cannot be changed by ALTER SYSTEM");
        return Err(
            SqlError::new(ErrorKind::FeatureNotSupported, message).with_hint(
                "Set it in the configuration file or the environment. ALTER SYSTEM changes memory.",
            ),
        );
    }
    if resets {
        return Ok(SystemCommand::ResetMemory);
    }
    if !tokens.accept(&["TO"]) {
        tokens.expect_token(&Token::Eq)?;
    }
    if tokens.accept(&["DEFAULT"]) {
        return Ok(SystemCommand::ResetMemory);
    }
    memory(tokens, &name).map(SystemCommand::SetMemory)
}
