//! Values of settings.

/// What a setting is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// Back to the default.
    Default,
    /// These values; most settings take one, `search_path` a list.
    Values(Vec<String>),
}
