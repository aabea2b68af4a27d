//! Secrets of the node that are stored in its data folder, readable by the owner alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// What the salts of roles without a password are made from. It is kept, since salts that
/// change with a restart would tell which roles have none.
const SCRAM_FILE: &str = "scram-secret";

/// The node's secret for SCRAM; made at the first start.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn scram(data: &Path) -> Result<[u8; 32]> {
    let file = data.join(SCRAM_FILE);
    match fs::read(&file) {
        Ok(bytes) => {
            if let Ok(secret) = <[u8; 32]>::try_from(bytes) {
                return Ok(secret);
            }
            // Cut short by a full disk or a crash. Nothing else depends on it.
            tracing::warn!(file = %file.display(), "made anew: it has not the length of a secret");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", file.display()));
        }
    }
    let secret: [u8; 32] = rand::random();
    write_private(&file, &secret)?;
    Ok(secret)
}

/// The secret that the first line of a file is.
///
/// # Errors
/// The file cannot be read, or the line is empty.
pub(crate) fn first_line(file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read the file {}", file.display()))?;
    let line = text.lines().next().unwrap_or_default();
    anyhow::ensure!(
        !line.is_empty(),
        "the first line of {} is empty",
        file.display()
    );
    Ok(line.to_owned())
}

/// Writes a file that only its owner may read, from its first byte on.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let open = || {
        // An old file would keep its old mode.
        if path.exists() {
            fs::remove_file(path)?;
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(bytes)
    };
    open().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_secret_stays_and_is_private() {
        let data = tempfile::tempdir().unwrap();
        let secret = scram(data.path()).unwrap();
        assert_eq!(scram(data.path()).unwrap(), secret);
        let file = data.path().join(SCRAM_FILE);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&file, b"short").unwrap();
        let other = scram(data.path()).unwrap();
        assert_ne!(other, secret);
        assert_eq!(scram(data.path()).unwrap(), other);
    }
}
