//! SET ROLE and SET SESSION AUTHORIZATION: whose rights a session's statements have.
//!
//! ```text
//!  the role that connected ── SET SESSION AUTHORIZATION ──► session_authorization
//!                                                                 │ SET ROLE
//!                                                                 ▼
//!                                                         the role whose rights count
//! ```
//!
//! Roles have no members, so superusers may become any role, and others only themselves. Both are
//! settings: they follow the transaction, and savepoints.

use aerostat_catalog::NodeRecord;
use aerostat_sql::grants::PredefinedRole;
use aerostat_types::{ErrorKind, SqlError};

use super::settings::Settings;

/// A session that asks for another role.
pub(super) struct Asking<'a> {
    pub(super) node: &'a NodeRecord,
    /// The role that connected.
    pub(super) authenticated: &'a str,
    /// Only until the transaction ends.
    pub(super) is_local: bool,
}

/// Whether this setting is one of those that name a role.
pub(super) fn is_role(setting: &str) -> bool {
    matches!(setting, "role" | "session_authorization")
}

impl Asking<'_> {
    /// Sets `role` or `session_authorization`; `None` is the role that connected.
    ///
    /// # Errors
    /// There is no such role, or it may not be taken on.
    pub(super) fn set(
        &self,
        settings: &mut Settings,
        name: &str,
        role: Option<&str>,
    ) -> Result<(), SqlError> {
        match name {
            "role" => self.set_role(settings, role)?,
            _ => self.set_session(settings, role)?,
        }
        let acting = settings.acting_role().to_owned();
        let is_superuser = match self.is_superuser(&acting) {
            true => "on",
            false => "off",
        };
        settings.tell("is_superuser", is_superuser, self.is_local);
        Ok(())
    }

    fn set_role(&self, settings: &mut Settings, role: Option<&str>) -> Result<(), SqlError> {
        let Some(role) = role.filter(|role| !role.eq_ignore_ascii_case("none")) else {
            settings.tell("role", "none", self.is_local);
            return Ok(());
        };
        let session = settings.session_role();
        if session != role && !self.is_superuser(session) {
            self.require_role(role)?;
            let message = format!("permission denied to set role \"{role}\"");
            return Err(SqlError::new(ErrorKind::InsufficientPrivilege, message));
        }
        self.require_role(role)?;
        settings.tell("role", role, self.is_local);
        Ok(())
    }

    fn set_session(&self, settings: &mut Settings, role: Option<&str>) -> Result<(), SqlError> {
        let role = role.unwrap_or(self.authenticated);
        if role != self.authenticated {
            self.require_role(role)?;
            if !self.is_superuser(self.authenticated) {
                return Err(SqlError::new(
                    ErrorKind::InsufficientPrivilege,
                    "permission denied to set session authorization",
                ));
            }
        }
        settings.tell("session_authorization", role, self.is_local);
        settings.tell("role", "none", self.is_local);
        Ok(())
    }

    fn require_role(&self, role: &str) -> Result<(), SqlError> {
        if self.node.roles.contains_key(role) {
            return Ok(());
        }
        if PredefinedRole::named(role).is_some() {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("cannot set role to the predefined role \"{role}\""),
            )
            .with_hint("Membership of it gives what it stands for."));
        }
        Err(SqlError::new(
            ErrorKind::InvalidParameterValue,
            format!("role \"{role}\" does not exist"),
        ))
    }

    fn is_superuser(&self, role: &str) -> bool {
        let record = self.node.roles.get(role);
        record.is_some_and(|record| record.superuser)
    }
}
