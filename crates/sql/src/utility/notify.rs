//! LISTEN, UNLISTEN and NOTIFY.

use aerostat_types::SqlError;
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;

/// A command about channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotifyCommand {
    /// LISTEN channel.
    Listen(String),
    /// UNLISTEN channel; `None` for `*`.
    Unlisten(Option<String>),
    /// NOTIFY channel, payload.
    Notify {
        /// The channel.
        channel: String,
        /// What is said; nothing is the empty text.
        payload: String,
    },
}

impl NotifyCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            NotifyCommand::Listen(_) => "LISTEN",
            NotifyCommand::Unlisten(_) => "UNLISTEN",
            NotifyCommand::Notify { .. } => "NOTIFY",
        }
    }
}

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<NotifyCommand, SqlError> {
    Ok(match word {
        "LISTEN" => NotifyCommand::Listen(tokens.name()?),
        "UNLISTEN" if tokens.accept_token(&Token::Mul) => NotifyCommand::Unlisten(None),
        "UNLISTEN" => NotifyCommand::Unlisten(Some(tokens.name()?)),
        _ => {
            let channel = tokens.name()?;
            let payload = match tokens.accept_token(&Token::Comma) {
                true => tokens.string()?,
                false => String::new(),
            };
            NotifyCommand::Notify { channel, payload }
        }
    })
}
