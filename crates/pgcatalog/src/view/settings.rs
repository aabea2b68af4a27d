//! Settings as the catalogue shows them: the session's, and those that never change.

use super::{CatalogView, facts::Setting};

/// Settings that say what Aerostat is and that no session can change; clients ask for them.
const PRESETS: [(&str, &str, &str, &str); 6] = [
    (
        "block_size",
        "8192",
        "integer",
        "Bytes of a page, as pg_class.relpages counts them.",
    ),
    (
        "default_table_access_method",
        "heap",
        "string",
        "The access method of every table.",
    ),
    (
        "jit",
        "off",
        "bool",
        "There is no just-in-time compilation.",
    ),
    (
        "lc_collate",
        "C",
        "string",
        "Texts are ordered by their bytes.",
    ),
    ("lc_ctype", "C.UTF-8", "string", "Letters are Unicode's."),
    (
        "max_index_keys",
        "32",
        "integer",
        "The most columns that clients may expect in a key.",
    ),
];

/// The session's settings and, unless it has them itself, those that never change.
pub(crate) fn all_settings(view: &CatalogView) -> Vec<Setting> {
    let mut all = view.facts.settings();
    for (name, value, kind, description) in PRESETS {
        if !all
            .iter()
            .any(|setting| setting.name.eq_ignore_ascii_case(name))
        {
            all.push(Setting {
                name: name.to_owned(),
                value: value.to_owned(),
                unit: None,
                category: "Preset Options",
                description,
                context: "internal",
                kind,
                boot_value: value.to_owned(),
            });
        }
    }
    all.sort_by_key(|setting| setting.name.to_ascii_lowercase());
    all
}
