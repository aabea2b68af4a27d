//! Settings from the environment.

use std::ffi::OsString;

use super::{ConfigError, Layer, SETTINGS, setting};

const PREFIX: &str = "AEROSTAT_";

/// Variables of ours that are no settings of a node.
const OTHERS: &[&str] = &["AEROSTAT_CONFIG", "AEROSTAT_URL"];

/// Reads the settings among `variables`. An empty variable is as good as none.
///
/// # Errors
/// A variable that looks like a mistyped setting. Others that begin with our prefix
/// are left alone: orchestrators make some (`AEROSTAT_SERVICE_HOST`) for services
/// of that name.
pub(crate) fn read(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Layer, Vec<ConfigError>> {
    let mut layer = Layer::new();
    let mut errors = Vec::new();
    for (name, value) in variables {
        let name = name.to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if OTHERS.contains(&name.as_str()) || value.is_empty() {
            continue;
        }
        if let Some(setting) = SETTINGS
            .iter()
            .find(|setting| setting.environment() == name)
        {
            layer.insert(setting.name, value.to_string_lossy().into_owned());
        } else if let Some(near) = setting::nearest(&rest.to_ascii_lowercase()) {
            let hint = format!("; did you mean {}?", near.environment());
            errors.push(ConfigError::UnknownVariable { name, hint });
        }
    }
    if errors.is_empty() {
        Ok(layer)
    } else {
        Err(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(texts: &[(&str, &str)]) -> impl Iterator<Item = (OsString, OsString)> {
        let owned: Vec<_> = texts
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        owned.into_iter()
    }

    #[test]
    fn settings_are_picked_out() {
        let layer = read(variables(&[
            ("PATH", "/bin"),
            ("AEROSTAT_MAX_CONNECTIONS", "5"),
            ("AEROSTAT_DATA", ""),
            ("AEROSTAT_SERVICE_HOST", "10.0.0.1"),
            ("AEROSTAT_URL", "postgres://"),
        ]))
        .unwrap();
        assert_eq!(layer.len(), 1);
        assert_eq!(layer["max-connections"], "5");
    }

    #[test]
    fn typing_mistakes_are_refused() {
        let errors = read(variables(&[("AEROSTAT_LISTN", "x")])).unwrap_err();
        assert_eq!(
            errors[0].to_string(),
            "environment: unknown variable AEROSTAT_LISTN; did you mean AEROSTAT_LISTEN?"
        );
    }
}
