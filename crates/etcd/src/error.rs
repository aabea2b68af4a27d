//! Why etcd could not be asked.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why etcd could not be asked.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// No cluster is named like this.
    #[error(
        "\"{0}\" names no etcd cluster; give members and a name, as etcd://host:2379,host:2379/name"
    )]
    Name(String),
    /// No member has answered.
    #[error("no member of etcd answers: {0}")]
    Unavailable(String),
    /// Certificates that cannot be used.
    #[error("cannot use {}: {why}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It will not do that.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// What it said is not understood.
    #[error("etcd's answer is odd: {0}")]
    Odd(String),
}

impl From<EtcdError> for io::Error {
    fn from(error: EtcdError) -> io::Error {
        let kind = match error {
            EtcdError::Unavailable(_) => io::ErrorKind::TimedOut,
            EtcdError::Name(_) | EtcdError::Certificates { .. } => io::ErrorKind::InvalidInput,
            EtcdError::Refused(_) => io::ErrorKind::PermissionDenied,
            EtcdError::Odd(_) => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
