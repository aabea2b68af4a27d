//! ALTER NODE and DROP NODE: the nodes of a cluster.

use aerostat_types::SqlError;

use super::{database::with_force, tokens::Tokens};

/// A command about a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// ALTER NODE … DRAIN: its databases go to other nodes, and it gets no new ones.
    Drain {
        /// Its name.
        name: String,
    },
    /// ALTER NODE … RESUME: it takes databases again.
    Resume {
        /// Its name.
        name: String,
    },
    /// DROP NODE: the cluster has it no more.
    Drop {
        /// Its name.
        name: String,
        /// IF EXISTS.
        if_exists: bool,
        /// WITH (FORCE): although databases are to be on it.
        force: bool,
    },
}

impl NodeCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            NodeCommand::Drain { .. } | NodeCommand::Resume { .. } => "ALTER NODE",
            NodeCommand::Drop { .. } => "DROP NODE",
        }
    }
}

/// Behind ALTER NODE.
pub(super) fn parse_alter(tokens: &mut Tokens<'_>) -> Result<NodeCommand, SqlError> {
    let name = tokens.name()?;
    match tokens.accept_one(&["DRAIN", "RESUME"]) {
        Some("DRAIN") => Ok(NodeCommand::Drain { name }),
        Some(_) => Ok(NodeCommand::Resume { name }),
        None => Err(tokens.unexpected()),
    }
}

/// Behind DROP NODE.
pub(super) fn parse_drop(tokens: &mut Tokens<'_>) -> Result<NodeCommand, SqlError> {
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let name = tokens.name()?;
    Ok(NodeCommand::Drop {
        name,
        if_exists,
        force: with_force(tokens)?,
    })
}
