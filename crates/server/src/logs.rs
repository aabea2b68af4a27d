//! Logs: structured events to standard error, as text for people or as JSON lines.
//!
//! Clients influence some of what is logged: names of users and databases, and through them
//! messages. In text logs these can neither begin a line nor move the cursor; in JSON strings are
//! escaped anyway.

use std::fmt::{self, Write};

use anyhow::{Context, Result};
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt,
    fmt::{FormatFields, format, format::Writer},
};

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
            .fmt_fields(one_line())
            .init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// Writes the fields of an event into its line, and nowhere else.
fn one_line() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    format::debug_fn(|writer, field, value| write_field(writer, field, value)).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match (field.name(), writer.has_ansi_escapes()) {
        ("message", _) => {}
        // Italic, then dim, as the rest of the line is coloured.
        (name, true) => write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
        (name, false) => write!(writer, "{name}=")?,
    }
    write!(Escaped(writer), "{value:?}")
}

/// Writes what would control a terminal or end a line as Rust's literals write it.
struct Escaped<'a, 'b>(&'a mut Writer<'b>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let controls = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        let mut rest = text;
        while let Some(at) = rest.find(controls) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = from.chars();
            if let Some(control) = chars.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_client_chooses_stays_in_its_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(one_line())
            .finish();
        let name = "eve\n2026-01-01 ERROR forged\r\u{1b}[2J\u{2028}é";
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(user = %name, role = name, rows = 3, "user {name} refused");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let escaped = r"eve\n2026-01-01 ERROR forged\r\u{1b}[2J\u{2028}é";
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(&format!("user {escaped} refused ")), "{text}");
        assert!(text.contains(&format!(" user={escaped} ")), "{text}");
        assert!(text.ends_with(" rows=3\n"), "{text}");
        let inner = text.trim_end_matches('\n');
        assert!(!inner.contains(char::is_control), "{text}");
    }
}
