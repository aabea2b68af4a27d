//! The untyped packets with which a connection begins.

use std::collections::BTreeMap;

use aerostat_types::ErrorKind;

use crate::{
    sqlstate::{Fault, WireError},
    wire::Cursor,
};

const CANCEL_CODE: u32 = 80_877_102;
const TLS_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;

/// The protocol's major version: 3.0. Clients that ask for a later minor version are told so.
const MAJOR: u32 = 3;

/// The first packet of a client.
#[derive(Debug)]
pub(crate) enum Request {
    Startup(Startup),
    Cancel { pid: i32, secret: i32 },
    Tls,
    Gss,
}

/// A startup packet.
#[derive(Clone, Debug)]
pub(crate) struct Startup {
    pub(crate) minor: u32,
    parameters: BTreeMap<String, String>,
}

pub(crate) fn read(mut cursor: Cursor<'_>) -> Result<Request, Fault> {
    let code = cursor.u32()?;
    match code {
        TLS_CODE => Ok(Request::Tls),
        GSS_CODE => Ok(Request::Gss),
        CANCEL_CODE => Ok(Request::Cancel {
            pid: cursor.i32()?,
            secret: cursor.i32()?,
        }),
        _ if code >> 16 == MAJOR => {
            let mut startup = Startup::read_pairs(&mut cursor)?;
            cursor.end().map_err(|_| {
                Fault::protocol("invalid startup packet layout: expected terminator as last byte")
            })?;
            startup.minor = code & 0xffff;
            Ok(Request::Startup(startup))
        }
        _ => Err(Fault::Fatal(WireError::new(
            ErrorKind::FeatureNotSupported,
            format!(
                "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                code >> 16,
                code & 0xffff
            ),
        ))),
    }
}

impl Startup {
    /// The parameters, up to an empty name.
    pub(crate) fn read_pairs(cursor: &mut Cursor<'_>) -> Result<Startup, Fault> {
        let mut parameters = BTreeMap::new();
        loop {
            let name = cursor.text()?;
            if name.is_empty() {
                break;
            }
            parameters.insert(name.to_owned(), cursor.text()?.to_owned());
        }
        Ok(Startup {
            minor: 0,
            parameters,
        })
    }

    /// That of a packet's body.
    #[cfg(test)]
    pub(crate) fn of_packet(packet: &[u8]) -> Option<Startup> {
        match read(Cursor::new(packet)) {
            Ok(Request::Startup(startup)) => Some(startup),
            _ => None,
        }
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, String)> {
        let all = self.parameters.iter();
        all.map(|(name, value)| (name.as_str(), value.clone()))
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        self.parameters.remove(name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.get("user").filter(|user| !user.is_empty())
    }

    /// The database; if the client names none, it is the one with the user's name.
    pub(crate) fn database(&self) -> &str {
        self.get("database")
            .filter(|name| !name.is_empty())
            .or(self.user())
            .unwrap_or("")
    }

    /// The protocol extensions that the client asks for. We support none.
    pub(crate) fn unsupported(&self) -> Vec<&str> {
        self.parameters
            .keys()
            .filter(|name| name.starts_with("_pq_."))
            .map(String::as_str)
            .collect()
    }

    /// Refuses replication.
    pub(crate) fn check_replication(&self) -> Result<(), Fault> {
        let wanted = self.get("replication");
        if wanted.is_none_or(|value| matches!(value, "0" | "off" | "false" | "no")) {
            return Ok(());
        }
        Err(Fault::Fatal(WireError::new(
            ErrorKind::FeatureNotSupported,
            "replication connections are not supported",
        )))
    }

    /// The settings for the session: parameters that are not about the connection, and those in
    /// `options`.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let connection_data = ["user", "database", "options", "replication"];
        let mut settings = self.get("options").map(parse_options).unwrap_or_default();
        let named = self.parameters.iter().filter(|(name, _)| {
            !connection_data.contains(&name.as_str()) && !name.starts_with("_pq_.")
        });
        settings.extend(named.map(|(name, value)| (name.clone(), value.clone())));
        settings
    }
}

/// Parses `-c name=value`, `-cname=value` and `--name=value`; a backslash escapes a blank.
fn parse_options(options: &str) -> Vec<(String, String)> {
    let mut words = vec![String::new()];
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        let Some(word) = words.last_mut() else { break };
        match c {
            '\\' => word.extend(chars.next()),
            c if c.is_whitespace() && word.is_empty() => {}
            c if c.is_whitespace() => words.push(String::new()),
            c => word.push(c),
        }
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let setting = match word.as_str() {
            "-c" => words.next(),
            other => other
                .strip_prefix("--")
                .or(other.strip_prefix("-c"))
                .map(str::to_owned),
        };
        if let Some((name, value)) = setting
            .as_deref()
            .and_then(|setting| setting.split_once('='))
        {
            settings.push((name.replace('-', "_"), value.to_owned()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_postgresql_reads_them() {
        let pairs =
            parse_options(r"-c statement_timeout=5s --search-path=a\ b  -cTimeZone=UTC junk");
        let expected = [
            ("statement_timeout", "5s"),
            ("search_path", "a b"),
            ("TimeZone", "UTC"),
        ];
        assert_eq!(pairs, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
}
