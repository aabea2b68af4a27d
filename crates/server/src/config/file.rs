//! The configuration file: a flat TOML table of settings.

use std::path::Path;

use super::{ConfigError, Layer, setting};

/// Reads a file's texts.
///
/// # Errors
/// Every mistake in it: no file, no TOML, unknown names, values that are tables or lists.
pub(crate) fn read(path: &Path) -> Result<Layer, Vec<ConfigError>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        vec![ConfigError::Unreadable {
            path: path.display().to_string(),
            reason: error.to_string(),
        }]
    })?;
    parse(&path.display().to_string(), &text)
}

fn parse(path: &str, text: &str) -> Result<Layer, Vec<ConfigError>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        vec![ConfigError::NotToml {
            path: path.to_owned(),
            reason: error.to_string(),
        }]
    })?;
    let mut layer = Layer::new();
    let mut errors = Vec::new();
    for (key, value) in table {
        let Some(setting) = setting::find(&key) else {
            let hint = setting::nearest(&key)
                .map(|near| format!("; did you mean `{}`?", near.name))
                .unwrap_or_default();
            errors.push(ConfigError::UnknownKey {
                path: path.to_owned(),
                key,
                hint,
            });
            continue;
        };
        match plain(&value) {
            Some(text) => {
                layer.insert(setting.name, text);
            }
            None => errors.push(ConfigError::NotAValue {
                path: path.to_owned(),
                key,
            }),
        }
    }
    if errors.is_empty() {
        Ok(layer)
    } else {
        Err(errors)
    }
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_plain_kind_are_read() {
        let layer = parse(
            "a.toml",
            "listen = \"[::1]:1\"\nmax-connections = 7\nmemory = \"1GB\"\n",
        )
        .unwrap();
        assert_eq!(layer["listen"], "[::1]:1");
        assert_eq!(layer["max-connections"], "7");
    }

    #[test]
    fn every_mistake_is_named() {
        let errors = parse("a.toml", "lisen = 1\nthreads = [1]\nxyzzy = 1\n").unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "a.toml: unknown setting `lisen`; did you mean `listen`?",
                "a.toml: `threads` must be a text, a number or true/false",
                "a.toml: unknown setting `xyzzy`",
            ]
        );
        assert!(matches!(
            parse("a.toml", "= 1").unwrap_err()[..],
            [ConfigError::NotToml { .. }]
        ));
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let errors = read(Path::new("/nonexistent/aerostat.toml")).unwrap_err();
        assert!(matches!(errors[..], [ConfigError::Unreadable { .. }]));
    }
}
