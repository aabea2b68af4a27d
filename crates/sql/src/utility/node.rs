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
    /// ALTER NODE … UPGRADE TO: its process goes on as another build of the program.
    Upgrade {
        /// Its name.
        name: String,
        /// The program, a file of the node's machine.
        program: String,
        /// ALTER NODE … CHECK UPGRADE TO: it is only found out whether it could.
        only_check: bool,
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
            NodeCommand::Drain { .. }
            | NodeCommand::Resume { .. }
            | NodeCommand::Upgrade { .. } => "ALTER NODE",
            NodeCommand::Drop { .. } => "DROP NODE",
        }
    }
}

/// Behind ALTER NODE.
pub(super) fn parse_alter(tokens: &mut Tokens<'_>) -> Result<NodeCommand, SqlError> {
    let name = tokens.name()?;
    match tokens.accept_one(&["DRAIN", "RESUME", "CHECK", "UPGRADE"]) {
        Some("DRAIN") => Ok(NodeCommand::Drain { name }),
        Some("RESUME") => Ok(NodeCommand::Resume { name }),
        Some(word) => {
            let only_check = word == "CHECK";
            let rest: &[&str] = if only_check {
                &["UPGRADE", "TO"]
            } else {
                &["TO"]
            };
            tokens.expect(rest)?;
            Ok(NodeCommand::Upgrade {
                name,
                program: tokens.string()?,
                only_check,
            })
        }
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
