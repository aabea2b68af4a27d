//! Options of adapters, as texts.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr};

use aerostat_types::ByteSize;

use crate::error::OptionsError;

/// Options of every adapter.
#[derive(Clone, Debug)]
pub struct Common {
    /// The participant's name on its broker: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Bytes that the program cannot work without, as the kernel counts. Without it the adapter
    /// estimates them.
    pub floor: Option<u64>,
    /// The most bytes that the program may have, as the kernel counts. Without it the adapter
    /// estimates them.
    pub ceiling: Option<u64>,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and a TCP port.
    Tcp(String, u16),
}

/// Options that nobody has taken.
pub(crate) struct Options(BTreeMap<String, String>);

impl Common {
    pub(crate) fn take(options: &mut Options) -> Result<Common, OptionsError> {
        let common = Common {
            name: options.take("name").ok_or(OptionsError::Missing("name"))?,
            floor: options.take_bytes("floor")?,
            ceiling: options.take_bytes("ceiling")?,
        };
        match (common.floor, common.ceiling) {
            (Some(floor), Some(ceiling)) if floor > ceiling => Err(OptionsError::Value {
                key: "floor",
                value: ByteSize(floor).to_string(),
                why: "it is above the ceiling".to_owned(),
            }),
            _ => Ok(common),
        }
    }

    /// Floor and ceiling, where the program's own are these.
    pub(crate) fn limits(&self, floor: u64, ceiling: u64) -> (u64, u64) {
        let ceiling = self.ceiling.unwrap_or(ceiling).max(1);
        (self.floor.unwrap_or(floor).min(ceiling), ceiling)
    }
}

impl Options {
    /// Reads `key=value,key=value`.
    pub(crate) fn parse(text: &str) -> Result<Options, OptionsError> {
        let mut values = BTreeMap::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (key, value) = part.split_once('=').ok_or(OptionsError::Syntax)?;
            let known = values.insert(key.trim().to_owned(), value.to_owned());
            if known.is_some() {
                return Err(OptionsError::Twice(key.to_owned()));
            }
        }
        Ok(Options(values))
    }

    pub(crate) fn take(&mut self, key: &'static str) -> Option<String> {
        self.0.remove(key)
    }

    pub(crate) fn take_parsed<T>(&mut self, key: &'static str) -> Result<Option<T>, OptionsError>
    where
        T: FromStr<Err: std::fmt::Display>,
    {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        match value.parse() {
            Ok(parsed) => Ok(Some(parsed)),
            Err(error) => Err(OptionsError::Value {
                key,
                why: error.to_string(),
                value,
            }),
        }
    }

    pub(crate) fn take_bytes(&mut self, key: &'static str) -> Result<Option<u64>, OptionsError> {
        Ok(self.take_parsed::<ByteSize>(key)?.map(|size| size.0))
    }

    /// Milliseconds that are not negative.
    pub(crate) fn take_ms(&mut self, key: &'static str) -> Result<Option<f64>, OptionsError> {
        let value: Option<f64> = self.take_parsed(key)?;
        match value {
            Some(ms) if !ms.is_finite() || ms < 0.0 => Err(OptionsError::Value {
                key,
                value: ms.to_string(),
                why: "it is no time".to_owned(),
            }),
            value => Ok(value),
        }
    }

    /// `socket`, or `host` and `port`.
    pub(crate) fn take_address(&mut self, port: u16) -> Result<Address, OptionsError> {
        let socket = self.take("socket");
        let host = self.take("host");
        let port = self.take_parsed("port")?.unwrap_or(port);
        match (socket, host) {
            (Some(socket), _) => Ok(Address::Unix(socket.into())),
            (None, Some(host)) => Ok(Address::Tcp(host, port)),
            (None, None) => Err(OptionsError::Missing("socket or host")),
        }
    }

    /// `password`, or the content of `password_file` without the end of its line.
    pub(crate) fn take_password(&mut self) -> Result<Option<String>, OptionsError> {
        let password = self.take("password");
        let Some(path) = self.take("password_file").map(PathBuf::from) else {
            return Ok(password);
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(source) => Err(OptionsError::File { path, source }),
        }
    }

    /// Whether each option was taken.
    pub(crate) fn finish(self) -> Result<(), OptionsError> {
        match self.0.into_keys().next() {
            Some(key) => Err(OptionsError::Unknown(key)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Adapter;

    #[test]
    fn texts_name_adapters() {
        let adapter = Adapter::parse("mariadb", "name=shop, socket=/run/s,user=a,floor=1GiB");
        match adapter.unwrap() {
            Adapter::MariaDb(common, options) => {
                assert_eq!(
                    (common.name.as_str(), common.floor),
                    ("shop", Some(1 << 30))
                );
                assert!(matches!(options.address, Address::Unix(_)));
            }
            other => panic!("{other:?}"),
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "se,cret\n").unwrap();
        let text = format!("name=c,host=h,port=7,password_file={}", file.display());
        match Adapter::parse("valkey", &text).unwrap() {
            Adapter::Redis(_, options) => {
                assert_eq!(options.password.as_deref(), Some("se,cret"));
                assert!(matches!(options.address, Address::Tcp(host, 7) if host == "h"));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_options_are_told_apart() {
        let of = |kind: &str, options: &str| Adapter::parse(kind, options).unwrap_err();
        assert!(matches!(of("oracle", "name=a"), OptionsError::Kind(_)));
        assert!(matches!(of("jvm", "pid=1"), OptionsError::Missing("name")));
        assert!(matches!(of("jvm", "name=a"), OptionsError::Missing("pid")));
        assert!(matches!(of("jvm", "name=a,name=b"), OptionsError::Twice(_)));
        assert!(matches!(of("jvm", "name=a,x"), OptionsError::Syntax));
        let unknown = of("jvm", "name=a,pid=1,socket=/s");
        assert!(matches!(unknown, OptionsError::Unknown(key) if key == "socket"));
        let floor = of("jvm", "name=a,pid=1,floor=2GB,ceiling=1GB");
        assert!(matches!(floor, OptionsError::Value { key: "floor", .. }));
        let floor = of("jvm", "name=a,pid=1,floor=much");
        assert!(matches!(floor, OptionsError::Value { key: "floor", .. }));
        let miss = of("redis", "name=a,socket=/s,miss_ms=-1");
        assert!(matches!(miss, OptionsError::Value { key: "miss_ms", .. }));
    }
}
