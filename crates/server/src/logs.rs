//! Logs: structured events to standard error, as text for people or as JSON lines.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Installs the process's log writer.
///
/// # Errors
/// When the filter is none.
pub(crate) fn install(format: LogFormat, filter: &str) -> Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("log-filter {filter:?} is no filter"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
