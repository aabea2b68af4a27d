//! ALTER SYSTEM: settings of the node that its catalogue keeps.

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::utility::SystemCommand;
use aerostat_types::{ByteSize, ErrorKind, SqlError};

use super::{Node, limits};
use crate::{actor::Actor, ddl::CommandResult};

/// The least memory of a node: a few databases' empty arenas and one query.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

impl Node {
    /// Executes ALTER SYSTEM. A change of the memory is kept for the next starts and counts from now
    /// on: a higher limit at once, a lower one as memory comes back.
    ///
    /// # Errors
    /// Only superusers may; less than [`MEMORY_BYTES_MIN`], or than is kept for databases; `IoError` when it cannot be stored.
    pub fn execute_system(
        &self,
        actor: &Actor,
        command: &SystemCommand,
    ) -> Result<CommandResult, SqlError> {
        if !actor.superuser {
            let message = "permission denied to run ALTER SYSTEM";
            return Err(SqlError::new(ErrorKind::InsufficientPrivilege, message)
                .with_detail("Only superusers may change settings of the node."));
        }
        let memory = match command {
            SystemCommand::SetMemory(bytes) if bytes.0 < MEMORY_BYTES_MIN => {
                let least = ByteSize(MEMORY_BYTES_MIN);
                let message = format!("memory must be at least {least}");
                return Err(SqlError::new(ErrorKind::InvalidParameterValue, message));
            }
            SystemCommand::SetMemory(bytes) => Some(*bytes),
            SystemCommand::ResetMemory => None,
        };
        let governor = self.governor();
        let target = memory.unwrap_or(governor.configured());
        self.change(|record| {
            let kept = limits::minima(record.databases.values());
            if kept > target {
                let message = format!("{kept} are kept for databases, as memory_min");
                return Err(SqlError::new(ErrorKind::InvalidParameterValue, message)
                    .with_hint("Lower memory_min of databases first, see aerostat.tenants."));
            }
            record.memory = memory;
            Ok(())
        })?;
        governor.set_target(target);
        let done = CommandResult::new("ALTER SYSTEM");
        Ok(match memory {
            Some(_) if governor.is_given() => done.with_notices(vec![overridden()]),
            _ => done,
        })
    }
}

fn overridden() -> Notice {
    let message =
        "the node was started with a flag or variable for memory, which counts at the next start";
    let mut notice = Notice::new(NoticeSeverity::Warning, message);
    notice.hint = Some("Leave it out there, and the value from ALTER SYSTEM counts.".to_owned());
    notice
}
