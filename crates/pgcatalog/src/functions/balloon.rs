//! `aerostat.balloon`: what the node may have of its memory, as an administrator sees and sets it. It is
//! the SQL interface that section 3 of *Application Level Ballooning* (Salomie et al., EuroSys 2013)
//! gives to applications that have one.
//!
//! A broker sets the same, so its next target counts.

use aerostat_types::{ByteSize, ErrorKind, SqlError};

use super::{Call, Definition, function};
use crate::cell::Cell;

/// Takes the limit away.
const OFF: &str = "off";

pub(super) fn definitions() -> Vec<Definition> {
    vec![Definition {
        acts: true,
        ..function("aerostat.balloon", &["text?"], "int8", balloon)
    }]
}

/// The node's target in bytes, after what the argument says: a quantity such as `2GB`, or `off`.
fn balloon(call: &Call<'_>) -> Result<Cell, SqlError> {
    let facts = &call.view.facts;
    let written = call.at(0);
    if *written != Cell::Null {
        let text = match written {
            Cell::Text(text) => text.trim().to_owned(),
            other => other
                .int()
                .map_or_else(String::new, |bytes| bytes.to_string()),
        };
        facts.set_balloon(match text.as_str() {
            OFF => None,
            quantity => Some(parse(quantity)?),
        })?;
    }
    let limits = facts.memory_limits();
    let of_node = limits.iter().find(|of| of.database.is_none());
    Ok(of_node.and_then(|of| of.target).into())
}

fn parse(quantity: &str) -> Result<ByteSize, SqlError> {
    quantity.parse().map_err(|_| {
        let message = format!("invalid value for the balloon: \"{quantity}\"");
        SqlError::new(ErrorKind::InvalidParameterValue, message)
            .with_hint("Write a quantity such as '2GB', or 'off'.")
    })
}
